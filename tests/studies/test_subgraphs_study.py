"""Study subgraphs on readings made to order: what is planted is found, what is not is not."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.metrics import mutual_info_score

from recombine.errors import InvalidRequest, RecombineError
from recombine.families import Subsequence
from recombine.graphs import subsequence_graph
from recombine.graphs.errors import LABELS
from recombine.instruments import Reading
from recombine.instruments._subgraph_tables import (
    DIGIT_COLUMNS,
    LAYER_COLUMNS,
    LENGTH_COLUMNS,
    SIZE_COLUMNS,
)
from recombine.lab.judge import Judgement, judge
from recombine.lab.plan import part
from recombine.lab.run import Request
from recombine.lab.study import Results, Row
from recombine.learners.next_token import NextToken
from recombine.report.document import Report
from recombine.report.html import render
from recombine.studies import PRESETS
from recombine.studies import _subgraphs as parts
from recombine.studies.subgraphs import (
    LISTS,
    LISTS_STEPS,
    PRODUCTS,
    PRODUCTS_STEPS,
    TASKS,
    Grid,
    SubgraphsStudy,
    family,
    sizes,
)

STUDY = SubgraphsStudy()
GRID = Grid(tasks=TASKS, width=(32, 64), length=5, longer=2, share=(0.2,))
SPLITS = ("seen", "unseen_length-6", "unseen_length-7")


@dataclasses.dataclass(frozen=True)
class World:
    """What networks are said to do."""

    seen: float = 0.97
    beyond: float = 0.1
    effect: float = 0.0  # of frequency, like training
    small_effect: float = 0.0  # the same at the smallest width
    beyond_effect: float = 0.0
    lopsided: float = 0.0  # half 1 minus half 2, whatever was favoured
    memory: float = 0.3  # what the memorising executor shows
    blind: float = 0.0
    auroc: float = 0.7
    planted: float = 1.0
    falls: bool = True
    spread: float = 0.5  # share of late errors that only spread; early ones are all local
    decay: float = 0.05  # of log accuracy with depth
    bound: float = 1.0
    digits: tuple[float, ...] = (0.8, 0.4, 0.3, 0.4, 0.6, 0.95)  # of 3x3, leftmost first
    others: tuple[float, ...] = (0.15, 0.1, 0.1, 0.1, 0.1, 0.1)  # under answers to other items
    short: float = 0.2  # answers beyond training that end too early
    ended: float = 0.1  # exact beyond training if the end is given
    written: float = 1.0  # share of steps in the last layers that were written at all


def row(world: World, labels: dict[str, Any], number: int) -> Row:
    rng = np.random.default_rng([labels["seed"], labels["width"], labels["favours"], number])
    noise = lambda: float(rng.normal(0, 0.002))  # noqa: E731
    steps = labels["task"].endswith("steps")
    values: dict[str, float] = {"seen": world.seen + noise()}
    controls: dict[str, dict[str, float]] = {"untrained": {"seen": 0.0}, "shuffled": {"seen": 0.0},
                                             "planted": {}, "blind": {}}  # fmt: skip
    lists = labels["task"] in (LISTS, LISTS_STEPS)
    names = SPLITS[1:] if lists else ("unseen_5x1", "unseen_2x2", "unseen_3x3", "unseen_3x1")
    for name in names:
        values[name] = world.beyond + noise()
        values |= {f"{name}/ended": max(world.beyond, world.ended), f"{name}/short": world.short,
                   f"{name}/long": 0.0}  # fmt: skip
    if lists:
        small = labels["width"] == min(GRID.width)
        effect = world.small_effect if small else world.effect
        for split in SPLITS:
            gain = effect if split == "seen" else world.beyond_effect
            for half in (1, 2):
                sign = {0: 0, half: 0.5}.get(labels["favours"], -0.5)
                tilt = world.lopsided * (0.5 if half == 1 else -0.5)
                name = f"{split}/touched{half}"
                values[f"{split}/items{half}"] = 40
                values[f"{split}/exact{half}"] = world.seen if split == "seen" else world.beyond
                values[name] = 0.6 + sign * gain + tilt + noise()
                values[f"{split}/untouched{half}"] = 0.9
                controls["planted"][name] = 0.5 + sign * world.memory
                controls["blind"][name] = 0.5 + sign * world.blind
    if steps:
        values["auroc"] = world.auroc + noise()
        controls["planted"]["memory"] = 2 * world.planted - 1
        controls["blind"]["memory"] = 2 * world.blind
    reading = Reading(values, controls, tables(world, steps, labels["task"] == PRODUCTS, noise))
    return Row(labels, f"cell{number}", {"evaluations": {}, "evaluation_steps": []},
               {"subgraphs": reading})  # fmt: skip


def tables(world: World, steps: bool, products: bool, noise: Callable[[], float]) -> dict[str, Any]:
    made: dict[str, Any] = {"sizes": {name: [] for name in SIZE_COLUMNS}}
    for depth in (4, 8, 12, 16):
        split = "seen" if depth < 16 else "unseen_length-7"
        # Without decay accuracy goes up and down.
        exact = (
            float(np.exp(-world.decay * depth + noise())) if world.decay else 0.9 - depth % 8 / 9
        )
        bounds = (world.bound, 4, 0.6) if steps else (None, 4, None)
        line = (split, f"{depth} numbers", f"{depth} numbers", 100, depth, 5, exact, exact, 0.0,
                0.0, 0.1, 0.0, *bounds)  # fmt: skip
        for column, value in zip(made["sizes"].values(), line, strict=True):
            column.append(value)
    if steps:
        made["layers"] = {name: [] for name in LAYER_COLUMNS}
        for layer in range(1, 10):
            correct = 90 - 8 * layer if world.falls else 10 + 8 * layer
            wrong = 100 - correct
            late = layer > 6
            spread = round(wrong * world.spread) if late else 0
            labels = dict.fromkeys(LABELS, 0) | {
                "correct": correct, "propagation": spread, "local": wrong - spread
            }  # fmt: skip
            written = round(100 * world.written) if late else 100
            line = ("unseen_length-7", "7 numbers", layer, *labels.values(), written, 9.0, 2.0)
            for column, value in zip(made["layers"].values(), line, strict=True):
                column.append(value)
    if products:
        made["digits"] = {name: [] for name in DIGIT_COLUMNS}
        made["lengths"] = {name: [] for name in LENGTH_COLUMNS}
        for split in ("seen", "unseen_3x3"):
            line = (split, "3x3", 6, 100, 0.5, 0.0)
            for column, value in zip(made["lengths"].values(), line, strict=True):
                column.append(value)
            for place, (right, other) in enumerate(
                zip(world.digits, world.others, strict=True), start=1
            ):
                line = (split, "3x3", 6, place, 50, right + noise(), other)
                for column, value in zip(made["digits"].values(), line, strict=True):
                    column.append(value)
    return made


def made(world: World | None = None, grid: Grid = GRID) -> Results:
    world = World() if world is None else world
    found = []
    for number, cell in enumerate(STUDY.cells(grid)):
        found.append(row(world, dict(cell.labels), number))
    return Results(found)


def judged(results: Results, grid: Grid = GRID) -> dict[str, Judgement]:
    return {found.claim.name: found for found in judge(STUDY.claims(grid), results)}


def verdicts(world: World, *names: str) -> list[str]:
    found = judged(made(world))
    return [found[name].verdict for name in names]


# The experiment


@pytest.mark.parametrize("task", [LISTS, LISTS_STEPS])
def test_an_effect_of_frequency_is_found_and_none_is_refuted(task):
    names = (f"{task}: frequency matters", f"{task}: frequency matters much")
    assert verdicts(World(effect=0.12), *names) == ["supported", "supported"]
    assert verdicts(World(effect=-0.1), *names) == ["refuted", "refuted"]
    assert verdicts(World(effect=0.02), *names) == ["supported", "refuted"]
    found = judged(made(World(effect=0.12)))[names[0]]
    assert found.interval is not None
    assert found.interval.estimate == pytest.approx(0.12, abs=0.01)
    assert found.interval.units == 5 and "Memorising executor 0.30" in found.note


def test_halves_of_unlike_difficulty_are_no_effect_of_frequency():
    names = (f"{LISTS}: frequency matters much", f"{LISTS}: placebo")
    assert verdicts(World(lopsided=0.2), *names) == ["refuted", "refuted"]
    assert verdicts(World(), names[1]) == ["supported"]


def test_the_placebo_is_taken_where_the_effect_is_measured():
    grid = dataclasses.replace(GRID, share=(0.05, 0.2))
    name = f"{LISTS}: placebo"
    results = made(World(effect=0.1), grid)
    for one in results.where(share=0.2):
        values = one.readings["subgraphs"].values
        values.update({n: 1.0 for n in values if n.startswith("seen/touched")})
    assert judged(results, grid)[name].verdict == "supported"
    # Halves that differ at the share that is used, where nothing shows at the largest.
    for one in results.where(share=0.05, favours=0):
        one.readings["subgraphs"].values["seen/touched1"] += 0.1
    found = judged(results, grid)[name]
    assert found.verdict == "refuted" and "0.2 of the lists: nearly all is right" in found.note


def test_a_placebo_in_which_all_is_right_cannot_show_anything():
    results = made(World(effect=0.1))
    for one in results.where(favours=0):
        values = one.readings["subgraphs"].values
        values.update({n: 0.999 for n in values if n.startswith("seen/touched")})
    found = judged(results)[f"{LISTS}: placebo"]
    assert found.verdict == "not tested here" and "right in the placebo" in found.note


def test_neither_half_is_favoured_beside_both_arms_at_every_share():
    grid = dataclasses.replace(GRID, share=(0.02, 0.2))
    cells = [c.labels for c in STUDY.cells(grid) if c.labels["task"] == LISTS]
    sets = {(c["share"], c["favours"]) for c in cells if c["width"] == 64}
    assert sets == {(share, favours) for share in grid.share for favours in (0, 1, 2)}
    assert {c["favours"] for c in cells if c["width"] == 32} == {1, 2}


def test_what_frequency_does_to_longer_lists_is_a_claim_of_its_own():
    name = f"{LISTS_STEPS}: frequency matters beyond training"
    assert verdicts(World(beyond_effect=0.1), name) == ["supported"]
    assert verdicts(World(effect=0.1, beyond_effect=-0.05), name) == ["refuted"]


def test_where_nothing_is_right_in_either_arm_frequency_is_not_judged():
    results = made(World(effect=0.1))
    for one in results:
        values = one.readings["subgraphs"].values
        values.update({name: 0.0 for name in values if name.startswith("unseen_length-6/touched")})
        values.update({name: 0.01 for name in values if name.startswith("unseen_length-7/touched")})
    found = judged(results)[f"{LISTS}: frequency matters beyond training"]
    assert found.verdict == "not tested here" and "nothing is right in either arm" in found.note


def test_frequency_is_judged_where_something_is_left_to_be_mended():
    grid = dataclasses.replace(GRID, share=(0.02, 0.05, 0.2))
    results = made(World(effect=0.12), grid)
    name = f"{LISTS_STEPS}: frequency matters"
    for one in results.where(share=0.2):
        values = one.readings["subgraphs"].values
        values.update({n: 0.999 for n in values if n.startswith("seen/touched")})
    for one in results.where(share=0.02):
        values = one.readings["subgraphs"].values
        values.update({n: 0.5 for n in values if n == "seen" or n.startswith("seen/exact")})
    found = judged(results, grid)[name]
    assert found.verdict == "supported" and found.interval.estimate == pytest.approx(0.12, abs=0.01)
    assert "0.2 of the lists: nearly all is right in both arms" in found.note
    assert "0.02 of the lists: fewer than two seeds" in found.note
    for one in results.where(share=0.05):
        values = one.readings["subgraphs"].values
        values.update({n: 1.0 for n in values if n.startswith("seen/touched")})
    assert judged(results, grid)[name].verdict == "not tested here"


def test_smaller_shares_speak_for_the_experiment_alone():
    grid = dataclasses.replace(GRID, share=(0.02, 0.2))
    one, other = (judged(made(World(), g), g) for g in (GRID, grid))
    alone = {n for n in one if "frequency matters" not in n and "placebo" not in n}
    assert {n: one[n].verdict for n in alone} == {n: other[n].verdict for n in alone}


def test_size_is_compared_seed_by_seed():
    name = f"{LISTS_STEPS}: size removes what frequency does"
    assert verdicts(World(small_effect=0.2, effect=0.05), name) == ["supported"]
    assert verdicts(World(small_effect=0.0, effect=0.05), name) == ["refuted"]
    grid = dataclasses.replace(GRID, width=(64,))
    assert judged(made(grid=grid), grid)[name].verdict == "not tested here"


def right(results: Results, share: float) -> None:
    """Sets how much of what is made from endings is right."""
    for one in results:
        values = one.readings["subgraphs"].values
        values.update({n: share for n in values if n.startswith("seen/touched")})


@pytest.mark.parametrize(("share", "why"), [(1.0, "nearly all is right"), (0.01, "nothing is")])
def test_size_has_nothing_to_remove_where_small_networks_show_nothing(share, why):
    name = f"{LISTS}: size removes what frequency does"
    results = made(World(small_effect=0.2, effect=0.05))
    right(results.where(width=64), 1.0)
    found = judged(results)[name]
    assert found.verdict == "supported" and "Memorising executor 0.30" in found.note
    right(results.where(width=32), share)
    found = judged(results)[name]
    assert found.verdict == "not tested here"
    assert found.note.startswith("Nothing to see at width 32.") and why in found.note


def test_size_is_compared_at_every_share_with_room_and_arms_of_both_widths():
    grid = dataclasses.replace(GRID, share=(0.05, 0.2))
    results = made(World(small_effect=0.2, effect=0.05), grid)
    right(results.where(width=32, share=0.2), 0.999)
    found = judged(results, grid)[f"{LISTS}: size removes what frequency does"]
    assert found.verdict == "supported" and found.interval is not None
    assert found.interval.estimate == pytest.approx(0.15, abs=0.01) and found.interval.units == 5
    assert "0.2 of the lists: nearly all is right" in found.note


@pytest.mark.parametrize("claim", ["frequency matters", "size removes what frequency does"])
@pytest.mark.parametrize("broken", [{"memory": 0.0}, {"blind": 0.1}])
def test_an_experiment_whose_executors_fail_says_nothing(broken, claim):
    found = judged(made(World(effect=0.2, **broken)))[f"{LISTS}: {claim}"]
    assert found.verdict == "not tested here" and "controls failed" in found.note


def test_networks_that_did_not_learn_speak_for_nothing_and_are_counted():
    found = judged(made(World(seen=0.8, effect=0.2)))
    for name in (f"{LISTS}: frequency matters", f"{LISTS}: lost beyond training",
                 f"{LISTS_STEPS}: frequent subgraphs are right more often"):  # fmt: skip
        assert found[name].verdict == "not tested here"
    assert "Left out: 15 below .9" in found[f"{LISTS}: frequency matters"].note
    assert found[f"{LISTS}: learnt"].verdict == "refuted"


def test_what_is_like_training_weighs_the_favoured_half_more():
    values = {"seen": 0.7, "seen/exact1": 1.0, "seen/exact2": 0.4}
    reading = {"subgraphs": Reading(values, {})}
    labels = {"favours": 1, "odds": 5}
    assert parts.in_distribution(Row(labels, "", {}, reading)) == pytest.approx(0.9)
    assert parts.in_distribution(Row({**labels, "favours": 2}, "", {}, reading)) == pytest.approx(
        0.5
    )
    assert parts.in_distribution(Row({**labels, "favours": 0}, "", {}, reading)) == 0.7


# The published diagnostics


@pytest.mark.parametrize("task", TASKS)
def test_failure_beyond_training_is_found_and_success_refutes_it(task):
    names = [f"{task}: {claim}" for claim in ("learnt", "lost beyond training", "gap")]
    assert verdicts(World(beyond=0.02), *names) == ["supported"] * 3
    assert verdicts(World(beyond=0.8), *names) == ["supported", "refuted", "refuted"]


@pytest.mark.parametrize("where", ["like training", "beyond training"])
def test_digits_of_wrong_products_are_judged_one_by_one(where):
    kinds = ("last digits", "first digits", "middle digits", "digits that a pair tells")
    names = [f"{claim}, {where}" for claim in kinds]
    assert verdicts(World(), *names) == ["supported"] * 4
    turned = World(digits=(0.1, 0.6, 0.9, 0.9, 0.6, 0.1))
    assert verdicts(turned, *names) == ["refuted"] * 4


@pytest.mark.parametrize("where", ["like training", "beyond training"])
def test_digits_of_networks_that_never_learn_are_not_judged(where):
    found = judged(made(World(seen=0.3)))
    for name in ("last digits", "first digits", "middle digits", "digits that a pair tells"):
        assert found[f"{name}, {where}"].verdict == "not tested here"
        assert "is wrong" not in found[f"{name}, {where}"].note


def test_a_digit_that_other_answers_have_right_as_often_follows_no_clue():
    name = "digits that a pair tells, beyond training"
    world = World(digits=(0.9, 0.2, 0.2, 0.2, 0.2, 0.95), others=(0.9, 0.1, 0.1, 0.1, 0.1, 0.95))
    found = judged(made(world))
    assert found[name].verdict == "refuted"
    told = found["first digits, beyond training"].note
    assert "to other items: 0.90" in told and "0.50 are too short and 0.00 too long" in told


def test_digits_are_not_judged_where_too_few_answers_have_the_right_length():
    results = made(World())
    for one in results.where(task=PRODUCTS):
        table = one.readings["subgraphs"].tables["digits"]
        table["wrong"] = [parts.LEAST_WRONG - 1] * len(table["wrong"])
    found = judged(results)["last digits, beyond training"]
    assert found.verdict == "not tested here" and "0.50 are too short" in found.note


def test_what_a_pair_of_digits_tells_is_the_exact_information_gain():
    first, second, third, last = parts.gains("2x2", 4)
    assert last == pytest.approx(1.0) and first > 0.6 > max(second, third)
    # Products that begin with no zero, by hand.
    pairs = [(x, y) for x in range(10, 100) for y in range(10, 100) if x * y > 999]
    known = mutual_info_score([(x // 10) * 10 + y // 10 for x, y in pairs],
                              [x * y // 1000 for x, y in pairs])  # fmt: skip
    whole = entropy(np.bincount([x * y // 1000 for x, y in pairs]))
    assert first == pytest.approx(known / whole, abs=1e-6)
    assert len(parts.gains("3x1", 3)) == 3


def test_information_gains_are_those_published():
    assert judged(made())["information gains as published"].verdict == "supported"
    assert 0 < parts.differs_from_published() < 0.001


@pytest.mark.parametrize("task", [LISTS, LISTS_STEPS, PRODUCTS])
def test_what_is_lost_because_answers_end_too_early_is_told(task):
    found = judged(made(World(beyond=0.0, short=0.99, ended=0.8)))
    lost = found[f"{task}: lost beyond training"]
    assert lost.verdict == "supported" and "Too short 0.99" in lost.note
    assert "with the end given 0.80 are exact" in lost.note
    assert found[f"{task}: lost with the end given"].verdict == "refuted"
    assert "Too short 0.99" in found[f"{task}: gap"].note


def test_steps_that_were_never_written_are_told_and_left_out_of_a_claim_of_their_own():
    name = f"{LISTS_STEPS}: correct nodes get fewer"
    found = judged(made(World(written=0.2)))
    note = found[f"{name} with depth"].note
    assert "Never written: 0.27 of the steps, and all of 0 of 45 layers" in note
    # The last layers have 34 to 18 correct of 100, and 20 written: nearly all that were.
    assert found[f"{name} among written ones"].verdict != "supported"
    assert judged(made())[f"{name} among written ones"].verdict == "supported"


def test_sizes_that_are_right_now_and_then_may_come_of_any_share_or_arm():
    grid = dataclasses.replace(GRID, share=(0.02, 0.2))
    results = made(World(), grid)
    name = f"{LISTS_STEPS}: no better than compounded errors"
    for one in results.where(task=LISTS_STEPS, share=0.2):
        table = one.readings["subgraphs"].tables["sizes"]
        table["exact"] = [1.0] * len(table["exact"])
    found = judged(results, grid)[name]
    assert found.verdict == "supported" and "15 of 30 networks have such a size" in found.note


@pytest.mark.parametrize("task", [PRODUCTS_STEPS, LISTS_STEPS])
def test_steps_are_judged_both_ways(task):
    names = [f"{task}: {claim}" for claim in
             ("frequent subgraphs are right more often", "correct nodes get fewer with depth",
              "late errors are spread ones", "accuracy falls exponentially",
              "no better than compounded errors")]  # fmt: skip
    assert verdicts(World(), *names) == ["supported"] * 5
    other = World(auroc=0.5, falls=False, spread=0.0, decay=0.0, bound=0.2)
    assert verdicts(other, *names) == ["refuted", "refuted", "refuted", "refuted", "refuted"]


def test_an_auroc_whose_executors_fail_says_nothing():
    name = f"{LISTS_STEPS}: frequent subgraphs are right more often"
    for broken in (World(planted=0.8), World(blind=0.06)):
        assert verdicts(broken, name) == ["not tested here"]


# Cells and report


@pytest.mark.parametrize("preset", PRESETS)
def test_every_cell_of_a_preset_can_be_trained(preset):
    cells = STUDY.cells(STUDY.grid(preset))
    assert part(cells).infeasible == []
    for cell in cells:
        cell.learner.check()


def test_arms_differ_in_the_favoured_half_and_in_nothing_else():
    cells = [c for c in STUDY.cells(GRID) if c.labels["task"] == LISTS and c.labels["seed"] == 1]
    learners = [c.learner for c in cells if c.labels["width"] == 64]
    learners = [one for one in learners if isinstance(one, NextToken)]
    families: list[Subsequence] = [
        one.family for one in learners if isinstance(one.family, Subsequence)
    ]
    assert [one.favours for one in families] == [0, 1, 2]
    alike = [
        dataclasses.replace(one, family=dataclasses.replace(own, favours=0))
        for one, own in zip(learners, families, strict=True)
    ]
    assert alike[0] == alike[1] == alike[2]
    assert len({cell.id for cell in cells}) == len(cells)


def test_sizes_are_typed_as_digits_by_digits():
    assert sizes(("3x2", "1x1")) == ((3, 2), (1, 1))
    with pytest.raises(InvalidRequest, match="such as 3x2"):
        sizes(("3",))
    with pytest.raises(RecombineError, match="did you mean 'subsequence'"):
        STUDY.cells(STUDY.grid("quick", {"tasks": "subsequences"}))
    for task in TASKS:
        family(STUDY.grid("standard"), task, 0, 0.2).check()


def test_a_report_is_made_of_any_readings():
    for world in (World(effect=0.1), World(seen=0.1)):
        results = made(world)
        html = render(
            Report("subgraphs", "T", "Q?", "", "quick", "V.",
                   sections=STUDY.sections(GRID, results))
        )  # fmt: skip
        for title in ("What frequency does", "Like training and beyond", "Frequent subgraphs",
                      "Digits of wrong products", "How errors compound"):  # fmt: skip
            assert title in html
    bare = Results([dataclasses.replace(one, readings={}) for one in made()])
    assert render(Report("subgraphs", "T", "Q?", "", "quick", "V.",
                         sections=STUDY.sections(GRID, bare)))  # fmt: skip
    told = {name: j.verdict for name, j in judged(bare).items()}
    assert told.pop("information gains as published") == "supported"  # whatever networks do
    assert set(told.values()) == {"not tested here"}


def test_the_report_says_how_much_of_each_mark_a_pair_of_numbers_settles():
    grid = dataclasses.replace(GRID, tasks=(LISTS,), length=4, reach=2)
    tables = [t for section in STUDY.sections(grid, made(grid=grid)) for t in section.tables]
    [found] = [t for t in tables if t.title == "What a pair of numbers tells of a mark"]
    lists = list(itertools.product(range(-2, 3), repeat=4))
    answers = [str(subsequence_graph(one).answer) for one in lists]
    for place, (mark, pair, gain) in enumerate(found.rows):
        one = [answer[place] for answer in answers]
        gains = {}
        for first, second in itertools.combinations(range(4), 2):
            joint = [5 * numbers[first] + numbers[second] for numbers in lists]
            told = mutual_info_score(joint, one) / entropy([one.count("1"), one.count("2")])
            gains[f"{first + 1} and {second + 1}"] = told
        assert mark == place + 1 and gain == pytest.approx(max(gains.values()))
        assert gains[pair] == pytest.approx(gain)
    only = dataclasses.replace(GRID, tasks=(PRODUCTS,))
    titles = [section.title for section in STUDY.sections(only, made(grid=only))]
    assert "Digits of wrong products" in titles and "Marks of lists" not in titles


def test_the_report_says_among_which_steps_frequency_is_compared():
    titled = {section.title: section for section in STUDY.sections(GRID, made())}
    section = titled["Frequent subgraphs"]
    assert "one size, layer and operation" in section.text
    assert "AUROC within size, layer and operation" in str(section.figures[0])


def test_shares_in_tables_keep_to_shares():
    def ends(text: str) -> list[float]:
        return [float(one) for one in re.findall(r"-?\d+\.\d+", text.partition("[")[2])]

    grid = dataclasses.replace(GRID, seeds=2)
    found = made(World(seen=0.97), grid)
    for number, one in enumerate(found):
        table = one.readings["subgraphs"].tables["sizes"]
        table["exact"] = [float(number % 2)] * len(table["exact"])
        one.readings["subgraphs"].values.update({"seen/exact1": float(one.labels["seed"])})
    tables = [table for section in STUDY.sections(grid, found) for table in section.tables]
    for table in tables:
        for column in ("exact", "exact like training", "with the end given", "bound from width"):
            if column in table.columns:
                texts = [str(row[table.columns.index(column)]) for row in table.rows]
                assert all(0 <= end <= 1 for text in texts for end in ends(text))
    assert {"Exact answers by size", "Exact answers and both bounds"} <= {t.title for t in tables}


def test_tasks_with_steps_can_be_typed_though_a_comma_parts_values():
    study = SubgraphsStudy()
    typed = Request(study, "smoke", {"tasks": "multiplication-steps,subsequence-steps"})
    assert typed.grid.named == (PRODUCTS_STEPS, LISTS_STEPS)
    assert {cell.labels["task"] for cell in typed.cells()} == {PRODUCTS_STEPS, LISTS_STEPS}
    whole = dataclasses.replace(typed.grid, tasks=(PRODUCTS_STEPS, LISTS_STEPS))
    assert study.cells(whole) == typed.cells()
    assert [c.name for c in study.claims(whole)] == [c.name for c in study.claims(typed.grid)]
    with pytest.raises(InvalidRequest, match=r"unknown task 'steps'.*subsequence-steps"):
        Request(study, "smoke", {"tasks": "subsequence, steps"}).cells()


@pytest.mark.parametrize("task", TASKS)
def test_rows_have_room_for_every_item_and_steps_for_as_many_tokens(task):
    grid = STUDY.grid("standard")
    [learner, *_] = (c.learner for c in STUDY.cells(grid) if c.labels["task"] == task)
    made = learner.family.corpus(0)
    count = len if learner.family.tokens == "character" else lambda text: len(text.split())
    told = [count(i.source) + count(i.target) + 2 for split in made.splits for i in made[split]]
    assert max(told) <= learner.row
    assert 2 * np.mean([count(i.source) + count(i.target) + 2 for i in made["train"]]) < learner.row
    assert learner.row * learner.batch == grid.tokens


def test_a_step_of_fewer_tokens_than_a_row_is_refused():
    with pytest.raises(InvalidRequest, match=r"tokens=10: .* at least 80"):
        STUDY.cells(dataclasses.replace(GRID, tokens=10))
