"""The hyperteacher against its published definition, computed plainly in numpy."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.families import Hyperteacher
from recombine.trees import next_bucket, pad_to

pytestmark = pytest.mark.usefixtures("strict_types")


def plain_teacher(content, latent, x, active):
    """The equations of the paper, in double precision, one module at a time."""
    layers = sum(name.startswith("theta") for name in content)
    z = np.asarray(latent, np.float64) / math.sqrt(active)
    h = np.asarray(x, np.float64)
    for layer in range(layers):
        theta = np.asarray(content[f"theta{layer}"], np.float64)
        beta = np.asarray(content[f"beta{layer}"], np.float64)
        weight = np.einsum("m,mih->ih", z, theta)
        h = np.maximum(np.einsum("ih,si->sh", weight, h) + np.einsum("m,mh->h", z, beta), 0)
    return h @ np.asarray(content["omega"], np.float64)


@pytest.mark.parametrize("hidden", [(16,), (5,), (12, 9), (8, 8, 8)])
@pytest.mark.parametrize("active", [1, 3])
def test_targets_are_the_published_equations(hidden, active):
    family = Hyperteacher(modules=6, active=active, input_units=7, hidden=hidden, output_units=4)
    content = family.content(jax.random.key(0))
    z = family.latent(jax.random.key(1), jnp.arange(6) < active)
    x = family.inputs(jax.random.key(2), 20)
    expected = plain_teacher(content, z, x, active)
    np.testing.assert_allclose(family.targets(content, z, x), expected, rtol=1e-5, atol=1e-5)


def test_weights_are_divided_by_the_root_of_the_familys_k_whatever_the_task_uses():
    small, large = Hyperteacher(modules=8, active=1), Hyperteacher(modules=8, active=4)
    one_module = jnp.zeros(8).at[2].set(0.8)
    x = small.inputs(jax.random.key(3), 10)
    by_1, by_4 = (
        np.asarray(family.targets(family.content(jax.random.key(0)), one_module, x))
        for family in (small, large)
    )
    # One hidden layer is positively homogeneous in z: half the weights, half the answers.
    np.testing.assert_allclose(by_4, by_1 / 2, rtol=1e-5, atol=1e-6)


def test_module_weights_have_the_published_law():
    family = Hyperteacher(modules=400, active=2)
    content = family.content(jax.random.key(0))
    variance = math.sqrt(3) / 16
    deviation = math.sqrt(variance) / 0.8796256610
    theta, beta = np.asarray(content["theta0"]), np.asarray(content["beta0"])
    assert theta.shape == (400, 16, 16)
    assert theta.var() == pytest.approx(variance, rel=0.02)
    assert abs(theta.mean()) < 0.01
    assert np.abs(theta).max() <= 2 * deviation * (1 + 1e-6)
    assert np.abs(theta).max() > 1.95 * deviation  # cut there, not well inside
    assert beta.min() >= 0 and beta.max() < 0.5
    assert beta.mean() == pytest.approx(0.25, rel=0.02)
    # Drawn from keys of their own: the published code reused one.
    ranks = np.argsort(theta[:, 0, :].ravel()), np.argsort(beta.ravel())
    assert abs(np.corrcoef(*ranks)[0, 1]) < 0.05


def test_the_shared_output_matrix_and_deeper_banks_use_their_own_fan_in():
    content = Hyperteacher(
        modules=64, active=2, input_units=4, hidden=(64, 16), output_units=512
    ).content(jax.random.key(0))
    for name, fan_in in (("theta0", 4), ("theta1", 64), ("omega", 16)):
        assert np.asarray(content[name]).var() == pytest.approx(math.sqrt(3) / fan_in, rel=0.05)


def draws(law, tasks=4000):
    family = Hyperteacher(modules=16, active=3, weights=law)
    chosen = family.space.indicator(np.arange(tasks) % family.space.size)
    keys = jax.random.split(jax.random.key(0), tasks)
    return np.asarray(jax.vmap(family.latent)(keys, jnp.asarray(chosen))), chosen


def test_discrete_weights_are_six_equally_likely_tenths():
    latents, chosen = draws("discrete")
    values, counts = np.unique(latents[chosen], return_counts=True)
    np.testing.assert_allclose(values, [0.5, 0.6, 0.7, 0.8, 0.9, 1.0], atol=1e-6)
    assert values[-1] == 1.0  # exactly: encodings treat it apart
    np.testing.assert_allclose(counts / counts.sum(), 1 / 6, atol=0.02)
    assert not latents[~chosen].any()
    # Independent from module to module: two active modules agree one time in six.
    pairs = latents[chosen.sum(axis=1) == 2]
    two = pairs[pairs > 0].reshape(-1, 2)
    assert np.mean(np.isclose(*two.T)) == pytest.approx(1 / 6, abs=0.06)


def test_khot_weights_are_one():
    latents, chosen = draws("khot", tasks=700)
    np.testing.assert_array_equal(latents, chosen.astype(np.float32))


def test_continuous_weights_fill_the_upper_half_and_share_a_sum():
    latents, chosen = draws("continuous")
    values = latents[chosen]
    assert values.min() >= 0.5 and values.max() < 1
    assert np.unique(values).size > 0.99 * values.size
    # w = e / (sum e + 1): the shares 2z - 1 of a task always sum to less than one.
    shares = np.where(chosen, 2 * latents - 1, 0).sum(axis=1)
    assert shares.max() < 1
    # With one module w = e / (e + 1), of mean 1 - integral of exp(-e)/(1+e) = .4037.
    alone = values[np.repeat(chosen.sum(axis=1), chosen.sum(axis=1)) == 1]
    assert (2 * alone - 1).mean() == pytest.approx(0.4037, abs=0.06)


def test_inputs_are_uniform_between_minus_one_and_one():
    x = np.asarray(Hyperteacher().inputs(jax.random.key(0), 20_000))
    assert x.min() >= -1 and x.max() < 1
    assert x.var() == pytest.approx(1 / 3, rel=0.02)
    assert abs(x.mean()) < 0.01


def test_both_forms_of_r2_agree_with_plain_sums():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(9, 16, 5)).astype(np.float32) * rng.uniform(0.1, 3, size=(9, 1, 5))
    y = y.astype(np.float32)
    guess = (y + 0.3 * rng.normal(size=y.shape)).astype(np.float32)
    scores = jax.vmap(Hyperteacher().score)(guess, y)
    ratios, error, total = [], 0.0, 0.0
    for t in range(9):
        for o in range(5):
            base = np.mean((y[t, :, o] - y[t, :, o].mean()) ** 2, dtype=np.float64)
            squares = (guess[t, :, o].astype(np.float64) - y[t, :, o]) ** 2
            ratios.append(np.mean(1 - squares / base))
            error, total = error + squares.mean(), total + base
    assert float(jnp.mean(scores["r2"])) == pytest.approx(np.mean(ratios), rel=1e-4)
    robust = 1 - float(scores["error"].sum()) / float(scores["variance"].sum())
    assert robust == pytest.approx(1 - error / total, rel=1e-4)


def test_a_nearly_constant_output_ruins_the_published_r2_and_not_the_robust_one():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(16, 4)).astype(np.float32)
    y[:, 0] *= 1e-3
    score = Hyperteacher().score(jnp.asarray(y) + 0.1, jnp.asarray(y))
    assert float(score["r2"]) < -100
    assert 1 - float(score["error"] / score["variance"]) > 0.9


@given(modules=st.integers(2, 60), active=st.integers(1, 6), wide=st.booleans())
@settings(max_examples=30)
def test_a_bucket_holds_the_family_and_is_its_own_bucket(modules, active, wide):
    family = Hyperteacher(modules=max(modules, active), active=active, hidden=(16,) * (1 + wide))
    bucket = family.bucket()
    assert bucket.modules >= family.modules and bucket.active >= family.active
    assert bucket.bucket() == bucket
    assert replace(bucket, modules=family.modules, active=family.active) == family


def test_latents_do_not_depend_on_the_padding_of_the_modules():
    key = jax.random.key(5)
    for law in ("discrete", "continuous"):
        family = Hyperteacher(modules=12, active=3, weights=law)
        chosen = jnp.arange(12) % 5 == 1
        small = family.latent(key, chosen)
        large = family.bucket().latent(key, jnp.pad(chosen, (0, 4)))
        np.testing.assert_array_equal(np.pad(np.asarray(small), (0, 4)), np.asarray(large))


def test_padding_grows_with_zeros_and_ranks_with_no_rank():
    tree = {"a": np.ones((2, 3), np.float32), "ranks": np.zeros(2, np.uint32)}
    shapes = {
        "a": jax.ShapeDtypeStruct((3, 4), np.float32),
        "ranks": jax.ShapeDtypeStruct((3,), np.uint32),
    }
    grown = pad_to(tree, shapes)
    assert grown["a"].sum() == 6 and grown["a"].shape == (3, 4)
    assert grown["ranks"].tolist() == [0, 0, 2**32 - 1]


def test_a_size_beyond_the_last_bucket_keeps_itself():
    assert next_bucket(65, (16, 32, 64)) == 65
    assert next_bucket(17, (16, 32, 64)) == 32


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"active": 9, "modules": 8}, "active=9 of modules=8"),
        ({"weights": "discret"}, "did you mean 'discrete'"),
        ({"hidden": ()}, "sizes of at least 1"),
        ({"output_units": 0}, "sizes of at least 1"),
    ],
)
def test_an_impossible_teacher_is_refused_before_any_work(wrong, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        Hyperteacher(**wrong).check()
