"""A jaxpr as one flat list of operations, and the arithmetic each of them does.

XLA's own cost analysis counts the body of a loop once; here loops keep their trip counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend import core

# 2 additions to start, 20 rounds of 5 operations, 5 key injections of 3, 1 to join the halves.
THREEFRY = 118
# Operations that only move or rename numbers.
MOVES = frozenset({
    "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "transpose", "slice", "split", "pad",
    "dynamic_slice", "dynamic_update_slice", "gather", "concatenate", "rev", "iota", "copy",
    "copy_p", "convert_element_type", "bitcast_convert_type", "random_wrap", "random_unwrap",
    "random_seed", "stop_gradient", "optimization_barrier", "device_put", "sharding_constraint",
})  # fmt: skip
# Rational approximations that XLA expands; everything else elementwise counts one.
WEIGHTS = {"erf_inv": 30, "erf": 20, "erfc": 20, "lgamma": 40, "digamma": 40, "logistic": 3}
LOOPS = frozenset(("scan", "while", "cond"))


class Value:
    """One array of the flat program, known by its shape; two values are never equal."""

    __slots__ = ("bytes", "dtype", "shape", "size")

    def __init__(self, aval: Any):
        self.shape: tuple[int, ...] = tuple(getattr(aval, "shape", ()))
        self.dtype = getattr(aval, "dtype", None)
        self.size = math.prod(self.shape)
        self.bytes = self.size * getattr(self.dtype, "itemsize", 0)


@dataclass(frozen=True, eq=False)
class Operation:
    """An equation with calls opened: what it reads (literals left out) and what it writes."""

    name: str
    params: Mapping[str, Any]
    operands: tuple[Value, ...]  # literals included: a rule needs every shape
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    bodies: tuple[Flat, ...] = ()
    trips: int = 1


@dataclass(frozen=True, eq=False)
class Flat:
    """A program without calls: only loops and branches still hold programs of their own."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    operations: tuple[Operation, ...]


def flatten(closed: core.ClosedJaxpr | core.Jaxpr) -> Flat:
    """Opens every call (jit, custom derivatives, remat) and drops what no output needs."""
    jaxpr = closed.jaxpr if isinstance(closed, core.ClosedJaxpr) else closed
    inputs = tuple(Value(v.aval) for v in jaxpr.invars)
    operations: list[Operation] = []
    outputs = _open(jaxpr, inputs, operations)
    needed, kept = set(outputs), []
    for operation in reversed(operations):
        if needed.intersection(operation.writes):
            needed.update(operation.reads)
            kept.append(operation)
    return Flat(inputs, outputs, tuple(reversed(kept)))


def _open(
    jaxpr: core.Jaxpr, inputs: Sequence[Value], operations: list[Operation]
) -> tuple[Value, ...]:
    known: dict[Any, Value] = dict(zip(jaxpr.invars, inputs, strict=True))
    known.update({v: Value(v.aval) for v in jaxpr.constvars})

    def value(atom: Any) -> Value:
        return Value(atom.aval) if isinstance(atom, core.Literal) else known[atom]

    for equation in jaxpr.eqns:
        name, operands = equation.primitive.name, tuple(value(v) for v in equation.invars)
        inner = list(_programs(equation.params))
        if name not in LOOPS and len(inner) == 1 and len(inner[0].invars) == len(operands):
            known.update(zip(equation.outvars, _open(inner[0], operands, operations), strict=True))
            continue
        writes = tuple(Value(v.aval) for v in equation.outvars)
        known.update(zip(equation.outvars, writes, strict=True))
        variables = zip(equation.invars, operands, strict=True)
        reads = tuple(v for atom, v in variables if not isinstance(atom, core.Literal))
        bodies = tuple(flatten(program) for program in inner)
        operations.append(
            Operation(name, equation.params, operands, reads, writes, bodies, trip_count(equation))
        )
    return tuple(value(v) for v in jaxpr.outvars)


def _programs(params: Mapping[str, Any]) -> Iterator[core.Jaxpr]:
    for entry in params.values():
        for item in entry if isinstance(entry, tuple | list) else (entry,):
            if isinstance(item, core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield item


def trip_count(equation: Any) -> int:
    """How often a loop runs: a scan's length, or the constant bounds of a counting while.

    A while loop whose bounds are data counts once: only the caller knows how long it runs.
    """
    params = equation.params
    if equation.primitive.name == "scan":
        return params["length"]
    if equation.primitive.name != "while":
        return 1
    test, offset = params["cond_jaxpr"].jaxpr, params["cond_nconsts"]
    body, skipped = params["body_jaxpr"].jaxpr, offset + params["body_nconsts"]
    if len(test.eqns) != 1 or test.eqns[0].primitive.name != "lt":
        return 1

    def initial(atom: Any) -> int | None:
        """The number an operand of the test starts with, if the program says it."""
        if isinstance(atom, core.Literal):
            return int(atom.val)
        if atom not in test.invars:
            return None
        place = test.invars.index(atom)
        outer = equation.invars[place if place < offset else skipped + place - offset]
        return int(outer.val) if isinstance(outer, core.Literal) else None

    counter, limit = test.eqns[0].invars
    first, last = initial(counter), initial(limit)
    if first is None or last is None or isinstance(counter, core.Literal):
        return 1
    place = test.invars.index(counter) - offset
    entry, result = body.invars[params["body_nconsts"] + place], body.outvars[place]
    steps = [e for e in body.eqns if result in e.outvars and e.primitive.name == "add"]
    by_one = steps and any(isinstance(v, core.Literal) and v.val == 1 for v in steps[0].invars)
    return max(0, last - first) if by_one and entry in steps[0].invars else 1


def flops(operation: Operation) -> float:
    """Arithmetic of one operation; a multiplication and an addition are two."""
    if operation.name == "cond":
        return max((total_flops(body) for body in operation.bodies), default=0.0)
    if operation.bodies:
        return operation.trips * sum(total_flops(body) for body in operation.bodies)
    if operation.name in MOVES:
        return 0.0
    if rule := _RULES.get(operation.name):
        return float(rule(operation))
    if operation.name.startswith(("reduce", "arg", "cum", "scatter")):
        # A reduction touches its operand once, a scatter its updates.
        source = operation.operands[-1 if operation.name.startswith("scatter") else 0]
        return float(source.size)
    return float(WEIGHTS.get(operation.name, 1) * operation.writes[0].size)


def total_flops(program: Flat) -> float:
    return sum(flops(operation) for operation in program.operations)


def _dot(operation: Operation) -> float:
    (contracted, _), _ = operation.params["dimension_numbers"]
    left = operation.operands[0].shape
    return 2 * operation.writes[0].size * math.prod(left[axis] for axis in contracted)


def _convolution(operation: Operation) -> float:
    kernel = operation.operands[1]
    outputs = kernel.shape[operation.params["dimension_numbers"].rhs_spec[0]]
    return 2 * operation.writes[0].size * kernel.size / outputs


def _power(operation: Operation) -> float:
    exponent = abs(int(operation.params["y"]))
    products = exponent.bit_length() + exponent.bit_count() - 2  # by repeated squaring
    return max(1, products) * operation.writes[0].size


def _words(operation: Operation) -> float:
    """Threefry gives one word of a batch of draws for each word written."""
    return THREEFRY * max(1, operation.writes[0].bytes // 4)


def _per_matrix(rule: Callable[[int, int], float]) -> Callable[[Operation], float]:
    """A rule for an operation on a batch of rows x columns matrices."""

    def total(operation: Operation) -> float:
        *batch, rows, columns = operation.operands[0].shape
        return math.prod(batch) * rule(rows, columns)

    return total


def _triangular(operation: Operation) -> float:
    return operation.operands[0].shape[-1] * operation.operands[1].size


_RULES: dict[str, Callable[[Operation], float]] = {
    "dot_general": _dot,
    "conv_general_dilated": _convolution,
    "integer_pow": _power,
    "random_bits": _words,
    "random_split": _words,
    "random_fold_in": _words,
    "threefry2x32": _words,
    "cholesky": _per_matrix(lambda n, m: n**3 / 3),
    "lu": _per_matrix(lambda n, m: 2 * n * m * min(n, m) / 3),
    "qr": _per_matrix(lambda n, m: 2 * n * m * min(n, m)),
    "geqrf": _per_matrix(lambda n, m: 2 * n * m * min(n, m)),
    "householder_product": _per_matrix(lambda n, m: 2 * n * m * min(n, m)),
    "eigh": _per_matrix(lambda n, m: 9 * n**3),
    "eig": _per_matrix(lambda n, m: 25 * n**3),
    "svd": _per_matrix(lambda n, m: 20 * n * m * min(n, m)),
    "triangular_solve": _triangular,
    "sort": lambda o: o.operands[0].size * math.log2(max(2, o.operands[0].shape[-1])),
    "top_k": lambda o: o.operands[0].size,
    "fft": lambda o: 5 * o.writes[0].size * math.log2(max(2, o.writes[0].shape[-1])),
}
