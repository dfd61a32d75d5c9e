"""Checks before anything is fitted: as many rows everywhere, finite numbers, several values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Shaped

from recombine.errors import InvalidRequest
from recombine.probing.targets import Asked, Target, bad_rows, groups_of, targets_of
from recombine.tables.rows import Rows


@dataclass(frozen=True, eq=False)
class Prepared:
    """Activations by layer, targets, the combination of every row, and remarks for the reader."""

    layers: dict[str, Shaped[np.ndarray, "row feature"]]
    targets: list[Target]
    group: Int[np.ndarray, " row"]
    inputs: Shaped[np.ndarray, "row ..."] | None
    notes: list[str]

    @property
    def rows(self) -> int:
        return len(self.group)

    @property
    def combinations(self) -> int:
        return int(self.group.max()) + 1


def prepared(
    activations: Mapping[str, np.ndarray] | np.ndarray,
    targets: np.ndarray | Sequence[object] | Mapping[str, np.ndarray] | Rows,
    groups: np.ndarray | Sequence[object] | Rows | None,
    *,
    kind: Asked = "auto",
    inputs: np.ndarray | None = None,
    drop_bad: bool = False,
) -> Prepared:
    """Everything in step, or one line that says what is not."""
    layers = {name: _layer(name, one) for name, one in _named(activations).items()}
    first, rows = next(iter((name, len(one)) for name, one in layers.items()))
    found = targets_of(targets, kind=kind)
    if groups is None and isinstance(targets, Rows):
        groups = targets
    group = groups_of(groups, found)
    lengths = {f"layer {name!r}": len(one) for name, one in layers.items()}
    lengths |= {f"target {one.name!r}": len(one.columns) for one in found}
    lengths["groups"] = len(group)
    if inputs is not None:
        lengths["inputs"] = len(inputs)
    for what, count in lengths.items():
        if count != rows:
            raise InvalidRequest(
                f"layer {first!r} has {rows} rows and {what} has {count}: give one row of each "
                "for every example, in the same order"
            )
    bad = np.zeros(rows, bool)
    notes: list[str] = []
    for what, array in _numbers(layers, found, inputs).items():
        own = bad_rows(array)
        if own.any():
            notes.append(f"{what} has {_told(own)} with numbers that are not finite")
            bad |= own
    if bad.any():
        if not drop_bad:
            raise InvalidRequest(
                f"{'; '.join(notes)}: mend them, or leave those rows out with drop_bad=True"
            )
        notes.append(f"{int(bad.sum())} of {rows} rows were left out")
        keep = np.flatnonzero(~bad)
        if not len(keep):
            raise InvalidRequest("no row is left: every row has a number that is not finite")
        layers = {name: one[keep] for name, one in layers.items()}
        found = [one.take(keep) for one in found]
        group = groups_of(group[keep], found)
        inputs = None if inputs is None else inputs[keep]
    if len(np.unique(group)) == len(group):
        notes.append(
            "every row is a combination of its own, so that holding combinations out is holding "
            "rows out: say which rows share one, if any do"
        )
    living = [one for one in found if _varies(one)]
    dead = ", ".join(repr(one.name) for one in found if not _varies(one))
    if not living:
        raise InvalidRequest(f"{dead}: every row has the same value, so there is nothing to read")
    if dead:
        notes.append(f"not probed, as every row has the same value: {dead}")
    return Prepared(layers, living, group, inputs, notes)


def _named(activations: Mapping[str, np.ndarray] | np.ndarray) -> Mapping[str, np.ndarray]:
    if not isinstance(activations, Mapping):
        return {"activations": np.asarray(activations)}
    if not activations:
        raise InvalidRequest("no activations given: name at least one layer")
    return activations


def _layer(name: str, given: np.ndarray) -> np.ndarray:
    array = np.asarray(given)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.size == 0:
        raise InvalidRequest(
            f"layer {name!r} has shape {np.shape(given)}: expected rows x features; choose a "
            "position, such as acts[:, -1], or average over positions first"
        )
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise InvalidRequest(f"layer {name!r} is of type {array.dtype}: expected real numbers")
    return array


def _numbers(
    layers: Mapping[str, np.ndarray], targets: Sequence[Target], inputs: np.ndarray | None
) -> dict[str, np.ndarray]:
    found = {f"layer {name!r}": one for name, one in layers.items()}
    found |= {f"target {one.name!r}": one.columns for one in targets if one.kind == "numbers"}
    if inputs is not None and inputs.dtype.kind not in "USO":
        found["inputs"] = inputs
    return found


def _told(bad: np.ndarray) -> str:
    places = [str(place + 1) for place in np.flatnonzero(bad)[:3]]
    count = int(bad.sum())
    more = ", ..." if count > 3 else ""
    return f"{count} row{'s' * (count > 1)} ({', '.join(places)}{more})"


def _varies(target: Target) -> bool:
    return bool((target.columns != target.columns[:1]).any())
