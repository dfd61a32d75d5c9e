"""Brings one file into the cache: downloaded, continued or copied, then checked, then renamed.

Until its sum agrees, a file has another name (`.part`). So whatever has the right name in the
cache was once whole, and what a cut line, a kill or a full disk leaves behind is only continued.
"""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from recombine._version import __version__
from recombine.data.registry import File
from recombine.errors import RecombineError, StoreError
from recombine.lab.files import (
    System,
    make_folder,
    put_chunks,
    sha256_file,
    sync_folder,
    write_all,
    writing,
)

BLOCK = 2**16
Progress = Callable[[str, int, int], None]
"""Called with a file's name, its bytes so far and all its bytes."""


@dataclass(frozen=True)
class Patience:
    """How often and how long a server is waited for; the pause doubles from try to try."""

    tries: int = 4
    pause: float = 1.0
    timeout: float = 30.0


class _Broken(Exception):
    """The transfer ended before the file did; another try may continue it."""


def download(
    address: str, file: File, target: Path, *, patience: Patience, progress: Progress, instead: str
) -> None:
    """Downloads a file and gives it its name; `instead` ends an error: what else can be typed."""
    part = part_of(target)
    reason = ""
    for attempt in range(max(1, patience.tries)):
        if attempt:
            time.sleep(patience.pause * 2 ** (attempt - 1))
        try:
            _receive(address, file, part, patience.timeout, progress, instead)
        except _Broken as broken:
            reason = str(broken)
        else:
            return accept(part, file, target, address)
    raise RecombineError(
        f"{address}: {reason}; {_size(part)} of {file.size} bytes are kept: "
        f"type the same command to continue, or {instead}"
    )


def copy(source: Path, file: File, target: Path, *, progress: Progress) -> None:
    """Copies a file from a folder and gives it its name if its sum agrees."""
    part = part_of(target)
    with writing(part, 0):
        part.unlink(missing_ok=True)
    put_chunks(part, _chunks(source, file, progress), file.size)
    accept(part, file, target, str(source))


def accept(part: Path, file: File, target: Path, origin: str) -> None:
    """Gives a finished file its name, or sets it aside and says both sums."""
    found = sha256_file(part)
    if found != file.sha256:
        aside = set_aside(part, file.name, found)
        raise StoreError(
            f"{file.name} from {origin} has SHA-256 {found} instead of {file.sha256}: it was set "
            f"aside as {aside} and is not used; type the same command to try once more, and if "
            "the sum stays wrong, what lies there is not the pinned file"
        )
    with writing(target, file.size):
        System.rename(part, target)
        sync_folder(target.parent)


def set_aside(path: Path, name: str, found: str) -> Path:
    """Moves a file with a wrong sum out of a set's folder, where people may look at it."""
    aside = path.parent.parent / "set-aside" / f"{name}.{found[:12]}"
    make_folder(aside.parent)
    with writing(aside, 0):
        System.rename(path, aside)
    return aside


def part_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _receive(
    address: str, file: File, part: Path, timeout: float, progress: Progress, instead: str
) -> None:
    have = _size(part)
    if have == file.size:
        return
    if have > file.size:
        have = 0
    headers = {"User-Agent": f"recombine/{__version__}"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(address, headers=headers)
    with _opened(request, part, timeout, instead) as response:
        start = have if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
        if start and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            _forget(part)
            raise _Broken("the server continued at another place")
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and start + int(length) != file.size:
            raise RecombineError(
                f"{address} has {start + int(length)} bytes and not the {file.size} of the pinned "
                f"file (the page of a proxy, perhaps): try again elsewhere, or {instead}"
            )
        _write(response, file, part, start, progress)


def _opened(
    request: urllib.request.Request, part: Path, timeout: float, instead: str
) -> http.client.HTTPResponse:
    """The server's answer; `_Broken` where another try may help, else an error to end with."""
    try:
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            _forget(part)
            raise _Broken("the server would not continue the file") from error
        if error.code == http.HTTPStatus.TOO_MANY_REQUESTS or error.code >= 500:
            raise _Broken(f"the server answered {error.code} {error.reason}") from error
        raise RecombineError(
            f"{request.full_url}: the server answered {error.code} {error.reason}, so the pinned "
            f"file cannot be had there: {instead}"
        ) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise _Broken("the server did not answer in time") from error
        raise RecombineError(
            f"cannot reach {request.host} ({error.reason}): check the network and type the same "
            f"command again, or {instead}"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(_ended(error)) from error


def _write(
    response: http.client.HTTPResponse, file: File, part: Path, have: int, progress: Progress
) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if have else os.O_TRUNC)
    with writing(part, file.size - have):
        fd = os.open(part, flags, 0o644)
    try:
        progress(file.name, have, file.size)
        # One byte more than expected is asked for, so that a longer file is noticed and refused.
        while chunk := _read(response, min(BLOCK, file.size - have + 1)):
            with writing(part, file.size - have):
                write_all(fd, chunk)
            have += len(chunk)
            if have > file.size:
                _forget(part)
                raise _Broken(f"the server sent more than {file.size} bytes")
            progress(file.name, have, file.size)
        with writing(part, 0):
            System.fsync(fd)
    finally:
        os.close(fd)
    if have < file.size:
        raise _Broken(f"the connection ended after {have} of {file.size} bytes")


def _read(response: http.client.HTTPResponse, size: int) -> bytes:
    try:
        return response.read(size)
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(_ended(error)) from error


def _ended(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the server fell silent"
    return f"the connection was cut ({str(error) or type(error).__name__})"


def _chunks(source: Path, file: File, progress: Progress) -> Iterator[bytes]:
    done = 0
    try:
        with source.open("rb") as opened:
            while chunk := opened.read(BLOCK):
                done += len(chunk)
                if done > file.size:
                    return  # its sum will not agree
                yield chunk
                progress(file.name, done, file.size)
    except OSError as error:
        raise StoreError(f"cannot read {source}: {error.strerror or error}") from error


def _size(part: Path) -> int:
    with suppress(OSError):
        return part.stat().st_size
    return 0


def _forget(part: Path) -> None:
    with suppress(OSError):
        part.unlink()
