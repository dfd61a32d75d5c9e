"""Instruments on a briefly trained tiny network: contract, controls, and what they must find."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import jax
import numpy as np
import pytest

from recombine._lazy import load
from recombine.errors import InvalidRequest, NotApplicable, RecombineError
from recombine.families import Hyperteacher, Preferences
from recombine.families.scenes import Scenes
from recombine.instruments import (
    REGISTRY,
    Composition,
    Decodability,
    Erasure,
    Exactness,
    Foretelling,
    FunctionDecoder,
    Generalization,
    Reading,
    Rollout,
    Subject,
    check_instrument,
)
from recombine.instruments._instrument import Instrument, check_controls
from recombine.instruments.decodability import last_hidden, project
from recombine.lab import engine
from recombine.lab.engine import Population
from recombine.learners import Supervised
from recombine.learners.flow import Flow
from recombine.models import MLP
from recombine.models.diffusion import DiT
from recombine.supports import novelty

LEARNER = Supervised(
    family=Hyperteacher(modules=8, active=2),
    model=MLP(width=64, depth=2),
    training_steps=300,
    tasks=64,
    samples=8,
    learning_rate=3e-3,
    evaluation_tasks=1024,
    evaluation_every=300,
)
SMALL = {
    "generalization": Generalization(combinations=20, draws=16),
    "decodability": Decodability(rows=640, features=64, published_rows=256),
    "erasure": Erasure(rows=256),
    "exactness": Exactness(tasks=64, samples=4),
    "function-decoder": FunctionDecoder(tasks=64, inputs=8),
}
WORLDLY = {"rollout": Rollout(combinations=16, episodes=2)}
DRAWING = {
    "composition": Composition(combinations=8, draws=4, steps=2, training_images=64),
    "foretelling": Foretelling(combinations=8, fitted=20, draws=4, times=(0.5,), steps=2),
}
ARTIST = Flow(
    family=Scenes(modules=8, active=2, size=16, cells=2, shapes=4, colours=2),
    model=DiT(depth=1, width=16, heads=2, patch=8),
    training_steps=30,
)


# These read networks that answer in text: the files that train some run the battery on them.
ELSEWHERE = {
    "picture-fracture": "test_picture_fracture.py",
    "binding": "test_binding_instrument.py",
    "segregation": "test_binding_instrument.py",
    "subnetworks": "test_subnetworks_instrument.py",
    "symmetry": "test_symmetry.py",
    "exact-match": "test_exact_match.py",
    "subgraphs": "test_subgraphs.py",
    "probability": "test_probability.py",
    "constraints": "test_constraints_instrument.py",
    "uncertainty": "test_uncertainty.py",
}


@dataclass(frozen=True)
class Run:
    weights: dict[str, np.ndarray]
    untrained_weights: dict[str, np.ndarray]
    evaluations: dict[str, float]

    def read(self, instrument: Instrument) -> Reading:
        twin = LEARNER.subject(self.untrained_weights)
        return instrument.read(LEARNER.subject(self.weights), twin, {})


@pytest.fixture(scope="session")
def run() -> Run:
    population = Population([LEARNER], [LEARNER.prepare({})], "float32")
    population.compile()
    while population.running():
        population.chunk(LEARNER.steps)
    population.evaluate()
    state = jax.tree.map(lambda leaf: leaf[0], population.host_state())
    found = {name: float(v[-1][0]) for name, v in population.curves.evaluations.items()}
    return Run(LEARNER.weights(state), population.untrained[0], found)


@pytest.fixture(scope="session")
def readings(run) -> dict[str, Reading]:
    return {name: run.read(instrument) for name, instrument in SMALL.items()}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_instrument_of_other_networks_is_checked_where_these_are_trained(name):
    assert "check_instrument(" in (Path(__file__).parent / ELSEWHERE[name]).read_text("utf-8")


@pytest.mark.parametrize("name", sorted(REGISTRY.keys() - ELSEWHERE))
def test_a_registered_instrument_keeps_the_contract(name, run):
    if name in WORLDLY or name in DRAWING:
        walker = dataclasses.replace(LEARNER, family=Preferences(modules=8, active=2), samples=8)
        learner = walker if name in WORLDLY else ARTIST
        untrained = learner.weights(engine.initial_state(learner, learner.prepare({}), "float32"))
        check_instrument({**WORLDLY, **DRAWING}[name], learner, untrained, untrained)
        return
    instrument = SMALL[name] if name in SMALL else load(REGISTRY[name])()
    check_instrument(instrument, LEARNER, run.weights, run.untrained_weights)


def test_generalization_agrees_with_the_evaluation_of_the_training_run(run, readings):
    values = readings["generalization"].values
    for kind in ("seen", "unseen"):
        assert values[kind] == pytest.approx(run.evaluations[kind], abs=0.05)
    assert values["gap"] == pytest.approx(values["seen"] - values["unseen"])
    assert values["seen"] > 0.5


def test_the_controls_of_generalization_know_nothing_or_everything(readings):
    controls = readings["generalization"].controls
    assert controls["untrained"]["seen"] < 0.2
    assert controls["shuffled"]["seen"] < readings["generalization"].values["seen"] - 0.3
    for kind in ("seen", "unseen"):
        assert controls["planted"][kind] == 1
        assert controls["planted"][f"{kind}_published"] == 1
    assert controls["planted"]["gap"] == 0


def test_each_unseen_combination_is_listed_once_with_its_novelty(run, readings):
    support = LEARNER.subject(run.weights).support
    values, table = (readings["generalization"].values, readings["generalization"].tables["unseen"])
    assert table["rank"] == support.held_out.tolist()
    new = novelty(support, support.held_out)
    assert table["level"] == new.level.tolist()
    assert table["size"] == support.space.sizes(support.held_out).tolist()
    error, variance = np.array(table["error"]), np.array(table["variance"])
    assert values["unseen"] == pytest.approx(1 - error.sum() / variance.sum(), abs=1e-4)
    for level in np.unique(new.level):
        at = new.level == level
        expected = 1 - error[at].sum() / variance[at].sum()
        assert values[f"unseen_level{level}"] == pytest.approx(expected, abs=1e-4)
        assert values[f"unseen_count_level{level}"] == at.sum()


def test_generalization_scores_what_the_network_says(run):
    """The whole path, against the weights used plainly in numpy."""
    subject = LEARNER.subject(run.weights)
    batch = subject.draw(subject.support.seen[:5], "test")
    w = {path: np.asarray(array, np.float64) for path, array in run.weights.items()}
    codes = np.asarray(batch.latents, np.float64)[:, :8]
    x = np.asarray(batch.inputs, np.float64)
    h = codes[:, None] @ w["first/task/weight"] + x @ w["first/input/weight"]
    h = np.maximum(h + w["first/input/bias"], 0)
    h = np.maximum(h @ w["hidden/0/weight"] + w["hidden/0/bias"], 0)
    expected = h @ w["output/weight"] + w["output/bias"]
    np.testing.assert_allclose(subject.answer(batch), expected, rtol=1e-3, atol=1e-4)
    seen = subject.activations(batch)
    np.testing.assert_allclose(seen["layer2/after"], h[:, -1], rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(seen["code"], np.asarray(batch.latents)[:, :8])


def test_a_subject_draws_the_asked_combinations_and_never_training_data(run):
    subject = LEARNER.subject(run.weights)
    ranks = subject.support.held_out
    batch = subject.draw(np.repeat(ranks, 3), "test")
    active = np.asarray(batch.latents)[:, :8] > 0
    np.testing.assert_array_equal(active, subject.support.space.indicator(np.repeat(ranks, 3)))
    other = subject.draw(np.repeat(ranks, 3), "another name")
    assert not np.array_equal(batch.inputs, other.inputs)
    again = subject.draw(np.repeat(ranks, 3), "test")
    np.testing.assert_array_equal(batch.inputs, again.inputs)


def test_the_task_can_be_read_off_the_code_and_off_nothing_shuffled(readings):
    reading = readings["decodability"]
    assert reading.values["code"] > 0.99  # the identity encoding is the task
    assert reading.values["published/code/unseen"] > 0.95
    assert reading.controls["planted"]["features"] > 0.95
    assert max(reading.controls["shuffled"].values()) < 0.1
    assert last_hidden(reading.values) == "layer2/after"
    for layer in ("layer1/before", "layer1/after", "layer2/after", "output"):
        gain = reading.values[layer] - reading.controls["untrained"][layer]
        assert reading.values[f"{layer}/gain"] == pytest.approx(gain)
    assert reading.values["layer1/before"] > reading.values["output"]


def test_a_wide_layer_is_projected_and_a_narrow_one_left_alone():
    rng = np.random.default_rng(0)
    wide, narrow = rng.normal(size=(300, 200)), rng.normal(size=(300, 16))
    assert project(narrow, 16) is narrow
    small = project(wide, 64)
    assert small.shape == (300, 64)
    np.testing.assert_array_equal(small, project(wide, 64))
    # A random projection keeps lengths on average.
    ratio = np.linalg.norm(small, axis=1) / np.linalg.norm(wide, axis=1)
    assert ratio.mean() == pytest.approx(1, abs=0.1)


def test_a_probe_with_too_few_rows_is_refused():
    with pytest.raises(InvalidRequest, match="1280 rows, got 1000"):
        Decodability(rows=1000)


def test_erasing_a_module_hurts_its_own_tasks_more_than_a_random_subspace_does(readings):
    reading = readings["erasure"]
    assert reading.values["own"] > reading.controls["random"]["own"]
    assert reading.values["selectivity"] > 0
    assert reading.values["beyond_random"] > 0
    modules = reading.tables["modules"]
    assert len(modules["own"]) == len(modules["other"]) == 8
    assert np.mean(modules["own"]) == pytest.approx(reading.values["own"])
    planted = reading.controls["planted"]
    # Modules exclude one another a little, so erasing one in closed form touches the others too.
    assert planted["other"] < 0.2 * planted["own"]
    assert planted["selectivity"] > 0.2


def test_a_reading_without_a_control_is_refused(readings):
    reading = readings["erasure"]
    without = Reading(reading.values, {"random": {"own": 0.0}, "planted": {}, "untrained": {}})
    with pytest.raises(RecombineError, match="lacks its control untrained, planted"):
        check_controls(SMALL["erasure"], without)


class Answers(Subject):
    """A foreign subject that can only answer."""

    abilities: ClassVar[frozenset[str]] = frozenset({"answer"})


def test_a_subject_that_cannot_is_refused_with_what_it_offers():
    with pytest.raises(NotApplicable, match="decodability needs activations of Answers"):
        Decodability().read(Answers(), Answers(), {})


@dataclass(frozen=True)
class Borrowed(Instrument):
    """An instrument that only hands on a reading; tests break the reading."""

    name: ClassVar[str] = "borrowed"
    needs: ClassVar[tuple[str, ...]] = ("answer",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    flaw: str = ""

    def read(self, subject, untrained, others):
        if self.flaw != "asks nothing":
            subject.need(self.name, *self.needs)
        values = {"score": 0.9}
        controls = {
            "untrained": {"score": 0.0}, "shuffled": {"score": 0.0}, "planted": {"score": 1.0},
        }  # fmt: skip
        tables = {"modules": {"own": [0.5]}}
        if self.flaw == "nan":
            values["score"] = float("nan")
        elif self.flaw == "no control":
            del controls["shuffled"]
        elif self.flaw == "random":
            values["score"] = float(np.random.default_rng().uniform())
        elif self.flaw == "blind":
            controls["planted"]["score"] = 0.01
        elif self.flaw == "credulous":
            controls["shuffled"]["score"] = 0.8
        elif self.flaw == "tuples":
            tables["modules"]["own"] = (0.5,)
        elif self.flaw == "writes":
            subject.weights()["output/bias"][:] += 1
        return Reading(values, controls, tables)


def test_a_sound_instrument_of_ones_own_keeps_the_contract(run):
    check_instrument(Borrowed(), LEARNER, run.weights, run.untrained_weights)


@pytest.mark.parametrize(
    ("flaw", "sentence"),
    [
        ("asks nothing", "must raise NotApplicable"),
        ("nan", "finite numbers"),
        ("no control", "lacks its control shuffled"),
        ("random", "the same reading twice"),
        ("blind", "does not find what was planted"),
        ("credulous", "a signal in shuffled targets"),
        ("tuples", "the same after it is stored"),
        ("writes", "must not change the weights"),
    ],
)
def test_a_broken_instrument_is_told_what_is_wrong(flaw, sentence, run):
    own = {path: array.copy() for path, array in run.weights.items()}
    with pytest.raises(RecombineError, match=sentence):
        check_instrument(Borrowed(flaw), LEARNER, own, run.untrained_weights)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_an_instrument_is_a_frozen_value(name):
    instrument = load(REGISTRY[name])()
    with pytest.raises(dataclasses.FrozenInstanceError):
        instrument.rows = 3
