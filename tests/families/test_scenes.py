"""Scenes: what is drawn is what was asked for, and a second renderer draws the same."""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest, norm

sys.path.insert(0, str(Path(__file__).parent))
import second_renderer

from recombine.encodings import FewShot, Sentence
from recombine.errors import InvalidRequest, RecombineError
from recombine.families.check import check_family
from recombine.families.glyphs import COLOURS, RADII, SHAPES, coverage, templates
from recombine.families.scenes import Scenes, concepts, request
from recombine.lab.identity import canonical, revive

pytestmark = pytest.mark.usefixtures("strict_types")

SETS, SLOTS, PAIRS = Scenes(), Scenes(shows="slots"), Scenes(shows="pairs")
every = pytest.mark.parametrize("family", [SETS, SLOTS, PAIRS], ids=lambda family: family.shows)


def latents(family: Scenes, ranks) -> jax.Array:
    return jnp.asarray(family.space.indicator(np.asarray(ranks, np.uint32))).astype(jnp.float32)


@functools.cache
def content(family: Scenes, seed: int = 0):
    return jax.jit(family.content)(jax.random.key(seed))


@functools.cache
def drawn(family: Scenes, count: int = 2_000, seed: int = 1):
    """Ranks and layouts of scenes of random tasks."""
    ranks = np.random.default_rng(seed).integers(0, family.space.size, count)
    layout = jax.jit(family.layout)(content(family), latents(family, ranks), jax.random.key(seed))
    return ranks, np.asarray(layout)


@every
def test_it_keeps_the_contract_of_families(family):
    check_family(replace(family, size=16, cells=2))


def test_an_odd_size_keeps_it_too():
    check_family(Scenes(shows="slots", size=24, cells=2, shapes=2, colours=3, sizes=3))


@dataclass(frozen=True)
class Indifferent(Scenes):
    def layout(self, content, latents, key):
        return super().layout(content, jnp.eye(*latents.shape), key)


def test_a_generator_that_does_not_listen_breaks_the_contract():
    with pytest.raises(RecombineError, match="must depend on the latent"):
        check_family(Indifferent(size=16, cells=2, modules=5, active=1, shapes=1))


def test_the_glyphs_of_a_set_stand_once_each_and_nothing_else_does():
    ranks, layout = drawn(SETS)
    glyphs = np.asarray(content(SETS)["glyphs"])
    assert len(set(glyphs.tolist())) == 16 and glyphs.min() >= 1 and glyphs.max() <= 64
    for rank, row in zip(ranks, layout, strict=True):
        wanted = sorted(glyphs[list(SETS.space.describe(rank))].tolist())
        assert sorted(row[row > 0].tolist()) == wanted


def test_other_content_has_other_glyphs():
    one, other = (np.asarray(content(SETS, seed)["glyphs"]) for seed in (0, 1))
    assert set(one.tolist()) != set(other.tolist())


def test_the_object_of_a_slot_scene_has_the_values_asked_for():
    ranks, layout = drawn(SLOTS)
    for (shape, colour, size, quadrant), row in zip(SLOTS.space.values(ranks), layout, strict=True):
        (cell,) = np.flatnonzero(row)
        assert row[cell] == 1 + (size * 8 + shape) * 8 + colour
        assert divmod(int(cell), 4)[0] // 2 * 2 + divmod(int(cell), 4)[1] // 2 == quadrant


def test_each_object_of_a_pair_is_on_its_side_with_its_own_values():
    ranks, layout = drawn(PAIRS)
    for (one, red, other, blue), row in zip(PAIRS.space.values(ranks), layout, strict=True):
        grid = row.reshape(4, 4)
        assert grid[:, :2].sum() == 1 + one * 8 + red and (grid[:, :2] > 0).sum() == 1
        assert grid[:, 2:].sum() == 1 + other * 8 + blue and (grid[:, 2:] > 0).sum() == 1


@every
def test_every_cell_is_as_likely_as_another(family):
    ranks, layout = drawn(family)
    if family.shows == "slots":  # quadrants are what was asked for, so look within one
        layout = layout[family.space.values(ranks)[:, 3] == 2][:, [8, 9, 12, 13]]
    counts = (layout > 0).sum(axis=0)
    assert chisquare(counts).pvalue > 1e-3


@every
def test_the_second_renderer_draws_the_same_pictures(family):
    _, layout = drawn(family)
    glyphs = second_renderer.vocabulary(family.cell, 8, 8, family.sizes)
    expected = second_renderer.paint(layout[:64], glyphs, family.cells).reshape(64, -1)
    found = np.asarray(family.render(content(family), jnp.asarray(layout[:64])))
    assert found.min() == -1 and found.max() <= 1
    # Points in a pixel are counted there and distances taken here: edges differ by a little.
    np.testing.assert_allclose(found, expected, atol=0.35)
    assert np.sqrt(np.mean((found - expected)[expected > -1] ** 2)) < 0.06


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_the_area_of_a_shape_is_that_of_its_geometry(shape):
    areas = {
        "disc": np.pi * 0.81,
        "square": (2 * 0.96) ** 2,
        "triangle": 1.95**2 / 1.9,
        "cross": 4 * 2 * 0.28 - 4 * 0.28**2,
        "ring": np.pi * (1.02**2 - 0.62**2),
        "corner": 2 * 0.6 + 1.4 * 0.6,
        "saltire": 2 * (4 * (s := 0.22 * 2**0.5) - s**2) - 2 * s**2,
        "hourglass": 2 + 4 * 0.05,
    }
    assert coverage(shape, 64, 28.0).sum() / 28**2 == pytest.approx(areas[shape], rel=0.01)


@pytest.mark.parametrize(("cell", "sizes"), [(8, 2), (12, 3), (16, 3)])
def test_no_two_templates_are_alike(cell, sizes):
    bank = templates(cell, len(SHAPES), len(COLOURS), sizes)
    assert len(bank) == 1 + 64 * sizes and np.all(bank[0] == -1)
    apart = np.sum((bank[:, None] - bank) ** 2, axis=2)
    np.fill_diagonal(apart, np.inf)
    # Noise of 0.1 a number would have to reach 15 standard deviations in one direction.
    assert np.sqrt(apart.min()) / 2 > 15 * 0.05
    assert len(RADII[sizes]) == sizes


@every
def test_examples_mix_a_scene_of_the_task_with_noise_at_some_time(family):
    small = replace(family, size=16, cells=2)
    ranks = np.random.default_rng(0).integers(0, small.space.size, 50)
    draw = jax.jit(small.draw, static_argnums=3)
    flow, targets = draw(content(small), latents(small, ranks), jax.random.key(4), 20)
    observed = np.asarray(small.observe(content(small), flow))
    time = np.asarray(flow.time)
    assert np.all((time > 0) & (time < 1))
    assert kstest(np.log(time / (1 - time)).ravel(), norm.cdf).pvalue > 1e-3
    assert kstest(np.asarray(flow.noise)[:, :, :9].ravel(), norm.cdf).pvalue > 1e-3
    # From the mixture, a step of the remaining time along the velocity leads to the scene.
    scene = observed[..., :-1] + (1 - time)[..., None] * np.asarray(targets)
    np.testing.assert_allclose(scene, flow.image, atol=1e-5)
    np.testing.assert_array_equal(observed[..., -1], time)
    places = {image.tobytes() for image in np.asarray(flow.image[0])}
    assert len(places) > 1 or family.shows == "slots"  # there a quadrant is a single cell


def test_the_score_is_the_explained_share_of_the_velocity():
    rng = np.random.default_rng(0)
    targets = rng.normal(size=(6, 5, 12)).astype(np.float32)
    answers = (0.5 * targets).astype(np.float32)
    scores = jax.vmap(SETS.score)(jnp.asarray(answers), jnp.asarray(targets))
    assert SETS.summary({k: np.asarray(v) for k, v in scores.items()})[""] == pytest.approx(0.75)


def test_demonstrations_are_other_scenes_of_the_task():
    z = latents(SETS, [400])[0]
    seen, answered = SETS.demonstrations(content(SETS), z, jax.random.key(0), 6)
    assert seen.shape == (6, 3072) and answered.shape == (6, 0)
    assert FewShot(shots=6).size(SETS) == 6 * 3072
    assert len({image.tobytes() for image in np.asarray(seen)}) > 1


def test_tasks_are_said_in_plain_english():
    assert SLOTS.sentence((0, 0, 0, 0)) == "a small red disc in the upper left part"
    assert replace(SLOTS, sizes=1, modules=0).sentence((4, 7, 0, 3)) == (
        "an orange ring in the lower right part"
    )
    assert PAIRS.sentence((0, 0, 4, 2)) == "a red disc left of a blue ring"
    assert PAIRS.caption(request(PAIRS, [0, 8, 20, 26])) == PAIRS.sentence((0, 0, 4, 2))
    grid = Scenes(shapes=5, colours=4, modules=20)
    chosen = request(grid, ["green cross", "blue ring", "red disc"])
    assert grid.caption(chosen) == "a red disc, a green cross and a blue ring"
    assert grid.caption(request(grid, ["blue ring"])) == "a blue ring"
    words = SETS.caption(SETS.space.indicator([300])[0], content(SETS)).split()
    assert words.count("a") + words.count("an") == 3


@pytest.mark.parametrize("family", [SLOTS, PAIRS], ids=["slots", "pairs"])
def test_the_sentence_encoding_tells_every_task_apart(family):
    small = replace(family, shapes=3, colours=3, modules=0)
    code, z = Sentence(form="ids"), latents(small, np.arange(small.space.size))
    drawn = code.content(small, jax.random.key(0))
    found = np.asarray(jax.vmap(lambda z: code.encode(drawn, z, NotImplemented))(z))
    assert found.shape == (small.space.size, code.size(small))
    assert len(np.unique(found, axis=0)) == small.space.size


def test_a_set_is_told_as_the_words_of_its_members_and_silence():
    family = Scenes(shapes=3, colours=2, modules=6)
    z = latents(family, np.arange(family.space.size))
    for form, width in (("words", 5), ("ids", 1)):
        code = Sentence(form=form)
        given = code.content(family, jax.random.key(0))
        found = np.asarray(jax.vmap(lambda z, c=code, g=given: c.encode(g, z, NotImplemented))(z))
        assert found.shape == (41, code.size(family)) == (41, 3 * 2 * width)
        assert len(np.unique(found, axis=0)) == 41
        said = (found.reshape(41, 3, 2, width) != 0).any(axis=-1).sum(axis=(1, 2))
        np.testing.assert_array_equal(said, 2 * family.space.sizes(np.arange(41)))
    words = found[family.space.rank([[0, 5]])[0]].reshape(3, 2)
    order = ("red", "disc", "green", "square", "triangle")
    assert [order[int(n) - 1] for n in words[:2].ravel()] == ["red", "disc", "green", "triangle"]


@given(st.integers(0, 4095), st.integers(0, 2**31 - 1))
@settings(max_examples=20)
def test_a_caption_names_the_concepts_of_its_combination(rank, seed):
    chosen = PAIRS.space.indicator([rank])[0]
    names = [name.split()[-1] for name, on in zip(concepts(PAIRS), chosen, strict=True) if on]
    left, right = PAIRS.caption(chosen).split(" left of ")
    assert left.split()[1:] == [names[1], names[0]] and right.split()[1:] == [names[3], names[2]]
    glyphs = content(SETS, seed % 3)
    chosen = SETS.space.indicator([rank % SETS.space.size])[0]
    named = [name for name, on in zip(concepts(SETS, glyphs), chosen, strict=True) if on]
    assert all(name in SETS.caption(chosen, glyphs) for name in named)


def test_every_module_has_a_name_of_its_own():
    assert len(set(concepts(SETS, content(SETS)))) == 16
    assert concepts(SLOTS)[:1] + concepts(SLOTS)[-6:] == (
        "shape disc", "size small", "size large", "quadrant upper left", "quadrant upper right",
        "quadrant lower left", "quadrant lower right",
    )  # fmt: skip
    assert concepts(PAIRS)[0] == "left shape disc" and concepts(PAIRS)[-1] == "right colour orange"


def test_specs_survive_storing_and_count_their_modules():
    for spec in (SETS, SLOTS, PAIRS):
        assert revive(json.loads(json.dumps(canonical(spec)))) == spec == replace(spec)
    assert (SLOTS.modules, SLOTS.active, SLOTS.space.size) == (22, 4, 512)
    assert (PAIRS.modules, PAIRS.active, PAIRS.space.size) == (32, 4, 4096)
    assert (SETS.input_size, SETS.output_size, SETS.space.size) == (3073, 3072, 696)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"shows": "pair"}, ["did you mean 'pairs'"]),
        ({"size": 20}, ["size=20", "16, 24, 32, 48 or 64"]),
        ({"cells": 5}, ["cells=5", "use cells=1, 2 or 4"]),
        ({"cells": 8}, ["at least 8 pixels", "use cells=1, 2 or 4"]),
        ({"shows": "slots", "cells": 1}, ["even", "use cells=2 or 4"]),
        ({"cells": 2.0}, ["cells=2.0"]),
        ({"shapes": 9}, ["shapes=9", "from 1 to 8"]),
        ({"colours": 0}, ["colours=0", "from 1 to 8"]),
        ({"shows": "slots", "sizes": 3},
         ["8 pixels 2 sizes", "use sizes=2 or less", "size=32, cells=2"]),
        ({"shows": "slots", "size": 64, "sizes": 4}, ["use sizes=3 or less"]),
        ({"sizes": 2}, ["sets have glyphs of one size", "shows='slots'"]),
        ({"modules": 65}, ["64 glyphs", "use modules=64 or less"]),
        ({"modules": 4, "active": 5}, ["active=5 of modules=4"]),
        ({"modules": True}, ["modules=True"]),
        ({"size": 16, "cells": 1, "active": 2}, ["room for 1 glyphs", "active=1"]),
        ({"shows": "pairs", "modules": 16}, ["modules=16", "8, 8, 8 and 8", "modules=32"]),
        ({"shows": "slots", "active": 3}, ["active=4"]),
    ],
    ids=lambda value: None if isinstance(value, list) else ",".join(value),
)  # fmt: skip
def test_a_request_that_cannot_be_is_refused_with_what_works(given, words):
    with pytest.raises(InvalidRequest) as refused:
        Scenes(**given)
    for word in words:
        assert word in str(refused.value)


def test_what_cannot_be_said_is_refused_with_what_works():
    with pytest.raises(InvalidRequest, match="did you mean 'shape disc'"):
        request(SLOTS, ["shape disk"])
    with pytest.raises(InvalidRequest, match="from 0 to 21"):
        request(SLOTS, [22])
    with pytest.raises(InvalidRequest, match="one module of each"):
        request(SLOTS, ["shape disc", "shape ring"])
    with pytest.raises(InvalidRequest, match="pass it"):
        concepts(SETS)
    with pytest.raises(InvalidRequest, match="use modules=64"):
        Sentence().check(SETS)
    with pytest.raises(InvalidRequest, match=r"\(8, 0, 0, 0\) is no task"):
        PAIRS.sentence((8, 0, 0, 0))
    with pytest.raises(InvalidRequest, match="use caption"):
        SETS.sentence((0, 0))
