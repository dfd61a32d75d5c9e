"""The power-flow equations and the solver, against the admittance matrix and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import lsq_linear, minimize

from recombine.constraints import PowerFlow, grid, judge
from recombine.constraints.grids import GRIDS
from recombine.constraints.interior_point import CERTIFIED, solve
from recombine.errors import InvalidRequest

PUBLISHED = {"case9": 5296.69, "case14": 8081.53, "case30": 576.89}


def admittance(problem: PowerFlow) -> np.ndarray:
    """The bus admittance matrix, built from the description a reader gets, line by line."""
    told = problem.describe()
    y = np.zeros((len(told["buses"]),) * 2, complex)
    for bus in told["buses"]:
        y[bus["bus"] - 1, bus["bus"] - 1] += 1j * bus["shunt_B"]
    for line in told["lines"]:
        i, k, tap = line["from"] - 1, line["to"] - 1, line["tap"]
        series = 1 / complex(line["r"], line["x"])
        y[i, i] += (series + 1j * line["b"] / 2) / tap**2
        y[k, k] += series + 1j * line["b"] / 2
        y[i, k] -= series / tap
        y[k, i] -= series / tap
    return y


def balances(problem: PowerFlow, x: np.ndarray) -> np.ndarray:
    """Generation minus load minus V conj(Y V), in the polar form of textbooks."""
    told, y = problem.describe(), admittance(problem)
    n, m = len(told["buses"]), len(told["generators"])
    v, a = x[:n], np.append(0.0, x[n : 2 * n - 1])
    p = -np.array([bus["P_load"] for bus in told["buses"]])
    q = -np.array([bus["Q_load"] for bus in told["buses"]])
    for g, made in enumerate(told["generators"]):
        p[made["bus"] - 1] += x[2 * n - 1 + g]
        q[made["bus"] - 1] += x[2 * n - 1 + m + g]
    for i in range(n):
        for k in range(n):
            turn = a[i] - a[k]
            p[i] -= v[i] * v[k] * (y[i, k].real * np.cos(turn) + y[i, k].imag * np.sin(turn))
            q[i] -= v[i] * v[k] * (y[i, k].real * np.sin(turn) - y[i, k].imag * np.cos(turn))
    return np.concatenate([p, q])


def line_flows(problem: PowerFlow, x: np.ndarray) -> np.ndarray:
    """The apparent power over its limit at both ends of each limited line, by currents."""
    n = problem.grid.buses
    voltage = x[:n] * np.exp(1j * np.append(0.0, x[n : 2 * n - 1]))
    over = []
    for line in problem.describe()["lines"]:
        if line["S_max"] is None:
            continue
        v_from, v_to = voltage[line["from"] - 1] / line["tap"], voltage[line["to"] - 1]
        current = (v_from - v_to) / complex(line["r"], line["x"])
        into_from = v_from * np.conj(current + 0.5j * line["b"] * v_from)
        into_to = v_to * np.conj(-current + 0.5j * line["b"] * v_to)
        over += [abs(into_from) - line["S_max"], abs(into_to) - line["S_max"]]
    return np.array(over)


def by_name(problem: PowerFlow, x: np.ndarray, kind: str) -> np.ndarray:
    kinds = np.array([rule.kind for rule in problem.constraints])
    return problem.excess(x)[kinds == kind]


@pytest.mark.parametrize("name", GRIDS)
def test_the_verifier_agrees_with_the_admittance_matrix(name):
    network, rng = grid(name), np.random.default_rng(1)
    problem = PowerFlow(network, network.load * rng.uniform(0.9, 1.1, network.buses))
    x = problem.guess() + 0.2 * rng.standard_normal(len(problem.variables))
    np.testing.assert_allclose(
        by_name(problem, x, "equality"), np.abs(balances(problem, x)), atol=1e-9
    )
    over = np.maximum(line_flows(problem, x), 0)
    np.testing.assert_allclose(np.sort(by_name(problem, x, "coupling")), np.sort(over), atol=1e-9)


@pytest.mark.parametrize("name", GRIDS)
def test_the_optimum_of_the_published_loads_costs_what_is_published(name):
    found = solve(grid(name), grid(name).load[None])
    assert found.certified[0]
    assert found.cost[0] == pytest.approx(PUBLISHED[name], abs=0.006)
    assert judge(PowerFlow.nominal(grid(name)), found.x[0]).violation.max() < 1e-9


def test_scipy_finds_no_cheaper_operation_of_case9():
    problem = PowerFlow.nominal(grid("case9"))
    told = [(v.low, v.high) for v in problem.variables]
    bounds = [(None, None) if not np.isfinite(low) else (low, high) for low, high in told]
    found = minimize(
        lambda x: float(problem.objective(x)) / 1000,
        problem.guess(),
        method="SLSQP",
        bounds=bounds,
        constraints=[
            {"type": "eq", "fun": lambda x: balances(problem, x)},
            {"type": "ineq", "fun": lambda x: -line_flows(problem, x)},
        ],
        options={"maxiter": 300, "ftol": 1e-10},
    )
    assert found.success
    ours = solve(grid("case9"), grid("case9").load[None])
    assert 1000 * found.fun == pytest.approx(ours.cost[0], abs=0.01)
    np.testing.assert_allclose(found.x, ours.x[0], atol=1e-3)


@pytest.mark.parametrize("name", ["case9", "case14"])
def test_multipliers_exist_that_prove_the_optimum(name):
    """The KKT conditions by finite differences: the cost's gradient is a sum of active ones."""
    network = grid(name)
    problem = PowerFlow(network, network.load * 1.04)
    x = solve(network, problem.load[None]).x[0]

    def gradient(function, step=1e-6):
        sides = [(function(x + step * e), function(x - step * e)) for e in np.eye(len(x))]
        return np.array([(up - down) / (2 * step) for up, down in sides])

    cost = gradient(lambda x: problem.objective(x) / 1000)
    rows = [gradient(lambda x: balances(problem, x)).T]
    free = rows[0].shape[0]
    over = line_flows(problem, x)
    if (over > -1e-6).any():
        rows.append(gradient(lambda x: line_flows(problem, x)).T[over > -1e-6])
    low, high = np.array([(v.low, v.high) for v in problem.variables]).T
    eye = np.eye(len(x))
    # Balances may pull either way; whatever is active may only push inwards.
    rows += [eye[x > high - 1e-6], -eye[x < low + 1e-6]]
    pull = np.concatenate(rows)
    signs = np.where(np.arange(len(pull)) < free, -np.inf, 0.0)
    found = lsq_linear(pull.T, -cost, bounds=(signs, np.inf), tol=1e-14)
    assert np.abs(pull.T @ found.x + cost).max() < 1e-5


def test_an_instance_is_solved_alike_alone_and_among_others():
    network, rng = grid("case9"), np.random.default_rng(0)
    loads = network.load * rng.uniform(0.9, 1.1, (40, network.buses))
    together = solve(network, loads)
    assert together.certified.all()
    for i in (0, 17, 39):
        np.testing.assert_allclose(solve(network, loads[i][None]).x[0], together.x[i], atol=1e-9)


def test_what_cannot_be_served_is_not_certified_and_harms_nobody():
    network = grid("case9")
    loads = np.stack([network.load, 9 * network.load, network.load * 1.01])
    found = solve(network, loads)
    assert found.certified.tolist() == [True, False, True]
    assert found.residual[1] > 1000 * CERTIFIED and np.isfinite(found.x).all()
    assert found.cost[0] == pytest.approx(PUBLISHED["case9"], abs=0.006)


def test_no_instances_give_no_solutions():
    assert solve(grid("case14"), np.zeros((0, 14), complex)).x.shape == (0, 37)


def test_more_load_never_costs_less():
    network = grid("case14")
    factors = np.linspace(0.8, 1.2, 9)[:, None]
    found = solve(network, network.load.real * factors + 1j * network.load.imag)
    assert found.certified.all() and (np.diff(found.cost) > 0).all()


@pytest.mark.parametrize(("name", "count"), [("case9", 51), ("case14", 52), ("case30", 184)])
def test_constraints_are_counted_as_stated(name, count):
    problem = PowerFlow.nominal(grid(name))
    assert len(problem.constraints) == count == problem.excess(problem.guess()).size
    assert len({rule.name for rule in problem.constraints}) == count


def test_a_wrong_number_of_values_is_refused():
    with pytest.raises(InvalidRequest, match="23 variables"):
        PowerFlow.nominal(grid("case9")).excess(np.zeros(24))


def test_an_unknown_grid_is_refused_with_the_nearest_name():
    with pytest.raises(InvalidRequest, match="case14"):
        grid("case141")
