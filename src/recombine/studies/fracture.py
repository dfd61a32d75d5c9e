"""Does the way a network came to be show inside it, and does that matter to what it learns next?

`recombine run fracture --preset standard` evolves pictures without a target, trains networks of
the same architecture to draw the same pictures by gradient descent, and looks inside both: are
the neurons as symmetric as the picture they draw? Then all of them go on to learn a sibling of
their picture. Expected from the source: evolved networks are whole, trained ones are fractured
though they draw the same; that fracture costs anything later is what is asked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from recombine.errors import InvalidRequest
from recombine.instruments.fracture import Fracture
from recombine.instruments.generalization import Generalization
from recombine.instruments.picture_fracture import PictureFracture
from recombine.lab.study import Cell, Claim, Results, Study
from recombine.learners.as_drawn import AsDrawn
from recombine.learners.directed import DirectedPicture
from recombine.learners.new_module import NewModule
from recombine.learners.picture_set import PictureSet
from recombine.learners.pictures import PictureLearner
from recombine.learners.supervised import Supervised
from recombine.report.document import Section
from recombine.studies import _base as base
from recombine.studies import _fracture as parts
from recombine.studies import _fracture_report as report
from recombine.supports import SupportRule

# The architectures of the published twins: as small as each genome allows.
ARCHITECTURES = {
    "skull": "12;cache:15,gaussian:4,identity:2,sin:1",
    "butterfly": "16;cache:17,gaussian:4,sigmoid:1,sin:1",
}
SMALL = 32  # pixels a side at which evolution is told what to draw
LOOKS = 10  # steps between looks at what is learnt next
ANEW, STIRRED = "scratch", "stirred"
STIR = 0.1  # of freshly drawn weights, so that evolution's idle neurons can learn at all
APART = 1_000  # between the seeds of twins of one picture


@dataclass(frozen=True)
class Grid:
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
    siblings: tuple[str, ...] = ("turned", "recoloured", "recombined")
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
    held_out: tuple[float, ...] = (0.25, 0.5, 0.75)
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
    )
    presets: ClassVar = {
        "smoke": Grid(
            pictures=2, size=16, evaluations=600, stencils=1, steps=20, sweeps=2, shown=1,
            siblings=("turned",), sibling_steps=20, directed=100, training="smoke", width=16,
            depth=1, held_out=(0.25,), module_steps=20, seeds=2,
        ),
        "quick": Grid(),
        "standard": Grid(
            pictures=16, size=64, evaluations=10_000, stencils=8, twins=3, steps=20_000,
            sweeps=60, sibling_steps=3_000, matched=1e-2, directed=20_000,
            genomes=("skull", "butterfly"), genome_size=128, genome_steps=40_000,
            training="standard", width=128, depth=4, held_out=(0.25, 0.5, 0.75, 0.9),
            exchanged=2, module_steps=4_000, learnt=0.9, seeds=8,
        ),
        "paper": Grid(
            pictures=24, size=256, evaluations=100_000, stencils=12, twins=8, steps=100_000,
            error=1e-3, sweeps=200, sibling_steps=20_000, matched=1e-2, directed=100_000,
            genomes=("skull", "butterfly"), genome_size=256, genome_steps=100_000,
            training="paper", modules=16, width=256, depth=4,
            held_out=(0.25, 0.5, 0.75, 0.9), exchanged=4, module_steps=10_000, learnt=0.9,
            seeds=10,
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        strange = sorted(set(grid.genomes) - set(ARCHITECTURES))
        if strange:
            raise InvalidRequest(
                f"genomes={strange[0]}: expected some of {', '.join(ARCHITECTURES)}"
            )
        return [*pictures(grid), *siblings(grid), *directed(grid), *genomes(grid), *students(grid)]

    def claims(self, grid: Grid) -> list[Claim]:
        return [*claims_of_pictures(grid), *claims_of_siblings(grid), *claims_of_genomes(grid),
                *claims_of_students(grid)]  # fmt: skip

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        return report.sections(grid, results)


def painter(grid: Grid, source: str, number: int, way: Any, twin: int = 0) -> PictureLearner:
    """A network of the pictures' part, before it learns anything else."""
    if source in ARCHITECTURES:
        shown = PictureSet(
            "archive", 1, grid.genome_size, architecture=ARCHITECTURES[source], genomes=(source,)
        )
        return PictureLearner(shown, 0, way, seed=twin, training_steps=grid.genome_steps,
                              learning_rate=grid.rate,
                              evaluation_every=_looks(grid.genome_steps))  # fmt: skip
    # Twins of different pictures begin apart too: pictures are what intervals are over.
    return PictureLearner(collection(grid, source), number, way, seed=number + APART * twin,
                          training_steps=grid.steps, learning_rate=grid.rate,
                          evaluation_every=_looks(grid.steps))  # fmt: skip


def collection(grid: Grid, source: Any) -> PictureSet:
    count = grid.pictures if source == "evolved" else grid.stencils
    return PictureSet(source, count, grid.size, evaluations=grid.evaluations)


def _looks(steps: int) -> int:
    return max(10, steps // 200 * 10)


def ways(grid: Grid, twins: int, *trained: str) -> list[tuple[str, int]]:
    """Evolution's network, and every twin of each way of training."""
    return [("evolved", 0), *((way, twin) for way in trained for twin in range(twins))]


def pictures(grid: Grid) -> list[Cell]:
    found = []
    for source, count in (("evolved", grid.pictures), ("stencils", grid.stencils)):
        # A stencil has no ancestors to go along.
        trained = ("descent", "curriculum") if source == "evolved" else ("descent",)
        for number in range(count):
            for way, twin in ways(grid, grid.twins, *trained):
                shows = source == "evolved" and number < grid.shown and twin == 0
                found.append(Cell(
                    painter(grid, source, number, way, twin),
                    {"part": "picture", "source": source, "picture": number, "way": way,
                     "twin": twin},
                    (PictureFracture(grid.sweeps, shows and way != "curriculum"),),
                ))  # fmt: skip
    return found


def siblings(grid: Grid) -> list[Cell]:
    """Every network goes on to a sibling of its picture; a new one begins there."""
    found = []
    for number in range(grid.pictures):
        for way, twin in ways(grid, grid.twins, "descent", "curriculum", STIRRED, ANEW):
            drawn = {ANEW: "descent", STIRRED: "evolved"}.get(way, way)
            before = painter(grid, "evolved", number, drawn, 0 if drawn == "evolved" else twin)
            for sibling in grid.siblings:
                learner = replace(
                    before, sibling=sibling, begin=None if way == ANEW else before,
                    stir=STIR if way == STIRRED else 0.0, seed=number + APART * twin,
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
        Cell(DirectedPicture(small, number, evaluations=grid.directed),
             {"part": "directed", "picture": number})
        for number in range(grid.pictures)
    ]  # fmt: skip


def genomes(grid: Grid) -> list[Cell]:
    return [
        Cell(painter(grid, name, 0, way, twin),
             {"part": "genome", "source": name, "picture": 0, "way": way, "twin": twin},
             (PictureFracture(grid.sweeps, twin == 0),))
        for name in grid.genomes
        for way, twin in ways(grid, grid.genome_twins, "descent")
    ]  # fmt: skip


def students(grid: Grid) -> list[Cell]:
    """Students that saw more or less, and a new module for each, alike for all of one seed."""
    training, found = base.training_named(grid.training), []
    instruments = (Generalization(), Fracture(sweeps=max(8, grid.sweeps)))
    for seed in range(grid.seeds):
        before: Supervised | AsDrawn | None = None
        for share in grid.held_out:
            known = base.cell(
                training, modules=grid.modules, active=grid.active, width=grid.width,
                depth=grid.depth, held_out=share, seed=seed, instruments=instruments,
                part="student",
            )  # fmt: skip
            assert isinstance(known.learner, Supervised)
            before = known.learner
            found += [known, *_new_modules(grid, before, share, seed)]
        if before is not None:
            found += _new_modules(grid, AsDrawn(before), -1.0, seed)
    return found


def _new_modules(
    grid: Grid, before: Supervised | AsDrawn, share: float, seed: int
) -> list[Cell]:  # fmt: skip
    """One cell for each module that is exchanged; the same examples whatever `before` saw."""
    return [
        Cell(
            NewModule.after(
                before, module, support=SupportRule("random", held_out=grid.share),
                training_steps=grid.module_steps, evaluation_every=LOOKS,
            ),
            {"part": "module", "seed": seed, "held_out": share, "module": module},
        )
        for module in range(grid.exchanged)
    ]  # fmt: skip


def claims_of_pictures(grid: Grid) -> list[Claim]:
    def pair(name: str, sentence: str, measure: Any, **criterion: float) -> Claim:
        return Claim(name, sentence, measure, unit="pictures", **criterion)

    between, error = parts.between(grid), f"{grid.error:g}"
    return [
        pair("floor: descent draws the pictures",
             f"Networks trained by descent reach an error of at most {error} on at least .75 of "
             "our evolved pictures",
             parts.drawn(grid), at_least=0.75),
        pair("evolved whole, trained fractured",
             "The symmetry concordance of neurons is higher, by at least .35, in evolution's "
             f"network than in its twin trained by descent to an error of at most {error}",
             between("concordance", "descent", "evolved"), at_least=0.35),
        pair("the same in symmetric pictures",
             f"The same where the picture itself has a symmetry of at least {grid.symmetric:g}",
             parts.between(grid, symmetric=grid.symmetric)("concordance", "descent", "evolved"),
             at_least=0.35),
        pair("also in another basis",
             "The same difference is above 0 after every layer was rotated at random",
             between("rotated", "descent", "evolved"), above=0.0),
        pair("planted: stencils are told apart",
             "The same difference is at least .35 where a stencil, symmetric by making, takes the "
             "place of evolution",
             parts.between(grid, source="stencils")("concordance", "descent", "evolved"),
             at_least=0.35),
        pair("training adds little symmetry",
             "The concordance of networks trained by descent is at most .1 above that of their "
             "untrained twins",
             parts.over_untrained(grid), at_most=0.1),
        pair("more distinct maps",
             "Networks trained by descent have at least 5 times as many distinct feature maps as "
             "evolution's",
             between("distinct", "evolved", "descent", ratio=True), at_least=5.0),
        pair("rougher maps",
             "Their feature maps vary at least 1.4 times as much from pixel to pixel",
             between("variation", "evolved", "descent", ratio=True), at_least=1.4),
        pair("sweeps keep the symmetry",
             "What changing one weight does to the picture is more symmetric in evolution's "
             "network",
             between("sweep_symmetry", "descent", "evolved"), above=0.0),
        pair("the path matters",
             "Descent along the pictures of the ancestors, to an error of at most "
             f"{error}, ends at a concordance higher by at least .15 than descent on the picture "
             "alone",
             between("concordance", "descent", "curriculum"), at_least=0.15),
        pair("evolution told what to draw fails",
             f"Evolution towards the picture ends, after {grid.directed:,} evaluations, at an "
             "error at least 10 times that of descent (log10 of the ratio)",
             parts.directed_error(grid), at_least=1.0),
    ]  # fmt: skip


def claims_of_siblings(grid: Grid) -> list[Claim]:
    bound = f"an error of {grid.matched:g}"
    sooner = [
        Claim(f"fracture costs steps: {sibling}",
              f"Networks trained by descent take more steps than evolution's until {bound} on the "
              f"{sibling} picture (log2 of the ratio)",
              parts.slower(grid, sibling), unit="pictures", above=0.0)
        for sibling in grid.siblings
    ]  # fmt: skip
    return [
        *sooner,
        Claim("fracture costs steps: idle neurons awake",
              f"The same over all siblings where {STIR:g} of freshly drawn weights was added to "
              "evolution's network, whose idle neurons no gradient would reach",
              parts.slower(grid, *grid.siblings, whole=STIRRED), unit="pictures", above=0.0),
        Claim("concordance tells who learns a sibling sooner",
              f"Among all networks of one picture, those of higher concordance take fewer steps "
              f"until {bound} on its siblings (rank correlation within picture and sibling)",
              parts.foretold(grid), unit="pictures", below=0.0),
        Claim("also among trained networks",
              "The same among those trained by descent, with or without a curriculum, given the "
              "error they had reached on their own picture",
              parts.foretold(grid, trained=True), unit="pictures", below=0.0),
    ]  # fmt: skip


def claims_of_genomes(grid: Grid) -> list[Claim]:
    skull = parts.archived(grid, "skull")
    return [
        Claim("skull: descent draws it",
              "Twins of the archive's skull trained by descent reach an error of at most .001",
              skull("error"), at_most=1e-3),
        Claim("skull: the evolved network is whole",
              "The mean concordance of the distinct maps of the archive's own network is at least "
              ".95", parts.archived_maps(grid, "skull"), unit="maps", at_least=0.95),
        Claim("skull: its twins are fractured",
              "The concordance of its twins is at most .6",
              skull("concordance"), at_most=0.6),
        Claim("skull: few symmetric neurons",
              "At most .15 of the distinct maps of a twin have a concordance above .95",
              skull("symmetric_share"), at_most=0.15),
        Claim("skull: rougher maps",
              "The maps of its twins vary at least 1.4 times as much",
              skull("variation", ratio=True), at_least=1.4),
        Claim("skull: more distinct maps",
              "Its twins have at least 5 times as many distinct maps",
              skull("distinct", ratio=True), at_least=5.0),
    ]  # fmt: skip


def claims_of_students(grid: Grid) -> list[Claim]:
    words = {
        "concordance": "in which units answer to a module alike in any company",
        "disentanglement": "whose units tell of one module each",
        "selectivity": "whose single weights matter to one module each",
    }
    told = [
        Claim(f"{measure} tells who learns a new module sooner",
              f"Among students of one teacher, those {text} ({measure}) take fewer steps to a "
              f"seen score of {grid.learnt:g} on a new module (correlation with log2 steps within "
              "seeds)", parts.new_module(grid, measure), below=0.0)
        for measure, text in words.items()
    ]  # fmt: skip
    return [
        Claim("floor: known modules help",
              "From scratch a new module takes more steps than for students that know the others "
              "(log2 of the ratio)", parts.from_scratch(grid), above=0.0),
        *told,
        Claim("concordance tells more than the unseen score",
              "The correlation of concordance with steps is below 0 also given the student's own "
              "score on unseen combinations",
              parts.new_module(grid, "concordance", beyond=True), below=0.0),
    ]  # fmt: skip
