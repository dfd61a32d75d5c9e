"""Whether answers lean towards what is likely: published stimuli scored again, and measures."""

from recombine._lazy import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "CONDITIONS": "recombine.probability.embers",
        "Log": "recombine.probability.embers",
        "Question": "recombine.probability.embers",
        "item_table": "recombine.probability.embers",
        "log": "recombine.probability.embers",
        "questions": "recombine.probability.embers",
        "regression": "recombine.probability.embers",
        "score": "recombine.probability.embers",
        "McNemar": "recombine.probability.scoring",
        "Score": "recombine.probability.scoring",
        "levenshtein": "recombine.probability.scoring",
        "mcnemar": "recombine.probability.scoring",
        "paired_difference": "recombine.probability.scoring",
        "scored": "recombine.probability.scoring",
        "Effects": "recombine.probability.measures",
        "Regularisation": "recombine.probability.measures",
        "Table": "recombine.probability.measures",
        "area_between": "recombine.probability.measures",
        "coefficients": "recombine.probability.measures",
        "gap_when": "recombine.probability.measures",
        "regularisation": "recombine.probability.measures",
        "tabulated": "recombine.probability.measures",
    },
)
