"""The MLP and its layers: sizes, initial law, wrappers, and activations that agree with answers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine._lazy import load
from recombine.errors import InvalidRequest
from recombine.lab.identity import canonical, revive
from recombine.models import (
    MLP,
    REGISTRY,
    Linear,
    LowRank,
    Mask,
    count_parameters,
    named_layers,
    wrap,
)

pytestmark = pytest.mark.usefixtures("strict_types")

SIZES = {"code": 5, "inputs": 4, "outputs": 3}


@pytest.fixture(scope="module")
def model():
    with jax.numpy_dtype_promotion("strict"):
        return MLP(width=24, depth=3).draw(jax.random.key(0), **SIZES)


@pytest.fixture(scope="module")
def told():
    rng = np.random.default_rng(0)
    draw = (rng.normal(size=5), rng.normal(size=(7, 4)))
    return tuple(jnp.asarray(a.astype(np.float32)) for a in draw)


def plain_answers(model, code, x):
    """The network as one would write it, over the concatenated [code, input], in doubles."""
    exact = jax.tree.map(lambda a: np.asarray(a, np.float64), model)
    weight = np.concatenate([exact.first.task.weight, exact.first.input.weight])
    rows = np.concatenate([np.tile(np.asarray(code), (len(x), 1)), np.asarray(x)], axis=1)
    h = np.maximum(rows @ weight + exact.first.input.bias, 0)
    for layer in exact.hidden:
        h = np.maximum(h @ layer.weight + layer.bias, 0)
    return h @ exact.output.weight + exact.output.bias


@pytest.mark.parametrize(
    ("width", "depth", "expected"),
    [(1024, 4, 3_198_992), (128, 2, 22_800), (2048, 4, 12_689_424)],
)
def test_the_numbers_of_parameters_are_the_published_ones(width, depth, expected):
    spec = MLP(width=width, depth=depth)
    assert spec.parameters(code=16, inputs=16, outputs=16) == expected
    drawn = jax.eval_shape(lambda: spec.draw(jax.random.key(0), code=16, inputs=16, outputs=16))
    assert count_parameters(drawn) == expected


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=25)
def test_a_drawn_model_has_as_many_parameters_as_its_spec_says(width, depth, code, outputs):
    spec = MLP(width=width, depth=depth)
    sizes = {"code": code, "inputs": 3, "outputs": outputs}
    drawn = jax.eval_shape(lambda: spec.draw(jax.random.key(0), **sizes))
    assert count_parameters(drawn) == spec.parameters(**sizes)
    assert len(named_layers(drawn)) == depth + 2


def test_splitting_the_first_layer_equals_one_matrix_over_code_and_input(model, told):
    np.testing.assert_allclose(model(*told), plain_answers(model, *told), rtol=1e-5, atol=1e-5)


def test_a_batch_of_tasks_gives_what_each_task_gives_alone(model, told):
    codes = jnp.stack([told[0], -told[0], 2 * told[0]])
    inputs = jnp.stack([told[1], told[1][::-1], -told[1]])
    together, seen = model(codes, inputs), model.activations(codes, inputs)
    for i in range(3):
        alone = model(codes[i], inputs[i])
        np.testing.assert_allclose(together[i], alone, rtol=1e-5, atol=1e-6)
        for name, values in model.activations(codes[i], inputs[i]).items():
            np.testing.assert_allclose(seen[name][i], values, rtol=1e-5, atol=1e-6)
    after = seen["layer2/after"]
    np.testing.assert_allclose(model.continue_from(2, after), together, rtol=1e-5, atol=1e-6)


def test_initial_weights_follow_lecuns_law_with_the_fan_in_of_both_parts():
    model = MLP(width=512, depth=2).draw(jax.random.key(1), code=32, inputs=16, outputs=16)
    for path, fan_in in (("first/task", 48), ("first/input", 48), ("hidden/0", 512)):
        weight = np.asarray(named_layers(model)[path].weight)
        assert weight.var() == pytest.approx(1 / fan_in, rel=0.05)
        assert np.abs(weight).max() <= 2 / np.sqrt(fan_in) / 0.8796 * 1.001
    biases = [layer.bias for layer in named_layers(model).values() if layer.bias is not None]
    assert all(not np.any(bias) for bias in biases)
    assert model.first.task.bias is None  # one bias for the one first layer
    drawn = [np.asarray(layer.weight).ravel()[:200] for layer in named_layers(model).values()]
    assert np.abs(np.corrcoef(drawn) - np.eye(len(drawn))).max() < 0.5  # no key used twice


def test_activations_agree_with_the_answers(model, told):
    seen = model.activations(*told)
    np.testing.assert_allclose(seen["output"], model(*told), rtol=1e-6, atol=1e-6)
    names = [f"layer{n}/{when}" for n in (1, 2, 3) for when in ("before", "after")]
    assert sorted(seen) == sorted([*names, "output"])
    for n in (1, 2, 3):
        before, after = seen[f"layer{n}/before"], seen[f"layer{n}/after"]
        assert before.shape == (7, 24)
        np.testing.assert_array_equal(np.maximum(before, 0), after)


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_continuing_from_a_layers_own_activations_gives_the_answers(model, told, layer):
    after = model.activations(*told)[f"layer{layer}/after"]
    np.testing.assert_allclose(
        model.continue_from(layer, after), model(*told), rtol=1e-6, atol=1e-6
    )
    silent = model.continue_from(layer, jnp.zeros_like(after))
    assert not np.allclose(silent, model(*told))


def test_half_precision_is_close_to_full(model, told):
    full, half = model(*told), model(*told, jnp.dtype("bfloat16"))
    assert half.dtype == jnp.float32
    assert 0 < np.abs(half - full).max() < 0.05 * np.abs(full).max()


def test_a_mask_of_ones_and_an_empty_correction_change_nothing(model, told):
    ones = {path: Mask(jnp.ones_like(layer.weight)) for path, layer in named_layers(model).items()}
    zero = {
        path: LowRank(jnp.ones((layer.weight.shape[0], 2)), jnp.zeros((2, layer.weight.shape[1])))
        for path, layer in named_layers(model).items()
    }
    for wrappers in (ones, zero):
        np.testing.assert_array_equal(wrap(model, wrappers)(*told), model(*told))


def test_wrappers_change_the_layer_they_sit_on_and_no_other(model, told):
    rng = np.random.default_rng(1)
    keep = (rng.uniform(size=(24, 24)) < 0.5).astype(np.float32)
    down, up = (rng.normal(size=shape).astype(np.float32) for shape in ((24, 2), (2, 3)))
    correction = LowRank(jnp.asarray(down), jnp.asarray(up))
    wrapped = wrap(model, {"hidden/1": Mask(jnp.asarray(keep)), "output": correction})
    second = Linear(model.hidden[1].weight * keep, model.hidden[1].bias)
    output = Linear(model.output.weight + down @ up, model.output.bias)
    by_hand = type(model)(model.first, (model.hidden[0], second), output)
    np.testing.assert_allclose(wrapped(*told), plain_answers(by_hand, *told), rtol=1e-4, atol=1e-4)
    # The matrix under the wrapper is untouched.
    np.testing.assert_array_equal(wrapped.hidden[1].weight, model.hidden[1].weight)


def test_a_wrapper_at_an_unknown_path_is_refused_with_the_nearest_name(model):
    with pytest.raises(InvalidRequest, match="did you mean 'hidden/1'"):
        wrap(model, {"hiden/1": Mask(jnp.ones((24, 24)))})


def test_gradients_reach_a_wrapper_and_leave_a_closed_mask_dark(model, told):
    def total(keep):
        return jnp.sum(wrap(model, {"output": Mask(keep)})(*told) ** 2)

    gradient = jax.grad(total)(jnp.ones((24, 3)))
    assert np.any(gradient)
    closed = wrap(model, {"output": Mask(jnp.zeros((24, 3)))})
    np.testing.assert_array_equal(closed(*told), jnp.broadcast_to(model.output.bias, (7, 3)))


@given(st.integers(1, 6000))
@settings(max_examples=50)
def test_a_width_bucket_holds_the_width_and_is_its_own_bucket(width):
    bucket = MLP(width=width).bucket()
    assert bucket.width >= width and bucket.bucket() == bucket


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_model_spec_is_a_value_that_can_be_stored(name):
    spec = load(REGISTRY[name])()
    assert revive(canonical(spec)) == spec and hash(load(REGISTRY[name])()) == hash(spec)


def test_a_model_without_units_is_refused():
    with pytest.raises(InvalidRequest, match="width and depth of at least 1"):
        MLP(width=0)
