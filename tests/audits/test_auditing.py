"""The audit as a whole: what it says, what it counts as one defect, and what it will not tell."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.audits.auditing import Asked, Audit, Evaluation, audit
from recombine.audits.labels import label_noise
from recombine.audits.page import document_of, report_of, tables_of
from recombine.audits.slices import slices
from recombine.errors import InvalidRequest
from recombine.report.html import render
from recombine.splits.divergence import Divergences, chernoff, divergences, joined
from recombine.splits.pieces import pieces
from recombine.tables.novelty import Links
from recombine.tables.reading import read_rows
from recombine.tables.rows import Rows, aligned

NAMES = ("colour", "shape", "place")
VALUES = (("red", "blue", "green"), ("cube", "ball"), ("hill", "lake"))
EVERY = tuple(itertools.product(*VALUES))


def rows(lines, names=NAMES) -> Rows:
    columns = zip(*lines, strict=True)
    return read_rows(dict(zip(names, map(list, columns), strict=True)), None)


def drawn(seed: int, length: int) -> list[tuple[str, ...]]:
    rng = np.random.default_rng(seed)
    return [EVERY[i] for i in rng.integers(0, len(EVERY), length)]


def share(found: Audit, t: int, least: int | None = None) -> float:
    covered = found.covered(t, least)
    assert covered is not None and covered.share is not None
    return covered.share


def judged(found: Audit) -> Evaluation:
    assert found.evaluation is not None
    return found.evaluation


def told(found: Audit) -> list[tuple[str, str]]:
    return [(finding.kind, finding.where) for finding in found.findings]


# --- what is said ---


def test_the_sentence_says_coverage_connection_exposure_and_alarms():
    train = [line for line in EVERY * 20 if line[:2] != ("red", "cube")]
    target = [("red", "cube", "hill"), ("blue", "ball", "lake")]
    found = audit(rows(train), Asked(target=rows(target), traffic=np.array([1.0, 3.0])))
    assert found.sentence() == (
        "93.8% of 16 possible pairs are trained; the values are covered and connected; "
        "25.0 % of target traffic lies in combinations, and 25.0 % in pairs, never trained. "
        "Alarms: 1 of kind 'hole'."
    )
    assert told(found) == [("hole", "colour=red, shape=cube")]
    assert found.findings[0].sentence == "colour=red, shape=cube: expected 16, saw 0"


def test_nothing_is_raised_where_everything_is_there():
    found = audit(rows(EVERY * 20))
    assert found.findings == [] and found.sentence().endswith("Alarms: none.")
    assert share(found, 3) == 1.0


def test_coverage_falls_with_the_rows_asked_for_and_with_the_values_together():
    found = audit(rows(drawn(0, 60)), Asked(min_count=3))
    counts = sorted({c.min_count for c in found.coverage})
    assert counts == [1, 2, 3, 5, 10, 20, 50, 100]
    for t in (1, 2, 3):
        shares = [share(found, t, n) for n in counts]
        assert shares == sorted(shares, reverse=True)
    for n in counts:
        shares = [share(found, t, n) for t in (1, 2, 3)]
        assert shares == sorted(shares, reverse=True)
    largest = sorted(found.connected, key=lambda c: c.min_count)
    assert [c.largest for c in largest] == sorted((c.largest for c in largest), reverse=True)
    assert found.connected[0].min_count == 3


def test_a_least_count_makes_holes_of_what_is_there_but_rarely():
    train = [line for line in EVERY * 30 if line[:2] != ("red", "cube")]
    train += [("red", "cube", "hill")] * 4
    usual, strict = (audit(rows(train), Asked(min_count=n)) for n in (1, 5))
    assert ("hole", "colour=red, shape=cube") not in told(usual)
    assert ("hole", "colour=red, shape=cube") in told(strict)
    hole = next(h for h in strict.holes[2] if strict.train.label(h.assignment).endswith("cube"))
    assert hole.count == 4


def test_one_value_only_is_said():
    found = audit(rows([("red", s, p) for s, p in itertools.product(*VALUES[1:])] * 20))
    assert "one value only (red)" in found.why_not["factor colour"]
    assert found.findings == []


def test_one_factor_alone_has_nothing_to_combine_and_raises_no_alarm():
    found = audit(rows([(line[0],) for line in EVERY * 20], ("colour",)))
    assert found.findings == [] and found.parts == ()
    assert found.sentence() == (
        "The values are covered; with one factor there is nothing to combine. Alarms: none."
    )
    assert "nothing to combine" in found.why_not["factors"]
    assert {c["connected"] for c in document_of(found)["connected"]} == {None}
    page = render(report_of(found))
    assert "not connected" not in page and "Every possible pair" not in page


def test_one_column_of_lists_does_combine():
    lists = [["red", "cube"], ["blue", "ball"]] * 20
    found = audit(read_rows({"tags": lists}, None))
    assert [f.kind for f in found.findings] == ["disconnected part"]


# --- one defect, one alarm ---


def test_a_thin_value_raises_no_holes_beside_it():
    train = [*EVERY * 50, *[("gold", "cube", "hill")] * 9]
    found = audit(rows(train), Asked(thin_rows=10))
    assert told(found) == [("thin value", "colour=gold")]
    assert found.findings[0].sentence == "colour=gold: 9 rows only"


def test_a_thin_value_without_links_is_no_part_of_its_own():
    train = [*EVERY * 50, ("gold", "cube", "hill")]
    found = audit(rows(train), Asked(min_count=2))
    assert len(found.parts) == 2
    assert told(found) == [("thin value", "colour=gold")]
    assert found.findings[0].sentence == "colour=gold: 1 row only"


def test_a_value_that_only_the_target_has_is_told_with_no_row():
    target = [("gold", "cube", "hill"), ("red", "ball", "lake")]
    found = audit(rows(EVERY * 20), Asked(target=rows(target)))
    assert found.findings[0].sentence == "colour=gold: no row"
    assert found.exposure is not None and found.exposure.values == 0.5


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_an_alarm_of_a_hole_is_a_cell_that_is_rarer_than_asked_for(seed, least):
    rng = np.random.default_rng(seed)
    out = EVERY[rng.integers(len(EVERY))][:2]
    lines = [line for line in drawn(seed, 400) if line[:2] != out]
    found = audit(rows(lines), Asked(min_count=least))
    for kind, where in told(found):
        if kind == "hole":
            wanted = {part.split("=")[1] for part in where.split(", ")}
            assert sum(wanted <= set(line) for line in lines) < least


def test_an_alarm_survives_a_crowd_of_holes_with_traffic():
    """Ranking by traffic must not lose the gap that nobody asks for yet."""
    rng = np.random.default_rng(0)
    names, size = ("a", "b", "c"), 20
    lines = [(f"a{i}", f"b{j}", f"c{k}") for i, j, k in rng.integers(0, size, (3000, 3))]
    lines += [("a0", f"b{j}", f"c{k}") for j, k in rng.integers(0, size, (4000, 2))]
    lines += [(f"a{i}", "b0", f"c{k}") for i, k in rng.integers(1, size, (4000, 2))]
    lines = [line for line in lines if line[:2] != ("a0", "b0")]
    asked = [(f"a{i}", f"b{j}", f"c{k}") for i, j, k in rng.integers(1, size, (5000, 3))]
    found = audit(rows(lines, names), Asked(target=rows(asked, names), most_holes=5))
    hole = next(h for h in found.holes[2] if h.alarm)
    assert found.train.label(hole.assignment) == "a=a0, b=b0" and hole.traffic == 0
    assert len(found.holes[2]) <= 10


# --- rules ---


def test_what_a_rule_forbids_is_neither_missing_nor_overlooked():
    absent = [line for line in EVERY * 30 if line[:2] != ("red", "cube")]
    rule = "IF colour=red THEN shape<>cube"
    assert told(audit(rows(absent), Asked(forbid=[rule]))) == []
    found = audit(rows([*absent, ("red", "cube", "hill")]), Asked(forbid=[rule]))
    assert told(found) == [("forbidden but seen", "colour=red, shape=cube")]
    assert rule in found.findings[0].sentence
    assert [c.seen_impossible for c in found.coverage if c.t == 2] == [1] * 7


def test_rules_in_conflict_are_refused_and_dead_values_are_told():
    with pytest.raises(InvalidRequest, match="contradict"):
        audit(rows(EVERY), Asked(forbid=["colour=red", "colour=blue"]))
    balls = [line for line in EVERY * 30 if line[1] == "ball"]
    rule = "IF colour IN {red, blue, green} THEN shape<>cube"
    found = audit(rows([*balls, EVERY[0]]), Asked(forbid=[rule]))
    assert any("shape=cube can never occur" in note for note in found.never_possible)
    assert told(found) == [("forbidden but seen", "shape=cube")]


# --- the target ---


def test_weights_move_the_exposure():
    train = rows([line for line in EVERY * 5 if line != ("red", "cube", "hill")])
    target = rows([("red", "cube", "hill"), ("blue", "ball", "lake"), ("red", "ball", "hill")])
    for weights, share in (([1, 1, 1], 1 / 3), ([0, 1, 1], 0.0), ([6, 1, 1], 0.75)):
        found = audit(train, Asked(target=target, traffic=np.array(weights, float)))
        assert found.exposure is not None
        assert found.exposure.combinations == pytest.approx(share)
        assert found.exposure.pairs == 0.0
    with pytest.raises(InvalidRequest, match="none negative"):
        audit(train, Asked(target=target, traffic=np.array([-1.0, 1, 1])))


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_traffic_that_is_counted_is_as_far_from_training_as_the_same_rows(seed):
    rng = np.random.default_rng(seed)
    train, times = rows(drawn(seed, 80)), rng.integers(0, 6, len(EVERY))
    times[0] += 1
    met = [line for line, n in zip(EVERY, times, strict=True) for _ in range(n)]
    counted = audit(train, Asked(target=rows(EVERY), traffic=times.astype(float)))
    plain = audit(train, Asked(target=rows(met)))
    assert vars(counted.divergences["target"]) == pytest.approx(vars(plain.divergences["target"]))
    by_hand = divergences(*aligned(train, rows(met)))
    assert counted.divergences["target"].compounds == pytest.approx(by_hand.compounds)


def test_weighted_pairs_of_tables_too_large_to_make_are_counted_alike():
    rng = np.random.default_rng(0)
    lines = [(f"a{i}", f"b{j}") for i, j in rng.integers(0, 3000, (6000, 2))]
    table = rows(lines, ("a", "b"))
    weights = rng.integers(1, 4, len(lines)).astype(float)
    repeated = table.take(np.repeat(np.arange(len(lines)), weights.astype(int)))
    one, other = Links.of(table, weights), Links.of(repeated)
    assert np.array_equal(one.ends, other.ends) and np.array_equal(one.alone, other.alone)
    assert np.array_equal(one.counts, other.counts)


def test_holes_are_ranked_by_traffic_and_surprise_and_by_risk_where_it_is_known():
    train = [x for x in EVERY * 30 if x[:2] != ("red", "cube") and x[1:] != ("ball", "lake")]
    target = [("red", "cube", "hill")] * 9 + [("blue", "ball", "lake")]
    plain = audit(rows(train), Asked(target=rows(target)))
    first = plain.holes[2][0]
    assert plain.train.label(first.assignment) == "colour=red, shape=cube"
    assert first.ranked_by == "traffic x surprise" and first.risk is None
    assert first.score == pytest.approx(0.9 * first.surprise)
    rng = np.random.default_rng(0)
    lines, right = [], []
    for line in EVERY * 40:  # what was never trained fails, one of the two always
        chance = 0.02 if line[:2] == ("red", "cube") else 0.95 * (line[1:] == ("ball", "lake"))
        lines.append((*line, str(rng.integers(4))))
        right.append(float(rng.random() >= chance))
    wider = [(*line, str(rng.integers(4))) for line in train]
    asked = Asked(
        evaluation=rows(lines, (*NAMES, "day")), outcome=np.array(right),
        target=rows([(*line, "0") for line in target], (*NAMES, "day")),
    )  # fmt: skip
    found = audit(rows(wider, (*NAMES, "day")), asked)
    hole = {found.train.label(h.assignment): h for h in found.holes[2]}
    sure, safe = hole["shape=ball, place=lake"], hole["colour=red, shape=cube"]
    assert sure.ranked_by == "traffic x risk x surprise"
    assert sure.risk is not None and safe.risk is not None and sure.risk > 0.5 > safe.risk
    for each in (sure, safe):
        factors = [each.traffic, each.risk, each.surprise]
        assert each.score == pytest.approx(np.prod([f for f in factors if f is not None]))
    scores = [h.score for h in found.holes[2]]
    assert scores == sorted(scores, reverse=True)


# --- outcomes ---


def evaluated(lines, chance, seed=0, **more) -> Audit:
    rng = np.random.default_rng(seed)
    right = (rng.random(len(lines)) >= np.array([chance(line) for line in lines])).astype(float)
    return audit(rows(EVERY * 20), Asked(evaluation=rows(lines), outcome=right, **more))


def test_evaluated_rows_with_values_that_training_lacks_are_a_level_of_their_own():
    lines = [*EVERY * 10, *[("gold", "cube", "hill")] * 15]
    found = evaluated(lines, lambda line: 0.9 if line[0] == "gold" else 0.05)
    levels = {level.name: level for level in judged(found).levels}
    assert set(levels) == {"seen", "new value"}
    assert (levels["new value"].rows, levels["new value"].combinations) == (15, 1)
    assert levels["new value"].score.estimate < 0.5 < levels["seen"].score.estimate


def test_no_risk_is_told_at_a_level_that_was_not_validated():
    lines = [(*line, day) for line in EVERY * 4 for day in "0123"]
    rng = np.random.default_rng(0)
    names = (*NAMES, "day")
    found = audit(
        rows(lines * 5, names),
        Asked(evaluation=rows(lines, names), outcome=(rng.random(len(lines)) > 0.2).astype(float)),
    )
    risk = judged(found).risk
    assert risk.validated == ("seen",)
    asked = risk.predict(rows([("gold", "cube", "hill", "0"), lines[0]], names))
    assert np.isnan(asked.probability).tolist() == [True, False]
    assert any("new value" in why for why in asked.why)


def test_a_refusal_to_tell_risk_is_passed_on():
    found = audit(rows(EVERY * 20), Asked(why_not={"risk": "give --eval FILE"}))
    assert found.evaluation is None and found.why_not["risk"] == "give --eval FILE"
    assert "give --eval FILE" in render(report_of(found))
    assert document_of(found)["evaluation"] is None


def test_rows_without_an_outcome_are_left_out():
    lines, right = EVERY * 20, np.ones(len(EVERY) * 20)
    right[:100] = np.nan
    found = audit(rows(EVERY * 20), Asked(evaluation=rows(lines), outcome=right))
    assert len(judged(found).rows) == len(lines) - 100
    assert judged(found).risk.sentence == "Risk cannot be told: no row fails."


def test_a_lost_combination_is_told_as_such_and_fails_no_slice():
    lost = ("red", "cube", "hill")
    found = evaluated(EVERY * 40, lambda line: 0.9 if line == lost else 0.05)
    assert told(found) == [("failing combination", "colour=red, shape=cube, place=hill")]
    (finding,) = found.findings
    first = EVERY.index(lost) + 1
    assert {int(name) % len(EVERY) for name in finding.rows} == {first % len(EVERY)}


def test_many_lost_combinations_hardly_ever_make_a_slice():
    """With rows alone as the unit, every model of this kind had some seven of them."""
    names = tuple("abcd")
    every = list(itertools.product(*[[f"{name}{v}" for v in range(4)] for name in names]))
    false = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        lost = rng.random(len(every)) < 0.06
        chance = np.repeat(np.where(lost, 0.9, 0.05), 12)
        lines = rows([line for line in every for _ in range(12)], names)
        listed = slices(lines, rng.random(len(chance)) < chance)
        false += len(listed)
    assert false <= 1


def test_a_pair_that_fails_in_all_its_combinations_is_a_slice():
    found = evaluated(EVERY * 40, lambda line: 0.8 if line[:2] == ("red", "cube") else 0.05)
    assert told(found) == [("failing slice", "colour=red, shape=cube")]


def test_rates_and_their_intervals_lie_between_0_and_1_and_are_never_certain():
    trained = [line for line in EVERY * 4 if line[:2] != ("red", "cube")]
    seen = audit(rows(trained), Asked(evaluation=rows(EVERY * 2), outcome=np.ones(24)))
    one = rows([EVERY[0]])
    single = audit(rows(trained), Asked(evaluation=one, outcome=np.ones(1)))
    mixed = evaluated(EVERY * 9, lambda line: 0.5 * (line[0] == "red"))
    for found in (seen, single, mixed):
        ends = [n.score for n in judged(found).levels]
        ends += [b.observed for b in judged(found).risk.calibration]
        assert all(0 <= end.low < end.high <= 1 for end in ends)
        assert all(end.low <= end.estimate <= end.high for end in ends)


def test_rows_without_an_outcome_are_left_out_and_counted():
    outcome = np.ones(len(EVERY) * 4)
    outcome[:3] = np.nan
    found = audit(rows(EVERY * 5), Asked(evaluation=rows(EVERY * 4), outcome=outcome))
    assert len(judged(found).rows) == 45
    assert found.why_not["outcomes"] == "3 of 48 evaluated rows have none, and are left out"
    nothing = audit(
        rows(EVERY * 5), Asked(evaluation=rows(EVERY), outcome=np.full(len(EVERY), np.nan))
    )
    assert nothing.why_not["outcomes"].startswith("12 of 12") and tables_of(nothing)["risk"].rows


def test_every_failing_row_is_in_the_table_and_a_cut_list_says_how_many_more():
    found = evaluated(EVERY * 90, lambda line: 0.8 if line[:2] == ("red", "cube") else 0.05)
    (one,) = judged(found).slices
    assert one.failures > len(one.ids)
    (finding,) = [f for f in found.findings if f.kind == "failing slice"]
    assert len(finding.rows) + finding.more_rows == one.failures
    table = tables_of(found)["failing-rows"]
    names = [row for where, row in table.rows if where == one.label]
    assert len(set(names)) == one.failures and names[: len(one.ids)] == list(one.ids)
    for worst in judged(found).worst:
        assert sum(where == worst.label for where, _ in table.rows) == worst.failures
    page = render(report_of(found))
    assert f"and {one.failures - len(one.ids)} more" in page and "failing-rows.csv" in page
    assert f"and {one.failures - 10} more" in page
    (told_of,) = document_of(found)["evaluation"]["slices"]
    assert len(told_of["failing_rows"]) + told_of["more_failing_rows"] == one.failures


def test_failing_rows_of_lists_are_those_that_fail_in_the_slice():
    lists = [["a", "b"], ["a"], ["b", "c"], ["c"]] * 60
    right = np.array([float(held != ["a", "b"] or n % 5 == 0) for n, held in enumerate(lists)])
    table = read_rows({"tags": lists, "place": ["hill", "lake"] * 120}, None)
    found = audit(table, Asked(evaluation=table, outcome=right))
    lines = tables_of(found)["failing-rows"].rows
    for one in (*judged(found).slices, *judged(found).worst):
        assert sum(where == one.label for where, _ in lines) >= one.failures > 0


def test_the_table_of_risk_holds_each_combination_of_the_target_with_what_is_known():
    lines = [line for line in EVERY * 30 if line[:2] != ("red", "cube")]
    rng = np.random.default_rng(0)
    right = (rng.random(len(EVERY) * 20) > 0.3).astype(float)
    right[: len(EVERY)] = np.nan
    target = [("red", "cube", "hill"), ("blue", "ball", "lake"), ("gold", "ball", "lake")]
    asked = Asked(
        evaluation=rows(EVERY * 20), outcome=right, target=rows(target),
        traffic=np.array([1.0, 2.0, 1.0]),
    )  # fmt: skip
    table = tables_of(audit(rows(lines), asked))["risk"]
    facts = {row[:3]: dict(zip(table.columns[3:], row[3:], strict=True)) for row in table.rows}
    assert set(facts) == set(target)
    known = facts[target[1]]
    here = [r for line, r in zip(EVERY * 20, right, strict=True) if line == target[1] and r == r]
    assert (known["rows trained"], known["rows evaluated"]) == (30, 19) == (30, len(here))
    assert known["observed failure rate"] == pytest.approx(1 - np.mean(here))
    assert known["novelty"] == "seen" and known["traffic"] == 0.5
    new = facts[target[2]]
    assert (new["novelty"], new["rows evaluated"], new["predicted risk"]) == ("new value", 0, None)
    assert new["observed failure rate"] is None
    both = tables_of(audit(rows(lines), replace(asked, target=None, traffic=None)))["risk"]
    assert {row[:3] for row in both.rows} == set(EVERY) and {row[-1] for row in both.rows} == {None}


# --- labels ---


def labelled(labels, lines=EVERY * 40):
    return label_noise(rows(lines), labels)


def test_labels_that_the_factors_decide_are_clean_and_flipped_ones_are_named():
    lines = EVERY * 40
    label = np.array([line[0] == "red" for line in lines])
    assert not labelled(label).alarm
    wrong = np.random.default_rng(0).choice(len(lines), 12, replace=False)
    label[wrong] ^= True
    found = labelled(label)
    assert found.alarm and found.share.estimate == pytest.approx(12 / len(lines))
    assert set(found.suspects) == {str(place + 1) for place in wrong}


def test_a_rare_label_that_the_factors_do_not_decide_is_no_noise():
    label = np.random.default_rng(0).random(len(EVERY) * 40) < 0.1
    found = labelled(label)
    assert not found.determined and not found.alarm and found.suspects == ()
    assert "do not decide" in found.sentence()


def test_a_value_whose_labels_are_left_to_chance_is_left_out():
    lines = EVERY * 40
    rng = np.random.default_rng(0)
    label = [line[0] if line[0] != "green" else "xy"[rng.integers(2)] for line in lines]
    found = labelled(label)
    assert found.determined and not found.alarm
    assert found.undecided == sum(line[0] == "green" for line in lines)


def test_a_label_with_as_many_values_as_rows_decides_nothing():
    found = labelled(np.random.default_rng(0).normal(size=len(EVERY) * 40))
    assert not found.determined and not found.alarm


@pytest.mark.parametrize("share", [0.02, 0.1, 0.15, 0.18])
def test_the_share_of_wrong_labels_is_told_with_an_interval_that_holds_it(share):
    values = [f"v{n}" for n in range(6)]
    lines = [line for line in itertools.product(values, repeat=3) for _ in range(20)]
    table, right = rows(lines), np.array([line[0] in "v0 v2 v4" for line in lines])
    found = []
    for seed in range(30):
        wrong = np.random.default_rng(seed).random(len(lines)) < share
        found.append(label_noise(table, right ^ wrong).share)
    assert np.mean([one.estimate for one in found]) == pytest.approx(share, abs=0.003)
    assert sum(one.low <= share <= one.high for one in found) >= 26


# --- factors that decide one another ---


def test_a_factor_that_decides_another_is_one_alarm_with_a_rule_and_not_a_hole_a_pair():
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(4_000):
        country, town = rng.integers(6), rng.integers(5)
        lines.append((f"c{country}", f"c{country}-t{town}", "pqrs"[rng.integers(4)]))
    lines[0] = ("c1", "c0-t0", "p")  # nearly is enough
    (finding,) = audit(rows(lines, ("country", "city", "product"))).findings
    assert (finding.kind, finding.where) == ("nested factors", "city decides country")
    assert "leave country out" in finding.sentence and "IF [city] = " in finding.sentence
    document = document_of(audit(rows(lines, ("country", "city", "product"))))
    assert [each["kind"] for each in document["findings"]] == ["nested factors"]


def test_a_factor_that_mostly_follows_another_is_not_nested_in_it():
    rng = np.random.default_rng(0)
    first = rng.integers(0, 4, 4_000)
    second = np.where(rng.random(4_000) < 0.95, first, rng.integers(0, 4, 4_000))
    lines = [(f"a{a}", f"b{b}", "pq"[rng.integers(2)]) for a, b in zip(first, second, strict=True)]
    assert not audit(rows(lines)).nested


# --- page and document ---


def test_the_page_and_the_document_hold_every_alarm_and_valid_json():
    train = [line for line in EVERY * 20 if line[:2] != ("red", "cube")]
    asked = Asked(
        evaluation=rows(EVERY * 5), outcome=np.array([1.0, 0.0] * 30),
        target=rows(EVERY[:3]), label=np.array([line[0] for line in train]),
    )  # fmt: skip
    found = audit(rows(train), asked)
    document = json.loads(json.dumps(document_of(found), default=str))
    assert document["schema"] == 1 and document["rows"] == len(train)
    assert [f["kind"] for f in document["findings"]] == [f.kind for f in found.findings]
    page = render(report_of(found, "recombine audit train.csv"))
    assert all(finding.where in page for finding in found.findings)
    assert "necessary conditions" in page and "recombine audit train.csv" in page


def test_the_order_of_rows_changes_nothing():
    lines = [line for line in drawn(3, 500) if line[:2] != ("red", "cube")]
    right = np.random.default_rng(0).random(len(lines)) > 0.2
    order = np.random.default_rng(1).permutation(len(lines))
    table = rows(lines)
    asked = Asked(evaluation=table, outcome=right.astype(float))
    shuffled = table.take(order)
    other = audit(
        replace(shuffled, ids=None), replace(asked, evaluation=shuffled, outcome=right[order])
    )
    assert told(audit(table, asked)) == told(other)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_the_shift_from_counts_is_the_divergence_of_the_rows(seed):
    rng = np.random.default_rng(seed)
    tables = []
    for length in (40, 25):
        lists = [
            sorted(rng.choice(list("uvwxyz"), rng.integers(1, 4), False)) for _ in range(length)
        ]
        colour = rng.choice(["red", "blue", "green"], length).tolist()
        tables.append(read_rows({"colour": colour, "held": lists}, None))
    one, other = aligned(*tables)
    part = np.repeat([0, 1], [len(one), len(other)])
    lines = [pieces(joined(one, other), t, part).holds.toarray() for t in (1, 2)]
    expected = Divergences(chernoff(*lines[0], 0.5), chernoff(*lines[1], 0.1))
    found = divergences(one, other)
    assert found.atoms == pytest.approx(expected.atoms, abs=1e-12)
    assert found.compounds == pytest.approx(expected.compounds, abs=1e-12)


# --- what is too large to be looked at ---


def test_choices_of_factors_that_are_too_large_are_named_with_what_to_do():
    rng = np.random.default_rng(0)
    sizes = {"user": 420, "city": 410, "street": 400, "colour": 3}
    lines = [tuple(f"{name}{rng.integers(size)}" for name, size in sizes.items())
             for _ in range(2_000)]  # fmt: skip
    lines += [tuple(f"{name}{n % size}" for name, size in sizes.items()) for n in range(420)]
    data = rows(lines, tuple(sizes))
    found = audit(data, Asked(evaluation=data, outcome=rng.random(len(data)) < 0.9))
    places = {name: n for n, name in enumerate(sizes)}
    large = {
        tuple(sorted(places[name] for name in several))
        for t in (1, 2, 3, 4)
        for several in itertools.combinations(sizes, t)
        if math.prod(sizes[name] for name in several) > 2**26
    }
    assert set(found.left_out["failing slices"]) == {each for each in large if len(each) < 4}
    assert set(found.left_out["coverage"]) == large
    for kind in ("coverage", "holes", "failing slices"):
        assert "user x city x street" in found.why_not[kind] and "--rare" in found.why_not[kind]
        assert "user x city x street" in render(report_of(found))
        assert ["user", "city", "street"] in document_of(found)["left_out"][kind]
    assert not audit(rows(EVERY * 3)).left_out
