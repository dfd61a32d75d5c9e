"""The pictures in the report of the study of binding: scenes, and the masks of objects."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from recombine.families.glyphs import COLOURS, SHAPES
from recombine.families.objects import SEARCHES
from recombine.lab.study import Row
from recombine.png import png, to_bytes
from recombine.report.document import Gallery, Section, Strip
from recombine.studies._binding import NAMES

# Of parts and objects; the first is the background's where there is one.
PAINTS = np.array([(0.12, 0.12, 0.14), (0.90, 0.62, 0.0), (0.34, 0.71, 0.91), (0.0, 0.62, 0.45),
                   (0.95, 0.9, 0.35), (0.8, 0.47, 0.65), (0.84, 0.37, 0.0)])  # fmt: skip
DIM = 0.2  # of the paint that parts keep where there is no object: ARI does not look there
LARGER = 3  # times, so that lines between pictures are thin


def questions(grid: Any, tasks: Sequence[str]) -> Section:
    strips = [strip for task in tasks for strip in scenes(grid, task)]
    return Section(
        "What is asked",
        "Scenes as the networks see them, with the right answer below each. In a swap and in "
        "conjunctive search both pictures hold as many objects of each colour and of each shape, "
        "so that only which is on which tells them apart. In published search these numbers tell. "
        "Disjunctive search and search in a palette need the colour alone.",
        galleries=[Gallery("Scenes", strips)],
    )


def scenes(grid: Any, task: str) -> list[Strip]:
    """Pictures with a yes and pictures with a no, of every kind a task has."""
    import jax
    import jax.numpy as jnp

    from recombine.studies.binding import family_of

    family = family_of(grid, task, min(grid.held_out))
    trained = jnp.asarray(family.trained(0))
    sizes = {"swap": 2, "report": max(grid.objects), "search": max(grid.set_size)}
    found = []
    for kind in range(len(SEARCHES)) if task == "search" else (None,):
        size = jnp.asarray([sizes[task]])
        asked = jax.jit(lambda key, kind=kind, size=size: family.draw(
            task, trained, key, 4, sizes=size, kind=kind
        ))(jax.random.key(1))  # fmt: skip
        if task == "report":
            shown = [np.asarray(part)[:2] for part in asked.scene]
            left, right = (
                ", ".join(named(*pair) for *pair, real in zip(*one, strict=True) if real)
                for one in zip(*shown, strict=True)
            )
            found.append(Strip("Report: what is there?", beside(asked.images[:2]),
                               caption=f"left: {left}; right: {right}"))  # fmt: skip
            continue
        # The first half of the items has a yes; the other half asks the same again.
        chosen = [0, 2]
        question = np.asarray(asked.question)[chosen]
        cut = family.colours
        words = [f"{named(int(q[:cut].argmax()), int(q[cut:].argmax()))}?" for q in question]
        how = "Swap" if kind is None else f"Search, {SEARCHES[kind]}"
        said = f"{how}: {' '.join(dict.fromkeys(words))}"
        marks = [bool(mark) for mark in np.asarray(asked.answer)[chosen]]
        found.append(Strip(said, beside(np.asarray(asked.images)[chosen]), marks))
    return found


def named(colour: int, shape: int) -> str:
    return f"{list(COLOURS)[colour]} {list(SHAPES)[shape]}"


def beside(images: Any) -> bytes:
    """Pictures with pixels from 0 to 1 in a row, parted by a light line, as PNG."""
    large = np.asarray(images).repeat(LARGER, axis=1).repeat(LARGER, axis=2)
    parted = np.pad(large, [(0, 0)] * 2 + [(0, LARGER), (0, 0)], constant_values=1.0)
    return png(to_bytes(2 * np.concatenate(list(parted), axis=1)[:, :-LARGER] - 1))


def painted(numbers: Any) -> Float[np.ndarray, "side side 3"]:
    """A grid of whole numbers as a picture."""
    return PAINTS[np.asarray(numbers) % len(PAINTS)]


def parts_painted(parts: Any, objects: Any) -> Float[np.ndarray, "side side 3"]:
    """Parts in the colours of the objects they are nearest to, and dim where there is no object."""
    objects = np.asarray(objects)
    bright = painted(as_objects(np.asarray(parts), objects))
    return np.where(objects[..., None] > 0, bright, PAINTS[0] + DIM * (bright - PAINTS[0]))


def as_objects(
    parts: Int[np.ndarray, "side side"], objects: Int[np.ndarray, "side side"]
) -> Int[np.ndarray, "side side"]:
    """The same parts by the numbers of the objects, so that as many pixels agree as can; those that
    are left over, or cover nothing of their object, have numbers after these.

    >>> as_objects(np.array([[7, 7, 2, 5]]), np.array([[1, 1, 2, 0]])).tolist()
    [[1, 1, 2, 3]]
    """
    known, kinds = np.unique(parts), np.unique(objects[objects > 0])
    shared = np.array([[np.sum((parts == p) & (objects == o)) for o in kinds] for p in known])
    numbers = {known[p]: kinds[o] for p, o in zip(*linear_sum_assignment(-shared), strict=True)
               if shared[p, o]}  # fmt: skip
    others = [part for part in known if part not in numbers]
    numbers |= {part: objects.max() + n for n, part in enumerate(others, start=1)}
    return np.vectorize(numbers.get)(parts)


def masks(rows: Sequence[Row]) -> Gallery | None:
    """The first network's pictures: seen, drawn again, the true objects and the parts."""
    if not rows:
        return None
    shown = rows[0].readings["segregation"].tables["pictures"]
    columns = (shown[name] for name in ("picture", "drawn_again", "objects", "parts", "fg_ari"))
    strips = [
        Strip(
            f"Foreground ARI {score:.2f}",
            beside(np.stack([
                pixels(seen), pixels(again), painted(objects), parts_painted(parted, objects)
            ])),
            [score >= 0.9],
        )
        for seen, again, objects, parted, score in zip(*columns, strict=True)
    ]  # fmt: skip
    return Gallery(
        f"Object masks, {NAMES[rows[0].labels['model']]}, seed {rows[0].labels['seed']}",
        strips,
        "The picture; drawn again; its true objects; and the parts found, each in the colour of "
        "the object it covers most, one part an object. Where the parts are the objects the last "
        "two are alike. Dim: background, which may go to any part and does not count.",
    )


def pixels(encoded: str) -> Float[np.ndarray, "side side 3"]:
    """A picture from PNG in base64."""
    from matplotlib.image import imread

    return imread(io.BytesIO(base64.b64decode(encoded)), format="png")[..., :3]
