"""What the probe says, against planted features and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.lab.statistics import mean_interval, pearson
from recombine.pictures import Things, family_named
from recombine.pictures.probe import by_combination, read_off, shuffled_labels, split_half
from recombine.pictures.reading import clustered_by_concept

FAMILIES = ["animals-8", "animal-colour"]


def planted(name, noise, rng, images=3):
    """Features that carry the concepts linearly, and something large that carries nothing."""
    one = family_named(name)
    ranks = np.repeat(rng.permutation(one.ranks())[:50], images)
    labels = one.space.indicator(ranks).astype(np.float64)
    mix = rng.standard_normal((labels.shape[1], 60))
    features = labels @ mix + noise * rng.standard_normal((len(ranks), 60)) + 1000.0
    return one.space, ranks, labels, np.column_stack([features, np.full(len(ranks), 7.0)])


def halves(name, noise, seed=0):
    rng = np.random.default_rng(seed)
    space, ranks, labels, features = planted(name, noise, rng)
    fit = np.isin(ranks, np.unique(ranks)[::2])
    wrong = shuffled_labels(labels[fit], ranks[fit], rng)
    targets = {"true": labels[fit], "shuffled": wrong}
    return read_off(features[fit], targets, ranks[fit], features[~fit], labels[~fit], space)


@pytest.mark.parametrize("name", FAMILIES)
def test_planted_concepts_are_read_off_combinations_the_probe_never_saw(name):
    found = halves(name, noise=0.01)["true"]
    assert found.skill.mean() > 0.95
    assert found.named.tolist() == [1.0] * len(found.named)


@pytest.mark.parametrize("name", FAMILIES)
def test_shuffled_labels_are_not_read_off(name):
    found = halves(name, noise=0.01)
    assert found["shuffled"].skill.mean() < 0.1 < found["true"].skill.mean()


@pytest.mark.parametrize("name", FAMILIES)
def test_more_noise_is_less_decodable(name):
    means = [halves(name, noise)["true"].skill.mean() for noise in (0.1, 2.0, 20.0)]
    assert means[0] > means[1] > means[2]


def test_a_probe_that_knows_only_how_common_concepts_are_has_no_skill():
    one = family_named("animals-8")
    ranks = one.ranks()
    labels = one.space.indicator(ranks).astype(np.float64)
    nothing = np.zeros((len(ranks), 3))
    found = read_off(nothing, {"true": labels}, ranks, nothing, labels, one.space)["true"]
    assert found.skill == pytest.approx(np.zeros(len(ranks)), abs=1e-9)


def test_one_wild_image_cannot_outweigh_all_others():
    one = family_named("animals-8")
    rng = np.random.default_rng(0)
    _, ranks, labels, features = planted("animals-8", 0.1, rng)
    wild = np.concatenate([features[:5], 1e6 * rng.standard_normal((1, features.shape[1]))])
    found = read_off(features, {"true": labels}, ranks, wild, labels[:6], one.space)["true"]
    # At the worst all guesses are wrong: 8 squared errors against 3/8 of 5/8, eight times.
    assert found.skill[5] >= 1 - 8 / (8 * (3 / 8) * (5 / 8)) - 0.5
    assert found.skill[:5].min() > 0.9


def test_shuffled_labels_keep_the_images_of_a_combination_together():
    rng = np.random.default_rng(0)
    _, ranks, labels, _ = planted("animals-8", 1.0, rng)
    wrong = shuffled_labels(labels, ranks, rng)
    for rank in np.unique(ranks):
        assert len(np.unique(wrong[ranks == rank], axis=0)) == 1
    assert not np.array_equal(wrong, labels)
    assert sorted(map(tuple, wrong)) == sorted(map(tuple, labels))


def test_rows_are_averaged_by_combination():
    assert by_combination(np.array([1.0, 3.0, 5.0]), np.array([9, 2, 9])).tolist() == [3.0, 3.0]


def test_reliability_is_that_of_spearman_and_brown():
    # Success rates p ~ U(0, 1): between-variance 1/12, an image's variance around p averages 1/6,
    # so the mean of n images repeats with reliability (1/12) / (1/12 + 1/(6 n)) = n / (n + 2).
    rng = np.random.default_rng(0)
    rates = rng.uniform(size=(20_000, 1))
    for images in (2, 8):
        drawn = rng.uniform(size=(20_000, images)) < rates
        assert split_half(drawn, rng, splits=20) == pytest.approx(images / (images + 2), abs=0.02)


def test_success_that_never_varies_has_no_reliability():
    assert np.isnan(split_half(np.ones((5, 4), bool), np.random.default_rng(0)))
    assert np.isnan(split_half(np.array([[True], [False]]), np.random.default_rng(0)))


@given(st.integers(0, 100))
def test_the_estimate_does_not_depend_on_the_clusters(seed):
    rng = np.random.default_rng(seed)
    one = family_named("solids-8")
    ranks = rng.permutation(one.ranks())[:20]
    x, y = rng.standard_normal((2, 20))
    found = clustered_by_concept(
        lambda rows: pearson(x[rows], y[rows]).estimate, one.space, ranks, fisher=True
    )
    assert found.estimate == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert -1 <= found.low <= found.estimate <= found.high <= 1


@pytest.mark.parametrize("name", ["animal-colour", "animals-20"])
@pytest.mark.parametrize("effect", [0.0, 3.0])
def test_the_interval_covers_also_where_only_effects_of_concepts_vary(name, effect):
    one = family_named(name)
    rng = np.random.default_rng(0)
    covered, naive = 0, 0
    for _ in range(60):
        ranks = rng.permutation(one.ranks())[:40]
        uses = one.space.indicator(ranks).astype(np.float64)
        x, y = (effect * uses @ rng.standard_normal(20) + rng.standard_normal(40) for _ in range(2))
        found = clustered_by_concept(
            lambda rows, x=x, y=y: pearson(x[rows], y[rows]).estimate, one.space, ranks, fisher=True
        )
        covered += found.contains(0.0)
        naive += pearson(x, y).contains(0.0)
    assert covered >= 54  # nine in ten, of 19 in 20 promised
    assert effect == 0 or naive < covered


def test_the_interval_of_one_concept_at_a_time_is_the_jackknife_of_the_mean():
    one = Things("alone", tuple("abcdef"), active=1)
    values = np.array([1.0, 4.0, 2.0, 8.0, 5.0, 7.0])
    found = clustered_by_concept(lambda rows: values[rows].mean(), one.space, one.ranks())
    known = mean_interval(values)
    assert [found.estimate, found.low, found.high] == pytest.approx(
        [known.estimate, known.low, known.high]
    )
