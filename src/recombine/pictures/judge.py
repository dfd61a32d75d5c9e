"""Who says what an image shows: any callable, or a vision model behind an endpoint.

A judge is called with (image, family, values): a PIL image, the family, and the words that were
asked for. It returns which concepts are there, as {concept: bool}. It must tell of every concept
that was asked for; others it may leave out. An image is a success if all concepts asked for are
there and no other was seen.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import json
import os
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidRequest, RecombineError
from recombine.pictures.answers import AnswerLog
from recombine.pictures.family import PromptFamily

if TYPE_CHECKING:
    from PIL.Image import Image

Judge = Callable[["Image", PromptFamily, Sequence[str]], Mapping[str, bool]]

LARGEST = 1 << 20  # bytes of an answer; a schema's answer has a few hundred
LONGEST_PAUSE = 60.0


class JudgeError(RecombineError):
    """A judge did not answer, or answered nonsense; answers before it are kept."""


def checked(shown: Any, family: PromptFamily, values: Sequence[str], image: str) -> dict[str, bool]:
    """A judge's answer, or a JudgeError that names what is wrong with it and the image."""
    if not isinstance(shown, Mapping):
        raise JudgeError(f"{image}: the judge returned {shown!r}, expected {{concept: bool}}")
    for concept, there in shown.items():
        if concept not in family.concepts:
            raise JudgeError(f"{image}: the judge names {concept!r}, no concept of {family.name!r}")
        if not isinstance(there, bool):
            raise JudgeError(f"{image}: the judge says {there!r} of {concept!r}, expected a bool")
    if missing := sorted(family.wanted(values) - shown.keys()):
        raise JudgeError(f"{image}: the judge says nothing of {missing[0]!r}, which was asked for")
    return dict(shown)


def success(shown: Mapping[str, bool], family: PromptFamily, values: Sequence[str]) -> bool:
    """Whether an image shows what was asked for and nothing else of its family."""
    return {concept for concept, there in shown.items() if there} == family.wanted(values)


def image_name(image: Image) -> str:
    """What to call an image in an error: its file, if it was read from one."""
    return str(getattr(image, "filename", "") or "the image")


def image_hash(image: Image) -> str:
    """The SHA-256 of the pixels, whatever file format they came in."""
    plain = image.convert("RGB")
    return hashlib.sha256(repr(plain.size).encode() + plain.tobytes()).hexdigest()


@dataclass
class VisionJudge:
    """A vision model behind an endpoint that speaks OpenAI's chat completions.

    `endpoint` is the part before `/chat/completions`. The key is read from the environment when a
    question is asked, and written nowhere; `key_variable=None` sends none. Every accepted answer
    is appended to `log` before it is used and never paid for again. `most_calls` bounds what one
    judge may ask in its life, retries included.

        VisionJudge("https://api.example.com/v1", "some-model", log="answers.jsonl")
    """

    endpoint: str
    model: str
    log: str | Path
    key_variable: str | None = "OPENAI_API_KEY"
    timeout: float = 60.0
    attempts: int = 5
    pause: float = 1.0
    most_calls: int | None = None
    calls: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequest(
                f"endpoint {self.endpoint!r}: expected a URL such as https://api.example.com/v1"
            )
        if self.attempts < 1 or self.timeout <= 0:
            raise InvalidRequest(
                f"attempts={self.attempts}, timeout={self.timeout}: expected at least 1, over 0"
            )
        self._log = AnswerLog(self.log)
        # An endpoint that redirects elsewhere would be handed the key.
        self._opener = urllib.request.build_opener(_NoRedirect)

    @property
    def identity(self) -> str:
        """What makes the answers of two judges comparable."""
        return f"{self.endpoint} {self.model}"

    def __call__(
        self, image: Image, family: PromptFamily, values: Sequence[str]
    ) -> dict[str, bool]:
        """Which concepts of the family the image shows; `values` are not told to the model."""
        name, question = image_name(image), family.question()
        schema = family.schema()
        key = hashlib.sha256(
            json.dumps([image_hash(image), question, schema, self.model]).encode()
        ).hexdigest()
        answer = self._log.get(key)
        if answer is not None:
            return _heard(answer, family, name)
        answer = _content(
            self._asked(_body(self.model, image, question, schema, family), name), name
        )
        shown = _heard(answer, family, name)
        self._log.put(key, answer, {"image": name, "family": family.name, "model": self.model})
        return shown

    def _asked(self, body: bytes, image: str) -> bytes:
        """The endpoint's reply, asked for again while it is busy, broken or silent."""
        headers = {"Content-Type": "application/json"} | self._authorization()
        url = self.endpoint.rstrip("/") + "/chat/completions"
        trouble, wait = "", 0.0
        for attempt in range(self.attempts):
            if attempt:
                time.sleep(max(wait, self._backoff(attempt)))
            if self.most_calls is not None and self.calls >= self.most_calls:
                raise JudgeError(
                    f"{image}: the judge's {self.most_calls} calls are spent; answers so far are "
                    f"kept in {self.log}: raise most_calls and run again to continue"
                )
            self.calls += 1
            request = urllib.request.Request(url, data=body, headers=headers, method="POST")
            try:
                with self._opener.open(request, timeout=self.timeout) as reply:
                    return _read_all(reply, time.monotonic() + self.timeout)
            except urllib.error.HTTPError as error:
                with error:
                    trouble, wait = f"HTTP {error.code}", _retry_after(error)
                    if error.code != 429 and error.code < 500:
                        said = error.read(300).decode("utf-8", "replace")
                        raise JudgeError(
                            f"{image}: {url} refused with HTTP {error.code}: {said!r}"
                        ) from None
            except (OSError, http.client.HTTPException) as error:
                trouble, wait = str(getattr(error, "reason", "") or error or type(error)), 0.0
        raise JudgeError(
            f"{image}: no answer from {url} after {self.attempts} attempts (the last: {trouble}); "
            f"answers so far are kept in {self.log}: run again to continue"
        )

    def _authorization(self) -> dict[str, str]:
        if self.key_variable is None:
            return {}
        if not (key := os.environ.get(self.key_variable, "")):
            raise InvalidRequest(
                f"the environment has no {self.key_variable}: export it, or pass "
                "key_variable=None for an endpoint without a key"
            )
        return {"Authorization": f"Bearer {key}"}

    def _backoff(self, attempt: int) -> float:
        # Jitter, so that many judges that failed together do not come back together.
        return min(LONGEST_PAUSE, self.pause * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


def _body(
    model: str, image: Image, question: str, schema: dict[str, Any], family: PromptFamily
) -> bytes:
    png = io.BytesIO()
    image.convert("RGB").save(png, "PNG")
    url = "data:image/png;base64," + base64.b64encode(png.getvalue()).decode("ascii")
    content = [
        {"type": "text", "text": question},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    wanted = {"name": family.name.replace("-", "_"), "strict": True, "schema": schema}
    return json.dumps(
        {
            "model": model,
            "temperature": 0,
            "messages": [{"role": "user", "content": content}],
            "response_format": {"type": "json_schema", "json_schema": wanted},
        }
    ).encode()


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


def _content(reply: bytes, image: str) -> Any:
    """What the model said, out of the endpoint's envelope."""
    try:
        message = json.loads(reply)["choices"][0]["message"]
        said = message["content"]
        if said is None:
            raise JudgeError(f"{image}: the model refused to answer: {message.get('refusal')!r}")
        return json.loads(said)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        shown = reply[:300].decode("utf-8", "replace")
        raise JudgeError(f"{image}: the judge's answer is not the JSON asked for: {shown!r}") from (
            error
        )


def _heard(answer: Any, family: PromptFamily, image: str) -> dict[str, bool]:
    try:
        return family.heard(answer)
    except InvalidRequest as error:
        raise JudgeError(f"{image}: nonsense from the judge: {error}: {answer!r}") from error


def _retry_after(error: urllib.error.HTTPError) -> float:
    try:
        return min(LONGEST_PAUSE, max(0.0, float(error.headers.get("Retry-After", 0))))
    except ValueError:  # a date; our own pause will do
        return 0.0
