"""What the report of the fracture study shows: walls of feature maps first, then the numbers."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recombine.instruments.picture_walls import EFFECT
from recombine.lab.statistics import mean_interval
from recombine.lab.study import Results, Row
from recombine.report.document import Figure, Gallery, Section, Strip, Table
from recombine.report.figures import Estimates, Panel, Points, Series, dots, panels, scatter
from recombine.studies import _base as base
from recombine.studies import _fracture as parts
from recombine.studies import _fracture_siblings as later
from recombine.studies import _fracture_students as pupils

WORDS = {"evolved": "by evolution", "descent": "by descent", "curriculum": "by a curriculum",
         "awake": "by evolution, awake", "scratch": "from scratch"}  # fmt: skip
MADE = {"stencils": "by making", "unselected": "by mutation alone"}
POINTS = 40  # of a curve that is drawn
SYMMETRY = {"concordance": "concordance", "heard": "concordance, heard",
            "symmetric_share": "share above .95",
            "rotated": "concordance, rotated", "sweep_symmetry": "sweeps",
            "dropped": "sweeps left out (mean)"}  # fmt: skip
SHAPE = {"error": "error", "variation": "variation", "distinct": "distinct maps",
         "effective_rank": "effective rank"}  # fmt: skip


def sections(grid: Any, results: Results) -> list[Section]:
    found = [walls(grid, results), strips(grid, results), measures(grid, results)]
    if results.where(part="sibling"):
        found.append(siblings(grid, results))
    if results.where(part="directed"):
        found.append(directed(results))
    if results.where(part="student"):
        found.append(students(grid, results))
    return [section for section in found if section is not None]


def _shown(grid: Any, results: Results, table: str) -> list[tuple[Row, Row]]:
    """Evolution's network of a picture, and the first of descent's that draws it.

    Where none does it is the nearest one, and the page says so. Of our pictures those are shown
    that have a symmetry to keep.
    """
    rows = Results([r for part in ("genome", "picture") for r in results.where(part=part)
                    if "picture-fracture" in r.readings
                    and table in r.readings["picture-fracture"].tables])  # fmt: skip
    pairs = []
    ours = _most_symmetric(grid, rows.where(way="evolved", source="evolved"))
    for row in (*rows.where(way="evolved", part="genome"), *ours):
        same = {k: row.labels[k] for k in ("part", "source", "picture")}
        twins = rows.where(way="descent", **same)
        drawing = parts.able(twins, grid, same["part"])
        if drawing:
            pairs.append((row, drawing[0]))
        elif twins:
            pairs.append((row, min(twins, key=_error)))
    return pairs


def _most_symmetric(grid: Any, rows: Results) -> list[Row]:
    """The first pictures that are symmetric; where they are too few, then the most symmetric."""

    def lacks(row: Row) -> float:
        return max(0.0, grid.symmetric - parts.of_picture(row, "target_symmetry"))

    return sorted(rows, key=lacks)[: grid.shown]


def _error(row: Row) -> float:
    error = parts.of_picture(row, "error")
    return error if np.isfinite(error) and not row.diverged else float("inf")


def _unable(grid: Any, row: Row) -> bool:
    return not _error(row) <= parts.bound_of(grid, row.labels["part"])


def _error_told(grid: Any, row: Row) -> str:
    """An error with as many digits as it takes to see on which side of its bound it is."""
    error, bound = parts.of_picture(row, "error"), parts.bound_of(grid, row.labels["part"])
    told = (f"{error:.{digits}g}" for digits in range(2, 17))
    return next(text for text in told if (float(text) <= bound) == (error <= bound))


def _called(row: Row) -> str:
    source = row.labels["source"]
    name = source if row.labels["part"] == "genome" else f"picture {row.labels['picture'] + 1}"
    return f"{name[0].upper()}{name[1:]}, {WORDS[row.labels['way']]}"


def _plainly(grid: Any, pairs: Sequence[tuple[Row, Row]]) -> str:
    """A paragraph that says of which pictures no twin draws what it should."""
    found = [
        f"{_called(row)}: no network draws the picture to an error of "
        f"{parts.bound_of(grid, row.labels['part']):g}. What is shown is the nearest, with an "
        f"error of {_error_told(grid, row)}: it is no twin, and what its neurons lack may be what "
        "its picture lacks."
        for _, row in pairs if _unable(grid, row)
    ]  # fmt: skip
    return "".join(f"\n\n{sentence}" for sentence in found)


def walls(grid: Any, results: Results) -> Section:
    pairs, hung = _shown(grid, results, "wall"), []
    for row in (row for pair in pairs for row in pair):
        reading = row.readings["picture-fracture"]
        share = parts.of_picture(row, "symmetric_share")
        unable = " (does not draw it)" if _unable(grid, row) else ""
        told = (
            f"{_called(row)}: error {_error_told(grid, row)}{unable}, own symmetry "
            f"{reading.values['target_symmetry']:.2f}, {reading.values['distinct']:.0f} distinct "
            f"maps, {share:.0%} of them symmetric"
        )
        png = base64.b64decode(reading.tables["wall"]["png"][0])
        hung.append(Strip(told, png, [share > 0.5], "most neurons symmetric"))
    return Section(
        "Two networks, one picture",
        "Each wall shows, large, what a network draws, and then what single neurons of it say of "
        "every pixel, copies left out. On the left the network that evolution drew the picture "
        "with, on the right one of the same architecture that gradient descent trained to draw the "
        "same. A green frame: the neuron has the symmetry that the picture itself has most of "
        "(concordance above .95). An orange frame: it does not. The mark below says whether most "
        "neurons do. Where there are more maps than places they are taken evenly from the first "
        "layer to the last; where there are fewer the wall stays empty. Our pictures are the first "
        f"ones with a symmetry of their own of at least {grid.symmetric:g} (where they are too "
        "few, the most symmetric of the others), and the twins are the first, too, of those that "
        "draw the picture." + _plainly(grid, pairs),
        galleries=[Gallery("Feature maps", hung)] if hung else [],
        first=True,
    )


def strips(grid: Any, results: Results) -> Section:
    pairs, hung = _shown(grid, results, "strips"), []
    for left, right in pairs:
        tables = [r.readings["picture-fracture"].tables["strips"] for r in (left, right)]
        # As many of one as of the other, so that they stand side by side.
        for number in range(min(2, *(len(t["png"]) for t in tables))):
            for row, table in zip((left, right), tables, strict=True):
                unable = " (does not draw it)" if _unable(grid, row) else ""
                shares = " and ".join(f"{table[end][number]:.2f}" for end in ("smaller", "larger"))
                hung.append(Strip(f"{_called(row)}{unable}: weight {number + 1}",
                                  base64.b64decode(table["png"][number]),
                                  caption=f"symmetric share of the change: {shares}"))  # fmt: skip
    return Section(
        "One weight at a time",
        "One weight, drawn at random, is made smaller (to the left) and larger (to the right) "
        f"until the picture has changed by a set amount, the same for all: {EFFECT:g}, mean "
        "squared, at both ends. Weights that cannot be moved to that, to within a tenth, are "
        "passed over. The picture in the middle is unchanged, and the networks are those of the "
        "walls. Below each strip: which share of the change, at the left end and at the right, is "
        "its own mirror image under the picture's symmetry. 1: the change keeps it. About .5: a "
        "change that knows nothing of it." + _plainly(grid, pairs),
        galleries=[Gallery("Sweeps", hung)] if hung else [],
    )


def measures(grid: Any, results: Results) -> Section:
    rows = results.where(part="picture", source="evolved")
    return Section(
        "How whole, how fractured",
        "Concordance: how alike a neuron's map and its mirror image are (absolute correlation, "
        "mean over distinct maps), under the symmetry that the picture has most of. Untrained is a "
        "network of the same architecture with random weights: what symmetry comes for free. "
        "Unselected are genomes that had as many mutations as ours, and have as many hidden nodes, "
        "but whose ancestors nobody chose: what comes of being small. Heard: over neurons that "
        "reach the picture through weights that are not zero. Awake, evolution's networks have "
        "fresh neurons that nobody hears yet. "
        "It depends on the basis, so it is also told after a random rotation within layers; sweeps "
        "are how symmetric the changes are that single weights make at one size of effect (a half "
        "is none); those that cannot have it, to within a tenth, are left out and counted. Below "
        "it: "
        "how much maps vary from pixel to pixel, and how many there are.",
        figures=_concordances(grid, rows),
        tables=[
            _measure_table(grid, results, "Symmetry of neurons", SYMMETRY),
            _measure_table(grid, results, "Number and roughness of maps", SHAPE),
        ],
    )


def _concordances(grid: Any, rows: Results) -> list[Figure]:
    pictures = rows.labels("picture")
    if not pictures:
        return []
    named = {}
    for way in ("evolved", "descent", "curriculum"):
        found = parts.by_picture(parts.able(rows, grid, way=way),
                                 lambda r: parts.of_picture(r, "concordance"))  # fmt: skip
        if found:
            named[WORDS[way]] = found
    named["untrained"] = parts.by_picture(
        rows.where(way="descent"), lambda r: parts.of_picture(r, "concordance", "untrained")
    )
    symmetry = parts.by_picture(rows, lambda r: parts.of_picture(r, "target_symmetry"))
    categories = [f"picture {n + 1} (itself {symmetry.get(n, float('nan')):.2f})" for n in pictures]
    series = [Estimates(word, [found.get(n) for n in pictures]) for word, found in named.items()]
    return [
        dots("Symmetry concordance of neurons, by picture", categories, series,
             value_label="concordance", category_label="picture and its own symmetry",
             value_range=(0.0, 1.03),
             caption=f"Only networks that draw their picture to an error of {grid.error:g}; means "
             "over twins.")
    ]  # fmt: skip


def _measure_table(
    grid: Any, results: Results, title: str, measures: Mapping[str, str]
) -> Table:  # fmt: skip
    table: list[list[Any]] = []
    sources = [("picture", "evolved", "our pictures"), ("picture", "unselected", "unselected"),
               ("picture", "stencils", "stencils"),
               *(("genome", name, name) for name in grid.genomes)]  # fmt: skip
    for part, source, called in sources:
        for way in ("evolved", parts.AWAKE, "descent", "curriculum"):
            whole = results.where(part=part, source=source, way=way)
            rows = parts.able(results, grid, part, source=source, way=way)
            if not whole:
                continue
            made = MADE.get(source, WORDS[way]) if way == "evolved" else WORDS[way]
            cells = [_told(rows, name) for name in measures]
            count = [f"{len(rows)} of {len(whole)}"] if "error" in measures else []
            table.append([called, made, *count, *cells])
        rows = results.where(part=part, source=source, way="descent")
        if rows:
            cells = ["–" if n == "error" else _told(rows, n, "untrained") for n in measures]
            table.append([called, "untrained", *(["–"] if "error" in measures else []), *cells])
    return Table(
        title,
        ["pictures", "network", *(["draw it"] if "error" in measures else []), *measures.values()],
        table,
        f"Means, over pictures (of an archive's picture over twins), with 95 % intervals, of "
        f"networks with an error of at most {grid.error:g} ({parts.DRAWN:g} on an archive's "
        "picture).",
    )  # fmt: skip


def _told(rows: Results, name: str, control: str | None = None) -> str:
    def number(row: Row) -> float:
        return parts.of_picture(row, name, control)

    one = len({(r.labels["part"], r.labels["picture"]) for r in rows}) == 1
    values = [number(r) for r in rows] if one else list(parts.by_picture(rows, number).values())
    values = [value for value in values if np.isfinite(value)]
    if not values:
        return "–"
    found = mean_interval(np.asarray(values))
    if not found.bounded or name in ("error", "dropped"):
        return f"{found.estimate:.2g}" if name == "error" else f"{found.estimate:.3g}"
    if name in SYMMETRY:
        return f"{found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.estimate:.3g} [{found.low:.3g}, {found.high:.3g}]"


def siblings(grid: Any, results: Results) -> Section:
    rows = results.where(part="sibling")
    ways = [way for way in WORDS if rows.where(way=way)]
    along = []
    for sibling in grid.siblings:
        lines = []
        for way in ways:
            curves = [r.curve("error") for r in rows.where(way=way, sibling=sibling)
                      if not r.diverged]  # fmt: skip
            if curves:
                middle = np.median([values for _, values in curves], axis=0)
                some = slice(None, None, max(1, len(middle) // POINTS))
                lines.append(Series(WORDS[way], curves[0][0][some].tolist(), middle[some].tolist()))
        along.append(Panel(sibling, lines))
    points = later.sibling_points(grid, results, ways)
    cloud = [
        Points(WORDS[way], [p["concordance"] for p in points if p["way"] == way],
               [2 ** p["steps"] for p in points if p["way"] == way])
        for way in ways if any(p["way"] == way for p in points)
    ]  # fmt: skip
    figures = [panels("Error on a sibling picture along training", "steps", "error (median)", along,
                      log_y=True, references=[(grid.matched, "learnt")])]  # fmt: skip
    if cloud:
        figures.append(
            scatter("Steps to a sibling by concordance before", "concordance of what is heard",
                    "steps", cloud, log_y=True,
                    caption="Runs that never get there stand at the last step.")
        )  # fmt: skip
    return Section(
        "What is learnt next",
        "All networks go on to learn a sibling of their picture: turned about its diagonal, with "
        "its colours exchanged, or with its right half replaced by another picture's. If fracture "
        f"costs anything, fractured networks should take longer to an error of {grid.matched:g}. "
        "Where all weights on both sides of a neuron are zero no gradient ever reaches it, and "
        "evolution leaves most neurons so. Awake: evolution's network with fresh weights into such "
        "idle neurons, and still none out of them, so that it draws exactly the same and can "
        "learn. From scratch: a new network.",
        figures=figures, tables=[_sibling_table(grid, rows, ways)],
    )  # fmt: skip


def _sibling_table(grid: Any, rows: Results, ways: Sequence[str]) -> Table:
    table: list[list[Any]] = []
    for sibling in grid.siblings:
        for way in ways:
            chosen = rows.where(sibling=sibling, way=way)
            found = [base.log_steps(r, "error", grid.matched, falling=True) for r in chosen]
            if not found:
                continue
            middle = float(np.median([2**steps for steps, _ in found]))
            reached = sum(there for _, there in found)
            table.append([sibling, WORDS[way], round(middle), f"{reached} of {len(found)}"])
    return Table(
        "Steps to a sibling", ["sibling", "network", "steps (median)", "got there"], table,
        "Those that never got there count with all steps.",
    )  # fmt: skip


def directed(results: Results) -> Section:
    told = {r.labels["picture"]: r for r in results.where(part="directed")}
    trained = parts.by_picture(
        results.where(part="picture", source="evolved", way="descent"),
        lambda r: parts.of_picture(r, "error"),
    )
    both = sorted(told.keys() & trained.keys())
    rows = [[f"picture {n + 1}", f"{parts.last_error(told[n]):.2g}", f"{trained[n]:.2g}"]
            for n in both]  # fmt: skip
    return Section(
        "Evolution that is told what to draw",
        "The pictures were found by an evolution that looked for nothing but variety. The table "
        "says how near evolution of the same kind comes when it is told to draw one of them, and "
        "how near descent comes.",
        tables=[Table("Error on the same pictures",
                      ["picture", "evolution towards it", "descent"], rows,
                      "Mean squared, over pixels and colours from 0 to 1.")],
    )  # fmt: skip


def students(grid: Any, results: Results) -> Section:
    rows = pupils.able_students(results)
    clouds = [_student_cloud(grid, results, rows, name)
              for name in ("concordance", "disentanglement", "selectivity") if rows]  # fmt: skip
    table = []
    for share in (*grid.held_out, -1.0):
        chosen = rows.where(held_out=share)
        if share >= 0:
            steps = [2 ** pupils.steps_of(grid, results, row) for row in chosen]
        else:
            steps = [2 ** pupils.module_steps(grid, results, n, share) for n in rows.labels("seed")]
        cells = [base.interval_text(chosen.values(*pair)) for pair in _STUDENT]
        called = f"{share:g} held out" if share >= 0 else "from scratch"
        table.append([called, *cells, base.interval_text(np.asarray(steps)), len(steps)])
    for control in ("untrained", "shuffled", "planted", "mixed"):
        cells = [_controlled(rows, *pair, control) for pair in _STUDENT]
        table.append([control, *cells, "", len(rows)])
    return Section(
        "Networks that do not draw",
        "Students learn tasks composed of a teacher's modules, from more or fewer combinations. "
        "Concordance: a unit answers to a module alike in any company. It says nothing of how many "
        "modules a unit mixes, and untrained networks, which are nearly linear, may have more of "
        "it than trained ones. Disentanglement: a unit tells of one module. Selectivity: moving "
        "one weight changes the answers where one module is at work. Shuffled: modules dealt out "
        "anew among tasks. Planted: a unit for each module, and weights that belong to one each. "
        "Mixed: every unit a random mix of all modules.\n\n"
        "Then one module is exchanged for a new one, and all students of a seed learn "
        f"it from the same examples, until a seen score of {grid.learnt:g}. Students are compared "
        "with those of the same teacher that saw the same combinations: who saw fewer differs in "
        "everything.",
        figures=clouds,
        tables=[Table("Students", ["student", "unseen score", "concordance", "disentanglement",
                                   "selectivity", "steps to a new module", "students"], table,
                      "Means over students with 95 % intervals, of those with a seen score of at "
                      "least .9.")],
    )  # fmt: skip


def _controlled(rows: Results, instrument: str, name: str, control: str) -> str:
    """A number of a control, over the students whose reading has it."""
    having = [r for r in rows if control in r.readings[instrument].controls]
    return base.interval_text(Results(having).values(instrument, name, control))


def _student_cloud(grid: Any, results: Results, rows: Results, name: str) -> Figure:
    """Each student beside the others of its teacher that saw the same."""
    points: dict[float, list[tuple[float, float]]] = {share: [] for share in grid.held_out}
    for mine in pupils.alike(rows):
        values = np.asarray([r.value("fracture", name) for r in mine])
        steps = np.asarray([pupils.steps_of(grid, results, r) for r in mine])
        for row, x, y in zip(mine, values - values.mean(), 2 ** (steps - steps.mean()),
                             strict=True):  # fmt: skip
            points[row.labels["held_out"]].append((float(x), float(y)))
    groups = [Points(f"{share:g} held out", *zip(*pairs, strict=True))
              for share, pairs in points.items() if pairs]  # fmt: skip
    return scatter(
        f"Steps to a new module by {name}", f"{name}, less the mean of its seed and share",
        "steps, as a multiple of that mean", groups,
    )  # fmt: skip


_STUDENT = (("generalization", "unseen"), ("fracture", "concordance"),
            ("fracture", "disentanglement"), ("fracture", "selectivity"))  # fmt: skip
