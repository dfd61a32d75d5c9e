"""What can be wrong with a picture of a scene: one fault put into the scenes of a family."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from recombine.families.scenes import Scenes

FAULTS = ("missing", "doubled", "recoloured", "halved", "off-grid")


def fault(name, family: Scenes, layout: np.ndarray, paint, rng: np.random.Generator) -> np.ndarray:
    """Images (image, row, column, channel) of layouts, one object of each with a fault."""
    layout = layout.copy()
    images = np.arange(len(layout))
    noise = rng.random(layout.shape)
    object_ = np.argmax(np.where(layout > 0, noise, -1), axis=1)
    free = np.argmax(np.where(layout == 0, noise, -1), axis=1)
    if name == "missing":
        layout[images, object_] = 0
    elif name == "doubled":
        layout[images, free] = layout[images, object_]
    elif name == "recoloured":
        number, step = layout[images, object_] - 1, rng.integers(1, family.colours, len(layout))
        colour = number % family.colours
        layout[images, object_] += (colour + step) % family.colours - colour
    painted = paint(layout)
    if name not in ("halved", "off-grid"):
        return painted
    for image, place in zip(painted, object_, strict=True):
        top, left = (int(n) * family.cell for n in divmod(int(place), family.cells))
        spot = image[top : top + family.cell, left : left + family.cell]
        if name == "halved":
            halve(spot, rng)
        else:
            shift(image, spot, top, left, rng)
    return painted


def halve(spot: np.ndarray, rng: np.random.Generator) -> None:
    """Erases half of the ink of a cell, on one side of a line in any direction."""
    angle, rows = rng.uniform(0, 2 * np.pi), np.arange(len(spot))
    along = np.cos(angle) * rows[:, None] + np.sin(angle) * rows
    ink = (spot + 1).sum(axis=2)
    order = np.argsort(along, axis=None)
    before = np.empty(ink.size)
    before[order] = np.cumsum(ink.ravel()[order])
    spot[before.reshape(ink.shape) <= ink.sum() / 2] = -1


def shift(image: np.ndarray, spot: np.ndarray, top: int, left: int, rng) -> None:
    """Moves the glyph of a cell by two pixels or more, at most half a cell, in any direction."""
    cell, glyph = len(spot), spot.copy()
    spot[...] = -1
    far = int(rng.integers(2, cell // 2 + 1)) * int(rng.choice([-1, 1]))
    along = int(rng.integers(-(cell // 2), cell // 2 + 1))
    down, across = (far, along) if rng.random() < 0.5 else (along, far)
    wide = np.pad(image, ((cell, cell), (cell, cell), (0, 0)), constant_values=-1)
    y, x = top + cell + down, left + cell + across
    target = wide[y : y + cell, x : x + cell]
    target[...] = np.maximum(target, glyph)
    image[...] = wide[cell:-cell, cell:-cell]


def spoil(images: np.ndarray, noise: float, blur: float, rng: np.random.Generator) -> np.ndarray:
    """Images with blur (in pixels) and then noise, flat as a judge takes them."""
    blurred = gaussian_filter(images, (0, blur, blur, 0), mode="nearest") if blur else images
    noisy = blurred + noise * rng.standard_normal(images.shape)
    return noisy.reshape(len(images), -1).astype(np.float32)
