"""The claims of the study of symmetries, on results made to order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recombine.errors import InvalidRequest
from recombine.instruments import Reading
from recombine.lab.judge import Judgement, judge
from recombine.lab.study import Results, Row
from recombine.learners.odd_one_out import OddOneOut
from recombine.studies.symmetry import MEASURES, RULES, Grid, SymmetryStudy, first_rules, new_rule

GRID = Grid(seeds=10, scratch=10)
RNG = np.random.default_rng(0)


def rows(effect: float, known: int = 100, fresh: int = 200, seen: float = 1.0) -> Results:
    """Networks whose steps to a new rule fall with what is inside, by `effect` deviations."""
    found = []
    for decay in GRID.decay:
        for seed in range(GRID.seeds):
            whole = RNG.normal()
            log2 = np.log2(known) - effect * whole + 0.3 * RNG.normal() + decay
            labels = {"task": "fields", "decay": decay, "seed": seed}
            values = dict.fromkeys(MEASURES, 0.5 + 0.05 * whole)
            twin = {**values, "concordance": 0.3}
            controls = {"untrained": twin, "shuffled": values, "planted": values}
            table = {"layer": ["layer1"], "symmetry": ["exchanged"], "concordance": [0.5]}
            reading = Reading(values, controls, {"concordance": table})
            found.append(row({**labels, "part": "network"}, [seen, seen], {"symmetry": reading}))
            for part, steps in (("new", 2**log2), ("scratch", fresh * 2**decay)):
                found.append(row({**labels, "part": part}, curve(steps)))
    return Results(found)


STEPS = np.arange(0, 2_000, 10)


def curve(steps: float) -> list[float]:
    return np.where(steps <= STEPS, 1.0, 0.25).tolist()


def row(labels: dict[str, Any], seen: list[float], readings: Any = None) -> Row:
    summary = {"evaluations": {"seen": seen}, "evaluation_steps": STEPS[: len(seen)].tolist(),
               "diverged_at": None}  # fmt: skip
    return Row(labels, "", summary, readings or {})


def judged(results: Results) -> dict[str, Judgement]:
    found = judge(SymmetryStudy().claims(GRID), results)
    return {j.claim.name.removeprefix("fields: "): j for j in found}


def test_every_claim_finds_what_was_put_in():
    told = judged(rows(effect=1.0))
    assert {j.verdict for j in told.values()} == {"supported"}


def test_the_opposite_is_refuted_and_nothing_is_inconclusive():
    told = judged(rows(effect=-1.0, known=200, fresh=100))
    sooner = [told[f"{name} tells who learns a new rule sooner"].verdict for name in MEASURES]
    assert sooner == ["refuted"] * 3 and told["known rules help"].verdict == "refuted"
    assert told["training respects symmetries"].verdict == "supported"
    none = judged(rows(effect=0.0))["concordance tells who learns a new rule sooner"]
    assert none.verdict == "inconclusive"


def test_networks_that_did_not_learn_their_rules_speak_for_nothing():
    told = judged(rows(effect=1.0, seen=0.8))
    assert {j.verdict for j in told.values()} == {"not tested here"}


def test_where_hardly_any_network_learns_the_new_rule_nobody_is_sooner():
    told = judged(rows(effect=0.1, known=10**6))
    assert told["selectivity tells who learns a new rule sooner"].verdict == "not tested here"


@pytest.mark.parametrize("task", RULES)
def test_a_new_rule_takes_the_place_of_one_and_is_learnt_from_the_same_examples(task):
    network = first_rules(GRID, task, 0.3, 7)
    known, fresh = new_rule(GRID, network), new_rule(GRID, network, known=False)
    before, after = RULES[task]
    if task != "sentences":  # there both words of the rule are others
        assert len(set(before.rules) & set(after.rules)) == 1
    assert before.kind() == after.kind() and known.program() == network.program()
    assert isinstance(known.pretraining, OddOneOut) and fresh.pretraining is None
    assert known.seeds == fresh.seeds != network.seeds
    assert known.seeds.train == new_rule(GRID, first_rules(GRID, task, 0.0, 3)).seeds.train
    known.check()
    fresh.check()


def test_the_report_shows_measures_controls_and_steps():
    whole, new = SymmetryStudy().sections(GRID, rows(effect=1.0))
    networks = [row[1] for row in whole.tables[0].rows]
    assert networks == [
        *(f"weight decay {decay:g}" for decay in GRID.decay), "untrained", "shuffled", "planted",
    ]  # fmt: skip
    assert len(new.figures) == 1 and [row[1] for row in new.tables[0].rows] == [
        "knows two rules", "first weights",
    ]  # fmt: skip
    nothing = SymmetryStudy().sections(GRID, rows(effect=1.0, seen=0.5))
    assert [section.title for section in nothing] == ["Nothing to show yet"]


def test_a_grid_that_asks_nothing_is_refused():
    with pytest.raises(InvalidRequest, match="unknown task 'feilds'"):
        SymmetryStudy().cells(replace(GRID, tasks=("feilds",)))
    with pytest.raises(InvalidRequest, match="seeds=0: expected a whole number of at least 1"):
        SymmetryStudy().cells(replace(GRID, seeds=0))
    with pytest.raises(InvalidRequest, match="learnt=nan: expected a number above 0, up to 1"):
        SymmetryStudy().cells(replace(GRID, learnt=float("nan")))


def test_a_decay_is_asked_for_once_so_that_its_networks_are_told_apart():
    # Those of the second 1.0 would be other networks by the same labels.
    with pytest.raises(InvalidRequest, match=r"decay=1\.0,1\.0: expected every value once"):
        SymmetryStudy().cells(replace(GRID, decay=(1.0, 1.0)))
