"""What a PyTorch module says and what its layers hold on the way, on rows of inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from recombine.adapters._torch import ROOT, Held, Tensor, in_short
from recombine.errors import InvalidRequest, NotApplicable, unknown

ROWS = 4096  # looked at together
Inputs = tuple[np.ndarray, ...]


class Watched(NamedTuple):
    """Answers, and the outputs of layers with one row for each row of the inputs."""

    answers: Float[np.ndarray, "row output"]
    layers: dict[str, Float[np.ndarray, "row unit"]]


class Layout(NamedTuple):
    """The shape of an output, and which axis has its units."""

    shape: tuple[int, ...]
    axis: int

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether another output can be read alike: its axes were not turned around, since the
        units are as many as here, or all else is."""
        here, there = list(self.shape), list(shape)
        if len(here) != len(there):
            return False
        return here.pop(self.axis) == there.pop(self.axis) or here == there


def watch(holder: Held, inputs: Inputs, layers: Sequence[str] = ()) -> Watched:
    """Named layers, or all that have weights but the one that is run last.

    Tokens and places of pictures are averaged. A part that does not say itself which axis its units
    are on has them where the last layer before it that does say has them. A layer that is run
    several times is there several times, as "name (2)" and so on.
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
    silent = [name for name in layers if name not in found]
    if silent:
        raise NotApplicable(
            f"layer {in_short(silent)} of {type(holder.module).__name__} was not run by itself: "
            "name the part that it is run by, or another"
        )
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
    arrays = tuple(as_array(one, what) for one in (given if isinstance(given, tuple) else (given,)))
    shapes = [array.shape for array in arrays]
    if not arrays or len({s[:axes] for s in shapes}) > 1 or min(len(s) for s in shapes) < axes:
        raise InvalidRequest(f"{what} of shapes {shapes}: expected the same first {axes} axes")
    if 0 in shapes[0][:axes]:
        raise InvalidRequest(f"{what} of shape {shapes[0]}: expected some")
    return tuple(array.reshape(-1, *array.shape[axes:]) for array in arrays)


def as_array(given: Any, what: str) -> np.ndarray:
    """Numbers as an array; a tensor may be anywhere, in any precision, and ask for a gradient."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = given.float() if given.dtype.itemsize < 4 and given.is_floating_point() else given
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise InvalidRequest(f"{what} have rows of unequal length: expected an array") from error
    if array.dtype.kind not in "biufc":
        raise InvalidRequest(f"{what} of type {array.dtype}: expected an array of numbers")
    return array


def _named(holder: Held, wanted: Sequence[str]) -> list[str]:
    if isinstance(wanted, str):
        raise InvalidRequest(f"layers={wanted!r}: expected names, such as {(wanted,)!r}")
    known = {name or ROOT for name, _ in holder.module.named_modules()}
    for name in wanted:
        if name not in known:
            raise unknown("layer", name, known)
    return list(wanted) or holder.chosen()


@contextmanager
def _listening(
    holder: Held, names: Sequence[str], rows: int
) -> Iterator[dict[str, Float[np.ndarray, "row unit"]]]:
    heard: dict[str, np.ndarray] = {}
    layouts: list[Layout] = []  # of the layers run so far
    nn = holder.torch.nn

    def listener(name: str) -> Any:
        def listen(part: Any, given: Any, output: Any) -> None:
            output = _tensor(output)
            layouts.extend(_stated(nn, part, output))
            if name in names:
                times = 1 + sum(label.partition(" (")[0] == name for label in heard)
                label = name if times == 1 else f"{name} ({times})"
                heard[label] = _pooled(name, output, rows, layouts)

        return listen

    with ExitStack() as hooks:
        for name, part in holder.module.named_modules():
            # Only where there is something to hear: parts that are scripted take no hooks.
            if (name or ROOT) in names or isinstance(part, (*_second(nn), *_last(nn))):
                hooks.callback(part.register_forward_hook(listener(name or ROOT)).remove)
        yield heard


def _second(nn: Any) -> tuple[type, ...]:
    """Layers whose units are on the second axis."""
    return (
        nn.Conv1d, nn.Conv2d, nn.Conv3d,
        nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
        nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm,
        nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.GroupNorm,
    )  # fmt: skip


def _last(nn: Any) -> tuple[type, ...]:
    """Layers whose units are on the last axis."""
    return nn.Linear, nn.LayerNorm, nn.Embedding, nn.MultiheadAttention, nn.RNNBase


def _stated(nn: Any, part: Any, output: Tensor) -> list[Layout]:
    """What a layer says, by its kind, of its own output; nothing where the kind does not tell."""
    if output is None or output.dim() < 3:
        return []
    if isinstance(part, _second(nn)):
        return [Layout(tuple(output.shape), 1)]
    # A norm over several axes does not tell which has the units, and some that are derived from it
    # turn the axes around: then it has another size than the last axis.
    other_norm = isinstance(part, nn.LayerNorm) and part.normalized_shape != output.shape[-1:]
    if isinstance(part, _last(nn)) and not other_norm:
        return [Layout(tuple(output.shape), -1)]
    return []


def _pooled(
    name: str, output: Tensor, rows: int, layouts: Sequence[Layout]
) -> Float[np.ndarray, "row unit"]:
    if output is None or output.dim() < 2 or output.shape[0] != rows:
        given = "no tensor" if output is None else f"shape {tuple(output.shape)}"
        raise NotApplicable(f"layer {name} gives {given}: expected {rows} rows of units")
    units = output.detach().float()
    if units.dim() > 2:
        shape = tuple(units.shape)
        if not layouts or not layouts[-1].fits(shape):
            raise NotApplicable(
                f"layer {name} gives shape {shape}, and the layers run before it do not tell "
                "whether its units are on the second axis or on the last: name a layer with "
                "weights, a linear one or a convolution"
            )
        units = units.movedim(layouts[-1].axis, 1).flatten(2).mean(dim=2)
    return units.cpu().numpy().copy()


def _answer(
    holder: Held, rows: Inputs, weights: Mapping[str, Tensor]
) -> Float[np.ndarray, "row output"]:
    what = f"{type(holder.module).__name__} on inputs of shapes {[one.shape for one in rows]}"
    with holder.torch.no_grad():
        given = [holder.tensor(one) for one in rows]
        said = holder.call(what, lambda module: module(*given), weights=weights)
    found = _tensor(said)
    if found is None or found.dim() < 1 or found.shape[0] != len(rows[0]):
        given = type(said).__name__ if found is None else f"shape {tuple(found.shape)}"
        raise NotApplicable(
            f"{what} answers with {given}: expected a tensor with a row for each, or a tuple that "
            "begins with one; a module around it can pick it out"
        )
    numbers = found.detach().double().reshape(len(rows[0]), -1).cpu().numpy()
    if not weights and not np.isfinite(numbers).all():
        raise NotApplicable(f"{what} answers with numbers that are not finite")
    return numbers


def _tensor(output: Any) -> Tensor | None:
    parts = output if isinstance(output, tuple | list) else (output,)
    return next((part for part in parts if hasattr(part, "detach")), None)


def _chunks(inputs: Inputs) -> Iterator[Inputs]:
    for begin in range(0, len(inputs[0]), ROWS):
        yield tuple(one[begin : begin + ROWS] for one in inputs)
