"""A second renderer of scenes, written apart from the first: polygons, 8 x 8 points a pixel.

It shares nothing with the package but the names of shapes and colours and how large things are.
"""

from __future__ import annotations

import numpy as np

POINTS = 8  # along a side of a pixel

PALETTE = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "magenta": (255, 0, 255),
    "cyan": (0, 255, 255),
    "white": (255, 255, 255),
    "orange": (255, 127.5, 0),
}

# Half the width of a glyph of each size, as a share of its cell.
REACH = {1: (0.4375,), 2: (0.3, 0.4375), 3: (0.2, 0.31, 0.4375)}

# Corners in units of half a width, y pointing down; a shape is the union of its polygons.
_ARM, _THIN, _T = 0.28, 0.22 * 2**0.5, 0.05
POLYGONS: dict[str, list[list[tuple[float, float]]]] = {
    "square": [[(-0.96, -0.96), (0.96, -0.96), (0.96, 0.96), (-0.96, 0.96)]],
    "triangle": [[(0, -1), (1.95 / 1.9, 0.95), (-1.95 / 1.9, 0.95)]],
    "cross": [
        [(-1, -_ARM), (1, -_ARM), (1, _ARM), (-1, _ARM)],
        [(-_ARM, -1), (_ARM, -1), (_ARM, 1), (-_ARM, 1)],
    ],
    "saltire": [
        [(-1, -1), (-1 + _THIN, -1), (1, 1 - _THIN), (1, 1), (1 - _THIN, 1), (-1, -1 + _THIN)],
        [(1, -1), (1 - _THIN, -1), (-1, 1 - _THIN), (-1, 1), (-1 + _THIN, 1), (1, -1 + _THIN)],
    ],
    "corner": [[(-1, -1), (-0.4, -1), (-0.4, 0.4), (1, 0.4), (1, 1), (-1, 1)]],
    "hourglass": [
        [(-1 - _T, -1), (1 + _T, -1), (_T, 0), (1 + _T, 1), (-1 - _T, 1), (-_T, 0)],
    ],
}


def _in_polygon(x: np.ndarray, y: np.ndarray, corners: list[tuple[float, float]]) -> np.ndarray:
    """Even-odd rule: a ray to the right crosses the outline an odd number of times."""
    odd = np.zeros(x.shape, bool)
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        if y0 == y1:
            continue
        spans = (y0 > y) != (y1 > y)
        odd ^= spans & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    return odd


def inside(shape: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if shape == "disc":
        return x**2 + y**2 < 0.9**2
    if shape == "ring":
        return (x**2 + y**2 < 1.02**2) & (x**2 + y**2 > 0.62**2)
    return np.any([_in_polygon(x, y, corners) for corners in POLYGONS[shape]], axis=0)


def glyph(shape: str, colour: str, cell: int, reach: float) -> np.ndarray:
    """One glyph in a cell: (row, column, channel) from -1 to 1."""
    along = (np.arange(cell * POINTS) + 0.5) / POINTS - cell / 2
    y, x = np.meshgrid(along / (reach * cell), along / (reach * cell), indexing="ij")
    share = inside(shape, x, y).reshape(cell, POINTS, cell, POINTS).mean(axis=(1, 3))
    return share[..., None] * np.array(PALETTE[colour]) / 127.5 - 1


def vocabulary(cell: int, shapes: int, colours: int, sizes: int) -> list[np.ndarray]:
    """Every glyph, after the empty cell, in the order the package numbers them."""
    names = ("disc", "square", "triangle", "cross", "ring", "corner", "saltire", "hourglass")
    return [np.full((cell, cell, 3), -1.0)] + [
        glyph(shape, colour, cell, reach)
        for reach in REACH[sizes]
        for shape in names[:shapes]
        for colour in list(PALETTE)[:colours]
    ]


def paint(layout: np.ndarray, glyphs: list[np.ndarray], cells: int) -> np.ndarray:
    """Images (image, row, column, channel) of a table (image, cell) of glyph numbers."""
    cell = glyphs[0].shape[0]
    images = np.empty((len(layout), cells * cell, cells * cell, 3), np.float32)
    for image, row in zip(images, layout, strict=True):
        for place, number in enumerate(row):
            top, left = divmod(place, cells)
            image[top * cell : (top + 1) * cell, left * cell : (left + 1) * cell] = glyphs[number]
    return images
