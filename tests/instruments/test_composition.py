"""Composition on generators made to order: what they draw rightly is known picture by picture."""

from __future__ import annotations

import base64
import functools
import io
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from recombine.errors import NotApplicable
from recombine.families import Hyperteacher
from recombine.families.scenes import Scenes, request
from recombine.instruments import composition
from recombine.instruments.check import check_instrument
from recombine.instruments.composition import Composition, asked_for, nearest, reliability
from recombine.instruments.supervised_subject import BATCH
from recombine.lab.engine import initial_state
from recombine.learners import Supervised
from recombine.learners.flow import Flow
from recombine.models import MLP
from recombine.models.diffusion import DiT
from recombine.png import to_bytes
from recombine.seeds import Seeds
from recombine.supports import SupportRule, novelty

SCENES = Scenes(modules=4, active=2, size=16, cells=2, shapes=2, colours=2)
MODEL = DiT(depth=1, width=16, heads=2, patch=8)
LEARNER = Flow(family=SCENES, model=MODEL, support=SupportRule(held_out=0.4), training_steps=30)
WIDER = replace(LEARNER, family=Scenes(modules=8, active=2, size=16, cells=2, shapes=4, colours=2))
SMALL = {"combinations": 8, "draws": 8, "steps": 2, "training_images": 512}
KINDS = ("seen", "unseen")


@functools.cache
def weights(learner: Flow) -> dict[str, np.ndarray]:
    return learner.weights(initial_state(learner, learner.prepare({}), "float32"))


def pair(learner: Flow = LEARNER):
    """A subject told from its twin by one weight: who draws to order looks whom it draws for."""
    known = {**weights(learner), "output/bias": weights(learner)["output/bias"] + 1}
    return learner.subject(known), learner.subject(weights(learner))


@functools.cache
def scenes_of(name: str, count: int, seed: int):
    rng = np.random.default_rng([len(name), count, seed])
    return jax.random.key(int(rng.integers(2**31))), rng.random(count)


@dataclass(frozen=True)
class ToOrder(Composition):
    """Rendered scenes instead of sampled pictures, some of them spoilt; the twin draws grey."""

    fault: str = "grey"
    share: float = 1.0  # of pictures that are right

    def right(self, name: str, count: int) -> np.ndarray:
        return scenes_of(name, count, 0)[1] < self.share

    def pictures(self, subject, codes, name):
        grey = np.zeros((len(codes), SCENES.pixels), np.float32)
        if not subject.stored["output/bias"].any():
            return grey
        family, content = subject.learner.family, subject.arrays["family"]
        told = np.array(codes)
        if self.fault == "all but one":  # the last of each set is forgotten
            several = told.sum(axis=1) > 1
            last = told.shape[1] - 1 - told[:, ::-1].argmax(axis=1)
            told[several, last[several]] = 0
        key = scenes_of(name, len(codes), 0)[0]
        drawn = np.asarray(family.examples(content, jnp.asarray(told), key))
        spoilt = np.full_like(grey, np.nan) if self.fault == "runs away" else grey
        return np.where(self.right(name, len(codes))[:, None], drawn, spoilt)

    def rights(self, kind: str, combinations: int) -> np.ndarray:
        """Which pictures are right, by combination."""
        count = combinations * self.draws
        return self.right(f"composition/{kind}", count).reshape(-1, self.draws)


SOME = ToOrder(share=0.6, **SMALL)
ALL = ToOrder(**SMALL)


@pytest.fixture(scope="module")
def some():
    return SOME.read(*pair(), {})


@pytest.fixture(scope="module")
def all_right():
    return ALL.read(*pair(), {})


@pytest.fixture(scope="module")
def untrained():
    subject = LEARNER.subject(weights(LEARNER))
    return Composition(**SMALL).read(subject, subject, {})


def test_a_reading_of_a_generator_that_draws_everything_keeps_the_contract():
    known = {**weights(WIDER), "output/bias": weights(WIDER)["output/bias"] + 1}
    check_instrument(replace(ALL, combinations=20), WIDER, known, weights(WIDER))


def test_rendered_scenes_are_always_right_and_noise_never(untrained):
    for kind in KINDS:
        for part in ("", "_concepts", "_scenes"):
            assert untrained.controls["planted"][kind + part] == 1
            assert untrained.controls["untrained"][kind + part] == 0
            assert untrained.values[kind + part] == 0
    assert untrained.controls["planted"]["gap"] == 0


def test_neither_the_twin_nor_pictures_of_other_requests_are_ever_right(all_right):
    for kind in KINDS:
        assert all_right.values[kind] == 1
        assert all_right.controls["untrained"][kind] == 0
        assert all_right.controls["shuffled"][kind] == 0
        assert all_right.controls["shuffled"][f"{kind}_concepts"] < 1


def test_success_is_the_share_of_pictures_that_were_made_right(some):
    support = pair()[0].support
    for kind, pool in (("seen", support.seen), ("unseen", support.held_out)):
        table, rights = some.tables[kind], SOME.rights(kind, len(pool))
        assert table["rank"] == pool.tolist()
        assert 0.3 < rights.mean() < 0.9
        assert some.values[kind] == pytest.approx(rights.mean(), abs=1e-6)
        np.testing.assert_allclose(table["success"], rights.mean(axis=1), atol=1e-6)
        halves = rights[:, ::2].mean(axis=1), rights[:, 1::2].mean(axis=1)
        np.testing.assert_allclose(table["first_half"], halves[0], atol=1e-6)
        np.testing.assert_allclose(table["second_half"], halves[1], atol=1e-6)
        assert some.values[f"{kind}_reliability"] == pytest.approx(reliability(*halves), abs=1e-5)
    assert some.values["gap"] == pytest.approx(some.values["seen"] - some.values["unseen"])


def test_unseen_success_is_told_for_every_level_of_novelty(some):
    support = pair()[0].support
    level = novelty(support, support.held_out).level
    rights = SOME.rights("unseen", len(level))
    assert len(np.unique(level)) > 1
    for one in np.unique(level):
        assert some.values[f"unseen_level{one}"] == pytest.approx(
            rights[level == one].mean(), abs=1e-6
        )
        assert some.values[f"unseen_count_level{one}"] == (level == one).sum()


def test_a_forgotten_glyph_leaves_a_scene_with_half_of_what_was_asked():
    found = replace(ALL, fault="all but one").read(*pair(), {})
    for kind in KINDS:
        table = found.tables[kind]
        pairs = np.asarray(table["size"]) == 2
        assert pairs.any()
        np.testing.assert_allclose(table["success"], np.where(pairs, 0.0, 1.0))
        np.testing.assert_allclose(table["concepts"], np.where(pairs, 0.5, 1.0))
        np.testing.assert_allclose(table["scenes"], 1.0)


def test_numbers_without_spread_have_no_reliability_and_the_reading_none(all_right, untrained):
    for reading in (all_right, untrained):
        assert all(np.isfinite(value) for value in reading.values.values())
        assert "unseen_reliability" not in reading.values


def test_a_picture_that_ran_away_is_wrong_and_spoils_no_other():
    instrument = replace(SOME, fault="runs away")
    found = instrument.read(*pair(), {})
    for kind in KINDS:
        rights = instrument.rights(kind, len(found.tables[kind]["rank"]))
        assert found.values[kind] == pytest.approx(rights.mean(), abs=1e-6)
    assert all(np.isfinite(value) for value in found.values.values())


def test_seen_scenes_drawn_again_are_copies_and_unseen_ones_are_not(all_right):
    for numbers in (all_right.values, all_right.controls["planted"]):
        assert numbers["seen_nearest"] < 2e-3 < 0.05 < numbers["unseen_nearest"]


def test_kept_pictures_are_those_judged_with_their_requests_and_marks(some):
    subject, _ = pair()
    content = subject.arrays["family"]
    for kind in KINDS:
        shown, ranks = some.tables[f"{kind}_pictures"], some.tables[kind]["rank"]
        assert shown["rank"] == ranks  # fewer than are kept
        batch = subject.draw(np.repeat(ranks, 8), f"composition/{kind}", samples=2)
        drawn = SOME.pictures(subject, np.asarray(batch.codes), f"composition/{kind}")
        drawn = to_bytes(drawn).reshape(len(ranks), 8, 16, 16, 3)
        for n, (asked, code) in enumerate(zip(shown["asked"], shown["png"], strict=True)):
            strip = imread(io.BytesIO(base64.b64decode(code)), format="png")
            strip = np.rint(strip * 255).astype(np.uint8)
            assert strip.shape == (16, 5 * 16 + 4, 3)
            for place in range(5):
                np.testing.assert_array_equal(
                    strip[:, 17 * place : 17 * place + 16], drawn[n, place]
                )
            assert (strip[:, 16::17] == 255).all()
            rights = SOME.rights(kind, len(ranks))[n, :5]
            assert shown["marks"][n] == "".join("1" if one else "0" for one in rights)
            words = asked.replace("a ", "").split(" and ")
            chosen = request(SCENES, words, content)
            assert int(SCENES.space.rank(np.flatnonzero(chosen)[None])[0]) == ranks[n]


def test_of_many_combinations_a_dozen_is_shown_from_first_to_last():
    found = ToOrder(**{**SMALL, "combinations": 20, "draws": 2}).read(*pair(WIDER), {})
    shown, ranks = found.tables["seen_pictures"]["rank"], found.tables["seen"]["rank"]
    assert len(ranks) == 20 and len(shown) == len(set(shown)) == 12
    assert set(shown) <= set(ranks) and (shown[0], shown[-1]) == (ranks[0], ranks[-1])
    assert {len(marks) for marks in found.tables["seen_pictures"]["marks"]} == {2}


def test_pictures_come_from_the_network_as_the_instrument_was_told(monkeypatch):
    asked = []
    plain = composition.sample

    def watched(network, codes, key, **told):
        asked.append((network, told))
        return plain(network, codes, key, **told)

    monkeypatch.setattr(composition, "sample", watched)
    subject, twin = pair()
    instrument = Composition(steps=3, method="heun", guidance=1.5)
    drawn = instrument.pictures(twin, np.eye(4, dtype=np.float32), "a name")
    assert drawn.shape == (4, 768)
    assert asked[0][0] is twin.model
    assert asked[0][1] == {"steps": 3, "pixels": 768, "method": "heun", "guidance": 1.5}
    # The subject, whose last bias is 1, draws white where its twin draws grey.
    apart = instrument.pictures(subject, np.eye(4, dtype=np.float32), "a name")
    assert abs(drawn.mean()) < 0.1 and abs(apart.mean() - 1) < 0.2


# A network that draws velocities says zero before it learnt anything: its pictures are the noise.
IDLE = replace(LEARNER, model=replace(MODEL, draws="velocity"))


def test_no_two_pictures_begin_as_the_same_noise():
    codes = np.tile(np.eye(4, dtype=np.float32)[0], (BATCH + 8, 1))
    drawn = Composition(steps=2).pictures(IDLE.subject(weights(IDLE)), codes, "a name")
    assert len(np.unique(drawn.round(4), axis=0)) == len(codes)


def test_names_and_evaluation_seeds_have_noise_of_their_own():
    def drawn(learner: Flow, name: str) -> np.ndarray:
        subject = learner.subject(weights(IDLE))
        return Composition(steps=2).pictures(subject, np.eye(4, dtype=np.float32), name)

    one = drawn(IDLE, "a name")
    np.testing.assert_array_equal(drawn(IDLE, "a name"), one)
    for other in (
        drawn(IDLE, "another"),
        drawn(replace(IDLE, seeds=Seeds(evaluation=1)), "a name"),
    ):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.1


@pytest.mark.parametrize("count", [1, 5, 1000])
def test_so_many_of_each_kind_are_asked_for_and_all_where_there_are_no_more(count):
    subject = pair(WIDER)[0]
    pools = {"seen": subject.support.seen, "unseen": subject.support.held_out}
    found = asked_for(subject, count)
    assert list(found) == ["seen", "unseen"]
    for kind, pool in pools.items():
        assert len(np.unique(found[kind])) == min(count, pool.size)
        assert set(found[kind]) <= set(pool) and (np.diff(found[kind].astype(int)) > 0).all()
    again = asked_for(subject, count)
    assert all(np.array_equal(found[kind], again[kind]) for kind in pools)


def test_those_asked_for_are_drawn_by_lot():
    other = replace(WIDER, seeds=Seeds(evaluation=1)).subject(weights(WIDER))
    for kind, ranks in asked_for(pair(WIDER)[0], 5).items():
        assert not np.array_equal(asked_for(other, 5)[kind], ranks)


def test_a_network_that_draws_no_scenes_is_refused():
    learner = Supervised(
        family=Hyperteacher(modules=4, active=2), model=MLP(width=8, depth=1), training_steps=10
    )
    state = initial_state(learner, learner.prepare({}), "float32")
    subject = learner.subject(learner.weights(state))
    with pytest.raises(NotApplicable, match="that draws scenes; Hyperteacher has none"):
        Composition().read(subject, subject, {})


@given(st.permutations(range(8)))
def test_reliability_is_cronbachs_alpha_where_halves_spread_alike(order):
    first = np.arange(8.0) ** 2
    second = first[list(order)]
    total = np.var(first + second)
    if total < 1e-9:
        return
    alpha = 2 * (1 - (np.var(first) + np.var(second)) / total)
    assert reliability(first, second) == pytest.approx(alpha, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0, 0.5, 1], [0, 0.5, 1], 1.0),
        ([0, 0.5, 1], [0, 1, 0.5], 2 / 3),  # r = 1/2
        ([0, 1, 0, 1], [0, 0, 1, 1], 0.0),
        ([0, 0.5, 1], [1, 0.5, 0], np.nan),  # r = -1
        ([0.5, 0.5, 0.5], [0, 0.5, 1], np.nan),
        ([0, 0.5, 1], [0.5, 0.5, 0.5], np.nan),
        ([0, 1], [0, 1], np.nan),
    ],
)
def test_reliability_is_stepped_up_to_the_whole(first, second, expected):
    found = reliability(np.asarray(first, float), np.asarray(second, float))
    assert found == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_the_nearest_known_picture_is_the_one_found_by_trying_all():
    rng = np.random.default_rng(0)
    images, known = rng.uniform(-1, 1, (7, 48)), rng.uniform(-1, 1, (11, 48))
    images[3] = known[5]
    brute = [min(np.sqrt(np.mean((one - other) ** 2)) for other in known) for one in images]
    assert nearest(images, known) == pytest.approx(brute, abs=1e-6)
    assert nearest(images, known)[3] == pytest.approx(0, abs=1e-6)
