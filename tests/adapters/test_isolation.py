"""A user's adapter that raises, hangs, dies or lies: isolated, timed out, explained."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.adapters import AdapterFailed, Isolated, OwnModel, checked, load_model
from recombine.adapters.models import PerRecord
from recombine.errors import InvalidRequest, NotApplicable

RECORDS = [{"n": n, "colour": "red"} for n in range(10)]


@pytest.fixture
def adapter(tmp_path):
    def written(body: str) -> str:
        text = "import os, sys, time, random\nimport numpy as np\n" + body
        (tmp_path / "mine.py").write_text(text, "utf-8")
        return f"{tmp_path / 'mine.py'}:model"

    return written


def per_record(body: str) -> str:
    return "def model(record):\n    n = record['n']\n    " + body


def in_batches(body: str) -> str:
    return f"class model:\n    def answer(self, records):\n        {body}\n"


def texts(found) -> list[str]:
    return [str(problem) for problem in found.problems]


def test_a_good_adapter_has_no_problems_and_runs_in_another_process(adapter):
    found = checked(adapter(per_record("return os.getpid()")), RECORDS, batch=4)
    assert found.problems == () and found.isolated and found.answered == 10
    assert set(found.answers) != {os.getpid()} and len(set(found.answers)) == 1


def test_a_record_that_raises_is_named_and_the_others_are_answered(adapter):
    place = adapter(per_record("return [1.0][n == 5]"))
    found = checked(place, RECORDS, batch=4, names=[f"r{n}" for n in range(10)])
    assert texts(found) == [
        "record r5: the adapter raised IndexError: list index out of range (mine.py, line 5)"
    ]
    assert found.answers == [1.0] * 5 + [None] + [1.0] * 4


def test_a_record_that_hangs_is_ended_and_the_others_go_on(adapter):
    place = adapter(per_record("time.sleep(60 if n == 6 else 0)\n    return n"))
    found = checked(place, RECORDS, batch=5, timeout=1.0)
    assert [problem.kind for problem in found.problems] == ["hung"]
    assert "record 7: no answer within 1 s; the process was ended" in texts(found)[0]
    assert found.answers == [n if n != 6 else None for n in range(10)]


def test_an_adapter_that_always_hangs_is_given_up_after_three_records(adapter):
    place = adapter(per_record("time.sleep(60)"))
    found = checked(place, RECORDS, batch=10, timeout=0.3)
    assert [problem.kind for problem in found.problems] == ["hung"] * 3 + ["not asked"]
    assert "records 4 to 10: not asked" in texts(found)[-1] and found.answered == 0


def test_a_process_that_dies_is_explained_with_its_last_words(adapter):
    body = (
        "if n == 2:\n        print('no memory', file=sys.stderr, flush=True)\n        os._exit(7)"
    )
    found = checked(adapter(per_record(f"{body}\n    return n")), RECORDS, batch=5)
    assert texts(found) == ["record 3: the process ended (exit code 7); on stderr: no memory"]
    assert found.answered == 9


def test_what_an_adapter_prints_and_reads_does_not_disturb(adapter):
    place = adapter(per_record("print('hello')\n    os.write(1, b'x')\n    "
                               "sys.stdin.read()\n    return n"))  # fmt: skip
    assert checked(place, RECORDS).problems == ()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("float('nan') if n == 3 else 1.0", "record 4: the answer is nan"),
        ("float('inf') if n == 3 else 1.0", "record 4: the answer is inf"),
        ("np.array([1, np.nan if n == 3 else 1])", r"record 4: the answer is [1.0, nan]"),
        ("{'a': float('nan')} if n == 3 else {'a': 1}", "record 4: the answer is {'a': nan}"),
        ("object() if n == 3 else 'a'", "record 4: the answer is a object"),
        ("None if n == 3 else 'a'", "record 4: the answer is a NoneType"),
    ],
)
def test_an_answer_that_is_none_is_named(adapter, answer, told):
    found = checked(adapter(per_record(f"return {answer}")), RECORDS, batch=4)
    assert len(found.problems) == 1 and texts(found)[0].startswith(told)
    assert [place for place, a in enumerate(found.answers) if a is None] == [3]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return [1] * (len(records) - 1)", "gave 0 answers, expected 1"),
        ("return 'yes'", "answered with a str, expected a list of 1 answers"),
        ("return (1 for _ in records)", "answered with a generator"),
        ("sys.exit(1)", "the adapter raised SystemExit: 1"),
    ],
)
def test_answers_of_the_wrong_shape_are_explained(adapter, body, told):
    found = checked(adapter(in_batches(body)), RECORDS[:3], batch=3)
    assert found.answered == 0 and len(found.problems) == 3 and told in texts(found)[0]
    assert texts(found)[0].startswith("record 1: ")


def test_a_batch_that_fails_only_together_is_told_as_such(adapter):
    place = adapter(in_batches("return [1] if len(records) == 1 else [1, 2][:0]"))
    found = checked(place, RECORDS[:3], batch=3)
    assert found.answers == [1, 1, 1]
    assert texts(found) == [
        "records 1 to 3: together, the adapter gave 0 answers, expected 3; one by one they are "
        "answered"
    ]


def test_an_adapter_that_draws_is_not_deterministic(adapter):
    found = checked(adapter(per_record("return random.random()")), RECORDS[:4])
    assert {problem.kind for problem in found.problems} == {"not deterministic"}
    assert texts(found)[0].startswith("record 1: asked twice, it said 0.")


def test_answers_that_depend_on_the_batch_are_found(adapter):
    place = adapter(in_batches("return [r['n'] - records[0]['n'] for r in records]"))
    found = checked(place, RECORDS, batch=10, again=10)
    assert [problem.records for problem in found.problems] == [(n,) for n in range(1, 10)]
    assert texts(found)[0] == ("record 2: 1 in its batch and 0 alone: answers depend on the batch")


def test_rounding_is_no_dependence_on_the_batch(adapter):
    place = adapter(in_batches("return [0.1 + 1e-8 * len(records) for _ in records]"))
    assert checked(place, RECORDS).problems == ()


def test_a_changed_input_is_found_and_the_callers_records_stay(adapter):
    place = adapter(per_record("if n == 1: record['colour'] = 'blue'\n    return n"))
    found = checked(place, RECORDS[:3])
    assert texts(found) == ["record 2: the adapter changed its input, column 'colour'"]
    here = PerRecord(lambda record: record.pop("n"))  # pyright: ignore[reportAttributeAccessIssue]
    found = checked(here, RECORDS[:2])
    assert {problem.kind for problem in found.problems} == {"changed its input"}
    assert not found.isolated and RECORDS[0] == {"n": 0, "colour": "red"}


def test_answers_of_two_kinds_are_remarked_on(adapter):
    found = checked(adapter(per_record("return 'none' if n == 4 else n")), RECORDS)
    assert texts(found) == ["record 5: answered with text, where most answers are numbers"]


def test_after_three_empty_batches_nothing_more_is_asked(adapter):
    found = checked(adapter(per_record("raise ValueError('no')")), RECORDS, batch=2)
    assert [problem.kind for problem in found.problems] == ["raised"] * 6 + ["not asked"]
    assert "records 7 to 10: not asked" in texts(found)[-1]


def test_spent_calls_stop_everything_with_one_sentence(adapter):
    place = adapter(
        "from recombine.live.client import CallsSpent\n"
        + per_record("if n == 3: raise CallsSpent('the 3 calls are spent')\n    return n")
    )
    found = checked(place, RECORDS, batch=1)
    assert texts(found) == ["stopped: the 3 calls are spent"] and found.answers[:4] == [
        0,
        1,
        2,
        None,
    ]


def test_an_adapter_that_cannot_be_loaded_is_an_error_in_one_line(adapter):
    with pytest.raises(InvalidRequest, match=r"ModuleNotFoundError: No module named 'nowhere'"):
        checked(adapter("import nowhere\n"), RECORDS)
    with pytest.raises(AdapterFailed, match="exit code 3"):
        checked(adapter("os._exit(3)\n"), RECORDS)
    with pytest.raises(AdapterFailed, match=r"no answer within 0\.5 s"):
        Isolated(adapter("time.sleep(60)\n"), start=0.5)


def test_a_model_without_answers_is_not_applicable(adapter):
    place = adapter(
        "from recombine.adapters import ArraysModel\n"
        "model = ArraysModel({'layer': np.zeros((3, 2))})\n"
    )
    with pytest.raises(NotApplicable):
        checked(place, RECORDS)


def test_activations_come_home_from_the_child_and_are_checked(adapter):
    place = adapter(
        "class model:\n    pooling = 'none'\n"
        "    def answer(self, records):\n        return [1 for _ in records]\n"
        "    def activations(self, records):\n"
        "        value = np.nan if len(records) == 4 else 1\n"
        "        rows = len(records)\n"
        "        return {'a': [[r['n'], value] for r in records], 'b/c': np.zeros((rows, 2, 3))}\n"
        "    def log_probabilities(self, records, answers):\n"
        "        return [-float(a) for a in answers]\n"
    )
    with Isolated(place) as model:
        found = model.activations(RECORDS[:3])
        assert np.array_equal(found["a"], [[0, 1], [1, 1], [2, 1]])
        assert found["b/c"].shape == (3, 3) and model.pooling == "none"
        assert model.log_probabilities(RECORDS[:2], [1, 2]).tolist() == [-1.0, -2.0]
        with pytest.raises(AdapterFailed, match="record 1: layer 'a' is not finite"):
            model.activations(RECORDS[:4])


def test_an_object_that_hangs_here_is_timed_out():
    class Slow(OwnModel):
        abilities = frozenset({"answer"})

        def answer(self, records):
            time.sleep(0.6 if len(records) == 1 and records[0]["n"] == 1 else 0)
            if len(records) > 1:
                raise ValueError("one at a time")
            return [records[0]["n"]]

    found = checked(Slow(), RECORDS[:3], timeout=0.3)
    assert texts(found) == ["record 2: no answer within 0.3 s"] and found.answers == [0, None, 2]


@pytest.mark.slow
@given(st.sets(st.integers(0, 19)), st.integers(1, 20))
def test_exactly_the_records_that_fail_are_without_an_answer(bad, batch):
    def answer(record):
        if record["n"] in bad:
            raise ValueError(record["n"])
        return record["n"]

    found = checked(PerRecord(answer), [{"n": n} for n in range(20)], batch=batch)
    asked = set(range(20)) - {
        p for one in found.problems if one.kind == "not asked" for p in one.records
    }
    assert {p for p in asked if found.answers[p] is None} == bad & asked
    named = {p for one in found.problems if one.kind == "raised" for p in one.records}
    assert named == bad & asked


def test_names_must_fit_the_records():
    with pytest.raises(InvalidRequest, match="1 names for 10 records"):
        checked(PerRecord(lambda record: 1), RECORDS, names=["a"])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise KeyboardInterrupt", "the adapter raised KeyboardInterrupt (mine.py, line 5)"),
        ("return 10 ** 5000", "the answer is a whole number of 16610 bits"),
        ("import json; json.loads('{')", "(mine.py, line 5)"),
    ],
)
def test_what_would_end_the_process_is_told_in_words_and_by_the_users_own_line(adapter, body, told):
    (said,) = texts(checked(adapter(per_record(body)), RECORDS[:1]))
    assert told in said and "Traceback" not in said and "stderr" not in said


def test_records_taken_from_the_list_are_a_changed_input(adapter):
    body = "count = len(records); records.clear(); return ['x'] * count"
    found = checked(adapter(in_batches(body)), RECORDS[:2])
    assert {problem.kind for problem in found.problems} == {"changed its input"}
    assert "record 1: the adapter changed its input, the record is gone" in texts(found)[0]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("class model:\n    def __init__(self): sys.exit('gone')\n", "model() raised SystemExit"),
        ("class model:\n    answer = len\n    @property\n    def name(self): return 1 / 0\n",
         "raised ZeroDivisionError: division by zero (mine.py, line 6)"),
        ("import torch_that_is_not_there\n", "No module named 'torch_that_is_not_there'"),
    ],
)  # fmt: skip
def test_a_model_that_ends_while_it_loads_is_an_error_in_one_line(adapter, body, told):
    with pytest.raises(InvalidRequest) as error:
        Isolated(adapter(body))
    assert told in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("layers", "told"),
    [
        ("{}", "gave no layer"),
        ("{'a': np.ones((len(records), 3), complex)}", "of type complex128"),
    ],
)
def test_activations_that_are_none_are_explained(adapter, layers, told):
    place = adapter(
        in_batches("return ['x'] * len(records)")
        + f"    def activations(self, records):\n        return {layers}\n"
    )
    with Isolated(place) as model, pytest.raises(AdapterFailed, match=told):
        model.activations(RECORDS)


def test_one_ability_may_be_stated_as_a_word():
    class Says:
        abilities = "answer"

        def answer(self, records):
            return ["x"] * len(records)

    assert load_model(Says()).abilities == {"answer"}


def test_a_cost_that_is_no_estimate_is_named(adapter):
    place = adapter(
        in_batches("return ['x'] * len(records)")
        + "    def cost(self, records):\n        return 5\n"
    )
    with Isolated(place) as model, pytest.raises(AdapterFailed, match="returned a int"):
        model.cost(RECORDS)
