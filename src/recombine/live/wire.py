"""One request to an endpoint: what came back, or what went wrong and whether to try again."""

from __future__ import annotations

import http.client
import io
import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from recombine.live.model import TURNED_AWAY

LARGEST = 1 << 24  # bytes of a reply; log-probabilities take some hundred thousand
LONGEST_PAUSE = 60.0
FILTERED = "content_filter"  # the reason to finish of an answer that was withheld
SHOWN = 300  # characters of a reply that an error quotes
TOO_LARGE, UNPROCESSABLE = 413, 422
# What endpoints say of a text they will not have or cannot hold. Any other HTTP 400 is about how
# we ask, and so about every question.
_OF_TEXT = re.compile(
    r"content.?(filter|polic|management|moderation)|moderation|safety|flagged|responsible.?ai"
    r"|context.?length|context.?window|too long|too many tokens|too large|string_above_max",
    re.IGNORECASE,
)
_OF_REQUEST = re.compile(
    r"temperature|max_tokens|max_completion_tokens|logprobs|response_format"
    r"|model.?not.?found|[\"']model[\"']",
    re.IGNORECASE,
)


class Trouble(Exception):
    """An endpoint that is busy, broken or silent: worth another attempt after `wait` seconds."""

    def __init__(self, message: str, wait: float = 0.0):
        super().__init__(message)
        self.wait = wait


class Refused(Exception):
    """An endpoint that will not answer this request, however often it is asked."""

    def __init__(self, code: int, said: str):
        super().__init__(f"{TURNED_AWAY} {code}: {said[:SHOWN]!r}")
        self.code, self.said = code, said

    @property
    def of_text(self) -> bool:
        """Whether it is this text that is refused, so that others may be answered."""
        if self.code == TOO_LARGE:
            return True
        if _OF_REQUEST.search(self.said):
            return False
        return self.code == UNPROCESSABLE or (self.code == 400 and bool(_OF_TEXT.search(self.said)))


class _UntilTime(io.RawIOBase):
    """What comes from a socket until the time allowed is over, however little comes at once."""

    def __init__(self, source: socket.socket):
        self._socket, self._file = source, source.makefile("rb", buffering=0)
        self._deadline = time.monotonic() + (source.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Reply(http.client.HTTPResponse):
    # By itself a socket limits only each single wait: a drip would hold us for ever, in the head
    # of a reply as well as in its body.
    def __init__(self, sock: socket.socket, *rest: Any, **named: Any):
        super().__init__(sock, *rest, **named)
        self.fp.close()
        self.fp = io.BufferedReader(_UntilTime(sock))


class _Plain(http.client.HTTPConnection):
    response_class = _Reply


class _Secure(http.client.HTTPSConnection):
    response_class = _Reply


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Plain, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Secure, req)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    # An endpoint that redirects elsewhere would be handed the key.
    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


def post(
    url: str, body: Mapping[str, Any], headers: Mapping[str, str], timeout: float
) -> dict[str, Any]:
    """The message a chat completion holds, with its `finish_reason` and `logprobs` beside it.

    An answer that a filter withheld is a refusal, whether or not it has a word for it.
    """
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers}
    )
    try:
        opener = urllib.request.build_opener(_NoRedirect, _Http, _Https)
        with opener.open(request, timeout=timeout) as reply:
            return _message(_read_all(reply))
    except urllib.error.HTTPError as error:
        with error:
            if error.code in (408, 429) or error.code >= 500:
                raise Trouble(f"HTTP {error.code}", _retry_after(error)) from None
            raise Refused(error.code, _said(error)) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", "") or error
        if isinstance(reason, TimeoutError):
            reason = f"no whole answer in {timeout:g} s"
        raise Trouble(str(reason) or str(type(error))) from None


def _read_all(reply: Any) -> bytes:
    """The whole reply, unless it would fill the memory."""
    whole = reply.read(LARGEST + 1)
    if len(whole) > LARGEST:
        raise OSError(f"the answer is longer than {LARGEST} bytes")
    if reply.length:  # closed before all that was promised had come
        raise http.client.IncompleteRead(whole, reply.length)
    return whole


def _message(reply: bytes) -> dict[str, Any]:
    """What the model said, out of the endpoint's envelope."""
    try:
        choice = json.loads(reply)["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        # A filter may take the whole content away, with the field or without it.
        filtered = FILTERED if finish == FILTERED else None
        content = message.get("content") if filtered else message["content"]
        if not (content is None or isinstance(content, str)):
            raise TypeError
        return {
            "content": content,
            "refusal": message.get("refusal") or filtered,
            "finish_reason": finish,
            "logprobs": choice.get("logprobs"),
        }
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        shown = reply[:SHOWN].decode("utf-8", "replace")
        raise Trouble(f"not a chat completion: {shown!r}") from None


def _said(error: urllib.error.HTTPError) -> str:
    if 300 <= error.code < 400:
        return f"it leads to {error.headers.get('Location')}, where nobody is sent"
    try:
        return error.read(4096).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return ""


def _retry_after(error: urllib.error.HTTPError) -> float:
    try:
        return min(LONGEST_PAUSE, max(0.0, float(error.headers.get("Retry-After", 0))))
    except ValueError:  # a date; our own pause will do
        return 0.0
