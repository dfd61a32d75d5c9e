"""Transformers over tokens against a slow one in numpy, and the laws their parts must obey."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.lab.identity import canonical, revive
from recombine.models import SequenceModel, SequenceNetwork, count_parameters
from recombine.models.attention import (
    BUCKETS,
    FAR,
    NEAR,
    Gated,
    RMSNorm,
    bucket,
    for_each_row,
)
from recombine.models.layers import FULL
from recombine.models.sequence import POSITIONS, SHAPES, Rows, places_in
from recombine.tokens import ANSWER, PAD

WORDS = 20
LENGTH = 16  # of a row
DECODER = SequenceModel(depth=2, width=16, heads=2)
KINDS = [
    dataclasses.replace(DECODER, positions=positions, shape=shape, tied=tied)
    for positions in POSITIONS
    for shape in SHAPES
    for tied in (False, True)
    if (positions, shape) != ("none", "encoder-decoder")
]
name = "{0.positions}-{0.shape}-{0.tied}".format


SWITCHES = ("by_place", "by_distance")


def stirred(spec: SequenceModel) -> SequenceNetwork:
    """A network as after training: biases of nearness and scales of norms are their own."""
    rng = np.random.default_rng(0)
    drawn = jax.device_get(spec.draw(jax.random.key(0), vocabulary=WORDS, length=LENGTH))

    def stir(leaf):
        return jnp.asarray(leaf + rng.normal(0, 0.3, leaf.shape), jnp.float32)

    kept = {name: jnp.asarray(getattr(drawn, name)) for name in ("scale", *SWITCHES)}
    return dataclasses.replace(jax.tree.map(stir, drawn), **kept)


@jax.jit
def scores(network, rows):
    return network(rows)


def row(*items):
    """One row of packed items, each a pair of source and answer, filled up with padding."""
    parts = {"tokens": [], "item": [], "source": [], "source_item": []}
    for number, (source, answer) in enumerate(items, start=1):
        for tokens, owner, piece in (
            ("tokens", "item", answer), ("source", "source_item", source)
        ):  # fmt: skip
            parts[tokens] += list(piece)
            parts[owner] += [number] * len(piece)
    return {key: [*part, *[PAD] * (LENGTH - len(part))] for key, part in parts.items()}


def stacked(*rows):
    return Rows(*(jnp.asarray([r[key] for r in rows], jnp.int32) for key in Rows._fields))


FIRST = ([9, 4, 13], [5, 6, 7, 6, 8])
SECOND = ([4, 17, 9, 9, 11], [8, 5, 15, 15, 19, 4])
THIRD = ([6, 6], [12, 18, 12])


@pytest.fixture(scope="module", params=KINDS, ids=name)
def kind(request):
    """A network, and its scores of rows in which the same items stand in many ways."""
    network = stirred(request.param)
    changed = (SECOND[0], [*SECOND[1][:3], 7, 4, 9])
    rows = stacked(
        row(FIRST), row(SECOND), row(THIRD), row(FIRST, SECOND, THIRD),
        row(THIRD, SECOND, FIRST), row(FIRST, changed, THIRD),
    )  # fmt: skip
    return network, rows, np.asarray(scores(network, rows))


def test_an_item_among_others_gets_the_scores_it_gets_alone(kind):
    _, _, found = kind
    first, second, third = (len(answer) for _, answer in (FIRST, SECOND, THIRD))
    alone = [found[0, :first], found[1, :second], found[2, :third]]
    there = np.split(found[3, : first + second + third], [first, first + second])
    back = np.split(found[4, : first + second + third], [third, third + second])[::-1]
    for one, two, three in zip(alone, there, back, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=2e-5)
        np.testing.assert_allclose(three, one, rtol=1e-5, atol=2e-5)


def test_a_later_token_never_changes_the_scores_of_an_earlier_one(kind):
    _, _, found = kind
    begin = len(FIRST[1])
    same = [*range(begin + 3), *range(begin + len(SECOND[1]), begin + len(SECOND[1]) + 3)]
    np.testing.assert_allclose(found[5, same], found[3, same], rtol=1e-5, atol=1e-5)
    for place in range(begin + 3, begin + len(SECOND[1])):
        assert np.abs(found[5, place] - found[3, place]).max() > 1e-2


def test_padding_and_the_sign_of_an_answer_are_never_written(kind):
    _, _, found = kind
    assert (found[..., [PAD, ANSWER]] < -1e8).all()
    assert np.abs(np.delete(found, [PAD, ANSWER], axis=-1)).max() < 1e3


def test_the_scores_are_those_of_a_slow_transformer_written_out_in_numpy(kind):
    network, _, found = kind
    writable = np.delete(np.arange(WORDS), [PAD, ANSWER])
    for number, (source, answer) in enumerate((FIRST, SECOND, THIRD)):
        expected = slow_scores(network, source, answer)[:, writable]
        np.testing.assert_allclose(
            found[number, : len(answer)][:, writable], expected, rtol=1e-4, atol=1e-4
        )


# The same arithmetic, a token at a time, in double precision.


def slow_norm(norm, x):
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * np.asarray(norm.scale, float)


def slow_gated(gated, x):
    gate, up, down = (np.asarray(m.weight, float) for m in (gated.gate, gated.up, gated.down))
    g = x @ gate
    return (g / (1 + np.exp(-g)) * (x @ up)) @ down


def slow_rotation(x, place):
    """Pairs (i, i + n/2) as complex numbers, turned by place / 10000^(2i/n)."""
    half = len(x) // 2
    turns = np.exp(1j * place / 10_000 ** (np.arange(half) / half))
    turned = (x[:half] + 1j * x[half:]) * turns
    return np.concatenate([turned.real, turned.imag])


def slow_bucket(apart):
    """Above 8, a new bucket whenever the square of the distance doubles: no logarithm rounds."""
    far = abs(apart)
    place = far if far < 8 else min((far * far).bit_length() + 1, 15)
    return place + 16 * (apart < 0)


def slow_attention(attention, spec, x, keys, *, causal, own):
    matrices = (attention.query, attention.key, attention.value, attention.merge)
    query, key, value, merge = (np.asarray(m.weight, float) for m in matrices)
    size = spec.width // spec.heads
    out = np.zeros_like(x)
    for head in range(spec.heads):
        part = slice(head * size, (head + 1) * size)
        for i in range(len(x)):
            q, found = (x[i] @ query)[part], []
            seen = keys[: i + 1] if causal else keys
            for j, other in enumerate(seen):
                k = (other @ key)[part]
                if own and spec.positions == "rotary":
                    score = slow_rotation(q, i) @ slow_rotation(k, j)
                else:
                    score = q @ k
                bias = 0.0
                if own and spec.positions == "relative":
                    bias = float(attention.nearness[slow_bucket(i - j), head])
                found.append(score / np.sqrt(size) + bias)
            weights = np.exp(found - np.max(found))
            out[i, part] = weights / weights.sum() @ (seen @ value)[:, part]
    return out @ merge


def slow_blocks(network, blocks, h, *, causal, source=None):
    spec = network.spec
    if spec.positions == "relative" and not network.by_distance:
        spec = dataclasses.replace(spec, positions="learned")
    for block in blocks * spec.depth if spec.tied else blocks:
        x = slow_norm(block.own_norm, h)
        h = h + slow_attention(block.own, spec, x, x, causal=causal, own=True)
        if source is not None:
            x = slow_norm(block.cross_norm, h)
            h = h + slow_attention(block.cross, spec, x, source, causal=False, own=False)
        h = h + slow_gated(block.hidden, slow_norm(block.hidden_norm, h))
    return h


def slow_embed(network, tokens):
    h = np.asarray(network.tokens, float)[tokens]
    if network.places is not None and network.by_place:
        h = h + np.asarray(network.places, float)[: len(tokens)]
    return h * np.sqrt(network.spec.width)


def slow_scores(network, source, answer):
    encoded = None
    if network.spec.shape == "encoder-decoder":
        h = slow_blocks(network, network.encoder, slow_embed(network, source), causal=False)
        encoded = slow_norm(network.encoded, h)
    h = slow_embed(network, answer)
    h = slow_blocks(network, network.decoder, h, causal=True, source=encoded)
    return slow_norm(network.norm, h) @ np.asarray(network.output.weight, float)


@jax.jit
def stream_at(network, tokens, places):
    """What the blocks of a decoder make of one item whose tokens stand at given places."""
    h = network.embed(tokens, places, FULL)
    allowed = jnp.tril(jnp.ones((tokens.shape[-1],) * 2, bool))
    view = network.view(allowed, places, places)
    for block in network.layers(network.decoder):
        h = block(h, view, FULL)
    return h


@jax.jit
def hidden(network, rows):
    return network.hidden(rows)


@pytest.mark.parametrize("positions", POSITIONS)
def test_distance_tells_where_positions_turn_or_are_relative_and_place_where_they_are_learned(
    positions,
):
    network = stirred(dataclasses.replace(DECODER, positions=positions))
    tokens, places = jnp.asarray(SECOND[1]), jnp.arange(6)
    usual = stream_at(network, tokens, places)
    whole = hidden(network, stacked(row(([], SECOND[1]))))[-1][0, :6]
    np.testing.assert_allclose(usual, whole, rtol=1e-5, atol=1e-5)
    moved = float(jnp.abs(stream_at(network, tokens, places + 7) - usual).max())
    parted = float(jnp.abs(stream_at(network, tokens, places * 2) - usual).max())
    assert moved > 0.1 if positions == "learned" else moved < 1e-3
    assert parted < 1e-5 if positions == "none" else parted > 0.1


@pytest.mark.parametrize("positions", POSITIONS)
def test_one_block_without_positions_reads_what_came_before_as_a_bag(positions):
    network = stirred(dataclasses.replace(DECODER, positions=positions, depth=1))
    mixed = row(([], [15, 8, 19, 5, 15, 4]))  # SECOND but for the order of all tokens before 4
    found = np.asarray(scores(network, stacked(row(([], SECOND[1])), mixed)))[:, 5]
    apart = np.abs(found[0] - found[1]).max()
    assert apart < 1e-4 if positions == "none" else apart > 1e-2


def test_an_encoder_reads_all_of_its_source_at_once():
    network = stirred(dataclasses.replace(DECODER, shape="encoder-decoder"))
    ends = (SECOND[0], [*SECOND[0][:-1], 12])
    encode = jax.jit(lambda network, source: network.encode(source, jnp.ones(5, int), FULL))
    found = [np.asarray(encode(network, jnp.asarray(s))) for s in ends]
    assert (np.abs(found[0] - found[1]).max(axis=-1) > 1e-3).all()


@pytest.mark.parametrize("spec", KINDS, ids=name)
@pytest.mark.parametrize("width", [16, 40])
def test_parameters_are_counted_before_anything_is_drawn(spec, width):
    spec = dataclasses.replace(spec, width=width, depth=3)
    blocks, both = 1 if spec.tied else 3, spec.shape == "encoder-decoder"
    attention = 4 * width**2
    nearness = 32 * spec.heads if spec.positions == "relative" else 0
    block = attention + nearness + 3 * width * spec.hidden + 2 * width
    expected = 2 * WORDS * width + width + blocks * block
    if both:
        expected += width + blocks * (block + attention + width)
    if spec.positions == "learned":
        expected += LENGTH * width
    assert spec.parameters(WORDS, LENGTH) == expected


def test_the_count_is_that_of_the_weights_drawn():
    for spec in (KINDS[0], dataclasses.replace(KINDS[-1], positions="relative")):
        drawn = spec.draw(jax.random.key(1), vocabulary=WORDS, length=LENGTH)
        # The scale of embeddings and switches are kept with the weights, and never learnt; nor are
        # the places of a network that goes by distances.
        idle = 0 if drawn.places is None else drawn.places.size
        assert count_parameters(drawn) == spec.parameters(WORDS, LENGTH) + 3 + idle


def test_what_is_switched_off_is_never_learnt():
    none = jnp.zeros((1, 0), int)
    rows = Rows(jnp.asarray([[4, 5, 6, 7]]), jnp.ones((1, 4), int), none, none)

    def loss(network):
        return jnp.sum(network(rows)[..., 4:] ** 2)

    for positions, learnt in (("learned", (True, False)), ("relative", (False, True))):
        spec = dataclasses.replace(DECODER, positions=positions)
        gradient = jax.grad(loss)(stirred(spec))
        found = (gradient.places, gradient.decoder[0].own.nearness)
        assert tuple(bool(jnp.any(leaf != 0)) for leaf in found) == learnt
        assert not any(jnp.any(getattr(gradient, name) != 0) for name in SWITCHES)
        assert spec.kin == dataclasses.replace(DECODER, positions="relative").kin


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tied_network_has_one_block_and_equals_an_untied_one_with_equal_blocks(shape):
    tied = stirred(dataclasses.replace(DECODER, shape=shape, tied=True))
    assert len(tied.decoder) == 1 and len(tied.encoder) == (shape == "encoder-decoder")
    untied = dataclasses.replace(
        tied, decoder=tied.decoder * 2, encoder=tied.encoder * 2,
        spec=dataclasses.replace(tied.spec, tied=False),
    )  # fmt: skip
    rows = stacked(row(FIRST, SECOND, THIRD))
    np.testing.assert_array_equal(scores(tied, rows), scores(untied, rows))


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_the_two_scales_of_the_embedding_differ_by_the_root_of_the_width(positions):
    spec = SequenceModel(depth=1, width=256, heads=2, positions=positions)
    tokens, places = jnp.arange(WORDS), jnp.arange(WORDS) % LENGTH
    up, down = (
        np.asarray(
            dataclasses.replace(spec, embedding=embedding)
            .draw(jax.random.key(0), vocabulary=WORDS, length=LENGTH)
            .embed(tokens, places, FULL)
        )
        for embedding in ("up", "down")
    )
    np.testing.assert_allclose(up, down * 16, rtol=1e-6)
    variance = 2 if positions == "learned" else 1  # that of tokens, and of places
    assert up.var() == pytest.approx(variance, rel=0.05)


def test_hidden_units_hold_about_as_many_numbers_as_four_times_the_width_without_gates():
    for width in (16, 64, 128, 512):
        hidden = SequenceModel(width=width, heads=2).hidden
        assert hidden % 8 == 0 and 8 * width <= 3 * hidden < 8 * width + 24


@given(
    x=st.lists(st.floats(-50, 50, width=32), min_size=4, max_size=4),
    scale=st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4),
)
def test_the_norm_is_the_root_mean_square(x, scale):
    norm = RMSNorm(jnp.asarray(scale, jnp.float32))
    found = norm(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(found, slow_norm(norm, np.asarray(x)), rtol=1e-5, atol=1e-6)


def test_the_gated_units_are_those_of_swiglu():
    gated = Gated.draw(jax.random.key(0), 6, 16)
    x = np.random.default_rng(0).normal(0, 2, (5, 6)).astype(np.float32)
    np.testing.assert_allclose(
        gated(jnp.asarray(x), FULL), slow_gated(gated, x.astype(float)), rtol=1e-4, atol=1e-5
    )


APART = np.arange(-600, 601)


@pytest.fixture(scope="module")
def buckets():
    return np.asarray(jax.jit(bucket)(jnp.asarray(APART)))


def test_distances_share_a_bias_by_their_logarithm_and_no_border_is_rounded(buckets):
    np.testing.assert_array_equal(buckets, [slow_bucket(apart) for apart in APART.tolist()])
    # Where distances are known when compiling, another routine computes the logarithm.
    known = jax.jit(lambda: bucket(jnp.arange(-600, 601)))()
    np.testing.assert_array_equal(known, buckets)


@given(near=st.integers(0, 600), far=st.integers(0, 600))
def test_a_bucket_is_the_same_on_both_sides_but_for_the_side_and_grows_with_distance(
    buckets, near, far
):
    behind, ahead = dict(zip(APART.tolist(), buckets.tolist(), strict=True)), BUCKETS // 2
    near, far = sorted((near, far))
    assert behind[near] <= behind[far] < ahead
    if near:
        assert behind[-near] == behind[near] + ahead
    if far < NEAR and near < far:
        assert behind[near] < behind[far]
    if near >= FAR:
        assert behind[near] == behind[far] == ahead - 1


placed = jax.jit(places_in)


@pytest.mark.parametrize("rows", [(), (3,), (2, 3)])
def test_what_rows_share_has_the_gradient_of_a_broadcast(rows):
    shared, weights = (
        jnp.asarray(np.random.default_rng(n).normal(size=(*lead, 2, 4, 4)), FULL)
        for n, lead in enumerate([(5,), (5, *rows)])
    )

    def gradient(spread):
        total = lambda s, w: jnp.sum(jnp.sin(spread(s, w.shape)) * w)  # noqa: E731
        return jax.vmap(jax.grad(total))(shared, weights)  # members of a population

    np.testing.assert_allclose(
        gradient(for_each_row), gradient(jnp.broadcast_to), rtol=1e-5, atol=1e-6
    )


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5), padding=st.integers(0, 4))
def test_places_are_counted_from_the_beginning_of_each_item(lengths, padding):
    item = [n for n, length in enumerate(lengths, start=1) for _ in range(length)] + [0] * padding
    item = item + [0] * (40 - len(item))  # one shape, compiled once
    expected = [place for length in lengths for place in range(length)]
    found = np.asarray(placed(jnp.asarray([item, item[::-1]])))
    np.testing.assert_array_equal(found[0, : len(expected)], expected)
    backward = [place for length in lengths[::-1] for place in range(length)]
    np.testing.assert_array_equal(found[1, -len(backward) :], backward)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"width": 20, "heads": 4}, r"multiple of 8, got 20: use width=24"),
        ({"width": 9, "heads": 3}, r"multiple of 6, got 9: use width=12"),
        ({"depth": 0}, r"depth=0: expected at least 1"),
        ({"heads": 0}, r"heads=0: expected at least 1"),
        ({"width": -4}, r"width=-4: expected at least 1"),
        ({"shape": "encoder-decoder", "positions": "none"}, r"use positions=rotary, or shape=dec"),
        (
            {"shape": "encodr-decoder"},
            r"unknown shape 'encodr-decoder': did you mean 'encoder-decoder'",
        ),
        ({"positions": "rotery"}, r"unknown positions 'rotery': did you mean 'rotary'"),
        ({"embedding": "upp"}, r"unknown embedding 'upp': did you mean 'up'"),
    ],
)
def test_an_impossible_network_is_refused_with_what_to_type(wrong, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        SequenceModel(**wrong)


@pytest.mark.parametrize("spec", KINDS, ids=name)
def test_a_spec_is_the_same_after_it_is_stored(spec):
    assert revive(canonical(spec)) == spec
