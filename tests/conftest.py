"""What holds for every test: compiled programs are kept on disk, and nobody calls out."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CACHE = os.environ.setdefault("RECOMBINE_CACHE", str(_home / "recombine" / "compiled-for-tests"))
# Read by jax when it is imported, here and in child processes, so that tests that need no jax do
# not pay for importing it. Only compilations longer than this many seconds are kept.
if CACHE != "off":
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", CACHE)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

# Compiling is most of what tests do the first time, and their programs are too small to gain from
# being optimised.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"

# Small decompositions gain nothing from threads, and where cores are busy the threads wait for one
# another a hundred times longer than they work. numpy is already there (a pytest plugin imports
# it); the variable is for libraries loaded later and for child processes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
threadpool_limits(limits=1, user_api="blas")

# What a shell starts in the background inherits that Ctrl-C is ignored, and so would every child
# that a test stops by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A shared machine makes any deadline flaky; what is slow is seen with --durations.
settings.register_profile("recombine", deadline=None)
settings.load_profile("recombine")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test that reaches beyond this machine."""
    connect = socket.socket.connect

    def local_only(self: socket.socket, address):
        host = address[0] if isinstance(address, tuple) else ""
        if self.family != socket.AF_UNIX and host not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"a test tried to reach {address}: tests make no network requests")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


@pytest.fixture
def strict_types():
    """No silent change of dtype in our own arithmetic (optax's Adam does not allow it while training)."""  # noqa: E501
    import jax

    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_are_let_go():
    """Frees what a module compiled: each program holds memory maps, and a process has few."""
    yield
    if "jax" in sys.modules:
        import jax

        if "recombine.lab.engine" in sys.modules:
            from recombine.lab import engine

            engine._compiled.clear()
            engine._traced.cache_clear()
        jax.clear_caches()
        gc.collect()
