"""The datasets and networks of the foretold study: four families at four sizes.

Requests that other studies make too are made in the same words, so that a store which has them
trains them once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from recombine.combinations import Slots
from recombine.encodings.linear import Identity
from recombine.errors import InvalidRequest, unknown
from recombine.families.additive import Additive
from recombine.instruments.composition import Composition
from recombine.instruments.generalization import Generalization
from recombine.lab.study import Cell
from recombine.learners._tasks import build_support
from recombine.learners.supervised import Supervised
from recombine.models.mlp import MLP
from recombine.studies import _base as base
from recombine.studies.goals import GoalsStudy
from recombine.studies.images import Grid as Pictures
from recombine.studies.images import Images
from recombine.supports import SupportRule

FAMILIES = ("hyperteacher", "additive", "goals", "scenes")


@dataclass(frozen=True)
class Setting:
    """One family at one size: two widths of network, and what their training may see.

    `modules`, `active` and `depth` are those of the teachers; the other families have their own.
    """

    width: tuple[int, int]
    datasets: tuple[tuple[str, float], ...]
    modules: int = 16
    active: int = 3
    depth: int = 4


def _datasets(
    random: tuple[float, ...], never: float, broken: float, **others: float
) -> tuple[tuple[str, float], ...]:
    """Random supports of some shares, others that connect, and the two that do not."""
    return (
        *(("random", share) for share in random),
        *((rule.replace("_", "-"), share) for rule, share in others.items()),
        ("disconnected", broken),
        ("non-compositional", never),
    )


# A value that is never seen holds out whatever has it; half a combination more, so that a random
# support of this share, rounded down, holds out exactly as many.
_OF_92, _OF_696, _OF_108, _OF_500, _OF_55 = 29.5 / 92, 121.5 / 696, 27.5 / 108, 100.5 / 500, 0.2
# As the goals study writes .65 of 500.
_GOALS = 325.5 / 500
_SMALL = _datasets((0.4, 0.8), _OF_92, 0.4, correlated=0.6, unpopular=0.4)
_LARGE = _datasets((0.25, 0.5, 0.95), _OF_696, 0.75, correlated=0.75, unpopular=0.75)
_TEACHERS = _datasets((0.25, 0.5, 0.95), _OF_696, 0.25, correlated=0.75, unpopular=0.25)
_WORLDS = _datasets((0.25, 0.75, 0.9), _OF_500, _GOALS, correlated=_GOALS, unpopular=_GOALS)
_MORE = (("popular", 0.25), ("held-out-pairs", 0.5), ("balanced", 0.5))

SIZES: Mapping[str, Mapping[str, Setting]] = {
    "smoke": {
        "hyperteacher": Setting((12, 16), (("random", 0.5), ("disconnected", 0.5)), 6, 2, 2),
        "additive": Setting((12, 16), (("random", 0.5), ("disconnected", 0.5)), 6, 2, 2),
        "goals": Setting((12, 16), (("random", 0.25), ("disconnected", _GOALS))),
        "scenes": Setting((16, 32), (("random", 0.5), ("disconnected", 0.6))),
    },
    "quick": {
        "hyperteacher": Setting((64, 128), _SMALL, 8, 3, 2),
        "additive": Setting((64, 128), _SMALL, 8, 3, 2),
        "goals": Setting(
            (64, 128), _datasets((0.25, 0.75), _OF_108, 0.8, correlated=0.65, unpopular=0.65)
        ),
        "scenes": Setting(
            (32, 64), _datasets((0.25, 0.5), _OF_55, 0.6, correlated=0.5, unpopular=0.5)
        ),
    },
    "standard": {
        "hyperteacher": Setting((256, 512), _TEACHERS),
        "additive": Setting((128, 256), _LARGE),
        "goals": Setting((128, 256), _WORLDS),
        "scenes": Setting((64, 96), _LARGE),
    },
    "paper": {
        "hyperteacher": Setting((256, 1024), _TEACHERS + _MORE),
        "additive": Setting((256, 1024), _LARGE + _MORE),
        "goals": Setting((128, 512), (*_WORLDS, ("popular", _GOALS), ("held-out-pairs", _GOALS))),
        "scenes": Setting((128, 256), _LARGE + _MORE),
    },
}
"""What each family is trained on, by preset."""

_PICTURES: dict[str, Pictures] = {
    "smoke": replace(Images.presets["smoke"], width=(16, 32), middle=16),
    "quick": Images.presets["quick"],
    "standard": replace(Images.presets["standard"], steps=6_000, evaluations=10),
    "paper": Images.presets["paper"],
}
# Pictures of a combination: of a few combinations, enough to tell one that fails.
_ASKED = {"smoke": (8, 4), "quick": (32, 8), "standard": (160, 16), "paper": (256, 32)}


def cells(
    size: str, families: tuple[str, ...], rules: tuple[str, ...], seeds: Iterable[int]
) -> Iterator[Cell]:
    """Every network of the study, labelled with what is known of its dataset."""
    if size not in SIZES:
        raise unknown("size", size, SIZES)
    for family in families:
        if family not in SIZES[size]:
            raise unknown("family", family, SIZES[size])
        setting = SIZES[size][family]
        for rule, share in setting.datasets:
            if rule not in rules:
                continue
            for seed in seeds:
                for width in setting.width:
                    yield _cell(size, family, setting, SupportRule(rule, share), width, seed)


def _cell(
    size: str, family: str, setting: Setting, support: SupportRule, width: int, seed: int
) -> Cell:
    learner = _learner(size, family, setting, support, width, seed)
    instrument: Generalization | Composition = Generalization()
    if family == "scenes":
        combinations, draws = _ASKED[size]
        instrument = Composition(combinations=combinations, draws=draws, guidance=2.0, steps=20)
    labels = {
        "family": family, "rule": support.rule, "held_out": support.held_out, "width": width,
        "model": "narrow" if width == setting.width[0] else "wide", "seed": seed,
        "parameters": learner.size, "draws": instrument.draws, **facts(learner),
    }  # fmt: skip
    return Cell(learner, labels, (instrument,))


def _learner(
    size: str, family: str, setting: Setting, support: SupportRule, width: int, seed: int
) -> Supervised:
    if family == "goals":
        worlds = GoalsStudy()
        cell = worlds.cell(worlds.grid(size), width=width, held_out=support.held_out,
                           rule=support.rule, seed=seed)  # fmt: skip
    elif family == "scenes":
        cell = Images().cell(_PICTURES[size], width=width, held_out=support.held_out, seed=seed)
    elif family == "additive":
        training = base.training_named(size)
        teacher = Additive(
            modules=setting.modules, active=setting.active, input_units=training.teacher,
            features=training.teacher, output_units=training.teacher,
        )  # fmt: skip
        cell = base.family_cell(training, teacher, support, Identity(),
                                MLP(width=width, depth=setting.depth), seed, (), {})  # fmt: skip
    else:
        cell = base.cell(base.training_named(size), modules=setting.modules, active=setting.active,
                         width=width, depth=setting.depth, rule=support.rule,
                         held_out=support.held_out, seed=seed)  # fmt: skip
    assert isinstance(cell.learner, Supervised)
    return replace(cell.learner, support=support)


def facts(learner: Supervised) -> dict[str, Any]:
    """What can be said of a dataset before anything is trained; nothing of one that cannot be."""
    try:
        support = build_support(learner.family, learner.support, learner.seeds.support)
    except InvalidRequest:
        return {}
    return {
        "covered": support.covered, "connected": support.connected,
        "pair_coverage": support.pair_coverage, "triple_coverage": support.triple_coverage,
        "factors": isinstance(support.space, Slots),
    }  # fmt: skip
