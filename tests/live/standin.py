"""A small server that speaks OpenAI's chat completions, answers by a script and fails on demand.

    with StandIn(lambda prompt: prompt.upper(), faults=[busy(after="0"), garbage]) as server:
        ...  # the first request gets HTTP 429, the second garbage, all others an answer

A fault is a function of the request's handler. `always` is one for every request, `by_prompt` one
for every request of a prompt. `unsupported` names fields that are refused as OpenAI's newer models
refuse them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = Callable[["Handler"], None]


class StandIn(ThreadingHTTPServer):
    """Starts at once; remembers every request (`requests`) and every answer given (`answered`)."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        answer: Callable[[str], Any] = str.upper,
        faults: Sequence[Fault] = (),
        *,
        always: Fault | None = None,
        by_prompt: Mapping[str, Fault] | None = None,
        unsupported: Sequence[str] = (),
    ):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.faults, self.always = answer, list(faults), always
        self.by_prompt, self.unsupported = dict(by_prompt or {}), tuple(unsupported)
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.answered: list[str] = []
        self.lock = threading.Lock()
        self.closing = threading.Event()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def prompts(self) -> list[str]:
        """What was asked, request by request."""
        return [body["messages"][-1]["content"] for _, _, body in self.requests]

    def handle_error(self, request, client_address):
        """A client that gave up is no error of the server's."""

    def __exit__(self, *_) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][-1]["content"]
        with self.server.lock:
            self.server.requests.append((self.path, dict(self.headers), body))
            fault = self.server.faults.pop(0) if self.server.faults else None
        fault = fault or self.server.by_prompt.get(prompt) or self.server.always
        if fault is not None:
            fault(self)
            return
        for name in self.server.unsupported:
            if name in body:
                self.refuse(name)
                return
        with self.server.lock:
            self.server.answered.append(prompt)
        self.complete(body, self.server.answer(prompt))

    def complete(self, body: dict[str, Any], said: Any) -> None:
        """The whole envelope; None is a refusal, and a word counts as a token."""
        most = body.get("max_tokens", body.get("max_completion_tokens"))
        tokens = [] if said is None else said.split(" ")
        cut = most is not None and len(tokens) > most
        logprobs = None
        if body.get("logprobs"):
            each = [
                {"token": t, "logprob": -0.5, "bytes": None, "top_logprobs": []} for t in tokens
            ]
            logprobs = {"content": each, "refusal": None}
        message = {
            "role": "assistant",
            "content": None if said is None else " ".join(tokens[:most]),
            "refusal": "I would rather not." if said is None else None,
        }
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "length" if cut else "stop",
            "logprobs": logprobs,
        }
        asked = len(str(body["messages"])) // 4
        usage = {"prompt_tokens": asked, "completion_tokens": len(tokens)}
        usage["total_tokens"] = sum(usage.values())
        document = {
            "id": f"chatcmpl-{len(self.server.requests)}",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
        }
        self.reply(200, json.dumps(document).encode())

    def refuse(self, name: str) -> None:
        said = f"Unsupported parameter: '{name}' is not supported with this model."
        error = {"message": said, "type": "invalid_request_error", "param": name}
        self.reply(400, json.dumps({"error": error}).encode())

    def reply(self, code: int, body: bytes, headers: Sequence[tuple[str, str]] = ()) -> None:
        self.send_response(code)
        for name, value in (*headers, ("Content-Type", "application/json")):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


def fails(code: int, *headers: tuple[str, str]) -> Fault:
    """An HTTP error."""
    return lambda handler: handler.reply(code, b'{"error": {"message": "not now"}}', headers)


def busy(after: str | None = None) -> Fault:
    """HTTP 429, with or without `Retry-After`."""
    return fails(429, *([("Retry-After", after)] if after is not None else []))


def garbage(handler: Handler) -> None:
    """A page of a proxy where a completion should be."""
    handler.reply(200, b"<html>welcome</html>")


def wrong_schema(handler: Handler) -> None:
    """JSON, but of another protocol."""
    handler.reply(200, b'{"choices": [{"message": {"content": {"text": 1}}}]}')


def filtered(**content: str | None) -> Fault:
    """A completion that a filter stopped: with a part of its content, with none, or without it."""
    message = {"role": "assistant", **content}
    choice = {"index": 0, "message": message, "finish_reason": "content_filter"}
    return lambda handler: handler.reply(200, json.dumps({"choices": [choice]}).encode())


def hangs(handler: Handler) -> None:
    """Never answers."""
    handler.server.closing.wait(30)


def drips(handler: Handler) -> None:
    """Sends a byte now and then, so that no single read takes long."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.closing.wait(0.05):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def drips_head(handler: Handler) -> None:
    """Sends the head of its reply byte by byte, so that there is no body yet to wait for."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.server.closing.wait(0.05):
        handler.wfile.write(b"x")


def drops(handler: Handler) -> None:
    """Closes the connection without a word."""
    handler.connection.close()


def dies_midway(handler: Handler) -> None:
    """Promises more than it sends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"mess')
