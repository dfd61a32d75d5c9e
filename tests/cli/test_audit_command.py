"""The `audit` command: what it reads, prints, writes and refuses."""

from __future__ import annotations

import csv
import json
import pickle
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recombine.cli import main
from recombine.tables.arrow import have_arrow
from report.browser import needs_chromium, served, visit

COLOURS, SHAPES, PLACES = ("red", "blue", "green"), ("cube", "ball"), ("hill", "lake")
Command = Callable[..., tuple[int, str, str]]

HOSTILE = (
    "<script>document.title='owned'</script>",
    "{{7*7}}",
    "javascript:document.title='owned'",
    "nul\x00 and escape\x1b[2J",
    "right\u202eto left",
    "=HYPERLINK('http://example.org','x')",
    "<img src=x onerror=\"document.title='owned'\">",
)


@pytest.fixture
def audit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> Iterator[Command]:
    """Types `recombine audit ...` in a folder of its own; gives exit code and what was printed."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr("recombine.cli.leave", sys.exit)
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["audit", *map(str, words)])
        told = capsys.readouterr()
        return int(left.value.code or 0), told.out, told.err

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def refused(audit: Command) -> Callable[..., str]:
    """The one line that a wrong command ends in."""

    def call(*words: object) -> str:
        code, out, err = audit(*words, "--quiet")
        assert (code, out) == (2, "") and err.startswith("recombine: error: ")
        assert err.count("\n") == 1 and "Traceback" not in err
        return err

    return call


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Training without red cubes, evaluated rows in which they fail, and a target with weights."""
    rng = random.Random(0)
    every = [(c, s, p) for c in COLOURS for s in SHAPES for p in PLACES]

    def write(name: str, header: str, rows) -> None:
        lines = [",".join(map(str, row)) for row in rows]
        (tmp_path / name).write_text("\n".join([header, *lines]) + "\n")

    train = [row for row in every * 25 if row[:2] != ("red", "cube")]
    write("train.csv", "colour,shape,place,label", [(*row, row[0] == "red") for row in train])
    right = [
        (*row, int(rng.random() > (0.8 if row[:2] == ("red", "cube") else 0.04)))
        for row in every * 20
    ]
    write("eval.csv", "colour,shape,place,correct", right)
    write("target.csv", "colour,shape,place,weight", [(*row, n) for n, row in enumerate(every)])
    both = [(*row, 1, "train") for row in train] + [(*row, "test") for row in right]
    write("both.csv", "colour,shape,place,correct,part", both)
    write("texts.csv", "colour,shape,place,correct", [(*row, "yes") for row in every])
    write("negative.csv", "colour,shape,place,weight", [(*row, -1) for row in every])
    return tmp_path


FACTORS = ("--factors", "colour,shape,place")
HOLE = "colour=red, shape=cube"


# --- what it tells ---


def test_what_is_printed_begins_with_the_sentence_and_names_the_alarms(audit, files):
    code, out, err = audit("train.csv", *FACTORS, "--eval", "eval.csv", "--outcome", "correct")
    assert code == 0 and out.startswith("93.8% of 16 possible pairs are trained;")
    assert f"{HOLE}: expected" in out and "failing slice" in out
    assert "275 rows" not in out and "train.csv: 250 rows" in err  # progress is not the answer
    assert "log loss" in out or "Risk cannot be told" in out


def test_json_is_one_valid_document_and_nothing_else(audit, files):
    code, out, err = audit(
        "train.csv", *FACTORS, "--eval", "eval.csv", "--outcome", "correct", "--target",
        "target.csv", "--label", "label", "--json",
    )  # fmt: skip
    found = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert (code, err, found["schema"], found["rows"]) == (0, "", 1, 250)
    kinds = [(f["kind"], f["where"]) for f in found["findings"]]
    assert kinds == [("hole", HOLE), ("failing slice", HOLE)]
    assert set(found["exposure"]) == {"combinations", "triples", "pairs", "values"}
    assert found["evaluation"]["levels"][0]["level"] == "seen"
    assert all(slice["failing_rows"] for slice in found["evaluation"]["slices"])


def test_a_folder_gets_a_page_a_document_and_the_holes_as_a_table(audit, files):
    code, out, _ = audit("train.csv", *FACTORS, "--to", "out here", "--quiet")
    place = files / "out here"
    assert code == 0 and str(Path("out here") / "audit.html") in out
    assert {p.name for p in place.iterdir()} == {"audit.html", "audit.json", "holes.csv"}
    assert HOLE in (place / "audit.html").read_text()
    assert json.loads((place / "audit.json").read_text())["kind"] == "recombine audit"
    with (place / "holes.csv").open(newline="") as file:
        header, first, *_ = csv.reader(file)
    assert header[:3] == ["missing", "saw", "expected"] and first[:2] == [HOLE, "0"]


def test_one_file_with_a_split_is_audited_as_two(audit, files):
    two = audit("train.csv", *FACTORS, "--eval", "eval.csv", "--outcome", "correct", "--json")
    one = audit("both.csv", *FACTORS, "--split", "part", "--outcome", "correct", "--json")
    apart, together = json.loads(two[1]), json.loads(one[1])
    for name in ("rows", "coverage", "sentence"):
        assert apart[name] == together[name]
    assert apart["evaluation"]["levels"] == together["evaluation"]["levels"]
    # Rows keep their numbers in the file they came from.
    first = [int(e["evaluation"]["slices"][0]["failing_rows"][0]) for e in (apart, together)]
    assert first[1] == first[0] + 250


def test_training_rows_are_refused_as_evaluated_ones(refused, files):
    said = "holds the training rows themselves"
    words = (*FACTORS, "--outcome", "correct", "--eval")
    assert said in refused("eval.csv", *words, "eval.csv")
    assert said in refused("eval.csv", *words, files / "." / "eval.csv")
    (files / "copy.csv").write_bytes((files / "eval.csv").read_bytes())
    assert said in refused("eval.csv", *words, "copy.csv")
    lines = [f"{line},{n}" for n, line in enumerate((files / "eval.csv").read_text().split())]
    lines[0] = "colour,shape,place,correct,name"
    (files / "named.csv").write_text("\n".join(lines) + "\n")
    (files / "turned.csv").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    assert said in refused("named.csv", *words, "turned.csv")


def test_evaluated_rows_that_were_trained_on_are_counted(audit, files):
    def name(table: str, first: int) -> None:
        header, *lines = (files / table).read_text().split()
        named = [f"{line},{first + n}" for n, line in enumerate(lines)]
        (files / table).write_text("\n".join([f"{header},name", *named]) + "\n")

    asked = ("train.csv", *FACTORS, "--eval", "eval.csv", "--outcome", "correct")
    code, out, _ = audit(*asked, "--json")  # red cubes alike are not the same row
    assert code == 0 and json.loads(out)["overlap"] is None
    name("train.csv", 0)
    name("eval.csv", 200)
    found = json.loads(audit(*asked, "--id", "name", "--json")[1])
    assert found["overlap"] == {"rows": 50, "evaluated": 240, "told_by": "the same id"}
    # The name says that they are the same, and the other columns that they are not.
    assert json.loads(audit(*asked, "--json")[1])["overlap"]["rows"] < 50
    _, *lines = (files / "train.csv").read_text().split()
    extra = [f"{','.join(line.split(',')[:3])},1,{line.split(',')[-1]}" for line in lines[:7]]
    with (files / "eval.csv").open("a") as file:
        file.writelines(f"{line}\n" for line in extra)
    _, out, _ = audit(*asked, "--to", "out", "--quiet")
    count = json.loads((files / "out" / "audit.json").read_text())["overlap"]["rows"]
    said = f"{count} of 247 evaluated rows are also training rows (the same in every column)"
    assert count >= 7 and said in out and said in (files / "out" / "audit.html").read_text()


def test_rows_of_one_file_that_are_in_both_parts_are_counted(audit, files):
    lines = [f"{c},{s},{n},train,1" for n, c in enumerate(COLOURS * 30) for s in SHAPES]
    lines += [f"{line.removesuffix(',train,1')},test,0" for line in lines[:9]]
    lines += [f"{c},{s},{n},test,1" for n, c in enumerate(COLOURS * 30, 500) for s in SHAPES]
    (files / "parts.csv").write_text("\n".join(["colour,shape,name,part,right", *lines]) + "\n")
    _, out, _ = audit("parts.csv", "--factors", "colour,shape", "--split", "part", "--outcome",
                      "right", "--quiet")  # fmt: skip
    assert "overlap: 9 of 189 evaluated rows are also training rows" in out


def test_files_hold_all_failing_rows_and_the_risk_and_the_document_names_them(audit, files):
    _, out, _ = audit(
        "train.csv", *FACTORS, "--eval", "eval.csv", "--outcome", "correct", "--target",
        "target.csv", "--to", "out", "--quiet",
    )  # fmt: skip
    found = json.loads((files / "out" / "audit.json").read_text())
    assert found["files"] == {
        "holes": "holes.csv", "failing-rows": "failing-rows.csv", "risk": "risk.csv",
    }  # fmt: skip
    for name in found["files"].values():
        with (files / "out" / name).open(newline="") as file:
            header, *lines = csv.reader(file)
        assert all(header) and lines and f"{Path('out') / name}" in out
    (one,) = found["evaluation"]["slices"]
    assert one["more_failing_rows"] == one["failures"] - len(one["failing_rows"])
    assert len(lines) == 12 and header[-1] == "traffic"


def test_a_table_of_risk_that_is_cut_says_so(audit, files, monkeypatch):
    monkeypatch.setattr("recombine.audits.risk_table.MOST", 5)
    _, out, _ = audit("train.csv", *FACTORS, "--eval", "eval.csv", "--outcome", "correct", "--to",
                      "out", "--quiet")  # fmt: skip
    said = "7 further combinations, the least frequent ones, are left out."
    assert f"risk.csv: {said}" in out
    assert json.loads((files / "out" / "audit.json").read_text())["why_not"]["risk.csv"] == said
    assert len((files / "out" / "risk.csv").read_text().splitlines()) == 6


def test_the_validation_of_the_risk_is_in_the_document(audit, tmp_path):
    rng = random.Random(0)
    every = [(a, b, c) for a in range(4) for b in range(4) for c in range(4)]
    lines = [",".join(f"v{x}" for x in row) for row in every * 8]
    (tmp_path / "train.csv").write_text("\n".join(["a,b,c", *lines]) + "\n")
    tried = [f"{line},{int(rng.random() > 0.2)}" for line in lines]
    (tmp_path / "eval.csv").write_text("\n".join(["a,b,c,right", *tried]) + "\n")
    out = audit("train.csv", "--eval", "eval.csv", "--outcome", "right", "--json")[1]
    found = json.loads(out)["evaluation"]
    scores = [s for s in found["validation"] if s["level"] == "all"]
    assert len(scores) == 5 and all(s["log_loss"]["low"] < s["log_loss"]["high"] for s in scores)
    assert {s["level"] for s in found["validation"]} == {"all", *found["validated_levels"]}
    assert sum(b["combinations"] for b in found["calibration"]) == 64


def test_outcomes_of_training_rows_give_no_risk(audit, files):
    code, out, _ = audit("both.csv", *FACTORS, "--outcome", "correct", "--json")
    found = json.loads(out)
    assert code == 0 and found["evaluation"] is None
    assert "--split COLUMN" in found["why_not"]["risk"]


def test_an_id_column_names_the_failing_rows(audit, files):
    text = (files / "eval.csv").read_text().splitlines()
    named = [f"{line},{'name' if n == 0 else f'row-{n}'}" for n, line in enumerate(text)]
    (files / "named.csv").write_text("\n".join(named) + "\n")
    train = [f"{line},t{n}" for n, line in enumerate((files / "train.csv").read_text().split())]
    train[0] = "colour,shape,place,label,name"
    (files / "train.csv").write_text("\n".join(train) + "\n")
    _, out, _ = audit("train.csv", *FACTORS, "--eval", "named.csv", "--outcome", "correct",
                      "--id", "name", "--json")  # fmt: skip
    rows = json.loads(out)["evaluation"]["slices"][0]["failing_rows"]
    assert rows and all(row.startswith("row-") for row in rows)


def test_rules_typed_and_from_a_file_are_taken_together(audit, files):
    (files / "rules.txt").write_text("# what cannot be\nIF colour=red THEN shape<>cube\n")
    for words in (("--forbid", "IF colour=red THEN shape<>cube"), ("--rules", "rules.txt")):
        _, out, _ = audit("train.csv", *FACTORS, *words, "--quiet")
        assert out.startswith("100.0% of 15 possible pairs are trained;") and "hole" not in out


def test_a_list_column_is_read_with_its_mark(audit, tmp_path):
    pairs = [f"{a};{b}" for a in "wxyz" for b in "wxyz" if a < b and (a, b) != ("x", "z")]
    lines = "\n".join(f"{tags},{c}" for tags in pairs for c in COLOURS for _ in range(15))
    (tmp_path / "lists.csv").write_text(f"tags,colour\n{lines}\n")
    _, out, _ = audit("lists.csv", "--list", "tags=;", "--quiet")
    assert "tags=x and z: expected" in out


def test_what_was_too_large_to_be_searched_is_named_in_the_terminal_and_on_the_page(
    audit, tmp_path
):
    rng = random.Random(0)
    lines = [",".join(f"{name}{(n + rng.randrange(410) * (n > 410)) % 410}" for name in "pqr")
             for n in range(1_500)]  # fmt: skip
    text = "p,q,r,part,right\n"
    text += "".join(f"{line},{('train', 'test')[n % 2]},{n % 3 > 0:d}\n"
                    for n, line in enumerate([*lines, *lines, *lines[:410]]))  # fmt: skip
    (tmp_path / "large.csv").write_text(text)
    code, out, _ = audit("large.csv", "--split", "part", "--outcome", "right", "--to", "out")
    assert code == 0
    page = (tmp_path / "out" / "audit.html").read_text()
    for kind in ("coverage", "holes", "failing slices"):
        assert f"{kind}: without p x q x r, for more than" in out
        assert f"{kind}: without p x q x r, for more than" in page
    assert "group rare values with --rare N" in out


# --- what it refuses ---


def test_an_audit_that_memory_cannot_hold_ends_in_one_line_and_writes_nothing(
    refused, files, monkeypatch
):
    def large(*_):
        raise MemoryError

    monkeypatch.setattr("recombine.audits.auditing.audit", large)
    assert "fewer --factors" in refused("train.csv", *FACTORS, "--to", "out")
    assert not (files / "out").exists()


def test_a_column_that_is_not_there_is_refused_with_the_nearest(refused, files):
    assert "did you mean 'colour'?" in refused("train.csv", "--factors", "color,shape")
    assert "did you mean 'correct'?" in refused("train.csv", *FACTORS, "--eval", "eval.csv",
                                                "--outcome", "corect")  # fmt: skip
    assert "did you mean" not in refused("train.csv", "--factors", "nope")
    assert "'lable'" in refused("train.csv", *FACTORS, "--label", "lable")


def test_one_value_only_is_said_and_not_hidden(audit, tmp_path):
    (tmp_path / "one.csv").write_text("colour,shape\n" + "red,cube\nred,ball\n" * 20)
    code, out, _ = audit("one.csv", "--quiet")
    assert code == 0 and "factor colour: one value only (red)" in out


def test_a_word_among_numbers_is_missing_or_is_said(audit, tmp_path):
    cells = [str(n % 97 + 0.5) for n in range(600)]

    def alarms(word: str) -> str:
        cells[49] = word
        lines = [f"{COLOURS[n % 3]},{cell}" for n, cell in enumerate(cells)]
        (tmp_path / "sizes.csv").write_text("\n".join(["colour,size", *lines]) + "\n")
        return audit("sizes.csv", "--factors", "colour,size", "--quiet")[1]

    for word in ("n/a", "-", "?"):
        assert "Alarms: none." in alarms(word)
    assert "factor size: read as text, since 'abc' in row 50 is no number" in alarms("abc")


def test_a_factor_with_a_million_values_is_refused_before_all_of_it_is_read(refused, tmp_path):
    with (tmp_path / "many.csv").open("w") as file:
        file.write("colour,user\n")
        file.writelines(f"red,u{n}\n" for n in range(1_000_000))
    said = refused("many.csv", "--factors", "colour,user")
    assert "column 'user'" in said and "at most 10,000" in said and "--rare" in said
    assert "1,000,000" not in said  # it stopped long before


def test_a_column_that_names_rows_is_left_out_and_said(audit, tmp_path):
    lines = [f"{n},r{n},{COLOURS[n % 3]},{SHAPES[n // 3 % 2]}" for n in range(120)]
    (tmp_path / "named.csv").write_text("\n".join(["n,id,colour,shape", *lines]) + "\n")
    code, out, _ = audit("named.csv", "--quiet")
    assert code == 0 and "thin value" not in out
    said = "n (a different value in every row), id (a different value in every row)"
    assert f"left out: {said}" in out
    assert "thin value" in audit("named.csv", "--factors", "id,colour", "--quiet")[1]


def test_mixed_types_are_kept_as_text_and_said(audit, tmp_path):
    cells = ["1", "word", "3.5", "", "True"] * 20
    lines = "\n".join(f"{c},{cell}" for c in COLOURS for cell in cells)
    (tmp_path / "mixed.csv").write_text(f"colour,mixed\n{lines}\n")
    code, out, _ = audit("mixed.csv", "--json")
    factor = json.loads(out)["factors"]["mixed"]
    assert code == 0 and factor["values"] == 5 and "mixed, kept as text" in factor["rule"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.csv", b"", "is empty"),
        ("header.csv", b"colour,shape\n", "has no rows"),
        ("binary.csv", bytes(range(256)) * 20, "not UTF-8"),
        ("pickle.csv", pickle.dumps({"colour": ["red"] * 9}), "not UTF-8"),
        ("pickle.jsonl", pickle.dumps({"colour": ["red"] * 9}), "not UTF-8"),
        ("pickle.parquet", pickle.dumps({"colour": ["red"] * 9}), "pickle.parquet"),
        ("model.xyz", b"colour,shape\n", ".csv"),
        ("ragged.csv", b"colour,shape\nred,cube,extra\n", "line 2"),
    ],
)
def test_a_file_that_is_no_table_is_refused_by_name(refused, tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    error = refused(name)
    assert name in error and said in error


class Owned:
    """Its pickle would write a file where it is loaded."""

    def __reduce__(self):
        return (Path.write_text, (Path("owned"), "owned"))


@pytest.mark.parametrize("name", ["trap.csv", "trap.parquet", "trap.arrow", "trap.jsonl"])
def test_a_pickle_is_never_loaded_whatever_it_is_called(refused, tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Owned()))
    refused(name)
    assert not (tmp_path / "owned").exists()
    if name.endswith(("parquet", "arrow")) and not have_arrow():
        assert "recombine[analysis]" in refused(name)


def test_folders_and_names_that_lead_nowhere_are_refused(refused, tmp_path):
    (tmp_path / "folder").mkdir()
    assert "a folder without a dataset" in refused("folder")
    assert "there is no file nowhere.csv" in refused("nowhere.csv")


def test_outcomes_and_weights_must_be_numbers_that_make_sense(refused, files):
    assert "but has 'yes'" in refused("train.csv", *FACTORS, "--eval", "texts.csv", "--outcome",
                                      "correct")  # fmt: skip
    mixed = "colour,shape,place,correct\nred,cube,hill,1\nred,cube,hill,True\nred,cube,hill,yes\n"
    (files / "mixed.csv").write_text(mixed)
    assert "but has 'yes' in row 3" in refused("train.csv", *FACTORS, "--eval", "mixed.csv",
                                               "--outcome", "correct")  # fmt: skip
    assert "none negative" in refused("train.csv", *FACTORS, "--target", "negative.csv")
    (files / "words.csv").write_text("colour,shape,place,weight\nred,cube,hill,abc\n")
    weights = refused("train.csv", *FACTORS, "--target", "words.csv")
    assert "how much traffic" in weights and "'abc'" in weights and "right" not in weights
    scores = (files / "eval.csv").read_text().replace(",1\n", ",7\n")
    (files / "scores.csv").write_text(scores)
    assert "an outcome is 7" in refused("train.csv", *FACTORS, "--eval", "scores.csv", "--outcome",
                                        "correct")  # fmt: skip


def test_rules_that_name_nothing_or_leave_nothing_are_refused(refused, files):
    unknown = refused("train.csv", *FACTORS, "--forbid", "IF colour=grren THEN shape<>cube")
    assert "did you mean 'green'?" in unknown
    (files / "clash.txt").write_text("colour=red\nplace=hill\ncolour=blue\n")
    clash = refused("train.csv", *FACTORS, "--rules", "clash.txt")
    assert "contradict" in clash and "colour=red; colour=blue" in clash and "hill" not in clash
    assert "may mean two things" in refused("train.csv", *FACTORS, "--forbid", "colour<>red")
    assert "rules file" in refused("train.csv", *FACTORS, "--rules", "nothing.txt")


def test_what_is_forbidden_is_what_the_line_says_and_in_a_file_what_must_hold(audit, files):
    (files / "pict.txt").write_text("colour <> red\n")
    shares = [
        json.loads(audit("train.csv", *FACTORS, "--json", *words)[1])["coverage"]
        for words in (("--forbid", "colour=red"), ("--rules", "pict.txt"))
    ]
    values = [next(c for c in each if (c["t"], c["min_count"]) == (1, 1)) for each in shares]
    assert [each["possible"] for each in values] == [6, 6] and shares[0] == shares[1]


def test_a_value_that_rules_erase_is_told_in_the_terminal_and_in_the_document(audit, files):
    erase = ("--forbid", "colour=red AND shape=cube", "--forbid", "colour=red AND shape=ball")
    _, out, _ = audit("train.csv", *FACTORS, *erase, "--quiet")
    assert "colour=red can never occur because of" in out
    document = json.loads(audit("train.csv", *FACTORS, *erase, "--json")[1])
    assert document["rules"]["never_possible"][0].startswith("colour=red can never occur")
    assert len(document["rules"]["texts"]) == 2


def test_options_that_exclude_or_need_each_other_are_refused(refused, files):
    assert "leave out" in refused("both.csv", *FACTORS, "--split", "part", "--eval", "eval.csv")
    assert "--outcome" in refused("train.csv", *FACTORS, "--eval", "eval.csv")
    assert "1 to 4" in refused("train.csv", *FACTORS, "--strength", "5")
    assert "'train'" in refused("both.csv", *FACTORS, "--split", "place")


# --- hostile values ---


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Every value, and a column's name, is an attack on a page, a terminal or a spreadsheet."""
    with (tmp_path / "hostile.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["=1+1", HOSTILE[0], "correct", "part"])
        for n in range(800):
            a, b = HOSTILE[n % len(HOSTILE)], HOSTILE[n // 7 % len(HOSTILE)]
            if (a, b) != (HOSTILE[0], HOSTILE[5]):
                writer.writerow([a, b, int(a != b), "train" if n % 2 else "test"])
    return tmp_path / "hostile.csv"


def test_hostile_values_reach_no_terminal_and_no_formula(audit, hostile):
    code, out, _ = audit("hostile.csv", "--split", "part", "--outcome", "correct", "--to", "out")
    assert code == 0
    assert not set(out) & {"\x00", "\x1b", "\u202e"}
    with (hostile.parent / "out" / "holes.csv").open(newline="") as file:
        cells = [cell for line in csv.reader(file) for cell in line]
    assert any("HYPERLINK" in cell for cell in cells)
    assert not any(cell.startswith(("=", "+", "@")) for cell in cells)


@needs_chromium
@pytest.mark.browser
def test_hostile_values_are_inert_in_a_browser(audit, hostile):
    audit("hostile.csv", "--split", "part", "--outcome", "correct", "--to", "out", "--quiet")
    page = (hostile.parent / "out" / "audit.html").read_text("utf-8")
    with served({"/": page}) as site:
        seen = visit(site.url + "/")
    assert "<title>owned" not in seen.dom and "HYPERLINK" in seen.dom
    assert seen.dom.count("<script") == 0 and seen.dom.count("<img") == 0
    assert 'href="javascript:' not in seen.dom and "{{7*7}}" in seen.dom
    assert "\x00" not in seen.dom and "\u202e" not in seen.dom
    assert seen.console == "" and site.requests == ["/"]
