"""The claims of the study of sequences, on results made to order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recombine.errors import InvalidRequest
from recombine.families import SEQUENCES, SequenceFamily
from recombine.instruments import Reading
from recombine.lab.judge import Judgement, judge
from recombine.lab.study import Results, Row
from recombine.studies import _sequences as parts
from recombine.studies._sequence_tasks import ANEW, CONFIGURATIONS, MORE, TASKS, model_named
from recombine.studies.sequences import ALL, Grid, Sequences, cell, half_way, on_curves

GRID = Grid(
    tasks=("functions-steps", "tables-steps", "arithmetic", "pcfg", "programs-run"),
    configurations=("learned", "relative"), width=(24, 48), middle=48,
)  # fmt: skip
Numbers = Callable[[dict[str, Any]], dict[str, float]]


def world(labels: dict[str, Any]) -> dict[str, float]:
    """Pieces are put together anew ever better with size, depth is never reached."""
    noise = 0.004 * labels["seed"] % 0.02
    able = 0.93 if labels["width"] == 48 else 0.9
    right = labels["configuration"] == "relative"
    return {"seen": 0.97, "systematicity": able + noise if right else 0.5, "more": 0.02 + noise,
            "ended": 0.2, "validation": 0.5 if right else 0.2}  # fmt: skip


def rows(numbers: Numbers = world, seeds: int = 5) -> Results:
    found = []
    for task in GRID.tasks:
        for configuration in GRID.configurations:
            labels = {"part": "pilot", "configuration": configuration, "width": 48, "seed": 1_000}
            found.append(row({**labels, "task": task}, numbers))
        for width in GRID.width:
            for seed in range(seeds):
                labels = {"part": "final", "configuration": "relative", "width": width}
                found.append(row({**labels, "task": task, "seed": seed}, numbers))
        for seed in range(GRID.usual_seeds):
            labels = {"part": "usual", "configuration": "learned", "width": 48, "seed": seed}
            found.append(row({**labels, "task": task}, numbers))
    return Results(found)


def row(labels: dict[str, Any], numbers: Numbers) -> Row:
    told = numbers(labels)
    values = {"seen": told["seen"], "validation": told["validation"], "validation_surprise": 1.0}
    for split in TASKS[labels["task"]].beyond:
        new = split == "systematicity"
        values[f"unseen_{split}"] = told["systematicity" if new else "more"]
        values[f"unseen_{split}_ended"] = told["systematicity" if new else "ended"]
    unseen = [told["more"], (told["more"] + told["systematicity"]) / 2]
    summary = {
        "evaluations": {"seen": [0.5, told["seen"]], "unseen": unseen},
        "evaluation_steps": [10, 20],
    }
    table = {
        "split": ["seen", "seen", "seen", "unseen_systematicity", "unseen_depth", "unseen_depth"],
        "part": ["depth 1", "depth 2", "depth 2", "", "", ""], "novelty": [0, 0, 1, 1, 1, 2],
        "items": [10, 30, 10, 10, 10, 10], "exact": [1.0, 0.9, 0.5, 0.9, 0.2, 0.0],
        "ended": [1.0, 0.9, 0.5, 0.9, 0.2, 0.0],
    }  # fmt: skip
    reading = Reading(values, {"untrained": {}, "shuffled": {}, "planted": {}}, {"parts": table})
    return Row({**labels, "parameters": 1}, "", summary, {"exact-match": reading})


def judged(results: Results) -> dict[str, Judgement]:
    return {j.claim.name: j for j in judge(Sequences().claims(GRID), results)}


def test_every_claim_finds_what_was_put_in():
    told = judged(rows())
    assert told["functions-steps, systematicity"].verdict == "supported"
    assert told["functions-steps, depth"].verdict == "refuted"
    for name in ("size helps beyond training", "also half-way", "also at matched seen score",
                 "size closes the gap", "configuration matters", "anew is easier than more",
                 "knowing the end helps"):  # fmt: skip
        assert told[name].verdict == "supported", name


def test_without_an_effect_nothing_is_supported():
    def flat(labels):
        noise = 0.01 * ((labels["seed"] * 7 + labels["width"]) % 5 - 2)
        return {"seen": 0.97, "systematicity": 0.3 + noise, "more": 0.3 - noise,
                "ended": 0.3 - noise, "validation": 0.5}  # fmt: skip

    told = judged(rows(flat))
    assert {j.verdict for name, j in told.items() if "," in name} == {"refuted"}
    assert "supported" not in {j.verdict for j in told.values()}


def test_lucky_pilots_do_not_make_a_configuration_better():
    def lucky(labels):  # what was chosen did well on its pilot seed, and no better on others
        found = {**world(labels), "systematicity": 0.5, "more": 0.1}
        pilot = labels["part"] == "pilot" and labels["configuration"] == "relative"
        return {**found, "systematicity": 0.9, "more": 0.5} if pilot else found

    assert judged(rows(lucky))["configuration matters"].verdict == "refuted"


def test_a_configuration_is_compared_only_where_another_was_chosen():
    def usual(labels):  # all finals in the usual configuration
        return world({**labels, "configuration": "learned"})

    def relabelled(results: Results) -> Results:
        finals = [Row({**r.labels, "configuration": "learned"}, r.cell, r.summary, r.readings)
                  for r in results.where(part="final")]  # fmt: skip
        return Results([*results.where(part="pilot"), *finals])

    claim = judged(relabelled(rows(usual)))["configuration matters"]
    assert claim.verdict == "not tested here" and "nothing is compared" in claim.note


def test_a_task_without_its_data_has_no_further_cells():
    there = Results([r for r in rows() if r.labels["task"] != "pcfg"])
    tasks = {c.labels["task"] for c in Sequences().next_cells(GRID, there, 1)}
    assert tasks == set(GRID.tasks) - {"pcfg"}


def test_an_end_that_hardly_ever_helps_is_no_help():
    told = judged(rows(lambda labels: {**world(labels), "more": 0.02, "ended": 0.022}))
    assert told["knowing the end helps"].verdict == "refuted"


def test_curves_that_hold_more_than_the_task_names_are_not_compared():
    assert not TASKS["strings"].curves
    labels = {"task": "strings", "width": 48, "seed": 0}
    told = Row(labels, "", {"evaluations": {"seen": [0, 1], "unseen": [0, 1]},
                            "evaluation_steps": [0, 1]}, {})  # fmt: skip
    assert np.isnan(on_curves(half_way)(told))
    assert on_curves(half_way)(Row({**labels, "task": "pcfg"}, "", told.summary, {})) == 1


def test_structures_of_cogs_count_neither_as_anew_nor_as_more():
    assert parts.of_kind("cogs", ANEW) == ["lexical"] and parts.of_kind("cogs", MORE) == []


def test_functions_are_drawn_anew_for_each_seed():
    made = [cell(GRID, "final", "tables-steps", "learned", 24, seed).learner for seed in (0, 1)]
    assert [one.family.content for one in made] == [0, 1]


def test_networks_that_did_not_learn_their_task_speak_for_nothing():
    told = judged(rows(lambda labels: {**world(labels), "seen": 0.8}))
    assert {j.verdict for j in told.values()} == {"not tested here"}
    some = judged(
        rows(lambda labels: {**world(labels), "seen": 0.97 - 0.1 * (labels["seed"] == 0)})
    )
    claim = some["functions-steps, depth"]
    assert claim.verdict == "refuted" and "1 below .9" in claim.note


def test_networks_that_diverged_speak_for_nothing_and_are_counted():
    def broken(one: Row) -> Row:
        lost = one.labels["part"] == "final" and one.labels["seed"] == 0
        summary = {**one.summary, "diverged_at": 10} if lost else one.summary
        return Row(one.labels, one.cell, summary, one.readings)

    told = judged(Results([broken(one) for one in rows()]))
    for name in ("functions-steps, depth", "size helps beyond training"):
        assert told[name].interval is not None and told[name].interval.units == 4
        assert "diverged" in told[name].note and "below .9" not in told[name].note


def test_what_was_left_out_is_told_of_the_sizes_that_are_compared():
    grid = replace(GRID, width=(24, 36, 48))
    middle = {"part": "final", "configuration": "relative", "width": 36, "seed": 0}
    extra = [row({**middle, "task": task}, lambda labels: {**world(labels), "seen": 0.5})
             for task in grid.tasks]  # fmt: skip
    found = judge(Sequences().claims(grid), Results([*rows(), *extra]))
    note = {j.claim.name: j.note for j in found}["size helps beyond training"]
    assert note == "Up to 5 tasks a seed that both sizes learnt."


def test_a_task_that_was_not_trained_is_not_said_to_be_unlearnt():
    there = Results([one for one in rows() if one.labels["task"] != "pcfg"])
    assert "not learnt" not in judged(there)["configuration matters"].note
    unlearnt = judged(rows(lambda labels: {**world(labels), "seen": 0.5}))
    note = unlearnt["configuration matters"].note
    assert note.startswith("Tasks: only 0 usable") and "5 tasks that were not learnt." in note
    assert not [j.note for j in unlearnt.values() if ".:" in j.note]


def test_the_configuration_is_chosen_on_validation_items_alone():
    def tempting(labels):  # better beyond training, worse on validation items
        found = world(labels)
        return {**found, "systematicity": 0.1 if found["validation"] == 0.5 else 0.9}

    assert parts.best(rows(tempting), "arithmetic", GRID.configurations) == "relative"

    def unlearnt(labels):
        return {**world(labels), "seen": 0.5 if labels["configuration"] == "relative" else 0.95}

    assert parts.best(rows(unlearnt), "arithmetic", GRID.configurations) == "learned"


def test_the_report_shows_every_task_and_configuration():
    sections = Sequences().sections(GRID, rows())
    assert [s.title for s in sections] == [
        "What size buys", "How far beyond training", "Configurations"
    ]  # fmt: skip
    shown = {row[0]: row for row in sections[0].tables[0].rows}
    assert set(shown) == set(GRID.tasks)
    assert "depth 0.03" in shown["arithmetic"][4] and "depth 0.20" in shown["arithmetic"][5]
    assert "systematicity" not in shown["arithmetic"][5]
    assert len(shown["arithmetic"]) == 6  # none of these tasks has variables to be numbered
    kinds = {tuple(row[:2]): row[2:] for row in sections[0].tables[1].rows}
    assert kinds[GRID.tasks[0], "depth 1"] == [1.0] * len(GRID.width)
    assert kinds[GRID.tasks[0], "depth 2"] == pytest.approx([0.8] * len(GRID.width))


def test_the_report_says_which_answers_need_not_be_exact():
    def note(*tasks: str) -> str:
        grid = replace(GRID, tasks=tasks)
        return Sequences().sections(grid, rows())[0].tables[0].note

    assert "need not be exact" not in note("arithmetic")
    assert "to programs-write if right by what they do, to zebra if right in the end" in note(
        "arithmetic", "programs-write", "zebra"
    )


@pytest.mark.parametrize("name", TASKS)
def test_a_task_names_the_splits_its_family_has(name):
    task = TASKS[name]
    assert task.family in SEQUENCES
    if task.family in ("cogs", "zebra"):
        pytest.skip("its corpus is fetched, or takes seconds; other tests make it")
    family = task.made(small=True)
    assert isinstance(family, SequenceFamily)
    beyond = family.corpus(0).beyond
    assert set(task.beyond) <= set(beyond)


@pytest.mark.parametrize("name", [name for name in ALL if TASKS[name].curves])
def test_a_curve_of_what_is_beyond_training_holds_just_the_splits_that_are_claimed(name):
    task = TASKS[name]
    if task.family == "cogs":
        pytest.skip("its corpus is fetched; other tests make it")
    few = {field: count for field, count in task.small.items() if field.endswith("_items")}
    if task.family == "zebra":
        few = dict.fromkeys(few, 100)  # puzzles take a while to draw
    assert set(replace(task.made(small=False), **few).corpus(0).beyond) == set(task.beyond)


def test_every_configuration_can_be_drawn():
    models = [model_named(name, 32, 2, 16) for name in CONFIGURATIONS]
    assert len({m.kin for m in models}) < len(set(models)) == len(models)
    assert all(np.isfinite(m.parameters(16, 16)) for m in models)


def test_every_configuration_can_be_typed():
    typed = Sequences().grid("quick", {"configurations": ",".join(CONFIGURATIONS)})
    assert typed.configurations == tuple(CONFIGURATIONS)


@pytest.mark.parametrize("width", ["24,0", "24,50"])
def test_a_width_that_cannot_be_is_refused_before_pilots_train(width):
    study = Sequences()
    with pytest.raises(InvalidRequest, match=r"0: expected at least 1|multiple of 12, got 50"):
        study.cells(study.grid("smoke", {"width": width}))


def test_a_task_far_from_learnt_on_pilot_seeds_is_trained_no_further():
    def hopeless(labels):
        return {**world(labels), "seen": 0.4 if labels["task"] == "pcfg" else 0.97}

    grid = replace(GRID, pilot_floor=0.6)
    everything = rows(hopeless)
    pilots = everything.where(part="pilot")
    trained = {cell.labels["task"] for cell in Sequences().next_cells(grid, pilots, 1)}
    assert trained == set(GRID.tasks) - {"pcfg"}
    found = Results([r for r in everything if r in pilots or r.labels["task"] != "pcfg"])
    told = {j.claim.name: j for j in judge(Sequences().claims(grid), found)}
    assert told["pcfg, systematicity"].verdict == "not tested here"
    assert "0.40 at most" in told["pcfg, systematicity"].note
    assert told["arithmetic, systematicity"].verdict == "supported"
    sections = parts.sections(grid, found)
    assert any("pcfg was trained no further" in section.text for section in sections)
    # Without a floor all go on.
    everywhere = {cell.labels["task"] for cell in Sequences().next_cells(GRID, pilots, 1)}
    assert everywhere == set(GRID.tasks)


def test_widths_between_the_ends_have_fewer_seeds_and_the_usual_one_no_more_than_they():
    grid = replace(GRID, width=(16, 32, 48), middle=32, between_seeds=1)
    cells = Sequences().next_cells(grid, rows().where(part="pilot"), 1)
    seeds: dict[tuple[str, int], set[int]] = {}
    for one in cells:
        if one.labels["task"] == "pcfg":
            place = (one.labels["part"], one.labels["width"])
            seeds.setdefault(place, set()).add(one.labels["seed"])
    assert {place: len(some) for place, some in seeds.items()} == {
        ("final", 16): 5, ("final", 32): 1, ("final", 48): 5, ("usual", 32): 1,
    }  # fmt: skip
    assert len(cells) <= Sequences().most_further_cells(grid)


def test_means_over_tasks_say_which_tasks_were_left_at_their_pilots():
    grid = replace(GRID, tasks=(*GRID.tasks, "subsequence"), pilot_floor=0.6)
    labels = {"part": "pilot", "task": "subsequence", "width": 48, "seed": 1_000}
    hopeless = [row({**labels, "configuration": name}, lambda told: {**world(told), "seen": 0.4})
                for name in grid.configurations]  # fmt: skip
    told = {
        j.claim.name: j.note for j in judge(Sequences().claims(grid), Results([*rows(), *hopeless]))
    }
    left = "Trained no further than pilots: subsequence."
    for name in ("size helps beyond training", "also half-way", "size closes the gap",
                 "configuration matters", "knowing the end helps"):  # fmt: skip
        assert left in told[name], name
    # A task that has nothing put together anew is not missing where both kinds are compared.
    assert left not in told["anew is easier than more"]
    assert not any("Trained no further" in j.note for j in judged(rows()).values())


def test_configurations_are_compared_on_the_same_seeds_and_without_what_diverged():
    def uneven(labels):  # seed 1 is far easier, for whatever is trained on it
        return {**world(labels), "systematicity": 0.9 if labels["seed"] else 0.1, "more": 0.0}

    whole = rows(uneven)
    claim = judged(whole)["configuration matters"]
    assert claim.interval and claim.interval.estimate == pytest.approx(0)
    gone = {"part": "final", "width": 48, "seed": 1}
    broken = [replace(r, summary={**r.summary, "diverged_at": 7}) if r in whole.where(**gone) else r
              for r in whole]  # fmt: skip
    stopped = [r for r in whole if r not in whole.where(**gone)]
    for some in (broken, stopped):
        claim = judged(Results(some))["configuration matters"]
        assert claim.interval and claim.interval.estimate == pytest.approx(0)


def test_the_conclusion_counts_ways_of_going_beyond_training():
    told = judged(rows())
    said = Sequences().conclusion(list(told.values()))
    anew, more = (
        [j for t in GRID.tasks for split, kind in TASKS[t].beyond.items()
         if kind == new and (j := told[f"{t}, {split}"])]
        for new in (ANEW, MORE)
    )  # fmt: skip
    shown = sum(j.verdict == "supported" for j in anew)
    assert shown
    assert f"{shown} of the {len(anew)} ways tested of putting known pieces together anew" in said
    assert f"0 of the {len(more)} ways tested of having more of them than ever" in said
    refuted = sum(j.verdict == "refuted" for j in told.values())
    assert f"Of {len(told)} claims tested" in said and f", {refuted} refuted" in said
    nothing = Sequences().conclusion(list(judged(Results([])).values()))
    assert nothing == "Nothing was tested at this size."
