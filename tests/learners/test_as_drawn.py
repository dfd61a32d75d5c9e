"""Networks looked at before training, and models that say what they need of a learner."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from recombine.encodings import IntervalShuffle
from recombine.errors import InvalidRequest
from recombine.families import Additive, Hyperteacher
from recombine.instruments import Generalization
from recombine.lab.api import fit
from recombine.lab.device import Device
from recombine.learners import Supervised, check_learner
from recombine.learners.as_drawn import AsDrawn
from recombine.models import MLP
from recombine.models.constructed import constructed_for
from recombine.seeds import Seeds

FAMILY = Hyperteacher(modules=5, active=2, input_units=3, hidden=(3,), output_units=2)
WRITTEN = Supervised(
    family=FAMILY, model=constructed_for(FAMILY, segments=16), training_steps=20,
    evaluation_every=20, tasks=16, samples=4, learning_rate=0.0, evaluation_tasks=128,
)  # fmt: skip


def test_it_keeps_the_contract_of_a_learner():
    check_learner(AsDrawn(WRITTEN))
    check_learner(AsDrawn(dataclasses.replace(WRITTEN, model=MLP(width=8, depth=2))))


def test_training_at_a_rate_of_zero_is_the_same_network():
    trained, drawn = fit(WRITTEN), fit(AsDrawn(WRITTEN))
    for path, weight in drawn.subject.weights().items():
        assert np.array_equal(weight, drawn.untrained.weights()[path])
        np.testing.assert_allclose(weight, trained.subject.weights()[path], rtol=0, atol=1e-6)
    readings = [one.read(Generalization(combinations=8)).values for one in (trained, drawn)]
    assert readings[0]["unseen"] == pytest.approx(readings[1]["unseen"], abs=1e-6)
    assert readings[1]["unseen"] > 0.99


def test_it_is_the_untrained_twin_of_a_network_that_learns():
    learner = dataclasses.replace(
        WRITTEN, model=MLP(width=8, depth=2), learning_rate=1e-3, seeds=Seeds.all(2)
    )
    twin, drawn = fit(learner).untrained.weights(), fit(AsDrawn(learner)).subject.weights()
    assert all(np.allclose(weight, twin[path], atol=1e-6) for path, weight in drawn.items())


def test_what_a_learner_would_be_refused_for_is_refused_before_it_is_drawn():
    support = dataclasses.replace(WRITTEN.support, held_out=1.5)
    impossible = AsDrawn(dataclasses.replace(WRITTEN, support=support))
    with pytest.raises(InvalidRequest, match="held_out"):
        impossible.check()


def test_a_written_network_demands_float32_wherever_it_runs():
    gpu = Device("gpu", "some GPU", 16)
    plain = dataclasses.replace(WRITTEN, model=MLP())
    assert [gpu.precision(learner.precision) for learner in (WRITTEN, plain)] == [
        "float32",
        "bfloat16",
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"family": Hyperteacher(modules=5, active=2, input_units=4, hidden=(3,))},
        {"family": Additive(modules=5, active=2)},
        {"encoding": IntervalShuffle()},
    ],
    ids=["other teacher", "other family", "other encoding"],
)
def test_a_written_network_is_refused_where_it_was_not_written_for(changed):
    WRITTEN.check()
    with pytest.raises(InvalidRequest, match="use constructed_for"):
        dataclasses.replace(WRITTEN, **changed).check()
    dataclasses.replace(WRITTEN, model=MLP(), **changed).check()
