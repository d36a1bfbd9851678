"""The PNG writer, and the grid of digits with their predictions."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from picograd.errors import DataError, ShapeError
from picograd_programs.train import picture


def decode_png(data: bytes) -> np.ndarray:
    """Reads a PNG of 8-bit RGB whose rows have filter 0, checking the length and the CRC of every chunk."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = [], 8
    while at < len(data):
        nbytes, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + nbytes]
        assert struct.unpack(">I", data[at + 8 + nbytes : at + 12 + nbytes])[0] == zlib.crc32(kind + body)
        chunks.append((kind, body))
        at += 12 + nbytes
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *form = struct.unpack(">IIBBBBB", chunks[0][1])
    assert form == [8, 2, 0, 0, 0]
    rows = np.frombuffer(zlib.decompress(chunks[1][1]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


@given(arrays.arrays("u1", st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_what_is_encoded_decodes(pixels: np.ndarray) -> None:
    assert np.array_equal(decode_png(picture.encode_png(pixels)), pixels)


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_bytes(b"")
    with pytest.raises(DataError, match="write_png: .*a.png: cannot be written: "):
        picture.write_png(tmp_path / "runs" / "a.png", np.zeros((1, 1, 3), np.uint8))


def colours_of(pixels: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(int(channel) for channel in pixel) for pixel in pixels.reshape(-1, 3)}


def test_right_digit_is_green_and_has_no_red() -> None:
    grid = picture.digit_grid(np.zeros((1, 28, 28), np.uint8), np.array([7]), np.array([7]))
    assert colours_of(grid) == {picture.PAPER, picture.FRAME, picture.RIGHT}


def test_wrong_digit_is_red_with_the_true_one_in_grey() -> None:
    grid = picture.digit_grid(np.zeros((1, 28, 28), np.uint8), np.array([7]), np.array([1]))
    assert colours_of(grid) == {picture.PAPER, picture.PALE_RED, picture.WRONG, picture.MUTED}


def test_ink_is_dark_and_paper_white() -> None:
    image = np.zeros((1, 28, 28), np.uint8)
    image[0, 14, 14] = 255
    grid = picture.digit_grid(image, np.array([7]), np.array([7]))
    row = picture.GAP + 14 * picture.ZOOM
    assert tuple(grid[row, row]) == picture.INK
    assert tuple(grid[row, row - 1]) == picture.PAPER


def test_label_has_the_dots_of_the_font() -> None:
    grid = picture.digit_grid(np.zeros((1, 28, 28), np.uint8), np.array([4]), np.array([4]))
    dots = (grid == picture.RIGHT).all(-1)
    shape = dots[np.ix_(dots.any(1), dots.any(0))][:: picture.ZOOM, :: picture.ZOOM]
    assert ["".join(".#"[dot] for dot in row) for row in shape.astype(int)] == [
        "...#.",
        "..##.",
        ".#.#.",
        "#..#.",
        "#####",
        "...#.",
        "...#.",
    ]


def test_all_ten_digits_differ() -> None:
    assert len(set(picture.FONT.values())) == len(picture.FONT) == 10


@pytest.mark.parametrize(("num", "rows", "columns"), [(1, 1, 1), (3, 1, 3), (10, 1, 10), (11, 2, 10)])
def test_grid_has_as_many_cells_as_digits_need(num: int, rows: int, columns: int) -> None:
    labels = np.zeros(num, int)
    grid = picture.digit_grid(np.zeros((num, 28, 28), np.uint8), labels, labels)
    cell_height = 28 * picture.ZOOM + picture.LABEL_HEIGHT + picture.GAP
    assert grid.shape == (
        rows * cell_height + picture.GAP,
        columns * (28 * picture.ZOOM + picture.GAP) + picture.GAP,
        3,
    )


@pytest.mark.parametrize("images", [np.zeros((0, 28, 28), np.uint8), np.zeros((28, 28), np.uint8)])
def test_no_image_is_an_error(images: np.ndarray) -> None:
    with pytest.raises(ShapeError) as caught:
        picture.digit_grid(images, np.zeros(3, int), np.zeros(3, int))
    assert caught.value.fact == (
        f"digit_grid: needs images (N, H, W), predicted (N,) and true (N,) with N > 0; got {images.shape}, (3,), (3,)."
    )
