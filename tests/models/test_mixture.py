"""What attention mixes, and its own way back, beside the plain formula and its derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.models.attention import mixture


def plain(scores, values, allowed):
    weights = jax.nn.softmax(jnp.where(allowed, scores, -1e30))
    weights = jnp.where(allowed, weights, 0.0)
    return jnp.einsum("...qk,...kd->...qd", weights, values, precision="highest")


def drawn(dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(0), 4)
    scores = 3 * jax.random.normal(keys[0], (2, 3, 5, 7))
    values = jax.random.normal(keys[1], (2, 3, 7, 4)).astype(dtype)
    allowed = jax.random.bernoulli(keys[2], 0.6, (2, 1, 5, 7))
    allowed = allowed.at[:, :, 1].set(False)  # a query that may look at nothing
    return scores, values, allowed, jax.random.normal(keys[3], (2, 3, 5, 4)).astype(dtype)


def test_a_mixture_and_its_gradients_are_those_of_the_plain_formula():
    scores, values, allowed, change = drawn()
    got, back = jax.vjp(lambda s, v: mixture(s, v, allowed), scores, values)
    expected, plainly_back = jax.vjp(lambda s, v: plain(s, v, allowed), scores, values)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    for one, other in zip(back(change), plainly_back(change), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_in_half_precision_a_mixture_is_as_close_as_its_numbers_allow():
    scores, values, allowed, change = drawn(jnp.bfloat16)
    exact = jax.vjp(lambda s, v: plain(s, v, allowed), scores, values.astype(jnp.float32))
    got, back = jax.vjp(lambda s, v: mixture(s, v, allowed), scores, values)
    assert got.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(got, np.float32), exact[0], atol=0.03)
    for one, other in zip(back(change), exact[1](change.astype(jnp.float32)), strict=True):
        np.testing.assert_allclose(np.asarray(one, np.float32), other, atol=0.05)


@pytest.mark.parametrize("large", [1e4, -1e4])
def test_large_scores_neither_overflow_nor_vanish(large):
    scores, values, allowed, change = drawn()
    got, back = jax.vjp(lambda s, v: mixture(s + large, v, allowed), scores, values)
    np.testing.assert_allclose(got, plain(scores, values, allowed), atol=0.01)
    assert all(np.isfinite(one).all() for one in back(change))


def test_a_query_that_may_look_at_nothing_adds_nothing_and_learns_nothing():
    scores, values, allowed, change = drawn()
    got, back = jax.vjp(lambda s, v: mixture(s, v, allowed), scores, values)
    assert not got[:, :, 1].any()
    assert not back(change)[0][:, :, 1].any()
