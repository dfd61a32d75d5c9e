"""The grids and the optima against PYPOWER's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from recombine.constraints import grid
from recombine.constraints.grids import BASE, GRIDS
from recombine.constraints.interior_point import solve

pytestmark = pytest.mark.heavy

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    api = pytest.importorskip("pypower.api", reason="needs PYPOWER: pip install 'recombine[opf]'")


@pytest.mark.parametrize("name", GRIDS)
def test_the_tables_state_the_same_grid(name):
    ours, theirs = grid(name), getattr(api, name)()
    bus, gen, branch = theirs["bus"], theirs["gen"], theirs["branch"]
    cost = theirs["gencost"]
    np.testing.assert_allclose(ours.load, (bus[:, 2] + 1j * bus[:, 3]) / BASE)
    np.testing.assert_allclose(ours.voltage, bus[:, [12, 11]])
    np.testing.assert_allclose(ours.active, gen[:, [9, 8]] / BASE)
    np.testing.assert_allclose(ours.reactive, gen[:, [4, 3]] / BASE)
    np.testing.assert_allclose(ours.cost, cost[:, 4:7] * [BASE**2, BASE, 1])
    np.testing.assert_array_equal(ours.at, gen[:, 0] - 1)
    limit = np.where(branch[:, 5] >= 9900, np.inf, branch[:, 5] / BASE)
    np.testing.assert_allclose(ours.limit, np.tile(limit, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inner = api.ext2int(theirs)
        matrix = api.makeYbus(inner["baseMVA"], inner["bus"], inner["branch"])[0].toarray()
    y = np.diag(1j * ours.shunt)
    np.add.at(y, (ours.near, ours.near), ours.own)
    np.add.at(y, (ours.near, ours.far), ours.mutual)
    np.testing.assert_allclose(y, matrix, atol=1e-12)


@pytest.mark.parametrize("name", GRIDS)
def test_optima_agree_under_random_loads(name):
    ours, rng = grid(name), np.random.default_rng(3)
    loads = ours.load * rng.uniform(0.9, 1.1, (6, ours.buses))
    found = solve(ours, loads)
    for load, cost, certified in zip(loads, found.cost, found.certified, strict=True):
        case = getattr(api, name)()
        case["bus"][:, 2], case["bus"][:, 3] = BASE * load.real, BASE * load.imag
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = api.runopf(case, api.ppoption(VERBOSE=0, OUT_ALL=0))
        assert bool(result["success"]) == bool(certified)
        if certified:
            assert cost == pytest.approx(result["f"], rel=1e-5)
