"""Columns of any length in bounded memory: what does not fit waits in a temporary file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from recombine.lab.files import writing


@dataclass(eq=False)
class Room:
    """How many bytes arrays may take in memory, shared by the columns of a table.

    Files have no name on the disk (or lose it when they are closed), so nothing remains of them
    however the program ends.
    """

    memory: int
    used: int = 0
    spilled: int = 0
    _files: list[IO[bytes]] = field(default_factory=list)

    def takes(self, size: int) -> bool:
        """Whether so many more bytes fit; if so they are counted."""
        if self.used + size > self.memory:
            return False
        self.used += size
        return True

    def array(self, shape: tuple[int, ...], dtype: np.dtype | type[np.generic]) -> np.ndarray:
        """An empty array, in memory if it fits, else in a temporary file."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if size == 0 or self.takes(size):
            return np.empty(shape, dtype)
        self.spilled += size
        with scratch() as file, writing(_where(), size):
            # Taken now, for a mapping that finds the disk full later kills the program.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            # The mapping outlives the file object, and the file on the disk goes with the mapping.
            return np.memmap(file, dtype, "r+", 0, shape)

    def file(self) -> IO[bytes]:
        """A temporary file that is open until it, or the room, is closed."""
        self._files.append(scratch())
        return self._files[-1]

    def close(self) -> None:
        """Gives up every file of a spool; arrays stay."""
        for file in self._files:
            file.close()


@dataclass(eq=False)
class Spool:
    """One column, written a piece at a time and read again from its start.

    >>> room = Room(memory=0)
    >>> spool = Spool(room)
    >>> spool.append(np.arange(3)); spool.append(np.arange(2, dtype=np.uint8))
    >>> [piece.tolist() for piece in spool.pieces()]
    [[0, 1, 2], [0, 1]]
    >>> room.close()
    """

    room: Room
    length: int = 0
    _held: list[np.ndarray | tuple[int, int, np.dtype]] = field(default_factory=list)
    _file: IO[bytes] | None = None
    _bytes: int = 0

    def append(self, piece: np.ndarray) -> None:
        self.length += len(piece)
        if self.room.takes(piece.nbytes):
            self._bytes += piece.nbytes
            self._held.append(np.ascontiguousarray(piece))
            return
        self._file = self._file or self.room.file()
        with writing(_where(), piece.nbytes):
            start = self._file.seek(0, os.SEEK_END)
            self._file.write(np.ascontiguousarray(piece).data)
        self.room.spilled += piece.nbytes
        self._held.append((start, len(piece), piece.dtype))

    def pieces(self) -> Iterator[np.ndarray]:
        for held in self._held:
            yield held if isinstance(held, np.ndarray) else self._read(*held)

    def _read(self, start: int, length: int, dtype: np.dtype) -> np.ndarray:
        assert self._file is not None
        self._file.seek(start)
        return np.frombuffer(self._file.read(length * dtype.itemsize), dtype)

    def clear(self) -> None:
        """Gives its room back."""
        self.room.used -= self._bytes
        self._held, self._bytes, self.length = [], 0, 0
        if self._file is not None:
            self._file.close()
            self._file = None


def scratch() -> IO[bytes]:
    """A file that has no name."""
    with writing(_where(), 0):
        return tempfile.TemporaryFile(prefix="recombine-")


def _where() -> Path:
    return Path(tempfile.gettempdir())
