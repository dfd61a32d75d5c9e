from __future__ import annotations

import io
import json
import pickle
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest

from recombine.errors import InvalidRequest, StoreError
from recombine.lab.bundle import bundle, import_bundle
from recombine.lab.files import canonical_json, sha256_bytes
from recombine.lab.store import Store
from recombine.lab.store_import import Limits
from recombine.lab.store_sealed import manifest_bytes

RNG = np.random.default_rng(0)
WEIGHTS = {id: RNG.standard_normal((100, 50)).astype(np.float32) for id in ("aa", "bb")}


@pytest.fixture
def source(tmp_path) -> Store:
    store = Store.open(tmp_path / "source")
    for id, weights in WEIGHTS.items():
        store.commit(
            "cell",
            id,
            request={"id": id},
            tensors={"weights": {"w": weights}, "curves": {"loss": np.arange(9.0)}},
            documents={"summary": {"final": [0.5] * 50}},
            provenance={"host": "far"},
        )
    store.commit("reading", "cc", request={}, tensors={"probe": {"p": np.ones(4)}})
    return store


@pytest.fixture
def home(tmp_path) -> Store:
    return Store.open(tmp_path / "home")


def weights(store: Store, id: str) -> np.ndarray:
    return store.tensors("cell", id, "weights")["w"]


def untouched(store: Store) -> bool:
    files = [p for p in store.path.rglob("*") if p.is_file() and p.name != ".lock"]
    return [p.name for p in files] == ["store.json"]


# --- packing and merging ---------------------------------------------------------------------


def test_a_whole_bundle_brings_every_byte_home(source, home, tmp_path):
    (path,) = bundle(source, tmp_path / "out", weights=True)
    assert path == tmp_path / "out.zip"
    assert import_bundle(home, path)["added"] == 3
    for kind, id in (("cell", "aa"), ("cell", "bb"), ("reading", "cc")):
        ours, theirs = home.folder(kind, id), source.folder(kind, id)
        assert {p.name: p.read_bytes() for p in ours.iterdir()} == {
            p.name: p.read_bytes() for p in theirs.iterdir()
        }
        assert home.absent(kind, id) == frozenset()
    assert home.verify() == []
    assert import_bundle(home, [path]) == {
        "added": 0,
        "replaced": 0,
        "skipped": 3,
        "incomplete": 0,
    }


def test_a_thin_node_is_readable_and_says_what_stayed_behind(source, home, tmp_path):
    import_bundle(home, bundle(source, tmp_path / "out"))
    assert home.absent("cell", "aa") == {"weights.safetensors"}
    assert home.document("cell", "aa", "summary") == {"final": [0.5] * 50}
    np.testing.assert_array_equal(home.tensors("cell", "aa", "curves")["loss"], np.arange(9.0))
    np.testing.assert_array_equal(home.tensors("reading", "cc", "probe")["p"], np.ones(4))
    with pytest.raises(StoreError, match="stayed on the machine that made it"):
        weights(home, "aa")
    assert home.has("cell", "aa"), "a thin node is not a damaged one"
    assert home.verify() == []
    assert home.manifest("cell", "aa") == source.manifest("cell", "aa")


def test_a_full_node_replaces_a_thin_one_and_never_the_reverse(source, home, tmp_path):
    thin = bundle(source, tmp_path / "thin")
    full = bundle(source, tmp_path / "full", weights=["aa"])
    assert import_bundle(home, thin)["added"] == 3
    assert import_bundle(home, full) == {"added": 0, "replaced": 1, "skipped": 2, "incomplete": 0}
    np.testing.assert_array_equal(weights(home, "aa"), WEIGHTS["aa"])
    assert import_bundle(home, thin)["skipped"] == 3
    np.testing.assert_array_equal(weights(home, "aa"), WEIGHTS["aa"])
    assert home.absent("cell", "bb") == {"weights.safetensors"}
    assert home.verify() == []


def test_a_thin_node_may_be_bundled_again(source, home, tmp_path):
    import_bundle(home, bundle(source, tmp_path / "out"))
    third = Store.open(tmp_path / "third")
    assert import_bundle(third, bundle(home, tmp_path / "again", weights=True))["added"] == 3
    assert third.absent("cell", "aa") == {"weights.safetensors"}


def test_a_thin_node_computed_here_becomes_whole(source, home, tmp_path):
    import_bundle(home, bundle(source, tmp_path / "out"))
    assert home.commit(
        "cell", "aa", request={"id": "aa"}, tensors={"weights": {"w": WEIGHTS["aa"]}}
    )
    assert home.absent("cell", "aa") == frozenset()
    np.testing.assert_array_equal(weights(home, "aa"), WEIGHTS["aa"])


@pytest.mark.parametrize("max_bytes", [4096, 6000, 15_000, 40_000])
def test_every_bundle_stays_below_its_limit_and_together_they_are_whole(
    source, home, tmp_path, max_bytes
):
    paths = bundle(source, tmp_path / "out.zip", weights=True, max_bytes=max_bytes)
    assert len(paths) >= 2 * 20_000 // max_bytes
    assert all(path.stat().st_size <= max_bytes for path in paths)
    assert [p.name for p in paths[:2]] == ["out.zip", "out-2.zip"]
    assert import_bundle(home, reversed(paths))["added"] == 3
    for id, expected in WEIGHTS.items():
        np.testing.assert_array_equal(weights(home, id), expected)
    assert home.verify() == []


def test_without_one_of_its_bundles_a_node_arrives_thin_or_not_at_all(source, home, tmp_path):
    paths = bundle(source, tmp_path / "out", weights=True, max_bytes=6000)
    counts = import_bundle(home, paths[:2])
    assert counts["added"] == 1 and home.absent("cell", "aa") == {"weights.safetensors"}
    assert import_bundle(home, paths) == {"added": 2, "replaced": 1, "skipped": 0, "incomplete": 0}


def test_equal_nodes_give_equal_bundles(source, tmp_path):
    first, second = (bundle(source, tmp_path / name, weights=True)[0] for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_only_what_was_chosen_is_packed(source, home, tmp_path):
    import_bundle(home, bundle(source, tmp_path / "out", kinds=["cell"], ids=["bb"]))
    assert (home.ids("cell"), home.ids("reading")) == (["bb"], [])
    with pytest.raises(InvalidRequest, match="no node dd"):
        bundle(source, tmp_path / "out", ids=["bb", "dd"])
    with pytest.raises(InvalidRequest, match="nothing to bundle"):
        bundle(source, tmp_path / "out", kinds=["timing"])


def test_a_document_that_packs_like_a_bomb_still_comes_home(source, home, tmp_path):
    source.commit("reading", "dd", request={}, documents={"zeros": [0] * 200_000})
    import_bundle(home, bundle(source, tmp_path / "out", ids=["dd"]))
    assert home.document("reading", "dd", "zeros") == [0] * 200_000


def test_a_bundle_of_damaged_weights_is_not_made(source, tmp_path):
    path = source.folder("cell", "aa") / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(StoreError, match=r"is damaged \("):
        bundle(source, tmp_path / "out", weights=True)
    assert not list(tmp_path.glob("*.zip")) and not list(tmp_path.glob("tmp-*"))


# --- malice ----------------------------------------------------------------------------------


def archive(path: Path, entries: dict[str, bytes], **fields) -> Path:
    """A zip with a valid head and these entries; `fields` are set on each of them."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("bundle.json", canonical_json({"format": 1}))
        for name, data in entries.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            for field, value in fields.items():
                setattr(info, field, value)
            file.writestr(info, data)
    return path


def node(files: dict[str, bytes], /, **changes) -> dict[str, bytes]:
    """The entries of a node whose sums are all correct, as an attacker would make them."""
    listed = {n: {"sha256": sha256_bytes(d), "bytes": len(d)} for n, d in files.items()}
    manifest = {"format": 1, "kind": "cell", "id": "ee", "request": {}, "files": listed} | changes
    entries = {"manifest.json": manifest_bytes(manifest), **files}
    return {f"nodes/cell/ee/{name}": data for name, data in entries.items()}


def test_the_attacker_s_workshop_makes_nodes_that_would_be_accepted(home, tmp_path):
    path = archive(tmp_path / "fine.zip", node({"d.json": b"1\n"}))
    assert import_bundle(home, path)["added"] == 1


@pytest.mark.parametrize(
    "name",
    [
        "../evil.json",
        "nodes/cell/ee/../../../../evil.json",
        "/etc/evil.json",
        "C:/evil.json",
        "nodes\\cell\\ee\\d.json",
        "nodes/cell/ee/sub/d.json",
        "nodes/cell/ee/evil.py",
        "nodes/cell/ee/evil.pkl",
        "nodes/cell/EE/d.json",
        "nodes/virus/ee/d.json",
        "nodes/cell/ee/absent.json",
        "nodes/cell/ee/unlisted.json",
        "nodes/cell/ee/",
        "store.json",
        "nodes/cell/ee/d.json\u202e",
    ],
)
def test_a_name_that_no_bundle_has_is_refused(home, tmp_path, name):
    entries = node({"d.json": b"1\n"}) | {name: b"1\n"}
    with pytest.raises(StoreError, match="is refused"):
        import_bundle(home, archive(tmp_path / "evil.zip", entries))
    assert untouched(home)
    assert not list(tmp_path.rglob("evil.json"))


def test_a_name_cut_short_by_a_nul_is_refused(home, tmp_path):
    entries = node({"d.json": b"1\n"})
    entries["nodes/cell/ee/d.json*.exe"] = entries.pop("nodes/cell/ee/d.json")
    path = archive(tmp_path / "evil.zip", entries)
    path.write_bytes(path.read_bytes().replace(b"d.json*.exe", b"d.json\x00.exe"))
    with pytest.raises(StoreError, match="is refused"):
        import_bundle(home, path)
    assert untouched(home)


@pytest.mark.parametrize("sort", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_are_refused(home, tmp_path, sort):
    entries = node({"d.json": b"/etc/passwd"})
    path = archive(tmp_path / "evil.zip", entries, external_attr=(sort | 0o777) << 16)
    with pytest.raises(StoreError, match="not a plain file"):
        import_bundle(home, path)
    assert untouched(home)


def test_a_name_given_twice_is_refused(home, tmp_path):
    path = archive(tmp_path / "evil.zip", node({"d.json": b"1\n"}))
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as file:
        file.writestr("nodes/cell/ee/d.json", b"2\n")
    with pytest.raises(StoreError, match="holds a name twice"):
        import_bundle(home, path)


def test_a_zip_bomb_is_refused_by_what_it_claims(home, tmp_path):
    zeros = b"0" * 30_000_000
    path = archive(tmp_path / "bomb.zip", node({"d.json": zeros}))
    assert path.stat().st_size < 100_000
    with pytest.raises(StoreError, match=r"claims to unpack \d+ bytes into 30000000"):
        import_bundle(home, path)
    stored = archive(tmp_path / "large.zip", node({"d.json": b"[" + b"1," * 3000 + b"1]"}))
    with pytest.raises(StoreError, match="it claims"):
        import_bundle(home, stored, limits=Limits(total_bytes=5000))
    with pytest.raises(StoreError, match="it claims"):
        import_bundle(home, stored, limits=Limits(entries=2))
    assert untouched(home)


def patched(path: Path, name: str, offset: int, value: int) -> Path:
    """Overwrites four bytes of an entry's record in the directory of a zip."""
    data = bytearray(path.read_bytes())
    place = data.rindex(name.encode()) - 46
    data[place + offset : place + offset + 4] = value.to_bytes(4, "little")
    path.write_bytes(data)
    return path


def test_a_zip_bomb_that_lies_about_its_size_is_not_unpacked(home, tmp_path):
    zeros = b"0" * 10_000_000
    entries = node({"d.json": b"0" * 1000})
    entries["nodes/cell/ee/d.json"] = zeros
    path = archive(tmp_path / "liar.zip", entries)
    with pytest.raises(StoreError, match=r"cannot be unpacked|is refused"):
        import_bundle(home, patched(path, "nodes/cell/ee/d.json", 24, 1000))
    assert not home.has("cell", "ee")
    assert list((home.path / "temp").iterdir()) == []


def test_entries_that_overlap_are_refused(home, tmp_path):
    path = archive(tmp_path / "evil.zip", node({"d.json": bytes(range(256)) * 8}))
    path = patched(path, "nodes/cell/ee/d.json", 20, 10**6)
    with pytest.raises(StoreError, match="its entries overlap"):
        import_bundle(home, path)


@pytest.mark.parametrize(
    ("files", "changes", "words"),
    [
        ({"w.safetensors": pickle.dumps({"w": 1})}, {}, "not a safetensors file"),
        ({"w.safetensors": (2**40).to_bytes(8, "little")}, {}, "header of 1099511627776 bytes"),
        ({"d.json": b"{"}, {}, "not valid JSON"),
        ({"d.json": b"1\n"}, {"id": "ff"}, "belongs to another node"),
        ({"d.json": b"1\n"}, {"request": None}, "no request"),
        ({"d.json": b"1\n"}, {"files": {"../../x.json": {"sha256": "", "bytes": 1}}}, "malformed"),
    ],
)
def test_correct_sums_do_not_make_malice_welcome(home, tmp_path, files, changes, words):
    with pytest.raises(StoreError, match=words):
        import_bundle(home, archive(tmp_path / "evil.zip", node(files, **changes)))
    assert home.ids("cell") == []
    assert list((home.path / "temp").iterdir()) == []


@pytest.mark.parametrize("file", ["manifest.json", "d.json"])
def test_a_changed_byte_is_found(home, tmp_path, file):
    entries = node({"d.json": b"[1,2,3]\n"})
    data = bytearray(entries[f"nodes/cell/ee/{file}"])
    data[3] ^= 1
    with pytest.raises(StoreError):
        import_bundle(home, archive(tmp_path / "x.zip", entries | {f"nodes/cell/ee/{file}": data}))
    assert home.ids("cell") == []


def test_a_byte_damaged_anywhere_is_refused_in_a_line_or_changes_nothing(tmp_path):
    entries = node({"d.json": b"[1,2,3]\n"})
    whole = archive(tmp_path / "x.zip", entries).read_bytes()
    refused = 0
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 0xFF
        (tmp_path / "damaged.zip").write_bytes(data)
        home = Store.open(tmp_path / f"home-{place}")
        try:
            import_bundle(home, tmp_path / "damaged.zip")
        except StoreError as error:
            refused += "\n" not in str(error)
            assert home.ids("cell") == []
        else:
            assert all(home.document("cell", id, "d") == [1, 2, 3] for id in home.ids("cell"))
    assert refused > len(whole) // 2


@pytest.mark.parametrize("keep", [0, 10, 0.5, -1])
def test_a_truncated_bundle_is_refused(source, home, tmp_path, keep):
    (path,) = bundle(source, tmp_path / "out", weights=True)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(StoreError, match="not a bundle"):
        import_bundle(home, path)
    assert untouched(home)


def test_one_bad_bundle_among_good_ones_changes_nothing(source, home, tmp_path):
    good = bundle(source, tmp_path / "good")
    evil = archive(tmp_path / "evil.zip", {"../x.json": b"1"})
    with pytest.raises(StoreError):
        import_bundle(home, [*good, evil])
    assert untouched(home)


def test_another_zip_or_a_newer_bundle_is_refused(home, tmp_path):
    (tmp_path / "other.zip").write_bytes(_zip({"readme.txt": b"hello"}))
    with pytest.raises(StoreError, match=r"no bundle\.json"):
        import_bundle(home, tmp_path / "other.zip")
    (tmp_path / "new.zip").write_bytes(_zip({"bundle.json": json.dumps({"format": 2}).encode()}))
    with pytest.raises(StoreError, match="its format is 2 and this release reads 1"):
        import_bundle(home, tmp_path / "new.zip")
    with pytest.raises(StoreError, match="is not a bundle"):
        import_bundle(home, tmp_path / "missing.zip")


def _zip(entries: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return buffer.getvalue()
