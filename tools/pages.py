"""Keeps the tables of pages true: grids and claims from the code, verdicts from results/.

    python tools/pages.py              # says which pages differ
    python tools/pages.py --write      # rewrites their tables
    python tools/pages.py binding ...  # these studies only

What people wrote around the tables stays as it is. A study that was recorded for the first time
gets its table of verdicts in place of "Not recorded yet.", and one recorded on two CPU cores or at
preset `quick`, too, in a part of its own at the end; what it means is yours to write.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recombine.lab.plan import part
from recombine.lab.run import study_named
from recombine.lab.study import Study
from recombine.report.tables import interval as bounds
from recombine.studies import REGISTRY

ROOT = Path(__file__).resolve().parents[1]
VERDICTS = ("supported", "refuted", "inconclusive", "not tested")
NOT_RECORDED = "Not recorded yet."
# What results/ may hold of a study, and above which of its page it stands: `cores` is `standard`
# thinned to what two CPU cores can carry, `further` the same with what was left out there.
RECORDS = {
    "standard": "",
    "cores": "## On two CPU cores",
    "further": "## Further on two CPU cores",
    "quick": "## At preset quick",
}
AGAIN = "## On other seeds"
CALLED = {"NVIDIA H200": "one H200", "cpu": "two CPU cores"}
_GRID = "| name | what | smoke | quick | standard | paper |"
_CLAIMS = "| claim | sentence | criterion | unit |"
_FOUND = "| claim | criterion | found, 95 % interval | verdict |"


def page_of(name: str) -> Path:
    return ROOT / "docs" / "studies" / f"{name}.md"


def recorded(name: str, record: str = "standard") -> dict[str, Any] | None:
    """The summary of a study that lies in results/, where there is one."""
    file = ROOT / "results" / f"{name}-{record}.json"
    return json.loads(file.read_text("utf-8")) if file.is_file() else None


def shown(value: object) -> str:
    """A value of a grid as the tables write it."""
    if isinstance(value, tuple):
        return ", ".join(shown(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def grid_rows(study: Study, text: str) -> list[str]:
    """What is varied, at every preset, and how many cells that makes; other words stay."""
    words = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, re.MULTILINE))
    unnamed = re.findall(r"^\|  \| (?!cells).*$", text, re.MULTILINE)
    grids = [study.grid(preset) for preset in study.presets]
    names = [field.name for field in dataclasses.fields(grids[0]) if field.name != "first_seed"]
    # Every grid has it; a page tells of it where a preset draws other seeds.
    names += ["first_seed"] if any(grid.first_seed for grid in grids) else []
    return [
        *(
            line([f"`{name}`", words.get(name, "?"), *(shown(getattr(g, name)) for g in grids)])
            for name in names
        ),
        *unnamed,
        line(["", "cells", *(cells(study, preset) for preset in study.presets)]),
    ]


def cells(study: Study, preset: str) -> str:
    """Those that can exist, and at most so many in further rounds."""
    found = part(study.cells(study.grid(preset)))
    elsewhere = [reason for _, reason in found.infeasible if "is not on this machine" in reason]
    first = len(found.cells) + len(elsewhere)
    further = study.most_further_cells(study.grid(preset))
    return f"{first} + up to {further}" if further else str(first)


def claim_rows(study: Study) -> list[str]:
    """Every claim as it is stated at preset standard."""
    return [
        line([claim.name, claim.sentence, claim.criterion, claim.unit])
        for claim in study.claims(study.grid("standard"))
    ]


def found_rows(summary: dict[str, Any]) -> list[str]:
    """What was found, claim by claim."""
    rows = []
    for claim in summary["claims"]:
        interval = "–"
        if claim["interval"] is not None:
            middle, low, high = claim["interval"]
            interval = f"{middle:.3f} {bounds(low, high, 3)}"
        rows.append(line([claim["name"], claim["criterion"], interval, claim["verdict"]]))
    return rows


def counted(summary: dict[str, Any]) -> dict[str, int]:
    """How many claims had each verdict."""
    found = Counter(claim["verdict"].removesuffix(" here") for claim in summary["claims"])
    return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}


def verdicts(summary: dict[str, Any]) -> str:
    """The same as a phrase: 11 supported, 2 refuted."""
    return ", ".join(f"{number} {verdict}" for verdict, number in counted(summary).items())


def with_table(text: str, head: str, rows: Sequence[str]) -> str:
    """The text with other rows under the heading of a table."""
    before, found, after = text.partition(f"{head}\n")
    rule, *rest = after.split("\n")
    kept = next((i for i, row in enumerate(rest) if not row.startswith("|")), len(rest))
    return before + found + "\n".join([rule, *rows, *rest[kept:]]) if found else text


def with_result(text: str, name: str, summary: dict[str, Any], record: str = "standard") -> str:
    """The text with what was found, in the place that was kept for it the first time."""
    link = f"([page](../../results/{name}-{record}.html), "
    where = (
        f"On {devices(summary)}, {asked(summary)}, {summary['cells']} cells {link}"
        "[how it was made](../../results/README.md)):"
    )
    said = re.compile(rf"^On [^\n]*{re.escape(link)}[^\n]*\):\n\n[^\n]+", re.MULTILINE)
    if not said.search(text):
        first = f"{where}\n\n{summary['verdict']}\n\n{_FOUND}\n|---|---|---|---|\n"
        if head := RECORDS[record]:
            text = f"{text.rstrip()}\n\n{head}\n\n{first}"
        else:
            text = text.replace(NOT_RECORDED, first)
    text = said.sub(lambda _: f"{where}\n\n{summary['verdict']}", text)
    before, where, after = text.partition(where)
    return before + where + with_table(after, _FOUND, found_rows(summary))


def with_repetition(text: str, name: str) -> str:
    """The text with what became of its verdicts on other seeds, in a part of its own at the end."""
    file = ROOT / "results" / f"{name}-repeated.json"
    if not file.is_file():
        return text
    told = json.loads(file.read_text("utf-8"))
    first = told["times"][0]
    seeds = ", ".join(str(time["grid"]["first_seed"]) for time in told["times"])
    fates = {
        fate: [claim for claim, found in told["standing"].items() if found == fate]
        for fate in ("moves", "is contradicted")
    }
    listed = [
        f"{'Moves' if fate == 'moves' else 'Contradicted'}: {'; '.join(claims)}."
        for fate, claims in fates.items()
        if claims
    ]
    where = f"[page](../../results/{name}-repeated.html)"
    said = (
        f"On {devices(first)}, {asked(first)}, everything drawn anew from the seeds {seeds} on "
        f"({where}): {told['verdict']}"
    )
    part = "\n\n".join([AGAIN, said, *listed])
    before, _, after = text.partition(f"\n{AGAIN}\n")
    _, heading, rest = after.partition("\n## ")
    return f"{before.rstrip()}\n\n{part}\n" + (f"{heading}{rest}" if heading else "")


def asked(summary: dict[str, Any]) -> str:
    """The preset, and what was set otherwise."""
    settings = " ".join(f"{name}={value}" for name, value in summary.get("settings", {}).items())
    return f"preset `{summary['preset']}`" + (f" with `{settings}`" if settings else "")


def devices(summary: dict[str, Any]) -> str:
    """On what it was recorded, as people call it: the precision of a network is on its page."""
    kinds = dict.fromkeys(kind.partition(" (")[0] for kind in summary["devices"])
    return " and ".join(CALLED[kind] for kind in kinds)


def true_page(name: str, text: str) -> str:
    """A study's page with the tables that the code and its recorded results ask for."""
    study = study_named(name)
    text = with_table(text, _GRID, grid_rows(study, text))
    text = with_table(text, _CLAIMS, claim_rows(study))
    for record in RECORDS:
        if (summary := recorded(name, record)) is not None:
            text = with_result(text, name, summary, record)
    return with_repetition(text, name)


def row_of(file: str, name: str, link: str = "") -> str:
    """A study's line in a table of studies, the one that leads to `link` where there are more."""
    lines = (ROOT / file).read_text("utf-8").splitlines()
    return next((one for one in lines if one.startswith(f"| [{name}]({link}")), "")


def wrong_rows(name: str) -> list[str]:
    """The tables of studies that do not say what was recorded."""
    missing = []
    found = {r: told for r in RECORDS if (told := recorded(name, r)) is not None}
    for record, summary in found.items():
        here = row_of("results/README.md", name, f"{name}-{record}.html")
        rows = {"results/README.md": here}
        ours = row_of("README.md", name)
        # README tells the largest, and of some studies what two cores found besides.
        if record == next(iter(found)) or (record == "cores" and "on two cores" in ours.lower()):
            rows["README.md"] = ours
        missing += [
            f"{file}: {name} ({record}) should say {number} {verdict}"
            for file, row in rows.items()
            for verdict, number in counted(summary).items()
            if not re.search(rf"\b{number}( of \d+)?( claims)? {verdict}\b", row)
        ]
        cells = here.rstrip(" |").rpartition("| ")[2]
        if cells.split()[:1] != [str(summary["cells"])]:
            missing.append(f"results/README.md: {name} has {summary['cells']} cells, not {cells!r}")
    return missing


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", nargs="*", choices=[*REGISTRY, []], metavar="STUDY")
    parser.add_argument("--write", action="store_true", help="rewrite the tables of pages")
    chosen = parser.parse_args()
    wrong = 0
    for name in chosen.study or REGISTRY:
        text = page_of(name).read_text("utf-8")
        true = true_page(name, text)
        if true != text:
            print(f"docs/studies/{name}.md: {'rewritten' if chosen.write else 'differs'}")
            wrong += not chosen.write
            if chosen.write:
                page_of(name).write_text(true, "utf-8")
        for said in wrong_rows(name):
            print(said)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
