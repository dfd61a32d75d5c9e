"""Binding and segregation: readings of observers whose answers are known, and their errors."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress
from sklearn.metrics import adjusted_rand_score

from recombine.errors import InvalidRequest, NotApplicable
from recombine.families.objects import SEARCHES, Objects, Scene, Tetrominoes
from recombine.instruments import Binding, Segregation, check_instrument
from recombine.instruments._observers import bag_answers, bag_report, mistakes
from recombine.instruments.binding import summary
from recombine.instruments.segregation import by_colour
from recombine.lab.engine import initial_state
from recombine.learners import Binding as BindingLearner
from recombine.learners import Segregation as SegregationLearner
from recombine.models.binding import BagNet, ConvNet, SlotNet
from recombine.models.slots import SlotAutoencoder
from recombine.seeds import Seeds

pytestmark = pytest.mark.slow  # make test-all runs it

SWAP = BindingLearner(family=Objects(side=16, most_objects=2), model=ConvNet(4))
REPORT = replace(
    SWAP, task="report", model=SlotNet(4, slots=3), objects=(2, 3),
    family=Objects(side=16, most_objects=3),
)  # fmt: skip
SEARCH = replace(
    SWAP, task="search", model=BagNet(4), objects=(2, 4), family=Objects(side=24, most_objects=8)
)
PIECES = SegregationLearner(
    family=Tetrominoes(side=14),
    model=SlotAutoencoder(slots=3, channels=4, width=8, hidden=8, encoder_depth=1, decoder_depth=1),
)
FEW = Binding(items=256)
PICTURES = Segregation(images=32, shown=3)


@functools.cache
def weights(learner, seed=0):
    other = replace(learner, seeds=replace(learner.seeds, init=seed))
    return learner.weights(initial_state(other, other.prepare({}), "float32"))


@functools.cache
def reading(instrument, learner):
    return instrument.read(
        learner.subject(weights(learner, 1)), learner.subject(weights(learner)), {}
    )


@pytest.mark.parametrize(
    ("instrument", "learner"),
    [(FEW, SWAP), (FEW, REPORT), (replace(FEW, sizes=(2, 8)), SEARCH), (PICTURES, PIECES)],
    ids=["swap", "report", "search", "segregation"],
)
def test_readings_keep_the_contract_of_instruments(instrument, learner):
    check_instrument(instrument, learner, weights(learner, 1), weights(learner))


def test_who_sees_everything_is_right_and_who_sees_features_alone_is_half_right():
    controls = reading(FEW, SWAP).controls
    for look in ("seen", "unseen"):
        assert controls["planted"][look] == 1
        assert controls["planted"][f"bag_{look}"] == 0.5
        assert abs(controls["shuffled"][look]) < 0.3
    assert controls["planted"]["gap"] == 0


def test_reported_scenes_are_right_where_all_is_seen_and_mixed_up_where_features_are():
    found = reading(FEW, REPORT)
    for look in ("seen", "unseen"):
        planted = found.controls["planted"]
        assert planted[look] == planted[f"{look}_objects"] == 1
        assert planted[f"{look}_missed"] == planted[f"{look}_conjunction_errors"] == 0
        assert planted[f"bag_{look}"] < 0.8
        assert planted[f"bag_{look}_conjunction_share"] == 1
        assert planted[f"bag_{look}_conjunction_expected"] < 0.5
        assert planted[f"bag_{look}_feature_errors"] == 0
        assert f"{look}_conjunction_share" not in planted  # nothing is wrong
        kinds = ("objects", "missed")
        assert sum(found.values[f"{look}_{kind}"] for kind in kinds) == pytest.approx(1)


def test_the_held_out_pair_of_a_scene_is_counted_by_itself():
    found = reading(FEW, REPORT)
    planted = found.controls["planted"]
    assert planted["unseen_pair"] == 1
    # Put together by lot, n objects keep one of their pairs in 1 of n scenes, or by equal features.
    assert 1 / 3 < planted["bag_unseen_pair"] < 0.75
    assert 0 <= found.values["unseen_pair"] <= 1 and "seen_pair" not in found.values
    subject = REPORT.subject(weights(REPORT, 1))
    asked = subject.draw("binding/unseen", FEW.items, sizes=(2, 3), unseen=True)
    said, trained = subject.things(subject.answer(asked)), REPORT.family.trained(0)
    hits = 0
    for item in range(FEW.items):
        real = asked.scene.there[item]
        true = zip(asked.scene.colour[item][real], asked.scene.shape[item][real], strict=True)
        (held_out,) = [pair for pair in true if not trained[pair]]
        told = zip(said.colour[item], said.shape[item], said.there[item], strict=True)
        hits += (*held_out, True) in [tuple(thing) for thing in told]
    assert found.values["unseen_pair"] == pytest.approx(hits / FEW.items)


def test_features_alone_are_enough_for_disjunctive_search_and_not_for_conjunctive():
    found = reading(replace(FEW, sizes=(2, 8)), SEARCH)
    planted = found.controls["planted"]
    for look in ("seen", "unseen"):
        assert planted[f"bag_{look}_disjunctive_n8"] == planted[f"bag_{look}_palette_n8"] == 1
        # Exactly: every scene with the target has a twin without, with the same features.
        assert planted[f"bag_{look}_conjunctive_n2"] == 0.5
        assert planted[f"bag_{look}_conjunctive_n8"] == 0.5
        assert planted[f"bag_{look}_interaction_growth"] == 0
        assert planted[f"{look}_interaction_slope"] == pytest.approx(0)
        # Right with every target, and without one where all others are alike: 2 / 2 ** n.
        assert planted[f"bag_{look}_published_n2"] == pytest.approx(0.75, abs=0.1)
        assert planted[f"bag_{look}_published_n8"] == pytest.approx(0.5, abs=0.02)
        apart = 1 - planted[f"bag_{look}_published_n8"]
        assert planted[f"bag_{look}_published_interaction_n8"] == pytest.approx(apart)
        assert planted[f"bag_{look}_published_interaction_growth"] > 0.1
    assert found.tables["looks"]["objects"][:2] == [[2], [8]]
    assert len(found.tables["looks"]["right"]) == 2 * len(SEARCHES) * 2


@given(
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
)
def test_the_slope_of_the_interaction_is_that_of_a_regression(disjunctive, conjunctive):
    sizes = (5, 10, 30)
    shares = {}
    for name, values in (("disjunctive", disjunctive), ("conjunctive", conjunctive)):
        shares |= {f"seen_{name}_n{n}": v for n, v in zip(sizes, values, strict=True)}
    found = summary(shares, sizes, True)
    gaps = np.subtract(disjunctive, conjunctive)
    assert found["seen_interaction_slope"] == pytest.approx(linregress(sizes, gaps).slope, abs=1e-6)
    assert found["seen_interaction_growth"] == pytest.approx(gaps[-1] - gaps[0])
    assert [found[f"seen_interaction_n{n}"] for n in sizes] == pytest.approx(gaps.tolist())
    assert found["seen"] == pytest.approx(np.mean([*disjunctive, *conjunctive]))


THINGS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=5)


def as_scene(things):
    colour, shape = (np.array([[*(t[n] for t in things), 0]]) for n in (0, 1))
    return Scene(colour, shape, np.array([[True] * len(things) + [False]]))


@given(THINGS, THINGS)
def test_mistakes_are_those_found_by_crossing_things_off_one_by_one(said, true):
    found = mistakes(as_scene(said), as_scene(true), 3, 4)
    left, counts = list(true), {"right": 0, "conjunction": 0, "feature": 0, "repeated": 0}
    for thing in said:
        if thing in left:
            left.remove(thing)
            counts["right"] += 1
        elif thing in true:
            counts["repeated"] += 1
        elif thing[0] in {c for c, _ in true} and thing[1] in {s for _, s in true}:
            counts["conjunction"] += 1
        else:
            counts["feature"] += 1
    for name, number in counts.items():
        assert getattr(found, name)[0] == number, name
    assert found.missed[0] == len(left) and found.objects[0] == len(true)


@given(THINGS)
def test_the_expected_rate_is_the_share_of_conjunctions_among_all_wrong_guesses(true):
    wrong = [(c, s) for c in range(3) for s in range(4) if (c, s) not in true]
    mixed = [
        guess for guess in wrong
        if guess[0] in {c for c, _ in true} and guess[1] in {s for _, s in true}
    ]  # fmt: skip
    found = mistakes(as_scene(true), as_scene(true), 3, 4)
    assert found.expected[0] == pytest.approx(len(mixed) / len(wrong))


def test_an_observer_of_features_keeps_all_features_of_a_scene():
    subject = REPORT.subject(weights(REPORT))
    scene = subject.draw("test", 64, sizes=(2, 3), unseen=False).scene
    mixed = bag_report(scene, np.random.default_rng(0))
    there = scene.there
    np.testing.assert_array_equal(mixed.colour, scene.colour)
    for one, other, real in zip(mixed.shape, scene.shape, there, strict=True):
        assert sorted(one[real]) == sorted(other[real])
    assert (mixed.shape != scene.shape)[there].any()


def test_an_observer_of_features_says_yes_if_both_are_somewhere():
    subject = SEARCH.subject(weights(SEARCH))
    asked = subject.draw("test", 64, sizes=(2,), unseen=False, kind=0)
    for item, said in enumerate(bag_answers(asked, 4)):
        colour, shape = asked.question[item, :4].argmax(), asked.question[item, 4:].argmax()
        real = asked.scene.there[item]
        expected = (
            colour in asked.scene.colour[item][real] and shape in asked.scene.shape[item][real]
        )
        assert said == expected


def test_answers_are_those_of_the_network_and_follow_the_seed():
    subject = SWAP.subject(weights(SWAP))
    items = subject.draw("test", 200, sizes=(2,), unseen=False)
    expected = subject.network(items.images, items.question)
    np.testing.assert_allclose(subject.answer(items), expected, rtol=1e-4, atol=1e-5)
    again = subject.draw("test", 200, sizes=(2,), unseen=False)
    np.testing.assert_array_equal(again.images, items.images)
    other = replace(SWAP, seeds=Seeds(evaluation=1)).subject(weights(SWAP))
    assert not np.array_equal(
        other.draw("test", 200, sizes=(2,), unseen=False).images, items.images
    )


def test_true_objects_agree_with_themselves_and_kept_grids_are_those_scored():
    found = reading(PICTURES, PIECES)
    assert found.controls["planted"] == {"fg_ari": 1, "fg_ari_median": 1}
    assert abs(found.controls["shuffled"]["fg_ari"]) < 0.4
    kept = found.tables["pictures"]
    assert len(kept["parts"]) == len(kept["picture"]) == 3
    for objects, parts, ari in zip(kept["objects"], kept["parts"], kept["fg_ari"], strict=True):
        objects, parts = np.array(objects), np.array(parts)
        assert objects.shape == parts.shape == (14, 14) and parts.max() < 3
        front = objects > 0
        assert ari == pytest.approx(adjusted_rand_score(objects[front], parts[front]), abs=1e-5)


def test_sorting_by_colour_is_right_where_no_two_pieces_share_one():
    images = np.zeros((2, 2, 3, 3), np.float32)
    images[0, 0, 0], images[0, 1, 1], images[1, 0, 0] = (1, 0, 0), (0, 1, 0), (1, 0, 0)
    parts, count = by_colour(images)
    assert count == 3 and len(np.unique(parts[0])) == 3 and len(np.unique(parts[1])) == 2
    assert parts[0, 0, 0] == parts[1, 0, 0] != parts[0, 1, 1]


def test_subjects_of_other_kinds_and_sizes_that_do_not_fit_are_refused():
    subject, pieces = SWAP.subject(weights(SWAP)), PIECES.subject(weights(PIECES))
    with pytest.raises(NotApplicable, match="asked about scenes of objects"):
        FEW.read(pieces, pieces, {})
    with pytest.raises(NotApplicable, match="draws pictures again"):
        PICTURES.read(subject, subject, {})
    with pytest.raises(NotApplicable, match="at most most_objects=2"):
        Binding(sizes=(3,)).read(subject, subject, {})
    with pytest.raises(InvalidRequest, match="an even number"):
        Binding(items=3)
    with pytest.raises(InvalidRequest, match="images=0"):
        Segregation(images=0)
