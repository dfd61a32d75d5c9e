"""Genomes for tests: drawn at random, or the ones people bred."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import strategies as st

from recombine.cppn import ACTIVATIONS, Genome, Link, Node, read_genome

LABELS = ("x", "y", "d", "bias")
WEIGHTS = st.floats(-2, 2).map(lambda weight: round(weight, 3))


def bred(name: str) -> Genome:
    for folder in filter(None, map(os.environ.get, ("RECOMBINE_TEST_DATA", "RECOMBINE_DATA"))):
        path = Path(folder) / "picbreeder" / f"{name}.zip"
        if path.is_file():
            return read_genome(path)
    pytest.skip(f"RECOMBINE_TEST_DATA and RECOMBINE_DATA name no folder with picbreeder/{name}.zip")


def small(*links: tuple[str, str, float], **activations: str) -> Genome:
    """A genome of the nodes named in links; those in LABELS are inputs."""
    names = dict.fromkeys(end for source, target, _ in links for end in (source, target))
    nodes = []
    for name in names:
        out = name in ("ink", "hue", "saturation", "brightness")
        kind = "in" if name in LABELS else "out" if out else "hidden"
        label = "" if kind == "hidden" else name
        nodes.append(Node(name, kind, label, activations.get(name, "identity")))
    return Genome(tuple(nodes), tuple(Link(*link) for link in links))


@st.composite
def genomes(draw: st.DrawFn, cycles: bool = False) -> Genome:
    """Any graph of up to eight hidden nodes, in grey or in colour, dead ends included."""
    hidden = [f"h{number}" for number in range(draw(st.integers(0, 8)))]
    outs = draw(st.sampled_from([["ink"], ["hue", "saturation", "brightness"], ["brightness"]]))
    order = [*LABELS, *hidden, *outs]
    kinds = (
        dict.fromkeys(LABELS, "in") | dict.fromkeys(hidden, "hidden") | dict.fromkeys(outs, "out")
    )
    activation = st.sampled_from(ACTIVATIONS)
    nodes = tuple(
        Node(id, kind, "" if kind == "hidden" else id, draw(activation))  # type: ignore[arg-type]
        for id, kind in kinds.items()
    )
    links = []
    for place, target in enumerate(order):
        if target in LABELS:
            continue
        sources = order if cycles else order[:place]
        for source in draw(st.lists(st.sampled_from(sources), max_size=4, unique=True)):
            links.append(Link(source, target, draw(WEIGHTS)))
    return Genome(draw(st.permutations(nodes).map(tuple)), tuple(links))
