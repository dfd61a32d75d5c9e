"""How a task is told to a model."""

from recombine._lazy import lazy

REGISTRY = {
    "identity": "recombine.encodings.linear:Identity",
    "orthogonal": "recombine.encodings.linear:Orthogonal",
    "tokens": "recombine.encodings.linear:Tokens",
    "invertible-network": "recombine.encodings.nonlinear:InvertibleNetwork",
    "interval-shuffle": "recombine.encodings.nonlinear:IntervalShuffle",
    "few-shot": "recombine.encodings.nonlinear:FewShot",
    "sentence": "recombine.encodings.sentence:Sentence",
}

__getattr__, __all__ = lazy(
    __name__,
    {
        "Encoding": "recombine.encodings._encoding",
        "Identity": "recombine.encodings.linear",
        "Orthogonal": "recombine.encodings.linear",
        "Tokens": "recombine.encodings.linear",
        "InvertibleNetwork": "recombine.encodings.nonlinear",
        "IntervalShuffle": "recombine.encodings.nonlinear",
        "FewShot": "recombine.encodings.nonlinear",
        "Sentence": "recombine.encodings.sentence",
    },
)
