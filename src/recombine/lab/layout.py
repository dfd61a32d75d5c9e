"""How a population lies over several devices: members x data x parameters, by a fixed rule."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidRequest, RecombineError, unknown
from recombine.lab.device import device_count, device_memory

if TYPE_CHECKING:
    from jax.sharding import Mesh, NamedSharding

AXES = ("members", "data", "parameters")
VARIABLE = "RECOMBINE_LAYOUT"
# A weight, its gradient and Adam's two moments, in float32.
STATE_BYTES = 16
# Of a device's memory; the rest is for activations and data.
STATE_SHARE = 0.8


class DoesNotFit(RecombineError):
    """The population does not fit into the memory of the devices, or onto their number."""


@dataclass(frozen=True)
class Layout:
    """Over how many devices members, the examples of a batch and each matrix are divided.

    >>> Layout(data=2, parameters=4).devices
    8
    >>> print(Layout(data=2, parameters=4))
    data=2,parameters=4
    """

    members: int = 1
    data: int = 1
    parameters: int = 1

    def __post_init__(self):
        for axis, count in zip(AXES, self.axes, strict=True):
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise InvalidRequest(
                    f"{axis} of a layout must be a whole number of at least 1, got {count!r}"
                )

    def __str__(self) -> str:
        named = [f"{a}={n}" for a, n in zip(AXES, self.axes, strict=True) if n > 1]
        return ",".join(named or ["members=1"])

    @property
    def axes(self) -> tuple[int, int, int]:
        return self.members, self.data, self.parameters

    @property
    def devices(self) -> int:
        return math.prod(self.axes)

    @property
    def trivial(self) -> bool:
        """One device: nothing is placed, and the program is the one without a layout."""
        return self.devices == 1

    def mesh(self) -> Mesh:
        """The first devices as a grid with one axis for each thing that is divided."""
        if self.devices > device_count():
            raise DoesNotFit(
                f"the layout {self} takes {self.devices} devices, and {device_count()} are "
                f"visible: make {self.devices} visible"
            )
        return _mesh(self)

    def whole(self) -> NamedSharding:
        """Every device holds all of it."""
        return self._sharding(())

    def of_state(self, state: Any) -> Any:
        """Where a stacked state lies: members apart, and their matrices divided."""
        import jax

        return jax.tree.map(
            lambda leaf: self._sharding(("members", *self.matrix_axes(leaf.shape[1:]))), state
        )

    def matrix_axes(self, shape: Sequence[int]) -> tuple[str | None, ...]:
        """How one member's array is divided: a matrix along its largest axis that can be.

        Adam's moments have the shape of their weights, so they lie where those do. Of equal axes
        the last one is taken: it is the output of a layer, which needs no sum over devices.

        >>> Layout(parameters=4).matrix_axes((100, 64)), Layout(parameters=4).matrix_axes((64,))
        (('parameters', None), (None,))
        """
        axes: list[str | None] = [None] * len(shape)
        able = [n for n, size in enumerate(shape) if size and size % self.parameters == 0]
        if len(shape) > 1 and able and self.parameters > 1:
            axes[max(able, key=lambda n: (shape[n], n))] = "parameters"
        return tuple(axes)

    def send_state(self, state: Any) -> Any:
        """A stacked state from the host; no device is sent more than its own part."""
        import jax

        placed = None if self.trivial else self.of_state(state)
        divided = (sharding.spec for sharding in jax.tree.leaves(placed))
        if self.parameters > 1 and not any("parameters" in spec for spec in divided):
            raise DoesNotFit(
                f"no matrix of this model has an axis that divides by parameters={self.parameters}:"
                " ask for a layout whose parameters divide its widths, such as a power of two"
            )
        return self._send(state, placed)

    def send_members(self, tree: Any) -> Any:
        """Stacked arrays from the host, each member's to where that member is."""
        return self._send(tree, None if self.trivial else self._sharding(("members",)))

    def send_whole(self, tree: Any) -> Any:
        """Arrays that every member may ask for, from the host to all devices."""
        return self._send(tree, None if self.trivial else self.whole())

    def _send(self, tree: Any, placed: Any) -> Any:
        import jax
        import jax.numpy as jnp

        return jax.tree.map(jnp.asarray, tree) if placed is None else jax.device_put(tree, placed)

    def settle_state(self, state: Any) -> Any:
        """A stacked state inside a program, told to lie as `of_state` says."""
        import jax

        return jax.lax.with_sharding_constraint(state, self.of_state(state))

    def settle_weights(self, state: Any) -> Any:
        """The same for one member's state, before it is stacked."""
        import jax

        wanted = jax.tree.map(lambda leaf: self._sharding(self.matrix_axes(leaf.shape)), state)
        return jax.lax.with_sharding_constraint(state, wanted)

    def settle_drawn(self, drawn: Any) -> Any:
        """What was drawn for a block of steps (step x member x example x ...), parted by example.

        What a program's `draw` returns has its examples as first axis; an array that has no such
        axis, or one that does not divide, stays as the compiler likes it.
        """
        import jax
        import jax.numpy as jnp

        def settle(leaf: Any) -> Any:
            keys = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            if keys or leaf.ndim < 3 or leaf.shape[2] % self.data:
                return leaf
            wanted = self._sharding((None, "members", "data"))
            return jax.lax.with_sharding_constraint(leaf, wanted)

        return jax.tree.map(settle, drawn)

    def _sharding(self, axes: Sequence[str | None]) -> NamedSharding:
        from jax.sharding import NamedSharding, PartitionSpec

        return NamedSharding(self.mesh(), PartitionSpec(*axes))


ONE_DEVICE = Layout()


@functools.cache
def _mesh(layout: Layout) -> Mesh:
    import jax
    import numpy as np
    from jax.sharding import AxisType, Mesh

    grid = np.asarray(jax.local_devices()[: layout.devices]).reshape(layout.axes)
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def choose_layout(
    weights: int, members: int, device_count: int, memory_bytes: int | None
) -> Layout:
    """The rule: members on devices of their own while one fits on a device, else its matrices.

    A matrix is divided no further than it must be; the devices that are left divide the examples.

    >>> choose_layout(3_000_000, 48, 8, 80 * 2**30)
    Layout(members=8, data=1, parameters=1)
    >>> choose_layout(8_000_000_000, 1, 8, 80 * 2**30)
    Layout(members=1, data=4, parameters=2)
    """
    if device_count == 1:
        return ONE_DEVICE
    able = divisors(device_count)
    if _fits(weights, 1, memory_bytes):
        return Layout(members=max(n for n in able if n <= max(1, members)))
    for parameters in able:
        if _fits(weights, parameters, memory_bytes):
            return Layout(data=device_count // parameters, parameters=parameters)
    assert memory_bytes is not None  # else it would have fitted
    gib = 2**30
    raise DoesNotFit(
        f"training {weights:,} weights takes about {weights * STATE_BYTES / gib:,.0f} GiB, more "
        f"than {device_count} devices of {memory_bytes / gib:,.0f} GiB hold: use "
        f"{devices_needed(weights, memory_bytes)} of them, or a smaller model"
    )


def _fits(weights: int, parameters: int, memory_bytes: int | None) -> bool:
    if memory_bytes is None:
        return True
    return weights * STATE_BYTES <= STATE_SHARE * memory_bytes * parameters


def devices_needed(weights: int, memory_bytes: int) -> int:
    """How many devices hold one member: a power of two, as widths of models divide by those.

    >>> devices_needed(8_000_000_000, 80 * 2**30)
    2
    """
    least = math.ceil(weights * STATE_BYTES / (STATE_SHARE * memory_bytes))
    return 2 ** math.ceil(math.log2(max(1, least)))


def spread(count: int, most: int) -> int:
    """Over how many devices, at most `most`, so many members lie evenly.

    >>> spread(12, 8), spread(7, 4)
    (6, 1)
    """
    return next(n for n in range(min(count, most), 0, -1) if count % n == 0)


@dataclass(frozen=True)
class Devices:
    """How many devices a plan may use, what each of them holds, and what the user asked for."""

    count: int = 1
    memory_bytes: int | None = None
    asked: Layout | None = None

    @staticmethod
    def here() -> Devices:
        count = device_count()
        return Devices(count, device_memory(), asked_layout(os.environ.get(VARIABLE), count))

    def layout(self, weights: int, members: int, accelerated: bool) -> Layout:
        """The layout of a program's stacks.

        Devices of a CPU are the same cores under other names: they are used when asked for.
        """
        if self.asked is not None:
            return replace(self.asked, members=min(self.asked.members, members))
        if not accelerated:
            return ONE_DEVICE
        try:
            return choose_layout(weights, members, self.count, self.memory_bytes)
        except DoesNotFit:
            # An estimate must not stop the other cells of a plan; the devices have the last word.
            return Layout(parameters=self.count)

    def suit(self, layout: Layout) -> bool:
        """Whether a layout of an earlier plan is possible here, and not other than asked for."""
        if layout.devices > self.count:
            return False
        asked = self.asked
        return asked is None or (
            layout.members <= asked.members and layout.axes[1:] == asked.axes[1:]
        )

    def advice(self, weights: int, layout: Layout) -> str:
        """What to do about one member that did not fit under a layout."""
        advice = "use a smaller model or a smaller batch"
        if self.memory_bytes is None:
            return advice
        wanted = max(devices_needed(weights, self.memory_bytes), 2 * layout.parameters)
        if wanted <= self.count:
            return f"{advice}, or divide it: {VARIABLE}=parameters={wanted}"
        return f"{advice}, or make {wanted} devices visible ({self.count} now)"


def asked_layout(text: str | None, count: int) -> Layout | None:
    """The layout that RECOMBINE_LAYOUT asks for, which must be possible on so many devices.

    >>> asked_layout("data=2,parameters=4", 8)
    Layout(members=1, data=2, parameters=4)
    """
    if not text:
        return None
    wanted: dict[str, int] = {}
    for part in text.split(","):
        axis, equals, number = (word.strip() for word in part.partition("="))
        if equals and axis not in AXES:
            raise unknown(f"axis in {VARIABLE}", axis, AXES)
        if not equals or not number.isascii() or not number.isdigit() or int(number) < 1:
            raise InvalidRequest(
                f"{VARIABLE}={text!r}: expected numbers of devices, such as data=2,parameters=4"
            )
        if axis in wanted:
            raise InvalidRequest(f"{VARIABLE}={text!r} names {axis} twice: name it once")
        wanted[axis] = int(number)
    layout = Layout(**wanted)
    if layout.devices > count:
        raise InvalidRequest(
            f"{VARIABLE}={text!r} takes {layout.devices} devices, and {count} "
            f"{'is' if count == 1 else 'are'} visible: use {_smaller(layout, count)}"
        )
    return layout


def _smaller(layout: Layout, count: int) -> str:
    """The nearest layout that is possible: matrices first, as they are divided for want of room."""
    left, axes = count, {}
    for axis in reversed(AXES):
        axes[axis] = max(n for n in divisors(left) if n <= getattr(layout, axis))
        left //= axes[axis]
    return f"{VARIABLE}={Layout(**axes)}"
