"""Where an audit did not look: factors with so many values that a table of them is too large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recombine.audits import holes
from recombine.audits.slices import not_searched
from recombine.tables.counting import MOST_CELLS, too_large
from recombine.tables.rows import Rows

NAMED = 8  # choices of factors in a sentence; audit.json has all


@dataclass(frozen=True)
class Unsearched:
    """Choices of factors (places), each with more cells together than are counted."""

    chosen: tuple[tuple[int, ...], ...]
    most_cells: int

    def sentence(self, rows: Rows) -> str:
        """Which they are, and what to do."""
        names = [" x ".join(rows.names[f] for f in each) for each in self.chosen[:NAMED]]
        left = len(self.chosen) - len(names)
        more = f" and {left:,} more (audit.json names them)" if left else ""
        return (
            f"without {', '.join(names)}{more}, for more than {self.most_cells:,} cells each; "
            "group rare values with --rare N, or name fewer --factors"
        )


def unsearched(
    train: Rows, strengths: Sequence[int], evaluated: Rows | None = None
) -> dict[str, Unsearched]:
    """What is left out of coverage and holes of so many values, and of slices of evaluated rows.

    >>> import numpy as np
    >>> from recombine.tables.rows import Factor
    >>> large = tuple(Factor(name, ("x",) * 5000, np.zeros(1, int)) for name in "ab")
    >>> rows = Rows("toy", large)
    >>> [(kind, each.chosen) for kind, each in unsearched(rows, (1, 2), rows).items()]
    [('holes', ((0, 1),))]
    """

    def of(sizes: Sequence[int], most: int) -> Unsearched:
        return Unsearched(tuple(each for t in sizes for each in too_large(train, t, most)), most)

    found = {
        "coverage": of(strengths, MOST_CELLS),
        "holes": of([t for t in strengths if t in holes.SIZES], holes.MOST_CELLS),
    }
    if evaluated is not None:
        found["failing slices"] = Unsearched(tuple(not_searched(evaluated)), MOST_CELLS)
    return {kind: each for kind, each in found.items() if each.chosen}
