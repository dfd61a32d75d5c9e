"""Is a picture kept together inside the network that draws it, or scattered over its neurons?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from recombine.checks import at_least
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
from recombine.instruments.picture_walls import encoded, strips, wall
from recombine.instruments.subject import Subject
from recombine.seeds import host_seed, key_at, stream
from recombine.trees import named

LOOKED = 24  # weights looked at for strips: not every one can change the picture enough


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

    def drawn_anew(self) -> PictureSubject:
        """A network of the same shape with random weights."""
        key = key_at(stream(self.seed, "drawn-anew"), 0)
        network = LayeredCPPN.draw(key, self.network.architecture)
        return PictureSubject(network, named(network), self.target, self.seed)


@dataclass(frozen=True)
class PictureFracture(Instrument):
    """Symmetry of neurons, roughness, number and rank of distinct maps, symmetry of sweeps.

    Neurons of a unified network share the symmetry of the picture they draw, so each is compared
    with its mirror image under the symmetry that the picture itself has most of (`symmetry` in the
    table, `target_symmetry` how much of it). `concordance` is the mean absolute correlation over
    distinct maps, `heard` the same over neurons that reach the picture through weights that are not
    zero, `rotated` the first after a random rotation within layers, since the basis of neurons is
    what it is about. Sweeps move single weights until the picture changes by a set
    amount; those that cannot be moved to it, to within a tenth, tell nothing and are counted as
    `dropped` (each weight counts twice: made larger, made smaller). Controls: the untrained twin
    (for a network of evolution, which never was, one drawn at random in its architecture), rotated
    layers, and a planted stencil, unified by making. With `shows`, a wall of feature maps and
    strips of swept weights are kept for the report.
    """

    version: ClassVar[int] = 3
    name: ClassVar[str] = "picture-fracture"
    needs: ClassVar[tuple[str, ...]] = ("activations", "weights")
    controls: ClassVar[tuple[str, ...]] = ("untrained", "rotated", "planted")

    sweeps: int = 60
    shows: bool = False

    def __post_init__(self) -> None:
        at_least(self, sweeps=0)

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        mine, twin = _picture(subject, self.name), _picture(untrained, self.name)
        rng = np.random.default_rng(host_seed(mine.seed, self.name))
        found = {name: target_symmetry(mine.target, name) for name in SYMMETRIES}
        symmetry = max(found, key=lambda name: found[name])
        if same(mine, twin):
            # Evolution's network was never trained: chance is one drawn in its architecture.
            twin = mine.drawn_anew()
        values = self.measured(mine, symmetry, rng)
        values |= {"error": float(np.mean((mine.drawn() - mine.target) ** 2)),
                   "target_symmetry": found[symmetry]}  # fmt: skip
        control = self.measured(twin, symmetry, rng)
        architecture, matrices = layerise(stencil_genome(0, details=0))
        stencil = LayeredCPPN.of(architecture, matrices)
        planted = fracture(stencil.maps(mine.target.shape[0]), seed=mine.seed)
        maps = distinct_maps(mine.network, mine.target.shape[0])
        tables: dict[str, dict[str, list[Any]]] = {
            "maps": {"concordance": concordance(maps, symmetry).round(6).tolist()},
            "symmetry": {"name": list(found), "share": list(found.values()),
                         "used": [name == symmetry for name in found]}
        }  # fmt: skip
        if self.shows:
            tables |= shown(mine, symmetry, maps, rng)
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
        swept = self.swept(subject, symmetry, rng) if self.sweeps else None
        found: Fracture = fracture(network.maps(side), symmetry=symmetry, seed=subject.seed,
                                   sweeps=swept)  # fmt: skip
        values = {
            "concordance": found.concordance, "symmetric_share": found.symmetric_share,
            "rotated": found.rotated_concordance, "variation": found.variation,
            "distinct": float(found.distinct), "effective_rank": found.effective_rank,
        }  # fmt: skip
        if len(told := distinct_maps(network, side, heard(network.matrices()))):
            values["heard"] = float(concordance(told, symmetry).mean())
        if found.sweep_symmetry is not None:
            values["sweep_symmetry"] = found.sweep_symmetry
        if swept is not None:
            values["dropped"] = float(np.isnan(swept).sum())
        return values

    def swept(
        self, subject: PictureSubject, symmetry: str, rng: np.random.Generator
    ) -> Float[np.ndarray, "sweep"]:
        network = subject.network
        places = sweepable(network.architecture, network.matrices())
        chosen = rng.choice(places, min(self.sweeps, len(places)), replace=False)
        # Repeated to one length, so that networks with few weights need no program of their own.
        found = sweep_symmetry(
            subject.renderer, network.flat(), np.resize(chosen, self.sweeps), symmetry=symmetry
        )
        return found.reshape(2, -1)[:, : len(chosen)].ravel()


def target_symmetry(target: Float[np.ndarray, "row column 3"], symmetry: str) -> float:
    """How far a picture is its own mirror image: the least over its channels that vary."""
    channels = np.moveaxis(np.asarray(target, np.float64), -1, 0)
    varied = channels[channels.std(axis=(1, 2)) > 1e-3]
    if not len(varied):
        return 0.0
    return float(np.min(concordance(standardised(varied), symmetry)))


def shown(
    subject: PictureSubject, symmetry: str, maps: np.ndarray, rng: np.random.Generator
) -> dict[str, dict[str, list[Any]]]:
    """The wall of its feature maps, and strips of what single weights do."""
    network = subject.network
    places = rng.permutation(sweepable(network.architecture, network.matrices()))
    weights = np.asarray(network.flat())
    on_wall = wall(subject.drawn(), maps, concordance(maps, symmetry))
    return {
        "wall": {"png": [encoded(on_wall)]},
        "strips": strips(subject.renderer, weights, places[:LOOKED].tolist(), symmetry),
    }


def distinct_maps(
    network: LayeredCPPN, side: int, among: Sequence[Bool[np.ndarray, "neuron"]] | None = None
) -> Float[np.ndarray, "map row column"]:
    """The maps of all hidden neurons, or of these among them, standardised, without copies."""
    layers = network.maps(side)
    if among is not None:
        layers = [layer[these] for layer, these in zip(layers, among, strict=True)]
    joined = np.concatenate([standardised(layer) for layer in layers])
    return joined[distinct(joined)]


def heard(
    matrices: Sequence[Float[np.ndarray, "in out"]],
) -> list[Bool[np.ndarray, "neuron"]]:
    """Of each hidden layer, which neurons reach the picture through weights that are not zero.

    >>> [one.tolist() for one in heard([np.ones((1, 2)), np.eye(2), np.array([[1.0], [0.0]])])]
    [[True, False], [True, False]]
    """
    listening = np.ones(matrices[-1].shape[1], bool)
    found = []
    for matrix in reversed(matrices[1:]):
        listening = (matrix[:, listening] != 0).any(axis=1)
        found.append(listening)
    return found[::-1]


def same(one: PictureSubject, other: PictureSubject) -> bool:
    return np.array_equal(np.asarray(one.network.flat()), np.asarray(other.network.flat()))


def _picture(subject: Subject, instrument: str) -> PictureSubject:
    if not isinstance(subject, PictureSubject):
        raise NotApplicable(
            f"{instrument} looks at networks that draw a picture from coordinates; "
            f"{type(subject).__name__} does not"
        )
    return subject
