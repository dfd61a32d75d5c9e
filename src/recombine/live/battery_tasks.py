"""The battery's tasks: each draws one question of a given depth, with its right answer."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from recombine.live import battery_steps as steps

DEEPEST = 7  # the longest commands of SCAN have seven operators
FAMILIAR, NEW = "familiar", "new"
NOVELTIES = (FAMILIAR, NEW)


@dataclass(frozen=True)
class Drawn:
    """A question as a task draws it; `detail` is the novelty or the operation it is about."""

    prompt: str
    gold: str
    detail: str = ""


Draw = Callable[[random.Random, int, int], Drawn]


@dataclass(frozen=True)
class Task:
    """One kind of question: `draw(rng, depth, number)`, and what blind guessing would get.

    A task that can be put in familiar words and in new ones has a `draw` for each, which from
    equal states of `rng` make the same question but for the words.
    """

    name: str
    kind: str
    draw: Draw | Mapping[str, Draw]
    chance: float = 0.0
    shallowest: int = 1
    depth: str = "steps"


def aside(rng: random.Random) -> random.Random:
    """A stream for words alone: how many draws they take must not change what else is drawn."""
    return random.Random(rng.getrandbits(64))


def nonce(rng: random.Random, count: int) -> list[str]:
    """Distinct made-up words, never of one syllable."""
    found: dict[str, None] = {}
    while len(found) < count:
        onset, coda = (rng.choice("bdfgklmnprstvz") for _ in range(2))
        middle = rng.choice("bdfgklmnprstvz")
        found[onset + rng.choice("aeiou") + middle + rng.choice("aeiou") + coda] = None
    return list(found)


# --- Syntax: commands whose rules are told ---------------------------------------------------

SCAN_RULES = """A robot takes commands in a small language and acts with WALK, LOOK, RUN, JUMP, LTURN (turn left) and RTURN (turn right).
- "walk", "look", "run" and "jump" are the action of that name.
- "X left" and "X right" (X one of these): turn that way, then X. "turn left" and "turn right" are only the turn.
- "X opposite left": turn left twice, then X. "turn opposite left": turn left twice. "right" likewise.
- "X around left": four times over, turn left and then X. "turn around left": turn left four times. "right" likewise.
- "P twice" and "P thrice": all of P two or three times.
- "P and Q": P, then Q. "P after Q": Q first, then P."""  # noqa: E501


@cache
def scan_phrases() -> dict[int, tuple[tuple[str, tuple[str, ...]], ...]]:
    """Every phrase without "and" or "after", with its actions, by the number of its operators."""
    found: list[tuple[int, str, tuple[str, ...]]] = []
    verbs = {"walk": ("WALK",), "look": ("LOOK",), "run": ("RUN",), "jump": ("JUMP",), "turn": ()}
    for verb, action in verbs.items():
        if action:
            found.append((0, verb, action))
        for side, turn in (("left", ("LTURN",)), ("right", ("RTURN",))):
            found.append((1, f"{verb} {side}", turn + action))
            found.append((2, f"{verb} opposite {side}", turn * 2 + action))
            found.append((2, f"{verb} around {side}", (turn + action) * 4))
    for times, word in ((2, "twice"), (3, "thrice")):
        found += [(n + 1, f"{text} {word}", a * times) for n, text, a in found if "ice" not in text]
    return {
        n: tuple((text, actions) for m, text, actions in found if m == n)
        for n in sorted({n for n, _, _ in found})
    }


def scan(rng: random.Random, depth: int, number: int) -> Drawn:
    """A command of SCAN with `depth` operators, all equally likely."""
    phrases = scan_phrases()
    shapes = {(a, depth - 1 - a): 2 * len(phrases[a]) * len(phrases[depth - 1 - a])
              for a in phrases if depth - 1 - a in phrases}  # fmt: skip
    alone = len(phrases.get(depth, ()))
    if rng.randrange(alone + sum(shapes.values())) < alone:
        command, actions = rng.choice(phrases[depth])
    else:
        [(a, b)] = rng.choices(list(shapes), list(shapes.values()))
        (first, one), (second, two) = rng.choice(phrases[a]), rng.choice(phrases[b])
        joint = rng.choice(("and", "after"))
        command = f"{first} {joint} {second}"
        actions = one + two if joint == "and" else two + one
    told = f"{SCAN_RULES}\n\nCommand: {command}\nList the actions in order, parted by spaces."
    return Drawn(told, " ".join(actions), "rules told")


# --- Syntax: a language that must be picked up from examples -----------------------------------

COLOURS = ("RED", "BLUE", "GREEN", "YELLOW", "PINK", "BLACK", "WHITE", "BROWN")
UNARY = ("XX", "XXX")
BINARY = ("XYX", "YX", "XXY", "XYY", "YXY")
LONGEST_OUTPUT = 30


@dataclass(frozen=True)
class Lexicon:
    """Made-up words: those that stand for a colour, and those that do something with phrases."""

    colours: Mapping[str, str]
    functions: Mapping[str, str]

    def means(self, tree: str | tuple) -> list[str]:
        """The colours of a phrase."""
        if isinstance(tree, str):
            return [self.colours[tree]]
        function, *parts = tree
        given = dict(zip("XY", (self.means(part) for part in parts), strict=False))
        return [colour for letter in self.functions[function] for colour in given[letter]]


def phrase(tree: str | tuple, outer: bool = True) -> str:
    """A phrase as it is written: a function's word comes after its first part."""
    if isinstance(tree, str):
        return tree
    function, first, *rest = tree
    text = " ".join([phrase(first, False), function, *(phrase(part, False) for part in rest)])
    return text if outer else f"( {text} )"


def grammar(rng: random.Random, depth: int, number: int) -> Drawn:
    """A phrase of a made-up language: shown (0), new arguments (1), or a new composition."""
    while True:
        made = nonce(rng, 7)
        colours = dict(zip(made[:4], rng.sample(COLOURS, 4), strict=True))
        meanings = [rng.choice(UNARY), *rng.sample(BINARY, 2)]
        words = Lexicon(colours, dict(zip(made[4:], meanings, strict=True)))
        shown = [_applied(rng, words, f, ()) for f in words.functions for _ in range(2)]
        if depth == 0:
            tree = rng.choice(shown)
        elif depth == 1:
            tree = _applied(rng, words, rng.choice(made[4:]), shown)
        else:
            tree = _composed(rng, words, depth)
        meaning = words.means(tree)
        if len(set(shown)) == len(shown) and len(meaning) <= LONGEST_OUTPUT:
            break
    examples: list[str | tuple] = [*colours, *shown]
    rng.shuffle(examples)
    lines = "\n".join(f"{phrase(one)} -> {' '.join(words.means(one))}" for one in examples)
    told = (
        "Here are phrases of a made-up language with what they mean. Words in brackets are worked "
        f"out first, then treated like one word.\n{lines}\n\nPhrase: {phrase(tree)}\n"
        "What does it mean? List the colours in order, parted by spaces."
    )
    detail = ("shown", "new arguments")[depth] if depth < 2 else "new composition"
    return Drawn(told, " ".join(meaning), detail)


def _applied(rng: random.Random, words: Lexicon, function: str, but: Sequence[tuple]) -> tuple:
    """A function of single words, different ones, and none of those already shown."""
    arity = len(set(words.functions[function]))
    while True:
        made = (function, *rng.sample(list(words.colours), arity))
        if made not in but:
            return made


def _composed(rng: random.Random, words: Lexicon, depth: int) -> str | tuple:
    if depth == 0:
        return rng.choice(list(words.colours))
    function = rng.choice(list(words.functions))
    if len(set(words.functions[function])) == 1:
        return (function, _composed(rng, words, depth - 1))
    first = rng.randint(0, depth - 1)
    return (function, _composed(rng, words, first), _composed(rng, words, depth - 1 - first))


# --- Logic -------------------------------------------------------------------------------------

NAMES = ("Rex", "Fae", "Sam", "Wren", "Polly", "Stella", "Max", "Alex")
# What a person may be, none of it by being another: nothing known of them answers the question.
_ROLES = """
baker banker barber boxer butcher captain carpenter chemist clerk cook dancer dentist doctor driver
farmer gardener guard guide hunter judge lawyer librarian mayor merchant miner musician nurse
painter pilot plumber poet porter potter printer ranger reporter rider sailor singer soldier student
swimmer tailor teacher trader waiter weaver writer
"""
ROLES: tuple[str, ...] = tuple(_ROLES.split())


def logic(novelty: str, rng: random.Random, depth: int, number: int) -> Drawn:
    """Does a chain of `depth` rules lead from a name to a kind? Every second question says no.

    Two names begin two chains of equal length with equal side branches; the question is about the
    end of one or of the other, so that nothing but following the chain tells yes from no.
    """
    words, count = aside(rng), 4 * (depth + 1)
    made = nonce(words, count) if novelty == NEW else words.sample(ROLES, count)
    names = rng.sample(NAMES, 2)
    chains = [made[: depth + 1], made[depth + 1 : 2 * depth + 2]]
    lines = []
    for name, chain, start in zip(names, chains, (2 * depth + 2, 3 * depth + 3), strict=True):
        branches = made[start : start + depth]
        lines.append(f"{name} is a {chain[0]}.")
        lines += [f"Every {a} is a {b}." for a, b in itertools.pairwise(chain)]
        lines += [f"Every {a} is a {b}." for a, b in zip(chain, branches, strict=False)]
    rng.shuffle(lines)
    holds = number % 2 == 0
    about = rng.randrange(2)
    asked = chains[about if holds else 1 - about][-1]
    told = (
        f"{' '.join(lines)}\n\nQuestion: is {names[about]} a {asked}? What does not follow from "
        "these sentences counts as no. Say yes or no."
    )
    return Drawn(told, "yes" if holds else "no", "follows" if holds else "does not follow")


# --- Programs and strings ------------------------------------------------------------------------


def programs(novelty: str, rng: random.Random, depth: int, number: int) -> Drawn:
    """Described operations on lists, one after another, under usual or made-up names."""
    made, words = steps.list_program(rng, depth), aside(rng)
    told_of = [*made.used, *made.others]
    names = nonce(words, len(told_of)) if novelty == NEW else [name for name, _ in told_of]
    named = dict(zip(names, [text for _, text in told_of], strict=True))
    order = names[:depth]
    lines = [f"- {name}: {text}" for name, text in named.items()]
    rng.shuffle(lines)
    told = (
        "These operations take a list of numbers and give one back:\n"
        + "\n".join(lines)
        + f"\n\nStart: {made.start}\nApply in this order: {', then '.join(order)}\n"
        "Which list comes out? Write it in square brackets."
    )
    return Drawn(told, str(made.result))


def strings(novelty: str, rng: random.Random, depth: int, number: int) -> Drawn:
    """Described operations on words, or on as many random letters; at depth 1 each in turn."""
    letters = aside(rng)

    def respelt(word: str) -> str:
        return steps.random_letters(letters, len(word)) if novelty == NEW else word

    start, texts, kinds, result = steps.word_program(rng, depth, number, respelt)
    lines = "\n".join(f"{i}. {text}" for i, text in enumerate(texts, 1))
    told = (
        f"Words: {' '.join(start)}\nDo the following, step by step:\n{lines}\n"
        "Which words are there at the end? Write them in order, parted by spaces."
    )
    return Drawn(told, " ".join(result), kinds[0] if depth == 1 else "several")


def in_words(draw: Callable[[str, random.Random, int, int], Drawn]) -> dict[str, Draw]:
    """A draw for familiar words and one for new ones."""
    return {novelty: partial(draw, novelty) for novelty in NOVELTIES}


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("commands", "words", scan, depth="operators"),
        Task("grammar", "words", grammar, shallowest=0, depth="functions composed"),
        Task("logic", "yes or no", in_words(logic), chance=0.5, depth="rules in the chain"),
        Task("programs", "numbers", in_words(programs), depth="operations"),
        Task("strings", "words", in_words(strings), depth="operations"),
    )
}
