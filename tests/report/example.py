"""A made-up but realistic report with every kind of figure, and one made of hostile text."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

from recombine.report.document import ClaimRow, Figure, Report, Section, Table
from recombine.report.figures import (
    Estimates,
    Grid,
    Panel,
    Points,
    Series,
    curves,
    dots,
    heat_map,
    heat_maps,
    panels,
    scatter,
)

WIDTHS = (128, 256, 512, 1024, 2048)


def _series(name: str, top: float, gap: float) -> Series:
    y = [top - gap * (128 / width) ** 0.8 for width in WIDTHS]
    low = [value - 0.08 * gap - 0.004 for value in y]
    high = [value + 0.08 * gap + 0.004 for value in y]
    return Series(name, WIDTHS, y, low, high)


def _learning(name: str, rate: float, points: int = 60) -> Series:
    x = [500.0 * (i + 1) for i in range(points)]
    y = [1 - math.exp(-rate * step / 6000) for step in x]
    return Series(name, x, y, [v - 0.03 for v in y], [min(1.0, v + 0.03) for v in y])


def _scatter_points(name: str, slope: float, shift: float) -> Points:
    x = [0.1 + 0.8 * ((i * 0.618) % 1) for i in range(40)]
    y = [shift + slope * v + 0.09 * math.sin(37.0 * i) for i, v in enumerate(x)]
    return Points(name, x, y)


def scaling_curve() -> Figure:
    return curves(
        "Unseen combinations catch up with seen ones as width grows",
        "hidden width",
        "R² (mean and 95 % interval over 5 seeds)",
        [
            _series("seen", 0.999, 0.02),
            _series("unseen, connected support", 0.998, 0.1),
            _series("unseen, disconnected support", 0.62, 0.2),
        ],
        log_x=True,
        references=[(0.95, "criterion 0.95")],
        caption="Bands are Student t intervals over seeds. All cells reached their seen floor.",
    )


def grids() -> list[Grid]:
    tables = []
    for share, drop in ((0.25, 0.0), (0.5, 0.06), (0.9, 0.35)):
        values = [
            [None if k > m else 0.99 - drop * k / 3 - 0.01 * math.log2(m) for k in (1, 2, 3, 8)]
            for m in (4, 8, 16)
        ]
        rows, columns = ["4", "8", "16"], ["1", "2", "3", "8"]
        tables.append(Grid(f"held out {share:.0%}", rows, columns, values))
    return tables


def draw() -> list[Figure]:
    """Every kind of figure, with the shapes that break drawings: gaps, lone points, crowds."""
    crowd = [
        Series(
            f"seed {i}, a long name of a cell that goes on and on, variant {i}",
            [1, 2, 3, 4],
            [0.1 * i, None, 0.1 * i + 0.2, 0.08 * i],
        )
        for i in range(10)
    ]
    encodings = ("one-hot", "a sentence in words", "example pairs", "latent code")
    return [
        scaling_curve(),
        curves(
            "Learning curves",
            "training steps",
            "loss on unseen combinations",
            [
                replace(s, y=[1.02 - v for v in s.y if v is not None], low=None, high=None)
                for s in (_learning("width 128", 0.4), _learning("width 1024", 1.2))
            ],
            log_y=True,
        ),
        panels(
            "The gap closes under every encoding but one",
            "training steps",
            "R² on unseen combinations",
            [
                Panel(name, [_learning("width 128", 0.5 + 0.2 * i), _learning("width 1024", 1 + i)])
                for i, name in enumerate(encodings)
            ],
            y_range=(0, 1.05),
            references=[(0.95, "criterion")],
            caption="Same seeds in every panel.",
        ),
        heat_maps(
            "Where composition works",
            grids(),
            row_label="M",
            column_label="K",
            value_label="R² on unseen combinations",
            scale=(0, 1),
            missing="infeasible: K is larger than M",
            caption="Modules M against modules per task K, for three held-out shares.",
        ),
        heat_map(
            "Transfer between constraints",
            ["power balance", "line limits", "a constraint with a rather long name"],
            ["trained", "untrained twin", "shuffled targets"],
            [[12.5, -3.25, 0.0], [8.0, 1.5, float("nan")], [1.0, 2.0, 3.0]],
            value_label="points gained",
        ),
        scatter(
            "Decodability predicts generalization only after training",
            "decodability of modules (R²)",
            "generalization (R² on unseen combinations)",
            [_scatter_points("trained", 0.9, 0.05), _scatter_points("untrained twin", 0.02, 0.2)],
            fit=True,
        ),
        dots(
            "Error grows with novelty, less so in wide models",
            ["nothing new", "1 new pair", "2 new pairs", "3 new pairs and a rarely used module"],
            [
                Estimates(
                    f"width {width}",
                    [0.02 + 0.5 * i / width**0.4 for i in range(3)] + [None if j else 0.4],
                    [0.01 + 0.4 * i / width**0.4 for i in range(3)] + [None if j else 0.31],
                    [0.03 + 0.6 * i / width**0.4 for i in range(3)] + [None if j else 0.5],
                )
                for j, width in enumerate((128, 512, 2048))
            ],
            value_label="error on unseen combinations (95 % interval)",
            category_label="novelty",
            references=[(0.3, "chance")],
        ),
        curves("Many series, long names and gaps", "epoch", "score", crowd),
        curves(
            "A single point",
            "width",
            "R²",
            [Series("only one size ran", [512], [0.9], [0.85], [0.95])],
            log_x=True,
        ),
        curves("Nothing to show", "width", "R²", [Series("never ran", [], [])]),
    ]


@cache
def figures() -> list[Figure]:
    """The figures of `draw`, drawn once for all tests that only look."""
    return draw()


def claims() -> tuple[ClaimRow, ...]:
    return (
        ClaimRow(
            "wider-is-enough",
            "With a connected support, a 4x1024 network generalizes to unseen combinations.",
            "R² on unseen combinations at width 1024 is at least 0.95",
            "supported",
            *(0.981, 0.974, 0.988, 0.969, 0.991),
            5,
            "seeds",
            meets=(0.95, None),
        ),
        ClaimRow(
            "coverage-is-enough",
            "Covering every module once is enough, even where the support is disconnected.",
            "gap between seen and unseen R² is at most 0.05 at every width",
            "refuted",
            *(0.37, 0.33, 0.41, 0.31, 0.43),
            5,
            "seeds",
            "Every width misses the criterion, also after twice the training steps.",
            meets=(None, 0.05),
        ),
        ClaimRow(
            "no-cost-when-seen",
            "Composition costs nothing on combinations that were trained.",
            "difference in seen R² lies between -0.01 and 0.01",
            "inconclusive",
            *(-0.006, -0.013, 0.002, -0.017, 0.005),
            5,
            "seeds",
            meets=(-0.01, 0.01),
        ),
        ClaimRow(
            "transformers-too",
            "The same holds for transformers (analogue of the published claim).",
            "R² at least 0.95 at 30 M parameters",
            "not tested here",
            note="Not tested at this size: needs the standard preset, about 5 minutes on a GPU.",
        ),
    )


@cache
def report() -> Report:
    """A report as a study would write it."""
    drawn = figures()
    table = Table(
        "Means with and without diverged members",
        ["cell", "seeds", "diverged", "R² seen", "R² unseen", "learning rate", "remark"],
        [
            ["width 128", 5, 0, 0.9812, 0.9012, 1e-3, None],
            ["width 1024", 5, 1, 0.9991, 0.9893, 3e-4, "diverged at step 1,200"],
            ["width 2048", 5, 0, 0.9994, None, 1e-5, "undertrained: seen score below its floor"],
        ],
        "A member diverges at its first non-finite loss.",
    )
    return Report(
        "scaling-hyperteacher",
        "Does scale alone bring compositional generalization?",
        "Can a plain network that has seen every module, but only some combinations of them, "
        "handle the combinations it has never seen, and does size help?",
        "After a published study of scaling and compositional generalization; the second "
        "claim is an analogue.",
        "standard",
        "Yes, where the training combinations connect all modules: wide networks reach an "
        "R² of 0.98 on combinations they never saw. Coverage alone is not enough.",
        claims(),
        (
            Section(
                "Scaling",
                "Each point is the mean over five seeds of the coefficient of determination on "
                "tasks whose combination of modules never occurred in training.\n\nThe gap to "
                "seen combinations closes with width as long as the support is connected.",
                drawn[:3],
                [table],
            ),
            Section("Where it breaks", "", drawn[3:7]),
            Section("Awkward figures", "Long names, gaps, lone points.", drawn[7:]),
        ),
        (
            "That larger models would close the gap on disconnected supports.",
            "Anything about natural data: modules here are random linear maps.",
        ),
        (
            ("command", "recombine run scaling-hyperteacher --preset standard --seed 0"),
            ("seeds", "content 0, support 0-4, training 0-4"),
            ("versions", "recombine 0.1.0, jax 0.10.2, Python 3.11"),
            ("device", "one GPU; resume was statistical"),
            ("claims committed in", "3f2a9c1d7be04455a0e1"),
        ),
        ("1 of 25 members diverged and is shown apart from the means.",),
    )


HOSTILE = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "</text></svg><script>document.title='owned'</script>",
    "</style><script>document.title='owned'</script>",
    '"><svg onload="document.title=\'owned\'">',
    "javascript:document.title='owned'",
    "{{7*7}}{% raw %}${7*7}",
    "$\\frac{x}{0}$ $unclosed",
    "nul\x00bell\x07escape\x1b[31m",
    "abc\u202egnp.exe\u2066\u2069",
    "lone \ud800 surrogate \uffff",
    "שלום العربية 模块 &amp; ]]> -->",
    "url(https://example.org/x.png)",
    "line\nbreak\r\ttab",
)


@cache
def hostile() -> Report:
    """A report in which every text a user, a model or an error could supply is an attack."""
    names = list(HOSTILE)
    text = "\n\n".join(names)
    values = [0.1 * i for i in range(len(names))]
    x = [0.0, 1.0]
    drawn = [
        curves(names[0], names[1], names[2], [Series(n, x, [0, i]) for i, n in enumerate(names)]),
        curves(names[2], names[8], names[7], [Series(n, x, [0, 1]) for n in names[2:6]]),
        panels(text, text, text, [Panel(n, [Series(names[2], x, x)]) for n in names]),
        heat_map(text, names, names, [values] * len(names), value_label=text, row_label=text),
        scatter(text, text, text, [Points(n, x, x) for n in names], fit=True, caption=text),
        dots(text, names, [Estimates(names[0], values)], value_label=text, category_label=text),
    ]
    table = Table(text, names, [names], text)
    rows = tuple(ClaimRow(n, n, n, "refuted", 0.5, 0.1, 0.9, 0, 1, 5, n, n) for n in names)
    sections = tuple(Section(n, text, drawn if not i else (), [table]) for i, n in enumerate(names))
    pairs = tuple((n, n) for n in names)
    return Report(text, text, text, text, text, text, rows, sections, names, pairs, names)
