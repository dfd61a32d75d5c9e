"""The claims of the anatomy, on results made to order, and the networks it asks for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from recombine.errors import InvalidRequest, UnknownName
from recombine.instruments import Reading
from recombine.lab.judge import Judgement, judge
from recombine.lab.study import Results, Row
from recombine.studies._anatomy import MEASURES, compared, masks_of
from recombine.studies.anatomy import Anatomy, Grid, alike

GRID = Grid(shape=("48x2", "64x2"), seeds=6, held_out=(0.25, 0.5), decay=(0.0, 3e-3, 3e-2),
            window=0.01, networks=20)  # fmt: skip
FLOOR = "floor: enough alike"
MODULAR = ("modularity goes with generalization", "whole units, modular weights")


def row(labels: dict[str, Any], readings: dict[str, Reading]) -> Row:
    summary = {"evaluations": {}, "evaluation_steps": [], "diverged_at": None}
    return Row(labels, "cell", summary, readings)


def rows(
    strength: float = 0.0, *, follows: str = "decodability", scattered: float = 0.0,
    draw: float = 0.0, by_shape: float = 0.0, spared: float = 0.8, control: str = "random",
    grid: Grid = GRID,
) -> Results:  # fmt: skip
    """Networks of which one measure follows the unseen score, all else being noise.

    `draw` is what the measure and the unseen score owe to which combinations are held out (seed by
    share), `by_shape` the same apart for every shape; `spared` is the score that an ablation leaves
    the other modules.
    """
    rng = np.random.default_rng(0)
    supports = {(s, h): rng.normal() for s in range(grid.seeds) for h in grid.held_out}
    found = []
    for shape in grid.shape:
        suits = {key: rng.normal() for key in supports}
        for share in grid.held_out:
            for decay in grid.decay:
                for seed in range(grid.seeds):
                    labels = {"shape": shape, "held_out": share, "decay": decay, "seed": seed}
                    common = draw * supports[seed, share] + by_shape * suits[seed, share]
                    gift = rng.normal()
                    names = ("decodability", "erasure", "concordance", "disentanglement",
                             "selectivity", "modularity")  # fmt: skip
                    of = {n: rng.normal() + (n == follows) * (strength * gift + common)
                          for n in names}  # fmt: skip
                    seen = 0.99 + 0.002 * rng.random() - scattered * rng.random()
                    unseen = 0.8 - 0.2 * share + 0.02 * (gift + common)
                    readings = {
                        "generalization": Reading({"seen": seen, "unseen": unseen}, {}),
                        "decodability": Reading({"layer2/after": of["decodability"]}, {}),
                        "erasure": Reading({"beyond_random": of["erasure"]}, {}),
                        "fracture": Reading({n: of[n] for n in names[2:5]}, {}),
                    }
                    found.append(row({**labels, "part": "network"}, readings))
                    times = 2 ** (0.2 + 0.02 * of["modularity"])  # what one error is of the other
                    mask = Reading(
                        {"ablation_own": 1 - times * (1 - spared), "ablation_other": spared,
                         "whole_other": 0.9},
                        {control: {"ablation_own": 0.1, "ablation_other": 0.2},
                         "planted": {"ablation_own": 0.0}},
                    )  # fmt: skip
                    labels = {**labels, "part": "mask", "module": 0}
                    found.append(row(labels, {"subnetworks": mask}))
    return Results(found)


def judged(results: Results, grid: Grid = GRID) -> dict[str, Judgement]:
    return {j.claim.name: j for j in judge(Anatomy().claims(grid), results)}


def verdicts(results: Results, grid: Grid = GRID) -> dict[str, str]:
    return {name: found.verdict for name, found in judged(results, grid).items()}


@pytest.mark.parametrize("measure", ["decodability", "modularity", "erasure"])
def test_what_goes_with_generalization_is_found_and_what_does_not_is_not(measure):
    found = verdicts(rows(3.0, follows=measure))
    assert "not tested here" not in found.values()
    assert found[f"{measure} goes with generalization"] == "supported"
    others = [v for n, v in found.items() if "goes with" in n and not n.startswith(measure)]
    assert len(others) == 5 and "supported" not in others


def test_what_goes_against_it_is_refuted():
    assert verdicts(rows(-3.0))["decodability goes with generalization"] == "refuted"


@pytest.mark.parametrize("common", [{"draw": 3.0}, {"by_shape": 3.0}])
def test_what_comes_with_the_held_out_combinations_alone_makes_no_claim(common):
    grid = replace(GRID, seeds=9)
    results = rows(0.0, grid=grid, **common)
    networks = results.where(part="network")
    plain = np.corrcoef(
        networks.values("generalization", "unseen"),
        networks.values("decodability", "layer2/after"),
    )
    assert plain[0, 1] > 0.5  # what anyone sees who compares all with all
    found = judged(results, grid)["decodability goes with generalization"]
    assert found.verdict == "inconclusive"
    assert found.interval is not None and abs(found.interval.estimate) < 0.25


def test_what_comes_with_the_held_out_combinations_shows_where_teachers_are_mixed():
    found = compared(GRID, rows(draw=3.0), "unseen score", "decodability")
    within, mixed = found.correlation(), found.over_teachers()
    assert within.low < 0 and within.high < 0.1 < mixed.low


def test_the_correlation_is_that_of_what_a_regression_on_groups_and_decay_leaves():
    results = rows(1.0, draw=1.0)
    networks = [r for shape in GRID.shape for r in alike(results, GRID, shape)]
    groups = [tuple(r.labels[k] for k in ("seed", "held_out", "shape")) for r in networks]
    settings = [tuple(r.labels[k] for k in ("shape", "held_out", "decay")) for r in networks]
    columns = [[float(g == one) for g in groups] for one in set(groups)]
    columns += [[float(s == one) for s in settings] for one in set(settings)]
    columns.append([r.value("generalization", "seen") for r in networks])
    design = np.asarray(columns).T
    ranks = np.column_stack([
        stats.rankdata([r.value(*of) for r in networks])
        for of in (("generalization", "unseen"), ("decodability", "layer2/after"))
    ])  # fmt: skip
    left = ranks - design @ np.linalg.lstsq(design, ranks)[0]
    found = judged(results)["decodability goes with generalization"].interval
    assert found is not None and found.units == GRID.seeds
    assert found.estimate == pytest.approx(stats.pearsonr(left[:, 0], left[:, 1])[0], abs=1e-8)


def test_where_too_few_networks_are_alike_no_claim_speaks():
    results = rows(3.0)
    grid = replace(GRID, networks=1_000)
    found = judged(results, grid)
    assert found.pop(FLOOR).verdict == "refuted"
    assert {j.verdict for j in found.values()} == {"not tested here"}
    assert all("48x2: 36, 64x2: 36" in j.note and "1000" in j.note for j in found.values())
    head, networks = Anatomy().sections(grid, results)
    assert "1000 of every shape are needed" in head.text and not head.tables
    assert networks.tables


def test_networks_of_unlike_seen_scores_are_not_compared():
    found = judged(rows(3.0, scattered=2.0))
    assert found.pop(FLOOR).verdict == "refuted"
    assert {j.verdict for j in found.values()} == {"not tested here"}


def test_a_network_without_a_score_is_like_no_other():
    results = rows(3.0)
    blind = [
        replace(r, readings={**r.readings, "generalization": Reading({}, {})})
        if r.labels["part"] == "network" and r.labels["seed"] < 5
        else r
        for r in results
    ]
    assert len(alike(Results(blind), GRID, "48x2")) == 6


def test_a_network_alone_with_its_teacher_is_compared_with_nobody():
    grid = replace(GRID, decay=(0.0,), seeds=12)
    found = judged(rows(3.0, grid=grid), grid)
    assert found.pop(FLOOR).verdict == "supported"
    assert all("0 networks" in j.note and "another network" in j.note for j in found.values())


def test_errors_are_compared_also_where_an_ablation_ruins_every_module_and_it_is_said():
    for spared, told in ((0.8, "In 72 of 72 networks"), (-1.2, "In 0 of 72 networks")):
        found = judged(rows(3.0, follows="modularity", spared=spared))
        assert found[MODULAR[0]].verdict == "supported" and told in found[MODULAR[0]].note


def test_modularity_is_how_many_times_more_the_error_grows_beyond_weights_at_random():
    results = rows(0.0, grid=replace(GRID, seeds=2))
    network = results.where(part="network")[0]
    (mask,) = masks_of(network, results)
    own, other = (1 - mask.value("subnetworks", f"ablation_{of}") for of in ("own", "other"))
    expected = np.log2(own / other) - np.log2(0.9 / 0.8)
    assert MEASURES["modularity"](network, results) == pytest.approx(expected)


def test_a_control_that_does_not_exist_is_a_slip_and_not_a_gap_in_the_grid():
    with pytest.raises(UnknownName, match="unknown control of subnetworks 'random'"):
        judged(rows(3.0, control="randon"))


def test_every_pair_is_in_the_table():
    head, networks = Anatomy().sections(GRID, rows(3.0))
    assert len(head.tables[0].rows) == 21 and "Not compared" not in head.text
    found: dict[Any, Any] = {tuple(line[:2]): line[2] for line in head.tables[0].rows}
    assert found["unseen score", "decodability"] > 0.8
    assert [line[:3] for line in networks.tables[0].rows] == [["48x2", 36, 36], ["64x2", 36, 36]]


def test_the_window_holds_the_most_networks_and_nothing_wider():
    results = rows(0.0, scattered=0.03)
    for shape in GRID.shape:
        chosen = [r.value("generalization", "seen") for r in alike(results, GRID, shape)]
        every = np.asarray([
            r.value("generalization", "seen") for r in results.where(part="network", shape=shape)
        ])  # fmt: skip
        assert max(chosen) - min(chosen) <= GRID.window
        most = max(((every >= x) & (every <= x + GRID.window)).sum() for x in every)
        assert len(chosen) == most


@pytest.mark.parametrize(("preset", "cells"), [("quick", 48), ("standard", 1134)])
def test_every_network_has_others_of_its_teacher_support_and_shape_that_began_elsewhere(
    preset, cells
):
    study, grid = Anatomy(), Anatomy().grid(preset)
    found = study.cells(grid)
    assert len({cell.id for cell in found}) == len(found) == cells
    networks = [cell for cell in found if cell.labels["part"] == "network"]
    fewest = min(Counter(cell.labels["shape"] for cell in networks).values())
    assert fewest >= grid.networks
    groups: dict[tuple, list[Any]] = {}
    for cell in networks:
        key = tuple(cell.labels[k] for k in ("seed", "held_out", "shape"))
        groups.setdefault(key, []).append(cell.learner)
    for learners in groups.values():
        assert len(learners) >= 3
        assert len({one.seeds.init for one in learners}) == len(learners)
        assert len({one.seeds.train for one in learners}) == len(learners)
        same = {(one.seeds.content, one.seeds.support, one.seeds.evaluation, one.support)
                for one in learners}  # fmt: skip
        assert len(same) == 1
    # A mask is learnt over one of these networks, not over another that began elsewhere.
    ids = {cell.id for cell in networks}
    masks: list[Any] = [cell.learner for cell in found if cell.labels["part"] == "mask"]
    assert {type(networks[0])(mask.base, {}).id for mask in masks} == ids


@pytest.mark.parametrize(
    "wrong",
    [{"window": "nan"}, {"window": "-1"}, {"window": "inf"}, {"networks": "0"}, {"seeds": "0"},
     {"masks": "9"}, {"masks": "-1"}, {"mask_steps": "0"}, {"decay": "0,0"}, {"rows": "0"}],
)  # fmt: skip
def test_a_grid_that_cannot_be_is_refused_in_one_line(wrong):
    (name,) = wrong
    with pytest.raises(InvalidRequest, match=rf"^{name}=.*: expected [^\n]*$"):
        Anatomy().grid("quick", wrong)
