"""The kit of subgraphs: right by construction, strict about steps, fair about answers."""

from __future__ import annotations

import json

import pytest
from statsmodels.stats.proportion import proportion_confint

from recombine.cli import main
from recombine.errors import RecombineError
from recombine.graphs import workings_of
from recombine.live import Answer, Question, Scripted, estimate, kit_named, run_kit
from recombine.live.asking import questions_of
from recombine.live.kit import scored
from recombine.live.subgraphs import read_steps, write_steps

from .standin import StandIn

KIT = kit_named("subgraphs")
SMALL = {"products": "1x1,3x2", "lengths": "3,5", "puzzles": "2x2,3x2"}


def drawn(settings=None, items=3, seed=0):
    return questions_of(KIT, KIT.chosen({**SMALL, **(settings or {})}, items=items, seed=seed))


def test_a_perfect_answerer_gets_full_marks_in_every_task_and_form():
    questions = drawn()
    assert {(q.columns["task"], q.columns["form"]) for q in questions} == {
        ("multiplication", "answer"), ("multiplication", "steps"), ("subsequence", "answer"),
        ("subsequence", "steps"), ("zebra", "answer"),
    }  # fmt: skip
    for question in questions:
        scores = KIT.score(question, KIT.solve(question))
        assert scores["correct"] == scores["parsed"] == 1
        if question.columns["form"] == "steps":
            assert scores["correct"] == 1 and scores["unparseable"] == 0
        if question.columns["task"] == "multiplication":
            assert scores["first_digit"] == scores["last_digit"] == scores["middle"] == 1


def test_both_forms_ask_the_same_and_more_items_only_add_questions():
    few, many = drawn(items=2), drawn(items=4)
    assert {q.id: q for q in few}.items() <= {q.id: q for q in many}.items()
    sources = {
        form: [q.columns["source"] for q in few if q.columns["form"] == form
               and q.columns["task"] != "zebra"]
        for form in ("answer", "steps")
    }  # fmt: skip
    assert sources["answer"] == sources["steps"]


def test_no_question_is_asked_twice_and_all_there_are_can_be_asked():
    found = drawn({"tasks": "multiplication", "products": "1x1", "forms": "answer"}, items=81)
    asked = [str(q.columns["source"]) for q in found]
    assert sorted(asked) == sorted(f"{x}*{y}" for x in range(1, 10) for y in range(1, 10))
    assert len({q.prompt for q in found}) == 81


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tasks": "multiplication", "products": "1x1"}, "multiplication .* 81 .* of size 1x1"),
        ({"tasks": "subsequence", "lengths": "1"}, "subsequence .* 11 .* of size 1; ask for fewer"),
    ],
)
def test_more_questions_than_there_are_is_refused_with_their_number(settings, words):
    with pytest.raises(RecombineError, match=f"items=100: {words}"):
        drawn(settings, items=100)


def test_a_size_that_is_named_twice_is_asked_once():
    settings = {"tasks": "multiplication,subsequence", "products": "2x2,2x2", "lengths": "3,3"}
    assert len(drawn({**settings, "forms": "answer"}, items=3)) == 6


def test_steps_are_read_strictly_and_a_wrong_one_is_found_where_it_is():
    [question] = drawn({"tasks": "multiplication", "products": "2x1", "forms": "steps"}, items=1)
    graph = workings_of("multiplication").graph(str(question.columns["source"]))
    told = [json.loads(line) for line in write_steps(graph).splitlines()]
    told[0]["value"] += 1
    scores = KIT.score(question, "\n".join(map(json.dumps, told)))
    assert scores["local"] == pytest.approx(1 / len(told)) and scores["propagation"] == 0
    assert scores["correct"] == 1 and scores["restoration"] > 0
    prose = KIT.score(question, f"First I multiply the units.\nANSWER: {question.gold}")
    assert prose["unparseable"] == 1 and prose["correct"] == 1
    nothing = KIT.score(question, "I would rather not.")
    assert nothing["correct"] == nothing["parsed"] == 0 and nothing["unparseable"] == 1


def steps_of(task, items=1):
    settings = {"tasks": task, "forms": "steps", "products": "3x3", "lengths": "5"}
    return drawn(settings, items)


@pytest.mark.parametrize("task", ["multiplication", "subsequence"])
def test_steps_that_stop_anywhere_before_the_answer_give_none(task):
    [question] = steps_of(task)
    whole = KIT.solve(question)
    for end in range(whole.index('"answer"'), len(whole), 2):  # also in the middle of its value
        assert KIT.score(question, whole[:end])["parsed"] == 0
    lines = whole.splitlines()
    for count in range(1, len(lines)):
        for before in ("", "To work out 35*9:\n```json\n"):
            for after in ("", "\n```", ",", "\n(and so on for the other 12 steps)"):
                half = KIT.score(question, before + "\n".join(lines[:count]) + after)
                assert half["parsed"] == half["correct"] == half["last_digit"] == 0
                assert half["unparseable"] == 0 and half["missing"] > 0


@pytest.mark.parametrize("ending", ["ANSWER: {}", "The answer is {}.", r"\boxed{{{}}}"])
@pytest.mark.parametrize("task", ["multiplication", "subsequence"])
def test_steps_without_the_last_count_if_the_answer_is_named_after_them(task, ending):
    [question] = steps_of(task)
    steps = "\n".join(KIT.solve(question).splitlines()[:-1])
    assert KIT.score(question, f"{steps}\n{ending.format(question.gold)}")["correct"] == 1


def test_an_answer_at_the_end_of_a_list_of_json_is_read():
    [question] = steps_of("multiplication")
    steps = [json.loads(line) for line in KIT.solve(question).splitlines()]
    for said in (json.dumps(steps), f"[{KIT.solve(question)}]".replace("\n", ",\n")):
        assert KIT.score(question, said)["correct"] == 1
        assert KIT.score(question, said[: len(said) // 2])["parsed"] == 0


def test_half_a_scratchpad_does_not_speak_about_digits(tmp_path):
    questions = {q.prompt: q for q in steps_of("multiplication", items=6)}

    def half(prompt):
        lines = KIT.solve(questions[prompt]).splitlines()
        return "\n".join(lines[: len(lines) // 2])

    settings = {**SMALL, "tasks": "multiplication", "forms": "steps", "products": "3x3"}
    options = KIT.chosen(settings, items=6)
    found = run_kit(KIT, Scripted(half, "half"), tmp_path, options).summary
    assert {c["verdict"] for c in found["claims"] if "digits" in c["name"]} == {"not tested here"}
    assert found["warnings"] == ("6 of 6 answers could not be read, and count as wrong.",)


@pytest.mark.parametrize(
    "line",
    [
        '{"step": "product[0,0]", "value": "many"}',
        '{"step": "product[9,9]", "value": 3}',
        '{"step": "x0", "value": 3}',
        '{"step": ["product[0,0]"], "value": 3}',
        '{"step": "product[0,0]", "value": true}',
        '{"step": "product[0,0]", "value": 3, "note": "!"}',
        "{" * 5000,
        '["product[0,0]", 3]',
    ],
)
def test_lines_that_do_not_keep_to_the_form_are_not_guessed_at(line):
    assert read_steps(workings_of("multiplication").graph("35*9"), line) is None


def test_answers_in_another_dress_are_still_read():
    product = next(q for q in drawn() if q.id == "multiplication-3x2-answer-0")
    grouped = f"{int(product.gold):,}"
    assert KIT.score(product, f"It is **{grouped}**")["correct"] == 1
    marks = next(q for q in drawn() if q.id == "subsequence-5-answer-0")
    assert KIT.score(marks, f"ANSWER: [{marks.gold.replace(' ', ', ')}]")["correct"] == 1
    puzzle = next(q for q in drawn() if q.id == "zebra-2x2-answer-0")
    assert KIT.score(puzzle, f"So:\nAnswer: {puzzle.gold.upper()}.")["correct"] == 1
    assert KIT.score(puzzle, f"ANSWER: {puzzle.gold.replace(' ;', ';')};")["correct"] == 1
    first, second = puzzle.gold.split(" ; ")
    rows = [f"{house} ({') ('.join(words)})" for house, *words in (first.split(), second.split())]
    assert KIT.score(puzzle, f"ANSWER: {' ; '.join(rows)}")["correct"] == 1
    assert KIT.score(puzzle, f"ANSWER: {second} ; {first}")["correct"] == 0
    assert KIT.score(puzzle, f"ANSWER:\n{first} ;\n{second}")["parsed"] == 0


@pytest.mark.parametrize(
    ("said", "correct", "parsed"),
    [("1 2 1", 1, 1), ("121", 1, 1), ("[1, 2, 1]", 1, 1), ("1 2", 0, 1), ("1 2 1 2", 0, 1),
     ("2 2 2", 0, 1), ("12", 0, 1), ("I cannot tell", 0, 0), ("[]", 0, 0)],
)  # fmt: skip
def test_marks_that_are_too_few_or_too_many_are_read_and_wrong(said, correct, parsed):
    columns = {"task": "subsequence", "form": "answer", "source": "3 -2 5"}
    scores = KIT.score(Question("list", "?", "1 2 1", columns), f"ANSWER: {said}")
    assert (scores["correct"], scores["parsed"]) == (correct, parsed)


def test_a_model_that_loses_count_of_long_lists_is_judged(tmp_path):
    settings = {**SMALL, "tasks": "subsequence", "forms": "answer", "lengths": "3,7"}
    gold = {q.prompt: q.gold for q in drawn(settings, items=20)}
    model = Scripted(lambda prompt: f"ANSWER: {gold[prompt][:5]}", "three marks at most")
    [fall, *_] = run_kit(KIT, model, tmp_path, KIT.chosen(settings, items=20)).summary["claims"]
    assert fall["verdict"] == "supported" and fall["interval"][0] == 1


def product(x, y):
    """A question about one product, as the kit would ask it."""
    columns = {"task": "multiplication", "form": "answer", "source": f"{x}*{y}"}
    return Question(f"{x}*{y}", "?", str(x * y), columns)


@pytest.mark.parametrize(
    ("x", "y", "said", "digits"),
    [
        (480, 515, "0247200", (1, 1, 1)),  # zeros in front are no mistake
        (100, 100, "010000", (1, 1, 1)),
        (100, 100, "9999", None),  # short of a product that fills fewer places than it might
        (100, 100, "1000", None),
        (480, 515, "24720", None),
        (480, 515, "2472000", None),
        (480, 515, "257200", (1, 1, 0)),
        (100, 100, "20000", (0, 1, 1)),
    ],
)
def test_digits_are_judged_only_where_they_line_up(x, y, said, digits):
    scores = KIT.score(product(x, y), f"ANSWER: {said}")
    found = tuple(scores[name] for name in ("first_digit", "last_digit", "middle"))
    assert found == (digits or (0, 0, 0)) and scores["lined_up"] == (digits is not None)
    assert scores["correct"] == (int(said) == x * y) and scores["parsed"] == 1


@pytest.mark.parametrize(
    "said",
    [
        "ANSWER: 247200 (= 480*515)", "ANSWER: 247 200", "ANSWER: 247,200", "ANSWER: 2,47,200",
        "ANSWER: 247\N{NARROW NO-BREAK SPACE}200", "ANSWER: 247'200", "ANSWER: 247_200.",
        "ANSWER: 480*515 = 247200", "ANSWER: 247200 = 480 × 515", "ANSWER: (247200)",
        "ANSWER: 247200, which is 480 times 515", r"\boxed{247{,}200}", r"$\boxed{247\,200}$",
        "480 * 515 = 247200", "ANSWER: 480 x 515 = 247 200 (I checked it with 500 * 494.4)",
        "ANSWER: 247200\n(I took the answer: 480*515 by 500*515 less 20*515)",
    ],
)  # fmt: skip
def test_a_product_is_read_in_groups_of_digits_and_beside_its_factors(said):
    assert KIT.score(product(480, 515), said)["correct"] == 1


@pytest.mark.parametrize(
    ("said", "parsed"),
    [("ANSWER: 480*515", 1), ("ANSWER: 247 201", 1), ("ANSWER: 247.200", 0), ("ANSWER: many", 0),
     ("ANSWER: 247200 or 247210", 1), (f"ANSWER: {'247200' * 9}", 0), ("ANSWER: -247200", 1)],
)  # fmt: skip
def test_what_is_not_the_product_is_not_taken_for_it(said, parsed):
    scores = KIT.score(product(480, 515), said)
    assert (scores["correct"], scores["parsed"]) == (0, parsed)


def test_wrong_products_of_another_length_say_nothing_about_digits(tmp_path):
    settings = {**SMALL, "tasks": "multiplication", "forms": "answer", "products": "2x2"}
    options = KIT.chosen(settings, items=20)
    model = Scripted(lambda prompt: "ANSWER: 7", "short")
    claims = run_kit(KIT, model, tmp_path, options).summary["claims"]
    digits = [claim for claim in claims if "digits" in claim["name"]]
    assert len(digits) == 3 and {claim["verdict"] for claim in digits} == {"not tested here"}
    assert all("have the right number of digits: five are needed" in c["note"] for c in digits)


def test_digits_of_wrong_products_and_the_fall_with_size_get_verdicts(tmp_path):
    golds = {q.prompt: q for q in drawn({"tasks": "multiplication", "forms": "answer"}, items=60)}

    def surface(prompt: str) -> str:
        """Right for one digit; else first and last digit right, the middle not."""
        gold = golds[prompt].gold
        if len(str(golds[prompt].columns["source"])) == 3:
            return f"ANSWER: {gold}"
        middle = "".join(str((int(d) + 1) % 10) for d in gold[1:-1])
        return f"ANSWER: {gold[0]}{middle}{gold[-1]}"

    options = KIT.chosen({**SMALL, "tasks": "multiplication", "forms": "answer"}, items=60)
    outcome = run_kit(KIT, Scripted(surface, "surface"), tmp_path, options)
    assert {c["name"]: c["verdict"] for c in outcome.summary["claims"]} == dict.fromkeys(
        ("accuracy falls with size", "last digits", "first digits", "middle digits"), "supported"
    )


def test_a_question_put_in_two_forms_is_one_question_of_the_fall_with_size():
    questions = drawn({**SMALL, "tasks": "subsequence", "lengths": "3,10"}, items=20)
    answers = scored(KIT, questions, {q.id: Answer(KIT.solve(q)) for q in questions})
    claim = next(c for c in KIT.claims(answers) if c.name == "accuracy falls with size")
    assert {row["form"] for row in answers} == {"answer", "steps"}
    assert claim.measure(None).interval(0.95).units == 40  # type: ignore[arg-type]


def test_a_wrong_product_asked_in_two_forms_is_one_product():
    questions = drawn({**SMALL, "tasks": "multiplication", "products": "3x3"}, items=20)

    def say(question):
        gold = question.gold
        last = int(gold[-1]) if int(question.id.rpartition("-")[2]) % 2 else int(gold[-1]) + 1
        text = f"{gold[0]}{(int(gold[1]) + 1) % 10}{gold[2:-1]}{last % 10}"
        if question.columns["form"] == "steps":
            return Answer(json.dumps({"step": "answer", "value": int(text)}))
        return Answer(f"ANSWER: {text}")

    answers = scored(KIT, questions, {q.id: say(q) for q in questions})
    assert len(answers) == 40 and not sum(answers.values("correct"))
    claim = next(c for c in KIT.claims(answers) if c.name == "last digits")
    found = claim.measure(None).interval(0.95)  # type: ignore[arg-type]
    low, high = proportion_confint(10, 20, method="beta")
    assert (found.units, found.estimate) == (20, 0.5)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_a_model_that_says_nothing_is_not_judged(tmp_path):
    found = run_kit(KIT, Scripted(lambda prompt: "", "mute"), tmp_path, KIT.chosen(SMALL, items=5))
    assert {c["verdict"] for c in found.summary["claims"]} == {"not tested here"}
    note = "Only 0.00 of the answers could be read; it takes 0.95."
    assert found.summary["claims"][0]["note"] == note
    assert found.summary["verdict"].startswith(f"Nothing was tested. {note}")


def test_the_example_shows_every_step_that_is_asked_for():
    for question in steps_of("multiplication", items=3):
        example = question.prompt.partition("Example: ")[2].partition("\n\nNow do:")[0]
        source, _, steps = example.partition("\n")
        shown = [json.loads(line) for line in steps.splitlines()]
        graph = workings_of("multiplication").graph(source)
        assert read_steps(graph, steps) == {n.name: n.value for n in graph.nodes if n.parents}
        assert min(map(len, source.split("*"))) >= 2
        values = {step["step"]: step["value"] for step in shown}
        assert values["carry[0,0]"] == 0 and values["sum[1,0]"] == values["product[1,0]"]
        assert values["carry[1,1]"] > 0 and values["partial[1]"] % 10 == 0
        kinds = {step["step"].partition("[")[0] for step in shown}
        asked = (json.loads(line)["step"] for line in KIT.solve(question).splitlines())
        assert {name.partition("[")[0] for name in asked} == kinds


def test_the_estimate_counts_the_steps_that_a_right_answer_takes():
    answer, steps = (
        drawn({"tasks": "multiplication", "products": "3x3", "forms": form}, items=4)
        for form in ("answer", "steps")
    )
    written = sum(-(-len(KIT.solve(question)) // 4) for question in steps)
    assert estimate(KIT, steps).tokens_out == written > 30 * estimate(KIT, answer).tokens_out


def test_an_endpoint_is_asked_and_its_page_is_written(tmp_path, capsys):
    answers = {q.prompt: KIT.solve(q) for q in drawn(items=1)}
    with StandIn(lambda prompt: answers[prompt]) as server, pytest.raises(SystemExit) as end:
        main(["subgraphs", "--endpoint", server.url, "--model", "m", "--key-variable", "none",
              "--to", str(tmp_path / "a"), "--items", "1", "--quiet",
              "--set", *(f"{name}={value}" for name, value in SMALL.items())])  # fmt: skip
    assert end.value.code == 0
    page = (tmp_path / "a" / "report.html").read_text("utf-8")
    assert "Accuracy by size" in page and "Where errors begin" in page
    assert "answered" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tasks": "sums"}, "unknown task 'sums'"),
        ({"forms": "essay"}, "unknown form"),
        ({"products": "3"}, "such as 3x3"),
        ({"puzzles": "9x9"}, "from 2 to 6"),
        ({"lengths": "99"}, "expected 1 to 18"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(settings, words):
    with pytest.raises(RecombineError, match=words):
        drawn(settings)
