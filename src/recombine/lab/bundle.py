"""Bundles: chosen nodes packed into files of bounded size, so that work comes home.

A bundle is an ordinary zip. The manifest of a node always travels; weights travel on request.
A file larger than a bundle is cut into parts that lie in successive bundles. Equal nodes give
equal bytes.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from recombine.errors import InvalidRequest, StoreError
from recombine.lab.files import (
    System,
    canonical_json,
    make_folder,
    remove_tree,
    sync_folder,
    writing,
)
from recombine.lab.store import Store
from recombine.lab.store_import import BUNDLE, import_bundle
from recombine.lab.store_layout import KINDS, check_kind
from recombine.lab.store_process import temporary_name
from recombine.lab.store_sealed import MANIFEST, PROVENANCE

__all__ = ["bundle", "import_bundle"]

FORMAT = 1
# The tensors of these kinds are weights or data, except for curves, which people want at home.
HEAVY_KINDS = ("cell", "material")
LIGHT = "curves.safetensors"
MAX_RATIO = 100
_LOCAL, _LISTED, _END = 64, 80, 1024  # zip's own fields, generously


def bundle(
    store: Store,
    out: str | Path,
    *,
    kinds: Collection[str] = KINDS,
    ids: Collection[str] | None = None,
    weights: bool | Collection[str] = False,
    max_bytes: int = 15 * 2**20,
) -> list[Path]:
    """Packs nodes into `out` (out-2.zip, out-3.zip, ... where one is not enough).

    `ids` limits the nodes; `weights` is True, False, or the ids of the nodes whose weights go
    along. A node without its weights arrives readable, and says what stayed behind.
    """
    if max_bytes < 4096:
        raise InvalidRequest(f"max_bytes is {max_bytes}: a bundle needs at least 4096")
    nodes = [(check_kind(k), id) for k in kinds for id in store.ids(k) if ids is None or id in ids]
    if not nodes:
        raise InvalidRequest(f"no node in {store.path} matches: there is nothing to bundle")
    if missing := set(ids or ()) - {id for _, id in nodes}:
        raise InvalidRequest(
            f"{store.path} has no node {sorted(missing)[0]} of the kinds asked for"
        )
    out = Path(out).expanduser().absolute()
    if out.suffix != ".zip":
        out = out.with_name(out.name + ".zip")
    make_folder(out.parent)
    writer = _Bundles(out, max_bytes)
    try:
        for kind, id in sorted(nodes):
            with_weights = weights if isinstance(weights, bool) else id in weights
            for name, data in _files(store, kind, id, with_weights):
                writer.add(f"nodes/{kind}/{id}/{name}", data)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def _files(store: Store, kind: str, id: str, weights: bool) -> Iterator[tuple[str, bytes]]:
    manifest, absent = store.manifest(kind, id), store.absent(kind, id)
    yield MANIFEST, (store.folder(kind, id) / MANIFEST).read_bytes()
    provenance = store.folder(kind, id) / PROVENANCE
    if provenance.is_file():
        yield PROVENANCE, provenance.read_bytes()
    for file in sorted(manifest["files"]):
        heavy = kind in HEAVY_KINDS and file.endswith(".safetensors") and file != LIGHT
        if file not in absent and (weights or not heavy):
            yield file, store.file(kind, id, file).tobytes()


class _Bundles:
    """Zip files filled one after another, renamed to their final names when all are complete."""

    def __init__(self, out: Path, max_bytes: int):
        self.out, self.max_bytes = out, max_bytes
        self.unfinished: list[Path] = []
        self.open: tuple[zipfile.ZipFile, IO[bytes]] | None = None
        self.directory = 0

    def add(self, name: str, data: bytes) -> None:
        most = self.max_bytes - _overhead(BUNDLE) - _overhead(name) - _END - 64
        if len(data) <= most:
            self._put(name, data)
            return
        starts = range(0, len(data), most)
        for number, start in enumerate(starts, 1):
            part = f"{name}.part-{number:04d}-of-{len(starts):04d}"
            self._put(part, data[start : start + most])

    def _put(self, name: str, data: bytes) -> None:
        # Weights are noise to a packer. What packs beyond MAX_RATIO would look like a bomb.
        packed = len(data) if ".safetensors" in name else len(zlib.compress(data, 6))
        deflate = packed < 0.9 * len(data) and packed * MAX_RATIO > len(data)
        size = packed if deflate else len(data)
        with writing(self.out, size):
            if self.open is None or self._room() < size + _overhead(name):
                self._next()
            self._write(name, data, zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED)

    def _room(self) -> int:
        at = self.open[1].tell() if self.open else 0
        return self.max_bytes - _END - self.directory - at

    def _next(self) -> None:
        self._close()
        self.unfinished.append(self.out.with_name(temporary_name()))
        stream = self.unfinished[-1].open("xb")
        self.open, self.directory = (zipfile.ZipFile(stream, "w"), stream), 0
        self._write(BUNDLE, canonical_json({"format": FORMAT}), zipfile.ZIP_STORED)

    def _write(self, name: str, data: bytes, method: int) -> None:
        assert self.open is not None
        # A fixed date and fixed rights: equal nodes give equal bundles.
        info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        info.external_attr = 0o100644 << 16
        info.compress_type = method
        self.open[0].writestr(info, data, compresslevel=6)
        self.directory += _LISTED + len(name)

    def _close(self) -> None:
        if self.open is not None:
            archive, stream = self.open
            archive.close()
            stream.flush()
            System.fsync(stream.fileno())
            stream.close()
        self.open = None

    def finish(self) -> list[Path]:
        with writing(self.out, 0):
            self._close()
            names = [
                self.out if i == 0 else _numbered(self.out, i + 1)
                for i in range(len(self.unfinished))
            ]
            for unfinished, name in zip(self.unfinished, names, strict=True):
                if unfinished.stat().st_size > self.max_bytes:
                    raise StoreError(f"{name} came out larger than {self.max_bytes} bytes")
                unfinished.replace(name)
            sync_folder(self.out.parent)
        return names

    def abandon(self) -> None:
        """Leaves nothing behind."""
        if self.open is not None:
            with suppress(OSError, ValueError):
                self.open[0].close()
            with suppress(OSError):
                self.open[1].close()
        for path in self.unfinished:
            remove_tree(path)


def _overhead(name: str) -> int:
    return _LOCAL + _LISTED + 2 * (len(name) + len(".part-0001-of-0001"))


def _numbered(out: Path, number: int) -> Path:
    return out.with_name(f"{out.stem}-{number}.zip")
