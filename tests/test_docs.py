"""What the README and the documentation say is so: examples run, commands parse, links lead."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recombine.cli.parser import build
from recombine.lab.run import study_named
from recombine.studies import REGISTRY

ROOT = Path(__file__).resolve().parents[1]


def tool(name: str):
    """A script of tools/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages = tool("pages")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
KEPT_FOR_RESULTS = re.compile(r"<!--(performance|(verdict|result):[a-z-]+)-->")
NOT_OURS = (".", "export", "cd", "make")  # commands of the shell that a console block may show


def blocks(page: str, language: str) -> list[str]:
    found = FENCE.findall((ROOT / page).read_text("utf-8"))
    return [code for name, code in found if name == language]


def script(page: str) -> str:
    """The python blocks of a page, in order, as one script."""
    return "\n\n".join(block for block in blocks(page, "python") if "# not run" not in block)


def anchors(page: Path) -> set[str]:
    """The names a browser can jump to: headings, as they are written in links."""
    text = FENCE.sub("", page.read_text("utf-8"))
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads}


# The first pages people read run with every change, all others with `make test-all`.
FIRST = ("README.md", "docs/tour.md")
EXAMPLES = [
    pytest.param(page, marks=() if page in FIRST else pytest.mark.slow)
    for page in NAMES
    if script(page)
]


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    # A module of its own, so that the classes an example defines can be found again by name.
    name = "docs_" + re.sub(r"\W", "_", page)
    file = tmp_path / f"{name}.py"
    file.write_text(script(page), "utf-8")
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)


@pytest.mark.parametrize("page", NAMES)
def test_every_relative_link_leads_somewhere(page):
    text = FENCE.sub("", (ROOT / page).read_text("utf-8"))
    lost = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


@pytest.mark.parametrize("page", NAMES)
def test_every_command_shown_can_be_typed(page, monkeypatch):
    monkeypatch.delenv("RECOMBINE_STORE", raising=False)
    for block in blocks(page, "console"):
        lines = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
        assert lines, f"a console block of {page} shows no command"
        for line in lines:
            program, *arguments = shlex.split(line)
            if program in NOT_OURS:
                continue
            assert program == "recombine", line
            chosen = build().parse_args(arguments)  # a mistake would end in SystemExit
            if getattr(chosen, "study", None):
                settings = dict(word.split("=", 1) for word in chosen.settings)
                study_named(chosen.study).grid(chosen.preset, settings)


@pytest.mark.parametrize("page", NAMES)
def test_no_page_waits_for_anything_but_recorded_results(page):
    text = (ROOT / page).read_text("utf-8")
    waiting = [c for c in COMMENT.findall(text) if not KEPT_FOR_RESULTS.fullmatch(c)]
    assert waiting == []
    assert not re.search(r"\b(TODO|TBD|FIXME|XXX|lorem)\b|@@", text)


@pytest.mark.parametrize("name", REGISTRY)
def test_a_study_has_a_page_with_its_grid_its_claims_and_what_was_recorded(name):
    study = study_named(name)
    page = pages.page_of(name).read_text("utf-8")
    assert study.question in page
    assert study.cost[:1].upper() + study.cost[1:] in page
    assert all(line in page for line in study.not_shown)
    for row in (*pages.grid_rows(study, page), *pages.claim_rows(study)):
        assert row in page and "| ? |" not in row, f"docs/studies/{name}.md lacks {row}"
    assert pages.true_page(name, page) == page, "run python tools/pages.py --write"
    recorded = pages.recorded(name)
    assert (recorded is None) == (pages.NOT_RECORDED in page)


@pytest.mark.parametrize("name", REGISTRY)
def test_the_tables_of_studies_say_what_was_recorded(name):
    assert pages.wrong_rows(name) == []


def test_a_page_that_says_something_else_is_put_right():
    page = pages.page_of("binding").read_text("utf-8")
    lied = page.replace(
        "| 0.498 [0.495, 0.502] | supported |", "| 0.900 [0.800, 1.000] | refuted |"
    )
    lied = re.sub(r"^(\| `width` \|.*\|) .* \|$", r"\1 7 |", lied, flags=re.MULTILINE)
    assert lied != page and pages.true_page("binding", lied) == page


def test_a_study_recorded_for_the_first_time_gets_its_table():
    summary = {
        "preset": "standard", "cells": 3, "devices": ["NVIDIA H200 (float32)"], "verdict": "So.",
        "claims": [
            {"name": "a", "criterion": "above 0", "interval": [0.5, 0.25, 0.75],
             "verdict": "supported"},
            {"name": "b", "criterion": "above 0", "interval": None, "verdict": "not tested here"},
        ],
    }  # fmt: skip
    before = f"# x\n\n## Result\n\n{pages.NOT_RECORDED}\n"
    text = pages.with_result(before, "x", summary)
    assert "On one H200, preset `standard`, 3 cells ([page](../../results/x-standard.html)" in text
    assert "\n\nSo.\n\n" in text and "| a | above 0 | 0.500 [0.250, 0.750] | supported |" in text
    assert "| b | above 0 | – | not tested here |" in text and pages.NOT_RECORDED not in text
    assert pages.with_result(text, "x", summary) == text
    assert pages.verdicts(summary) == "1 supported, 1 not tested"


def test_the_readme_lists_every_study_with_its_question_and_cost():
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    for name in REGISTRY:
        study = study_named(name)
        row = next(line for line in lines if line.startswith(f"| [{name}]"))
        assert study.question in row and study.cost in row


def test_the_reference_names_every_command_and_option():
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    missing = [word for word in typed(build()) if word not in text]
    assert missing == []


def typed(parser) -> Iterator[str]:
    """Every command and long option of the command line."""
    for action in parser._actions:
        yield from (option for option in action.option_strings if option.startswith("--"))
        if isinstance(action.choices, dict):
            for name, inner in action.choices.items():
                yield name
                yield from typed(inner)


def test_every_test_named_in_the_documentation_exists():
    there = "\n".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("*.py"))
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    # A star stands for the rest of a name.
    named = set(re.findall(r"`(test_\w+)`", text)) | set(re.findall(r"`(test_\w+)\*`", text))
    assert {name for name in named if not re.search(rf"^def {name}", there, re.MULTILINE)} == set()
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", text))
    assert {file for file in files if not (ROOT / file).is_file()} == set()
