"""A curve as text: each Braille letter shows two columns and four rows of dots."""

from __future__ import annotations

import math
from collections.abc import Sequence

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of U+2800, by row and column


def curve(values: Sequence[float], rows: int, columns: int) -> str:
    """Returns lines of text that plot values from left to right, with the largest and the least value at the left.

    Args:
      values:   averaged to at most two per letter; nonfinite ones are left out
      rows:     number of lines
      columns:  letters of a line, without the numbers

    >>> print(curve([3.0, 2.0, 1.5, 1.2, 1.1, 1.0], 2, 3))
    3.000 ⠁⠀⠀
    1.000 ⠈⠢⣀
    """
    points = thinned([value for value in values if math.isfinite(value)], 2 * columns)
    if not points:
        return ""
    low, high = min(points), max(points)
    cells = [[0] * columns for _ in range(rows)]
    for place, value in enumerate(points):
        height = 0.0 if high == low else (high - value) / (high - low)
        dot = round(height * (4 * rows - 1))
        cells[dot // 4][place // 2] |= DOTS[dot % 4][place % 2]
    heads = {0: f"{high:.3f}", rows - 1: f"{low:.3f}"}
    width = max(map(len, heads.values()))
    lines = ["".join(chr(0x2800 + cell) for cell in row) for row in cells]
    return "\n".join(f"{heads.get(number, ''):>{width}} {line}" for number, line in enumerate(lines))


def thinned(values: Sequence[float], most: int) -> list[float]:
    """Returns at most `most` values, as means of adjacent ones.

    >>> thinned([1.0, 3.0, 5.0, 7.0], 2)
    [2.0, 6.0]
    """
    if len(values) <= most:
        return list(values)
    edges = [place * len(values) // most for place in range(most + 1)]
    return [sum(values[low:high]) / (high - low) for low, high in zip(edges, edges[1:])]
