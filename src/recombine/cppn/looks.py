"""What a picture looks like in five numbers, and how much there is to see in it.

None of them changes when a picture is mirrored: what evolution looks for must not be what the
measures of its networks later find.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from recombine.errors import InvalidRequest

# What counts as 1: steps between pixels or blocks, and the spread of colours, are rarely larger.
FINE, COARSE, COLOURFUL = 0.2, 0.4, 0.7
BLOCK = 4  # pixels a side of what counts as coarse
LOW = 2  # waves across the picture that count as low
SHADES = 32

Picture = Float[np.ndarray, "row column 3"]


def descriptor(picture: Picture) -> Float[np.ndarray, "5"]:
    """Brightness, edges at two scales, colourfulness and low frequencies, each in 0..1.

    >>> descriptor(np.full((8, 8, 3), 0.5)).round(3).tolist()
    [0.5, 0.0, 0.0, 0.0, 1.0]
    """
    grey = brightness(picture)
    return np.clip(
        [
            grey.mean(),
            _edges(grey) / FINE,
            _edges(_blocks(grey), BLOCK) / COARSE,
            _colourfulness(picture) / COLOURFUL,
            _low_share(grey),
        ],
        0,
        1,
    )


def quality(picture: Picture) -> float:
    """The entropy of the shades of grey, in 0..1: the same for any order of the pixels.

    >>> quality(np.zeros((8, 8, 3)))
    0.0
    """
    shades = np.minimum((brightness(picture) * SHADES).astype(int), SHADES - 1)
    share = np.bincount(shades.ravel(), minlength=SHADES) / shades.size
    share = share[share > 0]
    return float(abs((share * np.log(share)).sum()) / np.log(SHADES))


def brightness(picture: Picture) -> Float[np.ndarray, "row column"]:
    """The mean of the three channels."""
    if picture.ndim != 3 or picture.shape[2] != 3 or min(picture.shape[:2]) < 2 * BLOCK:
        raise InvalidRequest(
            f"a picture of shape {picture.shape}: expected (rows, columns, 3), at least "
            f"{2 * BLOCK} pixels a side"
        )
    # Not a mean over the short axis, which numpy does ten times more slowly.
    return (picture[..., 0] + picture[..., 1] + picture[..., 2]) / 3


def _edges(grey: Float[np.ndarray, "row column"], step: int = 1) -> float:
    down, right = grey[step:] - grey[:-step], grey[:, step:] - grey[:, :-step]
    return float(np.abs(down).mean() + np.abs(right).mean()) / 2


def _blocks(grey: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "row column"]:
    """The means of all blocks, overlapping ones too: a grid of them would look one way."""
    sums = np.pad(grey, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    rows = sums[BLOCK:] - sums[:-BLOCK]
    return (rows[:, BLOCK:] - rows[:, :-BLOCK]) / BLOCK**2


def _colourfulness(picture: Picture) -> float:
    """Hasler and Suesstrunk's (2003): spread and mean of the two opponent colours."""
    red, green, blue = picture[..., 0], picture[..., 1], picture[..., 2]
    first, second = red - green, (red + green) / 2 - blue
    spread = np.hypot(first.std(), second.std())
    return float(spread + 0.3 * np.hypot(first.mean(), second.mean()))


def _low_share(grey: Float[np.ndarray, "row column"]) -> float:
    """The share of the variance in waves that go at most twice over the picture."""
    power = np.abs(np.fft.fft2(grey - grey.mean())) ** 2
    waves = [np.abs(np.fft.fftfreq(size, 1 / size)) <= LOW for size in grey.shape]
    total = power.sum()
    low = power[np.ix_(*waves)].sum()
    return float(low / total) if total > 1e-9 else 1.0
