"""What to collect next: combinations that cover, connect and balance what training saw."""

from recombine._lazy import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "Goals": "recombine.collecting.goals",
        "PictModel": "recombine.collecting.pict",
        "Plan": "recombine.collecting.plans",
        "Space": "recombine.collecting.goals",
        "collect": "recombine.collecting.choosing",
        "parse_pict": "recombine.collecting.pict",
        "read_pict": "recombine.collecting.pict",
        "read_pict_output": "recombine.collecting.pict",
        "write_pict": "recombine.collecting.pict",
        "write_pict_output": "recombine.collecting.pict",
    },
)
