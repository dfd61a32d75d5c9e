"""What only a real browser can tell: nothing runs, nothing is fetched, nothing overflows."""

from __future__ import annotations

import re

import pytest

from recombine.report.html import render

from .browser import needs_chromium, served, visit
from .example import hostile, report

pytestmark = [needs_chromium, pytest.mark.browser]

STRICT = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

# Loads the report in a phone-sized frame and reports what it measures in its own title. It
# counts the elements a name could have created, which must all be zero.
MEASURE = """<!doctype html><title>waiting</title><link rel="icon" href="data:,">
<iframe src="/report" width="360" height="700" style="border:0"></iframe>
<script>
document.querySelector("iframe").onload = (event) => {
  const inside = event.target.contentDocument;
  const root = inside.documentElement;
  const count = (selector) => inside.querySelectorAll(selector).length;
  document.title = [
    "width=" + root.scrollWidth,
    "height>" + (root.scrollHeight > 2000),
    "made=" + count("script, img, iframe, object, [onerror], [onload], [onclick], [style]"),
    "links=" + count("a[href]:not([href^='#'])"),
    "styled=" + (inside.defaultView.getComputedStyle(inside.body).margin === "0px"),
    "title=" + (inside.title === "owned" ? "owned" : "unharmed"),
  ].join(" ");
};
</script>"""

EXPECTED = "width=360 height>true made=0 links=0 styled=true title=unharmed"


def test_the_marker_would_be_seen_if_a_script_ran() -> None:
    """The control: without our rendering, the same attack does change the title."""
    with served({"/": "<title>waiting</title><script>document.title='owned'</script>"}) as site:
        assert "<title>owned</title>" in visit(site.url + "/").dom


def test_hostile_text_is_inert_in_a_browser() -> None:
    with served({"/": render(hostile())}) as site:
        seen = visit(site.url + "/")
    assert "<title>owned" not in seen.dom
    assert seen.dom.count("<script") == 0 and seen.dom.count("<img") == 0
    assert seen.console == ""
    assert site.requests == ["/"]


def test_a_report_is_complete_under_a_blocking_policy_and_asks_for_nothing() -> None:
    with served({"/": render(report())}, policy=STRICT) as site:
        seen = visit(site.url + "/")
    assert site.requests == ["/"]
    assert seen.console == ""
    figures = sum(len(section.figures) for section in report().sections)
    assert len(re.findall(r"<figure>", seen.dom)) == figures
    assert len(re.findall(r'<svg [^>]*role="img"', seen.dom)) == figures + 3  # and three bars


@pytest.mark.parametrize("make", [report, hostile])
def test_a_phone_shows_the_page_without_sideways_scrolling(make: type) -> None:
    with served({"/": MEASURE, "/report": render(make())}) as site:
        seen = visit(site.url + "/")
    title = re.search(r"<title>(.*?)</title>", seen.dom)
    assert title is not None and title[1].replace("&gt;", ">") == EXPECTED
    assert sorted(site.requests) == ["/", "/report"]
