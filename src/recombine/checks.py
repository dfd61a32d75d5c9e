"""Numbers that every spec refuses alike, in one line and before anything compiles."""

from __future__ import annotations

from typing import Any

from recombine.errors import InvalidRequest

LARGEST = 3.4028234e38  # of the numbers that networks are made of


def is_whole(value: object) -> bool:
    """Whether it is a whole number; True and False are none.

    >>> is_whole(3), is_whole(3.0), is_whole(True)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool)


def at_least(spec: Any, **least: int) -> None:
    """Refuses a field that is no whole number, or a smaller one than that.

    >>> from recombine import MLP
    >>> at_least(MLP(width=64, depth=2), width=1, depth=3)
    Traceback (most recent call last):
        ...
    recombine.errors.InvalidRequest: depth=2: expected a whole number of at least 3
    """
    for name, smallest in least.items():
        value = getattr(spec, name)
        if not is_whole(value) or value < smallest:
            raise InvalidRequest(
                f"{name}={value!r}: expected a whole number of at least {smallest}"
            )


def rates(spec: Any, *names: str) -> None:
    """Refuses a field that can be no learning rate, weight decay or penalty."""
    for name in names:
        value = getattr(spec, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= LARGEST:
            raise InvalidRequest(f"{name}={value!r}: expected a number from 0 to {LARGEST:.2g}")
