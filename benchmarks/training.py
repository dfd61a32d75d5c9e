"""Training speed of populations beside a loop that dispatches one step of one model at a time."""

from __future__ import annotations

import functools
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from recombine.families.listops import ListOps
from recombine.families.preferences import Preferences
from recombine.lab.device import device
from recombine.lab.engine import Population, initial_state
from recombine.learners.flow import Flow
from recombine.learners.next_token import NextToken
from recombine.learners.supervised import Supervised
from recombine.models.diffusion import DiT
from recombine.models.mlp import MLP
from recombine.models.sequence import SequenceModel
from recombine.models.transformer import Transformer
from recombine.seeds import Seeds

EVALUATE_EVERY = 1_000


@dataclass(frozen=True)
class Speed:
    """One line of the benchmark: model-steps a second, and what the machine could do."""

    model: str
    members: int
    precision: str
    engine_steps_per_second: float
    plain_steps_per_second: float
    tflops: float
    ceiling_tflops: float
    utilisation: float
    compile_seconds: float
    memory_bytes: int
    tokens_per_second: float = 0.0  # where it reads text

    def document(self) -> dict:
        return asdict(self)


def matmul_ceiling(precision: str, size: int | None = None) -> float:
    """The best rate of a plain square product on this device, in FLOP/s."""
    n = size or (8192 if device().accelerated else 2048)
    dtype = jnp.dtype(precision)
    a = jax.random.normal(jax.random.key(0), (n, n), dtype)
    product = jax.jit(lambda a: jnp.dot(a, a, preferred_element_type=dtype))
    product(a).block_until_ready()
    repeats, best = (20, 0.0) if device().accelerated else (3, 0.0)
    for _ in range(5):
        begun = time.perf_counter()
        result = a
        for _ in range(repeats):
            result = product(a)
        result.block_until_ready()
        best = max(best, repeats * 2 * n**3 / (time.perf_counter() - begun))
    return best


@dataclass(frozen=True)
class Case:
    """What is measured: a learner of which only the seeds vary."""

    name: str
    learner: Any
    products: int  # of a weight with a number, in one step forwards
    tokens: int = 0  # read in one step, where it reads text

    def member(self, seed: int) -> Any:
        # Members that read text share one corpus, and differ in their first weights.
        seeds = Seeds(init=seed) if self.tokens else Seeds.all(seed)
        return replace(self.learner, seeds=seeds)

    @functools.cached_property
    def given(self) -> dict[str, Any]:
        return {name: data.make() for name, data in self.learner.materials().items()}


def mlp(width: int, depth: int = 4) -> Case:
    """A network on hyperteachers, as published: 128 tasks of 16 samples a step."""
    return _supervised(f"mlp {depth}x{width}", model=MLP(width, depth))


def preferences(width: int = 256) -> Case:
    """A network on grid worlds: 128 episodes a step, with their value iteration."""
    family = Preferences(modules=16, active=3, features=16)
    model = MLP(width, 2)
    return _supervised(f"preferences 2x{width}", family=family, model=model, samples=8)


def transformer(width: int = 256, depth: int = 4) -> Case:
    """The published transformer on hyperteachers."""
    return _supervised(f"transformer {depth}x{width}", model=Transformer(depth, width))


def dit(width: int = 128, patch: int = 8) -> Case:
    """A generator of scenes: 128 tasks of 2 pictures a step."""
    model = DiT(width=width, heads=width // 32, patch=patch)
    learner = Flow(model=model, evaluation_every=EVALUATE_EVERY, training_steps=10_000_000)
    patches = learner.family.output_size // (3 * patch**2)
    told = model.depth * 6 * width**2 + 4 * width**2  # once a picture, all else once a patch
    a_picture = patches * (learner.size - told) + told
    return Case(f"dit {model.depth}x{width}", learner, a_picture * learner.tasks * learner.samples)


def sequence(width: int = 128, depth: int = 4) -> Case:
    """A decoder on lists of operations: 64 packed rows of 128 tokens a step."""
    model = SequenceModel(depth=depth, width=width, heads=max(1, width // 32))
    learner = NextToken(
        family=ListOps(depth=2, train_items=20_000), model=model, row=128, rows=2**12,
        evaluation_every=EVALUATE_EVERY, training_steps=10_000_000,
    )  # fmt: skip
    tokens = learner.batch * learner.row
    return Case(f"sequence {depth}x{width}", learner, tokens * learner.size, tokens)


def _supervised(name: str, **fields: Any) -> Case:
    learner = Supervised(evaluation_every=EVALUATE_EVERY, training_steps=10_000_000, **fields)
    # One product with each weight for every sample (and for the task's own token).
    rows = learner.tasks * (learner.samples + (1 if learner.model.looks_back else 0))
    return Case(name, learner, learner.size * rows)


def engine_speed(
    case: Case, members: int, precision: str, seconds: float
) -> tuple[float, float, int]:
    """(model-steps a second with evaluations, compile seconds, device bytes in use at the peak).

    As the laboratory runs them: one stack on an accelerator, a member per core on a CPU.
    """
    stacks = 1 if device().accelerated else device().cores
    populations = []
    for stack in range(stacks):
        learners = [case.member(stack * members + seed) for seed in range(members)]
        populations.append(
            Population(learners, [one.prepare(case.given) for one in learners], precision)
        )
    begun = time.perf_counter()
    for population in populations:
        population.compile()
    compile_seconds = time.perf_counter() - begun

    def go(population: Population) -> float:
        population.evaluate()
        for _ in range(4):
            population.chunk(population.t + EVALUATE_EVERY)
        start, begun = population.t, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            border = (population.t // EVALUATE_EVERY + 1) * EVALUATE_EVERY
            population.chunk(border)
            if population.t % EVALUATE_EVERY == 0:
                population.evaluate()
        return (population.t - start) * members / (time.perf_counter() - begun)

    with ThreadPoolExecutor(stacks) as pool:
        rate = sum(pool.map(go, populations))
    stats = jax.devices()[0].memory_stats() or {}
    return rate, compile_seconds, int(stats.get("peak_bytes_in_use", 0))


def plain_speed(case: Case, precision: str, seconds: float) -> float:
    """Steps a second of the usual loop: one jitted step of one model, dispatched from Python."""
    one = case.member(0)
    prepared = one.prepare(case.given)
    arrays = jax.tree.map(jnp.asarray, prepared.merged())
    state = jax.tree.map(jnp.asarray, initial_state(one, prepared, precision))
    step = jax.jit(functools.partial(one.program(precision).step), donate_argnums=1)
    evaluate = jax.jit(one.program(precision).evaluate)
    state, metrics = step(arrays, state, jnp.int32(0))
    jax.block_until_ready(evaluate(arrays, state))
    done, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in range(10):
            state, metrics = step(arrays, state, jnp.int32(done))
            done += 1
            if done % EVALUATE_EVERY == 0:
                jax.block_until_ready(evaluate(arrays, state))
        float(metrics["loss"])
    return done / (time.perf_counter() - begun)


def measure(case: Case, precision: str, ceiling: float, seconds: float) -> Speed:
    members = device().stack(case.learner.size)
    plain = plain_speed(case, precision, seconds)
    rate, compiling, memory = engine_speed(case, members, precision, seconds)
    # On a CPU one member runs on each core: say how many models the rate is the sum of.
    together = members if device().accelerated else members * device().cores
    # Products with the weights only: three passes of two operations each.
    flops = 6 * case.products * rate
    return Speed(
        case.name, together, precision, rate, plain, flops / 1e12, ceiling / 1e12,
        flops / ceiling, compiling, memory, case.tokens * rate,
    )  # fmt: skip


def table(lines: list[Speed]) -> str:
    head = (f"{'model':<20}{'members':>8}{'engine/s':>12}{'plain/s':>10}{'TFLOP/s':>10}"
            f"{'of ceiling':>12}{'compile s':>11}")  # fmt: skip
    rows = [
        f"{s.model:<20}{s.members:>8}{s.engine_steps_per_second:>12,.0f}"
        f"{s.plain_steps_per_second:>10,.0f}{s.tflops:>10.3f}{s.utilisation:>12.0%}"
        f"{s.compile_seconds:>11.1f}"
        + (f"  {s.tokens_per_second / 1e6:.2f} million tokens/s" if s.tokens_per_second else "")
        for s in lines
    ]
    return "\n".join([head, *rows])


def run(widths: list[int] | None = None, seconds: float | None = None) -> dict:
    """Measures every width (without any given, grid worlds, a transformer and generators too)."""
    here = device()
    precision = here.precision()
    ceiling = matmul_ceiling(precision)
    default = [128, 256, 512, 1024] if here.accelerated else [32, 64, 128, 256, 512]
    cases = [mlp(width) for width in widths or default]
    if not widths:
        cases += (
            [
                preferences(),
                transformer(),
                dit(64),
                dit(128),
                dit(256),
                sequence(128),
                sequence(256),
            ]
            if here.accelerated
            else [preferences(64), dit(32), sequence(32)]
        )
    lines = []
    for case in cases:
        spent = seconds or (8.0 if here.accelerated else 4.0)
        lines.append(measure(case, precision, ceiling, spent))
        print(table(lines[-1:]).splitlines()[-1], flush=True)
    print(table(lines))
    print(f"matmul ceiling ({precision}): {ceiling / 1e12:.3f} TFLOP/s on {here.kind}")
    return {"device": asdict(here), "ceiling_flops": ceiling, "precision": precision,
            "lines": [line.document() for line in lines]}  # fmt: skip
