"""Study law on scores made to order: what is planted is found, through all rounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.instruments import Reading
from recombine.lab.judge import Judgement, judge
from recombine.lab.study import Cell, Results, Row
from recombine.report.document import Section
from recombine.studies import _law
from recombine.studies.law import Law

STUDY = Law()
STANDARD = STUDY.grid("standard")
Need = Callable[[str, int, int], float]  # N* of a model at M and K


def polynomial(model: str, m: int, k: int) -> float:
    """Needs grow as M^1.5; the MLP needs twice as many as the transformer."""
    return {3: 1.0, 4: 1.5}[k] * m**1.5 * (1 if model == "mlp" else 0.5)


def exponential(model: str, m: int, k: int) -> float:
    return {3: 6.0, 4: 9.0}[k] * 2 ** (0.2 * m)


def share_of_all(model: str, m: int, k: int) -> float:
    return 0.3 * _law.Setting(model, m, k).combinations


def row(cell: Cell, need: Need, top: float = 0.99, seen: float = 0.98) -> Row:
    """A score that rises as a logistic in log N and is .95 where N is what this seed needs."""
    labels = cell.labels
    wanted = need(labels["model"], labels["modules"], labels["active"])
    place = [labels["seed"], labels["modules"], labels["active"]]
    wanted *= 2 ** (0.04 * np.random.default_rng(place).standard_normal())
    steep = 2.0
    middle = math.log(wanted) + math.log(max(top, 0.96) / 0.95 - 1) / steep
    unseen = top / (1 + math.exp(-steep * (math.log(labels["size"]) - middle)))
    values = {"seen": seen, "unseen": unseen, "gap": seen - unseen}
    reading = Reading(values, {"untrained": {}, "shuffled": {}, "planted": {}})
    return Row(labels, cell.id, {"diverged_at": None}, {"generalization": reading})


def searched(need: Need, grid: _law.Grid = STANDARD, made=row) -> Results:
    """The whole study with made-up scores, round by round, as the lab runs it."""
    rows: list[Row] = []
    cells = STUDY.cells(grid)
    for number in range(1, 100):
        rows += [made(cell, need) for cell in cells]
        cells = STUDY.next_cells(grid, Results(rows), number)
        if not cells:
            return Results(rows)
    raise AssertionError("the rounds do not end")


def judged(results: Results, grid: _law.Grid = STANDARD) -> dict[str, Judgement]:
    return {j.claim.name: j for j in judge(STUDY.claims(grid), results)}


def estimate(judgement: Judgement) -> float:
    assert judgement.interval is not None
    return judgement.interval.estimate


def told(sections: list[Section], title: str) -> list[list]:
    tables = {table.title: table for section in sections for table in section.tables}
    return [list(found) for found in tables[title].rows]


@pytest.fixture(scope="module")
def grown() -> Results:
    return searched(polynomial)


def test_a_planted_polynomial_law_is_found_and_the_exponential_one_rejected(grown):
    found = judged(grown)
    for model in ("MLP", "transformer"):
        assert found[f"less than exponential, {model}"].verdict == "supported"
        assert found[f"a vanishing share, {model}"].verdict == "supported"
        assert found[f"the polynomial law predicts, {model}"].verdict == "supported"


def test_every_threshold_lies_where_it_was_planted(grown):
    for model in STANDARD.model:
        points = _law.points(STANDARD, grown, model)
        assert len(points) == 5 * 2 * 5
        for point in points:
            planted = math.log2(polynomial(model, *point.setting))
            assert point.censored == "no" and abs(point.log2_size - planted) < 0.2


def test_a_transformer_that_needs_half_is_one_log2_unit_ahead(grown):
    ahead = judged(grown)["the transformer needs fewer"]
    assert ahead.verdict == "supported" and estimate(ahead) == pytest.approx(1, abs=0.05)
    same = judged(searched(lambda _, m, k: polynomial("mlp", m, k)))
    assert abs(estimate(same["the transformer needs fewer"])) < 0.01


def test_a_planted_exponential_law_refutes_growth_that_is_less():
    found = judged(searched(exponential))
    assert found["less than exponential, MLP"].verdict == "refuted"
    assert found["less than exponential, transformer"].verdict == "refuted"


def test_a_fixed_share_of_all_combinations_does_not_vanish():
    found = judged(searched(share_of_all))["a vanishing share, MLP"]
    assert found.verdict != "supported" and estimate(found) == pytest.approx(1, abs=0.05)


def test_rounds_are_decided_by_results_alone_and_end_after_as_many_as_asked(grown):
    again = searched(polynomial)
    assert [r.cell for r in again] == [r.cell for r in grown]
    backwards = Results(list(reversed(list(grown))))
    for number in (1, STANDARD.rounds):
        one, other = (STUDY.next_cells(STANDARD, r, number) for r in (grown, backwards))
        assert [c.id for c in one] == [c.id for c in other]
    assert STUDY.next_cells(STANDARD, grown, STANDARD.rounds + 1) == []
    assert len(grown) == len(STUDY.cells(STANDARD)) + STUDY.most_further_cells(STANDARD)


def test_every_round_trains_as_many_sizes_at_every_setting():
    flat = searched(lambda *_: 1e9)  # nothing is ever reached
    for setting in _law.settings(STANDARD):
        assert len(setting.of(flat).labels("size")) == 3 + 2 * 3


def test_a_setting_that_never_reaches_the_target_is_said_to_be_censored():
    def capped(cell: Cell, need: Need) -> Row:
        hard = cell.labels["modules"] == 24 and cell.labels["active"] == 4
        return row(cell, need, top=0.93 if hard else 0.99)

    results = searched(polynomial, made=capped)
    found = judged(results)["less than exponential, MLP"]
    assert found.verdict == "not tested here" and "M=24, K=4" in found.note
    sections = list(STUDY.sections(STANDARD, results))
    needs = told(sections, "Combinations needed")
    assert [r[4] for r in needs if r[1:3] == [4, 24]] == ["over 12691", "over 12691"]
    used = told(sections, "What the thresholds rest on")
    assert [r[4:6] for r in used if r[1:3] == [4, 24]] == [[0, 5], [0, 5]]


def test_undertrained_networks_speak_neither_for_nor_against():
    results = searched(polynomial, made=lambda cell, need: row(cell, need, seen=0.6))
    found = judged(results)
    assert {j.verdict for j in found.values()} == {"not tested here"}
    assert "450 undertrained" in found["a vanishing share, MLP"].note
    assert STUDY.sections(STANDARD, results)


def test_a_setting_that_training_alone_limits_bends_no_law(grown):
    def unfit(cell: Cell, need: Need) -> Row:
        hard = cell.labels["modules"] == 24 and cell.labels["active"] == 4
        return row(cell, need, top=0.93, seen=0.94) if hard else row(cell, need)

    results = searched(polynomial, made=unfit)
    assert len(_law.points(STANDARD, results, "mlp")) == 45
    found, free = (judged(r)["a vanishing share, MLP"] for r in (results, grown))
    assert estimate(found) == pytest.approx(estimate(free), abs=0.03)
    used = told(list(STUDY.sections(STANDARD, results)), "What the thresholds rest on")
    notes = {tuple(r[:3]): r[-1] for r in used}
    assert "5 seeds set aside; limited by training" in notes["MLP", 4, 24]
    assert notes["MLP", 4, 16] == ""


def test_training_that_limits_the_score_is_told_beside_the_claim():
    results = searched(polynomial, made=lambda cell, need: row(cell, need, seen=0.94))
    note = judged(results)["a vanishing share, MLP"].note
    assert "seen R² is itself below 0.95" in note and "M=24 K=4" in note


def test_the_report_names_the_law_and_what_was_saved(grown):
    first, second, _ = STUDY.sections(STANDARD, grown)
    # 2 parts, twice cut into 4: 33 sizes at 10 settings (29 where there are no more), 2 models,
    # 5 seeds.
    assert "used 900 runs; the full grid of feasible cells has 3,260: 72 % saved." in first.text
    assert "MLP: polynomial predicts best" in second.text
    laws = [r[:2] for r in told([second], "Laws at the largest settings")]
    assert len(laws) == 6 and laws[0] == ["MLP", "polynomial"]


def test_the_published_sweep_has_as_many_cells_as_can_be_counted_by_hand():
    def seen(m: int, k: int, share: float) -> int:
        size = sum(math.comb(m, h) for h in range(1, k + 1))
        return size - int(size * share)

    can = [seen(m, k, f) >= math.ceil((m - 1) / (k - 1)) for m in range(10, 29, 2)
           for k in (4, 5, 6) for f in _law.PUBLISHED.shares]  # fmt: skip
    found = _law.PUBLISHED.cells, _law.PUBLISHED.feasible
    assert found == (6 * len(can), 6 * sum(can)) == (2700, 1464)
    paper = STUDY.grid("paper")
    assert len(STUDY.cells(paper)) + STUDY.most_further_cells(paper) < 1464


def test_the_models_compared_have_about_as_many_parameters():
    for preset in ("standard", "paper"):
        cells = STUDY.cells(STUDY.grid(preset))
        for m in STUDY.grid(preset).modules:
            counts = {c.labels["parameters"] for c in cells if c.labels["modules"] == m}
            assert len(counts) == 2 and max(counts) / min(counts) < 1.02


def test_small_presets_say_what_they_cannot_test():
    grid = STUDY.grid("quick")
    results = searched(lambda _, m, k: 2.0 * m, grid)
    found = judged(results, grid)
    assert found["a vanishing share, MLP"].verdict == "supported"
    for name in ("less than exponential, MLP", "the transformer needs fewer"):
        assert found[name].verdict == "not tested here"
        assert "Not tested at this size" in found[name].note


def test_both_crossings_of_a_curve_that_falls_again_are_looked_into():
    setting = _law.Setting("mlp", 24, 4)
    tried, means = [12, 100, 1000, 12691], [0.2, 0.97, 0.6, 0.99]
    found = _law.further_sizes(STANDARD, setting, tried, means)
    assert [sum(a < n < b for n in found) for a, b in ((12, 100), (100, 1000), (1000, 12691))] == [
        1, 1, 1
    ]  # fmt: skip


@given(
    st.sampled_from([(5, 3), (6, 3), (8, 2), (24, 4)]),
    st.integers(2, 5),
    st.lists(st.one_of(st.floats(-1, 1), st.just(math.nan)), min_size=6, max_size=6),
)
def test_further_sizes_are_new_within_the_span_and_as_many_as_there_is_room_for(at, parts, scores):
    setting = _law.Setting("mlp", *at)
    grid = dataclasses.replace(STANDARD, parts=parts)
    low, high = setting.span
    tried: list[int] = _law.thresholds.first_sizes(low, high, 3)
    for _ in range(4):
        means = [scores[n % len(scores)] for n in tried]
        found = _law.further_sizes(grid, setting, tried, means)
        assert all(low <= n <= high for n in found) and not set(found) & set(tried)
        assert len(set(found)) == len(found) == min(parts - 1, high - low + 1 - len(tried))
        tried = sorted([*tried, *found])


@pytest.mark.parametrize(
    ("wrong", "word"),
    [({"model": "mpl"}, "mlp"), ({"training": "fast"}, "training"), ({"rounds": "0"}, "first=6"),
     ({"parts": "1"}, "2 parts"), ({"modules": "3", "active": "2"}, "more modules")],
)  # fmt: skip
def test_a_search_that_cannot_end_in_a_threshold_is_refused_before_any_work(wrong, word):
    with pytest.raises(InvalidRequest, match=word):
        STUDY.cells(STUDY.grid("quick", wrong))
