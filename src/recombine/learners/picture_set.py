"""Pictures that networks are to draw, made once: by evolution, by a rule, or from files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float

from recombine.cppn import (
    Architecture,
    Archive,
    Genome,
    approach,
    chosen,
    evolve,
    layerise,
    picture,
    read_genome,
    stencil_genome,
    unselected,
)
from recombine.cppn.archive import worth
from recombine.data import located
from recombine.data.getting import NotHere
from recombine.errors import InvalidRequest, unknown
from recombine.learners._learner import Material, Tensors

SOURCES = ("evolved", "unselected", "stencils", "archive")
# Room for nearly every genome that evolution or a stencil makes here; others are not chosen.
ROOM = "8;cache:10,cos:2,gaussian:4,identity:3,relu:3,sigmoid:2,sin:3,tanh:3"
STAGES = 4  # pictures along the path of a curriculum, the last one its end
MANY = 1_000  # stencils tried until enough of them fit
CURVE = 100  # points kept of the way towards a picture


@dataclass(frozen=True)
class PictureLines(Material):
    """The genomes that are chosen of an evolution without a target, each after its ancestors.

    Several sets of pictures, and every evolution towards one, begin with the same: it is made
    once. `lines` is JSON, a byte a number.
    """

    version: ClassVar[int] = 1

    count: int = 2
    seed: int = 0
    evaluations: int = 3_000
    architecture: str = ROOM

    def make(self) -> Tensors:
        room = Architecture.parse(self.architecture)
        archive = evolve(self.seed, self.evaluations)
        able = tuple(one for one in archive.elites if _holds(room, one.genome))
        others = (one for one in archive.elites if one not in able)
        kept = Archive(able, (*archive.ancestors, *others), archive.seed, archive.evaluations)
        picked = chosen(kept, self.count, self.seed)
        lines = [[one.genome.document() for one in kept.line(elite)] for elite in picked]
        return {"lines": np.frombuffer(json.dumps(lines).encode(), np.uint8).copy()}


@dataclass(frozen=True)
class PictureSet(Material):
    """Pictures with the networks that evolution, or a rule, draws them with.

    `evolved`: the elites, as unlike as can be, of an evolution without a target. `unselected`:
    for each of these elites a genome of as many mutations and as many hidden nodes that matter,
    but of parents that nobody chose. `stencils`: unified by making, all their neurons symmetric.
    `archive`: `genomes` by their name in the data set picbreeder, or by the path of a file. All are
    written as matrices of one `architecture`.

    >>> PictureSet("stencils", count=2, size=8).make()["target"].shape
    (2, 64, 3)
    """

    version: ClassVar[int] = 1

    source: Literal["evolved", "unselected", "stencils", "archive"] = "stencils"
    count: int = 2
    size: int = 32
    seed: int = 0
    evaluations: int = 3_000
    architecture: str = ROOM
    genomes: tuple[str, ...] = ()

    def __post_init__(self):
        if self.source not in SOURCES:
            raise unknown("source of pictures", self.source, SOURCES)
        if self.source == "archive" and len(self.genomes) != self.count:
            raise InvalidRequest(
                f"{len(self.genomes)} genomes for count={self.count}: expected one each"
            )
        if self.count < 1 or self.size < 8:
            raise InvalidRequest(
                f"{self.count} pictures of {self.size} pixels a side: expected at least one, of "
                "8 or more"
            )

    def check(self) -> None:
        """Refuses what cannot be made here: an impossible shape, files that are no genomes."""
        room = Architecture.parse(self.architecture)
        for name in self.genomes:
            try:
                layerise(read_genome(_file(name)), room)
            except NotHere as error:
                raise InvalidRequest(str(error)) from error

    def check_number(self, number: int) -> None:
        """Refuses what is no number of one of its pictures."""
        if not isinstance(number, int) or not 0 <= number < self.count:
            raise InvalidRequest(
                f"number={number!r}: expected 0 to {self.count - 1}, a whole number"
            )

    def needs(self) -> dict[str, Material]:
        if self.source not in ("evolved", "unselected"):
            return {}
        return {"lines": PictureLines(self.count, self.seed, self.evaluations, self.architecture)}

    def make(self) -> Tensors:
        """`target`, `path` (the pictures of a curriculum) and `matrix0`, `matrix1`, ..."""
        return self.make_from(_made(self))

    def make_from(self, given: Mapping[str, Tensors]) -> Tensors:
        room = Architecture.parse(self.architecture)
        found: dict[str, list[np.ndarray]] = {"target": [], "path": []}
        for line in self.lines(given):
            drawn = [picture(genome, self.size).reshape(-1, 3) for genome in line]
            found["target"].append(drawn[-1])
            # As many ancestors as there are stages, evenly along the line.
            places = np.linspace(0, len(line) - 1, STAGES + 1)[1:].round().astype(int)
            found["path"].append(np.stack([drawn[place] for place in places]))
            for number, matrix in enumerate(layerise(line[-1], room)[1]):
                found.setdefault(f"matrix{number}", []).append(matrix)
        return {name: np.stack(arrays).astype(np.float32) for name, arrays in found.items()}

    def lines(self, given: Mapping[str, Tensors] | None = None) -> list[list[Genome]]:
        """Every picture's genome, after its ancestors where they are known."""
        if self.source == "archive":
            return [[read_genome(_file(name))] for name in self.genomes]
        room = Architecture.parse(self.architecture)
        if self.source == "stencils":
            tried = (stencil_genome(self.seed + n, details=0) for n in range(MANY))
            fitting = (genome for genome in tried if _holds(room, genome))
            found = [[genome] for genome in islice(fitting, self.count)]
            if len(found) < self.count:
                raise InvalidRequest(
                    f"{self.count} stencils asked for: of {MANY} only {len(found)} fit into {room}"
                )
            return found
        given = _made(self) if given is None else given
        documents = json.loads(given["lines"]["lines"].tobytes())
        found = [[Genome.from_document(one) for one in line] for line in documents]
        if self.source == "evolved":
            return found
        return [
            unselected(line, (self.seed, n), may=lambda one: worth(one) and _holds(room, one))
            for n, line in enumerate(found)
        ]


@dataclass(frozen=True)
class PictureApproach(Material):
    """How near evolution comes to one picture of a set when it is told to.

    `curve` has the least error after even parts of the evaluations, `drawn` the best picture.
    """

    version: ClassVar[int] = 1

    pictures: PictureSet
    number: int = 0
    seed: int = 0
    evaluations: int = 2_000

    def __post_init__(self):
        if self.evaluations < CURVE:
            raise InvalidRequest(
                f"{self.evaluations} evaluations towards a picture: expected at least {CURVE}"
            )

    def needs(self) -> dict[str, Material]:
        return self.pictures.needs()

    def make(self) -> Tensors:
        return self.make_from(_made(self))

    def make_from(self, given: Mapping[str, Tensors]) -> Tensors:
        size = self.pictures.size
        target: Float[np.ndarray, "row column 3"] = picture(
            self.pictures.lines(given)[self.number][-1], size
        )
        found = approach(target, self.seed, self.evaluations)
        places = np.linspace(0, self.evaluations - 1, CURVE + 1).round().astype(int)
        return {
            "curve": found.curve[places].astype(np.float32),
            "drawn": picture(found.genome, size).astype(np.float32),
        }


def _made(material: Material) -> dict[str, Tensors]:
    return {name: need.make() for name, need in material.needs().items()}


def _file(name: str) -> Path:
    """A genome by its name in the pinned set, so that its identity does not depend on a path."""
    if not name.isidentifier():
        if not Path(name).is_file():
            raise InvalidRequest(f"no genome in {name}: expected the path of an XML or zip file")
        return Path(name)
    file = located("picbreeder") / f"{name}.zip"
    if not file.is_file():
        known = sorted(one.stem for one in file.parent.glob("*.zip"))
        raise unknown("genome of picbreeder", name, known)
    return file


def _holds(room: Architecture, genome: Genome) -> bool:
    try:
        layerise(genome, room)
    except InvalidRequest:
        return False
    return True
