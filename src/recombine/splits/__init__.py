"""Splits with stated guarantees: by combination, pair, value or divergence; duplicates whole."""

from recombine._lazy import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "METHODS": "recombine.splits.methods",
        "PARTS": "recombine.splits.methods",
        "Divergences": "recombine.splits.divergence",
        "Shingles": "recombine.splits.duplicates",
        "Split": "recombine.splits.methods",
        "SplitSpec": "recombine.splits.methods",
        "content_labels": "recombine.splits.duplicates",
        "chernoff": "recombine.splits.divergence",
        "divergences": "recombine.splits.divergence",
        "jaccard": "recombine.splits.duplicates",
        "near_labels": "recombine.splits.duplicates",
        "near_pairs": "recombine.splits.duplicates",
        "split": "recombine.splits.methods",
        "split_file": "recombine.splits.writing",
        "together": "recombine.splits.pieces",
    },
)
