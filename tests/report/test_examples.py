"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib

import pytest

NAMES = ("document", "tables", "html", "figures", "figures_grid", "figures_points")
INTERNAL = ("figures_style", "figures_svg", "figures_interval")


@pytest.mark.parametrize("name", NAMES + INTERNAL)
def test_the_examples_of_a_module_hold(name: str) -> None:
    results = doctest.testmod(importlib.import_module(f"recombine.report.{name}"))
    assert results.attempted and not results.failed
