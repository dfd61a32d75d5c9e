"""Items of text as rows of numbers: a corpus encoded once, and packed so that little is padding."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8, UInt16

from recombine.errors import InvalidRequest
from recombine.families._sequence import Corpus, SequenceFamily, tokenize
from recombine.learners._learner import Material, Tensors
from recombine.tokens import ANSWER, END, PAD, Vocabulary

MOST_ITEMS = 32  # of a row
OPEN = 64  # rows that may still take an item while others are filled


@dataclass(frozen=True)
class CorpusMaterial(Material):
    """The corpus of a family under a seed, as numbers: made once, wherever its source is."""

    version: ClassVar[int] = 1

    family: SequenceFamily
    seed: int

    def make(self) -> Tensors:
        return encode(self.family.corpus(self.seed), self.family)


class Part(NamedTuple):
    """One split of an encoded corpus: a list of numbers for every source and target."""

    sources: list[np.ndarray]
    targets: list[np.ndarray]
    parts: list[str]
    novelty: Int[np.ndarray, "item"]


class Encoded(NamedTuple):
    """A corpus in numbers."""

    vocabulary: Vocabulary
    splits: dict[str, Part]


def encode(corpus: Corpus, family: SequenceFamily) -> Tensors:
    """A corpus as tensors: all tokens of a split in one line, with the length of every piece."""
    cut = {
        split: [tokenize(t, family.tokens) for item in items for t in (item.source, item.target)]
        for split, items in corpus.splits.items()
    }
    words = sorted({word for texts in cut.values() for text in texts for word in text})
    vocabulary = Vocabulary(words)
    tensors: Tensors = {"about": _json({"words": words, "splits": list(corpus.splits)})}
    for split, items in corpus.splits.items():
        pieces = [vocabulary.numbers(text) for text in cut[split]]
        names = sorted({item.part for item in items})
        index = {name: n for n, name in enumerate(names)}
        tensors |= {
            f"{split}/tokens": np.asarray([n for piece in pieces for n in piece], np.uint16),
            f"{split}/lengths": np.asarray([len(piece) for piece in pieces], np.int32),
            f"{split}/part": np.asarray([index[item.part] for item in items], np.int32),
            f"{split}/novelty": np.asarray([item.novelty for item in items], np.int32),
            f"{split}/parts": _json(names),
        }
    return tensors


def decode(tensors: Mapping[str, np.ndarray]) -> Encoded:
    """The inverse of `encode`, but for the text itself."""
    about = json.loads(tensors["about"].tobytes())
    splits = {}
    for split in about["splits"]:
        tokens, ends = tensors[f"{split}/tokens"], np.cumsum(tensors[f"{split}/lengths"]).tolist()
        # Slices by hand: np.split takes ten times as long over so many.
        pieces = [tokens[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        names = json.loads(tensors[f"{split}/parts"].tobytes())
        splits[split] = Part(
            pieces[0::2], pieces[1::2], [names[n] for n in tensors[f"{split}/part"]],
            tensors[f"{split}/novelty"],
        )  # fmt: skip
    return Encoded(Vocabulary(about["words"]), splits)


def _json(document: object) -> UInt8[np.ndarray, "byte"]:
    return np.frombuffer(json.dumps(document).encode(), np.uint8).copy()


class Packed(NamedTuple):
    """Rows of tokens with the number of the item each belongs to, and where an answer is asked.

    `asked` is true at every token whose successor is part of an answer (or its END).
    """

    tokens: UInt16[np.ndarray, "row token"]
    item: UInt8[np.ndarray, "row token"]
    asked: Bool[np.ndarray, "row token"]
    source: UInt16[np.ndarray, "row source"]
    source_item: UInt8[np.ndarray, "row source"]


class Layout(NamedTuple):
    """Which row each item went to, and its number there (from 1); -1 where it found no place."""

    row: Int[np.ndarray, "item"]
    number: Int[np.ndarray, "item"]


def pack(
    sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], *, length: int, rows: int,
    apart: bool, order: np.ndarray | None = None,
) -> tuple[Packed, Layout, int]:  # fmt: skip
    """Fits items into at most `rows` rows of `length` tokens; says how many rows were used.

    `apart` keeps sources in rows of their own, for an encoder. An item goes to the fullest open
    row that can take it; what finds no place in the last row is left out.
    """
    needs = np.asarray(
        [(len(s), len(t) + 2) if apart else (0, len(s) + len(t) + 2)
         for s, t in zip(sources, targets, strict=True)], np.int64,
    ).reshape(-1, 2)  # fmt: skip
    if len(needs) and needs.max() > length:
        raise InvalidRequest(
            f"an item has {needs.max()} tokens, more than the {length} of a row: use "
            f"row={-(-int(needs.max()) // 64) * 64}"
        )
    place = Layout(np.full(len(needs), -1), np.zeros(len(needs), np.int64))
    starts = np.zeros((len(needs), 2), np.int64)
    left = np.zeros((OPEN, 2), np.int64)  # room in the open rows; closed ones have none
    names = np.full(OPEN, -1)
    count = np.zeros(OPEN, np.int64)
    used = 0
    for number in range(len(needs)) if order is None else order:
        fits = (left >= needs[number]).all(axis=1) & (count < MOST_ITEMS) & (names >= 0)
        if fits.any():
            slot = int(np.argmin(np.where(fits, left.sum(axis=1), np.iinfo(np.int64).max)))
        elif used < rows:
            slot = int(np.argmin(np.where(names < 0, -1, left.sum(axis=1))))
            left[slot], names[slot], count[slot] = length, used, 0
            used += 1
        else:
            continue
        starts[number] = length - left[slot]
        left[slot] -= needs[number]
        count[slot] += 1
        place.row[number], place.number[number] = names[slot], count[slot]
    return _filled(sources, targets, place, starts, length, rows, apart), place, used


def _filled(
    sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], place: Layout,
    starts: np.ndarray, length: int, rows: int, apart: bool,
) -> Packed:  # fmt: skip
    shape, source_shape = (rows, length), (rows, length if apart else 0)
    packed = Packed(
        np.full(shape, PAD, np.uint16), np.zeros(shape, np.uint8), np.zeros(shape, bool),
        np.full(source_shape, PAD, np.uint16), np.zeros(source_shape, np.uint8),
    )  # fmt: skip
    for number in np.flatnonzero(place.row >= 0).tolist():
        row, item = place.row[number], place.number[number]
        (first, start), source, target = starts[number], sources[number], targets[number]
        if apart:
            packed.source[row, first : first + len(source)] = source
            packed.source_item[row, first : first + len(source)] = item
        else:
            packed.tokens[row, start : start + len(source)] = source
            packed.item[row, start : start + len(source)] = item
            start += len(source)
        end = start + len(target) + 1
        packed.tokens[row, start] = ANSWER
        packed.tokens[row, start + 1 : end] = target
        packed.tokens[row, end] = END
        packed.item[row, start : end + 1] = item
        packed.asked[row, start:end] = True
    return packed
