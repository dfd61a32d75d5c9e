"""Models asked in batches of arrays: what all frameworks share, and JAX functions."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from recombine.adapters.models import OwnModel, Parity, Record, plain, pooled
from recombine.errors import InvalidRequest, unknown

Encode = Callable[[Sequence[Record]], Any]
Decode = Callable[[Any], Sequence[Any]]


class Batched(OwnModel, abc.ABC):
    """A model that turns records into arrays, runs them in batches, and reads its outputs.

    With `labels`, outputs are logits with one column a label: the answer is the largest, and
    log-probabilities come with it. With `decode`, a function of the outputs gives the answers.
    With neither, the answers are the outputs themselves, a number or a list.
    """

    def __init__(
        self, *, name: str, batch: int, labels: Sequence[str] = (), decode: Decode | None = None,
        layers: bool = True,
    ):  # fmt: skip
        if batch < 1:
            raise InvalidRequest(f"batch={batch}: expected at least 1")
        if labels and decode is not None:
            raise InvalidRequest("labels and decode were both given: one of them makes the answers")
        if len(set(labels)) < len(labels):
            raise InvalidRequest(f"labels {list(labels)}: expected each once")
        self.name, self.batch, self.labels, self.decode = name, batch, tuple(labels), decode
        abilities = {"answer", *(["activations"] if layers else [])}
        self.abilities = frozenset(abilities | ({"log-probabilities"} if labels else set()))

    @abc.abstractmethod
    def run(self, records: Sequence[Record], watched: bool) -> tuple[Any, dict[str, np.ndarray]]:
        """The raw outputs for one batch, and its layers as vectors where they are watched."""

    def plain_run(self, record: Record) -> Any:
        """The raw outputs for one record, by the shortest way there is."""
        return self.run([record], False)[0]

    def numbers(self, outputs: Any) -> Float[np.ndarray, "record *output"]:
        """Raw outputs as an array."""
        return np.asarray(outputs)

    def answer(self, records: Sequence[Record]) -> list[Any]:
        return [a for part in self._chunks(records) for a in self._read(self.run(part, False)[0],
                                                                        len(part))]  # fmt: skip

    def activations(self, records: Sequence[Record]) -> dict[str, np.ndarray]:
        self.need("activations", "activations")
        heard: dict[str, list[np.ndarray]] = {}
        for part in self._chunks(records):
            for layer, array in self.run(part, True)[1].items():
                heard.setdefault(layer, []).append(array)
        return {layer: np.concatenate(arrays) for layer, arrays in heard.items()}

    def log_probabilities(
        self, records: Sequence[Record], answers: Sequence[Any]
    ) -> Float[np.ndarray, " record"]:
        self.need("probability", "log-probabilities")
        for answer in answers:
            if answer not in self.labels:
                raise unknown(f"answer of {self.name}", str(answer), self.labels)
        parts = [self._logits(self.run(part, False)[0]) for part in self._chunks(records)]
        each = log_softmax(np.concatenate(parts))
        return each[np.arange(len(records)), [self.labels.index(a) for a in answers]]

    def parity(self, records: Sequence[Record]) -> Parity:
        """The largest difference between batches with layers watched, and plain runs one by one."""
        watched = "activations" in self.abilities
        together, alone, said, plainly = [], [], [], []
        for part in self._chunks(records):
            outputs = self.run(part, watched)[0]
            together.append(self._rows(outputs, len(part)))
            said += self._read(outputs, len(part))
            for record in part:
                single = self.plain_run(record)
                alone.append(self._rows(single, 1))
                plainly += self._read(single, 1)
        return compared(together, alone, said, plainly)

    def _read(self, outputs: Any, rows: int) -> list[Any]:
        if self.labels:
            return [self.labels[i] for i in self._logits(outputs).argmax(axis=1)]
        if self.decode is not None:
            answers = list(self.decode(outputs))
            if len(answers) != rows:
                raise InvalidRequest(
                    f"decode of {self.name} gave {len(answers)} answers for {rows} records"
                )
            return answers
        array = self.numbers(outputs)
        return (array.reshape(rows) if array.size == rows else array).tolist()

    def _logits(self, outputs: Any) -> Float[np.ndarray, "record label"]:
        array = self.numbers(outputs)
        if array.ndim != 2 or array.shape[1] != len(self.labels):
            raise InvalidRequest(
                f"outputs of {self.name} have shape {array.shape}: expected one column for each of "
                f"the {len(self.labels)} labels"
            )
        return array

    def _rows(self, outputs: Any, rows: int) -> Float[np.ndarray, "record number"]:
        array = np.asarray(self.numbers(outputs), float)
        if array.ndim == 0 or len(array) != rows:
            raise InvalidRequest(
                f"outputs of {self.name} have shape {array.shape}: expected {rows} rows"
            )
        return array.reshape(rows, -1)

    def _chunks(self, records: Sequence[Record]) -> Iterator[Sequence[Record]]:
        for begin in range(0, len(records), self.batch):
            yield records[begin : begin + self.batch]


class FunctionModel(Batched):
    """A pure JAX function of inputs, or of parameters and inputs.

    `encode` turns records into arrays (any tree of them, one row a record). The function returns
    outputs; with `layers=True` it returns outputs and a dictionary of activations. It is compiled
    once: the last batch is filled up to the size of the others, so rows must not see each other.

        model = FunctionModel(apply, encode, params=params, labels=["red", "blue"])
    """

    pooling = "mean over all axes between the first (records) and the last (units)"

    def __init__(
        self, function: Callable[..., Any], encode: Encode, *, params: Any = None,
        decode: Decode | None = None, labels: Sequence[str] = (), layers: bool = False,
        batch: int = 64, compile: bool = True, name: str = "function",
    ):  # fmt: skip
        super().__init__(name=name, batch=batch, labels=labels, decode=decode, layers=layers)
        self.function, self.encode, self.params = function, encode, params
        self.layers, self.compile = layers, compile
        self._compiled: Callable[..., Any] | None = None
        if params is not None:
            self.abilities = self.abilities | {"weights"}

    def run(self, records: Sequence[Record], watched: bool) -> tuple[Any, dict[str, np.ndarray]]:
        import jax

        if self._compiled is None:
            self._compiled = jax.jit(self.function) if self.compile else self.function
        rows, filled = len(records), self.batch if self.compile else len(records)
        inputs = jax.tree.map(lambda leaf: _filled(leaf, rows, filled), self.encode(records))
        outputs, layers = self._split(self._call(self._compiled, inputs))
        cut = jax.tree.map(lambda leaf: leaf[:rows], outputs)
        found = {n: pooled(n, np.asarray(a)[:rows], rows) for n, a in layers.items()}
        return cut, found if watched else {}

    def plain_run(self, record: Record) -> Any:
        return self._split(self._call(self.function, self.encode([record])))[0]

    def numbers(self, outputs: Any) -> np.ndarray:
        import jax

        leaves = jax.tree.leaves(outputs)
        return np.asarray(leaves[0] if len(leaves) == 1 else np.concatenate(
            [np.asarray(leaf).reshape(len(leaf), -1) for leaf in leaves], axis=1))  # fmt: skip

    def weights(self) -> dict[str, np.ndarray]:
        import jax

        self.need("weights", "weights")
        paths, _ = jax.tree_util.tree_flatten_with_path(self.params)
        return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in paths}

    def _call(self, function: Callable[..., Any], inputs: Any) -> Any:
        return function(inputs) if self.params is None else function(self.params, inputs)

    def _split(self, returned: Any) -> tuple[Any, Mapping[str, Any]]:
        if not self.layers:
            return returned, {}
        well = isinstance(returned, tuple) and len(returned) == 2
        if not well or not isinstance(returned[1], Mapping):
            raise InvalidRequest(
                f"{self.name} was said to show its layers: expected it to return (outputs, "
                f"{{layer: array}}), got a {type(returned).__name__}"
            )
        return returned


def compared(
    together: Sequence[np.ndarray], alone: Sequence[np.ndarray], said: Sequence[Any],
    plainly: Sequence[Any],
) -> Parity:  # fmt: skip
    """Outputs of batches beside those of records one by one, row by row."""
    rows = [row for part in together for row in part]
    singles = [row for part in alone for row in part]
    largest = scale = 0.0
    for one, other in zip(rows, singles, strict=True):
        if one.shape != other.shape:  # such as texts padded to the longest of a batch
            size = min(one.size, other.size)
            one, other = one[:size], other[:size]
        far = np.abs(one - other)[np.isfinite(one) | np.isfinite(other)]
        largest = max(largest, float(np.max(far, initial=0.0)))
        scale = max(scale, float(np.max(np.abs(other[np.isfinite(other)]), initial=0.0)))
        if np.isnan(far).any():
            largest = float("inf")
    pairs = enumerate(zip(said, plainly, strict=True))
    return Parity(largest, scale, len(rows), tuple(i for i, (a, b) in pairs if not alike(a, b)))


def alike(one: Any, other: Any, tolerance: float = 1e-4) -> bool:
    """Whether two answers are the same, numbers up to rounding."""
    try:
        one, other = plain(one), plain(other)
    except TypeError:
        return type(one) is type(other)
    if isinstance(one, list) and isinstance(other, list):
        same = len(one) == len(other)
        return same and all(alike(a, b, tolerance) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[k], other[k], tolerance) for k in one)
    if isinstance(one, float) or isinstance(other, float):
        if not isinstance(one, int | float) or not isinstance(other, int | float):
            return False
        return bool(np.isclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True))
    return type(one) is type(other) and one == other


def log_softmax(logits: Float[np.ndarray, "row label"]) -> Float[np.ndarray, "row label"]:
    """Log-probabilities of logits.

    >>> np.exp(log_softmax(np.array([[0.0, 0.0]]))).tolist()
    [[0.5, 0.5]]
    """
    shifted = np.asarray(logits, float) - np.max(logits, axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _filled(leaf: Any, rows: int, wanted: int) -> np.ndarray:
    array = np.asarray(leaf)
    if array.ndim == 0 or len(array) != rows:
        raise InvalidRequest(f"encode gave shape {array.shape}: expected {rows} rows")
    return array if rows == wanted else np.concatenate([array, array[-1:].repeat(wanted - rows, 0)])
