"""Your own model: the instruments on networks that were not made here."""

from recombine._lazy import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "AdapterFailed": "recombine.adapters.worker",
        "ArraysModel": "recombine.adapters.arrays",
        "Checked": "recombine.adapters.isolation",
        "CommandModel": "recombine.adapters.commands",
        "EndpointModel": "recombine.adapters.endpoints",
        "FunctionModel": "recombine.adapters.functions",
        "Grid": "recombine.adapters._torch_fracture",
        "Isolated": "recombine.adapters.worker",
        "OwnModel": "recombine.adapters.models",
        "Parity": "recombine.adapters.models",
        "Part": "recombine.adapters._torch_masks",
        "Picture": "recombine.adapters._torch_maps",
        "Problem": "recombine.adapters.isolation",
        "Scenes": "recombine.adapters._torch_binding",
        "TorchModel": "recombine.adapters.torch_models",
        "TransformersModel": "recombine.adapters.hf_models",
        "checked": "recombine.adapters.isolation",
        "checksum": "recombine.adapters._torch",
        "inspect_module": "recombine.adapters.torch_modules",
        "instruments_for": "recombine.adapters.models",
        "learn_masks": "recombine.adapters._torch_masks",
        "load_model": "recombine.adapters.models",
        "maskable": "recombine.adapters._torch",
        "read_arrays": "recombine.data.arrays",
        "read_binding": "recombine.adapters._torch_binding",
        "read_fracture": "recombine.adapters._torch_fracture",
        "read_maps": "recombine.adapters._torch_maps",
        "read_subnetworks": "recombine.adapters._torch_masks",
        "template": "recombine.adapters.templates",
        "untrained_twin": "recombine.adapters._torch",
    },
)
