"""Does one part of a task live in weights of its own?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from recombine.checks import at_least
from recombine.errors import NotApplicable
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.mask_subject import Keep, MaskSubject
from recombine.instruments.subject import Subject
from recombine.seeds import host_seed

if TYPE_CHECKING:
    from recombine.learners._learner import Learner


@dataclass(frozen=True)
class Subnetworks(Instrument):
    """What a network can still do with only the weights a mask keeps, and with only the others.

    `subnetwork` and `ablation` are differences, own part minus others: a part that has a subnetwork
    of its own has a subnetwork near 1 - chance and an ablation near chance - 1. They are given raw
    and with scores below chance raised to it. Masks are powerful learners: only an ablation tells,
    and only beside its controls. Controls: the untrained mask, as masks begin (it keeps everything,
    unless their method or `begin` say otherwise; masks over networks that were never trained are a
    study's own condition); ablations of as many weights of each layer at
    random; and of as many that the mask does not keep. Where it keeps more than half of a layer
    there are fewer of these: then the `density` of `complement`, the share of weights that were
    taken out, is below that of the mask, and the table `notes` names the layers. `planted` is the
    end of the scale: what would be read of a part with weights of its own in this network. Whether
    masks can find such a part is a matter of a network that has one (`PlantedOdd`).
    """

    version: ClassVar[int] = 1
    name: ClassVar[str] = "subnetworks"
    needs: ClassVar[tuple[str, ...]] = ("weights",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "random", "complement", "planted")

    batches: int = 8
    draws: int = 6  # of random masks
    overlaps: bool = True  # whether the mask of another part is learnt too, and compared

    def __post_init__(self):
        at_least(self, batches=1, draws=1)

    def cells(self, learner: Learner) -> dict[str, Learner]:
        from recombine.learners.masks import MaskLearner

        if not self.overlaps or not isinstance(learner, MaskLearner):
            return {}
        return {"another part": replace(learner, part=(learner.part + 1) % learner.parts)}

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        mask, twin = _mask(subject, self.name), _mask(untrained, self.name)
        rng = np.random.default_rng(host_seed(mask.learner.seed, self.name))
        keep, real = mask.keep, mask.real
        values = self.scored(mask, "whole", [real])
        values["learnt"] = mask.learnt(keep, self.batches)
        values |= self.scored(mask, "subnetwork", [keep])
        values |= self.scored(mask, "ablation", [_without(real, keep)])
        values["density"] = _count(keep) / _count(real)
        counts = {path: int(kept.sum()) for path, kept in keep.items()}
        spared = _without(real, keep)
        random = [_without(real, sampled(real, counts, rng)) for _ in range(self.draws)]
        others_taken = [sampled(spared, counts, rng) for _ in range(self.draws)]
        complement = [_without(real, taken) for taken in others_taken]
        controls = {
            "untrained": self.scored(mask, "ablation", [_without(real, twin.keep)]),
            "random": self.scored(mask, "ablation", random),
            "complement": {
                **self.scored(mask, "ablation", complement),
                "density": _count(others_taken[0]) / _count(real),
            },
            "planted": {
                "ablation_own": mask.chance, "ablation_other": values["whole_other"],
                "ablation": mask.chance - max(values["whole_other"], mask.chance),
            },
        }  # fmt: skip
        if "another part" in others:
            values |= overlap(keep, _mask(others["another part"], self.name).keep, real)
        layers = {
            "layer": list(keep), "weights": [int(real[p].sum()) for p in keep],
            "kept": [int(keep[p].sum()) for p in keep],
            "density": [float(keep[p].sum() / real[p].sum()) for p in keep],
        }  # fmt: skip
        return Reading(values, controls, {"layers": layers, **_notes(layers)})

    def scored(self, mask: MaskSubject, name: str, keeps: list[Keep]) -> dict[str, float]:
        """Own part and others under masks (mean over several), and their difference."""
        found = np.asarray([mask.scores(keep, self.batches) for keep in keeps])
        own, other = found.mean(axis=0)
        clipped = np.maximum(found, mask.chance).mean(axis=0)
        return {
            f"{name}_own": float(own), f"{name}_other": float(other),
            f"{name}_raw": float(own - other), name: float(clipped[0] - clipped[1]),
        }  # fmt: skip


def sampled(pool: Keep, counts: Mapping[str, int], rng: np.random.Generator) -> Keep:
    """As many weights of each layer as asked for, or all there are, at random from a pool."""
    found = {}
    for path, allowed in pool.items():
        places = np.flatnonzero(allowed)
        chosen = rng.choice(places, min(counts[path], places.size), replace=False)
        mask = np.zeros(allowed.size, bool)
        mask[chosen] = True
        found[path] = mask.reshape(allowed.shape)
    return found


def crowded(layers: Mapping[str, list[Any]]) -> list[str]:
    """Layers of which a mask keeps more than half, so that there are not as many others.

    `layers` is the table of a reading.

    >>> crowded({"layer": ["a", "b"], "weights": [4, 4], "kept": [2, 3], "density": [0.5, 0.75]})
    ['b']
    """
    columns = (layers[name] for name in ("layer", "weights", "kept"))
    return [layer for layer, weights, kept in zip(*columns, strict=True) if 2 * kept > weights]


def _notes(layers: Mapping[str, list[Any]]) -> dict[str, dict[str, list[Any]]]:
    found = crowded(layers)
    if not found:
        return {}
    why = (
        f"the mask keeps more than half of {', '.join(found)}: fewer weights that it does not keep "
        "were taken out than it keeps"
    )
    return {"notes": {"control": ["complement"], "why": [why]}}


def overlap(first: Keep, second: Keep, real: Keep) -> dict[str, float]:
    """Intersection over union of two masks, and what it would be if they were drawn apart.

    >>> one, two = {"a": np.array([1, 1, 0, 0], bool)}, {"a": np.array([0, 1, 1, 0], bool)}
    >>> overlap(one, two, {"a": np.ones(4, bool)})["overlap"]
    0.3333333333333333
    """
    both = sum(int((first[p] & second[p]).sum()) for p in first)
    either = sum(int((first[p] | second[p]).sum()) for p in first)
    # Drawn independently layer by layer, with the densities they have.
    chance = sum(first[p].sum() * second[p].sum() / max(1, real[p].sum()) for p in first)
    total = _count(first) + _count(second)
    return {
        "overlap": both / either if either else 0.0,
        "overlap_by_chance": float(chance / (total - chance)) if total else 0.0,
    }


def _without(real: Keep, taken: Keep) -> Keep:
    return {path: real[path] & ~taken[path] for path in real}


def _count(keep: Keep) -> int:
    return sum(int(mask.sum()) for mask in keep.values())


def _mask(subject: Subject, instrument: str) -> MaskSubject:
    if isinstance(subject, MaskSubject):
        return subject
    said = f"{instrument} looks at masks, and {type(subject).__name__} is none"
    if why := _no_parts(subject):
        raise NotApplicable(f"{said}; nor can one be learnt over this network: {why}")
    raise NotApplicable(
        f"{said}: train one over this network first (learner masks), if its task has parts"
    )


def _no_parts(subject: Subject) -> str:
    """Why no mask can be learnt over a subject's network, where it says what it learnt by."""
    from recombine.learners._learner import Learner
    from recombine.learners.masks import MaskLearner

    learner = getattr(subject, "learner", None)
    if isinstance(learner, Learner):
        try:
            MaskLearner(base=learner).parted()
        except NotApplicable as error:
            return str(error)
    return ""
