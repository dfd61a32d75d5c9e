"""The grammar of COGS: from a sentence, or a word alone, to its logical form."""

from __future__ import annotations

from typing import NamedTuple

from recombine.errors import InvalidRequest


def logical_form(source: str) -> str:
    """What a sentence or a word means; the last word of a sentence is its full stop.

    >>> logical_form("A dog ran .")
    'dog ( x _ 1 ) AND run . agent ( x _ 2 , x _ 1 )'
    """
    words = source.split(" ")
    return _word_alone(source) if len(words) == 1 else _Sentence(words).logical_form()


def _lexicon(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Verbs by their infinitive. Nouns and names are known by their place and need no list.
UNACCUSATIVE = _lexicon(
    "break burn change collapse crumple decompose disintegrate double enlarge float freeze grow "
    "improve inflate redden roll shatter shorten slide snap split"
)
UNERGATIVE = _lexicon(
    "crawl cry dance frown gasp giggle jog laugh nap run scoff scream sleep smile smirk sneeze "
    "snooze snore stutter talk walk"
)
OTHER_VERBS = _lexicon(
    "admire adore appreciate attempt award bake believe bless bring call clean confess cook crave "
    "declare discover draw dream dust eat enjoy examine expect feed find forward give hand hate "
    "hear help hold hope hunt imagine intend investigate itch juggle know lend like loan long love "
    "mail mean miss need notice nurse observe offer pack paint pass pierce plan poke post prefer "
    "promise prove read rent respect return say see sell send serve ship sketch slip squeeze stab "
    "study support teleport think throw tolerate toss touch try value want wire wish worship "
    "yearn"
)
VERBS = UNACCUSATIVE | UNERGATIVE | OTHER_VERBS
# COGS has "lended"; elsewhere its past tenses and participles are those of English.
IRREGULAR = {
    "ate": "eat", "broke": "break", "broken": "break", "brought": "bring", "drawn": "draw",
    "drew": "draw", "eaten": "eat", "fed": "feed", "found": "find", "froze": "freeze",
    "frozen": "freeze", "gave": "give", "given": "give", "grew": "grow", "grown": "grow",
    "heard": "hear", "held": "hold", "knew": "know", "known": "know", "meant": "mean",
    "ran": "run", "said": "say", "saw": "see", "seen": "see", "sent": "send", "slept": "sleep",
    "slid": "slide", "sold": "sell", "split": "split", "thought": "think", "threw": "throw",
    "thrown": "throw",
}  # fmt: skip
DETERMINERS = ("A", "a", "The", "the")
PREPOSITIONS = ("in", "on", "beside")
FUNCTION_WORDS = (*DETERMINERS, *PREPOSITIONS, "was", "that", "to", "by")


def _lemma(form: str) -> str | None:
    if form in IRREGULAR:
        return IRREGULAR[form]
    if not form.endswith("ed"):
        return None
    stem = form[:-2]
    # dusted, baked, cried, napped
    for lemma in (stem, stem + "e", stem[:-1] + "y", stem[:-1]):
        if lemma in VERBS:
            return lemma
    return None


def _word_alone(word: str) -> str:
    """The meaning of a word in isolation: a name, a verb's roles or a noun."""
    if word[:1].isupper():
        return word
    if word in UNACCUSATIVE:
        return f"LAMBDA a . LAMBDA e . {word} . theme ( e , a )"
    if word in UNERGATIVE:
        return f"LAMBDA a . LAMBDA e . {word} . agent ( e , a )"
    if word in VERBS:
        roles = f"{word} . agent ( e , b ) AND {word} . theme ( e , a )"
        return f"LAMBDA a . LAMBDA b . LAMBDA e . {roles}"
    if not word.isalpha():
        raise InvalidRequest(f"{word!r} is no word of COGS: ask for one word or a sentence")
    return f"LAMBDA a . {word} ( a )"


class Fact(NamedTuple):
    """One conjunct; facts are told by the place of their first variable, in order of parsing."""

    place: int
    text: str


class _Sentence:
    """A recursive descent through one sentence that collects what it states."""

    def __init__(self, words: list[str]):
        self.words = words
        self.at = 0
        self.definite: list[Fact] = []
        self.facts: list[Fact] = []

    def logical_form(self) -> str:
        self.clause()
        self.expect(".")
        if self.at != len(self.words):
            raise self.refused("the end of the sentence")
        definite = [fact.text for fact in sorted(self.definite, key=lambda fact: fact.place)]
        facts = [fact.text for fact in sorted(self.facts, key=lambda fact: fact.place)]
        return " ".join([*definite, " AND ".join(facts)])

    def clause(self) -> int:
        """Parses a sentence within the sentence; the place of its verb."""
        subject = self.noun_phrase()
        if self.accept("was"):
            return self.passive(subject)
        verb, place = self.verb()
        if self.accept("that"):
            self.role(verb, place, "agent", subject)
            self.role(verb, place, "ccomp", _variable(self.clause()))
        elif self.accept("to"):
            self.role(verb, place, "agent", subject)
            self.role(verb, place, "xcomp", _variable(self.at))
            self.role(self.infinitive(), self.at - 1, "agent", subject)
        else:
            self.active(verb, place, subject)
        return place

    def active(self, verb: str, place: int, subject: str) -> None:
        first = self.optional_noun_phrase()
        alone = "theme" if verb in UNACCUSATIVE else "agent"
        self.role(verb, place, "agent" if first else alone, subject)
        second = self.optional_noun_phrase() if first else None
        if first and second:
            self.role(verb, place, "recipient", first)
            self.role(verb, place, "theme", second)
        elif first:
            self.role(verb, place, "theme", first)
            if self.accept("to"):
                self.role(verb, place, "recipient", self.noun_phrase())

    def passive(self, subject: str) -> int:
        verb, place = self.verb()
        given = self.optional_noun_phrase()
        self.role(verb, place, "recipient" if given else "theme", subject)
        if given:
            self.role(verb, place, "theme", given)
        elif self.accept("to"):
            self.role(verb, place, "recipient", self.noun_phrase())
        if self.accept("by"):
            self.role(verb, place, "agent", self.noun_phrase())
        return place

    def noun_phrase(self) -> str:
        """Parses a name, or a noun with what stands in, on or beside it; how others refer to it."""
        found = self.optional_noun_phrase()
        if found is None:
            raise self.refused("a name, or a noun with a or the")
        return found

    def optional_noun_phrase(self) -> str | None:
        word = self.words[self.at] if self.at < len(self.words) else ""
        if word not in DETERMINERS:
            return self.next() if word[:1].isupper() else None
        self.at += 1
        place, noun = self.at, self.noun()
        if word in ("The", "the"):
            self.definite.append(Fact(place, f"* {noun} ( {_variable(place)} ) ;"))
        else:
            self.facts.append(Fact(place, f"{noun} ( {_variable(place)} )"))
        for preposition in PREPOSITIONS:
            if self.accept(preposition):
                other = self.noun_phrase()
                relation = f"{noun} . nmod . {preposition}"
                self.facts.append(Fact(place, f"{relation} ( {_variable(place)} , {other} )"))
                break
        return _variable(place)

    def noun(self) -> str:
        word = self.next()
        if not word.isalpha() or word in FUNCTION_WORDS:
            self.at -= 1
            raise self.refused("a noun")
        return word.lower()  # a TV is a tv

    def verb(self) -> tuple[str, int]:
        place = self.at
        lemma = _lemma(self.next())
        if lemma is None:
            self.at = place
            raise self.refused("a verb in the past tense")
        return lemma, place

    def infinitive(self) -> str:
        if self.next() not in VERBS:
            self.at -= 1
            raise self.refused("a verb")
        return self.words[self.at - 1]

    def role(self, verb: str, place: int, role: str, other: str) -> None:
        self.facts.append(Fact(place, f"{verb} . {role} ( {_variable(place)} , {other} )"))

    def next(self) -> str:
        if self.at >= len(self.words):
            raise self.refused("another word")
        self.at += 1
        return self.words[self.at - 1]

    def accept(self, word: str) -> bool:
        found = self.at < len(self.words) and self.words[self.at] == word
        self.at += found
        return found

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise self.refused(repr(word))

    def refused(self, expected: str) -> InvalidRequest:
        found = repr(self.words[self.at]) if self.at < len(self.words) else "its end"
        return InvalidRequest(
            f"{' '.join(self.words)!r} is no sentence of COGS: found {found} as word {self.at}, "
            f"expected {expected}"
        )


def _variable(place: int) -> str:
    return f"x _ {place}"
