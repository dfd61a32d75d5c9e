"""Parquet, Arrow and Hugging Face dataset folders, and a faster reader of CSV: all by pyarrow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from recombine.errors import InvalidRequest, unknown
from recombine.tables.pieces import Lists, Numbers, Piece, Words, as_text, words
from recombine.tables.rows import NONE
from recombine.tables.sources import Chunk, TextTable

_BLOCK = 2**20  # bytes of a CSV file at a time; pyarrow reads 32 of these ahead
_BATCH = 2**17  # rows of a Parquet file at a time
_LISTS = ("List", "LargeList", "Sequence")  # what datasets calls them, now and before
_SHARD = re.compile(r"(?P<split>.+)-\d{5}-of-(?P<of>\d{5})(-[0-9a-f]{16})?\.parquet")


class ReadAnother(Exception):
    """pyarrow cannot read this CSV file as the standard library can; nothing is lost."""


class BrokenArrow(InvalidRequest):
    """pyarrow is installed and cannot be loaded."""


def have_arrow() -> bool:
    return find_spec("pyarrow") is not None


def pyarrow(part: str = "") -> Any:
    """The package or a part of it, imported when first used."""
    try:
        return import_module(f"pyarrow.{part}" if part else "pyarrow")
    except Exception as error:  # a package whose parts do not fit may raise anything as it loads
        why = " ".join(str(error).split())
        raise BrokenArrow(
            f"pyarrow is installed and cannot be loaded ({why}): install it anew with pip install "
            "--force-reinstall pyarrow, or save the table as CSV or JSON lines"
        ) from error


def need_arrow(path: Path) -> None:
    """One line that says what to install, where pyarrow is not there."""
    if not have_arrow():
        raise InvalidRequest(
            f'{path} needs pyarrow to be read: pip install "recombine[analysis]", or save the '
            "table as CSV or JSON lines"
        )


@dataclass(frozen=True)
class FastTextTable:
    """A CSV file through pyarrow: the same values as `TextTable` gives, sooner."""

    plain: TextTable

    @property
    def title(self) -> str:
        return self.plain.title

    @property
    def names(self) -> Sequence[str]:
        return self.plain.names

    def chunks(self, wanted: Sequence[str]) -> Iterator[Chunk]:
        try:
            pa, csv = pyarrow(), pyarrow("csv")
        except BrokenArrow as error:
            raise ReadAnother(str(error)) from error
        text = pa.dictionary(pa.int32(), pa.string())
        try:
            reader = csv.open_csv(
                self.plain.path,
                read_options=csv.ReadOptions(block_size=_BLOCK),
                parse_options=csv.ParseOptions(
                    delimiter=self.plain.delimiter, newlines_in_values=True
                ),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(wanted, text),
                    include_columns=list(wanted),
                    null_values=[],
                    strings_can_be_null=False,
                ),
            )
            for batch in reader:
                yield pieces_of(batch, wanted, {})
        # A cell longer than a block, a ragged row, another encoding: the plain reader knows.
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise ReadAnother(str(error)) from error


@dataclass(frozen=True)
class ArrowFiles:
    """One table in one or several files of Parquet or Arrow."""

    title: str
    paths: tuple[Path, ...]

    @property
    def names(self) -> Sequence[str]:
        return self._names

    @cached_property
    def _names(self) -> Sequence[str]:
        return list(_schema(self.paths[0]).names)

    def chunks(self, wanted: Sequence[str]) -> Iterator[Chunk]:
        for path in self.paths:
            schema = _schema(path)
            if absent := [name for name in wanted if name not in schema.names]:
                raise InvalidRequest(
                    f"{path} lacks the column {absent[0]!r} that {self.paths[0].name} has"
                )
            labels = class_labels(schema)
            for batch in _batches(path, wanted):
                if batch.num_rows:
                    yield pieces_of(batch, wanted, labels)


def arrow_file(path: Path) -> ArrowFiles:
    """A file that ends in .parquet, .arrow or .feather."""
    need_arrow(path)
    return ArrowFiles(path.name, (path,))


def dataset_folder(path: Path) -> ArrowFiles:
    """A Hugging Face dataset as `save_to_disk` writes it or as it lies on the hub, or a folder of
    Parquet or Arrow files.

    Of several splits one has to be named, as FOLDER/train.
    """
    if (path / "dataset_dict.json").is_file():
        splits = _json(path / "dataset_dict.json").get("splits", [])
        known = [name for name in splits if isinstance(name, str) and (path / name).is_dir()]
        return dataset_folder(path / _only_split(path, known))
    if (path / "state.json").is_file():
        state = _json(path / "state.json")
        if state.get("_indices_data_files"):
            raise InvalidRequest(
                f"{path} holds a selection of rows as early versions of datasets saved it: load "
                "it with datasets and save it again"
            )
        listed = state.get("_data_files", [])
        files = [str(one.get("filename")) for one in listed if isinstance(one, dict)]
        if wrong := [name for name in files if Path(name).name != name]:
            raise InvalidRequest(f"{path / 'state.json'} names {wrong[0]!r}, expected a plain name")
    elif splits := hub_splits(path):
        need_arrow(path)
        return ArrowFiles(path.name, splits[_only_split(path, list(splits))])
    else:
        parquet = sorted(p.name for p in path.iterdir() if p.suffix == ".parquet")
        files = parquet or sorted(p.name for p in path.iterdir() if p.suffix == ".arrow")
    if not files:
        raise InvalidRequest(
            f"{path} is a folder without a dataset, expected state.json (save_to_disk), or files "
            "that end in .parquet or .arrow"
        )
    need_arrow(path)
    return ArrowFiles(path.name, tuple(path / name for name in files))


def hub_splits(path: Path) -> dict[str, tuple[Path, ...]]:
    """The files of each split of a folder as it lies on the Hugging Face hub, here or in `data`.

    They are called SPLIT-00000-of-00002.parquet; a folder with any other Parquet file is no such.
    """
    for folder in (path, path / "data"):
        files = sorted(folder.glob("*.parquet")) if folder.is_dir() else []
        named = [_SHARD.fullmatch(file.name) for file in files]
        if not files:
            continue
        found: dict[str, list[tuple[Path, str]]] = {}
        for file, shard in zip(files, named, strict=True):
            if shard is None:
                return {}
            found.setdefault(shard["split"], []).append((file, shard["of"]))
        for split, shards in found.items():
            if {int(of) for _, of in shards} != {len(shards)}:
                raise InvalidRequest(
                    f"{folder} holds {len(shards)} files of the split {split!r}, expected "
                    f"{int(shards[0][1])} as {shards[0][0].name} says: download the others"
                )
        return {split: tuple(file for file, _ in shards) for split, shards in found.items()}
    return {}


def hub_split(path: Path) -> ArrowFiles | None:
    """The split that FOLDER/SPLIT names where FOLDER is as on the hub; None where it is not."""
    splits = hub_splits(path.parent) if path.parent.is_dir() else {}
    if not splits:
        return None
    if path.name not in splits:
        raise unknown(f"split of {path.parent}", path.name, list(splits))
    need_arrow(path)
    return ArrowFiles(f"{path.parent.name}/{path.name}", splits[path.name])


def _only_split(path: Path, known: Sequence[str]) -> str:
    """The one split of a folder; of several one has to be named."""
    if len(known) != 1:
        raise InvalidRequest(
            f"{path} holds the splits {', '.join(known) or '(none)'}: name one of them, such "
            f"as {path / ('train' if 'train' in known or not known else known[0])}"
        )
    return known[0]


def pieces_of(batch: Any, wanted: Sequence[str], labels: Mapping[str, Sequence[str]]) -> Chunk:
    """The columns of a record batch."""
    chunk: dict[str, Piece] = {}
    for name in wanted:
        piece = piece_of_array(batch.column(batch.schema.get_field_index(name)))
        chunk[name] = _named(piece, labels[name]) if name in labels else piece
    return chunk


def piece_of_array(array: Any) -> Piece:
    """A pyarrow array of any type as a piece of a column."""
    pa = pyarrow()
    types = pyarrow("types")

    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return piece_of_array(array.storage)
    if types.is_null(kind):
        return Words([], np.full(len(array), NONE, np.int32))
    if types.is_floating(kind):
        numbers = array.to_numpy(zero_copy_only=False)
        return Numbers(numbers.astype(np.float32) if numbers.dtype.itemsize < 4 else numbers)
    if types.is_integer(kind):
        if array.null_count == 0:
            return Numbers(array.to_numpy(zero_copy_only=False))
        try:
            return Numbers(array.cast(pa.float64()).to_numpy(zero_copy_only=False))
        except pa.ArrowInvalid:  # too large to be a float
            return _encoded(array)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _lists(array)
    return _encoded(array)


def _lists(array: Any) -> Lists:
    compute = pyarrow("compute")

    lengths = compute.list_value_length(array).fill_null(NONE)
    items = piece_of_array(array.flatten())
    if isinstance(items, Lists):  # lists of lists: the inner ones are values
        items = words([as_text(item) for item in array.flatten().to_pylist()])
    return Lists(lengths.to_numpy(zero_copy_only=False).astype(np.int64), items)


def _encoded(array: Any) -> Words:
    pa = pyarrow()
    types = pyarrow("types")

    if types.is_dictionary(array.type) and (
        len(array.dictionary) > len(array) or not types.is_string(array.type.value_type)
    ):
        array = array.dictionary_decode()
    if not types.is_dictionary(array.type):
        try:
            array = array.dictionary_encode()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # structures, for one
            return words([as_text(value) for value in array.to_pylist()])
    codes = array.indices.fill_null(NONE).to_numpy(zero_copy_only=False)
    values = array.dictionary.to_pylist()
    if types.is_string(array.type.value_type) and array.dictionary.null_count == 0:
        return Words(values, codes)
    # Different values may be written alike, and none may be among the values.
    inner = words([as_text(value) for value in values])
    return Words(inner.values, np.append(inner.codes, NONE)[codes])


def class_labels(schema: Any) -> dict[str, Sequence[str]]:
    """The names of classes that Hugging Face datasets keeps beside columns of numbers."""
    try:
        noted = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = noted.get("info", {}).get("features", {})
        found = {name: _class_names(feature) for name, feature in features.items()}
    except (ValueError, AttributeError, RecursionError):
        return {}
    return {name: names for name, names in found.items() if names is not None}


def _class_names(feature: Any) -> Sequence[str] | None:
    """The names of a class label or of a list of them; early versions wrote [label] for a list."""
    if isinstance(feature, list) and len(feature) == 1:
        feature = feature[0]
    elif isinstance(feature, dict) and feature.get("_type") in _LISTS:
        feature = feature.get("feature")
    if not isinstance(feature, dict) or feature.get("_type") != "ClassLabel":
        return None
    return feature["names"] if isinstance(feature.get("names"), list) else None


def _named(piece: Piece, names: Sequence[str]) -> Piece:
    """Numbers of classes by the names of the classes; a number outside (-1) is none."""
    if isinstance(piece, Lists) and isinstance(piece.items, Numbers):
        return Lists(piece.lengths, _named_numbers(piece.items, names))
    return _named_numbers(piece, names) if isinstance(piece, Numbers) else piece


def _named_numbers(piece: Numbers, names: Sequence[str]) -> Words:
    codes = np.nan_to_num(piece.array, nan=NONE).astype(np.int64)
    known = (codes >= 0) & (codes < len(names))
    return Words([str(name) for name in names], np.where(known, codes, NONE))


def _schema(path: Path) -> Any:
    parquet = pyarrow("parquet")

    with _reading(path):
        if path.suffix == ".parquet":
            return parquet.read_schema(path)
        return _stream(path).schema


def _batches(path: Path, wanted: Sequence[str]) -> Iterator[Any]:
    parquet = pyarrow("parquet")
    types = pyarrow("types")

    with _reading(path):
        if path.suffix != ".parquet":
            yield from _stream(path)
            return
        schema = parquet.read_schema(path)
        texts = [name for name in wanted if types.is_string(schema.field(name).type)]
        # Text comes as a dictionary, as it lies in the file, and is never spelled out.
        with parquet.ParquetFile(path, read_dictionary=texts, pre_buffer=False) as file:
            yield from file.iter_batches(_BATCH, columns=list(wanted))


def _stream(path: Path) -> Any:
    """The record batches of an Arrow file, of either kind, mapped and not loaded."""
    pa = pyarrow()

    try:
        return pa.ipc.open_stream(pa.memory_map(str(path)))
    except pa.ArrowInvalid:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        return pa.RecordBatchReader.from_batches(reader.schema, batches)


class _reading:
    """Turns what pyarrow says of a damaged file into one line."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        pa = pyarrow()

        if isinstance(error, pa.ArrowException | OSError) and not isinstance(error, MemoryError):
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InvalidRequest(f"cannot read {self.path}: {first}") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"cannot read {path}: {error}") from error
    if not isinstance(found, dict):
        raise InvalidRequest(f"cannot read {path}: expected a JSON object")
    return found
