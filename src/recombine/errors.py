"""Errors a user can cause: one line with what was given, what was expected, what to type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RecombineError(Exception):
    """Base of every error that ends a command in one line instead of a traceback."""


class InvalidRequest(RecombineError):
    """The request itself is wrong; running it again cannot help."""


class UnknownName(InvalidRequest):
    """A name that is in no registry: a slip of the keyboard, never a gap in a grid."""


class StoreError(RecombineError):
    """The store cannot do what was asked (no room, read-only, too new, damaged)."""


class NotApplicable(RecombineError):
    """An instrument or study cannot be applied to this subject; the message says why."""


class Interrupted(RecombineError):
    """A stop was asked for (a signal, or the time allowed is over); work so far is safe."""

    def __init__(self, message: str, exit_code: int = 130):
        super().__init__(message)
        self.exit_code = exit_code


def unknown(what: str, given: str, allowed: Iterable[str]) -> UnknownName:
    """The error for a name that is not in a registry, with the nearest valid one.

    >>> print(unknown("rule", "poplar", ["popular", "random"]))
    unknown rule 'poplar': did you mean 'popular'? (allowed: popular, random)
    >>> print(unknown("rule", "xyz", ["popular", "random"]))
    unknown rule 'xyz' (allowed: popular, random)
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.6)
    hint = f": did you mean {near[0]!r}?" if near else ""
    return UnknownName(f"unknown {what} {given!r}{hint} (allowed: {', '.join(names)})")
