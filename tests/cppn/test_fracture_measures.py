from __future__ import annotations

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cppn_genomes import bred, small
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.stats import special_ortho_group

from recombine.cppn import (
    SYMMETRIES,
    Architecture,
    LayeredCPPN,
    Renderer,
    concordance,
    distinct,
    effective_rank,
    evaluate,
    fracture,
    layerise,
    picture,
    rotated,
    standardised,
    stencil_genome,
    sweep_sizes,
    sweep_symmetry,
    sweepable,
    variation,
)
from recombine.errors import InvalidRequest, NotApplicable, UnknownName

MIRRORS = {
    "left-right": np.fliplr,
    "up-down": np.flipud,
    "rotation": lambda one: np.rot90(one, 2),
    "transposition": np.transpose,
}
ROWS, COLUMNS = np.mgrid[-1:1:12j, -1:1:12j]
LAYERS = st.lists(
    arrays(
        np.float64, st.tuples(st.integers(1, 5), st.just(6), st.just(6)), elements=st.floats(-3, 3)
    ),
    min_size=1,
    max_size=3,
)


def some_maps(count: int, size: int = 10, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, size, size)).cumsum(axis=2)


@pytest.mark.parametrize("symmetry", SYMMETRIES)
def test_concordance_is_the_correlation_with_the_mirror_image(symmetry):
    maps = some_maps(7)
    expected = [abs(stats.pearsonr(m.ravel(), MIRRORS[symmetry](m).ravel())[0]) for m in maps]
    np.testing.assert_allclose(concordance(standardised(maps), symmetry), expected, atol=1e-12)


def test_standardised_maps_have_mean_0_and_deviation_1_and_are_not_constant():
    maps = np.concatenate([some_maps(3), np.full((2, 10, 10), 4.0), 1e-6 * some_maps(1)])
    found = standardised(maps)
    np.testing.assert_allclose(found, stats.zscore(maps[:3].reshape(3, -1), 1).reshape(3, 10, 10))


def test_variation_is_the_mean_step_between_neighbours():
    ramp = np.broadcast_to(np.arange(5.0), (1, 4, 5))
    assert variation(ramp) == pytest.approx(1.0)
    steps = [abs(a - b) for row in some_maps(1)[0] for a, b in itertools.pairwise(row)]
    downs = [abs(a - b) for row in some_maps(1)[0].T for a, b in itertools.pairwise(row)]
    assert variation(some_maps(1)) == pytest.approx(np.mean(steps) + np.mean(downs))


def test_copies_up_to_sign_and_scale_count_once():
    a, b = some_maps(2)
    maps = standardised(np.stack([a, -3 * a, b, a + 1e-3 * b, 2 * b + 5, a + b]))
    assert distinct(maps).tolist() == [0, 2, 5]


def test_the_effective_rank_is_that_of_the_singular_values():
    maps = standardised(some_maps(9))
    energy = np.linalg.svd(maps.reshape(9, -1), compute_uv=False) ** 2
    assert effective_rank(maps) == pytest.approx(np.exp(stats.entropy(energy)))


@given(count=st.integers(1, 6))
def test_uncorrelated_maps_have_their_number_as_rank_and_copies_a_rank_of_one(count):
    waves = np.stack([np.cos(np.pi * n * (np.arange(16) + 0.5) / 16) for n in range(1, count + 1)])
    maps = standardised(np.broadcast_to(waves[:, None, :], (count, 16, 16)))
    assert effective_rank(maps) == pytest.approx(count)
    assert effective_rank(np.repeat(maps[:1], count, axis=0)) == pytest.approx(1)


def test_rotation_keeps_the_span_of_a_layer_and_its_total_variance():
    layers = [some_maps(4), some_maps(3, seed=1)]
    for before, after in zip(layers, rotated(layers, seed=5), strict=True):
        flat, turned = standardised(before).reshape(len(before), -1), after.reshape(len(after), -1)
        np.testing.assert_allclose(flat.T @ flat, turned.T @ turned, atol=1e-9)
    again = rotated(layers, seed=5)
    np.testing.assert_array_equal(again[0], rotated(layers, seed=5)[0])
    assert not np.allclose(again[0], rotated(layers, seed=6)[0])


@settings(max_examples=60)
@given(layers=LAYERS, symmetry=st.sampled_from(sorted(SYMMETRIES)))
def test_every_measure_stays_within_its_bounds(layers, symmetry):
    try:
        found = fracture(layers, symmetry=symmetry)
    except NotApplicable:
        assert all((layer.std(axis=(1, 2)) < 1e-3).all() for layer in layers)
        return
    assert 1 <= found.distinct <= found.maps <= sum(map(len, layers))
    assert 1 - 1e-9 <= found.effective_rank <= found.distinct + 1e-9
    for share in (found.concordance, found.symmetric_share, found.rotated_concordance):
        assert 0 <= share <= 1 + 1e-9
    assert found.variation > 0 and found.sweep_symmetry is None and found.sweeps == 0
    assert json.loads(json.dumps(found.document()))["distinct"] == found.distinct


@settings(max_examples=30)
@given(layers=LAYERS, scale=st.floats(0.5, 4), shift=st.floats(-2, 2))
def test_measures_do_not_change_with_scale_and_offset(layers, scale, shift):
    layers = [layer + some_maps(len(layer), 6) for layer in layers]  # none of them constant
    before = fracture(layers)
    after = fracture([scale * layer + shift for layer in layers])
    assert before.concordance == pytest.approx(after.concordance, abs=1e-6)
    assert before.effective_rank == pytest.approx(after.effective_rank, abs=1e-6)


def test_symmetric_maps_stay_symmetric_under_rotation_and_single_sided_ones_do_not():
    even = np.stack([ROWS, COLUMNS**2, np.cos(3 * COLUMNS) * ROWS])
    assert fracture([even]).rotated_share == 1
    odd = np.concatenate([even, np.stack([COLUMNS, COLUMNS**3, np.sin(4 * COLUMNS)])])
    found = fracture([odd])
    assert found.concordance == pytest.approx(1)  # every map is even or odd
    assert found.rotated_concordance < 0.8  # no mixture of both is


def test_wrong_maps_are_refused():
    with pytest.raises(NotApplicable, match="every map is constant"):
        fracture([np.ones((3, 4, 4))])
    with pytest.raises(InvalidRequest, match=r"\(map, row, column\)"):
        fracture([np.ones((4, 4))])
    with pytest.raises(InvalidRequest, match="not finite"):
        fracture([np.full((1, 4, 4), np.nan)])
    with pytest.raises(UnknownName, match="did you mean 'up-down'"):
        fracture([some_maps(2)], symmetry="updown")
    with pytest.raises(InvalidRequest, match="expected square ones"):
        fracture([some_maps(2)[:, :5]], symmetry="transposition")


# --- sweeps ----------------------------------------------------------------------------------

EVEN = jnp.asarray(np.stack([COLUMNS**2 + ROWS] * 3, -1), jnp.float32)
ODD = jnp.asarray(np.stack([COLUMNS**3] * 3, -1), jnp.float32)
EVEN, ODD = (part / jnp.sqrt(jnp.mean(part**2)) for part in (EVEN, ODD))  # of unit energy


def linear(weights: jax.Array) -> jax.Array:
    return weights[0] * EVEN + weights[1] * ODD + weights[2] * (0.6 * EVEN + 0.8 * ODD)


def bent(weights: jax.Array) -> jax.Array:
    return weights[0] * EVEN + weights[0] ** 2 * ODD


def bounded(weights: jax.Array) -> jax.Array:
    return 0.01 * jnp.tanh(weights[0]) * EVEN + weights[1] * ODD


@pytest.mark.parametrize("batch", [1, 2, 64])
def test_the_symmetric_share_of_a_sweep_is_that_of_what_the_weight_draws(batch):
    found = sweep_symmetry(linear, np.float32([0.3, -1, 2]), np.arange(3), batch=batch)
    assert found.tolist() == pytest.approx([1, 0, 0.36] * 2, abs=1e-4)


@pytest.mark.parametrize("effect", [0.005, 0.3])
def test_a_sweep_goes_to_the_matched_effect_and_no_further(effect):
    # The change d gives the effect d^2 + d^4, of which d^2 is symmetric.
    square = (np.sqrt(1 + 4 * effect) - 1) / 2
    found = sweep_symmetry(bent, np.zeros(1, np.float32), np.zeros(1, int), effect=effect)
    assert found == pytest.approx(square / effect, rel=0.01)


def test_a_weight_that_cannot_reach_the_effect_is_left_out_of_the_mean():
    found = sweep_symmetry(bounded, np.zeros(2, np.float32), np.array([0, 1]))
    assert np.isnan(found).tolist() == [True, False, True, False]
    summary = fracture([some_maps(3)], sweeps=found)
    assert (summary.sweeps, summary.sweep_symmetry) == (2, pytest.approx(0, abs=1e-5))
    assert fracture([some_maps(3)], sweeps=found[:1]).sweep_median is None
    assert sweep_symmetry(bounded, np.zeros(2, np.float32), np.zeros(0, int)).shape == (0,)


def jumping(weights: jax.Array) -> jax.Array:
    """The first weight does nothing, and then far too much."""
    return jnp.where(jnp.abs(weights[0]) > 0.1, 1.0, 0.0) * EVEN + weights[1] * ODD


@pytest.mark.parametrize("batch", [1, 64])
def test_a_weight_that_jumps_past_the_effect_is_left_out_too(batch):
    found = sweep_symmetry(jumping, np.zeros(2, np.float32), np.array([0, 1]), batch=batch)
    assert np.isnan(found).tolist() == [True, False, True, False]
    # Where the jump is what is wanted, to within a tenth, it is a match.
    for effect, matched in ((1 / 1.09, True), (1 / 1.12, False)):
        sizes = sweep_sizes(
            jumping, np.zeros(2, np.float32), np.array([0]), effect=effect, batch=batch
        )
        assert np.isfinite(sizes).tolist() == [matched] * 2


def broken(weights: jax.Array) -> jax.Array:
    return jnp.where(jnp.abs(weights[0]) > 0.1, jnp.nan, 0.0) * EVEN


def test_a_change_that_is_no_number_is_no_match():
    assert np.isnan(sweep_sizes(broken, np.zeros(1, np.float32), np.array([0]))).all()


@pytest.mark.parametrize("effect", [0.005, 0.02])
def test_a_weight_moved_by_its_size_has_the_effect(effect):
    shape = Architecture.parse("3;cache:2,gaussian:4,sin:2")
    flat = np.asarray(LayeredCPPN.draw(jax.random.key(4), shape).flat())
    draw = Renderer(shape, 12)
    which = np.arange(0, len(flat), 7)
    sizes = sweep_sizes(draw, flat, which, effect=effect)
    assert np.isfinite(sizes).mean() > 0.5
    assert (np.isnan(sizes) == np.isnan(sweep_symmetry(draw, flat, which, effect=effect))).all()
    for place, move in zip(np.tile(which, 2), sizes * np.repeat([1, -1], len(which)), strict=True):
        if np.isfinite(move):
            moved = flat + np.float32(move) * (np.arange(len(flat)) == place)
            change = np.asarray(draw(jnp.asarray(moved)) - draw(jnp.asarray(flat)))
            assert np.mean(change**2) == pytest.approx(effect, rel=0.1)


def test_wrong_sweeps_are_refused():
    with pytest.raises(InvalidRequest, match="weights 0 to 7 of 2"):
        sweep_symmetry(bounded, np.zeros(2, np.float32), np.array([0, 7]))
    with pytest.raises(InvalidRequest, match="an effect of 0"):
        sweep_symmetry(bounded, np.zeros(2, np.float32), np.array([0]), effect=0)


def test_a_sweep_of_a_symmetric_network_is_symmetric():
    genome = stencil_genome(1, details=0, hidden=4)
    shape, matrices = layerise(genome)
    model = LayeredCPPN.of(shape, matrices)
    found = sweep_symmetry(Renderer(shape, 16), model.flat(), sweepable(shape, matrices)[:6])
    assert np.isfinite(found).any()
    np.testing.assert_allclose(found[np.isfinite(found)], 1, atol=1e-3)


def test_links_can_be_swept_and_copies_cannot():
    genome = small(("x", "a", 1.0), ("a", "b", 2.0), ("x", "ink", 0.5), ("b", "ink", 1.0), a="sin")
    shape, matrices = layerise(genome)
    flat = np.concatenate([matrix.ravel() for matrix in matrices])
    assert sorted(flat[sweepable(shape, matrices)]) == [0.5, 1.0, 1.0, 2.0]
    everything = LayeredCPPN.draw(jax.random.key(0), shape)
    assert len(sweepable(shape, everything.matrices())) == len(flat)


# --- stencils --------------------------------------------------------------------------------


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), hidden=st.integers(2, 14))
def test_every_node_of_a_stencil_but_its_details_and_outputs_is_symmetric(seed, hidden):
    genome = stencil_genome(seed, hidden=hidden)
    details = [node.id for node in genome.nodes if node.id.startswith("detail")]
    assert len(details) <= 2
    for id, values in evaluate(genome, 16).items():
        if id not in (*details, "x", "hue", "saturation", "brightness"):
            np.testing.assert_allclose(values, values[:, ::-1], atol=1e-12)
    assert picture(genome, 24).std(axis=(0, 1)).max() >= 0.1


def test_stencils_are_unified_and_untrained_networks_of_their_shape_are_not():
    for seed in range(3):
        shape, matrices = layerise(stencil_genome(seed))
        planted = fracture(LayeredCPPN.of(shape, matrices).maps(32))
        untrained = fracture(LayeredCPPN.draw(jax.random.key(seed), shape).maps(32))
        # All but two details and the brightness they lead to are symmetric by construction.
        assert planted.symmetric_share >= 1 - 3 / planted.distinct
        assert planted.symmetric_share > untrained.symmetric_share + 0.4
        assert planted.concordance > untrained.concordance + 0.2


def test_a_stencil_without_details_draws_a_symmetric_picture():
    image = picture(stencil_genome(7, details=0), 20)
    np.testing.assert_allclose(image, image[:, ::-1], atol=1e-9)


@pytest.mark.parametrize("wrong", [{"hidden": 1}, {"details": 3}, {"details": -1}])
def test_a_wrong_stencil_is_refused(wrong):
    with pytest.raises(InvalidRequest, match="expected at least 2 nodes"):
        stencil_genome(0, **wrong)


# --- the published picture -------------------------------------------------------------------


def test_the_skull_has_the_measures_known_of_it():
    shape, matrices = layerise(bred("skull"))
    model = LayeredCPPN.of(shape, matrices)
    found = fracture(model.maps(96))
    assert found.concordance == pytest.approx(0.980, abs=0.001)
    assert found.symmetric_share == pytest.approx(0.85)
    assert found.variation == pytest.approx(0.107, abs=0.001)
    assert found.distinct == 20
    assert found.effective_rank == pytest.approx(7.6, abs=0.05)
    # These hang on the draw of the rotation.
    assert found.rotated_concordance == pytest.approx(0.79, abs=0.05)
    assert found.rotated_share == pytest.approx(0.33, abs=0.1)


def test_sweeps_of_the_skull_are_as_symmetric_as_known():
    shape, matrices = layerise(bred("skull"))
    model = LayeredCPPN.of(shape, matrices)
    # Known at 96 pixels a side; the size hardly matters.
    found = sweep_symmetry(Renderer(shape, 32), model.flat(), sweepable(shape, matrices))
    assert len(found) == 2 * 57
    assert np.nanmean(found) == pytest.approx(0.747, abs=0.015)
    assert np.nanmedian(found) == pytest.approx(0.812, abs=0.02)


def test_an_untrained_network_of_the_skulls_shape_is_no_more_symmetric_than_known():
    shape = Architecture.parse("12;cache:15,gaussian:4,identity:2,sin:1")
    found = [fracture(LayeredCPPN.draw(jax.random.key(n), shape).maps(96)) for n in range(3)]
    assert np.mean([one.concordance for one in found]) == pytest.approx(0.45, abs=0.08)
    assert max(one.symmetric_share for one in found) < 0.1


def test_rotations_are_as_uniform_as_scipys():
    # The first entry of a uniform rotation has a variance of one over the dimension.
    maps = standardised(np.stack([ROWS, COLUMNS, ROWS * COLUMNS]))
    ours = [
        np.tensordot(rotated([maps], seed)[0], maps, axes=([1, 2], [1, 2])) / ROWS.size
        for seed in range(400)
    ]
    theirs = special_ortho_group.rvs(3, size=400, random_state=0)
    for entry in ((0, 0), (1, 2), (2, 1)):
        both = [np.array(one)[:, *entry] for one in (ours, theirs)]
        assert stats.ks_2samp(*both).pvalue > 0.001
