"""What evolution leaves: elites, the lines that led to them, and the rule that picks targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recombine.cppn.genome import Genome
from recombine.cppn.graph import picture, wiring
from recombine.errors import InvalidRequest


@dataclass(frozen=True)
class Individual:
    """One genome that was kept: when it was drawn, from whom, and what it looks like."""

    born: int
    parent: int | None
    genome: Genome
    descriptor: tuple[float, ...]
    quality: float

    def document(self) -> dict[str, Any]:
        return {
            "born": self.born,
            "parent": self.parent,
            "genome": self.genome.document(),
            "descriptor": list(self.descriptor),
            "quality": self.quality,
        }

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Individual:
        return Individual(
            int(document["born"]),
            None if document["parent"] is None else int(document["parent"]),
            Genome.from_document(document["genome"]),
            tuple(float(one) for one in document["descriptor"]),
            float(document["quality"]),
        )


@dataclass(frozen=True)
class Archive:
    """The best of every kind of picture, and their ancestors."""

    elites: tuple[Individual, ...]
    ancestors: tuple[Individual, ...]
    """Of the elites, those that are not elites themselves, in the order of their birth."""
    seed: int
    evaluations: int

    def line(self, elite: Individual) -> tuple[Individual, ...]:
        """The chain of parents, from the minimal genome to the elite itself."""
        known = {one.born: one for one in (*self.ancestors, *self.elites)}
        if known.get(elite.born) != elite:
            raise InvalidRequest(f"the individual born at {elite.born} is not of this archive")
        chain = [elite]
        while chain[-1].parent is not None:
            chain.append(known[chain[-1].parent])
        return tuple(reversed(chain))

    def document(self) -> dict[str, Any]:
        """The archive as JSON."""
        return {
            "seed": self.seed,
            "evaluations": self.evaluations,
            "elites": [one.document() for one in self.elites],
            "ancestors": [one.document() for one in self.ancestors],
        }

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Archive:
        """The inverse of `document`."""
        try:
            elites, ancestors = (
                tuple(Individual.from_document(one) for one in document[part])
                for part in ("elites", "ancestors")
            )
            return Archive(elites, ancestors, int(document["seed"]), int(document["evaluations"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequest(f"not the document of an archive ({error!r})") from error


def archived(
    elites: Iterable[Individual], everyone: Mapping[int, Individual], seed: int, evaluations: int
) -> Archive:
    """The elites with those of `everyone` that are their ancestors."""
    ordered = tuple(sorted(elites, key=lambda one: one.born))
    kept = {one.born for one in ordered}
    found: dict[int, Individual] = {}
    for one in ordered:
        parent = one.parent
        while parent is not None and parent not in found:
            if parent not in kept:
                found[parent] = everyone[parent]
            parent = everyone[parent].parent
    return Archive(ordered, tuple(found[born] for born in sorted(found)), seed, evaluations)


def chosen(
    archive: Archive,
    count: int,
    seed: int,
    *,
    nodes: int = 4,
    deviation: float = 0.1,
    size: int = 32,
) -> tuple[Individual, ...]:
    """The pictures used as targets: elites as unlike one another as can be.

    Only elites with at least `nodes` hidden nodes that matter to the picture, and a picture with
    a channel whose standard deviation is at least `deviation`, are looked at. A first one is
    drawn, then always the one farthest, in descriptors, from all chosen before. No symmetry is
    asked for.
    """
    able = [one for one in archive.elites if worth(one.genome, nodes, deviation, size)]
    if not able:
        raise InvalidRequest(
            f"{count} pictures asked for: none of the {len(archive.elites)} elites has at least "
            f"{nodes} hidden nodes and a deviation of {deviation}; evolve for longer than "
            f"{archive.evaluations} evaluations"
        )
    if not 1 <= count <= len(able):
        raise InvalidRequest(
            f"{count} pictures asked for: expected from 1 to {len(able)}, the elites with at "
            f"least {nodes} hidden nodes and a deviation of {deviation}; evolve for longer"
        )
    looks = np.array([one.descriptor for one in able])
    picked = [int(np.random.default_rng(seed).integers(len(able)))]
    nearest = np.linalg.norm(looks - looks[picked[0]], axis=1)
    while len(picked) < count:
        nearest[picked] = -1  # two elites can look exactly alike
        picked.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, np.linalg.norm(looks - looks[picked[-1]], axis=1))
    return tuple(able[place] for place in picked)


def worth(genome: Genome, nodes: int = 4, deviation: float = 0.1, size: int = 32) -> bool:
    """Whether a picture may be a target: nodes enough that matter to it, and something to see."""
    wired = wiring(genome)
    if wired.hidden < nodes:
        return False
    return bool(picture(genome, size, wired).std(axis=(0, 1)).max() >= deviation)
