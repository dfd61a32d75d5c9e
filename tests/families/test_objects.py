"""Scenes of objects and tetrominoes: what is shown, what is asked, and what is never shown."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from scipy.stats import binom
from sklearn.metrics import adjusted_rand_score

from recombine.errors import InvalidRequest
from recombine.families.objects import (
    SEARCHES,
    Objects,
    Scene,
    Tetrominoes,
    foreground_ari,
    palette,
)

COUNT = 64
FAMILY = Objects(side=32, most_objects=4)
CROWD = Objects(side=48, most_objects=12, colours=5, shapes=5, held_out=0.2)
BOUND = {"conjunctive": 3, "published": 2}  # kinds of others in search for a colour and a shape


@functools.partial(jax.jit, static_argnums=(0, 1), static_argnames=("unseen", "kind"))
def _draw(family, task, trained, key, sizes, *, unseen, kind):
    return family.draw(task, trained, key, COUNT, sizes=sizes, unseen=unseen, kind=kind)


def drawn(family, task, seed=0, *, sizes=(2,), unseen=False, kind=None):
    found = _draw(
        family, task, jnp.asarray(family.trained(seed)), jax.random.key(seed), jnp.asarray(sizes),
        unseen=unseen, kind=kind,
    )  # fmt: skip
    return jax.tree.map(np.asarray, found)


def things(scene, item):
    there = scene.there[item]
    pairs = zip(scene.colour[item][there].tolist(), scene.shape[item][there].tolist(), strict=True)
    return sorted(pairs)


def asked(family, items, item):
    colour, shape = np.split(items.question[item], [family.colours])
    assert colour.sum() == shape.sum() == 1
    return int(colour.argmax()), int(shape.argmax())


@given(st.integers(4, 8), st.integers(0, 2), st.integers(0, 2**31))
def test_every_colour_and_every_shape_misses_equally_many_partners(n, classes, seed):
    trained = Objects(colours=n, shapes=n, held_out=classes / n).trained(seed)
    assert trained.shape == (n, n)
    assert set(trained.sum(axis=0)) == set(trained.sum(axis=1)) == {n - classes}


def test_the_content_seed_decides_which_pairs_are_held_out():
    family = Objects()
    assert np.array_equal(family.trained(3), family.trained(3))
    assert len({family.trained(seed).tobytes() for seed in range(8)}) > 3


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"side": 32, "most_objects": 17}, "too crowded for side=32: .* use side=40, or most"),
        ({"side": 24, "most_objects": 10}, "most_objects=9 or less"),
        ({"colours": 9}, "colours=9: expected a whole number from 2 to 8"),
        ({"shapes": 1}, "shapes=1"),
        ({"held_out": 1.0}, "expected a share"),
        ({"held_out": 0.5}, "no two objects that could swap"),
        ({"held_out": 0.05}, "held out by whole classes of 4; use held_out=0 or 0.25"),
        ({"side": True}, "side=True"),
    ],
)
def test_scenes_that_cannot_be_are_refused(wrong, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        Objects(**wrong).check()


@pytest.mark.parametrize("wrong", [{"side": 6}, {"colours": 0}, {"colours": 9}])
def test_tetrominoes_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidRequest, match="expected a whole number"):
        Tetrominoes(**wrong).check()


def test_a_picture_shows_every_object_apart_from_the_others_and_nothing_else():
    items = drawn(FAMILY, "report", sizes=(1, 2, 4))
    sizes = items.scene.there.sum(axis=1)
    assert set(sizes) == {1, 2, 4}  # one compiled program drew them all
    colours = palette(FAMILY.colours)
    for item, image in enumerate(items.images):
        # Anti-aliased edges of glyphs in touching cells may meet; what is half covered does not.
        covered = image.max(axis=-1, keepdims=True)
        labels, count = ndimage.label(covered[..., 0] > 0.5)
        assert count == sizes[item]
        shown = []
        for number in range(1, count + 1):
            hues = np.unique((image / np.maximum(covered, 0.5))[labels == number], axis=0)
            assert len(hues) == 1  # one colour, however much of a pixel is covered
            shown.append(colours.tolist().index(hues[0].tolist()))
        assert sorted(shown) == sorted(c for c, _ in things(items.scene, item))


def test_what_is_covered_does_not_depend_on_colours_nor_hues_on_shapes():
    key = jax.random.key(5)
    there, shape = jnp.ones((8, 4), bool), jnp.tile(jnp.arange(4), (8, 1))
    colours = jnp.stack([jnp.roll(jnp.arange(4), n) for n in range(8)])
    images = np.asarray(FAMILY.render(Scene(colours, shape, there), key))
    plain = np.asarray(FAMILY.render(Scene(jnp.zeros_like(colours), shape, there), key))
    np.testing.assert_array_equal(images.max(axis=-1), plain.max(axis=-1))
    covered = images.max(axis=-1)
    hues = images[covered > 0.1] / covered[covered > 0.1][:, None]
    assert {tuple(h) for h in hues} == {tuple(c) for c in palette(4)}
    # Anti-aliased: many pixels are covered in part.
    assert 0.1 < np.mean((covered > 0) & (covered < 1)) / np.mean(covered > 0) < 0.9


def test_objects_stand_now_here_now_there():
    places = drawn(FAMILY, "report", sizes=(1,)).images.max(axis=-1)
    centres = np.array([ndimage.center_of_mass(image) for image in places])
    assert {tuple(cell) for cell in (centres > 15.5).tolist()} == {
        (a, b) for a in (False, True) for b in (False, True)
    }
    inside = centres % 16 - 7.5
    assert inside.min() < -1.4 and inside.max() > 1.4 and np.abs(inside).max() < 3.5


@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize(("family", "sizes"), [(FAMILY, (2, 4)), (CROWD, (2, 7))])
def test_swapped_scenes_have_the_same_features_and_opposite_answers(family, sizes, unseen):
    items, trained = drawn(family, "swap", sizes=sizes, unseen=unseen), family.trained(0)
    half = COUNT // 2
    for one in range(half):
        other = one + half
        pair = things(items.scene, one), things(items.scene, other)
        assert pair[0] != pair[1]
        for feature in (0, 1):
            assert sorted(p[feature] for p in pair[0]) == sorted(p[feature] for p in pair[1])
        assert len(pair[0]) in sizes
        assert asked(family, items, one) == asked(family, items, other)
        assert items.answer[one] and not items.answer[other]
        assert asked(family, items, one) in pair[0] and asked(family, items, one) not in pair[1]
        assert trained[asked(family, items, one)] != unseen


@pytest.mark.slow
def test_a_report_is_of_different_pairs_and_an_unseen_one_has_one_held_out():
    for unseen in (False, True):
        items = drawn(CROWD, "report", sizes=(1, 3, 6), unseen=unseen)
        for item in range(COUNT):
            shown = things(items.scene, item)
            assert len(set(shown)) == len(shown)
            assert sum(not CROWD.trained(0)[pair] for pair in shown) == unseen


@pytest.mark.parametrize("kind", range(len(SEARCHES)))
def test_others_share_with_the_target_what_their_kind_of_search_says(kind):
    items = drawn(CROWD, "search", sizes=(5, 12), kind=kind)
    assert items.answer.mean() == 0.5
    others_seen = set()
    for item in range(COUNT):
        shown, target = things(items.scene, item), asked(CROWD, items, item)
        assert len(shown) in (5, 12)
        assert shown.count(target) == items.answer[item]
        others = {pair for pair in shown if pair != target}
        shared = {(c == target[0], s == target[1]) for c, s in others}
        others_seen |= shared
        if SEARCHES[kind] in BOUND:
            assert len(others) == len(shared)  # one other colour and one other shape
        else:
            assert shared == {(False, True)}
            assert len(others) == 1 or SEARCHES[kind] == "palette"
    assert len(others_seen) == BOUND.get(SEARCHES[kind], 1)
    if SEARCHES[kind] == "published":  # a colour or a shape, and never neither
        assert others_seen == {(True, False), (False, True)}


def best_from_counts(family, items):
    """The share right of the best answers that follow from the question and the numbers of objects
    of each colour and of each shape: in every group of items alike in these, the commoner one."""
    groups = {}
    for item, answer in enumerate(items.answer):
        real = items.scene.there[item]
        counts = (np.bincount(part[item][real], minlength=most).tobytes() for part, most in (
            (items.scene.colour, family.colours), (items.scene.shape, family.shapes),
        ))  # fmt: skip
        groups.setdefault((*counts, items.question[item].tobytes()), []).append(bool(answer))
    return sum(max(sum(g), len(g) - sum(g)) for g in groups.values()) / len(items.answer)


@settings(max_examples=15)
@given(st.sampled_from([2, 5, 12]), st.booleans(), st.integers(0, 2**31))
def test_no_numbers_of_single_features_tell_in_conjunctive_search(objects, unseen, seed):
    items = drawn(CROWD, "search", seed, sizes=(objects,), unseen=unseen, kind=0)
    assert best_from_counts(CROWD, items) == 0.5
    by_colour = drawn(CROWD, "search", seed, sizes=(objects,), unseen=unseen, kind=1)
    assert best_from_counts(CROWD, by_colour) == 1


@settings(max_examples=15)
@given(st.sampled_from([2, 5, 12]), st.booleans(), st.integers(0, 2**31))
def test_in_published_search_numbers_of_single_features_tell(objects, unseen, seed):
    kind = SEARCHES.index("published")
    items = drawn(CROWD, "search", seed, sizes=(objects,), unseen=unseen, kind=kind)
    assert best_from_counts(CROWD, items) == 1
    for item, answer in enumerate(items.answer):
        colour, shape = asked(CROWD, items, item)
        shown = things(items.scene, item)
        counts = sum(c == colour for c, _ in shown), sum(s == shape for _, s in shown)
        assert sum(counts) == objects + answer


@pytest.mark.parametrize("objects", [2, 5, 12])
def test_who_counts_shapes_and_knows_which_colours_there_are_loses_among_more(objects):
    """What a bag of features can do in published search, by its two laws: k others of the shape
    are Bin(n - 1, 1/2) beside a target and Bin(n, 1/2) without one."""
    chances = {}
    for answer, others in ((True, objects - 1), (False, objects)):
        for k in range(others + 1):
            seen = (k + answer, answer or k < others, k > 0)
            chances.setdefault(seen, []).append(binom.pmf(k, others, 0.5) / 2)
    expected = sum(map(max, chances.values()))
    groups = {}
    for seed in range(40):
        items = drawn(CROWD, "search", seed, sizes=(objects,), kind=SEARCHES.index("published"))
        for item, answer in enumerate(items.answer.tolist()):
            colour, shape = asked(CROWD, items, item)
            shown = things(items.scene, item)
            seen = (sum(s == shape for _, s in shown), any(c == colour for c, _ in shown),
                    any(c != colour for c, _ in shown))  # fmt: skip
            groups.setdefault(seen, []).append(answer)
    best = sum(max(sum(g), len(g) - sum(g)) for g in groups.values()) / (40 * COUNT)
    assert best == pytest.approx(expected, abs=0.035)  # 2,560 items: three and a half deviations
    assert expected == pytest.approx({2: 1, 5: 41 / 64, 12: 0.557}[objects], abs=1e-3)


def test_a_mixed_batch_of_search_asks_the_same_with_the_target_and_without():
    items = drawn(CROWD, "search", sizes=(2, 7))
    half, kinds = COUNT // 2, set()
    for one in range(half):
        pair = things(items.scene, one), things(items.scene, one + half)
        target = asked(CROWD, items, one)
        assert target == asked(CROWD, items, one + half)
        assert len(pair[0]) == len(pair[1]) and len(pair[0]) in (2, 7)
        assert pair[0].count(target) == 1 and pair[1].count(target) == 0
        kinds.add(any(c == target[0] for c, _ in pair[1]))
    assert kinds == {False, True}  # by colour, and for a conjunction


@settings(max_examples=15)
@given(
    st.sampled_from([FAMILY, CROWD]), st.sampled_from(["swap", "report", "search"]),
    st.integers(0, 2**31),
)  # fmt: skip
def test_training_never_shows_or_names_a_held_out_pair(family, task, seed):
    items, trained = drawn(family, task, seed, sizes=(2, 4)), family.trained(seed)
    for item in range(COUNT):
        assert all(trained[pair] for pair in things(items.scene, item))
        assert task == "report" or trained[asked(family, items, item)]


@pytest.mark.slow
def test_all_trained_pairs_are_shown_and_every_held_out_one_is_asked_for():
    trained = FAMILY.trained(0)
    shown, wanted = np.zeros_like(trained), np.zeros_like(trained)
    items = drawn(FAMILY, "swap")
    beyond = drawn(FAMILY, "swap", unseen=True)
    for item in range(COUNT):
        for pair in things(items.scene, item):
            shown[pair] = True
        wanted[asked(FAMILY, beyond, item)] = True
    np.testing.assert_array_equal(shown, trained)
    np.testing.assert_array_equal(wanted, ~trained)


@pytest.mark.parametrize("side", [35, 24])
def test_tetrominoes_are_three_pieces_of_four_blocks_that_never_touch(side):
    pictures = jax.jit(Tetrominoes(side=side).draw, static_argnums=1)(jax.random.key(1), 48)
    images, objects = (np.asarray(part) for part in pictures)
    block, forms = side // 7, set()
    for image, marks in zip(images, objects, strict=True):
        assert set(np.unique(marks)) == {0, 1, 2, 3}
        _, count = ndimage.label(marks > 0)  # sharing an edge would join two
        assert count == 3
        for number in (1, 2, 3):
            mask = marks == number
            assert mask.sum() == 4 * block**2 and ndimage.label(mask)[1] == 1
            assert len(np.unique(image[mask], axis=0)) == 1
            rows, columns = np.where(mask.any(axis=1))[0], np.where(mask.any(axis=0))[0]
            cut = mask[rows[0] : rows[-1] + 1 : block, columns[0] : columns[-1] + 1 : block]
            assert cut.sum() == 4
            forms.add((cut.shape, cut.tobytes()))
        assert not image[marks == 0].any()
    # 48 x 3 draws of 19 forms: each is missing with a chance of 4 in 10,000.
    assert 17 <= len(forms) <= 19


@settings(max_examples=50)
@given(st.integers(0, 2**31), st.integers(1, 6), st.floats(0, 1))
def test_the_foreground_ari_is_that_of_scikit_learn_on_the_pixels_of_objects(seed, parts, noise):
    rng = np.random.default_rng(seed)
    objects = rng.integers(0, 4, (6, 6))
    found = np.where(rng.random((6, 6)) < noise, rng.integers(0, parts, (6, 6)), objects % parts)
    front = objects > 0
    expected = adjusted_rand_score(objects[front], found[front])
    assert float(foreground_ari(objects, found, parts)) == pytest.approx(expected, abs=1e-5)


def test_the_foreground_ari_counts_every_object_it_is_told_of_and_refuses_others():
    rng = np.random.default_rng(0)
    objects = rng.integers(0, 6, (2, 20, 20))
    found = np.where(objects > 3, rng.integers(0, 6, objects.shape), objects)
    expected = [adjusted_rand_score(o[o > 0], f[o > 0])
                for o, f in zip(objects, found, strict=True)]  # fmt: skip
    assert foreground_ari(objects, found, 6, pieces=5) == pytest.approx(expected, abs=1e-5)
    with pytest.raises(InvalidRequest, match=r"objects holds 5, .*: use pieces=5 or more"):
        foreground_ari(objects, found, 6)
    with pytest.raises(InvalidRequest, match=r"found holds 5, .*: use parts=6 or more"):
        foreground_ari(objects, found, 5, pieces=5)
    with pytest.raises(InvalidRequest, match="objects holds -1: expected numbers from 0"):
        foreground_ari(objects - 1, found, 6, pieces=5)


def test_numbers_that_a_compiled_program_cannot_refuse_give_no_index():
    objects = np.stack([np.arange(16).reshape(4, 4) % 4, np.arange(16).reshape(4, 4) % 5])
    compiled = jax.jit(foreground_ari, static_argnums=2)
    np.testing.assert_array_equal(compiled(objects, objects, 5), [1, np.nan])
    np.testing.assert_array_equal(compiled(objects[:1], objects[:1], 2), [np.nan])
