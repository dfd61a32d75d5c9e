"""How genomes vary: small ones to begin with, then nodes and links added and weights moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from recombine.cppn.functions import ACTIVATIONS
from recombine.cppn.genome import INPUTS, Genome, Link, Node
from recombine.cppn.graph import wiring
from recombine.errors import InvalidRequest


@dataclass(frozen=True)
class Limits:
    """The largest genome evolution may make, and with it the largest architecture."""

    hidden: int = 24
    links: int = 80
    depth: int = 10

    def __post_init__(self) -> None:
        if self.hidden < 0 or self.links < len(INPUTS) * 3 or self.depth < 1:
            raise InvalidRequest(
                f"{self}: expected hidden nodes of at least 0, links of at least "
                f"{len(INPUTS) * 3} (inputs to outputs) and a depth of at least 1"
            )

    def allow(self, genome: Genome) -> bool:
        """Whether a genome is small enough."""
        hidden = sum(node.kind == "hidden" for node in genome.nodes)
        if hidden > self.hidden or len(genome.links) > self.links:
            return False
        return max(wiring(genome).layers().values()) <= self.depth


def minimal_genome(rng: np.random.Generator) -> Genome:
    """Three outputs, each linked to some of the inputs, and nothing in between."""
    nodes = [Node(label, "in", label, "identity") for label in INPUTS]
    links = []
    for label in ("hue", "saturation", "brightness"):
        nodes.append(Node(label, "out", label, _activation(rng)))
        linked = rng.random(len(INPUTS)) < 0.5
        linked[rng.integers(len(INPUTS))] = True
        for source, given in zip(INPUTS, linked, strict=True):
            if given:
                links.append(Link(source, label, _weight(rng)))
    return Genome(tuple(nodes), tuple(links))


def mutated(
    genome: Genome, rng: np.random.Generator, name: str, limits: Limits | None = None
) -> Genome:
    """A child: up to three changes of structure, each within the limits, and weights moved.

    Nodes that are added are called `name` with a letter, which must be new to the genome. A
    change that is not possible, or would break a limit, is left out.

    >>> rng = np.random.default_rng(0)
    >>> parent = minimal_genome(rng)
    >>> mutated(parent, rng, "n1") == parent
    False
    """
    limits = limits or Limits()
    child, changes = genome, "abc"[: rng.integers(4)]
    for letter in changes:
        change = _STRUCTURE[rng.choice(len(_STRUCTURE), p=_ODDS)]
        changed = change(child, rng, name + letter)
        if changed is not None and limits.allow(changed):
            child = changed
    return _perturbed(child, rng) if child is genome or rng.random() < 0.5 else child


def _perturbed(genome: Genome, rng: np.random.Generator) -> Genome:
    moved = rng.random(len(genome.links)) < 0.3
    if genome.links:
        moved[rng.integers(len(genome.links))] = True
    size = float(rng.choice([0.1, 0.5, 1.5]))  # fine and coarse moves alike
    links = (
        replace(link, weight=link.weight + float(rng.normal(0, size))) if move else link
        for link, move in zip(genome.links, moved, strict=True)
    )
    return Genome(genome.nodes, tuple(links))


def _with_node(genome: Genome, rng: np.random.Generator, name: str) -> Genome | None:
    """Puts a node in the middle of a link."""
    if not genome.links:
        return None
    place = int(rng.integers(len(genome.links)))
    link = genome.links[place]
    node = Node(name, "hidden", "", _activation(rng))
    halves = (Link(link.source, name, 1.0), Link(name, link.target, link.weight))
    return Genome(
        (*genome.nodes, node), (*genome.links[:place], *halves, *genome.links[place + 1 :])
    )


def _with_link(genome: Genome, rng: np.random.Generator, _: str) -> Genome | None:
    """Links two nodes that were not linked, without closing a cycle."""
    targets = [node.id for node in genome.nodes if node.kind != "in"]
    source = genome.nodes[rng.integers(len(genome.nodes))].id
    target = targets[rng.integers(len(targets))]
    linked = {(link.source, link.target) for link in genome.links}
    if (source, target) in linked or source in _after(genome, target):
        return None
    return Genome(genome.nodes, (*genome.links, Link(source, target, _weight(rng))))


def _with_activation(genome: Genome, rng: np.random.Generator, _: str) -> Genome | None:
    """Gives one node another activation."""
    places = [place for place, node in enumerate(genome.nodes) if node.kind != "in"]
    place = places[rng.integers(len(places))]
    nodes = list(genome.nodes)
    others = [name for name in ACTIVATIONS if name != nodes[place].activation]
    nodes[place] = replace(nodes[place], activation=others[rng.integers(len(others))])
    return Genome(tuple(nodes), genome.links)


_STRUCTURE: tuple[Callable[[Genome, np.random.Generator, str], Genome | None], ...] = (
    _with_node,
    _with_link,
    _with_activation,
)
_ODDS = (0.4, 0.4, 0.2)


def _after(genome: Genome, start: str) -> set[str]:
    """All that a node leads to, itself included."""
    follows: dict[str, list[str]] = {}
    for link in genome.links:
        follows.setdefault(link.source, []).append(link.target)
    found, waiting = {start}, [start]
    while waiting:
        for target in follows.get(waiting.pop(), ()):
            if target not in found:
                found.add(target)
                waiting.append(target)
    return found


def _activation(rng: np.random.Generator) -> str:
    return ACTIVATIONS[rng.integers(len(ACTIVATIONS))]


def _weight(rng: np.random.Generator) -> float:
    return float(rng.normal(0, 1.5))
