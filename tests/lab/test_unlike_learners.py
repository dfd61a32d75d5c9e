"""Systems unlike the hyperteacher, through the whole laboratory: run, kill, resume, read."""

from __future__ import annotations

import json
import random
from pathlib import Path

import jax
import numpy as np
import pytest
from unlike.adaptive import Adaptive
from unlike.exam import Exam
from unlike.line import Line
from unlike.masks import Masked, small_base
from unlike.nursery import Nursery, committed
from unlike.oracle import CALLS, Apprentice
from unlike.sequences import Backwards
from unlike.slots import SlotReader

from recombine.lab.api import load
from recombine.lab.engine import Population
from recombine.lab.execute import Session
from recombine.lab.identity import node_id, revive
from recombine.lab.run import Request, collect, run
from recombine.lab.shards import gather
from recombine.lab.store import Store
from recombine.learners.check import check_learner

pytestmark = pytest.mark.slow

OFTEN = {"RECOMBINE_CHECKPOINT_SECONDS": "0"}
SYSTEMS = ("sequences", "masks", "slots", "oracle", "study")


@pytest.fixture
def bill(tmp_path, monkeypatch) -> Path:
    path = tmp_path / "bill"
    monkeypatch.setenv(CALLS, str(path))
    return path


@pytest.mark.parametrize(
    "learner",
    [Line(), Backwards(), Masked(), SlotReader(), Apprentice()],
    ids=lambda one: type(one).__name__,
)
def test_it_keeps_the_contract_of_a_learner(learner, bill):
    check_learner(learner)


def unfinished(store: Path) -> list[Path]:
    return list(store.glob("work/*/state/*-step-*"))


def killed_until_done(
    nursery: Nursery, work: str, store: Path, calls: int, env: dict[str, str], seed: int
) -> int:
    """Kills a run at random writes and random moments, then lets it end."""
    moments, kills, left = random.Random(seed), 0, False
    fates = [{"deadly_call": moments.randrange(20, calls // 2), "steady": True} for _ in range(3)]
    fates += [{"kill_after": moments.uniform(0.1, 0.5)} for _ in range(2)]
    for fate in fates:
        (end,) = nursery.run({"work": work, "store": str(store), "env": env, **fate})
        assert end["code"] in (0, -9), end["output"]
        kills += end["code"] == -9
        left = left or bool(unfinished(store))
        look_at_rounds(store)
    (end,) = nursery.run({"work": work, "store": str(store), "env": env})
    assert end["code"] == 0, end["output"]
    assert left, f"{kills} kills never met a checkpoint"
    return kills


def look_at_rounds(path: Path) -> None:
    """A cell of a later round may have begun only if its round was committed before."""
    store = Store.open(path)
    later = [p for p in path.glob("work/*/nodes.json") if begun_later(store, p)]
    assert not later or store.ids("round")


def begun_later(store: Store, nodes: Path) -> bool:
    first = {node_id(cell.learner) for cell in Adaptive().cells(Adaptive().grid("smoke"))}
    of_study = {node_id(c.learner) for c in all_adaptive_cells()}
    cells = {id for _, id in json.loads(nodes.read_text())["nodes"]}
    return bool(cells & of_study) and not cells & first


def all_adaptive_cells():
    study, grid = Adaptive(), Adaptive().grid("smoke")
    return [study.cell(grid, rate, seed) for rate in grid.rate for seed in range(grid.seeds)]


@pytest.mark.parametrize("work", SYSTEMS)
def test_killed_at_random_moments_it_ends_with_the_same_bytes(nursery, tmp_path, work):
    env = {**OFTEN, CALLS: str(tmp_path / "bill")}
    job = {"work": work, "store": str(tmp_path / "calm"), "env": env, "steady": True}
    (end,) = nursery.run(job)
    assert end["code"] == 0, end["output"]
    wanted = committed(tmp_path / "calm")
    assert wanted

    env[CALLS] = str(tmp_path / "second bill")
    kills = killed_until_done(nursery, work, tmp_path / "stormy", end["calls"], env, seed=len(work))
    assert committed(tmp_path / "stormy") == wanted
    store = Store.open(tmp_path / "stormy")
    assert store.verify() == []
    store.clean()
    assert unfinished(store.path) == [] and list((store.path / "work").iterdir()) == []
    assert list((store.path / "temp").iterdir()) == []

    if work == "oracle":
        paid = (tmp_path / "second bill").read_text().split("\n")[:-1]
        questions = (tmp_path / "bill").read_text().split("\n")[:-1]
        assert len(questions) == len(set(questions)) == Apprentice().questions
        assert set(paid) == set(questions)
        assert len(paid) <= len(questions) + kills
    if work == "study":
        assert len(store.ids("round")) == 1
        assert len(store.ids("cell")) == 2 + 2


@pytest.mark.parametrize("work", SYSTEMS)
def test_it_learns_and_an_instrument_reads_it_beside_its_untrained_twin(nursery, tmp_path, work):
    env = {CALLS: str(tmp_path / "bill")}
    (end,) = nursery.run({"work": work, "store": str(tmp_path / "runs"), "env": env})
    assert end["code"] == 0, end["output"]
    store = Store.open(tmp_path / "runs")
    readings = [store.document("reading", id, "reading") for id in store.ids("reading")]
    better = [r["values"]["right"] > r["controls"]["untrained"]["right"] for r in readings]
    assert sum(better) >= 0.75 * len(better) and better
    assert all(r["controls"]["planted"]["right"] == 1 for r in readings)
    for id in store.ids("reading"):
        request = store.manifest("reading", id)["request"]
        fitted = load(store, request["cell"])
        assert fitted.read(Exam()).document() == store.document("reading", id, "reading")
        assert fitted.learner == revive(store.manifest("cell", request["cell"])["request"])


def test_two_bases_with_three_masks_each_as_one_stack_learn_what_each_learns_alone():
    bases = [small_base(0), small_base(1)]
    tensors = []
    for base in bases:
        population = Population([base], [base.prepare({})], "float32")
        state = jax.tree.map(lambda leaf: leaf[0], population.host_state())
        tensors.append(base.weights(state))
    learners = [
        Masked(base, module=m, seed=m, training_steps=50) for base in bases for m in range(3)
    ]
    prepared = [one.prepare({"base": tensors[n // 3]}) for n, one in enumerate(learners)]

    def trained(members: list[int], groups: int) -> list[dict[str, np.ndarray]]:
        population = Population(
            [learners[i] for i in members], [prepared[i] for i in members], "float32", groups
        )
        population.compile()
        while population.running():
            population.chunk(50)
        population.evaluate()
        states = population.host_state()
        return [
            learners[i].weights(jax.tree.map(lambda leaf, n=n: leaf[n], states))
            for n, i in enumerate(members)
        ]

    together = trained(list(range(6)), groups=2)
    alone = [trained([i], groups=1)[0] for i in range(6)]
    for one, other in zip(together, alone, strict=True):
        for path, logits in one.items():
            np.testing.assert_allclose(logits, other[path], rtol=0, atol=1e-5, err_msg=path)
    assert not np.allclose(together[0]["output"], together[3]["output"], atol=1e-3), "two bases"


def test_a_dataset_is_held_once_however_many_members_learn_from_it(tmp_path):
    store = Store.open(tmp_path)
    learners = [Backwards(seed=seed) for seed in range(3)]
    strings = learners[0].strings
    store.commit("material", node_id(strings), request={}, tensors={"data": strings.make()})
    known: dict = {}
    prepared = [one.prepare(gather(store, one, known)) for one in learners]
    assert prepared[0].shard["train"] is prepared[2].shard["train"]
    population = Population(learners, prepared, "float32")
    assert population.arrays.shard["train"].shape == (strings.count, strings.length)
    assert population.arrays.member["order"].shape == (3, 2)


def test_the_second_round_takes_the_better_rate_and_is_planned_with_a_bound(tmp_path):
    request = Request(Adaptive(), "smoke", {"seeds": "4", "steps": "100"})
    from recombine.cli.planning import document

    assert document(request)["further_cells_at_most"] == 3
    store = Store.open(tmp_path)
    assert collect(request, store).missing == 2, "only the first round is known before it ran"
    outcome = run(request, Session(store))
    assert outcome.finished and len(outcome.results) == 2 + 3
    first = outcome.results.where(seed=0)
    best = max(first, key=lambda row: row.value("exam", "right")).labels["rate"]
    assert {row.labels["rate"] for row in outcome.results if row.labels["seed"]} == {best}
    again = collect(request, Store.open(tmp_path, read_only=True))
    assert [row.labels for row in again.results] == [row.labels for row in outcome.results]
    assert [j.document() for j in again.judgements] == [j.document() for j in outcome.judgements]
