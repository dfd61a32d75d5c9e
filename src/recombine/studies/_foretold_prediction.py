"""What would have said which combinations fail: models fitted to families, asked of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from scipy import optimize, special

from recombine.lab.study import Results, Row
from recombine.studies._foretold import Columns, Vector, by_kind, trained, unseen_of

EDGE = 0.005  # no prediction is surer than this, so that one surprise costs no fortune
NOVELTY, OVERALL, USAGE = "novelty", "overall rate", "rarest usage"
MODELS = (NOVELTY, OVERALL, USAGE)


@dataclass(frozen=True, eq=False)
class Foretold:
    """Chances of failure in one network of a family that no model was fitted to."""

    row: Row
    failed: Bool[np.ndarray, " combination"]
    chances: dict[str, Vector]

    def log_loss(self, model: str) -> float:
        chance = np.where(self.failed, self.chances[model], 1 - self.chances[model])
        return float(-np.log(chance).mean())


def foretold(results: Results) -> dict[str, list[Foretold]]:
    """Each family's networks, as models fitted to all other families foretell them.

    Every network counts alike, however many combinations it was asked for.
    """
    rows = [(row, unseen_of(row)) for row in trained(results)]
    families = list(dict.fromkeys(row.labels["family"] for row, _ in rows))
    found: dict[str, list[Foretold]] = {}
    for family in families if len(families) > 1 else ():
        others = [one for row, one in rows if row.labels["family"] != family]
        failed = np.concatenate([one.failed for one in others]).astype(float)
        weight = np.concatenate([np.full(len(o.failed), 1 / len(o.failed)) for o in others])
        fits = {
            NOVELTY: fit(np.concatenate([one.columns for one in others]), failed, weight),
            USAGE: fit(np.concatenate([one.usage for one in others]), failed, weight),
        }
        rate = float(np.average(failed, weights=weight))
        for row, one in rows:
            if row.labels["family"] != family:
                continue
            chances = {
                NOVELTY: fits[NOVELTY](one.columns),
                OVERALL: np.full(len(one.failed), rate),
                USAGE: fits[USAGE](one.usage),
            }
            chances = {name: np.clip(value, EDGE, 1 - EDGE) for name, value in chances.items()}
            found.setdefault(family, []).append(Foretold(row, one.failed, chances))
    return found


def fit(columns: Columns, failed: Vector, weight: Vector) -> Callable[[Columns], Vector]:
    """A logistic regression on z-scored columns under a faint normal prior, as a predictor.

    >>> told = fit(np.array([[0.0], [1.0]] * 50), np.array([0.0, 1.0] * 50), np.ones(100))
    >>> bool(told(np.array([[0.0]]))[0] < 0.1 and told(np.array([[1.0]]))[0] > 0.9)
    True
    """
    weight = weight * len(weight) / weight.sum()
    centre = np.average(columns, axis=0, weights=weight)
    spread = np.sqrt(np.average((columns - centre) ** 2, axis=0, weights=weight))
    spread = np.where(spread > 1e-9, spread, 1.0)

    def design(given: Columns) -> Columns:
        return np.column_stack([np.ones(len(given)), (given - centre) / spread])

    lines = design(columns)
    precision = np.append(1e-4, np.full(columns.shape[1], 1.0))

    def cost(at: np.ndarray) -> tuple[float, np.ndarray]:
        odds = lines @ at
        value = weight @ (np.logaddexp(0, odds) - failed * odds) + precision @ at**2 / 2
        return float(value), lines.T @ (weight * (special.expit(odds) - failed)) + precision * at

    found = optimize.minimize(cost, np.zeros(lines.shape[1]), jac=True, method="L-BFGS-B",
                              options={"maxiter": 500}).x  # fmt: skip
    return lambda given: special.expit(design(given) @ found)


def gains(told: Sequence[Foretold], over: str) -> np.ndarray:
    """Log loss of the prediction minus a baseline's, one a kind of dataset: less is better."""
    by_row = {id(one.row): one.log_loss(NOVELTY) - one.log_loss(over) for one in told}
    return np.asarray(list(by_kind([o.row for o in told], lambda row: by_row[id(row)]).values()))
