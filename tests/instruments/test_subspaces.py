"""Erasure against the constraint it promises, a quadratic program and random alternatives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression

from recombine.errors import InvalidRequest
from recombine.instruments.subspaces import (
    concept_erasure,
    orthogonal_erasure,
    random_subspace,
)


def concept_data(rows: int = 120, features: int = 8, columns: int = 2, seed: int = 0):
    """Correlated features with a mean, and a concept they partly know."""
    rng = np.random.default_rng(seed)
    X = 3 + rng.normal(size=(rows, features)) @ rng.normal(size=(features, features))
    Y = X @ rng.normal(size=(features, columns)) + rng.normal(size=(rows, columns))
    return X, Y


def covariance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=0)).T @ (y - y.mean(axis=0)) / len(x)


def change(before: np.ndarray, after: np.ndarray) -> float:
    return float(np.mean(np.sum((after - before) ** 2, axis=1)))


@given(st.integers(0, 1000), st.integers(2, 12), st.integers(1, 4), st.integers(5, 60))
@settings(max_examples=30, deadline=None)
def test_after_erasure_features_and_concept_have_no_covariance(seed, features, columns, rows):
    X, Y = concept_data(rows, features, columns, seed)
    erase = concept_erasure(X, Y)
    assert np.abs(covariance(erase(X), Y)).max() < 1e-8 * np.abs(X).max() * np.abs(Y).max()
    assert erase.rank <= min(columns, features)


def test_after_erasure_no_linear_regression_knows_the_concept():
    X, Y = concept_data()
    assert LinearRegression().fit(X, Y).score(X, Y) > 0.5
    erased = concept_erasure(X, Y)(X)
    assert abs(LinearRegression().fit(erased, Y).score(erased, Y)) < 1e-8


def test_the_change_is_the_least_a_quadratic_program_finds():
    X, Y = concept_data(features=5)
    within, across = covariance(X, X), covariance(X, Y)
    # Each row m of the map minimises (e - m) S (e - m) subject to m S_xy = 0: solve its KKT system.
    kkt = np.block([[within, across], [across.T, np.zeros((2, 2))]])
    maps = np.linalg.solve(kkt, np.vstack([within, np.zeros((2, 5))]))[:5].T
    expected = X.mean(axis=0) + (X - X.mean(axis=0)) @ maps.T
    np.testing.assert_allclose(concept_erasure(X, Y)(X), expected, atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_projection_that_erases_the_concept_changes_less(seed):
    X, Y = concept_data(seed=seed)
    centred, across = X - X.mean(axis=0), covariance(X, Y)
    least = change(X, concept_erasure(X, Y)(X))
    probe = np.random.default_rng(seed).normal(size=across.shape)
    oblique = across @ np.linalg.solve(probe.T @ across, probe.T)
    other = X - centred @ oblique.T
    assert np.abs(covariance(other, Y)).max() < 1e-8
    assert least <= change(X, other)
    assert least <= change(X, orthogonal_erasure(X, Y, along="covariance")(X))


@pytest.mark.parametrize(
    "make",
    [
        concept_erasure,
        orthogonal_erasure,
        lambda X, Y: random_subspace(np.random.default_rng(0), concept_erasure(X, Y)),
    ],
)
def test_erasing_twice_is_erasing_once(make):
    X, Y = concept_data()
    erase = make(X, Y)
    np.testing.assert_allclose(erase(erase(X)), erase(X), atol=1e-9)
    np.testing.assert_allclose(erase(X).mean(axis=0), X.mean(axis=0), atol=1e-9)
    lost = np.linalg.matrix_rank(X - X.mean(axis=0)) - np.linalg.matrix_rank(
        erase(X) - X.mean(axis=0), tol=1e-8
    )
    assert lost == erase.rank == 2


def test_singular_features_are_erased_too():
    X, Y = concept_data(features=5)
    singular = np.column_stack([X, X[:, :2] @ [1.0, -2.0], X[:, 0], np.full(len(X), 0.1)])
    erase = concept_erasure(singular, Y)
    assert np.abs(covariance(erase(singular), Y)).max() < 1e-8
    np.testing.assert_allclose(erase(singular)[:, :5], concept_erasure(X, Y)(X), atol=1e-9)
    np.testing.assert_allclose(erase(singular)[:, 0], erase(singular)[:, 6], atol=1e-9)
    assert erase.axes.shape == (8, 5)


def test_more_features_than_rows_are_erased_too():
    X, Y = concept_data(rows=20, features=50)
    assert np.abs(covariance(concept_erasure(X, Y)(X), Y)).max() < 1e-7


def test_single_precision_noise_is_not_taken_for_a_direction():
    X, Y = concept_data(features=5)
    noisy = np.column_stack([X, X.sum(axis=1).astype(np.float32)])
    erase = concept_erasure(noisy, Y)
    assert erase.axes.shape[1] == 5
    assert np.abs(erase.V).max() < 1e3


def test_the_rank_counts_what_the_concept_adds():
    X, Y = concept_data()
    classes = np.eye(4)[np.arange(len(X)) % 4]
    assert concept_erasure(X, classes).rank == 3
    assert concept_erasure(X, np.column_stack([Y, Y @ [1.0, 1.0], 1e6 * Y[:, 0]])).rank == 2
    nothing = concept_erasure(X, np.full(len(X), 0.1))
    assert nothing.rank == 0
    np.testing.assert_array_equal(nothing(X), X)
    assert random_subspace(np.random.default_rng(0), nothing).rank == 0


def test_a_concept_unrelated_in_the_features_metric_is_untouched():
    rng = np.random.default_rng(0)
    factors, _ = np.linalg.qr(np.column_stack([np.ones(80), rng.normal(size=(80, 4))]))
    factors = factors[:, 1:]  # uncorrelated in this very sample
    X = factors @ rng.normal(size=(4, 7)) + 2
    erased = concept_erasure(X, factors[:, 0])(X)
    assert abs(LinearRegression().fit(erased, factors[:, 0]).score(erased, factors[:, 0])) < 1e-8
    for other in range(1, 4):
        before, after = (LinearRegression().fit(x, factors[:, other]) for x in (X, erased))
        np.testing.assert_allclose(before.predict(X), before.predict(erased), atol=1e-8)
        assert after.score(erased, factors[:, other]) == pytest.approx(1.0)


def test_a_random_subspace_removes_as_much_whitened_variance():
    X, Y = concept_data()
    like = concept_erasure(X, Y)
    whitened = (like.axes / like.scales) @ like.axes.T
    for seed in range(5):
        control = random_subspace(np.random.default_rng(seed), like)
        assert control.rank == like.rank
        removed = covariance(control(X) @ whitened, control(X) @ whitened)
        assert np.trace(removed) == pytest.approx(X.shape[1] - like.rank)
        assert LinearRegression().fit(control(X), Y).score(control(X), Y) > 0.1


def test_random_subspaces_follow_their_generator():
    like = concept_erasure(*concept_data())
    a, b, c = (random_subspace(np.random.default_rng(seed), like) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a.U, b.U)
    assert not np.allclose(a.U, c.U)


def test_orthogonal_erasure_removes_the_regression_weights():
    X, Y = concept_data()
    erase = orthogonal_erasure(X, Y)
    np.testing.assert_allclose(erase.U.T @ erase.U, np.eye(2), atol=1e-12)
    probe = LinearRegression().fit(X, Y)
    assert np.ptp(probe.predict(erase(X)), axis=0).max() < 1e-8
    blind = orthogonal_erasure(X, Y, along="covariance")
    assert np.abs(covariance(blind(X), Y)).max() < 1e-8


def test_the_low_rank_form_is_what_is_applied():
    X, Y = concept_data()
    erase = concept_erasure(X, Y)
    np.testing.assert_array_equal(erase(X), X - ((X - erase.mean) @ erase.V.T) @ erase.U.T)
    np.testing.assert_allclose(erase.V @ erase.U, np.eye(erase.rank), atol=1e-12)


def test_requests_that_make_no_sense_are_refused():
    X, Y = concept_data()
    with pytest.raises(InvalidRequest):
        concept_erasure(X[:-1], Y)
    with pytest.raises(InvalidRequest):
        concept_erasure(X, Y, rank_tolerance=0)
    with pytest.raises(InvalidRequest, match="covariance"):
        orthogonal_erasure(X, Y, along="covarance")  # pyright: ignore[reportArgumentType]
