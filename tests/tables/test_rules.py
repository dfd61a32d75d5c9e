"""Rules about what can be combined: their language, what they forbid, what follows from them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.tables.rows import NONE, Factor, Rows
from recombine.tables.rule_syntax import (
    And,
    If,
    Not,
    Or,
    Term,
    forbidding,
    parse_rule,
    split_rules,
    written,
)
from recombine.tables.rules import Rules, parse_rules, read_rules_file, rules_for

NAMES = ("a", "b", "c", "d")
VALUES = (("x", "y", "z"), ("x", "y"), ("1", "2", "3"), ("2", "3", "ten"))

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
bare = st.from_regex(r"[a-z][a-z0-9_.]{0,3}", fullmatch=True).filter(
    lambda word: word.upper() not in ("IF", "THEN", "ELSE", "AND", "OR", "NOT", "IN", "LIKE")
)
any_terms = st.one_of(
    st.builds(
        lambda f, r, v: Term(f, r, (v,)), words, st.sampled_from(["=", "<>", "<", "LIKE"]), words
    ),
    st.builds(lambda f, v: Term(f, "IN", tuple(v)), words, st.lists(words, min_size=1, max_size=3)),
    st.builds(lambda f, v: Term(f, ">=", (v,), "bare"), words, bare),
    st.builds(lambda f, g: Term(f, "<>", (g,), "factor"), words, words),
)


@st.composite
def known_terms(draw) -> Term:
    """Terms about the four factors above."""
    place = draw(st.integers(0, 3))
    name, values = NAMES[place], VALUES[place]
    kind = draw(st.sampled_from(["is", "in", "like", "number", "factor"]))
    if kind == "is":
        value = draw(st.sampled_from(values))
        return Term(name, draw(st.sampled_from(["=", "<>"])), (value,))
    if kind == "in":
        return Term(name, "IN", tuple(draw(st.lists(st.sampled_from(values), min_size=1))))
    if kind == "like":
        return Term(name, "LIKE", (draw(st.sampled_from(["*", "?", "t*", "X", "*e*"])),))
    if kind == "number" and place >= 2:
        relation = draw(st.sampled_from(["<", "<=", ">", ">="]))
        return Term(name, relation, (draw(st.sampled_from(["1", "2", "2.5", "9"])),))
    other = draw(st.sampled_from([n for n in NAMES if n != name]))
    relations = ["=", "<>", "<", ">="] if {name, other} == {"c", "d"} else ["=", "<>"]
    return Term(name, draw(st.sampled_from(relations)), (other,), "factor")


def trees(terms):
    def grown(inner):
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.one_of(st.builds(Not, inner), st.builds(And, several), st.builds(Or, several))

    nodes = st.recursive(terms, grown, max_leaves=4)
    return st.one_of(nodes, st.builds(If, nodes, nodes, st.none() | nodes))


def holds(node, line: dict[str, str]) -> bool:
    """The meaning of a rule for one combination, straight from the words."""
    if isinstance(node, If):
        then = holds(node.then, line)
        other = node.otherwise is None or holds(node.otherwise, line)
        return then if holds(node.condition, line) else other
    if isinstance(node, Not):
        return not holds(node.part, line)
    if isinstance(node, And):
        return all(holds(part, line) for part in node.parts)
    if isinstance(node, Or):
        return any(holds(part, line) for part in node.parts)
    left = line[node.factor]
    if node.relation == "IN":
        return left in node.right
    if node.relation == "LIKE":
        pattern = node.right[0].lower()
        return {
            "*": True, "?": len(left) == 1, "t*": left.startswith("t"), "x": left == "x",
            "*e*": "e" in left,
        }[pattern]  # fmt: skip
    right = line[node.right[0]] if node.kind == "factor" else node.right[0]
    if node.relation in ("=", "<>"):
        return (left == right) == (node.relation == "=")
    if "ten" in (left, right):
        return False
    compare = {"<": float.__lt__, "<=": float.__le__, ">": float.__gt__, ">=": float.__ge__}
    return compare[node.relation](float(left), float(right))


def everything() -> np.ndarray:
    return np.array(list(itertools.product(*(range(len(v)) for v in VALUES))))


def allowed_lines(nodes) -> np.ndarray:
    lines = everything()
    named = [
        {n: VALUES[f][c] for f, (n, c) in enumerate(zip(NAMES, line, strict=True))}
        for line in lines
    ]
    return np.array([all(holds(node, line) for node in nodes) for line in named])


@given(trees(any_terms))
def test_a_rule_written_out_and_read_again_is_the_same_rule(tree):
    assert parse_rule(written(tree)) == tree


@given(st.lists(trees(known_terms()), min_size=1, max_size=3))
@settings(max_examples=150)
def test_rules_forbid_what_their_words_say(nodes):
    rules = parse_rules([written(node) for node in nodes], NAMES, VALUES)
    np.testing.assert_array_equal(rules.forbidden(everything()), ~allowed_lines(nodes))


@given(st.lists(trees(known_terms()), min_size=1, max_size=4), st.data())
@settings(max_examples=100)
def test_what_is_possible_agrees_with_trying_every_combination(nodes, data):
    rules = parse_rules([written(node) for node in nodes], NAMES, VALUES)
    kept = everything()[allowed_lines(nodes)]
    for t in (1, 2, 3):
        chosen = sorted(data.draw(st.permutations(range(4)))[:t])
        table = np.zeros([len(VALUES[f]) for f in chosen], bool)
        table[tuple(kept[:, chosen].T)] = True
        np.testing.assert_array_equal(rules.possible_table(chosen), table)
        cell = tuple(data.draw(st.integers(0, n - 1)) for n in table.shape)
        assert rules.possible(dict(zip(chosen, cell, strict=True))) == table[cell]
    assert rules.possible({}) == bool(len(kept))


@given(st.lists(trees(known_terms()), min_size=1, max_size=6))
@settings(max_examples=100)
def test_a_conflict_is_named_by_rules_none_of_which_can_be_left_out(nodes):
    texts = list(dict.fromkeys(written(node) for node in nodes))
    rules = parse_rules(texts, NAMES, VALUES)
    if allowed_lines([parse_rule(text) for text in texts]).any():
        rules.check()
        return
    with pytest.raises(InvalidRequest, match="contradict") as caught:
        rules.check()
    told = str(caught.value).partition("is possible: ")[2].partition("; take one")[0]
    named = [text for text in texts if text in told.split("; ")]
    assert told.split("; ") == named
    assert not allowed_lines([parse_rule(text) for text in named]).any()
    for left_out in named:
        rest = [parse_rule(text) for text in named if text != left_out]
        assert allowed_lines(rest).any()


LISTS = (("x", "y"), ("p", "q", "r"))


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ('IF a=x THEN [held] <> "p"', lambda a, h: a == 0 and 0 in h),
        ('IF a=x THEN held = "p"', lambda a, h: a == 0 and 0 not in h),
        ("IF held=p THEN held<>q", lambda a, h: {0, 1} <= h),
        ('IF held IN {"p", "q"} THEN a=x', lambda a, h: a != 0 and bool(h & {0, 1})),
        ("IF held=p THEN held=q OR held=r", lambda a, h: 0 in h and not h & {1, 2}),
        ("NOT (held=p AND held=q AND a=y)", lambda a, h: {0, 1} <= h and a == 1),
    ],
)
def test_a_rule_about_a_list_is_about_what_the_list_holds(text, fails):
    rules = parse_rules([text], ["a", "held"], LISTS, many=[1])
    held = [set(s) for n in range(4) for s in itertools.combinations(range(3), n)]
    lines = list(itertools.product(range(2), held))
    codes = np.full((len(lines), 3), NONE, np.int32)
    for row, (_, values) in enumerate(lines):
        codes[row, : len(values)] = sorted(values)
    rows = Rows(
        "lists",
        (Factor("a", LISTS[0], np.array([a for a, _ in lines])), Factor("held", LISTS[1], codes)),
    )
    broken = np.array([fails(a, values) for a, values in lines])
    np.testing.assert_array_equal(rules.forbidden_rows(rows), broken)
    np.testing.assert_array_equal(rules_for(rows, [text]).forbidden_rows(rows), broken)
    kept = [line for line, bad in zip(lines, broken, strict=True) if not bad]
    for v, w in itertools.product(range(3), repeat=2):
        together = v < w and any({v, w} <= values for _, values in kept)
        assert rules.possible_table([1, 1])[v, w] == together
    for a, v in itertools.product(range(2), range(3)):
        assert rules.possible_table([0, 1])[a, v] == any(b == a and v in h for b, h in kept)


def test_the_rules_of_the_pict_manual_are_understood():
    names = ["Type", "Size", "Format method", "File system", "Cluster size", "Compression"]
    values = [
        ["Primary", "Logical", "Single", "Span", "Stripe", "Mirror", "RAID-5"],
        ["10", "100", "500", "1000", "5000", "10000", "40000"],
        ["quick", "slow"],
        ["FAT", "FAT32", "NTFS"],
        ["512", "1024", "2048", "4096", "8192", "16384", "32768", "65536"],
        ["on", "off"],
    ]
    rules = parse_rules(
        split_rules(
            """
            # file systems have size limits
            IF [File system] = "FAT"   THEN [Size] <= 4096;
            IF [File system] = "FAT32" THEN [Size] <= 32000;
            IF [File system] in {"FAT", "FAT32"} or
               ([File system] = "NTFS" and [Cluster size] > 4096)
            THEN [Compression] = "off";
            """
        ),
        names,
        values,
    )
    assert len(rules.texts) == 3
    table = rules.possible_table([1, 3])
    assert table[:, 0].tolist() == [True] * 4 + [False] * 3
    assert table[:, 1].tolist() == [True] * 6 + [False]
    assert table[:, 2].all()
    compressed = rules.possible_table([4, 5])[:, 0]
    assert compressed.tolist() == [True] * 4 + [False] * 4
    # Compression needs NTFS, which follows from the rules without standing in one.
    assert rules.possible_table([3, 5])[:, 0].tolist() == [False, False, True]


def test_code_that_is_not_set_yet_is_never_forbidden():
    rules = parse_rules(["IF a=x THEN b<>y"], NAMES, VALUES)
    lines = np.array([[0, 1, 0, 0], [0, -1, 0, 0], [-1, 1, 0, 0]])
    assert rules.forbidden(lines).tolist() == [True, False, False]


def test_no_rules_forbid_nothing():
    rules = Rules.none(NAMES, VALUES)
    assert not rules.forbidden(everything()).any()
    assert rules.possible_table([0, 1]).all() and rules.check() == []


def test_values_that_can_never_occur_are_told_with_the_rules_that_say_so():
    texts = ["IF a=x THEN b=y", "IF a=x THEN b=x", "c <> 2"]
    notes = parse_rules(texts, NAMES, VALUES).check()
    assert notes == [
        "a=x can never occur because of IF a=x THEN b=y; IF a=x THEN b=x",
        "c=2 can never occur because of c <> 2",
    ]


def test_a_rule_that_forbids_nothing_is_told():
    assert parse_rules(["a = x OR a <> x"], NAMES, VALUES).check() == [
        "the rule a = x OR a <> x forbids nothing"
    ]


def test_values_are_found_by_other_capitals_and_as_numbers():
    rules = parse_rules(["A = X", "c = 2.0"], NAMES, VALUES)
    assert rules.possible_table([0]).tolist() == [True, False, False]
    assert rules.possible_table([2]).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("IF a=x", "THEN is expected"),
        ("a = ", "ends where a value is expected"),
        ("a x", "after 'a' comes one of"),
        ('a = "x', "never closed"),
        ("(a = x", "closing parenthesis"),
        ("a IN x", "values in braces"),
        ("a = x b = y", "comes after its end"),
        ("a = THEN", "quote it"),
        ("(" * 99 + "a=x" + ")" * 99, "more than 50 deep"),
        ("NOT " * 99 + "a=x", "more than 50 deep"),
        ("", "ends where the name of a factor"),
        ("colour = red", "unknown factor .* 'colour'"),
        ("a = xx", "unknown value of 'a' .* did you mean 'x'"),
        ("a < 3", "none of them is a number"),
        ("c < ten", "not a number"),
        ("[a] = [a]", "with itself"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused_with_the_reason(text, why):
    with pytest.raises(InvalidRequest, match=why):
        parse_rules([text], NAMES, VALUES)


def test_a_list_is_compared_with_values_and_not_with_factors():
    with pytest.raises(InvalidRequest, match="'held', which holds lists"):
        parse_rules(["[a] = [held]"], ["a", "held"], LISTS, many=[1])


def test_a_rules_file_has_a_rule_a_line_or_semicolons(tmp_path):
    lines, marks = tmp_path / "lines.txt", tmp_path / "marks.txt"
    lines.write_text("# a note\nIF a=x THEN b<>y\n\na <> b\n")
    marks.write_text('IF [a] = "x;"\n  THEN [b] <> "y";\n# a note\n[a;] <> [b];\n')
    assert read_rules_file(lines) == ["IF a=x THEN b<>y", "a <> b"]
    assert read_rules_file(marks) == ['IF [a] = "x;"   THEN [b] <> "y"', "[a;] <> [b]"]
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_rules_file(tmp_path / "absent.txt")


def test_rows_coded_otherwise_than_the_rules_are_refused():
    rules = parse_rules(["a=x"], ["a"], [("x", "y")])
    with pytest.raises(InvalidRequest, match="align the tables first"):
        rules.forbidden_rows(Rows("other", (Factor("a", ("x",), np.array([0])),)))


def test_factors_with_many_values_are_compared_without_trying_every_cell():
    size = 300
    values = tuple(map(str, range(size)))
    rules = parse_rules(["[a] <> [b]", "[b] < 299"], ["a", "b", "c"], [values, values, ("u", "v")])
    table = rules.possible_table([0, 1, 2])
    assert table.sum() == 2 * (size * (size - 1) - (size - 1))
    assert rules.possible_table([0, 2]).all()
    assert math.prod(table.shape) == 2 * size * size


def test_rules_too_tangled_to_follow_are_refused_and_not_followed_for_hours(monkeypatch):
    from recombine.tables import rule_search

    monkeypatch.setattr(rule_search, "MOST_STEPS", 50)
    holes, names = 7, [f"pigeon {i}" for i in range(8)]
    values = [tuple(f"hole {i}" for i in range(holes))] * 8
    texts = [f"[{a}] <> [{b}]" for a, b in itertools.combinations(names, 2)]
    with pytest.raises(InvalidRequest, match="too tangled"):
        parse_rules(texts, names, values).check()


# --- what --forbid says ---


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("a=x", "NOT a=x"),
        ("a=x AND b=y", "IF a=x THEN b<>y"),
        ("a IN {x, y} OR b=y", "NOT a IN {x, y} AND b<>y"),
        ("[a] = [b]", "[a] <> [b]"),
        ("IF a=x THEN b<>y", "IF a=x THEN b<>y"),
    ],
)
def test_a_line_without_if_names_what_is_forbidden(text, means):
    names, values = ["a", "b"], [("x", "y", "z"), ("x", "y", "z")]
    tables = [
        parse_rules([each], names, values).possible_table([0, 1])
        for each in (forbidding(text), means)
    ]
    assert (tables[0] == tables[1]).all() and not tables[0].all()


@pytest.mark.parametrize("text", ["a<>x", "NOT a=x", "a=x AND NOT b=y", "a NOT IN {x}", "a!=x"])
def test_a_line_that_forbids_a_denial_is_refused_and_says_what_to_write(text):
    with pytest.raises(InvalidRequest, match=r"two things.*IF .*THEN.*--rules"):
        forbidding(text)
