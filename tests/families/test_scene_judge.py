"""The judge reads clean, noisy and blurred scenes, of either renderer, and no broken ones."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import second_renderer
from scene_faults import FAULTS, fault, halve, spoil

from recombine.errors import InvalidRequest
from recombine.families.scene_judge import judge, read, right
from recombine.families.scenes import Scenes, request

pytestmark = pytest.mark.usefixtures("strict_types")

COUNT = 1_000
NOISE, BLUR = 0.15, 0.4  # standard deviations: of a pixel from -1 to 1, and in pixels
FAMILIES = [
    Scenes(shows=shows, size=size, cells=size // 8)
    for shows in ("sets", "slots", "pairs")
    for size in (16, 32)
]
every = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f"{f.shows}-{f.size}")
both = pytest.mark.parametrize("renderer", ["own", "second"])


@functools.cache
def content(family: Scenes):
    return family.content(jax.random.key(3))


@functools.cache
def wanted(family: Scenes) -> tuple[np.ndarray, np.ndarray]:
    """Combinations and a layout of each."""
    ranks = np.random.default_rng(0).integers(0, family.space.size, COUNT)
    chosen = family.space.indicator(ranks)
    z = jnp.asarray(chosen).astype(jnp.float32)
    return chosen, np.asarray(family.layout(content(family), z, jax.random.key(1)))


@functools.cache
def painter(family: Scenes, renderer: str):
    if renderer == "second":
        glyphs = second_renderer.vocabulary(
            family.cell, family.shapes, family.colours, family.sizes
        )
        return lambda layout: second_renderer.paint(layout, glyphs, family.cells)
    shape = (-1, family.size, family.size, 3)
    return lambda layout: np.array(family.render(content(family), layout)).reshape(shape)


@functools.cache
def judging(family: Scenes):
    return jax.jit(
        lambda given, x, chosen: (v := judge(family, given, x), right(family, v, chosen))
    )


def accepted(family: Scenes, images: np.ndarray) -> float:
    _, (whole, _) = judging(family)(content(family), images, wanted(family)[0])
    return float(np.mean(np.asarray(whole)))


@every
@both
def test_intact_scenes_are_read_with_noise_and_blur(family, renderer):
    painted = painter(family, renderer)(wanted(family)[1])
    assert accepted(family, spoil(painted, 0, 0, np.random.default_rng(0))) == 1
    assert accepted(family, spoil(painted, NOISE, BLUR, np.random.default_rng(0))) >= 0.995


@every
@both
@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_scene_is_not_taken_for_what_was_asked(family, renderer, name):
    rng = np.random.default_rng(0)
    broken = fault(name, family, wanted(family)[1], painter(family, renderer), rng)
    assert accepted(family, spoil(broken, 0, 0, rng)) <= 0.01
    assert accepted(family, spoil(broken, NOISE, BLUR, rng)) <= 0.01


@pytest.mark.parametrize(("size", "sizes"), [(16, 2), (32, 3)])
def test_no_glyph_at_all_is_read_two_pixels_off_or_by_half(size, sizes):
    family = Scenes(shows="slots", size=size, cells=2, sizes=sizes)
    bank = content(family)["templates"]
    layout = np.zeros((len(bank) - 1, 4), np.int32)
    layout[:, 0] = np.arange(1, len(bank))
    images = painter(family, "own")(layout)
    reading = jax.jit(lambda images: read(family, content(family), images.reshape(len(layout), -1)))
    np.testing.assert_array_equal(reading(images), layout)
    for move in ((2, 0), (0, 2), (2, 1), (family.cell // 2, 0)):
        found = np.asarray(reading(np.roll(images, move, axis=(1, 2))))
        assert not np.any(np.all(found == layout, axis=1))
    rng = np.random.default_rng(0)
    for image in images:
        halve(image[: family.cell, : family.cell], rng)
    assert not np.any(np.all(np.asarray(reading(images)) == layout, axis=1))


@every
def test_a_layout_is_read_back_cell_by_cell(family):
    chosen, layout = wanted(family)
    verdicts = judge(family, content(family), family.render(content(family), layout))
    np.testing.assert_array_equal(verdicts.layout, layout)
    np.testing.assert_array_equal(verdicts.present, chosen)
    assert np.asarray(verdicts.scene).all()
    whole, concepts = right(family, verdicts, np.roll(chosen, 1, axis=0))
    same = np.all(chosen == np.roll(chosen, 1, axis=0), axis=1)
    np.testing.assert_array_equal(whole, same)
    np.testing.assert_array_equal(concepts, chosen == np.roll(chosen, 1, axis=0))


def seen(family: Scenes, *layouts: list[int]):
    return judge(family, content(family), family.render(content(family), jnp.asarray(layouts)))


def test_a_set_is_a_scene_only_with_one_to_active_different_glyphs_of_its_own():
    family = FAMILIES[0]
    glyphs = np.asarray(content(family)["glyphs"])
    a, b, c, d = glyphs[:4].tolist()
    stranger = next(n for n in range(1, 65) if n not in glyphs)
    verdicts = seen(
        family, [a, b, c, 0], [a, 0, 0, 0], [0, 0, 0, 0], [a, b, c, d], [a, a, 0, 0],
        [a, stranger, 0, 0],
    )  # fmt: skip
    assert np.asarray(verdicts.scene).tolist() == [True, True, False, False, False, False]
    assert np.asarray(verdicts.present)[4, 0] == 2
    assert np.asarray(verdicts.layout)[5].tolist() == [a, stranger, 0, 0]


def test_a_half_that_cannot_be_read_makes_its_own_concepts_wrong_and_no_others():
    family = FAMILIES[4]
    chosen = request(
        family, ["left shape disc", "left colour red", "right shape ring", "right colour blue"]
    )
    disc, ring = 1, 1 + 4 * 8 + 2
    images = np.array(
        family.render(content(family), jnp.asarray([[disc, ring, 0, 0], [disc, ring, disc, 0]]))
    )
    images = images.reshape(2, 16, 16, 3)
    images[0, :4, 8:] = -1  # the upper half of the ring
    verdicts = judge(family, content(family), jnp.asarray(images.reshape(2, -1)))
    assert not np.asarray(verdicts.scene).any()
    whole, concepts = right(family, verdicts, np.stack([chosen, chosen]))
    assert not np.asarray(whole).any()
    left = np.arange(family.modules) < 16
    np.testing.assert_array_equal(concepts[0], left)
    np.testing.assert_array_equal(concepts[1], ~left)


def test_a_lone_object_that_cannot_be_read_still_stands_in_its_quadrant():
    family = FAMILIES[2]
    chosen = request(family, ["shape disc", "colour red", "size large", "quadrant lower left"])
    image = np.array(family.render(content(family), jnp.asarray([[0, 0, 1 + 8 * 8, 0]])))
    image.reshape(16, 16, 3)[12:] = -1
    _, concepts = right(family, judge(family, content(family), jnp.asarray(image)), chosen[None])
    assert np.asarray(concepts)[0].tolist() == [False] * 18 + [True] * 4


def test_colours_between_two_and_grey_fog_are_unreadable():
    family = FAMILIES[0]
    images = np.full((3, 16, 16, 3), -1.0, np.float32)
    images[0, 1:7, 1:7] = (1, -0.5, -1)  # a square between red and orange
    images[1] = -0.5
    images[2, :8, :8] = np.random.default_rng(0).uniform(-1, 1, (8, 8, 3))
    layout = np.asarray(judge(family, content(family), jnp.asarray(images.reshape(3, -1))).layout)
    assert layout[0].tolist() == [-1, 0, 0, 0]
    assert np.all(layout[1] == -1) and layout[2].tolist() == [-1, 0, 0, 0]


def test_what_lies_beyond_black_and_white_counts_as_black_and_white():
    family = FAMILIES[5]
    chosen, layout = wanted(family)
    images = 1.5 * family.render(content(family), layout)
    whole, _ = right(family, judge(family, content(family), images), chosen)
    assert np.mean(np.asarray(whole)) == 1


def test_images_that_are_none_are_refused_or_inside_a_program_unreadable():
    family = FAMILIES[0]
    good = np.full((3, 768), -1, np.float32)
    bad = good.copy()
    bad[1, 5] = np.nan
    bad[2, 5] = np.inf
    for images, words in (
        (good[0], "shape (768,): expected (images, 768)"),
        (good[:, :-3], "16 x 16 x 3"),
        (good.astype(np.uint8), "images / 127.5 - 1"),
        (bad, "image 1 holds numbers that are not finite (2 of 3"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            judge(family, content(family), images)
        assert words in str(refused.value)
    with pytest.raises(InvalidRequest, match=r"\(2, 16\).*need \(3, 16\)"):
        right(family, judge(family, content(family), good), np.zeros((2, 16), bool))
    verdicts = jax.jit(lambda x: judge(family, content(family), x))(bad)
    assert np.asarray(verdicts.layout)[:, 0].tolist() == [0, -1, -1]
