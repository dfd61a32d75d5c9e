"""Is a factor linearly readable from activations, also in combinations the probe never saw?

Every row is scored by probes that saw no row of its combination (`across`), and again by probes
that saw other rows of it (`within`). What is readable within and not across was memorised. Where
there are several layers, each fold takes the layer that its training folds prefer, so the score of
the chosen layer is on combinations that had no say in the choice; the control tasks choose alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from recombine.errors import InvalidRequest
from recombine.probing.fitting import memory_needed
from recombine.probing.pairs import PairReading, pair_questions
from recombine.probing.preparing import prepared
from recombine.probing.readings import ProbeReading, TargetReading
from recombine.probing.targets import Asked
from recombine.probing.verdicts import TOO_FEW, Bars, Verdict
from recombine.probing.words import room
from recombine.probing.working import Work
from recombine.tables.rows import Rows

__all__ = ["ProbeReading", "TargetReading", "probe"]


def probe(
    activations: Mapping[str, Float[np.ndarray, "row feature"]] | Float[np.ndarray, "row feature"],
    targets: np.ndarray | Sequence[object] | Mapping[str, np.ndarray] | Rows,
    groups: np.ndarray | Sequence[object] | Rows | None = None,
    *,
    kind: Asked = "auto",
    inputs: np.ndarray | None = None,
    pairs: bool = False,
    folds: int = 5,
    draws: int = 5,
    seed: int = 0,
    bars: Bars | None = None,
    drop_bad: bool = False,
    say: Callable[[str], None] | None = None,
) -> ProbeReading:
    """Linear probes of every target in every layer, with their controls and a verdict each.

    `groups` names the combination of each row; of a table it is the combination of all factors.
    `draws` is how many random labellings the control task averages over.

    >>> rng = np.random.default_rng(0)
    >>> combination = np.repeat(np.arange(40), 10)
    >>> z = combination % 4
    >>> acts = np.eye(4)[z] + 0.1 * rng.normal(size=(400, 4))
    >>> probe(acts, z, combination).targets[0].verdict.answer
    'readable for combinations never seen'
    """
    if folds < 3:
        raise InvalidRequest(f"folds={folds}: choosing a penalty inside needs at least 3")
    if draws < 1:
        raise InvalidRequest(f"draws={draws}: the control task needs at least 1")
    data = prepared(activations, targets, groups, kind=kind, inputs=inputs, drop_bad=drop_bad)
    questions, notes = pair_questions(data.targets) if pairs else ([], [])
    memory = max(
        memory_needed(one.shape[0], one.shape[1], folds, one.dtype.itemsize)
        for one in data.layers.values()
    )
    tell = say or (lambda _: None)
    tell(f"{data.rows} rows, {data.combinations} combinations, about {room(memory)} of memory")
    used, limits = min(folds, data.combinations), bars or Bars()
    if used < 3:
        why = f"there are {data.combinations}, and a probe needs at least 3"
        more = limits.per_fold * folds - data.combinations
        open_verdict = Verdict(TOO_FEW, why, more)
        readings = [TargetReading(t.name, t.kind, t.said, t.values, open_verdict)
                    for t in data.targets]  # fmt: skip
        found: list[PairReading] = []
    else:
        work = Work(data, questions, used, folds, draws, seed, limits, tell)
        readings, found = work.readings(), work.pair_readings()
    return ProbeReading(
        tuple(readings), tuple(found), data.rows, data.combinations, used, draws, seed,
        limits, memory, (*data.notes, *notes),
    )  # fmt: skip
