"""Which seeds a grid draws, so that every verdict can be asked of others."""

from __future__ import annotations

from dataclasses import dataclass

from recombine.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """What the grids of all studies have: the seed that counting begins with.

    >>> list(Seeded(first_seed=100).drawn(3))
    [100, 101, 102]
    """

    first_seed: int = 0

    def drawn(self, count: int) -> range:
        """As many seeds, from the first on; two grids a hundred apart share none."""
        if self.first_seed < 0:
            raise InvalidRequest(f"first_seed={self.first_seed}: expected at least 0")
        return range(self.first_seed, self.first_seed + count)
