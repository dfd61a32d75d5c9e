"""What is read off activations: values of a factor, sets of labels, or numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from recombine.errors import InvalidRequest, unknown
from recombine.tables.rows import NONE, Factor, Rows

Kind = Literal["categorical", "multilabel", "numbers"]
Asked = Literal["auto", "categorical", "multilabel", "numbers"]
METRICS: dict[str, tuple[str, ...]] = {  # the first is the one that verdicts are about
    "categorical": ("balanced accuracy", "accuracy"),
    "multilabel": ("AUROC", "mean average precision", "exact set"),
    "numbers": ("R²",),
}
MOST_VALUES = 1_000


@dataclass(frozen=True, eq=False)
class Target:
    """One thing to read, with a column per value, label or number.

    The columns of a categorical target are 1 for the row's value and 0 elsewhere. `said` tells
    how its kind was found.

    >>> targets_of(np.array(["red", "blue", "red"]))[0].values
    ('blue', 'red')
    """

    name: str
    kind: Kind
    values: tuple[str, ...]
    columns: Float[np.ndarray, "row column"]
    said: str = ""

    @property
    def codes(self) -> Int[np.ndarray, " row"]:
        """The place of each row's value; for categorical targets."""
        return self.columns.argmax(axis=1)

    @property
    def metric(self) -> str:
        """The score that the verdict is about."""
        return METRICS[self.kind][0]

    def take(self, rows: np.ndarray) -> Target:
        return replace(self, columns=self.columns[rows])


def categorical(name: str, values: Sequence[str], codes: np.ndarray, said: str = "") -> Target:
    """A target of one value per row; values that no row holds are dropped."""
    present, places = np.unique(codes, return_inverse=True)
    if len(present) > MOST_VALUES:
        raise InvalidRequest(
            f"target {name!r} has {len(present)} different values, and a probe takes at most "
            f"{MOST_VALUES}: group them, or read it as numbers with kind='numbers'"
        )
    columns = np.zeros((len(codes), len(present)))
    columns[np.arange(len(codes)), places.ravel()] = 1
    return Target(name, "categorical", tuple(values[int(p)] for p in present), columns, said)


def targets_of(
    given: np.ndarray | Sequence[object] | Mapping[str, np.ndarray] | Rows,
    *,
    kind: Asked = "auto",
    name: str = "target",
) -> list[Target]:
    """The targets in an array, in several named arrays, or in the factors of a table.

    With kind "auto": texts and whole numbers are categorical, a matrix of 0 and 1 multi-label
    (categorical where each row has exactly one 1), other numbers are regressed on, and each column
    of a matrix of other whole numbers is a categorical target of its own.

    >>> [t.kind for t in targets_of({"a": np.array([0, 1, 1]), "b": np.array([0.5, 1.0, 2.5])})]
    ['categorical', 'numbers']
    """
    if kind not in get_args(Asked):
        raise unknown("kind", str(kind), get_args(Asked))
    if isinstance(given, Rows):
        return [_of_factor(factor, kind) for factor in given.factors]
    if isinstance(given, Mapping):
        if not given:
            raise InvalidRequest("no targets given: name at least one")
        return [one for key, values in given.items() for one in _of_array(key, values, kind)]
    return _of_array(name, np.asarray(given), kind)


def _of_factor(factor: Factor, kind: Asked) -> Target:
    if factor.many:
        if kind not in ("auto", "multilabel"):
            raise InvalidRequest(
                f"factor {factor.name!r} holds lists, which are multi-label: use kind='auto'"
            )
        columns = np.zeros((len(factor.codes), factor.size + 1))
        columns[np.arange(len(columns))[:, None], factor.codes] = 1  # NONE is the last column
        said = "multi-label: the column holds lists"
        return Target(factor.name, "multilabel", factor.values, columns[:, :NONE], said)
    if kind == "multilabel":
        raise InvalidRequest(
            f"factor {factor.name!r} holds one value a row, not several: use kind='categorical'"
        )
    if kind == "numbers":
        try:
            numbers = np.array([float(value) for value in factor.values])
        except ValueError as error:
            raise InvalidRequest(
                f"factor {factor.name!r} holds values that are no numbers ({error}): use "
                "kind='categorical'"
            ) from error
        return _numbers(factor.name, numbers[factor.codes], "numbers, as asked")
    return categorical(factor.name, factor.values, factor.codes, "categorical: a factor's values")


def _of_array(name: str, given: np.ndarray, kind: Asked) -> list[Target]:
    array = np.asarray(given)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim not in (1, 2) or array.size == 0:
        raise InvalidRequest(
            f"target {name!r} has shape {np.shape(given)}: expected (rows,), or (rows, columns)"
        )
    if array.dtype.kind not in "biufUSO" and not _extended(array):
        raise InvalidRequest(f"target {name!r} is of type {array.dtype}: give numbers or texts")
    texts = array.dtype.kind in "USO"
    if texts and kind in ("multilabel", "numbers"):
        raise InvalidRequest(f"target {name!r} holds texts: use kind='categorical'")
    binary = not texts and bool(np.isin(array, (0, 1)).all())
    one_hot = array.ndim == 2 and binary and bool((array.sum(axis=1) == 1).all())
    found, said = kind, "as asked"
    if kind == "auto":
        found, said = _detected(array, texts, binary, one_hot)
    told = f"{'multi-label' if found == 'multilabel' else found}: {said}"
    if found == "numbers":
        return [_numbers(name, array, told)]
    if found == "multilabel":
        if not binary:
            raise InvalidRequest(
                f"target {name!r}: multi-label targets are a matrix of 0 and 1; it holds "
                f"{np.setdiff1d(array, (0, 1)).ravel()[:1].tolist()[0]!r}"
            )
        labels = array[:, None] if array.ndim == 1 else array
        names = tuple(f"{name} {number}" for number in range(1, labels.shape[1] + 1))
        return [Target(name, "multilabel", names, labels.astype(np.float64), told)]
    if one_hot and array.ndim == 2:
        places = array.argmax(axis=1)
        return [categorical(name, [str(i) for i in range(array.shape[1])], places, told)]
    columns = array[:, None] if array.ndim == 1 else array
    names = [name] if array.ndim == 1 else [f"{name} {i + 1}" for i in range(columns.shape[1])]
    return [_distinct(names[i], columns[:, i], told) for i in range(len(names))]


def _detected(array: np.ndarray, texts: bool, binary: bool, one_hot: bool) -> tuple[Kind, str]:
    if texts:
        return "categorical", "it holds texts"
    if array.ndim == 2 and one_hot:
        return "categorical", "exactly one 1 in each row of the matrix"
    if array.ndim == 2 and binary:
        return "multilabel", "a matrix of 0 and 1"
    if array.dtype.kind in "biu":
        return "categorical", "it holds whole numbers (say numbers if their size means something)"
    return "numbers", "it holds fractions or floating-point numbers"


def _distinct(name: str, column: np.ndarray, said: str) -> Target:
    column = column.astype(str) if column.dtype.kind == "O" else column
    values, codes = np.unique(column, return_inverse=True)
    words = [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in values]
    return categorical(name, words, codes.ravel(), said)


def _numbers(name: str, array: np.ndarray, said: str) -> Target:
    columns = array[:, None] if array.ndim == 1 else array
    names = tuple(f"{name} {i}" for i in range(1, columns.shape[1] + 1))
    names = (name,) if columns.shape[1] == 1 else names
    return Target(name, "numbers", names, columns.astype(np.float64), said)


def _extended(array: np.ndarray) -> bool:
    return array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def groups_of(
    given: Shaped[np.ndarray, "..."] | Sequence[object] | Rows | None, targets: Sequence[Target]
) -> Int[np.ndarray, " row"]:
    """A number per row for its combination: rows with equal numbers are held out together.

    Without groups, the combination of all targets, where there are several of them. Combinations
    are numbered in the order of their first rows.

    >>> groups_of(np.array([[0, 1], [0, 1], [2, 1]]), []).tolist()
    [0, 0, 1]
    """
    if isinstance(given, Rows):
        array = given.matrix()
    elif given is not None:
        array = np.asarray(given)
    else:
        parts = [t.columns for t in targets if t.kind != "numbers"]
        if len(parts) < 2 and not any(t.kind == "multilabel" for t in targets):
            raise InvalidRequest(
                "groups are missing: give an array with the combination of each row, so that "
                "whole combinations can be held out"
            )
        array = np.concatenate(parts, axis=1).astype(np.int8)
    if array.ndim not in (1, 2) or array.size == 0:
        raise InvalidRequest(f"groups have shape {array.shape}: expected one combination per row")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidRequest("groups hold numbers that are not finite: name every combination")
    array = array.astype(str) if array.dtype.kind == "O" else array
    axis = 0 if array.ndim == 2 else None
    _, first, group = np.unique(array, axis=axis, return_index=True, return_inverse=True)
    # Numbered as they come, so that what combinations are called cannot change a reading.
    return np.argsort(np.argsort(first))[group.ravel()].astype(np.int64)


def bad_rows(array: np.ndarray, chunk: int = 8192) -> Bool[np.ndarray, " row"]:
    """Which rows hold a number that is not finite."""
    found = np.zeros(len(array), bool)
    if array.dtype.kind in "biu":
        return found
    for start in range(0, len(array), chunk):
        part = array[start : start + chunk].astype(np.float64).reshape(-1, *array.shape[1:])
        found[start : start + chunk] = ~np.isfinite(part.reshape(len(part), -1)).all(axis=1)
    return found
