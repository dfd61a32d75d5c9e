"""Tasks on strings: how a sentence is asked about, and how a question is answered by rule."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Literal, get_args

from recombine.errors import InvalidRequest
from recombine.families._language import LETTERS, reversed_words

Task = Literal["cipher", "reverse", "pig latin", "sort letters", "sort words", "count"]
TASKS: tuple[Task, ...] = get_args(Task)
COUNTED = (5, 30)  # fewest and most letters to count; shorter strings would soon run out
FREE = "*"  # the source of text that answers no question
KEYS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # by shift: "N" takes a to n, 13 letters on

# How a sentence is asked about, by task. In "decode" ways the sentence is the answer, in "encode"
# ways it is the question.
WAYS: Mapping[str, tuple[str, ...]] = {
    "cipher": ("decode", "encode"),
    "reverse": ("reverse decode", "reverse encode"),
    "pig latin": ("pig latin decode", "pig latin encode"),
    "sort letters": ("sort letters",),
    "sort words": ("sort words",),
    "count": ("count",),
}
TWO_WAY = ("cipher", "reverse", "pig latin")  # tasks with a sentence on either side
_SENTENCE = re.compile(r"([=~<>@&]|[-+][B-Z]) ([a-z]+(?: [a-z]+)*)")
_COUNT = re.compile(rf"# ([a-z]{{{COUNTED[0]},{COUNTED[1]}}})")


def asked(sentence: str, way: str, key: int) -> tuple[str, str]:
    """The question and its answer, made from the sentence that is one of them.

    >>> asked("hello", "decode", 13)
    ('-N uryyb', 'hello')
    """
    match way:
        case "text":
            return f"= {sentence}", sentence
        case "decode":
            return f"-{KEYS[key]} {shifted(sentence, key)}", sentence
        case "encode":
            return f"+{KEYS[key]} {sentence}", shifted(sentence, key)
        case "reverse decode":
            return f"~ {reversed_words(sentence)}", sentence
        case "reverse encode":
            return f"~ {sentence}", reversed_words(sentence)
        case "pig latin decode":
            return f"< {_pig_latin(sentence)}", sentence
        case "pig latin encode":
            return f"> {sentence}", _pig_latin(sentence)
        case "sort letters":
            return f"@ {sentence}", _sorted_letters(sentence)
        case "sort words":
            return f"& {sentence}", " ".join(sorted(sentence.split(" ")))
        case "count":
            return f"# {sentence}", str(len(sentence))
    raise ValueError(way)


def solved(source: str) -> str:
    """The answer to a question, from its text alone.

    >>> solved("-N uryyb"), solved("> cat sat"), solved("# abcdef")
    ('hello', 'atcay atsay', '6')
    """
    if found := _COUNT.fullmatch(source):
        return str(len(found[1]))
    found = _SENTENCE.fullmatch(source)
    if not found:
        raise InvalidRequest(
            f"source {source!r}: expected a sign and words of small letters, such as '-N uryyb' or "
            f"'~ one two', or '#' and {COUNTED[0]} to {COUNTED[1]} letters"
        )
    sign, text = found[1], found[2]
    match sign[0]:
        case "=":
            return text
        case "-":
            return shifted(text, -KEYS.index(sign[1]))
        case "+":
            return shifted(text, KEYS.index(sign[1]))
        case "~":
            return reversed_words(text)
        case ">":
            return _pig_latin(text)
        case "<":
            return _undone_pig_latin(text)
        case "@":
            return _sorted_letters(text)
        case _:
            return " ".join(sorted(text.split(" ")))


def shifted(text: str, by: int) -> str:
    """The text with every letter moved along the alphabet.

    >>> shifted("hello", 13)
    'uryyb'
    """
    return text.translate(_tables()[by % 26])


@functools.cache
def _tables() -> list[dict[int, int]]:
    return [str.maketrans(LETTERS, LETTERS[by:] + LETTERS[:by]) for by in range(26)]


def _pig_latin(text: str) -> str:
    return " ".join(f"{word[1:]}{word[0]}ay" for word in text.split(" "))


def _undone_pig_latin(text: str) -> str:
    words = text.split(" ")
    strange = [word for word in words if not re.fullmatch(r"[a-z]+ay", word)]
    if strange:
        raise InvalidRequest(f"source '< {text}': expected words like 'atcay', not {strange[0]!r}")
    return " ".join(word[-3] + word[:-3] for word in words)


def _sorted_letters(text: str) -> str:
    return " ".join("".join(sorted(word)) for word in text.split(" "))
