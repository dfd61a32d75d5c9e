"""Questions put to living language models: an endpoint, a local model, or a script."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from recombine._lazy import lazy, load
from recombine.errors import NotApplicable, unknown

if TYPE_CHECKING:
    from recombine.live.kit import Kit

REGISTRY: dict[str, str] = {
    "battery": "recombine.live.battery:Battery",
    "embers": "recombine.live.embers:Embers",
    "constraints": "recombine.live.constraints:Constraints",
    "subgraphs": "recombine.live.subgraphs:Subgraphs",
}


def kit_named(name: str) -> Kit:
    """The kit of that name.

    >>> kit_named("battery").name
    'battery'
    """
    if name not in REGISTRY:
        raise unknown("kit", name, REGISTRY)
    module = REGISTRY[name].partition(":")[0]
    if importlib.util.find_spec(module) is None:
        raise NotApplicable(f"the kit {name!r} ({module}) is not part of this installation")
    return load(REGISTRY[name])()


__getattr__, __all__ = lazy(
    __name__,
    {
        "Answer": "recombine.live.model",
        "Answers": "recombine.live.kit",
        "AskingError": "recombine.live.client",
        "ChatEndpoint": "recombine.live.client",
        "Kit": "recombine.live.kit",
        "LocalModel": "recombine.live.local",
        "Model": "recombine.live.model",
        "Options": "recombine.live.kit",
        "Question": "recombine.live.kit",
        "Scripted": "recombine.live.scripted",
        "Taught": "recombine.live.model",
        "TrainedHere": "recombine.live.trained",
        "estimate": "recombine.live.asking",
        "run_kit": "recombine.live.asking",
    },
)
