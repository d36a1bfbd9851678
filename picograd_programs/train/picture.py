"""Pictures of digits with predicted labels, written as PNG with the standard library alone.

In:    uint8 images, predicted and true labels
Out:   an RGB array, and the bytes of a PNG file
Source: PNG Specification, third edition (W3C 2025), sections 5 (chunks) and 9 (filters).
"""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picograd.errors import ShapeError
from picograd.files import write_whole

# Each digit in 5 x 7 dots: seven rows, five bits each, the leftmost dot in the highest bit.
FONT: dict[str, tuple[int, ...]] = {
    "0": (0b01110, 0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b01110),
    "1": (0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110),
    "2": (0b01110, 0b10001, 0b00001, 0b00110, 0b01000, 0b10000, 0b11111),
    "3": (0b11110, 0b00001, 0b00001, 0b01110, 0b00001, 0b00001, 0b11110),
    "4": (0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010),
    "5": (0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110),
    "6": (0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110),
    "7": (0b11111, 0b00001, 0b00010, 0b00100, 0b00100, 0b01000, 0b01000),
    "8": (0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110),
    "9": (0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100),
}
PAPER, FRAME, INK = (255, 255, 255), (222, 226, 230), (33, 37, 41)
RIGHT, WRONG, MUTED = (43, 138, 62), (224, 49, 49), (134, 142, 150)
PALE_RED = (255, 238, 238)

ZOOM = 2  # pixels of the picture per pixel of a digit, and per dot of a label
GAP = 8  # pixels between cells, and around them
LABEL_HEIGHT = 7 * ZOOM + 12  # pixels

Picture = NDArray[np.uint8]  # (rows, columns, 3), red green blue


def digit_grid(
    images: NDArray[np.uint8], predicted: NDArray[np.integer], true: NDArray[np.integer], columns: int = 10
) -> Picture:
    """Returns a grid of digits, each over its predicted label: green if right; red if wrong, with the true one in grey.

    Args:
      images:     (N, 28, 28)  uint8, 255 is ink
      predicted:  (N,)         integers 0..9
      true:       (N,)         integers 0..9
      columns:    digits in a row

    Returns:      (rows, columns, 3)  uint8

    Raises:
      ShapeError: N differs between the three, or there is no image.
    """
    num, height, width = images.shape if images.ndim == 3 else (0, 0, 0)
    if num == 0 or predicted.shape != (num,) or true.shape != (num,):
        raise ShapeError(
            f"digit_grid: needs images (N, H, W), predicted (N,) and true (N,) with N > 0; "
            f"got {images.shape}, {predicted.shape}, {true.shape}."
        )
    cell_height, cell_width = height * ZOOM + LABEL_HEIGHT, width * ZOOM
    rows, columns = math.ceil(num / columns), min(num, columns)
    picture = np.empty((rows * (cell_height + GAP) + GAP, columns * (cell_width + GAP) + GAP, 3), np.uint8)
    picture[:] = PAPER
    for i in range(num):
        top, left = GAP + i // columns * (cell_height + GAP), GAP + i % columns * (cell_width + GAP)
        cell = picture[top : top + cell_height, left : left + cell_width]
        _draw_cell(cell, images[i], str(predicted[i]), str(true[i]))
    return picture


def image_grid(images: NDArray[np.floating[Any]], columns: int = 10) -> Picture:
    """Returns a grid of square images without frames.

    Args:
      images:   (N, side * side), numbers from 0 (paper) to 1 (ink)
      columns:  images in a row

    Returns:    (rows, columns, 3)  uint8

    >>> image_grid(np.zeros((3, 4)), columns=2).shape
    (14, 14, 3)
    """
    side, cell = math.isqrt(images.shape[1]), math.isqrt(images.shape[1]) * ZOOM + ZOOM
    rows = math.ceil(len(images) / columns)
    picture = np.full((rows * cell + ZOOM, min(len(images), columns) * cell + ZOOM), 255, np.uint8)
    for place, image in enumerate(images):
        top, left = ZOOM + place // columns * cell, ZOOM + place % columns * cell
        grey = np.round(255 - 255 * image.reshape(side, side).clip(0, 1)).astype(np.uint8)
        picture[top : top + side * ZOOM, left : left + side * ZOOM] = _zoomed(grey)
    return picture[:, :, None].repeat(3, 2)


def write_png(path: Path, picture: Picture) -> None:
    """Writes a picture as a PNG file, either completely or not at all.

    Args:
      picture:  (rows, columns, 3)  uint8

    Raises:
      DataError: the folder is read-only or the disk is full.
    """
    data = encode_png(picture)
    write_whole("write_png", path, lambda file: file.write(data), makes_folder=True)


def encode_png(picture: Picture) -> bytes:
    """Returns the PNG file of a picture: 8 bits a channel, every row with filter 0.

    Args:
      picture:  (rows, columns, 3)  uint8

    >>> encode_png(np.zeros((1, 1, 3), np.uint8))[:4]
    b'\\x89PNG'
    """
    height, width, _ = picture.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # column 0: the filter of the row
    rows[:, 1:] = picture.reshape(height, 3 * width)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, colour type 2 (RGB)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _draw_cell(cell: Picture, image: NDArray[np.uint8], predicted: str, true: str) -> None:
    """Draws one digit with its frame and label into its part of the picture."""
    wrong = predicted != true
    background = np.array(PALE_RED if wrong else PAPER, np.float32)
    ink = _zoomed(image).astype(np.float32)[..., None] / 255  # (height, width, 1), 1 is ink
    drawn = cell[: ink.shape[0]]
    drawn[:] = np.round(background + (np.array(INK, np.float32) - background) * ink)
    for edge in (drawn[0], drawn[-1], drawn[:, 0], drawn[:, -1]):
        edge[:] = WRONG if wrong else FRAME
    label = cell[ink.shape[0] :]
    if wrong:
        _draw_digit(label, predicted, WRONG, centre=label.shape[1] // 2 - 9)
        _draw_digit(label, true, MUTED, centre=label.shape[1] // 2 + 9)
    else:
        _draw_digit(label, predicted, RIGHT, centre=label.shape[1] // 2)


def _draw_digit(label: Picture, digit: str, colour: tuple[int, int, int], centre: int) -> None:
    dots = np.array([[row >> (4 - bit) & 1 for bit in range(5)] for row in FONT[digit]], np.uint8)
    shape = _zoomed(dots).astype(bool)
    top, left = (label.shape[0] - shape.shape[0]) // 2, centre - shape.shape[1] // 2
    label[top : top + shape.shape[0], left : left + shape.shape[1]][shape] = colour


def _zoomed(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return image.repeat(ZOOM, 0).repeat(ZOOM, 1)
