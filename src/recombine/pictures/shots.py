"""Which images a reading needs, and each of them on disk: the picture with what was recorded.

An image is a folder that appears at once and complete, so a killed run continues where it was.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, UInt32

from recombine.errors import InvalidRequest, StoreError
from recombine.lab.files import (
    canonical_json,
    commit_folder,
    make_folder,
    parse_json,
    put_bytes,
    read_json,
    sha256_file,
    write_json,
)
from recombine.lab.store_tensors import parse_tensors, put_tensors
from recombine.pictures.family import PromptFamily
from recombine.pictures.hooks import FRACTIONS, Recorder
from recombine.pictures.pipelines import denoiser_of, described, make_image
from recombine.seeds import host_seed

if TYPE_CHECKING:
    from PIL.Image import Image

PICTURE, FEATURES, ABOUT, REQUEST = (
    "picture.png",
    "features.safetensors",
    "shot.json",
    "request.json",
)
PROMPT = "prompt"
"""The name under which a picture's prompt embedding is kept beside the blocks' features."""


@dataclass(frozen=True)
class Sampling:
    """How many images are made, how, and which combinations the probe may learn from.

    `combinations` prompts are drawn and `images` made of each. The probe learns from the share
    `fit`; the share `validation` chooses the layer; the rest is where everything is measured, and
    only its images are judged. `options` go to the pipeline as they are (height, width, ...).
    """

    combinations: int = 100
    images: int = 8
    fit: float = 0.5
    validation: float = 0.2
    steps: int = 30
    guidance: float | None = None
    fractions: tuple[float, ...] = FRACTIONS
    layers: tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("combinations", 8), ("images", 1), ("steps", 1)):
            if getattr(self, name) < least:
                raise InvalidRequest(f"{name}={getattr(self, name)}: expected at least {least}")
        if min(self.fit, self.validation) <= 0 or self.fit + self.validation >= 1:
            raise InvalidRequest(
                f"fit={self.fit} and validation={self.validation}: expected shares over 0 that "
                "leave some for the test"
            )


@dataclass(frozen=True, eq=False)
class Split:
    """The combinations a probe is fitted on, chosen on and measured on."""

    fit: UInt32[np.ndarray, " fit"]
    validation: UInt32[np.ndarray, " validation"]
    test: UInt32[np.ndarray, " test"]

    @property
    def parts(self) -> dict[str, UInt32[np.ndarray, " part"]]:
        return {"fit": self.fit, "validation": self.validation, "test": self.test}


def split(family: PromptFamily, sampling: Sampling) -> Split:
    """Draws the combinations and deals them out; what the probe is fitted on shows every concept.

    >>> from recombine.pictures.prompts import family_named
    >>> dealt = split(family_named("animals-8"), Sampling(combinations=40))
    >>> {name: len(part) for name, part in dealt.parts.items()}
    {'fit': 20, 'validation': 8, 'test': 12}
    """
    rng = np.random.default_rng(host_seed(sampling.seed, f"split/{family.name}"))
    order = rng.permutation(family.ranks())
    total = min(sampling.combinations, len(order))
    fit, validation = round(sampling.fit * total), round(sampling.validation * total)
    shown = np.zeros(family.space.modules, bool)
    first = np.zeros(len(order), bool)
    for place, row in enumerate(family.space.indicator(order)):
        if shown.all():
            break
        first[place] = bool(np.any(row & ~shown))
        shown |= row
    if first.sum() > fit or fit < 4 or validation < 2 or total - fit - validation < 3:
        raise InvalidRequest(
            f"{total} combinations of {family.name!r} leave {fit} to fit a probe on, {validation} "
            f"to choose its layer on and {total - fit - validation} to measure on: expected at "
            f"least {max(4, int(first.sum()))}, 2 and 3; ask for more combinations or take a "
            "larger family"
        )
    chosen = np.concatenate([order[first], order[~first]])[:total]
    bounds = (fit, fit + validation)
    return Split(*(np.sort(part) for part in np.split(chosen, bounds)))


@dataclass(frozen=True)
class Shot:
    """One image: a combination and which of its images."""

    rank: int
    number: int

    @property
    def name(self) -> str:
        return f"{self.rank}-{self.number}"


class Album:
    """The images of one reading in their folder."""

    def __init__(self, folder: str | Path, family: PromptFamily, sampling: Sampling):
        self.folder, self.family, self.sampling = Path(folder), family, sampling
        self._sound: set[str] = set()
        self._read: dict[str, dict[str, Float[np.ndarray, " feature"]]] = {}

    def shots(self, ranks: UInt32[np.ndarray, " n"]) -> list[Shot]:
        """Every image of these combinations."""
        return [Shot(int(rank), k) for rank in ranks for k in range(self.sampling.images)]

    def take(self, pipeline: Any, shots: list[Shot], say: Callable[[str], None]) -> None:
        """Makes the images that are not there yet."""
        self._agree(pipeline)
        waiting = [shot for shot in shots if not (self._at(shot) / ABOUT).exists()]
        if not waiting:
            return
        done = len(shots) - len(waiting)
        denoiser = denoiser_of(pipeline)
        with Recorder(denoiser, self.sampling.layers, self.sampling.fractions) as recorder:
            for number, shot in enumerate(waiting, done + 1):
                say(f"image {number} of {len(shots)}: {self.family.prompt(shot.rank)}")
                self._make(pipeline, recorder, shot)

    def picture(self, shot: Shot) -> Image:
        """The picture as it lies on disk; a damaged one is an error that names it."""
        from PIL import Image, UnidentifiedImageError

        self._check(shot)
        path = self._at(shot) / PICTURE
        try:
            with Image.open(path) as image:
                image.load()
                loaded = image.convert("RGB")
        except (OSError, UnidentifiedImageError, SyntaxError, ValueError) as error:
            raise StoreError(f"{path} is not a picture: {error}") from error
        loaded.filename = str(path)  # pyright: ignore[reportAttributeAccessIssue]
        return loaded

    def features(self, shot: Shot) -> dict[str, Float[np.ndarray, " feature"]]:
        """What was recorded with an image, by layer, as views of its file."""
        if shot.name not in self._read:
            self._check(shot)
            path = self._at(shot) / FEATURES
            held = np.memmap(path, dtype=np.uint8, mode="r")
            self._read[shot.name] = parse_tensors(held, str(path))
        return self._read[shot.name]

    def about(self, shot: Shot) -> dict[str, Any]:
        """Seed, prompt, steps, and whether the pipeline's filter blacked the image out."""
        return read_json(self._at(shot) / ABOUT)

    def _at(self, shot: Shot) -> Path:
        return self.folder / "images" / shot.name

    def _make(self, pipeline: Any, recorder: Recorder, shot: Shot) -> None:
        sampling, family = self.sampling, self.family
        # Not consecutive numbers: neighbours must not share images between combinations.
        seed = host_seed(sampling.seed, f"image/{family.name}/{shot.name}") % 2**63
        prompt = family.prompt(shot.rank)
        image, flagged = make_image(
            pipeline, recorder, prompt,
            seed=seed, steps=sampling.steps, guidance=sampling.guidance, options=sampling.options,
        )  # fmt: skip
        tensors = {name: rows[0] for name, rows in recorder.features().items()}
        if (embedding := recorder.prompt()) is not None:
            tensors[PROMPT] = embedding[0]
        png = io.BytesIO()
        image.convert("RGB").save(png, "PNG")

        def build(unfinished: Path) -> None:
            sums = {
                PICTURE: put_bytes(unfinished / PICTURE, png.getvalue())[0],
                FEATURES: put_tensors(unfinished / FEATURES, tensors)[0],
            }
            about = {"prompt": prompt, "seed": seed, "steps": recorder.steps, "flagged": flagged}
            put_bytes(unfinished / ABOUT, canonical_json(about | {"sha256": sums}))

        commit_folder(build, self._at(shot))

    def _check(self, shot: Shot) -> None:
        if shot.name in self._sound:
            return
        folder = self._at(shot)
        for name, expected in self.about(shot)["sha256"].items():
            if sha256_file(folder / name) != expected:
                raise StoreError(
                    f"{folder / name} is damaged: its sum is not the one it was written with; "
                    f"remove {folder} and run again to make the image anew"
                )
        self._sound.add(shot.name)

    def _agree(self, pipeline: Any) -> None:
        """A folder belongs to one request: mixing two pipelines' images would go unnoticed."""
        asked = {
            "family": {
                "name": self.family.name,
                "concepts": list(self.family.concepts),
                "example": self.family.prompt(int(self.family.ranks()[0])),
            },
            # More combinations or images only add to what is there.
            "sampling": {
                name: value
                for name, value in asdict(self.sampling).items()
                if name in ("steps", "guidance", "fractions", "layers", "options", "seed")
            },
            "pipeline": described(pipeline),
        }
        path = self.folder / REQUEST
        make_folder(self.folder)
        if not path.exists():
            write_json(path, asked)
            return
        before, now = read_json(path), parse_json(canonical_json(asked))
        for part, fields in asked.items():
            for name in fields:
                value = now[part][name]
                if before.get(part, {}).get(name) != value:
                    raise InvalidRequest(
                        f"{self.folder} holds images made with {part} {name} "
                        f"{before.get(part, {}).get(name)!r}, not {value!r}: use another folder"
                    )
