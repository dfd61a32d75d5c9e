"""Packages that only a user's own generator needs, imported when first used."""

from __future__ import annotations

import importlib
from typing import Any

from recombine.errors import InvalidRequest


def need(package: str) -> Any:
    """The package, or one line that says how to install it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"this needs the package {error.name!r}: pip install 'recombine[diffusers]'"
        ) from error
