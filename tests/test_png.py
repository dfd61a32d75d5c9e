"""Pictures as PNG files, read back by another reader and, chunk by chunk, by hand."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from matplotlib.image import imread

from recombine.png import png, to_bytes

shapes = st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))
pictures = arrays.arrays(np.uint8, shapes, elements=st.integers(0, 255))


def chunks(file: bytes) -> list[tuple[bytes, bytes]]:
    """(name, data) of every chunk after the signature, their check sums compared."""
    found, place = [], 8
    while place < len(file):
        (length,) = struct.unpack_from(">I", file, place)
        name, data = file[place + 4 : place + 8], file[place + 8 : place + 8 + length]
        (told,) = struct.unpack_from(">I", file, place + 8 + length)
        assert told == zlib.crc32(data, zlib.crc32(name))
        found.append((name, data))
        place += 12 + length
    return found


@given(pictures)
def test_another_reader_finds_every_pixel_where_it_was(pixels):
    read = imread(io.BytesIO(png(pixels)), format="png")
    assert read.shape == pixels.shape  # no fourth channel
    np.testing.assert_array_equal(np.rint(read * 255).astype(np.uint8), pixels)


def test_a_file_is_a_signature_and_three_chunks_with_their_check_sums():
    pixels = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3)
    file = png(pixels)
    assert file[:8] == bytes([137, 80, 78, 71, 13, 10, 26, 10])
    (_, head), (_, body), (_, end) = named = chunks(file)
    assert [name for name, _ in named] == [b"IHDR", b"IDAT", b"IEND"] and end == b""
    # Width before height, 8 bits, true colour, and the only methods there are.
    assert head == bytes([0, 0, 0, 5, 0, 0, 0, 2, 8, 2, 0, 0, 0])
    rows = [bytes([0]) + pixels[row].tobytes() for row in range(2)]
    assert zlib.decompress(body) == b"".join(rows)


def test_a_picture_cut_from_a_larger_one_is_written_as_it_looks():
    whole = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    for cut in (whole[::2, 1:7], whole.swapaxes(0, 1), whole[::-1]):
        assert png(cut) == png(np.ascontiguousarray(cut))


def test_the_same_picture_is_always_the_same_file():
    pixels = np.full((16, 16, 3), 7, np.uint8)
    assert png(pixels) == png(pixels.copy())
    assert png(pixels) != png(pixels + np.uint8(1))


@pytest.mark.parametrize(
    ("value", "byte"),
    [(-1.0, 0), (1.0, 255), (-7.5, 0), (3.0, 255), (0.2, 153), (-0.6, 51), (0.999, 255)],
)
def test_black_is_0_white_is_255_and_what_lies_beyond_is_cut(value, byte):
    made = to_bytes(np.full((2, 2, 3), value, np.float32))
    assert made.dtype == np.uint8 and made.shape == (2, 2, 3)
    assert set(made.ravel().tolist()) == {byte}


@given(st.integers(0, 255))
def test_every_byte_comes_back_from_the_number_it_stands_for(byte):
    assert to_bytes(np.asarray([byte / 127.5 - 1], np.float32))[0] == byte
