"""Study fracture on readings made to order, and its smoke preset from plan to report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from recombine.errors import InvalidRequest
from recombine.instruments import Reading
from recombine.instruments.picture_walls import encoded
from recombine.lab.judge import Judgement, judge
from recombine.lab.plan import part
from recombine.lab.run import Request, run
from recombine.lab.session import Session
from recombine.lab.store import Store
from recombine.lab.study import Results, Row
from recombine.learners.as_drawn import AsDrawn
from recombine.report.document import Report
from recombine.report.html import render
from recombine.report.study import write_report
from recombine.studies import PRESETS, _fracture
from recombine.studies.fracture import FractureStudy, Grid

STUDY = FractureStudy()
GRID = Grid(pictures=6, twins=2, stencils=5, genomes=("skull",), genome_twins=6, seeds=5,
            held_out=(0.25, 0.5, 0.75, 0.9))  # fmt: skip
Told = dict[str, Any]
World = Callable[[dict[str, Any]], Told]


def noise(labels: dict[str, Any]) -> float:
    names = ("part", "picture", "way", "twin", "sibling", "seed", "held_out", "module")
    place = [sum(map(ord, str(labels.get(name, "")))) for name in names]
    return float(np.random.default_rng(place).normal())


def whole_and_useful(labels: dict[str, Any]) -> Told:
    """Evolution's networks are whole, descent's are not; the whole ones learn everything sooner."""
    way, jitter = labels.get("way"), noise(labels)
    if labels["part"] in ("picture", "genome"):
        # Within a picture, the twin with the higher concordance is the one that is sooner below.
        own = {"evolved": 0.98, "descent": 0.4, "curriculum": 0.6}[way]
        own += 0.05 * (labels["twin"] % 2) + 0.01 * jitter * (way != "evolved")
        return {
            "concordance": own, "rotated": own - 0.1, "symmetric_share": 0.9 if own > 0.9 else 0.05,
            "error": 0.0 if way == "evolved" else 5e-4, "sweep_symmetry": own - 0.05,
            "distinct": 20 if way == "evolved" else 240 + jitter, "effective_rank": 5,
            "variation": 0.1 if way == "evolved" else 0.2 + 0.001 * jitter, "untrained": 0.45,
            "target_symmetry": 0.95,
        }  # fmt: skip
    if labels["part"] == "sibling":
        steps = {"evolved": 20, "stirred": 25, "curriculum": 60, "descent": 120, "scratch": 200}
        return {"steps": steps[way] * 2 ** (0.05 * jitter - 0.4 * labels["twin"])}
    if labels["part"] == "directed":
        return {"error": 0.05 * 2**jitter}
    if labels["part"] == "student":
        good = 0.4 - 0.1 * labels["held_out"] + 0.003 * jitter
        return {"concordance": good, "disentanglement": good, "selectivity": good,
                "seen": 0.95, "unseen": 0.9 + 0.002 * jitter}  # fmt: skip
    if labels["held_out"] < 0:
        return {"steps": 160.0}
    return {"steps": 40 * 2 ** labels["held_out"] * 1.01**jitter}


def flat(labels: dict[str, Any]) -> Told:
    """Nothing differs between ways but by chance."""
    told, jitter = whole_and_useful(labels), noise(labels)
    if "distinct" in told:
        return {**told, "concordance": 0.7 + 0.02 * jitter, "rotated": 0.6 + 0.02 * jitter,
                "sweep_symmetry": 0.7 + 0.02 * jitter, "distinct": 100 + jitter,
                "variation": 0.2 + 0.002 * jitter, "symmetric_share": 0.5,
                "error": 2e-3}  # fmt: skip
    if "concordance" in told:
        return {**told, **dict.fromkeys(("concordance", "disentanglement", "selectivity"),
                                        0.4 + 0.02 * jitter)}  # fmt: skip
    if labels["part"] == "directed":
        return {"error": 4e-4}
    return {"steps": 60 * 2 ** (0.3 * jitter)}


def row(labels: dict[str, Any], told: Told) -> Row:
    summary: dict[str, Any] = {"diverged_at": told.get("diverged_at")}
    readings: dict[str, Reading] = {}
    if labels["part"] in ("picture", "genome"):
        untrained = {"concordance": told["untrained"]}
        picture = encoded(np.zeros((8, 8, 3), np.uint8))
        tables = {"maps": {"concordance": [told["concordance"]] * 12 + [1.0]},
                  "wall": {"png": [picture]},
                  "strips": {"png": [picture], "marks": ["01110"]}}  # fmt: skip
        values = {k: float(v) for k, v in told.items() if k not in ("untrained", "diverged_at")}
        readings["picture-fracture"] = Reading(values, {"untrained": untrained}, tables)
    elif labels["part"] == "student":
        own = {k: told[k] for k in ("concordance", "disentanglement", "selectivity")}
        readings["fracture"] = Reading(own, {"untrained": dict.fromkeys(own, 0.1)})
        scores = {"seen": told["seen"], "unseen": told["unseen"], "gap": 0.0}
        readings["generalization"] = Reading(scores, {"untrained": {}})
    elif labels["part"] == "directed":
        summary |= {"evaluation_steps": [0, 100], "evaluations": {"error": [0.3, told["error"]]}}
    else:
        name, bound, ends = (
            ("error", GRID.matched, (0.3, 0.0003)) if labels["part"] == "sibling"
            else ("seen", GRID.learnt, (0.0, 1.0))
        )  # fmt: skip
        summary |= crossing(name, bound, ends, told["steps"])
    return Row(labels, "", summary, readings)


def crossing(name: str, bound: float, ends: tuple[float, float], at: float) -> dict[str, Any]:
    """A curve that reaches a bound at one step, on looks that are ten steps apart."""
    steps = np.arange(0, 301, 10)
    before, after = ends
    values = np.where(steps < at, before, after).astype(float)
    last = int(np.flatnonzero(steps < at)[-1])
    share = (at - steps[last]) / 10
    if name == "error":  # straight on the scale of logarithms
        rest = np.log(bound) - (1 - share) * np.log(before)
        values[last + 1] = np.exp(rest / share)
    else:
        values[last + 1] = (bound - (1 - share) * before) / share
    return {"evaluation_steps": steps.tolist(), "evaluations": {name: values.tolist()}}


@pytest.fixture(scope="module")
def cells():
    # Whether a genome is on this machine does not matter to readings made to order.
    return [(dict(cell.labels), cell) for cell in STUDY.cells(GRID)]


def made(cells, world: World) -> Results:
    return Results([row(labels, world(labels)) for labels, _ in cells])


def judged(results: Results, grid: Grid = GRID) -> dict[str, Judgement]:
    return {j.claim.name: j for j in judge(STUDY.claims(grid), results)}


def estimate(judgement: Judgement) -> float:
    assert judgement.interval is not None
    return judgement.interval.estimate


def test_every_claim_finds_what_was_put_in(cells):
    found = judged(made(cells, whole_and_useful))
    assert {name: j.verdict for name, j in found.items() if j.verdict != "supported"} == {}
    assert estimate(found["evolved whole, trained fractured"]) == pytest.approx(0.555, abs=0.02)
    assert estimate(found["the path matters"]) == pytest.approx(0.2, abs=0.02)
    assert estimate(found["fracture costs steps: turned"]) == pytest.approx(
        np.log2(120 / 20) - 0.2, abs=0.1
    )
    assert found["skull: the evolved network is whole"].interval.units == 13
    assert found["skull: its twins are fractured"].interval.units == 6


def test_without_a_difference_nothing_is_supported_but_floors(cells):
    found = judged(made(cells, flat))
    supported = {name for name, j in found.items() if j.verdict == "supported"}
    assert supported <= {"floor: descent draws the pictures"}
    for name in ("evolved whole, trained fractured", "planted: stencils are told apart",
                 "more distinct maps", "rougher maps", "the path matters",
                 "evolution told what to draw fails", "skull: descent draws it",
                 "skull: its twins are fractured", "skull: rougher maps"):  # fmt: skip
        assert found[name].verdict == "refuted", name


def test_the_other_way_round_is_refuted(cells):
    """Fractured networks learn sooner, and fracture goes with faster new modules."""

    def turned(labels):
        told = whole_and_useful(labels)
        return {**told, "steps": 2_000 / told["steps"]} if "steps" in told else told

    found = judged(made(cells, turned))
    for name in ("fracture costs steps: turned", "fracture costs steps: recombined",
                 "concordance tells who learns a sibling sooner", "also among trained networks",
                 "concordance tells who learns a new module sooner",
                 "floor: known modules help"):  # fmt: skip
        assert found[name].verdict == "refuted", name


def test_networks_that_do_not_draw_their_picture_speak_for_nothing(cells):
    def unable(labels):
        told = whole_and_useful(labels)
        bad = labels["part"] == "picture" and labels["way"] == "descent" and labels["twin"] == 0
        return {**told, "error": 0.5, "concordance": 0.98} if bad else told

    found = judged(made(cells, unable))
    claim = found["evolved whole, trained fractured"]
    assert claim.verdict == "supported" and "Left out: 6 of 12 above an error" in claim.note
    assert found["floor: descent draws the pictures"].verdict == "refuted"

    def none(labels):
        told = whole_and_useful(labels)
        bad = labels["part"] == "picture" and labels["way"] != "evolved"
        return {**told, "error": 0.5} if bad else told

    found = judged(made(cells, none))
    for name in ("evolved whole, trained fractured", "fracture costs steps: turned",
                 "also among trained networks", "the path matters"):  # fmt: skip
        assert found[name].verdict == "not tested here", name


def test_pictures_without_symmetry_are_left_out_where_symmetry_is_the_point(cells):
    def some(labels):
        told = whole_and_useful(labels)
        if labels["part"] == "picture" and labels["picture"] == 0:
            return {**told, "target_symmetry": 0.3, "concordance": 0.5}
        return told

    found = judged(made(cells, some))
    every, only = found["evolved whole, trained fractured"], found["the same in symmetric pictures"]
    assert (every.interval.units, only.interval.units) == (6, 5)
    assert estimate(only) > estimate(every) + 0.05


def test_runs_that_never_get_there_count_with_all_steps_and_are_told(cells):
    def stuck(labels):
        told = whole_and_useful(labels)
        return {"steps": 299.0} if labels.get("way") == "descent" and "steps" in told else told

    results = made(cells, stuck)
    rows = [
        dataclasses.replace(r, summary={
            "diverged_at": None, "evaluation_steps": [0, 300], "evaluations": {"error": [0.3, 0.3]},
        })
        if r.labels["part"] == "sibling" and r.labels["way"] == "descent" else r
        for r in results
    ]  # fmt: skip
    found = judged(Results(rows))["fracture costs steps: turned"]
    assert estimate(found) == pytest.approx(np.log2(300 / 20), abs=0.1)
    assert "12 of 24 runs never got there" in found.note


def test_siblings_that_hardly_differ_from_the_picture_are_left_out(cells):
    rows = []
    for one in made(cells, whole_and_useful):
        if one.labels["part"] == "sibling" and one.labels["picture"] < 2:
            there = {"evaluation_steps": [0, 10], "evaluations": {"error": [0.001, 0.001]}}
            one = dataclasses.replace(one, summary={"diverged_at": None, **there})
        rows.append(one)
    found = judged(Results(rows))
    assert found["fracture costs steps: turned"].interval.units == 4
    assert found["concordance tells who learns a sibling sooner"].interval.units == 4


@pytest.mark.parametrize(
    ("values", "falling", "expected"),
    [
        ([1.0, 0.1, 0.01], True, 10.0),
        ([1.0, 1.0, 0.01], True, 15.0),  # .1 lies midway between 1 and .01 on a log scale
        ([0.05, 1.0, 0.01], True, 0.0),
        ([1.0, 0.5, 0.2], True, np.nan),
        ([1.0, np.nan, 0.01], True, 20.0),
        ([0.0, 0.05, 0.15], False, 15.0),
        ([0.0, 0.0, 0.05], False, np.nan),
    ],
)
def test_steps_are_read_off_between_looks(values, falling, expected):
    curve = {"evaluation_steps": [0, 10, 20], "evaluations": {"error": values}}
    one = Row({}, "", {"diverged_at": None, **curve}, {})
    found = _fracture.steps_to(one, "error", 0.1, falling=falling)
    assert found == pytest.approx(expected, nan_ok=True)
    steps, reached = _fracture.log_steps(one, "error", 0.1, falling=falling)
    assert reached == np.isfinite(expected)
    assert steps == pytest.approx(np.log2(max(10, expected if reached else 20)))


def test_the_archive_says_what_to_type_or_that_it_is_too_large(cells):
    results = Results([r for r in made(cells, whole_and_useful) if r.labels["part"] != "genome"])
    note = judged(results)["skull: descent draws it"].note
    assert "recombine data get picbreeder" in note
    small = dataclasses.replace(GRID, genomes=())
    assert "Not tested at this size" in judged(results, small)["skull: descent draws it"].note


def test_a_missing_archive_is_a_gap_in_the_grid(tmp_path, monkeypatch):
    monkeypatch.delenv("RECOMBINE_DATA", raising=False)
    monkeypatch.setenv("RECOMBINE_CACHE", str(tmp_path))
    grid = STUDY.grid("standard")
    found = part(STUDY.cells(grid))
    assert {cell.labels["part"] for cell, _ in found.infeasible} == {"genome"}
    assert all("recombine data get picbreeder" in reason for _, reason in found.infeasible)
    with pytest.raises(InvalidRequest, match="genomes=apple: expected some of skull, butterfly"):
        STUDY.cells(dataclasses.replace(grid, genomes=("apple",)))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_begins_every_network_anew_and_teaches_all_students_alike(preset):
    grid = STUDY.grid(preset)
    cells = STUDY.cells(grid)
    assert len({cell.id for cell in cells}) == len(cells)
    drawn = [c.learner for c in cells if c.labels["part"] == "picture"
             and c.labels["way"] == "descent" and c.labels["source"] == "evolved"]  # fmt: skip
    assert len({learner.seed for learner in drawn}) == len(drawn) == grid.pictures * grid.twins
    for cell in (c for c in cells if c.labels["part"] == "sibling"):
        before, way = cell.learner.begin, cell.labels["way"]
        assert (before is None) == (way == "scratch")
        assert (cell.learner.stir > 0) == (way == "stirred")
        if before is not None:
            assert before.number == cell.labels["picture"] and not before.sibling
            assert before.still == (way in ("evolved", "stirred"))
    new = [c for c in cells if c.labels["part"] == "module"]
    assert {c.learner.support.held_out for c in new} == {grid.share}
    anew = [c for c in new if isinstance(c.learner.base, AsDrawn)]
    assert len(anew) == grid.seeds * grid.exchanged and {c.labels["held_out"] for c in anew} == {-1}


def test_the_report_shows_walls_and_strips_side_by_side(cells):
    results = made(cells, whole_and_useful)
    sections = STUDY.sections(GRID, results)
    assert [section.title for section in sections] == [
        "Two networks, one picture", "One weight at a time", "How whole, how fractured",
        "What is learnt next", "Evolution that is told what to draw", "Networks that do not draw",
    ]  # fmt: skip
    asked = [strip.asked for strip in sections[0].galleries[0].strips]
    assert asked[0].startswith("Skull, by evolution") and asked[1].startswith("Skull, by descent")
    html = render(Report("fracture", "T", "Q?", "", "quick", "V.", sections=sections))
    assert html.count("data:image/png;base64,") > 4
    table = sections[2].tables[0]
    told = {(r[0], r[1]): r[2] for r in table.rows}
    assert told["our pictures", "by evolution"] == "0.98 [0.98, 0.98]"
    assert told["our pictures", "untrained"] == "0.45 [0.45, 0.45]"


def test_a_report_of_networks_that_learnt_nothing_says_so_without_breaking(cells):
    def bad(labels):
        told = {**whole_and_useful(labels), "diverged_at": 3}
        if "seen" in told:
            told["seen"] = 0.2
        return {**told, "error": 0.9} if "error" in told else told

    results = made(cells, bad)
    bare = Results([dataclasses.replace(one, readings={}) for one in results])
    for rows in (results, bare):
        sections = STUDY.sections(GRID, rows)
        assert render(Report("fracture", "T", "Q?", "", "quick", "V.", sections=sections))
    kept = {j.verdict for name, j in judged(results).items() if not name.startswith("skull")
            and name != "floor: descent draws the pictures"}  # fmt: skip
    assert kept == {"not tested here"}


@pytest.mark.slow
def test_the_smoke_preset_runs_from_plan_to_report(tmp_path):
    store = Store.open(tmp_path / "runs")
    outcome = run(Request(STUDY, "smoke"), Session(store))
    assert outcome.finished and not outcome.failed
    page, _ = write_report(store, outcome)
    text = page.read_text("utf-8")
    assert "Two networks, one picture" in text and "data:image/png;base64," in text
    parts_seen = {r.labels["part"] for r in outcome.results}
    assert parts_seen == {"picture", "sibling", "directed", "student", "module"}
