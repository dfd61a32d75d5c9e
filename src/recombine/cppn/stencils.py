"""Stencils: procedural genomes that are symmetric by construction, whatever the picture."""

from __future__ import annotations

import numpy as np

from recombine.cppn.genome import Genome, Link, Node
from recombine.cppn.graph import picture
from recombine.errors import InvalidRequest

INNER = ("gaussian", "gaussian", "sin", "tanh", "cos")  # as often as drawn
DETAILS = 2  # at most
LOOK = 24  # pixels a side at which a draft is judged
FLAT = 0.1  # a picture with a smaller deviation is drawn again


def stencil_genome(seed: int, *, hidden: int = 10, details: int | None = None) -> Genome:
    """A unified genome: all it knows of left and right comes through gaussian(x).

    Every path begins in a primitive that a left-right mirror leaves as it is: gaussian(x), the
    distance d, y or the bias. At most two detail nodes see x itself, and lead to outputs only. So
    every other node is exactly symmetric, which makes it the planted positive of the measures.

    >>> stencil_genome(3) == stencil_genome(3)
    True
    """
    if hidden < 2 or details not in (None, *range(DETAILS + 1)):
        raise InvalidRequest(
            f"a stencil of {hidden} hidden nodes and {details} details: expected at least 2 "
            f"nodes, and from 0 to {DETAILS} details"
        )
    for attempt in range(1000):
        rng = np.random.default_rng([seed, attempt])
        genome = _draft(rng, hidden, int(rng.integers(DETAILS + 1)) if details is None else details)
        if picture(genome, LOOK).std(axis=(0, 1)).max() >= FLAT:
            return genome
    raise InvalidRequest(f"no stencil of seed {seed} and {hidden} nodes is more than a flat colour")


def _draft(rng: np.random.Generator, hidden: int, details: int) -> Genome:
    nodes = [Node(label, "in", label, "identity") for label in ("y", "x", "d", "bias")]
    nodes.append(Node("mirror", "hidden", "", "gaussian"))
    links = [Link("x", "mirror", float(rng.uniform(1, 3)))]
    symmetric = ["mirror", "d", "y", "bias"]

    def join(sources: list[str], target: str, scale: float) -> None:
        for source in sources:
            links.append(Link(source, target, float(rng.normal(0, scale))))

    def some(count: int) -> list[str]:
        # Late nodes are likelier, so that the graph grows deep and not only wide.
        odds = np.arange(1, len(symmetric) + 1.0)
        size = min(count, len(symmetric))
        return [str(one) for one in rng.choice(symmetric, size, replace=False, p=odds / odds.sum())]

    for number in range(1, hidden):
        id = f"s{number}"
        nodes.append(Node(id, "hidden", "", str(rng.choice(INNER))))
        join(some(int(rng.integers(2, 4))), id, 1.5)
        symmetric.append(id)
    for number in range(details):
        nodes.append(Node(f"detail{number}", "hidden", "", "gaussian"))
        links.append(Link("x", f"detail{number}", float(rng.uniform(1, 3))))
        join(some(2), f"detail{number}", 1.5)
    for label, activation in (("hue", "sin"), ("saturation", "tanh"), ("brightness", "gaussian")):
        nodes.append(Node(label, "out", label, activation))
        join(some(3), label, 1.0)
    for number in range(details):
        links.append(Link(f"detail{number}", "brightness", float(rng.choice([-0.3, 0.3]))))
    return Genome(tuple(nodes), tuple(links))
