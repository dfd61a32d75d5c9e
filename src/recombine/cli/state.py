"""The state of a store, of a study in it, and of one cell."""

from __future__ import annotations

from typing import Any

from recombine.lab.index import Index
from recombine.lab.run import Request, gather_rows, rounds
from recombine.lab.store import Store
from recombine.lab.study import Cell


def of_store(store: Store) -> dict[str, Any]:
    """How many nodes of each kind, and what failed."""
    usage = store.usage()
    return {
        "store": str(store.path),
        "nodes": {kind: use["count"] for kind, use in usage.items() if use.get("count")},
        "room": f"{sum(use['bytes'] for use in usage.values()) / 2**20:.1f} MiB",
        "read_only": store.read_only,
    }


def of_study(store: Store, request: Request) -> dict[str, Any]:
    """Done, running, failed and planned cells of a study."""
    cells: list[Cell] = []
    infeasible = 0
    for feasible in rounds(request, store, write=False):
        cells += feasible.cells
        infeasible += len(feasible.infeasible)
    states = {"done": 0, "running": 0, "failed": 0, "planned": 0}
    for cell in cells:
        if store.has("cell", cell.id):
            states["done"] += 1
        elif store.holder(cell.id):
            states["running"] += 1
        elif store.failure("cell", cell.id):
            states["failed"] += 1
        else:
            states["planned"] += 1
    _, missing, failed = gather_rows(store, cells)
    return {
        "study": request.name,
        "cells": states,
        "infeasible": infeasible,
        "with all readings": len(cells) - missing,
        "failures": [f"{name}: {reason}" for name, reason in failed],
    }


def all_cells(store: Store) -> list[dict[str, str]]:
    """Every cell of a store: what it is, and its last evaluation."""
    found = []
    for row in Index(store).query("cell"):
        said = _leaves(row.request)
        last = (row.summary or {}).get("evaluations", {})
        last = {name: values for name, values in last.items() if not name.endswith("_published")}
        found.append(
            {
                "cell": row.id[:10],
                "learner": row.request["kind"].rsplit(":", 1)[1],
                "settings": " ".join(f"{k}={v}" for k, v in said.items()),
                "result": " ".join(f"{k} {v[-1]:.3f}" for k, v in sorted(last.items())[:3]),
            }
        )
    return found


# What tells cells of the shipped learners apart at a glance; the rest is in `show CELL`.
TELLING = ("modules", "active", "rule", "held_out", "width", "depth", "init")


def _leaves(request: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in request.items():
        if isinstance(value, dict):
            found |= _leaves(value)
        elif name in TELLING:
            found["seed" if name == "init" else name] = value
    return found


def cell_document(store: Store, prefix: str) -> dict[str, Any]:
    """Everything a store knows of a cell, without its weights."""
    name = store.find("cell", prefix)
    manifest = store.manifest("cell", name)
    readings = {}
    for reading in store.ids("reading"):
        request = store.manifest("reading", reading)["request"]
        if request["cell"] == name:
            kind = request["instrument"]["kind"].rsplit(":", 1)[1]
            document = store.document("reading", reading, "reading")
            readings[kind] = {"values": document["values"], "controls": document["controls"]}
    return {
        "cell": name,
        "request": manifest["request"],
        "device": manifest["device"],
        "versions": manifest["versions"],
        "summary": store.document("cell", name, "summary"),
        "readings": readings,
        "provenance": store.provenance("cell", name),
    }


def cell_lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    lines = [f"cell {found['cell']} on {found['device'].get('kind', '?')}"]
    lines += _flat(found["request"])
    summary = found["summary"]
    if summary["diverged_at"] is not None:
        lines.append(f"diverged at step {summary['diverged_at']}")
    for metric, values in summary["evaluations"].items():
        lines.append(f"{metric}: {values[0]:.3f} at step 0, {values[-1]:.3f} at {summary['steps']}")
    for name, reading in found["readings"].items():
        lines.append(f"{name}: " + ", ".join(f"{k} {v:.3f}" for k, v in reading["values"].items()
                                             if "/" not in k and isinstance(v, float)))  # fmt: skip
    return lines


def _flat(request: Any, prefix: str = "") -> list[str]:
    found = []
    for name, value in request.items():
        if name in ("kind", "version"):
            continue
        if isinstance(value, dict):
            found.append(f"{prefix}{name}: {value.get('kind', '').rsplit(':', 1)[-1]}")
            found += _flat(value, prefix + "  ")
        else:
            found.append(f"{prefix}{name}: {value}")
    return found
