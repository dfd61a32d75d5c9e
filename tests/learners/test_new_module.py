"""Going on with another teacher, or after one module was exchanged: what changes, what stays."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from recombine.errors import InvalidRequest
from recombine.families import Hyperteacher
from recombine.lab.engine import initial_state
from recombine.learners import Continued, MaskLearner, NewModule, Supervised, check_learner
from recombine.learners.as_drawn import AsDrawn
from recombine.learners.check import stand_ins
from recombine.models import MLP
from recombine.trees import named

BASE = Supervised(
    family=Hyperteacher(modules=6, active=2), model=MLP(width=12, depth=1), tasks=8, samples=4,
    evaluation_tasks=128, training_steps=20, evaluation_every=10,
)  # fmt: skip
NEW = NewModule.after(BASE, module=2, training_steps=30)


ELSEWHERE = replace(BASE, seeds=replace(BASE.seeds, content=7))
GOES_ON = Continued.after(ELSEWHERE, seeds=BASE.seeds, training_steps=30)


@pytest.mark.slow
@pytest.mark.parametrize("learner", [NEW, GOES_ON], ids=["new module", "another teacher"])
def test_it_keeps_the_contract_of_a_learner(learner):
    mate = replace(NEW, module=3) if learner is NEW else replace(GOES_ON, learning_rate=1e-4)
    check_learner(learner, mate=mate)


def test_pretrained_elsewhere_it_learns_what_it_would_have_from_scratch():
    scratch = replace(BASE, training_steps=30)
    found, plain = (one.prepare(stand_ins(one)) for one in (GOES_ON, scratch))
    assert jax.tree.all(jax.tree.map(np.array_equal, found.merged(), plain.merged()))
    assert GOES_ON.program() == scratch.program(), "all share one compiled program"
    assert MaskLearner(base=GOES_ON).program() == MaskLearner(base=scratch).program()


def test_a_network_of_another_shape_cannot_go_on():
    with pytest.raises(InvalidRequest, match="can only go on as what it is"):
        replace(GOES_ON, model=MLP(width=14, depth=1)).check()
    with pytest.raises(InvalidRequest, match="can only go on as what it is"):
        replace(GOES_ON, family=Hyperteacher(modules=7, active=2)).check()


def test_only_one_module_is_new():
    before, after = (one.prepare(stand_ins(one)).merged()["family"] for one in (BASE, NEW))
    for name, old in before.items():
        changed = np.asarray(old) != np.asarray(after[name])
        if np.ndim(old) and len(old) >= 6 and changed.any():
            assert set(np.flatnonzero(changed.reshape(len(old), -1).any(axis=1))) == {2}
    assert any((np.asarray(before[n]) != np.asarray(after[n])).any() for n in before)
    np.testing.assert_array_equal(before["omega"], after["omega"])


def test_a_readout_with_as_many_rows_as_modules_is_not_touched():
    family = Hyperteacher(modules=16, active=2)  # as many modules as hidden units
    base = replace(BASE, family=family)
    new = NewModule.after(base, module=2)
    before, after = (one.prepare(stand_ins(one)).merged()["family"] for one in (base, new))
    np.testing.assert_array_equal(before["omega"], after["omega"])
    assert (np.asarray(before["theta0"]) != np.asarray(after["theta0"])).any(axis=(1, 2)).sum() == 1


def test_every_task_has_the_new_module():
    arrays = jax.tree.map(np.asarray, NEW.prepare(stand_ins(NEW)).merged())
    program = NEW.program()
    for step in range(3):
        assert (program.draw(arrays, step).latents[:, 2] > 0).all()
    space = NEW.family.space
    for name in ("seen", "unseen"):
        ranks = arrays[name][: int(arrays[f"{name}_count"])]
        assert space.indicator(ranks)[:, 2].all()


@pytest.mark.parametrize("learner", [NEW, GOES_ON], ids=["new module", "another teacher"])
def test_it_begins_with_the_weights_it_is_given(learner):
    given = stand_ins(learner)
    state = initial_state(learner, learner.prepare(given), "float32")
    found = learner.weights(state)
    for name, weight in given["base"].items():
        np.testing.assert_array_equal(found[name], weight)
    assert named(state.model).keys() == given["base"].keys()


def test_after_an_untrained_base_it_learns_from_scratch_with_the_same_settings():
    scratch = NewModule.after(AsDrawn(BASE), module=2, training_steps=30)
    assert replace(scratch, base=BASE) == NEW
    assert scratch.model == BASE.model and scratch.seeds == BASE.seeds


def test_a_module_that_is_not_there_is_refused():
    with pytest.raises(InvalidRequest, match="module=6: expected 0 to 5"):
        replace(NEW, module=6).check()
