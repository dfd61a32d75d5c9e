"""How it learns."""

from recombine._lazy import lazy

REGISTRY = {
    "supervised": "recombine.learners.supervised:Supervised",
    "recall": "recombine.learners.recall:Recall",
}

__getattr__, __all__ = lazy(
    __name__,
    {
        "Arrays": "recombine.learners._learner",
        "Learner": "recombine.learners._learner",
        "Material": "recombine.learners._learner",
        "Program": "recombine.learners._learner",
        "Recall": "recombine.learners.recall",
        "Supervised": "recombine.learners.supervised",
        "check_learner": "recombine.learners.check",
    },
)
