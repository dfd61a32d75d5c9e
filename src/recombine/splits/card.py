"""The card of a split: a page that states its guarantees, each with what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from recombine.report.document import Cell, ClaimRow, Report, Section, Table, one_line
from recombine.splits.checking import Guarantee
from recombine.splits.methods import Split

SCHEMA = "recombine.split-card/1"
_SHOWN = 200
METHODS_IN_WORDS = {
    "random": "at random",
    "combination": "by combination: no test combination is in training",
    "pair": "by pair: some pairs of values are never in training",
    "value": "by value: some values are never in training",
    "divergence": "by divergence: compounds far from training, atoms close to it",
}


def card_document(
    made: Split,
    measured: Mapping[str, Any],
    found: Sequence[Guarantee],
    *,
    source: str,
    factors: Sequence[str],
    withheld: Sequence[str],
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The card for machines; `unmet` lists in words all that could not be had."""
    broken = [f"{one.name}: {one.promise}; measured {one.measured:g}" for one in found
              if not one.holds]  # fmt: skip
    return {
        "schema": SCHEMA,
        "file": source,
        "factors": list(factors),
        "request": asdict(made.spec),
        **measured,
        "withheld": list(withheld),
        "guarantees": [asdict(one) for one in found],
        "unmet": [*made.unmet, *broken],
        "notes": list(notes),
    }


def card_report(card: Mapping[str, Any]) -> Report:
    """The card for people."""
    request, guarantees = card["request"], card["guarantees"]
    kept = sum(one["holds"] for one in guarantees)
    sizes = ", ".join(f"{name} {part['rows']}" for name, part in card["parts"].items())
    met = "All" if kept == len(guarantees) else f"{kept} of"
    verdict = f"{met} {len(guarantees)} guarantees hold on the written files ({sizes} rows)."
    if card["unmet"]:
        verdict += " Not everything that was asked for could be had."
    return Report(
        study="split",
        title=f"Split of {one_line(card['file'])}",
        question=f"Divided {METHODS_IN_WORDS[request['method']]}.",
        source="Divergences after Keysers et al. 2020.",
        preset=f"seed {request['seed']}",
        verdict_sentence=verdict,
        claims=[_claim(one, card) for one in guarantees],
        sections=[
            Section("Parts", tables=[_parts(card)]),
            Section("How new each part is to training", _novelty_text(), tables=_new(card)),
            Section("What training covers", _coverage_text(card), tables=_lost(card)),
            *_withheld(card),
        ],
        not_shown=[
            "That a model which does well on this test composes: a test shows what it holds.",
            "Duplicates that say the same in other words.",
            "Near duplicates less alike than the threshold, and about one in ten thousand at it.",
        ],
        repeat=[("request", ", ".join(f"{k}={v}" for k, v in request.items())),
                ("factors", ", ".join(card["factors"]))],
        warnings=[*card["unmet"], *card["notes"]],
    )  # fmt: skip


def _claim(one: Mapping[str, Any], card: Mapping[str, Any]) -> ClaimRow:
    rows = sum(part["rows"] for part in card["parts"].values())
    return ClaimRow(
        name=one["name"],
        sentence=one["promise"],
        criterion="checked on the written files",
        verdict="supported" if one["holds"] else "refuted",
        estimate=float(one["measured"]),
        units=rows,
        unit_name="rows",
    )


def _parts(card: Mapping[str, Any]) -> Table:
    rows: list[list[Cell]] = [[n, p["rows"], float(p["share"])] for n, p in card["parts"].items()]
    return Table("Sizes", ["part", "rows", "share"], rows)


def _novelty_text() -> str:
    return (
        "Never trained: in this part, and in no training row. The share of rows counts rows that "
        "hold at least one. Divergences go from 0 (alike) to 1 (nothing shared); atoms are single "
        "values, compounds their pairs (and triples where asked for)."
    )


def _new(card: Mapping[str, Any]) -> list[Table]:
    rows: list[list[Cell]] = []
    far: list[list[Cell]] = []
    for part, against in card["against"].items():
        for what in ("combinations", "values", "pairs", "triples"):
            if what in against:
                new = against[what]
                rows.append([part, what, new["in_part"], new["never_trained"],
                             float(new["share_of_rows"])])  # fmt: skip
        apart = against["divergence"]
        far.append([part, float(apart["atoms"]), float(apart["compounds"])])
    names = ["part", "what", "in it", "never trained", "share of rows"]
    return [
        Table("New to training", names, rows),
        Table("Divergence from training", ["part", "atoms", "compounds"], far),
    ]


def _coverage_text(card: Mapping[str, Any]) -> str:
    found = card["coverage"]
    hang = "hang together" if found["connected"] else "do not all hang together"
    return (
        f"Training holds {found['trained']} of the {found['values']} values of the file, and its "
        f"values {hang} through rows that share them. Both are necessary conditions known from "
        "teachers made of modules; neither is sufficient."
    )


def _lost(card: Mapping[str, Any]) -> list[Table]:
    lost = card["coverage"]["not_trained"]
    return [Table("Values not in training", ["value"], [[one] for one in lost])] if lost else []


def _withheld(card: Mapping[str, Any]) -> list[Section]:
    if not card["withheld"]:
        return []
    shown = [[one] for one in card["withheld"][:_SHOWN]]
    more = len(card["withheld"]) - len(shown)
    note = f"and {more} more in card.json" if more else ""
    return [Section("Withheld", tables=[Table("Never in training", ["what"], shown, note)])]
