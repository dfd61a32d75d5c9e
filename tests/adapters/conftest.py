"""PyTorch and a small network of it, for the tests that need them."""

from __future__ import annotations

from typing import Any

import pytest

WHY = "needs the extra 'torch': make test-all installs it"


@pytest.fixture(scope="session")
def torch() -> Any:
    package = pytest.importorskip("torch", reason=WHY)
    package.set_num_threads(1)
    return package


@pytest.fixture
def network(torch) -> Any:
    """Linear, batch norm, linear: in training mode, with statistics that a careless look moves."""
    torch.manual_seed(0)
    nn = torch.nn
    made = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))
    made[1].train(False)
    made[1].running_mean.fill_(0.1)
    return made
