"""Families of prompts: the prompt, its concepts and the judge's question from the same words.

A family is a space of combinations (`recombine.combinations`), so supports and novelty apply to
it. What the judge is asked does not depend on the prompt of an image: it is told the whole list of
words and never which of them were asked for, so that it cannot be led.
"""

from __future__ import annotations

import abc
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt32

from recombine.combinations import Slots, Space, Subsets
from recombine.errors import InvalidRequest, unknown
from recombine.pictures.grammar import listed, said

NONE = "none of these"
"""What the judge says of a slot that shows none of its words."""


class PromptFamily(abc.ABC):
    """Prompts that share their words; each combination of words has a rank."""

    name: str

    @property
    @abc.abstractmethod
    def space(self) -> Space:
        """The combinations, as supports and novelty know them."""

    @property
    @abc.abstractmethod
    def concepts(self) -> tuple[str, ...]:
        """The name of every module of the space, in the order of the modules."""

    @abc.abstractmethod
    def ranks(self) -> UInt32[np.ndarray, " n"]:
        """Every combination that has a prompt, ascending."""

    @abc.abstractmethod
    def values(self, rank: int) -> tuple[str, ...]:
        """The words of a combination, in the order the prompt says them."""

    @abc.abstractmethod
    def rank(self, values: Sequence[str]) -> int:
        """The combination that these words make."""

    @abc.abstractmethod
    def sentence(self, values: Sequence[str]) -> str:
        """The prompt these words make, unchecked."""

    @abc.abstractmethod
    def question(self) -> str:
        """What the judge is asked about any image of this family."""

    @abc.abstractmethod
    def properties(self) -> dict[str, dict[str, Any]]:
        """The keys of the judge's answer, and what each may hold, as a JSON schema."""

    @abc.abstractmethod
    def heard(self, answer: Mapping[str, Any]) -> dict[str, bool]:
        """Which concepts an answer says are there; a nonsense answer is an InvalidRequest."""

    def prompt(self, which: int | Sequence[str]) -> str:
        """The prompt of a combination, given by its rank or by its words."""
        if isinstance(which, int | np.integer):
            return self.sentence(self.values(int(which)))
        self.rank(which)  # refuses words that are not of this family
        return self.sentence(which)

    def wanted(self, which: int | Sequence[str]) -> frozenset[str]:
        """The concepts that an image of this combination must show."""
        rank = int(which) if isinstance(which, int | np.integer) else self.rank(which)
        return frozenset(self.concepts[module] for module in self.space.describe(rank))

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the judge's answer, strict: every key and no other."""
        properties = self.properties()
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def _keys_of(self, answer: Any) -> None:
        expected = self.properties()
        if not isinstance(answer, Mapping):
            raise InvalidRequest(f"the answer {answer!r} is not an object")
        if missing := [key for key in expected if key not in answer]:
            raise InvalidRequest(f"the answer lacks {', '.join(map(repr, missing))}")
        if extra := [str(key) for key in answer if key not in expected]:
            raise InvalidRequest(f"the answer has the unknown key {extra[0]!r}")


@dataclass(frozen=True)
class Things(PromptFamily):
    """Several different things in one image: "An image with one A, one B and one C."

    The prompt says them in an order drawn anew (but always alike) for each combination, so that no
    thing is always named first. The judge says which things are there, one or more of each.

    >>> pets = Things("pets", ("cat", "dog", "red parrot"), active=2)
    >>> pets.prompt(["cat", "red parrot"]), len(pets.ranks())
    ('An image with one cat and one red parrot.', 3)
    """

    name: str
    things: tuple[str, ...]
    active: int = 3

    def __post_init__(self) -> None:
        _distinct(self.name, self.things)
        _distinct(self.name, [_key(thing) for thing in self.things])
        _ = self.space  # checks the sizes

    @property
    def space(self) -> Subsets:
        return Subsets(len(self.things), self.active)

    @property
    def concepts(self) -> tuple[str, ...]:
        return self.things

    def ranks(self) -> UInt32[np.ndarray, " n"]:
        # Subsets holds every size up to `active`, ordered by size: the last block is exactly K.
        return np.arange(self.space.offsets[-2], self.space.size, dtype=np.uint32)

    def values(self, rank: int) -> tuple[str, ...]:
        modules = self.space.describe(rank)
        if len(modules) != self.active:
            raise InvalidRequest(
                f"rank {rank} of {self.name!r} has {len(modules)} things: prompts have "
                f"{self.active}; take one of ranks()"
            )
        order = np.random.default_rng(rank).permutation(self.active)
        return tuple(self.things[modules[place]] for place in order)

    def rank(self, values: Sequence[str]) -> int:
        if isinstance(values, str) or len(set(values)) != self.active or len(values) != self.active:
            raise InvalidRequest(
                f"{values!r}: a prompt of {self.name!r} has {self.active} different things"
            )
        modules = [_index(self.name, value, self.things) for value in values]
        return int(self.space.rank([modules])[0])

    def sentence(self, values: Sequence[str]) -> str:
        return f"An image with {listed([f'one {value}' for value in values])}."

    def question(self) -> str:
        lines = [f"- {key}: {thing}" for key, thing in zip(self._keys, self.things, strict=True)]
        return (
            "Which of these things does the image show? Answer true for each thing that can be "
            "recognised in it, one or more, and false for every other.\n" + "\n".join(lines)
        )

    def properties(self) -> dict[str, dict[str, Any]]:
        return {key: {"type": "boolean"} for key in self._keys}

    def heard(self, answer: Mapping[str, Any]) -> dict[str, bool]:
        self._keys_of(answer)
        for key in self._keys:
            if not isinstance(answer[key], bool):
                raise InvalidRequest(f"{key!r} is {answer[key]!r}: expected true or false")
        return {thing: answer[key] for key, thing in zip(self._keys, self.things, strict=True)}

    @property
    def _keys(self) -> list[str]:
        return [_key(thing) for thing in self.things]


@dataclass(frozen=True)
class Slot:
    """One blank of a template: its words, and how the judge is asked which of them is shown."""

    name: str
    words: tuple[str, ...]
    asks: str


@dataclass(frozen=True)
class Scene(PromptFamily):
    """A template with one word in every slot: "{animal:a} wearing {clothing:a}".

    `:a` puts an article, `:s` the plural. A concept is a word in its slot ("animal: cat").

    >>> worn = Slot("clothing", ("hat", "boots"), "What does it wear?")
    >>> pets = Scene("pets", "{pet:a} in {clothing:a}", (Slot("pet", ("owl",), "Which pet?"), worn))
    >>> pets.prompt(0), pets.prompt(["owl", "boots"])
    ('An image of an owl in a hat.', 'An image of an owl in boots.')
    """

    name: str
    template: str
    slots: tuple[Slot, ...]

    def __post_init__(self) -> None:
        named = [field for _, field, _, _ in string.Formatter().parse(self.template) if field]
        slots = [slot.name for slot in self.slots]
        if sorted(named) != sorted(slots) or len(set(slots)) != len(slots):
            raise InvalidRequest(f"{self.name!r}: template names {named}, its slots are {slots}")
        if [_key(name) for name in slots] != slots:
            raise InvalidRequest(f"{self.name!r}: slots {slots} need names such as 'top_food'")
        for slot in self.slots:
            _distinct(f"{self.name}/{slot.name}", [*slot.words, NONE])

    @property
    def space(self) -> Slots:
        return Slots(tuple(len(slot.words) for slot in self.slots))

    @property
    def concepts(self) -> tuple[str, ...]:
        return tuple(f"{slot.name}: {word}" for slot in self.slots for word in slot.words)

    def ranks(self) -> UInt32[np.ndarray, " n"]:
        return np.arange(self.space.size, dtype=np.uint32)

    def values(self, rank: int) -> tuple[str, ...]:
        chosen = self.space.values([rank])[0]
        return tuple(slot.words[int(i)] for slot, i in zip(self.slots, chosen, strict=True))

    def rank(self, values: Sequence[str]) -> int:
        if isinstance(values, str) or len(values) != len(self.slots):
            raise InvalidRequest(
                f"{values!r}: a prompt of {self.name!r} has one word for each of "
                + listed([slot.name for slot in self.slots])
            )
        chosen = [
            _index(f"{self.name}/{slot.name}", value, slot.words)
            for slot, value in zip(self.slots, values, strict=True)
        ]
        return int(self.space.rank([self.space.starts + chosen])[0])

    def sentence(self, values: Sequence[str]) -> str:
        words = {slot.name: value for slot, value in zip(self.slots, values, strict=True)}
        return f"An image of {said(self.template, words)}."

    def question(self) -> str:
        lines = [
            f"- {slot.name}: {slot.asks} One of: {', '.join(slot.words)}; or {NONE}."
            for slot in self.slots
        ]
        return "Answer each question about the image with one of its words.\n" + "\n".join(lines)

    def properties(self) -> dict[str, dict[str, Any]]:
        return {slot.name: {"type": "string", "enum": [*slot.words, NONE]} for slot in self.slots}

    def heard(self, answer: Mapping[str, Any]) -> dict[str, bool]:
        self._keys_of(answer)
        shown = dict.fromkeys(self.concepts, False)
        for slot in self.slots:
            word = answer[slot.name]
            if word not in (*slot.words, NONE):
                raise InvalidRequest(f"{slot.name!r} is {word!r}: expected one of its words")
            if word != NONE:
                shown[f"{slot.name}: {word}"] = True
        return shown


def _key(phrase: str) -> str:
    """A phrase as a JSON key that every endpoint accepts."""
    return re.sub(r"\W+", "_", phrase.lower()).strip("_")


def _index(what: str, value: str, words: Sequence[str]) -> int:
    if value not in words:
        raise unknown(f"word of {what!r}", str(value), words)
    return words.index(value)


def _distinct(what: str, words: Sequence[str]) -> None:
    if len(set(words)) != len(words) or len(words) == 0:
        raise InvalidRequest(f"{what!r}: words {list(words)} must differ, and be at least one")
