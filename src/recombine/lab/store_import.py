"""Importing bundles without trusting them: everything is checked before anything is written.

A bundle may come from anywhere. Names are matched against the only shapes a bundle can hold, so
no path can lead elsewhere; sizes are held against limits before anything is unpacked; and a node
appears in the store only when every sum in its manifest is met.
"""

from __future__ import annotations

import re
import shutil
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine._archives import DAMAGE
from recombine.errors import StoreError
from recombine.lab.files import parse_json, put_bytes, put_chunks
from recombine.lab.store_layout import KINDS
from recombine.lab.store_sealed import (
    MANIFEST,
    PROVENANCE,
    Damaged,
    Sealed,
    file_name_allowed,
    parse_manifest,
)

if TYPE_CHECKING:
    from recombine.lab.store import Store

BUNDLE = "bundle.json"
_FORMATS = (1,)
_ENTRY = re.compile(
    rf"nodes/({'|'.join(KINDS)})/([0-9a-f]{{2,128}})/([a-z0-9][a-z0-9_.-]*?)"
    r"(?:\.part-(\d{4})-of-(\d{4}))?"
)
_CHUNK = 2**20


@dataclass(frozen=True)
class Limits:
    """What a bundle may claim and hold; beyond it is refused as a bomb before it is unpacked."""

    total_bytes: int = 64 * 2**30
    small_file_bytes: int = 64 * 2**20  # manifests and provenance, which are held in memory
    entries: int = 1_000_000
    ratio: int = 200


@dataclass(frozen=True)
class _Piece:
    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    part: int
    parts: int

    def chunks(self) -> Iterator[bytes]:
        """The unpacked bytes, never more than the directory promised."""
        try:
            with self.archive.open(self.info) as stream:
                left = self.info.file_size
                while chunk := stream.read(min(_CHUNK, left + 1)):
                    left -= len(chunk)
                    if left < 0:
                        raise StoreError(f"{self.info.filename} is longer than it claims")
                    yield chunk
        except DAMAGE as error:
            raise StoreError(f"{self.info.filename} cannot be unpacked: {error}") from error


_Nodes = dict[tuple[str, str], dict[str, list[_Piece]]]


def import_bundle(
    store: Store, paths: str | Path | Iterable[str | Path], *, limits: Limits | None = None
) -> dict[str, int]:
    """Verifies bundles and merges their nodes; gives how many were added, replaced and skipped.

    Give all the bundles of one packing together: a file may be cut across them. `incomplete`
    counts nodes of which a part is in a bundle that was not given.
    """
    store.check_writable()
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    counts = {"added": 0, "replaced": 0, "skipped": 0, "incomplete": 0}
    with ExitStack() as stack:
        archives = [stack.enter_context(_open(Path(path).expanduser())) for path in given]
        nodes = _survey(archives, limits or Limits())
        _check_room(store, nodes)
        # Every manifest is read before the first node is written: one bad bundle changes nothing.
        manifests = {key: _manifest(*key, files) for key, files in nodes.items()}
        for (kind, id), files in nodes.items():
            manifest = manifests[kind, id]
            counts[
                "incomplete" if manifest is None else _merge(store, kind, id, manifest, files)
            ] += 1
    return counts


def _open(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except DAMAGE as error:
        raise StoreError(f"{path} is not a bundle: {error}") from error


def _survey(archives: list[zipfile.ZipFile], limits: Limits) -> _Nodes:
    """Sorts the entries by node and file, after refusing whatever a bundle cannot hold."""
    nodes: _Nodes = {}
    total = entries = 0
    for archive in archives:
        infos = archive.infolist()
        entries += len(infos)
        total += sum(info.file_size for info in infos)
        packed = sum(info.compress_size for info in infos)
        if entries > limits.entries or total > limits.total_bytes:
            raise _refusal(archive, f"it claims {total} bytes in {entries} entries")
        if packed > Path(archive.filename or "").stat().st_size:
            raise _refusal(archive, "its entries overlap")
        if len({info.filename for info in infos}) != len(infos):
            raise _refusal(archive, "it holds a name twice")
        _check_head(archive, infos, limits)
        for info in infos:
            _check_entry(archive, info, limits)
            if info.filename == BUNDLE:
                continue
            match = _ENTRY.fullmatch(info.filename)
            if match is None:
                raise _refusal(archive, f"it holds {info.orig_filename!r}")
            kind, id, file, part, parts = match.groups()
            if file not in (MANIFEST, PROVENANCE) and not file_name_allowed(file):
                raise _refusal(archive, f"it holds {info.orig_filename!r}")
            pieces = nodes.setdefault((kind, id), {}).setdefault(file, [])
            pieces.append(_Piece(archive, info, int(part or 1), int(parts or 1)))
    return nodes


def _check_room(store: Store, nodes: _Nodes) -> None:
    pieces = [p for files in nodes.values() for given in files.values() for p in given]
    needed, free = _size(pieces), shutil.disk_usage(store.path).free
    if needed > free:
        raise StoreError(f"no room at {store.path}: {needed} bytes needed, {free} free")


def _check_head(archive: zipfile.ZipFile, infos: list[zipfile.ZipInfo], limits: Limits) -> None:
    head = next((info for info in infos if info.filename == BUNDLE), None)
    if head is None or head.file_size > 4096:
        raise _refusal(archive, f"it has no {BUNDLE}")
    _check_entry(archive, head, limits)
    document = parse_json(b"".join(_Piece(archive, head, 1, 1).chunks()), BUNDLE)
    found = document.get("format") if isinstance(document, dict) else None
    if found not in _FORMATS:
        raise _refusal(archive, f"its format is {found!r} and this release reads {_FORMATS[-1]}")


def _check_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limits: Limits) -> None:
    name, mode = info.orig_filename, info.external_attr >> 16
    if info.filename != name:
        raise _refusal(archive, f"it holds {name!r}")
    if info.is_dir() or stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise _refusal(archive, f"{name!r} is not a plain file")
    if info.flag_bits & 0x1:
        raise _refusal(archive, f"{name!r} is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _refusal(archive, f"{name!r} is packed in a way that bundles do not use")
    if info.file_size > limits.ratio * info.compress_size + 4096:
        raise _refusal(
            archive, f"{name!r} claims to unpack {info.compress_size} bytes into {info.file_size}"
        )
    if name.endswith((MANIFEST, PROVENANCE)) and info.file_size > limits.small_file_bytes:
        raise _refusal(archive, f"{name!r} claims {info.file_size} bytes")


def _refusal(archive: zipfile.ZipFile, why: str) -> StoreError:
    return StoreError(f"{archive.filename} is refused: {why}; nothing was imported from it")


def _whole(pieces: list[_Piece]) -> list[_Piece] | None:
    """The pieces of one file in order, or None where one of them was not given."""
    first = pieces[0]
    by_part = {piece.part: piece for piece in pieces if piece.parts == first.parts}
    if set(by_part) != set(range(1, first.parts + 1)):
        return None
    return [by_part[part] for part in sorted(by_part)]


def _chunks(pieces: list[_Piece]) -> Iterator[bytes]:
    for piece in pieces:
        yield from piece.chunks()


def _size(pieces: list[_Piece]) -> int:
    return sum(piece.info.file_size for piece in pieces)


def _manifest(kind: str, id: str, files: Mapping[str, list[_Piece]]) -> dict[str, Any] | None:
    pieces = _whole(files[MANIFEST]) if MANIFEST in files else None
    if pieces is None:
        return None
    where = Path(f"nodes/{kind}/{id}")
    manifest = parse_manifest(b"".join(_chunks(pieces)), where)
    archive = pieces[0].archive
    if (manifest.get("kind"), manifest.get("id")) != (kind, id):
        raise _refusal(archive, f"the manifest of {kind} {id} belongs to another node")
    if not isinstance(manifest.get("request"), dict):
        raise _refusal(archive, f"the manifest of {kind} {id} has no request")
    if strange := set(files) - set(manifest["files"]) - {MANIFEST, PROVENANCE}:
        raise _refusal(archive, f"{kind} {id} holds {min(strange)!r}, which its manifest does not")
    for file in set(files) & set(manifest["files"]):
        whole = _whole(files[file])
        if whole and _size(whole) != manifest["files"][file]["bytes"]:
            raise _refusal(archive, f"{file} of {kind} {id} has not the size its manifest says")
    return manifest


def _merge(
    store: Store, kind: str, id: str, manifest: dict[str, Any], files: Mapping[str, list[_Piece]]
) -> str:
    whole = {file: pieces for file, given in files.items() if (pieces := _whole(given))}
    absent = set(manifest["files"]) - set(whole)
    if any(not file.endswith(".safetensors") for file in absent):
        return "incomplete"

    def build(folder: Path) -> None:
        for file in sorted(manifest["files"].keys() - absent):
            put_chunks(folder / file, _chunks(whole[file]), _size(whole[file]))
        if PROVENANCE in whole:
            put_bytes(folder / PROVENANCE, b"".join(_chunks(whole[PROVENANCE])), durable=False)
        put_bytes(folder / MANIFEST, b"".join(_chunks(whole[MANIFEST])))
        try:
            Sealed(folder, manifest, frozenset(absent)).check()
        except Damaged as damage:
            raise StoreError(
                f"{kind} {id} in {whole[MANIFEST][0].archive.filename} is refused: "
                f"{damage.file}: {damage.reason}"
            ) from damage

    was_there = store.has(kind, id)
    if not store.adopt(kind, id, build, absent):
        return "skipped"
    return "replaced" if was_there else "added"
