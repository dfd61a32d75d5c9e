"""A model that is a function: for controls, and to try a kit without any model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from recombine.live.model import Answer, Progress


@dataclass(frozen=True)
class Scripted:
    """Answers each prompt with what a function of it returns.

    >>> parrot = Scripted(lambda prompt: prompt.upper(), identity="parrot")
    >>> [answer.text for answer in parrot.ask(["hello"])]
    ['HELLO']
    """

    function: Callable[[str], str]
    identity: str
    free: bool = True

    def ask(self, prompts: Sequence[str], progress: Progress | None = None) -> Iterator[Answer]:
        """Answers in order."""
        for number, prompt in enumerate(prompts, 1):
            yield Answer(self.function(prompt))
            if progress:
                progress(number, len(prompts))
