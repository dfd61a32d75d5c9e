"""Who is writing: a process's identity, and whether that process still lives."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

_TAG = re.compile(r"tmp-([0-9a-f]{12})-(\d+)-(\d+)-[0-9a-f]{16}")


@dataclass(frozen=True)
class Owner:
    """One process on one machine, told apart from a later process that was given the same pid."""

    host: str
    machine: str
    pid: int
    started: int

    @staticmethod
    def current() -> Owner:
        pid = os.getpid()
        return Owner(socket.gethostname(), _machine(), pid, _started(pid) or 0)

    @staticmethod
    def from_document(document: object) -> Owner | None:
        """The owner a lease names, or None where the document does not name one."""
        if not isinstance(document, dict):
            return None
        host, machine = document.get("host"), document.get("machine")
        pid, started = document.get("pid"), document.get("started")
        if not (isinstance(host, str) and isinstance(machine, str)):
            return None
        if not (isinstance(pid, int) and isinstance(started, int) and pid > 0):
            return None
        return Owner(host, machine, pid, started)

    def document(self) -> dict[str, str | int]:
        return asdict(self)

    def known_dead(self) -> bool:
        """True only where this machine can tell; a process elsewhere is never known to be dead."""
        return self.machine == _machine() and not _alive(self.pid, self.started)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def temporary_name() -> str:
    """A fresh name for unfinished work that says which process is making it."""
    owner = Owner.current()
    return f"tmp-{owner.machine}-{owner.pid}-{owner.started}-{secrets.token_hex(8)}"


def temporary_owner(name: str) -> Owner | None:
    """The process behind a name made by temporary_name, or None for any other name."""
    match = _TAG.fullmatch(name)
    if match is None:
        return None
    return Owner("?", match[1], int(match[2]), int(match[3]))


@cache
def _machine() -> str:
    # The host name alone is not enough: containers may share one, and a reboot makes every
    # earlier pid meaningless. Pids can be compared only within one boot and one pid namespace.
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        pass
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:12]


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command name stands in brackets and may itself hold spaces and brackets.
    return text[text.rfind(")") + 1 :].split()


def _started(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[19]) if fields and len(fields) > 19 else None


def _alive(pid: int, started: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # it exists, and belongs to somebody else
    fields = _stat(pid)
    if fields is None or len(fields) <= 19:
        return True  # no /proc here: the pid is all there is to go by
    killed_but_not_reaped = fields[0] in "ZX"
    return not killed_but_not_reaped and started in (0, int(fields[19]))
