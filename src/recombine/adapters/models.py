"""Your own model: the one protocol that every framework is adapted to, and how one is loaded."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from recombine.children.serving import imported, named, told
from recombine.errors import InvalidRequest, NotApplicable, RecombineError, unknown
from recombine.instruments.subject import ABILITIES, Subject

if TYPE_CHECKING:
    from recombine.live.asking import Estimate

Record = Mapping[str, Any]
ROW = "row"  # where a record says which row of its file it is, counted from 1
METHODS = {
    "answer": "answer", "activations": "activations", "log-probabilities": "log_probabilities",
    "weights": "weights", "gradients": "gradients",
}  # fmt: skip
# What each instrument asks of a model, and what it tells.
INSTRUMENTS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "score by novelty": (("answer",), "how right answers fall off with new pairs and triples"),
    "swap": (("answer",), "change one factor: its answer must follow"),
    "invariance": (("answer",), "change one factor: no other answer may follow"),
    "probe": (("activations",), "which layers tell the values of each factor"),
    "pair probe": (("activations",), "which layers tell conjunctions of two factors"),
    "probability": (("log-probabilities",), "whether probable answers win over right ones"),
    "structure": (("weights", "gradients"), "subnetworks and fracture of a PyTorch module"),
}
# No command runs these on a user's model: what a script calls instead.
FROM_PYTHON: Mapping[str, str] = {
    "probability": "model.log_probabilities(records, answers)",
    "structure": "recombine.adapters.inspect_module",
}
CHANGING = ("swap", "invariance")  # ask about records that are in no file


@dataclass(frozen=True)
class Parity:
    """How far batches with watched layers are from plain runs, one record at a time.

    >>> print(Parity(2e-7, 3.5, 20))
    parity: largest difference 2e-07 over 20 records (outputs up to 3.5)
    """

    largest: float
    scale: float
    records: int
    otherwise: tuple[int, ...] = ()
    tolerance: float = 1e-4

    @property
    def fine(self) -> bool:
        """Whether no output differs by more than rounding, and no answer at all."""
        return self.largest <= self.tolerance * (1 + self.scale) and not self.otherwise

    def __str__(self) -> str:
        told = (
            f"parity: largest difference {self.largest:.2g} over {self.records} records "
            f"(outputs up to {self.scale:.2g})"
        )
        if self.otherwise:
            told += f"; record {self.otherwise[0] + 1} is answered otherwise alone"
        return told if self.fine else f"{told}: batches or hooks change what the model says"


@dataclass(frozen=True)
class Unanswered:
    """What stands in place of an answer that one record alone did not get, and why."""

    why: str = ""


class OwnModel(Subject):
    """A model that answers records, the rows of a user's file by column.

    A subclass states its `abilities` and has the methods that go with them. `pooling` says how
    activations came to have one vector a record. `free` is False where asking costs money.

    >>> class Echo(OwnModel):
    ...     name, abilities = "echo", frozenset({"answer"})
    ...     def answer(self, records):
    ...         return [record["colour"] for record in records]
    >>> Echo().answer([{"colour": "red"}])
    ['red']
    """

    name: str = "model"
    pooling: str = ""
    place: str | None = None  # FILE.py:NAME, where it was loaded from
    free: bool = True
    recorded: bool = False  # it only repeats what it said to the rows of a file

    def answer(self, records: Sequence[Record]) -> list[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One answer for each record: a label, a number, text, a list of these, or a mapping of
        factors to what it says of each."""
        raise NotApplicable(f"{self.name} cannot answer")

    def activations(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, records: Sequence[Record]
    ) -> dict[str, Float[np.ndarray, "record unit"]]:
        """Hidden vectors by layer name, one row for each record."""
        raise NotApplicable(f"{self.name} does not show its activations")

    def log_probabilities(
        self, records: Sequence[Record], answers: Sequence[Any]
    ) -> Float[np.ndarray, " record"]:
        """How probable the model finds an answer to each record."""
        raise NotApplicable(f"{self.name} does not tell log-probabilities")

    def cost(self, records: Sequence[Record]) -> Estimate | None:
        """What asking would take in questions, tokens and money, where it takes any."""
        return None

    def parity(self, records: Sequence[Record]) -> Parity | None:
        """How far its batches are from plain runs one by one, where that can be told."""
        return None

    def patience(self, records: int) -> float:
        """Seconds that so many records may take before the model counts as hanging, if known."""
        return 0.0


class Wrapped(OwnModel):
    """Any object with `answer`, and with what else of the protocol it has."""

    def __init__(self, thing: Any, name: str = "model"):
        self.thing = thing
        self.name = str(getattr(thing, "name", name))
        self.pooling, self.free = str(getattr(thing, "pooling", "")), getattr(thing, "free", True)
        self.recorded = bool(getattr(thing, "recorded", False))
        stated = getattr(thing, "abilities", None)
        if stated is None:
            stated = [a for a, method in METHODS.items() if callable(getattr(thing, method, None))]
        self.abilities = frozenset([stated] if isinstance(stated, str) else stated)
        for ability in self.abilities:
            if ability not in ABILITIES:
                raise unknown(f"ability of {self.name}", str(ability), ABILITIES)
            if not callable(getattr(thing, METHODS[ability], None)):
                raise InvalidRequest(
                    f"{self.name} states the ability {ability!r} and has no method "
                    f"{METHODS[ability]}"
                )

    def answer(self, records: Sequence[Record]) -> list[Any]:
        return self.thing.answer(records)

    def activations(self, records: Sequence[Record]) -> dict[str, np.ndarray]:
        self.need("activations", "activations")
        given = self.thing.activations(records)
        if not isinstance(given, Mapping):
            raise InvalidRequest(
                f"activations of {self.name} are a {type(given).__name__}, expected a dictionary "
                "of layer name to array"
            )
        return {str(k): pooled(str(k), v, len(records)) for k, v in given.items()}

    def log_probabilities(self, records: Sequence[Record], answers: Sequence[Any]) -> np.ndarray:
        self.need("log-probabilities", "log-probabilities")
        return np.asarray(self.thing.log_probabilities(records, answers), float)

    def weights(self) -> dict[str, np.ndarray]:
        self.need("weights", "weights")
        return self.thing.weights()

    def cost(self, records: Sequence[Record]) -> Estimate | None:
        return self.thing.cost(records) if hasattr(self.thing, "cost") else None


class PerRecord(OwnModel):
    """A function of one record.

    >>> PerRecord(lambda record: record["a"] + record["b"]).answer([{"a": 1, "b": 2}])
    [3]
    """

    abilities = frozenset({"answer"})

    def __init__(self, function: Callable[[Record], Any], name: str = "model"):
        self.function, self.name = function, name

    def answer(self, records: Sequence[Record]) -> list[Any]:
        return [self.function(record) for record in records]


def load_model(place: str | Path | object) -> OwnModel:
    """The model at FILE.py:NAME (NAME is `model` by default), or an object taken as a model.

    NAME is a function without arguments that returns an adapter, an object with `answer(records)`,
    or a function of one record. The file's folder is added to the end of the import path, so that
    it may import its neighbours.

        model = load_model("my_adapter.py:model")
        print(model.name, sorted(model.abilities))
    """
    if not isinstance(place, str | Path):
        return as_model(place, type(place).__name__)
    path, name = placed(place)
    model = as_model(named(imported(path), name), name)
    # A user's class may be frozen; it is asked for once and always has the same place.
    object.__setattr__(model, "place", f"{path.resolve()}:{name}")
    return model


def placed(place: str | Path) -> tuple[Path, str]:
    """The file and the name of FILE.py:NAME, checked without running anything."""
    text = str(place)
    file, colon, name = text.rpartition(":")
    if not colon or text.endswith(".py"):
        file, name = text, "model"
    path = Path(file).expanduser()
    if path.suffix != ".py" or not name.isidentifier():
        raise InvalidRequest(
            f"{text!r}: expected a file of Python and a name in it, such as my_adapter.py:model "
            "(recombine adapt --init torch prints one)"
        )
    if not path.is_file():
        raise InvalidRequest(
            f"there is no file {path}: recombine adapt --init torch > {path} begins one"
        )
    return path, name


def as_model(thing: Any, name: str = "model") -> OwnModel:
    """Anything that can be taken as a model: an adapter, an object with `answer`, a function."""
    if isinstance(thing, OwnModel):
        return thing
    kinds = [kind for kind in type(thing).__mro__ if kind.__module__.startswith("torch.nn")]
    if kinds:
        raise InvalidRequest(
            f"{name} is a bare {type(thing).__name__}: wrap it, as in TorchModel({name}, encode, "
            "labels=[...]) (recombine adapt --init torch)"
        )
    if not isinstance(thing, type) and callable(getattr(thing, "answer", None)):
        return Wrapped(thing, name)
    needed = _needed(thing)
    if needed == 0:
        try:
            made = thing()
        except RecombineError:
            raise
        except (Exception, SystemExit) as error:
            raise InvalidRequest(f"{name}() raised {told(error)}") from error
        if isinstance(made, OwnModel) or hasattr(made, "answer") or _needed(made) == 1:
            return as_model(made, name)
        thing = made
    elif needed == 1 and not isinstance(thing, type):
        return PerRecord(thing, name)
    what = f"{name}() returned a" if needed == 0 else f"{name} is a"
    raise InvalidRequest(
        f"{what} {type(thing).__name__}: expected an adapter (recombine.adapters), an object with "
        "answer(records), or a function of one record"
    )


def instruments_for(abilities: frozenset[str], recorded: bool = False) -> dict[str, str]:
    """For each instrument why it does not apply, or "" where it does.

    A `recorded` model cannot be asked about records that were changed.

    >>> instruments_for(frozenset({"answer"}))["probe"]
    'needs activations, which the model does not offer'
    """
    found = {}
    for name, (needs, _) in INSTRUMENTS.items():
        missing = [need for need in needs if need not in abilities]
        why = f"needs {' and '.join(missing)}, which the model does not offer"
        if recorded and name in CHANGING:
            why, missing = "needs a model to ask; this one holds answers given before", [name]
        found[name] = why if missing else ""
    return found


def pooled(layer: str, given: Any, rows: int) -> Float[np.ndarray, "record unit"]:
    """A layer as one vector a record: axes between the first and the last are averaged."""
    try:
        raw = np.asarray(given)
        array = None if raw.dtype.kind == "c" else np.asarray(raw, float)
    except (TypeError, ValueError):
        raw = array = None
    if array is None or array.ndim == 0 or len(array) != rows:
        kind = type(given).__name__ if raw is None else f"of type {raw.dtype}"
        shape = kind if array is None else f"of shape {array.shape}"
        raise InvalidRequest(f"layer {layer!r} is {shape}: expected {rows} rows of numbers")
    if array.ndim > 2:
        array = array.mean(axis=tuple(range(1, array.ndim - 1)))
    return array.reshape(rows, -1)


def plain(answer: Any) -> Any:
    """An answer as plain text, number, truth value, list or mapping of these, else a TypeError.

    >>> plain(np.float32(0.5)), plain(np.arange(2))
    (0.5, [0, 1])
    """
    if isinstance(answer, np.generic | np.ndarray) or hasattr(answer, "detach"):
        answer = answer.tolist()
    if isinstance(answer, str | bool):
        return answer
    if isinstance(answer, numbers.Integral):
        if (bits := int(answer).bit_length()) > 1024:  # larger than any floating-point number
            raise TypeError(f"whole number of {bits} bits")
        return int(answer)
    if isinstance(answer, numbers.Real):
        return float(answer)
    if isinstance(answer, Mapping):
        return {str(name): plain(one) for name, one in answer.items()}
    if isinstance(answer, set | frozenset):
        answer = sorted(answer, key=str)
    if isinstance(answer, list | tuple):
        return [plain(one) for one in answer]
    raise TypeError(type(answer).__name__)


def _needed(thing: Any) -> int | None:
    """How many arguments a call must give, or None where it cannot be called."""
    if not callable(thing):
        return None
    try:
        given = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in given)
