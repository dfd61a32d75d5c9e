"""Leases: who is working on what, so that two sweeps on one store never do the same work twice.

A lease is a small file that names its owner. Its modification time is the heartbeat. A lease is
dead at once when its process is known to be gone, and otherwise when it has not beaten for a
minute, so a killed worker's shard returns to the plan by itself.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from recombine.errors import StoreError
from recombine.lab.files import canonical_json, read_json, write_bytes, writing
from recombine.lab.store_process import Owner
from recombine.lab.store_sealed import check_name

TIMEOUT = 60.0
_LOCK_PATIENCE = 60.0


class Busy(StoreError):
    """Somebody else holds a lease; `name` and `holder` say which and who."""

    def __init__(self, name: str, holder: str):
        super().__init__(f"{name} is being worked on by {holder}: wait for it, or stop it there")
        self.name = name
        self.holder = holder


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Holds a lock file for a moment; the system lets go of it when its holder dies."""
    with writing(path, 0):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + _LOCK_PATIENCE
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"another process has held {path} for a minute: "
                        "see whether one is suspended (state T in ps) and continue or stop it"
                    ) from None
                time.sleep(0.005)
        yield fd
    finally:
        os.close(fd)


@dataclass
class Lease:
    """Several names held by this process; `lost` turns True if somebody took one of them over."""

    folder: Path
    names: tuple[str, ...]
    token: str
    timeout: float
    lost: bool = False
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)

    def held(self) -> bool:
        """Looks at the files now, rather than waiting for the next heartbeat to notice."""
        if not self.lost:
            self.lost = not all(self._ours(name) for name in self.names)
        return not self.lost

    def check(self) -> None:
        """Raises StoreError when the lease is lost: whoever has it now will do the work."""
        if not self.held():
            raise StoreError(
                f"the lease on {', '.join(self.names)} was taken over by another process because "
                "this one did not answer in time; nothing was committed here"
            )

    def _ours(self, name: str) -> bool:
        document = _read(self.folder / f"{name}.json")
        return isinstance(document, dict) and document.get("token") == self.token

    def _beat(self) -> None:
        while not self._stop.wait(min(5.0, self.timeout / 5)):
            for name in self.names:
                if not self._ours(name):
                    self.lost = True
                    return
                with suppress(OSError):
                    os.utime(self.folder / f"{name}.json")


@contextmanager
def lease(folder: Path, names: Sequence[str], *, timeout: float = TIMEOUT) -> Iterator[Lease]:
    """Holds all the names, or raises Busy and holds none; a thread keeps the heart beating."""
    names = tuple(dict.fromkeys(check_name("the lease", name) for name in names))
    owner, token = Owner.current(), secrets.token_hex(16)
    content = canonical_json({**owner.document(), "token": token})
    held = Lease(folder, names, token, timeout)
    with locked(folder / ".lock") as fd:
        now = _clock(fd)
        for name in names:
            if holder := _living_holder(folder / f"{name}.json", now, timeout):
                raise Busy(name, holder)
        try:
            for name in names:
                # Not durable: a machine that restarts has no process left to hold a lease.
                write_bytes(folder / f"{name}.json", content, durable=False)
        except BaseException:
            _release(held)
            raise
    heart = threading.Thread(target=held._beat, name="recombine-lease", daemon=True)
    heart.start()
    try:
        yield held
    finally:
        held._stop.set()
        heart.join(timeout=10)
        with suppress(StoreError), locked(folder / ".lock"):
            _release(held)


def holder(folder: Path, name: str, *, timeout: float = TIMEOUT) -> str | None:
    """Who holds a name now, in words, or None; needs no right to write."""
    path = folder / f"{check_name('the lease', name)}.json"
    return _living_holder(path, time.time(), timeout)


def dead_leases(folder: Path, *, timeout: float = TIMEOUT) -> list[Path]:
    """The lease files whose holders are gone; call it with the folder's lock held."""
    with (folder / ".lock").open("rb+") as file:
        now = _clock(file.fileno())
    files = sorted(folder.glob("*.json"))
    return [path for path in files if _living_holder(path, now, timeout) is None]


def _release(held: Lease) -> None:
    for name in held.names:
        if held._ours(name):
            with suppress(OSError):
                (held.folder / f"{name}.json").unlink()


def _clock(fd: int) -> float:
    # Heartbeats are stamped by the file system, which may be another machine: ask its clock.
    os.utime(fd)
    return os.fstat(fd).st_mtime


def _read(path: Path) -> object:
    try:
        return read_json(path)
    except StoreError:
        return None


def _living_holder(path: Path, now: float, timeout: float) -> str | None:
    try:
        beat = path.stat().st_mtime
    except OSError:
        return None
    owner = Owner.from_document(_read(path))
    if owner is not None and owner.known_dead():
        return None
    # A beat far in the future is as dead as one far in the past: the clock was set back since,
    # and a living holder would have beaten again.
    if abs(now - beat) > timeout:
        return None
    return str(owner) if owner else "an unknown process"
