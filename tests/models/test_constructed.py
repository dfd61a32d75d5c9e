"""Networks written down: they compute their teacher as closely as promised, at any size."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.construction import construct, load_network
from recombine.encodings import (
    FewShot,
    Identity,
    IntervalShuffle,
    InvertibleNetwork,
    Orthogonal,
    Tokens,
)
from recombine.errors import InvalidRequest, StoreError
from recombine.families import Hyperteacher
from recombine.families.additive import Additive
from recombine.lab.identity import canonical, revive
from recombine.models import MLP, count_parameters
from recombine.models.constructed import Constructed, constructed_for, ranges
from recombine.seeds import Seeds

pytestmark = pytest.mark.usefixtures("strict_types")

SMALL = Hyperteacher(modules=8, active=2, input_units=4, hidden=(5,), output_units=3)
SUM = Additive(modules=8, active=2, input_units=4, features=5, output_units=3)


make = functools.lru_cache(maxsize=None)(construct)


def tasks(made, count=300, seed=0, corners=False):
    """Latents and inputs of random tasks; at the corners all are as large as they can be."""
    family, rng = made.family, np.random.default_rng(seed)
    ranks = rng.integers(family.space.size, size=count).astype(np.uint32)
    chosen = family.space.indicator(ranks)
    x = rng.uniform(-1, 1, (count, family.input_size)).astype(np.float32)
    if corners or family.weights == "khot":
        return chosen.astype(np.float32), np.sign(x) if corners else x
    tenths = rng.integers(5, 11, chosen.shape)
    return (chosen * tenths / 10).astype(np.float32), x


def answers(made, latents, x):
    """The written network, told by its encoding, in its own precision."""
    codes = _encode(made.encoding, made.setting.code, jnp.asarray(latents))
    return np.asarray(made.network(codes, jnp.asarray(x)[:, None])[:, 0])


@functools.partial(jax.jit, static_argnums=0)
def _encode(encoding, content, latents):
    return jax.vmap(lambda z: encoding.encode(content, z, None))(latents)


def plain_answers(made, latents, x):
    """The written network told z itself, layer by layer in double precision."""
    weights = {name: np.asarray(a, np.float64) for name, a in made.weights().items()}
    h = latents @ weights["first/task/weight"] + x @ weights["first/input/weight"]
    h = np.maximum(h + weights["first/input/bias"], 0)
    for layer in range(len(made.spec.widths) - 1):
        above = h @ weights[f"hidden/{layer}/weight"] + weights[f"hidden/{layer}/bias"]
        h = np.maximum(above, 0)
    return h @ weights["output/weight"] + weights["output/bias"]


def exact_targets(made, latents, x):
    """The teacher's equations in double precision, written out."""
    content = {name: np.asarray(a, np.float64) for name, a in made.setting.content.items()}
    z = np.asarray(latents, np.float64) / math.sqrt(made.family.active)
    x = np.asarray(x, np.float64)
    if isinstance(made.family, Additive):
        phi = np.maximum(x @ content["features"] + content["bias"], 0)
        return np.einsum("tm,mho,th->to", z, content["omega"], phi)
    weight, bias = np.einsum("tm,mih->tih", z, content["theta0"]), z @ content["beta0"]
    return np.maximum(np.einsum("ti,tih->th", x, weight) + bias, 0) @ content["omega"]


def worst(made, by=answers, **how):
    latents, x = tasks(made, **how)
    return np.abs(by(made, latents, x) - exact_targets(made, latents, x)).max()


@pytest.mark.parametrize(
    ("segments", "units", "errors"),
    [(4, 2080, (0.60, 0.67, 0.69)), (16, 8224, (0.034, 0.045, 0.057))],
)
def test_published_sizes_reach_the_expected_error_whatever_the_number_of_modules(
    segments, units, errors
):
    for modules, expected in zip((16, 64, 256), errors, strict=True):
        made = construct(Hyperteacher(modules=modules, active=3), segments=segments)
        assert made.units == made.spec.units == units == 2 * 16 * 16 * segments + 2 * 16
        found = made.measure(4000)
        assert found.worst == pytest.approx(expected, rel=0.35)
        assert found.worst < made.bound
        assert found.r2 > (0.9995 if segments == 16 else 0.93)


@pytest.mark.parametrize("family", [SMALL, SUM], ids=["hyperteacher", "additive"])
def test_the_error_falls_with_the_square_of_the_segments(family):
    cuts = np.array([4, 8, 16, 32])
    found = [worst(make(family, segments=n), plain_answers, count=3000) for n in cuts.tolist()]
    slope = np.polyfit(np.log(cuts), np.log(found), 1)[0]
    assert slope == pytest.approx(-2, abs=0.2)


@pytest.mark.parametrize("segments", [2, 3, 8, 33])
@pytest.mark.parametrize("seed", [0, 1])
def test_one_product_is_the_difference_of_two_interpolated_squares(segments, seed):
    family = Hyperteacher(modules=1, active=1, input_units=1, hidden=(1,), output_units=1)
    made = make(family, segments=segments, seeds=Seeds.all(seed))
    theta, beta, omega = (
        float(np.squeeze(made.setting.content[name])) for name in ("theta0", "beta0", "omega")
    )
    x, z = (
        grid.reshape(-1, 1) for grid in np.meshgrid(np.linspace(-1, 1, 57), np.arange(0, 1, 0.03))
    )
    knots = np.linspace(-2, 2, segments + 1)
    plus, minus = (np.interp(x + sign * z * np.sign(theta), knots, knots**2) for sign in (1, -1))
    expected = omega * np.maximum(abs(theta) / 4 * (plus - minus) + beta * z, 0)
    np.testing.assert_allclose(plain_answers(made, z, x), expected, atol=1e-6)


@pytest.mark.parametrize("family", [SMALL, SUM], ids=["hyperteacher", "additive"])
@pytest.mark.parametrize("squarings", [1, 2, 4])
def test_depth_computes_the_same_function_as_a_power_of_two_segments(family, squarings):
    deep = make(family, method="depth", squarings=squarings)
    wide = make(family, segments=2 ** (squarings + 1))
    assert deep.bound == wide.bound
    assert deep.spec.layers == wide.spec.layers + squarings - 1
    told = tasks(deep)
    np.testing.assert_allclose(plain_answers(deep, *told), plain_answers(wide, *told), atol=2e-6)


def test_at_a_small_tolerance_depth_needs_fewer_units():
    wide, deep = (make(SMALL, tolerance=1e-3, method=m) for m in ("segments", "depth"))
    assert deep.units < wide.units / 4
    for made in (wide, deep):
        assert worst(made) < made.bound <= 1e-3
    # Units grow as the root of the precision in width, and as its logarithm in depth.
    finer = {
        m: construct(SMALL, tolerance=1e-3 / 16, method=m).units for m in ("segments", "depth")
    }
    assert finer["segments"] > 3 * wide.units and finer["depth"] < 1.5 * deep.units


@given(
    family=st.sampled_from([
        SMALL,
        Hyperteacher(
            modules=3, active=1, input_units=1, hidden=(1,), output_units=1, weights="khot"
        ),
        Hyperteacher(
            modules=12, active=4, input_units=2, hidden=(6,), output_units=1, weights="continuous"
        ),
        SUM,
    ]),
    how=st.sampled_from([{"segments": 3}, {"segments": 8}, {"method": "depth", "squarings": 4}]),
    seed=st.integers(0, 10_000),
)  # fmt: skip
@settings(max_examples=40)
def test_no_answer_of_any_teacher_is_further_off_than_the_bound(family, how, seed):
    made = construct(family, **how, seeds=Seeds.all(seed))
    for corners in (False, True):
        assert worst(made, plain_answers, seed=seed, corners=corners) <= made.bound


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_holds_in_single_precision_where_it_is_reached(seed):
    # With one product of each input nothing averages out: the largest error is the bound's.
    family = Hyperteacher(
        modules=1, active=1, input_units=2, hidden=(1,), output_units=1, weights="khot"
    )
    made = make(family, segments=11, seeds=Seeds.all(seed))
    found = worst(made, corners=True)
    assert found <= made.bound
    assert found > 0.9 * made.bound or found < 1e-6  # else the unit is silent everywhere


@given(st.integers(1, 7), st.integers(1, 3), st.integers(0, 99))
@settings(max_examples=20)
def test_ranges_hold_for_every_combination(modules, active, seed):
    family = Hyperteacher(modules=modules, active=min(active, modules))
    bank = np.random.default_rng(seed).normal(size=(modules, 3)).astype(np.float32)
    every = family.space.indicator(np.arange(family.space.size, dtype=np.uint32))
    found = np.asarray(ranges(jnp.asarray(bank), family.space))
    assert np.all(np.abs(every @ bank) <= found + 1e-6)
    # And no wider than they must be, where no signs cancel.
    one_sign = np.asarray(ranges(jnp.abs(jnp.asarray(bank)), family.space))
    np.testing.assert_allclose((every @ np.abs(bank)).max(axis=0), one_sign, rtol=1e-5)


def test_a_teacher_with_one_value_per_factor_has_ranges_of_its_own():
    slots = Hyperteacher(
        modules=9, active=3, levels=(2, 3, 4), input_units=4, hidden=(5,), output_units=3
    )
    made, free = (construct(f, segments=9) for f in (slots, replace(slots, levels=())))
    assert worst(made) < made.bound and worst(made, corners=True) < made.bound
    # The same modules, but two of one factor never meet: the promise is tighter.
    assert made.bound < free.bound
    every = slots.space.indicator(np.arange(slots.space.size, dtype=np.uint32))
    sizes = np.abs(np.asarray(made.setting.content["theta0"])).reshape(9, -1)
    found = np.asarray(ranges(made.setting.content["theta0"], slots.space)).reshape(-1)
    np.testing.assert_allclose((every @ sizes).max(axis=0), found, rtol=1e-5)


@pytest.mark.parametrize("family", [SMALL, SUM], ids=["hyperteacher", "additive"])
@pytest.mark.parametrize("law", ["discrete", "khot"])
@pytest.mark.parametrize("encoding", [Orthogonal(), Tokens(), IntervalShuffle()], ids=repr)
def test_the_answers_are_the_same_however_the_task_is_told(family, law, encoding):
    family = replace(family, weights=law)
    seeds = replace(Seeds(), encoding=3)
    plain = make(family, segments=8, seeds=seeds)
    told = make(family, segments=8, encoding=encoding, seeds=seeds)
    asked = tasks(plain)
    np.testing.assert_allclose(answers(told, *asked), plain_answers(plain, *asked), atol=2e-5)


@pytest.mark.parametrize("seed", range(6))
def test_shuffled_intervals_are_read_back_under_any_permutation(seed):
    made = construct(
        SMALL, tolerance=3e-3, encoding=IntervalShuffle(), seeds=Seeds.all(seed), method="depth"
    )
    assert worst(made) < made.bound


def test_looking_tasks_up_costs_units_in_proportion_to_the_modules():
    def units(modules, encoding):
        return constructed_for(replace(SMALL, modules=modules), encoding, segments=4).units

    straight = units(8, Identity())
    assert [units(m, Tokens()) for m in (8, 16, 256)] == [straight] * 3
    extra = [units(m, IntervalShuffle()) - straight for m in (8, 16, 32, 64)]
    assert extra == [6 * m + SMALL.input_units for m in (8, 16, 32, 64)]


def test_many_modules_told_as_tokens_stay_within_the_bound():
    family = Hyperteacher(modules=200, active=2, input_units=4, hidden=(5,), output_units=3)
    made = construct(family, tolerance=2e-2, encoding=Tokens(), method="depth")
    assert worst(made) < made.bound <= 2e-2


def test_the_finest_tolerance_that_float32_carries_is_named_and_kept():
    with pytest.raises(InvalidRequest, match=r"in float32 .* at best; use tolerance=") as refused:
        construct(SMALL, tolerance=1e-12)
    finest = float(re.findall(r"use tolerance=([\d.e-]+)", str(refused.value))[0])
    assert finest < 2e-5
    made = construct(SMALL, tolerance=finest, method="depth")
    assert worst(made, count=2000) < made.bound <= finest


def test_a_tolerance_beyond_the_memory_is_refused_with_one_that_works():
    tiny = replace(SMALL, input_units=2, hidden=(2,), output_units=2)
    room = 40_000
    with pytest.raises(InvalidRequest, match=r"use tolerance=.* or method='depth'") as refused:
        construct(tiny, tolerance=1e-4, memory_bytes=room)
    said = float(re.findall(r"use tolerance=([\d.e-]+)", str(refused.value))[0])
    made = construct(tiny, tolerance=said, memory_bytes=room)
    assert made.bound <= said
    # And no coarser than it must be.
    assert 0.9 * room < 4 * count_parameters(made.network) <= room
    deep = construct(tiny, tolerance=1e-4, memory_bytes=room, method="depth")
    assert deep.bound <= 1e-4 and 4 * count_parameters(deep.network) <= room
    with pytest.raises(InvalidRequest, match=r"more than the 0\.001 MB allowed"):
        construct(tiny, segments=64, memory_bytes=1000)


@pytest.mark.parametrize("family", [SMALL, SUM], ids=["hyperteacher", "additive"])
def test_saved_weights_make_the_same_network(family, tmp_path):
    made = construct(family, segments=6)
    path = tmp_path / "teacher.safetensors"
    made.save(path)
    again = load_network(path)
    assert jax.tree.structure(again) == jax.tree.structure(made.network)
    jax.tree.map(np.testing.assert_array_equal, again, made.network)
    with pytest.raises(StoreError):
        made.save(path)  # nothing is overwritten
    path.with_name("other").write_bytes(b"no weights")
    with pytest.raises(StoreError, match="not a safetensors file"):
        load_network(path.with_name("other"))


@pytest.mark.parametrize("method", ["segments", "depth"])
def test_a_learner_starts_from_the_very_network_and_commits_it_under_the_same_names(method):
    made = construct(SMALL, tolerance=0.01, method=method, seeds=Seeds.all(4))
    learner = made.learner(training_steps=20)
    learner.check()
    with jax.numpy_dtype_promotion("standard"):
        arrays = jax.tree.map(jnp.asarray, learner.prepare({}).merged())
        state = learner.natural().init(arrays, jax.random.key(7))
    committed, written = learner.weights(state), made.weights()
    assert committed.keys() == written.keys() >= {"first/task/weight", "output/bias"}
    for name, weight in written.items():
        np.testing.assert_allclose(committed[name], weight, rtol=1e-5, atol=1e-6)
    assert learner.size == count_parameters(made.network)
    assert revive(canonical(learner)) == learner


def test_the_random_control_has_the_same_shapes_and_knows_nothing():
    made = construct(SMALL, segments=8)
    control = replace(made.spec, random=True)
    sizes = {"code": 8, "inputs": 4, "outputs": 3}
    drawn = control.draw(jax.random.key(0), **sizes)
    shapes = jax.tree.map(jnp.shape, (drawn, made.network))
    assert shapes[0] == shapes[1]
    assert count_parameters(drawn) == control.parameters(**sizes)
    assert not np.any(drawn.first.input.bias) and not np.any(drawn.output.bias)
    assert np.asarray(drawn.first.task.weight).var() == pytest.approx(1 / 12, rel=0.1)


def test_the_default_spec_is_that_of_the_default_teacher():
    assert Constructed() == constructed_for(Hyperteacher())
    spec = constructed_for(SMALL, IntervalShuffle(), method="depth", squarings=4)
    assert revive(canonical(spec)) == spec and spec.layers == 6


@pytest.mark.parametrize(
    ("family", "how", "sentence"),
    [
        (replace(SMALL, hidden=(5, 5)), {}, "one hidden layer"),
        (SMALL, {"encoding": FewShot()}, "no exact decoding of FewShot"),
        (SMALL, {"encoding": InvertibleNetwork()}, "no exact decoding of InvertibleNetwork"),
        (replace(SMALL, weights="continuous"), {"encoding": Tokens()}, "into tenths"),
        (replace(SMALL, weights="continuous"), {"encoding": IntervalShuffle()}, "into tenths"),
        (MLP(), {}, "no construction is known for MLP"),
        (SMALL, {"method": "depht"}, "did you mean 'depth'"),
        (SMALL, {"segments": 1}, "segments=1: expected a whole number of at least 2"),
        (SMALL, {"segments": 8, "method": "depth"}, "method='depth' takes squarings"),
        (SMALL, {"segments": 8, "tolerance": 0.1}, "give one of"),
        (SMALL, {"tolerance": float("nan")}, "tolerance=nan"),
    ],
)
def test_what_cannot_be_written_down_is_refused_with_the_reason(family, how, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        construct(family, **how)


def test_a_spec_drawn_for_nothing_or_for_another_teacher_is_refused():
    made = construct(SMALL, segments=4)
    sizes = {"code": 8, "inputs": 4, "outputs": 3}
    with pytest.raises(InvalidRequest, match="setting="):
        made.spec.draw(jax.random.key(0), **sizes)
    with pytest.raises(InvalidRequest, match=r"needs \(165, 5\): use constructed_for"):
        replace(made.spec, widths=(9, 9)).draw(jax.random.key(0), **sizes, setting=made.setting)
