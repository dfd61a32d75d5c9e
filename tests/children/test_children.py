"""A child process: started once, told and heard in order, ended with all it started."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.adapters import checked
from recombine.children.serving import imported, named, told
from recombine.children.talk import Talk, TalkFailed
from recombine.errors import InvalidRequest
from recombine.tags.callables import Called, call_rows

# Both ways to a user's code: given a folder with mine.py in it, each asks about one record.
ASKERS = {
    "adapters": "from recombine.adapters import checked\n"
    "checked({folder!r} + '/mine.py:model', [{{'n': 1}}])",
    "tags": "from pathlib import Path\nfrom recombine.tags.callables import call_rows\n"
    "list(call_rows('mine.py:model', iter([{{'n': 1}}] * 50), folder=Path({folder!r})))",
}


def alive(pid: int) -> bool:
    """Whether a process still works; one that ended and was not yet collected does not."""
    asked = ["ps", "-o", "stat=", "-p", str(pid)]
    state = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def within(seconds: float, happened) -> bool:
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def started(folder: Path) -> list[int]:
    """Who wrote its number down; the last line may be on its way."""
    lines = (folder / "pids").read_text().split()
    return [int(line[:-1]) for line in lines if line.endswith(".")]


def write(folder: Path, body: str) -> None:
    note = str(folder / "pids")
    (folder / "pids").touch()
    (folder / "mine.py").write_text(
        "import os, subprocess, time\n"
        f"def note(pid):\n    with open({note!r}, 'a') as f: f.write(str(pid) + '.\\n')\n"
        f"def model(record):\n    {body}\n",
        "utf-8",
    )


@pytest.mark.parametrize("asker", ASKERS)
def test_a_killed_asker_leaves_no_hanging_child_behind(asker, tmp_path):
    write(tmp_path, "note(os.getpid())\n    note(subprocess.Popen(['sleep', '600']).pid)\n    "
                    "time.sleep(600)")  # fmt: skip
    asking = ASKERS[asker].format(folder=str(tmp_path))
    caller = subprocess.Popen([sys.executable, "-c", asking])
    try:
        assert within(60, lambda: len(started(tmp_path)) == 2)
    finally:
        caller.kill()
        caller.wait()
    assert within(10, lambda: not any(map(alive, started(tmp_path))))


def test_what_a_child_started_is_ended_with_it_also_when_it_dies_first(tmp_path):
    write(tmp_path, "note(subprocess.Popen(['sleep', '600']).pid)\n    os._exit(1)")
    assert checked(f"{tmp_path / 'mine.py'}:model", [{"n": 1}]).answers == [None]
    (called,) = call_rows("mine.py:model", iter([{"n": 1}]), folder=tmp_path)
    assert called.trouble == "ended its process (exit code 1)"
    assert len(started(tmp_path)) == 2
    assert within(10, lambda: not any(map(alive, started(tmp_path))))


def test_a_program_that_never_reads_is_ended_too():
    with Talk([sys.executable, "-c", "import time; time.sleep(60)"]) as talk:
        with pytest.raises(TalkFailed, match="no answer"):
            talk.ask("x" * 2_000_000, 0.5)


def test_much_told_ahead_is_answered_in_order():
    with Talk(["cat"]) as talk:
        assert talk.ask(np.arange(3), 30) == [0, 1, 2]
        several = [{"n": n, "text": "Ω" * 20_000} for n in range(100)]
        for first in range(0, 100, 10):  # more than pipes hold, before anything is heard
            talk.tell(several[first : first + 10])
        assert [talk.hear(30) for _ in several] == several
        talk.quiet(0)


def test_a_row_that_kills_costs_nothing_to_those_sent_ahead(tmp_path):
    write(tmp_path, "if record['n'] % 40 == 5: os._exit(9)\n    return record['n']")
    rows = iter([{"n": n} for n in range(100)])
    found = list(call_rows("mine.py:model", rows, folder=tmp_path))
    dead = Called(trouble="ended its process (exit code 9)")
    assert found == [dead if n % 40 == 5 else Called(n) for n in range(100)]


def test_a_name_that_is_not_there_is_answered_with_the_nearest(tmp_path):
    write(tmp_path, "return 1")
    module = imported(tmp_path / "mine.py")
    assert named(module, "model")({}) == 1
    with pytest.raises(InvalidRequest, match="did you mean 'model'"):
        named(module, "modell")


@given(st.text(max_size=2000))
@settings(max_examples=30)
def test_what_was_raised_is_told_in_one_short_line(text):
    said = told(ValueError(text))
    assert said.startswith("ValueError") and "\n" not in said and len(said) <= 500
