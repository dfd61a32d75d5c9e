"""What answers without competence score."""

from __future__ import annotations

import numpy as np
import pytest

from recombine.constraints.baselines import answers, rated
from recombine.families.knapsack import KnapsackFamily
from recombine.families.portfolio import PortfolioFamily
from recombine.families.power_flow import PowerFlowFamily
from recombine.families.scheduling import SchedulingFamily


def rows_of(family, count):
    """Each baseline's row over some instances of a family."""
    found = family.cases(family.rng(0, "baselines"), "train", count)
    problems, optima = [case.problem for case, _ in found], [x for _, x in found]
    given = answers(family, problems, optima, family.rng(0, "noise"))
    return {name: rated(problems, optima, each) for name, each in given.items()}


@pytest.fixture(scope="module")
def case9():
    return rows_of(PowerFlowFamily(), count=200)


def test_case9_shows_the_rows_that_cast_doubt_on_a_ceiling(case9):
    """PYPOWER and a dozen draws gave .765, .918 and .644, and none strictly feasible."""
    assert case9["optimum"]["micro"] == case9["optimum"]["strict"] == 1
    assert case9["guess"]["micro"] == pytest.approx(39 / 51, abs=1e-9)
    assert case9["noise"]["micro"] == pytest.approx(0.644, abs=0.02)
    assert case9["copied"]["micro"] == pytest.approx(0.918, abs=0.03)
    assert case9["guess"]["strict"] == case9["noise"]["strict"] == case9["copied"]["strict"] == 0


def test_the_copied_optimum_passes_as_often_as_the_loads_allow(case9):
    """It fails where a load moved by more than the tolerance, uniform over a tenth either way."""
    loads = np.array([0.9, 1.0, 1.25, 0.3, 0.35, 0.5])
    failures = (1 - 0.01 / (0.1 * loads)).sum()
    assert case9["copied"]["micro"] == pytest.approx(1 - failures / 51, abs=0.01)


def test_boxes_are_free_and_equalities_forgive_nothing(case9):
    for name in ("guess", "copied", "rounded to 2"):
        assert case9[name]["box"] == 1 > case9[name]["equality"]
    assert case9["noise"]["equality"] < 0.25 < 0.8 < case9["noise"]["box"]


def test_the_rounding_floor_rises_with_decimals(case9):
    floor = [case9[f"rounded to {d}"]["micro"] for d in (1, 2, 3, 4)]
    assert floor == sorted(floor)
    assert case9["rounded to 4"]["strict"] == 1 and case9["rounded to 3"]["strict"] < 0.1
    assert abs(case9["rounded to 4"]["gap"]) < 1e-3


@pytest.mark.parametrize("family", [KnapsackFamily(), PortfolioFamily(), SchedulingFamily()])
def test_every_family_has_its_rows(family):
    rows = rows_of(family, count=40)
    assert rows["optimum"]["strict"] == 1 and rows["optimum"]["gap"] == 0
    assert rows["noise"]["strict"] == 0 and rows["noise"]["equality"] == 0
    assert rows["guess"]["micro"] < 1 and rows["copied"]["micro"] < 1
    assert rows["guess"]["micro"] > rows["guess"]["strict"]
    assert rows["rounded to 1"] == rows["optimum"]  # whole numbers lose nothing
