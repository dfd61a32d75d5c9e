"""Tags: what each way finds, what goes wrong without harm, and the measured error."""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score, recall_score
from statsmodels.stats.proportion import proportion_confint

from recombine.cli import tagging
from recombine.errors import InvalidRequest, RecombineError
from recombine.live import Answer, Scripted
from recombine.tags import (
    check_sheet,
    corrected_counts,
    corrected_coverage,
    draw_sheet,
    read_errors,
    read_spec,
    tag_file,
    tag_records,
)
from recombine.tags.endpoint import read_answer, tag_prompt
from recombine.tags.patterns import is_quick
from recombine.tags.spec import FactorSpec, parse_spec

COLOURS = {"red": ["red", "crimson"], "blue": ["blue", "sky blue"]}


def spec_of(folder=Path(), **factors):
    return parse_spec({"factors": factors}, Path(folder))


def tags_of(texts, **factors):
    rows = [{"text": text} for text in texts]
    return tag_records(lambda: iter(rows), spec_of(**factors), "text")


# --- words and patterns ----------------------------------------------------------------------


def test_a_lexicon_finds_whole_words_in_any_case_and_phrases_across_spaces():
    texts = ["A CRIMSON tide", "bored", "the sky \n blue sea", "red-hot", ""]
    found = tags_of(texts, colour={"with": "lexicon", "values": COLOURS})
    assert found.tags["colour"] == ["red", None, "blue", "red", None]


def test_case_and_parts_of_words_count_only_if_asked_for():
    strict = {"with": "lexicon", "values": COLOURS, "case": True}
    loose = {"with": "lexicon", "values": COLOURS, "whole_words": False}
    assert tags_of(["Red", "red"], colour=strict).tags["colour"] == [None, "red"]
    assert tags_of(["bored"], colour=loose).tags["colour"] == ["red"]


@pytest.mark.parametrize(
    ("several", "expected"), [("first", "blue"), ("list", ("blue", "red")), ("missing", None)]
)
def test_several_values_in_one_text_are_settled_as_the_spec_says(several, expected):
    one = {"with": "lexicon", "values": COLOURS, "several": several}
    assert tags_of(["a blue and a red hat"], colour=one).tags["colour"] == [expected]


def test_negation_is_not_handled_and_that_is_said(tmp_path):
    (tmp_path / "in.csv").write_text("text\nit is not red\n")
    made = tag_file(
        tmp_path / "in.csv",
        spec_of(colour={"with": "lexicon", "values": COLOURS}),
        tmp_path / "out.csv",
        column="text",
    )
    assert made.counts == {"colour": {"red": 1}}
    assert any("negation" in note for note in made.notes)


def test_a_pattern_per_value_or_one_whose_group_is_the_value():
    each = {"with": "regex", "values": {"big": r"\b(big|large)\b", "small": r"\btiny\b"}}
    group = {"with": "regex", "pattern": r"size:\s*(\w+)"}
    texts = ["a LARGE cube", "tiny", "size: Medium"]
    assert tags_of(texts, size=each).tags["size"] == ["big", "small", None]
    assert tags_of(texts, size=group).tags["size"] == [None, None, "medium"]


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        ({"with": "lexikon"}, "did you mean 'lexicon'"),
        ({"with": "lexicon", "value": {}}, "did you mean 'values'"),
        ({"with": "regex", "values": {"a": "("}}, "no regular expression"),
        ({"with": "regex", "pattern": "a"}, "0 groups, expected one"),
        ({"with": "lexicon"}, "values say what speaks for each"),
        ({"with": "callable", "function": "tags"}, "my_tags.py:name"),
        ({"with": "endpoint", "values": ["a"]}, "at least two allowed values"),
        ({"with": "lexicon", "values": COLOURS, "several": "all"}, "unknown several"),
    ],
)
def test_a_wrong_spec_says_what_to_write(factor, message):
    with pytest.raises(InvalidRequest, match=message):
        spec_of(colour=factor)


# --- a user's function -----------------------------------------------------------------------

FUNCTIONS = '''
import os, sys, time

def good(row):
    print("noise on stdout")
    row["text"] += "!"  # its own copy
    return {"n": len(row["text"]) - 1}

def faulty(row):
    text = row["text"]
    if text == "raise": raise ValueError("no <b>good</b>")
    if text == "hang": time.sleep(60)
    if text == "exit": sys.exit(3)
    if text == "die": os._exit(7)
    if text == "type": return ["n"]
    if text == "odd": return {"n": {1, 2}}
    if text == "nan": return {"n": float("nan")}
    if text == "list": return {"n": ["a"]}
    if text == "strange": return {"n": "zzz"}
    if text == "none": return {}
    return {"n": "a"}

def fickle(row, seen=[0]):
    seen[0] += 1
    return {"n": str(seen[0])}

def stuck(row):
    os._exit(1)
'''  # fmt: skip


@pytest.fixture
def functions(tmp_path):
    (tmp_path / "my_tags.py").write_text(FUNCTIONS)
    return tmp_path


def called(folder, name, texts, timeout=20.0, **more):
    spec = spec_of(folder, n={"with": "callable", "function": f"my_tags.py:{name}", **more})
    rows = [{"text": text} for text in texts]
    return tag_records(lambda: iter(rows), spec, timeout=timeout), rows


def test_a_function_tags_rows_and_cannot_change_them(functions):
    texts = ["x" * n for n in (1, 200, 70_000, 3)]
    found, rows = called(functions, "good", texts)
    assert found.tags["n"] == ["1", "200", "70000", "3"]
    assert [row["text"] for row in rows] == texts
    assert found.notes() == []


def test_a_fault_costs_one_tag_and_is_explained(functions):
    texts = ["a", "raise", "exit", "die", "type", "odd", "nan", "list", "strange", "none", "b"]
    found, _ = called(functions, "faulty", texts, values=["a"])
    assert found.tags["n"] == ["a", *[None] * 9, "a"]
    said = "\n".join(found.notes())
    for part in (
        "raised ValueError: no <b>good</b> (my_tags.py, line",
        "raised SystemExit: 3",
        "ended its process (exit code 7)",
        "returned a list, expected a dict",
        "returned a dict that JSON cannot hold",
        "gave n NaN",
        'gave n a list; say several = "list"',
        "gave n a value that is not allowed, such as 'zzz'",
    ):
        assert part in said
    assert "(first: row 2)" in said
    assert sum(found.troubles.values()) == 8  # saying nothing is no fault


def test_a_row_that_hangs_is_given_up_and_the_next_one_is_tagged(functions):
    found, _ = called(functions, "faulty", ["a", "hang", "b", "c"], timeout=2.0)
    assert found.tags["n"] == ["a", None, "a", "a"]
    assert any("took longer than 2 s" in note for note in found.notes())


def test_a_function_that_answers_differently_is_remarked_on(functions):
    found, _ = called(functions, "fickle", ["x"] * 4)
    assert any("not deterministic: 4 of 4" in note for note in found.notes())


def test_a_function_that_always_dies_is_given_up(functions):
    with pytest.raises(InvalidRequest, match="on 10 rows in a row"):
        called(functions, "stuck", ["x"] * 30)


@pytest.mark.parametrize("path", ["my_tags.py:nobody", "no_such.py:f", "my_tags.py:sys"])
def test_a_function_that_cannot_be_loaded_is_refused(functions, path):
    spec = spec_of(functions, n={"with": "callable", "function": path})
    with pytest.raises(InvalidRequest, match="cannot load"):
        tag_records(lambda: iter([{"text": "x"}]), spec)


# --- a model ---------------------------------------------------------------------------------

ASKED = FactorSpec("colour", "endpoint", ("red", "blue"), question="Which colour?")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"colour": "red"}', "red"),
        ('```json\n{"colour": "blue"}\n```', "blue"),
        ('{"colour": null}', None),
        ('{"colour": "green"}', "not allowed"),
        ('{"colour": ["red"]}', "not allowed"),
        ('{"colour": "red", "why": "x"}', "other keys"),
        ("red", "JSON"),
        ('["red"]', "no object"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_only_strict_answers_with_allowed_values_are_tags(text, expected):
    found, why = read_answer(Answer(text), [ASKED])
    if expected in ("red", "blue", None):
        assert (found, why) == ({"colour": expected}, "")
    else:
        assert found == {}
        assert expected in why


def test_a_model_is_asked_about_texts_and_its_faults_are_counted():
    def answer(prompt):
        if "</text>" not in prompt or "Which colour?" not in prompt:
            return ""
        return '{"colour": "red"}' if "rose" in prompt else "I think it is blue."

    rows = [{"text": "a rose"}, {"text": "the sea"}, {"text": " "}]
    spec = spec_of(
        colour={"with": "endpoint", "values": ["red", "blue"], "question": "Which colour?"}
    )
    found = tag_records(lambda: iter(rows), spec, "text", model=Scripted(answer, "script"))
    assert found.tags["colour"] == ["red", None, None]
    assert "did not answer with JSON" in "\n".join(found.notes())
    assert '"red", "blue", null' in tag_prompt("x", [ASKED])


def test_without_a_model_the_command_to_type_is_said():
    spec = spec_of(colour={"with": "endpoint", "values": ["red", "blue"]})
    with pytest.raises(InvalidRequest, match="--endpoint URL --model NAME"):
        tag_records(lambda: iter([{"text": "x"}]), spec, "text")


# --- files and the sheet ---------------------------------------------------------------------


@given(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=80),
    st.integers(1, 40),
    st.integers(0, 3),
)
@settings(max_examples=25)
def test_a_sheet_looks_at_every_value_as_equally_as_there_are_rows(tags, rows, seed):
    drawn = draw_sheet({"f": tags}, rows, seed)
    assert len(drawn.places) == len(set(drawn.places.tolist())) == min(rows, len(tags))
    taken = Counter(tags[p] for p in drawn.places)
    if rows >= len(set(tags)) * max(Counter(tags).values()):
        assert len(drawn.places) == len(tags)
    for value, count in Counter(tags).items():
        # A stratum has its fair part, unless it is smaller or the last round was cut short.
        fair = min(count, rows // len(set(tags)))
        assert taken[value] >= fair - len(set(tags))


def test_the_weights_of_a_sheet_make_it_stand_for_the_whole_file():
    rng = np.random.default_rng(0)
    a = rng.choice(["x", "y", "(missing)"], 4000, p=[0.9, 0.08, 0.02])
    b = np.where(rng.random(4000) < 0.7, a, rng.choice(["x", "y"], 4000))
    secret = (a == "y") | (rng.random(4000) < 0.3)  # what the sheet is to estimate
    guesses = []
    for seed in range(60):
        drawn = draw_sheet({"a": a.tolist(), "b": b.tolist()}, 100, seed)
        guesses.append(np.average(secret[drawn.places], weights=drawn.weights))
    assert np.mean(guesses) == pytest.approx(secret.mean(), abs=4 * np.std(guesses) / 60**0.5)


def sheet_file(path, lines):
    """A filled-in sheet of (tag, truth, weight)."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "weight", "text", "f (tag)", "f (yours)"])
        for number, (tag, truth, weight) in enumerate(lines, 1):
            writer.writerow([number, weight, "…", tag, truth])
    return path


def test_the_measured_error_agrees_with_other_libraries(tmp_path):
    rng = np.random.default_rng(1)
    tags = rng.choice(["red", "blue", "(missing)"], 90)
    truths = np.where(rng.random(90) < 0.8, tags, rng.choice(["red", "blue", "(missing)"], 90))
    weights = np.select([tags == "red", tags == "blue"], [9.0, 2.0], 1.0)  # one weight a tag
    errors = check_sheet(sheet_file(tmp_path / "s.csv", zip(tags, truths, weights, strict=True)))
    found = errors["factors"]["f"]
    kappa = cohen_kappa_score(truths, tags, sample_weight=weights)
    assert found["kappa"]["estimate"] == pytest.approx(kappa)
    for value in ("red", "blue"):
        recall = recall_score(truths, tags, labels=[value], average="macro", sample_weight=weights)
        one = found["per_value"][value]
        right, all_ = ((tags == value) & (truths == value)).sum(), (tags == value).sum()
        low, high = proportion_confint(right, all_, method="jeffreys")
        assert one["recall"]["estimate"] == pytest.approx(recall)
        assert one["precision"]["estimate"] == pytest.approx(right / all_)
        assert (one["precision"]["low"], one["precision"]["high"]) == pytest.approx((low, high))
        assert one["recall"]["low"] < recall < one["recall"]["high"]
    assert np.array(found["counts"]).sum() == 90
    assert found["accuracy"]["low"] < np.average(tags == truths, weights=weights)


def test_a_person_may_write_ok_none_another_case_or_nothing(tmp_path):
    lines = [("red", "ok", 1), ("red", "BLUE", 1), ("blue", "None", 1), ("blue", "", 1),
             ("red", "green", 1)]  # fmt: skip
    found = check_sheet(sheet_file(tmp_path / "s.csv", lines))["factors"]["f"]
    assert found["checked"] == 4
    assert found["values"] == ["blue", "green", "red", "(missing)"]
    assert found["counts"] == [[0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]


def test_a_sheet_nobody_filled_in_or_another_file_is_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="nothing is checked yet"):
        check_sheet(sheet_file(tmp_path / "s.csv", [("red", "", 1)]))
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidRequest, match="not a sheet"):
        check_sheet(tmp_path / "other.csv")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_tagged_file_keeps_all_columns_and_its_sheet_can_hold_no_formula(tmp_path, suffix):
    rows = [{"id": str(i), "text": text} for i, text in enumerate(
        ['=cmd("red")', "blue, sky", 'so "red"\nindeed', "nothing", "+1 red"] * 30)]  # fmt: skip
    source = tmp_path / "in.csv"
    with source.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "text"])
        writer.writeheader()
        writer.writerows(rows)
    spec = spec_of(colour={"with": "lexicon", "values": COLOURS})
    made = tag_file(source, spec, tmp_path / f"out{suffix}", column="text", rows=30)
    if suffix == ".csv":
        with made.path.open(newline="") as file:
            found = list(csv.DictReader(file))
    else:
        found = [json.loads(line) for line in made.path.read_text().splitlines()]
    assert [{k: row[k] for k in ("id", "text")} for row in found] == rows
    assert [row["colour"] or None for row in found[:4]] == ["red", "blue", "red", None]
    assert made.counts == {"colour": {"red": 90, "(missing)": 30, "blue": 30}}
    with made.sheet.open(newline="") as file:
        sheet = list(csv.DictReader(file))
    assert Counter(row["colour (tag)"] for row in sheet) == {"red": 10, "blue": 10, "(missing)": 10}
    assert not any(row["text"].startswith(("=", "+")) for row in sheet)
    with pytest.raises(InvalidRequest, match="is there already"):
        tag_file(source, spec, made.path, column="text")


def test_a_column_that_is_there_or_is_not_is_refused(tmp_path):
    (tmp_path / "in.csv").write_text("text,colour\na,b\n")
    colour = {"with": "lexicon", "values": COLOURS}
    with pytest.raises(InvalidRequest, match="already has a column 'colour'"):
        tag_file(tmp_path / "in.csv", spec_of(colour=colour), tmp_path / "o.csv", column="text")
    with pytest.raises(InvalidRequest, match="did you mean 'text'"):
        tag_file(tmp_path / "in.csv", spec_of(hue=colour), tmp_path / "o.csv", column="txt")
    assert not (tmp_path / "o.csv").exists()


# --- errors carried into counts --------------------------------------------------------------


def test_corrected_counts_are_the_expected_counts_of_true_values():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 50, (3, 2, 2))
    a, b = rng.dirichlet(np.ones(3), 3), rng.dirichlet(np.ones(2), 2)
    expected = np.einsum("ijk,ia,jb->abk", counts, a, b)
    assert np.allclose(corrected_counts(counts, [a, b, None]), expected)
    with pytest.raises(InvalidRequest, match="3 axes of counts and 1 confusions"):
        corrected_counts(counts, [a])


def errors_of(tmp_path, lines):
    return check_sheet(sheet_file(tmp_path / "s.csv", lines))


def test_perfect_tags_of_many_checked_rows_leave_coverage_as_it_is(tmp_path):
    errors = errors_of(tmp_path, [(v, v, 1) for v in ("p", "q", "r")] * 4000)
    counts = np.array([[9, 9], [9, 0], [9, 9]])
    found = corrected_coverage(counts, ["f", "g"], [("p", "q", "r"), ("u", "v")], errors)
    assert found.estimate == found.low == 5 / 6
    assert found.high <= 1


def test_wrong_tags_may_hide_that_a_value_was_trained_or_pretend_it(tmp_path):
    # Half of the rows tagged p are q in truth; all 3 rows tagged r are p.
    lines = [("p", "p", 1)] * 50 + [("p", "q", 1)] * 50 + [("r", "p", 1)] * 100
    errors = errors_of(tmp_path, lines)
    values = ("p", "q", "r")
    found = corrected_coverage(np.array([40, 0, 3]), ["f"], [values], errors)
    assert found.estimate == pytest.approx(2 / 3)
    assert found.low == pytest.approx(2 / 3)  # p and q; r has none
    only = corrected_coverage(
        np.array([40, 0, 3]), ["f"], [values], errors, possible=np.array([False, False, True])
    )
    assert only.estimate == 1
    assert only.low == 0


def test_a_sheet_of_few_rows_gives_a_wider_interval_than_one_of_many(tmp_path):
    counts, values = np.array([[300, 1], [1, 300]]), [("p", "q"), ("u", "v")]
    widths = []
    for times in (3, 300):
        errors = errors_of(tmp_path, [("p", "p", 1), ("q", "q", 1)] * times)
        found = corrected_coverage(counts, ["f", "g"], values, errors, at_least=20)
        widths.append(found.high - found.low)
    assert widths[0] > widths[1]


# --- the command -----------------------------------------------------------------------------


def command(*words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    tagging.arguments(parser)
    return tagging.run(parser.parse_args([str(word) for word in words]))


def test_from_tags_to_errors_by_command(tmp_path, capsys):
    (tmp_path / "in.csv").write_text("text\n" + "a red hat\nthe blue sea\nrain\n" * 20)
    (tmp_path / "spec.toml").write_text(
        '[factors.colour]\nwith = "lexicon"\nvalues = { red = ["red"], blue = ["blue"] }\n'
    )
    out = tmp_path / "out.csv"
    command(tmp_path / "in.csv", "--column", "text", "--with", tmp_path / "spec.toml", "--to", out)
    assert "to check by hand" in capsys.readouterr().out
    sheet = tmp_path / "out.check.csv"
    with sheet.open(newline="") as file:
        rows = list(csv.reader(file))
    for row in rows[1:]:
        row[-1] = "ok"
    with sheet.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    command("--check", sheet, "--to", tmp_path / "errors.json")
    assert "1.00" in capsys.readouterr().out
    errors = read_errors(tmp_path / "errors.json")
    assert errors["factors"]["colour"]["accuracy"]["estimate"] == 1
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InvalidRequest, match="as `recombine tag --check"):
        read_errors(tmp_path / "x.json")


class Endpoint:
    """Where tests of the command find a small server that speaks chat completions."""

    def __enter__(self):
        import http.server
        import threading

        asked = self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked.append(body["messages"][-1]["content"])
                message = {"role": "assistant", "content": '{"colour": "red"}'}
                data = json.dumps({"choices": [{"message": message}]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_a_cap_on_calls_holds_and_the_same_command_continues(tmp_path, capsys):
    (tmp_path / "in.csv").write_text("text\n" + "".join(f"rose {i}\n" for i in range(6)))
    (tmp_path / "spec.toml").write_text(
        '[factors.colour]\nwith = "endpoint"\nvalues = ["red", "blue"]\n'
    )
    with Endpoint() as server:
        words = [tmp_path / "in.csv", "--column", "text", "--with", tmp_path / "spec.toml",
                 "--to", tmp_path / "out.csv", "--endpoint", server.url, "--model", "m",
                 "--key-variable", "none", "--workers", 1]  # fmt: skip
        with pytest.raises(RecombineError, match="4 calls are spent"):
            command(*words, "--most-calls", 4)
        assert not (tmp_path / "out.csv").exists()
        assert len(server.asked) == 4
        command(*words)
        assert len(server.asked) == 6  # nothing was asked twice
    assert "6 questions, 4 answered before, 2 to ask now" in capsys.readouterr().err
    assert (tmp_path / "out.csv").read_text().count(",red") == 6


def test_a_dry_run_asks_nothing_and_shows_the_estimate(tmp_path, capsys):
    (tmp_path / "in.csv").write_text("text\na rose\n")
    (tmp_path / "spec.toml").write_text(
        '[factors.colour]\nwith = "endpoint"\nvalues = ["red", "blue"]\n'
    )
    command(tmp_path / "in.csv", "--column", "text", "--with", tmp_path / "spec.toml", "--dry-run")
    assert "1 questions, 0 answered before, 1 to ask now" in capsys.readouterr().out


def test_a_file_that_is_missing_or_no_toml_is_one_line(tmp_path):
    with pytest.raises(InvalidRequest, match="cannot read"):
        read_spec(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[factors")
    with pytest.raises(InvalidRequest, match="is not TOML"):
        read_spec(tmp_path / "bad.toml")
    with pytest.raises(InvalidRequest, match="--with SPEC is missing"):
        command(tmp_path / "in.csv", "--to", tmp_path / "out.csv")


def test_a_spec_without_factors_is_shown_how_one_looks():
    for document in ({"colour": {"red": ["red"]}}, {"colour": "red"}, {}, {"factors": {"c": {}}}):
        with pytest.raises(InvalidRequest, match=r"\[factors\.colour\] with = .*tag --init"):
            parse_spec(document, Path())
    with pytest.raises(InvalidRequest, match=r"a factor is a table \[factors.tone\]"):
        parse_spec({"tone": {"with": "lexicon"}}, Path())


def test_the_spec_that_init_prints_runs_as_it_is(tmp_path, capsys):
    command("--init")
    (tmp_path / "spec.toml").write_text(capsys.readouterr().out)
    (tmp_path / "in.csv").write_text("text\nthe crimson coat of size xl was delayed\nno\n")
    command(tmp_path / "in.csv", "--with", tmp_path / "spec.toml", "--to", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["colour"], first["delivery"], first["size"]) == ("red", "late", "xl")
    assert (second["colour"], second["delivery"], second["size"]) == ("", "", "")


def test_a_function_that_fails_on_every_row_writes_nothing(functions):
    with pytest.raises(InvalidRequest, match=r"raised ValueError.*as on all 2 rows: nothing is"):
        called(functions, "faulty", ["raise", "raise"])
    found, _ = called(functions, "faulty", ["none", "none"])  # to say nothing is no fault
    assert found.tags["n"] == [None, None]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "none/out.csv"], "there is no folder .*none; make it first"),
        (["--to", "out.csv", "--rows", "0"], "^--rows 0: expected 1 or more"),
        (["--to", "out.csv", "--timeout", "-1"], "^--timeout -1: expected seconds"),
        (["--to", "out.xls"], "ends in .csv, .tsv or .jsonl"),
    ],
)
def test_a_wrong_word_is_refused_before_anything_is_tagged(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("text\na red hat\n")
    Path("spec.toml").write_text('[factors.c]\nwith = "lexicon"\nvalues = { red = ["red"] }\n')
    with pytest.raises(InvalidRequest, match=message):
        command("in.csv", "--column", "text", "--with", "spec.toml", *words)
    assert {path.name for path in tmp_path.iterdir()} == {"in.csv", "spec.toml"}


def test_a_value_that_is_no_tag_on_the_sheet_is_remarked_on(tmp_path, capsys):
    sheet = tmp_path / "s.csv"
    rows = ["1,1,t,green,gren", "2,1,t,green,ok", "3,1,t,red,none", "4,1,t,red,pink"]
    sheet.write_text("\n".join(["row,weight,text,colour (tag),colour (yours)", *rows]))
    command("--check", sheet)
    said = capsys.readouterr().out
    assert "colour: 'gren' (1 row) is no tag on the sheet; did you mean 'green'?" in said
    assert "colour: 'pink' (1 row) is no tag on the sheet; tags are green, red" in said
    assert "'none'" not in said


def test_a_pattern_that_would_take_for_ever_costs_its_row_alone():
    rows = [{"text": "aaa"}, {"text": "a" * 40 + "!"}, {"text": "b"}]
    spec = parse_spec({"factors": {"a": {"with": "regex", "values": {"a": ["(a+)+$"]}}}}, Path())
    found = tag_records(lambda: iter(rows), spec, "text", timeout=1.0)
    assert found.tags == {"a": ["a", None, None]}
    assert found.notes() == [
        "1 row is (missing): a pattern of a took longer than 1 s (first: row 2)"
    ]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "a*a*b", "(?:a?){9}", "(.*,){9}x"])
def test_a_pattern_that_may_be_slow_runs_elsewhere(pattern):
    assert not is_quick(FactorSpec("a", "regex", ("x",), {"x": (pattern,)}))


@pytest.mark.parametrize("pattern", [r"\bred\b", "colou?rs?", "red|blue", "[0-9]+ kg", "(?:re)d+"])
def test_an_ordinary_pattern_runs_here(pattern):
    assert is_quick(FactorSpec("a", "regex", ("x",), {"x": (pattern,)}))
