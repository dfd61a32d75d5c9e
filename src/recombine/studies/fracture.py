"""Does the way a network came to be show inside it, and does that matter to what it learns next?

`recombine run fracture --preset standard` evolves pictures without a target, trains networks of
the same architecture to draw the same pictures by gradient descent, and looks inside both: are
the neurons as symmetric as the picture they draw? Genomes of like size that nobody selected show
how much of that is evolution's. Then all of them go on to learn a sibling of their picture.
Expected from the source: evolved networks are whole, trained ones are fractured though they draw
the same; that fracture costs anything later is what is asked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from recombine.checks import at_least, up_to
from recombine.errors import InvalidRequest
from recombine.instruments.fracture import Fracture
from recombine.instruments.generalization import Generalization
from recombine.instruments.picture_fracture import PictureFracture
from recombine.lab.study import Cell, Claim, Results, Seeded, Study
from recombine.learners.as_drawn import AsDrawn
from recombine.learners.directed import DirectedPicture
from recombine.learners.new_module import NewModule
from recombine.learners.picture_set import PictureSet
from recombine.learners.pictures import PictureLearner
from recombine.learners.supervised import Supervised
from recombine.report.document import Section
from recombine.seeds import Seeds
from recombine.studies import _base as base
from recombine.studies import _fracture_claims as claimed
from recombine.studies import _fracture_report as report
from recombine.studies._fracture import AWAKE
from recombine.supports import SupportRule

# The architectures of the published twins: as small as each genome allows.
ARCHITECTURES = {
    "skull": "12;cache:15,gaussian:4,identity:2,sin:1",
    "butterfly": "16;cache:17,gaussian:4,sigmoid:1,sin:1",
}
SIBLINGS = ("turned", "recoloured", "recombined")
SMALL = 32  # pixels a side at which evolution is told what to draw
LOOKS = 10  # steps between looks at what is learnt next
COUNTS = ("pictures", "evaluations", "stencils", "twins", "genome_twins", "seeds", "students",
          "exchanged")  # fmt: skip
ANEW = "scratch"
APART = 1_000  # between the seeds of twins of one picture, or of students of one teacher


@dataclass(frozen=True)
class Grid(Seeded):
    """Pictures by ways to them, then siblings; genomes of the archive; students of teachers."""

    pictures: int = 8
    size: int = 24  # pixels a side
    evaluations: int = 2_000  # of the evolution without a target
    stencils: int = 5
    twins: int = 1
    steps: int = 1_000
    rate: float = 3e-3
    error: float = 1e-2  # mean squared: a network above it does not draw its picture
    symmetric: float = 0.7  # how much symmetry a picture has that is called symmetric
    sweeps: int = 10
    shown: int = 3
    siblings: tuple[str, ...] = ("turned", "recombined")
    sibling_steps: int = 300
    matched: float = 3e-2  # the error at which a sibling counts as learnt
    directed: int = 1_000  # evaluations of the evolution towards each picture
    genomes: tuple[str, ...] = ()
    genome_size: int = 96
    genome_twins: int = 8
    genome_steps: int = 20_000
    training: str = "quick"  # of the students
    modules: int = 8
    active: int = 3
    width: int = 64
    depth: int = 2
    held_out: tuple[float, ...] = (0.5,)
    students: int = 3  # of each teacher and share
    exchanged: int = 1  # modules, one at a time
    module_steps: int = 200
    share: float = 0.25  # held out while a new module is learnt
    learnt: float = 0.85  # seen score at which it counts as learnt
    seeds: int = 5


class FractureStudy(Study):
    """Whole and fractured networks, and what they learn next."""

    name = "fracture"
    question = (
        "Are networks that draw the same picture fractured inside when descent made them and whole "
        "when evolution did, and does that tell how fast they learn something new?"
    )
    source = (
        "Kumar, Clune, Lehman and Stanley, Questioning Representational Optimism in Deep Learning: "
        "The Fractured Entangled Representation Hypothesis, 2025; the evolution without a target, "
        "the measures and what is learnt next are ours"
    )
    cost = "quick: 1.7 min on two CPU cores; standard: 9 min on one H200 (estimated)"
    not_shown = (
        "People's choices: our pictures were evolved for variety, not picked by eye; two that "
        "people picked are read where their genomes are on this machine.",
        "Large networks: these draw one picture from coordinates, or learn one teacher.",
        "What fracture causes: networks differ in it by the way they were made, and in more.",
        "That any one number is fracture: each measure is of one symptom, and of one basis.",
        "Many evolutions: the pictures of a run come from one, and some share early ancestors.",
        "What selection by people would do: our unselected genomes are matched to our evolution.",
        "Symmetry of networks that do not draw: all that is known of a teacher's is that twice the "
        "weight of its modules doubles its answers, which tells no unit from another, so what "
        "stands for it there is how alike a unit answers to a module in any company. Concordance "
        "under the symmetries that a family does have is measured in study symmetry.",
        "Mixing, by concordance: units that add up all modules have as much of it as units of one "
        "module each, and untrained networks may have more than trained ones. Disentanglement "
        "tells of mixing.",
    )
    presets: ClassVar = {
        "smoke": Grid(
            pictures=2, size=16, evaluations=600, stencils=1, steps=20, sweeps=2, shown=1,
            siblings=("turned",), sibling_steps=20, directed=100, training="smoke", width=16,
            depth=1, held_out=(0.25,), students=1, module_steps=20, seeds=2,
        ),
        "quick": Grid(),
        "standard": Grid(
            pictures=16, size=64, evaluations=10_000, stencils=8, twins=2, steps=20_000,
            sweeps=60, siblings=SIBLINGS, sibling_steps=3_000, matched=1e-2, directed=20_000,
            genomes=("skull", "butterfly"), genome_size=128, genome_steps=40_000,
            training="standard", width=128, depth=4, held_out=(0.25, 0.75), students=2,
            exchanged=2, module_steps=4_000, learnt=0.9, seeds=8,
        ),
        "paper": Grid(
            pictures=24, size=256, evaluations=100_000, stencils=12, twins=8, steps=100_000,
            error=1e-3, sweeps=200, siblings=SIBLINGS, sibling_steps=20_000, matched=1e-2,
            directed=100_000, genomes=("skull", "butterfly"), genome_size=256, genome_steps=100_000,
            training="paper", modules=16, width=256, depth=4,
            held_out=(0.25, 0.5, 0.75, 0.9), students=2, exchanged=4, module_steps=10_000,
            learnt=0.9, seeds=10,
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        check(grid)
        return [*pictures(grid), *siblings(grid), *directed(grid), *genomes(grid), *students(grid)]

    def claims(self, grid: Grid) -> list[Claim]:
        return claimed.claims(grid)

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        return report.sections(grid, results)


def check(grid: Grid) -> None:
    """Refuses a grid that would ask nothing, or measure by a bound that nothing can meet."""
    at_least(grid, **dict.fromkeys(COUNTS, 1), sweeps=0, shown=0, directed=0)
    up_to(1, grid, "error", "matched", "symmetric", "learnt")
    for name, known in (("genomes", tuple(ARCHITECTURES)), ("siblings", SIBLINGS)):
        strange = sorted(set(getattr(grid, name)) - set(known))
        if strange:
            raise InvalidRequest(f"{name}={strange[0]}: expected some of {', '.join(known)}")


def painter(grid: Grid, source: str, number: int, way: Any, twin: int = 0) -> PictureLearner:
    """A network of the pictures' part, before it learns anything else."""
    if source in ARCHITECTURES:
        shown = PictureSet(
            "archive", 1, grid.genome_size, architecture=ARCHITECTURES[source], genomes=(source,)
        )
        return PictureLearner(shown, 0, way, seed=grid.first_seed + twin,
                              training_steps=grid.genome_steps, learning_rate=grid.rate,
                              evaluation_every=_looks(grid.genome_steps))  # fmt: skip
    # Twins of different pictures begin apart too: pictures are what intervals are over. Those of
    # one number begin alike, whatever the way and the source: they are what is compared.
    return PictureLearner(collection(grid, source), number, way,
                          seed=first_weights(grid, number, twin), training_steps=grid.steps,
                          learning_rate=grid.rate,
                          evaluation_every=_looks(grid.steps))  # fmt: skip


def first_weights(grid: Grid, number: int, twin: int) -> int:
    return grid.first_seed + number + APART * twin


def collection(grid: Grid, source: Any) -> PictureSet:
    count = grid.stencils if source == "stencils" else grid.pictures
    return PictureSet(source, count, grid.size, seed=grid.first_seed, evaluations=grid.evaluations)


def _looks(steps: int) -> int:
    return max(10, steps // 200 * 10)


def ways(grid: Grid, twins: int, *trained: str) -> list[tuple[str, int]]:
    """Evolution's network, and every twin of each way of training."""
    return [("evolved", 0), *((way, twin) for way in trained for twin in range(twins))]


def pictures(grid: Grid) -> list[Cell]:
    found = []
    for source in ("evolved", "unselected", "stencils"):
        count = collection(grid, source).count
        # A stencil has no ancestors to go along, and an unselected genome none worth it; only
        # evolution's networks go on to learn, so that only theirs are woken.
        more = ("curriculum", AWAKE) if source == "evolved" else ()
        for number in range(count):
            for way, twin in ways(grid, grid.twins, "descent", *more):
                # Of every twin: which of them draws the picture is not known before.
                # Of every picture: how symmetric it is, by which some are chosen, neither.
                shows = source == "evolved" and way in ("evolved", "descent")
                found.append(Cell(
                    painter(grid, source, number, way, twin),
                    {"part": "picture", "source": source, "picture": number, "way": way,
                     "twin": twin},
                    (PictureFracture(0 if way == AWAKE else grid.sweeps, shows),),
                ))  # fmt: skip
    return found


def siblings(grid: Grid) -> list[Cell]:
    """Every network goes on to a sibling of its picture; a new one begins there."""
    found = []
    for number in range(grid.pictures):
        for way, twin in ways(grid, grid.twins, "descent", "curriculum", AWAKE, ANEW):
            before = painter(grid, "evolved", number, "descent" if way == ANEW else way, twin)
            for sibling in grid.siblings:
                learner = replace(
                    before, sibling=sibling, begin=None if way == ANEW else before,
                    seed=first_weights(grid, number, twin),
                    training_steps=grid.sibling_steps, evaluation_every=LOOKS,
                )  # fmt: skip
                labels = {"part": "sibling", "picture": number, "way": way, "twin": twin,
                          "sibling": sibling}  # fmt: skip
                found.append(Cell(learner, labels))
    return found


def directed(grid: Grid) -> list[Cell]:
    if not grid.directed:
        return []
    small = replace(collection(grid, "evolved"), size=min(grid.size, SMALL))
    return [
        Cell(DirectedPicture(small, number, evaluations=grid.directed, seed=grid.first_seed),
             {"part": "directed", "picture": number})
        for number in range(grid.pictures)
    ]  # fmt: skip


def genomes(grid: Grid) -> list[Cell]:
    return [
        Cell(painter(grid, name, 0, way, twin),
             {"part": "genome", "source": name, "picture": 0, "way": way, "twin": twin},
             (PictureFracture(grid.sweeps, shows=True),))
        for name in grid.genomes
        for way, twin in ways(grid, grid.genome_twins, "descent")
    ]  # fmt: skip


def students(grid: Grid) -> list[Cell]:
    """Students that saw more or less, and a new module for each, alike for all of one seed.

    Those of one seed and share have the same teacher and saw the same combinations; they differ in
    their first weights and in the order of examples.
    """
    training, found = base.training_named(grid.training), []
    instruments = (Generalization(), Fracture(sweeps=max(8, grid.sweeps)))
    for seed in grid.drawn(grid.seeds):
        first: Supervised | None = None
        for share in grid.held_out:
            known = base.cell(
                training, modules=grid.modules, active=grid.active, width=grid.width,
                depth=grid.depth, held_out=share, seed=seed, instruments=instruments,
                part="student",
            )  # fmt: skip
            assert isinstance(known.learner, Supervised)
            first = known.learner
            for student in range(grid.students):
                own = seed + APART * student
                learner = replace(first, seeds=replace(first.seeds, init=own, train=own))
                labels = {**known.labels, "student": student}
                found.append(replace(known, learner=learner, labels=labels))
                found += _new_modules(grid, learner, share, seed, student)
        if first is not None:
            found += _new_modules(grid, AsDrawn(first), -1.0, seed, 0)
    return found


def _new_modules(
    grid: Grid, before: Supervised | AsDrawn, share: float, seed: int, student: int
) -> list[Cell]:  # fmt: skip
    """One cell for each module that is exchanged; the same examples whatever `before` saw."""
    return [
        Cell(
            NewModule.after(
                before, module=module, support=SupportRule("random", held_out=grid.share),
                seeds=Seeds.all(seed), training_steps=grid.module_steps, evaluation_every=LOOKS,
            ),
            {"part": "module", "seed": seed, "held_out": share, "student": student,
             "module": module},
        )
        for module in range(grid.exchanged)
    ]  # fmt: skip
