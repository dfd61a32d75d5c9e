"""Turns a drawing into SVG that can sit in any page: inert, self-contained, in the page's ink."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from ..errors import InvalidRequest

INK = "#010203"  # drawn with this colour, shown in the text colour of the page
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

_ELEMENTS = frozenset(
    {
        "svg",
        "g",
        "defs",
        "clipPath",
        "pattern",
        "path",
        "rect",
        "line",
        "circle",
        "use",
        "text",
        "tspan",
        "title",
        "desc",
    }
)
_PAINT = frozenset(
    {
        "fill",
        "fill-opacity",
        "fill-rule",
        "stroke",
        "stroke-width",
        "stroke-opacity",
        "stroke-linejoin",
        "stroke-linecap",
        "stroke-dasharray",
        "stroke-dashoffset",
        "stroke-miterlimit",
        "opacity",
        "font-size",
        "font-weight",
        "font-style",
        "text-anchor",
        "clip-path",
        "clip-rule",
    }
)
_PLACE = frozenset(
    {
        "id",
        "d",
        "x",
        "y",
        "x1",
        "y1",
        "x2",
        "y2",
        "cx",
        "cy",
        "r",
        "rx",
        "ry",
        "width",
        "height",
        "transform",
        "viewBox",
        "patternUnits",
        "patternTransform",
        "clipPathUnits",
        "href",
        "role",
        "aria-label",
        "font-family",
    }
)
_ATTRIBUTES = _PAINT | _PLACE
_REFERENCE = re.compile(r"url\(\s*['\"]?#([^)'\"\s]+)['\"]?\s*\)")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")


def clean(svg: str, prefix: str, alt: str = "") -> str:
    """The same drawing holding only known-inert elements, its ids under `prefix`.

    Scripts, styles, links, images and metadata are left out; style declarations become plain
    attributes, so that the page may forbid inline styles.

    >>> drawn = clean('<svg><script>alert(1)</script><path style="fill: #010203"/></svg>', "a-")
    >>> "script" in drawn, '<path fill="currentColor" />' in drawn
    (False, True)
    """
    text = re.sub(r"^\s*(<\?xml[^>]*>)?\s*(<!DOCTYPE[^>\[]*>)?", "", svg)
    if "<!" in re.sub(r"<!--.*?-->|<!\[CDATA\[", "", text, flags=re.DOTALL):
        raise InvalidRequest("a figure's SVG declares entities; expected plain SVG elements only")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        given = f"{svg[:40]!r}" if svg else "an empty text"
        raise InvalidRequest(
            f"a figure's SVG cannot be read ({error}): given {given}, expected <svg>...</svg>; "
            "make figures with the functions of recombine.report.figures"
        ) from None
    if _local(root.tag) != "svg":
        raise InvalidRequest(f"a figure starts with <{_local(root.tag)}>, expected <svg>")
    _scrub(root)
    _size(root)
    _prefix_ids(root, prefix)
    root.set("role", "img")
    root.set("font-family", FONTS)
    root.set("stroke-linejoin", "round")
    if alt:
        root.set("aria-label", alt)
    return ElementTree.tostring(root, encoding="unicode")


def _local(tag: object) -> str:
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def _scrub(element: ElementTree.Element) -> None:
    element.tag = _local(element.tag)
    for child in list(element):
        if _local(child.tag) in _ELEMENTS:
            _scrub(child)
        else:
            element.remove(child)
    if element.tag not in ("text", "tspan", "title", "desc"):
        element.text = None
    element.tail = element.tail if element.tag == "tspan" else None
    for child in [c for c in element if c.tag in ("g", "defs") and not len(c)]:
        element.remove(child)
    attributes = {_local(name): value for name, value in element.attrib.items()}
    style = attributes.pop("style", "")
    for declaration in style.split(";"):
        name, _, value = declaration.partition(":")
        # One font stack for the whole drawing sits on the root, not on every text.
        if name.strip() != "font-family":
            attributes[name.strip()] = value.strip()
    element.attrib.clear()
    for name, value in attributes.items():
        if name in _ATTRIBUTES and _inert(name, value):
            element.set(name, value if name == "aria-label" else _tidy(value))
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]


def _inert(name: str, value: str) -> bool:
    if name == "href":
        return value.startswith("#")
    return "url(" not in _REFERENCE.sub("", value).lower()


def _tidy(value: str) -> str:
    if value == INK:
        return "currentColor"
    rounded = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}", value)
    return " ".join(rounded.split())


def _size(root: ElementTree.Element) -> None:
    """Unitless width and height from the viewBox: the page shrinks it, never stretches it."""
    box = root.get("viewBox", "").split()
    if len(box) == 4:
        width, height = (f"{round(float(side), 2):g}" for side in box[2:])
        root.set("width", width)
        root.set("height", height)


def _prefix_ids(root: ElementTree.Element, prefix: str) -> None:
    used = {
        name
        for element in root.iter()
        for key, value in element.attrib.items()
        for name in ([value[1:]] if key == "href" else _REFERENCE.findall(value))
    }
    for element in root.iter():
        if element.get("id", "") not in used:
            element.attrib.pop("id", None)
        for key, value in list(element.attrib.items()):
            if key == "id":
                element.set(key, prefix + value)
            elif key == "href":
                element.set(key, f"#{prefix}{value[1:]}")
            elif key != "aria-label":
                element.set(key, _REFERENCE.sub(rf"url(#{prefix}\1)", value))
