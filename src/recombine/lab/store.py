"""The durable store: immutable committed nodes, and the unfinished work beside them.

A node is committed when its folder appears, complete with sums, under nodes/<kind>/<xx>/<id>.
Truth is these folders alone: everything else can be deleted and is made again.

    store.json   nodes/   work/   leases/   failed/   plans/   logs/   quarantine/   temp/

>>> import tempfile, numpy as np
>>> store = Store.open(Path(tempfile.mkdtemp()) / "runs")
>>> store.commit("cell", "c0ffee", request={"width": 8}, documents={"curves": {"loss": [1.0]}})
True
>>> store.document("cell", "c0ffee", "curves")
{'loss': [1.0]}
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from recombine.errors import InvalidRequest, StoreError
from recombine.lab import leases, store_formats, store_keeping
from recombine.lab.files import (
    System,
    canonical_json,
    commit_folder,
    make_folder,
    put_bytes,
    read_json,
    remove_tree,
    sha256_bytes,
    sync_folder,
    write_json,
    writing,
)
from recombine.lab.leases import Lease, locked
from recombine.lab.store_keeping import Problem
from recombine.lab.store_layout import (
    FOLDERS,
    WORK_NODES,
    check_id,
    check_kind,
    create_store,
    is_id,
)
from recombine.lab.store_process import temporary_name
from recombine.lab.store_sealed import (
    ABSENT,
    MANIFEST,
    PROVENANCE,
    Damaged,
    Sealed,
    check_name,
    put_sealed,
)

_Read = TypeVar("_Read")


class Store:
    """One store on disk; any number of processes may use it at once. Make one with `open`."""

    def __init__(self, path: Path, read_only: str | None):
        self.path = path
        self.why_read_only = read_only

    @property
    def read_only(self) -> bool:
        return self.why_read_only is not None

    @staticmethod
    def open(path: str | Path, *, create: bool = True, read_only: bool = False) -> Store:
        """Opens a store, making it where there is none; falls back to reading where it must.

        `store.read_only` says whether it may be written to, `store.why_read_only` why not.
        """
        path = Path(path).expanduser().absolute()
        why = "it was opened for reading only" if read_only else None
        if not (path / store_formats.HEAD).is_file():
            if read_only or not create:
                raise StoreError(f"there is no store at {path}: check the path given to --store")
            create_store(path)
        if not read_only and not os.access(path, os.W_OK | os.X_OK):
            why = "its folder is not writable"
        head = store_formats.read_head(path)
        if not store_formats.check_format(path, head):
            if why:
                raise StoreError(
                    f"the store at {path} has the older format {head['format']} and {why}: "
                    "open it once where it can be written to, and it will be migrated"
                )
            store_formats.migrate(path)
        if why is None:
            try:
                for name in FOLDERS:
                    make_folder(path / name)
            except StoreError as error:
                why = str(error)
        return Store(path, why)

    # --- committed nodes ---------------------------------------------------------------------

    def commit(
        self,
        kind: str,
        id: str,
        *,
        request: dict[str, Any],
        tensors: Mapping[str, Mapping[str, np.ndarray]] | None = None,
        documents: Mapping[str, Any] | None = None,
        versions: Mapping[str, Any] | None = None,
        device: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
        lease: Lease | None = None,
    ) -> bool:
        """Makes a node appear, whole and durable; False if it was there already.

        With a `lease`, a process that lost it commits nothing. A node that came in a bundle
        without its weights is replaced by the whole one.
        """
        head = {
            "format": store_formats.FORMAT,
            "kind": kind,
            "id": id,
            "request": request,
            "versions": dict(versions or {}),
            "device": dict(device or {}),
        }

        def build(folder: Path) -> None:
            put_sealed(folder, head, tensors or {}, documents or {}, provenance)
            if lease is not None:
                lease.check()

        return self.adopt(kind, id, build)

    def adopt(
        self, kind: str, id: str, build: Callable[[Path], None], absent: Iterable[str] = ()
    ) -> bool:
        """Commits a sealed folder that `build` fills, marking the files in `absent` as elsewhere.

        A node already here is kept, unless it lacks files that this one brings.
        """
        target, absent = self.folder(kind, id), frozenset(absent)
        self.check_writable()

        def build_marked(folder: Path) -> None:
            if absent:
                put_bytes(folder / ABSENT, canonical_json({"absent": sorted(absent)}))
            build(folder)

        if target.exists() and not self.has(kind, id):
            self.set_aside_if_damaged(kind, id, Damaged(target, MANIFEST, "it is missing"))
        if self.has(kind, id) and not absent < self.absent(kind, id):
            appeared = False
        elif self.has(kind, id):
            appeared = self._replace(target, build_marked)
        else:
            appeared = commit_folder(build_marked, target, staging=self.path / "temp")
        with suppress(OSError):
            self._failure_path(kind, id).unlink()
        return appeared

    def _replace(self, target: Path, build: Callable[[Path], None]) -> bool:
        fresh, old = (self.path / "temp" / temporary_name() for _ in range(2))
        commit_folder(build, fresh)
        with self._lock(), writing(target, 0):
            System.rename(target, old)
            try:
                System.rename(fresh, target)
            except OSError:
                os.replace(old, target)
                raise
            sync_folder(target.parent)
        remove_tree(old)
        return True

    def has(self, kind: str, id: str) -> bool:
        return (self.folder(kind, id) / MANIFEST).is_file()

    def folder(self, kind: str, id: str) -> Path:
        """Where a node lives or would live."""
        return self.path / "nodes" / check_kind(kind) / check_id(id)[:2] / id

    def ids(self, kind: str) -> list[str]:
        """The ids of every committed node of a kind, sorted."""
        return sorted(id for id, folder in self.folders(kind) if (folder / MANIFEST).is_file())

    def folders(self, kind: str) -> Iterator[tuple[str, Path]]:
        """Every id of a kind with its folder, whether or not the folder has its manifest."""
        top = self.path / "nodes" / check_kind(kind)
        for bucket in sorted(top.iterdir()) if top.is_dir() else []:
            for folder in sorted(bucket.iterdir()) if bucket.is_dir() else []:
                if is_id(folder.name) and folder.name[:2] == bucket.name:
                    yield folder.name, folder

    def find(self, kind: str, prefix: str) -> str:
        """The one id that starts with `prefix`, for people who type."""
        found = [id for id in self.ids(kind) if id.startswith(prefix)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise InvalidRequest(f"no {kind} in {self.path} starts with {prefix!r}")
        some = ", ".join(id[: len(prefix) + 6] for id in found[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise InvalidRequest(
            f"{len(found)} {kind}s start with {prefix!r} ({some}{more}): type a few more letters"
        )

    def manifest(self, kind: str, id: str) -> dict[str, Any]:
        return self._read(kind, id, lambda sealed: sealed.manifest)

    def document(self, kind: str, id: str, name: str) -> Any:
        return self._read(kind, id, lambda sealed: sealed.document(name))

    def tensors(self, kind: str, id: str, name: str) -> dict[str, np.ndarray]:
        return self._read(kind, id, lambda sealed: sealed.tensors(name))

    def file(self, kind: str, id: str, file: str) -> np.ndarray:
        """The checked bytes of one file of a node."""
        return self._read(kind, id, lambda sealed: sealed.read(file))

    def absent(self, kind: str, id: str) -> frozenset[str]:
        """The files of a node that stayed on the machine that made it; empty for a whole node."""
        return self._read(kind, id, lambda sealed: sealed.absent)

    def provenance(self, kind: str, id: str) -> dict[str, Any]:
        """When, where and how long, as far as anybody wrote it down; no sum covers this."""
        try:
            return dict(read_json(self.folder(kind, id) / PROVENANCE))
        except (StoreError, TypeError, ValueError):
            return {}

    def open_node(self, kind: str, id: str) -> Sealed:
        """The node's sealed folder; unlike the readers above it sets nothing aside."""
        folder = self.folder(kind, id)
        if not self.has(kind, id):
            raise StoreError(f"there is no {kind} {id} in {self.path}")
        sealed = Sealed.open(folder)
        if (sealed.manifest.get("kind"), sealed.manifest.get("id")) != (kind, id):
            raise Damaged(folder, MANIFEST, "it belongs to another node")
        return sealed

    def _read(self, kind: str, id: str, use: Callable[[Sealed], _Read]) -> _Read:
        try:
            return use(self.open_node(kind, id))
        except Damaged as damage:
            where = self.set_aside_if_damaged(kind, id, damage)
            raise StoreError(
                f"{kind} {id} is damaged ({damage.file}: {damage.reason}); {where}"
            ) from damage

    def set_aside_if_damaged(self, kind: str, id: str, damage: Damaged) -> str:
        """Quarantines a node if it is damaged still, and says what became of it."""
        if self.read_only:
            return f"it stays where it is, because {self.why_read_only}"
        # Between finding the damage and this moment another process may have set the node aside
        # and made it again; the new one must not suffer for the old one.
        with self._lock():
            try:
                if self.has(kind, id):
                    sealed = self.open_node(kind, id)
                    if damage.file in sealed.manifest["files"]:
                        sealed.check_file(damage.file)
                    return "it has been made again since: run the same command again"
            except Damaged:
                pass
            self._move_aside(kind, id, f"{damage.file}: {damage.reason}")
        return "it was set aside: run the same command again to recompute it"

    # --- failures, quarantine, upkeep --------------------------------------------------------

    def fail(
        self, kind: str, id: str, *, reason: str, detail: str = "", retry: bool = True
    ) -> None:
        """Records why a node could not be made; `retry=False` where trying again is useless."""
        self.check_writable()
        record = {"kind": kind, "id": id, "reason": reason, "detail": detail, "retry": retry}
        path = self._failure_path(kind, id)
        make_folder(path.parent)
        write_json(path, record, staging=self.path / "temp")

    def failure(self, kind: str, id: str) -> dict[str, Any] | None:
        """The record that `fail` left, or None; gone once the node is committed."""
        path = self._failure_path(kind, id)
        if not path.is_file() or self.has(kind, id):
            return None
        try:
            return dict(read_json(path))
        except (StoreError, TypeError, ValueError):
            return None  # an unreadable record is no reason not to try again

    def _failure_path(self, kind: str, id: str) -> Path:
        return self.path / "failed" / check_kind(kind) / f"{check_id(id)}.json"

    def quarantine(self, kind: str, id: str, reason: str) -> Path | None:
        """Moves a node out of the way, with the reason beside it, so that it is made again."""
        self.check_writable()
        with self._lock():
            return self._move_aside(kind, id, reason)

    def _move_aside(self, kind: str, id: str, reason: str) -> Path | None:
        target = self.folder(kind, id)
        aside = self.path / "quarantine" / f"{kind}-{id}-{secrets.token_hex(4)}"
        try:
            System.rename(target, aside)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot set {target} aside: {error.strerror or error}") from error
        with suppress(StoreError, OSError):
            sync_folder(target.parent)
            write_json(
                aside.with_name(aside.name + ".json"), {"kind": kind, "id": id, "reason": reason}
            )
        return aside

    def verify(self, *, set_aside: bool = False) -> list[Problem]:
        """Checks every byte of every node against its sum; with `set_aside`, moves damaged ones."""
        return store_keeping.verify(self, set_aside=set_aside)

    def usage(self) -> dict[str, dict[str, int]]:
        """How many nodes of each kind there are and what they hold, in bytes."""
        return store_keeping.usage(self)

    def clean(self, *, dry_run: bool = False, quarantined: bool = False) -> dict[str, int]:
        """Removes what this store wrote and no longer needs; gives the bytes freed by sort."""
        return store_keeping.clean(self, dry_run=dry_run, quarantined=quarantined)

    # --- unfinished work ---------------------------------------------------------------------

    def lease(
        self, names: Sequence[str], *, timeout: float = leases.TIMEOUT
    ) -> AbstractContextManager[Lease]:
        """Holds all the names while the block runs, or raises Busy and holds none."""
        self.check_writable()
        return leases.lease(self.path / "leases", names, timeout=timeout)

    def holder(self, name: str) -> str | None:
        """Who works under a lease of this name now, in words, or None."""
        return leases.holder(self.path / "leases", name)

    def work(self, shard: str, nodes: Sequence[tuple[str, str]] = ()) -> Path:
        """The folder for a shard's checkpoints and answers.

        `nodes` are the (kind, id) it will commit; `clean` removes it once all of them are there.
        """
        folder = self.path / "work" / check_id(shard)
        if not self.read_only:
            make_folder(folder)
            if nodes:
                pairs = [[check_kind(kind), check_id(id)] for kind, id in nodes]
                write_json(folder / WORK_NODES, {"nodes": pairs}, staging=self.path / "temp")
        return folder

    def write_plan(self, name: str, document: Any) -> None:
        """Keeps a plan under a name, in place of an earlier one."""
        self.check_writable()
        path = self.path / "plans" / f"{check_name('the plan', name)}.json"
        sealed = {"plan": document, "sum": sha256_bytes(canonical_json(document))}
        write_json(path, sealed, staging=self.path / "temp")

    def read_plan(self, name: str) -> Any | None:
        """The plan of that name, or None where there is none."""
        path = self.path / "plans" / f"{check_name('the plan', name)}.json"
        if not path.is_file():
            return None
        sealed = read_json(path)
        if not isinstance(sealed, dict) or "plan" not in sealed:
            raise StoreError(f"{path} is not a plan: delete it and plan again")
        if sealed.get("sum") != sha256_bytes(canonical_json(sealed["plan"])):
            raise StoreError(f"{path} is damaged, its sum does not match: delete it and plan again")
        return sealed["plan"]

    def log_path(self, name: str) -> Path:
        return self.path / "logs" / f"{check_name('the log', name)}.log"

    def _lock(self) -> AbstractContextManager[int]:
        return locked(self.path / ".lock")

    def check_writable(self) -> None:
        """Raises StoreError, with the reason, where the store can only be read."""
        if self.why_read_only:
            raise StoreError(
                f"the store at {self.path} cannot be written to, because {self.why_read_only}: "
                "choose another with --store"
            )
