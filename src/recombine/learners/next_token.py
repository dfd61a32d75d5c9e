"""Learning to answer in text: each token of an answer, given all that comes before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from recombine.checks import at_least, rates
from recombine.errors import InvalidRequest, unknown
from recombine.families._sequence import TEST, TRAIN, VALIDATION, SequenceFamily
from recombine.families.listops import ListOps
from recombine.instruments.subject import Subject
from recombine.lab.identity import node_id
from recombine.learners._learner import Arrays, Material, Program, StepLearner, Tensors
from recombine.learners.optimiser import Trained, descend, risen_and_fallen, start
from recombine.learners.packing import MOST_ITEMS, CorpusMaterial, Encoded, Packed, decode, pack
from recombine.models.sequence import Rows, SequenceModel, SequenceNetwork
from recombine.seeds import Seeds, host_seed, key_at, stream
from recombine.tokens import END
from recombine.trees import named

LOOKS = ("seen", "unseen", VALIDATION)


def splits_of(look: str, splits: Sequence[str]) -> tuple[str, ...]:
    """The splits behind a name: `seen` is test, `unseen` all that goes beyond training."""
    beyond = tuple(s for s in splits if s not in (TRAIN, TEST, VALIDATION))
    named = {"seen": (TEST,), "unseen": beyond} | {s: (s,) for s in splits}
    if look not in named:
        raise unknown("split to look at", look, named)
    return named[look]


def rows_of(packed: Packed) -> Rows:
    """Packed rows as a network reads them."""
    return Rows(*(jnp.asarray(a, jnp.int32) for a in (packed.tokens, packed.item, packed.source, packed.source_item)))  # fmt: skip  # noqa: E501


def right_tokens(
    scores: Float[Array, "*row token word"], tokens: Array
) -> tuple[Bool[Array, "*row token"], Bool[Array, "*row token"]]:
    """Whether the most likely next token is the right one: freely, and where the end is given.

    Where every token is right given the right ones before it, greedy writing gives exactly the
    right answer, and nowhere else: no answer need be written to know whether it would be exact.
    """
    after = jnp.roll(tokens, -1, axis=-1)
    bare = scores.at[..., END].set(-jnp.inf)
    given = (after == END) | (jnp.argmax(bare, axis=-1) == after)
    return jnp.argmax(scores, axis=-1) == after, given


def items_right(
    right: Bool[Array, "*row token"], asked: Bool[Array, "*row token"], item: Array
) -> tuple[Bool[Array, "*row item"], Bool[Array, "*row item"]]:
    """For the items of each row: whether all asked tokens are right, and whether it is there."""
    member = item[..., None] == jnp.arange(1, MOST_ITEMS + 1)
    wrong = jnp.any(member & (asked & ~right)[..., None], axis=-2)
    there = jnp.any(member & asked[..., None], axis=-2)
    return there & ~wrong, there


@dataclass(frozen=True)
class NextTokenProgram(Program):
    """Gradient descent on the log-probability of answers, in packed rows."""

    model: SequenceModel
    vocabulary: int
    row: int
    batch: int
    looks: tuple[str, ...] = LOOKS
    precision: str = "float32"

    @property
    def dtype(self) -> jnp.dtype:
        return jnp.dtype(self.precision)

    def init(self, arrays: dict[str, Any], key: Any) -> Trained:
        return start(self.model.draw(key, vocabulary=self.vocabulary, length=self.row))

    def draw(self, arrays: dict[str, Any], t: Any) -> Packed:
        chosen = jax.random.randint(key_at(arrays["train"], t), (self.batch,), 0, arrays["used"])
        return Packed(*(pool[chosen] for pool in arrays["pool"]))

    def step(self, arrays: dict[str, Any], state: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        return self.learn(arrays, state, self.draw(arrays, t), t)

    def learn(
        self, arrays: dict[str, Any], state: Trained, drawn: Packed, t: Any
    ) -> tuple[Trained, dict[str, Any]]:
        rows = rows_of(drawn)
        after = jax.nn.one_hot(jnp.roll(rows.tokens, -1, axis=-1), self.vocabulary)

        def loss(model: SequenceNetwork) -> Array:
            scores = model(rows, self.dtype)
            surprise = jax.nn.logsumexp(scores, axis=-1) - jnp.sum(scores * after, axis=-1)
            return jnp.sum(surprise * drawn.asked) / jnp.maximum(jnp.sum(drawn.asked), 1)

        value, gradient = jax.value_and_grad(loss)(state.model)
        state = descend(
            state, value, gradient, t, rate=risen_and_fallen(arrays, t), decay=arrays["decay"],
            running=t < arrays["steps"],
        )  # fmt: skip
        return state, {"loss": value}

    def evaluate(self, arrays: dict[str, Any], state: Any) -> dict[str, Any]:
        """Shares of exact answers, freely and with the end given."""
        found = {}
        for name in self.looks:
            packed = Packed(*arrays["looked at"][name])
            rows = rows_of(packed)
            free, given = right_tokens(state.model(rows, self.dtype), rows.tokens)
            for what, right in ((name, free), (f"{name}_ended", given)):
                whole, there = items_right(right, jnp.asarray(packed.asked), rows.item)
                found[what] = jnp.sum(whole) / jnp.maximum(jnp.sum(there), 1)
        return found


@dataclass(frozen=True)
class NextToken(StepLearner):
    """A transformer learns a family of sequences from its training items, in packed rows.

    The learning rate rises over `warmup` steps and falls to zero along half a cosine; training
    never stops early. `row` is the length of a row, `rows` how many the device holds, and
    `vocabulary` the tokens it has room for: families that agree in them share a program. Exact
    answers are counted along training for each of `looks`: names of splits, `seen` (test) and
    `unseen` (all that goes beyond training).
    """

    version: ClassVar[int] = 1

    family: SequenceFamily = field(default_factory=ListOps)
    model: SequenceModel = field(default_factory=SequenceModel)
    seeds: Seeds = field(default_factory=Seeds)
    training_steps: int = 10_000
    batch: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    warmup: int = 200
    row: int = 256
    rows: int = 2**14
    vocabulary: int = 64
    evaluation_every: int = 500
    evaluation_rows: int = 32
    looks: tuple[str, ...] = LOOKS

    @property
    def size(self) -> int:
        return self.model.parameters(self.vocabulary, self.row)

    def check(self) -> None:
        self.family.check()
        at_least(self, training_steps=1, batch=1, warmup=1, row=1, rows=1, vocabulary=1,
                 evaluation_every=1, evaluation_rows=1)  # fmt: skip
        rates(self, "learning_rate", "weight_decay")

    def materials(self) -> dict[str, Material]:
        return {"corpus": CorpusMaterial(self.family, self.seeds.content)}

    def group(self) -> str:
        """Members with the same corpus, packed in the same order, share it on the device."""
        shape = self.model.shape
        return f"{node_id(self.materials()['corpus'])}/{self.seeds.train}/{self.seeds.evaluation}/{shape}"  # noqa: E501

    def shard(self) -> str:
        """Pools of one size stack."""
        return f"{self.rows}/{self.evaluation_rows}"

    def program(self, precision: str = "float32") -> NextTokenProgram:
        return replace(self.natural(precision), model=self.model.kin)

    def natural(self, precision: str = "float32") -> NextTokenProgram:
        return NextTokenProgram(
            self.model, self.vocabulary, self.row, self.batch, self.looks, precision
        )

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        corpus = decode(given["corpus"])
        if len(corpus.vocabulary) > self.vocabulary:
            raise InvalidRequest(
                f"{self.family.name} has {len(corpus.vocabulary)} tokens, more than "
                f"vocabulary={self.vocabulary} has room for: use "
                f"vocabulary={2 ** (len(corpus.vocabulary) - 1).bit_length()}"
            )
        pool, used = self._packed(corpus, (TRAIN,), self.rows, "train", whole=True)
        looked_at = {}
        for name in self.looks:
            splits = splits_of(name, list(corpus.splits))
            looked_at[name] = self._packed(corpus, splits, self.evaluation_rows, f"look/{name}")[0]
        member = {
            "train": stream(self.seeds.train, "train"),
            "rate": np.float32(self.learning_rate),
            "decay": np.float32(self.weight_decay),
            "warmup": np.float32(self.warmup),
            "steps": np.int32(self.steps),
        }
        group = {"pool": tuple(pool), "used": np.int32(used), "looked at": looked_at}
        return Arrays(member=member, group=group)

    def _packed(
        self, corpus: Encoded, splits: tuple[str, ...], rows: int, what: str, whole: bool = False
    ) -> tuple[Packed, int]:
        """Items of some splits in random order, as many of each as its share."""
        sources = [s for split in splits for s in corpus.splits[split].sources]
        targets = [t for split in splits for t in corpus.splits[split].targets]
        seed = self.seeds.train if what == "train" else self.seeds.evaluation
        order = np.random.default_rng(host_seed(seed, f"packing/{what}")).permutation(len(sources))
        packed, place, used = pack(
            sources, targets, length=self.row, rows=rows, order=order,
            apart=self.model.shape == "encoder-decoder",
        )  # fmt: skip
        if whole and (place.row < 0).any():
            lost = int((place.row < 0).sum())
            raise InvalidRequest(
                f"{lost} of {len(sources)} training items of {self.family.name} find no place in "
                f"rows={rows}: use rows={rows * 2} or more"
            )
        return packed, used

    def weights(self, state: Any) -> Tensors:
        return named(state.model)

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Subject:
        from recombine.instruments.sequence_subject import SequenceSubject

        if given is None:
            given = {name: material.make() for name, material in self.materials().items()}
        return SequenceSubject(self, weights, decode(given["corpus"]))
