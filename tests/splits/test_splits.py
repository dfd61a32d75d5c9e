"""Splits: what each method promises holds for any table, and the card says what was measured."""

from __future__ import annotations

import argparse
import csv
import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.cli import splitting
from recombine.errors import InvalidRequest
from recombine.splits import PARTS, SplitSpec, divergences, split, split_file, together
from recombine.splits.writing import Whole
from recombine.tables import Factor, Rows
from recombine.tables.reading import read_rows


def table(matrix, sizes=None):
    matrix = np.asarray(matrix)
    sizes = sizes or (matrix.max(axis=0) + 1).tolist()
    names = "abcdefgh"
    return Rows(
        "toy",
        tuple(
            Factor(names[i], tuple(f"{names[i]}{j}" for j in range(size)), matrix[:, i])
            for i, size in enumerate(sizes)
        ),
    )


def grid(*sizes, times=1):
    return table(list(itertools.product(*map(range, sizes))) * times, sizes)


def lines(rows, made, part):
    return [tuple(line) for line in rows.matrix()[made.rows_of(part)].tolist()]


def pairs(row):
    return set(itertools.combinations(enumerate(row), 2))


random_tables = st.builds(
    lambda seed, count: table(
        np.random.default_rng(seed).integers(0, [4, 5, 3], (count, 3)), [4, 5, 3]
    ),
    st.integers(0, 10**6),
    st.integers(30, 200),
)


@given(random_tables, st.integers(0, 5))
@settings(max_examples=12)
def test_no_test_combination_is_in_training_and_every_value_still_is(rows, seed):
    made = split(rows, SplitSpec("combination", validation=0.1, seed=seed))
    train, test = lines(rows, made, "train"), lines(rows, made, "test")
    validation = lines(rows, made, "validation")
    assert not set(test) & set(train)
    assert not set(validation) & (set(train) | set(test))
    for factor in range(3):
        assert {line[factor] for line in train} == set(rows.matrix()[:, factor].tolist())


@given(random_tables, st.integers(0, 5))
@settings(max_examples=12)
def test_withheld_pairs_are_in_no_training_row_and_their_rows_are_all_tested(rows, seed):
    made = split(rows, SplitSpec("pair", share=0.2, seed=seed))
    train, test = lines(rows, made, "train"), lines(rows, made, "test")
    seen = set().union(*map(pairs, train))
    assert made.withheld
    assert all(pairs(row) - seen for row in test)
    values = {(factor, value) for row in train for factor, value in enumerate(row)}
    assert values == {(f, v) for row in rows.matrix().tolist() for f, v in enumerate(row)}


def test_withheld_values_are_in_no_training_row():
    rows = grid(6, 6, 6)
    made = split(rows, SplitSpec("value", share=1 / 6))
    assert len(made.withheld) == 1
    assert len(made.rows_of("test")) == 36
    (number,) = made.withheld[0]
    factor, value = divmod(number, 6)
    assert all(row[factor] != value for row in lines(rows, made, "train"))
    assert all(row[factor] == value for row in lines(rows, made, "test"))


@pytest.mark.parametrize("method", ["random", "pair", "value", "divergence"])
@pytest.mark.parametrize("seed", [0, 1])
def test_blocks_are_never_divided(method, seed):
    rng = np.random.default_rng(seed)
    rows = table(rng.integers(0, 6, (400, 3)), [6, 6, 6])
    blocks = np.arange(400)
    blocks[:60] = rng.integers(0, 20, 60)
    made = split(rows, SplitSpec(method, share=0.25, validation=0.1, seed=seed), blocks)
    for block in np.unique(blocks):
        assert len(set(made.part[blocks == block].tolist())) == 1


@pytest.mark.parametrize("method", ["random", "combination", "pair", "value", "divergence"])
def test_the_same_seed_gives_the_same_parts_and_another_seed_other_ones(method):
    rows = grid(6, 6, times=3)
    one, again = (split(rows, SplitSpec(method, share=0.2)).part for _ in range(2))
    others = [split(rows, SplitSpec(method, share=0.2, seed=s)).part for s in (1, 2, 3)]
    assert (one == again).all()
    assert any((one != other).any() for other in others)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("method", ["random", "combination", "pair"])
def test_the_test_has_the_share_that_was_asked_for(method, share):
    rows = grid(10, 10, 4)
    made = split(rows, SplitSpec(method, share=share))
    assert abs(len(made.rows_of("test")) / len(rows) - share) <= 0.05 * share + 0.01
    assert made.unmet == ()


def test_a_latin_square_makes_compounds_all_new_and_atoms_the_same():
    rows = grid(6, 6)
    made = split(rows, SplitSpec("divergence", share=1 / 6))
    found = divergences(rows.take(made.rows_of("train")), rows.take(made.rows_of("test")))
    assert found.compounds == 1.0
    assert found.atoms <= 0.02


def test_divergence_beats_every_draw_at_random_and_keeps_atoms_within_the_limit():
    rows = grid(5, 5, 5)
    spec = SplitSpec("divergence", share=0.2, atom_limit=0.03)
    made = split(rows, spec)

    def apart(made):
        return divergences(rows.take(made.rows_of("train")), rows.take(made.rows_of("test")))

    found = apart(made)
    drawn = [apart(split(rows, SplitSpec("combination", seed=seed))) for seed in range(30)]
    assert found.atoms <= 0.03
    assert found.compounds > 2 * max(one.compounds for one in drawn)


def test_a_wanted_divergence_is_met():
    rows = grid(6, 6, 6)
    made = split(rows, SplitSpec("divergence", share=0.2, target_divergence=0.2))
    found = divergences(rows.take(made.rows_of("train")), rows.take(made.rows_of("test")))
    assert found.compounds == pytest.approx(0.2, abs=0.02)


def test_rows_that_may_be_left_out_allow_a_larger_divergence():
    rows = grid(5, 5, 5)
    whole = split(rows, SplitSpec("divergence", share=0.2))
    some = split(rows, SplitSpec("divergence", share=0.2, unused=0.4))

    def far(made):
        return divergences(rows.take(made.rows_of("train")), rows.take(made.rows_of("test")))

    assert not len(whole.rows_of("unused"))
    assert 0 < len(some.rows_of("unused")) <= 0.4 * len(rows)
    assert far(some).compounds > far(whole).compounds + 0.1


def test_what_cannot_be_divided_is_refused_with_the_reason():
    rows = grid(3, 3)
    with pytest.raises(InvalidRequest, match="tie all rows together"):
        split(rows, SplitSpec(), np.zeros(9, int))
    with pytest.raises(InvalidRequest, match=r"the smallest takes 0\.333"):
        split(rows, SplitSpec("value", share=0.1))
    with pytest.raises(InvalidRequest, match="holds every combination"):
        split(grid(2, 2, times=2), SplitSpec("combination"), np.array([0, 0, 0, 0, 1, 2, 3, 4]))
    with pytest.raises(InvalidRequest, match="did you mean 'pair'"):
        SplitSpec("pairs")
    with pytest.raises(InvalidRequest, match="nothing to train on"):
        SplitSpec(share=0.6, validation=0.5)
    with pytest.raises(InvalidRequest, match="needs 2 factors"):
        split(grid(4), SplitSpec("pair", share=0.4))


def test_a_value_that_cannot_stay_in_training_is_said():
    rows = table([[0, 0], [1, 1]] * 2)  # two combinations, and no value is in both
    made = split(rows, SplitSpec("combination", share=0.5))
    assert any("every value still in training" in text for text in made.unmet)


def test_missing_and_grouped_values_are_never_the_ones_withheld():
    first = Factor("a", ("(missing)", "(other)", "x", "y", "z"), np.arange(100) % 5)
    second = Factor("b", ("u", "v"), np.arange(100) // 5 % 2)
    for seed in range(5):
        made = split(Rows("toy", (first, second)), SplitSpec("value", share=0.2, seed=seed))
        assert all(number not in (0, 1) for (number,) in made.withheld)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1))
def test_together_joins_exactly_what_a_chain_of_labels_joins(labels):
    one, other = np.array(labels).T
    found = together(one, other)
    reach = np.array([[a == c or b == d for c, d in labels] for a, b in labels])
    for _ in labels:
        reach = (reach.astype(int) @ reach) > 0
    assert (reach == (found[:, None] == found[None])).all()


# --- files -----------------------------------------------------------------------------------


def write_csv(path, count=400, end="\r\n"):
    """Rows with quoted line breaks, groups, exact and near duplicates."""
    rng, before = np.random.default_rng(0), ""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator=end)
        writer.writerow(["id", "colour", "shape", "size", "who", "text"])
        for i in range(count):
            words = " ".join(f"w{n}" for n in rng.integers(0, 5000, 12))
            words = before if i % 40 == 39 else words
            before = words
            if i % 40 == 20:
                words = " ".join([*words.split()[:3], "…"])
            cells = [f"c{rng.integers(5)}", f"s{rng.integers(5)}", f"z{rng.integers(4)}"]
            who = f"p{rng.integers(30)}" if i % 5 == 0 else ""
            writer.writerow([i, *cells, who, f'A "{words}",\nindeed {"!" if i % 2 else "."}'])
    return path


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def parts_of(folder):
    return {p.stem: read(p) for p in folder.glob("*.csv") if p.stem in PARTS}


def test_a_size_that_was_not_met_is_told_as_a_share_of_the_file():
    sizes = [30, 20, 20, 15, 15]
    rows = Rows("toy", (Factor("a", tuple("pqrst"), np.repeat(np.arange(5), sizes)),))
    blocks = np.repeat(np.arange(5), sizes)
    made = split(rows, SplitSpec("random", share=0.2, validation=0.1), blocks)
    found = len(made.rows_of("validation")) / len(rows)
    assert f"validation was to be 10.0% of the rows and is {found:.1%}" in made.unmet
    with pytest.raises(InvalidRequest, match=r"takes 15\.0% of the rows.* share of about 0.15"):
        split(rows, SplitSpec("random", share=0.2, validation=0.02), blocks)


def test_a_file_is_divided_byte_by_byte_and_the_card_is_true(tmp_path):
    path = write_csv(tmp_path / "toy.csv")
    spec = SplitSpec("combination", share=0.2, validation=0.1)
    whole = Whole(text="text", id="id")
    card = split_file(path, ["colour", "shape", "size"], tmp_path / "out", spec, whole)
    parts = parts_of(tmp_path / "out")
    assert sorted(parts) == ["test", "train", "validation"]
    whole_file = path.read_bytes()
    header, body = whole_file.split(b"\r\n", 1)
    pieces = [(tmp_path / "out" / f"{name}.csv").read_bytes() for name in parts]
    assert all(piece.startswith(header + b"\r\n") for piece in pieces)
    assert sum(len(piece) - len(header) - 2 for piece in pieces) == len(body)
    ids = sorted(int(row["id"]) for part in parts.values() for row in part)
    assert ids == list(range(400))

    def combos(name):
        return {(r["colour"], r["shape"], r["size"]) for r in parts[name]}

    assert not combos("train") & combos("test")
    texts = [{r["text"] for r in part} for part in parts.values()]
    assert not any(a & b for a, b in itertools.combinations(texts, 2))
    assert card["against"]["test"]["combinations"]["never_trained"] == len(combos("test"))
    assert card["parts"]["train"]["rows"] == len(parts["train"])
    assert all(one["holds"] for one in card["guarantees"])
    assert json.loads((tmp_path / "out" / "card.json").read_text()) == json.loads(json.dumps(card))
    page = (tmp_path / "out" / "card.html").read_text()
    assert "none is in training" in page
    listed = read(tmp_path / "out" / "parts.csv")
    assert {r["row"] for r in listed if r["part"] == "test"} == {r["id"] for r in parts["test"]}


def test_groups_stay_whole_and_the_card_counts_those_that_do_not(tmp_path):
    path = write_csv(tmp_path / "toy.csv")
    kept = Whole(group="who", duplicates=False)
    factors = ["colour", "shape", "size"]
    card = split_file(path, factors, tmp_path / "out", SplitSpec(), kept)
    parts = parts_of(tmp_path / "out")
    who = [{r["who"] for r in part} - {""} for part in parts.values()]
    assert who[0]
    assert not who[0] & who[1]
    assert card["groups_across"] == 0
    assert card["duplicates_across"]["exact"] is None
    assert "duplicates were allowed to lie in two parts" in card["notes"]


def test_json_lines_keep_their_bytes(tmp_path):
    path = tmp_path / "toy.jsonl"
    lines = [json.dumps({"b": f"v{i % 7}", "a": [f"u{i % 5}", f"u{i % 3}"], "n": i}) + "  "
             for i in range(105)]  # fmt: skip
    path.write_text("\n".join([*lines[:50], "", *lines[50:]]))
    card = split_file(path, ["a", "b"], tmp_path / "out", SplitSpec("pair", share=0.3))
    written = [(tmp_path / "out" / f"{n}.jsonl").read_text().splitlines() for n in card["parts"]]
    assert sorted(itertools.chain(*written)) == sorted(lines)
    assert all(one["holds"] for one in card["guarantees"])
    train = read_rows(tmp_path / "out" / "train.jsonl", ["a", "b"])
    assert len(train) == card["parts"]["train"]["rows"]


def test_duplicates_of_whole_rows_do_not_count_the_id(tmp_path):
    path = tmp_path / "toy.csv"
    lines = ["id,a,b,note"]
    lines += [f"{i},a{i // 2 % 10},b{i // 20 % 5},n{i // 2}" for i in range(200)]
    path.write_text("\n".join(lines))
    with_id = split_file(path, ["a", "b"], tmp_path / "one", SplitSpec(), Whole(id="id"))
    parts = parts_of(tmp_path / "one")
    notes = [{r["note"] for r in part} for part in parts.values()]
    assert not notes[0] & notes[1]
    assert with_id["duplicates_across"]["exact"] == 0
    assert any("100 sets that stay together" in note for note in with_id["notes"])


def test_a_folder_that_is_there_is_not_touched(tmp_path):
    path = write_csv(tmp_path / "toy.csv", 50)
    (tmp_path / "out").mkdir()
    with pytest.raises(InvalidRequest, match="is there already"):
        split_file(path, ["colour"], tmp_path / "out", SplitSpec())
    assert list((tmp_path / "out").iterdir()) == []


def test_hostile_names_are_inert_on_the_card(tmp_path):
    path = tmp_path / "toy.csv"
    bad = "<script>alert(1)</script>"
    rows = [f"{bad if i % 4 == 0 else f'v{i % 4}'},u{i % 5},{i}" for i in range(100)]
    path.write_text("\n".join(["a,b,n", *rows]))
    split_file(path, ["a", "b"], tmp_path / "out", SplitSpec("pair", share=0.3))
    assert "<script" not in (tmp_path / "out" / "card.html").read_text()


def command(*words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    splitting.arguments(parser)
    return splitting.run(parser.parse_args(list(words)))


def test_the_command_prints_both_divergences_and_says_what_could_not_be_met(tmp_path, capsys):
    path = write_csv(tmp_path / "toy.csv")
    code = command(
        str(path), "--factors", "colour,shape,size", "--method", "divergence",
        "--target-divergence", ".95", "--to", str(tmp_path / "out"), "--quiet",
    )  # fmt: skip
    said = capsys.readouterr().out
    assert code == 1
    assert "divergence of atoms" in said
    assert "of compounds" in said
    assert "not met: compound divergence" in said
    code = command(str(path), "--factors", "colour,shape", "--to", str(tmp_path / "two"), "--json")
    assert code == 0
    assert json.loads(capsys.readouterr().out)["request"]["method"] == "random"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--factors", "color"], "did you mean 'colour'"),
        (["--group", "whom"], "did you mean 'who'"),
        (["--share", "1.5"], "^--share 1.5: expected more than 0 and less than 1"),
        (["--method", "divergence", "--atom-limit", "-1"], "^--atom-limit -1.0: expected 0 to 1"),
        (["--near", "2"], "^--near 2.0: expected"),
        (["--list", "colour"], "expected for instance tags=;"),
        (["--group", "colour", "--share", ".01"], "ask for a share of about"),
        (["--shingles", "words"], "expected characters:5 or words:3"),
    ],
)
def test_a_wrong_word_is_one_line_that_helps(tmp_path, words, message):
    path = write_csv(tmp_path / "toy.csv", 30)
    with pytest.raises(InvalidRequest, match=message):
        command(str(path), *words, "--to", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_source_that_cannot_be_copied_by_line_gets_the_numbers_of_rows(tmp_path, monkeypatch):
    # Stands for Parquet and dataset folders, which need a package of their own.
    monkeypatch.setattr("recombine.splits.writing.kind_of", lambda path: None)
    path = tmp_path / "toy.csv"
    lines = [f"a{i // 2 % 6},b{i // 12 % 5},n{i // 2}" for i in range(240)]
    path.write_text("\n".join(["a,b,note", *lines]))
    card = split_file(path, ["a", "b"], tmp_path / "out", SplitSpec("combination"))
    numbers = {n: [int(r["row"]) for r in read(tmp_path / "out" / f"{n}_rows.csv")]
               for n in ("train", "test")}  # fmt: skip
    assert sorted([*numbers["train"], *numbers["test"]]) == list(range(1, 241))
    said = [{lines[number - 1] for number in part} for part in numbers.values()]
    assert not said[0] & said[1]
    assert card["duplicates_across"]["exact"] == 0
    assert all(one["holds"] for one in card["guarantees"])


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_any_end_of_line_and_delimiter_is_kept(tmp_path, end):
    path = tmp_path / "toy.csv"
    path.write_bytes(
        end.join(["\ufeffa;b;n", *(f"a{i % 3};b{i % 4};{i}" for i in range(24))]).encode()
    )
    card = split_file(path, ["a", "b"], tmp_path / "out", SplitSpec("random", share=0.25))
    test = (tmp_path / "out" / "test.csv").read_bytes()
    assert test.startswith("\ufeffa;b;n".encode() + end.encode())
    assert card["parts"]["test"]["rows"] == 6
    assert all(one["holds"] for one in card["guarantees"])


def test_no_more_rows_are_left_out_than_may_be():
    rng = np.random.default_rng(0)
    uneven = [rng.choice(4, 400, p=[0.5, 0.25, 0.2, 0.05]), rng.choice(3, 400)]
    rows = Rows("toy", tuple(
        Factor(name, tuple("pqrs"[: codes.max() + 1]), codes)
        for name, codes in zip("ab", uneven, strict=True)
    ))  # fmt: skip
    made = split(rows, SplitSpec("divergence", share=0.2, unused=0.3))
    assert len(made.rows_of("unused")) <= 0.3 * len(rows)


def test_lists_of_a_csv_are_divided_by_what_they_hold(tmp_path, capsys):
    path = tmp_path / "k.csv"
    pairs = itertools.combinations("abcdef", 2)
    path.write_text("tags,kind\n" + "".join(f"{p};{q},{k}\n" for p, q in pairs for k in "xyz"))
    command(str(path), "--list", "tags=;", "--method", "pair", "--to", str(tmp_path / "out"))
    assert "of 9 values" in capsys.readouterr().out.split("training: ")[1].splitlines()[0]


def test_a_column_that_tells_all_rows_apart_is_not_taken_for_a_factor(tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text("who,a,b\n" + "".join(f"n{i},{i % 3},{i % 4}\n" for i in range(60)))
    command(str(path), "--method", "combination", "--to", str(tmp_path / "out"))
    assert "left out: who" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    path = write_csv(tmp_path / "toy.csv", 30)
    with pytest.raises(InvalidRequest, match="cannot be written; give another folder"):
        command(str(path), "--to", str(path / "out"))


def test_the_atom_limit_holds_even_where_compounds_would_gain_by_breaking_it():
    draw = np.random.default_rng(0)
    factors = []
    for place, count in enumerate((6, 5, 4, 8)):
        shares = 1 / np.arange(1, count + 1) ** 0.7
        codes = draw.choice(count, 20_000, p=shares / shares.sum())
        factors.append(Factor(f"f{place}", tuple(f"v{n}" for n in range(count)), codes))
    rows = Rows("toy", tuple(factors))
    for limit in (0.005, 0.02):
        found = split(rows, SplitSpec("divergence", atom_limit=limit))
        train, test = (rows.take(found.rows_of(part)) for part in ("train", "test"))
        by_chance = split(rows, SplitSpec("combination"))
        usual = divergences(*(rows.take(by_chance.rows_of(p)) for p in ("train", "test")))
        assert divergences(train, test).atoms <= limit and not found.unmet
        assert divergences(train, test).compounds > usual.compounds
