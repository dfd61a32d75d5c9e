"""Does what can be read off a generator foretell which combinations it can draw?

`recombine run images --preset standard` trains generators of small scenes by flow matching, of
several sizes and held-out shares, asks them for combinations they never saw, and reads their
hidden states on the way from noise to picture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from recombine.encodings.linear import Identity
from recombine.errors import InvalidRequest
from recombine.families.scenes import Scenes
from recombine.instruments.composition import Composition
from recombine.instruments.foretelling import Foretelling
from recombine.lab.judge import Judgement
from recombine.lab.memberships import crossed_partial
from recombine.lab.statistics import matched
from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Row, Seeded, Study
from recombine.learners.flow import Flow
from recombine.models.diffusion import DiT
from recombine.report.document import Section
from recombine.seeds import Seeds
from recombine.studies import _base as base
from recombine.studies import _images as parts
from recombine.supports import SupportRule

SOURCE = (
    "The question of Redhardt, Akram and Schug, Scaling can lead to compositional generalization, "
    "2025 (text-to-image models); generators, scenes and judge are ours"
)


@dataclass(frozen=True)
class Grid(Seeded):
    """Sizes at one share, shares at one size, lengths of training at both; what is drawn."""

    shows: str = "sets"
    modules: int = 10
    active: int = 2
    size: int = 16
    cells: int = 2
    shapes: int = 4
    colours: int = 4
    width: tuple[int, ...] = (64,)
    middle: int = 64  # the width at which shares and lengths are compared
    depth: int = 3
    head: int = 32  # width of an attention head
    patch: int = 8
    held_out: tuple[float, ...] = (0.25, 0.5)
    share: float = 0.5  # the share at which sizes and lengths are compared
    length: tuple[float, ...] = ()  # parts of the training after which else one looks
    steps: int = 1_200
    rate: float = 2e-3
    tasks: int = 64
    samples: int = 2
    average: float = 0.995
    evaluations: int = 15  # looks along training, each at quick pictures
    combinations: int = 24
    fitted: int = 40
    draws: int = 12
    features: int = 16
    matched: float = 0.5  # the seen success at which sizes are compared along training
    seeds: int = 5


class Images(Study):
    """Pictures of combinations never trained, and what foretells them."""

    name = "images"
    question = (
        "Can a generator draw combinations it never saw, and do its hidden states foretell which?"
    )
    source = SOURCE
    cost = "quick: 3 min on two CPU cores; standard: 9 min on one H200 (6 min with --set seeds=3)"
    not_shown = (
        "Anything about large text-to-image models: for a pipeline of your own see the how-to page "
        "on generators; no such model was read here.",
        "Natural images: scenes are glyphs on a grid, so that a judge can be exact.",
        "What decodability causes: it is compared with success, not changed.",
    )
    presets: ClassVar = {
        "smoke": Grid(width=(16,), middle=16, depth=1, head=8, held_out=(0.5,), steps=40, tasks=16,
                      combinations=8, fitted=12, draws=4, features=8, length=(0.5,), seeds=2),
        "quick": Grid(),
        "standard": Grid(modules=16, active=3, size=32, cells=4, shapes=8, colours=8,
                         width=(64, 128, 256), middle=128, depth=6, held_out=(0.75, 0.9, 0.97),
                         share=0.9, length=(0.025, 0.0625, 0.125, 0.25), steps=8_000, rate=1e-3,
                         tasks=128, average=0.999, evaluations=50, combinations=96, fitted=192,
                         draws=32, features=64, seeds=5),
        "paper": Grid(modules=16, active=3, size=32, cells=4, shapes=8, colours=8,
                      width=(64, 128, 256, 384), middle=256, depth=6, patch=4,
                      held_out=(0.5, 0.75, 0.9, 0.95, 0.97), share=0.9,
                      length=(0.0625, 0.125, 0.25, 0.5), steps=100_000, rate=3e-4, tasks=128,
                      average=0.9995, evaluations=50, combinations=192, fitted=256, draws=64,
                      features=96, seeds=5),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        found = [self.cell(grid, width=width, seed=seed)
                 for width in grid.width for seed in grid.drawn(grid.seeds)]  # fmt: skip
        found += [self.cell(grid, held_out=share, seed=seed)
                  for share in grid.held_out for seed in grid.drawn(grid.seeds)]  # fmt: skip
        found += [self.cell(grid, length=length, seed=seed)
                  for length in grid.length for seed in grid.drawn(grid.seeds)]  # fmt: skip
        return found

    def cell(
        self, grid: Grid, *, seed: int, width: int | None = None, held_out: float | None = None,
        length: float = 1.0,
    ) -> Cell:  # fmt: skip
        width = grid.middle if width is None else width
        held_out = grid.share if held_out is None else held_out
        if grid.head < 1 or width < grid.head or width % grid.head:
            raise InvalidRequest(
                f"width={width} is no multiple of head={grid.head}: use "
                f"width={max(1, width // max(1, grid.head)) * max(1, grid.head)}"
            )
        if not 0 < length <= 1:
            raise InvalidRequest(f"length={length:g}: expected parts of the training, such as .25")
        family, encoding = self.family(grid), Identity()
        model = DiT(depth=grid.depth, width=width, heads=width // grid.head, patch=grid.patch)
        steps = max(10, round(grid.steps * length / 10) * 10)
        learner = Flow(
            family=family, support=SupportRule(held_out=held_out), encoding=encoding, model=model,
            seeds=Seeds.all(seed), training_steps=steps, tasks=grid.tasks, samples=grid.samples,
            learning_rate=grid.rate, weight_decay=1e-3, average=grid.average,
            evaluation_every=max(10, grid.steps // grid.evaluations // 10 * 10),
            evaluation_tasks=128,
        )  # fmt: skip
        sizes = (encoding.size(family), family.input_size, family.output_size)
        labels = {"width": width, "held_out": held_out, "length": length, "steps": steps,
                  "seed": seed, "parameters": model.parameters(*sizes)}  # fmt: skip
        asked = {"combinations": grid.combinations, "guidance": 2.0, "steps": 20}
        return Cell(learner, labels, (
            Composition(draws=grid.draws, **asked),
            Foretelling(fitted=grid.fitted, features=grid.features, **asked),
        ))  # fmt: skip

    def family(self, grid: Grid) -> Scenes:
        chosen: dict[str, Any] = {"modules": grid.modules, "active": grid.active}
        return Scenes(
            shows=grid.shows,  # pyright: ignore[reportArgumentType]
            size=grid.size, cells=grid.cells, shapes=grid.shapes,
            colours=grid.colours, **(chosen if grid.shows == "sets" else {}),
        )  # fmt: skip

    def claims(self, grid: Grid) -> list[Claim]:
        small, large = min(grid.width), max(grid.width)
        few, many = min(grid.held_out), max(grid.held_out)
        at = f"with {grid.share:g} held out"
        narrow, wide = {"width": small, "length": 1.0}, {"width": large, "length": 1.0}
        dense = {"width": grid.middle, "length": 1.0, "held_out": few}
        sparse = {**dense, "held_out": many}
        home = {"held_out": grid.share}
        return [
            Claim("floor: draws what it was shown",
                  f"The success on seen combinations at width {large} {at} is at least .9",
                  mean_of(parts.seen, **wide, **home), at_least=0.9),
            Claim("larger generators compose more",
                  f"The success on unseen combinations {at} is higher at width {large} than at "
                  f"{small}", paired(narrow | home, wide | home, parts.unseen), above=0.0),
            Claim("also at matched seen success",
                  f"The success on unseen combinations {at}, when that on seen ones first reaches "
                  f"{grid.matched:g} along training, is higher at width {large} than at {small}",
                  paired(narrow | home, wide | home, at_matched(grid.matched)), above=0.0),
            Claim("the gap closes with coverage",
                  f"The gap between seen and unseen success at width {grid.middle} is larger with "
                  f"{many:g} held out than with {few:g}",
                  paired(dense, sparse, parts.gap), above=0.0),
            Claim("the gap closes with coverage, at matched seen success",
                  f"The success on unseen combinations at width {grid.middle}, when that on seen "
                  f"ones first reaches {grid.matched:g}, is higher with {few:g} held out than with "
                  f"{many:g}", paired(sparse, dense, at_matched(grid.matched)), above=0.0),
            Claim("decodability foretells success",
                  "Within one network, unseen combinations whose concepts can be read off hidden "
                  "states while the image is noise (probe of the image: R² at most "
                  f"{parts.CHANCE:g}) are drawn rightly more often, beyond what probes of image "
                  "and condition and the number of concepts say: mean partial correlation over "
                  "networks",
                  foretells(), unit="concepts", above=0.0),
            Claim("beyond which concepts they have",
                  "The same correlation after the mean of every concept was taken out, too",
                  foretells(concepts=True), unit="concepts", above=0.0),
            Claim("decodability comes first",
                  f"At width {grid.middle} {at}, hidden states on noise come halfway to their "
                  "final R² after fewer steps than unseen success comes halfway to its own (log2 "
                  "of the ratio)", self._first(grid), above=0.0),
            Claim("new pairs are harder than new triples",
                  "Unseen combinations with a pair never trained together are drawn less often "
                  "than those with only a triple that is new (mean over networks of one seed)",
                  levels, above=0.0),
        ]  # fmt: skip

    def _first(self, grid: Grid) -> Callable[[Results], Evidence]:
        def measure(results: Results) -> Evidence:
            rows = results.where(width=grid.middle, held_out=grid.share)
            if len(grid.length) < 2:
                raise NotTested("Needs networks at three lengths of training or more.")
            found = []
            for seed in grid.drawn(grid.seeds):
                along = [row for row in rows.where(seed=seed) if not row.diverged]
                along = sorted(along, key=lambda row: row.labels["steps"])
                numbers = (parts.unseen, parts.on_noise(along))
                both = [parts.halfway(along, number) for number in numbers]
                first_look = min((row.labels["steps"] for row in along), default=0)
                # Where both came before the first look, nobody knows which was first.
                if np.isfinite(both).all() and max(both) > first_look:
                    found.append(np.log2(both[0] / both[1]))
            wanted = "Seeds that get halfway after the first look"
            return Evidence.of_values(base.require(np.asarray(found), wanted))

        return measure

    def conclusion(self, judgements: Sequence[Judgement]) -> str:
        """Its three questions, each by the claim that answers it."""
        told = {j.claim.name: j.verdict for j in judgements}
        return (
            "More unseen combinations are drawn where more are covered: "
            f"{told['the gap closes with coverage']}; by larger generators: "
            f"{told['larger generators compose more']}. Hidden states foretell which, while the "
            f"image is still noise: {told['decodability foretells success']}."
        )

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        return parts.sections(grid, results, self.family(grid))


def mean_of(number: Callable[[Row], float], **place: Any) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        rows = base.require_labels(results, **place)
        values = np.asarray([number(row) for row in rows if not row.diverged])
        return Evidence.of_values(base.require(values, "Networks"))

    return measure


def paired(
    first: dict[str, Any], second: dict[str, Any], number: Callable[[Row], float]
) -> Callable[[Results], Evidence]:
    """second - first for each seed."""

    def measure(results: Results) -> Evidence:
        if first == second:
            raise NotTested("Needs two widths and two held-out shares.")
        compared = Results([*results.where(**first), *results.where(**second)])
        rows = Results([row for row in compared if parts.seen(row) >= parts.FLOOR])
        values = rows.paired("seed", first, second, number)
        behind = len(compared) - len(rows)
        note = f"Left out: {behind} that draw fewer than half of what they saw." if behind else ""
        return Evidence.of_values(base.require(values, f"Pairs of trained networks. {note}"), note)

    return measure


def at_matched(at: float) -> Callable[[Row], float]:
    """Unseen success when seen success first reached `at` along training, or NaN."""
    return lambda row: matched(row.curve("seen_success")[1], row.curve("unseen_success")[1], at)


def foretells(concepts: bool = False) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        used = [(row, parts.crossed(row, concepts)) for row in results.where(length=1.0)]
        groups = [group for _, group in used if group is not None]
        if len(groups) < 2:
            raise NotTested(
                "Needs two networks that draw some unseen combinations and not others, and times "
                "at which the image itself tells nothing."
            )
        interval, count = crossed_partial(groups)
        reliable = [parts.reliability(row) for row, group in used if group is not None]
        reliable = [r for r in reliable if np.isfinite(r)]
        note = f"{count} networks"
        if reliable:
            note += f"; split-half reliability of success {np.mean(reliable):.2f}"
        note += "."
        return Evidence.of_interval(interval, note)

    return measure


def levels(results: Results) -> Evidence:
    found = []
    for seed in results.labels("seed"):
        rows = results.where(seed=seed, length=1.0)
        rows = [row for row in rows if parts.seen(row) >= parts.FLOOR]
        apart = [
            row.value("composition", "unseen_level1") - row.value("composition", "unseen_level2")
            for row in rows
            if not row.diverged
            and all(row.value("composition", f"unseen_count_level{n}") >= 10 for n in (1, 2))
        ]
        apart = [a for a in apart if np.isfinite(a)]
        if apart:
            found.append(float(np.mean(apart)))
    return Evidence.of_values(base.require(np.asarray(found), "Seeds with both kinds of novelty"))
