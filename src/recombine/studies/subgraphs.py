"""Does a network compute, or does it match what training showed it often?

`recombine run subgraphs --preset standard` trains transformers on products and on best
subsequences, with and without the steps written out. Its centre is an experiment: two training
sets that differ in nothing but which half of the endings of lists is common, so that a difference
on the same node of the same item is what frequency does. Around it stand the published
diagnostics: what lies beyond training and how much of it is where answers end, which digits of
wrong answers are right beyond what other answers give, whether frequent subgraphs come out right
more often, how errors spread and compound. Expected from the literature: frequent subgraphs are
done better, and nothing beyond training is done at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import ClassVar, Literal

from recombine.checks import at_least
from recombine.errors import InvalidRequest, unknown
from recombine.families.multiplication import Multiplication
from recombine.families.subsequence import Subsequence
from recombine.instruments.subgraphs import SEEN, Subgraphs
from recombine.lab.study import DIFFERENCE, SHARE, Cell, Claim, Results, Seeded, Study
from recombine.learners.next_token import NextToken
from recombine.report.document import Section
from recombine.seeds import Seeds
from recombine.studies import _subgraphs as parts
from recombine.studies._sequence_tasks import model_named
from recombine.studies._subgraphs_measures import (
    as_at_random,
    as_published,
    digits,
    exact,
    frequency,
    learnt,
    over_bound,
    over_networks,
    placebo,
    sizes_differ,
    told_by_a_pair,
    told_by_frequency,
)
from recombine.studies._subgraphs_sections import sections

PRODUCTS, PRODUCTS_STEPS = "multiplication", "multiplication, steps"
LISTS, LISTS_STEPS = "subsequence", "subsequence, steps"
TASKS = (PRODUCTS, PRODUCTS_STEPS, LISTS, LISTS_STEPS)
# Rows hold two items at least; what attention looks at grows with their length.
ROOM = {PRODUCTS: 64, PRODUCTS_STEPS: 256, LISTS: 64, LISTS_STEPS: 128}
TYPED = {task.replace(", ", "-"): task for task in TASKS}  # a comma parts values that are typed
TRAINED_SHARE = 0.8  # of all pairs of the trained sizes, at most
Half = Literal[0, 1, 2]
NOTHING = 0.02  # by how much halves may differ where neither was favoured


@dataclass(frozen=True)
class Grid(Seeded):
    """Tasks at the largest width; both arms of the experiment at every width, and share, with a
    network that favours neither beside them at the largest width."""

    tasks: tuple[str, ...] = (LISTS_STEPS,)
    answer_sizes: tuple[str, ...] = ("1x1", "2x1", "3x1")
    steps_sizes: tuple[str, ...] = ("1x1", "2x1")
    answer_beyond: tuple[str, ...] = ("2x2", "3x3")
    steps_beyond: tuple[str, ...] = ("3x1", "2x2")
    products: int = 30_000  # most products to train on
    length: int = 4
    reach: int = 5
    longer: int = 2
    share: tuple[float, ...] = (0.45,)  # of all lists
    odds: int = 20
    positions: str = "learned"
    width: tuple[int, ...] = (48,)
    depth: int = 2
    head: int = 16
    steps: int = 460
    rate: float = 3e-3
    tokens: int = 1_280  # of a training step
    row: int = 80  # tokens of a row; 0 for what each task needs
    rows: int = 2**13
    tested: int = 300
    items: int = 100
    evaluations: int = 6
    seeds: int = 5

    @property
    def named(self) -> tuple[str, ...]:
        """The tasks, however they were typed."""
        for task in self.tasks:
            if task not in (*TASKS, *TYPED):
                raise unknown("task", task, TYPED)
        return tuple(dict.fromkeys(TYPED.get(task, task) for task in self.tasks))


class SubgraphsStudy(Study):
    """Frequency by experiment, and the published diagnostics of computation graphs."""

    name = "subgraphs"
    question = (
        "Do networks compute step by step, or do they match the subgraphs that training showed "
        "them often?"
    )
    source = (
        "Dziri et al., Faith and Fate: limits of transformers on compositionality, 2023; the "
        "experiment that swaps frequencies is our own"
    )
    cost = "quick: 1.8 min on two CPU cores; standard: 6 min on one H200 (estimated)"
    not_shown = (
        "Pretrained models: every network here starts from random weights (`recombine subgraphs` "
        "asks a live one).",
        "That frequency is harmless where the experiment finds nothing: it varies one kind of "
        "subgraph, the last three numbers of a list, by one factor.",
        "Why longer items fail: positions never trained are errors like any other. How much of it "
        "is answers that end too early stands beside; with steps a network may also go on to the "
        "answer too early, of which the end that is given tells nothing.",
        "Which digits of wrong products like training are right while a network still learns: it "
        "is read once, at the end.",
        "The published scratchpads in words: these are shorter, and write long numbers units "
        "first.",
    )
    presets: ClassVar = {
        "smoke": Grid(tasks=(PRODUCTS, LISTS_STEPS), products=400, length=3, reach=3, longer=1,
                      share=(0.3,), odds=4, width=(16,), depth=1, head=8, steps=20, tokens=320,
                      rows=2**9, tested=40, items=10, evaluations=2, seeds=2),
        "quick": Grid(),
        "standard": Grid(
            tasks=TASKS, answer_sizes=("1x1", "2x1", "3x1", "4x1"),
            steps_sizes=("1x1", "2x1", "2x2", "3x1", "3x2"), answer_beyond=("5x1", "2x2", "3x3"),
            steps_beyond=("4x1", "4x2", "3x3"), products=60_000, length=5, longer=3,
            share=(0.02, 0.05, 0.2),
            odds=50, positions="rotary", width=(32, 128), depth=4, steps=6_000, rate=1e-3,
            tokens=4_096, row=0, rows=2**15, tested=2_000, items=200, evaluations=12,
        ),
        "paper": Grid(
            tasks=TASKS, answer_sizes=("1x1", "2x1", "2x2", "3x1", "3x2", "3x3", "4x1", "4x2"),
            steps_sizes=("1x1", "2x1", "2x2", "3x1", "3x2", "3x3"), answer_beyond=("4x3", "4x4"),
            steps_beyond=("4x1", "4x2"), products=1_400_000, length=5, longer=5,
            share=(0.05, 0.1, 0.5),
            width=(128, 384, 768), depth=6, head=64, steps=100_000, rate=3e-4, tokens=2**15,
            row=512, rows=2**19, tested=2_000, items=500, evaluations=50,
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        wide = max(grid.width)
        found = []
        for task in grid.named:
            arms = task in (LISTS, LISTS_STEPS)
            for seed in grid.drawn(grid.seeds):
                if not arms:
                    found.append(cell(grid, task, wide, 0, seed, max(grid.share)))
                    continue
                for width, share in product(grid.width, grid.share):
                    # The placebo stands where the effect is measured; the others tell of size.
                    halves: tuple[Half, ...] = (0, 1, 2) if width == wide else (1, 2)
                    found += [cell(grid, task, width, half, seed, share) for half in halves]
        return found

    def claims(self, grid: Grid) -> list[Claim]:
        arms: list[Claim] = []
        for task in grid.named:
            if task in (LISTS, LISTS_STEPS):
                arms += experiment(grid, task)
        found: list[Claim] = []
        for task in grid.named:
            found += beyond_training(grid, task)
        if PRODUCTS in grid.named:
            found += surface()
        bounds: list[Claim] = []
        for task in grid.named:
            if task in (PRODUCTS_STEPS, LISTS_STEPS):
                found += step_by_step(task)
                bounds.append(no_better(grid, task))
        return [*arms, *(at_largest_share(grid, claim) for claim in found), *bounds]

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        return sections(grid, results)


def cell(grid: Grid, task: str, width: int, favours: Half, seed: int, share: float) -> Cell:
    """A network on a task; arms of one seed share everything but the favoured half."""
    row = grid.row or ROOM[task]
    at_least(grid, tokens=row)
    learner = NextToken(
        family=family(grid, task, favours, share),
        model=model_named(grid.positions, width, grid.depth, grid.head), seeds=Seeds.all(seed),
        training_steps=grid.steps, batch=grid.tokens // row, learning_rate=grid.rate,
        warmup=max(10, grid.steps // 20), row=row, rows=grid.rows, vocabulary=32,
        evaluation_every=max(10, grid.steps // grid.evaluations // 10 * 10),
    )  # fmt: skip
    labels = {"task": task, "width": width, "share": share, "favours": favours, "odds": grid.odds,
              "seed": seed, "parameters": learner.size}  # fmt: skip
    return Cell(learner, labels, (Subgraphs(items=grid.items),))


def family(grid: Grid, task: str, favours: Half, share: float) -> Multiplication | Subsequence:
    """A task at the sizes of a grid."""
    scratchpad = task in (PRODUCTS_STEPS, LISTS_STEPS)
    if task in (LISTS, LISTS_STEPS):
        return Subsequence(
            train_length=grid.length, reach=grid.reach, longer=grid.longer, train_share=share,
            scratchpad=scratchpad, beyond_items=4 * grid.items, odds=grid.odds,
            favours=favours, test_items=grid.tested, validation_items=100,
        )  # fmt: skip
    trained = sizes(grid.steps_sizes if scratchpad else grid.answer_sizes)
    beyond = sizes(grid.steps_beyond if scratchpad else grid.answer_beyond)
    pairs = sum(81 * 10 ** (x + y - 2) for x, y in trained)
    fewest = min(81 * 10 ** (x + y - 2) for x, y in beyond)
    return Multiplication(
        train_sizes=trained, beyond_sizes=beyond, scratchpad=scratchpad,
        train_items=min(grid.products, round(TRAINED_SHARE * pairs)),
        test_items=min(grid.tested, pairs - round(TRAINED_SHARE * pairs)), validation_items=100,
        beyond_items=min(4 * grid.items, fewest - 100),
    )  # fmt: skip


def sizes(names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Sizes of products as they are typed.

    >>> sizes(["3x2"])
    ((3, 2),)
    """
    found = []
    for name in names:
        digits = name.split("x")
        if len(digits) != 2 or not all(one.isdecimal() for one in digits):
            raise InvalidRequest(f"size {name!r}: expected digits by digits, such as 3x2")
        found.append((int(digits[0]), int(digits[1])))
    return tuple(found)


def experiment(grid: Grid, task: str) -> list[Claim]:
    """What swapping frequencies does to the same nodes of the same items."""
    small, wide = min(grid.width), max(grid.width)
    what = "steps" if task == LISTS_STEPS else "marks"
    swap = (
        f"Of the {what} that are made from the last three numbers, more are right where lists "
        f"with this ending were {grid.odds} times as common in training as where the others were"
    )
    told = f"the same {what} of the same items, width {wide}"
    if len(grid.share) > 1:
        told += "; mean over shares of all lists to train on that leave something to be mended"
    longer = beyond_splits(grid, task)
    compared = "in larger networks" if small == wide else f"at width {wide} than at {small}"
    return [
        Claim(f"{task}: frequency matters",
              f"{swap} ({told})",
              frequency(grid, task, [SEEN]), above=0.0),
        Claim(f"{task}: frequency matters much",
              f"What frequency does to these {what} is at least .05",
              frequency(grid, task, [SEEN]), at_least=0.05),
        Claim(f"{task}: frequency matters beyond training",
              f"In longer lists than trained, more of these {what} are right where their ending "
              "was common",
              frequency(grid, task, longer), above=0.0),
        Claim(f"{task}: placebo",
              "Where neither half was favoured, on the shares of lists where the effect is "
              f"measured, the halves differ by no more than {NOTHING:g}",
              placebo(grid, task), at_least=-NOTHING, at_most=NOTHING),
        Claim(f"{task}: size removes what frequency does",
              f"What frequency does to these {what} is smaller {compared} (shares of lists that "
              "leave the smaller networks something to be mended)",
              sizes_differ(task, small, wide), above=0.0),
    ]  # fmt: skip


def at_largest_share(grid: Grid, claim: Claim) -> Claim:
    """A claim about networks that trained on the largest share of lists."""
    whole = max(grid.share)
    return replace(claim, measure=lambda results: claim.measure(results.where(share=whole)))


def beyond_training(grid: Grid, task: str) -> list[Claim]:
    """Learnt where it was trained, lost beyond."""
    far = beyond_splits(grid, task, far=True)
    told = ", ".join(split.removeprefix("unseen_") for split in far)
    most = 0.05 if task == PRODUCTS else 0.3
    told_end = partial(parts.end_told, splits=far)
    return [
        Claim(f"{task}: learnt", f"At least .9 of the answers to {task} like training are exact",
              learnt(task), at_least=0.9, within=SHARE),
        Claim(f"{task}: lost beyond training",
              f"At most {most:g} of the answers to {task} are exact beyond training ({told})",
              over_networks(task, lambda row: exact(row, far), told_end), at_most=most,
              within=SHARE),
        Claim(f"{task}: lost with the end given",
              f"At most {most:g} of the answers to {task} are exact beyond training ({told}) also "
              "where the network is told where an answer ends",
              over_networks(task, lambda row: exact(row, far, "/ended")), at_most=most,
              within=SHARE),
        Claim(f"{task}: gap",
              f"At least .6 less of the answers to {task} are exact beyond training than like it",
              over_networks(task, lambda row: parts.in_distribution(row) - exact(row, far),
                            told_end), at_least=0.6, within=DIFFERENCE),
    ]  # fmt: skip


def surface() -> list[Claim]:
    """Which digits of wrong products are right all the same."""
    found = [
        Claim("information gains as published",
              "What digits of the factors tell of digits of the product (relative information "
              "gain, over all products of two by two and of three by three digits) differs from "
              "the published numbers by no more than .001",
              as_published, unit="published numbers", at_most=0.001)
    ]  # fmt: skip
    for where, chosen in (
        ("like training", parts.like_training), ("beyond training", parts.beyond),
    ):  # fmt: skip
        for name, sentence, number, least, most in (
            ("last digits", "at least .9 have the last digit right", _last, 0.9, None),
            ("first digits", "at least .6 have the first digit right", _first, 0.6, None),
            ("middle digits", "at most .5 have the hardest middle digit right", _hardest, None,
             0.5),
        ):  # fmt: skip
            told = f"Of wrong products {where} that are as long as the right one: {sentence}"
            shown = digits(PRODUCTS, chosen, number)
            found.append(
                Claim(f"{name}, {where}", told, shown, at_least=least, at_most=most, within=SHARE)
            )
        found.append(
            Claim(f"digits that a pair tells, {where}",
                  f"Of wrong products {where} that are as long as the right one: digits of which a "
                  "pair of input digits tells more are right more often, beyond what the same "
                  "answers have right of other items (rank correlation at least .6)",
                  told_by_a_pair(PRODUCTS, chosen), at_least=0.6)
        )  # fmt: skip
    return found


def _last(digits: Sequence[parts.Digit]) -> parts.Digit:
    return digits[-1]


def _first(digits: Sequence[parts.Digit]) -> parts.Digit:
    return digits[0]


def _hardest(digits: Sequence[parts.Digit]) -> parts.Digit:
    return min(digits[1:-1], key=lambda digit: digit.right)


def step_by_step(task: str) -> list[Claim]:
    """Where in a scratchpad errors are, and whether frequency tells."""
    return [
        Claim(f"{task}: frequent subgraphs are right more often",
              "Of a right and a wrong step of one size, layer and operation, both from right "
              "parents, the right one's whole subgraph was the more frequent in training, at "
              "least .6 of the time (AUROC)", told_by_frequency(task), at_least=0.6),
        Claim(f"{task}: correct nodes get fewer with depth",
              "Beyond training, the share of nodes that are right with all they are made of falls "
              "with the layer (rank correlation at most -.7)",
              as_at_random(task, parts.falls, parts.unwritten_told), at_most=-0.7),
        Claim(f"{task}: correct nodes get fewer among written ones",
              "Beyond training, of the nodes that were written at all the share that is right with "
              "all it is made of falls with the layer (rank correlation at most -.7)",
              as_at_random(task, parts.falls_where_written), at_most=-0.7),
        Claim(f"{task}: late errors are spread ones",
              "Beyond training, the share of errors that only follow from earlier ones is larger "
              "in the last third of layers than in the first",
              as_at_random(task, parts.spreads), above=0.0),
        Claim(f"{task}: accuracy falls exponentially",
              "The logarithm of accuracy falls along a straight line in depth (R² at least .9)",
              over_networks(task, parts.straight), at_least=0.9),
    ]  # fmt: skip


def no_better(grid: Grid, task: str) -> Claim:
    """Of every network of the largest width: on few lists some sizes are right now and then."""
    told = f"At no size of which between {parts.LOWEST:g} and {parts.HIGHEST:g} is right is "
    told += "accuracy above what errors of steps compound to, and two standard errors"
    if task == LISTS_STEPS:
        told += f" (all networks of width {max(grid.width)}, whatever lists they trained on)"
    return Claim(
        f"{task}: no better than compounded errors",
        told,
        over_bound(task, max(grid.width)),
        at_most=0.0,
    )


def beyond_splits(grid: Grid, task: str, far: bool = False) -> list[str]:
    """Names of splits beyond training; `far` ones are two numbers longer, or 3x3 digits."""
    if task in (LISTS, LISTS_STEPS):
        start = grid.length + (2 if far and grid.longer > 1 else 1)
        return [f"unseen_length-{n}" for n in range(start, grid.length + grid.longer + 1)]
    names = grid.steps_beyond if task == PRODUCTS_STEPS else grid.answer_beyond
    chosen = ["3x3"] if far and "3x3" in names else names
    return [f"unseen_{name}" for name in chosen]
