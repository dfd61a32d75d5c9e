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
    """Answers with the last word of the prompt; the first so many requests fail."""

    daemon_threads = True

    def __init__(self, broken: int = 0):
        super().__init__(("127.0.0.1", 0), Handler)
        self.broken, self.asked = broken, []
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
