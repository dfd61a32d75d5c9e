"""What is composed: families of tasks built from the same modules."""

from recombine._lazy import lazy

REGISTRY = {
    "hyperteacher": "recombine.families.hyperteacher:Hyperteacher",
    "additive": "recombine.families.additive:Additive",
    "preferences": "recombine.families.preferences:Preferences",
    "goals": "recombine.families.goals:Goals",
    "scenes": "recombine.families.scenes:Scenes",
}

__getattr__, __all__ = lazy(
    __name__,
    {
        "Family": "recombine.families._family",
        "Regression": "recombine.families._family",
        "World": "recombine.families._world",
        "Hyperteacher": "recombine.families.hyperteacher",
        "Additive": "recombine.families.additive",
        "Preferences": "recombine.families.preferences",
        "Goals": "recombine.families.goals",
        "Scenes": "recombine.families.scenes",
        "check_family": "recombine.families.check",
    },
)
