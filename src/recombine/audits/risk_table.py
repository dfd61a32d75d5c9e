"""The risk of every combination beside what is known of it: trained, evaluated, failed, met."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from recombine.audits.auditing import Audit
from recombine.audits.coverage import traffic_shares
from recombine.report.document import Cell, Table
from recombine.splits.divergence import joined
from recombine.tables.counting import combination_keys, combinations
from recombine.tables.novelty import LEVELS, novelty
from recombine.tables.rows import NONE, Factor

MOST = 100_000  # combinations that are listed
FACTS = ("rows trained", "rows evaluated", "observed failure rate", "novelty", "predicted risk",
         "traffic")  # fmt: skip


def risk_table(audit: Audit) -> Table | None:
    """Every combination of the target, or of training and evaluation; the riskiest first.

    Nothing where no row was evaluated. A risk is told where its level of novelty was validated.
    """
    judged, target = audit.evaluation, audit.target
    if judged is None:
        return None
    asked = joined(audit.train, judged.rows) if target is None else target
    found = combinations(asked)
    share = None if target is None else traffic_shares(target, audit.traffic)
    heavy = np.bincount(found.inverse, share, len(found))
    first = np.unique(found.inverse, return_index=True)[1]
    listed = np.sort(np.argsort(-heavy, kind="stable")[:MOST])
    single = asked.take(first[listed])
    trained, evaluated, keys = combination_keys(audit.train, judged.rows, single)
    rows = _summed(keys, trained, np.ones(len(trained)))
    tried = _summed(keys, evaluated, np.ones(len(evaluated)))
    failed = _summed(keys, evaluated, 1 - judged.outcome)
    chance = judged.risk.predict(single).probability
    level = novelty(audit.train, single, nearest=False).row_level
    lines: list[Sequence[Cell]] = []
    for i in np.lexsort((-heavy[listed], -np.nan_to_num(chance, nan=-1.0))):
        values = [_named(factor, factor.codes[i]) for factor in single.factors]
        lines.append((
            *values, int(rows[i]), int(tried[i]),
            float(failed[i] / tried[i]) if tried[i] else None, LEVELS[level[i]],
            None if np.isnan(chance[i]) else float(chance[i]),
            None if share is None else float(heavy[listed[i]]),
        ))  # fmt: skip
    left = len(found) - len(listed)
    note = f"{left:,} further combinations, the least frequent ones, are left out." if left else ""
    return Table("Risk", (*audit.train.names, *FACTS), lines, note)


def _summed(
    keys: Int[np.ndarray, " combination"],
    of_rows: Int[np.ndarray, " row"],
    weights: Float[np.ndarray, " row"],
) -> Float[np.ndarray, " combination"]:
    """What the rows of each combination weigh together; the keys are all different."""
    order = np.argsort(keys)
    place = np.minimum(np.searchsorted(keys, of_rows, sorter=order), len(keys) - 1)
    same = keys[order[place]] == of_rows
    return np.bincount(order[place[same]], weights[same], len(keys))


def _named(factor: Factor, codes: np.ndarray) -> str:
    return " and ".join(factor.values[code] for code in np.atleast_1d(codes) if code != NONE)
