"""Which weights of a PyTorch module do one part of its task."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from recombine.adapters._torch import Held, Module, Tensor, held, unmasked
from recombine.checks import is_whole
from recombine.errors import InvalidRequest, unknown
from recombine.instruments._instrument import Reading
from recombine.instruments.mask_subject import Keep, MaskSubject
from recombine.instruments.subnetworks import Subnetworks
from recombine.learners.masks import STRETCH, TEMPERATURE, Masking
from recombine.seeds import host_seed

Batch = Any
NAMED = 8  # parameters without a mask that a reading names; the others it counts
FIRST_UNIFORM = 1e-6  # of the noise of hard-concrete masks: its logarithm is finite


@dataclass(frozen=True)
class Part:
    """One part of what a module does, stated by functions.

    `draw(generator)` gives items that only this part decides, to learn a mask from, and
    `loss(module, batch)` says how badly a module does on them, as a tensor of one number.
    `test(generator)` gives items on which a module that lacks this part, and nothing else, fails;
    `score(module, batch)` says how well it does on items of either: 1 is perfect. Generators are
    `torch.Generator`s of the CPU; everything random must come from them.
    """

    name: str
    draw: Callable[[Any], Batch]
    loss: Callable[[Module, Batch], Tensor]
    score: Callable[[Module, Batch], float]
    test: Callable[[Any], Batch]


def learn_masks(
    module: Module,
    parts: Sequence[Part],
    *,
    masking: Masking | None = None,
    steps: int = 1_000,
    learning_rate: float = 1e-2,
    seed: int = 0,
) -> dict[str, Keep]:
    """For each part the weights to keep, layer by layer; the module stays as it is.

    `masking.layers` are names of layers as PyTorch has them, or beginnings of them.

        masks = learn_masks(module, [first, second], steps=500)
        masks["first"]["encoder.0"]  # an array of truth values in the shape of the weight
    """
    _check_parts(parts)
    if not is_whole(steps) or steps < 1 or _number("learning_rate", learning_rate) <= 0:
        raise InvalidRequest(
            f"steps={steps!r}, learning_rate={learning_rate}: expected a whole number of at least "
            "1, and more than 0"
        )
    masking = masking or Masking()
    with held(module) as holder:
        layers = holder.chosen(masking.layers)
        if masking.method == "magnitude":
            keep = _largest(holder, layers, masking.density)
            return {part.name: {name: mask.copy() for name, mask in keep.items()} for part in parts}
        return {
            part.name: _learnt(holder, layers, part, masking, steps, learning_rate, seed)
            for part in parts
        }


def read_subnetworks(
    module: Module,
    parts: Sequence[Part],
    masks: Mapping[str, Keep],
    *,
    batches: int = 8,
    draws: int = 3,
    chance: float = 0.0,
    seed: int = 0,
) -> dict[str, Reading]:
    """For each part what the module can still do with only its weights, and without them.

    The numbers and controls are those of `recombine.instruments.Subnetworks`: "other" is the part
    that follows in the list, and so is the mask compared with. `chance` is the score of a module
    that knows nothing. `masked_share` is the share of the module's parameters that masks lie over;
    the table `not masked` has the others, the largest first: what a part does there is not seen.
    """
    check_company(parts)
    if _number("chance", chance) >= 1:
        raise InvalidRequest(f"chance={chance}: expected a score below 1, which is perfect")
    instrument, found = Subnetworks(batches=batches, draws=draws), {}
    with held(module) as holder:
        keeps = [_checked(holder, part.name, masks) for part in parts]
        for number, part in enumerate(parts):
            other = (number + 1) % len(parts)
            if keeps[number].keys() != keeps[other].keys():
                raise InvalidRequest(
                    f"the masks of {part.name} and {parts[other].name} lie over other layers: "
                    "learn them together"
                )
            everything = {name: np.ones_like(mask) for name, mask in keeps[number].items()}
            door = [
                MaskedModule(holder, keep, part, parts[other], chance, seed)
                for keep in (keeps[number], everything, keeps[other])
            ]
            reading = instrument.read(door[0], door[1], {"another part": door[2]})
            found[part.name] = _with_the_rest(reading, module, list(keeps[number]))
    return found


def _with_the_rest(reading: Reading, module: Module, layers: Sequence[str]) -> Reading:
    """A reading that tells over which share of the module its masks lie, and over what not."""
    rest = unmasked(module, layers)
    everything = sum(p.numel() for p in module.parameters())
    names, sizes = list(rest), list(rest.values())
    table = {"parameter": names[:NAMED], "numbers": sizes[:NAMED]}
    if len(names) > NAMED:
        table["parameter"].append(f"{len(names) - NAMED} more")
        table["numbers"].append(sum(sizes[NAMED:]))
    values = {**reading.values, "masked_share": 1 - sum(sizes) / everything}
    return Reading(values, reading.controls, {**reading.tables, "not masked": table})


class MaskedModule(MaskSubject):
    """A module under masks, on the part one was learnt for and on another."""

    learner: Any

    def __init__(
        self, holder: Held, keep: Keep, own: Part, other: Part, chance: float, seed: int
    ):  # fmt: skip
        self.learner = SimpleNamespace(seed=host_seed(seed, own.name))
        self.holder, self.kept, self.own, self.other = holder, keep, own, other
        self.least, self.seed = chance, seed
        self.real = {name: np.ones_like(mask) for name, mask in keep.items()}
        self.base = {name: _numbers(holder.weight(name)) for name in keep}

    @property
    def keep(self) -> Keep:
        return self.kept

    @property
    def chance(self) -> float:
        return self.least

    def weights(self) -> dict[str, np.ndarray]:
        return self.base

    def scores(self, keep: Keep, batches: int) -> tuple[float, float]:
        own, other = (
            self._score(part, part.test, "mask tests", keep, batches)
            for part in (self.own, self.other)
        )
        return own, other

    def learnt(self, keep: Keep, batches: int) -> float:
        return self._score(self.own, self.own.draw, "mask draws", keep, batches)

    def _score(
        self, part: Part, draw: Callable[[Any], Batch], stream: str, keep: Keep, batches: int
    ) -> float:
        torch, found = self.holder.torch, []
        weights = {
            name: self.holder.weight(name) * torch.as_tensor(mask, device=self.holder.device)
            for name, mask in keep.items()
        }
        for number in range(batches):
            batch = _drawn(self.holder, part, draw, self.seed, f"{stream}/{number}")
            what = f"the score of part {part.name}"
            with torch.no_grad():
                said = self.holder.call(what, part.score, batch, weights=weights)
            found.append(_number(what, said))
        return float(np.mean(found))


def _learnt(
    holder: Held, layers: Sequence[str], part: Part, masking: Masking, steps: int, rate: float,
    seed: int,
) -> Keep:  # fmt: skip
    """Gradient descent on the scores of weights, which themselves never move."""
    torch = holder.torch
    scores = {
        name: torch.full(
            holder.weight(name).shape, masking.begin, dtype=torch.float32, device=holder.device,
            requires_grad=True,
        )
        for name in layers
    }  # fmt: skip
    optimiser = torch.optim.Adam(scores.values(), lr=rate, betas=(0.9, 0.999), eps=1e-8)
    for step in range(steps):
        batch = _drawn(holder, part, part.draw, seed, f"masks/{step}")
        with torch.enable_grad():
            keep, density = _soft(holder, scores, masking, step / steps, part.name, seed, step)
            weights = {n: holder.weight(n) * mask.to(holder.weight(n)) for n, mask in keep.items()}
            task = holder.call(f"the loss of part {part.name}", part.loss, batch, weights=weights)
            _check_loss(torch, task, part.name, step, scores if step == 0 else None)
            optimiser.zero_grad()
            (task + masking.penalty * density).backward(inputs=list(scores.values()))
        optimiser.step()
    return {name: (score.detach() > 0).cpu().numpy() for name, score in scores.items()}


def _soft(
    holder: Held, scores: Mapping[str, Tensor], masking: Masking, share: float, part: str,
    seed: int, step: int,
) -> tuple[dict[str, Tensor], Tensor]:  # fmt: skip
    """Masks that a gradient passes through, and the share of weights they are charged for."""
    torch = holder.torch
    if masking.method == "continuous":
        keep = {n: torch.sigmoid(masking.sharpest**share * s) for n, s in scores.items()}
        return keep, _density(keep)
    generator = _generator(holder, seed, f"mask noise/{part}/{step}")
    keep, charged = {}, {}
    for name, score in scores.items():
        noise = torch.rand(score.shape, generator=generator).clamp(FIRST_UNIFORM, 1 - FIRST_UNIFORM)
        drawn = torch.sigmoid((torch.logit(noise).to(score) + score) / TEMPERATURE)
        keep[name] = torch.clamp(drawn * (1 + 2 * STRETCH) - STRETCH, 0.0, 1.0)
        charged[name] = torch.sigmoid(score - TEMPERATURE * np.log(STRETCH / (1 + STRETCH)))
    return keep, _density(charged)


def _density(keep: Mapping[str, Tensor]) -> Tensor:
    total: Any = sum(mask.sum() for mask in keep.values())
    return total / sum(mask.numel() for mask in keep.values())


def _largest(holder: Held, layers: Sequence[str], density: float) -> Keep:
    sizes = {name: np.abs(_numbers(holder.weight(name))) for name in layers}
    cut = np.quantile(np.concatenate([size.ravel() for size in sizes.values()]), 1 - density)
    return {name: size > cut for name, size in sizes.items()}


def _drawn(holder: Held, part: Part, draw: Callable[[Any], Batch], seed: int, stream: str) -> Batch:
    generator = _generator(holder, seed, f"{stream}/{part.name}")
    # Inside a call of the module, so that a draw that fails is told like any other function.
    what = f"a draw of part {part.name}"
    return holder.call(what, lambda _module, source: draw(source), generator)


def _generator(holder: Held, seed: int, stream: str) -> Any:
    return holder.torch.Generator().manual_seed(host_seed(seed, stream))


def _check_loss(
    torch: Any, loss: Any, part: str, step: int, scores: Mapping[str, Tensor] | None
) -> None:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise InvalidRequest(
            f"the loss of part {part} is {_given(loss)}: expected a tensor of one number"
        )
    if not torch.isfinite(loss).all():
        raise InvalidRequest(
            f"the loss of part {part} is {loss.item()} at step {step}: expected finite numbers; a "
            "smaller learning_rate may help"
        )
    if scores is None:
        return
    reached = loss.requires_grad and any(
        gradient is not None
        for gradient in torch.autograd.grad(
            loss, list(scores.values()), retain_graph=True, allow_unused=True
        )
    )
    if not reached:
        raise InvalidRequest(
            f"the loss of part {part} has no gradient in {', '.join(scores)}: let it use the "
            "module it is given, without detach or no_grad"
        )


def check_company(parts: Sequence[Part]) -> None:
    """Refuses parts that cannot be compared, before a mask is learnt for any."""
    _check_parts(parts)
    if len(parts) < 2:
        raise InvalidRequest("one part: expected two or more, since each is compared with another")


def _check_parts(parts: Sequence[Part]) -> None:
    names = [part.name for part in parts]
    if not names or len(set(names)) < len(names):
        raise InvalidRequest(f"parts {names}: expected some, each with a name of its own")


def _checked(holder: Held, part: str, masks: Mapping[str, Keep]) -> Keep:
    if part not in masks:
        raise unknown("part", part, masks)
    found = {}
    for name, mask in masks[part].items():
        if name not in holder.layers:
            raise unknown("layer", name, holder.layers)
        shape = tuple(holder.weight(name).shape)
        if np.shape(mask) != shape:
            raise InvalidRequest(
                f"the mask of {part} over {name} has shape {np.shape(mask)}: expected {shape}"
            )
        keep = np.asarray(mask)
        if not np.isin(keep, (0, 1)).all():
            other = keep[~np.isin(keep, (0, 1))][0]
            raise InvalidRequest(
                f"the mask of {part} over {name} holds {other}: expected truth values, such as "
                "those of mask > 0.5"
            )
        found[name] = keep.astype(bool)
    if not found:
        raise InvalidRequest(f"the mask of {part} lies over no layer")
    return found


def _number(what: str, said: Any) -> float:
    try:
        value = float(said)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidRequest(f"{what} is {_given(said)}: expected one number") from error
    if not math.isfinite(value):
        raise InvalidRequest(f"{what} is {value}: expected a finite number")
    return value


def _given(said: Any) -> str:
    """The shape of several numbers, or the type of what has none."""
    return str(tuple(said.shape)) if hasattr(said, "shape") else type(said).__name__


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()
