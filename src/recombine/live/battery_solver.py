"""A perfect answerer of the battery that reads nothing but the prompt: the positive control.

It shares no code with the tasks that drew the questions. What it can solve can be solved from what
is told, and a scorer that marks it down is wrong.
"""

from __future__ import annotations

import re


def solve(prompt: str) -> str:
    """The right answer to any question of the battery, after a few words of talk."""
    for sign, solver in (
        ("\nCommand: ", _command),
        ("\nPhrase: ", _phrase),
        ("\nQuestion: ", _question),
        ("\nApply in this order: ", _program),
        ("\nDo the following", _words),
    ):
        if sign in prompt:
            return f"I worked it out step by step.\nANSWER: {solver(prompt)}"
    return "I do not know."


def _command(prompt: str) -> str:
    [command] = re.findall(r"^Command: (.*)$", prompt, re.MULTILINE)
    return " ".join(_actions(command.split()))


def _actions(words: list[str]) -> list[str]:
    for joint in ("and", "after"):
        if joint in words:
            at = words.index(joint)
            before, after = _actions(words[:at]), _actions(words[at + 1 :])
            return before + after if joint == "and" else after + before
    if words[-1] in ("twice", "thrice"):
        return _actions(words[:-1]) * (2 if words[-1] == "twice" else 3)
    act = [] if words[0] == "turn" else [words[0].upper()]
    if len(words) == 1:
        return act
    turn = [f"{words[-1][0].upper()}TURN"]
    if words[1] == "around":
        return [*turn, *act, *turn, *act, *turn, *act, *turn, *act]
    return turn + (turn if words[1] == "opposite" else []) + act


def _phrase(prompt: str) -> str:
    """Colours of single words first, then the pattern of each function, then the phrase."""
    examples = [line.split(" -> ") for line in prompt.splitlines() if " -> " in line]
    colour = {left: right for left, right in examples if " " not in left}
    pattern: dict[str, list[str]] = {}
    for left, right in examples:
        words = left.split()
        if len(words) > 1:
            places = {colour[words[0]]: "first"}
            if len(words) == 3:
                places[colour[words[2]]] = "second"
            pattern[words[1]] = [places[one] for one in right.split()]

    def reading(words: list[str]) -> tuple[list[str], list[str]]:
        """The meaning of the next unit and the words after it."""
        if words[0] == "(":
            meaning, rest = whole(words[1:])
            return meaning, rest[1:]
        return [colour[words[0]]], words[1:]

    def whole(words: list[str]) -> tuple[list[str], list[str]]:
        given = {}
        given["first"], rest = reading(words)
        if not rest or rest[0] == ")":
            return given["first"], rest
        function, rest = rest[0], rest[1:]
        if "second" in pattern[function]:
            given["second"], rest = reading(rest)
        return [one for place in pattern[function] for one in given[place]], rest

    [text] = re.findall(r"^Phrase: (.*)$", prompt, re.MULTILINE)
    return " ".join(whole(text.split())[0])


def _question(prompt: str) -> str:
    rules: dict[str, set[str]] = {}
    for lower, upper in re.findall(r"Every (\w+) is a (\w+)\.", prompt):
        rules.setdefault(lower, set()).add(upper)
    [(name, asked)] = re.findall(r"is (\w+) a (\w+)\?", prompt)
    known, fresh = set(), set(re.findall(rf"\b{name} is a (\w+)\.", prompt))
    while fresh:
        known |= fresh
        fresh = {upper for lower in fresh for upper in rules.get(lower, ())} - known
    return "yes" if asked in known else "no"


def _program(prompt: str) -> str:
    told = dict(re.findall(r"^- (\w+): (.*)$", prompt, re.MULTILINE))
    [start] = re.findall(r"^Start: \[(.*)\]$", prompt, re.MULTILINE)
    [order] = re.findall(r"^Apply in this order: (.*)$", prompt, re.MULTILINE)
    numbers = [int(one) for one in start.split(",")]
    for name in order.split(", then "):
        numbers = _operated(told[name], numbers)
    return f"[{', '.join(map(str, numbers))}]"


def _operated(text: str, numbers: list[int]) -> list[int]:
    k = int((re.findall(r"\d+", text) or ["0"])[0])
    match text.split()[0], text.split()[-1]:
        case "turns", _:
            return list(reversed(numbers))
        case "sorts", _:
            return sorted(numbers)
        case "drops", "number":
            return numbers[1:]
        case "drops", "list":
            return [n for i, n in enumerate(numbers) if n not in numbers[:i]]
        case "keeps", "numbers":
            return [n for n in numbers if not n % 2]
        case "keeps", _:
            return [n for n in numbers if n > k]
        case "adds", _:
            return [n + k for n in numbers]
        case "doubles", _:
            return [n + n for n in numbers]
        case "moves", _:
            return [*numbers[1:], numbers[0]]
        case "swaps", _:
            swapped = list(numbers)
            swapped[0], swapped[-1] = numbers[-1], numbers[0]
            return swapped
        case "puts", _:
            return [*numbers, sum(numbers)]
        case "replaces", _:
            return [n - k if n > k else k - n for n in numbers]
        case "writes", _:
            return [*numbers, numbers[-1]]
    raise ValueError(text)


def _words(prompt: str) -> str:
    [start] = re.findall(r"^Words: (.*)$", prompt, re.MULTILINE)
    words = start.split()
    for text in re.findall(r"^\d+\. (.*)$", prompt, re.MULTILINE):
        if "backwards" in text:
            words = ["".join(reversed(word)) for word in words]
        elif "opposite order" in text:
            words = list(reversed(words))
        elif "alphabet" in text:
            k = int(re.findall(r"(\d+) places", text)[0])
            alphabet = "abcdefghijklmnopqrstuvwxyz"
            table = str.maketrans(alphabet, alphabet[k:] + alphabet[:k])
            words = [word.translate(table) for word in words]
        elif "first letter" in text:
            [end] = re.findall(r"'(\w+)'", text)
            words = [f"{word[1:]}{word[:1]}{end}" for word in words]
        else:
            lengths = sorted({len(word) for word in words})
            words = [word for size in lengths for word in words if len(word) == size]
    return " ".join(words)
