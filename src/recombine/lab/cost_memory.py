"""Which arrays of a program come into being, and how many of them are alive at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recombine.lab.cost_jaxpr import LOOPS, Flat, Operation, Value

# The same numbers under another shape: no bytes move.
VIEWS = frozenset(
    "reshape squeeze expand_dims bitcast_convert_type random_wrap random_unwrap copy_p "
    "stop_gradient optimization_barrier sharding_constraint".split()
)
# Kernels of their own, which read whole arrays: what feeds them has to exist.
CLOSED = LOOPS | frozenset(
    "dot_general conv_general_dilated sort top_k gather random_bits random_split random_fold_in "
    "threefry2x32 cholesky lu qr geqrf householder_product eigh eig svd triangular_solve fft "
    "custom_call pure_callback io_callback".split()
)
# Cheap to read through but computed into an array: their inputs may be fused, their results not.
FOLDS = ("reduce", "arg", "cum", "scatter", "dynamic_update_slice")
# Too dear to compute again in each of several consumers.
DEAR = frozenset(
    "div sqrt rsqrt exp exp2 expm1 log log1p tanh logistic erf erf_inv erfc pow sin cos tan "
    "atan2 lgamma digamma rem cbrt".split()
)


@dataclass(frozen=True, eq=False)
class Kernel:
    """What runs as one: a closed operation, or a chain of elementwise ones and its result."""

    reads: frozenset[Value]
    writes: tuple[Value, ...]
    in_place: bool  # an elementwise result may lie where a dying input lay
    inside: int  # bytes it needs for itself: a loop's body
    trips: int = 1
    body_traffic: float = 0.0


@dataclass(frozen=True)
class Kernels:
    """A program after fusion. `outputs` and `inputs` lie in buffers of their own."""

    order: tuple[Kernel, ...]
    inputs: frozenset[Value]
    outputs: frozenset[Value]
    closed_reads: frozenset[Value]  # inputs that some kernel reads whole
    reshaped: frozenset[Value]  # inputs that are seen under another shape


def fuse(program: Flat, wide: bool = False) -> Kernels:
    """Groups operations as XLA does: elementwise chains vanish into what consumes them.

    A value comes into being when a closed operation makes or reads it, when the program returns
    it, or when it is dear and has several consumers. `wide` gives bfloat16 the four bytes it
    takes on a CPU, which multiplies in float32.
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
        if made:
            closed = operation.name in CLOSED
            inside, traffic = _inside(operation, wide) if closed else (0, 0.0)
            order.append(Kernel(reads, made, not closed, inside, operation.trips, traffic))
    whole = (root[v] for o in program.operations if o.name in CLOSED for v in o.reads)
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


def _inside(operation: Operation, wide: bool) -> tuple[int, float]:
    """Bytes a kernel needs besides what it reads and writes, and the traffic of its bodies."""
    if operation.name == "random_bits":
        # Both halves of Threefry's state, each written while the other round is read.
        return 3 * operation.writes[0].bytes, 0.0
    peaks, moved = [0], [0.0]
    for body in operation.bodies:
        fused = fuse(body, wide)
        carried = body.inputs if operation.name == "cond" else ()
        peaks.append(peak(fused, wide) + copies(fused, carried, wide))
        moved.append(traffic(fused, wide))
    return max(peaks), operation.trips * (
        max(moved) if operation.name == "cond" else sum(moved)
    )


def stored(values: Iterable[Value], wide: bool) -> int:
    """Bytes of arrays that exist."""
    return sum(v.bytes * 2 if wide and str(v.dtype) == "bfloat16" else v.bytes for v in values)


def traffic(kernels: Kernels, wide: bool = False) -> float:
    """Bytes read and written if every kernel reads each input once and writes its results."""
    return sum(
        k.body_traffic or float(stored(k.reads, wide) + stored(k.writes, wide))
        for k in kernels.order
    )


def copies(kernels: Kernels, carried: Iterable[Value], wide: bool = False) -> int:
    """Bytes of carried arrays a loop cannot overwrite in place.

    XLA updates a carried array where it lies only if it is read elementwise and at its own
    shape. What a product reads, or what is seen under another shape, it copies first.
    """
    kept = kernels.closed_reads | kernels.reshaped
    return stored((v for v in carried if v in kept), wide)


def peak(kernels: Kernels, wide: bool = False) -> int:
    """The most bytes of intermediates alive at once, in the better of two orders.

    XLA, too, schedules for memory: in program order, and by taking next whichever ready kernel
    frees most.
    """
    return min(
        _peak_of(kernels.order, kernels, wide), _peak_of(_greedy(kernels, wide), kernels, wide)
    )


def _readers(order: Sequence[Kernel]) -> dict[Value, int]:
    count: dict[Value, int] = {}
    for kernel in order:
        for value in kernel.reads:
            count[value] = count.get(value, 0) + 1
    return count


def _peak_of(order: Sequence[Kernel], kernels: Kernels, wide: bool) -> int:
    left = _readers(order)
    outside = kernels.inputs | kernels.outputs
    alive = highest = 0
    for kernel in order:
        dying = []
        for value in kernel.reads - outside:
            left[value] -= 1
            if left[value] == 0:
                dying.append(value)
        freed = stored(dying, wide)
        made = stored((v for v in kernel.writes if v not in outside), wide)
        reused = min(freed, made) if kernel.in_place else 0
        highest = max(highest, alive + made - reused + kernel.inside)
        # What nothing reads (a dropped result) is gone at once.
        alive += made - freed - stored((v for v in kernel.writes if v not in left and v not in outside), wide)
    return highest


def _greedy(kernels: Kernels, wide: bool) -> list[Kernel]:
    """Always the ready kernel that adds the fewest bytes; the earliest among equals."""
    left, outside = _readers(kernels.order), kernels.inputs | kernels.outputs
    made = {value for kernel in kernels.order for value in kernel.writes}
    waiting, done, order = list(kernels.order), set[Value](), []

    def added(kernel: Kernel) -> int:
        dying = (v for v in kernel.reads if left[v] == 1 and v not in outside)
        written = (v for v in kernel.writes if v not in outside)
        return stored(written, wide) - stored(dying, wide)

    while waiting:
        ready = [k for k in waiting if (k.reads & made) <= done]
        chosen = min(ready, key=added)
        waiting.remove(chosen)
        done.update(chosen.writes)
        order.append(chosen)
        for value in chosen.reads:
            left[value] -= 1
    return order
