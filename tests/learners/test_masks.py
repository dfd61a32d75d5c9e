"""Masks over finished networks: what they may change, what they cost, what they find."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.errors import InvalidRequest, NotApplicable, RecombineError
from recombine.families import Hyperteacher
from recombine.instruments.subnetworks import Subnetworks, overlap, sampled
from recombine.lab import plan
from recombine.lab.device import Device
from recombine.lab.execute import needed_cells
from recombine.lab.run import gather_rows, train_and_read
from recombine.lab.session import Session
from recombine.lab.store import Store
from recombine.lab.study import Cell
from recombine.learners import NextToken, Supervised, check_learner
from recombine.learners.as_drawn import AsDrawn
from recombine.learners.check import stand_ins
from recombine.learners.masks import Masking, MaskLearner, density, kept, masked
from recombine.learners.module_parts import MOST_LISTED, _table
from recombine.models import MLP, DiT, Transformer
from recombine.models.items import ItemTransformer
from recombine.models.layers import named_layers
from recombine.supports import SupportRule

pytestmark = pytest.mark.slow  # make test-all runs it

BASE = Supervised(
    family=Hyperteacher(modules=6, active=2), model=MLP(width=12, depth=1), tasks=8, samples=4,
    evaluation_tasks=128, training_steps=20, evaluation_every=10,
)  # fmt: skip
MASK = MaskLearner(base=BASE, part=1, mask_steps=20, evaluation_every=10)


@pytest.fixture(scope="module")
def ready():
    """A mask program with its arrays, over an untrained network."""
    arrays = jax.tree.map(jnp.asarray, MASK.prepare(stand_ins(MASK)).merged())
    return MASK.program(), arrays


@pytest.mark.parametrize("method", ["continuous", "hard-concrete"])  # magnitude learns nothing
def test_masks_keep_the_contract_of_a_learner(method):
    learner = replace(MASK, masking=Masking(method))
    check_learner(learner, mate=replace(learner, part=2))


def test_the_network_under_a_mask_never_changes(ready):
    program, arrays = ready
    state = program.init(arrays, jax.random.key(0))
    after, _ = program.step(arrays, state, jnp.int32(0))
    assert set(after.model) == set(program.paths)
    moved = [np.abs(after.model[p] - state.model[p]).max() for p in program.paths]
    assert max(moved) > 1e-3
    own = {path: layer.weight for path, layer in named_layers(arrays["model"]).items()}
    whole = masked(arrays["model"], {p: jnp.ones_like(own[p]) for p in program.paths})
    drawn = program.base.draw_test(arrays, jnp.int32(1), jax.random.key(1))
    plain = program.base.part_score(arrays, arrays["model"], drawn)
    np.testing.assert_allclose(program.base.part_score(arrays, whole, drawn), plain, atol=1e-6)


def test_all_settings_of_a_method_share_one_program_and_differ_in_what_they_charge():
    light, heavy = (replace(MASK, masking=Masking(penalty=p, begin=0.1)) for p in (0.0, 5.0))
    assert light.program() == heavy.program() == MASK.program()
    assert MASK.program() != replace(MASK, masking=Masking("hard-concrete")).program()
    losses = []
    for one in (light, heavy):
        arrays = jax.tree.map(jnp.asarray, one.prepare(stand_ins(one)).merged())
        state = one.program().init(arrays, jax.random.key(0))
        losses.append(float(one.program().step(arrays, state, jnp.int32(0))[1]["loss"]))
    assert losses[1] > losses[0] + 1


def test_untrained_networks_are_masked_by_the_program_and_at_the_precision_of_trained_ones():
    untrained = replace(MASK, base=AsDrawn(BASE))
    gpu = Device("gpu", "a GPU", 8)
    [both] = plan.shards({"trained": MASK, "untrained": untrained}, gpu)
    assert set(both.cells) == {"trained", "untrained"} and both.precision == "bfloat16"


def test_soft_masks_end_as_the_hard_ones(ready):
    program, arrays = ready
    scores = {
        path: jnp.where(jax.random.bernoulli(jax.random.key(n), 0.5, layer.weight.shape), 0.2, -0.2)
        for n, (path, layer) in enumerate(named_layers(arrays["model"]).items())
    }
    last, share = program.soft(arrays, scores, jnp.int32(MASK.mask_steps))
    for path, hard in kept(scores).items():
        np.testing.assert_allclose(last[path], hard, atol=1e-6)
    np.testing.assert_allclose(share, density(kept(scores), arrays["real"]), atol=1e-6)
    first, _ = program.soft(arrays, scores, jnp.int32(0))
    assert all(float(jnp.min(mask)) > 0.4 for mask in first.values())


def test_magnitude_keeps_the_largest_weights():
    learner = replace(MASK, masking=Masking("magnitude", density=0.3))
    arrays = jax.tree.map(jnp.asarray, learner.prepare(stand_ins(learner)).merged())
    keep = kept(learner.program().init(arrays, jax.random.key(0)).model)
    real = {path: np.asarray(arrays["real"][path]) > 0 for path in keep}
    weights = {p: np.abs(np.asarray(named_layers(arrays["model"])[p].weight)) for p in keep}
    chosen = np.concatenate([weights[p][real[p] & (np.asarray(keep[p]) > 0)] for p in keep])
    left = np.concatenate([weights[p][real[p] & (np.asarray(keep[p]) == 0)] for p in keep])
    assert chosen.min() >= left.max()
    assert abs(chosen.size / (chosen.size + left.size) - 0.3) < 0.01


def test_padding_is_no_weight(ready):
    program, arrays = ready
    total = sum(float(jnp.sum(arrays["real"][p])) for p in program.paths)
    inputs, outputs = 16, 16
    assert total == 12 * inputs + 12 * outputs  # and none that looks the code up
    ones = {p: jnp.ones_like(arrays["real"][p]) for p in program.paths}
    assert float(density(ones, arrays["real"])) == pytest.approx(1.0)


def test_items_of_a_module_have_it_and_those_of_others_do_not(ready):
    program, arrays = ready
    for part in range(6):
        key, number = jax.random.key(part), jnp.int32(part)
        alone = program.base.draw_part(arrays, number, key).latents > 0
        with_it = program.base.draw_test(arrays, number, key).latents > 0
        without = program.base.draw_other(arrays, number, key).latents > 0
        assert alone[:, part].all() and with_it[:, part].all() and not without[:, part].any()
        assert (alone.sum(axis=1) == alone.sum(axis=1).min()).all()


def test_what_cannot_be_masked_is_refused_with_the_reason():
    with pytest.raises(InvalidRequest, match=r"part=6: expected a whole number from 0 to 5"):
        replace(MASK, part=6).check()
    with pytest.raises(RecombineError, match="unknown layer 'hidden/9'"):
        replace(MASK, masking=Masking(layers=("hidden/9",))).check()
    with pytest.raises(NotApplicable, match="NextToken has no parts"):
        replace(MASK, base=NextToken()).check()
    with pytest.raises(RecombineError, match="unknown method"):
        Masking("lottery")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mask_steps": 1.5}, "mask_steps=1.5: expected a whole number of at least 1"),
        ({"mask_steps": "a"}, "mask_steps='a': expected a whole number of at least 1"),
        ({"mask_steps": 0}, "mask_steps=0: expected a whole number of at least 1"),
        ({"evaluation_every": True}, "evaluation_every=True: expected a whole number"),
        ({"learning_rate": float("nan")}, "learning_rate=nan: expected a number from 0"),
        ({"learning_rate": "fast"}, "learning_rate='fast': expected a number from 0"),
        ({"part": 0.5}, "part=0.5: expected a whole number from 0 to 5"),
        ({"seed": 0.5}, "seed=0.5: expected a whole number"),
    ],
)
def test_numbers_that_would_be_cut_short_are_refused(change, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        replace(MASK, **change).check()


@pytest.mark.parametrize("begin", [float("nan"), float("inf"), "x", None])
def test_a_first_score_that_is_no_number_is_refused(begin):
    with pytest.raises(InvalidRequest, match=r"begin=.*: expected a number, such as 0\.05"):
        Masking(begin=begin)


@pytest.mark.parametrize("layers", ["hidden", None, (3,)])
def test_layers_that_are_no_paths_are_refused(layers):
    with pytest.raises(InvalidRequest, match=r"expected paths, such as \('hidden"):
        Masking(layers=layers)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        (MLP(width=8, depth=2), {"code": 6, "inputs": 4, "outputs": 4}),
        (Transformer(width=8, depth=1, heads=2), {"code": 6, "inputs": 4, "outputs": 4}),
        (DiT(depth=1, width=8, heads=1, patch=2), {"code": 6, "inputs": 49, "outputs": 48}),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_a_task_is_told_to_be_is_looked_up_unmasked(spec, sizes):
    network = spec.draw(jax.random.key(0), **sizes)
    (told,) = network.embeddings
    known = named_layers(network)
    assert known[told].weight.shape[0] == sizes["code"]  # a row a module
    assert Masking().paths(network) == [path for path in known if path != told]
    assert Masking(layers=(told,)).paths(network) == [told]


def test_words_are_looked_up_unmasked_unless_they_are_asked_for():
    network = ItemTransformer(1, 16, 2).shapes((9, 61))
    paths = Masking().paths(network)
    assert paths and all(path.startswith("blocks/") for path in paths)
    assert Masking(layers=("words",)).paths(network) == ["words"]


def test_of_a_module_with_many_combinations_some_are_listed_by_chance():
    lists = [np.arange(3 * MOST_LISTED), np.arange(5)]
    table = _table(lists, np.random.default_rng(0))
    assert table["count"].tolist() == [MOST_LISTED, 5]
    np.testing.assert_array_equal(table["ranks"][1, :5], lists[1])
    listed = table["ranks"][0]
    assert len(set(listed.tolist())) == MOST_LISTED
    assert np.mean(listed) == pytest.approx(1.5 * MOST_LISTED, rel=0.05)


def test_two_masks_overlap_as_sets_do():
    rng = np.random.default_rng(0)
    real = {"a": np.ones((40, 50), bool), "b": np.ones((30, 20), bool)}
    one, two = ({p: rng.random(r.shape) < share for p, r in real.items()} for share in (0.3, 0.5))
    first = {
        (p, *place)
        for p, m in one.items()
        for place in np.argwhere(m).tolist()
        for place in [tuple(place)]
    }
    second = {
        (p, *place)
        for p, m in two.items()
        for place in np.argwhere(m).tolist()
        for place in [tuple(place)]
    }
    found = overlap(one, two, real)
    assert found["overlap"] == pytest.approx(len(first & second) / len(first | second))
    assert found["overlap"] == pytest.approx(found["overlap_by_chance"], abs=0.03)
    assert overlap(one, one, real)["overlap"] == 1.0


def test_random_masks_have_as_many_weights_of_every_layer():
    rng = np.random.default_rng(1)
    pool = {"a": rng.random((20, 20)) < 0.5, "b": rng.random((5, 5)) < 0.5}
    drawn = sampled(pool, {"a": 30, "b": 10_000}, rng)
    assert drawn["a"].sum() == 30 and not (drawn["a"] & ~pool["a"]).any()
    np.testing.assert_array_equal(drawn["b"], pool["b"])


def test_a_mask_is_read_beside_its_controls_and_another_part(tmp_path):
    untrained = replace(MASK, base=AsDrawn(BASE))
    cells = [
        Cell(learner, {"kind": kind}, (Subnetworks(batches=1, draws=1),))
        for kind, learner in (("trained", MASK), ("untrained", untrained))
    ]
    session = Session(Store.open(tmp_path))
    learners = needed_cells(cells, session.store)
    assert {m.part for m in learners.values() if isinstance(m, MaskLearner)} == {1, 2}
    train_and_read(session, "masks", learners, cells)
    rows, missing, failed = gather_rows(session.store, cells)
    assert (missing, failed, len(rows)) == (0, [], 2)
    for row in rows:
        reading = row.readings["subnetworks"]
        assert set(reading.controls) == set(Subnetworks.controls)
        assert 0 <= reading.values["density"] <= 1
        whole, sub = reading.values["whole_own"], reading.values["subnetwork_own"]
        assert np.isfinite([whole, sub]).all()
        layers = reading.tables["layers"]
        assert sum(layers["kept"]) == round(reading.values["density"] * sum(layers["weights"]))
        # A mask that was never trained keeps everything: without it nothing is left.
        assert reading.controls["untrained"]["ablation"] == pytest.approx(0.0)


def test_where_no_unseen_combination_tests_a_mask_it_is_said_which_and_what_to_do():
    """One combination is held out, and it has two of four modules at most."""
    family = Hyperteacher(modules=4, active=2)
    few = replace(BASE, family=family, support=SupportRule("random", held_out=0.1))
    with pytest.raises(
        NotApplicable, match=r"no unseen combination with module \d, on which masks"
    ):
        MaskLearner(base=few).prepare({"base": {}})
