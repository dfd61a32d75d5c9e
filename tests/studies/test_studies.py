"""Every study at preset smoke from plan to report, and its claims on results made to order."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from recombine.errors import InvalidRequest
from recombine.instruments import Reading
from recombine.lab.execute import Session
from recombine.lab.judge import judge
from recombine.lab.plan import part
from recombine.lab.run import Request, collect, run, study_named
from recombine.lab.store import Store
from recombine.lab.study import Claim, Evidence, NotTested, Results, Row
from recombine.report.html import render
from recombine.report.study import report_of, summary_of, write_report
from recombine.studies import PRESETS, REGISTRY
from recombine.studies import _base as base


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store.open(tmp_path_factory.mktemp("studies") / "runs")


@pytest.mark.parametrize("name", REGISTRY)
def test_a_study_says_what_it_asks_and_has_four_presets(name):
    study = study_named(name)
    assert study.name == name and study.question.endswith("?") and study.source and study.cost
    assert study.not_shown and tuple(study.presets) == PRESETS
    for preset in PRESETS:
        claims = study.claims(study.grid(preset))
        assert len({claim.name for claim in claims}) == len(claims) > 0
        assert all(claim.bounds and claim.sentence for claim in claims)
        assert part(study.cells(study.grid(preset))).cells


# Those that compile longest run with the slow tests.
SLOW = ("goals", "images", "construction", "architectures", "preference-law", "probability",
        "constraints", "subgraphs", "preferences", "subnetworks", "fracture", "binding",
        "anatomy", "sequences", "collection", "foretold", "model-scaling", "encodings")  # fmt: skip


EACH = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in REGISTRY]
)


@EACH
def test_a_study_runs_to_a_report_and_a_second_run_does_nothing(name, store):
    request = Request(study_named(name), "smoke")
    outcome = run(request, Session(store))
    assert outcome.finished and not outcome.failed
    before = store.ids("cell"), store.ids("reading")
    page, numbers = write_report(store, outcome)
    first = page.read_bytes(), numbers.read_bytes()
    again = run(request, Session(store))
    assert (store.ids("cell"), store.ids("reading")) == before
    write_report(store, again)
    assert (page.read_bytes(), numbers.read_bytes()) == first
    assert json.loads(first[1])["claims_id"] == summary_of(collect(request, store))["claims_id"]


@EACH
def test_whatever_part_of_a_study_is_there_can_be_judged_and_shown(name, store):
    study, grid = study_named(name), study_named(name).grid("smoke")
    whole = list(run(Request(study, "smoke"), Session(store)).results)
    for rows in (*([row] for row in whole[:6]), whole[1:], whole[:-1]):
        judge(study.claims(grid), Results(rows))
        assert study.sections(grid, Results(rows)) is not None


def test_the_published_grid_has_as_many_impossible_cells_as_was_counted_by_hand():
    study = study_named("data-scaling")
    found = part(study.cells(study.grid("paper")))
    # 4 x 6 x 8 settings; 18 of them leave too few combinations to connect the modules.
    settings = {tuple(c.labels[k] for k in ("modules", "active", "held_out"))
                for c, _ in found.infeasible}  # fmt: skip
    assert len(settings) == 18


def made(name: str, number, grid=None, **replaced) -> Results:
    """Rows for every cell of a study's quick grid, their numbers from `number(labels)`."""
    study = study_named(name)
    grid = grid or dataclasses.replace(study.grid("quick"), **replaced)
    rows = []
    for cell in part(study.cells(grid)).cells:
        seen, unseen = number(cell.labels)
        values = {"seen": seen, "unseen": unseen, "gap": seen - unseen}
        reading = Reading(values, {"untrained": {}, "shuffled": {}, "planted": {}})
        steps = [0, 500, 2000]
        curves = {"seen": [-1.0, 0.8 * seen, seen], "unseen": [-1.0, 0.8 * unseen, unseen]}
        summary = {"diverged_at": None, "evaluation_steps": steps, "evaluations": curves}
        rows.append(Row(cell.labels, cell.id, summary, {"generalization": reading}))
    return Results(rows)


def noise(labels) -> float:
    return 0.002 * np.random.default_rng([labels["seed"], labels["width"]]).standard_normal()


def verdicts(name: str, results: Results) -> dict[str, str]:
    study = study_named(name)
    found = judge(study.claims(study.grid("quick")), results)
    return {j.claim.name: j.verdict for j in found}


def test_data_scaling_supports_a_gap_that_closes_and_refutes_one_that_grows():
    def closing(labels):
        return 0.97 + noise(labels), 0.97 - 0.4 * labels["held_out"] ** 4 + noise(labels)

    def growing(labels):
        return 0.97 + noise(labels), 0.6 + 0.3 * labels["held_out"] + noise(labels)

    good, bad = (verdicts("data-scaling", made("data-scaling", f)) for f in (closing, growing))
    for claim in ("the gap closes with data", "the gap closes with data, also earlier"):
        assert (good[claim], bad[claim]) == ("supported", "refuted")
    assert good["a small gap when much is covered"] == "supported"
    assert bad["a small gap when much is covered"] == "refuted"


def test_model_scaling_tells_generalization_from_fit():
    def fits_better_only(labels):
        seen = 0.9 + 0.0005 * labels["width"] + noise(labels)
        return seen, 0.5 + 0.001 * noise(labels)

    found = verdicts("model-scaling", made("model-scaling", fits_better_only))
    assert found["the gap closes with width, 0.9"] == "refuted"


def test_undertrained_networks_speak_neither_for_nor_against():
    def weak(labels):
        return 0.6 + noise(labels), 0.2 + noise(labels)

    for name in ("data-scaling", "model-scaling"):
        found = verdicts(name, made(name, weak))
        assert set(found.values()) == {"not tested here"}, name


def test_a_setting_is_never_compared_with_itself():
    study = study_named("model-scaling")
    grid = study.grid("quick", {"width": "64", "held_out": "0.9"})
    results = made("model-scaling", lambda labels: (0.95, 0.9), grid=grid)
    found = {j.claim.name: j for j in judge(study.claims(grid), results)}
    assert found["wider is better on unseen, 0.9"].verdict == "not tested here"


def test_a_claim_that_cannot_be_measured_does_not_cost_the_others():
    def broken(results):
        raise ValueError("columns are combinations of the others")

    claims = [
        Claim("broken", "A broken one", broken, above=0.0),
        Claim("whole", "A whole one", lambda r: Evidence.of_values([1.0, 1.1, 0.9, 1.0, 1.2]),
              above=0.0),
    ]  # fmt: skip
    first, second = judge(claims, Results([]))
    assert first.verdict == "not tested here" and "combinations of the others" in first.note
    assert second.verdict == "supported"


def test_adjusted_intervals_are_never_narrower_than_the_raw_ones():
    def claim(i: int) -> Claim:
        values = np.random.default_rng(i).normal(i, 1, 8)
        return Claim(f"claim {i}", "A claim", lambda _: Evidence.of_values(values), above=0.0)

    claims = [claim(i) for i in range(4)]
    for judgement in judge(claims, Results([])):
        raw, adjusted = judgement.interval, judgement.adjusted
        assert adjusted.low <= raw.low and adjusted.high >= raw.high


def test_a_report_with_a_missing_control_is_refused(store):
    from recombine.errors import RecombineError

    outcome = run(Request(study_named("boundary"), "smoke"), Session(store))
    row = outcome.results[0]
    reading = row.readings["generalization"]
    bare = Reading(reading.values, {**reading.controls, "planted": {}}, reading.tables)
    robbed = dataclasses.replace(row, readings={"generalization": bare})
    with pytest.raises(RecombineError, match="lacks its control planted"):
        report_of(dataclasses.replace(outcome, results=Results([robbed])))


def test_a_diverged_member_is_counted_and_not_averaged(store):
    outcome = run(Request(study_named("data-scaling"), "smoke"), Session(store))
    first, *rest = outcome.results
    lost = dataclasses.replace(first, summary={**first.summary, "diverged_at": 7})
    page = render(report_of(dataclasses.replace(outcome, results=Results([lost, *rest]))))
    assert "1 members diverged" in page or "1 member diverged" in page
    assert Results([lost, *rest]).values("generalization", "gap").size == len(rest)


@pytest.mark.parametrize(
    "wrong", [{"width": ","}, {"width": "wide"}, {"seeds": "2.5"}, {"wdth": "3"}]
)
def test_a_wrong_setting_is_refused_before_any_work(wrong):
    with pytest.raises(InvalidRequest):
        study_named("coverage").grid("quick", wrong)


def test_a_mean_of_shares_has_an_interval_of_shares():
    wide = base.share_interval(np.asarray([0.0, 0.0, 0.0, 0.3]))
    assert wide.low == 0.0 and 0.0 < wide.estimate < wide.high < 1.0
    assert base.share_interval(np.asarray([1.0, 1.0, 0.8])).high == 1.0
    assert not np.isfinite(base.share_interval(np.asarray([0.5])).low)  # one value has none


def test_too_little_is_told_with_what_was_left_out():
    with pytest.raises(NotTested, match=r"^Networks: only 1 usable .* are needed\. Left out: 3\.$"):
        base.require(np.ones(1), "Networks", note="Left out: 3.")
    with pytest.raises(NotTested, match=r"2 are needed\.$"):
        base.require(np.ones(1), "Networks")
