"""A user's adapter in a process of its own, asked in lines of JSON, ended when it hangs."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recombine.adapters.models import (
    OwnModel,
    Parity,
    Record,
    Unanswered,
    load_model,
    placed,
    plain,
)
from recombine.children.serving import serve, told
from recombine.children.talk import TalkFailed, python_child
from recombine.errors import InvalidRequest, NotApplicable, RecombineError
from recombine.live.client import TALLY

if TYPE_CHECKING:
    from recombine.live.asking import Estimate


class AdapterFailed(RecombineError):
    """A user's adapter did not do what was asked; `kind` says how.

    "raised", "hung", "died", "garbled" and "refused" concern the records that were asked;
    "stopped" concerns all, such as calls that are spent.
    """

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


class Isolated(OwnModel):
    """The model at FILE.py:NAME, loaded and asked in a child process.

    A batch that takes longer than `timeout` seconds ends the process, and the next one starts it
    again; a cap on calls goes on from what was spent. `start` is the time it may take to load.

        with Isolated("my_adapter.py:model") as model:
            print(model.name, model.answer(records))
    """

    def __init__(self, place: str | Path, *, timeout: float = 60.0, start: float = 300.0):
        path, name = placed(place)
        self.place, self.timeout, self.start = f"{path.resolve()}:{name}", timeout, start
        self._talk = python_child("recombine.adapters.worker:serve_model")
        self._folder = tempfile.TemporaryDirectory(prefix="recombine-")
        self._talk.variables[TALLY] = self._folder.name
        try:
            hello = self._begin()
        except BaseException:
            self.close()
            raise
        self.name, self.pooling, self.free = hello["name"], hello["pooling"], hello["free"]
        self.recorded = hello["recorded"]
        self.abilities = frozenset(hello["abilities"])
        self._patience: list[float] = hello["patience"]

    def answer(self, records: Sequence[Record]) -> list[Any]:
        reply = whole(self.replied(records))
        if reply["refused"]:
            place, why = next(iter(reply["refused"].items()))
            raise AdapterFailed("refused", f"record {int(place) + 1}: {why}")
        if reply["wrong"]:
            place, what = next(iter(reply["wrong"].items()))
            raise AdapterFailed("raised", f"record {int(place) + 1}: {unlike(what)}")
        return reply["answers"]

    def replied(self, records: Sequence[Record]) -> dict[str, Any]:
        """The answers to one batch, with which are no answers and which records were changed.

        Where asking ended early, "stopped" says why, and the answers are those given before.
        """
        return self._ask("answer", records)

    def activations(self, records: Sequence[Record]) -> dict[str, np.ndarray]:
        from recombine.data.arrays import read_arrays

        self.need("activations", "activations")
        reply = self._ask("activations", records, folder=self._folder.name)
        found = {}
        for layer, file in reply["layers"].items():
            path = Path(self._folder.name) / file
            found[layer] = read_arrays(path)[path.stem]
            path.unlink()
        return verified(found, len(records))

    def log_probabilities(self, records: Sequence[Record], answers: Sequence[Any]) -> np.ndarray:
        self.need("log-probabilities", "log-probabilities")
        found = np.array(self._ask("log-probabilities", records, answers=list(answers))["values"])
        if found.shape != (len(records),) or np.isnan(found).any():
            raise AdapterFailed(
                "raised", f"log-probabilities of shape {found.shape} or not numbers"
            )
        return found

    def cost(self, records: Sequence[Record]) -> Estimate | None:
        from recombine.live.asking import Estimate

        reply = self._ask("cost", records)["cost"]
        return None if reply is None else Estimate(**reply)

    def parity(self, records: Sequence[Record]) -> Parity | None:
        reply = self._ask("parity", records)["parity"]
        otherwise = () if reply is None else tuple(reply.pop("otherwise"))
        return None if reply is None else Parity(otherwise=otherwise, **reply)

    def patience(self, records: int) -> float:
        first, each = self._patience
        return first + each * records

    def close(self) -> None:
        """Ends the process."""
        self._talk.close()
        self._folder.cleanup()

    def __enter__(self) -> Isolated:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> dict[str, Any]:
        hello = self._told({"place": self.place, "path": sys.path}, self.start)
        if "failed" in hello:
            raise InvalidRequest(hello["failed"])
        return hello

    def _ask(self, what: str, records: Sequence[Record], **further: Any) -> dict[str, Any]:
        if not self._talk.running:
            self._begin()
        limit = max(self.timeout, self.patience(len(records)))
        request = {"do": what, "records": [dict(r) for r in records], **further}
        return succeeded(self._told(request, limit))

    def _told(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        try:
            return self._talk.ask(request, limit)
        except TalkFailed as error:
            raise AdapterFailed(error.kind, str(error).replace("program", "process")) from None


def succeeded(reply: dict[str, Any]) -> dict[str, Any]:
    """A reply of `respond`, or the error it tells of."""
    if "failed" not in reply:
        return reply
    if reply["kind"] == "not applicable":
        raise NotApplicable(reply["failed"])
    raise AdapterFailed(reply["kind"], reply["failed"])


def whole(reply: dict[str, Any]) -> dict[str, Any]:
    """A reply with answers, unless asking ended before all of them were there."""
    if reply["stopped"]:
        raise AdapterFailed("stopped", reply["stopped"])
    return reply


def verified(layers: Mapping[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """Activations with one finite vector for each record, or an error that names the record."""
    if not layers:
        raise AdapterFailed("raised", "the adapter offers activations and gave no layer")
    for layer, array in layers.items():
        if array.ndim != 2 or len(array) != rows:
            raise AdapterFailed(
                "raised", f"layer {layer!r} has shape {array.shape}, expected {rows} rows of units"
            )
        if len(bad := np.flatnonzero(~np.isfinite(array).all(axis=1))):
            raise AdapterFailed("raised", f"record {bad[0] + 1}: layer {layer!r} is not finite")
    return dict(layers)


def serve_model() -> None:
    """Runs in the child: loads the model, and answers what is asked of it."""
    serve(_load, lambda model, request: json.dumps(respond(model, request)))


def _load(request: dict[str, Any]) -> tuple[OwnModel, dict[str, Any]]:
    model = load_model(request["place"])
    first = model.patience(0)
    return model, {
        "name": model.name, "abilities": sorted(model.abilities), "pooling": model.pooling,
        "free": bool(model.free), "recorded": bool(model.recorded),
        "patience": [first, (model.patience(1024) - first) / 1024],
    }  # fmt: skip


def respond(model: OwnModel, request: dict[str, Any]) -> dict[str, Any]:
    """What comes of one request: what was asked for, or how the adapter failed."""
    from recombine.live.client import AskingError

    records = request["records"]
    try:
        if request["do"] == "answer":
            return _answered(model, records)
        if request["do"] == "activations":
            files = {}
            for number, (layer, array) in enumerate(model.activations(records).items()):
                files[layer] = f"{number}.npy"
                np.save(Path(request["folder"]) / files[layer], np.asarray(array, float))
            return {"layers": files}
        if request["do"] == "log-probabilities":
            values = model.log_probabilities(records, request["answers"])
            return {"values": np.asarray(values, float).tolist()}
        if request["do"] == "cost":
            return {"cost": _estimated(model, records)}
        parity = model.parity(records)
        return {"parity": None if parity is None else asdict(parity)}
    except AskingError as error:
        return {"failed": str(error), "kind": "stopped"}
    except NotApplicable as error:
        return {"failed": str(error), "kind": "not applicable"}
    except RecombineError as error:
        return {"failed": str(error), "kind": "raised"}
    except BaseException as error:  # also those that would end the process
        return {"failed": f"the adapter raised {told(error)}", "kind": "raised"}


def _estimated(model: OwnModel, records: list[dict[str, Any]]) -> dict[str, Any] | None:
    cost = model.cost(records)
    if cost is None:
        return None
    from recombine.live.asking import Estimate

    if not isinstance(cost, Estimate):
        raise AdapterFailed(
            "raised", f"cost(records) returned a {type(cost).__name__}, expected a "
            "recombine.live.asking.Estimate or None",
        )  # fmt: skip
    return asdict(cost)


def _answered(model: OwnModel, records: list[dict[str, Any]]) -> dict[str, Any]:
    from recombine.adapters.endpoints import CutShort

    before, stopped = deepcopy(records), ""
    try:
        given = model.answer(records)
    except CutShort as error:
        given, stopped = error.answers, str(error)
    if isinstance(given, str | bytes | Mapping) or not hasattr(given, "__len__"):
        raise AdapterFailed(
            "raised", f"the adapter answered with a {type(given).__name__}, expected a list of "
            f"{len(before)} answers",
        )  # fmt: skip
    if len(given) != len(before):
        raise AdapterFailed(
            "raised", f"the adapter gave {len(given)} answers, expected {len(before)}"
        )
    answers: list[Any] = []
    wrong: dict[str, str] = {}
    refused: dict[str, str] = {}
    for place, answer in enumerate(given):
        if isinstance(answer, Unanswered):
            answers.append(None)
            if answer.why:
                refused[str(place)] = answer.why
            continue
        try:
            answers.append(plain(answer))
            if not _finite(answers[-1]):
                wrong[str(place)] = str(answers[-1])
        except TypeError as error:
            answers.append(None)
            wrong[str(place)] = f"a {error}"
    changed: dict[str, str] = {}
    for place, (old, new) in enumerate(zip(before, records, strict=False)):
        keys = list(dict.fromkeys([*old, *new]))
        # Text, because NaN is not equal to itself and arrays are not one truth value.
        other = [k for k in keys if k not in old or k not in new or repr(old[k]) != repr(new[k])]
        if other:
            changed[str(place)] = f"column {str(other[0])!r}"
    for place in range(len(records), len(before)):
        changed[str(place)] = "the record is gone from the list"
    return {
        "answers": answers, "wrong": wrong, "changed": changed, "refused": refused,
        "stopped": stopped,
    }  # fmt: skip


def _finite(answer: Any) -> bool:
    if isinstance(answer, list):
        return all(_finite(one) for one in answer)
    if isinstance(answer, dict):
        return all(_finite(one) for one in answer.values())
    return not isinstance(answer, float) or math.isfinite(answer)


def unlike(what: str) -> str:
    """The sentence for what is no answer."""
    return (
        f"the answer is {what}, expected a label, a finite number, text, or a list or mapping of "
        "these"
    )
