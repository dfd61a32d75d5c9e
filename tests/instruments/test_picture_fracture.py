"""The instrument that looks into networks that draw, on networks whose answer is known."""

from __future__ import annotations

import base64
import io
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread

from recombine.cppn import Architecture, LayeredCPPN, Renderer, sweep_symmetry
from recombine.errors import InvalidRequest, NotApplicable
from recombine.instruments import Subject, check_instrument
from recombine.instruments.picture_fracture import (
    PictureFracture,
    PictureSubject,
    target_symmetry,
)
from recombine.instruments.picture_walls import (
    EFFECT,
    FRACTURED,
    STRIPS,
    WHOLE,
    strips,
    symmetric_share,
    wall,
)
from recombine.lab.engine import initial_state
from recombine.learners.check import stand_ins
from recombine.learners.picture_set import PictureSet
from recombine.learners.pictures import PictureLearner

LEARNER = PictureLearner(PictureSet(count=1, size=16), training_steps=20, evaluation_every=10)
MADE = replace(LEARNER, way="evolved")
INSTRUMENT = PictureFracture(sweeps=4)


def weights(learner: PictureLearner):
    return learner.weights(initial_state(learner, learner.prepare(stand_ins(learner)), "float32"))


@pytest.fixture(scope="module")
def stencil():
    """A network that is symmetric by making, beside a random one of its shape."""
    return MADE.subject(weights(MADE)), LEARNER.subject(weights(LEARNER))


@pytest.fixture(scope="module")
def readings(stencil):
    made, random = stencil
    shows = replace(INSTRUMENT, shows=True)
    return shows.read(made, random, {}), shows.read(random, random, {})


def test_it_keeps_the_contract_of_an_instrument():
    check_instrument(INSTRUMENT, LEARNER, weights(MADE), weights(LEARNER))


def test_a_network_symmetric_by_making_is_found_whole(readings):
    values = readings[0].values
    for name in ("concordance", "symmetric_share", "rotated", "sweep_symmetry", "target_symmetry"):
        assert values[name] == pytest.approx(1, abs=1e-3), name
    assert values["error"] < 1e-8 and values["distinct"] < 20


def test_a_random_network_is_not_and_neither_is_the_control(readings):
    made, random = readings
    assert random.values["concordance"] < 0.8 and random.values["symmetric_share"] < 0.2
    assert random.values["distinct"] > 100
    twin = made.controls["untrained"]
    assert twin["concordance"] == pytest.approx(random.values["concordance"], abs=1e-6)
    assert made.controls["planted"]["concordance"] == pytest.approx(1, abs=1e-3)
    assert made.controls["rotated"]["concordance"] == made.values["rotated"]


def test_a_network_that_was_never_trained_is_not_its_own_control(stencil):
    made, _ = stencil
    reading = INSTRUMENT.read(made, made, {})
    assert reading.values["concordance"] == pytest.approx(1, abs=1e-3)
    assert reading.controls["untrained"]["concordance"] < 0.8


def test_neurons_that_nobody_hears_do_not_make_what_is_heard_less_whole(stencil, readings):
    """Awake: nearly all maps are of chance, and those that draw the picture are as before."""
    woken = replace(MADE, way="awake")
    found = INSTRUMENT.read(woken.subject(weights(woken)), stencil[1], {}).values
    before, random = (reading.values for reading in readings)
    assert found["heard"] == pytest.approx(before["heard"]) == pytest.approx(before["concordance"])
    assert found["concordance"] < 0.8 and found["distinct"] > 100 and found["error"] < 1e-8
    assert random["heard"] == random["concordance"]


def test_the_symmetry_is_the_one_the_picture_has(stencil):
    made, random = stencil
    turned = replace(LEARNER, sibling="turned").subject(weights(LEARNER))
    for subject, name in ((random, "left-right"), (turned, "up-down")):
        table = replace(INSTRUMENT, sweeps=0).read(subject, made, {}).tables["symmetry"]
        used = dict(zip(table["name"], table["used"], strict=True))
        assert [key for key, there in used.items() if there] == [name]


def test_every_distinct_map_is_listed_with_its_concordance(readings):
    for reading in readings:
        found = reading.tables["maps"]["concordance"]
        assert len(found) == reading.values["distinct"]
        assert np.mean(found) == pytest.approx(reading.values["concordance"], abs=1e-5)
        assert np.mean(np.array(found) > 0.95) == pytest.approx(reading.values["symmetric_share"])


def test_walls_and_strips_are_kept_where_they_are_asked_for(readings, stencil):
    assert not {"wall", "strips"} & INSTRUMENT.read(*stencil, {}).tables.keys()
    for reading in readings:
        png = base64.b64decode(reading.tables["wall"]["png"][0])
        assert png.startswith(b"\x89PNG")
        kept = reading.tables["strips"]
        assert len(kept["smaller"]) == len(kept["larger"]) == len(kept["png"]) > 0
        assert all(0 <= share <= 1 for share in (*kept["smaller"], *kept["larger"]))


def test_a_strip_says_how_much_of_the_change_keeps_the_symmetry(readings):
    made, random = (reading.tables["strips"] for reading in readings)
    assert made["smaller"] + made["larger"] == pytest.approx([1] * 2 * len(made["png"]), abs=1e-3)
    # Torn, though the picture as a whole changes so little that it looks as symmetric as before.
    assert min(random["smaller"] + random["larger"]) < 0.8
    # Brightness is gaussian(2x), and a neuron that says x is not yet listened to.
    shape = Architecture.parse("1;gaussian:1,identity:1")
    first, last = np.zeros((4, 2)), np.zeros((2, 3))
    first[1], last[0, 2] = (2.0, 1.0), 1.0
    flat = np.asarray(LayeredCPPN.of(shape, [first, last]).flat())
    width_of_the_bell, share_of_x, never_seen = 2, 8 + 5, 1
    for place, share in ((width_of_the_bell, [1.0]), (share_of_x, [0.1]), (never_seen, [])):
        found = strips(Renderer(shape, 16), flat, [place], "left-right")
        assert found["smaller"] == pytest.approx(share, abs=0.15)
        assert found["larger"] == pytest.approx(share, abs=0.15)
        assert len(found["png"]) == len(share)


def test_shares_of_a_strip_are_those_of_the_sweeps():
    """At the effect of the strips, measured by the code that the numbers come from."""
    shape = Architecture.parse("3;cache:2,gaussian:4,sin:2")
    flat = np.asarray(LayeredCPPN.draw(jax.random.key(5), shape).flat())
    renderer, places = Renderer(shape, 16), [2, 9, 30, 44]
    found = strips(renderer, flat, places, "left-right")
    swept = sweep_symmetry(renderer, flat, np.asarray(places), effect=EFFECT).reshape(2, -1)
    swept = swept[:, np.isfinite(swept).all(axis=0)][:, :STRIPS]
    assert swept.size
    np.testing.assert_allclose([found["larger"], found["smaller"]], swept, atol=1e-4)


def test_both_ends_of_every_strip_are_at_one_size_of_effect():
    """Measured on the pictures that are shown, in bytes."""
    shape = Architecture.parse("3;cache:2,gaussian:4,sin:2")
    flat = np.asarray(LayeredCPPN.draw(jax.random.key(5), shape).flat())
    found = strips(Renderer(shape, 16), flat, range(len(flat)), "left-right")["png"]
    assert len(found) == STRIPS
    for png in found:
        pixels = imread(io.BytesIO(base64.b64decode(png)))[..., :3]
        row = np.stack([pixels[:, 18 * n : 18 * n + 16] for n in range(5)])
        changes = np.mean((row - row[2]) ** 2, axis=(1, 2, 3))
        assert changes[[0, 4]] == pytest.approx([EFFECT] * 2, rel=0.1)


def test_a_weight_that_leaps_past_the_effect_has_no_strip():
    # Grey, and a neuron that any change of the weight tips to black or to white; or little by
    # little, where it is not so steep.
    shape = Architecture.parse("2;identity:1,tanh:1")
    first, second, last = np.zeros((4, 2)), np.zeros((2, 2)), np.zeros((2, 3))
    first[3, 1], second[1, 0], last[:, 2] = 10.0, 1.0, 0.5
    for steep, count in ((1e8, 0), (1.0, 1)):
        second[0, 1] = steep
        flat = np.asarray(LayeredCPPN.of(shape, [first, second, last]).flat())
        assert len(strips(Renderer(shape, 8), flat, [6], "left-right")["png"]) == count


def test_sweeps_that_cannot_be_matched_are_counted(stencil, readings):
    made, random = stencil
    for reading in readings:
        assert 0 <= reading.values["dropped"] < 2 * INSTRUMENT.sweeps
    assert "dropped" not in replace(INSTRUMENT, sweeps=0).read(made, random, {}).values
    # With saturation and brightness at zero nothing can be seen of the hue.
    shape = Architecture.parse("1;identity:1")
    first, last = np.ones((4, 1)), np.zeros((1, 3))
    last[0, 0] = 2.0
    black = PictureSubject(LayeredCPPN.of(shape, [first, last]), {}, made.target, 0)
    values = INSTRUMENT.measured(black, "left-right", np.random.default_rng(0))
    assert values["dropped"] == 2 * INSTRUMENT.sweeps and "sweep_symmetry" not in values


def test_a_wall_frames_each_map_by_whether_it_is_symmetric():
    maps = np.random.default_rng(0).normal(size=(5, 8, 8))
    painted = wall(np.zeros((8, 8, 3)), maps, np.array([1.0, 0.2, 0.96, 0.94, 0.0]))
    # In the first row of frames, where all five hang: 12 pixels each, the picture takes two.
    edge = painted[0, 24::12]
    assert [tuple(pixel) for pixel in edge[:5].tolist()] == [
        WHOLE, FRACTURED, WHOLE, FRACTURED, FRACTURED,
    ]  # fmt: skip
    assert tuple(edge[5]) not in (WHOLE, FRACTURED)
    many = wall(np.zeros((8, 8, 3)), np.repeat(maps, 20, axis=0), np.zeros(100))
    assert many.shape == painted.shape and (many[-1, ::12] == FRACTURED).all()


@settings(max_examples=20)
@given(st.integers(0, 2**31), st.sampled_from(["left-right", "up-down", "rotation"]))
def test_a_picture_made_of_both_parts_is_as_symmetric_as_their_shares(seed, symmetry):
    rng = np.random.default_rng(seed)
    raw = rng.normal(size=(8, 8, 3))
    flip = {"left-right": (1,), "up-down": (0,), "rotation": (0, 1)}[symmetry]
    even, odd = (raw + np.flip(raw, flip)) / 2, (raw - np.flip(raw, flip)) / 2
    even = even - even.mean(axis=(0, 1))
    share = (even**2).sum() / ((even**2).sum() + (odd**2).sum())
    assert symmetric_share(even + odd, symmetry) == pytest.approx(share, abs=1e-6)
    assert target_symmetry(even, symmetry) == pytest.approx(1)
    assert target_symmetry(np.zeros((8, 8, 3)), symmetry) == 0


def test_a_negative_number_of_sweeps_is_refused():
    with pytest.raises(InvalidRequest, match="sweeps=-1"):
        PictureFracture(sweeps=-1)


def test_other_networks_are_refused():
    class Talker(Subject):
        abilities = frozenset({"activations", "weights"})

    with pytest.raises(NotApplicable, match="draw a picture from coordinates"):
        INSTRUMENT.read(Talker(), Talker(), {})


def test_a_subject_shows_its_weights_and_draws():
    shape = Architecture.parse("2;cache:2,gaussian:2")
    network = LayeredCPPN.draw(jax.random.key(1), shape)
    subject = PictureSubject(network, {"a": np.zeros(1)}, np.zeros((8, 8, 3)), 3)
    assert subject.weights() == {"a": np.zeros(1)} and subject.drawn().shape == (8, 8, 3)
    first, second = subject.drawn_anew(), subject.drawn_anew()
    np.testing.assert_array_equal(first.network.flat(), second.network.flat())
    assert not np.allclose(first.network.flat(), network.flat())
