"""Gets a set, finds one that is here, and lists them all."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from recombine.data.checking import cached, problems
from recombine.data.fetching import Patience, Progress, copy, download, set_aside
from recombine.data.registry import SETS, DataSet, File, set_named
from recombine.errors import InvalidRequest, RecombineError, StoreError
from recombine.lab.files import alone, make_folder, sha256_file

VARIABLE = "RECOMBINE_DATA"


class NotHere(RecombineError):
    """A set that is not on this machine, or not as it was pinned; the message says what to type."""


@dataclass(frozen=True)
class Listing:
    """One set: what it is, and where it is found on this machine."""

    name: str
    text: str
    licence: str
    source: str
    revision: str
    size: int
    where: str
    """"cache", "offline folder" or "not here"."""
    folder: Path | None
    problem: str = ""


def located(name: str | DataSet, *, folder: str | Path | None = None) -> Path:
    """The folder that holds a set's verified files; never downloads anything.

    An offline folder (`folder`, else the variable RECOMBINE_DATA) is looked at before the cache.
    Where the set is not here, the error has the command that gets it.

    >>> located("cogs") / "train.tsv"  # doctest: +SKIP
    """
    wanted = set_named(name)
    offline = _offline(wanted, folder)
    place = offline or cached(wanted)
    wrong = problems(wanted, place)
    if not wrong:
        return place
    if offline is not None:
        raise _refused(wanted, offline, wrong, folder)
    if len(wrong) == len(wanted.files) and set(wrong.values()) == {"is missing"}:
        raise NotHere(
            f"{wanted.name} is not on this machine: recombine data get {wanted.name} "
            f"({wanted.size / 1e6:.1f} MB), or set {VARIABLE} to a folder that has it"
        )
    raise NotHere(
        f"{wanted.name} in {place}: {_first(wrong)}; "
        f"recombine data get {wanted.name} brings it in order"
    )


def get(
    name: str | DataSet,
    *,
    folder: str | Path | None = None,
    source: str | Path | None = None,
    patience: Patience | None = None,
    progress: Progress | None = None,
) -> Path:
    """The folder of a set, which is downloaded into the cache unless it is here already.

    With `folder` the files of an offline folder are verified and used where they lie. With
    `source` they are copied into the cache from a folder or a checkout of their repository.

    >>> get("picbreeder") / "skull.zip"  # doctest: +SKIP
    """
    wanted = set_named(name)
    if folder is not None and source is not None:
        raise InvalidRequest(
            "a folder to use (--folder) and a folder to copy from (--from) were both given: "
            "give one of them"
        )
    if source is None and _offline(wanted, folder) is not None:
        return located(wanted, folder=folder)
    place = cached(wanted)
    if not problems(wanted, place):
        return place
    make_folder(place)
    report = progress or (lambda name, done, total: None)
    with alone(place, f"getting {wanted.name} into"):
        wrong = problems(wanted, place)
        for file in (file for file in wanted.files if file.name in wrong):
            target = place / file.name
            if target.exists():
                set_aside(target, file.name, sha256_file(target))
            if source is not None:
                copy(_lying_in(Path(source), wanted, file), file, target, progress=report)
            else:
                download(
                    wanted.address(file), file, target, patience=patience or Patience(),
                    progress=report, instead=_instead(wanted),
                )  # fmt: skip
        wrong = problems(wanted, place)
    if wrong:
        raise StoreError(f"{wanted.name} in {place}: {_first(wrong)}; somebody else writes there")
    return place


def listed() -> tuple[Listing, ...]:
    """Every set with where it is found; sizes are looked at, sums are not.

    >>> [one.name for one in listed()]
    ['cogs', 'embers', 'picbreeder']
    """
    return tuple(_listing(wanted) for wanted in SETS.values())


def _listing(wanted: DataSet) -> Listing:
    offline = _offline(wanted, None)
    place = offline or cached(wanted)
    wrong = problems(wanted, place, sums=False)
    # A download that has begun is not worth a word; files in a folder of the user's own are.
    there = offline is not None or not wrong
    where = "offline folder" if offline else "cache" if there else "not here"
    return Listing(
        wanted.name, wanted.text, wanted.licence, wanted.source, wanted.revision, wanted.size,
        where, place if there else None, _first(wrong) if there and wrong else "",
    )  # fmt: skip


def _offline(wanted: DataSet, folder: str | Path | None) -> Path | None:
    """The set's folder within the offline folder, which may also be that folder itself."""
    said = folder if folder is not None else os.environ.get(VARIABLE) or None
    if said is None:
        return None
    root = Path(said)
    if not root.is_dir():
        by = "--folder" if folder is not None else VARIABLE
        raise InvalidRequest(f"{by} names {root}, but there is no such folder")
    if (root / wanted.name).is_dir():
        return root / wanted.name
    # Every set has a LICENSE, so that alone does not tell whose folder this is.
    if any((root / file.name).is_file() for file in wanted.files if file.name != "LICENSE"):
        return root
    if folder is not None:
        raise NotHere(
            f"{root} has neither a folder {wanted.name} nor the files of that set "
            f"({wanted.files[0].name}, ...): put them there, or leave --folder out"
        )
    return None


def _refused(
    wanted: DataSet, place: Path, wrong: dict[str, str], folder: str | Path | None
) -> NotHere:
    by = "leave --folder out" if folder is not None else f"unset {VARIABLE}"
    return NotHere(
        f"{wanted.name} in the offline folder {place}: {_first(wrong)}; put the pinned file "
        f"there, or {by} and type recombine data get {wanted.name}"
    )


def _lying_in(root: Path, wanted: DataSet, file: File) -> Path:
    """Where a file lies in a folder to copy from: by its own name, or as it lies upstream."""
    if not root.is_dir():
        raise InvalidRequest(f"--from names {root}, but there is no such folder")
    for name in (file.upstream, f"{wanted.name}/{file.name}", file.name):
        if (path := root / name).is_file():
            found = sha256_file(path)
            if found != file.sha256:
                raise NotHere(
                    f"{path} has SHA-256 {found} instead of {file.sha256}: it was not copied; "
                    f"take it from revision {wanted.revision} of {wanted.source}"
                )
            return path
    raise NotHere(
        f"{root} has no {file.name} (nor {file.upstream}): put there the files of revision "
        f"{wanted.revision} of {wanted.source}"
    )


def _first(wrong: dict[str, str]) -> str:
    name, told = next(iter(wrong.items()))
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return f"{name} {told}{more}"


def _instead(wanted: DataSet) -> str:
    return (
        f"bring the files of revision {wanted.revision[:12]} of {wanted.source} here in another "
        f"way and type recombine data get {wanted.name} --from DIR"
    )
