"""What the report of the foretold study shows of predictions carried over to another family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recombine.lab.statistics import mean_interval
from recombine.lab.study import Results
from recombine.report.document import Section, Table
from recombine.report.figures import Points, scatter
from recombine.studies import _foretold as parts
from recombine.studies import _foretold_prediction as prediction

BINS = 8
Told = dict[str, list[prediction.Foretold]]


def transfer_section(results: Results) -> Section | None:
    """How well failures of one family are foretold from the others; nothing of a single family."""
    told, every = prediction.foretold(parts.covered(results)), prediction.foretold(results)
    if not told:
        return None
    figure = scatter(
        "Foretold and found", "foretold chance of failure", "share that fails",
        [_calibration(family, found) for family, found in told.items()], diagonal=True,
        caption="Each point is an eighth of a family's unseen combinations, by foretold chance; "
        "every network on a dataset that shows every value counts alike.",
    )  # fmt: skip
    return Section(
        "Foretold in a family never seen",
        "A logistic regression on what is new in a combination (its level, the shares of its pairs "
        "and triples never trained, the usage of its rarest module, its distance and its nearest "
        "neighbour) is fitted to all families but one, and foretells that one. Points on the "
        "diagonal mean that chances are right there, too; a lower log loss is better, and a "
        "negative difference means that novelty foretells more than the baseline does. Claims "
        "use datasets that show every value: that a value never shown fails can be foretold "
        "without looking. The second table adds the others, in fitting and in testing.",
        (figure,),
        (_losses("Log loss in the family left out", told),
         _losses("Log loss with datasets that never show a value", every)),
    )  # fmt: skip


def _losses(title: str, told: Told) -> Table:
    table = []
    for family, found in told.items():
        cells: list[Any] = [family, round(float(np.mean([o.failed.mean() for o in found])), 2)]
        losses = [_kind_means(found, lambda one, m=m: one.log_loss(m)) for m in prediction.MODELS]
        cells += [round(float(np.mean(loss)), 3) for loss in losses]
        baselines = (prediction.OVERALL, prediction.USAGE)
        cells += [text(list(prediction.gains(found, over))) for over in baselines]
        table.append([*cells, len(losses[0])])
    columns = ["family", "fails", *prediction.MODELS, "minus overall", "minus usage", "kinds"]
    return Table(
        title, columns, table,
        "Fails: the share of unseen combinations that fail. Then the log loss of three "
        "predictions, and what that of novelty is minus that of each baseline, with 95 % "
        "intervals over kinds of dataset.",
    )  # fmt: skip


def _kind_means(
    found: Sequence[prediction.Foretold], number: Callable[[prediction.Foretold], float]
) -> list[float]:
    values = {id(one.row): number(one) for one in found}
    return list(parts.by_kind([one.row for one in found], lambda row: values[id(row)]).values())


def _calibration(family: str, found: Sequence[prediction.Foretold]) -> Points:
    """Foretold chances against what was found, in bins of equal weight."""
    chance = np.concatenate([one.chances[prediction.NOVELTY] for one in found])
    failed = np.concatenate([one.failed for one in found]).astype(float)
    weight = np.concatenate([np.full(len(one.failed), 1 / len(one.failed)) for one in found])
    order = np.argsort(chance, kind="stable")
    place = np.cumsum(weight[order]) - weight[order] / 2
    bins = np.minimum((place / weight.sum() * BINS).astype(int), BINS - 1)
    points = [
        tuple(float(np.average(v[order[bins == one]], weights=weight[order[bins == one]]))
              for v in (chance, failed))
        for one in np.unique(bins)
    ]  # fmt: skip
    return Points(family, [x for x, _ in points], [y for _, y in points])


def text(values: Sequence[float]) -> str:
    """A mean with its interval, where there are enough units for one."""
    if not len(values):
        return "–"
    found = mean_interval(np.asarray(values))
    if not found.bounded:
        return f"{found.estimate:.2f}"
    return f"{found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"
