"""Millions of combinations must be split and summed up in little memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MEASURE = """
import json, resource, sys
sys.path[:0] = json.loads(sys.argv[1])
from recombine.combinations import Subsets
from recombine.supports import SupportRule
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
SupportRule(sys.argv[2], 0.5).build(Subsets(12, 3), 0).summary()  # loads what is loaded lazily
before = peak()
summary = SupportRule(sys.argv[2], 0.5).build(Subsets(32, 7), 0).summary()
print(json.dumps([summary["combinations"], peak() - before]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["random", "balanced", "disconnected", "popular"])
def test_four_million_combinations_are_split_and_summed_up_in_300_megabytes(rule: str) -> None:
    command = [sys.executable, "-c", MEASURE, json.dumps(sys.path), rule]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    combinations, megabytes = json.loads(done.stdout)
    assert combinations == 4_514_872
    assert megabytes < 300
