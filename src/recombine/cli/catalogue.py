"""What there is, read from the sources without importing them, so that listing costs nothing."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

KINDS = ("families", "supports", "encodings", "models", "learners", "instruments")


def studies(store: Path) -> list[dict[str, str]]:
    """Every study with its question, and its verdict if this store has a report of it."""
    from recombine.studies import REGISTRY

    found = []
    for name, path in REGISTRY.items():
        body = _class(path)
        told = {
            target.id: ast.literal_eval(node.value)
            for node in body.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Constant)
        }
        found.append(
            {"name": name, "question": told.get("question", ""), "cost": told.get("cost", ""),
             "verdict": _verdict(store, name)}
        )  # fmt: skip
    return found


def parts() -> dict[str, list[dict[str, str]]]:
    """Families, supports, encodings and the rest, each with the first line of its docstring."""
    found: dict[str, list[dict[str, str]]] = {}
    for kind in KINDS:
        package = importlib.import_module(f"recombine.{kind}")
        registry = {**package.REGISTRY, **getattr(package, "SEQUENCES", {})}
        found[kind] = [{"name": name, "text": _first_line(path)} for name, path in registry.items()]
    return found


def kits() -> list[dict[str, str]]:
    """The kits of questions for live models that this installation has."""
    from recombine.live import REGISTRY

    return [
        {"name": name, "text": _first_line(path)}
        for name, path in REGISTRY.items()
        if importlib.util.find_spec(path.partition(":")[0]) is not None
    ]


def _source(path: str) -> tuple[ast.Module, str]:
    module, _, attribute = path.partition(":")
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8")), attribute


def _class(path: str) -> ast.ClassDef:
    tree, name = _source(path)
    return next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)


def _first_line(path: str) -> str:
    """The first line of a class's docstring, or of the function a rule's constant draws with."""
    tree, name = _source(path)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return (ast.get_docstring(node) or "").split("\n")[0]
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            wanted = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
            for other in tree.body:
                if isinstance(other, ast.FunctionDef) and other.name in wanted:
                    text = ast.get_docstring(other)
                    if text:
                        return text.split("\n")[0]
    return ""


def _verdict(store: Path, study: str) -> str:
    found: dict[str, Any] = {}
    for path in sorted((store / "reports").glob(f"{study}-*.json")):
        try:
            found[path.stem.removeprefix(f"{study}-")] = json.loads(path.read_text())["claims"]
        except (OSError, ValueError, KeyError):
            continue
    words = []
    for preset, claims in found.items():
        counts: dict[str, int] = {}
        for claim in claims:
            counts[claim["verdict"]] = counts.get(claim["verdict"], 0) + 1
        told = ", ".join(f"{n} {word}" for word, n in sorted(counts.items()))
        words.append(f"{preset}: {told}")
    return "; ".join(words) or "not run"
