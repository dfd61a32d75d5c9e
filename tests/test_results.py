"""Recorded readings, judged again: the numbers beside them are what this code makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recombine.instruments import ExactMatch
from recombine.lab.bundle import import_bundle
from recombine.lab.identity import canonical
from recombine.lab.run import Request, collect, study_named
from recombine.lab.store import Store
from recombine.report.study import summary_of

RESULTS = Path(__file__).resolve().parents[1] / "results"
BUNDLES = sorted(RESULTS.glob("*.zip"))
# Versions of instruments since which nothing that is judged has changed, by bundle: its controls
# were defined otherwise then, as results/README.md says.
JUDGED_ALIKE = {"collection-standard": {ExactMatch: 1}}


def rounded(told):
    """To eight digits: the last ones are another processor's."""
    if isinstance(told, dict):
        return {name: rounded(value) for name, value in told.items()}
    if isinstance(told, list):
        return [rounded(value) for value in told]
    return float(f"{told:.8g}") if isinstance(told, float) else told


def without(told, names):
    """What is left to compare where some claims cannot be judged: adjustments count all claims."""
    kept = [claim for claim in told["claims"] if claim["name"] not in names]
    if names:
        kept = [{k: v for k, v in claim.items() if k != "adjusted"} for claim in kept]
    return {**{k: v for k, v in told.items() if not (names and k == "verdict")}, "claims": kept}


def outgrown(store, cells):
    """Instruments that have a newer version than the one whose readings a store holds."""
    kept = {}
    for node in store.ids("reading"):
        instrument = store.manifest("reading", node)["request"]["instrument"]
        versions = kept.setdefault(instrument["kind"], set())
        versions.add(instrument["version"])
    asked = {canonical(one)["kind"]: one for cell in cells for one in cell.instruments}
    return [
        f"{one.name}: recorded with version {max(kept[kind])}, now {one.version}"
        for kind, one in asked.items()
        if kind in kept and max(kept[kind]) < one.version
    ]


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda file: file.stem)
def test_a_recorded_study_is_what_its_readings_say(bundle, tmp_path, monkeypatch):
    told = bundle.with_suffix(".json")
    if not told.is_file():
        pytest.skip(f"{told.name} is not there yet: some networks are still to be read")
    for instrument, version in JUDGED_ALIKE.get(bundle.stem, {}).items():
        monkeypatch.setattr(instrument, "version", version)
    store = Store.open(tmp_path / "store")
    import_bundle(store, bundle)
    recorded = json.loads(told.read_text("utf-8"))
    study = study_named(recorded["study"])
    request = Request(study, recorded["preset"], recorded["settings"])
    # A study whose instruments read more by now is to be recorded again; its numbers stay those
    # of the earlier form until then, and its page says so.
    if older := outgrown(store, request.cells()):
        page = RESULTS.parent / "docs" / "studies" / f"{study.name}.md"
        assert "ecorded with an earlier form" in page.read_text("utf-8")
        pytest.skip(f"to be recorded again ({'; '.join(older)})")
    found = collect(request, store)
    if away := {why for _, why in found.infeasible if "is not on this machine" in why}:
        pytest.skip("; ".join(sorted(away)))
    # What a page says is to be recorded yet, and no more.
    assert found.missing == recorded["missing"], "the code asks for what was not recorded"
    again = json.loads(json.dumps(summary_of(found)))
    # Claims about published data are judged where these are at hand.
    lacking = {c["name"] for c in again["claims"] if "are not here: recombine data" in c["note"]}
    assert rounded(without(again, lacking)) == rounded(without(recorded, lacking))


def test_what_is_said_of_other_seeds_is_what_was_recorded():
    rows = (RESULTS / "README.md").read_text("utf-8")
    held = tested = 0
    for file in sorted(RESULTS.glob("*-repeated.json")):
        told = json.loads(file.read_text("utf-8"))
        fates = list(told["standing"].values())
        held, tested = held + fates.count("holds"), tested + len(fates)
        tested -= fates.count("not tested twice")
        assert "is contradicted" not in fates and all(t["finished"] for t in told["times"])
        row = next(
            r for r in rows.splitlines() if r.startswith(f"| [{told['study']}]({file.stem}.")
        )
        assert row.split("|")[2].split(",")[0].strip() == str(fates.count("holds"))
        moved = [name for name, fate in told["standing"].items() if fate == "moves"]
        assert all(name in row for name in moved) and row.endswith("| 0 |")
    assert f"of {tested} claims that were tested more than once {held} have the same" in rows
    readme = (RESULTS.parent / "README.md").read_text("utf-8")
    assert f"of the {tested} claims" in readme and f"{held} had the same verdict" in readme
