"""The contract of a family of sequences, as a battery anybody can run on one of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recombine.families._sequence import (
    TEST,
    TRAIN,
    VALIDATION,
    Corpus,
    Item,
    SequenceFamily,
    tokenize,
    untokenize,
)
from recombine.families.check import check_spec, require

LOOKED_AT = 40  # items of each split that are solved


def check_sequence_family(family: SequenceFamily, seed: int = 0) -> None:
    """Raises `ContractBroken`, with a sentence that says what is wrong, unless a family is sound.

    >>> from recombine.families import Functions
    >>> check_sequence_family(Functions(train_items=300, test_items=30))
    """
    check_spec(family, "a family")
    family.check()
    for name in ("name", "unit", "instruction"):
        require(getattr(family, name, ""), f"a family of sequences must state its {name}")
    corpus, again = family.corpus(seed), family.corpus(seed)
    for wanted in (TRAIN, TEST, VALIDATION):
        require(corpus.splits.get(wanted), f"a corpus needs items in its split {wanted!r}")
    require(corpus.beyond, "a corpus needs a split that goes beyond training")
    same = all(list(again[split]) == list(corpus[split]) for split in corpus.splits)
    require(same and list(again.splits) == list(corpus.splits), "a corpus must follow its seed")
    _check_apart(corpus)
    for split, items in corpus.splits.items():
        require(items, f"split {split!r} is empty")
        _check_items(family, split, items)


def _check_apart(corpus: Corpus) -> None:
    """What is asked in one split is asked in no other."""
    seen: dict[str, str] = {}
    for split, items in corpus.splits.items():
        for source in {item.source for item in items}:
            require(
                source not in seen,
                f"{source!r} is both in {seen.get(source)!r} and in {split!r}",
            )
            seen[source] = split


def _check_items(family: SequenceFamily, split: str, items: Sequence[Item]) -> None:
    new = split not in (TRAIN, TEST)
    for item in items:
        require(
            (item.novelty > 0) == new and item.novelty >= 0,
            f"novelty must be 0 in train and test and positive beyond, got {item} in {split!r}",
        )
    places = np.unique(np.linspace(0, len(items) - 1, LOOKED_AT).astype(int))
    for item in (items[n] for n in places):
        for text in (item.source, item.target):
            cut = tokenize(text, family.tokens)
            require(
                untokenize(cut, family.tokens) == text and all(cut),
                f"words must be parted by single spaces, got {text!r}",
            )
        solved = family.solve(item.source)
        scores, best = family.scores(item, solved), family.scores(item, item.target)
        require(
            best["exact"] == 1.0,
            f"the right answer must score 1, but {item.target!r} to {item.source!r} scores {best}",
        )
        require(
            max(scores["exact"], scores.get("works", 0.0)) == 1.0,
            f"the solver answers {solved!r} to {item.source!r}, where {item.target!r} is right",
        )
        nonsense = family.scores(item, "")
        wrong = item.target == "" or nonsense["exact"] == 0.0
        require(wrong, f"an empty answer to {item.source!r} must not score as exact")
