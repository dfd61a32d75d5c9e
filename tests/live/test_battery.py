"""The battery: right by construction, solvable from the prompt, fair to how answers are dressed."""

from __future__ import annotations

import itertools
import json
import re
import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import confint_proportions_2indep

from recombine.errors import RecombineError
from recombine.lab.judge import judge
from recombine.lab.study import Results
from recombine.live import Answer, Scripted, estimate, kit_named, run_kit
from recombine.live.asking import questions_of
from recombine.live.battery_solver import solve
from recombine.live.battery_steps import VOCABULARY
from recombine.live.battery_tasks import ROLES, TASKS, scan_phrases
from recombine.live.differences import mean_difference
from recombine.live.kit import scored, shuffled
from recombine.live.parsing import final, marks, numbers, whole_number, words

KIT = kit_named("battery")
DEPTHS = {"depths": "1,2,3,4,5,6,7"}


def drawn(settings=None, items=6, seed=0):
    return questions_of(KIT, KIT.chosen(settings, items=items, seed=seed))


def wrong(prompt):
    """An answer that can be read as what was asked for, and is not right."""
    right = final(solve(prompt))
    opposite = {"yes": "no", "no": "yes"}
    return f"ANSWER: {opposite.get(right, '[99]' if right.startswith('[') else 'QUIRK')}"


def claims_of(say, folder, items):
    run_kit(KIT, Scripted(say, "scripted"), folder, KIT.chosen(items=items))
    found = json.loads((folder / "report.json").read_text("utf-8"))
    return found, {claim["name"]: claim for claim in found["claims"]}


def by_solver(questions):
    return scored(KIT, questions, {q.id: Answer(solve(q.prompt)) for q in questions})


@settings(max_examples=8)
@example(626)  # once a list of one number was swapped with itself into two
@given(st.integers(0, 10**6))
def test_a_solver_that_reads_only_the_prompt_is_always_right(seed):
    answers = by_solver(drawn(DEPTHS, items=4, seed=seed))
    assert answers.rate().estimate == 1.0
    assert {row["task"] for row in answers} == set(TASKS)


def test_the_same_seed_gives_the_same_questions_and_more_items_only_add_some():
    few, many, other = drawn(items=3), drawn(items=7), drawn(items=7, seed=1)
    assert drawn(items=3) == few
    assert {q.id: q for q in few}.items() <= {q.id: q for q in many}.items()
    assert not {q.prompt for q in many} & {q.prompt for q in other} - {
        q.prompt for q in other if q.columns["task"] == "commands"
    }
    assert len({q.prompt for q in many}) == len(many)


def test_commands_are_those_of_scan():
    phrases = [one for some in scan_phrases().values() for one in some]
    assert len(phrases) == 102
    assert len(phrases) + 2 * len(phrases) ** 2 == 20_910  # as published
    meaning = dict(phrases)
    assert meaning["turn opposite right"] == ("RTURN", "RTURN")
    assert meaning["jump around left twice"] == ("LTURN", "JUMP") * 8
    assert meaning["look right thrice"] == ("RTURN", "LOOK") * 3
    assert max(len(actions) for actions in meaning.values()) * 2 == 48


def test_a_commands_depth_is_the_number_of_its_operators():
    operators = {"left", "right", "opposite", "around", "twice", "thrice", "and", "after"}
    for question in drawn({"tasks": "commands", **DEPTHS}, items=20):
        [command] = re.findall(r"Command: (.*)", question.prompt)
        assert sum(w in operators for w in command.split()) == question.columns["depth"]


def test_only_depth_one_and_less_of_the_language_could_be_looked_up():
    for question in drawn({"tasks": "grammar", "depths": "1,2,3"}, items=20):
        shown = dict(line.split(" -> ") for line in question.prompt.splitlines() if "->" in line)
        [asked] = re.findall(r"Phrase: (.*)", question.prompt)
        depth = question.columns["depth"]
        assert (asked in shown) == (depth == 0)
        functions = {phrase.split()[1] for phrase in shown if " " in phrase}
        assert sum(word in functions for word in asked.split()) == max(1, int(depth))
        assert all(sum(word in functions for word in phrase.split()) <= 1 for phrase in shown)


@pytest.mark.parametrize("depth", [1, 2, 4, 7])
def test_logic_is_balanced_and_follows_exactly_when_a_chain_of_that_length_leads_there(depth):
    questions = drawn({"tasks": "logic", "depths": str(depth)}, items=20)
    assert [q.gold for q in questions].count("yes") == 20
    for question in questions:
        rules = re.findall(r"Every (\w+) is a (\w+)\.", question.prompt)
        [(name, asked)] = re.findall(r"is (\w+) a (\w+)\?", question.prompt)
        starts = dict(re.findall(r"(\w+) is a (\w+)\.", question.prompt.replace("Every ", "every")))
        paths = [
            length
            for length in range(1, len(rules) + 1)
            if _reaches(starts[name], asked, rules, length)
        ]
        assert paths == ([depth] if question.gold == "yes" else [])


def _reaches(start, end, rules, length):
    """Brute force: is there a path of exactly this length?"""
    front = {start}
    for _ in range(length):
        front = {upper for lower, upper in rules if lower in front}
    return end in front


def test_the_two_kinds_asked_about_look_alike_in_every_count():
    # Whatever can be told of a word without following a chain must not tell yes from no.
    for question in drawn({"tasks": "logic", "depths": "3"}, items=20):
        rules = re.findall(r"Every (\w+) is a (\w+)\.", question.prompt)
        [(_, asked)] = re.findall(r"is (\w+) a (\w+)\?", question.prompt)
        assert sum(lower == asked for lower, _ in rules) == 0
        assert sum(upper == asked for _, upper in rules) == 1


def test_every_operation_of_a_program_changes_the_list():
    for question in drawn({"tasks": "programs", "depths": "2,5"}, items=15):
        [start] = re.findall(r"Start: (.*)", question.prompt)
        [order] = re.findall(r"Apply in this order: (.*)", question.prompt)
        names = order.split(", then ")
        assert len(names) == question.columns["depth"]
        parts = [", then ".join(names[:n]) for n in range(1, len(names) + 1)]
        states = [start, *(final(solve(question.prompt.replace(order, p))) for p in parts)]
        assert all(before != after for before, after in itertools.pairwise(states))
        assert states[-1] == question.gold


def test_strings_at_depth_one_ask_for_every_operation_alike():
    questions = drawn({"tasks": "strings", "depths": "1", "novelty": "new"}, items=10)
    kinds = [q.columns["detail"] for q in questions]
    assert {kinds.count(kind) for kind in set(kinds)} == {2} and len(set(kinds)) == 5
    assert len(set(VOCABULARY)) == len(VOCABULARY)


def test_the_right_answers_marked_against_other_questions_fall_to_chance():
    answers = by_solver(drawn({"depths": "2,3"}, items=20))
    control = shuffled(KIT, answers)
    for task in TASKS.values():
        rate = control.where(task=task.name, depth=2).rate()
        assert rate.low <= task.chance + 0.1 and rate.estimate <= task.chance + 0.25
    assert control.where(task="programs").rate().estimate < 0.1


DRESSES = [
    "{}",
    "ANSWER: {}",
    "Let me think. It could be 7, or yes, or no.\n\nAnswer: {}",
    "**Answer:** {}",
    "**ANSWER: {}**",
    "The answer is {}.",
    'ANSWER: "{}"',
    "ANSWER: `{}`",
    "`ANSWER: {}`",
    "ANSWER:\n{}",
    "First thoughts.\n{}",
    "```\nANSWER: {}\n```",
    "ANSWER: 1, no, yes\nWait, that is wrong.\nANSWER: {}",
    r"So we get \boxed{{{}}}",
    "ANSWER: {}\n\nI have checked the answer: it holds for 1, 2 and 3.",
    "**ANSWER: {}**\n(My first answer: no, yes, 7.)",
    "I shall end with 'ANSWER: your answer' as asked.\nThe answer is {}.",
    "ANSWER:\nFirst I look at the rules.\nSo the answer is {}.",
]


@pytest.mark.parametrize("dress", DRESSES)
@pytest.mark.parametrize(
    ("kind", "gold", "wrong"),
    [
        ("words", "RTURN JUMP RTURN", "RTURN JUMP"),
        ("words", "bnqmdq vhm", "vhm bnqmdq"),
        ("numbers", "[3, 1, 12]", "[3, 1, 2]"),
        ("yes or no", "yes", "no"),
        ("yes or no", "no", "yes"),
    ],
)
def test_an_answer_is_read_however_it_is_dressed(dress, kind, gold, wrong):
    assert marks(kind, gold, dress.format(gold)) == {"correct": 1.0, "parsed": 1.0}
    assert marks(kind, gold, dress.format(wrong)) == {"correct": 0.0, "parsed": 1.0}


@pytest.mark.parametrize(
    ("kind", "gold", "answer", "correct", "parsed"),
    [
        ("numbers", "[3, 1]", json.dumps({"answer": [3, 1]}), 1, 1),
        ("numbers", "[3, 1]", 'Sure!\n```json\n{"answer": [3, 1]}\n```', 1, 1),
        ("words", "a b", json.dumps({"Answer": "a b"}), 1, 1),
        ("words", "a b", json.dumps({"answer": ["a", "b"]}), 1, 1),
        ("numbers", "[-3]", "ANSWER: [\N{MINUS SIGN}3]", 1, 1),
        ("numbers", "[3, 1]", "ANSWER: 3, 1", 1, 1),
        ("numbers", "[3, 1]", "ANSWER: 3.1", 0, 0),
        ("numbers", "[3, 1]", "I cannot say.", 0, 0),
        ("yes or no", "no", "ANSWER: No, it does not follow.", 1, 1),
        ("yes or no", "no", "It is unclear.", 0, 0),
        ("yes or no", "no", "ANSWER: either yes or no", 0, 0),
        ("yes or no", "yes", "", 0, 0),
        ("words", "a b", "", 0, 0),
        ("words", "RED BLUE", "ANSWER: Red, Blue", 1, 1),
    ],
)
def test_what_cannot_be_read_is_told_from_what_is_wrong(kind, gold, answer, correct, parsed):
    assert marks(kind, gold, answer) == {"correct": float(correct), "parsed": float(parsed)}


@given(st.text(), st.sampled_from(["words", "numbers", "yes or no"]))
def test_no_answer_breaks_the_parser(text, kind):
    found = marks(kind, "yes", text)
    assert set(found.values()) <= {0.0, 1.0}


@pytest.mark.parametrize(
    "end", ["The answer" + " {}", "{}", "{}x", "answer{}x", "ANSWER: {}", "123 456{}"]
)
@pytest.mark.parametrize("loop", [" ", "\n", " \n", "*", ".", "9", "1,", " 789", "answer "])
def test_a_model_that_ends_in_a_loop_is_read_in_no_time(loop, end):
    said = end.format(loop * 20_000)
    before = time.monotonic()
    for read in (words, numbers, whole_number):
        read(said)
    assert time.monotonic() - before < 1


def test_the_report_says_where_a_model_that_manages_two_steps_falls_below_one_half(tmp_path):
    depth = {q.prompt: q.columns["depth"] for q in drawn(items=8)}

    def two_steps(prompt):
        return solve(prompt) if depth[prompt] <= 2 else wrong(prompt)

    shallow = Scripted(two_steps, "shallow")
    run_kit(KIT, shallow, tmp_path, KIT.chosen(items=8))
    found = json.loads((tmp_path / "report.json").read_text("utf-8"))
    tables = {table["title"]: table for table in found["tables"]}
    for task, _, half, first, sure, deepest in tables["Where it falls below one half"]["rows"]:
        assert (half, deepest) == (0.75 if task == "logic" else 0.5, 4)
        assert first == sure == 3
    claims = {claim["name"]: claim for claim in found["claims"]}
    assert claims["grounded"]["verdict"] == "supported"
    assert claims["depth"]["verdict"] == "supported" and claims["depth"]["interval"][0] == 1.0
    novelty = {row[0]: row[1] for row in tables["A made-up language, by novelty"]["rows"]}
    assert novelty == {"shown": 1.0, "new arguments": 1.0, "new composition": 8 / 24}
    assert "Some wrong answers" in tables


def test_by_default_six_hundred_and_sixty_questions_are_asked_and_all_are_counted():
    questions = drawn(items=20)
    assert len(questions) == 20 * (4 + 5 + 3 * 4 * 2) == estimate(KIT, questions).to_ask
    assert len(drawn({"novelty": "new"}, items=20)) == 420
    with pytest.raises(RecombineError, match="unknown novelty 'old'"):
        drawn({"novelty": "old"})


def twins(task, items=10):
    """Questions in familiar words, each beside the one in new words."""
    questions = drawn({"tasks": task, **DEPTHS}, items=items)
    sides = [[q for q in questions if q.columns["novelty"] == n] for n in ("familiar", "new")]
    return list(zip(*sides, strict=True))


def test_logic_in_new_words_is_the_same_but_for_the_kinds():
    for familiar, new in twins("logic"):
        texts = []
        for question in (familiar, new):
            kinds = re.findall(r"(?<=is a |very )\w+", question.prompt.split("\n")[0])
            text = question.prompt
            for number, kind in enumerate(dict.fromkeys(kinds)):
                text = re.sub(rf"\b{kind}\b", f"kind{number}", text)
            texts.append(text)
            assert (set(kinds) <= set(ROLES)) == (question is familiar)
        assert texts[0] == texts[1] and familiar.gold == new.gold


def test_programs_in_new_words_are_the_same_but_for_the_names():
    for familiar, new in twins("programs"):
        texts = []
        for question in (familiar, new):
            text = question.prompt
            for number, name in enumerate(re.findall(r"^- (\w+):", text, re.MULTILINE)):
                text = re.sub(rf"\b{name}\b", f"name{number}", text)
            texts.append(text)
        assert texts[0] == texts[1] and familiar.gold == new.gold
        assert familiar.prompt != new.prompt


def test_strings_of_random_letters_are_as_long_and_are_put_through_the_same_steps():
    for familiar, new in twins("strings"):
        (first, *steps), (second, *same) = (q.prompt.splitlines() for q in (familiar, new))
        words, letters = (line.removeprefix("Words: ").split() for line in (first, second))
        assert steps == same and [*map(len, words)] == [*map(len, letters)]
        assert set(words) <= set(VOCABULARY) and not set(letters) & set(VOCABULARY)


def test_the_report_tells_novelty_from_depth(tmp_path):
    of = {q.prompt: q.columns for q in drawn(items=20)}

    def only_familiar(prompt):
        return wrong(prompt) if of[prompt]["novelty"] == "new" else solve(prompt)

    def only_shallow(prompt):
        return wrong(prompt) if int(of[prompt]["depth"]) > 2 else solve(prompt)

    found, claims = claims_of(only_familiar, tmp_path / "familiar", items=20)
    assert claims["novelty"]["verdict"] == "supported" and claims["depth"]["verdict"] == "refuted"
    estimate, low, high = claims["novelty"]["interval"]
    assert low < estimate == high == 1.0 and claims["novelty"]["units"] == 480
    assert "in familiar and in new words: logic 1.00 and 0.00; programs" in found["verdict"]
    tables = {table["title"]: table["rows"] for table in found["tables"]}
    gaps = tables["Familiar words and new ones, at equal depth"]
    assert [row[:2] for row in gaps] == [
        [task, depth] for task in ("logic", "programs", "strings") for depth in (1, 2, 3, 4)
    ]
    assert all(row[2:5] == [1.0, 0.0, 1.0] and row[7] == 40 for row in gaps)
    rates = {tuple(row[:3]): row[3] for row in tables["Accuracy by task, novelty and depth"]}
    assert rates["logic", "familiar", 4] == 1 and rates["logic", "new", 4] == 0

    _, claims = claims_of(only_shallow, tmp_path / "shallow", items=20)
    assert claims["novelty"]["verdict"] == "refuted" and claims["depth"]["verdict"] == "supported"
    assert claims["novelty"]["interval"][0] == 0.0


@pytest.mark.parametrize(
    ("items", "say", "note"),
    [
        (4, solve, "It takes five answers in familiar and five in new words"),
        (5, wrong, "Hardly anything is right in either kind of words"),
        (5, solve, ""),
    ],
)
def test_novelty_is_judged_on_five_items_a_cell_that_are_not_all_wrong(items, say, note, tmp_path):
    _, claims = claims_of(say, tmp_path, items=items)
    assert claims["novelty"]["note"].startswith(note)
    assert (claims["novelty"]["verdict"] == "not tested here") == bool(note)


def test_in_words_of_one_kind_no_novelty_is_judged_and_depth_is(tmp_path):
    options = KIT.chosen({"novelty": "familiar", "tasks": "logic,programs"}, items=40)
    found = run_kit(KIT, Scripted(solve, "solver"), tmp_path, options).summary
    verdicts = {claim["name"]: claim["verdict"] for claim in found["claims"]}
    assert verdicts["novelty"] == "not tested here" and verdicts["depth"] == "refuted"
    assert "At equal depth in familiar" not in found["verdict"]


@pytest.mark.parametrize("share", [0, 10])  # of 660, one in so many can be read
def test_a_model_whose_answers_cannot_be_read_is_not_judged(tmp_path, share):
    count = itertools.count()

    def mute(prompt):
        return solve(prompt) if share and next(count) % share == 0 else ""

    found, claims = claims_of(mute, tmp_path, items=20)
    read = 0.1 if share else 0
    note = f"Only {read:.2f} of the answers could be read; it takes 0.95."
    assert {c["verdict"] for c in claims.values()} == {"not tested here"}
    assert {c["note"] for c in claims.values()} == {note}
    assert found["verdict"].startswith(f"Nothing was tested. {note} Right: ")


def test_a_model_that_is_wrong_in_so_many_words_is_judged(tmp_path):
    _, claims = claims_of(wrong, tmp_path, items=20)
    assert claims["depth"]["verdict"] == "refuted"
    assert claims["grounded"]["verdict"] != "not tested here"


def test_with_one_item_a_cell_no_gold_can_be_exchanged(tmp_path):
    found, claims = claims_of(solve, tmp_path, items=1)
    assert claims["grounded"]["verdict"] == "not tested here"
    assert "at least two questions of the same kind and depth" in claims["grounded"]["note"]
    controls = dict(next(t["rows"] for t in found["tables"] if t["title"] == "Controls"))
    assert controls["the model"] == 1 and "the model, shuffled gold" not in controls
    _, claims = claims_of(solve, tmp_path / "two", items=2)
    assert claims["grounded"]["verdict"] == "supported"


@pytest.mark.parametrize("say", [solve, wrong])
def test_six_answers_that_all_score_alike_do_not_settle_whether_a_model_is_grounded(say):
    questions = drawn({"tasks": "programs", "depths": "3", "novelty": "new"}, items=6)
    answers = scored(KIT, questions, {q.id: Answer(say(q.prompt)) for q in questions})
    [grounded, *_] = KIT.claims(answers)
    found = grounded.measure(None).interval(0.95)  # type: ignore[arg-type]
    assert found.method == "all equal" and found.high - found.low > 0.7
    [judged, *_] = judge([grounded], Results([]))
    assert judged.verdict == ("supported" if say is solve else "inconclusive")


def test_an_answer_alone_in_its_cell_does_not_count_against_the_model():
    questions = drawn({"tasks": "programs", "depths": "1,2", "novelty": "new"}, items=20)
    some = [q for q in questions if q.columns["depth"] == 1 or q.id.endswith("-0")]
    [grounded, *_] = KIT.claims(by_solver(some))
    found = grounded.measure(None).interval(0.95)  # type: ignore[arg-type]
    assert (found.units, found.estimate) == (20, 1.0)


def cells(rights, of=20, same=()):
    """Pairs of cells with so many right; those of one name in `same` put the same questions."""
    names = same or range(len(rights))
    return [
        tuple({(name, side, n): n < right for n in range(of)} for side, right in enumerate(pair))
        for name, pair in zip(names, rights, strict=True)
    ]


def test_the_interval_of_a_mean_over_many_pairs_holds_what_was_seen_and_the_truth():
    rng, held, rounds = np.random.default_rng(0), 0, 400
    truth = np.linspace([0.95, 0.95], [0.5, 0.3], 12)
    for _ in range(rounds):
        found = mean_difference(cells(rng.binomial(20, truth).tolist()))
        assert found.contains(found.estimate)
        held += found.contains(float((truth[:, 0] - truth[:, 1]).mean()))
    assert 0.92 < held / rounds < 0.98
    assert mean_difference(cells([(20, 0)] * 12)).high == 1.0


def test_the_same_questions_in_other_words_do_not_count_as_twice_as_many():
    rng, held, rounds = np.random.default_rng(0), 0, 400
    tasks = (0, 0, 1, 1, 2, 2)  # each in two kinds of words, which make no difference
    for _ in range(rounds):
        right = np.repeat(rng.binomial(20, (0.8, 0.4), (3, 2)), 2, axis=0).tolist()
        found = mean_difference(cells(right, same=tasks))
        held += found.contains(0.4)
    assert found.units == 3 * 2 * 20
    assert held / rounds > 0.92
    apart = mean_difference(cells(right))
    assert apart.units == 2 * found.units
    assert found.high - found.low > 1.3 * (apart.high - apart.low)


def test_the_fall_with_depth_is_over_questions_and_not_over_the_words_they_are_put_in():
    questions = drawn({"tasks": "programs", "depths": "1,4"}, items=20)
    hard = {n for n in range(20) if n % 2}

    def say(question):
        columns = question.columns
        fails = columns["depth"] == 4 and columns["number"] in hard
        return (wrong if fails else solve)(question.prompt)

    answers = scored(KIT, questions, {q.id: Answer(say(q)) for q in questions})
    both, one = (
        next(c for c in KIT.claims(part) if c.name == "depth").measure(None).interval(0.95)  # type: ignore[arg-type]
        for part in (answers, answers.where(novelty="new"))
    )
    assert both.estimate == one.estimate == 0.5
    assert (both.units, one.units) == (40, 40)
    assert both.high - both.low == pytest.approx(one.high - one.low, rel=0.05)
    grounded = next(c for c in KIT.claims(answers) if c.name == "grounded")
    assert grounded.measure(None).interval(0.95).units == 40  # type: ignore[arg-type]


def test_answers_cut_off_before_they_are_right_are_no_fall_with_depth():
    questions = drawn({"tasks": "commands,strings"}, items=20)

    def say(question, longest):
        thoughts = "Now the next step, and then again\n" * (4 * question.columns["depth"])
        text = thoughts + solve(question.prompt)
        return Answer(text[:longest], cut=len(text) > longest)

    def fall(longest):
        answers = scored(KIT, questions, {q.id: say(q, longest) for q in questions})
        [judged] = judge([c for c in KIT.claims(answers) if c.name == "depth"], Results([]))
        return answers, judged

    answers, judged = fall(500)
    assert answers.where(depth=4).rate().estimate == 0
    assert judged.verdict == "not tested here" and "could be read" in judged.note
    assert fall(10_000)[1].verdict == "refuted"
    # Few are lost in all, and all of them at one end.
    lost = {q.id: q.columns["depth"] == 4 and q.columns["number"] in (0, 1) for q in questions}
    said = {q.id: say(q, 500 if lost[q.id] else 10_000) for q in questions}
    answers = scored(KIT, questions, said)
    assert answers.mean("parsed") > 0.95
    [judged] = judge([c for c in KIT.claims(answers) if c.name == "depth"], Results([]))
    assert judged.verdict == "not tested here" and "at the deepest" in judged.note


def test_the_fall_with_depth_has_the_interval_of_a_difference_of_proportions(tmp_path):
    options = KIT.chosen({"tasks": "programs", "depths": "1,4", "novelty": "new"}, items=30)
    depth = {q.prompt: q.columns["depth"] for q in KIT.questions(options)}
    left = {1: 24, 4: 9}

    def some(prompt):
        if left[depth[prompt]]:
            left[depth[prompt]] -= 1
            return solve(prompt)
        return wrong(prompt)

    run_kit(KIT, Scripted(some, "some"), tmp_path, options)
    found = json.loads((tmp_path / "report.json").read_text("utf-8"))
    claim = next(claim for claim in found["claims"] if claim["name"] == "depth")
    low, high = confint_proportions_2indep(24, 30, 9, 30, method="agresti-caffo")
    assert claim["interval"] == pytest.approx([0.5, low, high], abs=1e-6)
