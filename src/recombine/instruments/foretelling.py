"""What can be read off a generator while it draws, combination by combination."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from recombine.checks import at_least
from recombine.errors import InvalidRequest
from recombine.families.scenes import Scenes
from recombine.instruments import ridge
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.composition import asked_for, scenes
from recombine.instruments.decodability import project
from recombine.instruments.subject import Subject
from recombine.instruments.supervised_subject import SupervisedSubject, in_batches, supervised
from recombine.models.sampling import sample_path
from recombine.seeds import host_seed, key_at, stream

VALIDATED = 1 / 3  # of the seen combinations, on which the layer is chosen


@dataclass(frozen=True)
class Foretelling(Instrument):
    """R² of a combination's concepts, read off hidden states on the way from noise to picture.

    Probes are fitted to pictures of seen combinations and scored on unseen ones; the layer is
    chosen, for each time, by probes that were fitted to some of the seen combinations and scored
    on the others. Hidden states
    are means over the image, projected to `features` dimensions. Beside them stand two probes that
    need no network: one of the noisy image at the same time, since a late state simply contains
    the picture, and one of the condition, since every block is told it. The image is probed as
    well as can be: through the probability of each concept, given the image, of an observer who
    knows all glyphs and takes the rest for noise of the law it has in training. The table has one
    row for each unseen combination: its skill, 1 minus the squared error over that of always
    guessing the mean. The success of a combination is measured on other pictures, by
    `composition`. Controls: the untrained twin on the same images, shuffled combinations, and
    planted features.
    """

    version: ClassVar[int] = 1
    name: ClassVar[str] = "foretelling"
    needs: ClassVar[tuple[str, ...]] = ("activations",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    combinations: int = 64
    fitted: int = 192
    draws: int = 8
    times: tuple[float, ...] = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 0.9)
    steps: int = 20
    guidance: float = 2.0
    features: int = 64

    def __post_init__(self):
        object.__setattr__(self, "times", tuple(self.times))
        at_least(self, combinations=2, fitted=8, draws=2, features=1, steps=1)
        off = [t for t in self.times if not 0 < t < 1 or abs(t * self.steps % 1 - 0.5) < 0.499]
        if off or not self.times:
            raise InvalidRequest(
                f"times={self.times}: expected numbers between 0 and 1 that are steps of "
                f"1/{self.steps}, such as {1 / self.steps:g}"
            )

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        subject, untrained = supervised(subject, self.name), supervised(untrained, self.name)
        scenes(subject, self.name)
        rng = np.random.default_rng(host_seed(subject.learner.seeds.evaluation, self.name))
        unseen = asked_for(subject, self.combinations)["unseen"]
        seen = asked_for(subject, self.fitted)["seen"]
        pictures = {k: self._watch(subject, untrained, r, k) for k, r in
                    (("seen", seen), ("unseen", unseen))}  # fmt: skip
        order = rng.permutation(seen.size)
        validated = np.zeros(seen.size, bool)
        validated[order[: max(2, round(VALIDATED * seen.size))]] = True
        rows = np.repeat(validated, self.draws)
        known, told = pictures["seen"], pictures["unseen"]
        asked = {k: shown["asked"] for k, shown in pictures.items()}
        fit_to, groups = asked["seen"], np.repeat(seen, self.draws)

        def guess(shown: Any, asked_of: Any, targets: np.ndarray = fit_to) -> np.ndarray:
            """What a probe fitted to all seen combinations says of the unseen ones."""
            probe = ridge.fit_on(shown, targets, groups, asked_of, asked["unseen"])
            return probe.predictions

        def chosen_by(layer: str, number: int) -> float:
            """R² on seen combinations that the probe was not fitted to."""
            shown = known[layer][number]
            scored = ridge.fit_on(
                shown[~rows], fit_to[~rows], groups[~rows], shown[rows], fit_to[rows]
            )
            return _r2(fit_to[rows], scored.predictions, fit_to[~rows])

        mixed = _between(fit_to, self.draws, rng)
        values: dict[str, float] = {}
        controls: dict[str, dict[str, float]] = {name: {} for name in self.controls}
        members = subject.support.space.indicator(unseen).astype(int)
        table: dict[str, list[Any]] = {"rank": unseen.tolist(), "members": members.tolist()}
        for number, time in enumerate(self.times):
            names = [name for name in known if name not in ("asked", "twin")]
            found = {name: guess(known[name][number], told[name][number]) for name in names}
            for name, guessed in found.items():
                values[f"t{time:g}/{name}"] = _r2(asked["unseen"], guessed, fit_to)
            layers = {n: chosen_by(n, number) for n in names if n.startswith("layer")}
            for name, score in layers.items():
                values[f"t{time:g}/{name}/validation"] = score
            layer = max(layers, key=lambda name: layers[name])
            values[f"t{time:g}/hidden"] = values[f"t{time:g}/{layer}"]
            values[f"t{time:g}/layer"] = float(_number(layer))
            for label in ("hidden", "pixels", "condition"):
                name = layer if label == "hidden" else label
                skill = _skill(asked["unseen"], found[name], fit_to, self.draws)
                table[f"{label}_t{time:g}"] = [float(f"{x:.6g}") for x in skill]
            besides = {
                "shuffled": guess(known[layer][number], told[layer][number], mixed),
                "untrained": guess(known["twin"][number], told["twin"][number]),
            }
            for control, guessed in besides.items():
                controls[control][f"t{time:g}/hidden"] = _r2(asked["unseen"], guessed, fit_to)
        mix = rng.standard_normal((fit_to.shape[1], max(self.features, fit_to.shape[1])))
        planted = {
            k: a @ mix + 0.05 * rng.standard_normal((len(a), mix.shape[1]))
            for k, a in asked.items()
        }
        guessed = guess(planted["seen"], planted["unseen"])
        controls["planted"]["features"] = _r2(asked["unseen"], guessed, fit_to)
        return Reading(values, controls, {"unseen": table})

    def _watch(
        self, subject: SupervisedSubject, untrained: SupervisedSubject, ranks: np.ndarray, kind: str
    ) -> dict[str, Any]:
        """What is there at each time while pictures of these combinations are drawn: the noisy
        image, the condition and every layer, of the subject and (`twin`) of the untrained one."""
        batch = subject.draw(np.repeat(ranks, self.draws), f"{self.name}/{kind}", samples=2)
        words = stream(subject.learner.seeds.evaluation, f"{self.name}/{kind}/noise")
        family, start = subject.program.family, iter(range(len(batch.codes)))
        assert isinstance(family, Scenes)

        watched = observer(family, subject.arrays["family"], self.times)

        def watch(codes: Array) -> dict[str, Array]:
            path = sample_path(
                subject.model, codes, key_at(words, next(start)), steps=self.steps,
                pixels=family.output_size, times=self.times, guidance=self.guidance,
            )  # fmt: skip
            found = _states(subject.model, codes, path, self.times)
            twin = _states(untrained.model, codes, path, self.times)
            last = max((n for n in twin if n.startswith("layer")), key=_number)
            return {**found, "twin": twin[last], "pixels": watched(path)}

        found = in_batches(watch, np.asarray(batch.codes))
        # What needs no network is probed whole, so that hidden states have no head start.
        whole = ("pixels", "condition")
        features = {
            name: [value[:, t].astype(np.float64) if name in whole
                   else project(value[:, t].astype(np.float64), self.features)
                   for t in range(len(self.times))]
            for name, value in found.items()
        }  # fmt: skip
        return {"asked": subject.latents(batch).astype(np.float64), **features}


def _number(layer: str) -> int:
    return int(layer.split("/")[0].removeprefix("layer"))


@functools.partial(jax.jit, static_argnums=3)
def _states(
    model: Any, codes: Array, path: Float[Array, "time image pixel"], times: tuple[float, ...]
) -> dict[str, Float[Array, "image time width"]]:
    """The condition and every layer of a network at each time, averaged over the image."""

    def at(moment: tuple[Array, Array]) -> dict[str, Array]:
        image, time = moment
        seen = jnp.concatenate([image, jnp.full((len(image), 1), time)], axis=1)
        states = model.activations(codes, seen[:, None])
        return {n: s[:, 0] for n, s in states.items() if n != "output"}

    found = jax.lax.map(at, (path, jnp.asarray(times, path.dtype)))
    return jax.tree.map(lambda states: jnp.swapaxes(states, 0, 1), found)


def observer(
    family: Scenes, content: Any, times: tuple[float, ...]
) -> Callable[[Float[Array, "time image pixel"]], Float[Array, "image time module"]]:
    """How probable each concept is, given the noisy image alone, to one who knows every glyph.

    At time t a cell is t times its template plus noise of standard deviation 1 - t, so that the
    template of each cell has a posterior; a concept is there unless no cell shows it.
    """
    shown = concept_templates(family, content)
    used = shown.any(axis=(0, 1))
    filled = family.space.sizes(np.arange(family.space.size, dtype=np.uint32)).mean()
    filled = {"sets": filled, "slots": 1.0, "pairs": 2.0}[family.shows] / family.cells**2
    prior = np.where(used, filled / used.sum(), 0.0)
    prior[0] = 1 - filled
    return functools.partial(_observed, family.cells, family.cell, times, jnp.log(prior),
                             jnp.asarray(content["templates"]), jnp.asarray(shown))  # fmt: skip


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _observed(
    n: int, p: int, times: tuple[float, ...], prior: Array, bank: Array, shown: Array, path: Array
) -> Array:
    tiles = path.reshape(*path.shape[:2], n, p, n, p, 3).swapaxes(3, 4)
    tiles = tiles.reshape(*path.shape[:2], n * n, -1)
    found = []
    for seen, t in zip(tiles, times, strict=True):
        with jax.default_matmul_precision("highest"):
            # The part of |x - t template|² / 2 that differs between templates.
            match = (seen @ bank.T) * t - 0.5 * t**2 * jnp.sum(bank**2, axis=1)
        cell = jax.nn.softmax(match / (1 - t) ** 2 + prior)
        there = jnp.einsum("bct,mct->bmc", cell, shown.astype(cell.dtype))
        found.append(1 - jnp.prod(1 - jnp.clip(there, 0, 1), axis=-1))
    return jnp.stack(found, axis=1)


def concept_templates(family: Scenes, content: Any) -> Bool[np.ndarray, "module cell template"]:
    """Which template in which cell shows which concept."""
    count, cells = len(content["templates"]), family.cells**2
    shown = np.zeros((family.modules, cells, count), bool)
    if family.shows == "sets":
        for module, glyph in enumerate(np.asarray(content["glyphs"])):
            shown[module, :, glyph] = True
        return shown
    number = np.arange(count) - 1
    shape, colour = number // family.colours % family.shapes, number % family.colours
    values = [(shape, family.shapes), (colour, family.colours)]
    if family.shows == "slots":
        size = number // (family.colours * family.shapes)
        places = [([*values, (size, family.sizes)], np.zeros(cells, int), 0)]
    else:
        places = [(values, family.halves(), half) for half in (0, 1)]
    start = 0
    for factors, where, part in places:
        for value, levels in factors:
            for level in range(levels):
                matching = (value == level) & (number >= 0)
                shown[start + level] = (where == part)[:, None] & matching
            start += levels
    if family.shows == "slots":
        quadrants = family.quadrants()
        for quadrant in range(4):
            shown[start + quadrant] = (quadrants == quadrant)[:, None] & (number >= 0)
    return shown


def _between(targets: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Targets of other combinations: whole combinations change places, so groups stay groups."""
    by_combination = targets.reshape(-1, draws, targets.shape[1])
    return by_combination[rng.permutation(len(by_combination))].reshape(targets.shape)


def _r2(truth: np.ndarray, guess: np.ndarray, fitted: np.ndarray) -> float:
    """1 - SSE / SST, pooled over concepts, around the mean of the rows the probe was fitted to."""
    return float(1 - ((truth - guess) ** 2).sum() / ((truth - fitted.mean(axis=0)) ** 2).sum())


def _skill(truth: np.ndarray, guess: np.ndarray, fitted: np.ndarray, draws: int) -> np.ndarray:
    """The same for each combination alone, over its pictures and all concepts."""
    error = ((truth - guess) ** 2).sum(axis=1).reshape(-1, draws).sum(axis=1)
    total = ((truth - fitted.mean(axis=0)) ** 2).sum(axis=1).reshape(-1, draws).sum(axis=1)
    return 1 - error / total
