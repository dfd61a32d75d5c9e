"""A report is one file, the same every time, readable by people and by machines."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from recombine.errors import InvalidRequest
from recombine.report.document import VERDICTS, ClaimRow, Figure, Report, Section, Table
from recombine.report.html import SYMBOLS, render

from .example import HOSTILE, hostile, report, scaling_curve

EMPTY = Report("study", "Title", "Why?", "", "quick", "Nothing was tested.")


class Page(HTMLParser):
    """Collects every element with its attributes, and the text outside styles."""

    def __init__(self, html: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render(report()))


@pytest.fixture(scope="module")
def attacked() -> Page:
    return Page(render(hostile()))


def test_rendering_twice_gives_identical_bytes() -> None:
    assert render(report()).encode() == render(report()).encode()


def test_a_page_says_what_was_set_otherwise_than_its_preset_has_it() -> None:
    assert "preset quick" in Page(render(EMPTY)).text
    thinned = replace(EMPTY, preset="standard with seeds=2 width=64")
    assert "preset standard with seeds=2 width=64" in Page(render(thinned)).text
    assert "preset" not in Page(render(replace(EMPTY, preset="an audit"))).text


def test_a_page_starts_with_its_doctype_and_is_valid_utf8() -> None:
    for made in (report(), hostile(), EMPTY):
        assert render(made).encode().startswith(b"<!doctype html>\n<html")


def test_ids_are_unique_even_where_a_figure_is_shown_twice() -> None:
    figure = scaling_curve()
    twice = replace(EMPTY, sections=[Section("One", "", [figure, figure]), Section("One")])
    for made in (report(), hostile(), twice):
        ids = [a["id"] for _, a in Page(render(made)).elements if "id" in a]
        assert Counter(ids).most_common(1)[0][1] == 1


def test_every_link_leads_within_the_page(page: Page, attacked: Page) -> None:
    for made in (page, attacked):
        ids = {a["id"] for _, a in made.elements if "id" in a}
        for tag, attributes in made.elements:
            target = attributes.get("href", "")
            assert target in ("", "data:,") or target.removeprefix("#") in ids, (tag, target)


def test_nothing_refers_to_the_outside(page: Page, attacked: Page) -> None:
    for made in (page, attacked):
        for tag, attributes in made.elements:
            assert tag not in {"script", "iframe", "object", "embed", "img", "base", "form"}
            assert not {"src", "srcset", "style", "background", "action"} & set(attributes)
            assert not any(name.startswith("on") for name in attributes)


def test_the_policy_allows_exactly_the_style_in_the_page() -> None:
    html = render(report())
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None and html.count("<style") == 1
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = next(
        a["content"]
        for _, a in Page(html).elements
        if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy and f"style-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy and "url(" not in style[1] and "@import" not in style[1]


def test_a_reader_finds_everything_a_report_says(page: Page) -> None:
    made = report()
    wanted = [made.study, made.title, made.question, made.verdict_sentence, made.source]
    wanted += [*made.not_shown, *made.warnings, *(v for pair in made.repeat for v in pair)]
    wanted += [text for claim in made.claims for text in (claim.sentence, claim.criterion)]
    wanted += [s.title for s in made.sections] + [f.title for s in made.sections for f in s.figures]
    assert [text for text in wanted if " ".join(text.split()) not in page.text] == []


def test_numbers_of_a_claim_are_shown_raw_and_adjusted(page: Page) -> None:
    assert "0.981" in page.text and "[0.974, 0.988]" in page.text and "[0.969, 0.991]" in page.text
    assert "[−0.013, 0.002]" in page.text and "5 seeds" in page.text


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_verdict_is_told_by_word_and_symbol_not_by_colour_alone(verdict: str) -> None:
    row = ClaimRow("a", "A.", "at least 1", verdict)  # pyright: ignore[reportArgumentType]
    text = Page(render(replace(EMPTY, claims=[row]))).text
    assert f"{SYMBOLS[verdict]} {verdict}" in text and f"1 {verdict}" in text


def test_the_smallest_report_renders() -> None:
    assert "Nothing was tested." in Page(render(EMPTY)).text


def test_templates_in_names_are_not_evaluated(attacked: Page) -> None:
    assert "{{7*7}}" in attacked.text and "49" not in attacked.text.replace("0.49", "")


def test_hostile_text_is_shown_and_its_controls_are_not(attacked: Page) -> None:
    assert "<script>document.title='owned'</script>" in attacked.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", attacked.text)
    assert "nul\ufffdbell" in attacked.text and "שלום" in attacked.text


def test_gaps_in_a_table_are_dashes_and_numbers_line_up() -> None:
    table = Table("t", ["name", "score"], [["a", 0.5], ["b", None], ["c", -0.25]])
    html = render(replace(EMPTY, sections=[Section("S", tables=[table])]))
    cells = re.findall(r'<td class="number">(.*?)</td>', html)
    assert cells == ["0.50", "–", "−0.25"]


def test_paragraphs_are_parted_by_blank_lines() -> None:
    html = render(replace(EMPTY, sections=[Section("S", "one\nstill one\n\n \ntwo\n")]))
    assert '<p dir="auto">one\nstill one</p>' in html and '<p dir="auto">two</p>' in html


def test_what_has_to_be_seen_first_stands_before_the_claims() -> None:
    claim = ClaimRow("more", "More is more", "above 0", "supported", 1.0)
    late, early = Section("Numbers", "Of them."), Section("A wall", "To be seen.", first=True)
    html = render(replace(EMPTY, claims=[claim], sections=[late, early]))
    for place in (html.split("<main>")[0], html.split("<main>")[1]):
        marks = [place.index(words) for words in ("A wall", "Claims", "Numbers")]
        assert marks == sorted(marks)
    assert html.count("To be seen.") == html.count("Of them.") == 1


def test_a_foreign_drawing_cannot_bring_a_script() -> None:
    bad = Figure("t", "", "<svg><script>document.title='owned'</script><g onclick='x'/></svg>", "a")
    assert "owned" not in render(replace(EMPTY, sections=[Section("S", "", [bad])]))
    broken = replace(bad, svg="</div><script>1</script>")
    with pytest.raises(InvalidRequest, match="expected"):
        render(replace(EMPTY, sections=[Section("S", "", [broken])]))


def test_headings_of_any_script_get_an_anchor() -> None:
    made = replace(EMPTY, sections=[Section(name) for name in HOSTILE])
    ids = [a["id"] for tag, a in Page(render(made)).elements if tag == "h2"]
    assert len(ids) == len(HOSTILE) and all(re.fullmatch(r"[a-z0-9-]+", i) for i in ids)
