"""The door to a network that answers in text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from recombine.errors import NotApplicable
from recombine.families._sequence import SequenceFamily, tokenize, untokenize
from recombine.instruments.subject import Subject
from recombine.learners.next_token import items_right, right_tokens, rows_of
from recombine.learners.packing import MOST_ITEMS, Encoded, Packed, pack
from recombine.models.decoding import answers
from recombine.models.sequence import SequenceNetwork
from recombine.tokens import ANSWER
from recombine.trees import unnamed

if TYPE_CHECKING:
    from recombine.learners.next_token import NextToken

ROWS = 64  # of a batch


class Judged(NamedTuple):
    """For each item: whether the greedy answer is exact, whether it is once the end is given, the
    log-probability of the right answer, and how many tokens that has (END among them)."""

    exact: Bool[np.ndarray, "item"]
    ended: Bool[np.ndarray, "item"]
    log_probability: Float[np.ndarray, "item"]
    tokens: Int[np.ndarray, "item"]


class SequenceSubject(Subject):
    """A trained transformer with the family and corpus it learnt from."""

    abilities = frozenset({"answer", "activations", "log-probabilities", "weights"})

    def __init__(self, learner: NextToken, weights: dict[str, np.ndarray], corpus: Encoded):
        self.learner, self.corpus, self.stored = learner, corpus, weights
        program = learner.program()
        shapes = jax.eval_shape(
            lambda: learner.model.draw(
                jax.random.key(0), vocabulary=program.vocabulary, length=program.row
            )
        )
        self.network: SequenceNetwork = jax.tree.map(jnp.asarray, unnamed(weights, shapes))

    @property
    def family(self) -> SequenceFamily:
        return self.learner.family

    def weights(self) -> dict[str, np.ndarray]:
        return self.stored

    def numbers(self, text: str) -> list[int]:
        return self.corpus.vocabulary.numbers(tokenize(text, self.family.tokens))

    def text(self, numbers: Iterable[int]) -> str:
        return untokenize(self.corpus.vocabulary.words(numbers), self.family.tokens)

    def answer(
        self, inputs: Sequence[str], key: Any = None, longest: int | None = None
    ) -> list[str]:
        """What it writes to each source, at most `longest` tokens (as many as fit in a row)."""
        sources = [self.numbers(text) for text in inputs]
        return [self.text(found) for found in self.written(sources, longest)]

    def written(
        self, sources: Sequence[Any], longest: int | None = None,
        ends: Sequence[int] | None = None,
    ) -> list[list[int]]:  # fmt: skip
        """The same in numbers; `ends` may set the length of every answer."""
        row, apart = self.learner.row, self.learner.model.shape == "encoder-decoder"
        room = [row - 2 if apart else row - 2 - len(source) for source in sources]
        most = [max(1, n if longest is None else min(n, longest)) for n in room]
        return answers(self.network, sources, most, ends)

    def judge(self, sources: Sequence[Any], targets: Sequence[Any]) -> Judged:
        """Right answers, in numbers, are read once: no answer need be written to be judged."""
        count = len(sources)
        found = Judged(np.zeros(count, bool), np.zeros(count, bool), np.zeros(count), np.asarray([len(t) + 1 for t in targets]))  # fmt: skip  # noqa: E501
        packed, place, used = pack(
            sources, targets, length=self.learner.row, rows=max(1, count),
            apart=self.learner.model.shape == "encoder-decoder",
        )  # fmt: skip
        for start in range(0, used, ROWS):
            batch = Packed(*(_cut(a, start) for a in packed))
            exact, ended, likely = jax.device_get(_judge(self.network, batch))
            mine = np.flatnonzero((place.row >= start) & (place.row < start + ROWS))
            at = place.row[mine] - start, place.number[mine] - 1
            found.exact[mine], found.ended[mine] = exact[at], ended[at]
            found.log_probability[mine] = likely[at]
        return found

    def log_probabilities(self, sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
        """The log-probability of each answer to its source, END included, in nats."""
        pairs = [self.numbers(s) for s in sources], [self.numbers(t) for t in targets]
        return self.judge(*pairs).log_probability

    def activations(self, inputs: Sequence[str]) -> dict[str, np.ndarray]:
        """The residual stream by layer where the answer is about to begin, one row an item."""
        if self.learner.model.shape == "encoder-decoder":
            raise NotApplicable("activations are read off decoder-only networks so far")
        sources = [np.asarray(self.numbers(text), int) for text in inputs]
        found: dict[str, list[np.ndarray]] = {}
        for start in range(0, len(sources), ROWS):
            part = sources[start : start + ROWS]
            packed, place, _ = pack(part, [np.zeros(0, int)] * len(part), rows=ROWS,
                                    length=self.learner.row, apart=False)  # fmt: skip
            # Where the answer to each source would begin.
            mine = packed.item[place.row] == place.number[:, None]
            begin = np.argmax(mine & (packed.tokens[place.row] == ANSWER), axis=1)
            for name, stream in _streams(self.network, packed).items():
                found.setdefault(name, []).append(np.asarray(stream)[place.row, begin])
        return {name: np.concatenate(parts) for name, parts in found.items()}


def _cut(array: np.ndarray, start: int) -> np.ndarray:
    """Rows of one batch, filled up with empty ones: one compiled program serves all."""
    part = array[start : start + ROWS]
    missing = ROWS - len(part)
    return np.pad(part, [(0, missing), *[(0, 0)] * (part.ndim - 1)]) if missing else part


@jax.jit
def _judge(network: SequenceNetwork, packed: Packed) -> tuple[Array, Array, Array]:
    rows, asked = rows_of(packed), jnp.asarray(packed.asked)
    scores = network(rows)
    free, given = right_tokens(scores, rows.tokens)
    after = jnp.roll(rows.tokens, -1, axis=-1)[..., None]
    surprise = jnp.take_along_axis(jax.nn.log_softmax(scores), after, axis=-1)[..., 0]
    member = rows.item[..., None] == jnp.arange(1, MOST_ITEMS + 1)
    likely = jnp.sum(jnp.where(member, (surprise * asked)[..., None], 0.0), axis=-2)
    exact, _ = items_right(free, asked, rows.item)
    ended, _ = items_right(given, asked, rows.item)
    return exact, ended, likely


@jax.jit
def _streams(network: SequenceNetwork, packed: Packed) -> dict[str, Array]:
    stream = network.hidden(rows_of(packed))
    return {f"layer{n}/after": h for n, h in enumerate(stream) if n} | {"embedded": stream[0]}
