"""What a PyTorch module says and what its layers hold on the way, on rows of inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from recombine.adapters._torch import ROOT, Held, Tensor
from recombine.errors import InvalidRequest, NotApplicable, unknown

ROWS = 4096  # looked at together
Inputs = tuple[np.ndarray, ...]


class Watched(NamedTuple):
    """Answers, and the outputs of layers with one row for each row of the inputs."""

    answers: Float[np.ndarray, "row output"]
    layers: dict[str, Float[np.ndarray, "row unit"]]


def watch(holder: Held, inputs: Inputs, layers: Sequence[str] = ()) -> Watched:
    """Named layers, or all that have weights but the one that is run last.

    Tokens and places of pictures are averaged. A layer that is run several times is there several
    times, as "name (2)" and so on.
    """
    names = _named(holder, layers)
    heard: dict[str, list[np.ndarray]] = {}
    answers = []
    for rows in _chunks(inputs):
        with _listening(holder, names, len(rows[0])) as outputs:
            answers.append(_answer(holder, rows, {}))
        for label, output in outputs.items():
            heard.setdefault(label, []).append(output)
    found = {label: np.concatenate(parts) for label, parts in heard.items()}
    if found and not layers:
        found.popitem()  # what is run last makes the answer
    if not found:
        raise NotApplicable(
            f"no hidden layer of {type(holder.module).__name__} was run: name some with layers="
        )
    first = np.concatenate(answers)
    if not np.allclose(first, answer(holder, inputs), rtol=1e-3, atol=1e-5):
        raise NotApplicable(
            f"{type(holder.module).__name__} answers the same inputs differently in evaluation "
            "mode: switch off what is drawn by chance"
        )
    return Watched(first, found)


def answer(
    holder: Held, inputs: Inputs, weights: Mapping[str, Tensor] | None = None
) -> Float[np.ndarray, "row output"]:
    """What the module says to each row, with other weights in the layers named."""
    return np.concatenate([_answer(holder, rows, weights or {}) for rows in _chunks(inputs)])


def as_inputs(given: Any, axes: int, what: str) -> Inputs:
    """Arrays (one, or a tuple with one for each argument) with so many axes in common, as rows."""
    arrays = tuple(np.asarray(one) for one in (given if isinstance(given, tuple) else (given,)))
    shapes = [array.shape for array in arrays]
    if not arrays or len({s[:axes] for s in shapes}) > 1 or min(len(s) for s in shapes) < axes:
        raise InvalidRequest(f"{what} of shapes {shapes}: expected the same first {axes} axes")
    if 0 in shapes[0][:axes]:
        raise InvalidRequest(f"{what} of shape {shapes[0]}: expected some")
    return tuple(array.reshape(-1, *array.shape[axes:]) for array in arrays)


def _named(holder: Held, wanted: Sequence[str]) -> list[str]:
    known = {name or ROOT for name, _ in holder.module.named_modules()}
    for name in wanted:
        if name not in known:
            raise unknown("layer", name, known)
    return list(wanted) or holder.chosen()


@contextmanager
def _listening(
    holder: Held, names: Sequence[str], rows: int
) -> Iterator[dict[str, Float[np.ndarray, "row unit"]]]:
    parts = {name or ROOT: part for name, part in holder.module.named_modules()}
    heard: dict[str, np.ndarray] = {}

    def listener(name: str) -> Any:
        def listen(part: Any, given: Any, output: Any) -> None:
            times = 1 + sum(label.partition(" (")[0] == name for label in heard)
            label = name if times == 1 else f"{name} ({times})"
            heard[label] = _pooled(holder, part, name, _tensor(output), rows)

        return listen

    with ExitStack() as hooks:
        for name in names:
            hooks.callback(parts[name].register_forward_hook(listener(name)).remove)
        yield heard


def _pooled(
    holder: Held, part: Any, name: str, output: Tensor, rows: int
) -> Float[np.ndarray, "row unit"]:
    if output is None or output.dim() < 2 or output.shape[0] != rows:
        given = "no tensor" if output is None else f"shape {tuple(output.shape)}"
        raise NotApplicable(f"layer {name} gives {given}: expected {rows} rows of units")
    output = output.detach().float()
    nn = holder.torch.nn
    if output.dim() == 3 and not isinstance(part, nn.Conv1d | nn.ConvTranspose1d):
        output = output.mean(dim=1)  # tokens come before units, places of pictures after
    return (output.flatten(2).mean(dim=2) if output.dim() > 2 else output).cpu().numpy().copy()


def _answer(
    holder: Held, rows: Inputs, weights: Mapping[str, Tensor]
) -> Float[np.ndarray, "row output"]:
    what = f"{type(holder.module).__name__} on inputs of shapes {[one.shape for one in rows]}"
    with holder.torch.no_grad():
        given = [holder.tensor(one) for one in rows]
        said = _tensor(holder.call(what, lambda module: module(*given), weights=weights))
    if said is None or said.dim() < 1 or said.shape[0] != len(rows[0]):
        raise NotApplicable(f"{what} does not answer with a tensor that has a row for each")
    found = said.detach().double().reshape(len(rows[0]), -1).cpu().numpy()
    if not weights and not np.isfinite(found).all():
        raise NotApplicable(f"{what} answers with numbers that are not finite")
    return found


def _tensor(output: Any) -> Tensor | None:
    parts = output if isinstance(output, tuple | list) else (output,)
    return next((part for part in parts if hasattr(part, "detach")), None)


def _chunks(inputs: Inputs) -> Iterator[Inputs]:
    for begin in range(0, len(inputs[0]), ROWS):
        yield tuple(one[begin : begin + ROWS] for one in inputs)
