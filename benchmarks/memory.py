"""Device bytes as `recombine plan` predicts them, beside what the compiled program says."""

from __future__ import annotations

from benchmarks.training import mlp
from recombine.lab import cost
from recombine.lab.device import device
from recombine.lab.engine import Population


def run(widths: list[int] | None = None) -> list[dict[str, float]]:
    here = device()
    precision = here.precision()
    found = []
    for width in widths or ([128, 1024] if here.accelerated else [64, 256, 512]):
        members = here.stack(mlp(width).learner.size)
        learners = [mlp(width).member(seed) for seed in range(members)]
        prepared = [one.prepare({}) for one in learners]
        population = Population(learners, prepared, precision)
        analysis = population.compile().advance.memory_analysis()
        real = (
            analysis.argument_size_in_bytes
            + analysis.output_size_in_bytes
            - analysis.alias_size_in_bytes
            + analysis.temp_size_in_bytes
        )
        predicted = cost.predict_memory(learners[0], members, precision, arrays=prepared[0]).total
        print(f"memory of {members} x mlp 4x{width}: predicted {predicted / 2**20:,.0f} MiB, "
              f"real {real / 2**20:,.0f} MiB, ratio {predicted / real:.2f}")  # fmt: skip
        found.append({"width": width, "members": members, "predicted": predicted, "real": real})
    return found
