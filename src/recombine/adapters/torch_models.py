"""Your own PyTorch module as a model of records: batches, named layers, no weight changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from recombine.adapters._torch import ROOT, Held, Module, Tensor, held
from recombine.adapters._torch_watch import _listening
from recombine.adapters.functions import Batched, Decode, Encode
from recombine.adapters.models import Parity, Record
from recombine.errors import InvalidRequest, unknown


class StillModule(Batched):
    """A module that is only looked at: evaluation mode, no gradients, buffers put back.

    Every call notices a weight that was written to; the parity check also compares a sum over all
    weights and buffers.
    """

    def __init__(
        self, module: Module, *, name: str, batch: int, labels: Sequence[str] = (),
        decode: Decode | None = None,
    ):  # fmt: skip
        super().__init__(name=name, batch=batch, labels=labels, decode=decode)
        self.module, self.holder = module, Held(module)
        self.torch = self.holder.torch
        self.abilities = self.abilities | {"weights", "gradients"}

    def weights(self) -> dict[str, np.ndarray]:
        return {n: p.detach().float().cpu().numpy() for n, p in self.module.named_parameters()}

    def numbers(self, outputs: Any) -> np.ndarray:
        tensor = first_tensor(outputs)
        if tensor is None:
            raise InvalidRequest(
                f"{self.name} gives a {type(outputs).__name__} without a tensor: expected outputs "
                "with a row for each record"
            )
        return tensor.detach().float().cpu().numpy()

    def parity(self, records: Sequence[Record]) -> Parity:
        with held(self.module):  # refuses if a sum over its weights has changed
            return super().parity(records)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Evaluation mode and no gradients; weights that were written to are an error."""
        modes = {part: part.training for part in self.module.modules()}
        before = self._written()
        self.module.eval()
        try:
            with self.torch.no_grad():
                yield
        finally:
            for part, mode in modes.items():
                part.training = mode
        if changed := [name for name, n in self._written().items() if before.get(name) != n]:
            raise InvalidRequest(
                f"the weights {changed[0]} of {self.name} were written to while it answered: let "
                "encode, decode and the module only look"
            )

    @contextmanager
    def buffers_kept(self) -> Iterator[None]:
        """What a plain call counts or averages in buffers is forgotten."""
        kept = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        try:
            yield
        finally:
            for name, buffer in self.module.named_buffers():
                if name in kept and not self.torch.equal(buffer, kept[name]):
                    buffer.copy_(kept[name])

    def _written(self) -> dict[str, int]:
        return {
            name: 0 if p.is_inference() else p._version  # inference tensors count no writes
            for name, p in self.module.named_parameters()
        }


class TorchModel(StillModule):
    """A torch.nn.Module with a way in and a way out.

    `encode` turns records into a tensor, a tuple of them (one for each argument) or a dictionary
    (by name of the argument). `labels` or `decode` make the answers of its outputs. `layers` are
    names or patterns such as "encoder.*" whose outputs are its activations; by default every
    linear layer and convolution but the one that is run last.

        model = TorchModel(module, encode, labels=["red", "blue"], layers=["blocks.*.mlp"])
        print(model.parity(records))
    """

    pooling = "mean over tokens, or over places of a picture"

    def __init__(
        self, module: Module, encode: Encode, decode: Decode | None = None, *,
        labels: Sequence[str] = (), layers: Sequence[str] = (), batch: int = 64,
        name: str | None = None,
    ):  # fmt: skip
        super().__init__(
            module, name=name or type(module).__name__, batch=batch, labels=labels, decode=decode
        )
        self.encode, self.layers = encode, tuple(layers)
        self.watched = _matching(module, self.layers) if layers else list(self.holder.layers)
        if not self.watched:
            self.abilities = self.abilities - {"activations"}

    def run(self, records: Sequence[Record], watched: bool) -> tuple[Any, dict[str, np.ndarray]]:
        with self.still():
            call = self._call(records)
            what = f"{self.name} on {len(records)} records"
            if not watched:
                return self.holder.call(what, call), {}
            with _listening(self.holder, self.watched, len(records)) as heard:
                outputs = self.holder.call(what, call)
        if heard and not self.layers:
            heard.popitem()  # what is run last makes the answer
        return outputs, heard

    def plain_run(self, record: Record) -> Any:
        with self.still(), self.buffers_kept():
            return self._call([record])(self.module)

    def _call(self, records: Sequence[Record]) -> Any:
        given = self.encode(records)
        if isinstance(given, Mapping):
            named = {name: self._tensor(one, len(records)) for name, one in given.items()}
            return lambda module: module(**named)
        parts = given if isinstance(given, tuple) else (given,)
        tensors = [self._tensor(one, len(records)) for one in parts]
        return lambda module: module(*tensors)

    def _tensor(self, given: Any, rows: int) -> Tensor:
        if not hasattr(given, "detach"):
            given = self.holder.tensor(given)
        if not given.dim() or given.shape[0] != rows:
            raise InvalidRequest(
                f"encode of {self.name} gave shape {tuple(given.shape)}: expected {rows} rows"
            )
        return given.to(self.holder.device)


def first_tensor(outputs: Any) -> Tensor | None:
    """The tensor that an output is, or the first inside it (`logits` where it has them)."""
    if hasattr(outputs, "detach"):
        return outputs
    if getattr(outputs, "logits", None) is not None:
        return outputs.logits
    parts = outputs.values() if isinstance(outputs, Mapping) else outputs
    if isinstance(outputs, Mapping | tuple | list):
        return next((one for one in parts if hasattr(one, "detach")), None)
    return None


def _matching(module: Module, patterns: Sequence[str]) -> list[str]:
    known = [name or ROOT for name, _ in module.named_modules()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise unknown("layer", pattern, known)
    return [name for name in known if any(fnmatchcase(name, p) for p in patterns)]
