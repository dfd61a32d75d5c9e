"""A network that draws, to be looked at: its feature maps on one wall, its weights as strips."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

from recombine.cppn import Renderer, sweep_sizes
from recombine.cppn.measures import SYMMETRIC, mirrored
from recombine.png import png

COLUMNS, ROWS = 8, 4  # of a wall; the picture itself takes a block of four
LARGEST = 48  # pixels a side of what is shown
STRIPS = 2
EFFECT = 0.02  # the mean squared change of a picture at the ends of a strip
# Told apart by people with red-green blindness, on a light and on a dark page.
WHOLE, FRACTURED, EMPTY, EDGE = (0, 158, 115), (213, 94, 0), (226, 230, 235), (70, 75, 82)

Picture = Float[np.ndarray, "row column 3"]


def wall(
    drawn: Picture,
    maps: Float[np.ndarray, "map row column"],
    concordance: Float[np.ndarray, "map"],
) -> UInt8[np.ndarray, "row column 3"]:
    """The picture, then its distinct maps, framed by whether they keep its symmetry.

    Where there are more maps than places, they are taken evenly from first layer to last.
    """
    tile = _small(drawn).shape[0] + 4
    paper = np.full((ROWS * tile, COLUMNS * tile, 3), EMPTY, np.uint8)
    spread = np.linspace(0, len(drawn) - 1, 2 * tile - 4).round().astype(int)
    _hang(paper, 0, 0, _bytes(drawn[np.ix_(spread, spread)]), EDGE)
    places = [(row, column) for row in range(ROWS) for column in range(COLUMNS)
              if row > 1 or column > 1]  # fmt: skip
    kept = np.linspace(0, len(maps) - 1, min(len(places), len(maps))).round().astype(int)
    for (row, column), number in zip(places, kept, strict=False):
        grey = np.clip((_small(maps[number]) / 3 + 1) / 2, 0, 1)
        frame = WHOLE if concordance[number] > SYMMETRIC else FRACTURED
        _hang(paper, row * tile, column * tile, _bytes(np.repeat(grey[..., None], 3, -1)), frame)
    return paper


def strips(
    renderer: Renderer,
    weights: Float[np.ndarray, "weight"],
    places: Sequence[int],
    symmetry: str,
) -> dict[str, list[Any]]:
    """Single weights made smaller and larger, until the picture has changed by a set amount.

    A weight that cannot be moved to it both ways is passed over. Beside each strip: which share of
    the change at either end is symmetric. Whether the picture as a whole still looks symmetric
    says little, since so small a change leaves most of it as it was, whatever it tears.
    """
    render = jax.jit(renderer)
    found: dict[str, list[Any]] = {"png": [], "smaller": [], "larger": []}
    for place in places:
        high, low = sweep_sizes(renderer, weights, np.array([place]), effect=EFFECT).tolist()
        if not np.isfinite(high + low):
            continue
        moves = (-low, -low / 2, 0.0, high / 2, high)
        row = [np.asarray(render(_moved(weights, place, move))) for move in moves]
        found["png"].append(encoded(_side_by_side([_small(one) for one in row])))
        for name, end in (("smaller", row[0]), ("larger", row[-1])):
            found[name].append(round(symmetric_share(end - row[2], symmetry), 6))
        if len(found["png"]) == STRIPS:
            break
    return found


def symmetric_share(change: Float[np.ndarray, "row column channel"], symmetry: str) -> float:
    """How much of a change of a picture is its own mirror image; one half is no symmetry at all."""
    channels = np.moveaxis(np.asarray(change, np.float64), -1, 0)
    even = (channels + mirrored(channels, symmetry)) / 2
    power = float((channels**2).sum())
    return float((even**2).sum() / power) if power > 0 else 1.0


def encoded(pixels: UInt8[np.ndarray, "row column 3"]) -> str:
    """A picture as text, for a table of a reading."""
    return base64.b64encode(png(pixels)).decode()


def _moved(weights: np.ndarray, place: int, by: float) -> Float[Array, "weight"]:
    moved = np.array(weights)
    moved[place] += by
    return jnp.asarray(moved)


def _small(array: np.ndarray) -> np.ndarray:
    side = array.shape[0]
    if side <= LARGEST:
        return array
    kept = np.linspace(0, side - 1, LARGEST).round().astype(int)
    return array[np.ix_(kept, kept)]


def _side_by_side(row: Sequence[Picture]) -> UInt8[np.ndarray, "row column 3"]:
    gap = np.full((row[0].shape[0], 2, 3), EMPTY, np.uint8)
    parts = [part for one in row for part in (_bytes(one), gap)]
    return np.concatenate(parts[:-1], axis=1)


def _hang(
    paper: np.ndarray, top: int, left: int, pixels: np.ndarray, frame: tuple[int, int, int]
) -> None:
    """Puts a picture on the wall, in a frame of two pixels."""
    rows, columns = pixels.shape[:2]
    paper[top : top + rows + 4, left : left + columns + 4] = frame
    paper[top + 2 : top + 2 + rows, left + 2 : left + 2 + columns] = pixels


def _bytes(array: np.ndarray) -> UInt8[np.ndarray, "..."]:
    return np.clip(np.rint(np.asarray(array) * 255), 0, 255).astype(np.uint8)
