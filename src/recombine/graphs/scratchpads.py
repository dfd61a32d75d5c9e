"""The text of a computation, step by step: written from the values of nodes, and read back.

Multiplication, in characters: `y(STEP,STEP)partial+y(STEP)partial=answer`, where a step is
`x:product+carry=sum>digit>output`, without the digit at the last. Partial products, outputs and
the answer are written units first, so that each digit follows from what stands before it.

    35*9    9(5:45+0=45>5>5,3:27+4=31>513)513=513

Subsequence, in words: from the last number to the first, `sum : best`; then from the first on,
whether the two are equal, whether the place is free, whether it is chosen, and its mark.

    3 -2    -2 : 0 , 3 : 3 | yes yes yes 1 , no no no 2 = 1 2
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any

_ROW = re.compile(r"(\d)\(([^()]*)\)(\d*)")
_STEP = re.compile(r"\d:(\d+)\+(\d+)=(\d+)>(?:(\d)>)?(\d+)")
_ANSWER = re.compile(r"=(\d+)")
_NUMBER = re.compile(r"-?\d+")
_YES_NO = {"yes": True, "no": False}

Values = Mapping[str, Any]


def write_multiplication(values: Values) -> str:
    """The scratchpad with these values: those of a graph, right or as an executor wrote them.

    >>> from recombine.graphs import multiplication_graph
    >>> write_multiplication(multiplication_graph(35, 9).values)
    '9(5:45+0=45>5>5,3:27+4=31>513)513=513'
    """
    width, height = (sum(name.startswith(letter) for name in values) for letter in "xy")
    rows = []
    for j in range(height):
        steps = []
        for i in range(width):
            at = f"[{i},{j}]"
            product = values[f"product{at}"]
            result = values.get(f"sum{at}", product)
            carry = values.get(f"carry[{i - 1},{j}]", 0)
            digit = f"{values.get(f'digit{at}', result % 10)}>" if i + 1 < width else ""
            output = values[f"output{at}"][::-1]
            steps.append(f"{values[f'x{i}']}:{product}+{carry}={result}>{digit}{output}")
        # Zeros in front of a partial product are kept: of "00", shifted once, all three are written
        digits = str(values[f"partial[{j}]"]).zfill(len(values[f"output[{width - 1},{j}]"]) + j)
        rows.append(f"{values[f'y{j}']}({','.join(steps)}){digits[::-1]}")
    return f"{'+'.join(rows)}={str(values['answer'])[::-1]}"


def read_multiplication(text: str) -> dict[str, Hashable] | None:
    """What a scratchpad says each node is, by the node's name; None if it is no scratchpad.

    What cannot be read is left out, and what it does not ask for is ignored.

    >>> read_multiplication("9(5:45+0=45>5>5,3:27+4=31>513)513=513")["carry[0,0]"]
    4
    >>> read_multiplication("It is 315.") is None
    True
    """
    found: dict[str, Hashable] = {}
    end = 0
    for j, row in enumerate(_ROW.finditer(text)):
        end = row.end()
        for i, step in enumerate(row[2].split(",")):
            read = _STEP.fullmatch(step)
            if read is None:
                continue
            product, carry, result, digit, output = read.groups()
            at = f"[{i},{j}]"
            found[f"product{at}"] = int(product)
            if i:
                found[f"carry[{i - 1},{j}]"] = int(carry)
            found[f"sum{at}"] = int(result)
            if digit is not None:
                found[f"digit{at}"] = int(digit)
            found[f"output{at}"] = output[::-1]
        if row[3]:
            found[f"partial[{j}]"] = int(row[3][::-1])
    answer = _ANSWER.fullmatch(text[end:])
    if answer is not None:
        found["answer"] = int(answer[1][::-1])
    return found or None


def write_subsequence(values: Values) -> str:
    """The scratchpad with these values: those of a graph, right or as an executor wrote them.

    >>> from recombine.graphs import subsequence_graph
    >>> write_subsequence(subsequence_graph([3, -2]).values)
    '-2 : 0 , 3 : 3 | yes yes yes 1 , no no no 2 = 1 2'
    """
    n = sum(name.startswith("best[") for name in values)
    sums = [
        f"{_words(values.get(f'sum[{i}]', values[f'a{i}']))} : {_words(values[f'best[{i}]'])}"
        for i in reversed(range(n))
    ]
    places = []
    for i in range(n):
        equal = values[f"equal[{i}]"]
        said = (equal, values.get(f"free[{i}]", True), values.get(f"chosen[{i}]", equal))
        words = " ".join("yes" if one else "no" for one in said)
        places.append(f"{words} {values[f'mark[{i}]']}")
    return f"{' , '.join(sums)} | {' , '.join(places)} = {' '.join(values['answer'])}"


def read_subsequence(text: str, length: int) -> dict[str, Hashable] | None:
    """What a scratchpad for so many numbers says each node is; None if it is no scratchpad.

    >>> read_subsequence("-2 : 0 , 3 : 3 | yes yes yes 1 , no no no 2 = 1 2", 2)["chosen[1]"]
    False
    """
    first, bar, rest = text.partition("|")
    second, equals, last = rest.partition("=")
    if not bar:
        return None
    found: dict[str, Hashable] = {}
    for back, pair in enumerate(first.split(",")):
        i = length - 1 - back
        for name, side in zip(("sum", "best"), pair.split(":"), strict=False):
            number = side.replace(" ", "")
            if _NUMBER.fullmatch(number):
                found[f"{name}[{i}]"] = int(number)
    for i, place in enumerate(second.split(",")):
        words = place.split()
        # The words are told apart by their place, so with one missing none of them can be trusted.
        if len(words) != 4:
            continue
        for name, word in zip(("equal", "free", "chosen"), words, strict=False):
            if word in _YES_NO:
                found[f"{name}[{i}]"] = _YES_NO[word]
        if _NUMBER.fullmatch(words[3]):
            found[f"mark[{i}]"] = int(words[3])
    if equals and last.split():
        found["answer"] = "".join(last.split())
    return found or None


def _words(number: int) -> str:
    # Digit by digit from 10 on: longer lists have sums that no training example holds, and a
    # number that is one word would be a word nobody ever taught.
    return " ".join(str(number)) if number > 9 else str(number)
