"""The diffusion transformer against a slow one in numpy, and the laws its parts must obey."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest, NotApplicable
from recombine.families import Hyperteacher
from recombine.lab.identity import canonical, revive
from recombine.models.diffusion import SIZES, DiT, image_side, positions, time_features
from recombine.models.layers import FULL, Mask, count_parameters, named_layers, wrap

pytestmark = pytest.mark.usefixtures("strict_types")

SPEC = DiT(depth=2, width=16, heads=2, patch=2, hidden=24, draws="velocity")
SIDE, PATCH, PIXELS = 6, 2, 108
DRAWN = {"code": 5, "inputs": PIXELS + 1, "outputs": PIXELS}
SAMPLES = 3


@pytest.fixture(scope="module")
def untrained():
    return SPEC.draw(jax.random.key(0), **DRAWN)


@pytest.fixture(scope="module")
def network(untrained):
    """A network whose gates are open and whose norms have scales of their own, as if trained."""
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: leaf + rng.normal(0, 0.2, leaf.shape).astype(np.float32), untrained
    )


def tell(seed=0, tasks=(), samples=SAMPLES):
    """Codes, and noisy images with a time each."""
    rng = np.random.default_rng(seed)
    code, image = rng.normal(size=(*tasks, 5)), rng.normal(size=(*tasks, samples, PIXELS))
    time = rng.uniform(size=(*tasks, samples, 1))
    drawn = (code, np.concatenate([image, time], axis=-1))
    return tuple(jnp.asarray(a.astype(np.float32)) for a in drawn)


@functools.partial(jax.jit, static_argnums=3)
def answer(network, code, x, dtype=FULL):
    return network(code, x, dtype)


@jax.jit
def activations(network, code, x):
    return network.activations(code, x)


@functools.partial(jax.jit, static_argnums=1)
def stream(network, layer, code, x):
    return network.stream(layer, code, x)


@functools.partial(jax.jit, static_argnums=1)
def drawn_from(network, layer, h, condition):
    return network.drawn_from(layer, h, condition)


@functools.partial(jax.jit, static_argnums=3)
def slopes(network, code, x, dtype=FULL):
    return jax.grad(lambda model: jnp.sum(model(code, x, dtype) ** 2))(network)


def swap_patches(images, order):
    """Images whose patches stand in another order, cut out one by one."""
    across, moved = SIDE // PATCH, np.array(images).reshape(*images.shape[:-1], SIDE, SIDE, 3)
    whole = moved.copy()
    for new, old in enumerate(order):
        a, b, c, d = (PATCH * n for n in (*divmod(new, across), *divmod(old, across)))
        part = whole[..., c : c + PATCH, d : d + PATCH, :]
        moved[..., a : a + PATCH, b : b + PATCH, :] = part
    return moved.reshape(images.shape)


def slow_norm(x, scale=1.0, shift=0.0):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-6) * scale + shift


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def affine(layer, x):
    return x @ layer.weight + (0 if layer.bias is None else layer.bias)


def slow_attention(block, rows, heads):
    size, width = len(rows[0]) // heads, len(rows[0])
    found = np.zeros((len(rows), width))
    for head in range(heads):
        query, key, value = (
            [(row @ block.mix.weight)[third * width + head * size :][:size] for row in rows]
            for third in range(3)
        )
        query = [slow_norm(q, block.query_norm.scale) for q in query]
        key = [slow_norm(k, block.key_norm.scale) for k in key]
        for place, q in enumerate(query):
            weights = np.exp([q @ k / np.sqrt(size) for k in key])
            mean = sum(w * v for w, v in zip(weights, value, strict=True)) / weights.sum()
            found[place, head * size : (head + 1) * size] = mean
    return found @ block.merge.weight


def slow_answer(network, code, seen, heads):
    """One image in doubles, its pixels fetched one by one."""
    exact = jax.tree.map(lambda a: np.asarray(a, np.float64), network)
    image, time = np.asarray(seen[:-1], np.float64), float(seen[-1])
    angles = [time * 1000 ** (i / 31) for i in range(32)]
    features = np.array([np.cos(a) for a in angles] + [np.sin(a) for a in angles])
    told = [features, np.asarray(code, np.float64)]
    parts = zip((exact.time, exact.task), told, strict=True)
    condition = sum(affine(e.second, silu(affine(e.first, x))) for e, x in parts)
    across, width = SIDE // PATCH, exact.output.weight.shape[0]
    pixel = {
        (place, i, j, channel): (
            (PATCH * (place // across) + i) * SIDE + PATCH * (place % across) + j
        ) * 3 + channel
        for place in range(across**2) for i in range(PATCH) for j in range(PATCH)
        for channel in range(3)
    }  # fmt: skip
    rows = []
    for place in range(across**2):
        patch = [image[at] for (where, *_), at in pixel.items() if where == place]
        spot = [
            wave(n / 100 ** (i / (width // 4)))
            for n in divmod(place, across)
            for wave in (np.sin, np.cos)
            for i in range(width // 4)
        ]
        rows.append(affine(exact.patches, np.array(patch)) + spot)
    for block in exact.blocks:
        shift, scale, gate, shift2, scale2, gate2 = np.split(
            affine(block.modulate, silu(condition)), 6
        )
        mixed = slow_attention(block, [slow_norm(r, 1 + scale, shift) for r in rows], heads)
        rows = [row + gate * new for row, new in zip(rows, mixed, strict=True)]
        units = [gelu(slow_norm(r, 1 + scale2, shift2) @ block.up.weight) for r in rows]
        rows = [r + gate2 * (u @ block.down.weight) for r, u in zip(rows, units, strict=True)]
    shift, scale = np.split(affine(exact.modulate, silu(condition)), 2)
    drawn = np.zeros(PIXELS)
    numbers = [affine(exact.output, slow_norm(row, 1 + scale, shift)) for row in rows]
    for (place, i, j, channel), at in pixel.items():
        drawn[at] = numbers[place][(i * PATCH + j) * 3 + channel]
    return condition, drawn


@pytest.mark.parametrize("seed", range(2))
def test_the_answers_are_those_of_a_slow_network(network, seed):
    code, x = tell(seed)
    answers, conditions = answer(network, code, x), network.condition(code, x[:, -1])
    for number in range(SAMPLES):
        condition, expected = slow_answer(network, code, x[number], heads=2)
        np.testing.assert_allclose(conditions[number], condition, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(answers[number], expected, rtol=1e-3, atol=1e-4)


def test_the_named_sizes_have_half_a_million_two_and_seven_million_numbers():
    sizes = {"code": 16, "inputs": 3073, "outputs": 3072}
    for spec in SIZES.values():
        drawn = jax.eval_shape(lambda spec=spec: spec.draw(jax.random.key(0), **sizes))
        assert count_parameters(drawn) == spec.parameters(**sizes)
        assert spec.width >= 3 * spec.patch**2  # so that all noise can pass
    counts = [spec.parameters(**sizes) / 1e6 for spec in SIZES.values()]
    assert counts == pytest.approx([0.5, 2, 7], rel=0.1)


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)
)
@settings(max_examples=15)
def test_a_drawn_network_has_as_many_numbers_as_its_spec_says(depth, heads, patch, hidden, code):
    spec = DiT(depth=depth, width=4 * heads, heads=heads, patch=patch, hidden=hidden)
    pixels = 3 * (2 * patch) ** 2
    sizes = {"code": code, "inputs": pixels + 1, "outputs": pixels}
    drawn = jax.eval_shape(lambda: spec.draw(jax.random.key(0), **sizes))
    assert count_parameters(drawn) == spec.parameters(**sizes)
    assert len(named_layers(drawn)) == 7 + 5 * depth and spec.layers == depth


def test_an_untrained_network_answers_zero_and_its_blocks_hand_on_what_they_got(untrained):
    code, x = tell(1, (2,))
    assert not np.any(answer(untrained, code, x))
    first = stream(untrained, 0, code, x)
    np.testing.assert_array_equal(stream(untrained, 2, code, x), first)
    assert np.any(untrained.condition(code, x[..., -1]))  # what it is told is there already
    gradient = slopes(eqx.tree_at(lambda n: n.output.weight, untrained, np.ones((16, 12), "f4")),
                      code, x)  # fmt: skip
    gates = [block.modulate.weight[:, 32:48] for block in gradient.blocks]
    assert all(np.any(gate) for gate in gates)  # and the gates can open


def test_first_weights_are_drawn_alike_everywhere_and_no_key_is_used_twice(untrained):
    block = untrained.blocks[0]
    bound = np.sqrt(6 / 32)
    for weight in (block.mix.weight, block.merge.weight):
        assert 0.9 * bound < np.abs(weight).max() <= bound
    drawn = [np.asarray(layer.weight).ravel()[:80] for layer in named_layers(untrained).values()]
    drawn += [np.asarray(block.mix.weight)[:, n : n + 5].ravel() for n in (16, 32)]
    scaled = [weight / weight.std() for weight in drawn if weight.any()]
    assert np.abs(np.corrcoef(scaled) - np.eye(len(scaled))).max() < 0.5


@pytest.mark.parametrize("tasks", [(2,), (2, 2)])
def test_every_image_is_answered_on_its_own(network, tasks):
    codes, x = tell(2, tasks)
    together, seen = answer(network, codes, x), activations(network, codes, x)
    assert together.shape == (*tasks, SAMPLES, PIXELS)
    for place in np.ndindex(*tasks, SAMPLES):
        task, number = place[:-1], place[-1]
        one = x[task][number : number + 1]
        alone = answer(network, codes[task], one)[0]
        np.testing.assert_allclose(together[place], alone, rtol=1e-4, atol=1e-5)
        for name, values in activations(network, codes[task], one).items():
            np.testing.assert_allclose(seen[name][place], values[0], rtol=1e-4, atol=1e-5)


def test_task_and_time_change_the_answer_everywhere(network):
    code, x = tell(3)
    plain = answer(network, code, x)
    for other in (answer(network, -code, x), answer(network, code, x.at[:, -1].set(0.5))):
        assert np.abs(other - plain).max(axis=-1).min() > 1e-3
    blank = answer(network, 0 * code, x)
    assert np.all(np.isfinite(blank)) and np.abs(blank - plain).max() > 1e-3


def test_blocks_do_not_know_where_patches_are_and_the_network_does(network):
    code, x = tell(4)
    order = np.random.default_rng(0).permutation(9)
    condition, h = network.condition(code, x[:, -1]), network.tokens(x)
    plain = drawn_from(network, 0, h, condition)
    np.testing.assert_allclose(
        drawn_from(network, 0, h[:, order], condition), swap_patches(plain, order),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip
    swapped = jnp.concatenate([swap_patches(x[:, :-1], order), x[:, -1:]], axis=-1)
    # The embedding of a patch does not depend on where it is; its place is added.
    there = positions(3, 16)
    np.testing.assert_allclose(
        network.tokens(swapped) - there, h[:, order] - there[order], rtol=1e-4, atol=1e-5
    )
    told_apart = np.abs(answer(network, code, swapped) - swap_patches(plain, order)).max()
    assert told_apart > 1e-3


@given(st.integers(2, 8), st.integers(1, 8))
@settings(max_examples=20)
def test_products_of_places_depend_on_how_far_apart_they_lie(side, quarter):
    table = positions(side, 4 * quarter).astype(np.float64)
    products = (table @ table.T).reshape(side, side, side, side)
    for row, column in np.ndindex(side, side):
        np.testing.assert_allclose(
            products[: side - row, : side - column, row, column][0, 0],
            products[-1 - row, -1 - column, -1, -1], rtol=1e-5, atol=1e-5,
        )  # fmt: skip
    apart = np.abs(table[:, None] - table).max(axis=-1) + np.eye(side**2)
    assert apart.min() > 0.01


def test_features_tell_times_apart_and_are_bounded():
    times = jnp.linspace(0, 1, 101)
    features = np.asarray(time_features(times))
    assert features.shape == (101, 64) and np.abs(features).max() <= 1
    apart = np.linalg.norm(features[:, None] - features, axis=-1)
    assert apart[~np.eye(101, dtype=bool)].min() > 1


def test_activations_are_means_over_patches_and_include_what_the_blocks_were_told(network):
    code, x = tell(5, (2,))
    seen = activations(network, code, x)
    assert sorted(seen) == ["condition", "layer1/after", "layer2/after", "output"]
    for layer in (1, 2):
        whole = stream(network, layer, code, x)
        assert whole.shape == (2, SAMPLES, 9, 16)
        after = seen[f"layer{layer}/after"]
        np.testing.assert_allclose(whole.mean(axis=-2), after, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(network.handed_on(layer, code, x).shape, after.shape)
        continued = drawn_from(network, layer, whole, seen["condition"])
        np.testing.assert_allclose(continued, answer(network, code, x), rtol=1e-4, atol=1e-5)
        with pytest.raises(NotApplicable, match="use stream and drawn_from"):
            network.continue_from(layer, after)
    np.testing.assert_allclose(seen["condition"], network.condition(code, x[..., -1]), atol=1e-6)
    np.testing.assert_allclose(seen["output"], answer(network, code, x), rtol=1e-5, atol=1e-5)


def test_zero_rows_for_padded_modules_change_nothing(network):
    code, x = tell(6, (2,))
    weight = jnp.pad(network.task.first.weight, ((0, 3), (0, 0)))
    padded = eqx.tree_at(lambda n: n.task.first.weight, network, weight)
    zeros = jnp.pad(code, ((0, 0), (0, 3)))
    np.testing.assert_allclose(
        answer(padded, zeros, x), answer(network, code, x), rtol=1e-5, atol=1e-5
    )
    assert SPEC.pads


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_are_finite_and_reach_every_number(network, dtype):
    code, x = tell(7, (2,))
    for leaf in jax.tree.leaves(slopes(network, code, x, jnp.dtype(dtype))):
        assert np.all(np.isfinite(leaf)) and np.any(leaf)
        assert leaf.dtype == jnp.float32


def test_half_precision_is_close_to_full(network):
    code, x = tell(8, (2,))
    full, half = answer(network, code, x), answer(network, code, x, jnp.dtype("bfloat16"))
    assert half.dtype == jnp.float32
    assert 0 < np.abs(half - full).max() < 0.1 * np.abs(full).max()
    assert np.mean((half - full) ** 2) < 1e-3 * np.mean(full**2)


def test_shifts_scales_and_gates_exist_once_an_image_and_not_once_a_patch(network):
    # Sizes that nothing else has: 9 patches, 16 wide, and so 96 modulations of a block.
    code, x = tell(9, (2,))
    text = str(jax.make_jaxpr(lambda n: slopes(n, code, x))(network))
    assert "f32[6,96]" in text.replace(" ", "")
    assert "9,96]" not in text.replace(" ", "") and "9,32]" not in text.replace(" ", "")


def test_a_population_answers_as_its_members_do(network):
    code, x = tell(10, (2,))
    members = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf]), network)
    together = jax.jit(jax.vmap(lambda member: member(code, x)))(members)
    for number in range(2):
        alone = answer(jax.tree.map(lambda leaf, n=number: leaf[n], members), code, x)
        np.testing.assert_allclose(together[number], alone, rtol=1e-4, atol=1e-5)


def test_wrappers_reach_every_matrix(network):
    code, x = tell()
    answers, layers = answer(network, code, x), named_layers(network)
    for path in layers:
        masks = {p: Mask(jnp.full_like(one.weight, p != path)) for p, one in layers.items()}
        changed = answer(wrap(network, masks), code, x)
        assert np.abs(changed - answers).max() > 1e-3, path


def test_a_spec_is_a_value_that_can_be_stored_and_is_its_own_bucket():
    assert revive(canonical(SPEC)) == SPEC and SPEC.bucket() == SPEC
    assert DiT(width=64).units == 256 and SPEC.units == 24


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"width": 250}, "multiple of 4, got 250: use width=252"),
        ({"width": 16, "heads": 3}, "multiple of 12, got 16: use width=24"),
        ({"depth": 0}, "depth of at least 1, got 0"),
        ({"patch": 0}, "patch of at least 1, got 0"),
        ({"hidden": 0}, "hidden of at least 1, got 0"),
    ],
)
def test_impossible_sizes_are_refused_with_what_would_work(sizes, message):
    with pytest.raises(InvalidRequest, match=message):
        DiT(**sizes)


def test_a_family_without_images_or_with_images_of_another_size_is_refused():
    images = SimpleNamespace(input_size=PIXELS + 1, output_size=PIXELS)
    SPEC.check(images, None)
    with pytest.raises(InvalidRequest, match=r"6 x 6 pixels .* 4 x 4: use a patch of 1, 2, 3, 6"):
        DiT(patch=4).check(images, None)
    without_time = SimpleNamespace(input_size=PIXELS, output_size=PIXELS)
    for family in (Hyperteacher(), without_time):
        with pytest.raises(InvalidRequest, match="use a family of images such as scenes"):
            SPEC.check(family, None)
    assert [image_side(n) for n in (3, 12, 13, 0, -3)] == [1, 2, None, None, None]


def test_a_network_that_draws_images_answers_the_way_there(network):
    code, x = tell(tasks=(2,))

    draws_image = jax.tree.unflatten(
        jax.tree.structure(replace(SPEC, draws="image").draw(jax.random.key(0), **DRAWN)),
        jax.tree.leaves(network),
    )
    image = np.asarray(answer(network, code, x))  # the same weights, read as a velocity
    found = np.asarray(answer(draws_image, code, x))
    noisy, left = np.asarray(x[..., :-1]), np.maximum(1 - np.asarray(x[..., -1:]), 0.05)
    np.testing.assert_allclose(found, (image - noisy) / left, rtol=1e-5, atol=1e-5)
    # A step of the whole time that is left ends at the image.
    early = np.asarray(x[..., -1]) < 0.9
    np.testing.assert_allclose((noisy + left * found)[early], image[early], atol=1e-5)
    np.testing.assert_array_equal(activations(draws_image, code, x)["output"], found)
