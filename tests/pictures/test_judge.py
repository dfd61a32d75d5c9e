"""A judge behind an endpoint: paid for once, asked again when busy, never believed blindly."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image

from recombine.errors import InvalidRequest
from recombine.pictures import JudgeError, Things, VisionJudge, family_named
from recombine.pictures.judge import checked, success

PETS = Things("pets", ("cat", "big dog", "owl"), active=2)
WELL = {"cat": True, "big_dog": True, "owl": False}
VALUES = ("cat", "big dog")


class Endpoint(ThreadingHTTPServer):
    """A server that plays a script of replies, the last one for ever, and remembers requests."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *script):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.requests = list(script), []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), json.loads(body)))
        number = len(self.server.requests) - 1
        self.server.script[min(number, len(self.server.script) - 1)](self)

    def log_message(self, *_):
        pass

    def reply(self, code, body, headers=()):
        self.send_response(code)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def says(answer):
    text = answer if isinstance(answer, str) else json.dumps(answer)
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
    return lambda handler: handler.reply(200, body)


def fails(code, *headers):
    return lambda handler: handler.reply(code, b'{"error": "not now"}', headers)


def hangs(handler):
    time.sleep(1.0)


def drips(handler):
    handler.send_response(200)
    handler.end_headers()
    for _ in range(10):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


def dies_midway(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"mess')


@pytest.fixture
def endpoint():
    started = []

    def start(*script):
        started.append(Endpoint(*script))
        return started[-1]

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


@pytest.fixture
def picture(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    path = tmp_path / "beach.png"
    Image.fromarray(pixels).save(path)
    return Image.open(path)


def judge_at(server, tmp_path, **settings):
    fast = {"pause": 0.001, "key_variable": None, "timeout": 5.0} | settings
    return VisionJudge(server.url, "seer-1", tmp_path / "answers.jsonl", **fast)


def test_an_answer_is_asked_for_with_the_picture_and_a_strict_schema(
    endpoint, picture, tmp_path, monkeypatch
):
    monkeypatch.setenv("SEER_KEY", "s3cret")
    server = endpoint(says(WELL))
    judge = judge_at(server, tmp_path, key_variable="SEER_KEY")
    assert judge(picture, PETS, VALUES) == {"cat": True, "big dog": True, "owl": False}
    [(path, headers, body)] = server.requests
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer s3cret"
    assert body["model"] == "seer-1" and body["temperature"] == 0
    wanted = body["response_format"]["json_schema"]
    assert wanted["strict"] is True and wanted["schema"] == PETS.schema()
    text, shown = body["messages"][0]["content"]
    assert text["text"] == PETS.question()
    sent = Image.open(io.BytesIO(base64.b64decode(shown["image_url"]["url"].partition(",")[2])))
    assert np.array_equal(np.asarray(sent), np.asarray(picture))
    kept = (tmp_path / "answers.jsonl").read_text("utf-8")
    assert "s3cret" not in kept and "s3cret" not in repr(judge)


def test_the_question_does_not_tell_what_was_asked_for(endpoint, picture, tmp_path):
    server = endpoint(says(WELL))
    for number, values in enumerate([("cat", "big dog"), ("owl", "cat")]):
        VisionJudge(server.url, "seer-1", tmp_path / f"{number}", key_variable=None)(
            picture, PETS, values
        )
    assert server.requests[0][2] == server.requests[1][2]


def test_an_answer_paid_for_is_kept_for_the_next_run(endpoint, picture, tmp_path):
    server = endpoint(says(WELL))
    first = judge_at(server, tmp_path)(picture, PETS, VALUES)
    assert judge_at(server, tmp_path)(picture, PETS, VALUES) == first
    assert len(server.requests) == 1


def test_another_picture_question_or_model_is_asked_anew(endpoint, picture, tmp_path):
    server = endpoint(says(WELL))
    judge_at(server, tmp_path)(picture, PETS, VALUES)
    judge_at(server, tmp_path)(picture.transpose(Image.Transpose.ROTATE_90), PETS, VALUES)
    other = VisionJudge(server.url, "seer-2", tmp_path / "answers.jsonl", key_variable=None)
    other(picture, PETS, VALUES)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "trouble", [fails(429), fails(503), dies_midway, fails(429, ("Retry-After", "0"))]
)
def test_trouble_that_passes_is_waited_out(endpoint, picture, tmp_path, trouble):
    server = endpoint(trouble, trouble, says(WELL))
    assert judge_at(server, tmp_path)(picture, PETS, VALUES)["cat"]
    assert len(server.requests) == 3


@pytest.mark.parametrize("trouble", [fails(429), fails(500), hangs, drips, dies_midway])
def test_trouble_that_stays_ends_after_so_many_attempts_and_names_the_picture(
    endpoint, picture, tmp_path, trouble
):
    server = endpoint(trouble)
    judge = judge_at(server, tmp_path, attempts=2, timeout=0.2)
    with pytest.raises(JudgeError, match=r"beach\.png: no answer from .* after 2 attempts"):
        judge(picture, PETS, VALUES)
    assert len(server.requests) == 2
    assert not (tmp_path / "answers.jsonl").exists()


def test_a_refusal_is_not_asked_again(endpoint, picture, tmp_path):
    server = endpoint(fails(401))
    with pytest.raises(JudgeError, match=r"beach\.png: .* refused with HTTP 401"):
        judge_at(server, tmp_path)(picture, PETS, VALUES)
    assert len(server.requests) == 1


def test_a_key_is_not_carried_to_another_address(endpoint, picture, tmp_path, monkeypatch):
    monkeypatch.setenv("SEER_KEY", "s3cret")
    thief = endpoint(says(WELL))
    server = endpoint(fails(302, ("Location", f"{thief.url}/chat/completions")))
    with pytest.raises(JudgeError, match="HTTP 302"):
        judge_at(server, tmp_path, key_variable="SEER_KEY")(picture, PETS, VALUES)
    assert thief.requests == []


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("I see a cat.", "not the JSON asked for"),
        ("", "not the JSON asked for"),
        ("[" * 100_000, "not the JSON asked for"),
        ([True, True, False], "not an object"),
        ({"cat": True}, "lacks 'big_dog', 'owl'"),
        (WELL | {"cat": "yes"}, "'cat' is 'yes'"),
        (WELL | {"dragon": True}, "unknown key 'dragon'"),
    ],
)
def test_nonsense_is_an_error_that_names_it_and_the_picture(
    endpoint, picture, tmp_path, answer, complaint
):
    server = endpoint(says(answer))
    with pytest.raises(JudgeError, match=complaint) as caught:
        judge_at(server, tmp_path)(picture, PETS, VALUES)
    assert "beach.png" in str(caught.value)
    assert not (tmp_path / "answers.jsonl").exists()


def test_an_envelope_without_an_answer_is_nonsense_too(endpoint, picture, tmp_path):
    server = endpoint(lambda handler: handler.reply(200, b"<html>welcome</html>"))
    with pytest.raises(JudgeError, match="<html>welcome</html>"):
        judge_at(server, tmp_path)(picture, PETS, VALUES)


def test_the_cap_on_calls_holds_and_answers_before_it_are_kept(endpoint, picture, tmp_path):
    server = endpoint(says(WELL), fails(500))
    judge = judge_at(server, tmp_path, most_calls=3, attempts=5)
    judge(picture, PETS, VALUES)
    turned = picture.transpose(Image.Transpose.ROTATE_90)
    with pytest.raises(JudgeError, match="3 calls are spent"):
        judge(turned, PETS, VALUES)
    assert len(server.requests) == 3
    assert judge(picture, PETS, VALUES)["cat"]  # from the log, free


def test_a_missing_key_is_named_before_anything_is_sent(endpoint, picture, tmp_path, monkeypatch):
    monkeypatch.delenv("SEER_KEY", raising=False)
    server = endpoint(says(WELL))
    with pytest.raises(InvalidRequest, match="the environment has no SEER_KEY"):
        judge_at(server, tmp_path, key_variable="SEER_KEY")(picture, PETS, VALUES)
    assert server.requests == []


def test_an_endpoint_that_is_no_address_is_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="expected a URL"):
        VisionJudge("api.example.com/v1", "seer-1", tmp_path / "answers.jsonl")


def test_success_needs_every_concept_asked_for_and_no_other():
    seen = {"cat": True, "big dog": True, "owl": False}
    assert success(seen, PETS, VALUES)
    assert not success(seen | {"big dog": False}, PETS, VALUES)
    assert not success(seen | {"owl": True}, PETS, VALUES)
    assert success({"cat": True, "big dog": True}, PETS, VALUES)  # of the owl nothing was said


@pytest.mark.parametrize(
    ("shown", "complaint"),
    [
        (None, "returned None"),
        ({"animal: cat": True}, "says nothing of 'colour: red'"),
        ({"animal: cat": True, "colour: red": 1}, "says 1 of 'colour: red'"),
        ({"animal: cat": True, "colour: red": True, "moon": False}, "'moon', no concept"),
    ],
)
def test_any_judge_is_held_to_the_same_rules(shown, complaint):
    with pytest.raises(JudgeError, match=complaint) as caught:
        checked(shown, family_named("animal-colour"), ("cat", "red"), "beach.png")
    assert str(caught.value).startswith("beach.png: ")
