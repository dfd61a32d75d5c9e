"""Constrained problems for live language models: the words of a question, and strict parsers."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
from jaxtyping import Float

from recombine.constraints.problem import Problem
from recombine.errors import InvalidRequest

_LONGEST = 100_000  # characters of an answer that are worth reading


def prompt(problem: Problem) -> str:
    """The instance as a question whose answer is JSON of the variables and nothing else."""
    names = ", ".join(f'"{variable.name}"' for variable in problem.variables)
    return (
        f"{problem.statement}\n\nData:\n{json.dumps(problem.describe(), indent=1)}\n\n"
        "Every constraint must hold. Use no tools. Answer with one JSON object and nothing else, "
        f"no explanation: the keys are {names}, each value is a number."
    )


def parse(problem: Problem, text: str) -> Float[np.ndarray, "variable"]:
    """The values an answer states; InvalidRequest names what is wrong with it.

    The answer is one JSON object with exactly the problem's variables, each a finite number. A
    fence of backticks around it is forgiven, nothing else is.
    """
    _check_length(text)
    return problem.vector(_object(_unfenced(text.strip())))


def stated(problem: Problem, text: str) -> Float[np.ndarray, "variable"]:
    """The values of the last JSON object in a text, whatever is said around it.

    An object alone under one name, such as "solution", is taken for what was asked.

    >>> from recombine.constraints.knapsack import Knapsack
    >>> answer = 'At first {"x1": 0}, but it fits: {"solution": {"x1": 1}}. This is the best.'
    >>> stated(Knapsack((6,), (3,), (1,), 4, 3), answer).tolist()
    [1.0]
    """
    _check_length(text)
    found = _object(_last_object(text))
    if len(found) == 1 and isinstance(inner := next(iter(found.values())), dict):
        found = inner
    return problem.vector(found)


def _check_length(text: str) -> None:
    if len(text) > _LONGEST:
        raise InvalidRequest(f"the answer has {len(text)} characters: at most {_LONGEST} are read")


def _object(body: str) -> dict[str, Any]:
    """One JSON object and nothing else, with no name twice and no number that is none."""
    if not body:
        raise InvalidRequest("the answer is empty: a JSON object was asked for")
    try:
        found = json.loads(body, object_pairs_hook=_no_twins, parse_constant=_no_constant)
    except RecursionError:
        raise InvalidRequest("the answer is nested too deeply to be a solution") from None
    except ValueError as error:
        raise InvalidRequest(f"the answer is not JSON ({error}): {body[:40]!r}") from None
    if not isinstance(found, dict):
        raise InvalidRequest(
            f"the answer is a JSON {type(found).__name__}: an object was asked for"
        )
    return found


def _last_object(text: str) -> str:
    """The last complete JSON object of a text that is in no other; empty if there is none."""
    last, start, decoder = "", text.find("{"), json.JSONDecoder()
    while start >= 0:
        end = start + 1
        # Any object ends the search behind it, also one that _object refuses: what stands before
        # it, or inside it, is not what was said last.
        with contextlib.suppress(ValueError, RecursionError):
            end = decoder.raw_decode(text, start)[1]
            last = text[start:end]
        start = text.find("{", end)
    return last


def _unfenced(text: str) -> str:
    if not (text.startswith("```") and text.endswith("```") and len(text) >= 6):
        return text
    first, _, rest = text[3:-3].partition("\n")
    return (rest if first.strip() in ("", "json", "JSON") else text[3:-3]).strip()


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidRequest(f"the answer gives {name!r} twice: give each variable once")
        found[name] = value
    return found


def _no_constant(name: str) -> float:
    raise InvalidRequest(f"the answer contains {name}: every value must be a finite number")
