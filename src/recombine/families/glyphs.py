"""What scenes are drawn with: shapes, colours and sizes, as small anti-aliased templates."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

Grid = Float[np.ndarray, "row column"]

FINE = 4  # small pixels along a side of a pixel, so that corners and thin strokes come out right
LEAST_CELL = 8  # pixels; below, squares are discs

# Seven corners of the colour cube and one edge between two of them; the far ones come first.
COLOURS: dict[str, tuple[float, float, float]] = {
    "red": (1, -1, -1),
    "green": (-1, 1, -1),
    "blue": (-1, -1, 1),
    "yellow": (1, 1, -1),
    "magenta": (1, -1, 1),
    "cyan": (-1, 1, 1),
    "white": (1, 1, 1),
    "orange": (1, 0, -1),
}
BLACK = -1.0

SIZES = {1: ("large",), 2: ("small", "large"), 3: ("small", "medium", "large")}

# Half the width of a glyph, as a share of its cell. A glyph of less than 2.4 pixels is a blot, so
# two sizes need cells of 8 pixels and three need 12.
RADII = {1: (0.4375,), 2: (0.3, 0.4375), 3: (0.2, 0.31, 0.4375)}
LEAST_RADIUS = 2.4


def _box(x: Grid, y: Grid, width: float, height: float) -> Grid:
    return np.maximum(np.abs(x) - width, np.abs(y) - height)


def _triangle(x: Grid, y: Grid) -> Grid:
    return np.maximum(y - 0.95, (1.9 * np.abs(x) - y - 1) / np.hypot(1.9, 1))


def _cross(x: Grid, y: Grid) -> Grid:
    return np.minimum(_box(x, y, 1, 0.28), _box(x, y, 0.28, 1))


def _saltire(x: Grid, y: Grid) -> Grid:
    strokes = np.minimum(np.abs(x + y), np.abs(x - y)) / np.sqrt(2) - 0.22
    return np.maximum(strokes, _box(x, y, 1, 1))


def _corner(x: Grid, y: Grid) -> Grid:
    return np.minimum(_box(x + 0.7, y, 0.3, 1), _box(x, y - 0.7, 1, 0.3))


def _hourglass(x: Grid, y: Grid) -> Grid:
    return np.maximum(np.abs(y) - 1, (np.abs(x) - np.abs(y) - 0.05) / np.sqrt(2))


# Signed distances to the outline, negative inside, for a glyph from -1 to 1; y points down. Chosen
# to differ in many pixels: a diamond is left out because at 8 pixels it is nearly a disc.
SHAPES: dict[str, Callable[[Grid, Grid], Grid]] = {
    "disc": lambda x, y: np.hypot(x, y) - 0.9,
    "square": lambda x, y: _box(x, y, 0.96, 0.96),
    "triangle": _triangle,
    "cross": _cross,
    "ring": lambda x, y: np.abs(np.hypot(x, y) - 0.82) - 0.2,
    "corner": _corner,
    "saltire": _saltire,
    "hourglass": _hourglass,
}


def coverage(shape: str, cell: int, radius: float) -> Grid:
    """How much of each pixel of a cell a shape covers; `radius` is in pixels.

    >>> float(coverage("square", 8, 2.0).sum().round(1))
    14.8
    """
    along = (np.arange(cell * FINE) + 0.5) / FINE - cell / 2
    x, y = np.meshgrid(along / radius, along / radius, indexing="xy")
    # A small pixel is covered by the share of its width that lies inside the outline.
    covered = np.clip(0.5 - SHAPES[shape](x, y) * radius * FINE, 0, 1)
    return covered.reshape(cell, FINE, cell, FINE).mean(axis=(1, 3))


def most_sizes(cell: int) -> int:
    """How many sizes can be told apart in cells of this many pixels.

    >>> most_sizes(8), most_sizes(12)
    (2, 3)
    """
    return max(n for n, radii in RADII.items() if min(radii) * cell >= LEAST_RADIUS)


@functools.lru_cache(maxsize=32)
def templates(
    cell: int, shapes: int, colours: int, sizes: int
) -> Float[np.ndarray, "template pixel"]:
    """Every glyph in a cell, row by row with three channels a pixel; the first is the empty cell.

    Sizes change slowest and colours fastest, so that glyph (size, shape, colour) is template
    1 + (size * shapes + shape) * colours + colour.

    >>> templates(8, 8, 8, 2).shape
    (129, 192)
    """
    rows = [np.full((cell, cell, 3), BLACK)]
    palette = np.array(list(COLOURS.values()))[:colours]
    for radius in RADII[sizes]:
        for shape in list(SHAPES)[:shapes]:
            covered = coverage(shape, cell, radius * cell)[..., None]
            rows.extend(BLACK + covered * (colour - BLACK) for colour in palette)
    bank = np.stack(rows).reshape(len(rows), -1).astype(np.float32)
    bank.flags.writeable = False
    return bank
