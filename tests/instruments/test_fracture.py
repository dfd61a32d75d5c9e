"""Fracture of networks that do not draw, on layers and networks whose answer is known."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest, NotApplicable
from recombine.families import Hyperteacher, Preferences
from recombine.instruments import Fracture, Subject, check_instrument
from recombine.instruments.fracture import (
    EFFECT,
    Seen,
    _answers,
    by_module,
    concordance,
    grid,
    made_controls,
    measured,
    mixed,
    planted_changes,
    planted_layer,
    seen,
    selectivity,
    squared_correlation,
    swept,
)
from recombine.lab.engine import Population, initial_state
from recombine.learners import Supervised
from recombine.models import MLP

LEARNER = Supervised(
    family=Hyperteacher(modules=6, active=2), model=MLP(width=16, depth=1), tasks=16, samples=4,
    evaluation_tasks=128, training_steps=40, evaluation_every=40, learning_rate=3e-3,
)  # fmt: skip
SMALL = Fracture(tasks=16, inputs=4, sweeps=4)
MODULES = 6


def tasks(count: int = 200, seed: int = 0) -> np.ndarray:
    """One or two of six modules, with weights."""
    rng = np.random.default_rng(seed)
    chosen = np.argsort(rng.random((count, MODULES)), axis=1)[:, :2]
    latents = np.zeros((count, MODULES))
    np.put_along_axis(latents, chosen, 0.5 + rng.random((count, 2)) / 2, axis=1)
    return latents


def layer(units: np.ndarray, latents: np.ndarray, inputs: int = 3) -> Seen:
    """Units that answer alike at every input."""
    return Seen(np.repeat(units[:, None, :], inputs, axis=1), latents)


@pytest.fixture(scope="module")
def trained():
    population = Population([LEARNER], [LEARNER.prepare({})], "float32")
    population.compile()
    while population.running():
        population.chunk(LEARNER.steps)
    state = jax.tree.map(lambda leaf: leaf[0], population.host_state())
    return LEARNER.weights(state), population.untrained[0]


@pytest.mark.slow
def test_it_keeps_the_contract_of_an_instrument(trained):
    check_instrument(SMALL, LEARNER, *trained)


def test_a_unit_for_each_module_is_found_whole_and_a_shuffled_one_is_not():
    latents = tasks()
    planted = measured(planted_layer(latents, 4, np.random.default_rng(1)))
    assert planted["disentanglement"] > 0.5 and planted["completeness"] > 0.5
    dealt = np.random.default_rng(2).permutation(len(latents))
    shuffled = measured(Seen(layer(latents, latents).units, latents[dealt]))
    # Chance correlations are never spread evenly, so the last two do not fall to zero.
    assert shuffled["concordance"] < 0.05 < planted["concordance"] / 2
    assert shuffled["disentanglement"] < 0.7 * planted["disentanglement"]
    assert shuffled["completeness"] < 0.7 * planted["completeness"]


def test_units_that_know_only_pairs_are_fractured():
    """Each answers to one company of modules: nothing is the same in another company."""
    latents = tasks()
    pairs = [(a, b) for a in range(MODULES) for b in range(a)]
    lone = np.stack([latents[:, a] * latents[:, b] > 0 for a, b in pairs], axis=1).astype(float)
    whole, fractured = measured(layer(latents, latents)), measured(layer(lone, latents))
    assert whole["concordance"] > fractured["concordance"] + 0.1
    assert whole["disentanglement"] > fractured["disentanglement"] + 0.2
    assert whole["completeness"] > fractured["completeness"] + 0.2


def test_mixed_units_keep_what_they_answer_and_lose_who_tells_what():
    latents = tasks()
    basis, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(MODULES, MODULES)))
    plain, mixed = (measured(layer(units, latents)) for units in (latents, latents @ basis))
    assert mixed["disentanglement"] < plain["disentanglement"] - 0.3
    assert mixed["concordance"] == pytest.approx(plain["concordance"], abs=0.1)


def test_concordance_tells_of_company_and_not_of_mixing():
    """A unit a module, a mix of all, another mix at every input: only disentanglement differs."""
    rng = np.random.default_rng(8)
    plain = planted_layer(tasks(), 6, rng)
    changing = np.einsum("txm,xmu->txu", plain.units, rng.normal(size=(6, MODULES, MODULES)))
    one, all_of_them, anew = (
        measured(each) for each in (plain, mixed(plain, rng), Seen(changing, plain.latents))
    )
    for other in (all_of_them, anew):
        assert other["concordance"] == pytest.approx(one["concordance"], abs=0.05)
    assert one["disentanglement"] > all_of_them["disentanglement"] + 0.3
    assert all_of_them["disentanglement"] > anew["disentanglement"]


def test_in_a_network_of_modules_apart_weights_are_found_selective_and_by_chance_they_are_not():
    latents, rng = tasks(), np.random.default_rng(9)
    changes = planted_changes(latents, 4, 12, rng)
    assert len(changes) == 12
    told = selectivity(changes, latents)
    # A module counts by its weight, and the measure asks whether it is there: below 1.
    assert 0.7 < told["selectivity"] < 0.999
    reached = [one for one in changes if one is not None]
    assert told["dropped"] == 12 - len(reached) < 6
    sizes = [one.mean() for one in reached]
    assert min(sizes) > 0 and max(sizes) < 1.1 * min(sizes)  # one size of effect
    for change in reached:  # every weight matters where one module is, and nowhere else
        alone = [set(np.flatnonzero(row)) for row in latents[change.reshape(200, 4).any(axis=1)]]
        assert set.intersection(*alone)
    controls = made_controls({"one": planted_layer(latents, 4, rng)}, 4, changes, rng)
    assert controls["shuffled"]["selectivity"] < 0.1
    assert controls["planted"]["selectivity"] == pytest.approx(told["selectivity"], abs=0.1)
    assert "selectivity" not in controls["mixed"]
    bare = made_controls({"one": planted_layer(latents, 4, rng)}, 4, [], rng)
    assert not any("selectivity" in one for one in bare.values())


def test_concordance_is_the_correlation_over_pairs_of_tasks():
    rng = np.random.default_rng(4)
    latents, units = tasks(12, 5), rng.normal(size=(12, 3, 2))
    given_alone = units - units.mean(axis=0)
    found = []
    for unit in range(2):
        sums: dict[int, list[float]] = {0: [], 1: []}
        for a in range(12):
            for b in range(a):
                shared = int(((latents[a] > 0) & (latents[b] > 0)).sum())
                if shared in sums:
                    both = given_alone[a, :, unit] @ given_alone[b, :, unit]
                    sums[shared].append(float(both))
        power = (given_alone[..., unit] ** 2).sum() / 12
        found.append(np.clip((np.mean(sums[1]) - np.mean(sums[0])) / power, 0, 1))
    assert concordance(Seen(units, latents)) == pytest.approx(float(np.mean(found)))


@settings(max_examples=15)
@given(st.integers(0, 2**31))
def test_no_measure_depends_on_order_or_scale_of_units(seed):
    rng = np.random.default_rng(seed)
    latents, units = tasks(60, 6), rng.normal(size=(60, 3, 5))
    one = measured(Seen(units, latents))
    changed = units[..., rng.permutation(5)] * rng.uniform(0.5, 2, 5) + rng.normal(size=5)
    two = measured(Seen(changed, latents))
    assert one == pytest.approx(two) and all(0 <= value <= 1 for value in one.values())


def test_squared_correlations_are_those_of_numpy():
    rng = np.random.default_rng(7)
    first, second = rng.normal(size=(30, 3)), rng.normal(size=(30, 4))
    wanted = np.corrcoef(first.T, second.T)[:3, 3:] ** 2
    np.testing.assert_allclose(squared_correlation(first, second), wanted)
    assert not squared_correlation(np.ones((30, 1)), second).any()
    np.testing.assert_allclose(by_module(layer(first, second)), wanted)


def test_every_task_is_shown_with_every_input(trained):
    subject = LEARNER.subject(trained[0])
    ranks = subject.support.seen[:5]
    batch = grid(subject, ranks, 3)
    latents, inputs = subject.latents(batch), np.asarray(batch.inputs)
    assert latents.shape[0] == inputs.shape[0] == 15
    for task in range(5):
        assert (latents[3 * task : 3 * task + 3] == latents[3 * task]).all()
        np.testing.assert_array_equal(inputs[3 * task : 3 * task + 3], inputs[:3])
    found = seen(subject, batch, 3)
    assert found and all(one.units.shape[:2] == (5, 3) for one in found.values())


def test_training_is_told_from_the_untrained_twin_and_layers_are_listed(trained):
    reading = SMALL.read(*(LEARNER.subject(weights) for weights in trained), {})
    assert reading.controls["untrained"] != reading.values
    for name in ("untrained", "shuffled", "planted"):
        assert "selectivity" in reading.controls[name], name
    planted, chance = (reading.controls[name]["selectivity"] for name in ("planted", "shuffled"))
    assert planted > chance + 0.3
    measures = {"concordance", "disentanglement", "completeness", "selectivity"}
    assert set(reading.values) == measures | {"dropped"}
    table = reading.tables["layers"]
    mean = np.mean([v for v, m in zip(table["value"], table["measure"], strict=True)
                    if m == "concordance"])  # fmt: skip
    assert mean == pytest.approx(reading.values["concordance"])


def test_weights_are_moved_to_one_effect_and_those_that_cannot_be_are_dropped(trained):
    weights = dict(trained[0])
    # A unit that never answers: nothing that leads to it or away from it changes anything.
    weights["first/input/bias"] = np.where(np.arange(16) == 3, -1e6, weights["first/input/bias"])
    subject = LEARNER.subject(weights)
    batch = grid(subject, subject.support.seen[:8], 4)
    wanted = EFFECT * float(np.var(_answers(subject.program, subject.arrays, subject.model, batch)))
    rows, columns = np.divmod(np.arange(16 * 16), 16)
    for path, dead in (("first/input", columns == 3), ("output", rows == 3)):
        places = np.arange(1, 16 * 16, 4)
        places = np.unique(np.concatenate([places, np.flatnonzero(dead)]))
        changes, reached = map(np.asarray, swept(
            subject.program, path, subject.arrays, subject.model, batch, places, wanted
        ))  # fmt: skip
        assert not reached[dead[places]].any() and reached[~dead[places]].mean() > 0.8
        np.testing.assert_allclose(changes[reached].mean(axis=1), wanted, rtol=0.03)


def test_a_weight_that_changes_nothing_neither_counts_nor_lowers_selectivity():
    latents = tasks(40)
    first, second = (np.repeat(latents[:, n] > 0, 3).astype(float) for n in (0, 1))
    whole = selectivity([first, second], latents)
    assert whole == {"dropped": 0, "selectivity": pytest.approx(1)}
    assert selectivity([first, None, second], latents) == {**whole, "dropped": 1}
    assert selectivity([None], latents) == {"dropped": 1}


@pytest.mark.parametrize("wrong", [{"inputs": 0}, {"tasks": 1}, {"sweeps": 0}, {"inputs": 1.5}])
def test_an_instrument_that_would_look_at_nothing_is_refused(wrong):
    (name,) = wrong
    with pytest.raises(InvalidRequest, match=f"{name}="):
        Fracture(**wrong)


def test_networks_without_shared_inputs_are_refused():
    walker = dataclasses.replace(LEARNER, family=Preferences(modules=6, active=2), samples=8)
    drawn = walker.weights(initial_state(walker, walker.prepare({}), "float32"))
    with pytest.raises(NotApplicable, match="belong to their task"):
        SMALL.read(walker.subject(drawn), walker.subject(drawn), {})
    with pytest.raises(NotApplicable, match="needs"):
        SMALL.read(Subject(), Subject(), {})


def test_tasks_that_all_share_their_modules_cannot_tell():
    latents = np.ones((4, MODULES))
    with pytest.raises(NotApplicable, match="share 0 modules"):
        concordance(layer(np.eye(4), latents))
