"""Public names loaded on first use, so that listing and help import no jax."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], list[str]]:
    """Returns (`__getattr__`, `__all__`) for a package whose `names` live in `module` paths.

    `names` maps a public name to "package.module" or "package.module:attribute".
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return load(names[name] if ":" in names[name] else f"{names[name]}:{name}")

    return __getattr__, sorted(names)


def load(path: str) -> Any:
    """The object at "package.module:attribute"."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)
