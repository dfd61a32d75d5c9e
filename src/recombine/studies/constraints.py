"""Is a share of satisfied constraints that does not rise a ceiling of reasoning, or an artefact?

`recombine run constraints --preset standard` trains transformers of three sizes on optimal power
flow and on problems in whole numbers, and counts which constraints their answers obey, by kind. It
prints beside them, on the same instances, what answers without competence obey. Expected: boxes
hold and equalities fail, so that on power flow the optimum with 1 % noise, or an answer that takes
no thought, satisfies about as many constraints as a network does; in whole numbers feasibility
moves with training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from recombine.constraints.ceiling import NETWORKS, concluded
from recombine.constraints.tasks import POWER_FLOW, task_named
from recombine.instruments.constraints import Constraints
from recombine.lab.judge import Judgement
from recombine.lab.study import DIFFERENCE, SHARE, Cell, Claim, Results, Seeded, Study
from recombine.learners.next_token import NextToken
from recombine.models.sequence import SequenceModel
from recombine.report.document import Section
from recombine.seeds import Seeds
from recombine.studies import _constraints as parts
from recombine.studies import _constraints_measures as measures


@dataclass(frozen=True)
class Grid(Seeded):
    """Tasks by sizes at the full length of training, and by lengths at the middle size."""

    tasks: tuple[str, ...] = ("case9",)
    width: tuple[int, ...] = (24, 48)
    middle: int = 48  # the width trained at every length
    depth: int = 2
    head: int = 16
    positions: str = "learned"  # answers have fixed places
    steps: int = 800
    length: tuple[float, ...] = (0.25,)  # shorter trainings, as shares of the steps
    rate: float = 6e-3
    batch: int = 8
    row: int = 96
    vocabulary: int = 128
    power_flow_items: int = 3_000
    whole_number_items: int = 3_000
    items: int = 100
    beyond_items: int = 50
    evaluations: int = 5
    seeds: int = 5


class ConstraintsStudy(Study):
    """Networks of several sizes and lengths of training on constrained problems."""

    name = "constraints"
    question = (
        "Is a share of satisfied constraints that stays between 50 and 65 % a ceiling of "
        "reasoning, or an artefact of which constraints there are and how exactly they must hold?"
    )
    source = (
        "Bernier, Ghamizi, Dogoulis and Cordy, Can large language models reason and optimize under "
        "constraints?, 2026; the ceiling is how others sum it up. An analogue: small networks "
        "trained from scratch"
    )
    cost = "quick: 1.8 min on two CPU cores; standard: 10 min on one H200 (estimated)"
    not_shown = (
        "Pretrained language models: every network here starts from random weights and answers in "
        "the words of its task. recombine constraints --endpoint asks a live one.",
        "Reasoning before the answer: a network writes the numbers at once. recombine constraints "
        "--endpoint with --against compares a live model that thinks first with one that does not.",
        "How the published share weighs its constraints, or with which tolerances: neither is "
        "known here. Balances hold to .01, bounds to .001 per unit.",
        "That the solver's optimum is global: on power flow it is certified as a local one.",
    )
    presets: ClassVar = {
        "smoke": Grid(tasks=("case9", "knapsack"), width=(8,), middle=8, depth=1, head=8,
                      steps=40, batch=4, items=12, power_flow_items=40,
                      whole_number_items=60, beyond_items=6, evaluations=2, seeds=2),
        "quick": Grid(),
        "standard": Grid(
            tasks=("case9", "case14", "portfolio", "scheduling", "knapsack"),
            width=(64, 128, 256), middle=128, depth=4, head=32, steps=3_200,
            length=(0.125, 0.25, 0.5), rate=2e-3, batch=32, row=192, power_flow_items=8_000,
            whole_number_items=20_000, items=250, beyond_items=100, evaluations=10,
        ),
        "paper": Grid(
            tasks=("case9", "case14", "case30", "portfolio", "scheduling", "knapsack"),
            width=(128, 384, 768), middle=384, depth=6, head=64, steps=50_000,
            length=(0.125, 0.25, 0.5), rate=3e-4, batch=128, row=384, power_flow_items=50_000,
            whole_number_items=50_000, items=1_000, beyond_items=500, evaluations=50,
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        sizes = [(width, 1.0) for width in grid.width]
        lengths = [(grid.middle, length) for length in grid.length if length != 1]
        return [
            cell(grid, task, width, length, seed)
            for task in grid.tasks
            for width, length in dict.fromkeys(sizes + lengths)
            for seed in grid.drawn(grid.seeds)
        ]

    def claims(self, grid: Grid) -> list[Claim]:
        kinds = dict.fromkeys(task_named(task).kind for task in grid.tasks)
        return [claim for kind in kinds for claim in claims_of(grid, kind)]

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        return parts.sections(grid, results)

    def conclusion(self, judgements: Sequence[Judgement]) -> str:
        return concluded(judgements, NETWORKS) or super().conclusion(judgements)


def claims_of(grid: Grid, kind: str) -> list[Claim]:
    """What is published of the ceiling, and what would unmask it, for one kind of problem."""
    tasks = tuple(task for task in grid.tasks if task_named(task).kind == kind)
    small, large = min(grid.width), max(grid.width)
    low, high = measures.PUBLISHED
    short = min(grid.length, default=1.0)
    on = f"On {kind}"
    each = [
        Claim("takes no competence",
              f"{on}, an answer that takes no thought, or the optimum with 1 % noise, satisfies at "
              f"least {low:.2f} of all constraints, where the ceiling is said to begin",
              measures.no_competence(tasks), at_least=low, within=SHARE),
        Claim("ceiling",
              f"{on}, at least three quarters of the networks satisfy between {low:.2f} and "
              f"{high:.2f} of all constraints (analogue)",
              measures.by_seed(tasks, measures.inside), at_least=0.75, within=SHARE),
        Claim("same at all sizes",
              f"{on}, the shares satisfied by networks of different size on one task differ by at "
              "most .10 (the widest task; analogue)",
              measures.by_seed(tasks, measures.spread), at_most=0.10),
        Claim("flat in size",
              f"{on}, the share of satisfied constraints changes by at most .03 for ten times the "
              "parameters (analogue)",
              measures.by_seed(tasks, measures.slope), at_least=-0.03, at_most=0.03),
        Claim("boxes hold", f"{on}, the networks satisfy at least .85 of the box constraints",
              measures.by_seed(tasks, measures.mean_of("box")), at_least=0.85, within=SHARE),
        Claim("equalities fail", f"{on}, the networks satisfy at most .25 of the equalities",
              measures.by_seed(tasks, measures.mean_of("equality")), at_most=0.25, within=SHARE),
        Claim("hardly ever feasible",
              f"{on}, at most .05 of the answers satisfy every constraint",
              measures.by_seed(tasks, measures.mean_of("strict")), at_most=0.05, within=SHARE),
        Claim("artefact",
              f"{on}, an answer that takes no thought, or the optimum with 1 % noise, satisfies at "
              "least as large a share of the constraints as the networks do",
              measures.by_seed(tasks, measures.null_over_network), at_least=0.0),
        Claim("closer yet no better",
              f"{on}, the optimum of other data satisfies a larger share of the constraints than "
              "the networks, whose answers are closer to the right one",
              measures.by_seed(tasks, measures.copied_over_network), above=0.0),
        # One claim a task: the task that moves most, picked afterwards, moves too far by chance.
        *(Claim(f"feasibility moves with size on {task}",
                f"{on}, from width {small} to {large} the share of answers to {task} that satisfy "
                "every constraint rises by at least .20",
                measures.rises_with_size(grid, task), at_least=0.20,
                within=DIFFERENCE) for task in tasks),
        *(Claim(f"feasibility moves with training on {task}",
                f"{on}, from {short:g} of the training to all of it the share of answers to {task} "
                "that satisfy every constraint rises by at least .20",
                measures.rises_with_training(grid, task), at_least=0.20,
                within=DIFFERENCE) for task in tasks),
        Claim("training lowers the error",
              f"{on}, from a quarter of the training to all of it the squared error falls at least "
              "fivefold (mean over tasks; analogue of fine-tuning)",
              measures.error_falls(grid, tasks), at_least=5.0),
        Claim("feasibility does not follow",
              f"{on}, from a quarter of the training to all of it the share of answers that "
              "satisfy every constraint rises by less than .05 (mean over tasks; analogue of "
              "fine-tuning)",
              measures.feasibility_follows(grid, tasks), below=0.05),
        Claim("thinking brings nothing",
              f"{on}, a model that thinks before it answers satisfies the same share of the "
              "constraints as when it answers at once, within .05",
              measures.thinking, "items", at_least=-0.05, at_most=0.05),
    ]  # fmt: skip
    return [replace(claim, name=f"{kind}: {claim.name}") for claim in each]


def cell(grid: Grid, task: str, width: int, length: float, seed: int) -> Cell:
    """A network on a task; everything is drawn anew for each seed."""
    power = task_named(task).kind == POWER_FLOW
    family = task_named(task).made(
        train_items=grid.power_flow_items if power else grid.whole_number_items,
        test_items=grid.items, validation_items=1, beyond_items=grid.beyond_items,
    )  # fmt: skip
    steps = max(10, round(grid.steps * length / 10) * 10)
    learner = NextToken(
        family=family,
        model=SequenceModel(depth=grid.depth, width=width, heads=max(1, width // grid.head),
                            positions=grid.positions),  # pyright: ignore[reportArgumentType]
        seeds=Seeds.all(seed), training_steps=steps, batch=grid.batch, learning_rate=grid.rate,
        warmup=max(10, steps // 20), row=grid.row, vocabulary=grid.vocabulary,
        rows=rows_for(grid), looks=("seen",),
        evaluation_every=max(10, steps // grid.evaluations // 10 * 10),
    )  # fmt: skip
    labels = {"task": task, "width": width, "length": length, "steps": steps, "seed": seed,
              "parameters": _parameters(learner.model, grid.vocabulary, grid.row)}  # fmt: skip
    instrument = Constraints(items=grid.items, beyond=length == 1)
    return Cell(learner, labels, (instrument,))


@cache
def _parameters(model: SequenceModel, vocabulary: int, row: int) -> int:
    return model.parameters(vocabulary, row)


def rows_for(grid: Grid) -> int:
    """Rows that hold all training items of any task: one row each, at the worst."""
    most = max(grid.power_flow_items, grid.whole_number_items)
    return 1 << (most - 1).bit_length()
