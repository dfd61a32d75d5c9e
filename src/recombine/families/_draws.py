"""Drawing items one by one until there are enough different ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import cycle, islice

from recombine.errors import InvalidRequest
from recombine.families._sequence import Item
from recombine.seeds import host_seed

# So many draws in a row that bring nothing new mean that there is nothing new to bring.
PATIENCE = 20_000


def dice(seed: int, name: str) -> random.Random:
    """A stream of its own for each thing that is drawn, quick to ask for single numbers."""
    return random.Random(host_seed(seed, name))


def distinct(
    draw: Callable[[], Item | None], count: int, taken: set[str], what: str
) -> list[Item]:  # fmt: skip
    """`count` items whose sources are not `taken` yet, and are from now on.

    `draw` may answer None for a draw that came to nothing.
    """
    found: list[Item] = []
    misses = 0
    while len(found) < count:
        item = draw()
        if item is not None and item.source not in taken:
            taken.add(item.source)
            found.append(item)
            misses = 0
        elif (misses := misses + 1) > PATIENCE:
            raise InvalidRequest(
                f"{count} items are wanted for {what}, and only {len(found)} were found at these "
                "sizes: ask for fewer items or larger sizes"
            )
    return found


def repeated(items: list[Item], times: int) -> list[Item]:
    """All items in turn, again and again, until there are so many."""
    return list(islice(cycle(items), times))


def spread(count: int, over: range) -> list[tuple[int, int]]:
    """`count` shared out as evenly as can be, the later ones getting the remainder.

    >>> spread(8, range(1, 4))
    [(1, 2), (2, 3), (3, 3)]
    """
    each, extra = divmod(count, len(over))
    first = len(over) - extra
    return [(value, each + (i >= first)) for i, value in enumerate(over)]


def at_least(least: int, **sizes: int) -> None:
    """Refuses the first size below `least`, by name."""
    for name, size in sizes.items():
        if size < least:
            raise InvalidRequest(f"{name} must be at least {least}, got {name}={size}")
