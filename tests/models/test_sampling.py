"""Following a flow: exact Gaussian flows reach their closed form at the right order."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array

from recombine.errors import InvalidRequest
from recombine.models.diffusion import DiT
from recombine.models.sampling import sample, sample_path

pytestmark = pytest.mark.usefixtures("strict_types")

PIXELS, CODE = 6, 3
asked = []  # the shapes of what networks were asked while a program was traced


class Gaussian(eqx.Module):
    """The exact velocity towards images of law N(code @ means, spread²): E[image - noise | x_t]."""

    means: Array
    spread: Array

    def __call__(self, code, x, dtype):
        asked.append(x.shape)
        image, t, mean = x[..., :-1], x[..., -1:], (code @ self.means)[:, None]
        pull = (t * self.spread**2 - (1 - t)) / ((1 - t) ** 2 + (t * self.spread) ** 2)
        return mean + pull * (image - t * mean)


def exact(spread=0.4, seed=0):
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(CODE, PIXELS)).astype(np.float32)
    return Gaussian(jnp.asarray(means), jnp.float32(spread))


CODES = jnp.asarray(np.random.default_rng(1).normal(size=(40, CODE)).astype(np.float32))


def errors(method, numbers, spread=0.4, guidance=1.0):
    """How far images end from where the flow takes their noise: its mean + spread x noise."""
    network, found = exact(spread), []
    for steps in numbers:
        noise, images = sample_path(
            network, CODES, jax.random.key(0), steps=steps, pixels=PIXELS, times=(0, 1),
            method=method, guidance=guidance,
        )  # fmt: skip
        right = guidance * np.asarray(CODES @ network.means) + spread * np.asarray(noise)
        found.append(np.sqrt(np.mean((np.asarray(images) - right) ** 2)))
    return np.array(found)


@pytest.mark.parametrize(("method", "factor"), [("euler", 2), ("heun", 4)])
def test_the_error_of_a_method_falls_at_its_order(method, factor):
    found = errors(method, (16, 32, 64))
    np.testing.assert_allclose(found[:-1] / found[1:], factor, rtol=0.15)
    assert found[-1] < 0.02


def test_samples_have_the_mean_and_spread_of_their_law():
    network, code = exact(spread=0.3), CODES[:1]
    images = sample(
        network, jnp.tile(code, (4_000, 1)), jax.random.key(3), steps=64, pixels=PIXELS,
        method="heun",
    )  # fmt: skip
    error = 0.3 / np.sqrt(4_000)
    np.testing.assert_allclose(images.mean(axis=0), (code @ network.means)[0], atol=5 * error)
    np.testing.assert_allclose(images.std(axis=0), 0.3, rtol=0.06)


@given(st.sampled_from([0.0, 0.5, 1.0, 2.5]), st.sampled_from([0.2, 1.0]))
@settings(max_examples=8)
def test_guidance_moves_the_mean_away_from_that_of_the_blank_code(guidance, spread):
    # The velocity is linear in the mean, and the blank code has none: the mean is stretched.
    assert errors("heun", (32,), spread, guidance)[0] < 0.02


def test_guidance_asks_for_both_in_one_batch_and_no_guidance_for_one_only():
    rows = {}
    for guidance in (0.0, 1.0, 3.0):
        asked.clear()
        sample(exact(), CODES[:7], jax.random.key(0), steps=3, pixels=PIXELS, guidance=guidance)
        rows[guidance] = [*asked]
    assert rows == {g: [(n, 1, PIXELS + 1)] for g, n in ((0.0, 7), (1.0, 7), (3.0, 14))}
    asked.clear()
    sample(exact(), CODES[:7], jax.random.key(0), steps=3, pixels=PIXELS, guidance=5.0)
    assert asked == []  # another strength is the same program


def test_images_follow_from_the_key_alone():
    draw = jax.jit(lambda key: sample(exact(), CODES, key, steps=4, pixels=PIXELS, guidance=2.0))
    first, again, other = (draw(jax.random.key(seed)) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1


def test_a_path_begins_as_noise_and_ends_as_the_image():
    given_ = {"steps": 8, "pixels": PIXELS, "method": "heun"}
    network, key = exact(), jax.random.key(2)
    path = sample_path(network, CODES, key, times=(0, 0.5, 0.26, 1, 1), **given_)
    assert path.shape == (5, 40, PIXELS)
    np.testing.assert_array_equal(path[0], jax.random.normal(key, (40, PIXELS)))
    np.testing.assert_array_equal(path[3], sample(network, CODES, key, **given_))
    np.testing.assert_array_equal(path[4], path[3])
    # Half-way an image of this flow is mean/2 plus noise of sqrt(.5² + (.5 x spread)²).
    half = path[1] - 0.5 * CODES @ network.means
    np.testing.assert_allclose(half, np.sqrt(0.25 + 0.04) * np.asarray(path[0]), atol=0.05)
    quarter = path[2] - 0.25 * CODES @ network.means  # 0.26 is nearest to step 2 of 8
    np.testing.assert_allclose(quarter, np.sqrt(0.5625 + 0.01) * np.asarray(path[0]), atol=0.05)


def test_a_network_that_says_nothing_leaves_the_noise_as_it_is():
    spec = DiT(depth=1, width=8, heads=1, patch=2, draws="velocity")
    network = spec.draw(jax.random.key(0), code=CODE, inputs=49, outputs=48)
    key = jax.random.key(1)
    for dtype in ("float32", "bfloat16"):
        images = sample(
            network, CODES, key, steps=2, pixels=48, guidance=2.0, dtype=jnp.dtype(dtype)
        )
        np.testing.assert_array_equal(images, jax.random.normal(key, (40, 48)))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"method": "heunn"}, "did you mean 'heun'"),
        ({"steps": 0}, "steps of at least 1, got 0"),
        ({"times": (0.5, 1.5)}, r"from 0 \(noise\) to 1 \(image\), got \(0.5, 1.5\)"),
        ({"times": ()}, "from 0"),
    ],
)
def test_an_impossible_path_is_refused(wrong, sentence):
    request = {"steps": 2, "pixels": PIXELS, "times": (1.0,), **wrong}
    with pytest.raises(InvalidRequest, match=sentence):
        sample_path(exact(), CODES, jax.random.key(0), **request)
