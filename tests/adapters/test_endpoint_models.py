"""A language model behind an endpoint, asked about records: prompts, cost, cap, resume."""

from __future__ import annotations

import http.server
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.adapters import EndpointModel, checked
from recombine.adapters.endpoints import chosen, columns_of, filled
from recombine.errors import InvalidRequest, UnknownName
from recombine.live import AskingError, ChatEndpoint, Scripted

RECORDS = [{"colour": colour, "n": n} for n, colour in enumerate(["red", "blue", "red", "green"])]


class Server(http.server.ThreadingHTTPServer):
    """Answers with the last word of the prompt; the first so many requests fail.

    A prompt that holds `taboo` is refused by a filter.
    """

    daemon_threads = True

    def __init__(self, broken: int = 0, taboo: str = "\0"):
        super().__init__(("127.0.0.1", 0), Handler)
        self.broken, self.taboo, self.asked = broken, taboo, []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][-1]["content"]
        self.server.asked.append(prompt)
        code, said = 200, {"message": {"content": f"Answer: {prompt.split()[-1]}."}}
        if len(self.server.asked) <= self.server.broken:
            code = 500
        reply = json.dumps({"choices": [said]}).encode()
        if self.server.taboo in prompt:
            code, reply = 400, b'{"error": {"code": "content_filter"}}'
        self.send_response(code)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format, *args):
        pass


def endpoint(server: Server, log, **options) -> ChatEndpoint:
    url = f"http://127.0.0.1:{server.server_port}/v1"
    given = {"attempts": 2, "pause": 0.01, "workers": 1, **options}
    return ChatEndpoint(url, "tiny", log, key_variable=None, **given)


def test_each_record_is_asked_once_and_a_later_run_asks_nothing(tmp_path):
    with Server() as server:
        model = EndpointModel("say {colour}", endpoint(server, tmp_path / "log"))
        assert model.answer(RECORDS) == ["red", "blue", "red", "green"]
        assert server.asked == ["say red", "say blue", "say green"]
        again = EndpointModel("say {colour}", endpoint(server, tmp_path / "log"))
        assert again.answer(RECORDS) == ["red", "blue", "red", "green"]
        assert len(server.asked) == 3
        cost = again.cost([*RECORDS, {"colour": "pink"}])
        assert (cost.questions, cost.answered, cost.to_ask) == (5, 4, 1)


def test_the_cap_holds_and_what_was_answered_is_kept(tmp_path):
    with Server() as server:
        model = EndpointModel("say {n}", endpoint(server, tmp_path / "log", most_calls=2))
        assert model.cost(RECORDS).to_ask == 2
        found = checked(model, RECORDS, batch=1)
        assert str(found.problems[0]).startswith("stopped: question 'say 2': the 2 calls")
        assert found.answers == ["0", "1", None, None] and len(server.asked) == 2
        more = EndpointModel("say {n}", endpoint(server, tmp_path / "log"))
        assert more.answer(RECORDS) == ["0", "1", "2", "3"] and len(server.asked) == 4


def test_a_batch_cut_by_the_cap_keeps_the_answers_that_were_paid_for(tmp_path):
    with Server() as server:
        model = EndpointModel(
            "say {n}", endpoint(server, tmp_path / "log", most_calls=3, workers=3)
        )
        found = checked(model, RECORDS, batch=32)
        assert found.answered == 3 == len(server.asked)
        assert [problem.kind for problem in found.problems] == ["stopped"]
        with pytest.raises(AskingError, match="the 3 calls are spent"):
            model.answer(RECORDS)


def test_a_record_that_the_endpoint_refuses_has_no_answer_and_the_others_do(tmp_path):
    with Server(taboo="blue") as server:
        for _ in range(2):  # the second time from the log
            model = EndpointModel("say {colour}", endpoint(server, tmp_path / "log"))
            found = checked(model, RECORDS)
            assert found.answers == ["red", None, "red", "green"] and len(server.asked) == 3
            assert [problem.kind for problem in found.problems] == ["refused"]
            assert str(found.problems[0]).startswith("record 2: refused with HTTP 400: ")


DYING = """
import os
from recombine.adapters import EndpointModel
from recombine.live import ChatEndpoint
class Dying(EndpointModel):
    def answer(self, records):
        found = super().answer(records)
        if any(record["n"] % 3 == 0 for record in records):
            os._exit(3)
        return found
def model():
    chat = ChatEndpoint({url!r}, "tiny", {log!r}, key_variable=None, most_calls=10, workers=1)
    return Dying("say {{n}}", chat)
"""


def test_the_cap_holds_however_often_the_process_dies(tmp_path):
    with Server() as server:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        adapter = tmp_path / "mine.py"
        adapter.write_text(DYING.format(url=url, log=str(tmp_path / "log")), "utf-8")
        found = checked(f"{adapter}:model", [{"n": n} for n in range(20)], batch=2)
        assert len(server.asked) == 10 and found.problems[-1].kind == "stopped"
        assert [n for n, a in enumerate(found.answers) if a is not None] == [1, 2, 4, 5, 7, 8]
        # Another command begins anew.
        checked(f"{adapter}:model", [{"n": n} for n in range(20)], batch=2)
        assert len(server.asked) == 20


def test_an_endpoint_that_fails_is_asked_again_and_then_given_up(tmp_path):
    with Server(broken=1) as server:
        model = EndpointModel("say {colour}", endpoint(server, tmp_path / "a"))
        assert model.answer(RECORDS[:1]) == ["red"] and len(server.asked) == 2
    with Server(broken=99) as server:
        model = EndpointModel("say {colour}", endpoint(server, tmp_path / "b"))
        with pytest.raises(AskingError, match="no answer from"):
            model.answer(RECORDS)
        assert len(server.asked) == 2


def test_the_price_is_that_of_the_tokens():
    script = Scripted(str.upper, identity="script")
    model = EndpointModel(
        "say {colour}", script, choices=["red", "blue"], price_in=1e6, price_out=2e6
    )
    cost = model.cost([{"colour": "red"}, {"colour": "blue"}])
    # "say red" is 2 tokens of 4 characters, "say blue" 2; each choice is at most 1.
    assert (cost.tokens_in, cost.tokens_out) == (4, 2) and cost.price == 4 + 2 * 2
    assert not model.free and EndpointModel("x", script).free


def test_choices_are_found_in_what_is_said():
    said = {
        "a": "I think it is **Red**.",
        "b": "light red",
        "c": "red or blue",
        "d": "Answer: blue",
    }
    script = Scripted(lambda prompt: said[prompt], identity="script")
    model = EndpointModel("{key}", script, choices=["red", "light red", "blue"])
    answers = model.answer([{"key": key} for key in said])
    assert answers == ["red", "light red", "red or blue", "blue"]
    assert chosen("infrared", ["red"]) is None and chosen("RED", ["red", "red wine"]) == "red"


@given(st.text(), st.lists(st.text(), max_size=3))
def test_what_a_column_holds_is_put_in_as_it_is(value, several):
    prompt = filled("<{a}|{b}> {{c}}", {"a": value, "b": several})
    assert prompt == f"<{value}|{', '.join(several)}> {{c}}"


@pytest.mark.parametrize(
    "prompt", ["{colour.__class__}", "{0[a]}", "{}", "{a!r}", "{a:>9}", "{a", "a}"]
)
def test_a_prompt_may_name_columns_and_nothing_else(prompt):
    with pytest.raises(InvalidRequest, match="prompt"):
        columns_of(prompt)


def test_a_column_that_does_not_exist_is_named_with_the_nearest():
    with pytest.raises(UnknownName, match="column of record 1 'color': did you mean 'colour'"):
        EndpointModel("{color}", Scripted(str.upper, identity="s")).answer(RECORDS)
