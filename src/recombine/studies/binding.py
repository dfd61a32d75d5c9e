"""Do networks know which features belong together, and where does that fail?

`recombine run binding --preset standard` trains three kinds of network on scenes of coloured
shapes: a bag that pools colours and shapes apart, plain convolution, and slots that compete for
the places of a picture. They are asked whether a colour is on a shape where only the binding
tells, report whole scenes, and search for one object among many; autoencoders take pictures of
tetrominoes apart without being told how. Expected: a bag guesses, slots bind, and plain
convolution binds few objects and fails among many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from recombine.checks import at_least
from recombine.errors import InvalidRequest, unknown
from recombine.families.objects import MOST_OBJECTS, Objects
from recombine.instruments.binding import Binding as BindingTest
from recombine.instruments.segregation import Segregation as SegregationTest
from recombine.lab.judge import Judgement, sentence
from recombine.lab.study import Cell, Claim, Results, Seeded, Study
from recombine.learners._matching import MOST_MATCHED
from recombine.learners.binding import Binding
from recombine.learners.segregation import Segregation
from recombine.models.binding import BagNet, ConvNet, SeerModel, SlotNet
from recombine.models.slots import AutoencoderModel, ChannelAutoencoder, SlotAutoencoder
from recombine.report.document import Section
from recombine.seeds import Seeds
from recombine.studies import _binding_claims as claims
from recombine.studies import _binding_report as page
from recombine.studies._binding import BAG, CHANNELS, CONV, SLOTS

Task = Literal["swap", "report", "search", "segregation"]
TASKS: tuple[Task, ...] = get_args(Task)
SOURCES = (
    "Greff, van Steenkiste and Schmidhuber, On the binding problem in artificial neural networks, "
    "2020; Locatello et al., Object-centric learning with slot attention, 2020; Campbell et al., "
    "Understanding the limits of vision language models through the lens of the binding problem, "
    "2024"
)


@dataclass(frozen=True)
class Grid(Seeded):
    """Tasks by networks by widths and held-out shares; how hard the hardest scenes are."""

    tasks: tuple[str, ...] = ("swap", "search")
    models: tuple[str, ...] = (BAG, CONV, SLOTS)
    searchers: tuple[str, ...] = (BAG,)
    width: tuple[int, ...] = (24,)  # of networks that are asked about swaps, and that report
    search_width: tuple[int, ...] = (24,)
    features: int = 4  # colours, and as many shapes
    held_out: tuple[float, ...] = (0.25,)
    supervision: Literal["answer", "pairs", "set"] = "set"  # of swaps
    search_supervision: Literal["answer", "pairs", "set"] = "answer"
    slots: int = 2  # for two objects
    rounds: int = 1  # of slot attention
    side: int = 16  # pixels, two objects
    steps: int = 1_250
    batch: int = 32
    rate: float = 4e-3
    objects: tuple[int, ...] = (2, 3, 4)  # in a scene to be reported
    report_side: int = 24
    set_size: tuple[int, ...] = (2, 4, 6)  # in training
    tested: tuple[int, ...] = (2, 6, 9)
    search_side: int = 24
    search_slots: int = 4
    search_steps: int = 300
    pieces_steps: int = 0  # of autoencoders
    pieces_batch: int = 64
    pieces_rate: float = 4e-4
    pieces_channels: int = 32
    items: int = 1_024
    search_items: int = 256
    looked: int = 128  # items scored along training
    look_every: int = 250  # steps of swaps
    seeds: int = 5


class BindingStudy(Study):
    """Which features belong together."""

    name = "binding"
    question = (
        "Do networks know which features belong together, does scale help, and how many objects "
        "does it take until they fail?"
    )
    source = SOURCES
    cost = "quick: 2 min on two CPU cores; standard: 14 min on one H200 (estimated)"
    not_shown = (
        "Photographs, overlapping objects, and features that are not colour and shape.",
        "Large models of vision and language, in which these failures were first counted: these "
        "networks are small and learn nothing but the task.",
        "Slots that were found without labels and then asked: those that answer learn from whole "
        "scenes or answers, and those that draw pictures again are never asked.",
        "Search beyond training apart from search: the largest sets are larger than any that was "
        "trained on.",
        "Binding in search as it was published, where all others share a feature with the target: "
        "there the numbers of colours and shapes tell whether it is among them. Who loses among "
        "more objects may do so in counting.",
    )
    presets: ClassVar = {
        "smoke": Grid(tasks=("swap",), models=(BAG,), searchers=(BAG,),
                      width=(8,), search_width=(8,), side=16, steps=20, batch=8, objects=(2, 3),
                      report_side=16, set_size=(2, 3), tested=(2, 4), search_side=16,
                      search_steps=20, items=16, search_items=16, looked=16, look_every=10,
                      seeds=2),
        "quick": Grid(),
        "standard": Grid(
            tasks=TASKS, searchers=(BAG, CONV, SLOTS), width=(16, 32, 64), search_width=(32,),
            features=6, held_out=(1 / 6, 0.5), slots=3, rounds=2, side=24, steps=10_000, batch=128,
            rate=1e-3, objects=(2, 3, 4, 6, 8, 10), report_side=40, set_size=(5, 10, 15),
            tested=(5, 10, 15, 20, 30), search_side=48, search_slots=16, search_steps=30_000,
            search_supervision="pairs", pieces_steps=20_000, items=2_048, search_items=2_048,
            looked=512, look_every=100,
        ),
        "paper": Grid(
            tasks=TASKS, searchers=(BAG, CONV, SLOTS), width=(32, 64, 128), search_width=(32, 64),
            features=8, held_out=(0.25, 0.5), slots=3, rounds=3, side=64, steps=100_000, batch=256,
            rate=4e-4, objects=(2, 3, 4, 6, 8, 10, 12), report_side=64, set_size=(5, 10, 15),
            tested=(5, 10, 15, 20, 25, 30, 35, 40, 45, 50), search_side=128, search_slots=16,
            search_supervision="pairs", search_steps=100_000, pieces_steps=500_000, items=4_096,
            search_items=4_096, looked=512, look_every=200, seeds=10,
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        check(grid)
        found: list[Cell] = []
        for task in grid.tasks:
            if task not in TASKS:
                raise unknown("task", task, TASKS)
            for seed in grid.drawn(grid.seeds):
                found += segregating(grid, seed) if task == "segregation" else seeing(
                    grid, task, seed
                )  # fmt: skip
        return found

    def claims(self, grid: Grid) -> list[Claim]:
        return [
            *claims.swaps(grid), *claims.pairs(grid), *claims.reports(grid), *claims.search(grid),
            *claims.limits(grid), *claims.segregation(),
        ]  # fmt: skip

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        return page.sections(grid, results)

    def conclusion(self, judgements: Sequence[Judgement]) -> str:
        """What every study says, and whether plain convolution failed anywhere."""
        limits = {
            j.claim.name.removeprefix("limit: "): j.verdict for j in judgements
            if j.claim.name.startswith("limit") and j.verdict != "not tested here"
        }  # fmt: skip
        # Pairs that were never trained are another matter than objects that are many.
        crowds = [verdict for name, verdict in limits.items() if name != "held-out pairs"]
        fails = [name for name, verdict in limits.items() if verdict == "supported"]
        said = sentence(judgements)
        if fails:
            said += f" Plain convolution fell to .9 or below with: {', '.join(fails)}."
        if crowds and all(verdict == "refuted" for verdict in crowds):
            said += (
                " Plain convolution stayed above .9 up to the most objects tried: a failure to "
                "bind many is not shown for it at this scale."
            )
        return said


def check(grid: Grid) -> None:
    """Refuses numbers of which no scene could be laid out, by the names that were typed."""
    at_least(grid, seeds=1, features=2)
    for name in ("objects", "set_size", "tested"):
        if min(getattr(grid, name)) < 1:
            given = ",".join(map(str, getattr(grid, name)))
            raise InvalidRequest(f"{name}={given}: expected numbers of at least 1")
    for share in grid.held_out:
        if not 0 <= share < 1:
            raise InvalidRequest(f"held_out={share:g}: expected shares from 0 to below 1")


def family_of(grid: Grid, task: str, held_out: float) -> Objects:
    """The scenes of a task."""
    side, counts, most = {
        "swap": ("side", "", (2,)), "report": ("report_side", "objects", grid.objects),
        "search": ("search_side", "tested and set_size", (*grid.set_size, *grid.tested)),
    }[task]  # fmt: skip
    family = Objects(getattr(grid, side), grid.features, grid.features, max(most), held_out)
    limit, reason = most_of(family, task)
    # Before pictures: no number of pixels makes room for more.
    if max(most) > limit:
        raise InvalidRequest(f"{counts} up to {max(most)}: {reason}; use {counts} up to {limit}")
    if family.side < family.least_side:
        fewer = f", or {counts} up to {family.most_that_fit}" if counts else ""
        raise InvalidRequest(
            f"{side}={family.side}: scenes of {family.most_objects} objects are too crowded; use "
            f"{side}={family.least_side}{fewer if family.most_that_fit > 1 else ''}"
        )
    return family


def most_of(family: Objects, task: str) -> tuple[int, str]:
    """How many objects scenes of a task can have on any number of pixels, and why no more."""
    if task != "report":
        return MOST_OBJECTS, f"scenes have at most {MOST_OBJECTS} objects"
    pairs = int(family.trained(0).sum())
    if pairs < MOST_MATCHED:
        return pairs, f"training has {pairs} different pairs"
    return MOST_MATCHED, f"sets of at most {MOST_MATCHED} objects are matched"


def model_of(grid: Grid, name: str, width: int, slots: int) -> SeerModel:
    if name == SLOTS:
        return SlotNet(width, slots=slots, iterations=grid.rounds)
    known: dict[str, type[BagNet] | type[ConvNet]] = {BAG: BagNet, CONV: ConvNet}
    if name not in known:
        raise unknown("model", name, (*known, SLOTS))
    return known[name](width)


def seeing(grid: Grid, task: str, seed: int) -> list[Cell]:
    """The networks that are asked, and those that report."""
    widths = grid.search_width if task == "search" else grid.width
    shares = grid.held_out if task == "swap" else (min(grid.held_out),)
    names = grid.searchers if task == "search" else grid.models
    objects = {"swap": (2,), "report": grid.objects, "search": grid.set_size}[task]
    slots = {"swap": grid.slots, "report": max(grid.objects), "search": grid.search_slots}[task]
    # A report is of sets whatever else is told.
    told = {"swap": grid.supervision, "report": "answer", "search": grid.search_supervision}
    steps = grid.search_steps if task == "search" else grid.steps
    sizes, items = (grid.tested, grid.search_items) if task == "search" else ((), grid.items)
    # Of swaps a moment is asked for, when trained pairs first reach .9; of all else, the end.
    every = grid.look_every if task == "swap" else max(10, steps // 50 * 10)
    return [
        Cell(
            learner := Binding(
                family=family_of(grid, task, held_out),
                model=model_of(grid, name, width, slots),
                task=task,  # pyright: ignore[reportArgumentType]
                supervision=told[task],  # pyright: ignore[reportArgumentType]
                objects=objects, seeds=Seeds.all(seed), training_steps=steps, batch=grid.batch,
                learning_rate=grid.rate, warmup=max(10, steps // 10),
                evaluation_every=every, evaluation_images=grid.looked,
            ),
            {"task": task, "model": name, "width": width, "held_out": held_out, "seed": seed,
             "parameters": learner.size},
            (BindingTest(items=items, sizes=sizes),),
        )
        for name in names
        for width in widths
        for held_out in shares
    ]  # fmt: skip


def segregating(grid: Grid, seed: int) -> list[Cell]:
    """The autoencoders."""
    channels, steps = grid.pieces_channels, grid.pieces_steps
    models: dict[str, AutoencoderModel] = {
        SLOTS: SlotAutoencoder(channels=channels, width=2 * channels, hidden=4 * channels),
        CHANNELS: ChannelAutoencoder(channels=channels),
    }
    return [
        Cell(
            learner := Segregation(
                model=model, seeds=Seeds.all(seed), training_steps=steps, batch=grid.pieces_batch,
                learning_rate=grid.pieces_rate, warmup=max(10, steps // 20),
                evaluation_every=max(10, steps // 200 * 10),
            ),
            {"task": "segregation", "model": name, "width": channels, "held_out": 0.0,
             "seed": seed, "parameters": learner.size},
            (SegregationTest(images=min(320, grid.items)),),
        )
        for name, model in models.items()
    ]  # fmt: skip
