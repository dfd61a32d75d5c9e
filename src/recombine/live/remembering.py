"""Any model with a log: what it answered once is not asked again, also after a kill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from recombine.lab.answers import AnswerLog, key_of
from recombine.live.model import Answer, Model, Progress, is_answer


@dataclass
class Remembering:
    """A model whose answers are appended to `log` before they are used.

    An endpoint keeps its own answers; this is for models that answer in this process.
    """

    model: Model
    log: str | Path

    def __post_init__(self) -> None:
        self._log = AnswerLog(self.log, is_answer)

    @property
    def identity(self) -> str:
        return self.model.identity

    @property
    def free(self) -> bool:
        return self.model.free

    def kept(self, prompt: str) -> Answer | None:
        """The answer already in the log, or None."""
        found = self._log.get(key_of(self.identity, prompt))
        return None if found is None else Answer(**found)

    def ask(self, prompts: Sequence[str], progress: Progress | None = None) -> Iterator[Answer]:
        """Answers in order; only what is not in the log is asked."""
        left = [prompt for prompt in dict.fromkeys(prompts) if self.kept(prompt) is None]
        fresh = self.model.ask(left)
        for number, prompt in enumerate(prompts, 1):
            answer = self.kept(prompt)
            if answer is None:
                answer = next(fresh)
                about = {"model": self.identity, "prompt": prompt}
                self._log.put(key_of(self.identity, prompt), asdict(answer), about)
            if progress:
                progress(number, len(prompts))
            yield answer


def behind(model: Model) -> Model:
    """The model itself, without the log around it."""
    return model.model if isinstance(model, Remembering) else model
