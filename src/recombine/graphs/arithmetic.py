"""The graph of long multiplication, and of a made-up function of the same shape."""

from __future__ import annotations

from functools import partial
from typing import Literal

from recombine.errors import InvalidRequest
from recombine.graphs.graph import ComputationGraph, GraphBuilder

# "dax" starts each row with a carry of 7 and takes y + x * carry at each digit: the same steps,
# but nothing a model could know from elsewhere.
Function = Literal["product", "dax"]
DAX_CARRY = 7


def multiplication_graph(
    x: int, y: int, *, function: Function = "product", zeros: bool = False
) -> ComputationGraph:
    """The steps of x * y, digit by digit and units first, for each digit of y.

    Carries of nothing are left out, as nobody writes them; `zeros` keeps them, so that all pairs
    of numbers of the same length have the same graph. Then an error can spread along every edge
    that any pair has, which is what the study of errors needs.

    >>> graph = multiplication_graph(35, 9)
    >>> graph.answer, len(graph.nodes)
    (315, 12)
    """
    if min(x, y) < 0:
        raise InvalidRequest(f"{x} and {y}: long multiplication takes whole numbers from 0")
    grown = GraphBuilder()
    xs = [grown.source(f"x{i}", int(d)) for i, d in enumerate(reversed(str(x)))]
    ys = [grown.source(f"y{j}", int(d)) for j, d in enumerate(reversed(str(y)))]
    partials = []
    for j, y_digit in enumerate(ys):
        row = _row(grown, xs, y_digit, j, function, zeros)
        partials.append(grown.step(f"partial[{j}]", "shift", partial(_shifted, j), row))
    grown.step("answer", "sum", _total, *partials)
    return grown.graph()


def _row(
    grown: GraphBuilder, xs: list[str], y: str, j: int, function: Function, zeros: bool
) -> str:
    """All digits of x times one digit of y, as the digits that are written down."""
    carry, output = None, None
    for i, x in enumerate(xs):
        at = f"[{i},{j}]"
        result = _digit_step(grown, at, x, y, carry, function, first=i == 0)
        piece, carry = result, None
        last = i == len(xs) - 1
        if not last and (zeros or grown[result] >= 10):
            carry = grown.step(f"carry{at}", "carry", _carry, result)
            piece = grown.step(f"digit{at}", "digit", _digit, result)
        before = () if output is None else (output,)
        rule = _all_before if last else _digit_before
        output = grown.step(f"output{at}", "concat", rule, piece, *before)
    assert output is not None
    return output


def _digit_step(
    grown: GraphBuilder, at: str, x: str, y: str, carry: str | None, function: Function, first: bool
) -> str:
    if function == "dax":
        if first:
            return grown.step(f"sum{at}", "dax7", _dax_first, x, y)
        if carry is None:
            return grown.step(f"sum{at}", "dax0", _dax_nothing, x, y)
        return grown.step(f"sum{at}", "dax", _dax, x, y, carry)
    product = grown.step(f"product{at}", "times", _times, x, y)
    return product if carry is None else grown.step(f"sum{at}", "add", _add, product, carry)


def _times(x: int, y: int) -> int:
    return x * y


def _add(product: int, carry: int) -> int:
    return product + carry


def _carry(result: int) -> int:
    return result // 10


def _digit(result: int) -> int:
    return result % 10


def _digit_before(piece: int, so_far: str = "") -> str:
    # A right piece has one digit here; from a wrong one, too, only the units are written.
    return f"{piece % 10}{so_far}"


def _all_before(piece: int, so_far: str = "") -> str:
    return f"{piece}{so_far}"


def _shifted(places: int, digits: str) -> int:
    return int(digits) * 10**places


def _total(*partials: int) -> int:
    return sum(partials)


def _dax_first(x: int, y: int) -> int:
    return y + x * DAX_CARRY


def _dax_nothing(x: int, y: int) -> int:
    return y


def _dax(x: int, y: int, carry: int) -> int:
    return y + x * carry
