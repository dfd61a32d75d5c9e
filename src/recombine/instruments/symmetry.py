"""Do the units of a network respect what leaves its task unchanged?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from recombine.checks import at_least
from recombine.errors import NotApplicable
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.fracture import (
    EFFECT,
    selectivity,
    squared_correlation,
    swept,
    weighted_entropy,
)
from recombine.instruments.subject import Subject
from recombine.models.layers import named_layers
from recombine.seeds import host_seed

if TYPE_CHECKING:
    from recombine.families.odd_one_out import OddFamily
    from recombine.learners._odd import OddSubject

ALIVE = 1e-6  # a unit whose deviation is below never answers


class Pair(NamedTuple):
    """Of items, or of a layer: after a symmetry, and with what it touches drawn anew."""

    kept: Float[np.ndarray, "item size"]
    lost: Float[np.ndarray, "item size"]


class Shown(NamedTuple):
    """Items, the same items after every symmetry, and which of the rules each obeys."""

    items: Float[np.ndarray, "item size"]
    changed: dict[str, Pair]
    rules: Bool[np.ndarray, "item rule"]


class Units(NamedTuple):
    """A layer on items, and on the changed ones."""

    plain: Float[np.ndarray, "item unit"]
    changed: dict[str, Pair]


@dataclass(frozen=True)
class Symmetry(Instrument):
    """Concordance of units under the symmetries of a family, disentanglement, and selectivity.

    `concordance`: the absolute correlation of a unit's answers to items with those to the same
    items after a symmetry, c = |corr(h, h∘g)|, beyond what it is if the parts that the symmetry
    touches are drawn anew (c₀: a unit that looks elsewhere answers alike whatever happens there):
    Σ(c - c₀) / Σ(1 - c₀) over units, mean over layers and symmetries. 1 is whole, 0 fractured.
    `agreement` is the plain mean of c. `disentanglement` and `completeness`: whether a unit tells
    of one rule only, and a rule is told by few units (1 minus normalised entropies of squared
    correlations). `selectivity`: single weights are moved until embeddings change by a set amount;
    the share of that change, over items, that one rule explains; `dropped` are weights that cannot
    do so. A rule that a single item cannot obey, such as a count that is right among others, is
    left out of these three, and the table `notes` says so; where one rule is left there is no
    `disentanglement`.

    Controls: the untrained twin; other items in place of the changed ones, and rules dealt out anew
    (shuffled); and a layer with one unit a rule, which tells what the family itself says of items
    and of changed ones (planted).
    """

    version: ClassVar[int] = 2
    name: ClassVar[str] = "symmetry"
    needs: ClassVar[tuple[str, ...]] = ("activations", "weights")
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    items: int = 1_024
    sweeps: int = 48
    swept_items: int = 256

    def __post_init__(self) -> None:
        at_least(self, items=2, sweeps=1, swept_items=2)

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        network, twin = over_items(subject, self.name), over_items(untrained, self.name)
        rng = np.random.default_rng(host_seed(network.evaluation_seed, self.name))
        alone = told_alone(network.family, self.name)
        items, rules = network.draw_items(self.name, self.items)
        rules = rules[:, alone]
        changes = network.family.symmetries(rng)
        changed = {n: Pair(one.kept(items), one.lost(items)) for n, one in changes.items()}
        shown = Shown(items, changed, rules)
        dealt = rng.permutation(len(items))
        which = self.chosen(network, rng)
        layers, moved = layers_of(network, shown), self.moved(network, items, which)
        values = measured(layers, rules) | selectivity(moved, rules[: self.swept_items])
        control = measured(layers_of(twin, shown), rules)
        control |= selectivity(self.moved(twin, items, which), rules[: self.swept_items])
        elsewhere = {
            name: Units(
                units.plain,
                {g: Pair(*(one[dealt] for one in pair)) for g, pair in units.changed.items()},
            )
            for name, units in layers.items()
        }
        shuffled = measured(elsewhere, rules[dealt])
        by_chance = selectivity(moved, rules[dealt][: self.swept_items])
        shuffled |= {name: value for name, value in by_chance.items() if name != "dropped"}
        planted = measured({"planted": one_each(network.family, alone, shown)}, rules)
        return Reading(
            values,
            {"untrained": control, "shuffled": shuffled, "planted": planted},
            {"concordance": by_layer(layers), **notes(network.family)},
        )

    def chosen(self, network: OddSubject, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Which weights are moved: as many of every matrix, by path."""
        found = {
            path: layer.weight.size
            for path, layer in named_layers(network.network).items()
            if layer.weight.ndim == 2
        }
        each = max(1, self.sweeps // len(found))
        return {
            path: rng.choice(size, min(each, size), replace=False) for path, size in found.items()
        }

    def moved(
        self, network: OddSubject, items: np.ndarray, which: Mapping[str, np.ndarray]
    ) -> list[np.ndarray | None]:
        """What moving each weight does to each item; None where no move has the effect."""
        batch = jnp.asarray(items[: self.swept_items])
        wanted = EFFECT * float(jnp.var(_embedded(network.network, batch)))
        found: list[np.ndarray | None] = []
        for path, places in which.items():
            changes, reached = swept(
                Embedding(), path, {}, network.network, batch, jnp.asarray(places), wanted
            )
            pairs = zip(np.asarray(changes), np.asarray(reached), strict=True)
            found += [change if there else None for change, there in pairs]
        return found


@dataclass(frozen=True)
class Embedding:
    """What a network over items answers: the directions of its embeddings."""

    def answer(self, arrays: Any, model: Any, batch: Array) -> Array:
        found = model(batch)
        return found / (jnp.linalg.norm(found, axis=-1, keepdims=True) + 1e-8)


@jax.jit
def _embedded(model: Any, batch: Array) -> Array:
    return Embedding().answer({}, model, batch)


def over_items(subject: Subject, instrument: str) -> OddSubject:
    """The subject that looks at single items, or a refusal that says what is missing."""
    from recombine.learners._odd import OddSubject

    if not isinstance(subject, OddSubject):
        raise NotApplicable(
            f"{instrument} changes single items by the symmetries of an odd-one-out family, and "
            f"{type(subject).__name__} has none"
        )
    return subject


def told_alone(family: OddFamily, instrument: str) -> list[bool]:
    """Which of the two rules say something of a single item, or a refusal where none does."""
    found = [rule not in family.in_company for rule in family.rules]
    if not any(found):
        raise NotApplicable(
            f"{instrument} asks which rules a single item obeys, and those of "
            f"{type(family).__name__} ({', '.join(family.rules)}) are true among others only"
        )
    return found


def notes(family: OddFamily) -> dict[str, dict[str, list[Any]]]:
    """Rules that were left out, and why."""
    if not family.in_company:
        return {}
    why = "true of an item among others only: single items have no label"
    left_out = list(family.in_company)
    return {"notes": {"rule": left_out, "why": [why] * len(left_out)}}


def one_each(family: OddFamily, alone: Sequence[bool], shown: Shown) -> Units:
    """A layer with one unit for each rule, which tells what the family says of the items.

    A symmetry of parts that no rule is about finds nothing there, and is left out.
    """

    def told(items: np.ndarray) -> Float[np.ndarray, "item rule"]:
        return np.stack(family.satisfied(items[:, None]), axis=-1)[:, 0, alone].astype(float)

    plain = told(shown.items)
    changed = {name: Pair(told(one.kept), told(one.lost)) for name, one in shown.changed.items()}
    touched = {name: pair for name, pair in changed.items() if np.any(np.stack(pair) != plain)}
    return Units(plain, touched or changed)


def layers_of(network: OddSubject, shown: Shown) -> dict[str, Units]:
    """Hidden layers on all items; units that never change are left out."""

    def look(items: np.ndarray) -> dict[str, np.ndarray]:
        found = network.activations(items[:, None])
        return {name: np.asarray(rows[:, 0], np.float64) for name, rows in found.items()}

    plain = look(shown.items)
    changed = {name: (look(one.kept), look(one.lost)) for name, one in shown.changed.items()}
    found = {}
    for name, units in plain.items():
        every = [units, *(one[name] for pair in changed.values() for one in pair)]
        alive = np.min([one.std(axis=0) for one in every], axis=0) > ALIVE
        if name != "output" and alive.any():
            pairs = {g: Pair(*(one[name][:, alive] for one in pair)) for g, pair in changed.items()}
            found[name] = Units(units[:, alive], pairs)
    if not found:
        raise NotApplicable("every hidden unit is constant on the items shown")
    return found


def measured(layers: Mapping[str, Units], rules: Bool[np.ndarray, "item rule"]) -> dict[str, float]:
    """Means over layers."""
    importance = [squared_correlation(units.plain, rules) for units in layers.values()]
    _, _, whole, plain = zip(*concordances(layers), strict=True)
    found = {"concordance": float(np.mean(whole)), "agreement": float(np.mean(plain))}
    if rules.shape[1] > 1:  # of one rule alone, every unit tells of one only
        found["disentanglement"] = float(np.mean([1 - weighted_entropy(one) for one in importance]))
    complete = float(np.mean([1 - weighted_entropy(one.T) for one in importance]))
    return {**found, "completeness": complete}


def concordances(layers: Mapping[str, Units]) -> list[tuple[str, str, float, float]]:
    """(layer, symmetry, concordance, agreement)."""
    found = []
    for name, units in layers.items():
        for symmetry, pair in units.changed.items():
            kept, lost = (np.abs(correlation(units.plain, one)) for one in pair)
            whole = np.sum(kept - lost) / max(float(np.sum(1 - lost)), 1e-12)
            found.append((name, symmetry, float(whole), float(np.mean(kept))))
    return found


def correlation(
    first: Float[np.ndarray, "item unit"], second: Float[np.ndarray, "item unit"]
) -> Float[np.ndarray, "unit"]:
    """Of each unit with itself.

    >>> correlation(np.array([[0.0], [1.0], [2.0]]), np.array([[2.0], [1.0], [0.0]]))
    array([-1.])
    """
    one, two = (x - x.mean(axis=0) for x in (first, second))
    scale = np.linalg.norm(one, axis=0) * np.linalg.norm(two, axis=0)
    return np.sum(one * two, axis=0) / np.maximum(scale, 1e-12)


def by_layer(layers: Mapping[str, Units]) -> dict[str, list[Any]]:
    columns = zip(*concordances(layers), strict=True)
    names = ("layer", "symmetry", "concordance", "agreement")
    return dict(zip(names, map(list, columns), strict=True))
