"""Sets of data: downloaded, continued, checked, found offline, and never used when wrong."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.cli import main
from recombine.data import SETS, DataSet, File, NotHere, Patience, get, listed, located
from recombine.errors import InvalidRequest, RecombineError, StoreError, UnknownName
from recombine.lab.files import System

REAL = os.environ.get("RECOMBINE_DATA")
QUICK = Patience(tries=3, pause=0.0, timeout=5.0)
ONCE = replace(QUICK, tries=1)
LONG = bytes(range(256)) * 800  # longer than one block
UPSTREAM = {"/r1/texts/long.bin": LONG, "/r1/short.txt": b"short\n", "/r1/LICENSE": b"free\n"}
FILES = {"long.bin": "texts/long.bin", "short.txt": "", "LICENSE": ""}


@dataclass
class Server:
    """An upstream whose answers a test can spoil."""

    port: int = 0
    holds: dict[str, bytes] = field(default_factory=lambda: dict(UPSTREAM))
    ranges: bool = True
    lengths: bool = True
    cuts: list[int] = field(default_factory=list)
    """The connection of the next answers ends after so many bytes."""
    codes: list[int] = field(default_factory=list)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    hold: threading.Event | None = None
    """Where given, a cut answer stays open until this is set."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/r1"

    def tiny(self, name: str = "tiny") -> DataSet:
        files = []
        for file, path in FILES.items():
            data = UPSTREAM[f"/r1/{path or file}"]
            files.append(File(file, len(data), hashlib.sha256(data).hexdigest(), path))
        return DataSet(name, "a small set", "MIT", "https://example.org/tiny", "r1", self.url,
                       tuple(files))  # fmt: skip

    def ranges_asked(self, path: str = "/r1/texts/long.bin") -> list[str | None]:
        return [asked for name, asked in self.asked if name == path]


@contextmanager
def serving() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.asked.append((self.path, wanted))
            code = state.codes.pop(0) if state.codes else 200
            if code != 200 or self.path not in state.holds:
                return self.send_error(code if code != 200 else 404)
            data, start = state.holds[self.path], 0
            if wanted and state.ranges:
                start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])  # type: ignore[index]
                if start >= len(data):
                    return self.send_error(416)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            body = data[start:]
            if state.lengths:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.cuts[0]] if state.cuts else body)
            if state.cuts:
                state.cuts.pop(0)
                if state.hold is not None:
                    self.wfile.flush()
                    state.hold.wait(20)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        if state.hold is not None:
            state.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECOMBINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("RECOMBINE_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as state:
        yield state


@pytest.fixture
def offline(tmp_path: Path) -> Path:
    """A folder as a user may have it: one folder a set, under the set's name."""
    folder = tmp_path / "mine" / "tiny"
    folder.mkdir(parents=True)
    for name, path in FILES.items():
        (folder / name).write_bytes(UPSTREAM[f"/r1/{path or name}"])
    return folder.parent


def assert_whole(folder: Path) -> None:
    for name, path in FILES.items():
        assert (folder / name).read_bytes() == UPSTREAM[f"/r1/{path or name}"]
    assert {path.name for path in folder.iterdir()} <= {*FILES, ".lock"}


# --- downloads ---


def test_a_set_is_downloaded_with_its_licence_and_found_again(server, cache):
    folder = get(server.tiny(), patience=ONCE)
    assert_whole(folder)
    assert cache in folder.parents
    assert located(server.tiny()) == folder


def test_a_second_get_downloads_nothing(server):
    first = get(server.tiny(), patience=ONCE)
    asked = len(server.asked)
    assert asked == len(FILES)
    assert get(server.tiny(), patience=ONCE) == first
    assert len(server.asked) == asked


def test_progress_ends_with_every_byte_of_every_file(server):
    told: dict[str, list[tuple[int, int]]] = {}

    def progress(name: str, done: int, total: int) -> None:
        told.setdefault(name, []).append((done, total))

    get(server.tiny(), patience=ONCE, progress=progress)
    assert set(told) == set(FILES)
    for file in server.tiny().files:
        done = [part for part, _ in told[file.name]]
        assert done == sorted(done) and told[file.name][-1] == (file.size, file.size)
    assert len(told["long.bin"]) > 2


def test_a_set_that_is_not_here_is_told_with_the_command_that_gets_it(server):
    with pytest.raises(NotHere, match="recombine data get tiny"):
        located(server.tiny())
    assert server.asked == []


def test_a_wrong_sum_is_refused_with_both_sums_and_the_file_set_aside(server, cache):
    wrong = LONG[:-1] + b"?"
    server.holds["/r1/texts/long.bin"] = wrong
    with pytest.raises(StoreError) as refused:
        get(server.tiny(), patience=QUICK)
    sums = [hashlib.sha256(data).hexdigest() for data in (wrong, LONG)]
    assert all(one in str(refused.value) for one in sums)
    aside = next((cache / "data" / "set-aside").iterdir())
    assert str(aside) in str(refused.value) and aside.read_bytes() == wrong
    with pytest.raises(NotHere):
        located(server.tiny())
    server.holds["/r1/texts/long.bin"] = LONG
    assert_whole(get(server.tiny(), patience=ONCE))
    assert aside.read_bytes() == wrong


def test_a_download_cut_in_the_middle_is_continued_where_it_stopped(server):
    server.cuts = [70_001]
    assert_whole(get(server.tiny(), patience=QUICK))
    assert server.ranges_asked() == [None, "bytes=70001-"]


def test_a_later_command_continues_what_an_earlier_one_had_to_leave(server):
    server.cuts = [70_001]
    with pytest.raises(RecombineError, match=f"70001 of {len(LONG)} bytes are kept"):
        get(server.tiny(), patience=ONCE)
    with pytest.raises(NotHere):
        located(server.tiny())
    assert_whole(get(server.tiny(), patience=ONCE))
    assert server.ranges_asked() == [None, "bytes=70001-"]


def test_a_server_without_ranges_sends_the_file_from_its_start(server):
    server.cuts, server.ranges = [70_001], False
    assert_whole(get(server.tiny(), patience=QUICK))
    assert server.ranges_asked() == [None, "bytes=70001-"]


@settings(max_examples=12)
@given(cuts=st.lists(st.integers(0, len(LONG)), max_size=4), ranges=st.booleans())
def test_wherever_the_line_is_cut_the_file_ends_whole(cuts, ranges):
    with serving() as server, tempfile.TemporaryDirectory() as folder:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RECOMBINE_CACHE", folder)
            server.cuts, server.ranges = list(cuts), ranges
            tries = Patience(tries=len(cuts) + 2, pause=0.0)
            assert_whole(get(server.tiny(), patience=tries))


def test_a_damaged_beginning_is_found_by_its_sum_and_downloaded_again(server, cache):
    server.cuts = [70_001]
    with pytest.raises(RecombineError):
        get(server.tiny(), patience=ONCE)
    part = next((cache / "data").glob("tiny-*/long.bin.part"))
    part.write_bytes(b"?" + part.read_bytes()[1:])
    with pytest.raises(StoreError, match="set aside"):
        get(server.tiny(), patience=ONCE)
    assert_whole(get(server.tiny(), patience=ONCE))
    assert server.ranges_asked()[-1] is None


def test_a_killed_download_is_continued_by_the_next(server, cache):
    server.cuts, server.hold = [70_001], threading.Event()
    code = (
        "from recombine.data import DataSet, File, Patience, get\n"
        f"get({server.tiny()!r}, patience=Patience(tries=1))"
    )
    child = subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ))
    part = cache / "data" / "tiny-r1" / "long.bin.part"
    while not (part.exists() and part.stat().st_size):
        assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    server.hold.set()
    kept = part.stat().st_size
    assert_whole(get(server.tiny(), patience=ONCE))
    assert server.ranges_asked() == [None, f"bytes={kept}-"]


def test_a_missing_file_upstream_is_told_at_once_with_another_way(server):
    del server.holds["/r1/short.txt"]
    with pytest.raises(RecombineError, match=r"404 .*recombine data get tiny --from DIR"):
        get(server.tiny(), patience=QUICK)
    assert [path for path, _ in server.asked].count("/r1/short.txt") == 1


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_busy_server_is_asked_again_and_no_more_often_than_told(server, code):
    server.codes = [code]
    assert_whole(get(server.tiny(), patience=QUICK))
    server.codes = [code] * 9
    before = len(server.asked)
    with pytest.raises(RecombineError, match=f"answered {code}"):
        get(server.tiny("other"), patience=QUICK)
    assert len(server.asked) == before + QUICK.tries


def test_a_server_that_falls_silent_is_given_up(server):
    server.cuts, server.hold = [10, 10], threading.Event()
    with pytest.raises(RecombineError, match="silent"):
        get(server.tiny(), patience=Patience(tries=1, timeout=0.05))


def test_no_network_is_told_with_another_way(server):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = replace(server.tiny(), url=f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(RecombineError, match=r"cannot reach 127.*--from DIR"):
            get(nobody, patience=QUICK)


def test_the_page_of_a_proxy_is_not_taken_for_the_file(server, cache):
    server.holds["/r1/texts/long.bin"] = b"<html>please log in</html>"
    with pytest.raises(RecombineError, match="has 26 bytes and not the 204800"):
        get(server.tiny(), patience=QUICK)
    assert not list((cache / "data").glob("tiny-*/long*"))


def test_a_file_without_end_is_not_written_without_end(server, cache):
    server.lengths = False
    server.holds["/r1/texts/long.bin"] = LONG * 10
    with pytest.raises(RecombineError, match="more than 204800 bytes"):
        get(server.tiny(), patience=QUICK)
    assert not list((cache / "data").glob("tiny-*/long*"))


def test_two_processes_do_not_write_into_one_file(server, cache):
    folder = get(server.tiny(), patience=ONCE)
    (folder / "short.txt").unlink()
    with (folder / ".lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another process is getting tiny"):
            get(server.tiny(), patience=ONCE)
    assert_whole(get(server.tiny(), patience=ONCE))


# --- disks ---


class Fault:
    """Makes the k-th call that changes the disk fail, and all after it."""

    def __init__(self, patch: pytest.MonkeyPatch, k: int, number: int):
        self.left, self.number = k, number
        for name in ("write", "fsync", "rename"):
            patch.setattr(System, name, staticmethod(self.failing(getattr(System, name))))

    def failing(self, call: Callable) -> Callable:
        def instead(*arguments: object) -> object:
            self.left -= 1
            if self.left < 0:
                raise OSError(self.number, os.strerror(self.number))
            return call(*arguments)

        return instead


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_whichever_write_fails_nothing_half_written_is_used(server, cache, monkeypatch, number):
    k, told = 0, []
    while True:
        wanted = replace(server.tiny(), revision=f"r{k}")
        with monkeypatch.context() as patch:
            fault = Fault(patch, k, number)
            try:
                get(wanted, patience=ONCE)
            except StoreError as error:
                told.append(str(error))
        # What is there by its own name is whole, whatever failed.
        for path in (cache / "data").glob(f"tiny-r{k}/*"):
            if path.name in FILES:
                assert path.read_bytes() == UPSTREAM[f"/r1/{FILES[path.name] or path.name}"]
        assert_whole(get(wanted, patience=ONCE))
        if fault.left >= 0:
            break
        k += 1
    assert len(told) > 8
    assert all(str(cache) in line for line in told)
    assert {"make room" in line for line in told} == {number == errno.ENOSPC}


def test_a_full_disk_is_told_and_the_download_continues_once_there_is_room(server, monkeypatch):
    with monkeypatch.context() as patch:
        written = []

        def full(fd: int, data: bytes) -> int:
            if len(written) == 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            written.append(os.write(fd, data))
            return written[-1]

        patch.setattr(System, "write", staticmethod(full))
        with pytest.raises(StoreError, match=r"no room at .*long.bin.part: \d+ bytes needed"):
            get(server.tiny(), patience=QUICK)
    assert_whole(get(server.tiny(), patience=ONCE))
    assert server.ranges_asked() == [None, f"bytes={written[0]}-"]


def test_a_cache_that_cannot_be_made_is_told(server, cache):
    cache.write_text("not a folder")
    with pytest.raises(StoreError, match="cannot write"):
        get(server.tiny(), patience=ONCE)
    assert server.asked == []


def test_a_read_only_cache_serves_what_it_holds(server, cache, monkeypatch):
    folder = get(server.tiny(), patience=ONCE)
    asked = len(server.asked)
    for note in (cache / "data" / "verified").iterdir():
        note.unlink()
    Fault(monkeypatch, 0, errno.EROFS)
    assert located(server.tiny()) == folder
    assert get(server.tiny(), patience=ONCE) == folder
    assert len(server.asked) == asked


# --- verification ---


def test_a_file_that_changed_after_verification_is_refused_and_got_again(server, cache):
    folder = get(server.tiny(), patience=ONCE)
    assert located(server.tiny()) == folder
    (folder / "short.txt").write_bytes(b"shorn\n")
    sums = [hashlib.sha256(data).hexdigest() for data in (b"shorn\n", b"short\n")]
    with pytest.raises(NotHere, match=f"{sums[0]} instead of {sums[1]}.*recombine data get tiny"):
        located(server.tiny())
    assert_whole(get(server.tiny(), patience=ONCE))
    assert located(server.tiny()) == folder
    aside = [path.read_bytes() for path in (cache / "data" / "set-aside").iterdir()]
    assert aside == [b"shorn\n"]


def test_a_sum_is_taken_once_and_remembered(server, offline, monkeypatch):
    from recombine.data import checking

    taken = []

    def counted(path: Path, original: Callable[[Path], str] = checking.sha256_file) -> str:
        taken.append(path.name)
        return original(path)

    monkeypatch.setattr(checking, "sha256_file", counted)
    assert located(server.tiny(), folder=offline) == offline / "tiny"
    assert sorted(taken) == sorted(FILES)
    located(server.tiny(), folder=offline)
    assert len(taken) == len(FILES)
    os.utime(offline / "tiny" / "short.txt", (1, 1))
    located(server.tiny(), folder=offline)
    assert taken[len(FILES) :] == ["short.txt"]


@pytest.mark.parametrize("damage", [b"", b"[1]", b"\xff{", b'{"long.bin": 3}'])
def test_a_damaged_memory_is_as_good_as_none(server, cache, offline, damage):
    located(server.tiny(), folder=offline)
    for note in (cache / "data" / "verified").iterdir():
        note.write_bytes(damage)
    located(server.tiny(), folder=offline)
    (offline / "tiny" / "short.txt").write_bytes(b"shorn\n")
    with pytest.raises(NotHere):
        located(server.tiny(), folder=offline)


# --- folders of one's own ---


def test_an_offline_folder_is_used_where_it_lies(server, offline, cache):
    assert get(server.tiny(), folder=offline) == offline / "tiny"
    assert located(server.tiny(), folder=offline / "tiny") == offline / "tiny"
    assert server.asked == []
    assert not list((cache / "data").glob("tiny-*"))


def test_the_variable_names_an_offline_folder_that_comes_before_the_cache(
    server, offline, monkeypatch
):
    kept = get(server.tiny(), patience=ONCE)
    monkeypatch.setenv("RECOMBINE_DATA", str(offline))
    asked = len(server.asked)
    assert located(server.tiny()) == get(server.tiny()) == offline / "tiny" != kept
    assert len(server.asked) == asked


def test_a_set_that_the_offline_folder_lacks_comes_from_the_cache(server, offline, monkeypatch):
    monkeypatch.setenv("RECOMBINE_DATA", str(offline))
    folder = get(server.tiny("other"), patience=ONCE)
    assert_whole(folder)
    assert located(server.tiny("other")) == folder


@pytest.mark.parametrize("by_variable", [True, False])
def test_a_wrong_file_offline_is_refused_and_left_alone(server, offline, monkeypatch, by_variable):
    get(server.tiny(), patience=ONCE)
    short = offline / "tiny" / "short.txt"
    short.write_bytes(b"shorn\n")
    given = {} if by_variable else {"folder": offline}
    if by_variable:
        monkeypatch.setenv("RECOMBINE_DATA", str(offline))
    for ask in (located, get):
        with pytest.raises(NotHere, match=r"short.txt has SHA-256 \w{64} instead of \w{64}"):
            ask(server.tiny(), **given)
    assert short.read_bytes() == b"shorn\n"
    short.unlink()
    with pytest.raises(NotHere, match=r"short\.txt is missing"):
        located(server.tiny(), **given)


def test_a_folder_that_is_not_there_or_not_of_the_set_is_told(server, tmp_path, monkeypatch):
    with pytest.raises(InvalidRequest, match=r"--folder names .*no such folder"):
        get(server.tiny(), folder=tmp_path / "nowhere")
    with pytest.raises(NotHere, match="neither a folder tiny nor the files"):
        get(server.tiny(), folder=tmp_path)
    monkeypatch.setenv("RECOMBINE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InvalidRequest, match="RECOMBINE_DATA names"):
        located(server.tiny())


def test_files_are_copied_from_a_folder_or_a_checkout(server, offline, tmp_path):
    checkout = tmp_path / "checkout"
    for path, data in UPSTREAM.items():
        place = checkout / path.removeprefix("/r1/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    for number, source in enumerate((offline, offline / "tiny", checkout)):
        wanted = replace(server.tiny(), revision=f"c{number}")
        folder = get(wanted, source=source)
        assert_whole(folder)
        assert located(wanted) == folder
    assert server.asked == []


def test_a_wrong_or_missing_file_is_not_copied(server, offline, cache):
    (offline / "tiny" / "long.bin").write_bytes(LONG[::-1])
    with pytest.raises(NotHere, match=r"long.bin has SHA-256 \w{64} instead of \w{64}: it was not"):
        get(server.tiny(), source=offline)
    (offline / "tiny" / "long.bin").unlink()
    with pytest.raises(NotHere, match=r"no long.bin \(nor texts/long.bin\)"):
        get(server.tiny(), source=offline)
    with pytest.raises(InvalidRequest, match="no such folder"):
        get(server.tiny(), source=offline / "nowhere")
    with pytest.raises(InvalidRequest, match="give one of them"):
        get(server.tiny(), source=offline, folder=offline)
    assert not list((cache / "data").glob("tiny-*/[a-z]*"))


# --- the sets ---


@pytest.mark.parametrize("name", SETS)
def test_a_shipped_set_is_pinned_and_brings_its_licence(name):
    wanted = SETS[name]
    assert wanted.name == name
    assert re.fullmatch("[0-9a-f]{40}", wanted.revision)
    assert "LICENSE" in {file.name for file in wanted.files}
    for file in wanted.files:
        assert wanted.address(file).startswith("https://")
        assert f"/{wanted.revision}/" in wanted.address(file)


@pytest.mark.skipif(not REAL, reason="RECOMBINE_DATA names no folder with the real sets")
@pytest.mark.parametrize("name", SETS)
def test_the_shipped_sums_are_those_of_the_real_files(name):
    assert REAL is not None
    folder = located(name, folder=REAL)
    for file in SETS[name].files:
        data = (folder / file.name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256)


@given(name=st.text(max_size=12))
def test_no_file_name_leads_out_of_its_folder(name):
    try:
        file = File(name, 1, "0" * 64)
    except InvalidRequest:
        return
    assert Path("/a/b") == (Path("/a/b") / file.name).resolve().parent
    assert file.name not in (".", "..")


@pytest.mark.parametrize(
    "change",
    [{"name": "../x"}, {"revision": "a/b"}, {"url": "file:///etc"}, {"files": ()}, {"name": ""}],
)
def test_a_set_that_cannot_be_kept_safely_is_refused(server, change):
    with pytest.raises(InvalidRequest):
        replace(server.tiny(), **change)


def test_an_unknown_name_is_told_with_the_nearest():
    for ask in (located, get):
        with pytest.raises(UnknownName, match="'picbreder': did you mean 'picbreeder'"):
            ask("picbreder")


def test_listing_says_where_each_set_is_found(server, offline, monkeypatch):
    for name in ("tiny", "other"):
        monkeypatch.setitem(SETS, name, server.tiny(name))

    def found() -> dict[str, tuple[str, Path | None, str]]:
        return {one.name: (one.where, one.folder, one.problem) for one in listed()}

    assert set(found().values()) == {("not here", None, "")}
    folder = get("other", patience=ONCE)
    monkeypatch.setenv("RECOMBINE_DATA", str(offline))
    assert found()["other"] == ("cache", folder, "")
    assert found()["tiny"] == ("offline folder", offline / "tiny", "")
    assert found()["cogs"] == ("not here", None, "")
    (offline / "tiny" / "short.txt").unlink()
    assert found()["tiny"] == ("offline folder", offline / "tiny", "short.txt is missing")


def test_the_cache_is_where_the_environment_says(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    for said in ("off", ""):  # `off` speaks of compiled programs
        monkeypatch.setenv("RECOMBINE_CACHE", said)
        assert tmp_path / "xdg" / "recombine" in get(server.tiny(), patience=ONCE).parents
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path / ".cache" / "recombine" in get(server.tiny(), patience=ONCE).parents


# --- the command ---


@pytest.fixture
def command(monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """Runs `recombine data ...`; gives its exit code and what it printed."""
    monkeypatch.setattr("recombine.cli.leave", sys.exit)

    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["data", *map(str, words)])
        told = capsys.readouterr()
        return int(left.value.code or 0), told.out, told.err

    return call


def test_the_command_lists_every_set_with_licence_size_and_place(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    code, out, _ = command("list")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for name, wanted in SETS.items():
        assert wanted.text in rows[name] and wanted.licence in rows[name]
        assert rows[name].endswith("not here")
    assert "10.7 MB" in rows["cogs"]
    code, out, _ = command("list", "--json")
    assert [one["name"] for one in json.loads(out)["sets"]] == list(SETS)


def test_the_command_gets_a_set_and_prints_its_folder(command, server, monkeypatch):
    monkeypatch.setitem(SETS, "tiny", server.tiny())
    code, out, err = command("get", "tiny")
    assert code == 0 and "100 %" in err
    assert_whole(Path(out.strip()))
    code, again, err = command("get", "tiny", "--json")
    assert json.loads(again)["folder"] == out.strip() and err == ""
    assert len(json.loads(again)["files"]) == len(FILES)


def test_the_command_takes_folders(command, server, offline, monkeypatch):
    monkeypatch.setitem(SETS, "tiny", server.tiny())
    code, out, err = command("get", "tiny", "--folder", offline)
    assert code == 0 and Path(out.strip()) == offline / "tiny"
    assert f"export RECOMBINE_DATA={offline}" in err
    code, out, _ = command("get", "tiny", "--from", offline, "--quiet")
    assert code == 0
    assert_whole(Path(out.strip()))
    assert server.asked == []


def test_an_error_of_the_command_is_one_line(command, server, monkeypatch):
    monkeypatch.setitem(SETS, "tiny", server.tiny())
    server.holds.clear()
    for words, told in (
        (("get", "tiny"), "404"),
        (("get", "tony"), "did you mean 'tiny'"),
        (("get", "tiny", "--folder", "nowhere"), "no such folder"),
        (("fetch", "tiny"), "VERB"),
    ):
        code, out, err = command(*words)
        assert (code, out) == (2, "")
        assert told in err and err.count("\n") == 1 and err.startswith("recombine: error: ")


def test_data_is_listed_and_located_without_jax():
    code = (
        "import sys, recombine.cli.data, recombine.data as data; data.listed(); data.located;"
        "print(*sorted({'jax', 'scipy', 'equinox', 'matplotlib'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == ""
