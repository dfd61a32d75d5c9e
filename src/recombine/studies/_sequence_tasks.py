"""The tasks that studies of sequences train on, and the configurations they are trained in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recombine._lazy import load
from recombine.errors import unknown
from recombine.families import SEQUENCES
from recombine.families._sequence import SequenceFamily
from recombine.models.sequence import SequenceModel

# What is new in a split: pieces met in training put together anew, or more of them than ever.
ANEW, MORE = "put together anew", "more than ever"


@dataclass(frozen=True)
class Task:
    """A family with its sizes, and the room its items need."""

    family: str
    beyond: dict[str, str]  # what is new in each of its splits
    fields: dict[str, Any]
    small: dict[str, Any]  # what differs where seconds count
    row: int = 128
    rows: int = 2**14
    vocabulary: int = 64

    def made(self, small: bool) -> SequenceFamily:
        return load(SEQUENCES[self.family])(**{**self.fields, **(self.small if small else {})})


FEW_TESTED = {"test_items": 200, "beyond_items": 200, "validation_items": 100}
FEW = {"train_items": 4_000, **FEW_TESTED}
EIGHT = {"functions": 8, "values": 8, "train_items": 6_000}
SCAN = {"held_out": 500, "validation": 300}

TASKS: dict[str, Task] = {
    "scan-length": Task("scan", {"length": MORE}, {"split": "length"}, SCAN),
    "scan-jump": Task("scan", {"addprim_jump": ANEW}, {"split": "addprim_jump"}, SCAN),
    "scan-right": Task("scan", {"template_around_right": ANEW},
                       {"split": "template_around_right"}, SCAN),
    "cogs": Task("cogs", {"lexical": ANEW, "structural": MORE}, {"longest": 254}, {},
                 row=256, vocabulary=1_024),
    "listops": Task("listops", {"depth": MORE, "arguments": MORE}, {"depth": 2}, FEW),
    "pcfg": Task("pcfg", {"systematicity": ANEW, "productivity": MORE}, {}, FEW),
    "functions": Task("functions", {"systematicity": ANEW, "depth": MORE}, {}, FEW),
    "tables": Task("functions", {"systematicity": ANEW, "depth": MORE}, {"maps": "tables"}, FEW),
    "functions-steps": Task("functions", {"systematicity": ANEW, "depth": MORE}, {"steps": True},
                            {**FEW, **EIGHT}),
    "tables-steps": Task("functions", {"systematicity": ANEW, "depth": MORE},
                         {"maps": "tables", "steps": True}, {**FEW, **EIGHT}),
    "arithmetic": Task("arithmetic", {"systematicity": ANEW, "depth": MORE}, {}, FEW),
    "arithmetic-steps": Task("arithmetic", {"systematicity": ANEW, "depth": MORE},
                             {"steps": True}, FEW),
    "programs-run": Task("programs", {"systematicity": ANEW, "depth": MORE}, {}, FEW),
    "programs-write": Task("programs", {"systematicity": ANEW, "depth": MORE},
                           {"asks": "write"}, FEW),
    "multiplication": Task("multiplication", {"4x1": MORE, "3x3": MORE, "4x2": MORE},
                           {"scratchpad": False, "beyond_sizes": ((4, 1), (3, 3), (4, 2))}, FEW),
    "subsequence": Task("subsequence", {f"length-{n}": MORE for n in (6, 7, 8)}, {"longer": 3},
                        {"train_length": 4, "longer": 4, **FEW_TESTED}),
    "zebra": Task("zebra", {"houses": MORE, "attributes": MORE, "both": MORE}, {}, FEW),
}  # fmt: skip

# The published failures are partly a matter of these: positions, the scale of embeddings, tying.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "learned": {"positions": "learned"},
    "learned-small": {"positions": "learned", "embedding": "down"},
    "relative": {"positions": "relative"},
    "relative-small": {"positions": "relative", "embedding": "down"},
    "relative-tied": {"positions": "relative", "tied": True},
    "rotary": {"positions": "rotary"},
    "no-positions": {"positions": "none"},
    "encoder-relative": {"shape": "encoder-decoder", "positions": "relative"},
    "encoder-relative-tied": {
        "shape": "encoder-decoder", "positions": "relative", "tied": True, "embedding": "down"
    },
}  # fmt: skip


def task_named(name: str) -> Task:
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]


def model_named(configuration: str, width: int, depth: int, head: int) -> SequenceModel:
    """A configuration at a size."""
    if configuration not in CONFIGURATIONS:
        raise unknown("configuration", configuration, CONFIGURATIONS)
    heads = max(1, width // head)
    return SequenceModel(depth=depth, width=width, heads=heads, **CONFIGURATIONS[configuration])
