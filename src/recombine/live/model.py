"""Who can be asked: the one protocol of endpoints, local models and scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from recombine.families._sequence import Item, SequenceFamily

Progress = Callable[[int, int], None]  # (answered so far, of so many)
TURNED_AWAY = "refused with HTTP"  # how the refusal of an endpoint begins
# Some templates open the thoughts in the prompt; a bound on the length may leave them open.
_THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)|\A(?:(?!<think>).)*</think>", re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """What a model said.

    `log_probability` is of the whole answer, where the model tells it; `cut` says that the answer
    ended because it was too long; `refusal` is the model's own word for not answering, or that of
    an endpoint that does not let it see the question.
    """

    text: str
    log_probability: float | None = None
    cut: bool = False
    refusal: str = ""

    @property
    def said(self) -> str:
        """What is marked: no thoughts, and of a refusal, also in mid-answer, nothing.

        >>> Answer("<think>no, or</think>yes").said, Answer("no</think>yes").said
        ('yes', 'yes')
        """
        return "" if self.refusal else _THOUGHTS.sub("", self.text)

    @property
    def turned_away(self) -> bool:
        """Whether the endpoint refused the question, so that the model never saw it."""
        return not self.text and self.refusal.startswith(TURNED_AWAY)


_TYPES = {"text": (str,), "log_probability": (float, int, type(None)), "cut": (bool,),
          "refusal": (str,)}  # fmt: skip


def is_answer(found: Any) -> bool:
    """Whether what a log holds can be made an Answer again.

    >>> is_answer({"text": "four", "cut": False}), is_answer({"text": 4}), is_answer("four")
    (True, False, False)
    """
    if not isinstance(found, dict) or "text" not in found:
        return False
    return all(type(value) in _TYPES.get(name, ()) for name, value in found.items())


@runtime_checkable
class Model(Protocol):
    """Anything that can be asked: answers come one by one, in the order of the prompts.

    `identity` is what makes the answers of two models comparable. `free` is False where asking
    costs money. A model may also have `log_probability(texts) -> list[float]`, and
    `check(prompts)`, which refuses what it cannot read before anything is asked.
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


@runtime_checkable
class Taught(Model, Protocol):
    """A network trained in this laboratory, which reads the words of its family and no others."""

    @property
    def family(self) -> SequenceFamily: ...

    def items(self) -> Mapping[str, Sequence[Item]]: ...
