"""Recombine: a laboratory for compositional generalization."""

from recombine._lazy import lazy
from recombine._version import __version__ as __version__

_names = {
    "Hyperteacher": "recombine.families.hyperteacher",
    "MLP": "recombine.models.mlp",
    "Seeds": "recombine.seeds",
    "Store": "recombine.lab.store",
    "Subsets": "recombine.combinations",
    "Supervised": "recombine.learners.supervised",
    "SupportRule": "recombine.supports.rules",
    "check_family": "recombine.families.check",
    "check_instrument": "recombine.instruments.check",
    "check_learner": "recombine.learners.check",
    "fit": "recombine.lab.api",
    "load": "recombine.lab.api",
    "run": "recombine.lab.api",
    "write_report": "recombine.lab.api",
}
__getattr__, _public = lazy(__name__, _names)


def __dir__() -> list[str]:
    return ["__version__", *_public]
