"""The hypernetwork against the small networks it writes, the affine baseline against algebra."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest, NotApplicable
from recombine.lab.identity import canonical, revive
from recombine.models.affine import Affine
from recombine.models.hypernetwork import Hypernetwork
from recombine.models.layers import Linear, count_parameters, named_layers

pytestmark = pytest.mark.usefixtures("strict_types")

SIZES = {"code": 5, "inputs": 4, "outputs": 3}


def tell(seed=0, tasks=(), samples=6):
    rng = np.random.default_rng(seed)
    drawn = (rng.normal(size=(*tasks, 5)), rng.normal(size=(*tasks, samples, 4)))
    return tuple(jnp.asarray(a.astype(np.float32)) for a in drawn)


@pytest.fixture(scope="module")
def network():
    """A network whose norm and biases are no longer those of the first draw."""
    with jax.numpy_dtype_promotion("strict"):
        drawn = Hypernetwork(width=8).draw(jax.random.key(0), **SIZES)
        rng = np.random.default_rng(0)
        return jax.tree.map(
            lambda leaf: leaf + rng.normal(0, 0.3, leaf.shape).astype(np.float32), drawn
        )


def written_out(network, code, x, width=8):
    """One task in doubles: (before, after, output), from one matrix that makes all numbers."""
    exact = jax.tree.map(lambda a: np.asarray(a, np.float64), network)
    code, x = np.asarray(code, np.float64), np.asarray(x, np.float64)
    parts = (exact.first, exact.first_bias, exact.second, exact.second_bias)
    normed = (code - code.mean()) / np.sqrt(code.var() + 1e-6) * exact.norm.scale + exact.norm.bias
    numbers = normed @ np.concatenate([part.weight for part in parts], axis=1)
    numbers = numbers + np.concatenate([part.bias for part in parts])
    cuts = np.cumsum([4 * width, width, width * 3])
    first, first_bias, second, second_bias = np.split(numbers, cuts)
    before = x @ first.reshape(4, width) / np.sqrt(4) + first_bias
    after = np.maximum(before, 0)
    return before, after, after @ second.reshape(width, 3) / np.sqrt(width) + second_bias


def test_the_published_hypernetwork_makes_33808_numbers_out_of_574768():
    spec, sizes = Hypernetwork(width=1024), {"code": 16, "inputs": 16, "outputs": 16}
    drawn = jax.eval_shape(lambda: spec.draw(jax.random.key(0), **sizes))
    assert spec == Hypernetwork()
    assert spec.generated(inputs=16, outputs=16) == 33_808
    assert sum(layer.weight.shape[1] for layer in named_layers(drawn).values()) == 33_808
    assert count_parameters(drawn) == spec.parameters(**sizes) == 574_768


@given(st.integers(1, 20), st.integers(1, 9), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=20)
def test_drawn_networks_have_as_many_numbers_as_their_specs_say(width, code, inputs, outputs):
    sizes = {"code": code, "inputs": inputs, "outputs": outputs}
    for spec in (Hypernetwork(width=width), Affine()):
        drawn = jax.eval_shape(lambda spec=spec: spec.draw(jax.random.key(0), **sizes))
        assert count_parameters(drawn) == spec.parameters(**sizes)


@pytest.mark.parametrize("tasks", [(), (3,), (2, 2)])
def test_a_hypernetwork_answers_with_the_network_it_writes_for_each_task(network, tasks):
    codes, inputs = tell(1, tasks)
    answers, seen = network(codes, inputs), network.activations(codes, inputs)
    assert list(seen) == ["layer1/before", "layer1/after", "output"]
    for place in np.ndindex(tasks):
        before, after, output = written_out(network, codes[place], inputs[place])
        np.testing.assert_allclose(answers[place], output, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(seen["layer1/before"][place], before, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(seen["layer1/after"][place], after, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(seen["output"][place], output, rtol=1e-4, atol=1e-5)


def test_samples_of_a_hypernetwork_do_not_see_one_another(network):
    code, x = tell()
    np.testing.assert_allclose(network(code, x[2:3])[0], network(code, x)[2], rtol=1e-5, atol=1e-6)


def test_first_weights_write_numbers_of_unit_variance_and_so_units_of_unit_variance():
    spec = Hypernetwork(width=512)
    network = spec.draw(jax.random.key(3), code=16, inputs=16, outputs=16)
    rng = np.random.default_rng(0)
    code, x = (rng.normal(size=s).astype(np.float32) for s in ((64, 16), (64, 8, 16)))
    made = network.generate(jnp.asarray(code))
    assert np.var(made.first) == pytest.approx(1 / 16, rel=0.1)
    assert np.var(made.second) == pytest.approx(1 / 512, rel=0.1)
    assert np.var(made.first_bias) == pytest.approx(1, rel=0.1)
    before = network.activations(jnp.asarray(code), jnp.asarray(x))["layer1/before"]
    assert np.var(before) == pytest.approx(2, rel=0.15)  # one from the input, one from the bias


def test_a_hypernetwork_in_half_precision_is_close_and_its_gradients_are_finite(network):
    code, x = tell(2, (4,))
    half = jnp.dtype("bfloat16")
    full, rough = network(code, x), network(code, x, half)
    assert rough.dtype == jnp.float32
    assert 0 < np.abs(rough - full).max() < 0.05 * np.abs(full).max()
    for dtype in (jnp.dtype("float32"), half):
        slopes = jax.jit(jax.grad(lambda model, dtype=dtype: jnp.sum(model(code, x, dtype) ** 2)))
        gradient = slopes(network)
        assert all(np.all(np.isfinite(g)) and np.any(g) for g in jax.tree.leaves(gradient))


def test_nothing_can_be_continued_where_the_rest_depends_on_the_code(network):
    code, x = tell()
    handed_on = network.handed_on(1, code, x)
    np.testing.assert_array_equal(handed_on, network.activations(code, x)["layer1/after"])
    with pytest.raises(NotApplicable, match="generates its output layer from the code"):
        network.continue_from(1, handed_on)


def test_a_padded_code_is_no_code_for_a_hypernetwork():
    network = Hypernetwork(width=8).draw(jax.random.key(0), code=7, inputs=4, outputs=3)
    code, x = tell()
    padded = jnp.pad(code, (0, 2))
    # The norm sees the zeros: adding the same to all numbers of the code no longer cancels.
    shifted = jnp.pad(code + 1, (0, 2))
    assert not Hypernetwork.pads
    assert not np.allclose(network(padded, x), network(shifted, x), atol=1e-3)


def test_a_network_without_units_is_refused():
    with pytest.raises(InvalidRequest, match="width of at least 1, got 0"):
        Hypernetwork(width=0)


@pytest.mark.parametrize("spec", [Hypernetwork(width=7), Affine()])
def test_specs_are_values_that_can_be_stored_and_are_their_own_buckets(spec):
    assert revive(canonical(spec)) == spec and spec.bucket() == spec
    assert spec.layers == (1 if isinstance(spec, Hypernetwork) else 0)


def test_the_affine_model_holds_a_least_squares_fit_exactly():
    rng = np.random.default_rng(0)
    matrix, shift = rng.normal(size=(9, 3)), rng.normal(size=3)
    code, x = (np.asarray(a, np.float64) for a in tell(3, (40,)))
    rows = np.concatenate([np.repeat(code[:, None], 6, axis=1), x], axis=-1).reshape(-1, 9)
    target = rows @ matrix + shift
    fit = np.linalg.lstsq(np.c_[rows, np.ones(len(rows))], target, rcond=None)[0]
    fit = jnp.asarray(fit.astype(np.float32))
    drawn = Affine().draw(jax.random.key(0), **SIZES)
    network = type(drawn)(Linear(fit[:5], None), Linear(fit[5:9], fit[9]))
    answers = network(*tell(3, (40,)))
    np.testing.assert_allclose(answers, target.reshape(40, 6, 3), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(network.activations(*tell(3, (40,)))["output"], answers)


def test_the_affine_model_cannot_let_a_task_change_how_the_input_matters():
    network = Affine().draw(jax.random.key(1), **SIZES)
    code, x = tell(4)
    effect = network(code, x) - network(code, 0 * x)
    np.testing.assert_allclose(network(-code, x) - network(-code, 0 * x), effect, atol=1e-5)
    assert network.task.bias is None and count_parameters(network) == 3 * (5 + 4 + 1)


def test_the_affine_model_ignores_padding_and_has_no_hidden_layer():
    network = Affine().draw(jax.random.key(1), **SIZES)
    code, x = tell(5, (3,))
    task = Linear(jnp.pad(network.task.weight, ((0, 2), (0, 0))), None)
    padded = type(network)(task, network.input)
    answers = padded(jnp.pad(code, ((0, 0), (0, 2))), x)
    np.testing.assert_allclose(answers, network(code, x), rtol=1e-5, atol=1e-6)
    rough = network(code, x, jnp.dtype("bfloat16"))
    assert rough.dtype == jnp.float32 and np.abs(rough - network(code, x)).max() < 0.05
    for look in (lambda: network.handed_on(1, code, x), lambda: network.continue_from(1, x)):
        with pytest.raises(NotApplicable, match="no hidden layer"):
            look()


def test_first_affine_weights_have_the_fan_in_of_both_parts():
    network = Affine().draw(jax.random.key(0), code=32, inputs=16, outputs=300)
    for layer in named_layers(network).values():
        assert np.var(layer.weight) == pytest.approx(1 / 48, rel=0.1)
