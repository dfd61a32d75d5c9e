"""The study of constraints on readings made to order: a ceiling, an artefact, and neither."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.constraints import baselines
from recombine.constraints.tasks import TASKS, WHOLE_NUMBERS, task_named
from recombine.errors import InvalidRequest
from recombine.instruments import Reading
from recombine.instruments.constraints import METRICS
from recombine.lab.judge import Judgement, judge
from recombine.lab.plan import part
from recombine.lab.study import Results, Row
from recombine.report.document import Report
from recombine.report.html import render
from recombine.studies import _constraints as parts
from recombine.studies import _constraints_measures as measures
from recombine.studies.constraints import ConstraintsStudy, Grid

STUDY = ConstraintsStudy()
GRID = Grid(tasks=("case9", "knapsack"), width=(16, 32, 64), middle=32, depth=1, steps=400,
            length=(0.125, 0.25), seeds=5)  # fmt: skip
KINDS = ("power flow", "whole numbers")


@dataclasses.dataclass(frozen=True)
class Numbers:
    """What one network is said to have done, and what answers without competence do."""

    micro: float = 0.58
    strict: float = 0.0
    box: float = 0.95
    equality: float = 0.1
    squared_error: float = 1e-5
    parsed: float = 1.0
    guess: float = 0.4
    noise: float = 0.45
    copied: float = 0.5
    copied_error: float = 1e-4
    guess_error: float = 0.1
    diverged_at: int | None = None


def row(labels: dict[str, Any], cell: str, told: Numbers) -> Row:
    rng = np.random.default_rng([labels["seed"], labels["width"], labels["steps"]])
    wobble = 0.002 * rng.standard_normal()
    own = {
        "micro": told.micro + wobble, "macro": told.micro, "strict": told.strict,
        "box": told.box, "equality": told.equality, "parsed": told.parsed, "exact": 0.0,
        "squared_error": told.squared_error * float(np.exp(wobble)), "violation": 0.1,
    }  # fmt: skip
    null = {"strict": 0.0, "box": 1.0, "equality": 0.3, "parsed": 1.0, "exact": 0.0}
    rows = {
        "network": own,
        "guess": {**null, "micro": told.guess, "squared_error": told.guess_error},
        "copied": {**null, "micro": told.copied, "squared_error": told.copied_error},
        "noise": {**null, "micro": told.noise, "squared_error": 1e-3},
    }
    table: dict[str, list[Any]] = {name: [] for name in ("split", "answer", *METRICS)}
    for name, numbers in rows.items():
        for column, values in table.items():
            values.append({"split": "seen", "answer": name, **numbers}.get(column))
    values, *nulls = ({f"seen_{k}": v for k, v in each.items()} for each in rows.values())
    controls = dict(zip(("guess", "copied", "noise"), nulls, strict=True))
    others = {name: {"seen_strict": 0.0} for name in ("untrained", "shuffled", "planted")}
    reading = Reading(values, {**controls, **others, "rounded": {"seen_strict": 1.0}},
                      {"rows": table})  # fmt: skip
    summary = {"diverged_at": told.diverged_at, "evaluation_steps": [], "evaluations": {}}
    return Row(labels, cell, summary, {"constraints": reading})


def made(told: Callable[[dict[str, Any]], Numbers], grid: Grid = GRID) -> Results:
    cells = part(STUDY.cells(grid)).cells
    return Results([row(dict(c.labels), c.id, told(dict(c.labels))) for c in cells])


def judged(told: Callable[[dict[str, Any]], Numbers], grid: Grid = GRID) -> dict[str, Judgement]:
    return {j.claim.name: j for j in judge(STUDY.claims(grid), made(told, grid))}


def verdicts(told: Callable[[dict[str, Any]], Numbers], grid: Grid = GRID) -> dict[str, str]:
    return {name: j.verdict for name, j in judged(told, grid).items()}


def always(**numbers: Any) -> Callable[[dict[str, Any]], Numbers]:
    return lambda labels: Numbers(**numbers)


@pytest.mark.parametrize("kind", KINDS)
def test_a_ceiling_above_what_no_competence_reaches_is_called_one(kind):
    found = verdicts(always())
    for claim in ("ceiling", "same at all sizes", "flat in size", "boxes hold", "equalities fail",
                  "hardly ever feasible"):  # fmt: skip
        assert found[f"{kind}: {claim}"] == "supported", claim
    task = {"power flow": "case9", "whole numbers": "knapsack"}[kind]
    for claim in ("takes no competence", "artefact", "closer yet no better",
                  f"feasibility moves with size on {task}",
                  f"feasibility moves with training on {task}"):  # fmt: skip
        assert found[f"{kind}: {claim}"] == "refuted", claim
    assert "as a ceiling of reasoning would have it" in STUDY.conclusion(
        list(judged(always()).values())
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_share_that_no_competence_reaches_too_is_an_artefact(kind):
    found = judged(always(guess=0.765, noise=0.64, copied=0.9))
    for claim in ("takes no competence", "artefact", "closer yet no better"):
        assert found[f"{kind}: {claim}"].verdict == "supported", claim
    interval = found[f"{kind}: artefact"].interval
    assert interval is not None and interval.estimate == pytest.approx(0.765 - 0.58, abs=0.002)
    told = STUDY.conclusion(list(found.values()))
    assert told.startswith("On power flow and on whole numbers: ")
    assert told.count("not a ceiling of reasoning") == 1 and "artefact of the mix" in told


def test_networks_that_satisfy_much_more_show_that_there_is_no_ceiling():
    found = judged(always(micro=0.93, guess=0.6, equality=0.8, strict=0.5))
    for claim in ("ceiling", "artefact", "equalities fail", "hardly ever feasible"):
        assert found[f"power flow: {claim}"].verdict == "refuted", claim
    assert "no ceiling of reasoning at this height" in STUDY.conclusion(list(found.values()))


def test_a_share_that_grows_with_size_is_neither_flat_nor_the_same():
    def growing(labels: dict[str, Any]) -> Numbers:
        return Numbers(micro=0.4 + 0.25 * np.log10(labels["width"] / 16))

    found = judged(growing)
    assert found["power flow: flat in size"].verdict == "refuted"
    assert found["power flow: same at all sizes"].verdict == "refuted"


def test_the_slope_is_the_one_that_was_put_in():
    sizes = {cell.labels["width"]: cell.labels["parameters"] for cell in STUDY.cells(GRID)}

    def rising(labels: dict[str, Any]) -> Numbers:
        away = 0.1 * (labels["task"] == "knapsack")
        return Numbers(micro=0.3 + away + 0.07 * np.log10(sizes[labels["width"]]))

    rows = [r for r in made(rising) if r.labels["length"] == 1]
    assert measures.slope(rows) == pytest.approx(0.07, abs=0.005)


@pytest.mark.parametrize("by", ["size", "training"])
def test_feasibility_that_rises_with_size_or_training_on_one_task_is_found(by):
    def rising(labels: dict[str, Any]) -> Numbers:
        far = labels["width"] == 64 if by == "size" else labels["length"] == 1
        return Numbers(strict=0.3 if far and labels["task"] == "knapsack" else 0.0)

    found = verdicts(rising)
    other = {"size": "training", "training": "size"}[by]
    assert found[f"whole numbers: feasibility moves with {by} on knapsack"] == "supported"
    assert found[f"whole numbers: feasibility moves with {other} on knapsack"] == "refuted"
    assert found[f"power flow: feasibility moves with {by} on case9"] == "refuted"
    if by == "training":
        assert found["whole numbers: feasibility does not follow"] == "refuted"
        assert found["power flow: feasibility does not follow"] == "supported"


def test_no_task_is_picked_by_how_far_it_rises():
    three = dataclasses.replace(GRID, tasks=("portfolio", "scheduling", "knapsack"))

    def one_rises(labels: dict[str, Any]) -> Numbers:
        far = labels["length"] == 1 and labels["task"] == "scheduling"
        return Numbers(strict=0.3 if far else 0.0)

    found = judged(one_rises, three)
    moves = {n.rpartition(" ")[2]: j for n, j in found.items() if "moves with training" in n}
    told = {task: (j.verdict, j.interval and j.interval.estimate) for task, j in moves.items()}
    assert told["scheduling"] == ("supported", pytest.approx(0.3))
    assert told["portfolio"] == told["knapsack"] == ("refuted", 0.0)
    assert "rises by .20 or more with training (on scheduling)." in STUDY.conclusion(
        list(found.values())
    )


@pytest.mark.parametrize("kind", KINDS)
def test_thinking_is_not_tested_and_says_what_would_test_it(kind):
    found = judged(always())[f"{kind}: thinking brings nothing"]
    assert found.verdict == "not tested here" and found.claim.bounds == [-0.05, 0.05]
    assert "recombine constraints --endpoint" in found.note and "--against" in found.note


@pytest.mark.parametrize(("times", "verdict"), [(8, "supported"), (3, "refuted")])
def test_the_error_falls_as_many_times_as_it_does(times, verdict):
    def falling(labels: dict[str, Any]) -> Numbers:
        return Numbers(squared_error=1e-5 * (times if labels["length"] < 1 else 1))

    found = judged(falling)["power flow: training lowers the error"]
    assert found.verdict == verdict
    assert found.interval is not None and found.interval.estimate == pytest.approx(times, rel=0.02)


@pytest.mark.parametrize(
    "flaw",
    [{"parsed": 0.9}, {"squared_error": 6e-5}, {"squared_error": 4e-5, "guess_error": 4e-5}],
    ids=["not readable", "near the optimum of other data", "near the guess"],
)
def test_networks_below_the_floor_speak_neither_for_nor_against(flaw):
    def weak(labels: dict[str, Any]) -> Numbers:
        return Numbers(**flaw) if labels["task"] == "case9" else Numbers()

    found = judged(weak)
    mine = {n: j for n, j in found.items() if n.startswith("power flow")}
    none = mine.pop("power flow: takes no competence")  # no network is needed for it
    assert none.verdict == "refuted"
    assert {j.verdict for j in mine.values()} == {"not tested here"}
    assert found["whole numbers: ceiling"].verdict == "supported"


def test_those_left_out_are_counted():
    def some(labels: dict[str, Any]) -> Numbers:
        return Numbers(parsed=0.5 if labels["width"] == 16 else 1.0)

    assert "Left out: 5 of 15" in judged(some)["power flow: ceiling"].note


def test_those_left_out_are_told_by_task():
    both = dataclasses.replace(GRID, tasks=("portfolio", "knapsack"))

    def some(labels: dict[str, Any]) -> Numbers:
        weak = labels["task"] == "knapsack" or labels["width"] == 16
        return Numbers(squared_error=1e-4 if weak else 1e-5)

    note = judged(some, both)["whole numbers: ceiling"].note
    assert "Left out: 20 of 30 below the floor (15 of knapsack, 5 of portfolio)." in note


@pytest.mark.parametrize("task", ["case9", "portfolio", "scheduling", "knapsack"])
def test_no_answer_without_competence_is_above_the_floor(task):
    family = task_named(task).made()
    found = family.cases(family.rng(0, "floor"), "train", 200)
    problems, optima = [case.problem for case, _ in found], [x for _, x in found]
    nulls = baselines.answers(family, problems, optima, family.rng(0, "noise"), ())
    shown = {name: nulls[name] for name in parts.WITHOUT_OPTIMUM}
    means = {len(x): np.mean([y for y in optima if len(y) == len(x)], axis=0) for x in optima}
    decimals = 0 if task_named(task).kind == WHOLE_NUMBERS else 4  # as many as an answer has
    shown["constant"] = [np.round(means[len(x)], decimals) for x in optima]
    rated = {name: baselines.rated(problems, optima, given) for name, given in shown.items()}
    controls = {
        name: {f"seen_{metric}": value for metric, value in rated[name].items()}
        for name in parts.WITHOUT_OPTIMUM
    }
    for name, numbers in rated.items():
        values = {f"seen_{metric}": value for metric, value in numbers.items()}
        answered = Row({}, "", {}, {"constraints": Reading(values, controls, {})})
        assert numbers["parsed"] == 1 and not parts.learnt(answered), name
    best = "guess" if task in ("portfolio", "scheduling") else "copied"
    assert parts.best_null(answered) == best


def test_too_few_seeds_support_nothing():
    few = dataclasses.replace(GRID, seeds=3)
    assert "supported" not in verdicts(always(), few).values()


def test_a_grid_without_a_quarter_of_the_training_says_what_it_lacks():
    short = dataclasses.replace(GRID, length=(0.5,))
    found = judged(always(), short)["power flow: training lowers the error"]
    assert found.verdict == "not tested here" and "trained for 0.25 of the steps" in found.note


def test_claims_are_made_only_about_kinds_of_problem_that_are_there():
    names = [c.name for c in STUDY.claims(dataclasses.replace(GRID, tasks=("knapsack",)))]
    assert names and all(name.startswith("whole numbers") for name in names)
    with pytest.raises(InvalidRequest, match="did you mean 'knapsack'"):
        STUDY.cells(dataclasses.replace(GRID, tasks=("knapsak",)))


@pytest.mark.parametrize("preset", ["smoke", "quick", "standard", "paper"])
def test_the_longest_item_of_every_task_fits_in_a_row(preset):
    grid = STUDY.grid(preset)
    longest = {"case9": 87, "case14": 177, "case30": 333, "portfolio": 52, "scheduling": 54,
               "knapsack": 47}  # fmt: skip
    assert set(longest) == set(TASKS)
    assert all(longest[task] + 2 <= grid.row for task in grid.tasks)  # and two marks


@given(st.lists(st.floats(0, 1), min_size=2, max_size=5))
def test_the_spread_is_between_networks_on_one_task(shares):
    rows = [
        row({"task": task, "seed": 0, "width": n, "steps": 1}, "", Numbers(micro=share + away))
        for n, share in enumerate(shares)
        for task, away in (("case9", 0.0), ("knapsack", 5.0))
    ]
    widest = max(shares) - min(shares)
    assert measures.spread(rows) == pytest.approx(widest, abs=0.03)


def test_the_report_shows_the_rows_without_competence_beside_the_networks():
    results = made(always())
    shown = STUDY.sections(GRID, results)
    assert [s.title for s in shown][:3] == [
        "Who satisfies what", "What size buys", "What training buys"
    ]  # fmt: skip
    table = shown[0].tables[0]
    said = {line[1] for line in table.rows}
    assert set(parts.NULL_ROWS.values()) <= said and "network, width 64" in said
    floor = shown[-1].tables[0]
    assert floor.columns[-3:] == ["of the best null answer", "which is", "above the floor"]
    assert {line[-2] for line in floor.rows} == {"optimum of other data"}
    page = render(Report("constraints", "t", "q", "s", "quick", "v", sections=shown))
    assert "optimum with 1 % noise" in page


def test_shares_in_tables_and_figures_keep_to_shares():
    def nearly_all(labels: dict[str, Any]) -> Numbers:
        return Numbers(micro=0.9995, strict=1.0 if labels["seed"] else 0.9)

    shown = STUDY.sections(GRID, made(nearly_all))
    told = [cell for line in shown[0].tables[0].rows for cell in line[2:4]]
    ends = [float(end) for cell in told for end in re.findall(r"[\[ ]([-\d.]+)[,\]]", str(cell))]
    assert ends and min(ends) >= 0 and max(ends) == 1
    curves = [line for section in shown[1:3] for line in section.figures[0].data.rows]
    assert max(float(line[-1]) for line in curves) == 1
