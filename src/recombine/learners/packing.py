"""Items of text as rows of numbers: a corpus encoded once, and packed so that little is padding."""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
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
    needs = [
        (len(s), len(t) + 2) if apart else (0, len(s) + len(t) + 2)
        for s, t in zip(sources, targets, strict=True)
    ]
    longest = max((max(need) for need in needs), default=0)
    if longest > length:
        raise InvalidRequest(
            f"an item has {longest} tokens, more than the {length} of a row: use "
            f"row={-(-longest // 64) * 64}"
        )
    place, starts, used = _placed(needs, (length if apart else 0, length), rows, order)
    return _filled(sources, targets, place, starts, length, rows, apart), place, used


def _placed(
    needs: list[tuple[int, int]], empty: tuple[int, int], rows: int, order: np.ndarray | None
) -> tuple[Layout, Int[np.ndarray, "item 2"], int]:
    """Where every item goes and starts, and how many rows are used; `empty` is a new row's room.

    Plain Python over a short sorted list: several times as fast as arrays of so few numbers.
    """
    found = [(-1, 0, 0, 0)] * len(needs)  # its row, its number there, and two starts
    left, names, count = [(0, 0)] * OPEN, [0] * OPEN, [0] * OPEN
    # Room and number of each row in hand, the fullest first: those that take more, and the others.
    taking: list[tuple[int, int]] = []
    closed: list[tuple[int, int]] = []
    used = 0
    for number in range(len(needs)) if order is None else order.tolist():
        before, after = needs[number]
        for at in range(bisect_left(taking, (before + after, 0)), len(taking)):
            slot = taking[at][1]
            room = left[slot]
            if room[0] >= before and room[1] >= after:
                del taking[at]
                break
        else:
            if used == rows:
                continue
            slot = used
            if used >= OPEN:
                slot = min((some for some in (taking, closed) if some), key=itemgetter(0)).pop(0)[1]
            room, names[slot], count[slot] = empty, used, 0
            used += 1
        count[slot] += 1
        found[number] = names[slot], count[slot], empty[0] - room[0], empty[1] - room[1]
        left[slot] = room[0] - before, room[1] - after
        insort(taking if count[slot] < MOST_ITEMS else closed, (sum(left[slot]), slot))
    row, item, *starts = np.asarray(found, np.int64).reshape(-1, 4).T
    return Layout(row, item), np.stack(starts, axis=1), used


def _filled(
    sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], place: Layout,
    starts: np.ndarray, length: int, rows: int, apart: bool,
) -> Packed:  # fmt: skip
    shape, source_shape = (rows, length), (rows, length if apart else 0)
    packed = Packed(
        np.full(shape, PAD, np.uint16), np.zeros(shape, np.uint8), np.zeros(shape, bool),
        np.full(source_shape, PAD, np.uint16), np.zeros(source_shape, np.uint8),
    )  # fmt: skip
    kept = np.flatnonzero(place.row >= 0)
    if not len(kept):
        return packed
    asked, written = ([pieces[n] for n in kept.tolist()] for pieces in (sources, targets))
    row, item = place.row[kept], place.number[kept]

    def spans(start: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Every place of pieces that start and reach so far in their rows, and its item."""
        ends = np.cumsum(size)
        within = np.arange(ends[-1]) - np.repeat(ends - size, size)
        return np.repeat(row * length + start, size) + within, np.repeat(item, size)

    def put(tokens: np.ndarray, items: np.ndarray, start: np.ndarray, words: list) -> np.ndarray:
        """Writes pieces, and says where each ends."""
        size = np.asarray([len(piece) for piece in words])
        where, whose = spans(start, size)
        tokens.reshape(-1)[where], items.reshape(-1)[where] = np.concatenate(words), whose
        return start + size

    if apart:
        put(packed.source, packed.source_item, starts[kept, 0], asked)
        start = starts[kept, 1]
    else:
        start = put(packed.tokens, packed.item, starts[kept, 1], asked)
    end = put(packed.tokens, packed.item, start + 1, written)
    for where, mark in ((start, ANSWER), (end, END)):
        packed.tokens[row, where], packed.item[row, where] = mark, item
    packed.asked.reshape(-1)[spans(start, end - start)[0]] = True
    return packed
