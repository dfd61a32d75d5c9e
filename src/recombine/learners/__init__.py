"""How it learns."""

from recombine._lazy import lazy

REGISTRY = {
    "supervised": "recombine.learners.supervised:Supervised",
    "recall": "recombine.learners.recall:Recall",
    "as-drawn": "recombine.learners.as_drawn:AsDrawn",
    "flow": "recombine.learners.flow:Flow",
    "next-token": "recombine.learners.next_token:NextToken",
}

__getattr__, __all__ = lazy(
    __name__,
    {
        "Arrays": "recombine.learners._learner",
        "AsDrawn": "recombine.learners.as_drawn",
        "Flow": "recombine.learners.flow",
        "Learner": "recombine.learners._learner",
        "Material": "recombine.learners._learner",
        "NextToken": "recombine.learners.next_token",
        "Program": "recombine.learners._learner",
        "Recall": "recombine.learners.recall",
        "Supervised": "recombine.learners.supervised",
        "check_learner": "recombine.learners.check",
    },
)
