"""The additive teacher against its definition, computed plainly in numpy."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.errors import InvalidRequest
from recombine.families import check_family
from recombine.families.additive import Additive

pytestmark = pytest.mark.usefixtures("strict_types")


def plain_teacher(content, latent, x, active):
    """Every module answers alone, in double precision; their answers are added."""
    exact = {name: np.asarray(array, np.float64) for name, array in content.items()}
    phi = np.maximum(np.asarray(x, np.float64) @ exact["features"] + exact["bias"], 0)
    answers = [z * (phi @ omega) for z, omega in zip(latent, exact["omega"], strict=True)]
    return np.sum(answers, axis=0) / math.sqrt(active)


@pytest.mark.parametrize(
    "family",
    [
        Additive(),
        Additive(modules=5, active=2, input_units=3, features=7, output_units=2, weights="khot"),
        Additive(modules=20, active=5, weights="continuous"),
    ],
    ids=lambda family: f"{family.modules}-{family.active}-{family.weights}",
)
def test_the_additive_teacher_keeps_the_contract_of_families(family):
    check_family(family)


@pytest.mark.parametrize("active", [1, 3])
def test_targets_are_the_sum_of_what_the_modules_answer(active):
    family = Additive(modules=6, active=active, input_units=7, features=5, output_units=4)
    content = family.content(jax.random.key(0))
    z = family.latent(jax.random.key(1), jnp.arange(6) < active)
    x = family.inputs(jax.random.key(2), 20)
    expected = plain_teacher(content, np.asarray(z), x, active)
    np.testing.assert_allclose(family.targets(content, z, x), expected, rtol=1e-5, atol=1e-5)


def test_answers_to_a_combination_are_answers_to_its_parts_added():
    family = Additive(modules=8, active=3)
    content = family.content(jax.random.key(0))
    x = family.inputs(jax.random.key(1), 16)
    parts = [jnp.zeros(8).at[m].set(w) for m, w in ((1, 0.5), (4, 0.8), (7, 1.0))]
    together = family.targets(content, parts[0] + parts[1] + parts[2], x)
    alone = sum(np.asarray(family.targets(content, part, x)) for part in parts)
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-5)


def test_module_weights_have_the_hyperteachers_law():
    content = Additive(modules=400, active=2).content(jax.random.key(0))
    omega = np.asarray(content["omega"])
    assert omega.shape == (400, 16, 16)
    assert omega.var() == pytest.approx(math.sqrt(3) / 16, rel=0.02)
    assert np.asarray(content["bias"]).min() >= 0


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"active": 9, "modules": 8}, "active=9 of modules=8"),
        ({"weights": "discret"}, "did you mean 'discrete'"),
        ({"features": 0}, "sizes of at least 1"),
    ],
)
def test_an_impossible_teacher_is_refused_before_any_work(wrong, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        Additive(**wrong).check()
