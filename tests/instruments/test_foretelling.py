"""Foretelling on states made to order: what can be read, when, off which layer, fitted to whom."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.errors import InvalidRequest, NotApplicable
from recombine.families import Hyperteacher
from recombine.families.scenes import Scenes
from recombine.instruments import foretelling, ridge
from recombine.instruments.composition import Composition
from recombine.instruments.foretelling import Foretelling, concept_templates, observer
from recombine.instruments.supervised_subject import BATCH
from recombine.lab.engine import initial_state
from recombine.learners import Supervised
from recombine.learners.flow import Flow
from recombine.models import MLP
from recombine.models.diffusion import DiT
from recombine.supports import SupportRule

pytestmark = pytest.mark.slow  # make test-all runs it

SCENES = Scenes(modules=8, active=2, size=16, cells=2, shapes=4, colours=2)
LEARNER = Flow(
    family=SCENES, model=DiT(depth=2, width=64, heads=2, patch=8),
    support=SupportRule(held_out=0.4), training_steps=30,
)  # fmt: skip
DRAWS = 6
READ = Foretelling(
    combinations=10, fitted=21, draws=DRAWS, times=(0.05, 0.8, 0.95), steps=20, features=48
)


@functools.cache
def weights() -> dict[str, np.ndarray]:
    return LEARNER.weights(initial_state(LEARNER, LEARNER.prepare({}), "float32"))


def subject():
    return LEARNER.subject(weights())


@dataclass(frozen=True)
class ToOrder(Foretelling):
    """States drawn by hand. The first layer tells seen combinations, the second unseen ones."""

    def _watch(self, subject, untrained, ranks, kind):
        asked = SCENES.space.indicator(np.repeat(ranks, self.draws)).astype(float)
        rng = np.random.default_rng(len(kind))

        def told(amount: float) -> np.ndarray:
            return asked + amount * rng.standard_normal(asked.shape)

        clear, dim = told(0.02), told(0.7)
        good, bad = (clear, dim) if kind == "seen" else (dim, clear)
        states = {"layer1/after": good, "layer2/after": bad, "condition": told(0.3),
                  "pixels": told(3.0), "twin": told(5.0)}  # fmt: skip
        return {"asked": asked, **{name: [state] * 2 for name, state in states.items()}}


@dataclass
class Fit:
    """One probe as it was asked for and what it said."""

    features: np.ndarray
    targets: np.ndarray
    groups: np.ndarray
    scored: np.ndarray
    truth: np.ndarray
    said: np.ndarray


@pytest.fixture(scope="module")
def ordered():
    """A reading of the states drawn by hand, all probes fitted for it, and the states."""
    instrument = ToOrder(combinations=10, fitted=21, draws=DRAWS, times=(0.25, 0.5), steps=4)
    fits, states = [], {}
    fit_on, watch = ridge.fit_on, ToOrder._watch

    def fitting(features, targets, groups, scored, truth):
        found = fit_on(features, targets, groups, scored, truth)
        fits.append(Fit(features, targets, groups, scored, truth, found.predictions))
        return found

    def watching(self, subject, untrained, ranks, kind):
        states[kind] = {
            "rank": np.repeat(ranks, DRAWS),
            **watch(self, subject, untrained, ranks, kind),
        }
        return {name: state for name, state in states[kind].items() if name != "rank"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ridge, "fit_on", fitting)
        patch.setattr(ToOrder, "_watch", watching)
        return instrument.read(subject(), subject(), {}), fits, states


def rows_of(features: np.ndarray, states: dict) -> tuple[str, np.ndarray]:
    """Which kind of combinations these rows are of, and their ranks."""
    for kind, state in states.items():
        for name in ("layer1/after", "layer2/after", "condition", "pixels", "twin"):
            number = {value: n for n, value in enumerate(state[name][0][:, 0])}
            if features[0, 0] in number:
                return kind, state["rank"][[number[value] for value in features[:, 0]]]
    return "planted", np.zeros(0)


def fits_scored_on(kind: str, ordered) -> list[tuple[Fit, np.ndarray, np.ndarray]]:
    """(probe, ranks fitted, ranks scored) of all that were scored on seen or unseen rows."""
    _, fits, states = ordered
    found = []
    for fit in fits:
        scored, ranks = rows_of(fit.scored, states)
        if scored == kind:
            found.append((fit, rows_of(fit.features, states)[1], ranks))
    return found


def test_probes_are_fitted_to_seen_combinations_and_chosen_on_two_thirds_of_them(ordered):
    _, fits, states = ordered
    held_out = set(subject().support.held_out.tolist())
    fitted = set()
    for fit in fits:
        kind, ranks = rows_of(fit.features, states)
        if kind == "planted":
            continue
        assert kind == "seen" and not set(ranks.tolist()) & held_out
        np.testing.assert_array_equal(fit.groups, ranks)
        fitted.add(frozenset(ranks.tolist()))
    # The same for every probe: 14 of 21 where layers are chosen, all of them afterwards.
    assert sorted(map(len, fitted)) == [14, 21]


def test_the_layer_is_chosen_on_other_seen_combinations(ordered):
    reading = ordered[0]
    choosing = fits_scored_on("seen", ordered)
    assert len(choosing) == 2 * 2  # two layers at two times
    for _, fitted, validated in choosing:
        assert len(set(validated.tolist())) == 7 and not set(validated) & set(fitted)
    for time in ("t0.25", "t0.5"):
        one, two = (f"{time}/layer{number}/after" for number in (1, 2))
        assert reading.values[f"{one}/validation"] > 0.9 > reading.values[f"{two}/validation"]
        assert reading.values[one] < 0 < 0.2 < reading.values[two]  # unseen ones would say two
        assert reading.values[f"{time}/layer"] == 1
        assert reading.values[f"{time}/hidden"] == reading.values[f"{time}/layer1/after"]


def test_scores_and_skills_are_those_worked_out_by_hand(ordered):
    reading, _, states = ordered
    names = {"layer1/after": "hidden", "pixels": "pixels", "condition": "condition"}
    seen = set()
    for fit, _, ranks in fits_scored_on("unseen", ordered):
        name = next(
            n for n in (*names, "layer2/after", "twin")
            if np.array_equal(fit.scored, states["unseen"][n][0])
        )  # fmt: skip
        if name not in names or not np.array_equal(fit.targets, SCENES.space.indicator(fit.groups)):
            continue
        seen.add(name)
        usual = fit.targets.mean(axis=0)
        truth = SCENES.space.indicator(ranks).astype(float)
        wrong, spread = (fit.said - truth) ** 2, (usual - truth) ** 2
        whole = 1 - wrong.sum() / spread.sum()
        for time in ("t0.25", "t0.5"):
            assert reading.values[f"{time}/{names[name]}"] == pytest.approx(whole, abs=1e-6)
            skills = reading.tables["unseen"][f"{names[name]}_{time}"]
            for rank, skill in zip(reading.tables["unseen"]["rank"], skills, strict=True):
                own = ranks == rank
                assert own.sum() == DRAWS
                expected = 1 - wrong[own].sum() / spread[own].sum()
                assert skill == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert seen == set(names)


def test_shuffling_moves_whole_combinations_and_leaves_nothing_to_read(ordered):
    reading = ordered[0]
    mixed = [
        fit for fit, _, _ in fits_scored_on("unseen", ordered)
        if not np.array_equal(fit.targets, SCENES.space.indicator(fit.groups))
    ]  # fmt: skip
    assert len(mixed) == 2
    for fit in mixed:
        blocks = fit.targets.reshape(-1, DRAWS, 8)
        assert (blocks == blocks[:, :1]).all()
        own = SCENES.space.indicator(np.unique(fit.groups)).astype(float)
        np.testing.assert_array_equal(np.unique(blocks[:, 0], axis=0), np.unique(own, axis=0))
    for time in ("t0.25", "t0.5"):
        assert reading.controls["shuffled"][f"{time}/hidden"] < 0.15
        assert reading.controls["untrained"][f"{time}/hidden"] < 0.15


def test_planted_features_are_read_almost_wholly(ordered):
    assert 0.95 < ordered[0].controls["planted"]["features"] <= 1


def test_the_table_names_unseen_combinations_and_their_concepts(ordered):
    table = ordered[0].tables["unseen"]
    assert len(table["rank"]) == 10 and set(table["rank"]) <= set(subject().support.held_out)
    assert table["members"] == SCENES.space.indicator(table["rank"]).astype(int).tolist()
    assert {len(column) for column in table.values()} == {10}


# What follows lets the network look at a path made of noise and rendered scenes.


def ideal(network, codes, key, *, times, steps, pixels, guidance):
    """Straight from noise to a scene of what was asked; every picture its own."""
    assert (steps, pixels, guidance) == (20, 768, 2.0)
    codes = np.asarray(codes)
    rng = np.random.default_rng(int(codes.sum()))
    scenes = np.full((len(codes), 2, 8, 2, 8, 3), -1.0, np.float32)
    bank = np.asarray(subject().arrays["family"]["templates"]).reshape(-1, 8, 8, 3)
    for scene, code in zip(scenes, codes, strict=True):
        cells = rng.permutation(4)
        for cell, module in zip(cells, np.flatnonzero(code), strict=False):
            scene[cell // 2, :, cell % 2] = bank[1 + module]
    scenes = scenes.reshape(len(codes), -1)
    noise = rng.standard_normal(scenes.shape).astype(np.float32)
    return jnp.stack([(1 - time) * noise + time * scenes for time in times])


@pytest.fixture(scope="module")
def watched():
    blind = {**weights(), "patches/weight": np.zeros_like(weights()["patches/weight"])}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foretelling, "sample_path", ideal)
        return READ.read(subject(), LEARNER.subject(blind), {})


def test_early_the_image_tells_nothing_and_late_it_tells_all(watched):
    early, middle, late = (watched.values[f"{t}/pixels"] for t in ("t0.05", "t0.8", "t0.95"))
    assert early < 0.05 < 0.2 < middle <= late and late > 0.9


def test_states_are_those_of_their_time(watched):
    early, late = (watched.values[f"{t}/hidden"] for t in ("t0.05", "t0.95"))
    assert early < 0.1 and late > 0.5


def test_the_condition_tells_what_was_asked_at_any_time(watched):
    for time in ("t0.05", "t0.8", "t0.95"):
        assert watched.values[f"{time}/condition"] > 0.5


def test_the_twin_has_eyes_of_its_own(watched):
    """It sees the same images through its own weights: without any for patches it sees nothing."""
    assert abs(watched.controls["untrained"]["t0.95/hidden"]) < 0.05
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foretelling, "sample_path", ideal)
        same = READ.read(subject(), subject(), {})
    # An untrained network hands its patches on from block to block: all layers are one.
    assert same.controls["untrained"]["t0.95/hidden"] == pytest.approx(
        same.values["t0.95/hidden"], abs=1e-4
    )


def test_both_instruments_ask_for_the_same_unseen_combinations():
    one, two = (
        instrument.read(subject(), subject(), {}).tables["unseen"]["rank"]
        for instrument in (
            Composition(combinations=6, draws=2, steps=2, training_images=8),
            Foretelling(combinations=6, fitted=15, draws=2, times=(0.5,), steps=2),
        )
    )
    assert len(one) == 6 and one == two


@pytest.mark.parametrize(
    ("times", "steps"), [((0.05, 0.12), 20), ((0.0,), 20), ((1.0,), 20), ((-0.5,), 20), ((), 20),
                         ((0.05,), 24), ((0.3,), 4)]
)  # fmt: skip
def test_times_that_are_no_steps_on_the_way_are_refused(times, steps):
    with pytest.raises(InvalidRequest, match=f"steps of 1/{steps}, such as {1 / steps:g}"):
        Foretelling(times=times, steps=steps)


@pytest.mark.parametrize("steps", [3, 7, 20, 24, 49, 100])
def test_all_steps_on_the_way_are_taken(steps):
    times = [number / steps for number in range(1, steps)]
    assert Foretelling(times=times, steps=steps).times == tuple(times)  # pyright: ignore


def test_a_network_that_draws_no_scenes_is_refused():
    learner = Supervised(
        family=Hyperteacher(modules=4, active=2), model=MLP(width=8, depth=1), training_steps=10
    )
    state = initial_state(learner, learner.prepare({}), "float32")
    other = learner.subject(learner.weights(state))
    with pytest.raises(NotApplicable, match="that draws scenes; Hyperteacher has none"):
        Foretelling().read(other, other, {})


def test_states_are_the_networks_own_at_each_time_on_paths_from_noise_of_their_own():
    calls, states = [], foretelling._states

    def looking(model, codes, path, times):
        found = states(model, codes, path, times)
        calls.append((model, codes, np.asarray(path), found))
        return found

    instrument = Foretelling(
        combinations=4, fitted=22, draws=24, times=(0.25, 0.75), steps=4, features=8
    )
    one = subject()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foretelling, "_states", looking)
        instrument.read(one, one, {})
    model, codes, path, found = calls[0]
    assert model is one.model
    for place, time in enumerate(instrument.times):
        told = model.condition(codes, jnp.full((len(codes), 1), time))[:, 0]
        np.testing.assert_allclose(found["condition"][:, place], told, atol=1e-5)
        seen = np.column_stack([path[place], np.full(len(codes), time, np.float32)])
        stream = model.stream(2, codes, jnp.asarray(seen)[:, None])[:, 0]
        np.testing.assert_allclose(found["layer2/after"][:, place], stream.mean(axis=1), atol=1e-4)
    # 22 x 24 pictures come in two batches, and the twin looks at the same; then the unseen ones.
    paths = [path[0] for _, _, path, _ in calls]
    assert len(paths) == 6
    np.testing.assert_array_equal(paths[0], paths[1])
    everything = np.concatenate([paths[0], paths[2][: 22 * 24 - BATCH], paths[4][: 4 * 24]])
    assert len(np.unique(everything.round(5), axis=0)) == len(everything)


@pytest.mark.parametrize("shows", ["sets", "slots", "pairs"])
def test_an_observer_who_knows_the_glyphs_reads_the_picture_through_little_noise(shows):
    family = Scenes(shows=shows, size=16, cells=2, shapes=3, colours=3,
                    **({"modules": 5, "active": 2} if shows == "sets" else {}))  # fmt: skip
    content = family.content(jax.random.key(0))
    chosen = family.space.indicator(np.arange(0, family.space.size, 3, dtype=np.uint32))
    asked = jnp.asarray(chosen, jnp.float32)
    scene = family.render(content, family.layout(content, asked, jax.random.key(1)))
    noise = jax.random.normal(jax.random.key(2), scene.shape)
    times = (0.02, 0.7)
    path = jnp.stack([t * scene + (1 - t) * noise for t in times])
    seen = np.asarray(observer(family, content, times)(path))
    np.testing.assert_allclose(seen[:, 1], chosen, atol=0.02)
    assert np.abs(seen[:, 0] - seen[:, 0].mean(axis=0)).max() < 0.3  # hardly more than the prior
    # By hand, for one picture and one cell: Bayes' rule over all templates that may be there.
    bank, t = np.asarray(content["templates"], float), times[0]
    shown = concept_templates(family, content)
    used = shown.any(axis=(0, 1))
    objects = {"sets": family.space.sizes(np.arange(family.space.size, dtype=np.uint32)).mean(),
               "slots": 1, "pairs": 2}[shows]  # fmt: skip
    prior = np.where(used, objects / 4 / used.sum(), 0)
    prior[0] = 1 - objects / 4
    absent = np.ones(family.modules)
    picture = np.asarray(path[0, 0], float).reshape(2, 8, 2, 8, 3)
    for cell in range(4):
        tile = picture[cell // 2, :, cell % 2].reshape(-1)
        away = ((tile - t * bank) ** 2).sum(axis=1) / (2 * (1 - t) ** 2)
        posterior = prior * np.exp(away.min() - away)
        posterior /= posterior.sum()
        absent *= 1 - (shown[:, cell] * posterior).sum(axis=1)
    np.testing.assert_allclose(seen[0, 0], 1 - absent, atol=1e-3)
