"""What training may see: rules that split the combinations, and what a split implies."""

from recombine._lazy import lazy

REGISTRY = {
    "random": "recombine.supports.drawing:RANDOM",
    "fixed-size": "recombine.supports.drawing:FIXED_SIZE",
    "balanced": "recombine.supports.balanced:BALANCED",
    "popular": "recombine.supports.popularity:POPULAR",
    "unpopular": "recombine.supports.popularity:UNPOPULAR",
    "minimal": "recombine.supports.popularity:MINIMAL",
    "disconnected": "recombine.supports.groups:DISCONNECTED",
    "half-disconnected": "recombine.supports.groups:HALF_DISCONNECTED",
    "ring-connected": "recombine.supports.groups:RING_CONNECTED",
    "non-compositional": "recombine.supports.groups:NON_COMPOSITIONAL",
    "held-out-pairs": "recombine.supports.withheld:HELD_OUT_PAIRS",
    "correlated": "recombine.supports.correlated:CORRELATED",
    "few-changed": "recombine.supports.withheld:FEW_CHANGED",
}

__getattr__, __all__ = lazy(
    __name__,
    {
        "Collected": "recombine.supports.collected",
        "LAWS": "recombine.supports.rules",
        "LEVELS": "recombine.supports._novelty",
        "Novelty": "recombine.supports._novelty",
        "Rule": "recombine.supports.drawing",
        "Support": "recombine.supports.support",
        "SupportRule": "recombine.supports.rules",
        "novelty": "recombine.supports._novelty:novelty",
    },
)
