"""Is a picture kept together inside the network that draws it, or scattered over its neurons?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from recombine.cppn import (
    SYMMETRIES,
    Fracture,
    LayeredCPPN,
    Renderer,
    concordance,
    distinct,
    fracture,
    layerise,
    standardised,
    stencil_genome,
    sweep_symmetry,
    sweepable,
)
from recombine.errors import NotApplicable
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.subject import Subject
from recombine.seeds import host_seed

SHOWN = 24  # feature maps kept for the report
STEPS = (-1.0, -0.5, 0.0, 0.5, 1.0)  # of a strip: how far one weight is moved
STRIPS = 4


class PictureSubject(Subject):
    """A network that draws, and the picture it should draw."""

    abilities = frozenset({"activations", "weights"})

    def __init__(
        self, network: LayeredCPPN, stored: dict[str, np.ndarray],
        target: Float[np.ndarray, "row column 3"], seed: int,
    ):  # fmt: skip
        self.network, self.stored, self.target, self.seed = network, stored, target, seed

    def weights(self) -> dict[str, np.ndarray]:
        return self.stored

    @property
    def renderer(self) -> Renderer:
        return Renderer(self.network.architecture, self.target.shape[0])

    def drawn(self) -> Float[np.ndarray, "row column 3"]:
        return np.asarray(self.renderer(self.network.flat()))


@dataclass(frozen=True)
class PictureFracture(Instrument):
    """Symmetry of neurons, roughness, number and rank of distinct maps, symmetry of sweeps.

    Neurons of a unified network share the symmetry of the picture they draw, so each is compared
    with its mirror image under the symmetry that the picture itself has most of (`symmetry` in
    the table, `target_symmetry` how much of it). `concordance` is the mean absolute correlation
    over distinct maps, `rotated` the same after a random rotation within layers, since the basis
    of neurons is what it is about. Sweeps move single weights until the picture changes by a set
    amount. Controls: the untrained twin, rotated layers, and a planted stencil, which is unified
    by making.
    """

    version: ClassVar[int] = 1
    name: ClassVar[str] = "picture-fracture"
    needs: ClassVar[tuple[str, ...]] = ("activations", "weights")
    controls: ClassVar[tuple[str, ...]] = ("untrained", "rotated", "planted")

    sweeps: int = 60
    shows: bool = False  # whether feature maps and strips are kept for the report

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        mine, twin = _picture(subject, self.name), _picture(untrained, self.name)
        rng = np.random.default_rng(host_seed(mine.seed, self.name))
        found = {name: target_symmetry(mine.target, name) for name in SYMMETRIES}
        symmetry = max(found, key=lambda name: found[name])
        values = self.measured(mine, symmetry, rng)
        values |= {"error": float(np.mean((mine.drawn() - mine.target) ** 2)),
                   "target_symmetry": found[symmetry]}  # fmt: skip
        control = self.measured(twin, symmetry, rng)
        architecture, matrices = layerise(stencil_genome(0))
        stencil = LayeredCPPN.of(architecture, matrices)
        planted = fracture(stencil.maps(mine.target.shape[0]), seed=mine.seed)
        tables: dict[str, dict[str, list[Any]]] = {
            "symmetry": {"name": list(found), "share": list(found.values()),
                         "used": [name == symmetry for name in found]}
        }  # fmt: skip
        if self.shows:
            tables |= shown(mine, symmetry, rng)
        return Reading(
            values,
            {"untrained": control, "rotated": {"concordance": values["rotated"]},
             "planted": {"concordance": planted.concordance,
                         "symmetric_share": planted.symmetric_share}},
            tables,
        )  # fmt: skip

    def measured(
        self, subject: PictureSubject, symmetry: str, rng: np.random.Generator
    ) -> dict[str, float]:
        network, side = subject.network, subject.target.shape[0]
        swept = None
        if self.sweeps:
            places = sweepable(network.architecture, network.matrices())
            count = min(self.sweeps, len(places))
            swept = sweep_symmetry(
                subject.renderer, network.flat(), rng.choice(places, count, replace=False),
                symmetry=symmetry,
            )  # fmt: skip
        found: Fracture = fracture(network.maps(side), symmetry=symmetry, seed=subject.seed,
                                   sweeps=swept)  # fmt: skip
        values = {
            "concordance": found.concordance, "symmetric_share": found.symmetric_share,
            "rotated": found.rotated_concordance, "variation": found.variation,
            "distinct": float(found.distinct), "effective_rank": found.effective_rank,
        }  # fmt: skip
        if found.sweep_symmetry is not None:
            values["sweep_symmetry"] = found.sweep_symmetry
        return values


def target_symmetry(target: Float[np.ndarray, "row column 3"], symmetry: str) -> float:
    """How far a picture is its own mirror image: the least over its channels that vary."""
    channels = np.moveaxis(np.asarray(target, np.float64), -1, 0)
    varied = channels[channels.std(axis=(1, 2)) > 1e-3]
    if not len(varied):
        return 0.0
    return float(np.min(concordance(standardised(varied), symmetry)))


def shown(
    subject: PictureSubject, symmetry: str, rng: np.random.Generator
) -> dict[str, dict[str, list[Any]]]:
    """The picture, its target, distinct feature maps and sweep strips, in bytes."""
    side, network = subject.target.shape[0], subject.network
    maps = [standardised(layer) for layer in network.maps(side)]
    joined = np.concatenate(maps)
    kept = distinct(joined)
    kept = kept[np.linspace(0, len(kept) - 1, min(SHOWN, len(kept))).round().astype(int)]
    grey = np.clip((joined[kept] / 3 + 1) / 2, 0, 1)
    weights = np.asarray(network.flat())
    places = sweepable(network.architecture, network.matrices())
    strips = []
    for place in rng.choice(places, min(STRIPS, len(places)), replace=False):
        row = []
        for step in STEPS:
            moved = weights.copy()
            moved[place] += step
            row.append(np.asarray(subject.renderer(jnp.asarray(moved))))
        strips.append(np.concatenate(row, axis=1))
    return {
        "drawn": {"pixels": _bytes(subject.drawn()), "target": _bytes(subject.target)},
        "maps": {"pixels": [_bytes(one) for one in grey],
                 "concordance": concordance(joined[kept], symmetry).tolist()},
        "strips": {"pixels": [_bytes(one) for one in strips]},
    }  # fmt: skip


def _bytes(array: np.ndarray) -> list[int]:
    return np.clip(np.asarray(array) * 255, 0, 255).round().astype(int).ravel().tolist()


def _picture(subject: Subject, instrument: str) -> PictureSubject:
    if not isinstance(subject, PictureSubject):
        raise NotApplicable(
            f"{instrument} looks at networks that draw a picture from coordinates; "
            f"{type(subject).__name__} does not"
        )
    return subject
