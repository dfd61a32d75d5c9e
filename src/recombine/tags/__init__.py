"""Factor columns made from text: by pattern, word list, a user's function or a language model."""

from recombine._lazy import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "FactorSpec": "recombine.tags.spec",
        "TagSpec": "recombine.tags.spec",
        "Tagged": "recombine.tags.taggers",
        "check_sheet": "recombine.tags.checking",
        "corrected_counts": "recombine.tags.correction",
        "corrected_coverage": "recombine.tags.correction",
        "draw_sheet": "recombine.tags.sheet",
        "read_errors": "recombine.tags.correction",
        "read_spec": "recombine.tags.spec",
        "tag_file": "recombine.tags.writing",
        "tag_records": "recombine.tags.taggers",
    },
)
