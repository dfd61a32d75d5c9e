"""The examples in the docstrings are what happens."""

from __future__ import annotations

import doctest
import importlib

import pytest

NAMES = (
    "asking",
    "comparing",
    "constraints",
    "differences",
    "kit",
    "model",
    "parsing",
    "scripted",
    "subgraphs",
)
MODULES = ("recombine.cli.live", "recombine.live", *(f"recombine.live.{name}" for name in NAMES))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name):
    result = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert result.attempted > 0 and result.failed == 0
