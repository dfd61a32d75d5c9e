"""Sentences whose parts must agree in number, with other nouns in between to mislead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from recombine.errors import unknown
from recombine.families._odd import OddFamily, Symmetric, Tables

RULES = {"subject-verb": ("subject", "verb"), "anaphora": ("antecedent", "pronoun")}
NUMBERS = ("singular", "plural")
EMPTY = "-"

# Singular and plural side by side, so that a word's number is whether its place is odd.
NOUNS = (
    "author", "authors", "pilot", "pilots", "guard", "guards", "dancer", "dancers",
    "farmer", "farmers", "teacher", "teachers", "customer", "customers", "skater", "skaters",
)  # fmt: skip
VERBS = (
    "laughs", "laugh", "smiles", "smile", "swims", "swim", "waits", "wait",
    "sings", "sing", "returns", "return", "sleeps", "sleep", "talks", "talk",
)  # fmt: skip
LIKING = ("likes", "like", "knows", "know", "admires", "admire", "trusts", "trust")
DID = ("hurt", "disguised", "doubted", "praised", "blamed", "amused", "hated", "surprised")
PRONOUNS = ("himself", "themselves", "herself", "themselves")
ENDS = {"subject-verb": VERBS, "anaphora": PRONOUNS}  # what must agree with the noun
PLACES = ("near", "behind", "beside", "above")
ADVERBS = (EMPTY, "today", "again", "often")
WORDS = tuple(
    dict.fromkeys(
        (EMPTY, "the", "that", *NOUNS, *VERBS, *LIKING, *DID, *PRONOUNS, *PLACES, *ADVERBS)
    )
)


def numbers(words: tuple[str, ...]) -> Int[np.ndarray, "word"]:
    return np.array([WORDS.index(word) for word in words], np.int32)


# Parts of a sentence, in the order in which they are drawn.
PARTS = ("-", "the", "that", "noun", "other", "place", "liking", "did", "end", "adverb")
ORDERS = {
    "subject-verb": (
        "the noun end adverb",
        "the noun place the other end adverb",
        "the noun that the other liking end adverb",
    ),
    "anaphora": (
        "the noun did end adverb",
        "the noun place the other did end adverb",
        "the noun that the other liking did end adverb",
    ),
}
LENGTH = 9


def order(rule: str) -> Int[np.ndarray, "kind place"]:
    """Which part stands at each place of the three kinds of sentences."""
    rows = [line.split() + [EMPTY] * (LENGTH - len(line.split())) for line in ORDERS[rule]]
    return np.array([[PARTS.index(part) for part in row] for row in rows], np.int32)


@dataclass(frozen=True)
class SentencesOdd(OddFamily):
    """Short sentences: a, the subject is of the given number; b, the verb is.

    With the rule "anaphora" it is an antecedent and its pronoun. A prepositional phrase or a
    relative clause may stand between the two, with a noun of either number. The odd one is
    ungrammatical: one of the two has the other number. Both numbers and rules share one vocabulary
    and one length, so that a network pretrained on one can go on with another.

    >>> family = SentencesOdd()
    >>> items, odd = family.problems(0, jax.random.key(1), 1)
    >>> family.text(items[0])[0]
    'the customer behind the author sleeps often'
    """

    version: ClassVar[int] = 2
    name: ClassVar[str] = "sentences"
    mixtures: ClassVar[bool] = True

    rule: Literal["subject-verb", "anaphora"] = "subject-verb"
    number: Literal["singular", "plural"] = "singular"

    def check(self) -> None:
        if self.rule not in RULES:
            raise unknown("rule", str(self.rule), RULES)
        if self.number not in NUMBERS:
            raise unknown("number", str(self.number), NUMBERS)

    @property
    def rules(self) -> tuple[str, str]:
        first, second = RULES[self.rule]
        return f"{first} is {self.number}", f"{second} is {self.number}"

    @property
    def item_shape(self) -> tuple[int, ...]:
        return (LENGTH, len(WORDS))

    def kind(self) -> SentencesOdd:
        return SentencesOdd()

    def tables(self) -> Tables:
        ends = numbers(ENDS[self.rule])
        return {
            "order": order(self.rule),
            # As long for both rules: each word as often as it was.
            "ends": np.tile(ends, len(VERBS) // len(ends)),
            "number": np.array(NUMBERS.index(self.number), np.int32),
        }

    def items(
        self, key: PRNGKeyArray, a: Bool[Array, "problem item"], b: Bool[Array, "problem item"],
        tables: Tables,
    ) -> Float[Array, "problem item size"]:  # fmt: skip
        keys = iter(jax.random.split(key, 10))

        def one_of(words: Any, number: Array | None = None) -> Array:
            """A word of a list; of a list of pairs, in the given number."""
            table = jnp.asarray(numbers(words) if isinstance(words, tuple) else words)
            if number is None:
                return table[jax.random.randint(next(keys), a.shape, 0, len(table))]
            chosen = jax.random.randint(next(keys), a.shape, 0, len(table) // 2)
            return table[2 * chosen + number]

        asked = tables["number"]
        first, second = (jnp.where(truth, asked, 1 - asked) for truth in (a, b))
        other = jax.random.randint(next(keys), a.shape, 0, 2)
        fixed = [jnp.full(a.shape, WORDS.index(word)) for word in (EMPTY, "the", "that")]
        parts = jnp.stack(
            [
                *fixed, one_of(NOUNS, first), one_of(NOUNS, other), one_of(PLACES),
                one_of(LIKING, other), one_of(DID), one_of(tables["ends"], second), one_of(ADVERBS),
            ],
            axis=-1,
        )  # fmt: skip
        kind = jax.random.randint(next(keys), a.shape, 0, 3)
        places = jnp.asarray(tables["order"])[kind]
        tokens = jnp.take_along_axis(parts, places, axis=-1)
        return jax.nn.one_hot(tokens, len(WORDS)).reshape(*a.shape, -1)

    def tokens(self, items: Float[np.ndarray, "*axes size"]) -> Int[np.ndarray, "*axes word"]:
        items = np.asarray(items)
        return items.reshape(*items.shape[:-1], *self.item_shape).argmax(axis=-1)

    def text(self, items: Float[np.ndarray, "item size"]) -> list[str]:
        """Items as people read them."""
        rows = self.tokens(items)
        return [" ".join(WORDS[t] for t in row if WORDS[t] != EMPTY) for row in rows]

    def symmetries(self, rng: np.random.Generator) -> dict[str, Symmetric]:
        """Words exchanged for others of their kind and number, throughout."""

        def renamed(*lists: tuple[str, ...], paired: bool) -> Symmetric:
            place = np.arange(len(WORDS))  # of the word that comes where each stood
            for words in lists:
                old = numbers(words).reshape(-1, 2 if paired else 1)
                place[old] = rng.permutation(old)

            def drawn_anew(items: np.ndarray) -> np.ndarray:
                tokens = self.tokens(items)
                for words in lists:
                    mine = np.isin(tokens, numbers(words))
                    tokens[mine] = rng.choice(numbers(words), mine.sum())
                return self._one_hot(tokens, items)

            return Symmetric(
                lambda items: self._one_hot(place[self.tokens(items)], items), drawn_anew
            )

        return {
            "other nouns": renamed(NOUNS, paired=True),
            "other verbs": renamed(VERBS, LIKING, paired=True),
            "other words": renamed(DID, PLACES, ADVERBS[1:], paired=False),
        }

    def _one_hot(self, tokens: np.ndarray, like: np.ndarray) -> np.ndarray:
        return np.eye(len(WORDS), dtype=like.dtype)[tokens].reshape(like.shape)

    def satisfied(
        self, items: Float[np.ndarray, "*problem item size"]
    ) -> tuple[Bool[np.ndarray, "*problem item"], Bool[np.ndarray, "*problem item"]]:
        tokens, asked = self.tokens(items), NUMBERS.index(self.number)
        ends = ENDS[self.rule]
        plural = {WORDS.index(word) for pairs in (NOUNS, ends) for word in pairs[1::2]}
        many = np.isin(tokens, sorted(plural))
        last = np.isin(tokens, numbers(ends))
        # The subject is the second word; what must agree with it is the only one of its kind.
        return many[..., 1] == asked, (many & last).any(axis=-1) == asked
