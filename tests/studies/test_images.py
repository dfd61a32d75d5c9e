"""Study images on readings made to order: what is planted is found, what only seems so is not."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from recombine.errors import InvalidRequest
from recombine.instruments import Reading
from recombine.lab.judge import Judgement, judge
from recombine.lab.plan import part
from recombine.lab.study import NotTested, Results, Row
from recombine.png import png
from recombine.report.document import Report
from recombine.report.html import render
from recombine.studies import PRESETS, _images
from recombine.studies.images import Grid, Images, at_matched, foretells, levels, paired

STUDY = Images()
GRID = Grid(
    modules=12, active=3, shapes=4, colours=4, width=(64, 96, 128), middle=96, depth=1,
    held_out=(0.25, 0.5, 0.75), share=0.5, length=(0.125, 0.25, 0.5), steps=8_000, seeds=5,
)  # fmt: skip
FAMILY = STUDY.family(GRID)
UNITS = 60
EARLY, LATE = ("t0.05", "t0.1"), "t0.7"
FORETELLS, BEYOND = "decodability foretells success", "beyond which concepts they have"

World = Callable[[np.ndarray, np.random.Generator, np.ndarray], dict[str, np.ndarray]]


def independent(members, rng, effects) -> dict[str, np.ndarray]:
    """Nothing has to do with anything."""
    names = ("hidden", "pixels", "condition", "success", "late")
    return {name: rng.normal(size=len(members)) for name in names}


def planted(members, rng, effects) -> dict[str, np.ndarray]:
    """Success follows hidden states, with a correlation of .6 beyond image and condition."""
    made = independent(members, rng, effects)
    made["success"] = 0.75 * made["hidden"] + rng.normal(size=len(members))
    return made


def through(name: str) -> World:
    """Hidden states and success both follow something else, and else not one another."""

    def world(members, rng, effects) -> dict[str, np.ndarray]:
        made = independent(members, rng, effects)
        if name == "concepts":
            made[name] = members @ effects
        made["hidden"] = made["hidden"] + 3 * made[name]
        made["success"] = made["success"] + 3 * made[name]
        return made

    return world


def late_only(members, rng, effects) -> dict[str, np.ndarray]:
    made = independent(members, rng, effects)
    made["late"] = made["success"]
    return made


@dataclasses.dataclass(frozen=True)
class Numbers:
    """What one network is said to have done."""

    seen: float = 0.95
    unseen: float = 0.6
    on_noise: float = 0.3
    level1: float = 0.8
    level2: float = 0.6
    count: int = 10
    planted: float = 0.96
    seen_curve: tuple[float, ...] = (0.0, 0.4, 0.8)
    unseen_curve: tuple[float, ...] = (0.0, 0.2, 0.6)
    pixels: float = 0.02
    units: int = UNITS
    diverged_at: int | None = None


def row(labels: dict[str, Any], cell: str, told: Numbers, world: World) -> Row:
    """A network with its readings; those of one seed share what their concepts do."""
    rng = np.random.default_rng([labels["seed"], labels["width"], labels["steps"],
                                 int(100 * labels["held_out"])])  # fmt: skip
    effects = np.random.default_rng(labels["seed"]).normal(size=FAMILY.modules)
    ranks = rng.permutation(FAMILY.space.size)[: told.units]
    members = FAMILY.space.indicator(ranks)
    made = world(members, rng, effects)
    order = rng.permutation(told.units)  # the two tables need not agree in order
    drawn = {"rank": ranks[order].tolist(),
             "success": (0.5 + 0.1 * made["success"])[order].tolist()}  # fmt: skip
    read = {"rank": ranks.tolist(), "members": members.astype(int).tolist()}
    for name in ("hidden", "pixels", "condition"):
        # Half of what is said at either time is noise that the mean over both takes away.
        shift = rng.normal(size=told.units)
        for time, sign in zip(EARLY, (1, -1), strict=True):
            read[f"{name}_{time}"] = (made[name] + sign * shift).tolist()
        read[f"{name}_{LATE}"] = (made["late"] if name == "hidden" else shift).tolist()
    values = {f"{time}/hidden": told.on_noise for time in EARLY} | {f"{LATE}/hidden": 0.9}
    values |= {f"{time}/condition": 0.9 for time in (*EARLY, LATE)}
    values |= {f"{time}/pixels": told.pixels for time in EARLY} | {f"{LATE}/pixels": 0.8}
    strip = base64.b64encode(png(np.zeros((16, 33, 3), np.uint8))).decode()
    shown = {"rank": [1], "asked": ["a red disc"], "marks": ["10"], "png": [strip]}
    numbers = {
        "seen": told.seen, "unseen": told.unseen, "gap": told.seen - told.unseen,
        "unseen_level1": told.level1, "unseen_level2": told.level2, "unseen_reliability": 0.8,
        "unseen_count_level1": told.count, "unseen_count_level2": 10,
    }  # fmt: skip
    controls = {name: {"unseen": 0.0} for name in ("untrained", "shuffled", "planted")}
    twin = {"untrained": {f"{time}/hidden": 0.0 for time in (*EARLY, LATE)}}
    readings = {
        "composition": Reading(numbers, controls, {
            "unseen": drawn, "seen_pictures": shown, "unseen_pictures": shown,
        }),
        "foretelling": Reading(
            values, {**twin, "shuffled": {}, "planted": {"features": told.planted}},
            {"unseen": read},
        ),
    }  # fmt: skip
    summary = {
        "diverged_at": told.diverged_at, "evaluation_steps": [0, 800, 1600],
        "evaluations": {"seen_success": told.seen_curve, "unseen_success": told.unseen_curve},
    }  # fmt: skip
    return Row(labels, cell, summary, readings)


def made(
    told: Callable[[dict[str, Any]], Numbers] = lambda labels: Numbers(),
    world: World = independent,
    grid: Grid = GRID,
) -> Results:
    cells = part(STUDY.cells(grid)).cells
    return Results([row(dict(c.labels), c.id, told(dict(c.labels)), world) for c in cells])


def judged(results: Results, grid: Grid = GRID) -> dict[str, Judgement]:
    return {j.claim.name: j for j in judge(STUDY.claims(grid), results)}


def estimate(judgement: Judgement) -> float:
    assert judgement.interval is not None
    return judgement.interval.estimate


def jitter(labels: dict[str, Any]) -> float:
    place = [labels["seed"], labels["width"], labels["steps"], int(100 * labels["held_out"])]
    return 0.01 * float(np.random.default_rng(place).normal())


# Does it foretell?


def test_a_planted_partial_correlation_is_found_beyond_concepts_too():
    found = judged(made(world=planted))
    for claim in (FORETELLS, BEYOND):
        assert found[claim].verdict == "supported"
        assert estimate(found[claim]) == pytest.approx(0.6, abs=0.06)
        assert found[claim].interval.units == 5 * 12  # concepts of five draws
    assert "25 networks" in found[FORETELLS].note and "0.80" in found[FORETELLS].note


@pytest.mark.parametrize("name", ["pixels", "condition"])
def test_a_correlation_that_goes_through_the_baselines_is_not_one(name):
    results = made(world=through(name))
    plain = [np.corrcoef(g.x, g.y)[0, 1] for r in results if (g := _images.crossed(r, False))]
    assert np.mean(plain) > 0.8
    for claim in (FORETELLS, BEYOND):
        found = judged(results)[claim]
        assert abs(estimate(found)) < 0.1 and found.verdict != "supported"
        assert found.interval is not None and found.interval.contains(0)


def test_combinations_that_are_hard_for_their_concepts_are_told_from_hard_combinations():
    found = judged(made(world=through("concepts")))
    assert estimate(found[FORETELLS]) > 0.8
    assert abs(estimate(found[BEYOND])) < 0.1 and found[BEYOND].verdict != "supported"


def test_nothing_is_found_where_nothing_is_and_late_states_do_not_count():
    for world in (independent, late_only):
        found = judged(made(world=world))[FORETELLS]
        assert abs(estimate(found)) < 0.1 and found.verdict != "supported"


def test_an_opposite_relation_refutes():
    def opposite(members, rng, effects):
        found = planted(members, rng, effects)
        return {**found, "success": -found["success"]}

    assert judged(made(world=opposite))[FORETELLS].verdict == "refuted"


@pytest.mark.parametrize(
    "wrong",
    [
        {"seen": 0.4},
        {"seen": float("nan")},
        {"diverged_at": 7},
        {"units": 19},
        {"pixels": 0.06},
        {"planted": 0.94},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_networks_that_cannot_tell_are_left_out(wrong):
    """All but the first seed draw too little, failed, have few combinations, or clear images."""

    def told(labels: dict[str, Any]) -> Numbers:
        return Numbers() if labels["seed"] == 0 else Numbers(**wrong)

    results = made(told, planted)
    assert foretells()(results).interval(0.95).units == 12
    rest = Results([one for one in results if one.labels["seed"]])
    with pytest.raises(NotTested, match="Needs two networks"):
        foretells()(rest)
    assert all(_images.crossed(one, False) is None for one in rest)
    with pytest.raises(NotTested, match="Needs two networks"):
        foretells()(Results(results[:1]))


def test_bounds_themselves_are_good_enough():
    told = Numbers(seen=0.5, units=20, pixels=0.05)
    group = _images.crossed(made(lambda labels: told)[0], False)
    assert group is not None and group.controls.shape == (20, 3)


# Which comes first?


def along(labels: dict[str, Any], unseen: list[float], on_noise: list[float]) -> Numbers:
    place = [1000, 2000, 4000, 8000].index(labels["steps"])
    return Numbers(unseen=unseen[place], on_noise=on_noise[place])


def test_what_comes_halfway_one_doubling_earlier_is_one_ahead():
    def told(labels):
        late = 0.4 + 10 * jitter({**labels, "steps": 0})
        return along(labels, [0.0, 0.0, late, 0.8], [0.0, 0.3, 0.6, 0.6])

    found = judged(made(told))["decodability comes first"]
    assert found.verdict == "supported" and estimate(found) == pytest.approx(1, abs=0.15)

    def turned(labels):
        early = 0.3 + jitter({**labels, "steps": 0})
        return along(labels, [0.0, early, 0.6, 0.6], [0.0, 0.0, 0.4, 0.8])

    assert judged(made(turned))["decodability comes first"].verdict == "refuted"


def test_seeds_that_get_nowhere_have_no_halfway():
    def told(labels):
        if labels["seed"] < 4:
            return along(labels, [0.0, 0.0, 0.01, 0.02], [0.0, 0.3, 0.6, 0.6])
        return along(labels, [0.0, 0.0, 0.4, 0.8], [0.0, 0.3, 0.6, 0.6])

    assert judged(made(told))["decodability comes first"].verdict == "not tested here"


def test_two_lengths_of_training_tell_no_order():
    grid = dataclasses.replace(GRID, length=(0.5,))
    found = judged(made(grid=grid), grid)["decodability comes first"]
    assert found.verdict == "not tested here" and "three lengths" in found.note


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.2, 0.6, 0.8], np.sqrt(2000 * 4000)),  # .4 lies midway, on a scale of log steps
        ([0.0, 0.4, 0.4, 0.8], 2000),
        ([0.0, 0.5, 0.1, 0.8], 2000 * 2**-0.2),  # the first time counts: .4 is .8 of the way
        ([0.7, 0.7, 0.7, 0.8], 1000),  # earlier than anyone looked
        ([0.0, 0.0, 0.0, 0.02], np.nan),
        ([0.0, np.nan, 0.4, 0.8], np.nan),
    ],
)
def test_halfway_is_read_off_between_the_steps_looked_at(values, expected):
    rows = list(made().where(width=96, held_out=0.5, seed=0))
    rows = sorted(rows, key=lambda one: one.labels["steps"])
    told = {one.cell: value for one, value in zip(rows, values, strict=True)}
    found = _images.halfway(rows, lambda one: told[one.cell])
    assert found == pytest.approx(expected, nan_ok=True)
    assert np.isnan(_images.halfway(rows[:2], lambda one: 0.5))


# Size, coverage, novelty


def test_floor_size_and_coverage_are_read_where_they_are_claimed():
    def told(labels):
        up = {64: 0.0, 96: 0.1, 128: 0.2}[labels["width"]] - 0.4 * labels["held_out"]
        unseen = (0.5 + up if labels["length"] == 1 else 1.0) + jitter(labels)
        return Numbers(seen=0.95 + jitter(labels), unseen=unseen)

    found = judged(made(told))
    names = ("floor: draws what it was shown", "larger generators compose more",
             "the gap closes with coverage")  # fmt: skip
    assert [found[name].verdict for name in names] == ["supported"] * 3
    assert estimate(found[names[1]]) == pytest.approx(0.2, abs=0.02)
    assert estimate(found[names[2]]) == pytest.approx(0.4 * 0.5, abs=0.02)


def test_sizes_are_compared_at_one_share_even_where_others_were_trained():
    def told(labels):
        return Numbers(unseen=0.2 + (labels["held_out"] != 0.5) + 0.1 * (labels["width"] == 128))

    grid = dataclasses.replace(GRID, middle=128)
    found = judged(made(told, grid=grid), grid)["larger generators compose more"]
    assert estimate(found) == pytest.approx(0.1)


def test_generators_that_only_fit_better_do_not_compose_more_at_matched_success():
    """The larger ones learn all twice as fast, and draw as much unseen at half of the seen."""

    def told(labels):
        fast = labels["width"] == 128
        return Numbers(
            unseen=0.9 if fast else 0.6,
            seen_curve=(0.0, 0.8, 1.0) if fast else (0.0, 0.4, 0.8),
            unseen_curve=(0.0, 0.4, 0.9) if fast else (0.0, 0.2, 0.4),
        )

    results = made(told)
    found = judged(results)
    assert estimate(found["larger generators compose more"]) == pytest.approx(0.3)
    assert estimate(found["also at matched seen success"]) == pytest.approx(0)
    assert found["also at matched seen success"].verdict == "refuted"


def test_matched_claims_compare_what_was_drawn_when_seen_success_first_was_enough():
    def told(labels):
        more = {64: 0.0, 96: 0.2, 128: 0.4}[labels["width"]] + 0.4 * (0.75 - labels["held_out"])
        return Numbers(unseen_curve=(0.0, 0.1, 0.1 + more + jitter(labels)))

    results = made(told)
    one = results.where(width=128, held_out=0.5)[0]
    # Seen success is .4 and then .8: at .5 a quarter of the way is behind.
    last = one.summary["evaluations"]["unseen_success"][-1]
    assert at_matched(0.5)(one) == pytest.approx(0.1 + 0.25 * (last - 0.1))
    assert np.isnan(at_matched(0.9)(one))
    found = judged(results)
    name = "also at matched seen success"
    assert found[name].verdict == "supported" and estimate(found[name]) == pytest.approx(
        0.1, abs=0.01
    )
    name = "the gap closes with coverage, at matched seen success"
    assert found[name].verdict == "supported" and estimate(found[name]) == pytest.approx(
        0.05, abs=0.01
    )


def test_generators_that_did_not_learn_are_counted_and_speak_for_nothing():
    def told(labels):
        weak = labels["width"] == 64 and labels["seed"] in (0, 1)
        return Numbers(seen=0.4, unseen=0.0) if weak else Numbers(unseen=0.6 + jitter(labels))

    found = judged(made(told))["larger generators compose more"]
    assert abs(estimate(found)) < 0.05 and "Left out: 2 that draw fewer than half" in found.note
    assert found.interval is not None and found.interval.units == 3


def test_a_setting_is_never_compared_with_itself():
    home = {"width": 96, "held_out": 0.5, "length": 1.0}
    with pytest.raises(NotTested, match="two widths"):
        paired(home, dict(home), _images.unseen)(made())
    grid = dataclasses.replace(GRID, width=(96,), held_out=(0.5,))
    found = judged(made(grid=grid), grid)
    for name in ("larger generators compose more", "the gap closes with coverage"):
        assert found[name].verdict == "not tested here"


def test_a_new_pair_is_compared_with_a_new_triple_in_whole_runs_that_learnt():
    def told(labels):
        if labels["length"] != 1 or labels["held_out"] == 0.25:  # shorter, or not learnt
            return Numbers(seen=0.95 if labels["held_out"] != 0.25 else 0.3, level1=0.0, level2=1.0)
        return Numbers(level1=0.8 + jitter(labels), level2=0.6)

    found = judged(made(told))["new pairs are harder than new triples"]
    assert found.verdict == "supported" and estimate(found) == pytest.approx(0.2, abs=0.02)
    assert found.interval is not None and found.interval.units == 5
    with pytest.raises(NotTested, match="both kinds of novelty"):
        levels(made(lambda labels: Numbers(level1=float("nan"))))


# Cells and report


@pytest.mark.parametrize("preset", PRESETS)
def test_every_cell_of_a_preset_can_be_trained(preset):
    grid = STUDY.grid(preset)
    for cell in STUDY.cells(grid):
        cell.learner.check()
    assert part(STUDY.cells(grid)).infeasible == []


@pytest.mark.parametrize("preset", PRESETS)
def test_sizes_shares_and_lengths_share_the_cell_where_they_meet(preset):
    grid = STUDY.grid(preset)
    cells = STUDY.cells(grid)
    settings = len(grid.width) + len(grid.held_out) + len(grid.length)
    assert len(cells) == grid.seeds * settings
    assert len({cell.id for cell in cells}) == grid.seeds * (settings - 1)
    home = STUDY.cell(grid, seed=0)
    same = [STUDY.cell(grid, width=grid.middle, seed=0), STUDY.cell(grid, length=1.0, seed=0),
            STUDY.cell(grid, held_out=grid.share, seed=0)]  # fmt: skip
    assert {cell.id for cell in same} == {home.id}
    assert all((c.labels, c.instruments) == (home.labels, home.instruments) for c in same)
    assert STUDY.cell(grid, seed=1).id != home.id


def test_a_shorter_run_is_a_look_at_the_longer_one():
    whole, part_of_it = (STUDY.cell(GRID, seed=2, length=length).learner for length in (1.0, 0.25))
    assert (whole.steps, part_of_it.steps) == (8000, 2000)
    assert dataclasses.replace(part_of_it, training_steps=8000) == whole


def test_both_instruments_draw_alike_and_ask_for_the_same():
    composition, foretelling = STUDY.cell(GRID, seed=0).instruments
    for name in ("combinations", "guidance", "steps"):
        assert getattr(composition, name) == getattr(foretelling, name)


def test_slots_and_pairs_can_be_shown_instead():
    for shows in ("slots", "pairs"):
        grid = STUDY.grid("quick", {"shows": shows})
        assert part(STUDY.cells(grid)).infeasible == []
        assert STUDY.family(grid).shows == shows


def test_the_report_shows_pictures_of_the_largest_generator_and_every_network():
    results = made(world=planted)
    sections = STUDY.sections(GRID, results)
    html = render(Report("images", "T", "Q?", "", "quick", "V.", sections=sections))
    assert (
        html.count("data:image/png;base64,") == 2 and "2 pictures of a red disc; right: 1" in html
    )
    assert "combinations, width 128" in html
    tables = {table.title: table for section in sections for table in section.tables}
    assert len(tables["Networks"].rows) == 5 * (3 + 2)  # whole runs only
    column = list(tables["Networks"].columns).index("partial correlation")
    found = [r[column] for r in tables["Networks"].rows]
    assert np.mean(found) == pytest.approx(0.6, abs=0.1)
    assert [r[:2] for r in tables["Success"].rows] == [
        [64, 0.5], [96, 0.25], [96, 0.5], [96, 0.75], [128, 0.5]
    ]  # fmt: skip


def test_a_report_of_networks_that_learnt_nothing_says_so_without_breaking():
    results = made(lambda labels: Numbers(seen=0.0, unseen=0.0, diverged_at=3))
    bare = Results([dataclasses.replace(one, readings={}) for one in results])
    for rows in (results, bare):
        assert render(Report("images", "T", "Q?", "", "quick", "V.",
                             sections=STUDY.sections(GRID, rows)))  # fmt: skip
        assert {j.verdict for j in judged(rows).values()} == {"not tested here"}


def test_few_combinations_of_a_kind_of_novelty_are_no_evidence():
    with pytest.raises(NotTested, match="both kinds of novelty"):
        levels(made(lambda labels: Numbers(count=9)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"width": "100"}, "width=100 is no multiple of head=32: use width=96"),
        ({"head": "0"}, "no multiple of head=0"),
        ({"length": "0.25,2"}, "length=2: expected parts of the training"),
        ({"draws": "1"}, "draws=1: expected a whole number of at least 2"),
        ({"fitted": "7"}, "fitted=7: expected a whole number of at least 8"),
    ],
    ids=str,
)
def test_numbers_that_cannot_be_are_refused_before_anything_is_trained(settings, words):
    with pytest.raises(InvalidRequest, match=words):
        STUDY.cells(STUDY.grid("quick", settings))


def test_lengths_can_be_set_where_a_preset_has_none():
    assert STUDY.grid("quick", {"length": "0.125,0.25"}).length == (0.125, 0.25)
