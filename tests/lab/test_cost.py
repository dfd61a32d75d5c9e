from __future__ import annotations

import functools
import statistics

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import NotApplicable
from recombine.lab import engine
from recombine.lab.cost import (
    Cost,
    cost_of,
    estimate_seconds,
    measured,
    parameters_of,
    predict_memory,
    shapes_of,
    step_cost,
)
from recombine.learners.supervised import Supervised
from recombine.models.mlp import MLP

SIZES = st.integers(1, 40)


def shape(*sizes: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


@settings(max_examples=25, deadline=None)
@given(rows=SIZES, inner=SIZES, columns=SIZES, batch=SIZES)
def test_a_product_costs_two_operations_per_term(rows, inner, columns, batch):
    cost = cost_of(jnp.matmul, shape(batch, rows, inner), shape(batch, inner, columns))
    assert cost.flops == 2 * batch * rows * inner * columns
    assert cost.bytes == 4 * batch * (rows * inner + inner * columns + rows * columns)


def test_a_convolution_costs_its_window_for_every_output():
    convolve = functools.partial(
        jax.lax.conv_general_dilated, window_strides=(1, 1), padding="VALID"
    )
    cost = cost_of(convolve, shape(2, 3, 10, 10), shape(5, 3, 4, 4))
    assert cost.flops == 2 * (2 * 5 * 7 * 7) * (3 * 4 * 4)


@settings(max_examples=10, deadline=None)
@given(outer=st.integers(1, 9), inner=st.integers(1, 9))
def test_nested_scans_multiply(outer, inner):
    def repeat(function, length):
        return lambda x: jax.lax.scan(lambda c, _: (function(c), None), x, length=length)[0]

    def square(x):
        return x @ x

    x = shape(6, 6)
    once = cost_of(square, x)
    assert cost_of(repeat(square, inner), x).flops == inner * once.flops
    assert cost_of(repeat(repeat(square, inner), outer), x) == once * (outer * inner)


def test_a_while_loop_with_constant_bounds_counts_its_trips_and_any_other_one():
    def counted(x):
        return jax.lax.while_loop(lambda c: c[0] < 7, lambda c: (c[0] + 1, c[1] @ c[1]), (2, x))[1]

    def data_dependent(x, n):
        return jax.lax.fori_loop(0, n, lambda _, x: x @ x, x)

    product = 2 * 10**3
    assert cost_of(counted, shape(10, 10)).flops == pytest.approx(5 * product, abs=20)
    once = cost_of(data_dependent, shape(10, 10), shape(dtype="int32")).flops
    assert once == pytest.approx(product, abs=20)


def test_of_a_conditional_the_dearest_branch_counts():
    def choose(flag, x):
        return jax.lax.cond(flag, lambda x: x @ x @ x, lambda x: x + 1, x)

    assert cost_of(choose, shape(dtype="bool"), shape(9, 9)).flops == 4 * 9**3


@pytest.mark.parametrize("wrapper", [jax.jit, jax.checkpoint, eqx.filter_closure_convert])
def test_a_call_costs_what_its_body_costs(wrapper):
    x = shape(8, 8)
    body = lambda x: jnp.tanh(x @ x)  # noqa: E731
    called = wrapper(body, jnp.zeros((8, 8))) if "closure" in wrapper.__name__ else wrapper(body)
    assert cost_of(called, x) == cost_of(body, x)


def test_work_that_no_result_needs_is_not_counted():
    assert cost_of(lambda x: (x @ x, x + 1)[1], shape(8, 8)).flops == 64


def test_mapping_over_members_multiplies_the_cost():
    def learn(w, x):
        return jax.grad(lambda w: jnp.mean(jax.nn.relu(x @ w) ** 2))(w)

    one = cost_of(learn, shape(16, 8), shape(32, 16))
    many = cost_of(jax.vmap(learn), shape(5, 16, 8), shape(5, 32, 16))
    assert many.flops == pytest.approx(5 * one.flops, rel=0.01)
    assert many.bytes == pytest.approx(5 * one.bytes, rel=0.01)


def test_a_function_without_loops_agrees_with_the_compiler():
    def network(w1, w2, x, y):
        def loss(w1, w2):
            return jnp.mean((jax.nn.relu(x @ w1 + 1.0) @ w2 - y) ** 2)

        return jax.grad(loss, (0, 1))(w1, w2)

    shapes = (shape(64, 128), shape(128, 32), shape(256, 64), shape(256, 32))
    analysis = jax.jit(network).lower(*shapes).compile().cost_analysis()
    assert cost_of(network, *shapes).flops == pytest.approx(analysis["flops"], rel=0.1)


def test_fused_steps_move_their_inputs_and_results_once():
    def chain(x, y):
        return jnp.exp(x * y + 1.0) - y

    assert cost_of(chain, shape(1000), shape(1000)).bytes == 3 * 4000


def test_fetching_rows_of_a_table_does_not_read_the_table():
    cost = cost_of(lambda table, rows: table[rows], shape(10**6, 8), shape(4, dtype="int32"))
    assert cost.bytes < 10_000


@pytest.mark.parametrize(("width", "depth"), [(256, 4), (512, 2), (1024, 4)])
def test_a_step_costs_six_operations_per_weight_and_point(width, depth):
    learner = Supervised(model=MLP(width, depth))
    program, content = learner.program(), shapes_of(learner).member["family"]
    latents = shape(learner.tasks, program.family.modules)
    inputs = shape(learner.tasks, learner.samples, program.family.input_size)
    single = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), content)
    answer = jax.vmap(program.family.targets, (None, 0, 0))
    teacher = cost_of(answer, single, latents, inputs)
    points = learner.tasks * learner.samples
    expected = 6 * parameters_of(learner) * points + teacher.flops
    assert step_cost(learner).flops == pytest.approx(expected, rel=0.1)


def test_the_parameters_of_a_learner_are_those_of_its_model():
    assert parameters_of(Supervised(model=MLP(100, 3))) == MLP(100, 3).parameters(16, 16, 16)


def test_bfloat16_moves_fewer_bytes_for_the_same_arithmetic():
    learner = Supervised(model=MLP(256, 4))
    full, half = step_cost(learner, "float32"), step_cost(learner, "bfloat16")
    assert half.flops == pytest.approx(full.flops, rel=0.01)
    assert 0.4 * full.bytes < half.bytes < 0.8 * full.bytes


@pytest.mark.parametrize(
    ("width", "depth", "members"),
    [(32, 2, 1), (128, 4, 1), (256, 2, 4), (512, 2, 1), (512, 4, 4), (1024, 4, 1)],
)
def test_predicted_memory_is_within_a_third_of_what_the_compiler_reserves(width, depth, members):
    learner = Supervised(model=MLP(width, depth))
    predicted = predict_memory(learner, members, "float32", platform="cpu")
    program, arrays = learner.program(), shapes_of(learner, members)
    one = jax.eval_shape(program.init, learner.prepare({}).merged(), jax.random.key(0))
    state = jax.tree.map(lambda leaf: shape(members, *leaf.shape, dtype=leaf.dtype), one)
    advance = jax.jit(
        engine.advance_function(program, 1, members), donate_argnums=1, keep_unused=True
    )
    number = shape(dtype="int32")
    real = advance.lower(arrays, state, number, number).compile().memory_analysis()
    # Arrays and state are known exactly; the two counters are the only other arguments.
    assert predicted.arrays + predicted.state + 8 == real.argument_size_in_bytes
    total = (
        real.argument_size_in_bytes
        + real.output_size_in_bytes
        - real.alias_size_in_bytes
        + real.temp_size_in_bytes
    )
    assert abs(predicted.total / total - 1) <= 0.30
    assert predicted.total == predicted.arrays + predicted.state + predicted.temporary


@settings(max_examples=10, deadline=None)
@given(members=st.integers(2, 64))
def test_memory_grows_in_proportion_to_the_members(members):
    learner = Supervised(model=MLP(128, 2))
    two, many = predict_memory(learner, 2, "float32"), predict_memory(learner, members, "float32")
    assert many.state * 2 == two.state * members
    assert many.total * 2 == pytest.approx(two.total * members, rel=0.02)


def test_the_cost_of_a_host_driven_learner_is_refused_with_a_way_out():
    class ByHand(Supervised):
        host_driven = True

    with pytest.raises(NotApplicable, match="time a few of its steps"):
        step_cost(ByHand())


def test_time_is_interpolated_between_measured_sizes_and_held_beyond_them():
    entries = sorted(measured("cpu") or (), key=lambda entry: entry.parameters)
    assert len(entries) >= 4
    for entry in entries:
        seconds = estimate_seconds(1e12, entry.parameters, "cpu")
        assert seconds == pytest.approx(1e12 / entry.flops_per_second)
    small, large = entries[:2]
    middle = round(np.sqrt(small.parameters * large.parameters))
    rate = np.sqrt(small.flops_per_second * large.flops_per_second)
    assert estimate_seconds(1e12, middle, "cpu") == pytest.approx(1e12 / rate, rel=1e-3)
    assert estimate_seconds(1e12, 1, "cpu") == estimate_seconds(1e12, small.parameters, "cpu")
    assert estimate_seconds(0.0, 10**12, "cpu") == 0.0


def test_work_that_moves_more_than_it_computes_takes_as_long_as_its_bytes():
    usual = statistics.median(
        e.bytes_per_second for e in measured("NVIDIA H200") or () if e.bytes_per_second
    )
    computing = estimate_seconds(1e15, 800_000, "NVIDIA H200", 0.0)
    assert computing == estimate_seconds(1e15, 800_000, "NVIDIA H200", 1e12)
    assert estimate_seconds(1e15, 800_000, "NVIDIA H200", 1e15) == pytest.approx(1e15 / usual)
    assert estimate_seconds(1e12, 800_000, "cpu", 1e30) == estimate_seconds(1e12, 800_000, "cpu")


def test_kernels_are_counted_as_often_as_loops_start_them_and_take_time_however_small():
    one = jax.ShapeDtypeStruct((4, 4), "float32")

    def twice(a):
        return (a @ a) @ a

    def often(a):
        return jax.lax.scan(lambda a, _: (twice(a), None), a, None, length=10)[0]

    assert cost_of(twice, one).kernels == 2
    assert cost_of(often, one).kernels == 10 * cost_of(twice, one).kernels
    begun = estimate_seconds(1.0, 800_000, "NVIDIA H200", 1.0, kernels=1e6)
    assert begun == pytest.approx(1e6 * min(
        e.seconds_per_kernel for e in measured("NVIDIA H200") or () if e.seconds_per_kernel
    ))  # fmt: skip
    assert estimate_seconds(1e12, 800_000, "cpu", 0.0, 1e30) == estimate_seconds(
        1e12, 800_000, "cpu"
    )


def test_a_device_never_measured_has_no_estimate():
    assert measured("an abacus") is None
    assert estimate_seconds(1e12, 1000, "an abacus") is None


def test_costs_add_and_scale():
    assert Cost(1, 2) * 3 + Cost(1, 1) == Cost(4, 7)
