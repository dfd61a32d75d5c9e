from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from cppn_genomes import genomes
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from recombine.cppn import (
    Approach,
    Archive,
    Genome,
    Limits,
    approach,
    chosen,
    descriptor,
    evolve,
    fits,
    looks,
    minimal_genome,
    mutated,
    picture,
    quality,
    unselected,
)
from recombine.cppn.graph import wiring
from recombine.errors import InvalidRequest

PICTURES = arrays(
    np.float64,
    st.tuples(st.integers(8, 13), st.integers(8, 13), st.just(3)),
    elements=st.floats(0, 1),
)


def hidden(genome: Genome) -> int:
    return sum(node.kind == "hidden" for node in genome.nodes)


def has_cycle(genome: Genome) -> bool:
    left = {node.id for node in genome.nodes}
    while True:
        free = {
            id
            for id in left
            if not any(one.target == id and one.source in left for one in genome.links)
        }
        if not free:
            return bool(left)
        left -= free


@pytest.fixture(scope="module")
def archive() -> Archive:
    return evolve(3, 1200, size=16)


# --- looks -----------------------------------------------------------------------------------


@given(image=PICTURES)
def test_what_evolution_looks_at_does_not_change_in_a_mirror(image):
    look = descriptor(image)
    assert look.shape == (5,) and (look >= 0).all() and (look <= 1).all()
    mirrors = [image[:, ::-1], image[::-1], image[::-1, ::-1], image.swapaxes(0, 1)]
    for mirror in mirrors:
        np.testing.assert_allclose(descriptor(mirror), look, atol=1e-9)
        assert quality(mirror) == pytest.approx(quality(image))


@given(image=PICTURES, seed=st.integers(0, 99))
def test_quality_is_the_same_for_any_order_of_the_pixels(image, seed):
    flat = image.reshape(-1, 3)
    shuffled = np.random.default_rng(seed).permutation(flat).reshape(image.shape)
    assert quality(shuffled) == pytest.approx(quality(image))
    assert 0 <= quality(image) <= 1


def test_descriptors_of_plain_pictures_are_those_computed_by_hand():
    ramp = np.repeat(np.linspace(0, 1, 16)[None, :, None], 16, axis=0) * np.ones(3)
    brightness, fine, coarse, colour, low = descriptor(ramp)
    assert brightness == pytest.approx(0.5)
    assert fine == pytest.approx(1 / 15 / 2 / looks.FINE)
    assert coarse == pytest.approx(4 / 15 / 2 / looks.COARSE)
    assert colour == 0
    # Wave k of a ramp of n steps has the power 1 / sin(pi k / n)^2; they sum to (n^2 - 1) / 3.
    power = [1 / np.sin(np.pi * k / 16) ** 2 for k in (1, 2)]
    assert low == pytest.approx(2 * sum(power) / 85)
    stripes = (np.arange(16) % 2)[None, :, None] * np.ones((16, 16, 3))
    assert descriptor(stripes).tolist() == pytest.approx([0.5, 1, 0, 0, 0], abs=1e-12)
    red = np.zeros((16, 16, 3))
    red[:8, :, 0] = 0.5
    opponent = np.hypot(0.25, 0.125)  # deviations of red - green and of half of it
    assert descriptor(red)[3] == pytest.approx(1.3 * opponent / looks.COLOURFUL)


def test_every_shade_alike_is_the_highest_quality():
    image = (np.arange(64 * 3 * 16) // 3 % 32 / 32 + 1 / 64).reshape(32, 32, 3)
    assert quality(image) == pytest.approx(1)


def test_a_picture_too_small_to_look_at_is_refused():
    with pytest.raises(InvalidRequest, match="at least 8 pixels a side"):
        descriptor(np.zeros((4, 8, 3)))


# --- mutation --------------------------------------------------------------------------------


@settings(max_examples=60)
@given(genome=genomes(), seed=st.integers(0, 10**6))
def test_a_child_differs_keeps_its_outputs_and_closes_no_cycle(genome, seed):
    child = mutated(genome, np.random.default_rng(seed), "new")
    assert child != genome or not genome.links
    assert child.outputs() == genome.outputs()
    assert not has_cycle(child)
    assert len(child.nodes) - len(genome.nodes) in range(4)
    assert all(np.isfinite(link.weight) for link in child.links)


def test_a_line_of_children_stays_within_its_limits_and_comes_to_fill_them():
    rng, limits = np.random.default_rng(0), Limits(hidden=6, links=30, depth=3)
    genome = minimal_genome(rng)
    for number in range(300):
        genome = mutated(genome, rng, f"n{number}", limits)
        assert hidden(genome) <= 6 and len(genome.links) <= 30
        assert fits([genome]).depth <= 3
    assert hidden(genome) == 6


def test_minimal_genomes_have_nothing_between_inputs_and_outputs():
    for seed in range(20):
        genome = minimal_genome(np.random.default_rng(seed))
        assert hidden(genome) == 0
        assert {link.target for link in genome.links} == {"hue", "saturation", "brightness"}


# --- evolution without a target --------------------------------------------------------------


def test_the_same_seed_gives_the_same_archive_and_another_one_does_not(archive):
    assert evolve(3, 1200, size=16) == archive
    assert evolve(4, 100, size=16).elites != evolve(3, 100, size=16).elites


def test_elites_are_of_different_kinds_and_look_as_recorded(archive):
    cells = {
        tuple(np.minimum(np.array(one.descriptor) * 4, 3).astype(int)) for one in archive.elites
    }
    assert len(cells) == len(archive.elites) > 60
    for one in archive.elites[::10]:
        image = picture(one.genome, 16)
        assert tuple(descriptor(image)) == one.descriptor
        assert quality(image) == one.quality


def test_longer_evolution_fills_more_cells_and_loses_none(archive):
    def best(found: Archive) -> dict[tuple[int, ...], float]:
        return {
            tuple(np.minimum(np.array(one.descriptor) * 4, 3).astype(int).tolist()): one.quality
            for one in found.elites
        }

    short, long = best(evolve(3, 400, size=16)), best(archive)
    assert len(long) > len(short)
    assert all(long[cell] >= worth for cell, worth in short.items())


def test_the_line_of_an_elite_leads_from_a_minimal_genome_step_by_step(archive):
    longest = max((archive.line(one) for one in archive.elites), key=len)
    assert len(longest) > 4
    for elite in archive.elites:
        line = archive.line(elite)
        assert line[-1] is elite and line[0].parent is None and hidden(line[0].genome) == 0
        for parent, child in itertools.pairwise(line):
            assert child.parent == parent.born < child.born
            assert {node.id for node in parent.genome.nodes} <= {n.id for n in child.genome.nodes}


def test_an_archive_survives_json(archive):
    again = Archive.from_document(json.loads(json.dumps(archive.document())))
    assert again == archive
    with pytest.raises(InvalidRequest, match="not the document of an archive"):
        Archive.from_document({"seed": 1})


def test_all_elites_fit_a_bounded_architecture():
    limits = Limits(hidden=5, links=20, depth=3)
    shape = fits([one.genome for one in evolve(0, 300, size=16, limits=limits).elites])
    assert shape.depth <= 3 and dict(shape.blocks)["cache"] <= 5 + 4 + 3


def test_a_walk_without_selection_has_the_mutations_and_the_nodes_of_the_line_it_is_given(archive):
    for number, elite in enumerate(archive.elites[-5:]):
        line = [one.genome for one in archive.line(elite)]
        walk = unselected(line, (0, number), may=lambda genome: True)
        assert len(walk) == len(line)
        assert wiring(walk[-1]).hidden == wiring(line[-1]).hidden
        assert wiring(walk[0]).hidden == 0 and walk == unselected(
            line, (0, number), may=lambda genome: True
        )
    with pytest.raises(InvalidRequest, match="an empty line"):
        unselected([], 0)
    with pytest.raises(InvalidRequest, match="worth drawing"):
        unselected(line[:1], 0, may=lambda genome: False)


def test_where_no_walk_ends_at_the_size_the_nearest_is_taken(archive):
    elite = max(archive.elites, key=lambda one: wiring(one.genome).hidden)
    short = [archive.line(elite)[0].genome, elite.genome]  # one mutation cannot add so many
    found = wiring(unselected(short, 0, may=lambda genome: True)[-1]).hidden
    assert 0 < found <= min(3, wiring(elite.genome).hidden)


def test_chosen_pictures_are_farthest_from_those_chosen_before(archive):
    picked = chosen(archive, 6, 0, nodes=2, size=16)
    assert len({one.born for one in picked}) == 6
    able = chosen(archive, len(_able(archive)), 0, nodes=2, size=16)
    assert {one.born for one in able} == {one.born for one in _able(archive)}
    for place in range(1, 6):
        before = [np.array(one.descriptor) for one in picked[:place]]

        def gap(one, before=before) -> float:
            return min(float(np.linalg.norm(np.array(one.descriptor) - b)) for b in before)

        assert gap(picked[place]) == pytest.approx(max(gap(one) for one in _able(archive)))


def _able(archive: Archive) -> list:
    found = []
    for one in archive.elites:
        used, waiting = set(), list(one.genome.outputs().values())
        while waiting:
            id = waiting.pop()
            if id not in used:
                used.add(id)
                waiting += [link.source for link in one.genome.links if link.target == id]
        deep = sum(node.kind == "hidden" and node.id in used for node in one.genome.nodes)
        if deep >= 2 and picture(one.genome, 16).std(axis=(0, 1)).max() >= 0.1:
            found.append(one)
    return found


def test_more_pictures_than_there_are_cannot_be_chosen(archive):
    with pytest.raises(InvalidRequest, match=r"5000 pictures asked for: expected from 1 to \d+"):
        chosen(archive, 5000, 0)
    young = evolve(0, 60)
    none = f"50 pictures asked for: none of the {len(young.elites)} elites has .*longer than 60"
    with pytest.raises(InvalidRequest, match=none):
        chosen(young, 50, 0)
    stranger = evolve(9, 60, size=16).elites[-1]
    with pytest.raises(InvalidRequest, match="not of this archive"):
        archive.line(stranger)


# --- evolution with a target -----------------------------------------------------------------


def test_an_approach_never_goes_back_and_ends_where_its_curve_does():
    target = picture(minimal_genome(np.random.default_rng(5)), 12)
    found = approach(target, 0, 400)
    assert isinstance(found, Approach) and len(found.curve) == 400
    assert (np.diff(found.curve) <= 0).all()
    error = ((picture(found.genome, 12) - target) ** 2).mean()
    assert found.error == found.curve[-1] == pytest.approx(error)
    again = approach(target, 0, 400)
    assert again.genome == found.genome


def test_an_approach_beats_the_best_of_as_many_random_beginnings():
    ramp = np.linspace(0, 1, 12)[None, :, None] * np.ones((12, 12, 3))
    rng = np.random.default_rng(0)
    drawn = [((picture(minimal_genome(rng), 12) - ramp) ** 2).mean() for _ in range(600)]
    assert approach(ramp, 0, 600).error < min(drawn)


@pytest.mark.parametrize(
    "target",
    [np.zeros((4, 4)), np.zeros((4, 5, 3)), np.full((4, 4, 3), 2.0), np.full((4, 4, 3), np.nan)],
)
def test_a_wrong_target_is_refused(target):
    with pytest.raises(InvalidRequest, match="a target"):
        approach(target, 0, 10)


def test_wrong_requests_are_refused():
    with pytest.raises(InvalidRequest, match="whole numbers of at least 1"):
        evolve(0, 0)
    with pytest.raises(InvalidRequest, match="whole numbers of at least 1"):
        evolve(0, 10, bins=0)
    with pytest.raises(InvalidRequest, match=r"3\.5 evaluations"):
        evolve(0, 3.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="links of at least 12"):
        Limits(links=3)
