"""Plans: which cells share a shard follows from the cells and the device, and from nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import given
from hypothesis import strategies as st
from unlike.exam import Exam
from unlike.line import Line

from recombine.lab import plan
from recombine.lab.device import Device
from recombine.lab.execute import Session, train
from recombine.lab.identity import node_id
from recombine.lab.shards import Shard
from recombine.lab.store import Store
from recombine.lab.study import Cell
from recombine.learners._learner import Arrays, Learner, Program, Tensors

GPU = Device("gpu", "a fast one", 8)
CPU = Device("cpu", "cpu", 8)


@dataclass(frozen=True)
class Sizes(Program):
    """A program that is known by its sizes alone."""

    size: int
    big: bool
    precision: str

    def init(self, arrays: Any, key: Any) -> Any: ...

    def step(self, arrays: Any, state: Any, t: Any) -> Any: ...

    def evaluate(self, arrays: Any, state: Any) -> Any: ...


@dataclass(frozen=True)
class Paper(Learner):
    """A learner on paper: it is planned and never run."""

    seed: int = 0
    program_size: int = 1
    base: int = 0
    data: int = 0
    length: int = 100
    big: bool = False

    @property
    def steps(self) -> int:
        return self.length

    @property
    def size(self) -> int:
        return 20_000_000 if self.big else 40_000_000  # 7 or 3 to a stack on an accelerator

    def group(self) -> str:
        return str(self.base)

    def shard(self) -> str:
        return str(self.data)

    def program(self, precision: str = "float32") -> Program:
        return Sizes(self.program_size, self.big, precision)

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        return Arrays()

    def weights(self, state: Any) -> Tensors:
        return {}

    def subject(self, weights: Tensors, given: Any = None) -> Any:
        return None


@dataclass(frozen=True)
class OnHost(Paper):
    host_driven: ClassVar[bool] = True


@dataclass(frozen=True)
class Exact(Paper):
    """Demands full precision."""

    precision: ClassVar[str] = "float32"


papers = st.builds(
    lambda kind, *fields: kind(*fields),
    st.sampled_from([Paper, Paper, Paper, OnHost, Exact]),
    st.integers(0, 30), st.integers(1, 2), st.integers(0, 3), st.integers(0, 1),
    st.sampled_from([100, 200]), st.booleans(),
)  # fmt: skip
grids = st.lists(papers, min_size=1, max_size=60)


def named(learners: list[Paper]) -> dict[str, Learner]:
    return {node_id(one): one for one in learners}


@given(grids, st.sampled_from([GPU, CPU]))
def test_every_missing_cell_is_in_exactly_one_shard(grid, device):
    learners = named(grid)
    counts = Counter(cell for shard in plan.shards(learners, device) for cell in shard.cells)
    assert counts == dict.fromkeys(learners, 1)


@given(grids, st.sampled_from([GPU, CPU]))
def test_the_cells_of_a_shard_share_everything_a_program_needs(grid, device):
    learners = named(grid)
    for shard in plan.shards(learners, device):
        members = [learners[cell] for cell in shard.cells]
        shared = {
            (m.program(shard.precision), m.shard(), m.steps, m.evaluate_every, m.host_driven)
            for m in members
        }
        assert len(shared) == 1
        limit = 1 if members[0].host_driven else device.stack(members[0].size)
        assert len(members) + shard.padding <= limit
        assert len(members) % shard.groups == 0
        width = len(members) // shard.groups
        rows = [members[i : i + width] for i in range(0, len(members), width)]
        assert all(len({m.group() for m in row}) == 1 for row in rows), "a rectangle's rows"
        assert len({row[0].group() for row in rows}) == shard.groups, "each group once"
        exact = isinstance(members[0], Exact | OnHost) or not device.accelerated
        assert shard.precision == ("float32" if exact else "bfloat16")


@given(grids, st.integers(0, 2**32))
def test_a_plan_is_the_same_each_time_and_does_not_depend_on_the_store(grid, seed):
    learners = named(grid)
    assert plan.shards(learners, GPU) == plan.shards(dict(learners), GPU)
    # Another order may group other cells together, but never in other numbers.
    shuffled = list(learners.items())
    random.Random(seed).shuffle(shuffled)
    one, two = (
        Counter((len(s.cells), s.groups, s.padding, s.precision) for s in plan.shards(which, GPU))
        for which in (learners, dict(shuffled))
    )
    assert one == two


@given(st.integers(1, 40))
def test_stacks_of_one_kind_have_one_shape_by_padding_the_last(count):
    shards = plan.shards(named([Paper(seed) for seed in range(count)]), GPU)
    shapes = {len(shard.cells) + shard.padding for shard in shards}
    assert len(shapes) == 1
    assert sum(shard.padding for shard in shards) < len(shards), "no more than it takes"


def test_groups_of_equal_size_form_rectangles_and_larger_ones_are_parted():
    bases = [Paper(seed, base=base, big=True) for base in range(4) for seed in range(3)]
    shards = plan.shards(named(bases), GPU)  # seven to a stack: two groups of three
    assert [(len(s.cells), s.groups) for s in shards] == [(6, 2), (6, 2)]
    large = [Paper(seed, base=0, big=True) for seed in range(9)]
    small = [Paper(seed, base=1, big=True) for seed in range(2)]
    shards = plan.shards(named([*large, *small]), GPU)
    assert sorted((len(s.cells), s.groups, s.padding) for s in shards) == [
        (2, 1, 0), (4, 1, 1), (5, 1, 0),
    ]  # fmt: skip


@given(st.integers(1, 40), st.integers(1, 3))
def test_groups_of_one_size_are_parted_evenly(count, members):
    bases = [Paper(seed, base=base, big=True) for base in range(count) for seed in range(members)]
    groups = [shard.groups for shard in plan.shards(named(bases), GPU)]
    most = GPU.stack(bases[0].size) // members
    assert len(groups) == -(-count // most)
    assert max(groups) - min(groups) <= 1 and max(groups) <= most


def test_stacks_are_narrower_where_that_is_wanted_and_never_wider():
    learners = named([Paper(seed, base=base, big=True) for base in range(18) for seed in range(2)])
    size = next(iter(learners.values())).size
    whole = plan.shards(learners, GPU)
    assert [(len(s.cells), s.groups) for s in whole] == [(6, 3)] * 6
    assert plan.shards(learners, GPU, stacked=100 * size) == whole
    narrow = plan.shards(learners, GPU, stacked=4 * size)
    assert [(len(s.cells), s.groups) for s in narrow] == [(4, 2)] * 9
    assert {cell for s in narrow for cell in s.cells} == set(learners)
    assert {len(s.cells) for s in plan.shards(learners, GPU, stacked=1)} == {1}


@given(st.integers(2, 20), st.integers(0, 1))
def test_halves_hold_the_same_cells_in_two_shards_of_one_shape(count, padding):
    cells = tuple(f"{n:02x}" for n in range(count))
    first, second = Shard(cells, padding=padding).halves()
    assert first.cells + second.cells == cells
    assert len(first.cells) + first.padding == len(second.cells) + second.padding
    assert len({first.id, second.id, Shard(cells, padding=padding).id}) == 3


@given(st.integers(2, 6), st.integers(1, 4))
def test_halves_of_a_rectangle_are_rectangles(groups, width):
    cells = tuple(f"{n:02x}" for n in range(groups * width))
    first, second = Shard(cells, groups).halves()
    assert first.cells + second.cells == cells
    assert first.groups + second.groups == groups
    assert len(first.cells) == first.groups * width
    assert len(second.cells) == second.groups * width


# --- what comes first ------------------------------------------------------------------------


@dataclass(frozen=True)
class Tower(Line):
    """Stands on another tower, one floor lower."""

    floors: int = 0

    def upstream(self) -> dict[str, Learner]:
        return {"below": Tower(floors=self.floors - 1)} if self.floors else {}


def test_upstream_cells_come_in_earlier_layers_each_once():
    layers = plan.upstream_first([Tower(floors=2), Tower(floors=1), Tower(floors=2, seed=1)])
    assert [sorted(one.floors for one in layer.values()) for layer in layers] == [
        [0], [1], [2, 2],
    ]  # fmt: skip


def test_what_a_finished_upstream_was_made_from_is_not_asked_for():
    done = {node_id(Tower(floors=1))}
    layers = plan.upstream_first([Tower(floors=2)], done.__contains__)
    assert [[one.floors for one in layer.values()] for layer in layers] == [[1], [2]]
    both = plan.upstream_first([Tower(floors=2), Tower(floors=1)], done.__contains__)
    assert len(both) == 3, "it is itself wanted, perhaps to be read"


def test_an_impossible_upstream_makes_a_cell_impossible():
    @dataclass(frozen=True)
    class OnSand(Line):
        def upstream(self) -> dict[str, Learner]:
            return {"base": Line(training_steps=33)}

    parted = plan.part([Cell(Line(), {}, (Exam(),)), Cell(Line(), {}), Cell(OnSand(), {})])
    assert len(parted.cells) == 1, "equal requests are kept once"
    ((_, reason),) = parted.infeasible
    assert "use 30" in reason


def test_a_plan_that_no_longer_holds_is_made_again_and_what_began_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(Device, "stack", lambda self, weights: 2)
    store = Store.open(tmp_path)
    learners = {node_id(one): one for one in (Line(seed=seed) for seed in range(4))}
    train(Session(store), "p", learners)
    before = store.read_plan("p-0")
    gone = list(learners)[1]
    store.quarantine("cell", gone, "for the test")
    more = {**learners, node_id(Line(seed=9)): Line(seed=9)}
    train(Session(store), "p", more)
    after = store.read_plan("p-0")
    assert after["shards"][:2] == before["shards"], "a lost cell is made in its old company"
    assert [len(shard["cells"]) for shard in after["shards"]] == [2, 2, 1]
    assert store.ids("cell") == sorted(more)


def test_a_plan_from_another_device_is_kept_only_where_work_began(tmp_path, monkeypatch):
    store = Store.open(tmp_path)
    learners = {node_id(one): one for one in (Line(seed=seed) for seed in range(4))}
    cells = list(learners)
    foreign = [Shard(tuple(cells[:2]), precision="bfloat16"), Shard(tuple(cells[2:]))]
    shards = [{"cells": list(s.cells), "groups": 1, "precision": s.precision, "padding": 0}
              for s in foreign]  # fmt: skip
    store.write_plan("p-0", {"device": {"platform": "gpu"}, "shards": shards})
    from recombine.lab.checkpoints import Checkpoints

    begun = Checkpoints(store.work(foreign[1].id) / "state")
    begun.save(10, {}, {})
    begun_only = store.read_plan("p-0")
    assert begun and begun_only
    for path in (tmp_path / "work" / foreign[1].id / "state").iterdir():
        (path / "manifest.json").write_bytes(b"damaged")  # so that it begins anew
    train(Session(store), "p", learners)
    layout = [tuple(shard["cells"]) for shard in store.read_plan("p-0")["shards"]]
    assert layout == [tuple(cells[2:]), (cells[0],), (cells[1],)]
    assert store.ids("cell") == sorted(cells)
