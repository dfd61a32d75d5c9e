"""The examples in the docstrings are what happens."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = ("recombine.cli.live", "recombine.live", "recombine.live.asking", "recombine.live.kit",
           "recombine.live.parsing", "recombine.live.scripted")  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name):
    result = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert result.attempted > 0 and result.failed == 0
