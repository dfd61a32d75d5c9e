"""What answers without competence score: the rows against which any share has to be read.

A share of satisfied constraints is not a grade. Most constraints are boxes, and boxes are free; an
answer one percent off breaks every equality. Print these rows beside any model's.

On `case9`, counting a variable's two bounds as one constraint, each bus's two balances and both
ends of every line (51 in all): the guess passes .765 of them (12 balances fail, whatever the
loads), the copied optimum .90, the noisy one .65, and none of the three is ever feasible. `case14`
has no line limits, so nothing is counted for its lines. Tables that count the 40 limits of 9,900
MVA some data files give it, which no answer can break, show .72 for its guess and .70 for its
noise, where these show .50 and .48.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from recombine.constraints.family import Answer, ConstrainedFamily
from recombine.constraints.problem import Problem, judge, summary

NOISE = 0.01
NULLS = ("guess", "copied", "noise")  # rows that take no competence
DECIMALS = (1, 2, 3, 4)


def answers(
    family: ConstrainedFamily[Any],
    problems: Sequence[Problem],
    optima: Sequence[Answer],
    rng: np.random.Generator,
    decimals: Sequence[int] = DECIMALS,
) -> dict[str, list[Answer]]:
    """Each baseline's answer to each instance.

    - `optimum`: the solver's;
    - `guess`: takes no thought (`Problem.guess` says what it is);
    - `copied`: the optimum of other data: the grid's own loads, another instance of that size;
    - `noise`: the optimum, every variable times 1 + .01 times a standard normal number; whole
      numbers are not whole any more;
    - `rounded to d`: the optimum with d decimals, the floor of any answer that writes as many.
    """
    noisy = [x * (1 + NOISE * rng.standard_normal(len(x))) for x in optima]
    return {
        "optimum": list(optima),
        "guess": [problem.guess() for problem in problems],
        "copied": family.copied(problems, optima),
        "noise": noisy,
        **{f"rounded to {d}": [np.round(x, d) for x in optima] for d in decimals},
    }


def rated(
    problems: Sequence[Problem], optima: Sequence[Answer], given: Sequence[Answer | None]
) -> dict[str, float]:
    """One row of a table: `summary` of answers (None: not readable), and `exact`.

    Exact is the share of answers that are the optimum as it was written. What there is nothing to
    take a mean of is left out.
    """
    rows = list(zip(problems, given, optima, strict=True))
    exact = [x is not None and np.allclose(x, best, rtol=0, atol=1e-9) for _, x, best in rows]
    found = {"exact": float(np.mean(exact)), **summary([judge(*row) for row in rows])}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def moved(given: Sequence[Answer | None], sizes: Sequence[int]) -> list[Answer | None]:
    """Every answer handed to another instance with as many variables, where there is one.

    >>> moved([np.zeros(1), np.ones(1), np.full(2, 7.0)], [1, 1, 2])[0]
    array([1.])
    """
    found: list[Answer | None] = [None] * len(given)
    for size in set(sizes):
        mine = [n for n, other in enumerate(sizes) if other == size]
        for place, other in zip(mine, np.roll(mine, -max(1, len(mine) // 2)), strict=True):
            found[place] = None if place == other else given[other]
    return found
