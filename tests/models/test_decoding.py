"""Writing with kept keys and values against the plain loop that reads everything again."""

from __future__ import annotations

import dataclasses
import itertools
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.models import SequenceModel, SequenceNetwork, answers
from recombine.models.decoding import BATCHES, BLOCK
from recombine.models.sequence import POSITIONS, SHAPES, Rows
from recombine.tokens import ANSWER, END, FIRST, PAD

WORDS, BATCH = 16, BATCHES[-1]
DECODER = SequenceModel(depth=2, width=16, heads=2)
# Of every kind one; half of them use one block twice.
KINDS = [
    dataclasses.replace(DECODER, positions=positions, shape=shape, tied=bool(number // 2 % 2))
    for number, (positions, shape) in enumerate(itertools.product(POSITIONS, SHAPES))
    if (positions, shape) != ("none", "encoder-decoder")
]
SOURCE, ANSWERS = 8, 7
ROOM = SOURCE + ANSWERS + 2


def drawn(spec: SequenceModel, seed: int = 0) -> SequenceNetwork:
    """Weights so large that answers differ by their sources and often end early."""
    rng = np.random.default_rng(seed)
    network = jax.device_get(spec.draw(jax.random.key(seed), vocabulary=WORDS, length=ROOM))
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf + rng.normal(0, 0.4, leaf.shape), jnp.float32), network
    )


def some_sources(count: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(FIRST, WORDS, rng.integers(1, SOURCE + 1)).tolist() for _ in range(count)]


@jax.jit
def scores(network, rows):
    return network(rows)


def plainly(network, sources, longest, ends=None):
    """Reads everything again for each token of every answer, in rows of one item."""
    found: list[list[int]] = [[] for _ in sources]
    done = [False] * len(sources)
    apart = network.spec.shape == "encoder-decoder"
    while not all(done):
        texts = [([] if apart else s) + [ANSWER, *a] for s, a in zip(sources, found, strict=True)]
        given = [s if apart else [] for s in sources]
        rows = Rows(
            filled(texts), filled([[1] * len(t) for t in texts]),
            filled(given), filled([[1] * len(s) for s in given]),
        )  # fmt: skip
        said = np.array(scores(network, rows))
        for n, text in enumerate(texts):
            if done[n]:
                continue
            after = said[n, len(text) - 1]
            if ends is not None:
                after[END] = np.inf if len(found[n]) == ends[n] else -np.inf
            token = int(np.argmax(after))
            done[n] = token == END or len(found[n]) == longest
            if not done[n]:
                found[n].append(token)
    return found


def filled(lists):
    return jnp.asarray([[*one, *[PAD] * (ROOM - len(one))] for one in lists], jnp.int32)


@pytest.mark.parametrize("spec", KINDS, ids="{0.positions}-{0.shape}-{0.tied}".format)
def test_answers_are_those_of_reading_everything_again_for_each_token(spec):
    network, sources = drawn(spec), some_sources(40)
    expected = plainly(network, sources, ANSWERS)
    assert answers(network, sources, [ANSWERS] * 40) == expected
    # The cases are worth telling apart: many answers, some of which end by themselves.
    assert len({tuple(answer) for answer in expected}) > 10
    assert len({len(answer) for answer in expected}) > 1
    ends = [n % (ANSWERS + 1) for n in range(40)]
    forced = answers(network, sources, [ANSWERS] * 40, ends)
    assert forced == plainly(network, sources, ANSWERS, ends)
    assert [len(answer) for answer in forced] == ends


@pytest.fixture(scope="module")
def network():
    return drawn(DECODER)


def test_a_longest_answer_is_kept_and_only_cuts(network):
    sources = some_sources(60, seed=1)
    whole = answers(network, sources, [ANSWERS] * 60)
    most = [n % ANSWERS + 1 for n in range(60)]
    cut = answers(network, sources, most)
    assert cut == [answer[:n] for answer, n in zip(whole, most, strict=True)]
    assert any(len(answer) < n for answer, n in zip(cut, most, strict=True))


def test_what_is_written_after_the_end_is_nothing(network):
    for answer in answers(network, some_sources(60, seed=2), [ANSWERS] * 60):
        assert len(answer) <= ANSWERS
        assert not {PAD, ANSWER, END} & set(answer)


def test_an_item_is_answered_alone_as_among_many_of_other_lengths(network):
    count = BATCH + 44
    sources = some_sources(count, seed=3)
    sources[::50] = [[*source, *sources[3] * 2][:12] for source in sources[::50]]
    most = [2 * ANSWERS if len(source) > SOURCE else ANSWERS for source in sources]
    assert 0 < most.count(ANSWERS) < count  # two buckets, one of which takes two batches
    together = answers(network, sources, most)
    for n in (0, 1, 50, BATCH - 1, BATCH, count - 1):
        assert answers(network, sources[n : n + 1], most[n : n + 1]) == together[n : n + 1]
    turned = answers(network, sources[::-1], most[::-1])
    assert turned[::-1] == together


def test_progress_is_told_item_by_item_and_nothing_is_asked_of_nobody(network):
    told: list[int] = []
    answers(network, some_sources(BATCH + 5), [ANSWERS] * (BATCH + 5), tick=told.append)
    assert sum(told) == BATCH + 5 and len(told) == 2
    assert answers(network, [], []) == []


def test_answers_go_on_over_many_blocks(network):
    sources, longest = some_sources(12, seed=4), 3 * BLOCK + 5
    forced = answers(network, sources, [longest] * 12, [longest - n for n in range(12)])
    assert [len(answer) for answer in forced] == [longest - n for n in range(12)]
    short = answers(network, sources, [ANSWERS] * 12, [ANSWERS] * 12)
    assert [answer[:ANSWERS] for answer in forced] == short


def test_several_threads_write_what_one_does(network):
    several = [some_sources(30, seed=seed) for seed in range(6)]
    alone = [answers(network, sources, [ANSWERS] * 30) for sources in several]
    with ThreadPoolExecutor(6) as pool:
        beside = list(pool.map(lambda s: answers(network, s, [ANSWERS] * 30), several))
    assert beside == alone
