"""Your own model: the instruments on networks that were not made here."""

from recombine._lazy import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "Grid": "recombine.adapters._torch_fracture",
        "Part": "recombine.adapters._torch_masks",
        "Picture": "recombine.adapters._torch_maps",
        "Scenes": "recombine.adapters._torch_binding",
        "checksum": "recombine.adapters._torch",
        "inspect_module": "recombine.adapters.torch_modules",
        "learn_masks": "recombine.adapters._torch_masks",
        "maskable": "recombine.adapters._torch",
        "read_binding": "recombine.adapters._torch_binding",
        "read_fracture": "recombine.adapters._torch_fracture",
        "read_maps": "recombine.adapters._torch_maps",
        "read_subnetworks": "recombine.adapters._torch_masks",
        "untrained_twin": "recombine.adapters._torch",
    },
)
