"""The claims of the anatomy, on results made to order, and the study end to end."""

from __future__ import annotations

from typing import Any

import numpy as np

from recombine.instruments import Reading
from recombine.lab.judge import judge
from recombine.lab.study import Results, Row
from recombine.studies.anatomy import Anatomy, Grid, alike

GRID = Grid(shape=("48x2", "64x2"), seeds=12, held_out=(0.25, 0.5), decay=(0.0,), window=0.01,
            networks=20)  # fmt: skip


FRACTURE = ("concordance", "disentanglement", "selectivity")


def row(labels: dict[str, Any], readings: dict[str, Reading]) -> Row:
    summary = {"evaluations": {}, "evaluation_steps": [], "diverged_at": None}
    return Row(labels, "cell", summary, readings)


def rows(strength: float, scattered: float = 0.0) -> Results:
    """Networks whose decodability follows their unseen score, all else being noise."""
    rng = np.random.default_rng(0)
    found = []
    for shape in GRID.shape:
        for share in GRID.held_out:
            for seed in range(GRID.seeds):
                labels = {"shape": shape, "held_out": share, "decay": 0.0, "seed": seed}
                gift = rng.normal()
                seen = 0.99 + 0.002 * rng.random() - scattered * rng.random()
                readings = {
                    "generalization": Reading({"seen": seen, "unseen": 0.8 + 0.02 * gift}, {}),
                    "decodability": Reading(
                        {"layer2/after": 0.6 + 0.02 * (strength * gift + rng.normal())}, {}
                    ),
                    "erasure": Reading({"beyond_random": rng.normal()}, {}),
                    "fracture": Reading(
                        {
                            n: rng.normal()
                            for n in ("concordance", "disentanglement", "selectivity")
                        },
                        {},
                    ),
                }
                found.append(row({**labels, "part": "network"}, readings))
                mask = Reading(
                    {"ablation_raw": rng.normal()}, {"complement": {"ablation_raw": 0.0}}
                )
                found.append(row({**labels, "part": "mask", "module": 0}, {"subnetworks": mask}))
    return Results(found)


def verdicts(results: Results) -> dict[str, str]:
    return {j.claim.name: j.verdict for j in judge(Anatomy().claims(GRID), results)}


def test_what_goes_with_generalization_is_found_and_what_does_not_is_not():
    found = verdicts(rows(3.0))
    assert found["decodability goes with generalization"] == "supported"
    others = [v for n, v in found.items() if "goes with" in n and not n.startswith("decod")]
    assert others and "supported" not in others


def test_what_goes_against_it_is_refuted():
    assert verdicts(rows(-3.0))["decodability goes with generalization"] == "refuted"


def test_networks_of_unlike_seen_scores_are_not_compared():
    assert "supported" not in verdicts(rows(3.0, scattered=2.0)).values()
    few = judge(Anatomy().claims(GRID), rows(3.0, scattered=2.0))
    assert any("20 are needed" in j.note for j in few)


def test_the_window_holds_the_most_networks_and_nothing_wider():
    results = rows(0.0, scattered=0.03)
    for shape in GRID.shape:
        chosen = [r.value("generalization", "seen") for r in alike(results, GRID, shape)]
        every = np.asarray([
            r.value("generalization", "seen") for r in results.where(part="network", shape=shape)
        ])  # fmt: skip
        assert max(chosen) - min(chosen) <= GRID.window
        most = max(((every >= x) & (every <= x + GRID.window)).sum() for x in every)
        assert len(chosen) == most
