"""Where data comes from: pinned downloads with checksums, a cache, an offline folder."""

from recombine._lazy import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "DataSet": "recombine.data.registry",
        "File": "recombine.data.registry",
        "Listing": "recombine.data.getting",
        "NotHere": "recombine.data.getting",
        "Patience": "recombine.data.fetching",
        "SETS": "recombine.data.registry",
        "get": "recombine.data.getting",
        "listed": "recombine.data.getting",
        "located": "recombine.data.getting",
    },
)
