"""Values set by hand: every number of every grid may be typed, and what cannot be is refused."""

from __future__ import annotations

import dataclasses

import pytest

from recombine.errors import RecombineError
from recombine.lab.plan import part
from recombine.lab.run import Request, study_named
from recombine.studies import REGISTRY


def numbers(grid: object) -> list[str]:
    """The fields of a grid that hold numbers."""
    found = {f.name: getattr(grid, f.name) for f in dataclasses.fields(grid)}  # pyright: ignore
    first = {name: v[0] if isinstance(v, tuple) and v else v for name, v in found.items()}
    return [
        name
        for name, value in first.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


@pytest.mark.parametrize("name", REGISTRY)
@pytest.mark.parametrize("text", ["0", "-1"])
def test_no_number_that_is_typed_ends_in_a_fault_of_the_study(name, text):
    study = study_named(name)
    said = []
    for field in numbers(study.grid("smoke")):
        try:
            part(Request(study, "smoke", {field: text}).cells())
        except RecombineError as refused:
            said.append(str(refused))
    assert [one for one in said if "\n" in one] == []


def test_a_fault_of_a_study_itself_is_not_blamed_on_anybody():
    study = study_named("data-scaling")
    broken = type("Broken", (type(study),), {"cells": lambda self, grid: [1 // 0]})()
    with pytest.raises(ZeroDivisionError):
        Request(broken, "smoke").cells()
    with pytest.raises(RecombineError, match="no grid can be laid out with width=8"):
        Request(broken, "smoke", {"width": "8"}).cells()


@pytest.mark.parametrize("name", ["sequences", "subgraphs", "probability", "constraints"])
def test_networks_of_which_nothing_would_be_read_are_not_trained(name):
    try:
        cells = part(Request(study_named(name), "smoke", {"items": "0"}).cells())
    except RecombineError:
        return
    assert not cells.cells
