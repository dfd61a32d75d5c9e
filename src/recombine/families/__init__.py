"""What is composed: families of tasks built from shared modules."""

from recombine._lazy import lazy

REGISTRY = {
    "hyperteacher": "recombine.families.hyperteacher:Hyperteacher",
}

__getattr__, __all__ = lazy(
    __name__,
    {
        "Family": "recombine.families._family",
        "Hyperteacher": "recombine.families.hyperteacher",
        "check_family": "recombine.families.check",
    },
)
