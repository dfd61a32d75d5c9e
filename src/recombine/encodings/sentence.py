"""The task told in words, for families that can say their tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from recombine.combinations import Slots, Subsets
from recombine.encodings._encoding import Encoding, Examples
from recombine.errors import InvalidRequest, unknown
from recombine.families._family import Content, Family

FORMS = ("words", "ids")


@runtime_checkable
class Speaks(Protocol):
    """A family whose tasks, one value per factor, can be said in words."""

    @property
    def space(self) -> Slots: ...

    def sentence(self, values: tuple[int, ...]) -> str:
        """The task as text; each place of the sentence may depend on one factor only."""
        ...


@runtime_checkable
class Lists(Protocol):
    """A family whose tasks are sets of things that can be said in words, one after another."""

    @property
    def space(self) -> Subsets: ...

    def phrases(self) -> tuple[str, ...]:
        """The words of each module, equally many for all."""
        ...


@dataclass(frozen=True)
class Sentence(Encoding):
    """The instruction as text, split into words of the family's own vocabulary.

    "words" gives every place of the sentence a one-hot over the vocabulary, as an embedding table
    would take it; "ids" gives the words' numbers as they are, which is how the released code
    feeds them to a network. A set is told as a caption: the words of its members in the order of
    their numbers, then silence (zeros) in the places of those it could still have.

    >>> from recombine.families.goals import Goals
    >>> Sentence().size(Goals()), Sentence(form="ids").size(Goals())
    (338, 13)
    >>> from recombine.families.scenes import Scenes
    >>> Sentence().size(Scenes(shapes=4, colours=4, active=3))  # 3 x (colour, shape), 8 words
    48
    """

    pads: ClassVar[bool] = False

    form: Literal["words", "ids"] = "words"

    def __post_init__(self):
        if self.form not in FORMS:
            raise unknown("form", str(self.form), FORMS)

    def check(self, family: Family) -> None:
        vocabulary_and_words(family)

    def size(self, family: Family) -> int:
        vocabulary, words = vocabulary_and_words(family)
        said = family.active if isinstance(family.space, Subsets) else 1
        return said * words.shape[1] * (len(vocabulary) if self.form == "words" else 1)

    def content(self, family: Family, key: PRNGKeyArray) -> Content:
        vocabulary, words = vocabulary_and_words(family)
        if self.form == "words":
            numbers = np.eye(len(vocabulary), dtype=np.float32)[words].reshape(len(words), -1)
        else:
            numbers = words.astype(np.float32)
        if isinstance(family.space, Subsets):
            numbers = numbers + (self.form == "ids")  # 0 is silence
            said = np.arange(family.active, dtype=np.int32)
            return {"phrases": jnp.asarray(numbers, jnp.float32), "turns": jnp.asarray(said)}
        # A sentence is the first one, changed by each value that is not its factor's first.
        return {"first": jnp.asarray(numbers[0]), "change": jnp.asarray(numbers - numbers[0])}

    def encode(
        self, content: Content, latent: Float[Array, "module"], examples: Examples
    ) -> Float[Array, "code"]:
        with jax.default_matmul_precision("highest"):
            if "phrases" in content:
                used = latent > 0
                turn = jnp.where(used, jnp.cumsum(used) - 1, -1)
                first = (turn == content["turns"][:, None]).astype(jnp.float32)
                return (first @ content["phrases"]).reshape(-1)
            return content["first"] + latent @ content["change"]


def vocabulary_and_words(family: Family) -> tuple[tuple[str, ...], Int[np.ndarray, "module place"]]:
    """A family's words, and for each module the sentence of the task that differs from the first
    task in that module only, as numbers of words; for sets the words of the module itself."""
    if isinstance(family, Lists) and isinstance(family.space, Subsets):
        return _number([phrase.split() for phrase in family.phrases()])
    if not (isinstance(family, Speaks) and isinstance(family.space, Slots)):
        raise InvalidRequest(
            f"the sentence encoding cannot tell tasks of {type(family).__name__}, which has no "
            "words for them: use family goals, or encoding identity"
        )
    levels = family.space.levels
    said, owners = [], []
    first = family.sentence((0,) * len(levels)).split()
    for factor, values in enumerate(levels):
        changed = set()
        for value in range(values):
            spot = tuple(value if f == factor else 0 for f in range(len(levels)))
            said.append(family.sentence(spot).split())
            if len(said[-1]) != len(first):
                raise InvalidRequest(
                    f"sentences of {type(family).__name__} differ in length: {' '.join(first)!r} "
                    f"and {' '.join(said[-1])!r}; the sentence encoding needs equally many words"
                )
            pairs = zip(first, said[-1], strict=True)
            changed |= {place for place, (one, other) in enumerate(pairs) if one != other}
        owners.append(changed)
    places = [place for changed in owners for place in changed]
    if len(places) != len(set(places)):
        raise InvalidRequest(
            f"in sentences of {type(family).__name__} two factors change the same word: give each "
            "factor words of its own"
        )
    return _number(said)


def _number(said: list[list[str]]) -> tuple[tuple[str, ...], Int[np.ndarray, "module place"]]:
    vocabulary = tuple(dict.fromkeys(word for words in said for word in words))
    numbers = {word: number for number, word in enumerate(vocabulary)}
    return vocabulary, np.array([[numbers[word] for word in words] for words in said])
