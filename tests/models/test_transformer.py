"""The transformer against a slow one written out in numpy, and the laws its parts must obey."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.lab.identity import canonical, revive
from recombine.models.layers import FULL, LayerNorm, Mask, count_parameters, named_layers, wrap
from recombine.models.transformer import Transformer, rotate

pytestmark = pytest.mark.usefixtures("strict_types")

SIZES = {"code": 5, "inputs": 4, "outputs": 3}
SPEC = Transformer(depth=2, width=16, heads=2, hidden=24)
SAMPLES = 6


@pytest.fixture(scope="module")
def network():
    """A network whose norms have scales of their own, as after training."""
    with jax.numpy_dtype_promotion("strict"):
        drawn = SPEC.draw(jax.random.key(0), **SIZES)
        rng = np.random.default_rng(0)

        def stretch(leaf):
            scales = rng.uniform(0.5, 1.5, leaf.shape).astype(np.float32)
            return leaf * scales if leaf.ndim == 1 else leaf

        return jax.tree.map(stretch, drawn)


@functools.partial(jax.jit, static_argnums=3)
def answer(network, code, x, dtype=FULL):
    return network(code, x, dtype)


@jax.jit
def activations(network, code, x):
    return network.activations(code, x)


@functools.partial(jax.jit, static_argnums=1)
def handed_on(network, layer, code, x):
    return network.handed_on(layer, code, x)


@functools.partial(jax.jit, static_argnums=1)
def continue_from(network, layer, stream):
    return network.continue_from(layer, stream)


@functools.partial(jax.jit, static_argnums=3)
def slopes(network, code, x, dtype=FULL):
    return jax.grad(lambda model: jnp.sum(model(code, x, dtype) ** 2))(network)


def tell(seed=0, tasks=(), samples=SAMPLES):
    rng = np.random.default_rng(seed)
    drawn = (rng.normal(size=(*tasks, 5)), rng.normal(size=(*tasks, samples, 4)))
    return tuple(jnp.asarray(a.astype(np.float32)) for a in drawn)


def slow_norm(x, scale):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-6) * scale


def slow_rotation(x, place):
    """Pairs (i, i + n/2) as complex numbers, turned by place / 10000^(2i/n)."""
    half = len(x) // 2
    turned = [
        complex(x[i], x[i + half]) * np.exp(1j * place / 10_000 ** (i / half)) for i in range(half)
    ]
    return np.array([z.real for z in turned] + [z.imag for z in turned])


def slow_attention(block, stream, heads):
    """One token, one head and one earlier token at a time."""
    rows = [slow_norm(token, block.attention_norm.scale) for token in stream]
    size = len(rows[0]) // heads
    out = []
    for place in range(len(rows)):
        parts = []
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            scales = block.query_norm.scale, block.key_norm.scale
            query = slow_rotation(
                slow_norm(rows[place] @ block.query.weight[:, own], scales[0]), place
            )
            keys = [
                slow_rotation(slow_norm(rows[j] @ block.key.weight[:, own], scales[1]), j)
                for j in range(place + 1)
            ]
            scores = np.exp([query @ key / np.sqrt(size) for key in keys])
            values = [rows[j] @ block.value.weight[:, own] for j in range(place + 1)]
            parts.append(sum(s * v for s, v in zip(scores, values, strict=True)) / scores.sum())
        out.append(np.concatenate(parts) @ block.merge.weight)
    return out


def slow_gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def slow_answers(network, code, x, heads):
    """The whole forward pass of one task in doubles."""
    exact = jax.tree.map(lambda a: np.asarray(a, np.float64), network)
    code, x = np.asarray(code, np.float64), np.asarray(x, np.float64)
    stream = [code @ exact.task.weight, *(row @ exact.input.weight for row in x)]
    for block in exact.blocks:
        mixed = slow_attention(block, stream, heads)
        stream = [token + new for token, new in zip(stream, mixed, strict=True)]
        stream = [
            token
            + slow_gelu(slow_norm(token, block.hidden_norm.scale) @ block.up.weight)
            @ block.down.weight
            for token in stream
        ]
    return np.stack([slow_norm(t, exact.norm.scale) @ exact.output.weight for t in stream[1:]])


@pytest.mark.parametrize("seed", range(3))
def test_the_answers_are_those_of_a_slow_transformer(network, seed):
    code, x = tell(seed)
    expected = slow_answers(network, code, x, heads=2)
    np.testing.assert_allclose(answer(network, code, x), expected, rtol=1e-4, atol=2e-5)


def test_the_published_size_has_3_16_million_numbers():
    spec = Transformer(depth=4, width=256, heads=4)
    sizes = {"code": 16, "inputs": 16, "outputs": 16}
    drawn = jax.eval_shape(lambda: spec.draw(jax.random.key(0), **sizes))
    assert spec == Transformer() and spec.units == 1024
    assert drawn.blocks[0].query_norm.scale.shape == (64,)
    assert count_parameters(drawn) == spec.parameters(**sizes)
    assert f"{spec.parameters(**sizes) / 1e6:.2f}" == "3.16"


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)
)
@settings(max_examples=20)
def test_a_drawn_network_has_as_many_numbers_as_its_spec_says(depth, heads, pairs, hidden, code):
    spec = Transformer(depth=depth, width=2 * heads * pairs, heads=heads, hidden=hidden)
    sizes = {"code": code, "inputs": 3, "outputs": 2}
    drawn = jax.eval_shape(lambda: spec.draw(jax.random.key(0), **sizes))
    assert count_parameters(drawn) == spec.parameters(**sizes)
    assert len(named_layers(drawn)) == 3 + 6 * depth and spec.layers == depth


def test_initial_weights_fill_xaviers_bounds_evenly_and_there_is_no_bias():
    spec = Transformer(depth=1, width=64, heads=2)
    network = jax.jit(lambda: spec.draw(jax.random.key(1), **SIZES))()
    layers = named_layers(network)
    for path, layer in layers.items():
        weight = np.asarray(layer.weight)
        bound = np.sqrt(6 / sum(weight.shape))
        assert layer.bias is None, path
        assert 0.95 * bound < np.abs(weight).max() <= bound, path
        assert weight.var() == pytest.approx(bound**2 / 3, rel=0.2), path
    drawn = [np.asarray(layer.weight).ravel()[:150] for layer in layers.values()]
    scaled = [weight / weight.std() for weight in drawn]
    assert np.abs(np.corrcoef(scaled) - np.eye(len(drawn))).max() < 0.5  # no key used twice
    norms = [leaf for leaf in jax.tree.leaves(network) if leaf.ndim == 1]
    assert len(norms) == 5 and all(np.all(np.asarray(scale) == 1) for scale in norms)


@pytest.mark.parametrize("changed", range(SAMPLES))
def test_a_later_sample_never_changes_an_earlier_answer(network, changed):
    code, x = tell()
    before, after = answer(network, code, x), answer(network, code, x.at[changed].add(1.0))
    np.testing.assert_array_equal(after[:changed], before[:changed])
    assert all(np.abs(after[changed:] - before[changed:]).max(axis=-1) > 1e-4)


def test_an_answer_depends_on_earlier_samples_and_their_order_but_not_on_later_order(network):
    code, x = tell()
    plain = answer(network, code, x)
    swapped_before = answer(network, code, x[jnp.array([1, 0, 2, 3, 4, 5])])
    swapped_after = answer(network, code, x[jnp.array([0, 1, 2, 3, 5, 4])])
    np.testing.assert_array_equal(swapped_after[:4], plain[:4])
    assert np.abs(swapped_before[2:] - plain[2:]).max() > 1e-4
    np.testing.assert_allclose(answer(network, code, x[:3]), plain[:3], rtol=1e-5, atol=1e-6)


def test_the_task_changes_every_answer(network):
    code, x = tell()
    difference = np.abs(answer(network, -code, x) - answer(network, code, x)).max(axis=-1)
    assert difference.shape == (SAMPLES,) and difference.min() > 1e-4


@given(st.integers(0, 2**31), st.integers(1, 8))
@settings(max_examples=20)
def test_rotary_products_depend_on_the_distance_of_two_places_only(seed, pairs):
    rng = np.random.default_rng(seed)
    query, key = (rng.normal(size=2 * pairs).astype(np.float32) for _ in range(2))
    # The same two vectors at each of 9 places.
    queries, keys = (np.asarray(rotate(jnp.tile(v, (9, 1)))) for v in (query, key))
    products = queries @ keys.T
    for distance in range(-8, 9):
        alike = np.diagonal(products, distance)
        np.testing.assert_allclose(alike, alike[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(products[0, 0], query @ key, rtol=1e-4, atol=1e-5)
    lengths = np.linalg.norm(queries, axis=-1)
    np.testing.assert_allclose(lengths, np.linalg.norm(query), rtol=1e-5)
    assert np.ptp(products[0]) > 1e-3  # it does depend on it


def test_a_norm_leaves_unit_moments_and_ignores_shift_and_scale():
    rng = np.random.default_rng(0)
    x = rng.normal(2.0, 3.0, size=(7, 64)).astype(np.float32)
    norm = LayerNorm.draw(64)
    y = np.asarray(norm(jnp.asarray(x)))
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(y.std(-1), 1, rtol=1e-4)
    np.testing.assert_allclose(norm(jnp.asarray(5 * x - 1)), y, rtol=1e-3, atol=1e-4)
    assert not np.any(norm(jnp.full((2, 64), 3.0)))  # constant: no division by nothing


@pytest.mark.parametrize("tasks", [(3,), (2, 3)])
def test_a_batch_of_tasks_gives_what_each_task_gives_alone(network, tasks):
    codes, inputs = tell(1, tasks)
    together, seen = answer(network, codes, inputs), activations(network, codes, inputs)
    assert together.shape == (*tasks, SAMPLES, 3)
    for place in np.ndindex(tasks):
        alone = answer(network, codes[place], inputs[place])
        np.testing.assert_allclose(together[place], alone, rtol=1e-5, atol=1e-5)
        for name, values in activations(network, codes[place], inputs[place]).items():
            np.testing.assert_allclose(seen[name][place], values, rtol=1e-5, atol=1e-5)


def test_activations_are_the_residual_stream_at_the_samples(network):
    code, x = tell(2, (3,))
    seen = activations(network, code, x)
    assert sorted(seen) == ["final", "layer1/after", "layer2/after", "output"]
    for layer in (1, 2):
        stream = network.handed_on(layer, code, x)
        assert stream.shape == (3, SAMPLES + 1, 16)
        after = seen[f"layer{layer}/after"]
        np.testing.assert_allclose(stream[:, 1:], after, rtol=1e-5, atol=1e-5)
    last = np.asarray(seen["layer2/after"], np.float64)
    scale = np.asarray(network.norm.scale)
    expected = np.apply_along_axis(lambda token: slow_norm(token, scale), -1, last)
    np.testing.assert_allclose(seen["final"], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(seen["output"], answer(network, code, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", [1, 2])
def test_continuing_from_a_layers_own_stream_gives_the_answers(network, layer):
    code, x = tell(3, (2,))
    stream = network.handed_on(layer, code, x)
    answers = answer(network, code, x)
    np.testing.assert_allclose(continue_from(network, layer, stream), answers, rtol=1e-5, atol=1e-5)
    # What later blocks read of the task goes through its own token, too.
    forgetful = continue_from(network, layer, stream.at[:, 0].set(0.0))
    assert np.allclose(forgetful, answers, atol=1e-5) == (layer == 2)


def test_zero_rows_for_padded_modules_change_nothing(network):
    code, x = tell(4, (3,))
    assert SPEC.pads
    padded = eqx.tree_at(
        lambda n: n.task.weight, network, jnp.pad(network.task.weight, ((0, 3), (0, 0)))
    )
    zeros = jnp.pad(code, ((0, 0), (0, 3)))
    np.testing.assert_allclose(
        answer(padded, zeros, x), answer(network, code, x), rtol=1e-5, atol=1e-5
    )
    assert not np.any(slopes(padded, zeros, x).task.weight[5:])  # and they stay zero


def test_half_precision_is_close_to_full(network):
    code, x = tell(5, (4,))
    full, half = answer(network, code, x), answer(network, code, x, jnp.dtype("bfloat16"))
    assert half.dtype == jnp.float32
    assert 0 < np.abs(half - full).max() < 0.05 * np.abs(full).max()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_are_finite_and_reach_every_number(network, dtype):
    code, x = tell(6, (4,))
    for leaf in jax.tree.leaves(slopes(network, code, x, jnp.dtype(dtype))):
        assert np.all(np.isfinite(leaf)) and np.any(leaf)
        assert leaf.dtype == jnp.float32


def test_a_population_answers_as_its_members_do():
    code, x = tell(7, (2,))
    keys = jax.random.split(jax.random.key(2), 3)
    members = jax.jit(jax.vmap(lambda key: SPEC.draw(key, **SIZES)))(keys)
    together = jax.jit(jax.vmap(lambda member: member(code, x)))(members)
    for number in range(3):
        alone = answer(jax.tree.map(lambda leaf, n=number: leaf[n], members), code, x)
        np.testing.assert_allclose(together[number], alone, rtol=1e-4, atol=1e-5)


def test_wrappers_reach_every_matrix(network):
    code, x = tell()
    answers = answer(network, code, x)
    layers = named_layers(network)

    def masks(dark=None):
        """One structure for all, so that one compilation serves: ones, or zeros at `dark`."""
        return {
            path: Mask(jnp.full_like(layer.weight, path != dark)) for path, layer in layers.items()
        }

    open_ = answer(wrap(network, masks()), code, x)
    np.testing.assert_allclose(open_, answers, rtol=1e-5, atol=1e-6)
    for path in layers:
        changed = answer(wrap(network, masks(path)), code, x)
        assert np.abs(changed - answers).max() > 1e-3, path


def test_a_spec_is_a_value_that_can_be_stored_and_is_its_own_bucket():
    assert revive(canonical(SPEC)) == SPEC and SPEC.bucket() == SPEC
    assert Transformer(width=64, heads=2).units == 256 and SPEC.units == 24


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"width": 250}, "width 250 is no multiple of 8: use width=256"),
        ({"width": 12, "heads": 4}, "use width=16"),  # heads of 3 dimensions have no pairs
        ({"depth": 0}, "depth of at least 1, got 0"),
        ({"heads": 0}, "heads of at least 1, got 0"),
        ({"hidden": 0}, "hidden of at least 1, got 0"),
    ],
)
def test_impossible_sizes_are_refused_with_what_would_work(sizes, message):
    with pytest.raises(InvalidRequest, match=message):
        Transformer(**sizes)
