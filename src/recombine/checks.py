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


def each_once(spec: Any, *names: str) -> None:
    """Refuses a value that is listed twice: what is made of it would count as two.

    >>> from types import SimpleNamespace
    >>> each_once(SimpleNamespace(decay=(0.0, 1.0, 0.0)), "decay")
    Traceback (most recent call last):
        ...
    recombine.errors.InvalidRequest: decay=0.0,1.0,0.0: expected every value once
    """
    for name in names:
        values = getattr(spec, name)
        if len(set(values)) < len(values):
            given = ",".join(str(value) for value in values)
            raise InvalidRequest(f"{name}={given}: expected every value once")


def up_to(most: float, spec: Any, *names: str) -> None:
    """Refuses a field that is no number above 0 and of at most `most`.

    >>> from types import SimpleNamespace
    >>> up_to(1, SimpleNamespace(learnt=90), "learnt")
    Traceback (most recent call last):
        ...
    recombine.errors.InvalidRequest: learnt=90: expected a number above 0, up to 1
    """
    for name in names:
        value = getattr(spec, name)
        if not 0 < value <= most:
            raise InvalidRequest(f"{name}={value}: expected a number above 0, up to {most:g}")
