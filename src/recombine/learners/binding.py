"""Learning to see what belongs together: questions and reports about scenes of objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from recombine.checks import at_least, rates
from recombine.errors import InvalidRequest, unknown
from recombine.families.objects import SEARCHES, TASKS, Asked, Objects
from recombine.instruments.subject import Subject
from recombine.learners._learner import Arrays, Program, StepLearner, Tensors
from recombine.learners._matching import MOST_MATCHED, counted, decided, found_in, set_loss
from recombine.learners.optimiser import Trained, descend, risen_and_fallen, start
from recombine.models.binding import ConvNet, Seer, SeerModel
from recombine.models.layers import FULL
from recombine.seeds import Seeds, key_at, stream
from recombine.trees import named

SUPERVISIONS = ("answer", "pairs", "set")
# Since 2, a search shows as many objects of each colour and shape with its target as without;
# since 3, a quarter of it is as published. One more where sets are matched: by way of subsets.
VERSIONS = {"swap": 1, "report": 1, "search": 3}


@dataclass(frozen=True)
class BindingProgram(Program):
    """Gradient descent on the cross-entropy of answers, or of whole reports."""

    family: Objects
    model: SeerModel
    task: str
    supervision: str
    objects: tuple[int, ...]
    batch: int
    evaluation_images: int
    precision: str = "float32"

    @property
    def dtype(self) -> jnp.dtype:
        return jnp.dtype(self.precision)

    @property
    def reports(self) -> int:
        """How many objects a network must be able to report; 0 where it is asked instead."""
        return max(self.objects) if self.in_sets else 0

    @property
    def in_sets(self) -> bool:
        """Whether the network reports sets, from which answers to questions follow."""
        return self.task == "report" or self.supervision == "set"

    @property
    def in_pairs(self) -> bool:
        """Whether training also tells of every other trained pair whether it is in the scene."""
        return self.supervision == "pairs" and not self.in_sets

    def init(self, arrays: dict[str, Any], key: Any) -> Trained:
        return start(first_network(self, key))

    def items(
        self, arrays: dict[str, Any], key: Any, count: int, *, unseen: bool = False,
        kind: int | None = None,
    ) -> Asked:  # fmt: skip
        """Fresh items of the task."""
        sizes = jnp.asarray(self.objects)
        return self.family.draw(
            self.task, arrays["trained"], key, count, sizes=sizes, unseen=unseen, kind=kind
        )

    def draw(self, arrays: dict[str, Any], t: Any) -> Asked:
        return self.items(arrays, key_at(arrays["train"], t), self.batch)

    def seen(self, model: Seer, asked: Asked, key: Any) -> Array:
        """What the network makes of the pictures: answers, or sets where it reports them."""
        question = None if self.in_sets else asked.question
        return model(asked.images, question, dtype=self.dtype, key=key)

    def answer(self, model: Seer, asked: Asked, key: Any) -> Array:
        seen = self.seen(model, asked, key)
        if self.in_sets and self.task != "report":
            return found_in(seen, asked.question, self.family.colours)
        return seen

    def loss(self, seen: Array, asked: Asked) -> Array:
        if self.in_sets:
            return jnp.mean(set_loss(seen, asked.scene, self.family.colours))
        return jnp.mean(wrong(seen, asked.answer))

    def loss_of_pairs(self, model: Seer, asked: Asked, trained: Array, key: Any) -> Array:
        """Of the question asked, and of one about every trained pair, which all count as much."""
        sizes = (self.family.colours, self.family.shapes)
        questions = every_question(*sizes)

        def answered(question: Array) -> Array:
            told = jnp.broadcast_to(question, asked.question.shape)
            return self.seen(model, asked._replace(question=told), key)

        # The pictures are looked at once, since questions alone differ.
        answers = jax.vmap(answered, out_axes=1)(questions)
        there = (counted(*asked.scene, *sizes) > 0).reshape(answers.shape)
        share = trained.reshape(-1).astype(FULL)
        about = jnp.all(questions == asked.question[:, None], axis=-1).astype(FULL)
        weight = about + share / jnp.sum(share)
        return jnp.mean(jnp.sum(weight * wrong(answers, there), axis=-1))

    def step(self, arrays: dict[str, Any], state: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        return self.learn(arrays, state, self.draw(arrays, t), t)

    def learn(
        self, arrays: dict[str, Any], state: Trained, drawn: Asked, t: Any
    ) -> tuple[Trained, dict[str, Any]]:
        noise = key_at(arrays["noise"], t)

        def loss(model: Seer) -> Array:
            if self.in_pairs:
                return self.loss_of_pairs(model, drawn, arrays["trained"], noise)
            return self.loss(self.seen(model, drawn, noise), drawn)

        value, gradient = jax.value_and_grad(loss)(state.model)
        state = descend(
            state, value, gradient, t, rate=risen_and_fallen(arrays, t), decay=arrays["decay"],
            running=t < arrays["steps"],
        )  # fmt: skip
        return state, {"loss": value}

    def evaluate(self, arrays: dict[str, Any], state: Any) -> dict[str, Any]:
        """Shares of right answers (of scenes reported wholly right), about trained pairs and about
        held-out ones; in search also by kind."""
        found: dict[str, Any] = {}
        kinds = range(len(SEARCHES)) if self.task == "search" else (None,)
        for look, unseen in enumerate((False, True)[: 1 + (self.family.withheld > 0)]):
            name, rights = ("unseen" if unseen else "seen"), []
            for kind in kinds:
                key = key_at(arrays["evaluation"], look * len(SEARCHES) + (kind or 0))
                draw_key, noise_key = jax.random.split(key)
                items = self.items(
                    arrays, draw_key, self.evaluation_images, unseen=unseen, kind=kind
                )
                answers = self.answer(state.model, items, noise_key)
                right = jnp.mean(self.right(answers, items).astype(jnp.float32))
                rights.append(right)
                if kind is not None:
                    found[f"{name}_{SEARCHES[kind]}"] = right
            found[name] = sum(rights) / len(rights)
        return found

    def right(self, answers: Array, asked: Asked) -> Array:
        """Whether each answer is right; a report is if it has every object and nothing else."""
        if self.task != "report":
            return (answers > 0) == asked.answer
        sizes = (self.family.colours, self.family.shapes)
        reported = counted(*decided(answers, self.family.colours), *sizes)
        return jnp.all(reported == counted(*asked.scene, *sizes), axis=(-2, -1))


def wrong(seen: Float[Array, "*item"], answer: Bool[Array, "*item"]) -> Float[Array, "*item"]:
    """The cross-entropy of log odds and what is so."""
    return jax.nn.softplus(seen) - seen * answer


def every_question(colours: int, shapes: int) -> Float[Array, "pair feature"]:
    """A question about each pair of a colour and a shape, colour by colour."""
    colour, shape = jnp.eye(colours), jnp.eye(shapes)
    return jnp.concatenate(
        [jnp.repeat(colour, shapes, axis=0), jnp.tile(shape, (colours, 1))], axis=1
    )


def first_network(program: BindingProgram, key: Any) -> Seer:
    """The network of a program before training."""
    family = program.family
    return program.model.draw(
        key, side=family.side, colours=family.colours, shapes=family.shapes,
        reports=program.reports,
    )  # fmt: skip


@dataclass(frozen=True)
class Binding(StepLearner):
    """A network learns to tell which features belong together in scenes of objects.

    "swap": is this colour on this shape? In half of the scenes it is, and the others show the same
    features bound differently. "report": all colours and shapes, object by object, as a set.
    "search": is this target among many others, of its colour or its shape, or more simply of other
    colours? Training shows scenes with any of `objects` objects, and never a held-out
    pair. With supervision by "answer" the network is told the answers to its questions; by "pairs"
    it is also asked about every trained pair and told whether it is in the scene, all of these
    together counting as much as the one question; by "set" it is told all objects of each scene, as
    in a report, and its answers follow from what it reports.
    The learning rate rises over `warmup` steps and falls to zero along half a cosine.
    """

    family: Objects = field(default_factory=lambda: Objects(side=24, most_objects=2))
    model: SeerModel = field(default_factory=ConvNet)
    task: Literal["swap", "report", "search"] = "swap"
    supervision: Literal["answer", "pairs", "set"] = "answer"
    objects: tuple[int, ...] = (2,)
    seeds: Seeds = field(default_factory=Seeds)
    training_steps: int = 2_000
    batch: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    warmup: int = 100
    evaluation_every: int = 500
    evaluation_images: int = 512

    @property
    def version(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the scenes a task shows and of how sets are matched: other ones are another request,
        for what they concern alone."""
        return VERSIONS.get(self.task, 1) + (self.task == "report" or self.supervision == "set")

    @property
    def size(self) -> int:
        family = self.family
        return self.model.parameters(
            side=family.side, colours=family.colours, shapes=family.shapes,
            reports=self.program().reports,
        )  # fmt: skip

    def check(self) -> None:
        self.family.check()
        if self.task not in TASKS:
            raise unknown("task", str(self.task), TASKS)
        if self.supervision not in SUPERVISIONS:
            raise unknown("supervision", str(self.supervision), SUPERVISIONS)
        at_least(self, training_steps=1, batch=2, warmup=1, evaluation_every=1,
                 evaluation_images=2)  # fmt: skip
        for name in ("batch", "evaluation_images"):
            if getattr(self, name) % 2:
                raise InvalidRequest(
                    f"{name}={getattr(self, name)}: items come in pairs, yes and no; use an even "
                    "number"
                )
        rates(self, "learning_rate", "weight_decay")
        check_objects(self.family, self.task, self.objects, sets=self.program().in_sets)
        self.model.check(self.program().reports)

    def program(self, precision: str = "float32") -> BindingProgram:
        # Which pairs are held out is an array: all shares of them have one program.
        least = 1 / max(self.family.colours, self.family.shapes) if self.family.withheld else 0.0
        family = replace(self.family, held_out=least)
        return BindingProgram(
            family, self.model, self.task, self.supervision, self.objects, self.batch,
            self.evaluation_images, precision,
        )  # fmt: skip

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        return Arrays(
            member={
                "trained": self.family.trained(self.seeds.content),
                "train": stream(self.seeds.train, "train"),
                "noise": stream(self.seeds.train, "noise"),
                "evaluation": stream(self.seeds.evaluation, "evaluation"),
                "rate": np.float32(self.learning_rate),
                "decay": np.float32(self.weight_decay),
                "warmup": np.float32(self.warmup),
                "steps": np.int32(self.steps),
            }
        )

    def weights(self, state: Any) -> Tensors:
        return named(state.model)

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Subject:
        from recombine.instruments._seeing import SeeingSubject

        return SeeingSubject(self, weights)


def check_objects(family: Objects, task: str, objects: tuple[int, ...], *, sets: bool) -> None:
    """Refuses numbers of objects that a task or a family has no scenes of."""
    least = {"swap": 2, "report": 1, "search": 2}[task]
    most, pairs = family.most_objects, int(family.trained(0).sum())
    reason = f"scenes have at most most_objects={most}"
    if task == "swap" and pairs - 4 < 1:
        most, reason = 2, "no pairs are left for further objects"
    elif task == "report" and pairs < most:
        most, reason = pairs, f"training has {pairs} different pairs"
    if sets and most > MOST_MATCHED:
        most, reason = MOST_MATCHED, f"sets of at most {MOST_MATCHED} objects are matched"
    whole = isinstance(objects, tuple) and bool(objects)
    if not whole or not all(isinstance(n, int) and least <= n <= most for n in objects):
        raise InvalidRequest(
            f"objects={objects!r}: expected some numbers from {least} to {most} ({reason}); use "
            f"objects=({min(2, most)},)"
        )
