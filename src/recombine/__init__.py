"""Recombine: a laboratory for compositional generalization."""

from recombine._lazy import lazy
from recombine._version import __version__ as __version__

_names = {
    "Additive": "recombine.families.additive",
    "Goals": "recombine.families.goals",
    "Hyperteacher": "recombine.families.hyperteacher",
    "MLP": "recombine.models.mlp",
    "Preferences": "recombine.families.preferences",
    "Seeds": "recombine.seeds",
    "Slots": "recombine.combinations",
    "Store": "recombine.lab.store",
    "Subsets": "recombine.combinations",
    "Supervised": "recombine.learners.supervised",
    "SupportRule": "recombine.supports.rules",
    "Transformer": "recombine.models.transformer",
    "check_family": "recombine.families.check",
    "check_instrument": "recombine.instruments.check",
    "check_learner": "recombine.learners.check",
    "construct": "recombine.construction",
    "fit": "recombine.lab.api",
    "load": "recombine.lab.api",
    "repeat": "recombine.lab.api",
    "run": "recombine.lab.api",
    "write_report": "recombine.lab.api",
}
__getattr__, _public = lazy(__name__, _names)


def __dir__() -> list[str]:
    return ["__version__", *_public]
