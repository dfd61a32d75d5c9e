"""Which network looks at the items of an odd-one-out family, at the widths of a grid."""

from __future__ import annotations

from typing import Protocol

from recombine.families.odd_one_out import OddFamily, PicturesOdd, SentencesOdd
from recombine.models.items import ItemConv, ItemMLP, ItemModel, ItemTransformer


class Widths(Protocol):
    """The fields of a grid that name the sizes of networks over items."""

    @property
    def field_width(self) -> int: ...
    @property
    def picture_width(self) -> int: ...
    @property
    def word_width(self) -> int: ...
    @property
    def depth(self) -> int: ...


def model_for(family: OddFamily, grid: Widths) -> ItemModel:
    """An MLP for fields, convolution for pictures, a transformer for sentences."""
    if isinstance(family, PicturesOdd):
        return ItemConv(width=grid.picture_width, hidden=4 * grid.picture_width)
    if isinstance(family, SentencesOdd):
        return ItemTransformer(grid.depth, grid.word_width, max(1, grid.word_width // 32))
    return ItemMLP(grid.field_width)
