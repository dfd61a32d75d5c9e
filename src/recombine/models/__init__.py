"""Who learns: networks that can also return their activations by layer name."""

from recombine._lazy import lazy

REGISTRY = {
    "mlp": "recombine.models.mlp:MLP",
    "transformer": "recombine.models.transformer:Transformer",
    "hypernetwork": "recombine.models.hypernetwork:Hypernetwork",
    "affine": "recombine.models.affine:Affine",
    "constructed": "recombine.models.constructed:Constructed",
    "dit": "recombine.models.diffusion:DiT",
}
# Networks over tokens: they read rows of text, not codes and samples.
SEQUENCES = {"sequence": "recombine.models.sequence:SequenceModel"}

__getattr__, __all__ = lazy(
    __name__,
    {
        "Model": "recombine.models._model",
        "Network": "recombine.models._model",
        "MLP": "recombine.models.mlp",
        "MLPModel": "recombine.models.mlp",
        "Transformer": "recombine.models.transformer",
        "TransformerNetwork": "recombine.models.transformer",
        "Hypernetwork": "recombine.models.hypernetwork",
        "HypernetworkNetwork": "recombine.models.hypernetwork",
        "Affine": "recombine.models.affine",
        "AffineNetwork": "recombine.models.affine",
        "Constructed": "recombine.models.constructed",
        "DiT": "recombine.models.diffusion",
        "DiTNetwork": "recombine.models.diffusion",
        "SequenceModel": "recombine.models.sequence",
        "SequenceNetwork": "recombine.models.sequence",
        "answers": "recombine.models.decoding",
        "sample": "recombine.models.sampling",
        "sample_path": "recombine.models.sampling",
        "Linear": "recombine.models.layers",
        "Wrapper": "recombine.models.layers",
        "Mask": "recombine.models.layers",
        "LowRank": "recombine.models.layers",
        "named_layers": "recombine.models.layers",
        "wrap": "recombine.models.layers",
        "count_parameters": "recombine.models.layers",
    },
)
