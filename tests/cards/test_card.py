"""The card on toy models whose faults are known: what it decides, names, counts and leaves out."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from recombine.adapters.models import OwnModel, PerRecord, as_model
from recombine.cards.asking import SAME
from recombine.cards.card import Card, CardSpec, make_card, number_names
from recombine.cards.decision import Left
from recombine.cards.gates import SCHEMA
from recombine.cards.outcomes import Marking, outcomes
from recombine.cards.page import document_of, report_of
from recombine.cards.space import left_of
from recombine.errors import InvalidRequest, UnknownName
from recombine.report.html import render
from recombine.tables.reading import read_rows
from recombine.tables.rows import Rows, aligned

VALUES = {
    "colour": ("red", "green", "blue", "black", "white"),
    "shape": ("cube", "ball", "cone", "ring"),
    "material": ("glass", "metal", "wood"),
    "light": ("day", "night"),
}
FACTORS = tuple(VALUES)
EVERY = [dict(zip(FACTORS, values, strict=True)) for values in itertools.product(*VALUES.values())]
# Half of the combinations, every pair of values among them.
NEW = {tuple(r.values()) for n, r in enumerate(EVERY) if (n + n // 2 + n // 6 + n // 24) % 2}
TRAIN = [r for r in EVERY if tuple(r.values()) not in NEW for _ in range(12)]
EVAL = [dict(r) for r in EVERY for _ in range(6)]


def rows(records: Sequence[dict[str, Any]]) -> Rows:
    return read_rows({name: [r[name] for r in records] for name in FACTORS}, FACTORS)


def is_new(record: dict[str, Any]) -> bool:
    return tuple(record[name] for name in FACTORS) in NEW


def carded(
    model: Callable[[Any], Any] | OwnModel, *, train: bool = True, records: Any = EVAL, **spec: Any
) -> Card:
    asked = model if isinstance(model, OwnModel) else PerRecord(model)
    given = {"label": ("shape",), **spec}
    return make_card(
        asked, records, rows(records), CardSpec(**given), train=rows(TRAIN) if train else None
    )


def composing(record: Any) -> str:
    return record["shape"]


def memorising(record: Any) -> str:
    return "cube" if is_new(record) else record["shape"]


def leaking(record: Any) -> str:
    return "cube" if record["material"] == "glass" else record["shape"]


def wrong_on_red_cubes(record: Any) -> str:
    red_cube = record["colour"] == "red" and record["shape"] == "cube"
    return "ball" if red_cube else record["shape"]


def in_parts(record: Any) -> dict[str, str]:
    """Right about both, but it calls what is red a cube."""
    shape = "cube" if record["colour"] == "red" else record["shape"]
    return {"colour": record["colour"], "shape": shape}


@pytest.fixture(scope="module")
def good() -> Card:
    return carded(composing)


@pytest.fixture(scope="module")
def memorised() -> Card:
    return carded(memorising)


def test_a_model_that_composes_is_said_to_and_nothing_else_is_named(good: Card) -> None:
    assert good.decision.verdict == "composes"
    assert good.slices == () and good.worst == () and good.answered.problems == ()
    assert [(s.factor, s.leaks and s.leaks.estimate) for s in good.swaps.found] == [
        ("colour", 0.0), ("shape", None), ("material", 0.0), ("light", 0.0),
    ]  # fmt: skip
    responds = {s.factor: s.responds.estimate for s in good.swaps.found if s.responds}
    assert responds == {"shape": 1.0}


def test_a_model_that_memorises_does_not_compose(memorised: Card) -> None:
    assert memorised.decision.verdict == "does not compose"
    # It says "cube" of everything new, which is right for cubes.
    cubes = np.mean([tuple(r.values()) in NEW and r["shape"] == "cube" for r in EVERY])
    unseen = cubes / np.mean([tuple(r.values()) in NEW for r in EVERY])
    assert memorised.numbers["unseen"].value == pytest.approx(unseen)
    assert memorised.numbers["seen"].value == 1.0
    assert [level.name for level in memorised.levels] == ["seen", "new triple"]


def test_scores_count_each_combination_once_however_many_rows_it_has() -> None:
    crowded = EVAL + [r for r in EVAL if r["colour"] == "red"] * 5
    card = carded(wrong_on_red_cubes, records=crowded)
    expected = np.mean([wrong_on_red_cubes(r) == r["shape"] for r in EVERY])
    assert card.numbers["score"].value == pytest.approx(expected)


def test_the_worst_is_named_with_the_rows_that_fail() -> None:
    card = carded(wrong_on_red_cubes)
    (only,) = card.slices
    assert only.label == "colour=red, shape=cube" and only.failures == only.size == 36
    failing = {str(n + 1) for n, r in enumerate(EVAL) if wrong_on_red_cubes(r) != r["shape"]}
    assert set(only.ids) <= failing and len(card.worst) == 6
    assert all(card.reasons[w.label].sentence for w in card.worst)
    trained = [w for w in card.worst if card.reasons[w.label].level == "seen"]
    assert all("not for want of data" in card.reasons[w.label].sentence for w in trained)


def test_a_factor_that_leaks_into_the_answer_is_caught_without_labels() -> None:
    card = carded(leaking, label=(), about=("shape",), change=True, pairs=200)
    leaks = {s.factor: s.leaks.estimate for s in card.swaps.found if s.leaks}
    assert leaks["colour"] == leaks["light"] == 0 and leaks["material"] > 0.3
    assert card.numbers["swaps.leaks"].value == leaks["material"]
    (swap,) = [s for s in card.swaps.found if s.factor == "material"]
    assert "material=" in swap.examples[0][1] and "became" in swap.examples[0][2]
    assert card.decision.verdict == "not enough data" and "without labels" in card.decision.sentence
    assert "give --label" in card.why_not["scores"]


def test_answers_in_parts_say_themselves_what_they_are_about() -> None:
    card = carded(in_parts, label=("colour", "shape"))
    leaks = {s.factor: s.leaks.estimate for s in card.swaps.found if s.leaks}
    assert leaks["colour"] > 0 and leaks["light"] == leaks["shape"] == 0
    right = [r["colour"] != "red" or r["shape"] == "cube" for r in EVERY]
    assert card.numbers["score"].value == pytest.approx(np.mean(right))


def test_without_training_rows_it_still_names_what_fails() -> None:
    card = carded(wrong_on_red_cubes, train=False)
    assert card.decision.verdict == "not enough data" and "--train" in card.decision.sentence
    assert [one.label for one in card.slices] == ["colour=red, shape=cube"]
    assert card.audit is None and card.recommended == []
    assert "--train" in card.why_not["composition"]


def test_what_to_collect_was_never_trained_and_each_brings_a_triple(memorised: Card) -> None:
    assert len(memorised.recommended) == 10
    trained = {three for r in TRAIN for three in itertools.combinations(r.items(), 3)}
    for row in memorised.recommended:
        more = set(itertools.combinations(row.items(), 3)) - trained
        assert more
        trained |= more


def test_a_pair_that_training_lacks_is_collected_before_any_triple() -> None:
    train = [
        r for r in TRAIN if (r["colour"], r["shape"]) not in (("red", "cube"), ("blue", "ring"))
    ]
    lost = make_card(
        PerRecord(lambda r: "none" if (r["colour"], r["shape"]) == ("red", "cube") else r["shape"]),
        EVAL, rows(EVAL), CardSpec(label=("shape",)), train=rows(train),
    )  # fmt: skip
    first, second = lost.recommended[:2]
    assert (first["colour"], first["shape"]) == ("red", "cube")
    assert (second["colour"], second["shape"]) == ("blue", "ring")
    assert len(lost.recommended) == 10 and len(lost.plans) == 2


def test_impossible_combinations_are_never_recommended() -> None:
    rule = "IF material = glass THEN light <> night"
    allowed = [r for r in EVAL if not (r["material"] == "glass" and r["light"] == "night")]
    card = carded(memorising, records=allowed, forbid=(rule,))
    assert card.recommended
    assert not any(r["material"] == "glass" and r["light"] == "night" for r in card.recommended)


def test_the_numbers_are_those_that_rules_may_name(good: Card) -> None:
    assert set(good.numbers) <= set(number_names(FACTORS))
    assert good.numbers["coverage.pairs"].value == 1.0
    pairs = {two for r in TRAIN for two in itertools.combinations(r.items(), 2)}
    assert len(pairs) == 5 * 4 + 5 * 3 + 5 * 2 + 4 * 3 + 4 * 2 + 3 * 2
    triples = {three for r in TRAIN for three in itertools.combinations(r.items(), 3)}
    every = {three for r in EVERY for three in itertools.combinations(r.items(), 3)}
    assert good.numbers["coverage.triples"].value == pytest.approx(len(triples) / len(every))


class Hidden:
    """Answers the shape, and holds colour and shape side by side in its one layer."""

    name = "hidden"

    def answer(self, records: Sequence[Any]) -> list[str]:
        return [r["shape"] for r in records]

    def activations(self, records: Sequence[Any]) -> dict[str, np.ndarray]:
        eye = {name: np.eye(len(VALUES[name])) for name in ("colour", "shape")}
        lines = [[eye[n][VALUES[n].index(r[n])] for n in eye] for r in records]
        return {"layer": np.array([np.concatenate(line) for line in lines])}


def test_probes_run_where_there_are_activations_and_say_why_where_not(good: Card) -> None:
    card = carded(as_model(Hidden()), records=EVAL[::2])
    assert card.probe is not None
    assert card.numbers["probe.colour"].value == pytest.approx(1.0)
    assert (card.numbers["probe.light"].value or 0) < 0.7
    assert "needs activations" in good.why_not["probe"]
    assert "inspect_module" in good.why_not["subnetworks and fracture"]


def test_the_json_has_the_fields_of_its_schema(memorised: Card) -> None:
    document = json.loads(json.dumps(document_of(memorised)))
    assert document["schema"] == SCHEMA == 1 and document["kind"] == "recombine card"
    assert set(document) == {
        "kind", "schema", "model", "data", "rows", "decision", "numbers", "worst", "slices",
        "collect", "swaps", "probes", "problems", "why_not", "broken_rules", "changes", "factors",
        "label", "digest",
    }  # fmt: skip
    fields = {
        "decision": {"verdict", "sentence", "more_combinations", "more_rows"},
        "worst": {"combination", "rows", "failures", "adjusted_p", "failing_rows", "why", "level"},
        "slices": {"where", "rows", "failures", "expected", "adjusted_p", "failing_rows"},
        "swaps": {"factor", "pairs", "leaks", "responds", "examples"},
    }
    for part, names in fields.items():
        for each in document[part] if isinstance(document[part], list) else [document[part]]:
            assert set(each) == names
    assert all(set(n) == {"value", "low", "high", "better"} for n in document["numbers"].values())
    assert set(document["numbers"]) == {
        "answered", "score", "seen", "unseen", "gap", "slices", "swaps.leaks", "swaps.responds",
        "coverage.values", "coverage.pairs", "coverage.triples",
    }  # fmt: skip


def test_the_page_opens_with_the_decision_and_nothing_in_it_runs() -> None:
    def odd(record: Any) -> str:
        return "<script>alert(1)</script>" if record["colour"] == "red" else record["shape"]

    card = carded(odd)
    page = render(report_of(card, "recombine card a.py:model --data b.csv"))
    assert "<script>alert" not in page
    assert page.index(card.decision.sentence[:40]) < page.index("Worst combinations")


def test_the_same_seed_gives_the_same_card(memorised: Card) -> None:
    assert document_of(carded(memorising)) == document_of(memorised)


# What an adapter may do wrong.


def test_a_row_that_raises_is_explained_and_the_others_are_kept() -> None:
    def raises(record: Any) -> str:
        if record["n"] == 7:
            raise ValueError("seven")
        return record["shape"]

    card = carded(raises, records=[{**r, "n": n} for n, r in enumerate(EVAL)])
    assert card.numbers["answered"].value == pytest.approx(1 - 1 / len(EVAL))
    (problem,) = card.answered.problems
    assert problem.kind == "raised" and "record 8:" in str(problem) and "seven" in str(problem)
    assert card.decision.verdict == "composes"


def test_a_row_that_hangs_is_given_up() -> None:
    def hangs(record: Any) -> str:
        if record["n"] == 3:
            time.sleep(1.5)
        return record["shape"]

    some = [{**r, "n": n} for n, r in enumerate(EVAL[:24])]
    card = carded(hangs, records=some, timeout=0.3, batch=4, train=False)
    assert sum(answer is None for answer in card.answered.answers) == 1
    assert any(p.kind == "hung" and p.records == (3,) for p in card.answered.problems)


class Says(OwnModel):
    """A model that is one function of all records."""

    name, abilities = "says", frozenset({"answer"})

    def __init__(self, function: Callable[[Any], Any]):
        self.function = function

    def answer(self, records: Sequence[Any]) -> list[Any]:
        return self.function(records)


def test_nan_is_no_answer_and_no_failure() -> None:
    def nan(records: Any) -> list[float]:
        return [float("nan") if r["n"] == 0 else 1.0 for r in records]

    some = [{**r, "n": n, "y": 1.0} for n, r in enumerate(EVAL)]
    card = carded(Says(nan), records=some, label=("y",))
    assert card.outcome is not None and np.isnan(card.outcome[0]) and np.nanmin(card.outcome) == 1
    assert "nan" in str(card.answered.problems[0])


def test_a_wrong_number_of_answers_is_explained() -> None:
    card = carded(Says(lambda records: ["cube"]), batch=4, records=EVAL[:40], train=False)
    # One by one, the number is right.
    assert "1 answers, expected 4" in str(card.answered.problems[0])
    assert card.numbers["answered"].value == 1.0


def test_a_model_that_answers_nothing_ends_in_a_sentence() -> None:
    def broken(record: Any) -> str:
        raise RuntimeError("no weights")

    card = carded(broken, records=EVAL[:60])
    assert card.decision.sentence == "Not enough data to say: the model answered no row."
    assert "no weights" in str(card.answered.problems[0])


def half_of_new(record: Any) -> bool:
    return is_new(record) and record["colour"] in ("red", "green", "blue")


@pytest.mark.parametrize("how", ["refuses", "raises"])
def test_new_combinations_without_an_answer_never_make_it_compose(how: str) -> None:
    def silent(record: Any) -> str | None:
        if half_of_new(record) and how == "raises":
            raise RuntimeError("out of domain")
        return None if half_of_new(record) else record["shape"]

    def wrong(record: Any) -> str:
        return "none" if half_of_new(record) else record["shape"]

    card = carded(silent)
    lost, new = (sum(map(test, EVAL)) for test in (half_of_new, is_new))
    assert card.decision.verdict == "not enough data"
    assert card.decision.sentence.startswith("Not enough answers to say:")
    assert f"{lost} of the {new} rows of new combinations have no answer" in card.decision.sentence
    # A rule that asks for it cannot be met by silence.
    assert card.numbers["unseen"].value is None
    assert carded(wrong).decision.verdict == "does not compose"


def test_the_decision_says_nothing_of_answers_where_none_is_missing(
    good: Card, memorised: Card
) -> None:
    for card in (good, memorised):
        assert "no answer" not in card.decision.sentence


def test_new_combinations_without_any_answer_are_still_new() -> None:
    card = carded(lambda r: None if is_new(r) else r["shape"])
    assert "360 of the 360 rows of new combinations" in card.decision.sentence
    assert "only 0" not in card.decision.sentence


def test_the_first_rows_of_a_sorted_file_do_not_speak_for_the_rest() -> None:
    def some(record: Any) -> str:
        if record["n"] < 150:
            raise RuntimeError("cannot")
        return record["shape"]

    card = carded(some, records=[{**r, "n": n} for n, r in enumerate(EVAL)])
    assert card.answered.told.tolist() == [n >= 150 for n in range(len(EVAL))]
    assert card.answered.not_asked == 0


def test_it_gives_up_on_the_same_words_for_many_rows_and_says_so_first() -> None:
    asked = []

    def broken(record: Any) -> str:
        asked.append(1)
        raise RuntimeError("no weights")

    card = carded(broken)
    left = card.answered.not_asked
    assert 0 < left <= len(EVAL) - SAME and len(asked) < 2 * len(EVAL)
    assert str(card.answered.problems[0]).startswith(f"{left} rows were not asked: given up after")
    assert f"answered none of the {len(EVAL) - left} rows" in card.decision.sentence
    assert "was given up" in card.decision.sentence


def test_one_row_in_fifty_that_is_answered_keeps_it_going() -> None:
    records = [{**r, "n": n} for n, r in enumerate(EVAL)]
    card = carded(lambda r: r["shape"] if r["n"] % 50 == 0 else 1 / 0, records=records)
    assert card.answered.told.sum() == len(records[::50]) and card.answered.not_asked == 0


def test_a_combination_that_was_never_trained_is_called_so() -> None:
    card = carded(wrong_on_red_cubes)
    for worst in card.worst:
        reason = card.reasons[worst.label]
        assert ("never trained" in reason.sentence) == (reason.level != "seen")
        assert ("not for want of data" in reason.sentence) == (reason.level == "seen")
    assert {card.reasons[w.label].level for w in card.worst} > {"seen"}


def test_combinations_still_to_be_had_are_those_the_values_and_rules_allow() -> None:
    train, asked = aligned(rows(TRAIN), rows(EVAL[:360]))
    seen = {tuple(r.values()) for r in EVAL[:360]}
    every = {tuple(r.values()) for r in EVERY}
    left = left_of(train, asked)
    assert left.new == len(NEW - seen) and left.trained == len(every - NEW - seen)
    allowed = {c for c in NEW - seen if not (c[2] == "glass" and c[3] == "night")}
    assert left_of(train, asked, ["IF material = glass THEN light <> night"]).new == len(allowed)
    train, asked = aligned(rows(TRAIN), rows(EVAL))
    assert left_of(train, asked) == Left(0, 0)


def test_answers_that_change_are_told() -> None:
    rng = np.random.default_rng(0)
    card = carded(Says(lambda records: rng.choice(VALUES["shape"], len(records)).tolist()))
    assert any(p.kind == "not deterministic" for p in card.answered.problems)


def test_a_model_that_changes_its_input_cannot_spoil_the_card() -> None:
    def greedy(record: Any) -> str:
        record["colour"] = "red"
        return record["shape"]

    some = [dict(r) for r in EVAL]
    card = carded(greedy, records=some)
    assert some == EVAL and any(p.kind == "changed its input" for p in card.answered.problems)
    assert card.decision.verdict == "composes"


# How answers are marked.


def test_rows_without_a_label_are_not_marked() -> None:
    records = [{"y": "a"}, {"y": None}, {"y": "b"}]
    assert outcomes(records, ["a", "a", "a"], "y").tolist()[::2] == [1.0, 0.0]
    assert np.isnan(outcomes(records, ["a", "a", "a"], "y")[1])


@pytest.mark.parametrize(
    ("label", "answer", "right"),
    [
        ("True", True, True), ("false", False, True), (1, True, True), ("3", 3.0, True),
        (0.1, 0.1 + 1e-9, True), (["a", "b"], ["b", "a"], True), ("cube", "Cube ", True),
        ("cube", "cubes", False), (["a"], ["a", "b"], False), ({"a": 1}, 1, False),
    ],
)  # fmt: skip
def test_marking_compares_as_a_person_would(label: Any, answer: Any, right: bool) -> None:
    assert Marking().right(label, answer) is right


def test_a_scorer_of_the_user_marks_by_degrees_and_is_held_to_it() -> None:
    records = [{"y": 1}, {"y": 2}]
    assert outcomes(records, [1, 1], None, scorer=lambda r, a: a / r["y"]).tolist() == [1.0, 0.5]
    with pytest.raises(InvalidRequest, match="for row 1: expected a number from 0 to 1"):
        outcomes(records, [1, 1], None, scorer=lambda r, a: 7)
    with pytest.raises(InvalidRequest, match="failed for row 1: it raised KeyError"):
        outcomes(records, [1, 1], None, scorer=lambda r, a: r["z"])


def test_what_cannot_be_marked_is_refused_in_one_line() -> None:
    with pytest.raises(UnknownName, match="did you mean 'shape'"):
        carded(composing, label=("shap",))
    with pytest.raises(InvalidRequest, match="3 records for 720 rows"):
        make_card(PerRecord(composing), EVAL[:3], rows(EVAL))
