"""One request to an endpoint: what came back, or what went wrong and whether to try again."""

from __future__ import annotations

import http.client
import json
import re
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
        opener = urllib.request.build_opener(_NoRedirect)
        with opener.open(request, timeout=timeout) as reply:
            return _message(_read_all(reply, time.monotonic() + timeout))
    except urllib.error.HTTPError as error:
        with error:
            if error.code in (408, 429) or error.code >= 500:
                raise Trouble(f"HTTP {error.code}", _retry_after(error)) from None
            raise Refused(error.code, _said(error)) from None
    except (OSError, http.client.HTTPException) as error:
        raise Trouble(str(getattr(error, "reason", "") or error or type(error))) from None


def _read_all(reply: Any, deadline: float) -> bytes:
    """The whole reply: an endpoint that drips may neither hold us for ever nor fill the memory."""
    parts, size = [], 0
    while part := reply.read1(65536):
        parts.append(part)
        size += len(part)
        if size > LARGEST or time.monotonic() > deadline:
            raise TimeoutError(f"the answer is too long or too slow ({size} bytes so far)")
    if reply.length:  # closed before all that was promised had come
        raise http.client.IncompleteRead(b"".join(parts), reply.length)
    return b"".join(parts)


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
    try:
        return error.read(4096).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return ""


def _retry_after(error: urllib.error.HTTPError) -> float:
    try:
        return min(LONGEST_PAUSE, max(0.0, float(error.headers.get("Retry-After", 0))))
    except ValueError:  # a date; our own pause will do
        return 0.0
