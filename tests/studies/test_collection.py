"""Study collection on scores made to order, and from plan to report at its smallest size."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from recombine.errors import InvalidRequest, UnknownName
from recombine.instruments import Reading
from recombine.instruments.uncertainty import Uncertainty
from recombine.lab.execute import Session
from recombine.lab.judge import Judgement, judge
from recombine.lab.plan import part
from recombine.lab.run import Request, run
from recombine.lab.store import Store
from recombine.lab.study import Cell, Results, Row
from recombine.report.document import Report
from recombine.report.html import render
from recombine.report.study import write_report
from recombine.studies import _collection as parts
from recombine.studies.collection import ALL, Collection
from recombine.supports import Collected

STUDY = Collection()
EVERY = ("hyperteacher", "scenes", "chains")
GRID = dataclasses.replace(STUDY.grid("quick"), families=EVERY, sketched=(), budgets=())
NEW = {"nothing": 0.0, "more of the same": 0.0}  # what a strategy brings, else .2

Told = Callable[[dict[str, Any]], float]


def plain(labels: dict[str, Any]) -> float:
    """Any new combination helps, whichever it is."""
    return 0.5 + NEW.get(labels["strategy"], 0.2)


def by_start(labels: dict[str, Any]) -> float:
    """`collect` helps most, but for random starts."""
    better = labels["strategy"] == "collect" and labels["start"] != "random"
    return plain(labels) + 0.1 * better


def backwards(labels: dict[str, Any]) -> float:
    """`collect` harms wherever one begins, and more of the same is best."""
    return 0.5 - 0.1 * (labels["strategy"] == "collect") + 0.3 * (
        labels["strategy"] == "more of the same"
    )  # fmt: skip


def lost(seen: float) -> Callable[[], np.ndarray]:
    """The training losses of a network that learnt, or did not."""
    return lambda: np.array([2.0, 0.0003 if seen >= 0.9 else 0.5])


def row(grid: parts.Grid, cell: Cell, told: Told, seen: float = 0.97) -> Row:
    """A network that scores what it is told to, give or take what differs between seeds."""
    labels = dict(cell.labels)
    kind = parts.KINDS[labels["family"]]
    rng = np.random.default_rng([labels["seed"], parts.STARTS.index(labels["start"])])
    unseen = told(labels) + 0.05 * rng.normal()  # the same for all strategies of a seed
    unseen += 0.003 * np.random.default_rng(int(cell.id[:8], 16)).normal()
    values = {"seen": seen, kind.unseen: unseen}
    controls = {
        "untrained": {kind.unseen: -1.5 if kind.metric == "R²" else 0.0},
        "shuffled": {"seen": 0.0},
        "planted": {"seen": 1.0},
    }
    readings = {kind.instrument: Reading(values, controls)}
    for instrument in cell.instruments[1:]:
        first = parts.rule(grid, labels["family"], labels["start"], "nothing", 0)
        seed = labels["seed"]
        own = parts.Chains.support_seed(seed) if labels["family"] == "chains" else (
            parts.host_seed(seed, "support")
        )  # fmt: skip
        pool = first.parts(parts.space(grid, labels["family"]), own)[1]
        table = {"rank": pool.tolist(), "disagreement": np.arange(len(pool)).tolist()}
        told_apart = {"disagreement": 0.3, "warranted": 0.4}
        readings[instrument.name] = Reading(
            told_apart, {name: {"warranted": 0.1} for name in instrument.controls}, {"pool": table}
        )
    summary = {"diverged_at": None, "evaluation_steps": [], "evaluations": {}}
    return Row(labels, cell.id, summary, readings, losses=lost(seen))


def made(told: Told, grid: parts.Grid = GRID, seen: float = 0.97) -> Results:
    """Both rounds."""
    first = [row(grid, cell, told, seen) for cell in part(STUDY.cells(grid)).cells]
    second = STUDY.next_cells(grid, Results(first), 1)
    return Results([*first, *(row(grid, cell, told, seen) for cell in second)])


def judged(results: Results, grid: parts.Grid = GRID) -> dict[str, Judgement]:
    return {j.claim.name: j for j in judge(STUDY.claims(grid), results)}


@pytest.fixture(scope="module")
def good() -> dict[str, Judgement]:
    return judged(made(by_start))


@pytest.fixture(scope="module")
def bad() -> dict[str, Judgement]:
    return judged(made(backwards))


@pytest.mark.parametrize("family", [*EVERY, ALL])
@pytest.mark.parametrize(
    "claim", ["disconnected start", "correlated start", "unpopular start", "expected null: random "
              "start", "more of the same helps less", "as good as the best"],
)  # fmt: skip
def test_a_claim_holds_where_it_was_made_to_and_breaks_where_it_was_not(claim, family, good, bad):
    name = f"{claim}, {family}"
    assert (good[name].verdict, bad[name].verdict) == ("supported", "refuted")


def test_uncertainty_is_measured_against_collect_with_its_sign(good):
    one, over = (
        good["uncertainty against collect, chains"],
        good[f"uncertainty against collect, {ALL}"],
    )
    # Worse by .1 from three of four starts, equal from the random one: the farthest is judged.
    for found in (one, over):
        assert found.interval is not None
        assert found.interval.estimate == pytest.approx(-0.1, abs=0.01)
        assert found.verdict == "refuted" and "Farthest: " in found.note
    alike = judged(made(plain))[f"uncertainty against collect, {ALL}"]
    assert alike.verdict == "supported"


def test_where_nothing_differs_nothing_is_gained_and_the_null_holds():
    found = judged(made(plain))
    for family in (*EVERY, ALL):
        assert found[f"disconnected start, {family}"].verdict == "refuted"
        assert found[f"expected null: random start, {family}"].verdict == "supported"
        assert found[f"as good as the best, {family}"].verdict == "supported"


def test_undertrained_networks_speak_neither_for_nor_against():
    assert {j.verdict for j in judged(made(by_start, seen=0.89)).values()} == {"not tested here"}


def test_the_undertrained_are_counted_and_the_others_still_speak():
    results = made(by_start)
    lost = [
        dataclasses.replace(r, readings={
            name: dataclasses.replace(reading, values={**reading.values, "seen": 0.5})
            for name, reading in r.readings.items()
        }) if r.labels["seed"] == 4 and r.labels["strategy"] == "collect" else r
        for r in results
    ]  # fmt: skip
    found = judged(Results(lost))["disconnected start, hyperteacher"]
    assert found.interval is not None and found.interval.units == 4
    assert "Left out: 1 undertrained." in found.note and "five are needed" in found.note


def test_chains_that_know_what_they_were_shown_count_whatever_else_they_are_asked(even):
    narrow = edited(even, lambda labels, unseen: {"seen": 0.6})
    known = Results([dataclasses.replace(r, losses=lost(1.0)) for r in narrow])
    assert all(parts.trained(r) == (r.labels["family"] == "chains") for r in known)


def test_everywhere_means_also_where_it_is_least():
    def but_one(labels: dict[str, Any]) -> float:
        place = (labels["family"], labels["start"]) == ("scenes", "unpopular")
        return plain(labels) + 0.4 * (place and labels["strategy"] == "more of the same")

    found = judged(made(but_one))
    over = found[f"more of the same helps less, {ALL}"]
    assert over.verdict == "refuted" and "Least: scenes, unpopular start, of 12 places" in over.note
    assert found["more of the same helps less, hyperteacher"].verdict == "supported"


def edited(results: Results, change: Callable[[dict[str, Any], str], dict[str, float]]) -> Results:
    """The same networks with other scores; `change` is told the labels and the unseen metric."""
    found = []
    for one in results:
        kind = parts.KINDS[one.labels["family"]]
        reading = one.readings[kind.instrument]
        values = {**reading.values, **change(dict(one.labels), kind.unseen)}
        changed = {**one.readings, kind.instrument: dataclasses.replace(reading, values=values)}
        found.append(dataclasses.replace(one, readings=changed, losses=lost(values["seen"])))
    return Results(found)


def jitter(labels: dict[str, Any]) -> float:
    """Noise of .002, another for each network."""
    names = ("nothing", "uncertainty", *parts.STRATEGIES)
    place = [names.index(labels["strategy"]), labels["seed"], parts.STARTS.index(labels["start"])]
    return 0.002 * float(np.random.default_rng(place).normal())


@pytest.fixture(scope="module")
def even() -> Results:
    return made(plain)


@pytest.mark.parametrize(
    ("level", "why"), [(0.995, "no room"), (0.03, "nothing learnt")], ids=["ceiling", "floor"]
)
def test_at_a_ceiling_or_a_floor_no_claim_speaks(even, level, why):
    found = judged(edited(even, lambda labels, unseen: {unseen: level + jitter(labels)}))
    assert {j.verdict for j in found.values()} == {"not tested here"}
    assert all(why in j.note for j in found.values())


def test_what_reaches_the_top_from_where_there_was_room_still_speaks(even):
    def change(labels: dict[str, Any], unseen: str) -> dict[str, float]:
        top = {"collect": 0.995, "nothing": 0.0, "more of the same": 0.0}
        return {unseen: top.get(labels["strategy"], 0.6) + jitter(labels)}

    found = judged(edited(even, change))
    assert found[f"disconnected start, {ALL}"].verdict == "supported"
    assert found[f"more of the same helps less, {ALL}"].verdict == "supported"


def test_a_family_without_room_is_left_out_and_named(even):
    def change(labels: dict[str, Any], unseen: str) -> dict[str, float]:
        full = labels["family"] == "chains"
        gain = 0.1 * (labels["strategy"] == "collect")
        return {unseen: (0.99 if full else 0.6 + gain) + jitter(labels)}

    found = judged(edited(even, change))
    over = found[f"disconnected start, {ALL}"]
    assert over.verdict == "supported"
    for words in ("hyperteacher +0.", "scenes +0.", "Without: chains, disconnected start",
                  "no room: 'random' already has 0.99"):  # fmt: skip
        assert words in over.note
    alone = found["disconnected start, chains"]
    assert alone.verdict == "not tested here" and "no room" in alone.note


def test_a_place_too_uncertain_to_tell_is_not_hidden_by_one_with_a_smaller_mean(even):
    def change(labels: dict[str, Any], unseen: str) -> dict[str, float]:
        score = {"more of the same": 0.5, "random": 0.51 + 0.001 * labels["seed"]}
        if (labels["family"], labels["start"]) == ("scenes", "random"):
            score["random"] = 0.53 + (-0.2, 0.25, -0.15, 0.2, 0.0)[labels["seed"]]
        return {unseen: score.get(labels["strategy"], 0.6)}

    found = judged(edited(even, change))[f"more of the same helps less, {ALL}"]
    assert found.verdict == "inconclusive" and "Least: scenes, random start" in found.note


def test_a_place_that_refutes_is_not_hidden_by_one_that_is_more_uncertain(even):
    def change(labels: dict[str, Any], unseen: str) -> dict[str, float]:
        score = {"more of the same": 0.5, "random": 0.6 + 0.001 * labels["seed"]}
        if (labels["family"], labels["start"]) == ("scenes", "random"):
            score["random"] = 0.53 + (-0.2, 0.25, -0.15, 0.2, 0.0)[labels["seed"]]
        if (labels["family"], labels["start"]) == ("chains", "random"):
            score["random"] -= 0.12
        return {unseen: score.get(labels["strategy"], 0.6)}

    found = judged(edited(even, change))[f"more of the same helps less, {ALL}"]
    assert found.verdict == "refuted" and "Least: chains, random start" in found.note


def test_a_claim_about_every_place_is_not_supported_by_some_of_them():
    results = made(by_start)

    def some(labels: dict[str, Any], unseen: str) -> dict[str, float]:
        lost = labels["family"] == "chains" or (
            labels["family"] == "scenes" and labels["start"] != "random"
        )
        return {"seen": 0.5} if lost else {}

    found = judged(edited(results, some))
    for name in ("more of the same helps less", "as good as the best"):
        over = found[f"{name}, {ALL}"]
        assert over.verdict == "inconclusive"
        assert "chains, unpopular start (too few trained networks)" in over.note
        assert "scenes, disconnected start" in over.note
    worse = {"more of the same": 0.9, "random": 0.5, "collect": 0.3}
    harmed = edited(
        edited(results, some),
        lambda labels, unseen: {unseen: worse.get(labels["strategy"], 0.5) + jitter(labels)},
    )
    # One place is enough to refute what is said of every place.
    assert judged(harmed)[f"as good as the best, {ALL}"].verdict == "refuted"


def test_one_family_does_not_speak_for_all(even):
    found = judged(edited(even, lambda labels, unseen: (
        {} if labels["family"] == "hyperteacher" else {"seen": 0.5}
    )))  # fmt: skip
    for name, judgement in found.items():
        if name.endswith(ALL):
            assert judgement.verdict == "not tested here"
            assert "Needs two families" in judgement.note


def test_a_mean_over_families_that_one_of_them_carries_supports_nothing(even):
    def change(labels: dict[str, Any], unseen: str) -> dict[str, float]:
        first, name = labels["family"] == "hyperteacher", labels["strategy"]
        gain = (0.5 if first else -0.05) if name == "collect" else 0.0
        return {unseen: 0.4 + gain + jitter(labels)}

    found = judged(edited(even, change))
    over = found[f"disconnected start, {ALL}"]
    assert over.interval is not None and over.interval.estimate > 0.1
    assert over.verdict == "inconclusive"
    for words in ("hyperteacher +0.", "scenes -0.0", "No gain in scenes, chains"):
        assert words in over.note
    assert found["disconnected start, hyperteacher"].verdict == "supported"


def test_differences_that_cancel_over_starts_or_families_are_not_small(even):
    def change(labels: dict[str, Any], unseen: str) -> dict[str, float]:
        up = labels["start"] == "unpopular" or (
            labels["start"] == "random" and labels["family"] == "scenes"
        )
        unsure = (0.3 if up else -0.3) * (labels["strategy"] == "uncertainty")
        swing = {"scenes": 0.1, "chains": -0.1}.get(labels["family"], 0.0)
        null = swing * (labels["start"] == "random") * (labels["strategy"] == "collect")
        return {unseen: 0.5 + unsure + null + jitter(labels)}

    found = judged(edited(even, change))
    for family in ("scenes", ALL):
        assert found[f"uncertainty against collect, {family}"].verdict == "refuted"
    null = found[f"expected null: random start, {ALL}"]
    assert null.verdict == "refuted" and "Farthest: " in null.note


def test_what_undertrained_networks_are_unsure_of_does_not_count(even):
    def change(labels: dict[str, Any], unseen: str) -> dict[str, float]:
        return {"seen": 0.5} if labels["strategy"] == "nothing" and labels["seed"] == 0 else {}

    found = judged(edited(even, change))["uncertainty against collect, chains"]
    assert found.interval is not None and found.interval.units == 4
    assert "Left out: 4 undertrained." in found.note


def test_the_best_of_equals_is_not_better_than_they_are(even):
    """All strategies alike, with noise: the best by its own scores would win by about one sd."""
    rng = np.random.default_rng(0)
    means = []
    for _ in range(20):
        noisy = edited(even, lambda labels, unseen: {unseen: 0.6 + 0.04 * rng.normal()})
        claims = [c for c in STUDY.claims(GRID) if c.name == "as good as the best, hyperteacher"]
        (found,) = judge(claims, noisy)
        assert found.interval is not None
        means.append(found.interval.estimate)
    # Chosen by its own mean, the best of four would lie 1.03 * .04 / sqrt(5) = .018 higher.
    assert abs(np.mean(means)) < 0.009


def test_the_best_strategy_is_found_for_each_start():
    def rival(labels: dict[str, Any]) -> float:
        best = {"disconnected": "pairwise", "random": "balanced"}.get(labels["start"])
        return plain(labels) + 0.2 * (labels["strategy"] == best)

    found = judged(made(rival))["as good as the best, chains"]
    assert found.interval is not None
    assert found.interval.estimate == pytest.approx(-0.1, abs=0.01)


def test_what_a_preset_lacks_is_not_tested_there():
    quick = STUDY.grid("quick")
    found = judged(made(by_start, quick), quick)
    assert found["disconnected start, hyperteacher"].verdict == "supported"
    assert found[f"disconnected start, {ALL}"].verdict == "supported"
    for name in ("disconnected start, scenes", "random start, chains", "best, chains"):
        claim = next(j for key, j in found.items() if key.endswith(name))
        assert claim.verdict == "not tested here" and "at this size" in claim.note
    alone = found[f"unpopular start, {ALL}"]
    assert alone.verdict == "not tested here" and "Needs two families" in alone.note


def test_every_strategy_buys_as_many_new_combinations_and_is_asked_the_same():
    for cell in STUDY.cells(GRID):
        labels = cell.labels
        if labels["seed"] or labels["strategy"] == "nothing":
            continue
        place = (labels["family"], labels["start"])
        rules = {name: parts.rule(GRID, *place, name, labels["budget"] if name != "nothing" else 0)
                 for name in ("nothing", labels["strategy"])}  # fmt: skip
        found = {name: parts.support(GRID, place[0], 0, rule) for name, rule in rules.items()}
        first, grown = found["nothing"], found[labels["strategy"]]
        assert np.array_equal(first.tested, grown.tested)
        assert len(grown.drawn) - len(first.drawn) == labels["budget"]
        same = labels["strategy"] == "more of the same"
        assert len(grown.seen) - len(first.seen) == (0 if same else labels["budget"])


def test_the_second_round_collects_what_the_networks_disagreed_on_most():
    first = Results([row(GRID, cell, plain) for cell in part(STUDY.cells(GRID)).cells])
    cells = STUDY.next_cells(GRID, first, 1)
    assert len(cells) == STUDY.most_further_cells(GRID) == 3 * 4 * 5
    assert STUDY.next_cells(GRID, first, 2) == []
    for cell in cells:
        family = cell.labels["family"]
        owner: Any = cell.learner.family if family == "chains" else cell.learner  # pyright: ignore
        assert isinstance(owner.support, Collected) and owner.support.chosen is not None
        place = {name: cell.labels[name] for name in ("family", "start", "seed")}
        (begun,) = first.where(strategy="nothing", **place)
        ranks = begun.readings["uncertainty"].tables["pool"]["rank"]  # the last ones, as made
        assert list(owner.support.chosen) == ranks[-parts.new(GRID, family, GRID.budget) :]


def test_networks_are_asked_about_everything_that_may_be_collected():
    grid = STUDY.grid("paper", {"seeds": "1"})
    for cell in STUDY.cells(grid):
        for instrument in cell.instruments:
            if isinstance(instrument, Uncertainty):
                place = cell.labels["family"], cell.labels["start"]
                rule = parts.rule(grid, *place, "nothing", 0)
                _, pool, _ = rule.parts(parts.space(grid, place[0]), 0)
                assert len(pool) <= instrument.combinations


def test_the_networks_of_a_family_share_one_program():
    for preset in ("smoke", "quick", "standard", "paper"):
        grid = STUDY.grid(preset)
        cells = part(STUDY.cells(grid))
        assert not cells.infeasible, cells.infeasible[0][1]
        programs: dict[str, set[Any]] = {}
        for cell in cells.cells:
            if cell.labels["seed"] == 0:
                found = (cell.learner.program(), cell.learner.shard())
                programs.setdefault(cell.labels["family"], set()).add(found)
        assert {family: len(found) for family, found in programs.items()} == dict.fromkeys(
            grid.families, 1
        )


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"families": "scene"}, UnknownName, "scenes"),
        ({"strategies": "randon"}, UnknownName, "random"),
        ({"budget": "0"}, InvalidRequest, "such as 0.5"),
        ({"networks": "2"}, InvalidRequest, "3 or more"),
    ],
)
def test_a_wrong_setting_is_refused_before_any_work(settings, error, words):
    with pytest.raises(error, match=words):
        STUDY.cells(STUDY.grid("quick", settings))


def shown(results: Results, grid: parts.Grid) -> str:
    sections = STUDY.sections(grid, results)
    return render(Report("collection", "t", "q?", "s", "quick", "v", sections=sections))


def test_a_report_shows_every_family_start_and_strategy():
    grid = dataclasses.replace(GRID, seeds=2, budgets=(0.25, 1.0))
    page = shown(made(by_start, grid), grid)
    for words in (*EVERY, *parts.STARTS, *grid.strategies, "what networks disagree on",
                  "least used", "How much to collect", "what they do not know"):  # fmt: skip
        assert words.lower() in page.lower(), words


def test_the_conclusion_names_the_verdicts_of_all_families(good):
    told = STUDY.conclusion(list(good.values()))
    assert told.count("supported") == 4 and "(+0.1" in told


@pytest.mark.slow
def test_the_smallest_size_runs_from_plan_to_report_and_a_second_run_does_nothing(tmp_path):
    store = Store.open(tmp_path / "runs")
    request = Request(STUDY, "smoke")
    outcome = run(request, Session(store))
    assert outcome.finished and not outcome.failed
    assert {row.labels["strategy"] for row in outcome.results} >= {"uncertainty", "collect"}
    page, numbers = write_report(store, outcome)
    first = page.read_bytes(), numbers.read_bytes()
    done = store.ids("cell"), store.ids("reading")
    write_report(store, run(request, Session(store)))
    assert (store.ids("cell"), store.ids("reading")) == done
    assert (page.read_bytes(), numbers.read_bytes()) == first
    assert len(json.loads(first[1])["claims"]) == 28
