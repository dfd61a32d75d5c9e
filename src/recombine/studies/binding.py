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

from recombine.errors import unknown
from recombine.families.objects import Objects
from recombine.instruments.binding import Binding as BindingTest
from recombine.instruments.segregation import Segregation as SegregationTest
from recombine.lab.judge import Judgement, sentence
from recombine.lab.study import Cell, Claim, Results, Study
from recombine.learners.binding import Binding
from recombine.learners.segregation import Segregation
from recombine.models.binding import BagNet, ConvNet, SeerModel, SlotNet
from recombine.models.slots import AutoencoderModel, ChannelAutoencoder, SlotAutoencoder
from recombine.report.document import Section
from recombine.seeds import Seeds
from recombine.studies import _binding as parts
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
class Grid:
    """Tasks by networks by widths and held-out shares; how hard the hardest scenes are."""

    tasks: tuple[str, ...] = ("swap", "search")
    models: tuple[str, ...] = (BAG, CONV, SLOTS)
    searchers: tuple[str, ...] = (BAG,)
    width: tuple[int, ...] = (24,)  # of networks that are asked about swaps
    middle: int = 24  # of those that report and search
    features: int = 4  # colours, and as many shapes
    held_out: tuple[float, ...] = (0.25,)
    supervision: Literal["answer", "set"] = "set"  # of swaps
    slots: int = 2  # for two objects
    rounds: int = 1  # of slot attention
    side: int = 16  # pixels, two objects
    steps: int = 1_450
    batch: int = 32
    rate: float = 4e-3
    objects: tuple[int, ...] = (2, 3, 4)  # in a scene to be reported
    report_side: int = 24
    set_size: tuple[int, ...] = (2, 4, 6)  # in training
    tested: tuple[int, ...] = (2, 4, 6, 9)
    search_side: int = 24
    search_slots: int = 4
    search_steps: int = 400
    pieces_steps: int = 0  # of autoencoders
    pieces_batch: int = 64
    pieces_rate: float = 4e-4
    pieces_channels: int = 32
    items: int = 1_024
    search_items: int = 256
    looked: int = 128  # items scored along training
    seeds: int = 5


class BindingStudy(Study):
    """Which features belong together."""

    name = "binding"
    question = (
        "Do networks know which features belong together, does scale help, and how many objects "
        "does it take until they fail?"
    )
    source = SOURCES
    cost = "quick: 2 min on two CPU cores; standard: 10 min on one H200 (estimated)"
    not_shown = (
        "Photographs, overlapping objects, and features that are not colour and shape.",
        "Large models of vision and language, in which these failures were first counted: these "
        "networks are small and learn nothing but the task.",
        "Slots that were found without labels and then asked: those that answer learn from whole "
        "scenes or answers, and those that draw pictures again are never asked.",
        "Search beyond training apart from search: the largest sets are larger than any that was "
        "trained on.",
    )
    presets: ClassVar = {
        "smoke": Grid(tasks=("swap",), models=(BAG,), searchers=(BAG,),
                      width=(8,), middle=8, side=16, steps=20, batch=8, objects=(2, 3),
                      report_side=16, set_size=(2, 3), tested=(2, 4), search_side=16,
                      search_steps=20, items=16, search_items=16, looked=16, seeds=2),
        "quick": Grid(),
        "standard": Grid(
            tasks=TASKS, searchers=(BAG, CONV, SLOTS), width=(16, 32, 64), middle=32, features=6,
            held_out=(1 / 6, 0.5), slots=3, rounds=2, side=24, steps=10_000, batch=128, rate=1e-3,
            objects=(2, 3, 4, 5, 6), report_side=32, set_size=(5, 10, 15),
            tested=(5, 10, 15, 20, 30), search_side=48, search_slots=7, search_steps=10_000,
            pieces_steps=20_000, items=2_048, search_items=2_048, looked=512,
        ),
        "paper": Grid(
            tasks=TASKS, searchers=(BAG, CONV, SLOTS), width=(32, 64, 128), middle=64, features=8,
            held_out=(0.25, 0.5), slots=3, rounds=3, side=64, steps=100_000, batch=256, rate=4e-4,
            objects=(2, 3, 4, 5, 6), report_side=64, set_size=(5, 10, 15),
            tested=(5, 10, 15, 20, 25, 30, 35, 40, 45, 50), search_side=128, search_slots=16,
            search_steps=100_000, pieces_steps=500_000, items=4_096, search_items=4_096,
            looked=512, seeds=10,
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        found: list[Cell] = []
        for task in grid.tasks:
            if task not in TASKS:
                raise unknown("task", task, TASKS)
            for seed in range(grid.seeds):
                found += segregating(grid, seed) if task == "segregation" else seeing(
                    grid, task, seed
                )  # fmt: skip
        return found

    def claims(self, grid: Grid) -> list[Claim]:
        return [
            *swap_claims(grid), *pair_claims(grid), *report_claims(), *search_claims(grid),
            *limit_claims(grid), *segregation_claims(),
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
        if crowds and all(verdict == "refuted" for verdict in crowds):
            said += (
                " Plain convolution stayed above .9 up to the most objects tried: a failure to "
                "bind is not shown for it at this scale."
            )
        elif fails:
            said += f" Plain convolution fell to .9 or below with: {', '.join(fails)}."
        return said


def family_of(grid: Grid, task: str, held_out: float) -> Objects:
    """The scenes of a task."""
    side, most = {
        "swap": (grid.side, 2), "report": (grid.report_side, max(grid.objects)),
        "search": (grid.search_side, max(grid.tested)),
    }[task]  # fmt: skip
    return Objects(side, grid.features, grid.features, most, held_out)


def model_of(grid: Grid, name: str, width: int, slots: int) -> SeerModel:
    if name == SLOTS:
        return SlotNet(width, slots=slots, iterations=grid.rounds)
    known: dict[str, type[BagNet] | type[ConvNet]] = {BAG: BagNet, CONV: ConvNet}
    if name not in known:
        raise unknown("model", name, (*known, SLOTS))
    return known[name](width)


def seeing(grid: Grid, task: str, seed: int) -> list[Cell]:
    """The networks that are asked, and those that report."""
    widths = grid.width if task == "swap" else (grid.middle,)
    shares = grid.held_out if task == "swap" else (min(grid.held_out),)
    names = grid.searchers if task == "search" else grid.models
    objects = {"swap": (2,), "report": grid.objects, "search": grid.set_size}[task]
    slots = {"swap": grid.slots, "report": max(grid.objects), "search": grid.search_slots}[task]
    steps = grid.search_steps if task == "search" else grid.steps
    sizes, items = (grid.tested, grid.search_items) if task == "search" else ((), grid.items)
    return [
        Cell(
            learner := Binding(
                family=family_of(grid, task, held_out),
                model=model_of(grid, name, width, slots),
                task=task,  # pyright: ignore[reportArgumentType]
                supervision=grid.supervision if task == "swap" else "answer",
                objects=objects, seeds=Seeds.all(seed), training_steps=steps, batch=grid.batch,
                learning_rate=grid.rate, warmup=max(10, steps // 10),
                evaluation_every=max(10, steps // 50 * 10), evaluation_images=grid.looked,
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


def swap_claims(grid: Grid) -> list[Claim]:
    largest, least = max(grid.width), min(grid.held_out)
    return [
        Claim("swap: a bag of features guesses",
              "Where only the binding tells, a network that pools colours and shapes apart is "
              "right in .50 of the cases, within .03",
              parts.mean("swap", BAG, parts.seen), at_least=0.47, at_most=0.53),
        Claim("swap: slots bind",
              f"Slots of width {largest} are right in at least .95 of them (trained pairs)",
              parts.mean("swap", SLOTS, parts.seen, able=False, width=largest, held_out=least),
              at_least=0.95),
        Claim("swap: plain convolution binds two objects",
              f"So is plain convolution of width {largest}: two objects are no difficulty",
              parts.mean("swap", CONV, parts.seen, able=False, width=largest, held_out=least),
              at_least=0.95),
    ]  # fmt: skip


def pair_claims(grid: Grid) -> list[Claim]:
    """Colour-shape pairs that were never trained: does scale close the gap, does coverage?"""
    (small, large), (least, most) = (
        (min(values), max(values)) for values in (grid.width, grid.held_out)
    )
    found = []
    for model, name in ((CONV, "convolution"), (SLOTS, "slots")):
        narrow, wide = ({"width": w, "held_out": least} for w in (small, large))
        if small < large:
            found += [
                Claim(f"held-out pairs: width closes the gap of {name}",
                      f"The gap between trained and held-out pairs is smaller at width {large} "
                      f"than at {small}, {least:.3g} held out",
                      parts.paired("swap", (model, narrow), (model, wide), parts.gap), below=0.0),
                Claim(f"held-out pairs: also at matched score, {name}",
                      f"At width {large} more held-out pairs are right when trained pairs first "
                      f"reach .9 than at {small}",
                      parts.paired("swap", (model, narrow), (model, wide), parts.at_matched),
                      above=0.0),
            ]  # fmt: skip
        if least < most:
            poor = {"width": large, "held_out": most}
            found.append(Claim(
                f"held-out pairs: coverage closes the gap of {name}",
                f"The gap is smaller with {least:.3g} of the pairs held out than with {most:.3g}",
                parts.paired("swap", (model, poor), (model, wide), parts.gap), below=0.0,
            ))  # fmt: skip
    home = {"width": large, "held_out": least}
    found.append(Claim(
        "held-out pairs: slots carry over more",
        f"At width {large}, slots are right about more held-out pairs than plain convolution",
        # Not the gap: who learnt trained pairs less well would have a smaller one.
        parts.paired("swap", (CONV, home), (SLOTS, home), parts.unseen), above=0.0,
    ))  # fmt: skip
    return found


def report_claims() -> list[Claim]:
    return [
        Claim("report: the bag swaps features",
              "A bag reports at least twice as many conjunctions of features that are there but "
              "not together as slots do (an object; bag minus twice slots)",
              parts.against_double("report", BAG, SLOTS, parts.conjunctions), at_least=0.0),
        Claim("report: its errors are conjunctions",
              "Among wrong things the share of conjunctions is at least twice that of slots (bag "
              "minus twice slots)",
              parts.against_double("report", BAG, SLOTS, parts.conjunction_share), at_least=0.0),
        Claim("report: more than guessing",
              "That share of the bag is above what guessing both features of a wrong thing gives "
              "on the same scenes",
              parts.mean("report", BAG, parts.beyond_guessing), above=0.0),
    ]  # fmt: skip


def search_claims(grid: Grid) -> list[Claim]:
    few, many = min(grid.tested), max(grid.tested)
    return [
        Claim("search: conjunctions cost the bag",
              f"Among {many} objects, a bag finds a target by its colour in at least .15 more "
              "cases than by colour and shape together",
              parts.mean("search", BAG, parts.interaction(many)), at_least=0.15),
        Claim("search: more so among more objects",
              f"That difference grows from {few} objects to {many}",
              parts.mean("search", BAG, parts.growth), above=0.0),
        Claim("search: slots lose half as much",
              "The difference grows with each object at most half as fast for slots (slots minus "
              "half the bag)",
              parts.half_as_fast("search", BAG, SLOTS, parts.slope), at_most=0.0),
    ]  # fmt: skip


def limit_claims(grid: Grid) -> list[Claim]:
    """Where plain convolution fails; a refuted one states up to where it does not."""
    return [
        Claim("limit: objects",
              f"Of {max(grid.objects)} objects, plain convolution reports at most .9 right",
              parts.mean("report", CONV, parts.reported(max(grid.objects))), at_most=0.9),
        Claim("limit: set size",
              f"Among {max(grid.tested)} objects, plain convolution finds at most .9 of "
              "conjunctions",
              parts.mean("search", CONV, parts.found("conjunctive", max(grid.tested))),
              at_most=0.9),
        Claim("limit: held-out pairs",
              f"With {max(grid.held_out):.3g} of the pairs held out, plain convolution of width "
              f"{max(grid.width)} is right about at most .9 of these",
              parts.mean("swap", CONV, parts.unseen, width=max(grid.width),
                         held_out=max(grid.held_out)), at_most=0.9),
    ]  # fmt: skip


def segregation_claims() -> list[Claim]:
    return [
        Claim("segregation: slots find the objects",
              "Without labels, the parts of slots are the objects: foreground ARI of at least .90 "
              "(the median over pictures)",
              parts.mean("segregation", SLOTS, parts.median_ari), at_least=0.9),
        Claim("segregation: channels do not",
              "In a convolutional autoencoder whose channels stand for slots it is at most .50",
              parts.mean("segregation", CHANNELS, parts.median_ari), at_most=0.5),
        Claim("segregation: more than colour",
              "The mean over pictures is above what sorting pixels by colour gives",
              parts.mean("segregation", SLOTS, parts.beyond_colour), above=0.0),
    ]  # fmt: skip
