"""Who learns: networks that can also return their activations by layer name."""

from recombine._lazy import lazy

REGISTRY = {"mlp": "recombine.models.mlp:MLP"}

__getattr__, __all__ = lazy(
    __name__,
    {
        "MLP": "recombine.models.mlp",
        "MLPModel": "recombine.models.mlp",
        "Linear": "recombine.models.layers",
        "Wrapper": "recombine.models.layers",
        "Mask": "recombine.models.layers",
        "LowRank": "recombine.models.layers",
        "named_layers": "recombine.models.layers",
        "wrap": "recombine.models.layers",
        "count_parameters": "recombine.models.layers",
    },
)
