"""Evolution of pictures: towards nothing in particular, or towards one given picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from recombine.checks import is_whole
from recombine.cppn.archive import Archive, Individual, archived
from recombine.cppn.genome import Genome
from recombine.cppn.graph import picture
from recombine.cppn.looks import descriptor, quality
from recombine.cppn.mutation import Limits, minimal_genome, mutated
from recombine.errors import InvalidRequest

FOUNDERS = 50  # minimal genomes to begin with
POPULATION = 40  # kept while a target is approached
CONTENDERS = 3


def evolve(
    seed: int,
    evaluations: int,
    *,
    size: int = 32,
    bins: int = 4,
    limits: Limits | None = None,
) -> Archive:
    """MAP-Elites: keeps the picture of the highest quality in every cell of descriptors.

    Parents are drawn from all elites alike, so nothing but variety is selected for. Each of the
    five descriptors has `bins` bins. The same seed gives the same archive.

    >>> archive = evolve(0, 60, size=16)
    >>> archive.line(archive.elites[-1])[0].parent is None
    True
    """
    _positive(evaluations, bins=bins)
    limits = limits or Limits()
    rng = np.random.default_rng(seed)
    everyone: dict[int, Individual] = {}
    elites: dict[tuple[int, ...], Individual] = {}
    cells: list[tuple[int, ...]] = []  # in order of discovery, to draw parents from
    for born in range(evaluations):
        parent = None if born < FOUNDERS else elites[cells[rng.integers(len(cells))]]
        genome = minimal_genome(rng) if parent is None else _child(parent.genome, rng, born, limits)
        image = picture(genome, size)
        look = descriptor(image)
        cell = tuple(int(one) for one in np.minimum(look * bins, bins - 1))
        worth = quality(image)
        if cell in elites and worth <= elites[cell].quality:
            continue
        if cell not in elites:
            cells.append(cell)
        ancestor = None if parent is None else parent.born
        elites[cell] = everyone[born] = Individual(
            born, ancestor, genome, tuple(float(one) for one in look), worth
        )
    return archived(elites.values(), everyone, seed, evaluations)


@dataclass(frozen=True)
class Approach:
    """How near evolution came to a target."""

    genome: Genome
    error: float
    curve: Float[np.ndarray, "evaluation"]
    """The least mean squared error found so far, after each evaluation."""


def approach(
    target: Float[np.ndarray, "size size 3"],
    seed: int,
    evaluations: int,
    *,
    limits: Limits | None = None,
) -> Approach:
    """Evolution that is told where to go: the least mean squared error to a picture wins.

    The best of three takes part in each birth, and the child replaces the worst of three others
    unless it is worse still. That this seldom gets near is a result, not a fault.
    """
    target = np.asarray(target, np.float64)
    if target.ndim != 3 or target.shape[2] != 3 or target.shape[0] != target.shape[1]:
        raise InvalidRequest(f"a target of shape {target.shape}: expected (size, size, 3)")
    if not (np.isfinite(target).all() and target.min() >= 0 and target.max() <= 1):
        raise InvalidRequest("a target with values outside 0..1: expected RGB from 0 to 1")
    _positive(evaluations)
    limits = limits or Limits()
    rng = np.random.default_rng(seed)
    genomes: list[Genome] = []
    errors = np.full(POPULATION, np.inf)
    curve = np.empty(evaluations)
    for born in range(evaluations):
        if born < POPULATION:
            place, genome = born, minimal_genome(rng)
            genomes.append(genome)
        else:
            drawn = rng.choice(POPULATION, 2 * CONTENDERS, replace=False)
            parent = drawn[:CONTENDERS][errors[drawn[:CONTENDERS]].argmin()]
            place = int(drawn[CONTENDERS:][errors[drawn[CONTENDERS:]].argmax()])
            genome = _child(genomes[parent], rng, born, limits)
        error = float(((picture(genome, len(target)) - target) ** 2).mean())
        if error <= errors[place]:
            genomes[place], errors[place] = genome, error
        curve[born] = errors.min()
    best = int(errors.argmin())
    return Approach(genomes[best], float(errors[best]), curve)


def _child(parent: Genome, rng: np.random.Generator, born: int, limits: Limits) -> Genome:
    return mutated(parent, rng, f"n{born}", limits)


def _positive(evaluations: int, bins: int = 1) -> None:
    if not all(is_whole(count) and count >= 1 for count in (evaluations, bins)):
        raise InvalidRequest(
            f"{evaluations!r} evaluations and {bins!r} bins: expected whole numbers of at least 1"
        )
