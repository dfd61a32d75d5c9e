"""Pictures in a report: carried along in the page, told in words, marked, and harmless."""

from __future__ import annotations

import base64
import re
from dataclasses import replace

import numpy as np
import pytest

from recombine.errors import InvalidRequest
from recombine.png import png
from recombine.report.document import Gallery, Report, Section, Strip
from recombine.report.html import render

from .browser import needs_chromium, served, visit
from .example import HOSTILE
from .test_html import EMPTY, Page

RIGHT, WRONG = "✓", "✕"


def picture(seed: int, width: int = 84) -> bytes:
    rng = np.random.default_rng(seed)
    return png(rng.integers(0, 256, (16, width, 3), dtype=np.uint8))


STRIPS = (
    Strip("a red disc and a blue square", picture(0), [True, False, True, True, False]),
    Strip("a yellow cross", picture(1), [False, False]),
)


def shown(*strips: Strip, title: str = "Seen combinations", note: str = "") -> Report:
    return replace(EMPTY, sections=[Section("S", galleries=[Gallery(title, strips, note)])])


@pytest.fixture(scope="module")
def html() -> str:
    return render(shown(*STRIPS, note="Two of many."))


def images(page: Page) -> list[dict[str, str]]:
    return [attributes for tag, attributes in page.elements if tag == "img"]


def test_every_picture_travels_in_the_page_as_it_was_given(html):
    prefix = "data:image/png;base64,"
    found = [one["src"] for one in images(Page(html))]
    assert all(source.startswith(prefix) for source in found)
    kept = [base64.b64decode(source.removeprefix(prefix), validate=True) for source in found]
    assert kept == [strip.png for strip in STRIPS]


def test_pictures_are_told_in_words_with_the_places_of_the_right_ones(html):
    first, second = (one["alt"] for one in images(Page(html)))
    assert first == "5 pictures of a red disc and a blue square; right: 1, 3, 4"
    assert second == "2 pictures of a yellow cross; right: none"


def test_marks_stand_in_order_and_are_told_by_shape_as_well_as_colour(html):
    lines = re.findall(r'<p class="marks">(.*?)</p>', html)
    signs = [re.findall(r'<span class="(right|wrong)">(.)</span>', line) for line in lines]
    expected = [
        [("right", RIGHT) if mark else ("wrong", WRONG) for mark in strip.marks] for strip in STRIPS
    ]
    assert signs == expected


def test_title_requests_and_note_can_be_read(html):
    text = Page(html).text
    for words in ("Seen combinations", "a red disc and a blue square", "a yellow cross"):
        assert words in text
    assert "Two of many." in text and 'class="caption"' in html
    assert 'class="caption"' not in render(shown(*STRIPS))


def test_galleries_stand_in_their_section_in_the_order_given():
    galleries = [Gallery(name, STRIPS[:1]) for name in ("Later ones", "Earlier ones")]
    made = replace(EMPTY, sections=[Section("First"), Section("Last", galleries=galleries)])
    html = render(made)
    places = [html.index(f">{words}<") for words in ("Last", "Later ones", "Earlier ones")]
    assert places == sorted(places) and html.count('<figure class="gallery">') == 2


def test_the_policy_lets_carried_pictures_in_and_nothing_else(html):
    page = Page(html)
    policy = next(
        a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy and re.search(r"img-src data:\s*(;|$)", policy)
    for tag, attributes in page.elements:
        # Styles in attributes would be blocked, and anything else might call out.
        assert not {"style", "srcset", "background", "action", "onerror"} & set(attributes), tag
        assert tag == "img" or "src" not in attributes
    for rule in (".gallery img", ".marks .right", ".marks .wrong"):
        assert rule in html


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_words_make_no_element_and_no_attribute(words):
    strip = Strip(words, picture(0), [True])
    page = Page(render(shown(strip, title=words, note=words)))
    plain = Page(render(shown(Strip("a disc", picture(0), [True]), title="A", note="A")))
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]
    for (tag, one), (_, other) in zip(page.elements, plain.elements, strict=True):
        assert set(one) == set(other), tag
    (alt,) = (one["alt"] for one in images(page))
    assert alt.startswith("A picture of ") and alt.endswith("; right: yes")
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", alt
    )


def test_rendering_twice_gives_identical_bytes(html):
    assert render(shown(*STRIPS, note="Two of many.")) == html


@pytest.mark.parametrize(
    ("data", "marks"),
    [(b"<svg onload=alert(1)>", [True]), (b"", [True]), (b"GIF89a", [True]),
     (b"\x89PNG", [True]), (picture(0), [])],
)  # fmt: skip
def test_a_strip_that_is_no_picture_or_was_not_judged_is_refused(data, marks):
    with pytest.raises(InvalidRequest, match="strip 'a disc': expected the bytes of a PNG, and"):
        Strip("a disc", data, marks)


def test_a_caption_can_stand_where_a_yes_or_no_would_say_too_little():
    strip = Strip("weight 1", picture(0), caption="half of the change is symmetric")
    html = render(shown(strip))
    assert "half of the change is symmetric" in Page(html).text
    assert '<p class="marks">' not in html and RIGHT not in Page(html).text
    (image,) = images(Page(html))
    assert image["alt"] == "Pictures of weight 1; half of the change is symmetric"


# Loads the report in a phone-sized frame and reports in its own title what it measures.
MEASURE = """<!doctype html><title>waiting</title><link rel="icon" href="data:,">
<iframe src="/report" width="{width}" height="700" style="border:0"></iframe>
<script>
document.querySelector("iframe").onload = (event) => {{
  const inside = event.target.contentDocument;
  const all = [...inside.querySelectorAll("img")];
  document.title = [
    "width=" + inside.documentElement.scrollWidth,
    "pictures=" + all.map((one) => one.naturalWidth + "x" + one.naturalHeight).join(","),
    "within=" + all.every((one) => one.getBoundingClientRect().right <= {width}),
  ].join(" ");
}};
</script>"""


@needs_chromium
@pytest.mark.browser
@pytest.mark.parametrize("width", [320, 360, 900])
def test_a_browser_shows_the_pictures_at_any_width_and_asks_for_nothing(width):
    strips = [*STRIPS, Strip(HOSTILE[1] * 3, picture(2), [True] * 5)]
    page = render(shown(*strips, title=HOSTILE[0], note=HOSTILE[4]))
    with served({"/": MEASURE.format(width=width), "/report": page}) as site:
        seen = visit(site.url + "/")
    assert seen.console == "" and sorted(site.requests) == ["/", "/report"]
    title = re.search(r"<title>(.*?)</title>", seen.dom)
    expected = f"width={width} pictures=84x16,84x16,84x16 within=true"
    assert title is not None and title[1] == expected
