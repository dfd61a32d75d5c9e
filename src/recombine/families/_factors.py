"""What families of factors refuse alike."""

from __future__ import annotations

from typing import Any

from recombine.checks import is_whole
from recombine.combinations import Space
from recombine.errors import InvalidRequest


def listed(values: tuple[int, ...], last: str = "or") -> str:
    """Numbers as people say them.

    >>> listed((5, 7, 9))
    '5, 7 or 9'
    """
    *some, end = map(str, values)
    return f"{', '.join(some)} {last} {end}" if some else end


def count_modules(family: Any, space: Space, levels: tuple[int, ...]) -> None:
    """Fills in `modules` and `active`, which follow from the factors; refuses other numbers."""
    for name in ("modules", "active"):
        value, counted = getattr(family, name), getattr(space, name)
        if value not in (0, counted) or not is_whole(value):
            raise InvalidRequest(
                f"{name}={value!r}: factors of {listed(levels, 'and')} values have "
                f"{name}={counted}; leave it out, or use 0"
            )
        object.__setattr__(family, name, counted)
