"""Tokens as numbers: a few with a meaning of their own, then the words of a vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PAD, ANSWER, END, UNKNOWN = 0, 1, 2, 3
FIRST = 4  # the number of the first word
SPECIAL = ("<pad>", "<answer>", "<end>", "<unknown>")


class Vocabulary:
    """Words and their numbers; a word it does not have is UNKNOWN.

    >>> words = Vocabulary(["jump", "twice"])
    >>> words.numbers(["twice", "jump", "run"]), words.words([5, 4])
    ([5, 4, 3], ['twice', 'jump'])
    """

    def __init__(self, words: Iterable[str]):
        self.listed = tuple(dict.fromkeys(words))
        self._numbers = {word: FIRST + n for n, word in enumerate(self.listed)}

    def __len__(self) -> int:
        return FIRST + len(self.listed)

    def numbers(self, words: Sequence[str]) -> list[int]:
        return [self._numbers.get(word, UNKNOWN) for word in words]

    def words(self, numbers: Iterable[int]) -> list[str]:
        """A number without a word (a vocabulary may be padded) reads as unknown."""
        known = (*SPECIAL, *self.listed)
        return [known[n] if 0 <= n < len(known) else SPECIAL[UNKNOWN] for n in numbers]
