"""Genomes: which nodes a picture's network has and how they are linked, and where from."""

from __future__ import annotations

import io
import math
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from recombine._archives import DAMAGE
from recombine.cppn.functions import ACTIVATIONS
from recombine.errors import InvalidRequest

Kind = Literal["in", "hidden", "out"]
INPUTS = ("y", "x", "d", "bias")
OUTPUTS = ("hue", "saturation", "brightness", "ink")
LARGEST = 4 * 2**20  # bytes of XML; the pictures people bred take some ten thousand


@dataclass(frozen=True)
class Node:
    """One node: an input or an output by its label, or a hidden one."""

    id: str
    kind: Kind
    label: str
    activation: str


@dataclass(frozen=True)
class Link:
    """A weight from one node to another."""

    source: str
    target: str
    weight: float


@dataclass(frozen=True)
class Genome:
    """A graph of nodes that turns the coordinates of a pixel into its colour.

    >>> ring = Genome(
    ...     (Node("d", "in", "d", "identity"), Node("ink", "out", "ink", "gaussian")),
    ...     (Link("d", "ink", 2.0),),
    ... )
    >>> Genome.from_document(ring.document()) == ring
    True
    """

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]

    def __post_init__(self) -> None:
        if not self.nodes:
            raise InvalidRequest("the genome has no nodes: expected inputs, hidden ones, outputs")
        kinds: dict[str, str] = {}
        for node in self.nodes:
            _check(node)
            if node.id in kinds:
                raise InvalidRequest(f"two nodes have the id {node.id!r}: each needs its own")
            kinds[node.id] = node.kind
        labels = [node.label for node in self.nodes if node.kind == "out"]
        if len({"ink", "brightness"} & set(labels)) != 1 or len(set(labels)) < len(labels):
            raise InvalidRequest(
                f"the genome's outputs are {', '.join(labels) or 'none'}: expected ink, or "
                "brightness with hue and saturation, each once"
            )
        for link in self.links:
            for end in (link.source, link.target):
                if end not in kinds:
                    raise InvalidRequest(
                        f"the link {link.source} -> {link.target} names the node {end!r}, "
                        "which does not exist"
                    )
            if kinds[link.target] == "in":
                raise InvalidRequest(f"the link {link.source} -> {link.target} leads into an input")
            if not math.isfinite(link.weight):
                raise InvalidRequest(
                    f"the link {link.source} -> {link.target} has the weight {link.weight}: "
                    "expected a finite number"
                )

    def outputs(self) -> dict[str, str]:
        """The ids of the outputs by label; ink counts as brightness."""
        found = {node.label: node.id for node in self.nodes if node.kind == "out"}
        return {("brightness" if label == "ink" else label): id for label, id in found.items()}

    def document(self) -> dict[str, Any]:
        """The genome as JSON."""
        return {
            "nodes": [[node.id, node.kind, node.label, node.activation] for node in self.nodes],
            "links": [[link.source, link.target, link.weight] for link in self.links],
        }

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Genome:
        """The inverse of `document`."""
        try:
            nodes = tuple(Node(*(str(part) for part in row)) for row in document["nodes"])  # type: ignore[arg-type]
            links = tuple(Link(str(a), str(b), float(w)) for a, b, w in document["links"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequest(
                f"not the document of a genome ({error!r}): expected nodes as "
                "[id, kind, label, activation] and links as [source, target, weight]"
            ) from error
        return Genome(nodes, links)


def _check(node: Node) -> None:
    if node.kind not in get_args(Kind):
        raise InvalidRequest(f"node {node.id}: kind {node.kind!r}: expected in, hidden or out")
    if node.activation not in ACTIVATIONS:
        raise InvalidRequest(
            f"node {node.id}: unknown activation {node.activation!r} "
            f"(known: {', '.join(ACTIVATIONS)})"
        )
    allowed = {"in": INPUTS, "out": OUTPUTS}.get(node.kind)
    if allowed is not None and node.label not in allowed:
        raise InvalidRequest(
            f"node {node.id}: an {node.kind}put labelled {node.label!r}: "
            f"expected one of {', '.join(allowed)}"
        )


def read_genome(source: str | Path | bytes) -> Genome:
    """A genome as Picbreeder keeps it: XML, plain or alone in a zip archive.

    Hidden nodes and links keep their order; a node's id is its branch and number.

    >>> read_genome(b"<data/>")
    Traceback (most recent call last):
        ...
    recombine.errors.InvalidRequest: bytes: no genome in it: expected nodes/node elements
    """
    if not isinstance(source, str | Path | bytes):
        given = "None" if source is None else type(source).__name__
        raise InvalidRequest(f"a genome from {given}: expected a path, or the bytes of a file")
    name = "bytes" if isinstance(source, bytes) else str(source)
    try:
        data = source if isinstance(source, bytes) else _read(Path(source))
    except OSError as error:
        raise InvalidRequest(f"{name}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:  # it holds a character that no path can, and no terminal prints
        raise InvalidRequest(f"{name!r}: cannot be read ({error}): expected a path") from error
    try:
        return _from_tree(_parsed(_unpacked(data)))
    except InvalidRequest as error:
        told = " ".join(str(error).split())  # what a node is called may be of several lines
        raise InvalidRequest(f"{name}: {told}") from error


def _read(path: Path) -> bytes:
    """The file, or enough of it to tell that it is too large."""
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def _unpacked(data: bytes) -> bytes:
    _check_size(data)
    if not data.startswith(b"PK"):
        content = data
    else:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                files = [info for info in archive.infolist() if not info.is_dir()]
                if len(files) != 1:
                    raise InvalidRequest(f"an archive of {len(files)} files: expected one")
                with archive.open(files[0]) as inner:
                    content = inner.read(LARGEST + 1)  # what a header promises is not believed
        except DAMAGE as error:
            raise InvalidRequest(f"a damaged or locked zip archive ({error})") from error
    _check_size(content)
    return content


def _check_size(content: bytes) -> None:
    if len(content) > LARGEST:
        raise InvalidRequest(f"more than {LARGEST} bytes: no genome is so large")


class _NoDeclarations(ET.TreeBuilder):
    """Refuses a document type, and so every entity, before anything is expanded."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise InvalidRequest("it declares a document type, which a genome never does")


def _parsed(content: bytes) -> ET.Element:
    try:
        return ET.fromstring(content, ET.XMLParser(target=_NoDeclarations()))
    except (ET.ParseError, ValueError, LookupError) as error:
        raise InvalidRequest(f"neither a zip archive nor XML ({error})") from error


def _from_tree(root: ET.Element) -> Genome:
    nodes = tuple(_node(element) for element in root.iterfind(".//nodes/node"))
    if not nodes:
        raise InvalidRequest("no genome in it: expected nodes/node elements")
    return Genome(nodes, tuple(_link(element) for element in root.iterfind(".//links/link")))


def _node(element: ET.Element) -> Node:
    id = _id(element, "marking")
    if _number(element.get("bias", "0"), f"the bias of node {id}") != 0:
        raise InvalidRequest(f"node {id} has a bias of its own, which is not supported")
    activation = (element.findtext("activation") or "").strip().removesuffix("(x)")
    kind: Any = element.get("type", "")  # checked by the genome
    return Node(id, kind, element.get("label", ""), activation)


def _link(element: ET.Element) -> Link:
    source, target = _id(element, "source"), _id(element, "target")
    return Link(
        source,
        target,
        _number(element.findtext("weight", ""), f"the weight of {source} -> {target}"),
    )


def _id(element: ET.Element, part: str) -> str:
    found = element.find(part)
    branch, number = (None, None) if found is None else (found.get("branch"), found.get("id"))
    if branch is None or number is None:
        raise InvalidRequest(f"a {element.tag} without {part}: expected its branch and id")
    return f"{branch}_{number}"


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidRequest(f"{what} is {text!r}: expected a number") from None
