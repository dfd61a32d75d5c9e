"""Networks over items: against plain numpy and jax's own convolution; wrappers; refusals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.errors import InvalidRequest
from recombine.families.check import check_spec
from recombine.models.items import (
    ItemConv,
    ItemMLP,
    ItemTransformer,
    convolve,
    instance_norm,
)
from recombine.models.layers import Linear, Mask, count_parameters, named_layers, wrap

MLP = (ItemMLP(width=12, depth=2, embedding=5), (3, 4))
TRANSFORMER = (ItemTransformer(depth=2, width=16, heads=2), (5, 7))
CONV = (ItemConv(width=4, stages=2, hidden=8, embedding=6), (16, 16, 3))
ALL = (MLP, TRANSFORMER, CONV)
NAMES = ("mlp", "transformer", "conv")

embed = jax.jit(lambda network, items: network(items))


def drawn(spec, shape, *axes) -> tuple[Any, Any]:
    network = jax.jit(lambda key: spec.draw(key, shape))(jax.random.key(0))
    size = int(np.prod(shape))
    return network, jax.random.normal(jax.random.key(1), (*axes, size))


def numpy_mlp(network, x):
    for layer in network.hidden:
        x = np.maximum(x @ np.float64(layer.weight) + np.float64(layer.bias), 0)
    return x @ np.float64(network.output.weight) + np.float64(network.output.bias)


@pytest.mark.parametrize(("spec", "shape"), ALL, ids=NAMES)
def test_items_with_any_axes_before_are_embedded_one_by_one(spec, shape):
    check_spec(spec, "a model")
    spec.check(shape)
    network, items = drawn(spec, shape, 2, 3)
    found = embed(network, items)
    assert found.shape[:2] == (2, 3) and found.dtype == jnp.float32
    np.testing.assert_allclose(found[1, 2], embed(network, items[1, 2]), atol=1e-5)
    assert spec.parameters(shape) == count_parameters(network)


@pytest.mark.parametrize(("spec", "shape"), ALL, ids=NAMES)
def test_activations_end_in_the_embedding_and_have_a_vector_an_item(spec, shape):
    network, items = drawn(spec, shape, 2, 3)
    seen = jax.jit(lambda network, items: network.activations(items))(network, items)
    np.testing.assert_allclose(seen["output"], embed(network, items), atol=1e-5)
    assert all(value.shape[:2] == (2, 3) and value.ndim == 3 for value in seen.values())
    assert set(seen) == {f"layer{n}/after" for n in range(1, len(seen))} | {"output"}


@pytest.mark.parametrize(("spec", "shape"), ALL, ids=NAMES)
def test_a_mask_on_any_matrix_acts_and_a_full_one_does_not(spec, shape):
    network, items = drawn(spec, shape, 4)
    plain = embed(network, items)
    full = {p: jnp.ones_like(layer.weight) for p, layer in named_layers(network).items()}

    def masked(keep):
        return embed(wrap(network, {path: Mask(mask) for path, mask in keep.items()}), items)

    np.testing.assert_allclose(masked(full), plain, atol=1e-6)
    for path, mask in full.items():
        assert not np.allclose(masked({**full, path: 0 * mask}), plain, atol=1e-3), path


@pytest.mark.parametrize(("spec", "shape"), ALL, ids=NAMES)
def test_stacked_members_with_weights_of_their_own_compute_products_only(spec, shape):
    keys = jax.random.split(jax.random.key(2), 3)
    draw = lambda key: spec.draw(key, shape)  # noqa: E731
    members = jax.jit(jax.vmap(draw))(keys)
    items = jax.random.normal(jax.random.key(3), (3, 2, int(np.prod(shape))))
    run = jax.vmap(lambda network, x: network(x))
    assert "conv_general" not in str(jax.make_jaxpr(run)(members, items))
    alone = embed(jax.jit(draw)(keys[1]), items[1])
    np.testing.assert_allclose(jax.jit(run)(members, items)[1], alone, atol=1e-5)


def test_the_mlp_is_the_one_numpy_computes():
    network, items = drawn(*MLP, 6)
    np.testing.assert_allclose(network(items), numpy_mlp(network, np.float64(items)), atol=1e-5)


@pytest.mark.parametrize(("side", "stride"), [(8, 1), (8, 2), (9, 2)])
def test_a_product_over_patches_is_a_convolution(side, stride):
    layer = Linear.draw(jax.random.key(0), 9 * 3, 5, bias=False)
    x = jax.random.normal(jax.random.key(1), (2, side, side, 3))
    kernel = layer.weight.reshape(3, 3, 3, 5)
    expected = jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    found = convolve(layer, x, jnp.dtype("float32"), stride)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_an_instance_norm_leaves_mean_0_and_variance_1_in_every_channel():
    x = 3 + 5 * np.random.default_rng(0).normal(size=(2, 6, 6, 4))
    found = np.asarray(instance_norm(jnp.asarray(x, jnp.float32)))
    expected = (x - x.mean((1, 2), keepdims=True)) / x.std((1, 2), keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not instance_norm(jnp.full((1, 4, 4, 2), 7.0)).any()  # a constant channel says nothing


def test_convolutions_are_blind_to_the_place_of_what_is_far_from_the_edge():
    spec, _ = CONV
    network, _ = drawn(spec, (64, 64, 3))
    picture = np.zeros((64, 64, 3), np.float32)
    picture[28:32, 28:32] = np.random.default_rng(1).uniform(size=(4, 4, 3))
    moved = np.roll(picture, (4, 4), axis=(0, 1))  # by a whole number of halved pixels
    first, second, other = (
        embed(network, jnp.asarray(p.ravel())) for p in (picture, moved, picture[:, ::-1])
    )
    np.testing.assert_allclose(second, first, atol=1e-4)
    assert not np.allclose(other, first, atol=1e-3)


def test_a_transformer_knows_the_order_of_rows_and_reads_all_of_them():
    network, items = drawn(*TRANSFORMER, 1)
    rows = np.asarray(items).reshape(5, 7)
    plain = embed(network, items[0])
    swapped = rows[[1, 0, 2, 3, 4]]
    changed = [rows + np.eye(5)[row][:, None].astype(np.float32) for row in range(5)]
    for one in (swapped, *changed):
        assert not np.allclose(embed(network, jnp.asarray(one.ravel())), plain, atol=1e-3)


def test_without_places_a_transformer_sees_a_bag_of_rows():
    network, items = drawn(*TRANSFORMER, 1)
    bare = type(network)(network.words, jnp.ones_like(network.places), network.blocks, network.norm)
    shuffled = np.asarray(items).reshape(5, 7)[[3, 1, 4, 0, 2]].reshape(1, -1)
    np.testing.assert_allclose(embed(bare, jnp.asarray(shuffled)), embed(bare, items), atol=1e-5)


@pytest.mark.parametrize(("spec", "shape"), ALL, ids=NAMES)
def test_half_precision_products_give_nearly_the_same_embedding(spec, shape):
    network, items = drawn(spec, shape, 3)
    rough = jax.jit(lambda network, x: network(x, jnp.dtype("bfloat16")))(network, items)
    fine = embed(network, items)
    assert rough.dtype == jnp.float32
    assert np.corrcoef(np.ravel(rough), np.ravel(fine))[0, 1] > 0.99


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ItemMLP(width=0), "width=0: expected a whole number of at least 1"),
        (lambda: ItemTransformer(width=30, heads=4), "use width=32"),
        (lambda: ItemConv(stages=0), "stages=0: expected"),
        (lambda: ItemTransformer().check((32, 32, 3)), "are pictures: use ItemConv"),
        (lambda: ItemConv().check((6, 8)), "are rows: use ItemMLP"),
        (lambda: ItemConv(stages=5).check((32, 32, 3)), "use stages=4 or less"),
    ],
)
def test_an_impossible_network_is_refused(make, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        make()
