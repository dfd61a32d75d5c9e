"""Are the parts of a task kept together inside a network, or scattered and mixed?"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from recombine.checks import at_least
from recombine.cppn.sweeps import CLOSE, FACTOR, HALVINGS, RUNGS, matched_size
from recombine.errors import NotApplicable
from recombine.families._family import Regression
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.subject import Subject
from recombine.instruments.supervised_subject import SupervisedSubject, supervised
from recombine.models.layers import named_layers
from recombine.seeds import host_seed

EFFECT = 0.005  # of the answers' variance: what the sweep of every weight changes
SMALLEST = 2.0**-8  # of a layer's deviation: the least change tried of its weights
OWN = 4  # hidden units of each module in a planted network, and numbers in an input


# How every answer changes as one weight is moved, tasks in blocks; None for one without effect.
Changes = Sequence[Float[np.ndarray, "row"] | None]


class Seen(NamedTuple):
    """Units of a layer on a grid of tasks by inputs, and the modules of the tasks."""

    units: Float[np.ndarray, "task input unit"]
    latents: Float[np.ndarray, "task module"]


@dataclass(frozen=True)
class Fracture(Instrument):
    """Concordance, disentanglement and completeness of units, and selectivity of weights.

    A grid of tasks by inputs is shown to the network. `concordance`: how alike a unit answers to a
    module in two companies that share nothing else (correlation over tasks and inputs, beyond that
    of tasks that share no module; 0 is fractured, and what one unit a module scores on the same
    tasks, well below 1, is under `planted`). It tells whether company changes the answer, not how
    many modules a unit mixes: a sum over modules scores the same however many they are (`mixed`),
    and an untrained network, which is nearly linear, may score more than a trained one.
    `disentanglement` tells of mixing: whether a unit tells of one module only. `completeness`:
    whether a module is told by few units (both 1 minus normalised entropies of squared
    correlations). `selectivity`: single weights are moved until the answers change by a set amount;
    the share of that change, over tasks, that one module explains. A weight that cannot do so, one
    of a unit that never answers for instance, tells nothing: it is left out and counted as
    `dropped`. Values of units are means over hidden layers.

    Controls: the untrained twin; modules dealt out anew among tasks; planted, a layer with one unit
    a module and a network in which every weight belongs to one module; and mixed, a layer in which
    every unit is a random mix of all modules.
    """

    version: ClassVar[int] = 3
    name: ClassVar[str] = "fracture"
    needs: ClassVar[tuple[str, ...]] = ("activations", "weights")
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted", "mixed")

    tasks: int = 256
    inputs: int = 16
    sweeps: int = 48

    def __post_init__(self) -> None:
        at_least(self, tasks=2, inputs=1, sweeps=1)

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        network, twin = supervised(subject, self.name), supervised(untrained, self.name)
        family = network.learner.family
        if not isinstance(family, Regression):
            raise NotApplicable(
                f"{self.name} shows the same inputs to many tasks, and those of "
                f"{type(family).__name__} belong to their task"
            )
        rng = np.random.default_rng(host_seed(network.learner.seeds.evaluation, self.name))
        pool = np.concatenate([network.support.seen, network.support.held_out])
        ranks = np.sort(rng.choice(pool, min(self.tasks, pool.size), replace=False))
        batch = grid(network, ranks, self.inputs)
        layers = seen(network, batch, self.inputs)
        latents = next(iter(layers.values())).latents
        changes = self.changes(network, batch, rng)
        values = units(layers) | selectivity(changes, latents)
        begun = seen(twin, batch, self.inputs)
        control = units(begun) | selectivity(self.changes(twin, batch, rng), latents)
        table: dict[str, list[Any]] = {"layer": [], "measure": [], "value": []}
        for name, layer in layers.items():
            for measure, value in measured(layer).items():
                for column, entry in zip(table, (name, measure, value), strict=True):
                    table[column].append(entry)
        controls = {"untrained": control} | made_controls(layers, self.inputs, changes, rng)
        return Reading(values, controls, {"layers": table})

    def changes(
        self, network: SupervisedSubject, batch: Any, rng: np.random.Generator
    ) -> list[Float[np.ndarray, "row"] | None]:
        """How answers change as weights are moved one at a time; None where one cannot be."""
        layers = {
            path: layer.weight for path, layer in named_layers(network.model).items()
            if layer.weight.ndim == 2
        }  # fmt: skip
        real = {path: np.flatnonzero(np.asarray(w)) for path, w in layers.items()}
        answers = _answers(network.program, network.arrays, network.model, batch)
        wanted = EFFECT * float(jnp.var(answers))
        changes: list[np.ndarray | None] = []
        for path, places in real.items():
            if not places.size:
                continue
            count = max(1, self.sweeps // len(real))
            chosen = jnp.asarray(rng.choice(places, min(count, places.size), replace=False))
            changed, reached = swept(
                network.program, path, network.arrays, network.model, batch, chosen, wanted
            )
            pairs = zip(np.asarray(changed), np.asarray(reached), strict=True)
            changes += [change if there else None for change, there in pairs]
        return changes


def units(layers: Mapping[str, Seen]) -> dict[str, float]:
    """What the units of a network tell: means over layers."""
    found = [measured(layer) for layer in layers.values()]
    return {name: float(np.mean([f[name] for f in found])) for name in found[0]}


def made_controls(
    layers: Mapping[str, Seen], inputs: int, changes: Changes, rng: np.random.Generator
) -> dict[str, dict[str, float]]:
    """The controls that are made from a network's own tasks: shuffled, planted and mixed.

    Without changes, where no weight was moved, they tell of units alone.
    """
    latents = next(iter(layers.values())).latents
    dealt = rng.permutation(len(latents))
    shuffled = {name: Seen(layer.units, layer.latents[dealt]) for name, layer in layers.items()}
    planted = planted_layer(latents, inputs, rng)
    found = {"shuffled": units(shuffled), "planted": measured(planted),
             "mixed": measured(mixed(planted, rng))}  # fmt: skip
    if changes:
        found["shuffled"] |= selectivity(changes, latents[dealt])
        found["planted"] |= selectivity(
            planted_changes(latents, inputs, len(changes), rng), latents
        )
    return found


def selectivity(changes: Changes, latents: Float[np.ndarray, "task module"]) -> dict[str, float]:
    """What one module explains of each change, rows in blocks of tasks; without those not reached.

    >>> latents = np.eye(3)
    >>> found = selectivity([np.array([4.0, 0.0, 0.0]), None], latents)
    >>> {name: round(value, 6) for name, value in found.items()}
    {'dropped': 1.0, 'selectivity': 1.0}
    """
    shares = []
    for change in changes:
        if change is not None:
            by_task = np.reshape(change, (len(latents), -1)).mean(axis=1)
            shares.append(float(np.max(squared_correlation(by_task[:, None], latents > 0))))
    told = {"dropped": float(len(changes) - len(shares))}
    return told | ({"selectivity": float(np.mean(shares))} if shares else {})


def grid(network: SupervisedSubject, ranks: np.ndarray, inputs: int) -> Any:
    """Every task with every one of a few inputs: one sample each, tasks in blocks."""
    drawn = network.draw(np.repeat(ranks, inputs), "fracture", 1)
    first = np.arange(0, len(ranks) * inputs, inputs)
    same_task = np.repeat(first, inputs)
    same_input = np.tile(np.arange(inputs), len(ranks))
    return drawn._replace(
        latents=drawn.latents[same_task], codes=drawn.codes[same_task],
        inputs=jax.tree.map(lambda leaf: leaf[same_input], drawn.inputs),
        targets=drawn.targets[same_task],
    )  # fmt: skip


def seen(network: SupervisedSubject, batch: Any, inputs: int) -> dict[str, Seen]:
    """Hidden layers on the grid; units that never change are left out."""
    latents = network.latents(batch)[::inputs]
    found = {}
    for name, rows in network.activations(batch).items():
        if name in ("code", "output"):
            continue
        units = np.asarray(rows, np.float64).reshape(len(latents), inputs, -1)
        alive = units.std(axis=(0, 1)) > 1e-6
        if alive.any():
            found[name] = Seen(units[..., alive], latents)
    if not found:
        raise NotApplicable("every hidden unit is constant on the tasks shown")
    return found


def measured(layer: Seen) -> dict[str, float]:
    importance = by_module(layer)
    return {
        "concordance": concordance(layer),
        "disentanglement": 1 - weighted_entropy(importance),
        "completeness": 1 - weighted_entropy(importance.T),
    }


def concordance(layer: Seen) -> float:
    """How alike units answer in tasks that share one module, beyond tasks that share none."""
    answers = layer.units - layer.units.mean(axis=0)  # what the task adds at each input
    active = (layer.latents > 0).astype(float)
    shared = active @ active.T
    spread = np.einsum("txu,txu->u", answers, answers) / len(answers)
    found = {}
    for count in (0, 1):
        # Each pair once: all pairs that share so many modules.
        pairs = np.triu(shared == count, k=1)
        if not pairs.any():
            raise NotApplicable(f"no two of the tasks shown share {count} modules")
        together = np.einsum("ts,txu,sxu->u", pairs.astype(float), answers, answers, optimize=True)
        found[count] = together / pairs.sum() / np.maximum(spread, 1e-12)
    return float(np.mean(np.clip(found[1] - found[0], 0.0, 1.0)))


def by_module(layer: Seen) -> Float[np.ndarray, "unit module"]:
    """Squared correlation of each unit with each module's weight, mean over inputs."""
    found = [
        squared_correlation(layer.units[:, n], layer.latents) for n in range(layer.units.shape[1])
    ]
    return np.mean(found, axis=0)


def squared_correlation(
    first: Float[np.ndarray, "row a"], second: Float[np.ndarray, "row b"]
) -> Float[np.ndarray, "a b"]:
    one, two = (x - x.mean(axis=0) for x in (first, np.asarray(second, float)))
    scale = np.outer(np.linalg.norm(one, axis=0), np.linalg.norm(two, axis=0))
    return ((one.T @ two) / np.maximum(scale, 1e-12)) ** 2


def weighted_entropy(importance: Float[np.ndarray, "row column"]) -> float:
    """The mean normalised entropy of the rows, each counted by what it tells in all."""
    if importance.shape[1] < 2:
        return 0.0  # where there is one there is nothing to spread over
    total = importance.sum(axis=1)
    share = importance / np.maximum(total, 1e-12)[:, None]
    entropy = -np.sum(np.where(share > 0, share * np.log(np.maximum(share, 1e-12)), 0.0), axis=1)
    return float(np.sum(entropy * total) / max(total.sum(), 1e-12) / np.log(importance.shape[1]))


def planted_layer(latents: np.ndarray, inputs: int, rng: np.random.Generator) -> Seen:
    """One unit for every module, at a gain that depends on the input."""
    gain = 0.5 + rng.random((1, inputs, 1))
    return Seen(latents[:, None, :] * gain, latents)


def mixed(layer: Seen, rng: np.random.Generator) -> Seen:
    """As many units, each a random mix of all."""
    count = layer.units.shape[-1]
    return Seen(layer.units @ rng.normal(size=(count, count)), layer.latents)


def planted_changes(
    latents: Float[np.ndarray, "task module"], inputs: int, count: int, rng: np.random.Generator
) -> list[Float[np.ndarray, "row"] | None]:
    """What moving weights does in a network in which every weight belongs to one module.

    Each module has a hidden layer of its own, and its answer counts as much as the task has of the
    module. Weights are drawn from both layers and moved to the same size of effect.
    """
    modules = latents.shape[1]
    x = rng.normal(size=(inputs, OWN))
    first, last = rng.normal(size=(2, modules, OWN, OWN)) / np.sqrt(OWN)

    def parts(one: np.ndarray, two: np.ndarray) -> Float[np.ndarray, "*module input output"]:
        return np.maximum(x @ one, 0) @ two

    def change(module: int, side: int, at: tuple[int, ...], by: float) -> Float[np.ndarray, "row"]:
        own = first[module], last[module]
        moved = [np.array(one) for one in own]
        moved[side][at] += by
        by_input = np.mean((parts(*moved) - parts(*own)) ** 2, axis=-1)
        # No other module's part changes, and this one's counts by its share of the task.
        return np.outer(latents[:, module] ** 2, by_input).ravel()

    wanted = EFFECT * float(np.einsum("tm,mxo->txo", latents, parts(first, last)).var())
    found = []
    for weight in range(count):
        module, *at = rng.integers([modules, OWN, OWN]).tolist()
        moving = functools.partial(change, module, weight % 2, tuple(at))
        found.append(matched_change(moving, wanted, SMALLEST / np.sqrt(OWN)))
    return found


def matched_change(
    change: Callable[[float], Float[np.ndarray, "..."]], wanted: float, smallest: float,
    effect: Callable[[np.ndarray], Any] = np.mean,
) -> Float[np.ndarray, "..."] | None:  # fmt: skip
    """The change of answers by the smallest move with the effect that is wanted, if there is one.

    The effect is the mean of a change, unless another measure is given.

    >>> matched_change(lambda by: np.array([by * by]), 1.0, 0.1).round(1).tolist()
    [1.0]
    >>> matched_change(lambda by: np.array([by > 1.0]) * 9.0, 1.0, 0.1) is None
    True
    """
    rungs = [smallest * FACTOR**rung for rung in range(RUNGS)]
    reached = next((by for by in rungs if effect(change(by)) >= wanted), None)
    if reached is None:
        return None
    low, high = np.log(reached / FACTOR), np.log(reached)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        short = effect(change(float(np.exp(middle)))) < wanted
        low, high = (middle, high) if short else (low, middle)
    found = change(float(np.exp(high)))
    # Written so that an effect that is no number is not matched.
    return found if effect(found) <= (1 + CLOSE) * wanted else None


@functools.partial(jax.jit, static_argnums=0)
def _answers(program: Any, arrays: Any, model: Any, batch: Any) -> Array:
    return program.answer(arrays, model, batch)


@functools.partial(jax.jit, static_argnums=(0, 1))
def swept(
    program: Any, path: str, arrays: Any, model: Any, batch: Any, places: Int[Array, "weight"],
    wanted: Float[Array, ""],
) -> tuple[Float[Array, "weight row"], Bool[Array, "weight"]]:  # fmt: skip
    """The squared change of every answer when one weight is moved by as much as it takes.

    Beside it, whether any change of the weight has that effect.
    """
    before = program.answer(arrays, model, batch)
    weight = named_layers(model)[path].weight

    def change(place: Array, by: Array) -> Array:
        moved = weight.ravel().at[place].add(by).reshape(weight.shape)
        after = program.answer(arrays, _with_weight(model, path, moved), batch)
        return jnp.mean((after - before) ** 2, axis=tuple(range(1, before.ndim)))

    def one(place: Array) -> tuple[Array, Array]:
        size, matched = matched_size(
            lambda by: jnp.mean(change(place, by)), wanted, SMALLEST * jnp.std(weight)
        )
        return change(place, size), matched

    return jax.lax.map(one, places)


def _with_weight(model: Any, path: str, weight: Array) -> Any:
    import equinox as eqx

    return eqx.tree_at(lambda tree: named_layers(tree)[path].weight, model, weight)
