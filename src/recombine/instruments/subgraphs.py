"""Whether a network does what training often showed it: its steps, their errors, their frequency.

Every answer is written greedily and, where it is a scratchpad, read back node by node. Beside the
network two executors do the same items: one that memorises (right where training saw a subgraph
often) and one that errs at random, blind to frequency. What is said of the network must be found
in the first and not in the second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from recombine.errors import NotApplicable
from recombine.families._sequence import TEST, TRAIN, VALIDATION, Item
from recombine.families.multiplication import Multiplication
from recombine.families.subsequence import SUFFIX, Subsequence
from recombine.graphs.auroc import NodeTable, merged, node_table, stratified_auroc
from recombine.graphs.bounds import errors_by_operation, estimate_rates
from recombine.graphs.executors import memorising_executor, noisy_executor
from recombine.graphs.frequency import SubgraphIndex, graph_keys
from recombine.graphs.graph import ComputationGraph, Written
from recombine.graphs.workings import workings_of
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments._subgraph_tables import (
    Trace,
    by_digit,
    by_layer,
    by_size,
    excess,
    is_long,
    is_short,
)
from recombine.instruments.exact_match import in_text
from recombine.instruments.sequence_subject import SequenceSubject
from recombine.instruments.subject import Subject
from recombine.seeds import host_seed

SEEN = "seen"
TOUCHED, UNTOUCHED = "touched", "untouched"
SPARE = 8  # tokens that an answer may be longer than any right one
LEAST_PAIRS = 100  # right and wrong nodes to compare; fewer say nothing
BLIND_RUNS = 3
ERROR = 0.05  # of the blind executor beside a network that writes no steps
ERRORS = (0.02, 0.3)  # bounds on its rates elsewhere, which else are the network's own


@dataclass(frozen=True)
class Subgraphs(Instrument):
    """How often training saw the subgraph of each node, and whether the node comes out right.

    Reads families with known computations (multiplication, subsequence), with scratchpads or
    without; of each split up to `items` items, of short answers four times as many. What was
    written counts by its place also where an answer ends too early; how many do (`short`, `long`),
    and how many would be exact if they were told where to end (`ended`), stands beside. Controls:
    the untrained twin; frequencies shuffled among like nodes, and right answers of other items; a
    memorising executor (planted) and a frequency-blind one, which fails at each operation as often
    as the network does, on the same items. `memory` is 2 AUROC - 1: 0 where frequency tells
    nothing, 1 where it tells all. Nodes are compared within a size, a layer and an operation: one
    operation may be both rarer and harder than another.
    """

    version: ClassVar[int] = 4
    name: ClassVar[str] = "subgraphs"
    needs: ClassVar[tuple[str, ...]] = ("answer", "log-probabilities")
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted", "blind")

    items: int = 200

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        trained, twin = in_text(subject, self.name), in_text(untrained, self.name)
        if not isinstance(trained.family, Multiplication | Subsequence):
            raise NotApplicable(
                f"{self.name} needs a family whose computation is known step by step "
                f"(multiplication, subsequence); {trained.family.name} is none"
            )
        traces = [
            trace
            for split in trained.corpus.splits
            if split not in (TRAIN, VALIDATION)
            for trace in self.traces(trained, split)
        ]
        counts = frequencies(trained, [trace.graph for trace in traces])
        rng = np.random.default_rng(host_seed(trained.learner.seeds.evaluation, self.name))
        scratchpad = trained.family.scratchpad
        values = shares(traces, scratchpad)
        controls = {
            "untrained": shares(self.traces(twin, TEST), scratchpad),
            "shuffled": {SEEN: _of_another(traces)},
            "planted": {},
            "blind": {},
        }
        chances: dict[str, float] = {}
        if scratchpad:
            table = nodes(traces, counts)
            values |= _auroc(table)
            controls["shuffled"] |= _memory(_shuffled(table, rng))
            done = [t.graph for t in traces], [t.written for t in traces]
            rates = estimate_rates(*done)
            values |= {"error": rates.error} if rates.with_right_parents else {}
            own = errors_by_operation(*done)
            chances = {op: float(np.clip(rate, *ERRORS)) for op, rate in own.items()}
        memorised = executed(traces, _memorising(traces, counts, rng), scratchpad)
        controls["planted"] = told(memorised, counts, scratchpad)
        blind = [
            executed(traces, _blind(traces, rng, chances), scratchpad) for _ in range(BLIND_RUNS)
        ]
        runs = [told(done, counts, scratchpad) for done in blind]
        controls["blind"] = {
            name: float(np.mean([run[name] for run in runs if name in run])) for name in runs[0]
        }
        tables = {"sizes": by_size(traces, scratchpad)}
        if scratchpad:
            tables |= {"layers": by_layer(traces, counts), "blind": by_layer(blind[0], counts)}
        if isinstance(trained.family, Multiplication):
            tables |= by_digit(trained.family, traces)
        return Reading(values, controls, tables)

    def traces(self, subject: SequenceSubject, split: str) -> list[Trace]:
        """Items of a split with what the subject writes."""
        family, part = subject.family, subject.corpus.splits[split]
        assert isinstance(family, Multiplication | Subsequence)
        count = len(part.sources)
        seeds = subject.learner.seeds
        rng = np.random.default_rng(host_seed(seeds.evaluation, f"{self.name}/{split}"))
        most = self.items if family.scratchpad else 4 * self.items
        chosen = np.sort(rng.choice(count, min(most, count), replace=False))
        sources = [part.sources[n] for n in chosen]
        targets = [part.targets[n] for n in chosen]
        longest = max(len(target) for target in targets) + SPARE
        answers = [subject.text(found) for found in subject.written(sources, longest)]
        ended = subject.judge(sources, targets).ended
        items = [
            Item(subject.text(s), subject.text(t), part.parts[n], int(part.novelty[n]))
            for n, s, t in zip(chosen, sources, targets, strict=True)
        ]
        halves = np.zeros(len(items), int)
        if isinstance(family, Subsequence):
            halves = family.halves([item.source for item in items], seeds.content)
        work = workings_of(family.name)
        read = work.read if family.scratchpad else work.said
        name = SEEN if split == TEST else f"unseen_{split}"
        done = []
        for item, answer, half, given in zip(items, answers, halves, ended, strict=True):
            exact = family.scores(item, answer)["answer"] == 1
            done.append(
                Trace(
                    item, name, work.size(item.source), work.graph(item.source), answer,
                    read(item.source, answer), exact, exact or bool(given),
                    excess(family, item, answer), int(half),
                )
            )  # fmt: skip
        return done


def frequencies(
    subject: SequenceSubject, graphs: Sequence[ComputationGraph]
) -> list[Int[np.ndarray, " node"]]:
    """For every node of graphs: the training items whose computation holds all it is made of."""
    sources = [subject.text(source) for source in subject.corpus.splits[TRAIN].sources]
    trained = workings_of(subject.family.name).trained(sources)
    index = SubgraphIndex.of(keys.strict for keys in trained)
    found = index.count(graph_keys(graphs).strict)
    return [row[: len(graph.nodes)] for row, graph in zip(found, graphs, strict=True)]


def shares(traces: Sequence[Trace], scratchpad: bool) -> dict[str, float]:
    """Exact answers and right nodes by split, also by the half in which a list ends.

    `ended`: exact where the end of the answer is given; `short` and `long`: with fewer or more
    digits or marks than the right answer; `readable`: with anything that can be read.
    `touched` nodes are those that an ending of `SUFFIX` numbers is a part of; all others, which
    the ending cannot have made rarer, are `untouched`. Of answers alone there are marks to judge.
    """
    found: dict[str, float] = {}
    # Lists of one size have graphs of one shape.
    sizes = {trace.size: trace.graph for trace in traces if trace.half}
    shapes = {size: _touched(graph, scratchpad) for size, graph in sizes.items()}
    for split in dict.fromkeys(trace.split for trace in traces):
        mine = [trace for trace in traces if trace.split == split]
        found[split] = float(np.mean([trace.exact for trace in mine]))
        found[f"{split}/readable"] = float(np.mean([t.written is not None for t in mine]))
        found[f"{split}/ended"] = float(np.mean([t.ended for t in mine]))
        found[f"{split}/short"] = float(np.mean([is_short(t) for t in mine]))
        found[f"{split}/long"] = float(np.mean([is_long(t) for t in mine]))
        for half in (1, 2):
            ended = [trace for trace in mine if trace.half == half]
            if not ended:
                continue
            found[f"{split}/exact{half}"] = float(np.mean([trace.exact for trace in ended]))
            found[f"{split}/items{half}"] = len(ended)
            for kind in (TOUCHED, UNTOUCHED):
                marks = [m for t in ended for m in _right_nodes(t, shapes[t.size], kind)]
                if marks:
                    found[f"{split}/{kind}{half}"] = float(np.mean(marks))
    return found


def _touched(graph: ComputationGraph, scratchpad: bool) -> dict[str, str]:
    """For each node that is written: whether it is made from all of the last numbers."""
    n = sum(not node.parents for node in graph.nodes)
    ending = set(range(n - SUFFIX, n))  # sources come first, in order
    return {
        node.name: TOUCHED if ending <= graph.ancestors(place) else UNTOUCHED
        for place, node in enumerate(graph.nodes)
        if node.parents and (scratchpad or _is_answered(node.name))
    }


def _is_answered(name: str) -> bool:
    return name == "answer" or name.startswith("mark[")


def _right_nodes(trace: Trace, kinds: Mapping[str, str], kind: str) -> list[bool]:
    """Whether each node of a kind is right; one that was not written is not."""
    right, said = trace.graph.values, trace.written or {}
    return [said.get(name) == right[name] for name, one in kinds.items() if one == kind]


def _of_another(traces: Sequence[Trace]) -> float:
    """The share of answers like training that are right answers to another item."""
    mine = [trace for trace in traces if trace.split == SEEN]
    other = mine[len(mine) // 2 :] + mine[: len(mine) // 2]
    return float(np.mean([a.answer == b.item.target for a, b in zip(mine, other, strict=True)]))


def nodes(traces: Sequence[Trace], counts: Sequence[np.ndarray]) -> NodeTable:
    """Steps from right parents; right ones are compared with wrong ones of their kind."""
    tables = []
    for size in dict.fromkeys(trace.size for trace in traces):
        mine = [n for n, trace in enumerate(traces) if trace.size == size]
        graphs, written = [traces[n].graph for n in mine], [traces[n].written for n in mine]
        seen = np.stack([counts[n] for n in mine])
        tables.append(node_table(graphs, written, seen, by="layer and op"))
    return merged(tables)


def _auroc(table: NodeTable) -> dict[str, float]:
    value, pairs = stratified_auroc(table)
    return {"pairs": pairs} | ({"auroc": value} if pairs >= LEAST_PAIRS else {})


def _memory(table: NodeTable) -> dict[str, float]:
    found = _auroc(table)
    return {"memory": 2 * found["auroc"] - 1} if "auroc" in found else {}


def _shuffled(table: NodeTable, rng: np.random.Generator) -> NodeTable:
    score = table.score.copy()
    for stratum in np.unique(table.stratum):
        mine = np.flatnonzero(table.stratum == stratum)
        score[mine] = score[rng.permutation(mine)]
    return NodeTable(score, table.right, table.stratum, table.left_out)


Written_by = Callable[[int], Written]


def _memorising(
    traces: Sequence[Trace], counts: Sequence[np.ndarray], rng: np.random.Generator
) -> Written_by:
    """Right where a subgraph is as frequent as is usual in its layer; else what it wrote spreads.

    In layers that training saw nothing of, or everything alike, it goes on from what it wrote.
    """
    usual: dict[tuple[str, int], int] = {}
    pooled: dict[tuple[str, int], list[int]] = {}
    for trace, row in zip(traces, counts, strict=True):
        for layer, count in zip(trace.graph.layers, row, strict=True):
            pooled.setdefault((trace.size, layer), []).append(int(count))
    for key, seen in pooled.items():
        usual[key] = max(1, int(np.ceil(np.median(seen)))) if len(set(seen)) > 1 else 0

    def write(n: int) -> Written:
        trace = traces[n]
        enough = np.asarray([usual[trace.size, layer] for layer in trace.graph.layers])
        return memorising_executor(trace.graph, counts[n], rng, at_least=enough).written

    return write


def _blind(
    traces: Sequence[Trace], rng: np.random.Generator, chances: Mapping[str, float]
) -> Written_by:
    def write(n: int) -> Written:
        graph = traces[n].graph
        error = {node.op: chances.get(node.op, ERROR) for node in graph.nodes}
        return noisy_executor(graph, rng, error=error).written

    return write


def executed(traces: Sequence[Trace], write: Written_by, scratchpad: bool) -> list[Trace]:
    """The same items as an executor does them."""
    done = []
    for n, trace in enumerate(traces):
        written = write(n)
        assert written is not None
        right = written["answer"] == trace.graph.answer
        kept = {name: value for name, value in written.items() if _is_answered(name)}
        said = written if scratchpad else kept
        done.append(trace._replace(written=said, exact=right, ended=right, excess=0))
    return done


def told(done: Sequence[Trace], counts: Sequence[np.ndarray], scratchpad: bool) -> dict[str, float]:
    """What is read off the items as an executor did them."""
    return shares(done, scratchpad) | (_memory(nodes(done, counts)) if scratchpad else {})
