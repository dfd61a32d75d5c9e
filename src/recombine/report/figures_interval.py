"""The small bar beside a claim: its estimate and intervals against the range that meets it."""

from __future__ import annotations

import math

from .document import ClaimRow
from .tables import decimals_for, number

_WIDTH, _HEIGHT, _PAD = 280.0, 46.0, 10.0


def interval_bar(claim: ClaimRow) -> str:
    """An inline SVG of the claim's interval, empty where there is nothing to draw.

    Colours come from the page's style sheet through classes, so it suits light and dark.

    >>> interval_bar(ClaimRow("a", "A.", "at least 0.9", "not tested here"))
    ''
    """
    if claim.estimate is None or not math.isfinite(claim.estimate):
        return ""
    bounds = [b for b in (claim.meets or ()) if b is not None]
    drawn = [claim.low, claim.high, claim.adjusted_low, claim.adjusted_high, claim.estimate]
    values = [v for v in (*drawn, *bounds) if v is not None and math.isfinite(v)]
    low, high = min(values), max(values)
    margin = 0.12 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        share = (value - low) / (high - low)
        return round(_PAD + min(1.0, max(0.0, share)) * (_WIDTH - 2 * _PAD), 2)

    parts: list[str] = []
    if claim.meets is not None:
        start, end = claim.meets
        left = place(low if start is None else start)
        right = place(high if end is None else end)
        parts.append(
            f'<rect class="meets" x="{left:g}" y="4" width="{max(0.0, right - left):g}" '
            'height="22" rx="2"/>'
        )
    parts.append(f'<path class="axis" d="M {_PAD:g} 15 H {_WIDTH - _PAD:g}"/>')
    for edge in bounds:
        parts.append(f'<path class="edge" d="M {place(edge):g} 1 V 29"/>')
    for name, ends in (
        ("adjusted", (claim.adjusted_low, claim.adjusted_high)),
        ("raw", (claim.low, claim.high)),
    ):
        known = [end if end is not None and math.isfinite(end) else None for end in ends]
        if known != [None, None]:  # with one bound only, the line goes on to the border
            first, last = (low if known[0] is None else known[0],
                           high if known[1] is None else known[1])  # fmt: skip
            parts.append(f'<path class="{name}" d="M {place(first):g} 15 H {place(last):g}"/>')
    parts.append(f'<circle class="estimate" cx="{place(claim.estimate):g}" cy="15" r="5"/>')
    decimals = decimals_for(bounds)
    for edge in bounds:
        text = number(float(edge), decimals).replace("-", "\u2212")
        at = min(max(place(edge), 16.0), _WIDTH - 16.0)
        parts.append(f'<text x="{at:g}" y="42" text-anchor="middle">{text}</text>')
    label = "Estimate and interval" + (" against the range that meets the criterion" * bool(bounds))
    return (
        f'<svg class="bar" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" width="{_WIDTH:g}" '
        f'height="{_HEIGHT:g}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    )
