"""Learning to find the odd one out: embeddings in which an item that breaks a rule stands apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from recombine.errors import InvalidRequest
from recombine.families.odd_one_out import (
    BASE,
    ITEMS,
    SUB_A,
    TEST_A,
    TEST_B,
    OddFamily,
)
from recombine.instruments.subject import Subject
from recombine.learners._learner import Arrays, Learner, Program, Tensors
from recombine.learners._odd import LOOKED_AT, OddLearner, accuracy, surprise
from recombine.learners._odd import OddSubject as OddSubject
from recombine.learners._odd import logits as logits
from recombine.learners.optimiser import Trained, descend, start
from recombine.learners.parts import Parts
from recombine.learners.pretraining import Pretraining as Pretraining
from recombine.models.items import ItemModel, ItemNetwork
from recombine.seeds import key_at
from recombine.trees import named, unnamed

Problems = tuple[Float[Array, "problem item size"], Int[Array, "problem"]]


@dataclass(frozen=True)
class OddOneOutProgram(Program, Parts):
    """Gradient descent on problems of both rules; its parts are the two rules."""

    family: OddFamily  # its kind: the tables are arrays
    model: ItemModel
    batch: int
    evaluation: int
    precision: str = "float32"
    pretrained: bool = False

    @property
    def dtype(self) -> jnp.dtype:
        return jnp.dtype(self.precision)

    def shapes(self) -> tuple[Any, Any]:
        found = self.model.shapes(self.family.item_shape)
        return found, found

    def body(self, weights: Mapping[str, Any]) -> ItemNetwork:
        """The network of stored (or traced) weights."""
        return unnamed(weights, self.shapes()[0])

    def network(self, model: Any) -> ItemNetwork:
        """What a state's `model` answers with."""
        return model

    def init(self, arrays: dict[str, Any], key: Any) -> Any:
        if self.pretrained:
            return start(jax.tree.map(jnp.asarray, self.body(arrays["pretraining"])))
        return start(self.model.draw(key, self.family.item_shape))

    def draw(self, arrays: dict[str, Any], t: Any) -> Any:
        return self.problems(arrays, BASE, key_at(arrays["train"], t))

    def problems(
        self, arrays: dict[str, Any], which: Any, key: PRNGKeyArray, count: int | None = None
    ) -> Problems:
        """Fresh problems of the member's own family."""
        return self.family.problems(which, key, count or self.batch, arrays["family"])

    def loss(self, model: Any, drawn: Any) -> Float[Array, ""]:
        items, odd = drawn
        return surprise(model(items, self.dtype), odd)

    def step(self, arrays: dict[str, Any], state: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        return self.learn(arrays, state, self.draw(arrays, t), t)

    def learn(
        self, arrays: dict[str, Any], state: Trained, drawn: Any, t: Any
    ) -> tuple[Trained, dict[str, Any]]:
        value, gradient = jax.value_and_grad(self.loss)(state.model, drawn)
        state = descend(
            state, value, gradient, t, rate=arrays["rate"], decay=arrays["decay"],
            running=t < arrays["steps"],
        )  # fmt: skip
        return state, {"loss": value}

    def evaluate(self, arrays: dict[str, Any], state: Trained) -> dict[str, Any]:
        """Shares of fresh problems answered right: of both rules, and where one is broken."""
        sets = {"seen": BASE, "part_a": TEST_A, "part_b": TEST_B}
        network = self.network(state.model)

        def look(which: Array, number: Array) -> Array:
            key = jax.random.fold_in(key_at(arrays["evaluation"], which), number)
            drawn = self.problems(arrays, which, key, LOOKED_AT)
            return self.part_score(arrays, network, drawn)

        rounds = self.evaluation // LOOKED_AT
        asked = jnp.repeat(jnp.array(list(sets.values())), rounds)
        numbers = jnp.tile(jnp.arange(rounds), len(sets))
        found = jax.lax.map(lambda pair: look(*pair), (asked, numbers)).reshape(-1, rounds)
        return dict(zip(sets, jnp.mean(found, axis=1), strict=True))

    @property
    def parts(self) -> int:
        return 2

    @property
    def chance(self) -> float:
        return 1 / ITEMS

    def draw_part(
        self, arrays: dict[str, Any], part: Int[Array, ""], key: PRNGKeyArray
    ) -> Problems:
        return self.problems(arrays, SUB_A + part, key)

    def part_loss(self, arrays: dict[str, Any], model: Any, drawn: Problems) -> Float[Array, ""]:
        items, odd = drawn
        return surprise(model(items, self.dtype), odd)

    def draw_test(
        self, arrays: dict[str, Any], part: Int[Array, ""], key: PRNGKeyArray
    ) -> Problems:
        return self.problems(arrays, TEST_A + part, key)

    def part_score(self, arrays: dict[str, Any], model: Any, drawn: Problems) -> Float[Array, ""]:
        items, odd = drawn
        return accuracy(model(items, self.dtype), odd)


@dataclass(frozen=True)
class OddOneOut(OddLearner):
    """A network learns to find the odd one among four items, the others of which obey two rules.

    It starts from random weights or, where `pretraining` is given, from the network of that cell,
    which must be of the same model over items of the same shape: one that gave items back, or that
    learnt other rules.

    >>> learner = OddOneOut(training_steps=1_000)
    >>> sorted(learner.upstream())
    []
    """

    version: ClassVar[int] = 1

    pretraining: OddLearner | None = None

    def check(self) -> None:
        super().check()
        if self.pretraining is None:
            return
        self.pretraining.check()
        for what, own, other in (
            ("the model", self.model, self.pretraining.model),
            ("items of shape", self.family.item_shape, self.pretraining.family.item_shape),
        ):
            if own != other:
                raise InvalidRequest(
                    f"pretraining has {what} {other}, and this learner {own}: a network can only "
                    "go on as what it is; give both the same model and family"
                )

    def upstream(self) -> dict[str, Learner]:
        return {} if self.pretraining is None else {"pretraining": self.pretraining}

    def program(self, precision: str = "float32") -> OddOneOutProgram:
        return self._program(precision, pretrained=False)

    def natural(self, precision: str = "float32") -> OddOneOutProgram:
        """It begins otherwise if pretrained, and then goes on alike."""
        return self._program(precision, pretrained=self.pretraining is not None)

    def _program(self, precision: str, pretrained: bool) -> OddOneOutProgram:
        return OddOneOutProgram(
            self.family.kind(), self.model, self.batch, self.evaluation_problems, precision,
            pretrained,
        )  # fmt: skip

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        member = self.member_arrays()
        if self.pretraining is None or not given:  # given nothing, problems can still be drawn
            return Arrays(member=member)
        body = self.pretraining.body(given["pretraining"])
        return Arrays(member=member, first={"pretraining": body})

    def weights(self, state: Any) -> Tensors:
        return named(state.model)

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Subject:
        network = self.program().body(weights)
        return OddSubject(self.family, network, weights, self.seeds.evaluation)
