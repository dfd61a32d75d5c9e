"""A model behind an endpoint: paid for once, waited for, never beyond the cap."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from recombine.errors import InvalidRequest
from recombine.lab.answers import AnswerLog
from recombine.live import Answer, AskingError, ChatEndpoint

from .standin import (
    StandIn,
    busy,
    dies_midway,
    drips,
    drips_head,
    drops,
    fails,
    filtered,
    garbage,
    hangs,
    wrong_schema,
)

WORDS = [f"word {n}" for n in range(12)]


def model_at(server, tmp_path, **settings):
    fast = {"pause": 0.001, "key_variable": None, "timeout": 5.0} | settings
    return ChatEndpoint(server.url, "oracle-1", tmp_path / "answers.jsonl", **fast)


def texts(answers):
    return [answer.text for answer in answers]


def test_answers_come_in_the_order_of_the_questions(tmp_path):
    def slow_at_first(prompt):
        time.sleep(0.05 if prompt == WORDS[0] else 0)
        return prompt.upper()

    seen = []
    with StandIn(slow_at_first) as server:
        model = model_at(server, tmp_path, workers=4)
        answers = list(model.ask(WORDS, lambda done, total: seen.append((done, total))))
    assert texts(answers) == [word.upper() for word in WORDS]
    assert seen == [(n, len(WORDS)) for n in range(1, len(WORDS) + 1)]


def test_a_question_is_sent_at_temperature_zero_with_the_key_which_is_written_nowhere(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("ORACLE_KEY", "s3cret")
    with StandIn() as server:
        model = model_at(server, tmp_path, key_variable="ORACLE_KEY", longest=77)
        list(model.ask(["hello"]))
    [(path, headers, body)] = server.requests
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer s3cret"
    assert body == {
        "model": "oracle-1",
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0,
        "max_tokens": 77,
    }
    assert "s3cret" not in (tmp_path / "answers.jsonl").read_text("utf-8") + repr(model)


def test_no_question_is_paid_for_twice(tmp_path):
    with StandIn() as server:
        model = model_at(server, tmp_path)
        assert texts(model.ask([*WORDS, *WORDS])) == [word.upper() for word in WORDS] * 2
        assert texts(model_at(server, tmp_path).ask(WORDS)) == [word.upper() for word in WORDS]
    assert Counter(server.prompts) == Counter(WORDS)


def test_another_model_or_length_is_asked_anew(tmp_path):
    with StandIn() as server:
        list(model_at(server, tmp_path).ask(["hello"]))
        list(model_at(server, tmp_path, longest=5).ask(["hello"]))
        other = ChatEndpoint(server.url, "oracle-2", tmp_path / "answers.jsonl", key_variable=None)
        list(other.ask(["hello"]))
    assert len(server.requests) == 3


PASSING = [busy(), busy(after="0"), busy(after="soon"), fails(500), fails(503), fails(408),
           garbage, wrong_schema, drops, dies_midway]  # fmt: skip


@pytest.mark.parametrize("trouble", PASSING)
def test_trouble_that_passes_is_waited_out(tmp_path, trouble):
    with StandIn(faults=[trouble, trouble]) as server:
        assert texts(model_at(server, tmp_path).ask(["hello"])) == ["HELLO"]
    assert len(server.requests) == 3


STAYING = [
    busy(), fails(500), garbage, wrong_schema, hangs, drips, drips_head, drops, dies_midway,
]  # fmt: skip


@pytest.mark.parametrize("trouble", STAYING)
def test_trouble_that_stays_ends_in_one_line_that_says_how_to_continue(tmp_path, trouble):
    with StandIn(by_prompt={"bad": trouble}) as server:
        model = model_at(server, tmp_path, attempts=2, timeout=0.3, workers=1)
        answers = model.ask(["good", "bad", "never"])
        assert next(answers).text == "GOOD"
        with pytest.raises(AskingError) as caught:
            next(answers)
    said = str(caught.value)
    assert "question 'bad': no answer from" in said and "after 2 attempts" in said
    assert "answers so far are kept in" in said and "run again to continue" in said
    assert "\n" not in said
    assert server.prompts == ["good", "bad", "bad"]
    assert len(AnswerLog(tmp_path / "answers.jsonl")) == 1


def test_an_endpoint_that_says_how_long_to_wait_is_given_that_long(tmp_path, monkeypatch):
    waited, real = [], threading.Event.wait

    def wait(self, timeout=None):
        waited.append(timeout)
        return real(self, None if timeout is None else min(timeout, 0.001))

    monkeypatch.setattr(threading.Event, "wait", wait)
    with StandIn(faults=[busy(after="7"), busy(after="100000"), busy()]) as server:
        list(model_at(server, tmp_path).ask(["hello"]))
    seconds = [timeout for timeout in waited if timeout is not None and timeout >= 1]
    assert seconds == [7.0, 60.0]


def test_pauses_double_and_never_come_at_the_same_moment(tmp_path, monkeypatch):
    waited, real = [], threading.Event.wait

    def wait(self, timeout=None):
        waited.append(timeout)
        return real(self, None if timeout is None else min(timeout, 0.001))

    monkeypatch.setattr(threading.Event, "wait", wait)
    with StandIn(always=fails(500)) as server:
        with pytest.raises(AskingError):
            list(model_at(server, tmp_path, pause=16.0, attempts=5).ask(["hello"]))
    pauses = [timeout for timeout in waited if timeout is not None and timeout > 5]
    assert len(pauses) == 4
    for pause, longest in zip(pauses, (16, 32, 60, 60), strict=True):
        assert longest / 2 <= pause <= longest


def test_what_was_answered_before_a_failure_is_not_asked_again(tmp_path):
    with StandIn(by_prompt={WORDS[6]: fails(500)}) as server:
        with pytest.raises(AskingError):
            list(model_at(server, tmp_path, attempts=2).ask(WORDS))
        kept = set(server.answered)
        server.by_prompt.clear()
        server.answered.clear()
        assert texts(model_at(server, tmp_path).ask(WORDS)) == [word.upper() for word in WORDS]
    assert set(server.answered) == set(WORDS) - kept


def test_the_error_told_is_the_one_that_stopped_the_others(tmp_path):
    # The first question waits for a busy server while a later one is refused outright.
    with StandIn(by_prompt={WORDS[0]: busy(after="60"), WORDS[1]: fails(401)}) as server:
        with pytest.raises(AskingError, match=r"question 'word 1': .* refused with HTTP 401"):
            list(model_at(server, tmp_path).ask(WORDS))
    assert server.prompts.count(WORDS[1]) == 1


FILTERED = b'{"error": {"code": "content_filter", "message": "filtered"}}'
LONG = b'{"error": {"message": "This model\'s maximum context length is 10 tokens."}}'


OF_TEXT = [(400, FILTERED), (400, LONG), (422, b"no"), (413, b"")]


@pytest.mark.parametrize(("code", "said"), OF_TEXT)
def test_a_question_refused_for_its_text_costs_that_question_alone(tmp_path, code, said):
    refuses = {WORDS[3]: lambda handler: handler.reply(code, said)}
    with StandIn(by_prompt=refuses) as server:
        answers = list(model_at(server, tmp_path).ask(WORDS))
        again = list(model_at(server, tmp_path).ask(WORDS))
    assert answers[3].turned_away and f"HTTP {code}" in answers[3].refusal
    assert answers[3].said == "" and again == answers
    others = [word for word in WORDS if word != WORDS[3]]
    assert texts(a for a in answers if not a.turned_away) == [word.upper() for word in others]
    assert Counter(server.prompts) == Counter(WORDS)


WRONG = [(401, FILTERED), (403, FILTERED), (404, b"no such model"), (400, b"bad request"),
         (400, b'{"error": {"code": "model_not_found"}}'), (400, b"max_tokens is too large"),
         (422, b'{"detail": [{"loc": ["body", "model"]}]}')]  # fmt: skip


@pytest.mark.parametrize(("code", "said"), WRONG)
def test_a_refusal_that_concerns_every_question_stops_at_once(tmp_path, code, said):
    with StandIn(always=lambda handler: handler.reply(code, said)) as server:
        with pytest.raises(AskingError, match=f"HTTP {code}"):
            list(model_at(server, tmp_path, workers=1).ask(WORDS))
    assert len(set(server.prompts)) == 1 and len(AnswerLog(tmp_path / "answers.jsonl")) == 0


def test_many_refusals_in_a_row_stop_with_one_line_and_are_kept(tmp_path):
    many = [f"word {n}" for n in range(60)]
    with StandIn(always=lambda handler: handler.reply(400, FILTERED)) as server:
        model = model_at(server, tmp_path, workers=1)
        with pytest.raises(AskingError, match="refused 20 questions in a row") as caught:
            list(model.ask(many))
        assert len(server.requests) == 20 and "\n" not in str(caught.value)
        server.always = None
        found = list(model_at(server, tmp_path).ask(many))
    assert [answer.turned_away for answer in found] == [True] * 20 + [False] * 40
    assert len(server.requests) == 60


@pytest.mark.parametrize("workers", [1, 8])
def test_the_cap_on_calls_holds_for_all_threads_together(tmp_path, workers):
    with StandIn(faults=[fails(500)]) as server:
        model = model_at(server, tmp_path, most_calls=5, workers=workers)
        with pytest.raises(AskingError, match=r"the 5 calls are spent; .* raise most_calls"):
            list(model.ask(WORDS))
        assert len(server.requests) == 5 == model.calls
        assert len(AnswerLog(tmp_path / "answers.jsonl")) == 4
        assert len(list(model_at(server, tmp_path).ask(WORDS))) == len(WORDS)


def test_a_missing_key_is_named_before_anything_is_sent(tmp_path, monkeypatch):
    monkeypatch.delenv("ORACLE_KEY", raising=False)
    with StandIn() as server:
        with pytest.raises(InvalidRequest, match="has no ORACLE_KEY: export it"):
            list(model_at(server, tmp_path, key_variable="ORACLE_KEY").ask(["hello"]))
    assert server.requests == []


def test_a_key_copied_with_its_line_end_works_and_a_broken_one_is_refused(tmp_path, monkeypatch):
    with StandIn() as server:
        monkeypatch.setenv("ORACLE_KEY", "s3cret\n")
        list(model_at(server, tmp_path, key_variable="ORACLE_KEY").ask(["hello"]))
        assert server.requests[0][1]["Authorization"] == "Bearer s3cret"
        monkeypatch.setenv("ORACLE_KEY", "s3\ncret")
        with pytest.raises(InvalidRequest, match="characters that no key has") as caught:
            list(model_at(server, tmp_path, key_variable="ORACLE_KEY").ask(["world"]))
    assert "cret" not in str(caught.value)


def test_a_key_is_not_carried_to_another_address(tmp_path, monkeypatch):
    monkeypatch.setenv("ORACLE_KEY", "s3cret")
    with StandIn() as thief:
        away = fails(302, ("Location", f"{thief.url}/chat/completions"))
        with StandIn(always=away) as server, pytest.raises(AskingError) as caught:
            list(model_at(server, tmp_path, key_variable="ORACLE_KEY").ask(["hello"]))
    assert thief.requests == []
    assert f"HTTP 302: 'it leads to {thief.url}/chat/completions, where" in str(caught.value)


def test_parameters_that_a_model_does_not_know_are_renamed_or_left_out(tmp_path):
    with StandIn(unsupported=("temperature", "max_tokens")) as server:
        model = model_at(server, tmp_path, workers=1, longest=9)
        assert texts(model.ask(WORDS)) == [word.upper() for word in WORDS]
    assert "temperature" not in server.requests[-1][2]
    assert server.requests[-1][2]["max_completion_tokens"] == 9
    assert len(server.requests) == len(WORDS) + 2
    assert model.notes == ["The endpoint does not take 'temperature': it was left out."]


def test_the_bound_on_the_length_is_never_left_out(tmp_path):
    with StandIn(unsupported=("max_tokens", "max_completion_tokens")) as server:
        with pytest.raises(AskingError, match="max_completion_tokens"):
            list(model_at(server, tmp_path).ask(["hello"]))


def test_a_refusal_and_an_answer_cut_short_are_answers(tmp_path):
    with StandIn(lambda prompt: None if prompt == "no" else "one two three") as server:
        refused, cut = model_at(server, tmp_path, longest=2).ask(["no", "yes"])
        assert refused == Answer("", refusal="I would rather not.")
        assert cut == Answer("one two", cut=True)
        assert list(model_at(server, tmp_path, longest=2).ask(["no", "yes"])) == [refused, cut]
    assert len(server.requests) == 2


@pytest.mark.parametrize("fault", [filtered(content=None), filtered(), filtered(content="one t")])
def test_what_a_filter_stops_is_a_refusal_and_says_nothing(tmp_path, fault):
    with StandIn(always=fault) as server:
        [answer] = model_at(server, tmp_path).ask(["hello"])
    assert answer.refusal == "content_filter" and answer.said == ""
    assert len(server.requests) == 1


WELL = {"text": "HELLO", "log_probability": None, "cut": False, "refusal": ""}


@pytest.mark.parametrize(
    "entry",
    [
        "HELLO",
        ["HELLO"],
        None,
        {},
        WELL | {"tokens": 5},
        {name: value for name, value in WELL.items() if name != "text"},
        WELL | {"text": 5},
        WELL | {"cut": "no"},
        WELL | {"log_probability": "high"},
        WELL | {"refusal": None},
    ],
)
def test_an_answer_of_another_form_is_skipped_like_a_torn_line_and_asked_again(tmp_path, entry):
    with StandIn() as server:
        list(model_at(server, tmp_path).ask(["hello", "world"]))
        log = tmp_path / "answers.jsonl"
        first, second = (json.loads(line) for line in log.read_text("utf-8").splitlines())
        asked_again = first["about"]["prompt"]
        log.write_text(f"{json.dumps(first | {'answer': entry})}\n{json.dumps(second)}\n", "utf-8")
        model = model_at(server, tmp_path)
        with pytest.warns(UserWarning, match=r"answers\.jsonl: 1 damaged line .* is line 1"):
            assert texts(model.ask(["hello", "world"])) == ["HELLO", "WORLD"]
        assert server.prompts[2:] == [asked_again]


def test_a_log_of_another_form_is_no_matter_to_one_who_only_wants_a_message(tmp_path):
    (tmp_path / "answers.jsonl").write_text('{"key": "a", "answer": {"cat": true}}\n', "utf-8")
    with StandIn() as server:
        model = model_at(server, tmp_path)  # a warning would be an error here
        said = model.message([{"role": "user", "content": "hello"}], "a picture")
    assert said["content"] == "HELLO"


def test_an_answer_kept_before_a_field_was_added_still_counts(tmp_path):
    with StandIn() as server:
        list(model_at(server, tmp_path).ask(["hello"]))
        log = tmp_path / "answers.jsonl"
        line = json.loads(log.read_text("utf-8"))
        log.write_text(json.dumps(line | {"answer": {"text": "kept"}}), "utf-8")
        assert texts(model_at(server, tmp_path).ask(["hello"])) == ["kept"]


def test_log_probabilities_are_summed_where_the_endpoint_gives_them(tmp_path):
    with StandIn(lambda prompt: "a b c d") as server:
        [answer] = model_at(server, tmp_path, logprobs=True).ask(["hello"])
        assert answer.log_probability == -2.0
        server.unsupported = ("logprobs",)
        [answer] = model_at(server, tmp_path, logprobs=True).ask(["world"])
        assert answer.log_probability is None and answer.text == "a b c d"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"endpoint": "api.example.com/v1"}, "expected a URL"),
        ({"endpoint": "ftp://api.example.com"}, "expected a URL"),
        ({"endpoint": "http://host:port/v1"}, "expected a URL"),
        ({"endpoint": f"http://{'a' * 80}.b/v1"}, "expected a URL"),
        ({"endpoint": "http://a..b/v1"}, "expected a URL"),
        ({"endpoint": "http://host/\u00e9/v1"}, "expected a URL"),
        ({"endpoint": "http://host/a b/v1"}, "expected a URL"),
        ({"attempts": 0}, "attempts=0"),
        ({"workers": 0}, "workers=0"),
        ({"most_calls": 0}, "most_calls=0: expected at least 1"),
        ({"timeout": 0}, "timeout=0: expected more than 0 seconds"),
        ({"timeout": math.nan}, "timeout=nan: expected"),
        ({"timeout": math.inf}, "timeout=inf: expected"),
    ],
)
def test_what_cannot_work_is_refused_at_once(tmp_path, settings, complaint):
    given = {"endpoint": "http://127.0.0.1:9/v1", "model": "m", "log": tmp_path / "l"} | settings
    with pytest.raises(InvalidRequest, match=complaint):
        ChatEndpoint(**given)


@pytest.mark.parametrize(
    "address", ["http://me:{}@host/v1", "https://host/v1?key={}", "http://host/v1#{}"]
)
def test_an_address_with_a_secret_in_it_is_refused_without_saying_it_again(tmp_path, address):
    with pytest.raises(InvalidRequest, match="expected a URL without user, password") as refused:
        ChatEndpoint(address.format("s3cret"), "m", tmp_path / "log", key_variable=None)
    assert "s3cret" not in str(refused.value)


def test_the_whole_address_may_be_given(tmp_path):
    with StandIn() as server:
        whole = f"{server.url}/chat/completions"
        model = ChatEndpoint(whole, "m", tmp_path / "log", key_variable=None)
        assert texts(model.ask(["hello"])) == ["HELLO"]


KILLED = """
import sys
from recombine.live import ChatEndpoint
model = ChatEndpoint(sys.argv[1], "oracle-1", sys.argv[2], key_variable=None, workers=2)
for answer in model.ask([f"word {n}" for n in range(12)]):
    print(answer.text, flush=True)
"""


def test_a_killed_run_keeps_its_answers_and_asks_only_the_others(tmp_path, monkeypatch):
    # A question the dead one had sent may be read by the server later: the key tells whose it is.
    monkeypatch.setenv("SECOND", "second")

    def slow(prompt):
        time.sleep(0.05)
        return prompt.upper()

    with StandIn(slow) as server:
        log = tmp_path / "answers.jsonl"
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, server.url, str(log)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(3)] == [f"WORD {n}\n" for n in range(3)]
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        kept = [w for w in WORDS if model_at(server, tmp_path).kept(w) is not None]
        assert len(kept) >= 3
        again = model_at(server, tmp_path, key_variable="SECOND")
        assert texts(again.ask(WORDS)) == [word.upper() for word in WORDS]
    asked = [
        prompt for prompt, (_, headers, _) in zip(server.prompts, server.requests, strict=True)
        if headers.get("Authorization") == "Bearer second"
    ]  # fmt: skip
    assert sorted(asked) == sorted(set(WORDS) - set(kept))


@pytest.mark.heavy
def test_the_stand_in_speaks_the_protocol_as_the_official_client_knows_it():
    openai = pytest.importorskip(
        "openai", reason="needs the extra 'llm': make test-all installs it"
    )
    with StandIn(lambda prompt: "four it is", faults=[busy(after="0")]) as server:
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=1)
        found = client.chat.completions.create(
            model="oracle-1",
            messages=[{"role": "user", "content": "What is 2 + 2?"}],
            temperature=0,
            max_tokens=2,
            logprobs=True,
        )
        server.unsupported = ("temperature",)
        question = [{"role": "user", "content": "x"}]
        with pytest.raises(openai.BadRequestError, match="temperature"):
            client.chat.completions.create(model="m", messages=question, temperature=0)
    [choice] = found.choices
    assert choice.message.content == "four it" and choice.finish_reason == "length"
    assert [token.logprob for token in choice.logprobs.content] == [-0.5] * 3
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
