"""Slots, convolutions as products, and what the three kinds of network can and cannot tell."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import correlate

from recombine.errors import InvalidRequest
from recombine.families.objects import Objects, Scene
from recombine.models._convolution import Conv, everywhere
from recombine.models.binding import BagNet, ConvNet, SlotNet
from recombine.models.layers import count_parameters, named_layers
from recombine.models.slots import (
    BroadcastDecoder,
    ChannelAutoencoder,
    SlotAttention,
    SlotAutoencoder,
)

pytestmark = pytest.mark.slow  # make test-all runs it

FAMILY = Objects(side=24, most_objects=2)
DRAW = {"side": 24, "colours": 4, "shapes": 4}
SEERS = {"bag": BagNet(8), "conv": ConvNet(8), "slots": SlotNet(8)}
TINY = SlotAutoencoder(slots=3, channels=6, width=8, hidden=12, encoder_depth=2, decoder_depth=2)
PLAIN = ChannelAutoencoder(slots=3, channels=6, encoder_depth=2, decoder_depth=2)


@jax.jit
def apply(network, *inputs):
    return network(*inputs)


def kernel_of(conv, ins):
    """The kernel as everyone writes it: row, column, in, out."""
    size, outs = conv.kernel.weight.shape[0] // ins, conv.bias.shape[0]
    return np.moveaxis(np.asarray(conv.kernel.weight).reshape(size, ins, size, outs), 2, 0)


@pytest.mark.parametrize(("size", "stride", "side"), [(3, 1, 6), (5, 1, 7), (5, 2, 8), (3, 2, 7)])
def test_a_convolution_is_the_sum_of_correlations_with_its_kernel(size, stride, side):
    rng = np.random.default_rng(0)
    conv = Conv.draw(jax.random.key(0), size, 3, 4, stride=stride)
    conv = Conv(conv.kernel, jnp.asarray(rng.normal(size=4), jnp.float32), stride)
    x = rng.normal(size=(2, side, side + 1, 3)).astype(np.float32)
    kernel, half = kernel_of(conv, 3), size // 2
    expected = np.zeros((2, side, side + 1, 4))
    for image in range(2):
        for out in range(4):
            padded = np.pad(x[image], [(half, half), (half, half), (0, 0)])
            found = correlate(padded, kernel[..., out], mode="valid")[..., 0]
            expected[image, ..., out] = found + float(conv.bias[out])
    np.testing.assert_allclose(conv(x), expected[:, ::stride, ::stride], atol=1e-5)


def test_a_vector_everywhere_is_convolved_as_a_whole_picture_would_be():
    conv = Conv.draw(jax.random.key(0), 5, 4, 3)
    vectors = jax.random.normal(jax.random.key(1), (2, 3, 4))
    picture = jnp.broadcast_to(vectors[..., None, None, :], (2, 3, 7, 7, 4))
    np.testing.assert_allclose(everywhere(conv, vectors, 7), conv(picture), atol=1e-5)


def test_the_broadcast_decoder_is_convolutions_of_slots_told_their_place():
    decoder = BroadcastDecoder.draw(jax.random.key(0), 8, 6, 2)
    slots = jax.random.normal(jax.random.key(1), (2, 3, 8))
    along = np.linspace(0, 1, 7, dtype=np.float32)
    down, right = np.meshgrid(along, along, indexing="ij")
    place = decoder.place(jnp.stack([down, right, 1 - down, 1 - right], axis=-1))
    h = slots[:, :, None, None, :] + place
    for conv in decoder.convs[:-1]:
        h = jax.nn.relu(conv(h))
    h = decoder.convs[-1](h)
    colours, claims = decoder(slots, 7)
    np.testing.assert_allclose(colours, h[..., :3], atol=1e-5)
    np.testing.assert_allclose(claims, h[..., 3], atol=1e-5)


def normed(x, norm):
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)
    return scaled * np.asarray(norm.scale) + np.asarray(norm.bias)


def by_hand(attention, inputs, slots):
    """Slot attention written out for one picture, in double precision."""
    w = {name: np.float64(layer.weight) for name, layer in named_layers(attention).items()}
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    inputs = normed(np.float64(inputs), attention.input_norm)
    keys, values, slots = inputs @ w["key"], inputs @ w["value"], np.float64(slots)
    for _ in range(attention.iterations):
        query = normed(slots, attention.slot_norm) @ w["query"] / np.sqrt(slots.shape[-1])
        scores = np.exp(keys @ query.T)
        shares = scores / scores.sum(axis=1, keepdims=True)
        weights = (shares + 1e-8) / (shares + 1e-8).sum(axis=0)
        new = np.split(weights.T @ values @ w["gates_in"] + attention.gates_in.bias, 3, axis=1)
        old = np.split(slots @ w["gates_back"] + attention.gates_back.bias, 3, axis=1)
        kept, reset = sigmoid(new[0] + old[0]), sigmoid(new[1] + old[1])
        slots = kept * slots + (1 - kept) * np.tanh(new[2] + reset * old[2])
        units = np.maximum(normed(slots, attention.unit_norm) @ w["up"] + attention.up.bias, 0)
        slots = slots + units @ w["down"] + attention.down.bias
    return slots, shares


def test_slot_attention_is_the_one_written_out_by_hand():
    attention = SlotAttention.draw(jax.random.key(0), 5, 8, 12, 3, 2)
    inputs, key = jax.random.normal(jax.random.key(1), (4, 10, 5)), jax.random.key(2)
    slots, shares = jax.jit(lambda net, x, k: net(x, key=k))(attention, inputs, key)
    first = attention.first((4,), key)
    for picture in range(4):
        expected = by_hand(attention, inputs[picture], first[picture])
        np.testing.assert_allclose(slots[picture], expected[0], atol=2e-5)
        np.testing.assert_allclose(shares[picture], expected[1], atol=2e-5)
    np.testing.assert_allclose(shares.sum(axis=-1), 1, atol=1e-6)


def test_first_slots_follow_the_learnt_mean_and_deviation_and_their_key():
    attention = SlotAttention.draw(jax.random.key(0), 5, 8, 12, 400, 1)
    drawn = np.asarray(attention.first((50,), jax.random.key(3))).reshape(-1, 8)
    np.testing.assert_allclose(drawn.mean(axis=0), attention.mean, atol=0.05)
    np.testing.assert_allclose(drawn.std(axis=0), np.exp(attention.log_deviation), rtol=0.05)
    same = attention.first((2,), None)
    np.testing.assert_array_equal(attention.first((2,), None), same)
    assert not np.allclose(attention.first((2,), jax.random.key(4)), same)


@pytest.mark.parametrize("model", [TINY, PLAIN], ids=["slots", "channels"])
def test_an_autoencoder_shares_every_pixel_out_and_draws_the_picture_again(model):
    network = jax.jit(lambda key: model.draw(key, side=14))(jax.random.key(0))
    images = jax.random.uniform(jax.random.key(1), (2, 14, 14, 3))
    again = apply(network, images)
    assert again.image.shape == images.shape and again.masks.shape == (2, 3, 14, 14)
    np.testing.assert_allclose(again.masks.sum(axis=1), 1, atol=1e-5)
    assert model.parts == 3 and model.parameters(14) == count_parameters(network)
    half = jax.jit(lambda net, x: net(x, dtype=jnp.bfloat16))(network, images)
    assert half.image.dtype == jnp.float32
    np.testing.assert_allclose(half.image, again.image, atol=0.1)


def test_a_picture_is_the_sum_of_what_its_slots_draw_by_their_shares():
    network = jax.jit(lambda key: TINY.draw(key, side=14))(jax.random.key(0))
    images = jax.random.uniform(jax.random.key(1), (2, 14, 14, 3))
    slots, _ = apply(network.attention, apply(network.encoder, images))
    drawn, claims = jax.jit(lambda net, x: net.decoder(x, 14))(network, slots)
    shares = np.exp(claims) / np.exp(claims).sum(axis=1, keepdims=True)
    again = apply(network, images)
    np.testing.assert_allclose(again.masks, shares, atol=1e-5)
    np.testing.assert_allclose(again.image, (shares[..., None] * drawn).sum(axis=1), atol=1e-5)


@pytest.mark.parametrize("name", SEERS)
@pytest.mark.parametrize("reports", [0, 2])
def test_every_matrix_is_a_layer_that_wrappers_can_be_put_on(name, reports):
    network = jax.eval_shape(lambda: SEERS[name].draw(jax.random.key(0), **DRAW, reports=reports))
    matrices = sum(leaf.size for leaf in jax.tree.leaves(network) if leaf.ndim > 1)
    assert matrices == sum(layer.weight.size for layer in named_layers(network).values())
    assert SEERS[name].parameters(**DRAW, reports=reports) == count_parameters(network)


@pytest.mark.parametrize("name", SEERS)
def test_networks_answer_a_question_or_report_things(name):
    images = jax.random.uniform(jax.random.key(1), (5, 24, 24, 3))
    question = jax.nn.one_hot(jnp.arange(5), 8)
    asked = draw(SEERS[name], 0)
    assert jax.eval_shape(asked, images, question).shape == (5,)
    reporting = draw(SEERS[name], 2)
    reported = jax.eval_shape(lambda: reporting(images, dtype=jnp.bfloat16))
    assert reported.shape == (5, 3 if name == "slots" else 2, 9)
    assert reported.dtype == jnp.float32


render = jax.jit(FAMILY.render)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _drawn(model, reports, key):
    return model.draw(key, **DRAW, reports=reports)


def draw(model, reports, seed=0):
    return _drawn(model, reports, jax.random.key(seed))


def swapped():
    """The same pictures with the colours of their two objects exchanged."""
    key, n = jax.random.key(7), 16
    rng = np.random.default_rng(0)
    colour = jnp.asarray(np.stack([rng.permutation(4)[:2] for _ in range(n)]))
    shape = jnp.asarray(np.stack([rng.permutation(4)[:2] for _ in range(n)]))
    there = jnp.ones((n, 2), bool)
    pair = (render(Scene(c, shape, there), key) for c in (colour, colour[:, ::-1]))
    question = jnp.concatenate([jax.nn.one_hot(colour[:, 0], 4), jax.nn.one_hot(shape[:, 0], 4)], 1)
    return (*pair, question)


@pytest.mark.parametrize("seed", range(3))
def test_a_bag_of_features_cannot_tell_swapped_bindings_apart_whatever_its_weights(seed):
    one, other, question = swapped()
    network = draw(BagNet(8), 0, seed)
    np.testing.assert_array_equal(apply(network, one, question), apply(network, other, question))
    network = draw(BagNet(8), 2, seed)
    np.testing.assert_array_equal(apply(network, one), apply(network, other))


@pytest.mark.parametrize("name", ["conv", "slots"])
def test_other_networks_see_the_difference(name):
    one, other, question = swapped()
    network = draw(SEERS[name], 0)
    assert np.all(np.abs(apply(network, one, question) - apply(network, other, question)) > 1e-6)


def test_a_bag_sees_every_colour_and_every_shape():
    """Its features change when a feature of the scene does."""
    key, there = jax.random.key(7), jnp.ones((12, 2), bool)
    pairs = jnp.asarray([(a, b) for a in range(4) for b in range(4) if a != b])
    fixed = jnp.tile(jnp.arange(2), (12, 1))
    network = draw(BagNet(8), 2)
    for scene in (Scene(pairs, fixed, there), Scene(fixed, pairs, there)):
        reports = np.asarray(apply(network, render(scene, key))).reshape(12, -1)
        apart = np.abs(reports[:, None] - reports[None]).max(axis=-1)
        kinds = {tuple(sorted(pair)) for pair in np.asarray(pairs).tolist()}
        assert len(kinds) == 6
        for i, one in enumerate(np.asarray(pairs).tolist()):
            for j, two in enumerate(np.asarray(pairs).tolist()):
                if sorted(one) != sorted(two):
                    assert apart[i, j] > 1e-6


def test_sizes_that_no_network_has_are_refused():
    with pytest.raises(InvalidRequest, match="width=0: expected a whole number"):
        BagNet(0).check(0)
    with pytest.raises(InvalidRequest, match="use slots=4 or more"):
        SlotNet(slots=3).check(4)
    with pytest.raises(InvalidRequest, match="channels=0"):
        SlotAutoencoder(channels=0).check()
