"""The engine: populations advance in chunks, and nothing depends on how long the chunks are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unlike.line import Line, LineProgram
from unlike.oracle import CALLS, Apprentice
from unlike.sequences import Backwards

from recombine.errors import Interrupted, InvalidRequest
from recombine.lab import engine, execute, shards
from recombine.lab.answers import AnswerLog
from recombine.lab.api import fit
from recombine.lab.checkpoints import Checkpoints
from recombine.lab.engine import BLOCK, Curves, HostPopulation, Population
from recombine.lab.execute import Session
from recombine.lab.identity import node_id
from recombine.lab.shards import Shard, Stop, run_shard
from recombine.lab.store import Store
from recombine.learners._learner import Arrays
from recombine.trees import named, unnamed


def population(*learners: Any, groups: int = 1) -> Population:
    made = Population(learners, [one.prepare({}) for one in learners], "float32", groups)
    made.compile()
    return made


def run_to_end(made: Any) -> Any:
    made.evaluate()
    while made.running():
        made.chunk(made.steps)
    made.evaluate()
    return made


def same(first: Any, second: Any) -> bool:
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


# --- chunks ----------------------------------------------------------------------------------


@settings(max_examples=10)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_chunks_of_any_lengths_give_the_same_bits(lengths):
    wanted = run_to_end(population(Line()))
    made = population(Line())
    made.evaluate()
    for blocks in lengths:
        if made.running():
            made._blocks = blocks
            made.chunk(made.steps)
    while made.running():
        made.chunk(made.steps)
    made.evaluate()
    assert same(made.host_state(), wanted.host_state())
    assert same(made.curves.tensors(), wanted.curves.tensors())


def test_a_chunk_never_passes_its_border():
    made = population(Line(training_steps=100))
    made._blocks = 50
    made.chunk(30)
    assert made.t == 30
    made._blocks = 50
    made.chunk(1_000)
    assert made.t == 100 and not made.running()


def test_a_point_of_a_curve_is_the_mean_of_its_block_also_of_a_count():
    made = run_to_end(population(Line(training_steps=40)))
    points = made.curves.tensors()["points/even"]
    assert points.shape == (4, 1)
    np.testing.assert_array_equal(points, 0.5, "every second step is even")


def test_metrics_and_states_stay_per_member():
    made = run_to_end(population(Line(seed=0), Line(seed=1), Line(seed=2, rate=0.0)))
    assert made.curves.tensors()["points/loss"].shape == (20, 3)
    final = made.host_state().w
    untrained = [weights["w"] for weights in made.untrained]
    np.testing.assert_array_equal(final[2], untrained[2], "a rate of nothing teaches nothing")
    assert not np.allclose(final[0], final[2])


def test_members_stacked_learn_what_each_learns_alone():
    learners = [Line(seed=seed) for seed in range(4)]
    together = run_to_end(population(*learners)).host_state()
    for number, learner in enumerate(learners):
        alone = run_to_end(population(learner)).host_state()
        np.testing.assert_allclose(together.w[number], alone.w[0], rtol=0, atol=1e-5)


def test_equal_shapes_share_one_compilation_and_other_structures_do_not():
    one, other = population(Line(seed=0)), population(Line(seed=1))
    assert one.compiled is other.compiled
    state, arrays = one.state, one.arrays
    moved = Arrays(group=arrays.member, member={}, shard={})
    key = (LineProgram(), 1, 1)
    assert engine.compile_population(*key, arrays, state) is one.compiled
    assert engine.compile_population(*key, moved, state) is not one.compiled


# --- scopes ----------------------------------------------------------------------------------


def test_members_that_bring_different_shard_arrays_are_refused():
    learners = [Backwards(seed=0), Backwards(seed=1)]
    data = learners[0].strings.make()
    other = {**data, "train": data["train"][::-1]}
    prepared = [learners[0].prepare({"strings": data}), learners[1].prepare({"strings": other})]
    with pytest.raises(InvalidRequest, match=r"different shard arrays.*keys from shard\(\)"):
        Population(learners, prepared, "float32")


def test_members_that_bring_different_group_arrays_are_refused():
    learners = [Line(seed=0), Line(seed=1)]
    prepared = [
        Arrays(member=one.prepare({}).member, group={"base": np.full(3, one.seed)})
        for one in learners
    ]
    with pytest.raises(InvalidRequest, match=r"different group arrays.*keys from group\(\)"):
        Population(learners, prepared, "float32")
    Population(learners, prepared, "float32", groups=2)


def test_gaps_in_shared_arrays_are_equal_to_themselves():
    learners = [Line(seed=0), Line(seed=1)]
    prepared = [
        Arrays(member=one.prepare({}).member, shard={"data": np.array([np.nan, 1])})
        for one in learners
    ]
    Population(learners, prepared, "float32")


# --- saving and going on ------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, BLOCK, 5 * BLOCK])
def test_a_state_saved_by_name_goes_on_as_if_nothing_had_happened(tmp_path, at):
    wanted = run_to_end(population(Line(seed=0), Line(seed=1)))
    made = population(Line(seed=0), Line(seed=1))
    made.evaluate()
    while made.t < at:
        made.chunk(at)
    Checkpoints(tmp_path).save(made.t, named(made.host_state()), {})
    curves = made.curves.tensors()

    resumed = population(Line(seed=0), Line(seed=1))
    step, tensors, _ = Checkpoints(tmp_path).latest()
    resumed.restore(unnamed(tensors, resumed.host_state()), step, Curves.from_tensors(curves))
    while resumed.running():
        resumed.chunk(resumed.steps)
    resumed.evaluate()
    assert same(resumed.host_state(), wanted.host_state())
    assert same(resumed.curves.tensors(), wanted.curves.tensors())


def test_what_is_being_saved_does_not_change_while_training_goes_on():
    made = population(Line())
    made.chunk(BLOCK)
    kept = made.host_state()
    copies = jax.tree.map(np.array, kept)
    while made.running():
        made.chunk(made.steps)
    assert same(kept, copies)


def test_a_host_driven_member_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setenv(CALLS, str(tmp_path / "bill"))
    learner = Apprentice()

    def begin() -> HostPopulation:
        return HostPopulation(learner, learner.prepare({}), AnswerLog(tmp_path / "answers.jsonl"))

    wanted = run_to_end(begin())
    made = begin()
    made.evaluate()
    made.chunk(30)
    assert made.t == 30
    resumed = begin()
    resumed.restore(
        unnamed(named(made.host_state()), made.host_state()), made.t,
        Curves.from_tensors(made.curves.tensors()),
    )  # fmt: skip
    while resumed.running():
        resumed.chunk(resumed.steps)
    resumed.evaluate()
    assert same(resumed.state, wanted.state)
    assert same(resumed.curves.tensors(), wanted.curves.tensors())
    bill = (tmp_path / "bill").read_text().splitlines()
    assert len(bill) == len(set(bill)) == learner.questions, "nothing is paid twice"


# --- a shard from beginning to end --------------------------------------------------------------


def shard_of(store: Store, *learners: Line, **rest: Any) -> Shard:
    shard = Shard(tuple(node_id(one) for one in learners))
    run_shard(store, shard, learners, **rest)
    return shard


def test_snapshots_are_what_the_weights_were_at_that_step(tmp_path):
    store = Store.open(tmp_path)
    learner = Line(marks=(0, 50, 150))
    shard_of(store, learner)
    at = {step: fit(replace(learner, training_steps=step, marks=(0,), evaluation_every=10))
          for step in (50, 150)}  # fmt: skip
    cell = node_id(learner)
    for step, short in at.items():
        kept = store.tensors("cell", cell, f"weights-{step}")
        np.testing.assert_array_equal(kept["w"], short.subject.weights()["w"])
    assert not np.array_equal(
        store.tensors("cell", cell, "weights-0")["w"], store.tensors("cell", cell, "weights")["w"]
    )
    assert not list(tmp_path.glob("work/*/*-*")), "nothing is left of the way there"


def test_the_untrained_twin_is_kept_though_nobody_asked_for_it(tmp_path):
    store = Store.open(tmp_path)
    learner = Line(marks=(100,))
    shard_of(store, learner)
    wanted = population(learner).untrained[0]["w"]
    np.testing.assert_array_equal(store.tensors("cell", node_id(learner), "weights-0")["w"], wanted)


class StopAfter(Stop):
    """Wants to stop at the n-th time it is asked."""

    def __init__(self, times: int):
        super().__init__()
        self.left = times

    @property
    def wanted(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("times", [0, 1, 7, 19])
@pytest.mark.parametrize("lost", [False, True], ids=["snapshot kept", "snapshot lost"])
def test_a_shard_stopped_at_any_border_ends_with_the_same_bytes(tmp_path, monkeypatch, times, lost):
    monkeypatch.setattr(engine, "CHUNK_SECONDS", 0.0)
    learner = Line(marks=(0, 50))
    calm, stormy = Store.open(tmp_path / "calm"), Store.open(tmp_path / "stormy")
    shard_of(calm, learner)
    with pytest.raises(Interrupted, match="stopped at step"):
        shard_of(stormy, learner, stop=StopAfter(times))
    assert list(stormy.path.glob("work/*/state/*-step-*"))
    if lost:
        for path in stormy.path.glob("work/*/snapshot-50/*/state.safetensors"):
            path.write_bytes(b"")
    shard_of(stormy, learner)
    cell = node_id(learner)
    for name in ("weights", "weights-0", "weights-50", "curves"):
        assert same(stormy.tensors("cell", cell, name), calm.tensors("cell", cell, name))
    assert stormy.document("cell", cell, "summary") == calm.document("cell", cell, "summary")


def test_padding_repeats_a_member_and_commits_it_once(tmp_path):
    store = Store.open(tmp_path)
    learners = [Line(seed=seed) for seed in range(3)]
    cells = tuple(node_id(one) for one in learners)
    run_shard(store, Shard(cells, padding=1), learners)
    assert store.ids("cell") == sorted(cells)
    full = population(*learners, learners[-1])
    run_to_end(full)
    for number, cell in enumerate(cells):
        found = store.tensors("cell", cell, "weights")["w"]
        np.testing.assert_array_equal(found, full.host_state().w[number])


@dataclass(frozen=True)
class Forgetful(Line):
    """Names no group, though its base is its own."""

    def prepare(self, given: Any) -> Arrays:
        member = super().prepare(given).member
        return Arrays(member=member, group={"base": np.full(2, self.seed)})


def test_a_learner_that_names_no_group_still_gets_its_own_arrays(tmp_path, monkeypatch):
    monkeypatch.setattr("recombine.lab.device.Device.stack", lambda self, weights: 4)
    store = Store.open(tmp_path)
    learners = {node_id(one): one for one in (Forgetful(seed=0), Forgetful(seed=1))}
    execute.train(Session(store), "forgetful", learners)
    assert store.ids("cell") == sorted(learners)
    widths = [len(shard["cells"]) for shard in store.read_plan("forgetful-0")["shards"]]
    assert widths == [1, 1]


def test_checkpoints_take_a_small_share_of_the_time_however_often_they_are_asked_for(
    tmp_path, monkeypatch
):
    clock = [0.0]
    saved = []

    def slow_save(self: Checkpoints, step: int, *rest: Any) -> None:
        clock[0] += 3.0
        saved.append(step)

    monkeypatch.setattr(shards.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(Checkpoints, "save", slow_save)
    saver = shards._Saver(Checkpoints(tmp_path), every=0.0)
    made = population(Line(training_steps=10_000))
    for _ in range(500):
        made.t += BLOCK
        clock[0] += 1.0
        saver.save_when_due(made)
        saver.wait()
    spent = 3.0 * len(saved)
    assert len(saved) >= 2 and spent <= 0.06 * clock[0]
