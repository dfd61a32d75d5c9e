"""Names for requests: the id of a node is the hash of everything that was asked for."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import sys
from typing import Any, get_type_hints

from recombine._lazy import load
from recombine.errors import InvalidRequest


def canonical(value: Any) -> Any:
    """A spec as plain JSON, defaults resolved, each component with its kind and version.

    >>> from recombine.seeds import Seeds
    >>> canonical(Seeds())["content"]
    0
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        fields = {f.name: canonical(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {
            "kind": f"{kind.__module__}:{kind.__qualname__}",
            "version": getattr(value, "version", 1),
            **fields,
        }
    if isinstance(value, tuple | list):
        return [canonical(item) for item in value]
    if isinstance(value, dict):
        return {str(name): canonical(item) for name, item in sorted(value.items())}
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidRequest(f"a request may not hold {value}: give a finite number")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InvalidRequest(
        f"a request may hold numbers, names, tuples and frozen dataclasses, not {type(value)}"
    )


def node_id(value: Any) -> str:
    """The id of a request: a hash of its canonical form and nothing else."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def revive(request: Any) -> Any:
    """The spec behind a canonical form, so that a stored cell can be prepared again.

    Only dataclasses are ever built, and only from the module their kind names; a request from a
    stranger's bundle cannot name anything else.
    """
    if isinstance(request, list):
        return tuple(revive(item) for item in request)
    if not isinstance(request, dict):
        return request
    if "kind" not in request:
        return {name: revive(item) for name, item in request.items()}
    kind = load_kind(request["kind"])
    hints = get_type_hints(kind)
    values = {}
    for spec in dataclasses.fields(kind):
        if spec.name in request:
            value = revive(request[spec.name])
            # JSON has no float 1.0 apart from int 1: keep the declared type.
            values[spec.name] = (
                float(value) if hints.get(spec.name) is float and value is not None else value
            )
    revived = kind(**values)
    current = getattr(revived, "version", 1)
    if request.get("version", 1) != current:
        raise InvalidRequest(
            f"{request['kind']} was stored as version {request.get('version')}, this release has "
            f"version {current}: read it with the release that wrote it"
        )
    return revived


def load_kind(path: str) -> type:
    """The dataclass at "module:Name", if it is one the laboratory may build."""
    module = path.partition(":")[0]
    if module.split(".")[0] != "recombine" and module not in sys.modules:
        # Importing runs code, and a bundle may come from a stranger.
        raise InvalidRequest(
            f"the request names {path!r}: import the package that defines it first"
        )
    try:
        kind = load(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidRequest(
            f"the request names {path!r}, which cannot be imported here: install or import the "
            "package that defines it"
        ) from error
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise InvalidRequest(f"the request names {path!r}, which is not a spec")
    return kind
