"""Pictures by direct evaluation of a genome's graph: the meaning every other form must keep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from recombine.cppn.functions import activate, colour
from recombine.cppn.genome import INPUTS, Genome, Node
from recombine.errors import InvalidRequest

CORNER = 1.4  # times the distance from the middle: the scale Picbreeder's d has


@dataclass(frozen=True)
class Wiring:
    """The part of a genome that matters to its picture, in an order it can be computed in."""

    order: tuple[Node, ...]
    sources: dict[str, tuple[tuple[str, float], ...]]
    """Where each node's sum comes from; a link that would close a cycle is left out."""

    @property
    def hidden(self) -> int:
        """How many hidden nodes matter to the picture."""
        return sum(node.kind == "hidden" for node in self.order)

    def layers(self) -> dict[str, int]:
        """The number of steps from the inputs to each node, by the longest way."""
        found: dict[str, int] = {}
        for node in self.order:
            before = (found[source] for source, _ in self.sources[node.id])
            found[node.id] = 0 if node.kind == "in" else 1 + max(before, default=0)
        return found


def wiring(genome: Genome) -> Wiring:
    """Follows the links back from the outputs, and drops those that would close a cycle."""
    nodes = {node.id: node for node in genome.nodes}
    incoming: dict[str, list[tuple[str, float]]] = {id: [] for id in nodes}
    for link in genome.links:
        incoming[link.target].append((link.source, link.weight))
    order: list[Node] = []
    sources: dict[str, tuple[tuple[str, float], ...]] = {}
    kept: dict[str, list[tuple[str, float]]] = {}  # of the nodes entered and not yet left
    for output in genome.outputs().values():
        if output in sources:
            continue
        # An explicit stack: a long chain of nodes must not reach Python's recursion limit.
        kept[output] = []
        stack = [(output, iter(incoming[output]))]
        while stack:
            id, rest = stack[-1]
            for source, weight in rest:
                if source in kept:
                    continue
                kept[id].append((source, weight))
                if source not in sources:
                    kept[source] = []
                    stack.append((source, iter(incoming[source])))
                    break
            else:
                stack.pop()
                sources[id] = tuple(kept.pop(id))
                order.append(nodes[id])
    return Wiring(tuple(order), sources)


def coordinates(size: int) -> Float[np.ndarray, "pixel 4"]:
    """What a network is told of each pixel, row by row: y, x, distance to the middle, and 1.

    >>> coordinates(2)[1].round(2).tolist()
    [-1.0, 1.0, 1.98, 1.0]
    """
    if not isinstance(size, int | np.integer) or size < 2:
        raise InvalidRequest(
            f"a picture of {size!r} pixels a side: expected a whole number of at least 2"
        )
    line = np.linspace(-1, 1, size)
    y, x = (part.ravel() for part in np.meshgrid(line, line, indexing="ij"))
    return np.stack([y, x, CORNER * np.sqrt(x * x + y * y), np.ones_like(x)], axis=1)


def evaluate(genome: Genome, size: int) -> dict[str, Float[np.ndarray, "size size"]]:
    """The map of every node that matters to the picture, inputs among them, by id."""
    return _maps(wiring(genome), size)


def _maps(wired: Wiring, size: int) -> dict[str, Float[np.ndarray, "size size"]]:
    inputs = coordinates(size).T.reshape(len(INPUTS), size, size)
    maps: dict[str, np.ndarray] = {}
    for node in wired.order:
        if node.kind == "in":
            maps[node.id] = inputs[INPUTS.index(node.label)]
            continue
        total = np.zeros((size, size))
        for source, weight in wired.sources[node.id]:
            total += weight * maps[source]
        # A product beyond the largest number has a limit in every bounded activation.
        with np.errstate(over="ignore"):
            maps[node.id] = activate(node.activation, total)
    return maps


def picture(
    genome: Genome, size: int, wired: Wiring | None = None
) -> Float[np.ndarray, "size size 3"]:
    """The picture a genome draws, in RGB from 0 to 1.

    >>> from recombine.cppn import Link
    >>> d, ink = Node("d", "in", "d", "identity"), Node("ink", "out", "ink", "identity")
    >>> picture(Genome((d, ink), (Link("d", "ink", 0.25),)), 3)[1, :, 0].round(2).tolist()
    [0.35, 0.0, 0.35]
    """
    maps = _maps(wired or wiring(genome), size)
    outputs, nothing = genome.outputs(), np.zeros((size, size))
    hue, saturation, brightness = (
        maps[outputs[label]] if label in outputs else nothing
        for label in ("hue", "saturation", "brightness")
    )
    return colour(hue, saturation, brightness)
