"""Who can be asked: the one protocol of endpoints, local models and scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Progress = Callable[[int, int], None]  # (answered so far, of so many)


@dataclass(frozen=True)
class Answer:
    """What a model said.

    `log_probability` is of the whole answer, where the model tells it; `cut` says that the answer
    ended because it was too long; `refusal` is the model's own word for not answering.
    """

    text: str
    log_probability: float | None = None
    cut: bool = False
    refusal: str = ""


@runtime_checkable
class Model(Protocol):
    """Anything that can be asked: answers come one by one, in the order of the prompts.

    `identity` is what makes the answers of two models comparable. `free` is False where asking
    costs money. A model may also have `log_probability(texts) -> list[float]`.
    """

    @property
    def identity(self) -> str: ...

    @property
    def free(self) -> bool: ...

    def ask(self, prompts: Sequence[str], progress: Progress | None = None) -> Iterator[Answer]: ...


@runtime_checkable
class Keeping(Model, Protocol):
    """A model that keeps its answers in a log."""

    def kept(self, prompt: str) -> Answer | None: ...
