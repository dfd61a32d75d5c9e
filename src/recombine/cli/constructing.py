"""The `construct` command: a teacher written down as a network, measured and saved."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from recombine.errors import InvalidRequest, unknown

FAMILIES = ("hyperteacher", "additive")


def document(chosen: Namespace) -> dict[str, Any]:
    """Writes the network down and measures it; saves it where asked."""
    if chosen.family not in FAMILIES:
        raise unknown("family", chosen.family, FAMILIES)
    for name, least in (("units", 1), ("samples", 2)):
        if getattr(chosen, name) < least:
            raise InvalidRequest(
                f"--{name} takes a number of at least {least}, got {getattr(chosen, name)}"
            )
    if chosen.memory is not None and not chosen.memory > 0:
        raise InvalidRequest(f"--memory takes a number of GB above 0, got {chosen.memory:g}")
    to = None if chosen.to is None else Path(chosen.to)
    if to is not None and (to.exists() or not to.parent.is_dir()):
        why = "is there already" if to.exists() else f"lies in no folder: make {to.parent} first"
        raise InvalidRequest(f"--to {to} {why}; give a new file in a folder that exists")
    try:
        made = _construct(chosen)
    except InvalidRequest as error:
        raise type(error)(as_typed(str(error))) from error
    measured = made.measure(chosen.samples)
    if to is not None:
        made.save(to)
    family, spec = made.family, made.spec
    sizes = (made.encoding.size(family), family.input_size, family.output_size)
    return {
        "family": chosen.family,
        "modules": family.modules,
        "active": family.active,
        "combinations": family.space.size,
        "encoding": chosen.encoding,
        "method": chosen.method,
        "hidden_layers": [int(width) for width in spec.widths],
        "hidden_neurons": spec.units,
        "parameters": spec.parameters(*sizes),
        "bound": made.bound,
        "largest_error": measured.worst,
        "r2": measured.r2,
        "samples": chosen.samples,
        "saved": None if to is None else str(to),
    }


def _construct(chosen: Namespace) -> Any:
    from recombine._lazy import load
    from recombine.construction import construct
    from recombine.encodings import REGISTRY as ENCODINGS
    from recombine.families import Additive, Hyperteacher
    from recombine.seeds import Seeds

    units = chosen.units
    if chosen.encoding not in ENCODINGS:
        raise unknown("encoding", chosen.encoding, ENCODINGS)
    place = {"modules": chosen.modules, "active": chosen.active}
    if chosen.family == "additive":
        family = Additive(**place, input_units=units, features=units, output_units=units)
    else:
        family = Hyperteacher(**place, input_units=units, hidden=(units,), output_units=units)
    if chosen.segments is not None and chosen.method == "depth":
        raise InvalidRequest("--segments is for --method segments; give --tolerance with depth")
    return construct(
        family,
        tolerance=chosen.tolerance,
        segments=chosen.segments,
        method=chosen.method,
        encoding=load(ENCODINGS[chosen.encoding])(),
        seeds=Seeds.all(chosen.seed),
        memory_bytes=None if chosen.memory is None else int(chosen.memory * 1e9),
    )


def as_typed(message: str) -> str:
    """A message that names arguments and classes of Python, with the words typed for them.

    >>> as_typed("use tolerance=0.05 or method='depth' or memory_bytes=2500000000")
    'use --tolerance 0.05 or --method depth or --memory 2.5'
    """
    from recombine.encodings import REGISTRY as ENCODINGS

    names = {path.partition(":")[2]: name for name, path in ENCODINGS.items()}
    text = re.sub(r"\b[A-Z]\w+\b", lambda found: names.get(found[0], found[0]), message)
    text = re.sub(
        r"memory_bytes=(\d+)", lambda found: f"--memory {_gigabytes(int(found[1]))}", text
    )
    text = text.replace("memory_bytes", "--memory")
    text = text.replace("tolerance, segments and squarings", "--tolerance and --segments")
    return re.sub(r"\b(tolerance|method|segments|modules|active)='?([\w.+-]+)'?", r"--\1 \2", text)


def _gigabytes(count: int) -> str:
    """Rounded up to three digits: what is shown must be enough."""
    return f"{float(f'{count / 1e9 * 1.005:.3g}'):g}" if count % 10**7 else f"{count / 1e9:g}"


def lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    layers = " + ".join(f"{width:,}" for width in found["hidden_layers"])
    of = f"{found['combinations']:,} combinations of at most {found['active']} of "
    told = [
        f"{found['family']}: {of}{found['modules']} modules, told by {found['encoding']}",
        f"hidden neurons: {found['hidden_neurons']:,} ({layers})",
        f"parameters: {found['parameters']:,}",
        f"no answer is off by more than {found['bound']:.3g} (known in advance)",
        f"largest error on {found['samples']:,} random tasks and inputs: "
        f"{found['largest_error']:.3g}",
        f"R²: {found['r2']:.6f}",
    ]
    if found["saved"]:
        told.append(f"saved: {found['saved']}")
    return told
