"""Who says what an image shows: any callable, or a vision model behind an endpoint.

A judge is called with (image, family, values): a PIL image, the family, and the words that were
asked for. It returns which concepts are there, as {concept: bool}. It must tell of every concept
that was asked for; others it may leave out. An image is a success if all concepts asked for are
there and no other was seen.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidRequest, RecombineError
from recombine.lab.answers import AnswerLog, key_of
from recombine.live.client import AskingError, ChatEndpoint
from recombine.pictures.family import PromptFamily

if TYPE_CHECKING:
    from PIL.Image import Image

Judge = Callable[["Image", PromptFamily, Sequence[str]], Mapping[str, bool]]


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

    def __post_init__(self) -> None:
        self._client = ChatEndpoint(
            self.endpoint, self.model, self.log, key_variable=self.key_variable,
            timeout=self.timeout, attempts=self.attempts, pause=self.pause,
            most_calls=self.most_calls, longest=None,
        )  # fmt: skip
        self._log = AnswerLog(self.log)

    @property
    def identity(self) -> str:
        """What makes the answers of two judges comparable."""
        return f"{self.endpoint} {self.model}"

    @property
    def calls(self) -> int:
        """How often the endpoint was asked."""
        return self._client.calls

    def __call__(
        self, image: Image, family: PromptFamily, values: Sequence[str]
    ) -> dict[str, bool]:
        """Which concepts of the family the image shows; `values` are not told to the model."""
        name, question = image_name(image), family.question()
        schema = family.schema()
        key = key_of(image_hash(image), question, schema, self.model)
        answer = self._log.get(key)
        if answer is not None:
            return _heard(answer, family, name)
        wanted = {"name": family.name.replace("-", "_"), "strict": True, "schema": schema}
        further = {"response_format": {"type": "json_schema", "json_schema": wanted}}
        try:
            said = self._client.message(_messages(image, question), name, further)
        except AskingError as error:
            raise JudgeError(str(error)) from error
        answer = _content(said, name)
        shown = _heard(answer, family, name)
        self._log.put(key, answer, {"image": name, "family": family.name, "model": self.model})
        return shown


def _messages(image: Image, question: str) -> list[dict[str, Any]]:
    png = io.BytesIO()
    image.convert("RGB").save(png, "PNG")
    url = "data:image/png;base64," + base64.b64encode(png.getvalue()).decode("ascii")
    content = [
        {"type": "text", "text": question},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    return [{"role": "user", "content": content}]


def _content(said: Mapping[str, Any], image: str) -> Any:
    """The JSON that the model was asked for."""
    if said["content"] is None:
        raise JudgeError(f"{image}: the model refused to answer: {said['refusal']!r}")
    try:
        return json.loads(said["content"])
    except (ValueError, RecursionError) as error:
        raise JudgeError(
            f"{image}: the judge's answer is not the JSON asked for: {said['content'][:300]!r}"
        ) from error


def _heard(answer: Any, family: PromptFamily, image: str) -> dict[str, bool]:
    try:
        return family.heard(answer)
    except InvalidRequest as error:
        raise JudgeError(f"{image}: nonsense from the judge: {error}: {answer!r}") from error
