"""Study foretold on readings made to order: what is planted is found, what is not is not."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from recombine.errors import InvalidRequest, UnknownName
from recombine.instruments import Reading
from recombine.instruments.generalization import per_combination
from recombine.lab.execute import Session
from recombine.lab.judge import Judgement, judge
from recombine.lab.plan import part
from recombine.lab.run import Request, run
from recombine.lab.statistics import mean_interval
from recombine.lab.store import Store
from recombine.lab.study import Cell, Results, Row
from recombine.learners._tasks import build_support
from recombine.learners.supervised import Supervised
from recombine.report.html import render
from recombine.report.study import report_of
from recombine.studies import _foretold as parts
from recombine.studies import _foretold_prediction as prediction
from recombine.studies._foretold_datasets import FAMILIES, SIZES
from recombine.studies._foretold_report import combination_level, quoted
from recombine.studies.boundary import Boundary
from recombine.studies.coverage import Coverage
from recombine.studies.foretold import (
    BEYOND,
    CONTROL,
    ENOUGH,
    NECESSARY,
    RANKS,
    TRANSFERS,
    WITHIN,
    ForetoldStudy,
)
from recombine.studies.goals import GoalsStudy
from recombine.supports import Novelty, novelty

STUDY = ForetoldStudy()
GRID = STUDY.grid("standard")

# The score of each unseen combination, from the labels of its network and how new it is.
World = Callable[[dict[str, Any], Novelty, np.random.Generator], np.ndarray]


@functools.cache
def cells() -> tuple[Cell, ...]:
    return tuple(part(STUDY.cells(GRID)).cells)


@functools.cache
def known(place: parts.Dataset) -> tuple[dict[str, list[Any]], Novelty]:
    """What is known of a dataset's unseen combinations, whatever its networks do."""
    cell = next(c for c in cells() if parts.dataset(Row(c.labels, c.id, {}, {})) == place)
    learner = cell.learner
    assert isinstance(learner, Supervised)
    support = build_support(learner.family, learner.support, learner.seeds.support)
    new = novelty(support)
    return per_combination(support, new.ranks, {}, 1), new


def made(world: World, seen: float | Callable[[dict[str, Any]], float] = 0.97) -> Results:
    """A row for every cell of the standard grid, read as its family is read."""
    rows = []
    for number, cell in enumerate(cells()):
        labels = dict(cell.labels)
        about, new = known(parts.dataset(Row(labels, cell.id, {}, {})))
        score = world(labels, new, np.random.default_rng(number))
        if labels["family"] == "scenes":
            name, told = "composition", {"success": score}
        elif labels["family"] == "goals":
            name, told = "generalization", {"whole": score}
        else:
            name, told = "generalization", {"error": 2 * (1 - score), "variance": 0 * score + 2}
        table = about | {column: values.tolist() for column, values in told.items()}
        reached = seen(labels) if callable(seen) else seen
        values = {"seen": reached, "unseen": float(score.mean())}
        controls = {c: {"unseen": 0.0} for c in ("untrained", "shuffled", "planted")}
        reading = Reading(values, controls, {"unseen": table})
        rows.append(Row(labels, cell.id, {"diverged_at": None}, {name: reading}))
    return Results(rows)


def lawful(labels, new: Novelty, rng) -> np.ndarray:
    """Never linked: fails. A new pair: fails more often than not. Else: hardly ever fails."""
    chance = np.select([new.level >= 3, new.level == 2], [1.0, 0.8], 0.005)
    return np.where(rng.random(len(chance)) < chance, 0.3, 0.96)


def anywhere(labels, new: Novelty, rng) -> np.ndarray:
    return np.where(rng.random(len(new.level)) < 0.3, 0.3, 0.96)


def never_seen_fails(labels, new: Novelty, rng) -> np.ndarray:
    """What has a value never seen fails; whatever else does, does by chance."""
    chance = np.where(new.rarest_usage == 0, 1.0, 0.1)
    return np.where(rng.random(len(chance)) < chance, 0.3, 0.96)


def alike(labels) -> tuple[np.ndarray, np.ndarray]:
    """The sizes of a dataset's unseen combinations, and how often their rarest module was seen."""
    about, new = known(parts.dataset(Row(labels, "", {}, {})))
    return np.asarray(about["size"]), new.rarest_usage


def judged(results: Results, *names: str) -> dict[str, Judgement]:
    """What becomes of the named claims, or of all."""
    claims = [claim for claim in STUDY.claims(GRID) if claim.name in (names or (claim.name,))]
    return {j.claim.name: j for j in judge(claims, results)}


@functools.cache
def lawful_rows() -> Results:
    return made(lawful)


@functools.cache
def lawful_verdicts() -> dict[str, Judgement]:
    return judged(lawful_rows())


# The claims


def test_where_novelty_decides_every_claim_is_supported():
    found = lawful_verdicts()
    # What is new is also larger and rarer: the control says how much of the ranking these carry.
    asked = {name: j.verdict for name, j in found.items() if name != CONTROL}
    assert asked == dict.fromkeys(asked, "supported")
    assert "lower log loss" in found[TRANSFERS].claim.sentence
    told = STUDY.conclusion(list(found.values()))
    assert told.count("supported") == 6 + (found[CONTROL].verdict == "supported")


def test_where_failures_fall_anywhere_novelty_foretells_nothing():
    found = judged(made(anywhere))
    assert found[RANKS].verdict == "refuted" and found[CONTROL].verdict == "supported"
    area = found[RANKS].interval
    assert area is not None and area.estimate == pytest.approx(0.5, abs=0.03)
    assert found[TRANSFERS].verdict != "supported" and found[BEYOND].verdict != "supported"
    assert found[WITHIN].verdict == "refuted"


def test_that_values_never_seen_fail_supports_no_prediction():
    rows = made(never_seen_fails)
    for found in judged(rows, TRANSFERS, BEYOND).values():
        assert found.verdict != "supported" and found.interval is not None
        assert found.interval.estimate == pytest.approx(0, abs=0.01)
    # With datasets that never show a value it looks as if: but they tell as much by usage alone.
    every = prediction.foretold(rows).values()
    over, usage = (
        np.concatenate([prediction.gains(told, baseline) for told in every]).mean()
        for baseline in (prediction.OVERALL, prediction.USAGE)
    )
    assert over < -0.1 and usage == pytest.approx(0, abs=0.01)


def test_where_size_and_rarity_decide_the_control_fails_and_novelty_adds_nothing():
    def world(labels, new, rng):
        size, usage = alike(labels)
        rank = stats.rankdata(size - 0.01 * usage) / len(size)
        return np.where(rng.random(len(rank)) < np.where(rank > 0.5, 0.9, 0.1), 0.3, 0.96)

    found = judged(made(world), CONTROL, WITHIN)
    assert found[CONTROL].verdict == "refuted" and found[WITHIN].verdict == "refuted"
    area = found[WITHIN].interval
    assert area is not None and area.estimate == pytest.approx(0.5, abs=0.04)


def test_where_novelty_decides_among_the_equally_rare_the_control_holds():
    def world(labels, new, rng):
        size, usage = alike(labels)
        failed = np.zeros(len(size), bool)
        for one in set(zip(size, usage, strict=True)):
            here = np.flatnonzero((size == one[0]) & (usage == one[1]))
            newest = here[np.argsort(-new.level[here] - 0.1 * rng.random(len(here)))]
            # The newer .4 of each group fail: no size and no usage does so more than others.
            failed[newest[: int(0.4 * len(here) + rng.random())]] = True
        return np.where(failed, 0.3, 0.96)

    found = judged(made(world), CONTROL, WITHIN)
    assert found[CONTROL].verdict == "supported"
    area = found[WITHIN].interval
    # Most of a group are equally new, and these ties are lost.
    assert area is not None and area.low > 0.55 and area.estimate > 0.6
    told = found[WITHIN].note.split("If the equally new count as ties: ")[1]
    assert 0.5 < float(told.split()[0]) < 0.6 and told.endswith("over 24 kinds.")


def test_seeds_of_one_kind_of_dataset_are_one_unit():
    found = lawful_verdicts()
    kinds = {parts.kind(row) for row in lawful_rows()}
    assert len(kinds) == 28
    for name in (RANKS, WITHIN, CONTROL, BEYOND):
        interval = found[name].interval
        assert interval is not None and interval.units <= len(kinds)
        assert found[name].claim.unit == "kinds of dataset"
    # Six kinds of a family show every value; the seventh does not.
    beyond, worst = found[BEYOND].interval, found[TRANSFERS].interval
    assert beyond is not None and worst is not None and (beyond.units, worst.units) == (24, 6)
    numbers = {row.cell: float(n) for n, row in enumerate(lawful_rows())}
    means = parts.by_kind(lawful_rows(), lambda row: numbers[row.cell])
    for kind, mean in means.items():
        same = [numbers[row.cell] for row in lawful_rows() if parts.kind(row) == kind]
        assert len(same) == 6 and mean == pytest.approx(np.mean(same))


def test_the_ranking_is_told_family_by_family():
    def world(labels, new, rng):
        usual = lawful(labels, new, rng)
        return anywhere(labels, new, rng) if labels["family"] == "goals" else usual

    note = judged(made(world), RANKS)[RANKS].note
    told = dict(
        one.rsplit(" ", 1) for one in note.removeprefix("By family: ").split(". ")[0].split(", ")
    )
    assert set(told) == set(FAMILIES)
    assert float(told["goals"]) == pytest.approx(0.5, abs=0.06) and float(told["scenes"]) > 0.7


def test_a_family_that_composes_what_was_never_linked_is_named():
    def world(labels, new, rng):
        usual = lawful(labels, new, rng)
        composes = labels["family"] in ("additive", "scenes") and labels["model"] == "wide"
        return np.where(composes & (new.level == 3), 0.96, usual)

    found = judged(made(world), NECESSARY)[NECESSARY]
    # Two of four families reach, with one of two networks.
    assert found.interval is not None and found.interval.estimate == pytest.approx(0.5)
    assert "additive disconnected, scenes disconnected" in found.note
    everyone = made(lambda labels, new, rng: np.full(len(new.level), 0.95))
    assert judged(everyone, NECESSARY)[NECESSARY].verdict == "refuted"


def test_that_values_never_seen_fail_does_not_count_for_what_is_never_linked():
    def world(labels, new, rng):
        return np.where(new.level == 4, 0.1, 0.96)

    found = judged(made(world), NECESSARY)[NECESSARY]
    assert found.verdict == "refuted" and found.interval is not None
    assert (found.interval.estimate, found.interval.units) == (1.0, 12)
    assert "Control, a value never seen: reached by 0 of 12 datasets." in found.note
    none = Results([r for r in made(world) if r.labels["rule"] != "disconnected"])
    assert judged(none, NECESSARY)[NECESSARY].verdict == "not tested here"


def test_combinations_within_linked_groups_do_not_count_for_what_is_never_linked():
    def world(labels, new, rng):
        return np.where(new.level >= 3, 0.86, 1.0)

    assert judged(made(world, seen=0.95), NECESSARY)[NECESSARY].verdict == "refuted"
    assert judged(made(world, seen=0.96), NECESSARY)[NECESSARY].verdict == "supported"


def test_datasets_that_show_every_pair_and_fail_refute_that_pairs_are_enough():
    def world(labels, new, rng):
        return np.full(len(new.level), 0.96 if labels["model"] == "wide" else 0.6)

    found = judged(made(world), ENOUGH)[ENOUGH]
    assert found.verdict == "refuted" and "Missed on: additive random 0.25" in found.note
    assert found.interval is not None and found.interval.estimate == pytest.approx(0.5)
    # .25 and .5 of sets, .25 and .75 of goals: three seeds each, less what luck left out.
    assert 18 <= found.interval.units <= 24


def test_undertrained_networks_are_left_out_and_counted():
    found = judged(made(lawful, seen=lambda labels: 0.5 if labels["seed"] == 2 else 0.97))
    assert all("56 undertrained" in found[n].note for n in (RANKS, WITHIN, CONTROL))
    assert all("48 undertrained" in found[n].note for n in (TRANSFERS, BEYOND))
    left = found[NECESSARY].interval
    assert left is not None and left.units == 8
    weak = judged(made(lawful, seen=0.89))
    assert {j.verdict for j in weak.values()} == {"not tested here"}


def test_diverged_networks_are_left_out():
    first, *rest = lawful_rows()
    lost = dataclasses.replace(first, summary={"diverged_at": 7})
    assert "Left out: 1 diverged." in judged(Results([lost, *rest]), RANKS)[RANKS].note


def test_transfer_needs_four_families():
    three = Results([row for row in lawful_rows() if row.labels["family"] != "scenes"])
    found = judged(three)
    for name in (TRANSFERS, BEYOND):
        assert found[name].verdict == "not tested here" and "missing: scenes" in found[name].note
    assert found[RANKS].verdict == "supported"


def test_one_family_in_which_the_new_is_easy_is_enough_to_refute_every_family():
    def world(labels, new, rng):
        usual = lawful(labels, new, rng)
        return 1.26 - usual if labels["family"] == "goals" else usual

    found = judged(made(world), TRANSFERS)
    assert found[TRANSFERS].verdict == "refuted" and "goals +" in found[TRANSFERS].note


def test_where_rarity_decides_novelty_is_no_better_than_rarity():
    def world(labels, new, rng):
        chance = special.expit(2 - np.log2(new.rarest_usage + 1))
        return np.where(rng.random(len(chance)) < chance, 0.3, 0.96)

    found = judged(made(world), BEYOND)[BEYOND]
    assert found.verdict != "supported" and found.interval is not None
    assert abs(found.interval.estimate) < 0.05


def test_only_combinations_of_one_size_are_compared_where_size_is_held():
    def world(labels, new, rng):
        size = np.asarray(known(parts.dataset(Row(labels, "", {}, {})))[0]["size"])
        noise = rng.random(len(size)) < 0.1
        return np.where((size == 3) ^ noise, 0.3, 0.96)

    rows = made(world).where(family="additive", rule="random", held_out=0.95)
    plain, held = parts.ranking("level"), parts.ranking("level", same_size=True)
    assert np.mean([plain(row) for row in rows]) > 0.6
    assert np.mean([held(row) for row in rows]) == pytest.approx(0.5, abs=0.06)


# What the claims are made of


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 1)), min_size=2))
def test_auroc_is_that_of_scikit_learn_and_of_counting_pairs(items):
    newer, failed, group = (np.asarray(column) for column in zip(*items, strict=True))
    found = parts.auroc(newer.astype(float), failed)
    if 0 < failed.sum() < len(failed):
        assert found == pytest.approx(roc_auc_score(failed, newer))
    else:
        assert np.isnan(found)
    pairs = [
        (a > b) + (a == b) / 2
        for a, bad, g in items if bad
        for b, worse, h in items if not worse and g == h
    ]  # fmt: skip
    within = parts.auroc(newer.astype(float), failed, group)
    assert within == pytest.approx(np.mean(pairs) if pairs else np.nan, nan_ok=True)


def test_the_prediction_is_that_of_a_penalised_logistic_regression():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(400, 3)) * [1, 5, 0.1] + [0, 3, 1]
    chance = 1 / (1 + np.exp(-(columns[:, 0] - 0.3 * columns[:, 1])))
    failed = (rng.random(400) < chance).astype(float)
    weight = rng.uniform(0.5, 2, 400)
    scaled = weight * 400 / weight.sum()
    centre = np.average(columns, axis=0, weights=scaled)
    spread = np.sqrt(np.average((columns - centre) ** 2, axis=0, weights=scaled))
    other = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000)
    other.fit((columns - centre) / spread, failed, sample_weight=scaled)
    asked = rng.normal(size=(50, 3)) * [1, 5, 0.1] + [0, 3, 1]
    expected = other.predict_proba((asked - centre) / spread)[:, 1]
    assert prediction.fit(columns, failed, weight)(asked) == pytest.approx(expected, abs=2e-3)


@given(st.integers(0, 30), st.integers(0, 30), st.sampled_from([0.9, 0.95, 0.99]))
def test_the_interval_of_a_share_is_the_exact_one(right, wrong, level):
    if not right + wrong:
        return
    found = parts.share_interval([1.0] * right + [0.0] * wrong)(level)
    exact = stats.binomtest(right, right + wrong).proportion_ci(level, "exact")
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))


def test_the_worst_family_speaks_for_all_at_levels_that_hold_together():
    rng = np.random.default_rng(1)
    values = {"a": rng.normal(-1, 0.1, 20), "b": rng.normal(-0.5, 0.2, 20)}
    found = parts.worst(values)(0.95)
    assert found.estimate == pytest.approx(values["b"].mean())
    alone = mean_interval(values["b"])
    assert found.high >= alone.high
    assert parts.worst({"b": values["b"]})(0.95) == alone


def test_a_prediction_for_a_family_never_looks_at_it():
    rows = lawful_rows()
    turned = Results([
        dataclasses.replace(row, readings={
            name: Reading({**r.values, "seen": 2.0}, r.controls, r.tables)
            for name, r in row.readings.items()
        }) if row.labels["family"] == "goals" else row
        for row in rows
    ])  # fmt: skip
    before, after = (prediction.foretold(r)["goals"] for r in (rows, turned))
    assert all(one.failed.all() for one in after) and not all(one.failed.all() for one in before)
    for one, other in zip(before, after, strict=True):
        for model in prediction.MODELS:
            assert np.array_equal(one.chances[model], other.chances[model])


# The grid and the report


def test_labels_say_what_the_support_is():
    for cell in cells():
        broken = cell.labels["rule"] in ("disconnected", "non-compositional")
        assert cell.labels["connected"] is not broken
        assert cell.labels["covered"] is (cell.labels["rule"] != "non-compositional")
    assert len({parts.dataset(Row(c.labels, c.id, {}, {})) for c in cells()}) >= 50
    assert {c.labels["family"] for c in cells()} == set(FAMILIES)


def test_few_programs_are_compiled_and_cells_are_shared_with_other_studies():
    programs = {c.learner.program() for c in cells()}
    assert len(programs) == 2 * len(FAMILIES)
    for preset, shared in (("quick", (16, 4, 8)), ("standard", (24, 6, 27))):
        mine = {c.id for c in STUDY.cells(STUDY.grid(preset))}
        for other, least in zip((Coverage(), Boundary(), GoalsStudy()), shared, strict=True):
            theirs = {c.id for c in other.cells(other.grid(preset))}
            assert len(mine & theirs) >= least, (preset, other.name)


@pytest.mark.parametrize("size", SIZES)
def test_every_family_can_be_asked_for_at_every_size(size):
    grid = STUDY.grid(size, {"families": ",".join(FAMILIES), "seeds": "1"})
    found = part(STUDY.cells(grid))
    assert not found.infeasible and {c.labels["family"] for c in found.cells} == set(FAMILIES)


def test_a_wrong_name_is_refused_before_any_work():
    for wrong in ({"families": "goats"}, {"size": "huge"}):
        with pytest.raises(UnknownName):
            STUDY.cells(STUDY.grid("smoke", wrong))
    with pytest.raises(InvalidRequest):
        STUDY.grid("smoke", {"seeds": "many"})


def test_the_report_counts_what_happened():
    results = lawful_rows()
    words, datasets, failing, ranked, transfer = STUDY.sections(GRID, results)
    assert words.text == quoted(results)
    assert "Over 168 networks on 84 datasets of 4 families" in words.text
    for lost in ("groups never linked", "a value never seen"):
        assert f"of 12 datasets with {lost}, none reached .9 of the seen score" in words.text
    assert words.text.endswith(" of 28 kinds of dataset had nothing to rank.")
    assert [len(table.rows) for table in datasets.tables] == [7] * 4
    assert {row[-1] for table in datasets.tables for row in table.rows} == {"6 of 6"}
    outcome = {row[0]: row[3] for row in failing.tables[0].rows}
    assert outcome["a value never seen"] == outcome["covered, groups never linked"] == 0
    assert outcome["connected, every pair shown"] == 1
    assert len(ranked.tables[0].rows) == 7
    assert [len(table.rows) for table in transfer.tables] == [4, 4]
    assert {row[-1] for row in transfer.tables[0].rows} == {6}
    assert {row[-1] for row in transfer.tables[1].rows} == {7}


def test_what_is_quoted_counts_what_was_left_out():
    told = quoted(made(lawful, seen=lambda labels: 0.5 if labels["seed"] == 2 else 0.97))
    assert "Over 112 networks on 56 datasets" in told and told.endswith(
        "Left out: 56 undertrained."
    )


@pytest.mark.parametrize(("score", "fails"), [(0.96, 6), (0.98, 7), (0.99, 7)])
def test_the_luck_of_a_few_draws_is_shown_beside_what_fails(score, fails):
    def world(labels, new, rng):
        draws = {"goals": 8, "scenes": 16}.get(labels["family"])
        count = len(new.level)
        return np.full(count, score) if draws is None else rng.binomial(draws, score, count) / draws

    rows = made(world, seen=score)
    for family in ("goals", "scenes"):
        chosen = rows.where(family=family)
        found, luck = (np.mean([n(r) for r in chosen]) for n in (parts.failing, parts.failing_seen))
        assert luck == pytest.approx(found, abs=0.01)
    assert np.isnan([parts.failing_seen(row) for row in rows.where(family="additive")]).all()
    goals = rows.where(family="goals", seed=0)
    (shown,) = combination_level(goals).tables[1].rows
    assert shown[0] == "goals"
    assert shown[2] == pytest.approx(stats.binom.cdf(fails, 8, score), abs=0.006)


def test_seen_combinations_that_fail_are_counted_where_they_were_read():
    row = lawful_rows().where(family="scenes")[0]
    reading = row.readings["composition"]
    tables = {**reading.tables, "seen": {"success": [1.0, 0.9, 0.8, 0.5]}}
    other = dataclasses.replace(row, readings={
        "composition": Reading(reading.values, reading.controls, tables)
    })  # fmt: skip
    assert parts.failing_seen(other) == 0.5  # .9 of .97 is .873


def test_the_study_runs_to_a_report_though_nothing_was_learnt(tmp_path):
    request = Request(STUDY, "smoke", {"families": "hyperteacher"})
    outcome = run(request, Session(Store.open(tmp_path / "runs")))
    assert outcome.finished and not outcome.failed and len(outcome.results) == 4
    assert {j.verdict for j in outcome.judgements} == {"not tested here"}
    page = render(report_of(outcome))
    assert "nothing can be said" in page
