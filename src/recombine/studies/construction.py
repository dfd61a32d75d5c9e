"""Can the compositional solution be written down, how large is it, and does training keep it?

`recombine run construction --preset standard` writes teachers down as the weights of ordinary MLPs,
looks at them as they are, and trains some on. Expected from the literature: the error falls with
the square of the neurons and hardly knows the number of modules, and a network that answers right
can be asked for its constituents.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from recombine.families._family import Regression
from recombine.families.additive import Additive
from recombine.families.hyperteacher import Hyperteacher
from recombine.instruments._instrument import Instrument
from recombine.instruments.decodability import Decodability
from recombine.instruments.erasure import Erasure
from recombine.instruments.exactness import Exactness
from recombine.instruments.function_decoder import FunctionDecoder
from recombine.instruments.generalization import Generalization
from recombine.lab.judge import Judgement
from recombine.lab.study import Cell, Claim, Results, Seeded, Study
from recombine.learners.as_drawn import AsDrawn
from recombine.learners.supervised import Supervised
from recombine.models._model import Model
from recombine.models.constructed import constructed_for
from recombine.models.mlp import MLP
from recombine.report.document import Section
from recombine.seeds import Seeds
from recombine.studies import _base as base
from recombine.studies import _construction_measures as measures
from recombine.studies._base import unseen
from recombine.studies._construction_measures import COARSE, FIRST, PLAIN
from recombine.supports import SupportRule


@dataclass(frozen=True)
class Grid(Seeded):
    """Resolutions, numbers of modules, encodings and families, each varied by itself."""

    teacher: int = 8
    modules: tuple[int, ...] = (8, 32, 128)
    active: int = 3
    segments: tuple[int, ...] = (2, 4, 8, 16)
    squarings: int = 3
    compared: int = 8
    erased: int = 4
    further: tuple[int, ...] = (4, 32)
    held_out: float = 0.9
    steps: int = 1_000
    rate: float = 1e-4
    random_rate: float = 1e-3
    ordinary_steps: int = 1_000
    ordinary_rate: float = 3e-3
    ordinary_depth: int = 2
    tasks: int = 32
    samples: int = 16
    features: int = 128
    seeds: int = 5


class ConstructionStudy(Study):
    """The solution written down."""

    name = "construction"
    question = (
        "Can the compositional solution be written down, how large is it, and does training keep "
        "it?"
    )
    source = (
        "Redhardt, Akram and Schug, Scaling can lead to compositional generalization, 2025, "
        "Theorems 3.1 and 4.1"
    )
    cost = "quick: 2 min on two CPU cores (estimated); standard: 2.5 min on one H200"
    not_shown = (
        "That training finds this solution: it starts from it, and what networks find by "
        "themselves is another question.",
        "That fewer neurons would not do: the construction is an upper bound.",
        "Teachers of several hidden layers, and encodings that cannot be inverted exactly.",
        "Other training: one length and one rate for each network, one held-out share.",
    )
    presets: ClassVar = {
        "smoke": Grid(
            teacher=4, modules=(4,), active=2, segments=(2, 4), squarings=0, compared=4, further=(),
            held_out=0.25, steps=40, ordinary_steps=40, tasks=16, features=16, seeds=2,
        ),
        "quick": Grid(),
        "standard": Grid(
            teacher=16, modules=(16, 64, 256), segments=(2, 4, 8, 16, 32), squarings=4, steps=2_000,
            random_rate=5e-4, ordinary_steps=10_000, ordinary_rate=1e-3, ordinary_depth=4,
            tasks=128, features=256, first_seed=100,  # seeds nobody has looked at
        ),
        "paper": Grid(
            teacher=16, modules=(16, 64, 256), segments=(2, 4, 8, 16, 32, 64), squarings=5,
            further=(4, 8, 16, 32), steps=20_000, random_rate=5e-4, ordinary_steps=100_000,
            ordinary_rate=3e-4, ordinary_depth=4, tasks=128, features=256, first_seed=100,
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        few = grid.modules[0]
        decoder = FunctionDecoder(inputs=grid.samples)
        probe = Decodability(rows=16 * grid.features, features=grid.features)
        found: list[Cell] = []

        def add(*instruments: Instrument, **how: Any) -> None:
            found.extend(_cell(grid, s, instruments, **how) for s in grid.drawn(grid.seeds))

        for n in sorted({*grid.segments, grid.compared, grid.erased}):
            more: tuple[Instrument, ...] = (Generalization(), probe) if n == grid.compared else ()
            if n == grid.erased:
                # Three rows a unit: with fewer, erasing fits the sample and not the network.
                width = constructed_for(_family(grid, "subsets", few), segments=n).widths[0]
                more += (Erasure(rows=3 * width),)
            add(decoder, *more, modules=few, segments=n)
        if grid.squarings:
            add(modules=few, squarings=grid.squarings, method="depth")
        for modules in grid.modules[1:]:
            add(modules=modules, segments=grid.compared)
        for modules in sorted({few, grid.modules[-1]}):
            add(modules=modules, segments=grid.compared, encoding="interval-shuffle")
        for family in ("slots", "additive"):
            for n in grid.further:
                add(modules=few, segments=n, family=family)
        for start in ("written", "random", "ordinary"):
            add(Generalization(), decoder, probe, modules=few, segments=grid.compared, start=start,
                trained=True)  # fmt: skip
        return found

    def claims(self, grid: Grid) -> list[Claim]:
        few, many, n = grid.modules[0], grid.modules[-1], grid.compared
        finest = max(grid.segments)

        def plain(**labels: Any) -> dict[str, Any]:
            return {**PLAIN, "modules": few, "segments": n, **labels}

        kept = {**plain(), "trained": True}
        shaped, ordinary = {**kept, "start": "random"}, {**kept, "start": "ordinary"}
        return [
            Claim(
                "the error falls with the square",
                f"Slope of log2 of the largest error on log2 of the segments, from {COARSE} "
                "segments on, is -2 to within .15",
                measures.error_slope("subsets"), at_least=-2.15, at_most=-1.85,
            ),
            Claim(
                "also for slots",
                "The same slope where a task takes one module of each slot is -2 to within .15",
                measures.error_slope("slots"), at_least=-2.15, at_most=-1.85,
            ),
            Claim(
                "also for sums of outputs",
                "The same slope for the additive teacher is -2 to within .15",
                measures.error_slope("additive"), at_least=-2.15, at_most=-1.85,
            ),
            Claim(
                "never beyond the bound",
                "The largest error of every written network is at most what its construction "
                "promises: the share of networks of which this holds is 1",
                measures.within_bound, at_least=1.0,
            ),
            Claim(
                "the error hardly knows the number of modules",
                f"With {n} segments the largest error at {many} modules is at most 1.6 times that "
                f"at {few}",
                measures.error_ratio(plain(modules=many), plain()), at_most=1.6,
            ),
            Claim(
                "check: not one neuron more for more modules",
                f"Told z itself, {many} modules need as many hidden neurons as {few}: the "
                "difference is 0",
                measures.more_units(plain(), plain(modules=many), 1), at_least=0.0, at_most=0.0,
            ),
            Claim(
                "check: a hidden code costs neurons in proportion to the modules",
                f"Told by shuffled intervals, each module between {few} and {many} costs 6 to 7 "
                "hidden neurons more",
                measures.more_units(plain(encoding="interval-shuffle"),
                           plain(encoding="interval-shuffle", modules=many), many - few),
                at_least=6.0, at_most=7.0,
            ),
            Claim(
                "check: neurons by the root of the tolerance",
                f"Slope of log2 of the hidden neurons on log2 of the promised error, from {COARSE} "
                "segments on, is -1/2 to within .03",
                measures.size_slope, at_least=-0.53, at_most=-0.47,
            ),
            Claim(
                "check: depth saves neurons",
                f"At the promised error of {finest} segments a deep construction has fewer hidden "
                "neurons: their ratio is below 1",
                measures.depth_ratio(plain(segments=finest), grid.squarings), below=1.0,
            ),
            Claim(
                "training keeps it",
                f"Trained on {1 - grid.held_out:.2g} of the combinations, the written network "
                f"({n} segments) keeps an unseen R² of at least .99",
                measures.score(kept, unseen), at_least=0.99,
            ),
            Claim(
                "random weights of its shape do not get there",
                "Unseen R² of the trained written network minus that of a network of its shape "
                "trained from random weights, whether or not it learns its training tasks, is "
                "above 0",
                measures.difference(kept, shaped, unseen, trained=False), above=0.0,
            ),
            Claim(
                "nor does an ordinary network of its size",
                "Unseen R² of the trained written network minus that of an ordinary MLP of as "
                "many parameters that has learnt its training tasks is above 0",
                measures.difference(kept, ordinary, unseen, trained=True), above=0.0,
            ),
            Claim(
                "the probe finds the task where it is known to be",
                f"R² of a linear probe for the task in the first hidden layer of the written "
                f"network ({n} segments) is at least .9",
                measures.score(plain(), lambda row: row.value("decodability", FIRST)), at_least=0.9,
            ),
            Claim(
                "a random network shows it there as well",
                "That R² minus the one of random weights of equal shape is at most .1: the first "
                "layer does not tell the solution from none",
                measures.probe_beyond_random(plain(), shaped), at_most=0.1,
            ),
            Claim(
                "the task is gone from the deepest layer",
                "In the deepest hidden layer of the written network that R² is at most .1: right "
                "answers do not need the task to be readable there",
                measures.score(plain(), measures.deepest), at_most=0.1,
            ),
            Claim(
                "erasing it is selective",
                f"Erasing a module's readable subspace in the first hidden layer ({grid.erased} "
                "segments) hurts tasks with that module more than others, beyond a random "
                "subspace of equal rank",
                measures.score(plain(segments=grid.erased),
                      lambda row: row.value("erasure", "beyond_random")), above=0.0,
            ),
            Claim(
                "right answers give the constituents away",
                "Of the written networks of all resolutions, all keep the promise that a decoder "
                "recovers the constituents of at least 1 - sqrt(delta) of the tasks from their "
                "answers, delta the share of wrong ones: the share that keeps it is 1",
                measures.promise_kept(trained=False), at_least=1.0,
            ),
            Claim(
                "of trained networks too",
                "The same for the trained networks, whatever they started from, that are right "
                "often enough to be promised something: the share that keeps it is 1",
                measures.promise_kept(trained=True), at_least=1.0,
            ),
        ]  # fmt: skip

    def conclusion(self, judgements: Sequence[Judgement]) -> str:
        """Its three questions, each by the claims that answer it."""
        told = {j.claim.name: j.verdict for j in judgements}

        def together(*names: str) -> str:
            words = {told[name] for name in names}
            for word in ("refuted", "inconclusive", "not tested here"):
                if word in words:
                    return word
            return "supported"

        down = together("the error falls with the square", "never beyond the bound")
        size = together("check: neurons by the root of the tolerance",
                        "check: not one neuron more for more modules")  # fmt: skip
        return (
            f"The compositional solution can be written down to any tolerance: {down}. Its size "
            f"grows with 1/sqrt(tolerance) and not with the combinations: {size}. Training keeps "
            f"it: {told['training keeps it']}."
        )

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        from recombine.studies._construction_sections import sections

        return sections(grid, results, _family(grid, "subsets", grid.modules[0]))


def _family(grid: Grid, kind: str, modules: int) -> Regression:
    units, active = grid.teacher, grid.active
    if kind == "additive":
        return Additive(modules=modules, active=active, input_units=units, features=units,
                        output_units=units)  # fmt: skip
    levels = () if kind == "subsets" else tuple(
        (modules + slot) // active for slot in range(active)
    )  # fmt: skip
    return Hyperteacher(modules=modules, active=active, input_units=units, hidden=(units,),
                        output_units=units, levels=levels)  # fmt: skip


def _cell(
    grid: Grid, seed: int, instruments: tuple[Instrument, ...], *, modules: int,
    segments: int = 2, squarings: int = 1, method: Any = "segments", family: str = "subsets",
    encoding: str = "identity", start: str = "written", trained: bool = False,
) -> Cell:  # fmt: skip
    """A written network, one of its shape or one of its size, with everything drawn anew."""
    teacher, told = _family(grid, family, modules), base.encoding_named(encoding)
    sizes = (told.size(teacher), teacher.input_size, teacher.output_size)
    spec = constructed_for(
        teacher, told, method=method, segments=segments, squarings=squarings,
        random=start == "random",
    )  # fmt: skip
    model: Model = spec
    steps, rate, units = grid.steps, grid.rate, spec.units
    if start == "random":
        rate = grid.random_rate
    elif start == "ordinary":
        model = _ordinary(spec.parameters(*sizes), grid.ordinary_depth, sizes)
        steps, rate, units = grid.ordinary_steps, grid.ordinary_rate, model.width * model.depth
    # Where nothing is learnt the support does not matter, and a quarter can always be held out.
    held_out = grid.held_out if family == "subsets" and modules == grid.modules[0] else 0.25
    learner = Supervised(
        family=teacher, encoding=told, model=model, support=SupportRule(held_out=held_out),
        seeds=Seeds.all(seed), training_steps=steps, learning_rate=rate, tasks=grid.tasks,
        samples=grid.samples, evaluation_every=max(10, steps // 10 // 10 * 10),
        evaluation_tasks=256,
    )  # fmt: skip
    labels = {
        "family": family, "encoding": encoding, "method": method, "start": start,
        "trained": trained, "modules": modules, "segments": spec.resolution, "units": units,
        "parameters": model.parameters(*sizes), "seed": seed,
    }  # fmt: skip
    asked = (Exactness(samples=grid.samples), *instruments)
    return Cell(learner if trained else AsDrawn(learner), labels, asked)


def _ordinary(parameters: int, depth: int, sizes: tuple[int, int, int]) -> MLP:
    """The narrowest MLP that has at least so many parameters."""
    return next(
        model
        for model in (MLP(width=width, depth=depth) for width in itertools.count(1))
        if model.parameters(*sizes) >= parameters
    )
