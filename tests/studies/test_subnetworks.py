"""The claims of the study of subnetworks, on results made to order, and its smallest run."""

from __future__ import annotations

from typing import Any

import numpy as np

from recombine.instruments import Reading
from recombine.lab.judge import judge
from recombine.lab.study import Results, Row
from recombine.learners.masks import MaskLearner
from recombine.studies.subnetworks import (
    CONTROLS,
    FAMILIES,
    Grid,
    SubnetworksStudy,
    conditions,
    odd_network,
)

GRID = Grid(pretraining=100, dose=(1 / 16, 1 / 4, 1.0), controls=CONTROLS,
            width=(32, 64))  # fmt: skip


def row(ablation: float, labels: dict[str, Any], whole: float = 1.0, learnt: float = 1.0) -> Row:
    values = {
        "ablation": ablation, "ablation_raw": ablation, "ablation_own": 0.5 + ablation / 2,
        "ablation_other": 0.5 - ablation / 2, "whole_own": whole, "whole_other": whole,
        "subnetwork_own": 1.0, "subnetwork_other": 0.3, "learnt": learnt, "density": 0.1,
        "overlap": 0.1, "overlap_by_chance": 0.05,
    }  # fmt: skip
    controls = {name: {"ablation": 0.0, "ablation_raw": 0.0} for name in ("complement", "random")}
    table = {"layer": ["hidden/0"], "weights": [10], "kept": [1], "density": [0.1]}
    summary = {"evaluations": {}, "evaluation_steps": [], "diverged_at": None}
    reading = Reading(values, controls, {"layers": table})
    return Row(labels, "cell", summary, {"subnetworks": reading})


def rows(by_condition: dict[str, float], **more: float) -> Results:
    rng = np.random.default_rng(0)
    found = []
    for task, widths in (("fields", (0,)), ("modules", GRID.width)):
        names = conditions(GRID, "fields") if task == "fields" else ["scratch", "untrained"]
        for condition in names:
            for width in widths:
                for seed in range(5):
                    for rule in range(2):
                        value = by_condition[condition] + 0.01 * rng.normal()
                        value -= 0.1 * (width == 64 and condition == "scratch")
                        labels = {"task": task, "condition": condition, "width": width,
                                  "seed": seed, "rule": rule, "mask_seed": 0}  # fmt: skip
                        found.append(row(value, labels, **more))
    return Results(found)


PARTED = {"planted": -0.7, "mixed": -0.1, "untrained": 0.0, "scratch": -0.2, "decayed": -0.3,
          "dose 0.0625": -0.25,
          "dose 0.25": -0.35, "dose 1": -0.5}  # fmt: skip


def verdicts(results: Results) -> dict[str, str]:
    return {j.claim.name: j.verdict for j in judge(SubnetworksStudy().claims(GRID), results)}


def test_networks_with_parts_support_every_claim():
    assert set(verdicts(rows(PARTED)).values()) == {"supported"}


def test_networks_without_parts_refute_the_claims_and_not_the_controls():
    whole = {**PARTED, **{c: 0.02 for c in PARTED if c == "scratch" or c.startswith("dose")}}
    found = verdicts(rows(whole))
    assert found["fields: ablation is selective"] == "refuted"
    assert found["fields: in most networks"] == "refuted"
    assert found["fields: more than other weights"] == "refuted"
    assert found["fields: pretraining parts it more"] == "refuted"
    assert found["control: planted parts are found"] == "supported"


def test_networks_that_do_not_know_their_task_and_masks_that_learnt_nothing_are_left_out():
    for more in ({"whole": 0.5}, {"learnt": 0.4}):
        judged = judge(SubnetworksStudy().claims(GRID), rows(PARTED, **more))
        fields = [j for j in judged if j.claim.name.startswith("fields")]
        assert {j.verdict for j in fields} == {"not tested here"}
        assert all("Left out" in j.note for j in fields if "untrained" not in j.claim.name)


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
