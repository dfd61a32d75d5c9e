"""A model that is arrays on disk, by row: read without trusting the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from recombine.adapters.models import ROW, OwnModel, Record, pooled
from recombine.data.arrays import read_arrays
from recombine.errors import InvalidRequest, unknown

ANSWERS, IDS, LOGS = "answers", "ids", "log_probabilities"


class ArraysModel(OwnModel):
    """Activations and answers that were written down, one row for each row of the data.

    `arrays` is a file or a mapping of names to arrays. In it, `answers`, `log_probabilities` (of
    those answers) and `ids` have these names; every other array is a layer. A record is found by
    its column `id` among the ids; without ids, the column `row` says which row it is, from 1.

    >>> model = ArraysModel({"hidden": np.eye(2), "answers": np.array(["red", "blue"])})
    >>> model.answer([{"row": 2}]), model.activations([{"row": 2}])["hidden"].tolist()
    (['blue'], [[0.0, 1.0]])
    """

    recorded = True
    pooling = "as in the file; axes between the first and the last are averaged"

    def __init__(
        self, arrays: str | Path | Mapping[str, Any], *, answers: str | Path | Any = None,
        id: str | None = None, name: str | None = None,
    ):  # fmt: skip
        on_disk = isinstance(arrays, str | Path)
        self.name = name or (Path(arrays).stem if on_disk else "arrays")
        found = read_arrays(arrays) if on_disk else {k: np.asarray(v) for k, v in arrays.items()}
        if answers is not None:
            single = isinstance(answers, str | Path)
            found[ANSWERS] = _only(answers) if single else np.asarray(answers)
        lengths = {name: len(a) if a.ndim else 0 for name, a in found.items()}
        if not found or len(set(lengths.values())) > 1:
            raise InvalidRequest(
                f"{self.name} holds arrays of lengths {lengths}: expected some, all with one row "
                "for each row of the data"
            )
        self.rows = next(iter(lengths.values()))
        self._answers, self._logs = found.pop(ANSWERS, None), found.pop(LOGS, None)
        ids = found.pop(IDS, None)
        if id is not None and ids is None:
            raise InvalidRequest(f"{self.name} has no array 'ids' for the column {id!r}: add one")
        self._id = id or ("id" if ids is not None else ROW)
        self._place = None if ids is None else {_text(v): i for i, v in enumerate(ids.tolist())}
        if self._place is not None and len(self._place) < self.rows:
            raise InvalidRequest(f"{self.name}: some ids are there twice; expected one a row")
        self._layers = {layer: pooled(layer, a, self.rows) for layer, a in found.items()}
        self.abilities = frozenset(
            ability for ability, there in (
                ("answer", self._answers is not None), ("activations", bool(self._layers)),
                ("log-probabilities", self._logs is not None and self._answers is not None),
            ) if there
        )  # fmt: skip

    def answer(self, records: Sequence[Record]) -> list[Any]:
        self.need("answering", "answer")
        assert self._answers is not None
        return self._answers[self._at(records)].tolist()

    def activations(self, records: Sequence[Record]) -> dict[str, np.ndarray]:
        self.need("a probe", "activations")
        places = self._at(records)
        return {layer: array[places] for layer, array in self._layers.items()}

    def log_probabilities(
        self, records: Sequence[Record], answers: Sequence[Any]
    ) -> Float[np.ndarray, " record"]:
        self.need("probability", "log-probabilities")
        assert self._logs is not None
        said = self.answer(records)
        if other := [a for a, b in zip(answers, said, strict=True) if a != b]:
            raise InvalidRequest(
                f"{self.name} holds log-probabilities of its own answers only, not of {other[0]!r}"
            )
        return np.asarray(self._logs, float)[self._at(records)]

    def _at(self, records: Sequence[Record]) -> np.ndarray:
        places = []
        for number, record in enumerate(records, 1):
            if self._id not in record:
                raise unknown(f"column of record {number}", self._id, [str(k) for k in record])
            given = record[self._id]
            if self._place is not None:
                place = self._place.get(_text(given))
            else:
                place = int(given) - 1 if _text(given).isdecimal() else None
            if place is None or not 0 <= place < self.rows:
                allowed = f"1 to {self.rows}" if self._place is None else "one of the ids"
                raise InvalidRequest(
                    f"record {number} has {self._id}={given!r}, expected {allowed} in {self.name}"
                )
            places.append(place)
        return np.array(places, dtype=np.int64)


def _text(value: Any) -> str:
    """An id or a number as it is written: a reader of tables may have made 3 into 3.0."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value) if whole else value)


def _only(path: str | Path) -> np.ndarray:
    found = read_arrays(path)
    if len(found) != 1 and ANSWERS not in found:
        raise InvalidRequest(f"{path} holds {sorted(found)}: expected one array, or 'answers'")
    return found.get(ANSWERS, next(iter(found.values())))
