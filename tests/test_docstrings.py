"""The examples in docstrings are true, in every module that has some."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"


def with_examples() -> list[str]:
    files = (f for f in sorted(SOURCE.rglob("*.py")) if ">>>" in f.read_text("utf-8"))
    names = (".".join(file.relative_to(SOURCE).with_suffix("").parts) for file in files)
    return [name.removesuffix(".__init__") for name in names]


@pytest.mark.parametrize("name", with_examples())
def test_the_examples_of_a_module_hold(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted and not found.failed
