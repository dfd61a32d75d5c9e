"""A source language whose probabilities are set, so that the probability of any text is known.

A lexicon of words, 200 of 3 to 5 letters unless set otherwise, in families of four that differ in
one letter, so that every word has neighbours it can be mistaken for. A sentence is a chain of
words. The next word is,

- with probability `STRANGE`, no word of the lexicon but letters drawn at random (1 to 7 of them,
  every length alike), which is what gives any text at all a probability;
- else, with probability `BACK_OFF`, drawn by frequency alone (Zipf: 1 / rank);
- else drawn by what the word before it calls for: a row of a transition matrix, Dirichlet with a
  concentration of `CONCENTRATION` a word on average, and the Zipf frequencies as its mean.

The number of words is given, not drawn, as in the published stimuli, where no end is scored. The
uniform language is the same chain with `strange` 1: letters, and nothing to expect.

This is the model under which texts have their probabilities. Sentences are drawn from it with one
difference: strange words have the lexicon's lengths, so that all conditions are equally long. The
model spreads them over all lengths from 1 to 7 because it has to score what tasks make of words,
too. So a strange word is scored log(7 / number of lengths) nats below the chance it is drawn with;
for texts of known words, all but one word in a thousand, the two agree.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from recombine.errors import InvalidRequest
from recombine.seeds import host_seed

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LENGTHS = (3, 4, 5)  # of words of the lexicon, and of strange words in drawn sentences, at most
LONGEST_SPELLED = 7  # letters of a strange word: enough for words that a task has made longer
LEXICON, FAMILY = 200, 4
STRANGE, BACK_OFF, CONCENTRATION = 0.001, 0.1, 0.1
UNLIKELIER = math.log(10)  # how much less likely a sentence is with one word swapped, at least
_BLOCK = 8192


@dataclass(frozen=True, eq=False)
class Language:
    """Words, how often each is used, and which follow which.

    >>> source = language(content=0)
    >>> likely, strange = source.draw(np.random.default_rng(0), 1, 4)[0], "xqz jjw kvv wqp"
    >>> source.log_probability(likely) > source.log_probability(strange)
    True
    """

    words: tuple[str, ...]
    frequencies: Float[np.ndarray, " word"]
    transitions: Float[np.ndarray, "word next"]  # the back-off is mixed in already
    strange: float = STRANGE
    lengths: tuple[int, ...] = LENGTHS  # of strange words

    @functools.cached_property
    def places(self) -> Mapping[str, int]:
        """Where each word stands in the lexicon."""
        return {word: i for i, word in enumerate(self.words)}

    @functools.cached_property
    def neighbours(self) -> Mapping[str, tuple[str, ...]]:
        """The words one changed letter away, for each word of the lexicon."""
        by_frame: dict[str, list[str]] = {}
        for word in self.words:
            for frame in _frames(word):
                by_frame.setdefault(frame, []).append(word)
        return {
            word: tuple(other for f in _frames(word) for other in by_frame[f] if other != word)
            for word in self.words
        }

    def log_probability(self, sentence: str) -> float:
        """The log-probability of a text under the model above, in nats, given its number of words.

        A strange word has 1 to 7 letters there, every length alike, though only words of `lengths`
        are drawn; a longer one is never written: -inf. A word of the lexicon counts as one, however
        it came about.
        """
        total, before = 0.0, None
        for word in sentence.split(" "):
            if not word or word.strip(LETTERS):
                raise InvalidRequest(
                    f"text {sentence!r}: expected words of small letters, parted by single spaces"
                )
            place = self.places.get(word)
            spelled = 26.0 ** -len(word) / LONGEST_SPELLED if len(word) <= LONGEST_SPELLED else 0.0
            known = 0.0
            if place is not None:
                row = self.frequencies if before is None else self.transitions[before]
                known = float(row[place])
            chance = self.strange * spelled + (1 - self.strange) * known
            total += math.log(chance) if chance > 0 else -math.inf
            before = place
        return total

    def draw(self, rng: np.random.Generator, sentences: int, words: int) -> list[str]:
        """Sentences of the language; unlike the model's, strange words keep to `lengths`."""
        drawn: list[str] = []
        for start in range(0, sentences, _BLOCK):
            count = min(_BLOCK, sentences - start)
            strange = rng.random((count, words)) < self.strange
            chosen = self._chain(rng, strange)
            texts = [self.words[i] for i in chosen.ravel()]
            for place, text in zip(
                np.flatnonzero(strange),
                spelled(rng, int(strange.sum()), self.lengths),
                strict=True,
            ):
                texts[place] = text
            drawn += [" ".join(texts[i : i + words]) for i in range(0, count * words, words)]
        return drawn

    def _chain(
        self, rng: np.random.Generator, strange: Bool[np.ndarray, "sentence word"]
    ) -> Int[np.ndarray, "sentence word"]:
        # A strange word calls for nothing: what follows it is drawn by frequency.
        rows = np.cumsum(np.vstack([self.transitions, self.frequencies]), axis=1)
        rows[:, -1] = 1.0
        nothing = len(self.words)
        before = np.full(len(strange), nothing)
        chosen = np.zeros(strange.shape, dtype=np.int64)
        for t in range(strange.shape[1]):
            chosen[:, t] = (rng.random(len(strange))[:, None] > rows[before]).sum(axis=1)
            before = np.where(strange[:, t], nothing, chosen[:, t])
        return chosen


@functools.lru_cache(maxsize=16)
def language(
    content: int,
    *,
    uniform: bool = False,
    lexicon: int = LEXICON,
    lengths: tuple[int, ...] = LENGTHS,
) -> Language:
    """The language of one draw of content; `uniform` for the one in which no text is expected.

    >>> len(language(0).words), min(len(near) for near in language(0).neighbours.values())
    (200, 3)
    """
    rng = np.random.default_rng(host_seed(content, "language"))
    words = _lexicon(rng, lexicon, lengths)
    frequencies = 1 / (1 + np.arange(len(words)))
    frequencies /= frequencies.sum()
    rows = rng.dirichlet(CONCENTRATION * len(words) * frequencies, size=len(words))
    transitions = (1 - BACK_OFF) * rows + BACK_OFF * frequencies
    return Language(words, frequencies, transitions, 1.0 if uniform else STRANGE, lengths)


def spelled(rng: np.random.Generator, count: int, lengths: tuple[int, ...]) -> list[str]:
    """Strange words: letters drawn at random, as many as a word of the lexicon may have."""
    longest = max(lengths)
    drawn = letters(rng, count * longest)
    starts = range(0, count * longest, longest)
    sizes = rng.choice(lengths, count).tolist()
    return [drawn[i : i + size] for i, size in zip(starts, sizes, strict=True)]


class Stimulus(NamedTuple):
    """One sentence in four conditions of the same length, and what the last is mistaken for."""

    high: str  # drawn from the language, all words known
    medium: str  # the same words in an order drawn uniformly
    low: str  # random letters, the same lengths
    adversarial: str  # `high` with one word swapped for an unlikely neighbour
    others: tuple[str, ...]  # `adversarial` with that word swapped for any neighbour but `high`'s

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """The four conditions, in order."""
        return self[:4]


def stimulus(source: Language, rng: np.random.Generator, words: int) -> Stimulus:
    """A stimulus of the language; sentences that cannot carry all four conditions are redrawn.

    >>> drawn = stimulus(language(0), np.random.default_rng(0), 4)
    >>> len({len(text) for text in drawn[:4]})
    1
    """
    while True:
        (high,) = source.draw(rng, 1, words)
        said = high.split(" ")
        if len(set(said)) < 3 or any(word not in source.places for word in said):
            continue
        medium = " ".join(said[i] for i in rng.permutation(words))
        low = " ".join(letters(rng, len(word)) for word in said)
        swaps = _unlikely_swaps(source, said)
        texts = {text for one in (high, medium, low) for text in (one, reversed_words(one))}
        if not swaps or len(texts) < 6 or any(word in source.places for word in low.split(" ")):
            continue
        place, word = swaps[int(rng.integers(len(swaps)))]
        others = [near for near in source.neighbours[word] if near != said[place]]
        adversarial = _swapped(said, place, word)
        return Stimulus(
            high, medium, low, adversarial, tuple(_swapped(said, place, near) for near in others)
        )


def reversed_words(sentence: str) -> str:
    """
    >>> reversed_words("one two six")
    'six two one'
    """
    return " ".join(sentence.split(" ")[::-1])


def _unlikely_swaps(source: Language, said: list[str]) -> list[tuple[int, str]]:
    likely = source.log_probability(" ".join(said))
    return [
        (place, near)
        for place, word in enumerate(said)
        for near in source.neighbours[word]
        if source.log_probability(_swapped(said, place, near)) <= likely - UNLIKELIER
    ]


def _swapped(said: list[str], place: int, word: str) -> str:
    return " ".join([*said[:place], word, *said[place + 1 :]])


def _frames(word: str) -> list[str]:
    return [f"{word[:i]}.{word[i + 1 :]}" for i in range(len(word))]


def letters(rng: np.random.Generator, count: int) -> str:
    """A string of letters, each drawn alike."""
    return (rng.integers(0, 26, count, dtype=np.uint8) + ord("a")).tobytes().decode("ascii")


def _lexicon(rng: np.random.Generator, size: int, lengths: tuple[int, ...]) -> tuple[str, ...]:
    words: dict[str, None] = {}
    while len(words) < size:
        length = lengths[len(words) // FAMILY % len(lengths)]
        frame, place = letters(rng, length), int(rng.integers(length))
        family = [
            frame[:place] + LETTERS[i] + frame[place + 1 :] for i in rng.permutation(26)[:FAMILY]
        ]
        if not any(word in words for word in family):
            words.update(dict.fromkeys(family))
    ordered = list(words)
    return tuple(ordered[i] for i in rng.permutation(len(ordered)))
