"""The graph of a computation: its intermediate values, what made each, and from what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from recombine.errors import InvalidRequest

INPUT = "input"
Rule = Callable[..., Hashable]
# What was written for each node, by the node's name; None for text that cannot be read at all.
Written = Mapping[str, Hashable] | None


class Node(NamedTuple):
    """One intermediate value: `op` says what made it, `rule` makes it again from other parents."""

    name: str
    op: str
    value: Hashable
    parents: tuple[int, ...] = ()
    rule: Rule | None = None


@dataclass(frozen=True)
class ComputationGraph:
    """The steps of one computation in an order in which they can be done; the last is the answer.

    >>> graph = ComputationGraph.of([("a", "input", 2, ()), ("b", "input", 3, ()),
    ...                              ("a+b", "add", 5, ("a", "b"))])
    >>> graph.depth, graph.width, graph.parallelism, graph.answer
    (1, 2, 3.0, 5)
    """

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        if not self.nodes:
            raise InvalidRequest("a computation graph needs at least one node")
        if len(self.places) < len(self.nodes):
            twice, _ = Counter(node.name for node in self.nodes).most_common(1)[0]
            raise InvalidRequest(f"two nodes are called {twice!r}: each needs a name of its own")
        for place, node in enumerate(self.nodes):
            if any(not 0 <= parent < place for parent in node.parents):
                raise InvalidRequest(
                    f"node {node.name!r} is number {place} and has parents {node.parents}: "
                    "every parent comes before its children"
                )

    @staticmethod
    def of(steps: Iterable[tuple[str, str, Hashable, tuple[str, ...]]]) -> ComputationGraph:
        """The graph of steps (name, op, value, names of parents), parents before children."""
        grown = GraphBuilder()
        for name, op, value, parents in steps:
            grown.record(name, op, value, parents)
        return grown.graph()

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where each node is, by its name."""
        return {node.name: place for place, node in enumerate(self.nodes)}

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """For each node the longest path to it from any source."""
        found: list[int] = []
        for node in self.nodes:
            found.append(1 + max((found[parent] for parent in node.parents), default=-1))
        return tuple(found)

    @property
    def depth(self) -> int:
        """The layer of the answer: how many steps must be done one after another."""
        return self.layers[-1]

    @cached_property
    def width(self) -> int:
        """The size of the most populated layer: how many steps can be done at once."""
        return max(Counter(self.layers).values())

    @property
    def parallelism(self) -> float:
        """Nodes for each unit of depth."""
        return len(self.nodes) / max(self.depth, 1)

    @property
    def answer(self) -> Hashable:
        return self.nodes[-1].value

    @property
    def values(self) -> dict[str, Hashable]:
        """The right value of every node, by its name."""
        return {node.name: node.value for node in self.nodes}

    def ancestors(self, place: int) -> frozenset[int]:
        """All nodes from which a node is computed, itself included."""
        found, todo = {place}, [place]
        while todo:
            fresh = set(self.nodes[todo.pop()].parents) - found
            found |= fresh
            todo.extend(fresh)
        return frozenset(found)


class GraphBuilder:
    """Grows a graph node by node, each parent named before its children."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._places: dict[str, int] = {}

    def source(self, name: str, value: Hashable) -> str:
        """A symbol of the input."""
        return self.record(name, INPUT, value, ())

    def step(self, name: str, op: str, rule: Rule, *parents: str) -> str:
        """A value made from its parents by a rule."""
        value = rule(*(self[parent] for parent in parents))
        return self.record(name, op, value, parents, rule)

    def record(
        self,
        name: str,
        op: str,
        value: Hashable,
        parents: tuple[str, ...],
        rule: Rule | None = None,
    ) -> str:
        missing = [parent for parent in parents if parent not in self._places]
        if missing:
            raise InvalidRequest(
                f"node {name!r} is made from {missing[0]!r}, which does not come before it"
            )
        self._places.setdefault(name, len(self._nodes))
        self._nodes.append(Node(name, op, value, tuple(self._places[p] for p in parents), rule))
        return name

    def __getitem__(self, name: str) -> Any:
        return self._nodes[self._places[name]].value

    def graph(self) -> ComputationGraph:
        return ComputationGraph(tuple(self._nodes))
