"""What is composed: families of tasks built from the same modules."""

from recombine._lazy import lazy

REGISTRY = {
    "hyperteacher": "recombine.families.hyperteacher:Hyperteacher",
    "additive": "recombine.families.additive:Additive",
    "preferences": "recombine.families.preferences:Preferences",
    "goals": "recombine.families.goals:Goals",
    "scenes": "recombine.families.scenes:Scenes",
}
# Families of text, which have items instead of modules' content on the device.
SEQUENCES = {
    "scan": "recombine.families.scan:Scan",
    "cogs": "recombine.families.cogs:Cogs",
    "listops": "recombine.families.listops:ListOps",
    "pcfg": "recombine.families.pcfg:Pcfg",
    "functions": "recombine.families.functions:Functions",
    "arithmetic": "recombine.families.arithmetic:Arithmetic",
    "programs": "recombine.families.programs:Programs",
    "zebra": "recombine.families.zebra:Zebra",
    "multiplication": "recombine.families.multiplication:Multiplication",
    "subsequence": "recombine.families.subsequence:Subsequence",
    "strings": "recombine.families.strings:Strings",
    "power-flow": "recombine.families.power_flow:PowerFlowFamily",
    "portfolio": "recombine.families.portfolio:PortfolioFamily",
    "scheduling": "recombine.families.scheduling:SchedulingFamily",
    "knapsack": "recombine.families.knapsack:KnapsackFamily",
    "chains": "recombine.families.chains:Chains",
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
        "FieldsOdd": "recombine.families.odd_one_out",
        "OddFamily": "recombine.families.odd_one_out",
        "PicturesOdd": "recombine.families.odd_one_out",
        "SentencesOdd": "recombine.families.odd_one_out",
        "check_family": "recombine.families.check",
        "check_sequence_family": "recombine.families.check_sequences",
        "Corpus": "recombine.families._sequence",
        "Item": "recombine.families._sequence",
        "SequenceFamily": "recombine.families._sequence",
        **{path.partition(":")[2]: path for path in SEQUENCES.values()},
    },
)
