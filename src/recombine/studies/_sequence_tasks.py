"""The tasks that studies of sequences train on, and the configurations they are trained in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recombine._lazy import load
from recombine.errors import unknown
from recombine.families import SEQUENCES
from recombine.families._sequence import SequenceFamily
from recombine.models.sequence import SequenceModel

# What is new in a split: pieces met in training put together anew, more of them than ever, or some
# of both, which counts as neither.
ANEW, MORE, MIXED = "put together anew", "more than ever", "anew or more than ever"
KINDS = (ANEW, MORE, MIXED)


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
    judged: str = ""  # the family's own score where an answer need not be exact to be right
    curves: bool = True  # whether curves of what is beyond training hold just the splits `beyond`

    @property
    def right(self) -> str:
        return RIGHT[self.judged]

    def made(self, small: bool, content: int = 0) -> SequenceFamily:
        """The family; what its functions do is drawn from `content`, where it has functions."""
        kind = load(SEQUENCES[self.family])
        drawn = {"content": content} if "content" in kind.__dataclass_fields__ else {}
        return kind(**{**self.fields, **(self.small if small else {}), **drawn})


RIGHT = {"": "exact", "works": "right by what they do", "answer": "right in the end"}
FEW_TESTED = {"test_items": 200, "beyond_items": 200, "validation_items": 100}
FEW = {"train_items": 4_000, **FEW_TESTED}
EIGHT = {"functions": 8, "values": 8, "train_items": 6_000}
# Twelve functions give so few chains that a network learns them by heart.
MANY = {"functions": 24, "values": 6, "train_items": 120_000}
TWELVE = {**FEW, "functions": 12, "values": 10}
SCAN = {"held_out": 500, "validation": 300}

TASKS: dict[str, Task] = {
    "scan-length": Task("scan", {"length": MORE}, {"split": "length"}, SCAN),
    "scan-jump": Task("scan", {"addprim_jump": ANEW}, {"split": "addprim_jump"}, SCAN),
    "scan-right": Task("scan", {"template_around_right": ANEW},
                       {"split": "template_around_right"}, SCAN),
    "cogs": Task("cogs", {"lexical": ANEW, "structural": MIXED}, {"longest": 254}, {},
                 row=256, vocabulary=1_024),
    "listops": Task("listops", {"depth": MORE, "arguments": MORE}, {"depth": 2}, FEW),
    "pcfg": Task("pcfg", {"systematicity": ANEW, "productivity": MORE}, {}, FEW),
    "functions": Task("functions", {"systematicity": ANEW, "depth": MORE}, MANY, TWELVE),
    "tables": Task("functions", {"systematicity": ANEW, "depth": MORE},
                   {"maps": "tables", **MANY}, TWELVE),
    "functions-steps": Task("functions", {"systematicity": ANEW, "depth": MORE}, {"steps": True},
                            {**FEW, **EIGHT}),
    "tables-steps": Task("functions", {"systematicity": ANEW, "depth": MORE},
                         {"maps": "tables", "steps": True}, {**FEW, **EIGHT}),
    "arithmetic": Task("arithmetic", {"systematicity": ANEW, "depth": MORE},
                       {"modulus": 10, "depth": 2, "deepest": 4}, FEW),
    "arithmetic-steps": Task("arithmetic", {"systematicity": ANEW, "depth": MORE},
                             {"steps": True}, FEW),
    "programs-run": Task("programs", {"systematicity": ANEW, "depth": MORE},
                         {"train_items": 100_000}, FEW),
    "programs-write": Task("programs", {"systematicity": ANEW, "depth": MORE},
                           {"asks": "write", "train_items": 120_000}, FEW, rows=2**16,
                           judged="works"),
    "multiplication": Task("multiplication", {"5x1": MORE, "2x2": MORE, "3x2": MORE},
                           {"scratchpad": False, "train_sizes": ((1, 1), (2, 1), (3, 1), (4, 1)),
                            "beyond_sizes": ((5, 1), (2, 2), (3, 2)), "train_items": 60_000},
                           FEW),
    "subsequence": Task("subsequence", {f"length-{n}": MORE for n in (6, 7, 8)}, {"longer": 3},
                        {"train_length": 4, "longer": 4, **FEW_TESTED}),
    # Ciphers, reversal, Pig Latin, sorting and counting at once; beyond training, known words in
    # an order drawn anew (medium) and random letters (low).
    "strings": Task("strings", {f"{way} {condition}": ANEW for condition in ("medium", "low")
                                for way in ("decode common", "reverse encode", "pig latin encode")},
                    {"shifts": 8, "train_items": 36_000, "sentences": 400}, {"train_items": 4_000},
                    curves=False),
    "zebra": Task("zebra",
                  {"structure": ANEW, "houses": MORE, "attributes": MORE, "both": MORE},
                  {"steps": True, "attributes": 2, "clues": ("at", "same", "left"),
                   "train_items": 40_000},
                  FEW, row=256, vocabulary=1_024, judged="answer"),
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
