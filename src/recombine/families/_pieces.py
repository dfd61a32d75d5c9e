"""The seven tetrominoes in all their turns, at every place of a small grid."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

BLOCKS = 7  # along a side of the grid

# Rows of blocks, top to bottom.
KINDS = ("####", "## ##", "### .#.", ".## ##.", "##. .##", "#.. ###", "..# ###")


class Places(NamedTuple):
    """For each turn of a piece at each place: the blocks it covers, those that a piece beside it
    may not cover (its own and their neighbours), and how likely it is drawn. All turns are equally
    likely, and so are all places of a turn."""

    covers: Float[np.ndarray, "place block"]
    reaches: Float[np.ndarray, "place block"]
    chance: Float[np.ndarray, "place"]


def turns() -> list[np.ndarray]:
    """Every piece in every turn that looks different: 19 of them."""
    found: dict[str, np.ndarray] = {}
    for kind in KINDS:
        piece = np.array([[block == "#" for block in row] for row in kind.split()])
        for turn in range(4):
            turned = np.rot90(piece, turn)
            found.setdefault(str(turned.tolist()), turned)
    return list(found.values())


@functools.cache
def pieces() -> Places:
    """All places of all turns.

    >>> pieces().covers.shape
    (572, 49)
    """
    covers, chance = [], []
    for turn in turns():
        height, width = turn.shape
        places = (BLOCKS - height + 1) * (BLOCKS - width + 1)
        for row in range(BLOCKS - height + 1):
            for column in range(BLOCKS - width + 1):
                grid = np.zeros((BLOCKS, BLOCKS), np.float32)
                grid[row : row + height, column : column + width] = turn
                covers.append(grid)
                chance.append(1 / places)
    grids = np.stack(covers)
    wide = np.pad(grids, [(0, 0), (1, 1), (1, 1)])
    beside = [wide[:, :-2, 1:-1], wide[:, 2:, 1:-1], wide[:, 1:-1, :-2], wide[:, 1:-1, 2:]]
    reaches = np.maximum.reduce([grids, *beside])
    flat = (len(grids), -1)
    return Places(grids.reshape(flat), reaches.reshape(flat), np.asarray(chance, np.float32))
