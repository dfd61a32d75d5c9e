"""Which arrays of a program come into being, and how many of them are alive at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recombine.lab.cost_jaxpr import LOOPS, Flat, Operation, Value

# The same numbers under another shape: no bytes move.
VIEWS = frozenset({
    "reshape", "squeeze", "expand_dims", "bitcast_convert_type", "random_wrap", "random_unwrap",
    "copy_p", "stop_gradient", "optimization_barrier", "sharding_constraint",
})  # fmt: skip
# Kernels of their own, which read whole arrays: what feeds them has to exist.
CLOSED = LOOPS | frozenset({
    "dot_general", "conv_general_dilated", "sort", "top_k", "gather", "dynamic_slice", "fft",
    "random_bits", "random_split", "random_fold_in", "threefry2x32", "cholesky", "lu", "qr",
    "geqrf", "householder_product", "eigh", "eig", "svd", "triangular_solve", "pure_callback",
    "io_callback",
})  # fmt: skip
# Computed into an array, though what feeds them may be fused.
FOLDS = ("reduce", "arg", "cum", "scatter", "dynamic_update_slice")
# They touch only the rows they fetch or change.
ROWS = ("gather", "dynamic_slice", "scatter", "dynamic_update_slice")
# Too dear to compute again in each of several consumers.
DEAR = frozenset({
    "div", "rem", "sqrt", "rsqrt", "cbrt", "pow", "exp", "exp2", "expm1", "log", "log1p", "tanh",
    "logistic", "sin", "cos", "tan", "atan2", "erf", "erfc", "erf_inv", "lgamma", "digamma",
})  # fmt: skip


@dataclass(frozen=True)
class Rules:
    """How a kind of compiler turns a program into kernels."""

    wide_bfloat16: bool  # products in bfloat16 are computed, and kept, in float32
    transposed_products: bool  # a product over rows first lays out its left side anew
    breadth_first: bool  # kernels run when they are ready, not when memory is least


CPU = Rules(wide_bfloat16=True, transposed_products=True, breadth_first=True)
ACCELERATOR = Rules(wide_bfloat16=False, transposed_products=False, breadth_first=False)


@dataclass(frozen=True, eq=False)
class Kernel:
    """What runs as one: a closed operation, or a chain of elementwise ones and its result."""

    reads: frozenset[Value]
    writes: tuple[Value, ...]
    traffic: float  # bytes it reads and writes
    in_place: bool = False  # an elementwise result may lie where a dying input lay
    inside: int = 0  # bytes it needs besides what it reads and writes
    starts: float = 1.0  # how often a kernel is started: of a loop, all those inside it


@dataclass(frozen=True)
class Kernels:
    """A program after fusion. `outputs` and `inputs` lie in buffers of their own."""

    order: tuple[Kernel, ...]
    inputs: frozenset[Value]
    outputs: frozenset[Value]
    closed_reads: frozenset[Value]  # inputs that some kernel reads whole
    reshaped: frozenset[Value]  # inputs that are seen under another shape


def fuse(program: Flat, rules: Rules) -> Kernels:
    """Groups operations as XLA does: elementwise chains vanish into what consumes them.

    A value comes into being when a closed operation makes or reads it, when the program returns
    it, or when it is dear and has several consumers.
    """
    viewed: dict[Value, Value] = {}
    for operation in program.operations:
        if _is_view(operation):
            source = operation.reads[0]
            viewed[operation.writes[0]] = viewed.get(source, source)
    root = {v: viewed.get(v, v) for o in program.operations for v in (*o.reads, *o.writes)}
    inputs = frozenset(program.inputs)
    outputs = frozenset(viewed.get(v, v) for v in program.outputs)
    existing, consumers = set(inputs | outputs), dict[Value, int]()
    for operation in program.operations:
        if _is_view(operation):
            continue
        for value in {root[v] for v in operation.reads}:
            consumers[value] = consumers.get(value, 0) + 1
        if operation.name in CLOSED:
            existing.update(root[v] for v in operation.reads)
        if operation.name in CLOSED or operation.name.startswith(FOLDS):
            existing.update(operation.writes)
    for operation in program.operations:
        if operation.name in DEAR and consumers.get(operation.writes[0], 0) > 1:
            existing.add(operation.writes[0])

    sources: dict[Value, frozenset[Value]] = {v: frozenset((v,)) for v in existing}
    order: list[Kernel] = []
    for operation in program.operations:
        if _is_view(operation):
            continue
        empty = frozenset[Value]()
        reads = empty.union(*(sources.get(root[v], empty) for v in operation.reads))
        made = tuple(v for v in operation.writes if v in existing)
        for value in operation.writes:
            sources.setdefault(value, reads)
        if rules.transposed_products and _over_rows(operation):
            left = root[operation.operands[0]]
            laid_out = Value(left)
            order.append(Kernel(sources[left], (laid_out,), 2.0 * stored([left], rules)))
            reads = reads - sources[left] | {laid_out}
        if made:
            moved, inside, started = _needs(operation, reads, made, rules)
            order.append(Kernel(reads, made, moved, operation.name not in CLOSED, inside, started))
    whole = (root[v] for o in program.operations if o.name in CLOSED for v in _read_whole(o))
    reshaped = (viewed[v] for v in viewed if v.shape != viewed[v].shape)
    return Kernels(
        tuple(order), inputs, outputs,
        inputs.intersection(whole), inputs.intersection(reshaped),
    )  # fmt: skip


def _is_view(operation: Operation) -> bool:
    if operation.name in VIEWS:
        return len(operation.reads) == 1
    same = operation.name in ("broadcast_in_dim", "slice") and len(operation.reads) == 1
    return same and operation.reads[0].size == operation.writes[0].size


def _over_rows(operation: Operation) -> bool:
    """Whether a product contracts the leading axes of both sides, as weight gradients do."""
    if operation.name != "dot_general" or len(operation.reads) < 2:
        return False
    (left, right), (batch, _) = operation.params["dimension_numbers"]
    leading = tuple(range(len(batch), len(batch) + len(left)))
    narrow = len(leading) + len(batch) == len(operation.operands[0].shape)
    return tuple(left) == leading and tuple(right) == leading and not narrow


def _needs(
    operation: Operation, reads: Iterable[Value], made: Sequence[Value], rules: Rules
) -> tuple[float, int, float]:
    """The bytes a kernel moves, those it needs besides its inputs and results, and its starts."""
    if operation.bodies:
        fused = [fuse(body, rules) for body in operation.bodies]
        carried = [_carried(operation, number) for number in range(len(fused))]
        inside = max(
            peak(k, rules) + copies(k, c, rules) for k, c in zip(fused, carried, strict=True)
        )
        of_all = max if operation.name == "cond" else sum
        moved, started = (of_all(what(k) for k in fused) for what in (traffic, starts))
        return operation.trips * moved, inside, operation.trips * started
    if operation.name.startswith(ROWS):
        fetched = operation.name in ("gather", "dynamic_slice")
        return 2.0 * stored(made if fetched else operation.operands[-1:], rules), 0, 1.0
    moved = float(stored(reads, rules) + stored(made, rules))
    # Both halves of Threefry's state, each written while the round before is read.
    return moved, 3 * stored(made, rules) if operation.name == "random_bits" else 0, 1.0


def _carried(operation: Operation, body: int) -> tuple[Value, ...]:
    """The inputs of a loop's body that differ from trip to trip: its carry and its slices."""
    inputs, params = operation.bodies[body].inputs, operation.params
    if operation.name == "scan":
        return inputs[_scan_counts(params)[0] :]
    # A while loop's bodies are its test, which keeps nothing, and what it repeats.
    return inputs[params["body_nconsts"] :] if operation.name == "while" and body == 1 else ()


def _scan_counts(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many of a scan's operands are constants, and how many are carried."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    # From jax 0.11 on the operands come as one tree of (constants, carry, slices).
    constants, carry, _ = params["ft_in"].unpack()
    return len(constants), len(carry)


def _read_whole(operation: Operation) -> tuple[Value, ...]:
    """What an operation reads without replacing: of a loop, not the carry it starts from."""
    params, operands = operation.params, operation.operands
    if operation.name == "scan":
        first, count = _scan_counts(params)
        operands = operands[:first] + operands[first + count :]
    elif operation.name == "while":
        operands = operands[: params["cond_nconsts"] + params["body_nconsts"]]
    return tuple(v for v in operation.reads if v in operands)


def stored(values: Iterable[Value], rules: Rules) -> int:
    """Bytes of arrays that exist."""
    return sum(
        v.bytes * 2 if rules.wide_bfloat16 and str(v.dtype) == "bfloat16" else v.bytes
        for v in values
    )


def traffic(kernels: Kernels) -> float:
    """Bytes moved if every kernel reads each of its inputs once and writes its results."""
    return sum(kernel.traffic for kernel in kernels.order)


def starts(kernels: Kernels) -> float:
    """How many kernels are started."""
    return sum(kernel.starts for kernel in kernels.order)


def copies(kernels: Kernels, carried: Iterable[Value], rules: Rules) -> int:
    """Bytes of carried arrays a loop cannot overwrite in place.

    XLA updates a carried array where it lies only if it is read elementwise and at its own
    shape. What a product reads, or what is seen under another shape, it copies first.
    """
    kept = kernels.closed_reads | kernels.reshaped
    return stored((v for v in carried if v in kept), rules)


def peak(kernels: Kernels, rules: Rules) -> int:
    """The most bytes of intermediates alive at once, in the order the compiler would choose."""
    if rules.breadth_first:
        return _peak_of(_breadth_first(kernels), kernels, rules)
    orders = (kernels.order, _thrifty(kernels, rules))
    return min(_peak_of(order, kernels, rules) for order in orders)


def _readers(order: Sequence[Kernel]) -> dict[Value, int]:
    count: dict[Value, int] = {}
    for kernel in order:
        for value in kernel.reads:
            count[value] = count.get(value, 0) + 1
    return count


def _peak_of(order: Sequence[Kernel], kernels: Kernels, rules: Rules) -> int:
    left = _readers(order)
    outside = kernels.inputs | kernels.outputs
    alive = highest = 0
    for kernel in order:
        for value in kernel.reads:
            left[value] -= 1
        freed = stored((v for v in kernel.reads - outside if left[v] == 0), rules)
        kept = [v for v in kernel.writes if v not in outside]
        made = stored(kept, rules)
        reused = min(freed, made) if kernel.in_place else 0
        highest = max(highest, alive + made - reused + kernel.inside)
        # A result that nothing reads is gone at once.
        alive += made - freed - stored((v for v in kept if v not in left), rules)
    return highest


def _breadth_first(kernels: Kernels) -> list[Kernel]:
    """Level by level: each kernel as soon as all it reads is there."""
    level: dict[Value, int] = {}
    depth = []
    for kernel in kernels.order:
        depth.append(1 + max((level.get(v, 0) for v in kernel.reads), default=0))
        for value in kernel.writes:
            level[value] = depth[-1]
    numbered = sorted(enumerate(kernels.order), key=lambda item: (depth[item[0]], item[0]))
    return [kernel for _, kernel in numbered]


def _thrifty(kernels: Kernels, rules: Rules) -> list[Kernel]:
    """Always the ready kernel that adds the fewest bytes; the earliest among equals."""
    left, outside = _readers(kernels.order), kernels.inputs | kernels.outputs
    made = {value for kernel in kernels.order for value in kernel.writes}
    missing = [len(kernel.reads & made) for kernel in kernels.order]
    waiting: dict[Value, list[int]] = {}
    for number, kernel in enumerate(kernels.order):
        for value in kernel.reads & made:
            waiting.setdefault(value, []).append(number)

    def added(number: int) -> tuple[int, int]:
        kernel = kernels.order[number]
        dying = (v for v in kernel.reads if left[v] == 1 and v not in outside)
        written = (v for v in kernel.writes if v not in outside)
        return stored(written, rules) - stored(dying, rules), number

    ready, order = [n for n, count in enumerate(missing) if count == 0], []
    while ready:
        chosen = min(ready, key=added)
        ready.remove(chosen)
        kernel = kernels.order[chosen]
        order.append(kernel)
        for value in kernel.reads:
            left[value] -= 1
        for value in kernel.writes:
            for number in waiting.get(value, ()):
                missing[number] -= 1
                if missing[number] == 0:
                    ready.append(number)
    return order
