"""Ranks of combinations, against enumeration, closed forms and the device."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.combinations import (
    NO_RANK,
    Slots,
    Subsets,
    pad_offsets,
    rank_on_device,
    unrank_on_device,
)
from recombine.errors import InvalidRequest

SIZES = {
    2: (36, 136, 300, 528),
    3: (92, 696, 2324, 5488),
    4: (162, 2516, 12950, 41448),
    5: (218, 6884, 55454, 242824),
    6: (246, 14892, 190050, 1149016),
    7: (254, 26332, 536154, 4514872),
}

sizes = st.integers(1, 10).flatmap(lambda m: st.tuples(st.just(m), st.integers(1, m)))


def listed(modules: int, active: int) -> list[tuple[int, ...]]:
    """Every subset by size, then colexicographically, the slow and obvious way."""
    return [
        subset
        for members in range(1, active + 1)
        for subset in sorted(
            itertools.combinations(range(modules), members), key=lambda s: tuple(reversed(s))
        )
    ]


@pytest.mark.parametrize("active", SIZES)
def test_the_published_table_of_sizes_is_reproduced(active: int) -> None:
    assert tuple(Subsets(m, active).size for m in (8, 16, 24, 32)) == SIZES[active]


@given(sizes)
@settings(max_examples=30, deadline=None)
def test_ranks_follow_the_listing_by_size_and_then_colexicographic(shape) -> None:
    space, subsets = Subsets(*shape), listed(*shape)
    assert space.size == len(subsets)
    assert [space.describe(r) for r in range(space.size)] == subsets
    assert space.sizes(np.arange(space.size)).tolist() == [len(s) for s in subsets]
    rows = space.indicator(np.arange(space.size))
    assert [tuple(np.flatnonzero(row)) for row in rows] == subsets
    assert np.array_equal(rows.astype(int).T @ rows, space.together)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_rank_undoes_unrank_for_unsorted_members_in_spaces_up_to_the_limit(data) -> None:
    modules, active = data.draw(
        st.sampled_from([(32, 7), (32, 32), (16, 16), (200, 4), (127, 5), (90_000, 2), (3, 1)])
    )
    space = Subsets(modules, active)
    ranks = data.draw(st.lists(st.integers(0, space.size - 1), min_size=1, max_size=20))
    members = space.unrank(ranks)
    padded = np.concatenate([members, np.full((len(ranks), 2), -1)], axis=1)
    shuffled = np.stack([np.random.default_rng(0).permutation(row) for row in padded])
    assert space.rank(shuffled).tolist() == ranks
    assert np.array_equal((members >= 0).sum(axis=1), space.sizes(ranks))


def test_within_a_size_the_rank_does_not_depend_on_the_number_of_modules() -> None:
    small, large = Subsets(9, 4), Subsets(20, 4)
    members = small.unrank(np.arange(small.size))
    shift = (large.offsets[:-1] - small.offsets[:-1])[small.sizes(np.arange(small.size)) - 1]
    assert np.array_equal(large.rank(members), np.arange(small.size) + shift)


@given(sizes, st.integers(0, 6), st.integers(0, 3), st.integers(0, 2**32 - 1))
@settings(max_examples=12, deadline=None)
def test_the_device_agrees_with_the_host_also_when_padded(shape, more, wider, seed) -> None:
    jax = pytest.importorskip("jax")
    space = Subsets(*shape)
    modules_pad = space.modules + more
    active_pad = min(space.active + wider, modules_pad)
    ranks = np.random.default_rng(seed).integers(0, space.size, 16, dtype=np.uint32)
    offsets = jax.numpy.asarray(pad_offsets(space.offsets, active_pad))
    unrank = jax.jit(unrank_on_device, static_argnums=(2, 3))
    rows = np.asarray(unrank(jax.numpy.asarray(ranks), offsets, modules_pad, active_pad))
    assert np.array_equal(rows[:, : space.modules], space.indicator(ranks))
    assert not np.any(rows[:, space.modules :])
    assert np.array_equal(jax.jit(rank_on_device)(rows, offsets), ranks)


@pytest.mark.parametrize(
    ("modules", "active", "modules_pad", "active_pad"),
    [(32, 7, 64, 8), (32, 32, 32, 32), (200, 4, 256, 8), (24, 6, 32, 7)],
)
def test_large_spaces_do_not_overflow_on_the_device(
    modules: int, active: int, modules_pad: int, active_pad: int
) -> None:
    jax = pytest.importorskip("jax")
    space = Subsets(modules, active)
    ranks = np.random.default_rng(0).integers(0, space.size, 500, dtype=np.uint32)
    ranks[:4] = 0, 1, space.size - 2, space.size - 1
    offsets = pad_offsets(space.offsets, active_pad)

    @jax.jit
    def there(ranks, offsets):
        return jax.vmap(lambda r: unrank_on_device(r, offsets, modules_pad, active_pad))(ranks)

    rows = there(ranks.reshape(4, -1), offsets).reshape(500, modules_pad)
    assert np.array_equal(rows[:, :modules], space.indicator(ranks))
    assert not np.any(rows[:, modules:])
    assert np.array_equal(jax.jit(rank_on_device)(rows, offsets), ranks)


def test_one_compiled_program_serves_several_spaces() -> None:
    jax = pytest.importorskip("jax")
    traces = []

    @jax.jit
    def there(ranks, offsets):
        traces.append(ranks)
        return unrank_on_device(ranks, offsets, 16, 4)

    for shape in [(8, 2), (16, 3), (12, 4)]:
        space = Subsets(*shape)
        ranks = np.arange(space.size - 30, space.size, dtype=np.uint32)
        rows = there(ranks, pad_offsets(space.offsets, 4))
        assert np.array_equal(rows[:, : space.modules], space.indicator(ranks))
    assert len(traces) == 1


def test_the_padding_rank_and_the_empty_row_belong_together_on_the_device() -> None:
    jax = pytest.importorskip("jax")
    for space, active_pad in [(Subsets(16, 3), 3), (Subsets(16, 3), 5), (Subsets(20, 20), 20)]:
        offsets = jax.numpy.asarray(pad_offsets(space.offsets, active_pad))
        rows = unrank_on_device(jax.numpy.asarray([NO_RANK], "uint32"), offsets, 32, active_pad)
        assert not np.any(rows)
        assert rank_on_device(rows, offsets).tolist() == [NO_RANK]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_slots_list_one_value_per_factor_in_order(levels) -> None:
    space = Slots(tuple(levels))
    products = list(itertools.product(*map(range, levels)))
    assert (space.size, space.modules, space.active) == (len(products), sum(levels), len(levels))
    ranks = np.arange(space.size)
    assert [tuple(v) for v in space.values(ranks)] == products
    members = space.unrank(ranks)
    assert np.array_equal(space.rank(members[:, ::-1]), ranks)
    rows = space.indicator(ranks).astype(int)
    assert np.array_equal(rows.T @ rows, space.together)
    assert set(space.sizes(ranks)) == {space.active}


@pytest.mark.parametrize(
    "space",
    [
        Subsets(5, 1),
        Subsets(9, 4),
        Subsets(12, 12),
        Slots((3,)),
        Slots((4, 5, 5, 5)),
        Slots((1, 7, 1, 2)),
        Slots((2,) * 9),
    ],
)
@pytest.mark.usefixtures("strict_types")
def test_every_space_lists_its_combinations_on_the_device_as_on_the_host(space) -> None:
    jax = pytest.importorskip("jax")
    ranks = np.append(np.arange(space.size, dtype=np.uint32), np.uint32(NO_RANK))
    wanted = np.pad(space.indicator(ranks[:-1]), ((0, 1), (0, 0)))
    offsets = space.device_offsets(space.active)
    assert offsets.dtype == np.uint32
    rows = jax.jit(space.indicator_on_device)(ranks, offsets)
    assert rows.dtype == bool and np.array_equal(rows, wanted)
    one_by_one = jax.vmap(space.indicator_on_device, in_axes=(0, None))
    assert np.array_equal(jax.jit(one_by_one)(ranks[:, None], offsets)[:, 0], wanted)


def test_a_padded_program_lists_the_subsets_of_a_smaller_space() -> None:
    jax = pytest.importorskip("jax")
    space, padded = Subsets(9, 3), Subsets(16, 4)
    ranks = np.arange(space.size, dtype=np.uint32)
    rows = jax.jit(padded.indicator_on_device)(ranks, space.device_offsets(padded.active))
    assert np.array_equal(rows[:, :9], space.indicator(ranks)) and not np.any(rows[:, 9:])


@pytest.mark.parametrize("levels", [(65535, 65537), (2,) * 31, (2**15, 1, 2**16)])
def test_ranks_of_the_largest_slots_do_not_overflow_on_the_device(levels) -> None:
    jax = pytest.importorskip("jax")
    space = Slots(levels)
    ranks = np.asarray([0, 1, space.size // 3, space.size - 2, space.size - 1], np.uint32)
    rows = jax.jit(space.indicator_on_device)(ranks, space.device_offsets(space.active))
    assert np.array_equal(rows, space.indicator(ranks))


@given(
    st.one_of(
        sizes.map(lambda s: Subsets(*s)), st.builds(Slots, st.tuples(*[st.integers(1, 6)] * 3))
    )
)
@settings(max_examples=60, deadline=None)
def test_a_spanning_set_connects_all_modules_with_the_fewest_combinations(space) -> None:
    if space.fewest_connected is None:
        with pytest.raises(InvalidRequest):
            space.spanning(np.random.default_rng(0))
        return
    ranks = space.spanning(np.random.default_rng(0))
    assert len(set(ranks.tolist())) == space.fewest_connected
    reached, todo = set(), [space.describe(r) for r in ranks]
    reached.update(todo.pop())
    while todo:
        linked = next(members for members in todo if reached & set(members))
        todo.remove(linked)
        reached.update(linked)
    assert reached == set(range(space.modules))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Subsets(4, 5), "use active=4 or less"),
        (lambda: Subsets(0, 1), "modules=0"),
        (lambda: Subsets(4, 0), "active=0"),
        (lambda: Subsets(4, 2.0), "active=2.0"),  # type: ignore[arg-type]
        (lambda: Subsets(True, 1), "modules=True"),
        (lambda: Subsets(64, 10), "uint32"),
        (lambda: Slots(()), "levels"),
        (lambda: Slots((3, 0)), "levels"),
        (lambda: Slots((2**16, 2**16)), "uint32"),
        (lambda: Subsets(4, 2).unrank([10]), "expected 0 to 9"),
        (lambda: Subsets(4, 2).unrank([-1]), "expected 0 to 9"),
        (lambda: Subsets(4, 2).unrank([0.5]), "expected integers"),
        (lambda: Subsets(4, 2).rank([[0, 0]]), "no combination"),
        (lambda: Subsets(4, 2).rank([[0, 4]]), "no combination"),
        (lambda: Subsets(4, 2).rank([[0, 1, 2]]), "no combination"),
        (lambda: Subsets(4, 2).rank([[-1, -1]]), "no combination"),
        (lambda: Subsets(4, 2).rank([0, 1]), "one row"),
        (lambda: Slots((2, 3)).rank([[0, 1]]), "one module of each"),
        (lambda: pad_offsets(Subsets(4, 3).offsets, 2), "active_pad=2"),
    ],
)
def test_impossible_requests_are_refused_with_the_reason(make, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        make()


def test_the_largest_space_that_fits_uint32_is_accepted() -> None:
    space = Subsets(32, 32)
    assert space.size == 2**32 - 1
    assert space.describe(space.size - 1) == tuple(range(32))


def test_importing_combinations_and_supports_imports_no_jax() -> None:
    code = (
        "import sys; import recombine.combinations, recombine.supports as s; "
        "[getattr(s, n) for n in s.__all__]; sys.exit('jax' in sys.modules)"
    )
    path = f"import sys; sys.path[:0] = {sys.path!r}; "
    assert subprocess.run([sys.executable, "-c", path + code]).returncode == 0
