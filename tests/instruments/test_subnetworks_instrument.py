"""Subnetworks: the contract of the instrument, and its refusals."""

from __future__ import annotations

from dataclasses import replace

import jax
import pytest

from recombine.errors import InvalidRequest, NotApplicable
from recombine.families.odd_one_out import FieldsOdd
from recombine.instruments import Subject, Subnetworks, check_instrument
from recombine.lab.engine import Population
from recombine.learners import MaskLearner, NextToken, PlantedOdd, Supervised
from recombine.models.items import ItemMLP

BASE = PlantedOdd(
    FieldsOdd(fields=4, values=3), ItemMLP(32, 2, 8), training_steps=400, batch=32,
    learning_rate=5e-3, evaluation_every=400, evaluation_problems=128, decay=0.3,
)  # fmt: skip
MASK = MaskLearner(base=BASE, mask_steps=300, evaluation_every=300)


def trained(learner, given):
    population = Population([learner], [learner.prepare(given)], "float32")
    population.compile()
    first = jax.tree.map(lambda leaf: leaf[0], population.host_state())
    while population.running():
        population.chunk(population.steps)
    last = jax.tree.map(lambda leaf: leaf[0], population.host_state())
    return learner.weights(last), learner.weights(first)


@pytest.fixture(scope="module")
def masks():
    """Masks for both rules over a network of two halves, and what they were given."""
    given = {"base": trained(BASE, {})[0]}
    learners = [replace(MASK, part=part) for part in (0, 1)]
    return [(learner, *trained(learner, given)) for learner in learners], given


@pytest.mark.slow
def test_it_keeps_the_contract_and_finds_planted_halves(masks):
    (own, weights, first), (other, others_weights, _) = masks[0]
    given = masks[1]
    another = {"another part": other.subject(others_weights, given)}
    instrument = Subnetworks(batches=4, draws=2)
    check_instrument(instrument, own, weights, first, another, given)
    reading = instrument.read(own.subject(weights, given), own.subject(first, given), another)
    assert reading.values["learnt"] > 0.8 and reading.values["whole_own"] > 0.9
    assert reading.values["ablation"] < -0.15
    assert reading.values["ablation"] < reading.controls["random"]["ablation"] - 0.1
    assert reading.values["overlap"] < 0.5
    layers = reading.tables["layers"]
    taken = [min(k, w - k) for k, w in zip(layers["kept"], layers["weights"], strict=True)]
    density = reading.controls["complement"]["density"]
    assert density == pytest.approx(sum(taken) / sum(layers["weights"]))
    assert ("notes" in reading.tables) == (density < reading.values["density"])


@pytest.mark.parametrize("name", ["batches", "draws"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "a"])
def test_a_reading_of_nothing_is_refused(name, value):
    with pytest.raises(InvalidRequest, match=f"{name}=.*at least 1"):
        Subnetworks(**{name: value})


def test_a_subject_that_is_no_mask_is_refused():
    class Other(Subject):
        abilities = frozenset({"weights"})

    with pytest.raises(NotApplicable, match=r"network first .* if its task has parts"):
        Subnetworks().read(Other(), Other(), {})


@pytest.mark.parametrize(
    ("learner", "told"),
    [
        (NextToken(), "nor can one be learnt over this network: NextToken has no parts"),
        (Supervised(), r"train one over this network first \(learner masks\)"),
    ],
)
def test_a_mask_is_advised_only_where_one_can_be_learnt(learner, told):
    class Network(Subject):
        abilities = frozenset({"weights"})

    network = Network()
    network.learner = learner  # type: ignore[attr-defined]
    with pytest.raises(NotApplicable, match=f"Network is none.*{told}"):
        Subnetworks().read(network, network, {})
