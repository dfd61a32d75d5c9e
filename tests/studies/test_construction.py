"""The study `construction`: its cells, and its claims on results made to order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from recombine.instruments import Reading
from recombine.lab.identity import canonical, revive
from recombine.lab.judge import judge
from recombine.lab.plan import part
from recombine.lab.study import Results, Row
from recombine.learners import Supervised
from recombine.learners.as_drawn import AsDrawn
from recombine.models import MLP
from recombine.report.html import render
from recombine.report.study import Report
from recombine.studies import PRESETS
from recombine.studies.construction import ConstructionStudy

STUDY = ConstructionStudy()
Change = Callable[[dict[str, Any], dict[str, dict[str, float]]], None]
NONE: dict[str, Any] = {"untrained": {}, "shuffled": {}, "planted": {}}


def as_theory_says(labels: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Readings of a network that does what the theorems say, with a little noise."""
    rng = np.random.default_rng([labels["seed"], labels["modules"], labels["segments"]])
    noise = 1 + 0.02 * rng.standard_normal()
    grown = 1 + 0.05 * math.log2(labels["modules"] / 8)
    found = not labels["trained"] or labels["start"] == "written"
    sup = 9.0 / labels["segments"] ** 2 * noise * grown if found else 2.0 * noise
    wrong = min(1.0, 16.0 / labels["segments"] ** 2) if found else 0.9
    kept = 1 - math.sqrt(wrong) + 0.1 * math.sqrt(wrong)
    score = 0.998 if found else 0.75
    values = {
        "exactness": {"sup": sup, "mean": sup / 10, "r2": score},
        "generalization": {"seen": 0.999 if found else 0.95, "unseen": score},
        "decodability": {"layer1/after": 0.96 + 0.002 * noise, "layer2/after": 0.03 * noise},
        "erasure": {"own": 0.02, "other": 0.003, "beyond_random": 0.015 * noise},
        "function-decoder": {
            "combination": kept, "task": kept, "wrong": wrong, "promised": 1 - math.sqrt(wrong),
            "margin": kept - 1 + math.sqrt(wrong), "tolerance": 0.1, "candidates": 13_152,
            "chance": 0.01,
        },
    }  # fmt: skip
    if labels["start"] == "written":
        values["exactness"]["bound"] = 36.0 / labels["segments"] ** 2 * grown
    return values


def made(change: Change = lambda labels, values: None, grid: Any = None) -> Results:
    """Rows for every cell of a grid, as theory says unless changed."""
    rows = []
    for cell in part(STUDY.cells(grid or STUDY.grid("quick"))).cells:
        labels = dict(cell.labels)
        values = as_theory_says(labels)
        change(labels, values)
        readings = {
            i.name: Reading(values[i.name], {**NONE, "untrained": values[i.name], "random": {}})
            for i in cell.instruments
        }
        curves = {"unseen": [0.0, values["generalization"]["unseen"]]}
        summary = {"diverged_at": None, "evaluation_steps": [0, 10], "evaluations": curves}
        rows.append(Row(labels, cell.id, summary, readings))
    return Results(rows)


def verdicts(results: Results, grid: Any = None) -> dict[str, str]:
    judged = judge(STUDY.claims(grid or STUDY.grid("quick")), results)
    return {j.claim.name: j.verdict for j in judged}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_cells_that_can_exist_and_claims_with_criteria(preset):
    grid = STUDY.grid(preset)
    found = part(STUDY.cells(grid))
    assert found.cells and not found.infeasible
    claims = STUDY.claims(grid)
    assert len({claim.name for claim in claims}) == len(claims)
    assert all(claim.bounds and claim.sentence for claim in claims)
    for cell in found.cells:
        assert revive(canonical(cell.learner)) == cell.learner
        assert isinstance(cell.learner, Supervised if cell.labels["trained"] else AsDrawn)


def test_only_what_is_trained_compiles_training():
    cells = STUDY.cells(STUDY.grid("standard"))
    trained = {c.learner.program() for c in cells if not c.learner.host_driven}
    assert len(trained) == 3
    assert len({c.learner.program() for c in cells}) <= 18


def test_the_ordinary_network_is_the_smallest_of_its_kind_that_has_as_many_parameters():
    cells = STUDY.cells(STUDY.grid("standard"))
    written, ordinary = (
        next(c for c in cells if c.labels["trained"] and c.labels["start"] == start)
        for start in ("written", "ordinary")
    )
    learner: Any = ordinary.learner
    model = learner.model
    assert isinstance(model, MLP)
    narrower = dataclasses.replace(model, width=model.width - 1)
    assert narrower.parameters(16, 16, 16) < written.labels["parameters"]
    assert ordinary.labels["parameters"] >= written.labels["parameters"]


def test_networks_to_be_compared_share_teacher_and_support():
    cells = [c for c in STUDY.cells(STUDY.grid("quick")) if c.labels["seed"] == 3]
    compared: list[Any] = [
        getattr(c.learner, "learner", c.learner) for c in cells
        if c.labels["segments"] == 8 and c.labels["modules"] == 8
        and (c.labels["family"], c.labels["encoding"]) == ("subsets", "identity")
    ]  # fmt: skip
    assert len(compared) == 4
    assert len({(one.family, one.support, one.seeds) for one in compared}) == 1


# --- claims ---


def test_results_as_theory_says_support_every_claim():
    assert set(verdicts(made()).values()) == {"supported"}


def change_of(instrument: str, name: str, value: Any, **where: Any) -> Change:
    """Sets a number of the networks with these labels."""

    def change(labels: dict[str, Any], values: dict[str, dict[str, float]]) -> None:
        if all(labels[label] == wanted for label, wanted in where.items()):
            noise = 1 + 0.01 * math.sin(labels["seed"])
            number: Any = value(labels) if callable(value) else value
            values[instrument][name] = float(number) * noise

    return change


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("the error falls with the square",
         change_of("exactness", "sup", lambda at: 1 / at["segments"], family="subsets")),
        ("also for slots",
         change_of("exactness", "sup", lambda at: 1 / at["segments"] ** 3, family="slots")),
        ("also for sums of outputs",
         change_of("exactness", "sup", lambda at: 1 / at["segments"], family="additive")),
        ("never beyond the bound", change_of("exactness", "sup", 99.0, method="depth")),
        ("the error hardly knows the number of modules",
         change_of("exactness", "sup", lambda at: at["modules"] / 100, encoding="identity")),
        ("training keeps it",
         change_of("generalization", "unseen", 0.9, start="written", trained=True)),
        ("random weights of its shape do not get there",
         change_of("generalization", "unseen", 1.02, start="random")),
        ("nor does an ordinary network of its size",
         change_of("generalization", "unseen", 1.02, start="ordinary")),
        ("the probe finds the task where it is known to be",
         change_of("decodability", "layer1/after", 0.5)),
        ("a random network shows it there as well",
         change_of("decodability", "layer1/after", 0.5, start="random")),
        ("the task is gone from the deepest layer",
         change_of("decodability", "layer2/after", 0.9)),
        ("erasing it is selective", change_of("erasure", "beyond_random", -0.01)),
        ("right answers give the constituents away",
         change_of("function-decoder", "margin", -0.2, segments=8)),
        ("of trained networks too",
         change_of("function-decoder", "margin", -0.2, start="written", trained=True)),
    ],
)  # fmt: skip
def test_a_claim_is_refuted_by_results_that_contradict_it(claim, change):
    assert verdicts(made(change))[claim] == "refuted"


def test_a_network_that_is_promised_nothing_keeps_no_promise():
    wrong = change_of("function-decoder", "promised", 0.05, trained=True)
    assert verdicts(made(wrong))["of trained networks too"] == "not tested here"


def test_claims_about_neurons_count_those_of_the_specs():
    judged = {j.claim.name: j for j in judge(STUDY.claims(STUDY.grid("quick")), made())}

    def estimate(name: str) -> float:
        interval = judged[name].interval
        assert interval is not None
        return interval.estimate

    assert estimate("check: not one neuron more for more modules") == 0
    assert estimate("check: a hidden code costs neurons in proportion to the modules") == 6
    # 2 x 8 x 8 squares of 16 units, against 4 + 3 + 3; carried biases, and the teacher's layer.
    wide, deep = 128 * 16 + 8 + 8, 128 * 10 + 3 * 8 + 8
    assert estimate("check: depth saves neurons") == pytest.approx(deep / wide)


def test_an_ordinary_network_that_did_not_learn_is_left_out_and_one_of_its_shape_is_kept():
    def weak(labels: dict[str, Any], values: dict[str, dict[str, float]]) -> None:
        if labels["start"] != "written":
            values["generalization"]["seen"] = 0.5

    judged = {j.claim.name: j for j in judge(STUDY.claims(STUDY.grid("quick")), made(weak))}
    assert judged["nor does an ordinary network of its size"].verdict == "not tested here"
    kept = judged["random weights of its shape do not get there"]
    assert kept.verdict == "supported" and "5 of 10 undertrained, kept" in kept.note


def test_a_size_that_cannot_carry_a_claim_says_what_it_would_take():
    grid = STUDY.grid("smoke")
    judged = {j.claim.name: j for j in judge(STUDY.claims(grid), made(grid=grid))}
    assert "two resolutions" in judged["the error falls with the square"].note
    assert "two numbers of modules" in judged["the error hardly knows the number of modules"].note
    assert "squarings of at least 2" in judged["check: depth saves neurons"].note
    assert "supported" not in {j.verdict for j in judged.values()}


def test_the_conclusion_answers_the_three_questions():
    judged = judge(STUDY.claims(STUDY.grid("quick")), made())
    assert STUDY.conclusion(judged).count("supported") == 3
    change = change_of("generalization", "unseen", 0.9, start="written", trained=True)
    judged = judge(STUDY.claims(STUDY.grid("quick")), made(change))
    assert STUDY.conclusion(judged).endswith("Training keeps it: refuted.")


@pytest.mark.parametrize("preset", ["smoke", "quick"])
def test_figures_and_tables_can_be_drawn_of_all_and_of_some_results(preset):
    grid = STUDY.grid(preset)
    whole = made(grid=grid)
    for results in (whole, whole.where(trained=False), whole.where(trained=True)):
        page = render(
            Report("construction", "", "", "", preset, "", (), STUDY.sections(grid, results))
        )
        assert "Largest error by segments" in page and "ordinary, as many parameters" in page
