"""English for prompts: articles, plurals and lists, so that none says "A A lion" or "a owl"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_IRREGULAR = {
    "fish": "fish",
    "goose": "geese",
    "knife": "knives",
    "leaf": "leaves",
    "mouse": "mice",
    "sheep": "sheep",
    "wolf": "wolves",
}
# What is heard decides, not what is written: a unicorn, an hour.
_SOUNDS_LIKE_A = re.compile(r"(uni|uk|eu|one\b|use)", re.IGNORECASE)
_SOUNDS_LIKE_AN = re.compile(r"(hour|honest|heir)", re.IGNORECASE)


def is_plural(phrase: str) -> bool:
    """Whether a phrase ends like a plural ("boots"), and so takes no article.

    >>> [is_plural(word) for word in ("boots", "dress", "octopus")]
    [True, False, False]
    """
    return phrase.endswith("s") and not phrase.endswith(("ss", "us", "is"))


def with_article(phrase: str) -> str:
    """A phrase with "a" or "an"; plurals stay as they are.

    >>> with_article("owl"), with_article("unicorn"), with_article("boots")
    ('an owl', 'a unicorn', 'boots')
    """
    if is_plural(phrase):
        return phrase
    vowel = phrase[0].lower() in "aeiou" and not _SOUNDS_LIKE_A.match(phrase)
    return f"{'an' if vowel or _SOUNDS_LIKE_AN.match(phrase) else 'a'} {phrase}"


def plural(phrase: str) -> str:
    """The plural of a phrase, by its last word.

    >>> plural("wine glass"), plural("sheep"), plural("strawberry")
    ('wine glasses', 'sheep', 'strawberries')
    """
    start, _, last = phrase.rpartition(" ")
    if last in _IRREGULAR:
        many = _IRREGULAR[last]
    elif re.search(r"[^aeiou]y$", last):
        many = last[:-1] + "ies"
    elif re.search(r"(s|x|z|ch|sh|to)$", last):
        many = last + "es"
    else:
        many = last + "s"
    return f"{start} {many}".strip()


def listed(phrases: Sequence[str], last: str = "and") -> str:
    """Phrases as a list in a sentence.

    >>> listed(["one cat", "one dog", "one owl"])
    'one cat, one dog and one owl'
    """
    if len(phrases) < 2:
        return "".join(phrases)
    return f"{', '.join(phrases[:-1])} {last} {phrases[-1]}"


class _Said(str):
    """A word that a template can ask for with its article, `{x:a}`, or in the plural, `{x:s}`."""

    single = False

    def __format__(self, spec: str) -> str:
        if spec == "a":
            return with_article(str(self))
        if spec == "s":
            return str(self) if self.single else plural(str(self))
        return super().__format__(spec)


def said(template: str, words: Mapping[str, str]) -> str:
    """A template filled in; "one" among the words makes what is counted singular.

    >>> said("{number} {thing:s}", {"number": "one", "thing": "egg"})
    'one egg'
    >>> said("{animal:a} on {place:a}", {"animal": "owl", "place": "hill"})
    'an owl on a hill'
    """
    spoken = {name: _Said(word) for name, word in words.items()}
    for word in spoken.values():
        word.single = "one" in words.values()
    return template.format(**spoken)
