"""Genomes as layers: the shape of a network that can hold them, and its matrices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from recombine.cppn.functions import ACTIVATIONS, CACHE
from recombine.cppn.genome import INPUTS, Genome
from recombine.cppn.graph import wiring
from recombine.errors import InvalidRequest

COLOURS = ("hue", "saturation", "brightness")


@dataclass(frozen=True)
class Architecture:
    """Layers of equal width, each in the same blocks of neurons with one activation.

    >>> str(Architecture.parse("12;cache:15,gaussian:4,identity:2,sin:1"))
    '12;cache:15,gaussian:4,identity:2,sin:1'
    """

    depth: int
    blocks: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.blocks]
        for name, count in self.blocks:
            if name not in (CACHE, *ACTIVATIONS):
                raise InvalidRequest(
                    f"unknown activation {name!r} in an architecture "
                    f"(known: {', '.join((CACHE, *ACTIVATIONS))})"
                )
            if count < 1:
                raise InvalidRequest(f"{count} neurons of {name}: expected at least 1")
        if self.depth < 1 or not names or len(set(names)) < len(names):
            raise InvalidRequest(
                f"the architecture '{self}': expected at least one layer and one block, "
                "each activation once"
            )

    @staticmethod
    def parse(text: str) -> Architecture:
        """The inverse of `str`: the number of layers, then each activation with its count."""
        if not isinstance(text, str) or not re.fullmatch(r"\d+;[a-z]+:\d+(,[a-z]+:\d+)*", text):
            raise InvalidRequest(
                f"not an architecture: {text!r}; expected layers;activation:count,... "
                "such as 12;cache:15,gaussian:4"
            )
        depth, _, blocks = text.partition(";")
        pairs = (block.split(":") for block in blocks.split(","))
        return Architecture(int(depth), tuple((name, int(count)) for name, count in pairs))

    def __str__(self) -> str:
        return f"{self.depth};" + ",".join(f"{name}:{count}" for name, count in self.blocks)

    @property
    def width(self) -> int:
        return sum(count for _, count in self.blocks)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Of the matrices, the one that picks the three outputs last."""
        inner = ((self.width, self.width),) * (self.depth - 1)
        return ((len(INPUTS), self.width), *inner, (self.width, len(COLOURS)))

    def starts(self) -> dict[str, int]:
        """The first neuron of each block."""
        starts, at = {}, 0
        for name, count in self.blocks:
            starts[name] = at
            at += count
        return starts


@dataclass(frozen=True)
class _Lives:
    """The layer each value is computed in and the last one that must still hold it."""

    activation: dict[Hashable, str]
    sources: dict[Hashable, tuple[tuple[Hashable, float], ...]]
    born: dict[Hashable, int]
    last: dict[Hashable, int]
    outputs: tuple[Hashable, ...]

    @property
    def depth(self) -> int:
        return max(self.born[output] for output in self.outputs)

    def held(self, layer: int, depth: int) -> list[tuple[Hashable, str]]:
        """What a layer of a network this deep computes, or hands on, and by which block."""
        found = []
        for node, born in self.born.items():
            last = depth if node in self.outputs else self.last[node]
            if born == layer > 0:
                found.append((node, self.activation[node]))
            elif born < layer <= last:
                found.append((node, CACHE))
        return found

    def counts(self, depth: int) -> Counter[str]:
        """Neurons needed of each block, over all layers."""
        most: Counter[str] = Counter()
        for layer in range(1, depth + 1):
            most |= Counter(block for _, block in self.held(layer, depth))
        return most


def _lives(genome: Genome) -> _Lives:
    wired = wiring(genome)
    sources: dict[Hashable, tuple[tuple[Hashable, float], ...]] = {**wired.sources}
    activation: dict[Hashable, str] = {node.id: node.activation for node in wired.order}
    born: dict[Hashable, int] = {**wired.layers()}
    outputs: dict[str, Hashable] = {**genome.outputs()}
    for label in COLOURS:
        if label not in outputs:
            # A grey picture's hue and saturation are nodes too, after the brightness and cut off
            # from it, so that a network of its shape could learn colours.
            absent = ("absent", label)
            outputs[label] = absent
            sources[absent] = ((outputs["brightness"], 0.0),)
            activation[absent] = "identity"
            born[absent] = born[outputs["brightness"]] + 1
    last = dict(born)
    for node, found in sources.items():
        for source, _ in found:
            last[source] = max(last[source], born[node] - 1)
    return _Lives(activation, sources, born, last, tuple(outputs[label] for label in COLOURS))


def fits(genomes: Sequence[Genome]) -> Architecture:
    """The smallest architecture that holds every one of these genomes."""
    if not genomes:
        raise InvalidRequest("no genomes given: expected at least one to fit")
    lives = [_lives(genome) for genome in genomes]
    depth = max(one.depth for one in lives)
    most: Counter[str] = Counter()
    for one in lives:
        most |= one.counts(depth)
    return Architecture(depth, tuple(sorted(most.items())))


def layerise(
    genome: Genome, architecture: Architecture | None = None
) -> tuple[Architecture, list[Float[np.ndarray, "in out"]]]:
    """The genome as matrices, inert zeros filling an architecture larger than it needs.

    A value that a later layer needs is handed on by cache neurons of weight 1, so that every
    link is one entry of one matrix.
    """
    lives = _lives(genome)
    if architecture is None:
        architecture = fits([genome])
    depth = architecture.depth
    needed = lives.counts(max(depth, lives.depth))
    room = dict(architecture.blocks)
    if lives.depth > depth or any(count > room.get(name, 0) for name, count in needed.items()):
        raise InvalidRequest(
            f"the genome does not fit into {architecture}: it needs "
            f"{Architecture(max(depth, lives.depth), tuple(sorted(needed.items())))}; "
            "fits([...]) gives an architecture for many genomes"
        )
    matrices = [np.zeros(shape) for shape in architecture.shapes]
    seats = _input_seats(genome)
    for layer in range(1, depth + 1):
        free, before, seats = architecture.starts(), seats, {}
        for node, block in lives.held(layer, depth):
            column = seats[node] = free[block]
            free[block] += 1
            sources = ((node, 1.0),) if block == CACHE else lives.sources[node]
            for source, weight in sources:
                matrices[layer - 1][before[source], column] += weight
    for column, output in enumerate(lives.outputs):
        matrices[-1][seats[output], column] = 1.0
    return architecture, matrices


def _input_seats(genome: Genome) -> dict[Hashable, int]:
    return {node.id: INPUTS.index(node.label) for node in genome.nodes if node.kind == "in"}


def sweepable(
    architecture: Architecture, matrices: Sequence[Float[np.ndarray, "in out"]]
) -> Int[np.ndarray, "weight"]:
    """The weights worth changing, by place in the matrices laid end to end.

    Neither zeros nor copies count: a neuron that only hands on a value, or an output that only
    picks one, has a single 1 in its column.
    """
    start = architecture.starts().get(CACHE, 0)
    cache = range(start, start + dict(architecture.blocks).get(CACHE, 0))
    flags = []
    for place, matrix in enumerate(matrices):
        matrix = np.asarray(matrix)
        copies = ((matrix != 0).sum(axis=0) == 1) & ((matrix == 1).sum(axis=0) == 1)
        if place < len(matrices) - 1:
            copies &= np.isin(np.arange(matrix.shape[1]), cache)
        flags.append(((matrix != 0) & ~copies).ravel())
    return np.flatnonzero(np.concatenate(flags))
