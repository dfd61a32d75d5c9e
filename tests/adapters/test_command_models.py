"""A program as a model: kept alive, timed out, started again, explained."""

from __future__ import annotations

import os
import sys
import time

import pytest

from recombine.adapters import CommandModel, checked
from recombine.children.talk import TalkFailed
from recombine.errors import InvalidRequest

ECHO = """
import json, os, sys, time
for line in sys.stdin:
    record = json.loads(line)
    BODY
"""


def program(body: str, **options) -> CommandModel:
    code = ECHO.replace("BODY", body.replace("\n", "\n    "))
    return CommandModel([sys.executable, "-u", "-c", code], name="mine", **options)


@pytest.fixture
def model():
    made: list[CommandModel] = []

    def build(body: str, **options) -> CommandModel:
        made.append(program(body, **options))
        return made[-1]

    yield build
    for one in made:
        one.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_process_answers_every_record(model):
    mine = model("print(json.dumps([record['n'], os.getpid()]))")
    answers = mine.answer([{"n": n} for n in range(5)])
    assert [n for n, _ in answers] == list(range(5)) and len({pid for _, pid in answers}) == 1
    mine.close()
    assert not alive(answers[0][1])


def test_an_answer_may_stand_in_an_object(model):
    assert model("print(json.dumps({'answer': 'red', 'sure': 1}))").answer([{}]) == ["red"]


def test_text_of_any_script_and_long_lines_arrive_whole(model):
    text = "Ω\u202e\n\"'" + "x" * 200_000
    assert model("print(json.dumps(record['t']))").answer([{"t": text}]) == [text]


def test_a_record_that_hangs_is_ended_and_the_next_one_starts_a_new_process(model):
    mine = model("time.sleep(60 if record['n'] == 1 else 0)\nprint(os.getpid())", timeout=0.5)
    (first,) = mine.answer([{"n": 0}])
    with pytest.raises(TalkFailed, match=r'record 1, \{"n": 1\}: no answer within 0\.5 s'):
        mine.answer([{"n": 1}])
    assert not alive(first)
    assert mine.answer([{"n": 2}])[0] != first


def test_a_crash_is_survived_by_a_second_start(model, tmp_path):
    once = tmp_path / "once"
    body = f"if record['n'] == 1 and not os.path.exists({str(once)!r}):\n"
    body += f"    open({str(once)!r}, 'w').close(); os._exit(9)\nprint(record['n'])"
    assert model(body).answer([{"n": n} for n in range(3)]) == [0, 1, 2]


def test_a_record_that_crashes_it_twice_is_named_with_the_end_of_stderr(model):
    mine = model("sys.stderr.write('out of memory\\n')\nos._exit(9)")
    with pytest.raises(TalkFailed, match=r"record 1, .*exit code 9.*on stderr: out of memory"):
        mine.answer([{"n": 1}])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("print('Loading weights')", "wrote 'Loading weights', expected one line of JSON"),
        ("print(1)\nprint(2)", r"a line too many, '[12]'"),
    ],
)
def test_a_program_that_writes_something_else_is_told_what_is_expected(model, body, told):
    mine, several = model(body), [{"n": n} for n in range(20)]  # a line too many may come late
    with pytest.raises(TalkFailed, match=told):
        mine.answer(several)


def test_a_row_that_is_repeated_is_held_against_the_record(model):
    mine = model("print(json.dumps({'row': 1, 'answer': 'red'}))")
    assert mine.answer([{"row": 1}]) == ["red"]
    with pytest.raises(TalkFailed, match="answered row 1 when asked about 2"):
        mine.answer([{"row": 2}])


def test_a_command_that_cannot_start_and_one_that_is_empty_are_refused():
    with pytest.raises(InvalidRequest, match="cannot start 'no-such-program-here --x'"):
        CommandModel("no-such-program-here --x").answer([{}])
    for given in ("", []):
        with pytest.raises(InvalidRequest, match="empty"):
            CommandModel(given)
    with pytest.raises(InvalidRequest, match="timeout=0"):
        CommandModel("cat", timeout=0)


def test_a_record_that_cannot_be_sent_says_so(model):
    with pytest.raises(InvalidRequest, match="holds a object"):
        model("print(1)").answer([{"picture": object()}])


def test_a_hanging_program_inside_an_isolated_adapter_is_ended_with_it(tmp_path):
    pids = tmp_path / "pids"
    code = ECHO.replace("BODY", f"open({str(pids)!r}, 'a').write(str(os.getpid()) + chr(10))\n    "
                        "time.sleep(60 if record['n'] else 0)\n    print(1)")  # fmt: skip
    (tmp_path / "mine.py").write_text(
        "import sys\nfrom recombine.adapters import CommandModel\n"
        f"class model(CommandModel):\n    def __init__(self):\n"
        f"        super().__init__([sys.executable, '-u', '-c', {code!r}], timeout=30)\n"
        "    def patience(self, records):\n        return 0\n",
        "utf-8",
    )
    found = checked(f"{tmp_path / 'mine.py'}:model", [{"n": 0}, {"n": 1}], batch=1, timeout=2)
    assert [problem.kind for problem in found.problems] == ["hung"] and found.answers == [1, None]
    until = time.monotonic() + 5
    while any(map(alive, map(int, pids.read_text().split()))) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, map(int, pids.read_text().split())))
