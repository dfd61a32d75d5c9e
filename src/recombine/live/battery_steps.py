"""Operations on lists of numbers and on words, and chains of them in which every one matters."""

from __future__ import annotations

import itertools
import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Numbers = list[int]
Words = list[str]

# A description, the usual name of what it describes, and that itself. Where a description has a
# number, it is drawn and both told and used.
LIST_OPERATIONS: dict[str, tuple[str, Callable[[Numbers, int], Numbers]]] = {
    "turns the list round, so that the last number comes first": ("reverse", lambda x, k: x[::-1]),
    "sorts the numbers from smallest to largest": ("sort", lambda x, k: sorted(x)),
    "drops the first number": ("drop_first", lambda x, k: x[1:]),
    "keeps only the even numbers": ("keep_even", lambda x, k: [n for n in x if n % 2 == 0]),
    "adds {k} to every number": ("add_{k}", lambda x, k: [n + k for n in x]),
    "doubles every number": ("double", lambda x, k: [2 * n for n in x]),
    "moves the first number to the end": ("rotate", lambda x, k: x[1:] + x[:1]),
    # One number alone is first and last, and stays where it is.
    "swaps the first number and the last": (
        "swap_ends", lambda x, k: x[-1:] + x[1:-1] + x[: len(x) > 1]
    ),
    "drops numbers that came before in the list": ("unique", lambda x, k: list(dict.fromkeys(x))),
    "puts the sum of all numbers at the end": ("append_sum", lambda x, k: [*x, sum(x)]),
    "replaces every number by its distance from {k}": (
        "distance_from_{k}", lambda x, k: [abs(n - k) for n in x]
    ),
    "keeps only the numbers greater than {k}": (
        "keep_above_{k}", lambda x, k: [n for n in x if n > k]
    ),
    "writes the last number once more at the end": ("repeat_last", lambda x, k: x + x[-1:]),
}  # fmt: skip

WORD_OPERATIONS: dict[str, tuple[str, Callable[[Words, int, str], Words]]] = {
    "backwards": ("Write every word backwards.", lambda x, k, s: [w[::-1] for w in x]),
    "order": ("Put the words in the opposite order.", lambda x, k, s: x[::-1]),
    "shift": (
        "Replace every letter by the one {k} places later in the alphabet, going on from z to a.",
        lambda x, k, s: ["".join(_later(c, k) for c in w) for w in x],
    ),
    "pig latin": (
        "Move the first letter of every word to its end and then add '{s}'.",
        lambda x, k, s: [w[1:] + w[0] + s for w in x],
    ),
    "length": (
        "Sort the words by length, shortest first; words of equal length keep their order.",
        lambda x, k, s: sorted(x, key=len),
    ),
}

_COMMON = """
air apple arm bank bird boat book bread bridge broken candle carpet castle chair clock cloud coat
corner cup dinner door dream drum engine evening eye farm feather field fire fish flower forest
garden glass gold hammer hand hat hill honey horse house ice island jacket key king lamp leaf letter
light lion market meadow milk mirror moon mountain music needle night ocean orange paper pencil
picture pocket queen rain ring river road rope salt school shadow ship silver snow spoon spring star
stone storm summer sun table tiger tower train tree valley village voice wall water wheel window
winter wolf yellow
"""
VOCABULARY: tuple[str, ...] = tuple(_COMMON.split())


@dataclass(frozen=True)
class ListProgram:
    """A list, operations on it by (usual name, description), two more not used, the result."""

    start: Numbers
    used: list[tuple[str, str]]
    others: list[tuple[str, str]]
    result: Numbers


def list_program(rng: random.Random, depth: int) -> ListProgram:
    """A chain of `depth` operations, each of which changes the list."""
    while True:
        start = [rng.randint(1, 12) for _ in range(6)]
        chosen = rng.sample(list(LIST_OPERATIONS), depth + 2)
        told = [(one, rng.randint(2, 5)) for one in chosen]
        states = [start]
        for one, k in told[:depth]:
            states.append(LIST_OPERATIONS[one][1](states[-1], k))
        if _all_matter(states) and states[-1]:
            named = [(LIST_OPERATIONS[one][0].format(k=k), one.format(k=k)) for one, k in told]
            return ListProgram(start, named[:depth], named[depth:], states[-1])


def random_letters(rng: random.Random, length: int) -> str:
    """A string that is no common word."""
    while True:
        made = "".join(rng.choice(string.ascii_lowercase) for _ in range(length))
        if made not in VOCABULARY:
            return made


def word_program(
    rng: random.Random, depth: int, number: int, respelt: Callable[[str], str] = str
) -> tuple[Words, list[str], list[str], Words]:
    """(start, steps as told, their kinds, result); no step undoes the one before.

    `respelt` may put something else in the place of each common word.
    """
    kinds = list(WORD_OPERATIONS)
    while True:
        start: Words = [respelt(word) for word in rng.sample(VOCABULARY, 4)]
        chosen = [kinds[number % len(kinds)] if depth == 1 else rng.choice(kinds)]
        while len(chosen) < depth:
            chosen.append(rng.choice([kind for kind in kinds if kind != chosen[-1]]))
        states, texts = [start], list[str]()
        for kind in chosen:
            text, operation = WORD_OPERATIONS[kind]
            k, s = rng.randint(1, 25), rng.choice(("ay", "way", "om", "uv", "ip"))
            texts.append(text.format(k=k, s=s))
            states.append(operation(states[-1], k, s))
        if _all_matter(states):
            return start, texts, chosen, states[-1]


def _all_matter(states: Sequence[Sequence[object]]) -> bool:
    return all(a != b for a, b in itertools.pairwise(states))


def _later(letter: str, k: int) -> str:
    return chr((ord(letter) - ord("a") + k) % 26 + ord("a"))
