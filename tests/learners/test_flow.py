"""Flow matching: the contract, hidden tasks, averaged weights, and a tiny network that draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from recombine.encodings import Orthogonal
from recombine.errors import InvalidRequest
from recombine.families._family import Family, mean, total
from recombine.families.hyperteacher import bucket_sizes, weigh
from recombine.families.scenes import Scenes
from recombine.lab.engine import Curves, Population
from recombine.learners import AsDrawn, Supervised, check_learner, flow
from recombine.learners.flow import Flow
from recombine.models import MLP
from recombine.models.diffusion import DiT
from recombine.models.sampling import sample
from recombine.seeds import Seeds
from recombine.trees import named, unnamed

pytestmark = pytest.mark.slow  # make test-all runs it

SIDE = 4
PIXELS = 3 * SIDE**2


class Mixed(NamedTuple):
    image: Array
    noise: Array
    time: Array


@dataclass(frozen=True)
class Squares(Family):
    """Each module is a square of its own place and colour on a dark picture of 4 x 4 pixels."""

    metric: ClassVar[str] = "R²"

    modules: int = 4
    active: int = 2

    @property
    def input_size(self) -> int:
        return PIXELS + 1

    @property
    def output_size(self) -> int:
        return PIXELS

    def content(self, key):
        colours = jax.random.uniform(key, (self.modules, 3), minval=0.5, maxval=2.0)
        places = np.zeros((self.modules, SIDE, SIDE, 1), np.float32)
        for module in range(self.modules):
            row, column = 2 * (module // 2 % 2), 2 * (module % 2)
            places[module, row : row + 2, column : column + 2] = 1
        return {"squares": (colours[:, None, None] * places).reshape(self.modules, PIXELS)}

    def latent(self, key, chosen):
        return weigh(key, chosen, "khot")

    def picture(self, content, latent):
        return jnp.clip(latent @ content["squares"] - 1, -1, 1)

    def draw(self, content, latents, key, samples):
        noise_key, time_key = jax.random.split(key)
        image = jax.vmap(lambda z: self.picture(content, z))(latents)[:, None]
        noise = jax.random.normal(noise_key, (latents.shape[0], samples, PIXELS))
        time = jax.random.uniform(time_key, (latents.shape[0], samples, 1))
        inputs = Mixed(jnp.broadcast_to(image, noise.shape), noise, time)
        return inputs, inputs.image - noise

    def targets(self, content, latent, inputs):
        return inputs.image - inputs.noise

    def observe(self, content, inputs):
        mixed = (1 - inputs.time) * inputs.noise + inputs.time * inputs.image
        return jnp.concatenate([mixed, inputs.time], axis=-1)

    def loss(self, answers, targets):
        return jnp.mean((answers - targets) ** 2)

    def score(self, answers, targets):
        return {"error": self.loss(answers, targets), "variance": jnp.mean(jnp.var(targets, 0))}

    def summary(self, scores: Mapping[str, Any]):
        ratio = 1 - total(scores["error"]) / total(scores["variance"])
        return {"": ratio, "error": mean(scores["error"])}

    def demonstrations(self, content, latent, key, shots):
        picture = jnp.tile(self.picture(content, latent), (shots, 1))
        return picture, picture[:, :0]

    @property
    def demonstration_size(self) -> int:
        return PIXELS

    def bucket(self):
        modules, active = bucket_sizes(self.modules, self.active)
        return replace(self, modules=modules, active=active)


DIT = DiT(depth=1, width=32, heads=2, patch=2, draws="velocity")
# Most of this is about the learner: a network that is compiled quickly will do.
TINY = Flow(
    family=Squares(),
    model=MLP(width=16, depth=1),
    training_steps=60,
    tasks=16,
    samples=4,
    learning_rate=3e-3,
    evaluation_every=60,
    evaluation_tasks=128,
)


def population(*learners, steps=None):
    trained = Population(learners, [one.prepare({}) for one in learners], "float32")
    trained.compile()
    trained.evaluate()
    return continued(trained, steps)


def continued(trained, steps=None):
    while trained.running() and (steps is None or trained.t < steps):
        trained.chunk(steps or trained.steps)
    trained.evaluate()
    return trained


def states(trained):
    whole = trained.host_state()
    return [jax.tree.map(lambda leaf, i=i: leaf[i], whole) for i in range(trained.size)]


def prepared(learner):
    arrays = jax.tree.map(jnp.asarray, learner.prepare({}).merged())
    state = jax.tree.map(
        lambda a: a[0], Population([learner], [learner.prepare({})], "float32").state
    )
    return learner.program(), arrays, state


def test_it_keeps_the_contract_of_learners_with_a_network_that_draws():
    check_learner(replace(TINY, model=DIT))


def test_its_first_network_can_be_looked_at_without_training():
    drawn = AsDrawn(replace(TINY, model=DIT))
    drawn.check()
    state = drawn.program().init(drawn.prepare({}).merged(), jax.random.key(0))
    assert not np.any(drawn.weights(state)["output/weight"])


def test_the_average_is_the_one_written_out_by_hand():
    learner = replace(TINY, average=0.5)
    program, arrays, state = prepared(learner)
    step, by_hand = jax.jit(program.step), jax.tree.map(np.float64, state.model)
    for t in range(25):
        state, _ = step(arrays, state, jnp.int32(t))
        kept = min(0.5, (1 + t) / (10 + t))
        by_hand = jax.tree.map(
            lambda old, new, a=kept: a * old + (1 - a) * np.float64(new), by_hand, state.raw
        )
    for one, two in zip(*map(jax.tree.leaves, (state.model, by_hand)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
    assert not np.allclose(state.model.output.weight, state.raw.output.weight, atol=1e-4)


def test_without_average_and_blanks_it_is_supervised_learning():
    flow = replace(TINY, blank=0.0, average=0.0)
    fields = {k: v for k, v in vars(flow).items() if k not in ("blank", "average")}
    ends = []
    for learner in (flow, Supervised(**fields)):
        program, arrays, state = prepared(learner)
        step = jax.jit(program.step)
        for t in range(10):
            state, _ = step(arrays, state, jnp.int32(t))
        ends.append(learner.weights(state))
    for path, weight in ends[1].items():
        np.testing.assert_allclose(ends[0][path], weight, rtol=0, atol=1e-6, err_msg=path)


def test_the_averaged_network_is_what_is_kept_evaluated_and_answers():
    learner = replace(TINY, model=DIT)
    program, arrays, state = prepared(learner)
    step = jax.jit(program.step)
    for t in range(12):
        state, _ = step(arrays, state, jnp.int32(t))
    kept = learner.weights(jax.device_get(state))
    np.testing.assert_array_equal(kept["output/weight"], state.model.output.weight)
    evaluate = jax.jit(program.evaluate)
    own, swapped = (
        evaluate(arrays, state._replace(**change))
        for change in ({"raw": state.model}, {"model": state.raw})
    )
    plain = evaluate(arrays, state)
    assert {name: float(v) for name, v in own.items()} == {n: float(v) for n, v in plain.items()}
    assert float(swapped["seen_error"]) != float(plain["seen_error"])
    subject = learner.subject(kept)
    batch = subject.draw(subject.support.seen, "test")
    seen = program.family.observe(arrays["family"], batch.inputs)
    np.testing.assert_allclose(
        subject.answer(batch), state.model(batch.codes, seen), rtol=1e-4, atol=1e-5
    )
    found = subject.activations(batch)
    assert sorted(found) == ["code", "condition", "layer1/after", "output"]
    assert found["condition"].shape == (len(batch.codes), 32)


@pytest.mark.parametrize("blank", [0.0, 0.1, 0.5])
def test_the_asked_share_of_tasks_is_hidden_and_nothing_else_changes(blank):
    learner = replace(TINY, blank=blank, tasks=500, encoding=Orthogonal())
    program, arrays, _ = prepared(learner)
    drawn = jax.jit(jax.vmap(program.draw, in_axes=(None, 0)))(arrays, jnp.arange(20))
    hidden = ~np.any(np.asarray(drawn.codes), axis=-1)
    spread = np.sqrt(blank * (1 - blank) / hidden.size)
    assert abs(hidden.mean() - blank) <= 4 * spread
    told = {**arrays, "blank": jnp.float32(0)}
    plain = jax.jit(jax.vmap(program.draw, in_axes=(None, 0)))(told, jnp.arange(20))
    np.testing.assert_array_equal(drawn.codes[~hidden], plain.codes[~hidden])
    assert np.all(np.any(np.asarray(plain.codes), axis=-1))
    others = jax.tree.leaves((drawn._replace(codes=()), plain._replace(codes=())))
    half = len(others) // 2
    for one, two in zip(others[:half], others[half:], strict=True):
        np.testing.assert_array_equal(one, two)
    if blank == 0.5:  # other tasks at every step
        assert not np.array_equal(hidden[0], hidden[1])


MEMBERS = (
    TINY,
    replace(TINY, blank=0.5, average=0.9, seeds=Seeds.all(1)),
    replace(TINY, family=Squares(modules=3), learning_rate=1e-3),
)


@pytest.fixture(scope="module")
def stacked():
    return states(population(*MEMBERS))


def test_members_that_differ_in_seed_size_blank_and_average_learn_what_they_learn_alone(stacked):
    assert len({one.program() for one in MEMBERS}) == 1
    for learner, together in zip(MEMBERS, stacked, strict=True):
        alone = learner.weights(states(population(learner))[0])
        for path, weight in learner.weights(together).items():
            np.testing.assert_allclose(weight, alone[path], atol=2e-5, err_msg=path)


def test_a_member_that_diverges_keeps_finite_weights_and_leaves_its_mates_alone(stacked):
    broken, *mates = states(population(replace(TINY, learning_rate=1e30), *MEMBERS[1:]))
    assert 0 <= broken.diverged_at < TINY.steps
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(broken.model))
    for one, two in zip(*map(jax.tree.leaves, (mates, stacked[1:])), strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_finished_member_and_its_average_stay_as_they_are():
    program, arrays, state = prepared(TINY)
    step = jax.jit(program.step)
    state, _ = step(arrays, state, jnp.int32(TINY.steps - 1))
    later, _ = step(arrays, state, jnp.int32(TINY.steps))
    for name in ("model", "raw"):
        before, after = (jax.tree.leaves(getattr(one, name)) for one in (state, later))
        assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))


def test_a_run_stopped_and_resumed_ends_with_the_same_state():
    whole, half = population(TINY), population(TINY, steps=30)
    saved, curves = named(half.host_state()), half.curves.tensors()
    resumed = Population([TINY], [TINY.prepare({})], "float32")
    resumed.compile()
    resumed.restore(unnamed(saved, resumed.host_state()), 30, Curves.from_tensors(curves))
    continued(resumed)
    for one, two in zip(*(jax.tree.leaves(p.host_state()) for p in (whole, resumed)), strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_tiny_network_learns_to_draw_what_it_is_told():
    learner = replace(
        TINY, model=DIT, training_steps=400, tasks=32,
        learning_rate=1e-2, schedule="cosine", average=0.98, evaluation_every=400,
    )  # fmt: skip
    trained = population(learner)
    before, after = (float(point[0]) for point in trained.curves.evaluations["seen_error"])
    # An untrained network says zero: wrong by the noise (1) and by the picture.
    assert before > 1.2
    assert after < 0.2 * before
    subject = learner.subject(learner.weights(states(trained)[0]))
    batch = subject.draw(subject.support.seen, "test")
    pictures = np.asarray(batch.inputs.image)[:, 0]
    drawn = sample(
        subject.model, jnp.asarray(batch.codes), jax.random.key(0), steps=16, pixels=PIXELS,
        method="heun", guidance=1.5,
    )  # fmt: skip
    apart = np.mean((np.asarray(drawn)[:, None] - pictures) ** 2, axis=-1)
    np.testing.assert_array_equal(apart.argmin(axis=1), np.arange(len(pictures)))
    assert np.diagonal(apart).mean() < 0.15 * pictures.var()


def test_generators_of_scenes_and_no_others_are_judged_along_training():
    scenes = Scenes(modules=4, active=2, size=16, cells=2, shapes=2, colours=2)
    drawing = DiT(depth=1, width=16, heads=2, patch=8)
    learner = replace(TINY, family=scenes, model=drawing, samples=2, training_steps=10)
    names = {"seen_success", "unseen_success"}
    assert not names & set(population(TINY, steps=10).curves.evaluations)
    found = population(learner).curves.evaluations
    assert names <= set(found)
    for name in names:
        assert [float(value[0]) for value in found[name]] == [0.0, 0.0]  # noise, before and after


def test_success_along_training_is_the_share_of_quick_pictures_a_judge_finds_right(monkeypatch):
    """Pictures are rendered to order: one in four of seen requests, and every unseen one."""
    scenes = Scenes(modules=4, active=2, size=16, cells=2, shapes=2, colours=2)
    drawing = DiT(depth=1, width=16, heads=2, patch=8)
    learner = replace(TINY, family=scenes, model=drawing, samples=2)
    program, arrays, state = prepared(learner)
    asked, share = [], iter((0.25, 1.0))

    def to_order(network, codes, key, *, pixels, guidance, dtype, steps):
        assert network is state.model and (pixels, guidance, dtype) == (768, 2.0, jnp.float32)
        asked.append(np.asarray(codes))
        right = np.arange(len(codes)) < next(share) * len(codes)
        drawn = scenes.examples(arrays["family"], codes, key)
        return jnp.where(right[:, None], drawn, -drawn)

    monkeypatch.setattr(flow, "sample", to_order)
    found = program.evaluate(arrays, state)
    assert (float(found["seen_success"]), float(found["unseen_success"])) == (0.25, 1.0)
    support = learner.subject(learner.weights(state)).support
    for codes, pool in zip(asked, (support.seen, support.held_out), strict=True):
        ranks = {int(scenes.space.rank(np.flatnonzero(code)[None])[0]) for code in codes}
        assert ranks == set(pool.tolist())


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"blank": 1.0}, "blank must be a number from 0 to below 1, got 1.0"),
        ({"average": -0.1}, "average must be a number from 0 to below 1"),
        ({"average": "slow"}, "average must be a number"),
        ({"model": DiT(patch=3)}, "4 x 4 pixels do not divide into patches of 3 x 3"),
        ({"training_steps": 0}, "training_steps=0: expected a whole number"),
    ],
)
def test_an_impossible_request_is_refused_before_anything_compiles(wrong, sentence):
    TINY.check()
    with pytest.raises(InvalidRequest, match=sentence):
        replace(TINY, **wrong).check()
