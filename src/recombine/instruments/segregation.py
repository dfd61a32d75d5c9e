"""Whether the parts a network takes a picture apart into are the objects in it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from recombine.checks import at_least
from recombine.families.objects import PIECES, foreground_ari
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments._seeing import redrawing
from recombine.instruments.subject import Subject
from recombine.png import png, to_bytes


@dataclass(frozen=True)
class Segregation(Instrument):
    """The foreground ARI of a network's parts with the true objects, on `images` fresh pictures.

    `fg_ari` is the mean over pictures, `fg_ari_median` the median, and `mse` the error of the
    pictures drawn again. `colour_ari` is what sorting pixels by colour alone would give: a network
    that does no better knows colours, not objects. Controls: the untrained twin, the parts of other
    pictures (shuffled), and the true objects (planted, 1). The true objects and the parts of
    `shown` pictures are kept as grids of whole numbers.
    """

    version: ClassVar[int] = 1
    name: ClassVar[str] = "segregation"
    needs: ClassVar[tuple[str, ...]] = ("answer",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    images: int = 320
    shown: int = 6

    def __post_init__(self):
        at_least(self, images=2, shown=0)

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        trained, twin = redrawing(subject, self.name), redrawing(untrained, self.name)
        images, objects = (np.asarray(a) for a in trained.draw(self.name, self.images))
        parts = trained.learner.model.parts
        again, found = trained.answer(images)
        plain, first = twin.answer(images)
        agreement = _ari(objects, found, parts)
        values = {
            **_summary(agreement),
            "mse": _error(again, images),
            "colour_ari": float(_ari(objects, *by_colour(images)).mean()),
        }
        untrained_values = {**_summary(_ari(objects, first, parts)), "mse": _error(plain, images)}
        controls = {
            "untrained": untrained_values,
            "shuffled": _summary(_ari(objects, np.roll(found, 1, axis=0), parts)),
            "planted": _summary(_ari(objects, objects, PIECES + 1)),
        }
        few = slice(min(self.shown, self.images))
        pictures = {
            "picture": [_encoded(one) for one in images[few]],
            "drawn_again": [_encoded(one) for one in again[few]],
            "objects": objects[few].tolist(),
            "parts": found[few].tolist(),
            "fg_ari": agreement[few].tolist(),
        }
        return Reading(values, controls, {"pictures": pictures})


def by_colour(
    images: Float[np.ndarray, "image side side 3"],
) -> tuple[Int[np.ndarray, "image side side"], int]:
    """Parts of the same colour, and how many colours there are in all."""
    flat = np.rint(images.reshape(-1, 3) * 255).astype(np.int64) @ np.array([65536, 256, 1])
    known, number = np.unique(flat, return_inverse=True)
    return number.reshape(images.shape[:-1]).astype(np.int32), len(known)


def _ari(objects: Any, found: Any, parts: int) -> Float[np.ndarray, "image"]:
    return np.asarray(foreground_ari(objects, found, parts), np.float64)


def _summary(agreement: Float[np.ndarray, "image"]) -> dict[str, float]:
    return {"fg_ari": float(agreement.mean()), "fg_ari_median": float(np.median(agreement))}


def _error(again: np.ndarray, images: np.ndarray) -> float:
    return float(np.mean((again - images) ** 2))


def _encoded(picture: np.ndarray) -> str:
    """A picture with pixels from 0 to 1 as PNG in base64."""
    return base64.b64encode(png(to_bytes(2 * np.clip(picture, 0, 1) - 1))).decode()
