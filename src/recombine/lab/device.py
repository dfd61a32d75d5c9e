"""The device at hand, and the fixed rules that follow from its kind."""

from __future__ import annotations

import functools
import os
import platform
from dataclasses import asdict, dataclass

# Weights held by one stack on an accelerator: more brings no speed on the GPUs measured so far.
STACKED_WEIGHTS = 154_000_000
MOST_MEMBERS = 512


@dataclass(frozen=True)
class Device:
    """What a result's manifest says about the machine: its kind, not its name."""

    platform: str
    kind: str
    cores: int

    @property
    def accelerated(self) -> bool:
        return self.platform != "cpu"

    def precision(self, demanded: str = "auto") -> str:
        """The dtype of a student's products: bfloat16 on an accelerator unless told otherwise."""
        if demanded != "auto":
            return demanded
        return "bfloat16" if self.accelerated else "float32"

    def stack(self, weights: int) -> int:
        """How many members one program trains at once.

        On a CPU stacking loses (measured at every width from 32 to 512), so members run one
        after another on threads.
        """
        if not self.accelerated:
            return 1
        return max(1, min(MOST_MEMBERS, STACKED_WEIGHTS // max(1, weights)))


def visible_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def device() -> Device:
    """The first device jax sees."""
    import jax

    first = jax.devices()[0]
    return Device(first.platform, first.device_kind, visible_cores())


@functools.cache
def device_count() -> int:
    """How many devices this process can use."""
    import jax

    return jax.local_device_count()


@functools.cache
def device_memory() -> int | None:
    """Bytes one device can hold, where it says so; a CPU does not."""
    import jax

    told = jax.local_devices()[0].memory_stats() or {}
    return told.get("bytes_limit")


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what can change a number."""
    from importlib.metadata import PackageNotFoundError, version

    def known(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "absent"

    from recombine._version import __version__

    names = ("jax", "jaxlib", "equinox", "optax", "numpy", "scipy")
    return {"recombine": __version__, **{name: known(name) for name in names}}


def fingerprint() -> dict[str, object]:
    """Where an unfinished checkpoint may be continued: the same versions, device and cores."""
    return {**versions(), **asdict(device()), "machine": platform.machine()}


def enable_compilation_cache(folder: str | None = None) -> None:
    """Keeps compiled programs on disk, so a second run of the same shapes does not compile.

    A corrupt or foreign entry is ignored by jax with a warning, and compiled anew.
    """
    import jax

    place = folder or os.environ.get("RECOMBINE_CACHE")
    if place is None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        place = os.path.join(home, "recombine", "compiled")
    if place == "off":
        return
    jax.config.update("jax_compilation_cache_dir", place)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    jax.config.update("jax_raise_persistent_cache_errors", False)


def compilation_cache() -> str | None:
    """The folder of compiled programs that is in use."""
    import jax

    return getattr(jax.config, "jax_compilation_cache_dir", None)
