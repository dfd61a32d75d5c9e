from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zipfile

import pytest
from cppn_genomes import bred, genomes, small
from hypothesis import given

import recombine.cppn.genome
from recombine.cppn import Genome, Link, Node, read_genome
from recombine.errors import InvalidRequest

XML = """<?xml version="1.0"?>
<data><genome age="2"><nodes count="3">
  <node type="in" label="x"><marking branch="1" id="0"/><activation>identity(x)</activation></node>
  <node type="hidden"><marking branch="1" id="1"/><activation>sin(x)</activation></node>
  <node type="out" label="ink"><marking branch="2" id="1"/>
    <activation>gaussian(x)</activation></node>
</nodes><links count="2">
  <link><marking branch="9" id="9"/><source branch="1" id="0"/><target branch="1" id="1"/>
    <weight>0.5</weight></link>
  <link><marking branch="9" id="8"/><source branch="1" id="1"/><target branch="2" id="1"/>
    <weight>-2.25</weight></link>
</links></genome></data>
"""


def zipped(packing: int = zipfile.ZIP_DEFLATED, **files: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", packing) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return held.getvalue()


def test_plain_and_zipped_xml_give_the_same_genome(tmp_path):
    expected = Genome(
        (
            Node("1_0", "in", "x", "identity"),
            Node("1_1", "hidden", "", "sin"),
            Node("2_1", "out", "ink", "gaussian"),
        ),
        (Link("1_0", "1_1", 0.5), Link("1_1", "2_1", -2.25)),
    )
    assert read_genome(XML.encode()) == expected
    assert read_genome(zipped(a=XML.encode())) == expected
    (tmp_path / "one.zip").write_bytes(zipped(a=XML.encode()))
    assert read_genome(tmp_path / "one.zip") == expected
    assert read_genome(str(tmp_path / "one.zip")) == expected


@pytest.mark.parametrize(("name", "nodes", "links"), [("skull", 23, 57), ("butterfly", 34, 108)])
def test_bred_genomes_have_their_published_sizes(name, nodes, links):
    genome = bred(name)
    assert (len(genome.nodes), len(genome.links)) == (nodes, links)


@given(genome=genomes(cycles=True))
def test_a_document_survives_json(genome):
    assert Genome.from_document(json.loads(json.dumps(genome.document()))) == genome


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("sin(x)", "wobble(x)"), r"unknown activation 'wobble' \(known: cos, gaussian, identity"),
        (('<target branch="2"', '<target branch="7"'), "names the node '7_1', which does not"),
        (('type="out" label="ink"', 'type="hidden"'), "outputs are none: expected ink"),
        (('label="ink"', 'label="paint"'), "labelled 'paint': expected one of hue"),
        (('label="x"', 'label="z"'), "labelled 'z': expected one of y, x, d, bias"),
        (('type="hidden"', 'type="odd"'), "kind 'odd': expected in, hidden or out"),
        (('branch="2" id="1"', 'branch="1" id="1"'), "two nodes have the id '1_1'"),
        (('<marking branch="1" id="1"/>', ""), "a node without marking"),
        (("-2.25", "much"), "is 'much': expected a number"),
        (("-2.25", "nan"), "expected a finite number"),
        (('<target branch="1" id="1"/>', '<target branch="1" id="0"/>'), "leads into an input"),
        (('type="hidden"', 'type="hidden" bias="0.5"'), "a bias of its own"),
        (("nodes", "knots"), "no genome in it"),
        (("</data>", ""), "neither a zip archive nor XML"),
    ],
)
def test_a_file_that_is_no_genome_is_refused_with_the_reason(change, message):
    with pytest.raises(InvalidRequest, match=message):
        read_genome(XML.replace(*change).encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "neither a zip archive nor XML"),
        (b"\x89PNG", "neither a zip archive nor XML"),
        (pickle.dumps({"nodes": []}), "neither a zip archive nor XML"),
        (b"PK\x03\x04 cut off", "a damaged or locked zip archive"),
        (zipped(a=XML.encode(), b=b"more"), "an archive of 2 files: expected one"),
        (zipped(), "an archive of 0 files: expected one"),
        (zipped(a=b" " * (5 * 2**20)), "no genome is so large"),
        (b"<a>" + b" " * (5 * 2**20) + b"</a>", "no genome is so large"),
    ],
)
def test_bytes_of_another_kind_are_refused(content, message):
    with pytest.raises(InvalidRequest, match=message):
        read_genome(content)


def test_a_damaged_archive_is_refused():
    content = bytearray(zipped(a=XML.encode()))
    content[60] ^= 255
    with pytest.raises(InvalidRequest, match="damaged"):
        read_genome(bytes(content))


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_wherever_an_archive_is_damaged_it_is_refused_and_nothing_else(packing):
    whole = zipped(packing, a=XML.encode())
    said = []
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= 255
        try:
            read_genome(bytes(content))  # a date or a comment may be any
        except InvalidRequest as error:
            said.append(str(error))
    assert len(said) > len(whole) / 2
    assert not [one for one in said if "\n" in one]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_declarations_are_refused_before_anything_is_expanded(encoding):
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    document = f'<!DOCTYPE data [<!ENTITY l0 "ha">{laughs}]><data>&l11;</data>'
    with pytest.raises(InvalidRequest, match="declares a document type"):
        read_genome(document.encode(encoding))


def test_a_file_without_an_end_is_refused_and_not_read_to_it(tmp_path):
    with pytest.raises(InvalidRequest, match="no genome is so large"):
        read_genome("/dev/zero")
    sparse = tmp_path / "weights.bin"
    with sparse.open("wb") as file:
        file.truncate(2**40)  # more than there is memory for
    with pytest.raises(InvalidRequest, match="no genome is so large"):
        read_genome(sparse)


def test_a_refusal_is_one_line_whatever_a_node_is_called():
    broken = XML.replace('label="x"', 'label="z"').replace('id="0"', 'id="0&#10;"')
    with pytest.raises(InvalidRequest, match="labelled 'z'") as told:
        read_genome(broken.encode())
    assert "\n" not in str(told.value)


def test_a_missing_file_is_named():
    with pytest.raises(InvalidRequest, match=r"nowhere\.zip: cannot be read"):
        read_genome("nowhere.zip")


@pytest.mark.parametrize("path", ["a\0b", "a\ud800"])
def test_what_no_path_can_be_is_refused_in_one_line_that_prints(path):
    with pytest.raises(InvalidRequest, match="cannot be read") as caught:
        read_genome(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "document",
    [{}, {"nodes": 3, "links": []}, {"nodes": [["a"]], "links": []}, {"nodes": [], "links": [[1]]}],
)
def test_a_document_of_another_kind_is_refused(document):
    with pytest.raises(InvalidRequest, match="not the document of a genome"):
        Genome.from_document(document)


def test_a_genome_has_nodes_and_one_brightness():
    with pytest.raises(InvalidRequest, match="no nodes"):
        Genome((), ())
    with pytest.raises(InvalidRequest, match="outputs are ink, brightness"):
        small(("x", "ink", 1.0), ("x", "brightness", 1.0))


def test_only_the_modules_that_need_jax_import_it():
    light = ("genome", "graph", "architecture", "measures", "stencils", "evolution", "archive")
    names = ", ".join(f"recombine.cppn.{name}" for name in light)
    code = f"import sys, {names}; print('jax' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_every_public_name_can_be_had():
    assert all(getattr(recombine.cppn, name) is not None for name in recombine.cppn.__all__)


def test_what_is_neither_a_path_nor_bytes_is_refused():
    with pytest.raises(InvalidRequest, match="a genome from None: expected a path"):
        read_genome(None)  # type: ignore[arg-type]
