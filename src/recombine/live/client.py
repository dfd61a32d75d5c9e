"""A language model behind an endpoint that speaks OpenAI's chat completions."""

from __future__ import annotations

import math
import os
import random
import threading
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from recombine.errors import InvalidRequest, RecombineError
from recombine.lab.answers import AnswerLog, key_of
from recombine.live.model import Answer, Progress, is_answer
from recombine.live.wire import LONGEST_PAUSE, Refused, Trouble, post

PATH = "/chat/completions"
DAY = 86_400  # seconds; a socket does not wait much longer
TURNED_AWAY = 20  # questions in a row that the endpoint refuses, after which no more are asked
TALLY = "RECOMBINE_TALLY"  # the folder in which processes that follow one another count calls


class AskingError(RecombineError):
    """A model did not answer; answers before it are kept."""


class CallsSpent(AskingError):
    """The cap on calls was reached; answers before it are kept."""


class TurnedAway(AskingError):
    """The endpoint refused a question for its text: a filter, or its length. Others may pass."""

    def __init__(self, message: str, refusal: str):
        super().__init__(message)
        self.refusal = refusal


@dataclass
class ChatEndpoint:
    """A model behind an endpoint; every answer is kept in `log` before it is used.

    `endpoint` is the part before `/chat/completions`. The key is read from the environment when a
    question is asked, and written nowhere; `key_variable=None` sends none. An answer in the log is
    never paid for again, and a question that the endpoint refuses for its text is kept as a
    refusal. `most_calls` bounds what one object may ask in its life, retries included, and in an
    adapter what one command may ask, however often its process starts again. `longest` is the most
    tokens of an answer; `logprobs` asks for their probabilities.

        model = ChatEndpoint("https://api.example.com/v1", "some-model", log="answers.jsonl")
        for answer in model.ask(["What is 2 + 2?"]):
            print(answer.text)
    """

    endpoint: str
    model: str
    log: str | Path
    key_variable: str | None = "OPENAI_API_KEY"
    timeout: float = 120.0
    attempts: int = 5
    pause: float = 1.0
    most_calls: int | None = None
    workers: int = 4
    longest: int | None = 1024
    logprobs: bool = False
    calls: int = field(default=0, init=False)
    notes: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        _check_address(self.endpoint)
        for name in ("attempts", "workers", "most_calls", "longest"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(f"{name}={value}: expected at least 1")
        if not 0 < self.timeout <= DAY:  # nor NaN
            raise InvalidRequest(
                f"timeout={self.timeout}: expected more than 0 seconds, {DAY} at most"
            )
        self.endpoint = self.endpoint.rstrip("/").removesuffix(PATH)
        self._lock = threading.Lock()
        self._refused = self._answered = 0  # refused in a row, and answered in all
        # Parameters that some servers know by another name or not at all: learned from refusals.
        self._names = {"temperature": "temperature", "max_tokens": "max_tokens"}
        self._names |= {"logprobs": "logprobs"} if self.logprobs else {}

    @cached_property
    def _log(self) -> AnswerLog:
        # Not before an answer is looked for: who calls `message` alone keeps a log of another form.
        return AnswerLog(self.log, is_answer)

    @property
    def identity(self) -> str:
        """What makes the answers of two models comparable."""
        return f"{self.endpoint} {self.model}"

    @property
    def free(self) -> bool:
        """Whether no key is sent: a server of one's own."""
        return self.key_variable is None

    def kept(self, prompt: str) -> Answer | None:
        """The answer already in the log, or None."""
        found = self._log.get(self._key(prompt))
        return None if found is None else Answer(**found)

    def ask(self, prompts: Sequence[str], progress: Progress | None = None) -> Iterator[Answer]:
        """Answers in the order of the prompts, `workers` at a time.

        The first question without an answer ends it with an AskingError, after those under way
        have been kept. One that the endpoint refuses for its text is answered by that refusal,
        unless 20 are refused in a row, or as many as were answered before if these are more.
        """
        pool, run, wait = ThreadPoolExecutor(self.workers), _Run(), True
        waiting: dict[str, Future[Answer]] = {}
        try:
            for prompt in dict.fromkeys(prompts):  # the same question is not paid for twice
                if self.kept(prompt) is None:
                    waiting[prompt] = pool.submit(self._answer, prompt, run)
            for number, prompt in enumerate(prompts, 1):
                answer = waiting[prompt].result() if prompt in waiting else self.kept(prompt)
                assert answer is not None
                if progress:
                    progress(number, len(prompts))
                yield answer
        except RecombineError as error:
            raise run.cause or error from None  # not of those that only stopped because of it
        except (KeyboardInterrupt, SystemExit):
            wait = False
            raise
        finally:
            run.stop.set()
            pool.shutdown(wait=wait, cancel_futures=True)

    def message(
        self,
        messages: Sequence[Mapping[str, Any]],
        about: str,
        further: Mapping[str, Any] | None = None,
        stop: threading.Event | None = None,
    ) -> dict[str, Any]:
        """The endpoint's reply to any messages, asked for again while it is busy or broken.

        `about` opens every error; `further` are further fields of the request; `stop` ends the
        waiting. Nothing is kept: that is for the caller, who knows whether the reply makes sense.
        """
        headers, url = self._authorization(), self.endpoint + PATH
        stop = stop or threading.Event()
        trouble: Trouble | None = None
        attempt = 0
        while attempt < self.attempts:
            if trouble:
                stop.wait(max(trouble.wait, self._backoff(attempt)))
            if stop.is_set():
                raise AskingError(f"{about}: stopped; answers so far are kept in {self.log}")
            self._count(about)
            sent = dict(self._names)
            values = {"temperature": 0, "max_tokens": self.longest, "logprobs": True}
            body = {"model": self.model, "messages": list(messages), **(further or {})}
            body |= {sent[n]: v for n, v in values.items() if n in sent and v is not None}
            try:
                return post(url, body, headers, self.timeout)
            except Refused as refusal:
                if not self._adapted(refusal, sent):
                    said = f"{about}: {url} {refusal}"
                    if refusal.of_text:
                        raise TurnedAway(said, str(refusal)) from None
                    raise AskingError(said + self._about_the_key(refusal)) from None
            except Trouble as found:
                trouble = found
                attempt += 1
        raise AskingError(
            f"{about}: no answer from {url} after {self.attempts} attempts (the last: {trouble}); "
            f"answers so far are kept in {self.log}: run again to continue"
        )

    def _answer(self, prompt: str, run: _Run) -> Answer:
        try:
            answer = self._said(prompt, run)
            about = {"model": self.model, "prompt": prompt}
            self._log.put(self._key(prompt), asdict(answer), about)
            self._bear(answer)
            return answer
        except RecombineError as error:
            with self._lock:
                run.cause = run.cause or error
            run.stop.set()  # the others need not wait for what will not come
            raise

    def _said(self, prompt: str, run: _Run) -> Answer:
        messages = [{"role": "user", "content": prompt}]
        try:
            said = self.message(messages, f"question {prompt[:40]!r}", stop=run.stop)
        except TurnedAway as error:
            return Answer("", refusal=error.refusal)
        return Answer(
            said["content"] or "",
            _log_probability(said["logprobs"]),
            said["finish_reason"] == "length",
            str(said["refusal"] or ""),
        )

    def _bear(self, answer: Answer) -> None:
        """Ends the asking after too many refusals in a row: then it is not the texts."""
        with self._lock:
            self._answered += not answer.turned_away
            self._refused = self._refused + 1 if answer.turned_away else 0
            if self._refused >= max(TURNED_AWAY, self._answered):
                raise AskingError(
                    f"{self.endpoint + PATH} refused {self._refused} questions in a row (the last: "
                    f"{answer.refusal}); the refusals are kept in {self.log}: run again to go on "
                    "with other questions, or remove it to ask these again"
                )

    def _key(self, prompt: str) -> str:
        return key_of(self.model, prompt, self.longest, self.logprobs)

    def _count(self, about: str) -> None:
        with self._lock:
            spent = max(self.calls, self._tallied())
            if self.most_calls is not None and spent >= self.most_calls:
                raise CallsSpent(
                    f"{about}: the {self.most_calls} calls are spent; answers so far are kept in "
                    f"{self.log}: raise most_calls or run again to continue"
                )
            self.calls += 1
            if tally := self._tally:  # before it is sent: who dies of the answer has paid for it
                with tally.open("ab") as file:
                    file.write(b".")

    @cached_property
    def _tally(self) -> Path | None:
        """A file with one byte for each call, where a process is started again when it dies."""
        folder = os.environ.get(TALLY)
        if folder is None or self.most_calls is None:
            return None
        return Path(folder, f"{key_of(self.endpoint, self.model, str(self.log))}.calls")

    def _tallied(self) -> int:
        return self._tally.stat().st_size if self._tally and self._tally.exists() else 0

    def _adapted(self, refusal: Refused, sent: Mapping[str, str]) -> bool:
        """Whether a refusal names a parameter that can be renamed or left out: then try again."""
        if refusal.code not in (400, 422):
            return False
        # The bound on the length may change its name, but is never left out: it bounds the price.
        named = [name for name, told in sent.items() if told in refusal.said]
        if not named or sent[named[0]] == "max_completion_tokens":
            return False
        name = named[0]
        with self._lock:
            if self._names.get(name) == sent[name]:  # not yet mended by another thread
                if name == "max_tokens":
                    self._names[name] = "max_completion_tokens"
                else:
                    del self._names[name]
                    self.notes.append(f"The endpoint does not take {name!r}: it was left out.")
        return True

    def _about_the_key(self, refusal: Refused) -> str:
        """What to look at where an endpoint does not know who asks, or does not let them."""
        if refusal.code not in (401, 403):
            return ""
        if self.key_variable is None:
            return "; no key was sent: name the variable that holds one with key_variable"
        return f"; check the key in {self.key_variable}, and that it may use {self.model}"

    def _authorization(self) -> dict[str, str]:
        if self.key_variable is None:
            return {}
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            raise InvalidRequest(
                f"the environment has no {self.key_variable}: export it, or pass "
                "key_variable=None for an endpoint without a key"
            )
        if not (key.isascii() and key.isprintable()):
            raise InvalidRequest(f"{self.key_variable} holds characters that no key has")
        return {"Authorization": f"Bearer {key}"}

    def _backoff(self, attempt: int) -> float:
        # Jitter, so that many that failed together do not come back together.
        return min(LONGEST_PAUSE, self.pause * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)


@dataclass
class _Run:
    """What the threads of one `ask` share."""

    stop: threading.Event = field(default_factory=threading.Event)
    cause: RecombineError | None = None


def _check_address(endpoint: str) -> None:
    """Refuses what is no address, and one with a secret in it: pages show it, and say it again."""
    try:
        parts = urllib.parse.urlsplit(endpoint)
        well = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")
        # Other letters and blanks cannot be sent: they are written with % there.
        well = well and parts.path.isascii() and endpoint.split() == [endpoint]
    except ValueError:  # such as a port that is no number, or a name too long to be one
        parts, well = None, False
    if parts and (parts.username is not None or parts.query or parts.fragment):
        raise InvalidRequest(
            f"endpoint '{parts.scheme}://{parts.hostname}...': expected a URL without user, "
            "password, ? and #; a key belongs in the environment variable of key_variable"
        )
    if not well:
        raise InvalidRequest(
            f"endpoint {endpoint!r}: expected a URL such as https://api.example.com/v1"
        )


def _log_probability(logprobs: Any) -> float | None:
    """The sum over an answer's tokens, where the endpoint tells all of them."""
    try:
        total = math.fsum(float(token["logprob"]) for token in logprobs["content"])
    except (KeyError, TypeError, ValueError):
        return None
    return total if math.isfinite(total) else None
