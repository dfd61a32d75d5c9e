"""The door to diffusers: loading a pipeline, finding its denoiser, making one image."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidRequest, NotApplicable, StoreError, unknown
from recombine.pictures._optional import need
from recombine.pictures.hooks import Recorder

if TYPE_CHECKING:
    from PIL.Image import Image

DTYPES = ("float32", "float16", "bfloat16")
DENOISERS = ("unet", "transformer")
_WEIGHTS = ("*.safetensors",)
_FAILED = (OSError, ValueError, RuntimeError, KeyError, ImportError)


def load(name_or_path: str | Path, dtype: str = "float32", device: str = "cpu") -> Any:
    """A pipeline from a folder or from the hub, by `DiffusionPipeline.from_pretrained`.

    Only safetensors are read: other weight files can run code when they are opened.
    """
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    torch, diffusers = need("torch"), need("diffusers")
    folder = Path(name_or_path)
    if folder.is_dir():
        _check_folder(folder)
    try:
        pipeline = diffusers.DiffusionPipeline.from_pretrained(
            str(name_or_path), dtype=getattr(torch, dtype), use_safetensors=True
        )
        pipeline = pipeline.to(device)
    # safetensors has an error class of its own for a damaged file
    except (*_FAILED, need("safetensors").SafetensorError) as error:
        said = " ".join(str(error).split())
        raise StoreError(f"cannot load the pipeline {str(name_or_path)!r}: {said}") from error
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _check_folder(folder: Path) -> None:
    """Names what a pipeline's folder lacks; diffusers itself speaks of something else then."""
    index = folder / "model_index.json"
    try:
        parts = json.loads(index.read_text("utf-8"))
    except OSError as error:
        raise StoreError(f"{index} is missing: {folder} is not the folder of a pipeline") from error
    except ValueError as error:
        raise StoreError(f"{index} is damaged: {error}") from error
    for part, made_by in parts.items():
        if part.startswith("_") or not isinstance(made_by, list) or made_by[0] is None:
            continue
        inside = folder / part
        if not inside.is_dir():
            raise StoreError(f"{inside} is missing, and the pipeline needs its {part}")
        weightless = not (inside / "config.json").exists()  # schedulers, tokenizers
        if not weightless and not any(list(inside.glob(kind)) for kind in _WEIGHTS):
            raise StoreError(f"{inside} holds no safetensors: the weights of {part} are missing")
        for listing in inside.glob("*.index.json"):
            needed = set(json.loads(listing.read_text("utf-8"))["weight_map"].values())
            if lost := sorted(name for name in needed if not (inside / name).is_file()):
                raise StoreError(f"{inside / lost[0]} is missing, and {listing.name} names it")


def denoiser_of(pipeline: Any) -> Any:
    """The network that is called once a step."""
    for name in DENOISERS:
        if (found := getattr(pipeline, name, None)) is not None:
            return found
    parts = ", ".join(getattr(pipeline, "components", {})) or "nothing"
    raise NotApplicable(
        f"{type(pipeline).__name__} has no {' or '.join(DENOISERS)} (it has {parts}): only "
        "pipelines that denoise with one of them can be read"
    )


def described(pipeline: Any) -> dict[str, Any]:
    """What the pipeline is, weights included: a run is continued only by the same one."""
    denoiser = denoiser_of(pipeline)
    digest = hashlib.sha256()
    for name, weight in denoiser.named_parameters():
        few = weight.detach().flatten()[:8].float().cpu().numpy()
        digest.update(f"{name} {tuple(weight.shape)} ".encode() + few.tobytes())
    return {
        "pipeline": type(pipeline).__name__,
        "denoiser": type(denoiser).__name__,
        "scheduler": type(getattr(pipeline, "scheduler", None)).__name__,
        "dtype": str(getattr(denoiser, "dtype", "")).removeprefix("torch."),
        "parameters": sum(weight.numel() for weight in denoiser.parameters()),
        "weights": digest.hexdigest(),
    }


def make_image(
    pipeline: Any,
    recorder: Recorder,
    prompt: str,
    *,
    seed: int,
    steps: int,
    guidance: float | None,
    options: Mapping[str, Any],
) -> tuple[Image, bool]:
    """One recorded image, and whether the pipeline's own filter blacked it out.

    The noise is drawn on the CPU, so a seed means the same image on every device.
    """
    torch = need("torch")
    accepted = inspect.signature(pipeline.__call__).parameters
    if lost := [name for name in options if name not in accepted]:
        raise unknown(f"option of {type(pipeline).__name__}", lost[0], accepted)
    request = {"prompt": prompt, "num_inference_steps": steps, "output_type": "pil", **options}
    if guidance is not None:
        if "guidance_scale" not in accepted:
            raise InvalidRequest(f"{type(pipeline).__name__} takes no guidance: leave it out")
        request["guidance_scale"] = guidance
    announced = "callback_on_step_end" in accepted
    if announced:
        request["callback_on_step_end"] = recorder.end_step
    request["generator"] = torch.Generator("cpu").manual_seed(seed)
    with recorder.image(announced=announced):
        made = pipeline(**request)
    flagged = getattr(made, "nsfw_content_detected", None)
    return made.images[0], bool(flagged and flagged[0])
