"""PCFG SET: string functions applied to one another's results, as `append reverse A B , C D`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import ClassVar

from recombine.errors import InvalidRequest
from recombine.families._draws import dice
from recombine.families._sequence import TEST, TRAIN, VALIDATION, Corpus, Item, SequenceFamily
from recombine.families.listops import Draw, in_shares

String = tuple[str, ...]
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
UNARY: dict[str, Callable[[String], String]] = {
    "copy": lambda x: x,
    "reverse": lambda x: x[::-1],
    "shift": lambda x: (*x[1:], x[0]),
    "swap_first_last": lambda x: (x[-1], *x[1:-1], x[0]) if len(x) > 1 else x,
    "repeat": lambda x: x + x,
    "echo": lambda x: (*x, x[-1]),
}
BINARY: dict[str, Callable[[String, String], String]] = {
    "append": lambda x, y: x + y,
    "prepend": lambda x, y: y + x,
    "remove_first": lambda x, y: y,
    "remove_second": lambda x, y: x,
}
FUNCTIONS = (*UNARY, *BINARY)
# A function and the one that heads its (first) argument; the four pairs of the published test.
HELD_OUT_PAIRS = (
    ("swap_first_last", "repeat"),
    ("append", "remove_second"),
    ("repeat", "remove_second"),
    ("append", "swap_first_last"),
)
SHORTEST_STRING = 2


@dataclass(frozen=True)
class Pcfg(SequenceFamily):
    """Ten functions over strings of letters (after Hupkes et al., 2020), `functions` at a time.

    `shift` moves the first letter to the end, `echo` repeats the last one; `remove_first` and
    `remove_second` drop one of their arguments. Training applies 1 to `functions` functions, as
    many items of each number, and never one of four pairs directly to the other, as the first
    argument where it has two (as published: words that follow each other). Beyond are
    `systematicity`, with such a pair and no more functions than trained, and `productivity`, with
    up to `more` functions more and no such pair. Strings have 2 to `string` of `letters` letters,
    answers at most `longest` letters, so that `repeat` cannot run away.

    A source has at most 47 words with the defaults, an answer 32; the vocabulary is 37.

    >>> Pcfg().solve("append reverse A B , repeat C D")
    'B A C D C D'
    """

    name: ClassVar[str] = "pcfg"
    unit: ClassVar[str] = "pairs of functions never trained together, or functions beyond those"
    instruction: ClassVar[str] = (
        "Apply the functions to strings of letters. Functions stand before their arguments, and "
        "the innermost is applied first; a comma parts the two arguments of append, prepend, "
        "remove_first and remove_second. copy changes nothing; reverse turns the order around; "
        "shift moves the first letter to the end; swap_first_last exchanges the first and the last "
        "letter; repeat writes the string twice; echo writes the last letter once more; append "
        "puts the second string after the first, prepend before it; remove_first leaves the second "
        "string, remove_second the first. Answer with the letters only, parted by spaces."
    )

    functions: int = 3
    more: int = 3
    string: int = 5
    letters: int = 26
    train_items: int = 100_000
    test_items: int = 1_000
    validation_items: int = 500
    beyond_items: int = 1_000
    longest: int = 32

    def check(self) -> None:
        if self.functions < 2 or self.more < 1:
            raise InvalidRequest(
                f"functions={self.functions}, more={self.more}: a pair takes at least 2 functions, "
                "and productivity at least 1 more"
            )
        if not SHORTEST_STRING <= self.string <= self.longest:
            raise InvalidRequest(
                f"string={self.string}: strings have {SHORTEST_STRING} letters at least, and no "
                f"more than an answer may have (longest={self.longest})"
            )
        if not 1 <= self.letters <= len(ALPHABET):
            raise InvalidRequest(f"letters={self.letters}: ask for 1 to {len(ALPHABET)}")
        sizes = (self.train_items, self.test_items, self.validation_items, self.beyond_items)
        if min(sizes) < 1:
            raise InvalidRequest(
                "every split needs an item: train_items={}, test_items={}, validation_items={}, "
                "beyond_items={}".format(*sizes)
            )
        # The least that swap_first_last repeat can be asked to do.
        if self.longest < 2 * SHORTEST_STRING:
            raise InvalidRequest(
                f"longest={self.longest}: repeat makes {2 * SHORTEST_STRING} letters of the "
                "shortest string, ask for that or more"
            )

    def corpus(self, seed: int) -> Corpus:
        self.check()

        def plain(count: int) -> Draw:
            def draw(rng: Random) -> Item | None:
                item = self._draw(rng, count)
                if item is None or held_out_pairs(item.source):
                    return None
                novelty = max(count - self.functions, 0)
                return item._replace(part=_counted(count), novelty=novelty)

            return draw

        def paired(pair: tuple[str, str]) -> Draw:
            def draw(rng: Random) -> Item | None:
                item = self._draw(rng, rng.randint(2, self.functions))
                found = held_out_pairs(item.source) if item else []
                if item is None or pair not in found:
                    return None
                return item._replace(part=" ".join(pair), novelty=len(found))

            return draw

        taken: set[str] = set()

        def split(name: str, size: int, draws: Sequence[Draw]) -> list[Item]:
            return in_shares(dice(seed, f"{self.name}/{name}"), draws, size, taken, name)

        trained = [plain(count) for count in range(1, self.functions + 1)]
        pairs = [paired(pair) for pair in HELD_OUT_PAIRS]
        longer = [plain(self.functions + extra) for extra in range(1, self.more + 1)]
        # In this order, so that asking for more training leaves the other items as they are.
        splits = {
            TEST: split(TEST, self.test_items, trained),
            VALIDATION: split(VALIDATION, self.validation_items, [*pairs, *longer]),
            "systematicity": split("systematicity", self.beyond_items, pairs),
            "productivity": split("productivity", self.beyond_items, longer),
        }
        return Corpus({TRAIN: split(TRAIN, self.train_items, trained), **splits})

    def solve(self, source: str) -> str:
        words = source.split(" ")
        answer, rest = _parsed(words, source)
        if rest:
            raise _refused(source, f"{rest[0]!r} has no place there")
        return " ".join(answer)

    def _draw(self, rng: Random, count: int) -> Item | None:
        words, answer = self._applied(rng, count)
        return Item(" ".join(words), " ".join(answer)) if len(answer) <= self.longest else None

    def _applied(self, rng: Random, count: int) -> tuple[list[str], String]:
        """A source of so many functions, and its answer."""
        if count == 0:
            size = rng.randint(SHORTEST_STRING, self.string)
            string = tuple(rng.choice(ALPHABET[: self.letters]) for _ in range(size))
            return list(string), string
        name = rng.choice(FUNCTIONS)
        if name in UNARY:
            words, x = self._applied(rng, count - 1)
            return [name, *words], UNARY[name](x)
        first = rng.randrange(count)
        words, x = self._applied(rng, first)
        others, y = self._applied(rng, count - 1 - first)
        return [name, *words, ",", *others], BINARY[name](x, y)


def held_out_pairs(source: str) -> list[tuple[str, str]]:
    """The pairs never trained together that stand next to each other in a source.

    >>> held_out_pairs("swap_first_last repeat append A B , repeat C D")
    [('swap_first_last', 'repeat')]
    """
    words = source.split(" ")
    return [pair for pair in pairwise(words) if pair in HELD_OUT_PAIRS]


def _counted(count: int) -> str:
    return f"{count} function" if count == 1 else f"{count} functions"


def _parsed(words: list[str], source: str) -> tuple[String, list[str]]:
    """The value of the expression at the front, and the words behind it."""
    if not words:
        raise _refused(source, "it ends where an argument is expected")
    name, rest = words[0], words[1:]
    if name in UNARY:
        x, rest = _parsed(rest, source)
        return UNARY[name](x), rest
    if name in BINARY:
        x, rest = _parsed(rest, source)
        if rest[:1] != [","]:
            raise _refused(source, f"{name} takes two arguments parted by a comma")
        y, rest = _parsed(rest[1:], source)
        return BINARY[name](x, y), rest
    size = 0
    while size < len(words) and len(words[size]) == 1 and words[size] in ALPHABET:
        size += 1
    if size == 0:
        raise _refused(source, f"{name!r} is neither a function nor a letter")
    return tuple(words[:size]), words[size:]


def _refused(source: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"{source!r} is no source of PCFG SET: {why}; one reads like 'append reverse A B , C D'"
    )
