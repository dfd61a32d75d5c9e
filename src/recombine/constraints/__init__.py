"""Constrained optimisation: problems, verifiers, proved optima and what no competence scores."""

from recombine._lazy import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "Constraint": "recombine.constraints.problem",
        "ConstrainedFamily": "recombine.constraints.family",
        "Knapsack": "recombine.constraints.knapsack",
        "Portfolio": "recombine.constraints.portfolio",
        "PowerFlow": "recombine.constraints.power_flow",
        "Problem": "recombine.constraints.problem",
        "Scheduling": "recombine.constraints.scheduling",
        "Variable": "recombine.constraints.problem",
        "Verdict": "recombine.constraints.problem",
        "grid": "recombine.constraints.grids",
        "judge": "recombine.constraints.problem",
        "summary": "recombine.constraints.problem",
    },
)
