"""Sealed folders: files, their SHA-256 sums in a manifest, and the manifest's sum in itself.

Committed nodes and checkpoints are both sealed. A flipped bit anywhere that counts is found on
reading; `Damaged` says in which file and why. What varies between equal runs (dates, durations,
hosts) sits in provenance.json, which no sum covers, so equal runs have equal manifests.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recombine.errors import InvalidRequest, StoreError
from recombine.lab.files import (
    CHUNK,
    canonical_json,
    parse_json,
    put_bytes,
    read_bytes,
    read_json,
    sha256_bytes,
    sha256_file,
)
from recombine.lab.store_tensors import (
    check_header_length,
    check_tensors,
    parse_tensors,
    put_tensors,
)

MANIFEST, PROVENANCE, ABSENT = "manifest.json", "provenance.json", "absent.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")


class Damaged(StoreError):
    """A sealed folder is not what its sums say; `file` and `reason` say where and how."""

    def __init__(self, folder: Path, file: str, reason: str):
        super().__init__(f"{folder / file} is damaged: {reason}")
        self.file = file
        self.reason = reason


def check_name(what: str, name: str) -> str:
    """Refuses a name that could not safely be part of a path on every system."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{what} {name!r} is not allowed: use lower-case letters, digits and '_', '.', '-', "
            "starting with a letter or digit, at most 100 long"
        )
    return name


def file_name_allowed(name: str) -> bool:
    """Whether a manifest may list this file: a plain name, JSON or safetensors, not reserved."""
    stem, dot, ending = name.rpartition(".")
    reserved = name in (MANIFEST, PROVENANCE, ABSENT)
    return (
        bool(dot and ending in ("json", "safetensors") and _NAME.fullmatch(stem)) and not reserved
    )


def put_sealed(
    folder: Path,
    head: Mapping[str, Any],
    tensors: Mapping[str, Mapping[str, np.ndarray]],
    documents: Mapping[str, Any],
    provenance: Mapping[str, Any] | None = None,
) -> None:
    """Fills a folder with tensors and documents, and writes the manifest last."""
    files: dict[str, dict[str, str | int]] = {}
    for name, arrays in tensors.items():
        file = check_name("the tensor file", name) + ".safetensors"
        files[file] = _entry(*put_tensors(folder / file, arrays))
    for name, document in documents.items():
        file = check_name("the document", name) + ".json"
        if not file_name_allowed(file):
            raise InvalidRequest(f"the document name {name!r} is reserved: choose another")
        files[file] = _entry(*put_bytes(folder / file, canonical_json(document)))
    if provenance:
        put_bytes(folder / PROVENANCE, canonical_json(dict(provenance)), durable=False)
    put_bytes(folder / MANIFEST, manifest_bytes({**head, "files": files}))


def _entry(digest: str, size: int) -> dict[str, str | int]:
    return {"sha256": digest, "bytes": size}


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """A manifest's one spelling, with its own sum as the field `sum`."""
    body = {key: value for key, value in manifest.items() if key != "sum"}
    return canonical_json({**body, "sum": sha256_bytes(canonical_json(body))})


def parse_manifest(data: bytes, folder: Path) -> dict[str, Any]:
    """Reads a manifest and checks it against its own sum."""
    try:
        manifest = parse_json(data, MANIFEST)
    except StoreError as error:
        raise Damaged(folder, MANIFEST, str(error)) from error
    try:
        intact = isinstance(manifest, dict) and manifest_bytes(manifest) == data
    except InvalidRequest:
        intact = False
    if not intact:
        raise Damaged(folder, MANIFEST, "its sum does not match")
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(_listed(name, files[name]) for name in files):
        raise Damaged(folder, MANIFEST, "its list of files is malformed")
    return manifest


def _listed(name: str, entry: Any) -> bool:
    return (
        file_name_allowed(name)
        and isinstance(entry, dict)
        and isinstance(entry.get("sha256"), str)
        and type(entry.get("bytes")) is int
    )


@dataclass(frozen=True)
class Sealed:
    """A sealed folder opened for reading; every read is checked against the manifest."""

    folder: Path
    manifest: dict[str, Any]
    absent: frozenset[str]

    @staticmethod
    def open(folder: Path) -> Sealed:
        manifest = parse_manifest(read_bytes(folder / MANIFEST), folder)
        absent: frozenset[str] = frozenset()
        if (folder / ABSENT).exists():
            try:
                absent = frozenset(read_json(folder / ABSENT)["absent"])
            except (StoreError, TypeError, KeyError) as error:
                raise Damaged(folder, ABSENT, "it does not say what is absent") from error
            if not absent <= set(manifest["files"]):
                raise Damaged(folder, ABSENT, "it names files that the manifest does not")
        return Sealed(folder, manifest, absent)

    def read(self, file: str) -> np.ndarray:
        """The bytes of a file, held against its size before and its sum after reading."""
        entry = self._listed(file)
        path = self.folder / file
        self._check_size(file, entry["bytes"])
        digest, filled = hashlib.sha256(), 0
        try:
            with path.open("rb", buffering=0) as stream:
                if file.endswith(".safetensors"):
                    check_header_length(stream.read(8), entry["bytes"], file)
                    stream.seek(0)
                buffer = np.empty(entry["bytes"], np.uint8)
                view = buffer.data
                while count := stream.readinto(view[filled : filled + CHUNK]):
                    digest.update(view[filled : filled + count])
                    filled += count
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
        except StoreError as error:
            raise Damaged(self.folder, file, str(error)) from error
        if digest.hexdigest() != entry["sha256"]:
            raise Damaged(self.folder, file, "its sum does not match")
        return buffer

    def tensors(self, name: str) -> dict[str, np.ndarray]:
        file = f"{name}.safetensors"
        buffer = self.read(file)
        try:
            return parse_tensors(buffer, file)
        except StoreError as error:
            raise Damaged(self.folder, file, str(error)) from error

    def document(self, name: str) -> Any:
        file = f"{name}.json"
        data = self.read(file).tobytes()
        try:
            return parse_json(data, file)
        except StoreError as error:
            raise Damaged(self.folder, file, str(error)) from error

    def check(self) -> None:
        """Raises Damaged at the first file that is not what the manifest says."""
        for file in self.manifest["files"]:
            if file not in self.absent:
                self.check_file(file)

    def check_file(self, file: str) -> None:
        """Checks one file, header included, without holding it in memory."""
        entry = self._listed(file)
        self._check_size(file, entry["bytes"])
        if sha256_file(self.folder / file) != entry["sha256"]:
            raise Damaged(self.folder, file, "its sum does not match")
        try:
            if file.endswith(".safetensors"):
                check_tensors(self.folder / file)
            else:
                read_json(self.folder / file)
        except StoreError as error:
            raise Damaged(self.folder, file, str(error)) from error

    def _listed(self, file: str) -> dict[str, Any]:
        if file in self.absent:
            raise StoreError(
                f"{file} of {self.folder.name} stayed on the machine that made it: bundle it "
                "there with its weights and import that bundle, or compute the node again here"
            )
        if file not in self.manifest["files"]:
            there = ", ".join(sorted(self.manifest["files"])) or "no files"
            raise StoreError(f"{self.folder.name} has no {file} (it has {there})")
        return self.manifest["files"][file]

    def _check_size(self, file: str, expected: int) -> None:
        try:
            size = (self.folder / file).stat().st_size
        except OSError as error:
            raise Damaged(self.folder, file, error.strerror or str(error)) from error
        if size != expected:
            raise Damaged(self.folder, file, f"it has {size} bytes instead of {expected}")
