"""A language model behind an endpoint as a model of records: a prompt with columns in it."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from recombine.adapters.models import OwnModel, Record, Unanswered
from recombine.errors import InvalidRequest, unknown
from recombine.live.client import AskingError
from recombine.live.model import Answer, Keeping, Model
from recombine.live.parsing import final

if TYPE_CHECKING:
    from recombine.live.asking import Estimate


class CutShort(AskingError):
    """Asking ended early; `answers` holds what was answered, Unanswered where there is nothing."""

    def __init__(self, cause: AskingError, answers: Sequence[Any]):
        super().__init__(str(cause))
        self.answers = list(answers)


class EndpointModel(OwnModel):
    """Asks a model one prompt for each record, with the record's columns put in.

    `prompt` names columns as {colour}; {{ and }} are braces. `model` is whatever can be asked:
    `ChatEndpoint` keeps every answer in its log before it is used, goes on there after a kill, and
    holds its cap `most_calls`. With `choices`, the answer is the one that is named; otherwise it
    is what `read` makes of the text, by default the part that is meant as the answer. A record that
    the endpoint refuses for its text has no answer, and the others do. Prices are for a million
    tokens.

    >>> from recombine.live import Scripted
    >>> parrot = Scripted(lambda prompt: prompt.upper(), identity="parrot")
    >>> EndpointModel("a {colour} cube", parrot).answer([{"colour": "red"}])
    ['A RED CUBE']
    """

    abilities = frozenset({"answer"})

    def __init__(
        self, prompt: str, model: Model, *, choices: Sequence[str] = (),
        read: Callable[[str], Any] = final, name: str | None = None,
        price_in: float | None = None, price_out: float | None = None,
    ):  # fmt: skip
        self.prompt, self.model, self.read, self.choices = prompt, model, read, tuple(choices)
        self.columns = columns_of(prompt)
        self.name = name or model.identity
        for option, price in (("price_in", price_in), ("price_out", price_out)):
            if price is not None and not 0 <= price < float("inf"):
                raise InvalidRequest(f"{option}={price}: expected the price of a million tokens")
        self.price_in, self.price_out = price_in, price_out
        self.free = model.free and price_in is None and price_out is None

    def prompts(self, records: Sequence[Record]) -> list[str]:
        """What would be asked."""
        return [filled(self.prompt, record, number) for number, record in enumerate(records, 1)]

    def answer(self, records: Sequence[Record]) -> list[Any]:
        prompts, model = self.prompts(records), self.model
        found = []
        try:
            for answer in model.ask(prompts):
                found.append(self._said(answer))
        except AskingError as error:
            # What was paid for is used: threads may have kept more than came in order.
            kept = model.kept if isinstance(model, Keeping) else lambda _: None
            left = [kept(prompt) for prompt in prompts[len(found) :]]
            found += [Unanswered() if answer is None else self._said(answer) for answer in left]
            raise CutShort(error, found) from error
        return found

    def cost(self, records: Sequence[Record]) -> Estimate:
        """Questions not yet answered, their tokens and price, as far as the cap allows."""
        from recombine.live.asking import CHARACTERS, Estimate

        prompts, model = self.prompts(records), self.model
        kept = model.kept if isinstance(model, Keeping) else lambda _: None
        left = [prompt for prompt in prompts if kept(prompt) is None]
        ask = list(dict.fromkeys(left))[: getattr(self.model, "most_calls", None)]
        into = sum(-(-len(prompt) // CHARACTERS) for prompt in ask)
        longest = getattr(self.model, "longest", None) or 1024
        shortest = -(-max(map(len, self.choices), default=CHARACTERS) // CHARACTERS)

        def price(out: int) -> float | None:
            if self.price_in is None and self.price_out is None:
                return None
            return (into * (self.price_in or 0.0) + out * (self.price_out or 0.0)) / 1e6

        few, most = len(ask) * shortest, len(ask) * longest
        return Estimate(
            len(prompts), len(prompts) - len(left), len(ask), into, few, most, price(few),
            price(most),
        )  # fmt: skip

    def patience(self, records: int) -> float:
        each = getattr(self.model, "timeout", 60.0) + 60.0  # a pause between attempts is shorter
        rounds = -(-records // getattr(self.model, "workers", 1))
        return each * getattr(self.model, "attempts", 1) * rounds

    def _said(self, answer: Answer) -> Any:
        if answer.turned_away:
            return Unanswered(answer.refusal)
        text = answer.text or answer.refusal
        if not self.choices:
            return self.read(text)
        return chosen(final(text), self.choices) or chosen(text, self.choices) or final(text)


def columns_of(prompt: str) -> tuple[str, ...]:
    """The columns a prompt names, in order.

    >>> columns_of("{colour} {{not this}} {shape of it}")
    ('colour', 'shape of it')
    """
    try:
        parts = list(string.Formatter().parse(prompt))
    except ValueError as error:
        raise InvalidRequest(
            f"the prompt cannot be read ({error}): write {{column}}, and {{{{ or }}}} for braces"
        ) from error
    names = []
    for _, name, form, conversion in parts:
        if name is None:
            continue
        # Attributes and places would let a file of data look inside the program.
        if not name or form or conversion or re.search(r"[.\[\]]", name):
            raise InvalidRequest(f"{{{name}}} in the prompt: expected the name of a column")
        names.append(name)
    return tuple(dict.fromkeys(names))


def filled(prompt: str, record: Record, number: int = 1) -> str:
    """A prompt with the columns of one record in it; what they hold is never read as a prompt."""
    words = []
    for text, name, _, _ in string.Formatter().parse(prompt):
        words.append(text)
        if name is None:
            continue
        if name not in record:
            raise unknown(f"column of record {number}", name, [str(key) for key in record])
        value = record[name]
        words.append(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
    return "".join(words)


def chosen(text: str, choices: Sequence[str]) -> str | None:
    """The one choice that a text names as a word or phrase, or None.

    >>> chosen("It is Red.", ["red", "blue"]), chosen("red or blue", ["red", "blue"])
    ('red', None)
    """
    exact = [c for c in choices if c.lower() == text.strip().lower()]
    if exact:
        return exact[0]
    found = [c for c in choices if re.search(rf"(?<!\w){re.escape(c)}(?!\w)", text, re.IGNORECASE)]
    # "light red" also names "red": the longer one was meant.
    found = [c for c in found if not any(c != o and c.lower() in o.lower() for o in found)]
    return found[0] if len(found) == 1 else None
