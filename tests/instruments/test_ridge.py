"""The ridge probe against scikit-learn, plain loops and planted signals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import cg as conjugate_gradient
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, PredefinedSplit

from recombine.errors import InvalidRequest
from recombine.instruments.ridge import cross_fit, fit, fit_on, group_folds, published_probe


def probe_data(rows: int, features: int, targets: int = 3, noise: float = 1.0, seed: int = 0):
    """Features of very different scales and a large mean, targets linear in them, pairs of rows."""
    rng = np.random.default_rng(seed)
    scales = np.logspace(-1, 1, features)
    X = 5 + rng.normal(size=(rows, features)) * scales
    weights = rng.normal(size=(features, targets)) / scales[:, None] / np.sqrt(features)
    Y = 2 + X @ weights + noise * rng.normal(size=(rows, targets))
    return X, Y, np.arange(rows) // 2


@pytest.mark.parametrize(("rows", "features"), [(80, 10), (20, 50), (30, 30)])
@pytest.mark.parametrize("penalty", [1e-3, 1.0, 1e3])
def test_each_penalty_agrees_with_scikit_learn(rows, features, penalty):
    X, Y, _ = probe_data(rows, features)
    found = fit(X, Y, [penalty, 7.0])
    expected = SklearnRidge(alpha=penalty, solver="svd").fit(X, Y)
    np.testing.assert_allclose(found.coef[0], expected.coef_.T, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.predict(X)[0], expected.predict(X), rtol=1e-7, atol=1e-8)


def test_a_relative_penalty_is_in_units_of_the_mean_eigenvalue():
    X, Y, _ = probe_data(40, 6)
    unit = float(np.mean(np.linalg.eigvalsh(40 * np.cov(X.T, ddof=0))))
    np.testing.assert_allclose(
        fit(X, Y, [0.1], relative=True).coef, fit(X, Y, [0.1 * unit]).coef, rtol=1e-9
    )


@given(st.lists(st.integers(0, 30), min_size=20, max_size=80), st.integers(2, 5), st.integers(0, 9))
@settings(deadline=None)
def test_no_group_is_ever_split_between_folds(groups, folds, seed):
    labels = np.asarray(groups)
    if len(set(groups)) < folds:
        with pytest.raises(InvalidRequest):
            group_folds(labels, folds, seed=seed)
        return
    fold = group_folds(labels, folds, seed=seed)
    assert all(len(set(fold[labels == one])) == 1 for one in set(groups))
    sizes = np.bincount(fold, minlength=folds)
    assert sizes.min() > 0
    assert sizes.max() - sizes.min() <= np.bincount(labels).max()


def test_folds_do_not_hold_out_a_module_when_groups_are_ranked():
    first, second = np.divmod(np.arange(25), 5)
    fold = group_folds(np.arange(25), 5)
    for one in range(5):
        held_out = fold == one
        assert len(set(first[held_out])) > 1
        assert len(set(second[held_out])) > 1


def nested_by_scikit_learn(X, Y, fold, penalties):
    """Outer folds by hand, the penalty by grid search, scored as pooled variance-scaled error."""
    predictions, baseline, chosen = np.zeros_like(Y), np.zeros_like(Y), []
    for outer in range(fold.max() + 1):
        train = fold != outer
        variance = Y[train].var(axis=0)

        def score(model, x, y, variance=variance):
            return -float(np.sum((y - model.predict(x)) ** 2 / variance))

        search = GridSearchCV(
            SklearnRidge(solver="svd"),
            {"alpha": penalties},
            scoring=score,
            cv=PredefinedSplit(fold[train]),
        ).fit(X[train], Y[train])
        chosen.append(search.best_params_["alpha"])
        predictions[~train] = search.predict(X[~train])
        baseline[~train] = Y[train].mean(axis=0)
    r2 = 1 - np.sum((Y - predictions) ** 2, axis=0) / np.sum((Y - baseline) ** 2, axis=0)
    return predictions, chosen, r2


@pytest.mark.parametrize(("rows", "features"), [(90, 12), (40, 60)])
def test_nested_cross_validation_agrees_with_grid_search_on_the_same_folds(rows, features):
    X, Y, groups = probe_data(rows, features, noise=0.7)
    penalties = np.logspace(-2, 4, 7)
    found = cross_fit(X, Y, groups, penalties=penalties, relative=False)
    predictions, chosen, r2 = nested_by_scikit_learn(X, Y, found.folds, penalties)
    np.testing.assert_allclose(found.penalties, chosen)
    np.testing.assert_allclose(found.predictions, predictions, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.r2, r2, rtol=1e-6, atol=1e-8)
    assert found.mean == pytest.approx(r2.mean())


@settings(max_examples=10, deadline=None)
@given(st.floats(1e-3, 1e3), st.integers(0, 5))
def test_the_score_does_not_depend_on_the_units_of_the_features(scale, seed):
    X, Y, groups = probe_data(40, 5, seed=seed)
    plain, scaled = cross_fit(X, Y, groups), cross_fit(scale * X, Y * 3 - 1, groups)
    np.testing.assert_allclose(plain.r2, scaled.r2, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("features", [20, 300])
def test_a_planted_signal_is_found_and_a_shuffled_one_is_not(features):
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(200, 4))
    X = latent @ rng.normal(size=(4, features)) + 0.01 * rng.normal(size=(200, features))
    found = cross_fit(X, {"true": latent, "shuffled": rng.permutation(latent)}, np.arange(200) // 4)
    assert found["true"].mean > 0.99
    assert found["shuffled"].mean < 0.05


def test_named_targets_score_as_they_would_alone():
    X, Y, groups = probe_data(60, 8)
    other = np.random.default_rng(1).permutation(Y)[:, :2]
    together = cross_fit(X, {"true": Y, "shuffled": other}, groups)
    for name, targets in (("true", Y), ("shuffled", other)):
        alone = cross_fit(X, targets, groups)
        np.testing.assert_allclose(together[name].r2, alone.r2, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(together[name].penalties, alone.penalties)


def test_groups_that_share_targets_cannot_be_memorised():
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(60), 5)
    X = rng.normal(size=(60, 30))[groups] + 0.01 * rng.normal(size=(300, 30))
    Y = rng.normal(size=(60, 2))[groups]
    assert cross_fit(X, Y, groups).mean < 0.05
    assert cross_fit(X, Y, np.arange(300)).mean > 0.2


def test_dead_targets_are_nan_counted_and_left_out_of_the_mean():
    X, Y, groups = probe_data(60, 5)
    padded = np.column_stack([Y, np.full(60, 0.1), np.zeros(60)])
    alone, found = cross_fit(X, Y, groups), cross_fit(X, padded, groups)
    assert found.dead == 2
    assert np.isnan(found.r2[3:]).all()
    assert found.mean == pytest.approx(alone.mean)
    assert np.isnan(cross_fit(X, np.zeros((60, 1)), groups).mean)


def test_dead_features_score_zero():
    _, Y, groups = probe_data(60, 5)
    found = cross_fit(np.full((60, 4), 0.1), Y, groups)
    np.testing.assert_allclose(found.r2, 0, atol=1e-9)


def test_fitting_on_one_set_and_scoring_another_agrees_with_scikit_learn():
    X, Y, groups = probe_data(120, 9)
    penalties = np.logspace(-1, 4, 6)
    found = fit_on(X[:80], Y[:80], groups[:80], X[80:], Y[80:], penalties=penalties, relative=False)
    variance = Y[:80].var(axis=0)
    search = GridSearchCV(
        SklearnRidge(),
        {"alpha": penalties},
        scoring=lambda model, x, y: -float(np.sum((y - model.predict(x)) ** 2 / variance)),
        cv=PredefinedSplit(group_folds(groups[:80], 4)),
    ).fit(X[:80], Y[:80])
    assert found.penalty == pytest.approx(search.best_params_["alpha"])
    expected = r2_score(Y[80:], search.predict(X[80:]), multioutput="raw_values")
    np.testing.assert_allclose(found.r2, expected, rtol=1e-6)


def test_the_published_probe_with_few_features_is_penalised_ridge_with_a_column_of_ones():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(100, 6)), rng.normal(size=(100, 2))
    Y += X[:, :2]
    with_ones = np.column_stack([X, np.ones(100)])
    expected = SklearnRidge(alpha=1.0, fit_intercept=False).fit(with_ones[:60], Y[:60])
    found = published_probe(X[:60], Y[:60], X[60:], Y[60:])  # 7 unknowns: 10 steps converge
    r2 = r2_score(Y[60:], expected.predict(with_ones[60:]), multioutput="raw_values")
    np.testing.assert_allclose(found.r2, r2, rtol=1e-6)


def test_the_published_probe_has_no_intercept_where_a_feature_is_zero():
    rng = np.random.default_rng(1)
    X = np.eye(8)[rng.integers(0, 8, 100)]
    Y = rng.normal(size=(100, 1))
    expected = SklearnRidge(alpha=1.0, fit_intercept=False).fit(X, Y)
    found = published_probe(X, Y, X, Y)
    np.testing.assert_allclose(found.predictions[:, 0], expected.predict(X).ravel(), atol=1e-9)


def test_the_published_probe_stops_after_ten_steps():
    rng = np.random.default_rng(2)  # well conditioned: otherwise rounding steers the ten steps
    X, Y = rng.normal(size=(100, 60)), rng.normal(size=(100, 1))
    found = published_probe(X, Y, X, Y)
    padded = np.column_stack([X, np.ones(100)])
    matrix, right = padded.T @ padded + np.eye(61), padded.T @ Y[:, 0]
    weights, _ = conjugate_gradient(matrix, right, rtol=0.0, maxiter=10)
    np.testing.assert_allclose(found.predictions[:, 0], padded @ weights, rtol=1e-6)
    converged = np.linalg.solve(matrix, right)
    assert np.abs(found.predictions[:, 0] - padded @ converged).max() > 1e-2


@pytest.mark.parametrize(
    "request_",
    [
        lambda X, Y, g: cross_fit(X, Y, g, penalties=[0.0]),
        lambda X, Y, g: cross_fit(X, Y, g, folds=2),
        lambda X, Y, g: cross_fit(X, Y, np.zeros(len(X))),
        lambda X, Y, g: cross_fit(X, Y[:-1], g),
        lambda X, Y, g: cross_fit(X, Y, g[:-1]),
        lambda X, Y, g: cross_fit(np.where(X > 6, np.nan, X), Y, g),
        lambda X, Y, g: cross_fit(X, {}, g),
    ],
)
def test_requests_that_make_no_sense_are_refused(request_):
    with pytest.raises(InvalidRequest):
        request_(*probe_data(40, 5))
