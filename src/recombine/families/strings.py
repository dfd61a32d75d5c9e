"""Deterministic tasks on strings, in a world where how likely each text and task is has been set.

Half of training is plain text of a source language with known probabilities; the other half is
tasks on such text, ciphers above all. A right answer never depends on how likely it is, so any
effect of probability is the learner's own. The placebo (`uniform`) trains on letters drawn at
random and on all shifts alike, and is asked the very same questions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from recombine.errors import InvalidRequest, unknown
from recombine.families._language import (
    FAMILY,
    LENGTHS,
    LEXICON,
    Language,
    Stimulus,
    language,
    letters,
    reversed_words,
    stimulus,
)
from recombine.families._sequence import TEST, TRAIN, VALIDATION, Corpus, Item, SequenceFamily
from recombine.families._string_tasks import (
    COUNTED,
    FREE,
    TASKS,
    TWO_WAY,
    WAYS,
    Task,
    asked,
    solved,
)

CONDITIONS = ("high", "medium", "low", "adversarial")
ORIGINAL, OTHER = "decode common original", "decode common other"  # splits of mistakes
COMMON, RARE = 0.3, 0.003  # of all ciphers, the share of the common and of the rare shift
TEXT_SHARE, CIPHER_SHARE = 0.5, 0.5  # of all items, of all tasks where there are others too
# Nothing that is asked may be trained on, and the likely sentences are soon used up.
_MOST = {
    "train_items": 1_000_000,
    "test_items": 10_000,
    "sentences": 2_000,
    "validation_items": 10_000,
}
_ROUNDS = 200


class Swap(NamedTuple):
    """What an adversarial item may be mistaken for, as answers to its question."""

    original: str  # the likely sentence it was made from
    others: tuple[str, ...]  # equally near to the right answer, but nothing calls for them


@dataclass(frozen=True)
class Strings(SequenceFamily):
    """Ciphers and other tasks on text, each with the probability it has been given.

    A source starts with the task: `= TEXT` copies, `-N TEXT` takes the cipher of key N off (a key
    is the letter that stands for a), `+N TEXT` puts it on, `~` reverses the words, `>` and `<`
    move every word's first letter to its end before "ay" and back, `@` sorts each word's letters,
    `&` sorts the words, `#` counts letters. At four words a sentence, source and target together
    have at most 56 characters, 49 with ciphers alone.

    Beyond training, the same sentences are asked about in four conditions: `high` (drawn from the
    language), `medium` (their words in an order drawn uniformly), `low` (random letters of the
    same lengths) and `adversarial` (one word swapped for a neighbour, which makes the sentence at
    least ten times less likely). Each is asked four times, to decode and to encode with the common
    and with the rare shift, and twice more for reversal and for Pig Latin: every such way in every
    condition is a split, such as "decode common high", and the n-th item of each is made of the
    n-th sentence. No evaluation sentence is trained on, in any task or backwards. `content` draws
    the language and which shifts are common and rare; the seed of a corpus draws its items.

    With `mistakes` there are two splits more, for looks along training: the questions of "decode
    common adversarial" beside two answers that are wrong, the likely sentence it was made from
    ("decode common original") and one with another neighbour of the word ("decode common other").

    >>> family = Strings(train_items=100, test_items=10, sentences=5, validation_items=8)
    >>> family.solve("-N uryyb"), family.solve("~ one two six")
    ('hello', 'six two one')
    >>> family.corpus(0)["decode common high"][0].part
    'decode common high'
    """

    name: ClassVar[str] = "strings"
    tokens: ClassVar[Literal["word", "character"]] = "character"
    unit: ClassVar[str] = "nats of surprise at the right answer"
    instruction: ClassVar[str] = (
        "The first sign says what to do with the text after it: '=' copies it; '-N' decodes a "
        "shift cipher in which a was written as n (any capital letter may stand there) and '+N' "
        "encodes with it; '~' reverses the order of the words; '>' moves each word's first "
        "letter to its end and adds 'ay', and '<' undoes that; '@' sorts the letters of each "
        "word; '&' sorts the words; '#' counts the letters. Answer with the result alone."
    )

    content: int = 0
    uniform: bool = False
    tasks: tuple[Task, ...] = TASKS
    # "copy" makes plain text a question with one right answer; "free" is text after a bare sign,
    # as a language model reads it: it is in training alone and cannot be solved.
    text: Literal["copy", "free"] = "copy"
    words: int = 4
    lexicon: int = LEXICON  # words of the language
    # Of words. With one length alone, a letter of the answer is always as far from the letter of
    # the question that it stands for, and random letters are learned much sooner.
    lengths: tuple[int, ...] = LENGTHS
    shifts: int = 25  # in use, the common and the rare one among them
    train_items: int = 100_000
    test_items: int = 2_000
    sentences: int = 200  # in each condition
    validation_items: int = 400
    mistakes: bool = False

    def check(self) -> None:
        for task in self.tasks:
            if task not in TASKS:
                raise unknown("task", task, TASKS)
        if "cipher" not in self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise InvalidRequest(
                f"tasks {self.tasks}: expected 'cipher' and any others of {TASKS[1:]}, each once"
            )
        if self.text not in ("copy", "free"):
            raise unknown("text", self.text, ("copy", "free"))
        if not 3 <= self.words <= 8:
            raise InvalidRequest(f"words {self.words}: a sentence has 3 to 8 words")
        if not 40 <= self.lexicon <= 400 or self.lexicon % FAMILY:
            raise InvalidRequest(
                f"lexicon {self.lexicon}: expected 40 to 400 words, a multiple of {FAMILY}"
            )
        if not self.lengths or not set(self.lengths) <= set(LENGTHS):
            raise InvalidRequest(f"lengths {self.lengths}: expected one or more of {LENGTHS}")
        if not 8 <= self.shifts <= 25:
            raise InvalidRequest(
                f"shifts {self.shifts}: expected 8 to 25; with fewer, another would be more common "
                "than the common one"
            )
        for size, most in _MOST.items():
            if not 1 <= getattr(self, size) <= most:
                raise InvalidRequest(f"{size} {getattr(self, size)}: expected 1 to {most}")

    def corpus(self, seed: int) -> Corpus:
        self.check()
        stimuli = self._stimuli(seed)
        beyond = {
            f"{self._part(*way)} {name}": [
                self._item(one.texts[place], *way, name) for one in stimuli[: self.sentences]
            ]
            for way in self._ways_beyond()
            for place, name in enumerate(CONDITIONS)
        }
        fresh = [
            self._item(one.texts[place], *way, name)
            for one in stimuli[self.sentences :]
            for place, name in enumerate(CONDITIONS)
            for way in self._ways_beyond()
        ]
        order = self.rng(seed, "validation").permutation(len(fresh))[: self.validation_items]
        held = {text for one in stimuli for text in one.texts}
        taken = {item.source for items in (*beyond.values(), fresh) for item in items}
        test, met = self._stream(seed, TEST, self.test_items, held, taken)
        taken |= {item.source for item in test}
        train, _ = self._stream(seed, TRAIN, self.train_items, held | met, taken)
        validation = [fresh[i] for i in order]
        mistakes = self._mistakes(stimuli[: self.sentences]) if self.mistakes else {}
        return Corpus({TRAIN: train, TEST: test, VALIDATION: validation, **beyond, **mistakes})

    def solve(self, source: str) -> str:
        return solved(source)

    def scores(self, item: Item, answer: str) -> dict[str, float]:
        """`exact`, and `letters`: the share of characters that are right in their place."""
        right = sum(a == b for a, b in zip(item.target, answer, strict=False))
        longest = max(len(item.target), len(answer), 1)
        return {"exact": float(answer == item.target), "letters": right / longest}

    def log_probabilities(self, item: Item) -> tuple[float, float]:
        """How likely the item's input and its right output are, each as text, in nats.

        Both are log-probabilities under the model of the language that plain text in training is
        drawn from (`_language` states it: strange words have 1 to 7 letters, every length alike),
        of the text alone, without the sign and given its number of words. So when decoding, the
        output is a sentence and the input is letters that nobody would write; when encoding
        the two change places. For counting, the input is letters drawn uniformly given how many,
        and the output has the set probability of its number. The input of free text is nothing.
        """
        if item.source == FREE:
            return 0.0, self._text_language.log_probability(item.target)
        sign, _, text = item.source.partition(" ")
        if sign == "#":
            chance = self.number_probabilities[int(item.target) - COUNTED[0]]
            return -len(text) * math.log(26), math.log(chance)
        source = self._text_language
        return source.log_probability(text), source.log_probability(item.target)

    def swaps(self, seed: int) -> dict[str, Swap]:
        """What each adversarial item may be mistaken for, by the item's source."""
        found = {}
        for one in self._stimuli(seed)[: self.sentences]:
            for way, key in self._ways_beyond():
                source, _ = asked(one.adversarial, way, key)
                answers = [asked(text, way, key)[1] for text in (one.high, *one.others)]
                found[source] = Swap(answers[0], tuple(answers[1:]))
        return found

    def _mistakes(self, stimuli: Sequence[Stimulus]) -> dict[str, list[Item]]:
        """What adversarial items with the common shift may be mistaken for, each as an answer."""
        found: dict[str, list[Item]] = {ORIGINAL: [], OTHER: []}
        for number, one in enumerate(stimuli):
            source, _ = asked(one.adversarial, "decode", self.common)
            found[ORIGINAL].append(Item(source, one.high, ORIGINAL))
            # Of several other neighbours one, in turn: as often as a single one is to be expected.
            other = one.others[number % len(one.others)]
            found[OTHER].append(Item(source, other, OTHER))
        return found

    @functools.cached_property
    def shift_probabilities(self) -> Float[np.ndarray, "25"]:
        """How often ciphers use each shift, from 1 to 25; never, where fewer are in use."""
        if self.uniform:
            shares = np.full(self.shifts, 1 / self.shifts)
        else:
            others = 1 / (1.0 + np.arange(self.shifts - 2))
            shares = np.concatenate([[COMMON, RARE], (1 - COMMON - RARE) * others / others.sum()])
        found = np.zeros(25)
        found[self._shift_order[: self.shifts]] = shares
        return found

    @property
    def common(self) -> int:
        """The shift that 30 % of all ciphers use (in the placebo: the one compared as such)."""
        return int(self._shift_order[0]) + 1

    @property
    def rare(self) -> int:
        """The shift that .3 % of all ciphers use (in the placebo: the one compared as such)."""
        return int(self._shift_order[1]) + 1

    @functools.cached_property
    def number_probabilities(self) -> Float[np.ndarray, " number"]:
        """How often each number of letters is counted, from 5 to 30; Zipf, in an order drawn."""
        size = COUNTED[1] - COUNTED[0] + 1
        if self.uniform:
            return np.full(size, 1 / size)
        ranks = 1 + self.rng(self.content, "numbers").permutation(size)
        return 1 / ranks / np.sum(1 / ranks)

    @functools.cached_property
    def _shift_order(self) -> Int[np.ndarray, "25"]:
        rng = self.rng(self.content, "shifts")
        while True:
            order = rng.permutation(25)
            # To undo shift k is to do shift 26 - k: a shift of 13 is learned twice as fast, and
            # the rare shift must not be the common one the other way round.
            if 12 not in order[:2] and order[0] + order[1] + 2 != 26:
                return order

    @property
    def _text_language(self) -> Language:
        return self._language(self.uniform)

    def _language(self, uniform: bool) -> Language:
        return language(self.content, uniform=uniform, lexicon=self.lexicon, lengths=self.lengths)

    def _stimuli(self, seed: int) -> list[Stimulus]:
        """First the sentences of the conditions, then those of validation; no text twice."""
        # The placebo is asked about the same sentences, which are nothing special to it.
        source, rng = self._language(uniform=False), self.rng(seed, "stimuli")
        a_sentence = len(CONDITIONS) * len(list(self._ways_beyond()))
        wanted = self.sentences + math.ceil(self.validation_items / a_sentence)
        found: list[Stimulus] = []
        met: set[str] = set()
        while len(found) < wanted:
            one = stimulus(source, rng, self.words)
            texts = {text for each in one.texts for text in (each, reversed_words(each))}
            if len(texts) == 8 and not texts & met:
                found.append(one)
                met |= texts
        return found

    def _ways_beyond(self) -> Iterator[tuple[str, int]]:
        for task in TWO_WAY:
            if task in self.tasks:
                keys = (self.common, self.rare) if task == "cipher" else (0,)
                yield from ((way, key) for way in WAYS[task] for key in keys)

    def _part(self, way: str, key: int) -> str:
        named = {0: "", self.common: " common", self.rare: " rare"}
        return f"{way}{named.get(key, ' other')}"

    def _item(self, sentence: str, way: str, key: int, condition: str) -> Item:
        source, target = asked(sentence, way, key)
        surprise = -self.log_probabilities(Item(source, target))[1]
        return Item(source, target, f"{self._part(way, key)} {condition}", max(1, round(surprise)))

    def _stream(
        self, seed: int, split: str, size: int, held: set[str], taken: set[str]
    ) -> tuple[list[Item], set[str]]:
        """Items as training has them that share nothing with `held` and `taken`; their texts."""
        rng = self.rng(seed, split)
        free = self.text == "free"
        ways, shares = self._shares(text=not (free and split == TEST))
        items: list[Item] = []
        texts: set[str] = set()
        for _ in range(_ROUNDS):
            missing = size - len(items)
            if not missing:
                return items, texts
            chosen = rng.choice(len(ways), missing, p=shares).tolist()
            keys = (1 + rng.choice(25, missing, p=self.shift_probabilities)).tolist()
            sentences = self._text_language.draw(rng, missing, self.words)
            numbers = rng.choice(
                len(self.number_probabilities), missing, p=self.number_probabilities
            )
            for way, key, sentence, number in zip(
                (ways[i] for i in chosen), keys, sentences, numbers.tolist(), strict=True
            ):
                if way == "count":
                    sentence = letters(rng, COUNTED[0] + number)
                key = key if way in WAYS["cipher"] else 0
                if way == "text" and free:
                    source, target = FREE, sentence
                else:
                    source, target = asked(sentence, way, key)
                if source in taken or held & {sentence, reversed_words(sentence), target}:
                    continue
                items.append(Item(source, target, self._part(way, key)))
                texts.add(sentence)
        raise InvalidRequest(
            f"{size} {split} items: the language has too few other sentences of {self.words} "
            "words; ask for more words or fewer items"
        )

    def _shares(self, *, text: bool) -> tuple[list[str], Float[np.ndarray, " way"]]:
        others = [task for task in self.tasks if task != "cipher"]
        weight = {"cipher": CIPHER_SHARE if others else 1.0}
        weight |= {task: (1 - CIPHER_SHARE) / len(others) for task in others}
        ways = {way: weight[t] / len(WAYS[t]) for t in self.tasks for way in WAYS[t]}
        share = TEXT_SHARE if text else 0.0
        names = ["text", *ways]
        return names, np.array([share, *((1 - share) * each for each in ways.values())])
