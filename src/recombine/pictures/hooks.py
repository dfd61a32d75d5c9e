"""What a denoiser computes on its way to an image, pooled as it happens.

The pooled outputs of every call are kept until the image is done, and only then are steps chosen:
so the number of steps need not be known before, and every image starts counting anew.
"""

from __future__ import annotations

import fnmatch
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from recombine.errors import InvalidRequest, NotApplicable

FRACTIONS = (0.3, 0.5, 0.7, 1.0)
"""Where along the denoising steps features are taken, beside their mean over all steps."""

BLOCKS = (
    "down_blocks.*.resnets.*",
    "down_blocks.*.attentions.*",
    "mid_block.resnets.*",
    "mid_block.attentions.*",
    "up_blocks.*.resnets.*",
    "up_blocks.*.attentions.*",
    "transformer_blocks.*",
    "single_transformer_blocks.*",
)
"""The blocks of U-Nets and diffusion transformers, as diffusers names them."""

BRANCHES = ("conditional", "unconditional")
Features = Float[np.ndarray, "image feature"]


@dataclass
class _Call:
    """One pass through the denoiser."""

    rows: int
    text: Any  # the prompt's embedding as the denoiser is given it, or None
    pooled: dict[str, Any] = field(default_factory=dict)


def matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The names that match a pattern, part by part: a star stops at a dot.

    >>> matching(["blocks.0", "blocks.0.ff", "blocks.1"], ["blocks.*"])
    ['blocks.0', 'blocks.1']
    """

    def fits(name: str, pattern: str) -> bool:
        parts, wanted = name.split("."), pattern.split(".")
        return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))

    return [name for name in names if any(fits(name, pattern) for pattern in patterns)]


def blocks_of(denoiser: Any, patterns: Sequence[str] | None = None) -> list[str]:
    """The blocks to record: those the patterns name, or the usual ones, or the longest list."""
    names = [name for name, _ in denoiser.named_modules() if name]
    if patterns is not None:
        found = matching(names, patterns)
        lost = [pattern for pattern in patterns if not matching(names, [pattern])]
        if lost or not found:
            raise InvalidRequest(
                f"no block of the {type(denoiser).__name__} is called {', '.join(lost) or '?'}: "
                f"its blocks are called {', '.join(sorted({_masked(n) for n in names})[:12])}, ..."
            )
        return found
    if found := matching(names, BLOCKS):
        return found
    lists = [name.rpartition(".")[0] for name in names if name.rpartition(".")[2].isdigit()]
    if not lists:
        raise NotApplicable(f"the {type(denoiser).__name__} has no list of blocks: pass layers=")
    longest = max(dict.fromkeys(lists), key=lists.count)
    return matching(names, [f"{longest}.*"])


class Recorder:
    """Forward hooks on the blocks of a denoiser; use it as a context, they go when it ends.

    One `image` at a time is recorded. Guidance runs the denoiser on unconditional and conditional
    rows: in one call, unconditional first, or in two calls a step, conditional first, as diffusers'
    pipelines do. They are kept apart. Of several streams that a block returns, the one as long as
    the prompt is left out: it is the prompt, not what becomes of it.

        with Recorder(pipeline.unet) as recorder:
            with recorder.image(announced=True):
                pipeline(prompt, callback_on_step_end=recorder.end_step)
            features = recorder.features()
    """

    def __init__(
        self,
        denoiser: Any,
        layers: Sequence[str] | None = None,
        fractions: Sequence[float] = FRACTIONS,
    ):
        if not fractions or not all(0 < fraction <= 1 for fraction in fractions):
            raise InvalidRequest(f"fractions {tuple(fractions)}: expected numbers over 0, up to 1")
        self.denoiser = denoiser
        self.layers = blocks_of(denoiser, layers)
        self.fractions = tuple(fractions)
        self._parameters = list(inspect.signature(denoiser.forward).parameters)
        self._hooks = ExitStack()
        self._steps: list[list[_Call]] = []
        self._images = 1
        self._announced, self._fresh, self._listening = False, True, False
        self._text_tokens = -1

    def __enter__(self) -> Recorder:
        modules = dict(self.denoiser.named_modules())
        with ExitStack() as hooks:  # a hook that cannot be put takes back those before it
            started = self.denoiser.register_forward_pre_hook(self._starts, with_kwargs=True)
            hooks.callback(started.remove)
            for name in self.layers:
                hooks.callback(modules[name].register_forward_hook(self._listener(name)).remove)
            self._hooks = hooks.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    @contextmanager
    def image(self, images: int = 1, *, announced: bool = False) -> Iterator[None]:
        """Records one run of the pipeline, of so many images, from its first step.

        `announced` means that the pipeline calls `end_step` after each step; without it every
        call of the denoiser counts as a step.
        """
        self._steps, self._images, self._announced = [], images, announced
        self._fresh, self._listening = True, True
        try:
            yield
        finally:
            self._listening = False

    def end_step(
        self, pipeline: Any, step: int, timestep: Any, tensors: dict[str, Any]
    ) -> dict[str, Any]:
        """For `callback_on_step_end` of a pipeline."""
        self._fresh = True
        return tensors

    @property
    def steps(self) -> int:
        """How many steps the last image took."""
        return len(self._steps)

    def features(self) -> dict[str, Features]:
        """By "block/branch": the steps at the chosen fractions, then the mean, one row an image.

        A branch that was not run in every step is left out.
        """
        split = [self._branches(step) for step in self._recorded()]
        found = {}
        for branch in BRANCHES:
            if not all(branch in one for one in split):
                continue
            for layer in split[0][branch].pooled:
                steps = np.stack([one[branch].rows_of(layer) for one in split])
                chosen = [steps[math.ceil(f * len(steps) - 1e-9) - 1] for f in self.fractions]
                row = np.concatenate([*chosen, steps.mean(axis=0)], axis=1)
                if not np.isfinite(row).all():
                    raise InvalidRequest(
                        f"{layer!r} gave numbers that are not finite: load the pipeline with "
                        "dtype='bfloat16' or 'float32'"
                    )
                found[f"{layer}/{branch}"] = row
        return found

    def prompt(self) -> Features | None:
        """The embedding of the prompt that the denoiser was given, pooled over its tokens."""
        call = self._branches(self._recorded()[0])["conditional"]
        return None if call.call.text is None else _numpy(call.call.text[call.span])

    def _recorded(self) -> list[list[_Call]]:
        if not self._steps:
            raise InvalidRequest(
                f"the {type(self.denoiser).__name__} was never called: run the pipeline inside "
                "`with recorder.image():`"
            )
        return self._steps

    def _branches(self, calls: list[_Call]) -> dict[str, _Rows]:
        first, images = calls[0], self._images
        if first.rows == 2 * images:
            return {
                "unconditional": _Rows(first, slice(0, images)),
                "conditional": _Rows(first, slice(images, None)),
            }
        if first.rows != images:
            raise NotApplicable(
                f"the {type(self.denoiser).__name__} was given {first.rows} rows for {images} "
                "images: expected one each, or two with guidance; switch other guidance off"
            )
        found = {"conditional": _Rows(first, slice(None))}
        if len(calls) > 1 and calls[1].rows == images:
            found["unconditional"] = _Rows(calls[1], slice(None))
        return found

    def _starts(self, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not self._listening:
            return
        given = dict(zip(self._parameters, args, strict=False)) | dict(kwargs)
        rows = next((int(v.shape[0]) for v in given.values() if _is_tensor(v) and v.dim() > 1), 0)
        text: Any = given.get("encoder_hidden_states")
        known = _is_tensor(text) and text.dim() == 3 and text.shape[0] == rows
        call = _Call(rows, text.detach().float().mean(dim=1) if known else None)
        self._text_tokens = int(text.shape[1]) if known else -1
        if self._fresh or not self._announced:
            self._steps.append([])
        self._steps[-1].append(call)
        self._fresh = False

    def _listener(self, name: str) -> Any:
        def listen(module: Any, args: Any, output: Any) -> None:
            if not self._listening or not self._steps:
                return
            call = self._steps[-1][-1]
            streams = _streams(output, call.rows, self._text_tokens)
            if not streams:
                raise NotApplicable(
                    f"block {name!r} returns nothing with {call.rows} rows to pool: choose other "
                    "blocks with layers="
                )
            for number, stream in streams.items():
                label = name if len(streams) == 1 else f"{name}[{number}]"
                call.pooled[label] = _pooled(stream)

        return listen


@dataclass(frozen=True)
class _Rows:
    """The rows of a call that belong to one branch."""

    call: _Call
    span: slice

    @property
    def pooled(self) -> dict[str, Any]:
        return self.call.pooled

    def rows_of(self, layer: str) -> Features:
        return _numpy(self.call.pooled[layer][self.span])


def _streams(output: Any, rows: int, text_tokens: int) -> dict[int, Any]:
    """The tensors a block returned that have a row per image, without the prompt's own."""
    if hasattr(output, "to_tuple"):
        output = output.to_tuple()
    parts = output if isinstance(output, tuple | list) else (output,)
    found = {
        number: part
        for number, part in enumerate(parts)
        if _is_tensor(part) and part.is_floating_point()
        if part.dim() >= 2 and part.shape[0] == rows
    }
    kept = {
        number: part
        for number, part in found.items()
        if part.dim() != 3 or part.shape[1] != text_tokens
    }
    return kept if kept and len(found) > 1 else found


def _pooled(tensor: Any) -> Any:
    """(B, C), (B, tokens, C) or (B, C, height, width, ...) as (B, C), in full precision."""
    tensor = tensor.detach().float()
    if tensor.dim() == 3:
        return tensor.mean(dim=1)
    return tensor.flatten(2).mean(dim=2) if tensor.dim() > 3 else tensor.clone()


def _numpy(tensor: Any) -> Features:
    return tensor.cpu().numpy()


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "is_floating_point") and hasattr(value, "detach")


def _masked(name: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in name.split("."))
