"""The claims of the study of subnetworks, on results made to order, and its smallest run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recombine.errors import InvalidRequest
from recombine.instruments import Reading
from recombine.lab.judge import Judgement, judge
from recombine.lab.study import Results, Row
from recombine.learners.continued import Continued
from recombine.learners.masks import MaskLearner
from recombine.learners.supervised import Supervised
from recombine.studies.subnetworks import (
    CONTROLS,
    FAMILIES,
    Grid,
    SubnetworksStudy,
    conditions,
    dosed_conditions,
    odd_network,
    student,
)

GRID = Grid(pretraining=100, dose=(1 / 16, 1 / 4, 1.0), controls=CONTROLS,
            width=(32, 64))  # fmt: skip


Scores = tuple[float, float]  # own part, other part
SPARED = 0.95


def row(
    left: Scores, labels: dict[str, Any], random: Scores, whole: float = 1.0, learnt: float = 1.0,
    beside: float = 1.0, kept: int = 1,
) -> Row:  # fmt: skip
    """A reading from what is left without the mask, and without as many weights at random."""
    chance = 0.0 if labels["task"] == "modules" else 0.25

    def differences(scores: Scores) -> dict[str, float]:
        own, other = np.maximum(scores, chance)
        return {"ablation": float(own - other), "ablation_raw": scores[0] - scores[1],
                "ablation_own": scores[0], "ablation_other": scores[1]}  # fmt: skip

    values = {
        **differences(left), "whole_own": whole, "whole_other": whole,
        "subnetwork_own": 1.0, "subnetwork_other": 0.3, "learnt": learnt, "density": 0.1,
        "overlap": 0.1, "overlap_by_chance": 0.05,
    }  # fmt: skip
    controls = {
        "random": differences(random), "complement": differences((beside, whole)),
        "planted": differences((chance, whole)),
    }  # fmt: skip
    table = {"layer": ["hidden/0", "hidden/1"], "weights": [10, 90], "kept": [kept, 9],
             "density": [kept / 10, 0.1]}  # fmt: skip
    summary = {"evaluations": {}, "evaluation_steps": [], "diverged_at": None}
    reading = Reading(values, controls, {"layers": table})
    return Row(labels, "cell", summary, {"subnetworks": reading})


def made(score: Callable[[dict[str, Any]], tuple[Scores, Scores]], **more: float) -> Results:
    """Results of the whole grid, from what each mask's labels leave of the two parts."""
    found = []
    for task, widths in (("fields", (0,)), ("modules", GRID.width)):
        alone = ["scratch", *dosed_conditions(GRID), "untrained"]
        for condition in conditions(GRID, "fields") if task == "fields" else alone:
            for width in widths:
                for seed in range(5):
                    for rule in range(2):
                        labels = {"kind": task, "task": task, "condition": condition,
                                  "width": width, "seed": seed, "rule": rule,
                                  "mask_seed": 0}  # fmt: skip
                        left, random = score(labels)
                        found.append(row(left, labels, random, **more))  # type: ignore[arg-type]
    return Results(found)


def rows(
    by_condition: dict[str, float], random: Scores = (0.9, 0.9), other: float = SPARED,
    **more: float,
) -> Results:  # fmt: skip
    """Networks whose other rule is spared, and their own lower by what is given."""
    rng = np.random.default_rng(0)

    def score(labels: dict[str, Any]) -> tuple[Scores, Scores]:
        if labels["condition"] == "untrained":
            return (0.25, 0.25), (0.25, 0.25)
        value = by_condition[labels["condition"]] + 0.01 * rng.normal()
        value -= 0.1 * (labels["width"] == 64)
        return (other + value, other), random

    return made(score, **more)


PARTED = {"planted": -0.7, "mixed": -0.1, "scratch": -0.2, "rotated": -0.1, "decayed": -0.3,
          "decayed-rotated": -0.1, "dose 0.0625": -0.25, "dose 0.25": -0.35,
          "dose 1": -0.5}  # fmt: skip


def judged(results: Results) -> dict[str, Judgement]:
    return {j.claim.name: j for j in judge(SubnetworksStudy().claims(GRID), results)}


def verdicts(results: Results) -> dict[str, str]:
    return {name: j.verdict for name, j in judged(results).items()}


def estimate(judgement: Judgement) -> float:
    assert judgement.interval is not None
    return judgement.interval.estimate


def test_networks_with_parts_support_every_claim():
    found = verdicts(rows(PARTED))
    # Where all networks from scratch are parted, no more of them can be.
    assert found.pop("fields: pretraining parts more networks") == "not tested here"
    assert set(found.values()) == {"supported"}


def test_networks_without_parts_refute_the_claims_and_not_the_controls():
    whole = {**PARTED, **{c: 0.02 for c in PARTED if c == "scratch" or c.startswith("dose")}}
    found = verdicts(rows(whole))
    assert found["fields: ablation is selective"] == "refuted"
    assert found["fields: in most networks"] == "refuted"
    assert found["fields: more than other weights"] == "refuted"
    assert found["fields: more than the rotated twin"] == "refuted"
    assert found["fields: more than the complement"] == "refuted"
    assert found["fields: pretraining parts it more"] == "refuted"
    assert found["fields: pretraining parts more networks"] == "refuted"
    assert found["modules: pretraining parts them more"] != "supported"
    assert found["modules: the more the more"] != "supported"
    assert found["control: planted parts are found"] == "supported"


def test_networks_that_do_not_know_their_task_and_masks_that_learnt_nothing_are_left_out():
    for results in (rows(PARTED, whole=0.5), rows(PARTED, learnt=0.4)):
        fields = [j for name, j in judged(results).items() if name.startswith("fields")]
        assert {j.verdict for j in fields} == {"not tested here"}
        assert all("Left out" in j.note for j in fields if "untrained" not in j.claim.name)


def test_a_rule_that_is_lost_more_easily_is_no_part_where_the_other_rules_masks_learnt_nothing():
    # Whatever is taken out, much of the first rule is lost and nothing of the second.
    def score(labels: dict[str, Any]) -> tuple[Scores, Scores]:
        left = (0.5, 1.0) if labels["rule"] == 0 else (1.0, 0.5)
        return left, (left[0], 1.0)

    every = made(score)
    name = "fields: ablation is selective"
    assert estimate(judged(every)[name]) == pytest.approx(0.0)

    def unlearnt(row: Row) -> Row:
        reading = row.readings["subnetworks"]
        values = {**reading.values, "learnt": 0.4 if row.labels["rule"] else 1.0}
        return replace(row, readings={"subnetworks": replace(reading, values=values)})

    some = judged(Results([unlearnt(r) if r.labels["seed"] < 3 else r for r in every]))[name]
    assert estimate(some) == pytest.approx(0.0)
    assert "3 masks that did not learn their part, 3 masks whose network has none" in some.note
    assert judged(Results([unlearnt(r) for r in every]))[name].verdict == "not tested here"


def test_parts_no_clearer_than_in_rotated_weights_are_not_called_a_rules_own():
    as_rotated = {**PARTED, "scratch": -0.48, "rotated": -0.48, "mixed": -0.48}
    found = judged(rows(as_rotated))
    assert found["control: mixed weights hide them"].verdict == "refuted"
    assert found["control: mixed weights show less"].verdict == "supported"
    assert found["fields: more than the rotated twin"].verdict == "inconclusive"
    assert "none belongs to a rule: -0.48" in found["fields: ablation is selective"].note
    decayed = judged(rows({**PARTED, "decayed": -0.48, "decayed-rotated": -0.48}))
    assert decayed["fields: also with decay"].verdict == "supported"
    assert decayed["fields: with decay more than the rotated twin"].verdict == "inconclusive"
    assert "none belongs to a rule: -0.48" in decayed["fields: also with decay"].note
    study = SubnetworksStudy()
    assert "not specific here" in study.conclusion(list(found.values()))
    assert "not specific here" not in study.conclusion(list(judged(rows(PARTED)).values()))


def test_rotated_weights_whose_ablation_ruins_everything_hide_nothing():
    def score(labels: dict[str, Any]) -> tuple[Scores, Scores]:
        ruined = labels["condition"] in ("mixed", "rotated", "untrained")
        return ((0.25, 0.26), (0.3, 0.3)) if ruined else ((0.3, 0.95), (0.9, 0.9))

    found = verdicts(made(score))
    assert found["control: mixed weights hide them"] == "not tested here"
    assert found["control: mixed weights show less"] == "not tested here"
    assert found["fields: more than the rotated twin"] == "not tested here"
    assert found["control: planted parts are found"] == "supported"


def test_an_ablation_that_ruins_both_rules_neither_supports_nor_refutes():
    found = judged(made(lambda labels: ((0.285, 0.277), (0.35, 0.36))))
    fields = [j for name, j in found.items() if name.startswith("fields")]
    assert {j.verdict for j in fields} == {"not tested here"}
    note = found["fields: ablation is selective"].note
    assert "below 0.625" in note and "(0.10 of the weights) own 0.28, other 0.28" in note
    assert "at random 0.35 and 0.36" in note
    # Planted halves must be found: that they were not is the control's failure.
    assert found["control: planted parts are found"].verdict == "refuted"


@pytest.mark.parametrize(("other", "verdict"), [(0.62, "not tested here"), (0.63, "refuted")])
def test_the_other_rule_is_spared_from_half_way_between_chance_and_whole(other, verdict):
    found = verdicts(made(lambda labels: ((other, other), (0.5, 0.5))))
    assert found["fields: ablation is selective"] == verdict


def test_masks_that_ruin_both_rules_are_not_selected_out_of_networks_that_mostly_spare_one():
    def score(labels: dict[str, Any]) -> tuple[Scores, Scores]:
        return ((0.25, 0.25) if labels["seed"] == 0 else (0.25, 0.95)), (0.9, 0.9)

    found = judged(made(score))["fields: ablation is selective"]
    assert estimate(found) == pytest.approx(-0.7 * 4 / 5)


def test_the_difference_is_compared_with_that_of_as_many_weights_the_mask_does_not_keep():
    found = judged(rows(PARTED, beside=0.8))["fields: more than the complement"]
    # -.2 without the mask, .8 - 1 without the others.
    assert estimate(found) == pytest.approx(0.0, abs=0.02) and found.verdict == "refuted"
    assert "does not keep 0.80 and 1.00" in found.note
    found = judged(rows(PARTED, beside=1.0))["fields: more than the complement"]
    assert estimate(found) == pytest.approx(-0.2, abs=0.02) and found.verdict == "supported"


def test_masks_that_keep_more_than_half_of_a_layer_have_no_complement_of_their_size():
    name = "fields: more than the complement"
    assert judged(rows(PARTED, kept=5))[name].verdict == "supported"
    none = judged(rows(PARTED, kept=6))
    assert none[name].verdict == "not tested here"
    assert "10 of 10 masks are not used: they, or those for the other rule" in none[name].note
    assert none["fields: ablation is selective"].verdict == "supported"
    # Three networks without such masks are enough, and only they count.
    few = [r for r in rows({**PARTED, "scratch": -0.6}, kept=6) if r.labels["seed"] < 2]
    few += [r for r in rows(PARTED) if r.labels["seed"] >= 2]
    found = judged(Results(few))[name]
    assert estimate(found) == pytest.approx(-0.2, abs=0.02)
    assert "4 of 10 masks are not used" in found.note


def test_pretraining_may_part_more_networks_without_parting_each_more():
    def score(labels: dict[str, Any]) -> tuple[Scores, Scores]:
        below = labels["condition"] == "dose 1" or labels["seed"] == 0
        return (0.85 if below else 0.95, 0.95), (0.9, 0.9)

    found = judged(made(score))
    # In one of five networks from scratch, in all of them after pretraining.
    more = found["fields: pretraining parts more networks"]
    assert estimate(more) == pytest.approx(0.8) and more.verdict == "supported"
    assert "From scratch: 0.20" in more.note
    assert found["fields: pretraining parts it more"].verdict != "supported"


def test_a_share_that_cannot_rise_by_so_much_is_not_tested():
    found = judged(rows(PARTED))["fields: pretraining parts more networks"]
    assert found.verdict == "not tested here"
    assert "the share is 1.00 already: it cannot rise by 0.15" in found.note


def test_doses_that_change_nothing_at_all_have_no_order():
    found = judged(made(lambda labels: ((0.3, 0.9), (0.9, 0.9))))["fields: the more the more"]
    assert found.verdict == "not tested here" and "gave no number" in found.note


def test_a_rule_that_as_many_weights_at_random_harm_alike_is_not_harmed_more():
    # Own minus other of random weights is zero here as always: only rule by rule can it be seen.
    found = judged(rows({**PARTED, "scratch": -0.3}, random=(0.65, 0.65)))
    assert found["fields: ablation is selective"].verdict == "supported"
    assert found["fields: more than other weights"].verdict == "refuted"
    assert estimate(found["fields: more than other weights"]) == pytest.approx(0.0, abs=0.02)
    assert estimate(found["fields: the other rule less"]) == pytest.approx(0.3, abs=0.02)


def test_no_mask_can_harm_more_than_random_weights_that_ruin_the_rule():
    found = judged(rows(PARTED, random=(0.1, 0.1)))
    assert found["fields: more than other weights"].verdict == "not tested here"
    assert "cannot do it more harm" in found["fields: more than other weights"].note
    # Chance is the floor of both: .95 - .25, not .95 - .10.
    assert found["fields: the other rule less"].verdict == "supported"
    assert estimate(found["fields: the other rule less"]) == pytest.approx(0.7, abs=0.01)


def test_a_mask_that_serves_both_rules_is_told_by_random_weights_that_spare_them():
    found = verdicts(made(lambda labels: ((0.3, 0.3), (0.95, 0.95))))
    assert found["fields: ablation is selective"] == "refuted"
    assert found["fields: the other rule less"] == "refuted"


def test_where_nothing_harms_the_other_rule_no_more_can_be_spared():
    found = judged(rows(PARTED, random=(1.0, 1.0), other=1.0))["fields: the other rule less"]
    assert found.verdict == "not tested here" and "Neither ablation harms" in found.note


def test_students_that_lose_everything_have_no_parts_told_by_r2_below_zero():
    ruined = judged(made(lambda labels: ((-2.98 - labels["width"] / 64, -2.39), (0.0, 0.0))))
    for name in ("ablation is selective", "more than untrained", "width parts them more"):
        found = ruined[f"modules: {name}"]
        assert found.verdict == "not tested here" and "own -3.98, other -2.39" in found.note
        assert "10 of 10 masks learnt their module" in found.note


def test_modules_are_parted_by_their_errors_beyond_those_of_weights_at_random():
    found = judged(made(lambda labels: ((-5.0, 0.8), (0.7, 0.8))))
    expected = np.log2(6.0 / 0.2) - np.log2(0.3 / 0.2)
    assert estimate(found["modules: ablation is selective"]) == pytest.approx(expected)


def test_weights_at_random_alone_never_decide_what_is_said_of_modules():
    # The mask ruins tasks without the module even more than those with it, far below zero.
    for random in ((0.70, 0.66), (0.66, 0.70)):
        found = verdicts(made(lambda labels, random=random: ((-2.4, -3.0), random)))
        assert found["modules: ablation is selective"] == "refuted"


def test_the_masks_of_modules_that_learnt_are_counted_and_none_is_left_out():
    results = rows(PARTED, learnt=0.5)
    found = judged(results)["modules: ablation is selective"]
    assert found.verdict == "supported" and "0 of 10 masks learnt their module" in found.note
    sections = {s.title: s for s in SubnetworksStudy().sections(GRID, results)}
    modules = sections["Modules of a teacher"].tables[0]
    learnt, used = (modules.columns.index(c) for c in ("masks that learnt", "masks in use"))
    trained = [row for row in modules.rows if row[1] == "from scratch"]
    assert [row[0] for row in trained] == ["modules 32", "modules 64"]
    assert {(row[learnt], row[used]) for row in trained} == {("0 of 10", "10 of 10")}
    assert "learnt or not" in modules.note
    fields = sections["What ablation takes away"].tables[0]
    assert {row[used] for row in fields.rows if row[1] == "from scratch"} == {"0 of 10"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seeds": 0}, "seeds=0: expected a whole number of at least 1"),
        ({"mask_seeds": 0}, "mask_seeds=0: expected a whole number of at least 1"),
        ({"batches": 0}, "batches=0: expected a whole number of at least 1"),
        ({"masked_modules": 9}, "masked_modules=9 of modules=8: use masked_modules=8"),
        ({"pretraining": 0, "dose": (0.5,)}, "dose=0.5 of pretraining=0 steps: add --set pretra"),
        ({"pretraining": 100, "dose": ()}, "pretraining=100 without a dose: add --set dose=1"),
        ({"dose": (-1.0,)}, "dose=-1, pretraining=100: expected numbers of at least 0"),
    ],
)
def test_a_grid_that_asks_nothing_is_refused(change, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        SubnetworksStudy().cells(replace(GRID, **change))


def test_a_dose_of_zero_is_the_network_from_scratch():
    none = replace(GRID, pretraining=0, dose=(0.0,))
    assert conditions(none, "fields") == ["scratch", *CONTROLS]
    assert len(SubnetworksStudy().cells(none)) > 0
    assert not any("pretraining" in claim.name for claim in SubnetworksStudy().claims(none))
    assert conditions(replace(GRID, dose=(0.0, 1.0)), "fields") == ["scratch", "dose 1", *CONTROLS]


def test_every_task_has_its_networks_in_every_condition():
    grid = SubnetworksStudy().grid("standard", {})
    for task in FAMILIES:
        for condition in conditions(grid, task):
            network = odd_network(grid, task, condition, 0)
            network.check()
            MaskLearner(base=network, part=1).check()
    assert ("planted" in conditions(grid, "fields")) and (
        "mixed" not in conditions(grid, "verb-plural")
    )


def test_students_are_pretrained_on_another_teacher_and_then_taught_as_from_scratch():
    grid = SubnetworksStudy().grid("standard", {})
    scratch, small, full = (
        student(grid, 128, condition, 3) for condition in ("scratch", "dose 0.0625", "dose 1")
    )
    assert isinstance(scratch, Supervised) and isinstance(full, Continued)
    assert Continued.after(scratch) == replace(full, base=scratch)
    before, brief = full.upstream()["base"], small.upstream()["base"]
    assert before.steps == scratch.steps == 16 * brief.steps - 80, "in tens, 30,000 / 16 = 1,880"
    assert isinstance(before, Supervised) and before.seeds.content != scratch.seeds.content
    assert before.seeds.init == scratch.seeds.init and before.model == scratch.model
    for network in (small, full):
        network.check()
        MaskLearner(base=network, part=1).check()


def test_tasks_of_one_kind_share_a_program_and_claims_and_nothing_else():
    study = SubnetworksStudy()
    grid = replace(study.presets["standard"], width=(), seeds=2)
    cells = [c for c in study.cells(grid) if c.labels["condition"] == "scratch"]
    programs: dict[str, set[Any]] = {}
    networks: dict[int, set[tuple[str, int]]] = {}
    for cell in cells:
        assert isinstance(cell.learner, MaskLearner)
        base = cell.learner.base
        programs.setdefault(cell.labels["kind"], set()).add(
            (base.program(), cell.learner.program())
        )
        networks.setdefault(base.init_seed, set()).add((cell.labels["task"], cell.labels["seed"]))
    assert {kind: len(found) for kind, found in programs.items()} == {
        "fields": 1, "pictures": 1, "sentences": 1,
    }  # fmt: skip
    assert len(networks) == 2 * len(FAMILIES) and all(len(n) == 1 for n in networks.values())
    assert {claim.name.split(":")[0] for claim in study.claims(grid)} == {"control", *programs}
