"""What we look at: readings of a subject, each with its controls."""

from recombine._lazy import lazy

REGISTRY = {
    "generalization": "recombine.instruments.generalization:Generalization",
    "decodability": "recombine.instruments.decodability:Decodability",
    "erasure": "recombine.instruments.erasure:Erasure",
    "rollout": "recombine.instruments.rollout:Rollout",
    "exactness": "recombine.instruments.exactness:Exactness",
    "function-decoder": "recombine.instruments.function_decoder:FunctionDecoder",
    "composition": "recombine.instruments.composition:Composition",
    "foretelling": "recombine.instruments.foretelling:Foretelling",
    "exact-match": "recombine.instruments.exact_match:ExactMatch",
    "subgraphs": "recombine.instruments.subgraphs:Subgraphs",
    "probability": "recombine.instruments.probability:Probability",
    "constraints": "recombine.instruments.constraints:Constraints",
    "binding": "recombine.instruments.binding:Binding",
    "segregation": "recombine.instruments.segregation:Segregation",
    "subnetworks": "recombine.instruments.subnetworks:Subnetworks",
    "fracture": "recombine.instruments.fracture:Fracture",
    "symmetry": "recombine.instruments.symmetry:Symmetry",
    "picture-fracture": "recombine.instruments.picture_fracture:PictureFracture",
    "uncertainty": "recombine.instruments.uncertainty:Uncertainty",
}

__getattr__, __all__ = lazy(
    __name__,
    {
        "Binding": "recombine.instruments.binding",
        "Composition": "recombine.instruments.composition",
        "Constraints": "recombine.instruments.constraints",
        "Decodability": "recombine.instruments.decodability",
        "Erasure": "recombine.instruments.erasure",
        "ExactMatch": "recombine.instruments.exact_match",
        "Exactness": "recombine.instruments.exactness",
        "Foretelling": "recombine.instruments.foretelling",
        "FunctionDecoder": "recombine.instruments.function_decoder",
        "Fracture": "recombine.instruments.fracture",
        "Generalization": "recombine.instruments.generalization",
        "Instrument": "recombine.instruments._instrument",
        "Probability": "recombine.instruments.probability",
        "Reading": "recombine.instruments._instrument",
        "Rollout": "recombine.instruments.rollout",
        "Segregation": "recombine.instruments.segregation",
        "Subgraphs": "recombine.instruments.subgraphs",
        "Subnetworks": "recombine.instruments.subnetworks",
        "Subject": "recombine.instruments.subject",
        "Symmetry": "recombine.instruments.symmetry",
        "Uncertainty": "recombine.instruments.uncertainty",
        "check_instrument": "recombine.instruments.check",
    },
)
