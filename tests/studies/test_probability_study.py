"""Study probability on readings made to order, and from plan to report at preset smoke."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recombine.families.strings import Strings
from recombine.instruments import Reading
from recombine.lab.judge import Judgement, judge
from recombine.lab.plan import part
from recombine.lab.study import Results, Row
from recombine.learners.next_token import NextToken
from recombine.probability import embers
from recombine.probability.embers import Log
from recombine.studies import PRESETS
from recombine.studies import _probability as parts
from recombine.studies._probability import (
    ADVERSARIAL,
    HIGH,
    LANGUAGE,
    LOOKS,
    LOW,
    MEDIUM,
    ORIGINAL,
    OTHER,
    PLACEBO,
    RARE,
    TASKS,
    published,
)
from recombine.studies.probability import Grid, ProbabilityStudy, early_drawn, looked_at

PUBLISHED = Path(os.environ.get("RECOMBINE_TEST_DATA", "nowhere")) / "embers"
STUDY = ProbabilityStudy()
GRID = Grid(width=(32, 64), placebo_seeds=5)
STEPS = [0, 100, 200, 300]
Curve = tuple[float, ...]

# In the language likely answers lead by .4 when they pass .5, and by .2 at the end; the rare shift
# is never learnt. The placebo learns all alike.
SLOW: Mapping[str, Curve] = {HIGH: (0.0, 0.3, 0.6, 1.0), MEDIUM: (0.0, 0.2, 0.5, 0.9),
                             LOW: (0.0, 0.0, 0.2, 0.8), RARE: (0.0, 0.0, 0.0, 0.1),
                             ORIGINAL: (0.0, 0.3, 0.5, 0.0),
                             OTHER: (0.0, 0.1, 0.1, 0.0)}  # fmt: skip
ALIKE: Mapping[str, Curve] = dict.fromkeys((HIGH, MEDIUM, LOW, RARE), (0.0, 0.3, 0.6, 1.0)) | (
    dict.fromkeys((ORIGINAL, OTHER), (0.0, 0.1, 0.2, 0.0))
)


@dataclasses.dataclass(frozen=True)
class Numbers:
    """What one network is said to have done."""

    curves: Mapping[str, Curve]
    seen: float = 0.95
    output: float = 1.0
    input: float = 0.2
    ratio: float = 6.0
    adversarial_wrong: float = 50.0
    wrong: float = 100.0
    diverged_at: int | None = None


def usual(labels: Mapping[str, Any]) -> Numbers:
    ours = labels["world"] == LANGUAGE
    return Numbers(SLOW if ours else ALIKE, output=float(ours), ratio=6.0 if ours else 1.0)


def row(labels: dict[str, Any], cell: str, told: Numbers) -> Row:
    rng = np.random.default_rng([labels["seed"], labels["width"]])

    def near(value: float) -> float:
        return value + 0.005 * float(rng.normal())

    curves = {look: [near(v) for v in told.curves.get(look, told.curves[HIGH])] for look in LOOKS}
    shares = {f"{task} {c}": 0.5 for task in TASKS for c in ("high", "medium", "low")}
    shares |= {f"{task} adversarial": 0.5 for task in TASKS}
    shares |= {look: curves[look][-1] for look in LOOKS if look != "seen"}
    values = shares | {
        "seen": near(told.seen), "output": near(told.output), "input": near(told.input),
        "ratio": told.ratio * float(np.exp(0.1 * rng.normal())), "right": 1_000.0,
        "adversarial_wrong": told.adversarial_wrong, "original": 0.3, "other": 0.05,
        "wrong": told.wrong,
    }  # fmt: skip
    controls = {
        "untrained": {HIGH: 0.0}, "shuffled": {"output": 0.0, "input": 0.0},
        "planted": {"output": 1.0, "input": 0.0, "ratio": 6.0},
    }  # fmt: skip
    tables = {"drawn": {"asked": ["-B dbu"], "right": ["cat"], "said": ["car"]}, "parts": {}}
    summary = {"diverged_at": told.diverged_at, "evaluation_steps": STEPS, "evaluations": curves}
    return Row(labels, cell, summary, {"probability": Reading(values, controls, tables)})


def made(told: Callable[[Mapping[str, Any]], Numbers] = usual, grid: Grid = GRID) -> Results:
    cells = part(STUDY.cells(grid)).cells
    return Results([row(dict(c.labels), c.id, told(c.labels)) for c in cells])


def judged(results: Results, grid: Grid = GRID) -> dict[str, Judgement]:
    return {j.claim.name: j for j in judge(STUDY.claims(grid), results)}


def changed(**fields: Any) -> Callable[[Mapping[str, Any]], Numbers]:
    return lambda labels: dataclasses.replace(usual(labels), **fields)


def estimate(judgement: Judgement) -> float:
    assert judgement.interval is not None
    return judgement.interval.estimate


def test_embers_are_found_where_they_are_planted():
    found = judged(made())
    sizes = {"the lead shrinks with size", "the lead shrinks with size at the end"}
    ours = {name: j for name, j in found.items() if not name.startswith("published: ")}
    assert {name for name, j in ours.items() if j.verdict != "supported"} == sizes
    assert estimate(found["likely answers come first"]) == pytest.approx(0.4, abs=0.02)
    assert estimate(found["likely answers are ahead at the end"]) == pytest.approx(0.2, abs=0.02)
    # The mean gap of trapezoids over the three stretches: (.15 + .35 + .3) / 3.
    area = estimate(found["likely answers are ahead all the way"])
    assert area == pytest.approx(0.8 / 3, abs=0.02)
    assert estimate(found["also where all words are known"]) == pytest.approx(0.1, abs=0.02)
    assert estimate(found["more than the input's"]) == pytest.approx(0.8, abs=0.02)
    assert estimate(found["common shifts come first"]) == pytest.approx(0.6, abs=0.02)
    assert estimate(found["drawn to the likely"]) == pytest.approx(6, rel=0.15)
    # Of a hundred answers fifty against ten, and half an answer on either side.
    early = found["drawn to the likely on the way"]
    assert estimate(early) == pytest.approx(50.5 / 10.5, rel=0.1)


def test_networks_that_learn_all_alike_refute_it():
    found = judged(made(lambda labels: Numbers(ALIKE, output=0.0, input=0.2, ratio=1.0)))
    for name in (
        "likely answers come first", "likely answers are ahead at the end", "more than the input's",
        "common shifts come first", "common shifts are ahead at the end", "drawn to the likely",
        "drawn to the likely on the way",
    ):  # fmt: skip
        assert found[name].verdict == "refuted", name
    assert found["also where all words are known"].verdict != "supported"


def test_a_gap_that_training_closes_is_a_transient():
    closing = {**SLOW, LOW: (0.0, 0.0, 0.2, 1.0)}
    found = judged(made(changed(curves=closing)))
    assert found["likely answers come first"].verdict == "supported"
    assert found["likely answers are ahead all the way"].verdict == "supported"
    assert found["likely answers are ahead at the end"].verdict == "refuted"


def test_a_placebo_with_gaps_of_its_own_refutes_its_claims():
    found = judged(made(changed(curves=SLOW)))
    for name in ("condition comes first", "condition is ahead at the end", "shift comes first",
                 "shift is ahead at the end"):  # fmt: skip
        assert found[f"placebo: no {name}"].verdict == "refuted"


@pytest.mark.parametrize("wrong", [{"seen": 0.5}, {"diverged_at": 3}])
def test_networks_that_do_not_know_their_tasks_speak_for_nothing(wrong):
    found = judged(made(changed(**wrong)))
    assert found["likely answers come first"].verdict == "not tested here"
    assert found["placebo: no shift comes first"].verdict == "not tested here"
    assert "Left out: 5 below .9" in found["likely answers come first"].note

    def some(labels):
        return dataclasses.replace(usual(labels), **(wrong if labels["seed"] == 0 else {}))

    one = judged(made(some))["likely answers come first"]
    assert one.interval is not None and one.interval.units == 4 and one.verdict == "inconclusive"
    assert "Left out: 1 below .9" in one.note


def test_almost_perfect_networks_have_no_coefficient_and_no_ratio():
    found = judged(made(changed(wrong=3.0, adversarial_wrong=1.0)))
    for name in ("the output's probability counts", "more than the input's", "drawn to the likely"):
        assert found[name].verdict == "not tested here"
        assert "Left out: 5 of 5 that know their tasks, with fewer than 10" in found[name].note
        assert "Needs two networks, has 0." in found[name].note
    assert "wrong answers to such sentences" in found["drawn to the likely"].note
    assert found["likely answers come first"].verdict == "supported"
    assert found["drawn to the likely on the way"].verdict == "supported"


def test_networks_that_give_no_neighbour_on_the_way_say_so():
    never = {**SLOW, ORIGINAL: (0.0, 0.0, 0.0, 0.0), OTHER: (0.0, 0.0, 0.0, 0.0)}
    found = judged(made(changed(curves=never)))["drawn to the likely on the way"]
    assert found.verdict == "not tested here"
    assert "5 of 5 that know their tasks, with fewer than 10 answers then" in found.note


def test_shares_of_a_look_are_counted_in_whole_answers():
    short = float(np.float32(0.07)) - 1e-9  # a little less than seven of a hundred
    (first, *_) = made(usual)
    curves = {HIGH: [0.0, 0.6], ORIGINAL: [0.0, short], OTHER: [0.0, 0.03]}
    told = dataclasses.replace(first, summary={"evaluation_steps": [0, 1], "evaluations": curves})
    assert early_drawn(GRID)(told) == 7.5 / 3.5


@pytest.mark.parametrize("preset", PRESETS)
def test_a_look_has_room_for_as_many_sentences_as_are_counted(preset):
    grid = dataclasses.replace(STUDY.grid(preset), train_items=600)
    learner = STUDY.cells(grid)[0].learner
    assert isinstance(learner, NextToken)
    given = {name: material.make() for name, material in learner.materials().items()}
    held = learner.prepare(given).group["looked at"][ORIGINAL].item
    assert sum(len(set(row[row > 0].tolist())) for row in np.asarray(held)) == looked_at(grid)


def test_a_lead_that_shrinks_with_size_is_told_from_one_that_grows():
    closer = {**SLOW, LOW: (0.0, 0.2, 0.5, 0.95)}

    def shrinks(labels):
        return dataclasses.replace(usual(labels), curves=closer if labels["width"] == 64 else SLOW)

    def grows(labels):
        return dataclasses.replace(usual(labels), curves=closer if labels["width"] == 32 else SLOW)

    for told, verdict in ((shrinks, "supported"), (grows, "refuted")):
        found = judged(made(told))
        assert found["the lead shrinks with size"].verdict == verdict
        assert found["the lead shrinks with size at the end"].verdict == verdict
    one = dataclasses.replace(GRID, width=(64,))
    assert judged(made(grid=one), one)["the lead shrinks with size"].verdict == "not tested here"


def test_a_preset_without_a_placebo_says_so():
    none = dataclasses.replace(GRID, placebo_seeds=0)
    found = judged(made(grid=none), none)
    assert found["likely answers come first"].verdict == "supported"
    assert "No results of" in found["placebo: no shift comes first"].note
    (figure,) = next(s.figures for s in STUDY.sections(none, made(grid=none)) if s.figures)
    assert figure.data is not None and len({r[0] for r in figure.data.rows}) == 1


@pytest.mark.parametrize("preset", PRESETS)
def test_placebo_and_network_are_asked_the_same_and_share_a_program(preset):
    grid = STUDY.grid(preset)
    cells = STUDY.cells(grid)
    learners = [cell.learner for cell in cells if isinstance(cell.learner, NextToken)]
    families = [one.family for one in learners if isinstance(one.family, Strings)]
    assert len(families) == len(cells)
    assert len({learner.program() for learner in learners}) == len(grid.width)
    worlds = {cell.labels["world"] for cell in cells}
    assert worlds == ({LANGUAGE, PLACEBO} if grid.placebo_seeds else {LANGUAGE})
    assert not part(cells).infeasible
    assert len({family.content for family in families}) == grid.seeds
    if preset != "smoke":
        assert grid.seeds >= 5


def test_the_report_shows_every_curve_and_what_was_said():
    sections = {s.title: s for s in STUDY.sections(GRID, made())}
    curves = sections["What comes first"].figures[0].data
    assert curves is not None and len({r[0] for r in curves.rows}) == 2
    assert len({r[1] for r in curves.rows}) == 5
    examples = sections["Are wrong answers likely ones?"].tables[1]
    assert list(examples.rows[0]) == ["-B dbu", "cat", "car"]
    assert "Size" in sections and ADVERSARIAL in LOOKS
    one = dataclasses.replace(GRID, width=(64,))
    assert "Size" not in {s.title for s in STUDY.sections(one, made(grid=one))}


def test_without_the_published_data_claims_and_report_say_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.delenv("RECOMBINE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    found = published()
    assert not found.tables and "recombine data get embers" in found.text
    for name, judgement in judged(made()).items():
        if name.startswith("published: "):
            assert judgement.verdict == "not tested here"
            assert "recombine data get embers" in judgement.note


def answered(right: int) -> Log:
    """A hundred answers, some of which are right."""
    golds = tuple(f"sentence {n}." for n in range(100))
    return Log(golds, golds, tuple(g if n < right else "?" for n, g in enumerate(golds)))


@pytest.mark.parametrize(
    ("right", "verdict"), [((51, 22, 13), "supported"), ((51, 25, 13), "refuted")]
)
def test_published_answers_scored_again_must_give_the_reported_accuracies(
    monkeypatch, right, verdict
):
    logs = {name: answered(n) for name, n in zip(("high", "medium", "low"), right, strict=True)}
    rng = np.random.default_rng(0)
    correct = np.concatenate([log.correct for log in logs.values()])
    table = {name: rng.normal(size=300) for name in embers.PREDICTORS} | {"correct": correct}
    read = parts.Published(logs, embers.regression(table))
    monkeypatch.setattr(parts, "answers_of_gpt_4", lambda: read)
    found = judged(made())
    accuracies = found["published: accuracies come out again"]
    assert accuracies.verdict == verdict
    assert estimate(accuracies) == pytest.approx((right[1] - 22) / 100)
    assert f"unlikely words 0.{right[1]}" in accuracies.note
    # Another table of items has another regression.
    assert found["published: the regression comes out again"].verdict == "refuted"


@pytest.mark.skipif(
    not PUBLISHED.is_dir(),
    reason="set RECOMBINE_TEST_DATA to a folder that holds the published set as embers/",
)
def test_the_published_set_supports_both_claims_about_it(monkeypatch):
    monkeypatch.setenv("RECOMBINE_DATA", str(PUBLISHED.parent))
    found = judged(made())
    for name in ("accuracies come out again", "the regression comes out again"):
        assert found[f"published: {name}"].verdict == "supported"
