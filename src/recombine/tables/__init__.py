"""A user's own data: rows whose columns are factors, and what their combinations cover."""

from recombine._lazy import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "Coding": "recombine.tables.coding",
        "Factor": "recombine.tables.rows",
        "Rows": "recombine.tables.rows",
        "Rules": "recombine.tables.rules",
        "aligned": "recombine.tables.rows",
        "column_names": "recombine.tables.reading",
        "from_frame": "recombine.tables.frames",
        "read_rows": "recombine.tables.reading",
        "to_frame": "recombine.tables.frames",
    },
)
