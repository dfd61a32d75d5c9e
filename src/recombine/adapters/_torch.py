"""A user's PyTorch module held still: its weights are exchanged for one call, never changed."""

from __future__ import annotations

import copy
import hashlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from recombine.errors import InvalidRequest, NotApplicable, RecombineError, unknown
from recombine.instruments._instrument import Reading
from recombine.seeds import host_seed

Module = Any  # a torch.nn.Module: torch is an extra, so that its types cannot be named
Tensor = Any
ROOT = "module"  # what a layer is called that is itself the whole module


def torch_package() -> Any:
    """PyTorch, or one line that says how to install it."""
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"a PyTorch module needs the package {error.name!r}: pip install 'recombine[torch]'"
        ) from error


def checksum(module: Module) -> str:
    """A SHA-256 of every parameter and buffer, with their names, shapes and types.

    checksum(module) == before
    """
    torch, digest = torch_package(), hashlib.sha256()
    for name, tensor in _tensors(module).items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def maskable(module: Module) -> list[str]:
    """The layers whose weights can be masked and moved, by name: linear maps and convolutions.

    Recurrent layers, the inner projections of attention and embeddings are not among them: a
    reading of subnetworks names what masks do not lie over.

    maskable(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))  # ['0']
    """
    return list(_layers(torch_package(), module))


def unmasked(module: Module, layers: Sequence[str] | None = None) -> dict[str, int]:
    """The parameters that no mask lies over, largest first, with how many numbers each has.

    `layers` are those that masks lie over: by default all that can be masked.

    unmasked(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))  # {'0.bias': 3}
    """
    known = _layers(torch_package(), module)
    over = {known[name] for name in (known if layers is None else layers)}
    sizes = {name: p.numel() for name, p in module.named_parameters() if name not in over}
    return dict(sorted(sizes.items(), key=lambda pair: -pair[1]))


def in_short(names: Sequence[str], most: int = 4) -> str:
    """The first few names, and how many more there are.

    >>> in_short(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def untrained_twin(module: Module, seed: int = 0) -> Module:
    """A copy with weights drawn anew by every part's own `reset_parameters`.

    Refused where a part has parameters and no such method, or one that leaves some as they are
    (those of a pruned layer, or behind a norm of weights): then only its author knows how it
    begins.
    """
    torch = torch_package()
    try:
        twin = copy.deepcopy(module)
    except Exception as error:
        raise NotApplicable(f"the module cannot be copied: {_one_line(error)}") from error
    devices = sorted({p.device.index or 0 for p in module.parameters() if p.is_cuda})
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(host_seed(seed, "untrained twin"))
        for parameter in twin.parameters():
            if parameter.is_floating_point():
                parameter.fill_(float("nan"))  # what is not drawn anew shows
        for name, part in twin.named_modules():
            reset = getattr(part, "reset_parameters", getattr(part, "_reset_parameters", None))
            if callable(reset):
                reset()
            elif part._parameters:
                raise NotApplicable(
                    f"{name or ROOT} ({type(part).__name__}) has parameters and no "
                    "reset_parameters: give untrained=, a copy of the module before training"
                )
    trained = [name for name, p in twin.named_parameters() if p.isnan().any()]
    if trained:
        raise NotApplicable(
            f"reset_parameters does not draw anew: {in_short(trained)}; give untrained=, a copy of "
            "the module before training"
        )
    if checksum(twin) == checksum(module):
        raise NotApplicable(
            "reset_parameters left every weight as it was: give untrained=, a copy of the module "
            "before training"
        )
    return twin


class Held:
    """A module whose layers may be given other weights, for as long as one call takes."""

    def __init__(self, module: Module):
        self.torch, self.module = torch_package(), module
        if not isinstance(module, self.torch.nn.Module):
            raise InvalidRequest(f"{type(module).__name__}: expected a torch.nn.Module")
        if isinstance(module, self.torch.jit.ScriptModule):
            raise NotApplicable(
                "a scripted module cannot be given other weights: pass the one it was made from"
            )
        for name, tensor in _tensors(module).items():
            if self.torch.nn.parameter.is_lazy(tensor):
                raise InvalidRequest(f"{name} has no shape yet: call the module once before")
            if tensor.is_meta:
                raise InvalidRequest(f"{name} has no numbers yet: load the weights before")
        self.layers = _layers(self.torch, module)
        self._within = _within(self.torch, module)
        first = next((p for p in module.parameters() if p.is_floating_point()), None)
        self.device = "cpu" if first is None else first.device
        self.dtype = self.torch.get_default_dtype() if first is None else first.dtype

    def chosen(self, wanted: Sequence[str] = ()) -> list[str]:
        """Layers by name or by the beginning of it, all by default."""
        for name in wanted:
            if not any(layer == name or layer.startswith(f"{name}.") for layer in self.layers):
                raise unknown("layer", name, self.layers)
        if not self.layers:
            others = in_short(list(unmasked(self.module))) or "none"
            raise NotApplicable(
                f"{type(self.module).__name__} has no torch.nn.Linear or convolution whose weights "
                f"could be masked or moved (its parameters: {others})"
            )
        return [
            layer for layer in self.layers
            if not wanted or any(layer == n or layer.startswith(f"{n}.") for n in wanted)
        ]  # fmt: skip

    def weight(self, layer: str) -> Tensor:
        return _constant(self.module.get_parameter(self.layers[layer]))

    def tensor(self, array: Any) -> Tensor:
        """An array as the module expects it: on its device, and numbers in its precision."""
        found = self.torch.as_tensor(np.array(array), device=self.device)  # a copy: it is writable
        return found.to(self.dtype) if found.is_floating_point() else found

    def call(
        self, what: str, function: Callable[..., Any], *given: Any,
        weights: Mapping[str, Tensor] | None = None,
    ) -> Any:  # fmt: skip
        """`function(module, *given)`, with other weights in the layers named.

        Buffers are copies: what a call counts or averages is forgotten with it. An error of the
        user's function is told as `what` failed.
        """
        state = {f"module.{n}": _constant(p) for n, p in self.module.named_parameters()}
        state |= {f"module.{n}": b.clone() for n, b in self.module.named_buffers()}
        state |= {f"module.{self.layers[n]}": w for n, w in (weights or {}).items()}
        try:
            return self.torch.func.functional_call(self._within, state, (function, *given))
        except RecombineError:
            raise
        except Exception as error:
            raise InvalidRequest(f"{what} failed: {_one_line(error)}") from error


@contextmanager
def held(module: Module) -> Iterator[Held]:
    """The module in evaluation mode; afterwards it is as before, which is checked by its sum."""
    holder = Held(module)
    before, modes = checksum(module), {part: part.training for part in module.modules()}
    kept = {name: tensor.detach().to("cpu", copy=True) for name, tensor in _tensors(module).items()}
    module.eval()
    try:
        with holder.torch.inference_mode(False):  # wherever we are called, masks need gradients
            yield holder
    finally:
        for part, mode in modes.items():
            part.training = mode
        changed = checksum(module) != before
        if changed:
            _put_back(holder.torch, module, kept)
    if changed:
        raise InvalidRequest(
            "the weights of the module were changed by a function it was given to, and have been "
            "put back: let draw, loss and score only look at it"
        )


@contextmanager
def twins(
    module: Module, untrained: Module | None, seed: int
) -> Iterator[tuple[Held, Held | None, str]]:
    """The module and its untrained twin, or why it has none."""
    with held(module) as mine:
        why = ""
        if untrained is None:
            try:
                untrained = untrained_twin(module, seed)
            except NotApplicable as error:
                why = str(error)
        if untrained is None:
            yield mine, None, why
            return
        with held(untrained) as twin:
            if _shapes(untrained) != _shapes(module):
                raise InvalidRequest(
                    "untrained has other parameters than the module: give a copy of the same shape"
                )
            if checksum(untrained) == checksum(module):
                raise InvalidRequest(
                    "untrained has the weights of the module: give a copy made before training, "
                    "with copy.deepcopy(module)"
                )
            yield mine, twin, why


def without_control(reading: Reading, name: str, why: str) -> Reading:
    """A reading that says why one of its controls is missing."""
    controls = {key: value for key, value in reading.controls.items() if key != name}
    told = reading.tables.get("notes", {"control": [], "why": []})
    notes = {"control": [*told["control"], name], "why": [*told["why"], why]}
    return Reading(reading.values, controls, {**reading.tables, "notes": notes})


def moved(weight: Tensor, place: int, by: float) -> Tensor:
    """The weights with one of them changed."""
    found = weight.clone().flatten()
    found[place] += by
    return found.reshape(weight.shape)


def _layers(torch: Any, module: Module) -> dict[str, str]:
    """The parameter of each layer; a weight that several share belongs to the first."""
    nn = torch.nn
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d,
             nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)  # fmt: skip
    known = {name for name, p in module.named_parameters() if p.is_floating_point()}
    names = {name: f"{name}.weight" if name else "weight" for name, part in module.named_modules()
             if isinstance(part, kinds)}  # fmt: skip
    return {name or ROOT: weight for name, weight in names.items() if weight in known}


def _within(torch: Any, module: Module) -> Module:
    class Within(torch.nn.Module):
        """Lets a function see the module itself, parts and all, while its weights are others."""

        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, function: Callable[..., Any], *given: Any) -> Any:
            return function(self.module, *given)

    return Within()


def _constant(parameter: Tensor) -> Tensor:
    """A parameter without its gradient; of one made in inference mode no other can be taken."""
    found = parameter.detach()
    return found.clone() if found.is_inference() else found


def _tensors(module: Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _shapes(module: Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in module.named_parameters()}


def _put_back(torch: Any, module: Module, kept: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in _tensors(module).items():
            if name in kept:
                tensor.copy_(kept[name])


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
