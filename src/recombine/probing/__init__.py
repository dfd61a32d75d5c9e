"""Probing arrays of activations: is a factor linearly readable, also in unseen combinations?"""

from recombine._lazy import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "Bars": "recombine.probing.verdicts",
        "PairReading": "recombine.probing.pairs",
        "ProbeReading": "recombine.probing.readings",
        "Target": "recombine.probing.targets",
        "TargetReading": "recombine.probing.readings",
        "groups_of": "recombine.probing.targets",
        "probe": "recombine.probing.probes",
        "read_arrays": "recombine.data.arrays",
        "report": "recombine.probing.page",
        "targets_of": "recombine.probing.targets",
        "write_page": "recombine.probing.page",
    },
)
