"""Probes on planted activations: what is there is found, what is not is not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics import average_precision_score, balanced_accuracy_score, roc_auc_score

from recombine.errors import InvalidRequest
from recombine.lab.intervals import Interval
from recombine.probing import Bars, Target, probe, report, targets_of, write_page
from recombine.probing.answers import Answers, across_folds
from recombine.probing.controls import random_labels, shuffled_within, varies_within
from recombine.probing.curves import described
from recombine.probing.fitting import PENALTIES, cross_fit
from recombine.probing.folds import deal_combinations, deal_rows, readable_rows
from recombine.probing.scoring import Lots, scorers, whole
from recombine.probing.verdicts import Scored, judged
from recombine.probing.words import document, remarks, sentence
from recombine.report.html import render
from recombine.tables.rows import Factor, Rows

READABLE = "readable for combinations never seen"
MEMORISED = "readable only within combinations seen (memorised)"


def grid(sizes: tuple[int, ...], rows: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Every combination of values, so many rows each: the factors' codes, and the combination."""
    every = np.array(list(itertools.product(*[range(size) for size in sizes])))
    repeated = np.repeat(np.arange(len(every)), rows)
    return list(every[repeated].T), repeated


def one_hot(*codes: np.ndarray) -> np.ndarray:
    return np.concatenate([np.eye(int(c.max()) + 1)[c] for c in codes], axis=1)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_factor_that_is_linear_in_the_features_is_readable_for_new_combinations(rng):
    (a, b, c), combination = grid((4, 4, 4), 5)
    pure = one_hot(a, b, c) @ rng.normal(size=(12, 30))
    layers = {
        "noise": rng.normal(size=(len(a), 30)),
        "good": pure + 0.5 * rng.normal(size=pure.shape),
    }
    reading = probe(layers, {"a": a, "b": b}, combination)
    for name in ("a", "b"):
        found = reading[name]
        assert found.verdict.answer == READABLE
        assert found.layer == "good" and set(found.picks) == {"good"}
        assert found.scores[0].metric == "balanced accuracy"
        assert found.scores[0].across.estimate > 0.95
        assert abs(found.scores[0].control - 0.25) < 0.12
        by_name = {control.name: control.score for control in found.controls}
        assert abs(by_name["random features of the same dimension"] - 0.25) < 0.12
        assert abs(by_name["activations of other rows"] - 0.25) < 0.12
        noise = next(layer for layer in found.layers if layer.layer == "noise")
        assert noise.across.high < 0.4


def test_what_only_the_combination_tells_is_memorised_and_not_read_across(rng):
    combination = np.repeat(np.arange(160), 4)
    labels = rng.integers(0, 2, 160)[combination]
    acts = rng.normal(size=(160, 200))[combination] + 0.1 * rng.normal(size=(640, 200))
    found = probe(acts, labels, combination, bars=Bars(least=0.2, width=0.5)).targets[0]
    assert found.verdict.answer == MEMORISED
    assert found.scores[0].within.low > 0.9 and found.scores[0].across.estimate < 0.6
    assert found.gap is not None and found.gap.low > 0.3
    by_name = {control.name: control.score for control in found.controls}
    # A probe of this size memorises any labels of these combinations.
    assert by_name["random labels per combination, rows of combinations seen"] > 0.9


def test_noise_is_not_readable_and_scores_like_its_control(rng):
    (a, _, _), combination = grid((3, 6, 6), 4)
    found = probe(rng.normal(size=(len(a), 12)), a, combination).targets[0]
    assert found.verdict.answer == "not readable"
    assert abs(found.scores[0].across.estimate - found.scores[0].control) < 0.1


def test_an_exclusive_or_is_readable_only_as_a_pair(rng):
    (a, b, _), combination = grid((2, 2, 40), 4)
    acts = one_hot(a ^ b) @ rng.normal(size=(2, 8)) + 0.2 * rng.normal(size=(len(a), 8))
    reading = probe(acts, {"a": a, "b": b}, combination, pairs=True)
    (pair,) = reading.pairs
    assert pair.answer == "readable as a pair, beyond its two values"
    assert pair.gain is not None and pair.gain.low > 0.1
    assert pair.pair == pytest.approx(0.5, abs=0.1)  # which of two pairs it is cannot be known
    for one in reading.targets:
        assert one.verdict.answer != READABLE


@pytest.mark.slow
def test_a_sum_of_two_factors_gains_nothing_as_a_pair(rng):
    (a, b, _), combination = grid((3, 3, 6), 5)
    acts = one_hot(a, b) @ rng.normal(size=(6, 12)) + 0.2 * rng.normal(size=(len(a), 12))
    (pair,) = probe(acts, {"a": a, "b": b}, combination, pairs=True).pairs
    assert pair.answer == "no more readable as a pair than by its two values"
    assert pair.singles is not None and pair.singles > 0.95


@pytest.mark.slow
def test_a_strong_factor_beside_an_absent_one_makes_neither_it_nor_the_pair_readable(rng):
    (a, b, _), combination = grid((4, 4, 3), 5)
    acts = one_hot(a) @ rng.normal(size=(4, 16)) + 0.3 * rng.normal(size=(len(a), 16))
    reading = probe(acts, {"a": a, "b": b}, combination, pairs=True)
    assert reading["b"].verdict.answer == "not readable"
    # Each combination held out is missing from what its first factor came with in training.
    assert reading["b"].scores[0].across.high < 0.25
    assert any("worse than chance" in remark for remark in remarks(reading["b"]))
    (pair,) = reading.pairs
    assert pair.singles == pytest.approx(0.25, abs=0.05)
    assert pair.answer == "no more readable as a pair than by its two values"


@pytest.mark.slow
def test_pairs_that_are_whole_combinations_cannot_be_probed(rng):
    (a, b), combination = grid((6, 6), 4)
    (pair,) = probe(rng.normal(size=(len(a), 4)), {"a": a, "b": b}, combination, pairs=True).pairs
    assert pair.gain is None and "a third factor is needed" in pair.answer


@pytest.mark.slow
def test_labels_of_sets_are_read_in_new_sets(rng):
    sets = np.array([[i in s for i in range(7)] for s in itertools.combinations(range(7), 3)])
    combination = np.repeat(np.arange(len(sets)), 6)
    labels = sets[combination].astype(int)
    acts = labels @ rng.normal(size=(7, 16)) + 0.3 * rng.normal(size=(len(labels), 16))
    found = probe(acts, labels, combination).targets[0]
    assert found.kind == "multilabel" and found.verdict.answer == READABLE
    scores = {score.metric: score.across.estimate for score in found.scores}
    assert set(scores) == {"AUROC", "mean average precision", "exact set"}
    assert scores["AUROC"] > 0.95 and scores["exact set"] > 0.6


def test_numbers_are_read_and_a_linear_function_gets_its_closed_form(rng):
    combination = np.repeat(np.arange(60), 10)
    z = rng.normal(size=60)[combination]
    acts = np.column_stack([z + rng.normal(size=600), rng.normal(size=600)])
    found = probe(acts, z, combination).targets[0]
    assert found.kind == "numbers" and found.verdict.answer == READABLE
    # One feature that is z plus noise of the same variance explains var / (var + noise).
    expected = float(z.var() / (z.var() + 1))
    assert found.scores[0].across.estimate == pytest.approx(expected, abs=0.08)


def test_a_target_that_varies_within_combinations_is_held_against_its_shuffle(rng):
    combination = np.repeat(np.arange(50), 12)
    z = rng.integers(0, 2, 600)
    acts = one_hot(z) @ rng.normal(size=(2, 6)) + 0.2 * rng.normal(size=(600, 6))
    found = probe(acts, z, combination).targets[0]
    null = next(c.score for c in found.controls if c.name.startswith("targets shuffled"))
    assert found.verdict.answer == READABLE
    assert null is not None and abs(null - 0.5) < 0.1


@pytest.mark.slow
def test_choosing_among_many_layers_of_noise_gives_no_advantage(rng):
    (a, _, _), combination = grid((2, 5, 5), 4)
    layers = {f"l{i}": rng.normal(size=(len(a), 5)) for i in range(12)}
    found = probe(layers, a, combination, draws=2).targets[0]
    best = max(layer.across.estimate for layer in found.layers)
    assert best > 0.54 > found.scores[0].across.estimate - 0.06
    assert found.verdict.answer != READABLE


def test_too_few_combinations_is_an_answer_with_how_many_more(rng):
    (a, _), combination = grid((3, 4), 10)
    acts = one_hot(a) + 0.1 * rng.normal(size=(120, 3))
    verdict = probe(acts, a, combination).targets[0].verdict
    assert verdict.answer == "too few combinations to say" and verdict.more == 25 - 12
    verdict = probe(acts[:20], combination[:20], combination[:20]).targets[0].verdict
    assert verdict.answer == "too few combinations to say" and verdict.more == 25 - 2


def test_an_interval_that_holds_the_bar_is_settled_by_more_combinations():
    wide = Interval(0.15, -0.05, 0.35, 50, "", 0.95)
    verdict = judged(Bars(), wide, None, 50, 5)
    assert verdict.answer == "too few combinations to say"
    # It narrows from .4 to .2, the width allowed, with four times as many.
    assert verdict.more == 150
    assert judged(Bars(width=0.5), wide, None, 50, 5).answer == READABLE
    assert judged(Bars(), Interval(0.9, 0.5, 1.0, 50, "", 0.95), None, 50, 5).answer == READABLE


def test_values_that_never_come_twice_leave_nothing_to_hold_out(rng):
    combination = np.repeat(np.arange(30), 4)
    found = probe(rng.normal(size=(120, 5)), combination, combination).targets[0]
    assert found.verdict.answer == "too few combinations to say" and found.unscored == 120
    assert "fewer than two values occur in two combinations" in found.verdict.why


def test_a_few_rows_that_can_be_scored_do_not_speak_for_all(rng):
    combination = np.repeat(np.arange(100), 8)
    numbers = np.arange(800)
    numbers[[0, 80, 160, 240, 320, 400]] = [0, 0, 0, 1, 1, 1]  # all others come once
    found = probe(rng.normal(size=(800, 5)), numbers, combination).targets[0]
    assert found.verdict.answer == "too few combinations to say" and found.curve is None
    assert found.verdict.why == f"only {800 - found.unscored} of 800 rows can be scored"
    told = " ".join(remarks(found))
    assert "--kind numbers" in told and "worse than chance" not in told
    # Many rows of a few combinations say as little.
    none = Interval(0.0, 0.0, 0.0, 99, "", 0.95)
    few = judged(Bars(), none, None, 99, 5, Scored(500, 800, 8))
    assert few.why == "8 have rows that can be scored, and 5 folds need 25"


def test_random_projections_of_the_inputs_can_explain_a_reading(rng):
    (a, b), combination = grid((4, 8), 6)
    inputs = one_hot(a, b) + 0.1 * rng.normal(size=(len(a), 12))
    acts = inputs @ rng.normal(size=(12, 20))
    reading = probe(acts, a, combination, inputs=inputs)
    told = document(reading)["targets"][0]["remarks"]
    assert any("does not show that the model made it readable" in remark for remark in told)


@pytest.mark.slow
def test_small_floats_are_read_as_the_same_numbers(rng):
    import ml_dtypes

    (a, _), combination = grid((3, 10), 5)
    acts = (one_hot(a) @ rng.normal(size=(3, 8)) + rng.normal(size=(len(a), 8))) * 100
    for kind in (np.float16, ml_dtypes.bfloat16):
        small = acts.astype(kind)
        same = probe(small.astype(np.float64), a, combination, draws=1)
        assert (
            document(probe(small, a, combination, draws=1))["targets"]
            == (document(same)["targets"])
        )


@pytest.mark.slow
def test_the_same_seed_gives_the_same_reading_and_rows_may_come_in_any_layout(rng):
    (a, b), combination = grid((3, 10), 4)
    acts = one_hot(a) @ rng.normal(size=(3, 6)) + rng.normal(size=(len(a), 6))
    first = document(probe(acts, {"a": a, "b": b}, combination, seed=3, draws=2))
    again = document(probe(np.asfortranarray(acts), {"a": a, "b": b}, combination, seed=3, draws=2))
    assert again == first
    other = document(probe(acts, {"a": a, "b": b}, combination, seed=4, draws=2))
    assert other["targets"][0]["scores"] != first["targets"][0]["scores"]


def test_a_table_is_probed_by_its_factors_and_their_combination(rng):
    (a, b), combination = grid((3, 10), 4)
    names = tuple("rgb"), tuple(f"s{i}" for i in range(10))
    rows = Rows("toy", (Factor("colour", names[0], a), Factor("shape", names[1], b)))
    acts = one_hot(a) + 0.2 * rng.normal(size=(len(a), 3))
    reading = probe(acts, rows)
    assert reading.combinations == 30 and reading["colour"].values == ("r", "g", "b")
    assert reading["colour"].verdict.answer == READABLE
    by_hand = probe(acts, {"colour": a, "shape": b}, combination)
    assert reading["colour"].scores == by_hand["colour"].scores
    assert probe(acts, {"colour": a, "shape": b}).targets == by_hand.targets


@pytest.mark.slow
def test_the_curve_grows_with_the_combinations(rng):
    (a, _), combination = grid((4, 40), 2)
    acts = one_hot(a) @ rng.normal(size=(4, 60)) + 2 * rng.normal(size=(len(a), 60))
    curve = probe(acts, a, combination, draws=1).targets[0].curve
    assert curve is not None and list(curve.combinations) == sorted(set(curve.combinations))
    assert len(curve.scores) == 4 and curve.combinations[-1] == 128
    assert curve.scores[-1].estimate > curve.scores[0].estimate


def test_a_curve_says_when_it_extrapolates_and_when_not():
    def at(values: list[float], half: float = 0.005) -> list[Interval]:
        return [Interval(v, v - half, v + half, 50, "", 0.95) for v in values]

    sizes = [10, 20, 40, 80]
    law = [0.9 - 2.0 / size for size in sizes]
    rising = described(sizes, at(law), "R²")
    assert rising.extrapolated == pytest.approx(0.9 - 2.0 / 160, abs=1e-6)
    assert "not measured" in rising.said
    flat = described(sizes, at([0.5, 0.8, 0.9, 0.91]), "R²")
    assert flat.said.startswith("flat") and flat.extrapolated is None
    assert described(sizes[:2], at([0.5, 0.8]), "R²").extrapolated is None
    noisy = described(sizes, at(law, half=0.2), "R²")
    assert "within the noise" in noisy.said and noisy.extrapolated is None


# --- the parts, against other programs -----------------------------------------------------------


@pytest.mark.parametrize("features", [6, 90])
def test_scores_are_those_of_ridge_regression_at_the_chosen_penalty(rng, features):
    x = rng.normal(size=(60, features)) + 5
    y = x[:, :2] @ rng.normal(size=(2, 3)) + rng.normal(size=(60, 3))
    fold = np.arange(60) % 4
    fit = cross_fit(x, y, [slice(0, 2), slice(2, 3)], fold)
    for a, part in enumerate(fit.folds):
        train = fold != a
        unit = x[train].var(axis=0).sum() * train.sum() / features
        for number, span in enumerate([slice(0, 2), slice(2, 3)]):
            theirs = Ridge(alpha=fit.penalty[number, a] * unit).fit(x[train], y[train, span])
            expected = theirs.predict(x[part.rows]).reshape(len(part.rows), -1)
            np.testing.assert_allclose(part.scores[:, span] + part.mean[span], expected, atol=1e-6)
            assert fit.penalty[number, a] in PENALTIES


def test_the_penalty_is_chosen_without_a_look_at_the_fold_it_is_for(rng):
    x, y = rng.normal(size=(80, 30)), rng.normal(size=(80, 1))
    fold = np.arange(80) % 5
    changed = y.copy()
    changed[fold == 2] = 100 * rng.normal(size=(16, 1))
    before, after = (cross_fit(x, one, [slice(0, 1)], fold) for one in (y, changed))
    assert before.penalty[0, 2] == after.penalty[0, 2]
    np.testing.assert_allclose(before.validation[0, 2], after.validation[0, 2], rtol=1e-6)
    np.testing.assert_allclose(before.folds[2].scores, after.folds[2].scores, atol=1e-8)


def test_values_are_those_of_a_shrunken_linear_discriminant(rng):
    codes = np.tile(np.arange(4), 50)
    x = one_hot(codes) @ rng.normal(size=(4, 5)) + rng.normal(size=(200, 5))
    fold = np.repeat(np.arange(5), 40)  # values are equally common in every fold
    target = targets_of(codes)[0]
    fit = cross_fit(x, target.columns, [slice(0, 4)], fold, penalties=[0.3])
    answers = across_folds(fit, "categorical", 200, 0, slice(0, 4))
    for a in range(5):
        train, test = fold != a, fold == a
        within = sum(np.cov(x[train & (codes == k)].T, bias=True) / 4 for k in range(4))
        unit = x[train].var(axis=0).sum() * train.sum() / 5
        added = 0.3 * unit / train.sum() / (np.trace(within) / 5)
        theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=added / (1 + added))
        expected = theirs.fit(x[train], codes[train]).predict(x[test])
        assert np.array_equal(answers.equal[test], expected)


def test_a_value_between_two_others_on_a_line_is_not_hidden(rng):
    combination = np.repeat(np.arange(60), 5)
    size = combination % 3
    acts = size[:, None] + 0.1 * rng.normal(size=(300, 1))
    found = probe(acts, size, combination).targets[0]
    assert found.scores[0].across.estimate > 0.95


WEIGHTS = st.lists(st.integers(0, 3), min_size=6, max_size=6)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=6, max_size=6),
    WEIGHTS,
)
@settings(max_examples=60)
def test_ranks_are_scored_as_scikit_learn_scores_them(rows, weights):
    scores = np.array([score for score, _ in rows], float)[:, None]
    truth = np.array([label for _, label in rows], float)[:, None]
    w = np.array(weights, float)
    if not ((w @ truth)[0] > 0 and (w @ (1 - truth))[0] > 0):
        return
    lots = Lots(np.arange(6), 6, 6)
    target = Target("t", "multilabel", ("x",), truth)
    nothing = np.zeros((6, 1))
    answers = Answers(nothing, nothing, scores, nothing)
    found = scorers(target, truth, answers, np.zeros(6, int), np.ones(6, bool), lots)
    ours = found["AUROC"](w), found["mean average precision"](w)
    kept = w > 0
    theirs = [
        metric(truth[kept, 0], scores[kept, 0], sample_weight=w[kept])
        for metric in (roc_auc_score, average_precision_score)
    ]
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_balanced_accuracy_is_that_of_scikit_learn(rng):
    codes, guesses = rng.integers(0, 4, 80), rng.integers(0, 4, 80)
    target = targets_of(codes)[0]
    nothing = np.zeros((80, 0))
    answers = Answers(guesses, guesses, nothing, nothing)
    lots = Lots(rng.integers(0, 9, 80), 9, 9)
    scored = scorers(target, target.columns, answers, np.zeros(80, int), np.ones(80, bool), lots)
    ours = whole(scored["balanced accuracy"], lots)
    assert ours == pytest.approx(balanced_accuracy_score(codes, guesses))
    assert whole(scored["accuracy"], lots) == pytest.approx(float(np.mean(codes == guesses)))


@given(st.integers(0, 10_000), st.integers(3, 6), st.integers(6, 40))
@settings(max_examples=60)
def test_no_combination_is_split_and_values_of_two_combinations_stay_in_training(
    seed, folds, count
):
    rng = np.random.default_rng(seed)
    group = np.concatenate([np.arange(count), rng.integers(0, count, 3 * count)])
    values = [rng.integers(0, size, count) for size in (4, 9)]
    targets = targets_of({name: one[group] for name, one in zip("ab", values, strict=True)})
    fold = deal_combinations(group, targets, folds, seed=seed)
    assert all(len(set(fold[group == g])) == 1 for g in range(count))
    assert set(fold) == set(range(folds))
    for target, one in zip(targets, values, strict=True):
        twice = np.bincount(one, minlength=9)[one][group] >= 2
        np.testing.assert_array_equal(readable_rows(target, fold), twice)


@given(st.integers(0, 10_000), st.integers(3, 6))
@settings(max_examples=30)
def test_rows_of_a_combination_are_spread_over_the_folds(seed, folds):
    group = np.random.default_rng(seed).integers(0, 10, 80)
    fold = deal_rows(np.unique(group, return_inverse=True)[1], folds, seed=seed)
    for one in np.unique(group):
        counts = np.bincount(fold[group == one], minlength=folds)
        assert counts.max() - counts.min() <= 1


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_control_labels_belong_to_combinations_and_stay_as_common(seed):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(12), 3)
    columns = one_hot(np.arange(12) % 4)[group]
    found = random_labels(columns, group, rng)
    assert not varies_within(found, group)
    np.testing.assert_array_equal(found.sum(axis=0), columns.sum(axis=0))
    mixed = np.eye(5)[rng.integers(0, 5, 36)]
    dealt = shuffled_within(mixed, group, rng)
    for one in range(12):
        own = group == one
        np.testing.assert_array_equal(dealt[own].sum(axis=0), mixed[own].sum(axis=0))


# --- the page ------------------------------------------------------------------------------------


def test_the_page_opens_with_the_verdict_and_keeps_hostile_names_inert(rng, tmp_path):
    (a, b, _), combination = grid((2, 2, 8), 4)
    names = "<script>alert(1)</script>", "{{7*7}}"
    acts = one_hot(a ^ b) @ rng.normal(size=(2, 4)) + 0.1 * rng.normal(size=(len(a), 4))
    reading = probe(
        {"<img src=x>": acts}, dict(zip(names, (a, b), strict=True)), combination, pairs=True
    )
    page = write_page(reading, tmp_path / "out", source="acts.npz")
    text = page.read_text("utf-8")
    assert "<script" not in text and "<img src=x" not in text and "{{7*7}}" in text
    verdict = text.index('id="verdict"')
    assert verdict < text.index("Controls") and "control task" in text
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "report.html", "report.json", "layers.csv"
    }  # fmt: skip
    assert render(report(reading, source="acts.npz")) == text


def test_a_reading_with_nothing_to_score_still_makes_a_page(rng, tmp_path):
    reading = probe(rng.normal(size=(8, 2)), np.arange(8) % 2, np.arange(8) % 2)
    text = write_page(reading, tmp_path).read_text("utf-8")
    assert "Too few combinations to say" in text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"folds": 2}, "folds=2"),
        ({"draws": 0}, "draws=0"),
        ({"targets": np.zeros(50, int)}, "every row has the same value"),
        ({"targets": np.arange(40)}, "has 50 rows and target 'target' has 40"),
        ({"groups": None}, "groups are missing"),
        ({"groups": np.arange(7)}, "groups has 7"),
        ({"activations": np.zeros((50, 3, 4))}, "acts[:, -1]"),
        ({"activations": np.full((50, 2), "x")}, "expected real numbers"),
        ({"activations": {}}, "no activations"),
        ({"kind": "category"}, "did you mean 'categorical'"),
        ({"inputs": np.zeros((3, 2))}, "inputs has 3"),
    ],
)
def test_a_wrong_request_says_what_is_wrong(rng, change, told):
    asked = {
        "activations": rng.normal(size=(50, 2)),
        "targets": np.arange(50) % 3,
        "groups": np.arange(50) % 25,
    } | change
    with pytest.raises(InvalidRequest) as error:
        probe(**asked)
    assert told in str(error.value)


def test_rows_that_are_not_finite_are_named_and_may_be_left_out(rng):
    (a, _), combination = grid((2, 20), 5)
    acts = one_hot(a) + 0.5 * rng.normal(size=(200, 2))
    broken = acts.copy()
    broken[[3, 77], 0] = np.nan, np.inf
    with pytest.raises(InvalidRequest, match=r"2 rows \(4, 78\) with numbers that are not finite"):
        probe(broken, a, combination)
    keep = np.setdiff1d(np.arange(200), [3, 77])
    dropped = probe(broken, a, combination, drop_bad=True)
    assert dropped.targets == probe(acts[keep], a[keep], combination[keep]).targets
    assert any("2 of 200 rows were left out" in note for note in dropped.notes)


def test_rows_that_are_combinations_of_their_own_are_remarked_on():
    acts = np.random.default_rng(0).normal(size=(60, 3))
    said = "every row is a combination of its own"
    alone = probe(acts, np.arange(60) % 2, np.arange(60), draws=1)
    mated = probe(acts, np.arange(60) % 2, np.arange(60) // 2, draws=1)
    assert any(said in note for note in alone.notes)
    assert not any(said in note for note in mated.notes)


def test_a_mean_does_not_hide_the_one_readable_label():
    draw = np.random.default_rng(0)
    group = np.repeat(np.arange(60), 6)
    labels = draw.integers(0, 2, (60, 3))[group]
    acts = draw.normal(size=(len(group), 8))
    acts[:, 0] += 8 * labels[:, 0]
    reading = probe(acts, labels, group)
    [found] = reading.targets
    assert [one.verdict.answer == READABLE for one in found.labels] == [True, False, False]
    assert found.labels[0].across.estimate > 0.95
    assert "1 of 3 labels is readable" in sentence(found)
    told = document(reading)["targets"][0]["labels"]
    assert [one["answer"] == READABLE for one in told] == [True, False, False]
