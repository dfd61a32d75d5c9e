"""Tables reach spreadsheets without formulas, and terminals without surprises."""

from __future__ import annotations

import csv
import io
import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.report.document import ClaimRow, Table, overall, readable
from recombine.report.tables import (
    claims_table,
    columns_wide,
    decimals_for,
    number,
    to_csv,
    to_text,
)

from .example import HOSTILE, report

FORMULA_STARTS = "=+-@\t\r\n＝＋－＠"
anything = st.text(st.characters(), max_size=20)
finite = st.floats(allow_nan=False, allow_infinity=False)


def first_cell(table: Table) -> str:
    return list(csv.reader(io.StringIO(to_csv(table), newline="")))[1][0]


@given(start=st.sampled_from(FORMULA_STARTS), rest=anything, space=st.sampled_from(["", " ", "  "]))
def test_no_text_in_a_csv_can_start_a_formula(start: str, rest: str, space: str) -> None:
    text = first_cell(Table("t", ["a"], [[space + start + "cmd" + rest]]))
    assert text.startswith("'")


@given(value=finite)
def test_numbers_in_a_csv_stay_numbers_at_full_precision(value: float) -> None:
    assert float(first_cell(Table("t", ["a"], [[value]]))) == value


@pytest.mark.parametrize("text", ["-3", "-0.5e-3", "+12", "-.5"])
def test_a_plain_number_given_as_text_is_left_alone(text: str) -> None:
    assert first_cell(Table("t", ["a"], [[text]])) == text


@pytest.mark.parametrize("text", ["-1+1|cmd", "=1+1", "@SUM(A1)", "+cmd", "-"])
def test_what_only_begins_like_a_number_is_guarded(text: str) -> None:
    assert first_cell(Table("t", ["a"], [[text]])) == "'" + text


def test_a_column_name_is_guarded_like_a_cell() -> None:
    assert to_csv(Table("t", ["=1"], [[1]])).startswith("'=1")


def test_commas_quotes_and_line_breaks_survive_a_round_trip() -> None:
    cells = ['say "hi", you', "two\nlines", "ü"]
    rows = list(csv.reader(io.StringIO(to_csv(Table("t", ["a", "b", "c"], [cells])), newline="")))
    assert rows[1] == cells


@given(text=anything)
def test_readable_text_holds_nothing_that_acts(text: str) -> None:
    shown = readable(text)
    assert len(shown) == len(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in shown if c not in "\n\t")
    assert not any(unicodedata.bidirectional(c) in ("LRO", "RLO", "LRE", "RLE") for c in shown)
    shown.encode()


@given(texts=st.lists(anything, min_size=1, max_size=4), width=st.integers(40, 120))
def test_a_terminal_table_is_aligned_and_cannot_move_the_cursor(
    texts: list[str], width: int
) -> None:
    table = Table("", ["name", "score"], [[text, 0.5] for text in texts])
    lines = to_text(table, width).split("\n")
    assert len(lines) == 2 + len(texts)
    assert len({columns_wide(line) for line in lines[1:]}) == 1
    assert all(columns_wide(line) <= width for line in lines)
    assert not any(unicodedata.category(c) == "Cc" for line in lines for c in line)


def test_long_cells_give_way_to_the_width_of_the_terminal() -> None:
    lines = to_text(Table("", ["a", "b"], [["x" * 200, 1.0], ["y", 2.0]]), 40).split("\n")
    assert max(map(len, lines)) <= 40
    assert "…" in lines[2]


@given(st.lists(finite.filter(lambda v: v == 0 or 1e-6 < abs(v) < 1e6), min_size=1))
def test_every_number_shown_keeps_two_true_digits(values: list[float]) -> None:
    decimals = decimals_for(values)
    for value in values:
        shown = float(number(value, decimals).replace(",", ""))
        assert math.isclose(shown, value, rel_tol=0.0501)


def test_missing_and_impossible_numbers_are_said_in_words() -> None:
    text = to_text(Table("", ["a", "b"], [["gap", None], ["nan", math.nan], ["inf", -math.inf]]))
    assert "–" in text and "not a number" in text and "-infinite" in text


def test_a_row_of_the_wrong_length_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match=r"row 2 has 1 values, expected 2"):
        Table("scores", ["a", "b"], [[1, 2], [3]])


def test_a_misspelt_verdict_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidRequest, match="did you mean 'supported'"):
        ClaimRow("a", "A.", "at least 1", "suported")  # pyright: ignore[reportArgumentType]


def test_claims_become_one_table() -> None:
    table = claims_table(report())
    assert [row[1] for row in table.rows] == [claim.verdict for claim in report().claims]
    assert to_text(table, 80)


def test_an_untested_claim_does_not_sway_the_overall_verdict() -> None:
    supported = ClaimRow("a", "A.", "", "supported")
    untested = ClaimRow("b", "B.", "", "not tested here")
    assert overall([supported, untested]) == "supported"
    assert overall([supported, ClaimRow("c", "C.", "", "refuted")]) == "mixed"
    assert overall([untested]) == "not tested here"


def test_hostile_names_pass_through_text_and_csv() -> None:
    table = Table(HOSTILE[0], list(HOSTILE), [list(HOSTILE)])
    assert "\x1b" not in to_text(table, 200) and "\x00" not in to_csv(table)
