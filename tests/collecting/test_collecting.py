"""Plans are as good as brute force finds, keep to rules and budgets, and say how good they are."""

from __future__ import annotations

import argparse
import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.cli import collecting as command
from recombine.collecting import Goals, Space, collect, exact
from recombine.errors import InvalidRequest, RecombineError
from recombine.report.html import render
from recombine.tables.rows import Factor, Rows
from recombine.tables.rules import parse_rules

Line = tuple[int, ...]
COVER = Goals(cover=1, connect=0, balance=0)


def of_sizes(sizes: list[int]) -> Space:
    names = tuple("abcdefgh"[: len(sizes)])
    values = [tuple(f"{n}{j}" for j in range(k)) for n, k in zip(names, sizes, strict=True)]
    return Space(names, tuple(values))


def pairs(lines: list[Line]) -> set[tuple[int, int, int, int]]:
    return {
        (i, j, line[i], line[j])
        for line in lines
        for i, j in itertools.combinations(range(len(line)), 2)
    }


def parts(space: Space, lines: list[Line]) -> int:
    """Parts of the value graph, found by spreading from value to value."""
    left = {(f, v) for f, size in enumerate(space.sizes) for v in range(size)}
    count = 0
    while left:
        count, front = count + 1, [left.pop()]
        while front:
            node = front.pop()
            near = {n for line in lines if line[node[0]] == node[1] for n in enumerate(line)}
            front += near & left
            left -= near
    return count


@st.composite
def small_cases(draw: st.DrawFn) -> tuple[Space, list[str], list[Line], list[Line], int]:
    """A space, a rule or none, all permitted combinations, some rows, and a budget."""
    sizes = draw(st.lists(st.integers(2, 3), min_size=2, max_size=3))
    space = of_sizes(sizes)
    a, b = draw(st.integers(0, sizes[0] - 1)), draw(st.integers(0, sizes[1] - 1))
    ruled = draw(st.booleans())
    lines = [line for line in itertools.product(*map(range, sizes))
             if not (ruled and line[:2] == (a, b))]  # fmt: skip
    rows = draw(st.lists(st.sampled_from(lines), max_size=4))
    return space, [f"IF a=a{a} THEN b<>b{b}"] * ruled, lines, rows, draw(st.integers(1, 3))


def table(space: Space, lines: list[Line]) -> Rows | None:
    return space.as_rows(np.array(lines), "rows") if lines else None


@settings(max_examples=30)
@given(small_cases())
def test_a_small_plan_covers_as_much_as_any(case) -> None:
    space, texts, lines, rows, budget = case
    rules = parse_rules(texts, space.names, space.values)
    plan = collect(table(space, rows), space, rules, budget, goals=COVER)
    best = max(len(pairs(rows + list(new))) for new in itertools.combinations(lines, budget))
    got = rows + [tuple(int(c) for c in line) for line in plan.codes]
    assert plan.gains[-1].covered == len(pairs(got)) == best
    assert plan.exact
    assert plan.possible == len(pairs(lines))


@settings(max_examples=20)
@given(small_cases())
def test_a_small_plan_is_worth_most_when_it_connects_and_covers(case) -> None:
    space, texts, lines, rows, budget = case
    rules = parse_rules(texts, space.names, space.values)
    plan = collect(table(space, rows), space, rules, budget, goals=Goals(1, 2, 0))
    lacking, joins = len(pairs(lines)) - len(pairs(rows)), parts(space, rows) - 1

    def worth(new: list[Line]) -> float:
        covering = (len(pairs(rows + new)) - len(pairs(rows))) / max(lacking, 1)
        return covering + 2 * (joins + 1 - parts(space, rows + new)) / max(joins, 1)

    best = max(worth(list(new)) for new in itertools.combinations(lines, budget))
    got = [tuple(int(c) for c in line) for line in plan.codes]
    assert worth(got) == pytest.approx(best)
    assert plan.gains[-1].parts == parts(space, rows + got)


@settings(max_examples=20)
@given(small_cases(), st.integers(0, 3))
def test_a_small_plan_with_costs_is_the_best_for_its_budget(case, price: int) -> None:
    space, texts, lines, rows, budget = case
    rules = parse_rules(texts, space.names, space.values)
    costs = {"a": {"a0": float(price)}, "b": {"b1": 0.5}}
    plan = collect(table(space, rows), space, rules, budget, goals=COVER, costs=costs)

    def cost(new) -> float:
        return sum(1 + price * (line[0] == 0) + 0.5 * (line[1] == 1) for line in new)

    choices = [new for n in range(budget + 1) for new in itertools.combinations(lines, n)]
    best = max(len(pairs(rows + list(new))) for new in choices if cost(new) <= budget)
    got = [tuple(int(c) for c in line) for line in plan.codes]
    assert len(pairs(rows + got)) == best
    assert plan.gains[-1].cost == pytest.approx(cost(got))
    assert cost(got) <= budget


@settings(max_examples=20)
@given(small_cases())
def test_the_greedy_plan_keeps_the_bound_it_states(case) -> None:
    space, texts, lines, rows, budget = case
    rules = parse_rules(texts, space.names, space.values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "small", lambda *_: False)
        plan = collect(table(space, rows), space, rules, budget, goals=COVER)
    before = len(pairs(rows))
    best = max(len(pairs(rows + list(new))) for new in itertools.combinations(lines, budget))
    assert plan.gains[-1].covered - before >= (1 - np.exp(-1)) * (best - before) - 1e-9
    assert best / plan.possible <= plan.at_most + 1e-9


@settings(max_examples=4)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_no_plan_holds_what_rules_forbid_or_more_than_its_budget(seed: int, budget: int) -> None:
    draw = np.random.default_rng(seed)
    space = of_sizes([3, 4, 3, 4, 3, 5])
    texts = [
        f"IF {a}={a}{i} AND {b}<>{b}{j} THEN {c}<>{c}{k}"
        for a, b, c in (draw.choice(list("abcdef"), 3, replace=False) for _ in range(4))
        for i, j, k in [draw.integers(3, size=3)]
    ]
    rules = parse_rules(texts, space.names, space.values)
    plan = collect(None, space, rules, budget, seed=seed, work=1e4)
    assert not rules.forbidden(plan.codes).any()
    assert len(plan) <= budget
    assert plan.gains[-1].share <= plan.at_most + 1e-9


def test_gains_say_what_each_combination_brings() -> None:
    space, rows = of_sizes([3, 3, 2, 2]), [(0, 0, 0, 0), (1, 1, 1, 1)]
    plan = collect(table(space, rows), space, budget=5)
    for number, gain in enumerate(plan.gains):
        lines = rows + [tuple(int(c) for c in line) for line in plan.codes[:number]]
        assert gain.covered == len(pairs(lines))
        assert gain.share == pytest.approx(len(pairs(lines)) / plan.possible)
        assert gain.parts == parts(space, lines)
        shares = []
        for place, size in enumerate(space.sizes):
            p = np.bincount([line[place] for line in lines], minlength=size) / len(lines)
            shares.append(-sum(x * np.log(x) for x in p if x) / np.log(size))
        assert gain.balance == pytest.approx(np.mean(shares))


def test_rows_that_cover_everything_leave_nothing_to_collect() -> None:
    space = of_sizes([2, 3, 2])
    every = list(itertools.product(range(2), range(3), range(2)))
    plan = collect(table(space, every), space, budget=50)
    assert (len(plan), plan.flattening) == (0, "Nothing is left to collect.")
    assert plan.complete


def test_parts_of_the_value_graph_are_joined_first_where_that_is_the_order() -> None:
    space = of_sizes([4, 4, 4, 4])
    rows = [(0, 0, 0, 0), (0, 1, 1, 0), (1, 0, 1, 1), (2, 2, 2, 2), (3, 3, 2, 2), (2, 3, 3, 3)]
    assert parts(space, rows) == 2
    plan = collect(table(space, rows), space, budget=2, goals=Goals(order=("connect", "cover")))
    assert [gain.parts for gain in plan.gains] == [2, 1, 1]


def test_balance_alone_evens_out_how_often_values_are_used() -> None:
    space = of_sizes([2, 4])
    rows = [(0, 0)] * 6 + [(0, 1)] * 2
    plan = collect(table(space, rows), space, budget=6, goals=Goals(0, 0, 1))
    assert plan.gains[-1].rows == 6
    each = np.diff([gain.rows for gain in plan.gains])
    used = np.bincount([int(line[1]) for line in plan.codes], each, minlength=4)
    assert used.tolist()[0] == 0 and min(used[2:]) >= 2
    assert {int(line[0]) for line in plan.codes} == {1}
    assert "balance goes from" in plan.summary


def test_the_curve_looks_at_joins_where_the_plan_is_made_for_them() -> None:
    space = Space(("a", "b"), (("x", "y", "new", "dear"), ("p", "q")))
    rows = [(0, 0), (0, 1), (1, 0), (1, 1)]
    met = space.as_rows(np.array([*rows, (3, 0)]), "target")
    plan = collect(table(space, rows), space, budget=8, target=met, costs={"a": {"dear": 9}})
    # The one interaction that is lacking cannot be paid for: a join is all there is to have.
    assert [gain.covered for gain in plan.gains] == [4, 4] and plan.gains[0].parts == 3
    assert [gain.parts for gain in plan.gains] == [3, 2]
    assert (plan.flattens, plan.met) == (None, False)
    assert plan.flattening == "The curve has not flattened: more budget brings more."
    assert "leaves what is covered at" in plan.summary


@pytest.mark.parametrize("order", [("cover", "balance"), ("cover", "connect", "balance")])
def test_nothing_is_proposed_for_balance_unless_balance_alone_is_asked(order) -> None:
    space = of_sizes([2, 2])
    rows = [*itertools.product(range(2), range(2)), (0, 0), (0, 0)]
    plan = collect(table(space, rows), space, budget=3, goals=Goals(order=order))
    assert (len(plan), plan.flattening) == (0, "Nothing is left to collect.")
    plan = collect(table(space, rows), space, budget=3, goals=Goals(order=("balance",)))
    assert len(plan) and "covered" not in plan.flattening and not plan.met
    # Nor where something is lacking that the budget cannot pay for.
    costs = {"b": {"b0": 99.0}}
    plan = collect(table(space, rows[1:4]), space, budget=3, goals=Goals(order=order), costs=costs)
    assert len(plan) == 0 and "what would only balance is left out" in plan.bound


def test_a_plan_that_only_connects_ends_where_all_is_connected() -> None:
    space = of_sizes([3, 3])
    plan = collect(table(space, [(0, 0), (1, 1), (2, 2)]), space, budget=9,
                   goals=Goals(order=("connect",)))  # fmt: skip
    assert plan.flattening == "Everything asked for is connected after 2 combinations, not before."


def test_a_value_cannot_act_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("a,b\n\x1b[31mred\x1b[0m,x\u202ey\nz,w\n" * 4)
    command.run(typed(f"{tmp_path}/t.csv --budget 3"))
    told = capsys.readouterr()
    assert "\ufffd[31mred" in told.out
    assert not {"\x1b", "\u202e"} & set(told.out + told.err)


def test_what_is_met_often_is_collected_first_and_what_is_never_met_not_at_all() -> None:
    space = of_sizes([3, 3])
    met = space.as_rows(np.array([(0, 1), (1, 2), (2, 0)]), "target")
    target = Rows("t", met.factors, {"weight": np.array([1.0, 7.0, 2.0])})
    plan = collect(None, space, budget=9, target=target, target_weight="weight",
                   goals=Goals(cover=1, connect=0, balance=0))  # fmt: skip
    assert [tuple(map(int, line)) for line in plan.codes] == [(1, 2), (2, 0), (0, 1)]
    assert [gain.share for gain in plan.gains] == pytest.approx([0, 0.7, 0.9, 1.0])


@pytest.mark.parametrize(("per_combination", "min_count"), [(1, 2), (2, 3), (3, 3), (5, 2)])
def test_interactions_get_the_rows_they_need(per_combination: int, min_count: int) -> None:
    space, rows = of_sizes([3, 2, 3]), [(0, 0, 0), (1, 1, 1)]
    plan = collect(table(space, rows), space, budget=None, per_combination=per_combination,
                   min_count=min_count, work=1e4)  # fmt: skip
    each = np.diff([gain.rows for gain in plan.gains])
    new = [
        tuple(map(int, line)) for line, n in zip(plan.codes, each, strict=True) for _ in range(n)
    ]
    for i, j in itertools.combinations(range(3), 2):
        counts = np.zeros((space.sizes[i], space.sizes[j]), int)
        for line in rows + new:
            counts[line[i], line[j]] += 1
        assert counts.min() >= min_count
    assert plan.gains[-1].rows == len(new) and not (each % per_combination).any()
    assert len({tuple(line) for line in plan.codes.tolist()}) == len(plan)


@pytest.mark.parametrize("sizes", [[3, 3], [2, 3, 4], [3, 3, 3, 3]])
@pytest.mark.parametrize("budget", [10, 30])
def test_no_combination_is_proposed_twice_for_balance_alone(sizes: list[int], budget: int) -> None:
    space = of_sizes(sizes)
    dear = {space.names[0]: {space.values[0][0]: 50.0}}
    plan = collect(None, space, budget=budget, per_combination=2, costs=dear, work=1e4)
    assert len({tuple(line) for line in plan.codes.tolist()}) == len(plan) > 0
    assert [gain.combinations for gain in plan.gains] == list(range(len(plan) + 1))
    assert plan.gains[-1].rows == 2 * len(plan) and plan.gains[-1].cost <= budget


def lists(most: int, count: int, seed: int) -> Rows:
    draw = np.random.default_rng(seed)
    held = np.array([np.sort(draw.choice(6, most, replace=False)) for _ in range(count)], np.int32)
    kind = draw.integers(0, 2, count).astype(np.uint8)
    return Rows(
        "lists", (Factor("modules", tuple("pqrstu"), held), Factor("kind", ("x", "y"), kind))
    )


@settings(max_examples=4)
@given(st.integers(2, 3), st.integers(1, 5), st.integers(0, 99))
def test_values_of_one_list_are_paired_with_one_another(most: int, count: int, seed: int) -> None:
    rows = lists(most, count, seed)
    space = Space.of(rows)
    rules = parse_rules(["IF modules=p THEN kind=x"], space.names, space.values, [0])
    plan = collect(rows, space, rules, None, work=1e4)
    assert not rules.forbidden_rows(plan.table()).any()
    held = [set(row["modules"]) for row in plan.rows]
    assert all(len(one) == len(row["modules"]) <= most
               for one, row in zip(held, plan.rows, strict=True))  # fmt: skip
    before = [{"pqrstu"[c] for c in line} for line in rows.factors[0].codes]
    for one, two in itertools.combinations("pqrstu", 2):
        assert any({one, two} <= several for several in before + held)


def test_missing_and_grouped_values_are_never_proposed() -> None:
    values = ("red", "(missing)", "(other)")
    rows = Rows("r", (Factor("colour", values, np.array([0, 1, 2])),
                      Factor("shape", ("cube", "ball", "cone"), np.array([0, 0, 0]))))  # fmt: skip
    plan = collect(rows, Space.of(rows, {"colour": ["blue"]}), budget=20)
    assert {row["colour"] for row in plan.rows} == {"red", "blue"}
    assert plan.complete and plan.possible == 6


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"strength": 5}, "strength 5"),
        ({"strength": 4}, "only 3 places"),
        ({"groups": {("a", "z"): 2}}, "unknown factor 'z'"),
        ({"budget": 0}, "buys nothing"),
        ({"min_count": 0}, "at least 1"),
        ({"costs": {"a": {"red": 1}}}, "unknown value of a"),
        ({"costs": {"a": {"a0": -1}}}, "at least 0"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(change: dict, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        collect(None, of_sizes([2, 2, 2]), **change)


def test_rules_that_leave_nothing_are_refused_and_values_outside_the_space_named() -> None:
    space = of_sizes([2, 2])
    rules = parse_rules(["a = a0", "a <> a0"], space.names, space.values)
    with pytest.raises(InvalidRequest, match="contradict"):
        collect(None, space, rules, 5)
    with pytest.raises(InvalidRequest, match="'a2' of a"):
        collect(of_sizes([3, 2]).as_rows(np.array([(2, 0)]), "r"), space, None, 5)
    for wrong in ({"order": ("cover", "win")}, {"cover": -1.0}, {"order": ("cover", "cover")}):
        with pytest.raises(InvalidRequest):
            Goals(**wrong)


def test_a_plan_can_be_read_by_machines_and_people_and_runs_nothing() -> None:
    bad = "<script>alert(1)</script>"
    space = Space(("=1+1", "b"), ((bad, "y"), ("u", "{{7*7}}")))
    plan = collect(None, space, budget=3)
    again = json.loads(json.dumps(plan.document()))
    assert again["combinations"] == plan.rows and len(again["gains"]) == len(plan) + 1
    page = render(plan.report())
    assert "<script" not in page and "&lt;script&gt;" in page and "{{7*7}}" in page


# --- the command -----------------------------------------------------------------------------

FILE = "colour,shape,material\nred,cube,metal\nblue,ball,glass\nred,cube,glass\ngreen,cone,wood\n"


def typed(words: str, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    command.arguments(parser)
    return parser.parse_args([*words.split(), *more])


def test_the_command_prints_what_to_collect_and_writes_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text(FILE)
    out = tmp_path / "out"
    command.run(typed(f"{tmp_path}/t.csv --budget 4 --to {out} --export {tmp_path}/plan.csv",
                      "--forbid", "IF colour=red THEN shape<>cone"))  # fmt: skip
    shown = capsys.readouterr().out
    assert "4 new combinations" in shown and "This is exact" in shown
    rows = list(csv.DictReader((tmp_path / "plan.csv").read_text().splitlines()))
    assert len(rows) == 4
    assert not any(r["colour"] == "red" and r["shape"] == "cone" for r in rows)
    assert {p.name for p in out.iterdir()} == {
        "collect.html", "combinations.csv", "gains.csv", "plan.json"
    }  # fmt: skip


def test_the_command_starts_from_nothing_with_values_or_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.csv").write_text("")
    command.run(typed(f"{tmp_path}/empty.csv --values a=1,2 --values b=x,y,z --budget 0 --json"))
    found = json.loads(capsys.readouterr().out)
    assert len(found["combinations"]) == 6 and found["complete"]
    (tmp_path / "m.txt").write_text('a: 1, 2\nb: x, y\nc: p, q\nIF [a] = 1 THEN [b] = "x";\n')
    command.run(typed(f"--pict {tmp_path}/m.txt --budget 0 --json --export {tmp_path}/n.pict"))
    found = json.loads(capsys.readouterr().out)
    assert all(row["b"] == "x" for row in found["combinations"] if row["a"] == "1")
    assert "IF [a] = 1 THEN NOT [b]" in (tmp_path / "n.pict").read_text()


def test_the_command_weighs_by_target_cost_and_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text(FILE)
    (tmp_path / "w.csv").write_text(
        "colour,shape,material,weight\nblue,cube,ice,9\nred,ball,wood,1\n"
    )
    command.run(typed(f"{tmp_path}/t.csv --target {tmp_path}/w.csv --budget 1 --json"))
    found = json.loads(capsys.readouterr().out)
    assert found["combinations"] == [{"colour": "blue", "shape": "cube", "material": "ice"}]
    command.run(
        typed(f"{tmp_path}/t.csv --budget 3 --cost colour:red=9 --cost shape:cube=9 --json")
    )
    found = json.loads(capsys.readouterr().out)
    assert all(r["colour"] != "red" and r["shape"] != "cube" for r in found["combinations"])
    (tmp_path / "k.csv").write_text("tags,kind\np;q,x\nq;r,y\n")
    command.run(typed(f"{tmp_path}/k.csv --list tags=; --budget 0 --json"))
    found = json.loads(capsys.readouterr().out)
    assert all(len(row["tags"]) == 2 for row in found["combinations"]) and found["complete"]


@pytest.mark.parametrize(
    "words",
    [
        "", "none.csv", "t.csv --factors colour,shap", "t.csv --cost red=5", "t.csv --budget -1",
        "t.csv --values colour", "t.csv --strength-of colour,shape=x", "t.csv --goals win",
        "t.csv --goals cover=much", "t.csv --export plan.xls", "h.csv --values colour=a,b",
        "t.csv --target none.csv", "t.csv --rules none.txt", "--pict none.txt",
    ],
)  # fmt: skip
def test_what_cannot_be_done_ends_in_one_line(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(FILE)
    Path("h.csv").write_text("colour,shape\n")
    with pytest.raises(RecombineError):
        command.run(typed(words))


def test_a_column_that_tells_all_rows_apart_is_no_factor_unless_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"n{i},{'red' if i % 2 else 'blue'},{'cube' if i % 3 else 'ball'}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["who,colour,shape", *lines]))
    command.run(typed(f"{tmp_path}/t.csv"))
    told = capsys.readouterr()
    assert "left out: who" in told.err and "Nothing is left to collect." in told.out


def test_a_plan_says_its_numbers_in_plain_words() -> None:
    def told(lines: list[tuple[int, int]], **how: int) -> list[str]:
        a, b = (np.array(column) for column in zip(*lines, strict=True))
        rows = Rows("t", (Factor("a", ("p", "q"), a), Factor("b", ("x", "y"), b)))
        plan = collect(rows, Space.of(rows), **how)
        return [plan.summary, plan.flattening]

    said = told([(0, 0), (0, 1), (1, 0)], budget=5)
    assert said[0].startswith("1 new combination (1 row) raises what is covered from 75.0%")
    assert said[0].endswith("the value graph stays in 1 part.")
    assert "after 1 combination, not" in said[1]
    assert "2 new combinations (2 rows) raise" in told([(0, 0), (1, 1)], budget=5)[0]
    assert "goes from 2 to 1 part." in told([(0, 0), (1, 1)], budget=5)[0]
    poor = told([(0, 0), (1, 1)], budget=1, per_combination=3)
    assert "nothing new is proposed" in poor[0] and "raise --budget" in poor[1]
