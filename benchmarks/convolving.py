"""How fast convolutions of many networks at once are trained: as products, and as XLA has them.

Steps follow each other in one compiled loop, as the engine's do. That matters: by itself a step
with XLA's own convolution is up to twice as fast on a CPU as with products, in a loop it takes
dozens of times as long (two cores, jax 0.10.2).

`python -m benchmarks.convolving`
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recombine.lab.device import device
from recombine.models._convolution import Conv

SIDE, CHANNELS, KERNEL, LAYERS = 35, 32, 5, 3  # as slots are drawn by the study of binding
STEPS, RATE = 4, 1e-3
Way = Callable[[Conv, Float[Array, "picture side side in"], jnp.dtype], Array]


def product(conv: Conv, x: Float[Array, "picture side side in"], dtype: jnp.dtype) -> Array:
    """The house's: one product for the columns of a kernel, whose rows are added up."""
    return conv(x, dtype)


def own(conv: Conv, x: Float[Array, "picture side side in"], dtype: jnp.dtype) -> Array:
    """XLA's own convolution, which becomes a grouped one where members are stacked."""
    by_column = conv.kernel.matrix.reshape(KERNEL, x.shape[-1], KERNEL, conv.bias.shape[0])
    kernel = by_column.transpose(2, 0, 1, 3)
    made = jax.lax.conv_general_dilated(
        x.astype(dtype), kernel.astype(dtype), (1, 1), "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip
    return (made.astype(jnp.float32) + conv.bias).astype(dtype)


def loss(convs: tuple[Conv, ...], x: Array, way: Way, dtype: jnp.dtype) -> Array:
    for conv in convs:
        x = jax.nn.relu(way(conv, x, dtype))
    return jnp.mean(x.astype(jnp.float32) ** 2)


def run(members: int | None = None, pictures: int | None = None, seconds: float = 3.0) -> list:
    """Steps of descent on three layers; FLOPs are those of the convolutions alone."""
    here = device()
    members = members or (5 if here.accelerated else 2)
    pictures = pictures or (256 if here.accelerated else 8)
    dtype = jnp.dtype(here.precision())

    def drawn(key: Array) -> tuple[Conv, ...]:
        keys = jax.random.split(key, LAYERS)
        return tuple(Conv.draw(k, KERNEL, CHANNELS, CHANNELS) for k in keys)

    nets = jax.vmap(drawn)(jax.random.split(jax.random.key(0), members))
    x = jax.random.normal(jax.random.key(1), (members, pictures, SIDE, SIDE, CHANNELS), dtype)
    # Forward, and backward to the weights and, but for the first layer, to what it reads.
    passes = 3 * LAYERS - 1
    flops = STEPS * passes * 2 * x.size * KERNEL**2 * CHANNELS

    def trained(way: Way, *, stacked: bool) -> Callable:
        slope = jax.grad(lambda net, x: loss(net, x, way, dtype))

        def all_slopes(nets: tuple[Conv, ...], x: Array) -> tuple[Conv, ...]:
            if stacked:
                return jax.vmap(slope)(nets, x)
            each = [slope(jax.tree.map(lambda w, m=m: w[m], nets), x[m]) for m in range(members)]
            return jax.tree.map(lambda *slopes: jnp.stack(slopes), *each)

        def step(nets: tuple[Conv, ...], _: None) -> tuple[tuple[Conv, ...], None]:
            return jax.tree.map(lambda w, s: w - RATE * s, nets, all_slopes(nets, x)), None

        return jax.jit(lambda nets: jax.lax.scan(step, nets, None, length=STEPS)[0])

    ways = {
        "products": trained(product, stacked=True),
        "XLA's own, stacked": trained(own, stacked=True),
        "XLA's own, in turn": trained(own, stacked=False),
    }
    first, lines = None, []
    for name, train in ways.items():
        found = jax.tree.leaves(jax.block_until_ready(train(nets)))
        first = found if first is None else first
        apart = max(  # as a share of what training changed
            float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(a - start)))
            for a, b, start in zip(first, found, jax.tree.leaves(nets), strict=True)
        )
        done, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            jax.block_until_ready(train(nets))
            done += 1
        taken = (time.perf_counter() - begun) / done
        rate = STEPS * members * pictures / taken
        lines.append({"way": name, "members": members, "pictures": pictures, "apart": apart,
                      "precision": here.precision(), "pictures_per_second": rate,
                      "flops_per_second": flops / taken})  # fmt: skip
        print(
            f"{name:<20}{rate:>12,.0f} pictures/s, {flops / taken / 1e12:.3f} TFLOP/s; weights "
            f"{apart:.0e} of their change from those of products",
            flush=True,
        )
    return lines


if __name__ == "__main__":
    run()
