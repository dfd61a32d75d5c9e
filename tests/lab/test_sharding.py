"""Layouts: over several devices a population learns what it learns on one, and lies apart there.

What needs eight devices runs in a child process of its own, on eight virtual ones of the CPU.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unlike.line import Line, LineProgram
from unlike.masks import small_base

from recombine.cli import main
from recombine.errors import Interrupted, InvalidRequest
from recombine.lab import engine, execute, plan, shards
from recombine.lab.api import fit
from recombine.lab.checkpoints import Checkpoints
from recombine.lab.device import Device, device
from recombine.lab.engine import Population
from recombine.lab.execute import Session
from recombine.lab.identity import node_id
from recombine.lab.layout import (
    STATE_BYTES,
    STATE_SHARE,
    Devices,
    DoesNotFit,
    Layout,
    asked_layout,
    choose_layout,
    devices_needed,
)
from recombine.lab.shards import Foreign, Shard, Stop, run_shard
from recombine.lab.store import Store
from recombine.learners._learner import Arrays, Learner, Program, Tensors
from recombine.learners.optimiser import Trained, descend, start
from recombine.seeds import key_at, stream

GIB = 2**30
LAYOUTS = [(8, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2)]
# Programs this small are run for no time at all: what takes time is to compile them well.
FLAGS = (
    "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true"
)

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class SmallProgram(Program):
    """A perceptron on fresh examples of a function that another one computes."""

    width: int

    def init(self, arrays: dict[str, Any], key: Any) -> Trained:
        sizes = {"first": (8, self.width), "second": (self.width, self.width),
                 "output": (self.width, 4)}  # fmt: skip
        keys = jax.random.split(key, len(sizes))
        drawn = {
            name: jax.random.normal(k, size) / math.sqrt(size[0])
            for k, (name, size) in zip(keys, sizes.items(), strict=True)
        }
        return start({**drawn, "bias": jnp.zeros(self.width)})

    def draw(self, arrays: dict[str, Any], t: Any) -> dict[str, Any]:
        x = jax.random.normal(key_at(arrays["train"], t), (16, 8))
        return {"x": x, "y": jnp.sin(x @ arrays["teacher"]) + arrays["shift"]}

    def learn(
        self, arrays: dict[str, Any], state: Trained, drawn: Any, t: Any
    ) -> tuple[Trained, dict[str, Any]]:
        def loss(model: Any) -> Any:
            h = jax.nn.relu(drawn["x"] @ model["first"] + model["bias"])
            answers = jax.nn.relu(h @ model["second"]) @ model["output"]
            return jnp.mean((answers - drawn["y"]) ** 2)

        value, gradient = jax.value_and_grad(loss)(state.model)
        rate = jnp.float32(3e-3)
        return descend(state, value, gradient, t, rate=rate, decay=rate), {"loss": value}

    def step(self, arrays: dict[str, Any], state: Trained, t: Any) -> tuple[Trained, Any]:
        return self.learn(arrays, state, self.draw(arrays, t), t)

    def evaluate(self, arrays: dict[str, Any], state: Trained) -> dict[str, Any]:
        return {"sum": sum(jnp.sum(leaf) for leaf in jax.tree.leaves(state.model))}


@dataclass(frozen=True)
class Small(Learner):
    seed: int = 0
    width: int = 64
    base: int = 0
    training_steps: int = 30

    @property
    def steps(self) -> int:
        return self.training_steps

    @property
    def evaluate_every(self) -> int:
        return 10

    @property
    def init_seed(self) -> int:
        return self.seed

    @property
    def size(self) -> int:
        return self.width**2

    def group(self) -> str:
        return str(self.base)

    def program(self, precision: str = "float32") -> SmallProgram:
        return SmallProgram(self.width)

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        teacher = np.random.default_rng(self.base).normal(size=(8, 4)).astype(np.float32)
        member = {"train": stream(self.seed, "train")}
        return Arrays(member, {"teacher": teacher}, {"shift": np.float32(0.1)})

    def weights(self, state: Trained) -> Tensors:
        return {name: np.asarray(value) for name, value in state.model.items()}

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Any:
        return weights


def on_eight_devices(job: Callable[..., Any], *arguments: Any, **env: str) -> Any:
    """What a function of this file returns in a process that sees eight devices."""
    code = (
        "import json, sys, test_sharding\n"
        f"found = test_sharding.{job.__name__}(*json.loads(sys.argv[1]))\n"
        "print('\\n' + json.dumps(found))\n"
    )
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)], capture_output=True, text=True,
        env={**os.environ, "XLA_FLAGS": FLAGS, "PYTHONPATH": str(here), **env},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def trained(learners: list[Small], axes: tuple[int, ...], groups: int = 1) -> Population:
    prepared = [one.prepare({}) for one in learners]
    made = Population(learners, prepared, "float32", groups, Layout(*axes))
    made.compile()
    while made.running():
        made.chunk(made.steps)
    return made


# --- the same numbers -------------------------------------------------------------------------


def losses_by_layout() -> list[Any]:
    learners = [Small(seed, base=base) for base in range(2) for seed in range(4)]
    return [
        trained(learners, axes, groups=2).curves.tensors()["points/loss"].tolist()
        for axes in [(1, 1, 1), *LAYOUTS]
    ]


def test_every_layout_gives_the_losses_of_one_device_within_rounding():
    alone, *others = (np.array(losses) for losses in on_eight_devices(losses_by_layout))
    assert alone.shape == (3, 8) and np.all(alone[-1] < alone[0])
    assert not np.allclose(alone[:, :4], alone[:, 4:], rtol=1e-2), "two groups, two teachers"
    assert len(others) == len(LAYOUTS)
    for axes, losses in zip(LAYOUTS, others, strict=True):
        np.testing.assert_allclose(losses, alone, rtol=1e-5, err_msg=str(axes))


# --- where things lie -------------------------------------------------------------------------


def parts_on_devices() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, axes in {"parameters": (1, 1, 8), "mixed": (2, 2, 2)}.items():
        made = trained([Small(seed) for seed in range(2)], axes)
        leaves = {
            "weight": made.state.model["second"], "moment": made.state.adam.mu["second"],
            "square": made.state.adam.nu["second"], "tall": made.state.model["output"],
            "bias": made.state.model["bias"], "key": made.arrays.member["train"],
            "teacher": made.arrays.group["teacher"],
        }  # fmt: skip
        found[name] = {
            key: [list(part.data.shape) for part in leaf.addressable_shards]
            for key, leaf in leaves.items()
        }
    made = Population([Small()], [Small().prepare({})], "float32", 1, Layout(1, 8, 1))
    # Steps, members, an eighth of the examples, inputs.
    found["examples"] = "f32[10,1,2,8]" in made.compile().advance.as_text()
    for axes in [(1, 1, 3), (3, 1, 1)]:
        try:
            trained([Small(), Small(seed=1)], axes)
        except DoesNotFit as error:
            found[str(axes)] = str(error)
    return found


def test_matrices_their_moments_and_the_examples_really_are_divided():
    found = on_eight_devices(parts_on_devices)
    for name in ("weight", "moment", "square"):
        assert found["parameters"][name] == [[2, 64, 8]] * 8, name
        assert found["mixed"][name] == [[1, 64, 32]] * 8, name
    assert found["parameters"]["tall"] == [[2, 8, 4]] * 8, "the largest axis that divides"
    assert found["parameters"]["bias"] == [[2, 64]] * 8 and found["mixed"]["bias"] == [[1, 64]] * 8
    assert found["mixed"]["key"] == [[1, 2]] * 8 and found["mixed"]["teacher"] == [[1, 8, 4]] * 8
    assert found["examples"]
    assert "no matrix of this model" in found["(1, 1, 3)"]
    assert "2 members do not lie evenly over members=3" in found["(3, 1, 1)"]


def test_one_device_adds_nothing_to_a_program():
    made = Population([Line()], [Line().prepare({})], "float32")
    function = engine.advance_function(LineProgram(), 1, 1)
    traced = jax.make_jaxpr(function)(made.arrays, made.state, 0, 1)
    assert "sharding_constraint" not in str(traced)
    alone = engine.compile_population(LineProgram(), 1, 1, made.arrays, made.state)
    assert alone is engine.compile_population(
        LineProgram(), 1, 1, made.arrays, made.state, Layout()
    )


# --- from beginning to end --------------------------------------------------------------------


class StopAfter(Stop):
    """Wants to stop at the n-th time it is asked."""

    def __init__(self, times: int):
        super().__init__()
        self.left = times

    @property
    def wanted(self) -> bool:
        self.left -= 1
        return self.left < 0


def stopped_and_resumed(folder: str) -> dict[str, Any]:
    engine.CHUNK_SECONDS = 0.0
    learner = Small(training_steps=60)
    cell = node_id(learner)
    shard = Shard((cell,), layout=(1, 2, 4))
    calm, stormy = Store.open(Path(folder, "calm")), Store.open(Path(folder, "stormy"))
    run_shard(calm, shard, [learner])
    try:
        run_shard(stormy, shard, [learner], stop=StopAfter(2))
    except Interrupted:
        begun = len(list(stormy.path.glob("work/*/state/*-step-*")))
    else:
        begun = 0
    run_shard(stormy, shard, [learner])
    pairs = [
        (calm.tensors("cell", cell, name), stormy.tensors("cell", cell, name))
        for name in ("weights", "weights-0", "curves")
    ]
    same = [bool(np.array_equal(one[k], other[k])) for one, other in pairs for k in one]
    return {
        "begun": begun, "same": same, "device": stormy.manifest("cell", cell)["device"],
        "provenance": stormy.provenance("cell", cell),
    }  # fmt: skip


def test_a_checkpoint_written_over_eight_devices_resumes_to_the_same_numbers(tmp_path):
    found = on_eight_devices(stopped_and_resumed, str(tmp_path))
    assert found["begun"] and found["provenance"]["resumed"]
    assert len(found["same"]) == 4 + 4 + 1 and all(found["same"])
    assert found["device"]["layout"] == [1, 2, 4]
    assert found["provenance"]["shard"]["layout"] == [1, 2, 4]


def supervised() -> Learner:
    return replace(small_base(), training_steps=30, evaluation_every=30)


def fitted(store: str) -> dict[str, Any]:
    return fit(supervised(), store).summary


def test_a_whole_fit_follows_the_layout_asked_for_and_its_plan_says_so(tmp_path):
    alone = fit(supervised()).summary
    asked = {"RECOMBINE_LAYOUT": "data=2,parameters=4"}
    apart = on_eight_devices(fitted, str(tmp_path), **asked)
    assert apart.keys() == alone.keys() and apart["evaluation_steps"] == [0, 30]
    for metric, values in alone["evaluations"].items():
        np.testing.assert_allclose(apart["evaluations"][metric], values, rtol=1e-5, atol=1e-5)
    cell = node_id(supervised())
    store = Store.open(tmp_path)
    (planned,) = store.read_plan(f"fit-{cell[:16]}-0")["shards"]
    assert planned["layout"] == store.manifest("cell", cell)["device"]["layout"] == [1, 2, 4]


# --- asking -----------------------------------------------------------------------------------

REFUSED = {
    "data=4,parameters=4": "takes 16 devices, and 8 are visible: use .*=data=2,parameters=4$",
    "members=9": "takes 9 devices, and 8 are visible: use RECOMBINE_LAYOUT=members=8$",
    "parameters=3,data=3": "takes 9 devices, and 8 are visible: use .*=data=2,parameters=2$",
    "paramters=4": "unknown axis in RECOMBINE_LAYOUT 'paramters': did you mean 'parameters'",
    "8": "expected numbers of devices, such as data=2,parameters=4",
    "data=": "expected numbers of devices",
    "data=two": "expected numbers of devices",
    "data=-2": "expected numbers of devices",
    "data=0": "expected numbers of devices",
    "data=2,data=4": "names data twice",
    "data=2,,": "expected numbers of devices",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_layout_that_cannot_be_is_refused_with_one_that_can(text):
    with pytest.raises(InvalidRequest, match=REFUSED[text]):
        asked_layout(text, 8)


@given(st.tuples(*[st.integers(1, 40)] * 3), st.integers(1, 64))
def test_what_a_refusal_advises_is_accepted(axes, count):
    text = ",".join(
        f"{n}={v}" for n, v in zip(("members", "data", "parameters"), axes, strict=True)
    )
    try:
        layout = asked_layout(text, count)
    except InvalidRequest as error:
        layout = asked_layout(str(error).partition("use RECOMBINE_LAYOUT=")[2], count)
    assert layout is not None and layout.devices <= count
    assert (layout == Layout(*axes)) == (math.prod(axes) <= count)


def test_the_command_refuses_a_wrong_layout_in_one_line_before_anything_compiles(
    tmp_path, monkeypatch, capsys
):
    def never(*arguments: Any) -> Any:
        raise AssertionError("it began to compile")

    monkeypatch.setattr("recombine.cli.leave", sys.exit)
    monkeypatch.setattr(engine, "compile_population", never)
    monkeypatch.setenv("RECOMBINE_LAYOUT", "data=2,parameters=4")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["run", "data-scaling", "--preset", "smoke", "--quiet"])
    told = capsys.readouterr()
    assert left.value.code == 2 and told.err.count("\n") == 1
    assert "takes 8 devices, and 1 is visible: use RECOMBINE_LAYOUT=members=1" in told.err


# --- the rule ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "members", "count", "wanted"),
    [
        (10**6, 1, 1, (1, 1, 1)),
        (10**12, 9, 1, (1, 1, 1)),  # nothing to choose: the device itself says whether it fits
        (10**6, 1, 8, (1, 1, 1)),
        (10**6, 48, 8, (8, 1, 1)),
        (10**6, 5, 8, (4, 1, 1)),
        (10**6, 5, 6, (3, 1, 1)),
        (8 * 10**9, 9, 8, (1, 4, 2)),
        (8 * 10**9, 9, 6, (1, 3, 2)),
        (30 * 10**9, 1, 8, (1, 1, 8)),
    ],
)
def test_members_go_to_devices_of_their_own_unless_one_is_too_large(
    weights, members, count, wanted
):
    assert choose_layout(weights, members, count, 80 * GIB).axes == wanted


@given(st.integers(1, 10**12), st.integers(1, 600), st.integers(1, 64), st.integers(2**28, 2**38))
def test_a_member_is_divided_no_further_than_it_must_be(weights, members, count, memory):
    room = STATE_SHARE * memory / STATE_BYTES
    if count > 1 and weights > room * count:
        enough = devices_needed(weights, memory)
        with pytest.raises(DoesNotFit, match=f"use {enough} of them"):
            choose_layout(weights, members, count, memory)
        assert choose_layout(weights, members, enough, memory).devices == enough
        return
    layout = choose_layout(weights, members, count, memory)
    assert count % layout.devices == 0 and layout.members <= members
    if count > 1:
        assert weights <= room * layout.parameters
        smaller = [n for n in range(1, layout.parameters) if count % n == 0]
        assert all(weights > room * n for n in smaller)
        assert layout.members == 1 or layout.data == layout.parameters == 1


def test_where_memory_is_unknown_members_are_never_divided():
    assert choose_layout(10**15, 3, 4, None) == Layout(members=2)


def test_devices_of_a_cpu_are_left_alone_unless_asked_for():
    eight = Devices(8)
    assert eight.layout(10, 8, accelerated=False) == Layout()
    assert eight.layout(10, 8, accelerated=True) == Layout(members=8)
    asked = replace(eight, asked=Layout(members=4, data=2))
    assert asked.layout(10, 8, accelerated=False) == Layout(members=4, data=2)
    assert asked.layout(10, 3, accelerated=False) == Layout(members=3, data=2)


def test_a_model_too_large_for_all_devices_takes_them_all_and_fails_with_the_number_that_would_do():
    small = Devices(2, memory_bytes=GIB)
    layout = small.layout(10**9, 1, accelerated=True)
    assert layout == Layout(parameters=2)
    assert "make 32 devices visible (2 now)" in small.advice(10**9, layout)
    larger = Devices(8, memory_bytes=GIB)
    assert "RECOMBINE_LAYOUT=parameters=2" in larger.advice(10**6, Layout())


# --- plans ------------------------------------------------------------------------------------


@given(
    st.dictionaries(st.integers(0, 5), st.integers(1, 20), min_size=1), st.integers(1, 9),
    st.integers(1, 8),
)  # fmt: skip
def test_stacks_over_several_devices_lie_evenly_and_within_the_limit_of_each(sizes, limit, count):
    @dataclass(frozen=True)
    class Gpu(Device):
        def stack(self, weights: int) -> int:
            return limit

    learners = {
        node_id(one): one
        for base, size in sizes.items()
        for one in (Small(seed, base=base) for seed in range(size))
    }
    found = plan.shards(learners, Gpu("gpu", "a fast one", 8), Devices(count))
    assert Counter(c for s in found for c in s.cells) == dict.fromkeys(learners, 1)
    for shard in found:
        members = len(shard.cells) + shard.padding
        assert shard.over.devices <= count and members % shard.over.members == 0
        assert members // shard.over.members <= limit
        assert shard.padding == 0 or shard.groups == 1
        width = len(shard.cells) // shard.groups
        rows = [shard.cells[i : i + width] for i in range(0, len(shard.cells), width)]
        assert all(len({learners[cell].group() for cell in row}) == 1 for row in rows)


@given(st.integers(2, 20), st.integers(1, 8), st.integers(1, 4))
def test_halves_of_a_stack_lie_evenly_too(count, members, data):
    cells = tuple(f"{n:02x}" for n in range(count))
    for groups in (1, count):
        halves = Shard(cells, groups, layout=(members, data, 2)).halves()
        assert halves[0].cells + halves[1].cells == cells
        for half in halves:
            assert (len(half.cells) + half.padding) % half.over.members == 0
            assert half.layout[1:] == (data, 2) and half.over.members <= members


def test_a_plan_written_before_there_were_layouts_names_the_same_shards():
    known = {"cells": ["aa", "bb"], "groups": 1, "precision": "float32", "padding": 0}
    shard = Shard.from_document(known)
    assert shard == Shard(("aa", "bb"))
    text = "('aa', 'bb')/1/float32/0"
    assert shard.id == hashlib.sha256(text.encode()).hexdigest()[:24]
    apart = Shard.from_document({**known, "layout": [1, 2, 4]})
    assert apart.layout == (1, 2, 4) and apart.id != shard.id


def test_work_begun_on_eight_devices_is_not_begun_anew_on_one(tmp_path):
    store, learner = Store.open(tmp_path), Line()
    cell = node_id(learner)
    shard = Shard((cell,), layout=(1, 2, 4))
    store.write_plan("p-0", {"device": asdict(device()), "shards": [asdict(shard)]})
    checkpoint = Checkpoints(store.work(shard.id, [("cell", cell)]) / "state")
    checkpoint.save(10, {}, {})
    with pytest.raises(Foreign, match=r"began on 8 devices \(data=2,parameters=4\).*1 can be used"):
        execute.train(Session(store), "p", {cell: learner})
    checkpoint.clear()
    execute.train(Session(store), "p", {cell: learner})
    (planned,) = store.read_plan("p-0")["shards"]
    assert planned["layout"] == [1, 1, 1] and store.has("cell", cell)


def test_one_member_that_did_not_fit_is_told_how_to_lie_over_more_devices(tmp_path, monkeypatch):
    def full(*arguments: Any) -> Any:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nmore")

    monkeypatch.setattr(engine, "compile_population", full)
    monkeypatch.setattr(shards.Devices, "here", staticmethod(lambda: Devices(8, 2**16)))
    with pytest.raises(DoesNotFit, match=r"RECOMBINE_LAYOUT=parameters=2$"):
        run_shard(Store.open(tmp_path), Shard((node_id(Small()),)), [Small()])
