"""How it learns."""

from recombine._lazy import lazy

REGISTRY = {
    "supervised": "recombine.learners.supervised:Supervised",
    "recall": "recombine.learners.recall:Recall",
    "as-drawn": "recombine.learners.as_drawn:AsDrawn",
    "flow": "recombine.learners.flow:Flow",
    "next-token": "recombine.learners.next_token:NextToken",
    "binding": "recombine.learners.binding:Binding",
    "segregation": "recombine.learners.segregation:Segregation",
    "odd-one-out": "recombine.learners.odd_one_out:OddOneOut",
    "pretraining": "recombine.learners.pretraining:Pretraining",
    "masks": "recombine.learners.masks:MaskLearner",
    "continued": "recombine.learners.continued:Continued",
    "new-module": "recombine.learners.new_module:NewModule",
    "pictures": "recombine.learners.pictures:PictureLearner",
}

__getattr__, __all__ = lazy(
    __name__,
    {
        "Arrays": "recombine.learners._learner",
        "AsDrawn": "recombine.learners.as_drawn",
        "Binding": "recombine.learners.binding",
        "Continued": "recombine.learners.continued",
        "Flow": "recombine.learners.flow",
        "Learner": "recombine.learners._learner",
        "MaskLearner": "recombine.learners.masks",
        "Masking": "recombine.learners.masks",
        "Material": "recombine.learners._learner",
        "NewModule": "recombine.learners.new_module",
        "NextToken": "recombine.learners.next_token",
        "OddOneOut": "recombine.learners.odd_one_out",
        "PlantedOdd": "recombine.learners.planted",
        "RotatedOdd": "recombine.learners.rotated",
        "Pretraining": "recombine.learners.pretraining",
        "Program": "recombine.learners._learner",
        "Recall": "recombine.learners.recall",
        "Segregation": "recombine.learners.segregation",
        "Supervised": "recombine.learners.supervised",
        "check_learner": "recombine.learners.check",
    },
)
