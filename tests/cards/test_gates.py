"""Rules for continuous integration, and comparisons with an older card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recombine.cards.gates import (
    SCHEMA,
    Gate,
    broken,
    changes,
    check_comparable,
    read_card,
    read_gates,
    subject_of,
)
from recombine.errors import InvalidRequest
from recombine.tables.reading import read_rows

NAMES = ("seen", "unseen", "gap", "slices.failing")


def rules(folder: Path, text: str) -> Path:
    path = folder / "rules.toml"
    path.write_text(text)
    return path


def test_rules_are_read_and_checked(tmp_path: Path) -> None:
    path = rules(
        tmp_path,
        "unseen = {at_least = 0.8}\ngap = {at_most = 0.05, at_least = -1}\n"
        "[slices.failing]\nat_most = 0\n",
    )
    assert read_gates(path, NAMES) == [
        Gate("unseen", at_least=0.8),
        Gate("gap", at_least=-1.0, at_most=0.05),
        Gate("slices.failing", at_most=0.0),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("unsean = {at_least = 0.8}", "did you mean 'unseen'"),
        ("unseen = 0.8", "expected {at_least"),
        ("unseen = {at_leat = 0.8}", "expected {at_least"),
        ("unseen = {at_least = 'high'}", "expected {at_least"),
        ("unseen = {at_least = nan}", "expected {at_least"),
        ("", "holds no rule"),
        ("unseen = ", "not a file of rules"),
    ],
)
def test_a_wrong_file_of_rules_is_refused_in_one_line(tmp_path: Path, text, words) -> None:
    with pytest.raises(InvalidRequest, match=words) as found:
        read_gates(rules(tmp_path, text), NAMES)
    assert "\n" not in str(found.value)


def test_what_was_not_measured_breaks_a_rule() -> None:
    gates = [Gate("unseen", at_least=0.8), Gate("gap", at_most=0.05)]
    assert broken(gates, {"unseen": 0.9, "gap": 0.01}) == []
    assert len(broken(gates, {"unseen": None, "gap": float("nan")})) == 2
    assert broken(gates, {"unseen": 0.7, "gap": 0.06}) == [
        "unseen is 0.7, below 0.8",
        "gap is 0.06, above 0.05",
    ]


def number(value, low=None, high=None, better="higher"):
    return {"value": value, "low": low, "high": high, "better": better}


def test_only_changes_beyond_both_intervals_are_worse() -> None:
    old = {"numbers": {"unseen": number(0.9, 0.85, 0.95), "gap": number(0.02, 0, 0.04, "lower"),
                       "gone": number(1.0)}}  # fmt: skip
    new = {"numbers": {"unseen": number(0.7, 0.6, 0.8), "gap": number(0.03, 0.01, 0.05, "lower"),
                       "fresh": number(1.0)}}  # fmt: skip
    found = changes(old, new)
    assert found[0].name == "unseen"
    assert {c.name: c.worse for c in found} == {"unseen": True, "gap": False}
    assert not any(c.worse for c in changes(new, old))


def test_a_number_without_an_interval_is_worse_where_it_is_worse_at_all() -> None:
    old = {"numbers": {"answered": number(1.0), "slices": number(0.0, better="lower"),
                       "score": number(0.9, 0.8, 1.0)}}  # fmt: skip
    new = {"numbers": {"answered": number(0.8), "slices": number(2.0, better="lower"),
                       "score": number(None)}}  # fmt: skip
    found = changes(old, new)
    assert {c.name: c.worse for c in found} == dict.fromkeys(old["numbers"], True)
    assert found[-1].sentence == "score was 0.9, is not measured"
    assert not any(c.worse for c in changes(new, old) + changes(old, old))


def test_an_older_card_is_read_and_anything_else_refused(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text(json.dumps({"kind": "recombine card", "schema": SCHEMA, "numbers": {}}))
    assert read_card(path)["numbers"] == {}
    path.write_text(json.dumps({"kind": "recombine card", "schema": SCHEMA + 1}))
    with pytest.raises(InvalidRequest, match="update recombine"):
        read_card(path)
    path.write_text("[]")
    with pytest.raises(InvalidRequest, match="not a card"):
        read_card(path)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "holds no 'numbers'"),
        ({"numbers": [1]}, "holds no 'numbers'"),
        ({"numbers": {"unseen": 0.9}}, "the number 'unseen' is 0.9"),
        ({"numbers": {"unseen": {"value": "high", "low": None, "high": None}}}, "'unseen'"),
        ({"numbers": {"unseen": {"value": 1.0}}}, "expected value, low and high"),
        ({"numbers": {}, "schema": "x"}, "schema 'x', expected a number"),
        ({"numbers": {}, "schema": None}, "schema None, expected a number"),
    ],
)
def test_a_damaged_card_is_refused_in_one_line(tmp_path: Path, more, words) -> None:
    path = tmp_path / "card.json"
    path.write_text(json.dumps({"kind": "recombine card", "schema": SCHEMA} | more))
    with pytest.raises(InvalidRequest, match=words) as found:
        read_card(path)
    assert "\n" not in str(found.value)


def test_a_card_of_other_rows_factors_or_labels_is_not_compared() -> None:
    records = [{"a": "x", "b": "y"}, {"a": "z", "b": "y"}]
    rows = read_rows({"a": ["x", "z"], "b": ["y", "y"]}, ["a", "b"])
    now = subject_of(rows, records, ["b"])
    check_comparable("old.json", now, now)
    check_comparable("old.json", {"data": "elsewhere"}, now)  # it does not say
    check_comparable("old.json", now | {"data": "the same rows, elsewhere"}, now)
    other = subject_of(rows, [records[0], records[0]], ["b"])
    for older, words in (
        (other, "other rows"),
        (now | {"factors": ["a"]}, "other factors, a, and this one is of a, b"),
        (now | {"label": []}, "other labels, none, and this one is of b"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            check_comparable("old.json", older, now)
