"""What a dataset covers, what it lacks, and where a model fails on it."""

from recombine._lazy import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "Asked": "recombine.audits.auditing",
        "Audit": "recombine.audits.auditing",
        "Coverage": "recombine.audits.coverage",
        "Exposure": "recombine.audits.coverage",
        "Hole": "recombine.audits.holes",
        "audit": "recombine.audits.auditing",
        "connected_curve": "recombine.audits.coverage",
        "coverage_curve": "recombine.audits.coverage",
        "exposure": "recombine.audits.coverage",
        "parts": "recombine.audits.holes",
        "seen_forbidden": "recombine.audits.holes",
        "thin_values": "recombine.audits.holes",
    },
)
