"""What a node computes and how three numbers become a colour, in numpy and in jax alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# Each takes the module whose arrays it works on: numpy, or jax.numpy where gradients are wanted.
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "cos": lambda z, xp: xp.cos(z),
    "gaussian": lambda z, xp: 2 * xp.exp(-z * z) - 1,
    "identity": lambda z, xp: z,
    "relu": lambda z, xp: xp.maximum(z, 0),
    # 2 sigma(z) - 1 is tanh(z / 2), which cannot overflow.
    "sigmoid": lambda z, xp: xp.tanh(z / 2),
    "sin": lambda z, xp: xp.sin(z),
    "tanh": lambda z, xp: xp.tanh(z),
}

ACTIVATIONS = tuple(_FUNCTIONS)
CACHE = "cache"  # a neuron that hands a value on to the next layer


def activate(name: str, z: Any, xp: Any = np) -> Any:
    """The activation of this name; all but the identity, ReLU and the cache end within -1..1.

    >>> float(activate("gaussian", np.float64(0.0)))
    1.0
    """
    return z if name == CACHE else _FUNCTIONS[name](z, xp)


def hsv_to_rgb(hue: Any, saturation: Any, value: Any, xp: Any = np) -> Any:
    """Colours, on a new last axis, from hue (one turn is 1), saturation and value in 0..1.

    >>> hsv_to_rgb(np.float64(1 / 3), np.float64(1.0), np.float64(1.0)).tolist()
    [0.0, 1.0, 0.0]
    """
    channels = []
    for offset in (5, 3, 1):  # red, green and blue are one curve, a third of a turn apart
        k = (offset + 6 * hue) % 6
        share = xp.clip(xp.minimum(k, 4 - k), 0, 1)
        channels.append(value * (1 - saturation * share))
    return xp.stack(channels, axis=-1)


def colour(hue: Any, saturation: Any, brightness: Any, xp: Any = np) -> Any:
    """The colours of a network's three raw outputs."""
    return hsv_to_rgb(
        (hue + 1) % 1, xp.clip(saturation, 0, 1), xp.clip(xp.abs(brightness), 0, 1), xp
    )
