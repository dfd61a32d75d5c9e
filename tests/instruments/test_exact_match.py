"""Exact answers on partly trained networks: judged without writing, and as they are written."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.errors import NotApplicable
from recombine.families import Functions, Item, SequenceFamily
from recombine.instruments import ExactMatch, Subject, check_instrument
from recombine.instruments.exact_match import PART_COLUMNS
from recombine.instruments.sequence_subject import Judged
from recombine.lab.engine import initial_state
from recombine.learners import NextToken
from recombine.learners.packing import decode
from recombine.models import SequenceModel
from recombine.models.sequence import Rows
from recombine.tokens import ANSWER, END

DECODER = NextToken(
    family=Functions(
        functions=5, values=6, depth=3, deepest=5, steps=True, train_items=1_200, test_items=150,
        beyond_items=150, validation_items=40,
    ),
    model=SequenceModel(depth=2, width=32, heads=2),
    training_steps=200,
    batch=8,
    learning_rate=1e-2,
    warmup=20,
    row=48,
    rows=320,
    vocabulary=16,
    looks=("seen",),
    evaluation_rows=1,
)  # fmt: skip
ENCODER = replace(DECODER, model=SequenceModel(shape="encoder-decoder", depth=1, width=32, heads=2))


@pytest.fixture(scope="module")
def given():
    return {name: material.make() for name, material in DECODER.materials().items()}


def briefly_trained(learner, given):
    """Weights before and after training."""
    arrays = learner.prepare(given)
    first = initial_state(learner, arrays, "float32")
    merged = jax.tree.map(jnp.asarray, arrays.merged())
    program = learner.program()

    def advance(t, state):
        return program.step(merged, state, t)[0]

    last = jax.jit(lambda state: jax.lax.fori_loop(0, learner.steps, advance, state))(first)
    return learner.weights(first), learner.weights(jax.device_get(last))


@pytest.fixture(scope="module")
def decoders(given):
    """The untrained twin and the trained network."""
    return tuple(DECODER.subject(weights, given) for weights in briefly_trained(DECODER, given))


@pytest.fixture(scope="module")
def encoders(given):
    return tuple(ENCODER.subject(weights, given) for weights in briefly_trained(ENCODER, given))


@pytest.fixture(scope="module", params=["decoders", "encoders"])
def subjects(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def items(given):
    """All items that training does not have, in numbers: 490 of them."""
    splits = [part for name, part in decode(given["corpus"]).splits.items() if name != "train"]
    return ([s.tolist() for part in splits for s in part.sources],
            [t.tolist() for part in splits for t in part.targets])  # fmt: skip


def test_an_answer_judged_exact_is_the_one_that_is_written(subjects, items):
    sources, targets = items
    ends = [len(target) for target in targets]
    for trained, subject in enumerate(subjects):
        judged = subject.judge(sources, targets)
        written = subject.written(sources)
        np.testing.assert_array_equal(
            judged.exact, [a == b for a, b in zip(written, targets, strict=True)]
        )
        ended = subject.written(sources, ends=ends)
        np.testing.assert_array_equal(
            judged.ended, [a == b for a, b in zip(ended, targets, strict=True)]
        )
        assert [len(answer) for answer in ended] == ends
        assert (judged.ended >= judged.exact).all()
        if trained:  # far enough from both ends for the comparison to say something
            assert 0.1 < judged.exact.mean() < 0.9
            assert judged.ended.sum() > judged.exact.sum()
        else:
            assert judged.exact.mean() < 0.02


def test_the_log_probability_is_the_sum_over_tokens_computed_plainly(subjects, items):
    sources, targets = ([*part[:20], *part[-20:]] for part in items)
    trained = subjects[1]
    found = trained.judge(sources, targets)
    apart = trained.learner.model.shape == "encoder-decoder"
    texts = [
        ([] if apart else s) + [ANSWER, *t, END] for s, t in zip(sources, targets, strict=True)
    ]
    heard = [s if apart else [] for s in sources]
    rows = Rows(padded(texts), padded(texts) > 0, padded(heard), padded(heard) > 0)
    rows = Rows(*(jnp.asarray(a, jnp.int32) for a in rows))
    scores = np.asarray(jax.jit(lambda network, rows: network(rows))(trained.network, rows), float)
    for n, (text, target) in enumerate(zip(texts, targets, strict=True)):
        places = range(len(text) - len(target) - 2, len(text) - 1)
        plain = sum(
            scores[n, p, text[p + 1]] - np.log(np.sum(np.exp(scores[n, p]))) for p in places
        )
        assert found.log_probability[n] == pytest.approx(plain, abs=1e-3)
        assert found.tokens[n] == len(target) + 1
    words = [[trained.text(piece) for piece in part] for part in (sources, targets)]
    np.testing.assert_array_equal(trained.log_probabilities(*words), found.log_probability)


def padded(lists):
    out = np.zeros((len(lists), 16), np.int64)
    for row, one in zip(out, lists, strict=True):
        row[: len(one)] = one
    return out


def test_how_items_are_packed_changes_no_judgement(subjects, items):
    trained = subjects[1]
    whole = trained.judge(*items)
    order = np.random.default_rng(0).permutation(len(items[0]))
    mixed = trained.judge(*([part[n] for n in order] for part in items))
    one = trained.judge(*(part[7:8] for part in items))
    for found, name in ((mixed, order), (one, [7])):
        np.testing.assert_array_equal(found.exact, whole.exact[name])
        np.testing.assert_array_equal(found.tokens, whole.tokens[name])
        np.testing.assert_allclose(found.log_probability, whole.log_probability[name], atol=1e-3)
    assert trained.judge([], []).exact.shape == (0,)


def test_answers_come_as_text_and_may_be_kept_short(decoders, items):
    _, trained = decoders
    sources, targets = (part[:60] for part in items)
    exact = trained.judge(sources, targets).exact
    texts = [trained.text(source) for source in sources]
    answers = trained.answer(texts)
    assert texts[0].split(" ")[0] in {f"a{n}" for n in range(6)}
    for answer, target, right in zip(answers, targets, exact, strict=True):
        assert (answer == trained.text(target)) == right
    short = trained.answer(texts, longest=1)
    assert short == [answer.split(" ")[0] for answer in answers]
    assert trained.answer(["a0 never-heard-of"])[0] is not None


def test_activations_are_those_where_the_answer_begins_whatever_stands_beside(decoders, items):
    _, trained = decoders
    sources = items[0][::7]  # more than fit into one batch, of all lengths
    texts = [trained.text(source) for source in sources]
    found = trained.activations(texts)
    assert sorted(found) == ["embedded", "layer1/after", "layer2/after"]
    assert all(array.shape == (len(sources), 32) for array in found.values())
    alone = padded([[*source, ANSWER] for source in sources])
    nothing = jnp.zeros((len(sources), 0), jnp.int32)
    rows = Rows(jnp.asarray(alone, jnp.int32), jnp.asarray(alone > 0, jnp.int32), nothing, nothing)
    stream = jax.jit(lambda network, rows: network.hidden(rows))(trained.network, rows)
    last = [len(source) for source in sources]
    for name, layer in zip(["embedded", "layer1/after", "layer2/after"], stream, strict=True):
        expected = np.asarray(layer)[np.arange(len(sources)), last]
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-4)
    turned = trained.activations(texts[::-1])["layer2/after"][::-1]
    np.testing.assert_allclose(turned, found["layer2/after"], rtol=1e-4, atol=1e-4)


def test_a_network_with_an_encoder_says_that_it_shows_no_activations(encoders):
    with pytest.raises(NotApplicable, match="decoder-only"):
        encoders[1].activations(["a0 f1"])


@pytest.fixture(scope="module")
def reading(decoders):
    untrained, trained = decoders
    return ExactMatch().read(trained, untrained, {})


def test_the_instrument_keeps_the_contract(decoders):
    untrained, trained = decoders
    check_instrument(ExactMatch(items=30), DECODER, trained.weights(), untrained.weights())


def test_shares_are_those_of_the_items_of_each_split(decoders, reading):
    _, trained = decoders
    names = {"test": "seen", "validation": "validation", "systematicity": "unseen_systematicity",
             "depth": "unseen_depth"}  # fmt: skip
    for split, name in names.items():
        part = trained.corpus.splits[split]
        judged = trained.judge(part.sources, part.targets)
        assert reading.values[name] == pytest.approx(judged.exact.mean())
        assert reading.values[f"{name}_ended"] == pytest.approx(judged.ended.mean())
        mean = -judged.log_probability.sum() / judged.tokens.sum()
        assert reading.values[f"{name}_surprise"] == pytest.approx(mean)
        # The family's own score of what is written: the last word alone.
        answers = trained.answer([trained.text(source) for source in part.sources])
        ends = [trained.text(target).split(" ")[-1] for target in part.targets]
        last = [answer.split(" ")[-1] == end for answer, end in zip(answers, ends, strict=True)]
        assert reading.values[f"{name}_answer"] == pytest.approx(np.mean(last))
    assert reading.values["seen"] > reading.values["unseen_depth"]


def test_controls_show_what_chance_and_a_solver_reach(reading):
    assert sorted(reading.controls) == ["planted", "shuffled", "untrained"]
    assert set(reading.controls["planted"].values()) == {1.0}
    assert max(reading.controls["untrained"].values()) < 0.02
    assert max(reading.controls["shuffled"].values()) < 0.2
    for name in ("seen", "validation", "unseen_systematicity", "unseen_depth"):
        assert all(name in control for control in reading.controls.values())


def test_who_always_says_the_same_is_as_often_right_about_other_items(decoders, monkeypatch):
    untrained, trained = decoders
    part = trained.corpus.splits["test"]
    said = part.targets[0]

    def judge(sources, targets):
        exact = np.asarray([np.array_equal(target, said) for target in targets])
        count = len(targets)
        return Judged(exact, exact, np.zeros(count), np.ones(count, int))

    monkeypatch.setattr(trained, "judge", judge)
    found = ExactMatch().read(trained, untrained, {})
    assert found.values["seen"] > 0
    assert found.controls["shuffled"]["seen"] == pytest.approx(found.values["seen"])


def test_a_solver_that_is_wrong_is_seen_in_the_planted_control(decoders, given):
    untrained, trained = decoders
    other = replace(DECODER, family=replace(DECODER.family, content=1))  # other functions
    twin = other.subject(trained.weights(), given)
    found = ExactMatch(items=50).read(twin, untrained, {}).controls["planted"]
    assert max(found.values()) < 0.5


def test_parts_add_up_to_the_whole(reading, decoders):
    table = reading.tables["parts"]
    assert sorted(table) == sorted(PART_COLUMNS)
    split, items = np.asarray(table["split"]), np.asarray(table["items"])
    for name in set(table["split"]):
        mine = split == name
        for column, value in (("exact", name), ("ended", f"{name}_ended")):
            mean = np.average(np.asarray(table[column])[mine], weights=items[mine])
            assert mean == pytest.approx(reading.values[value])
    assert items.sum() == 490
    family, corpus = DECODER.family, DECODER.family.corpus(DECODER.seeds.content)
    rows = zip(table["split"], table["part"], table["novelty"], table["items"], strict=True)
    for found, part, novelty, count in rows:
        if found == "unseen_depth":
            assert novelty == int(part.removeprefix("depth ")) - family.depth
            wanted = [i for i in corpus["depth"] if (i.part, i.novelty) == (part, novelty)]
            assert len(wanted) == count
        if found == "seen":
            assert novelty == 0


def test_fewer_items_are_chosen_at_random_and_always_the_same(decoders):
    _, trained = decoders
    chosen = [ExactMatch(items=20).chosen(trained, "test", 150) for _ in range(2)]
    np.testing.assert_array_equal(*chosen)
    assert len(set(chosen[0].tolist())) == 20 and chosen[0].max() > 20
    assert len(ExactMatch(items=20).chosen(trained, "validation", 7)) == 7


class Plain(Functions):
    """Functions that know no score but exactness."""

    scores = SequenceFamily.scores


class Picky(Functions):
    """Has a score that not every item has."""

    def scores(self, item: Item, answer: str) -> dict[str, float]:
        exact = {"exact": float(answer == item.target)}
        return exact | ({"late": 0.5} if item.source.startswith("a5") else {})


def scored(instrument, trained, kind):
    """The scores of the first test items under another kind of family, and their sources."""
    part = trained.corpus.splits["test"]
    learner = replace(DECODER, family=kind(**vars(DECODER.family)))
    subject = type(trained)(learner, trained.weights(), trained.corpus)
    some = {"part": part.parts[:40], "novelty": [0] * 40}, part.sources[:40], part.targets[:40]
    none = np.zeros(40, bool)  # none is known to be exact: all are written
    return instrument.scored(subject, *some, none), [trained.text(source) for source in some[1]]


def test_scores_of_written_answers_are_given_where_the_family_has_them(decoders):
    _, trained = decoders
    assert sorted(scored(ExactMatch(), trained, Functions)[0]) == ["answer"]
    assert scored(ExactMatch(), trained, Plain)[0] == {}
    found, sources = scored(ExactMatch(), trained, Picky)
    late = sum(source.startswith("a5") for source in sources)
    assert 0 < late < 40 and found["late"].tolist() == [0.5] * late


def test_answers_known_to_be_exact_need_not_be_written(decoders):
    _, trained = decoders
    part = trained.corpus.splits["test"]
    some = {"part": part.parts[:40], "novelty": [0] * 40}, part.sources[:40], part.targets[:40]
    exact = trained.judge(*some[1:]).exact
    assert exact.any() and not exact.all()
    written, known = (
        ExactMatch().scored(trained, *some, given) for given in (np.zeros(40, bool), exact)
    )
    np.testing.assert_array_equal(written["answer"], known["answer"])


class Foreign(Subject):
    abilities = frozenset({"answer", "log-probabilities"})


def test_a_subject_without_a_corpus_is_refused_with_its_name(decoders):
    with pytest.raises(NotApplicable, match="Foreign does not"):
        ExactMatch().read(Foreign(), decoders[0], {})
    with pytest.raises(NotApplicable, match="needs answer, log-probabilities of Subject"):
        ExactMatch().read(Subject(), decoders[0], {})
