"""SCAN: commands such as "jump twice after walk left", answered by a sequence of actions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal, NamedTuple

from recombine.errors import InvalidRequest, unknown
from recombine.families._sequence import (
    ALWAYS,
    TEST,
    TRAIN,
    VALIDATION,
    Corpus,
    Item,
    SequenceFamily,
    shares,
)

PRIMITIVES = ("walk", "look", "run", "jump")
ACTIONS = {
    "walk": ["I_WALK"],
    "look": ["I_LOOK"],
    "run": ["I_RUN"],
    "jump": ["I_JUMP"],
    "turn": [],
}
TURNS = {"left": ["I_TURN_LEFT"], "right": ["I_TURN_RIGHT"]}
TIMES = {"twice": 2, "thrice": 3}
LONGEST_TRAINED = 22  # actions, in the split by length

Split = Literal[
    "simple",
    "length",
    "addprim_jump",
    "addprim_turn_left",
    "template_right",
    "template_opposite_right",
    "template_around_right",
    "template_jump_around_right",
    "filler_num0",
    "filler_num1",
    "filler_num2",
    "filler_num3",
]


def _phrases() -> dict[str, list[str]]:
    """The 34 phrases a command is made of, with their actions."""
    found = {primitive: ACTIONS[primitive] for primitive in PRIMITIVES}
    for primitive, act in ACTIONS.items():
        for side, turn in TURNS.items():
            found[f"{primitive} {side}"] = turn + act
            found[f"{primitive} opposite {side}"] = turn + turn + act
            found[f"{primitive} around {side}"] = (turn + act) * 4
    return found


class Rule(NamedTuple):
    """A split told by phrases: commands with one of `new` are tested, the others trained on."""

    new: frozenset[str]
    withheld: frozenset[str] = frozenset()  # phrases that training does not see either
    left_out: frozenset[str] = frozenset()  # phrases of which no command is used at all
    taught: str = ""  # the one tested phrase in training: alone, repeated to a tenth of the set


def _fill(how: str, known: int = 0) -> frozenset[str]:
    """A template's phrases, less those of its first fillers."""
    return frozenset(f"{primitive} {how}" for primitive in ("look", "walk", "run", "jump")[known:])


def _template(how: str) -> Rule:
    # Turning itself fills the template with no action, and the published sets do without it.
    return Rule(_fill(how), left_out=frozenset({f"turn {how}"}))


def _filler(known: int) -> Rule:
    how = "around right"
    return Rule(frozenset({f"jump {how}"}), _fill(how, known), frozenset({f"turn {how}"}))


RULES = {
    "addprim_jump": Rule(
        frozenset(phrase for phrase in _phrases() if phrase.startswith("jump")), taught="jump"
    ),
    "addprim_turn_left": Rule(frozenset({"turn left"}), taught="turn left"),
    "template_right": _template("right"),
    "template_opposite_right": _template("opposite right"),
    "template_around_right": _template("around right"),
    "template_jump_around_right": _filler(3),
    **{f"filler_num{known}": _filler(known) for known in range(4)},
}
SPLITS = ("simple", "length", *RULES)


class Command(NamedTuple):
    """A command of the grammar with its actions and the phrases it is made of."""

    source: str
    target: str
    phrases: frozenset[str]
    joined: str


@cache
def commands() -> tuple[Command, ...]:
    """All 20,910 commands of the phrase grammar, with their actions.

    >>> len(commands())
    20910
    """
    said = [
        (phrase + word, phrase, act * times)
        for phrase, act in _phrases().items()
        for word, times in (("", 1), (" twice", 2), (" thrice", 3))
    ]
    found = [Command(s, " ".join(a), frozenset({p}), "alone") for s, p, a in said]
    for first, p, a in said:
        for second, q, b in said:
            both = frozenset({p, q})
            found.append(Command(f"{first} and {second}", " ".join(a + b), both, "and"))
            found.append(Command(f"{first} after {second}", " ".join(b + a), both, "after"))
    return tuple(found)


@dataclass(frozen=True)
class Scan(SequenceFamily):
    """Navigation commands (Lake and Baroni, 2018), with the official splits at their sizes.

    Training is the official set less `held_out` commands, which are `test`; the official test set
    is split into `validation` items, the same for every seed, and the rest, a split named as the
    family's own: what is chosen on them is never judged on them, whatever the seed. With both at 0
    the sizes are the published ones. Commands that training repeats (the bare new primitive, a
    tenth of the add-primitive sets) are repeated here too. "simple" is a control: its test commands
    are a random fifth, new in nothing but themselves (drawn by seed, so not the published draw).

    A command has at most 9 words, its answer at most 48 actions; the vocabulary is 19 words.

    >>> corpus = Scan(split="length", held_out=0, validation=0).corpus(0)
    >>> len(corpus["train"]), len(corpus["length"])
    (16990, 3920)
    >>> Scan().solve("jump twice after turn left")
    'I_TURN_LEFT I_JUMP I_JUMP'
    """

    version: ClassVar[int] = 2
    name: ClassVar[str] = "scan"
    unit: ClassVar[str] = "actions beyond 22 (length), or 1 for any new command"
    instruction: ClassVar[str] = (
        "Translate each command into actions. walk, look, run and jump are I_WALK, I_LOOK, I_RUN "
        "and I_JUMP; turn is no action of its own. 'X left' turns left (I_TURN_LEFT), then does X; "
        "'X opposite left' turns left twice, then does X; 'X around left' turns left and does X, "
        "four times; the same holds for right. twice and thrice repeat what precedes. 'A and B' is "
        "A, then B; 'A after B' is B, then A. Answer with the actions only, parted by spaces."
    )

    split: Split = "length"
    held_out: int = 1000
    validation: int = 500

    def check(self) -> None:
        if self.split not in SPLITS:
            raise unknown("split of SCAN", self.split, SPLITS)
        known, beyond = self._counts()
        if not 0 <= self.held_out < known:
            raise InvalidRequest(
                f"held_out={self.held_out}: the split {self.split!r} trains on {known} distinct "
                f"commands, ask for 0 to {known - 1}"
            )
        if not 0 <= self.validation < beyond:
            raise InvalidRequest(
                f"validation={self.validation}: the split {self.split!r} tests {beyond} commands, "
                f"ask for 0 to {beyond - 1}"
            )

    def corpus(self, seed: int) -> Corpus:
        self.check()
        known, beyond, repeated = self._official(seed)
        test, train = shares(known, self.rng(seed, "held out"), self.held_out)
        validation, beyond = shares(beyond, self.rng(ALWAYS, "validation"), self.validation)
        train = shares(train + repeated, self.rng(seed, "order"))[0]
        return Corpus({TRAIN: train, TEST: test, VALIDATION: validation, self.split: beyond})

    def solve(self, source: str) -> str:
        return " ".join(_command(source))

    def _official(self, seed: int) -> tuple[list[Item], list[Item], list[Item]]:
        """Distinct training commands, test commands, and what training has more than once."""
        everything = commands()
        if self.split == "simple":
            items = [Item(c.source, c.target, c.joined) for c in everything]
            beyond, known = shares(items, self.rng(seed, "simple"), len(items) // 5)
            return known, [item._replace(novelty=1) for item in beyond], []
        known, beyond, repeated = [], [], []
        rule = RULES.get(self.split)
        for c in everything:
            item = Item(c.source, c.target, c.joined)
            if rule is None:
                longer = len(c.target.split(" ")) - LONGEST_TRAINED
                beyond.append(item._replace(novelty=longer)) if longer > 0 else known.append(item)
            elif c.source == rule.taught:
                repeated.append(item)
            elif c.phrases & rule.left_out:
                continue
            elif c.phrases & rule.new:
                beyond.append(item._replace(novelty=1))
            elif not c.phrases & rule.withheld:
                known.append(item)
        # Nine other commands for each repetition: a tenth of the published training sets.
        return known, beyond, repeated * (len(known) // 9)

    def _counts(self) -> tuple[int, int]:
        """How many distinct commands each side has; the same under every seed."""
        known, beyond, _ = self._official(0)
        return len(known), len(beyond)


def _command(source: str) -> list[str]:
    for word in ("and", "after"):
        first, found, second = source.partition(f" {word} ")
        if found:
            a, b = _repeated(first, source), _repeated(second, source)
            return a + b if word == "and" else b + a
    return _repeated(source, source)


def _repeated(phrase: str, source: str) -> list[str]:
    words = phrase.split(" ")
    times = TIMES.get(words[-1], 1)
    return _directed(words[:-1] if times > 1 else words, source) * times


def _directed(words: list[str], source: str) -> list[str]:
    match words:
        case [primitive] if primitive in PRIMITIVES:
            return ACTIONS[primitive]
        case [primitive, side] if primitive in ACTIONS and side in TURNS:
            return TURNS[side] + ACTIONS[primitive]
        case [primitive, "opposite", side] if primitive in ACTIONS and side in TURNS:
            return TURNS[side] * 2 + ACTIONS[primitive]
        case [primitive, "around", side] if primitive in ACTIONS and side in TURNS:
            return (TURNS[side] + ACTIONS[primitive]) * 4
    raise InvalidRequest(
        f"{source!r} is no SCAN command: {' '.join(words)!r} is not understood; a command reads "
        "like 'jump around left twice and walk'"
    )
