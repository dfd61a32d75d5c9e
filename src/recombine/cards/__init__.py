"""One report on a user's model and data: does it compose, where not, why, what to collect."""

from recombine._lazy import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "Decision": "recombine.cards.decision",
        "decide": "recombine.cards.decision",
    },
)
