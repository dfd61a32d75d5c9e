"""The decoder of functions and the measure of the worst error, against arithmetic done by hand."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

from recombine.errors import InvalidRequest, NotApplicable
from recombine.families import Additive, Hyperteacher, Preferences
from recombine.instruments import check_instrument
from recombine.instruments.exactness import Exactness
from recombine.instruments.function_decoder import FunctionDecoder, candidates
from recombine.lab import engine
from recombine.learners import Supervised
from recombine.models import MLP
from recombine.models.constructed import constructed_for
from recombine.seeds import Seeds

FAMILY = Hyperteacher(modules=6, active=2, input_units=4, hidden=(4,), output_units=3)
DECODER = FunctionDecoder(tasks=64, inputs=8)
EXACTNESS = Exactness(tasks=256, samples=8)


def learner_of(model, family=FAMILY, **how):
    return Supervised(family=family, model=model, tasks=16, samples=8, training_steps=10, **how)


def first_weights(learner):
    return learner.weights(engine.initial_state(learner, learner.prepare({}), "float32"))


def read(instrument, learner, weights=None):
    subject = learner.subject(first_weights(learner) if weights is None else weights)
    return instrument.read(subject, subject, {})


def written(segments, family=FAMILY, **how):
    return learner_of(constructed_for(family, segments=segments), family, **how)


def teacher(learner, latents, inputs):
    """The hyperteacher's equation in double precision, for every task at every input."""
    content = {k: np.asarray(v, float) for k, v in learner.prepare({}).member["family"].items()}
    z = np.asarray(latents, float) / math.sqrt(learner.family.active)
    weight = np.einsum("cm,mih->cih", z, content["theta0"][: z.shape[1]])
    bias = z @ content["beta0"][: z.shape[1]]
    hidden = np.maximum(np.einsum("si,cih->csh", inputs, weight) + bias[:, None], 0)
    return hidden @ content["omega"]


@pytest.mark.parametrize("instrument", [DECODER, EXACTNESS], ids=lambda i: i.name)
@pytest.mark.parametrize("model", [MLP(width=16, depth=2), None], ids=["padded", "written"])
def test_an_instrument_of_exact_answers_keeps_the_contract(instrument, model):
    learner = learner_of(model or constructed_for(FAMILY, segments=4))
    weights = first_weights(learner)
    check_instrument(instrument, learner, weights, weights)


# --- every task of a family ---


@pytest.mark.parametrize(
    ("family", "count"),
    [
        (Hyperteacher(modules=8, active=2), 8 * 6 + 28 * 36),
        (Hyperteacher(modules=8, active=3, weights="khot"), 8 + 28 + 56),
        (Hyperteacher(modules=5, active=2, levels=(2, 3)), 6 * 36),
        (Additive(modules=3, active=3), 3 * 6 + 3 * 36 + 216),
    ],
)
def test_every_task_is_listed_once_under_its_combination(family, count):
    ranks, latents = candidates(family, 10_000)
    assert len(latents) == count == len(np.unique(latents, axis=0))
    assert ((latents > 0) == family.space.indicator(ranks.astype(np.uint32))).all()


def test_the_listed_tasks_are_those_that_can_be_drawn():
    tenths = {0, *(range(5, 11))}
    possible = {
        z for z in itertools.product(tenths, repeat=3) if 1 <= sum(map(bool, z)) <= 2
    }  # fmt: skip
    found = candidates(Hyperteacher(modules=3, active=2), 500).latents
    assert {tuple(z) for z in np.round(10 * found).astype(int).tolist()} == possible


def test_tasks_that_cannot_be_listed_are_refused_with_the_reason():
    with pytest.raises(NotApplicable, match="weights='continuous' cannot be listed"):
        candidates(dataclasses.replace(FAMILY, weights="continuous"), 5_000)
    with pytest.raises(NotApplicable, match="1056 tasks or more to tell apart, at most 1000"):
        candidates(Hyperteacher(modules=8, active=2), 1_000)
    with pytest.raises(NotApplicable, match="2796416 tasks or more"):
        candidates(Hyperteacher(modules=256, active=3), 5_000)
    with pytest.raises(NotApplicable, match="weights=None cannot be listed"):
        candidates(Preferences(modules=8, active=2), 5_000)


@pytest.mark.parametrize("instrument", [DECODER, EXACTNESS], ids=lambda i: i.name)
def test_families_that_are_no_functions_of_numbers_are_refused(instrument):
    world = learner_of(MLP(width=16, depth=2), Preferences(modules=4, active=2))
    with pytest.raises(NotApplicable, match="Preferences"):
        read(instrument, world)


def test_a_decoder_needs_more_than_one_task():
    with pytest.raises(InvalidRequest, match="tasks must be at least 2, got 1"):
        FunctionDecoder(tasks=1)


# --- what it recovers ---


def test_it_picks_what_a_search_by_hand_picks():
    learner = written(2)
    weights, found = first_weights(learner), read(DECODER, learner)
    subject = learner.subject(weights)
    rng = np.random.default_rng(7)
    ranks = rng.integers(FAMILY.space.size, size=200).astype(np.uint32)
    batch = subject.draw(ranks, "by hand", samples=8)
    shared = batch.inputs[0]
    batch = batch._replace(inputs=np.broadcast_to(shared, batch.inputs.shape))
    answers = np.asarray(subject.answer(batch), float)
    every = candidates(FAMILY, 5_000)
    table = teacher(learner, every.latents, np.asarray(shared, float))
    nearest = ((answers[:, None] - table[None]) ** 2).sum(axis=(2, 3)).argmin(axis=1)
    share = (every.ranks[nearest] == ranks).mean()
    # Other tasks and inputs of the same network: the shares agree as far as samples do.
    assert found.values["combination"] == pytest.approx(share, abs=0.2)
    assert 0.02 < share < 1


def test_right_answers_give_all_away_and_those_to_other_tasks_nothing():
    for segments in (2, 32):
        controls = read(DECODER, written(segments)).controls
        assert controls["planted"]["combination"] == controls["planted"]["task"] == 1
        assert controls["planted"]["wrong"] == 0
        assert controls["shuffled"]["combination"] < 0.2 and controls["shuffled"]["task"] < 0.1


def test_a_finer_network_gives_more_away_and_none_less_than_it_must():
    found = [read(DECODER, written(n, seeds=Seeds.all(3))).values for n in (2, 4, 16, 64)]
    wrong = [values["wrong"] for values in found]
    assert wrong == sorted(wrong, reverse=True) and wrong[0] > 0.5 and wrong[-1] == 0
    assert found[-1]["combination"] == found[-1]["task"] == 1
    for values in found:
        assert values["promised"] == 1 - math.sqrt(values["wrong"])
        assert values["margin"] == values["combination"] - values["promised"] >= 0


def test_the_tolerance_belongs_to_the_teacher_not_to_the_network():
    networks = (written(2), written(16), learner_of(MLP(width=16, depth=2)))
    tolerances = {round(read(DECODER, learner).values["tolerance"], 6) for learner in networks}
    assert len(tolerances) == 1 and tolerances.pop() > 0
    other = read(DECODER, written(2, seeds=Seeds.all(1))).values["tolerance"]
    assert other != read(DECODER, written(2)).values["tolerance"]


def test_an_untrained_network_gives_nothing_away():
    values = read(DECODER, learner_of(MLP(width=64, depth=2))).values
    assert values["combination"] < 0.25 and values["wrong"] > 0.9
    assert values["chance"] == 1 / FAMILY.space.size


# --- the worst error ---


def test_the_worst_error_of_saying_nothing_is_the_largest_answer():
    learner = learner_of(MLP(width=16, depth=1))
    silent = {path: np.zeros_like(w) for path, w in first_weights(learner).items()}
    found = read(Exactness(tasks=1_024, samples=16), learner, silent).values
    rng = np.random.default_rng(0)
    every = candidates(FAMILY, 5_000).latents
    right = teacher(learner, every, rng.uniform(-1, 1, (64, 4)))
    assert found["sup"] == pytest.approx(np.abs(right).max(), rel=0.3)
    assert found["sup"] <= 1.5 * np.abs(right).max()
    assert found["mean"] == pytest.approx(np.abs(right).mean(), rel=0.2)
    assert found["r2"] < 0
    assert "bound" not in found


def test_a_single_wrong_answer_is_seen_although_the_score_hides_it():
    planted = read(Exactness(tasks=2_048, samples=16), written(4)).controls["planted"]
    assert planted["sup"] == pytest.approx(0.5) and planted["r2"] > 0.999


@pytest.mark.parametrize("segments", [4, 16])
def test_a_written_network_stays_within_its_bound(segments):
    from recombine.construction import construct

    learner = written(segments)
    found = read(EXACTNESS, learner).values
    made = construct(FAMILY, segments=segments, seeds=learner.seeds)
    assert found["bound"] == pytest.approx(made.bound, rel=1e-4)
    assert 0.1 * found["bound"] < found["sup"] < found["bound"]
    assert found["sup"] == pytest.approx(made.measure(2_000).worst, rel=0.4)


def test_random_weights_of_a_written_shape_promise_nothing():
    shape = learner_of(constructed_for(FAMILY, segments=4, random=True))
    assert "bound" not in read(EXACTNESS, shape).values
