"""Draws figures as SVG text with nothing but Python: curves, points and bars over two axes, and grids of coloured cells.

    plot = Plot("Loss of two optimizers", x="step", y="loss", log="y")
    plot.line(steps, losses, "SGD").save("loss.svg")

Equal data give equal files, and text remains text. Colours are those of Okabe and Ito, "Color universal design" (2008),
which readers with any colour vision can distinguish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from os import PathLike

from picograd.files import write_whole
from picograd.record import Record, Struct, field
from picograd.tensor.printing import escaped

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
BLUE, ORANGE = (0, 114, 178), (213, 94, 0)
WIDTH, HEIGHT = 640.0, 380.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 18.0, 40.0, 48.0  # margins in pixels
LEGEND_LINE = 18.0
CELL = 38.0
LINED_CELL_MIN = 14.0  # lines around smaller cells would hide the picture
TICKS = 5  # approximate number per axis
STYLE = (
    "<style>text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:14px;font-weight:600}"
    ".grid{stroke:#e3e3e3}.axis{stroke:#888}.curve{fill:none;stroke-width:2}</style>"
)


class Series(Record):
    """A data set of a plot.

    kind:   "line", "points" or "bars"
    xs:     positions along the first axis; for bars their numbers
    ys:     values
    label:  name in the legend, or none
    color:  an SVG colour; by default the next of COLORS
    """

    kind: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    label: str = ""
    color: str = ""


class Plot(Struct):
    """A figure with two axes, to which series are added.

    title:  text above the figure
    x, y:   names of the axes
    log:    axes with a logarithmic scale: "", "x", "y" or "xy"

    >>> Plot("a square", x="x", y="x * x").line([0, 1, 2], [0, 1, 4]).text().startswith("<svg")
    True
    """

    title: str
    x: str = ""
    y: str = ""
    log: str = ""
    series: list[Series] = field(default_factory=list)
    names: tuple[str, ...] = ()
    notes: list[tuple[float, float, str]] = field(default_factory=list)

    def line(self, xs: Sequence[float], ys: Sequence[float], label: str = "", color: str = "") -> Plot:
        """Adds a curve through points."""
        return self._add("line", xs, ys, label, color)

    def points(self, xs: Sequence[float], ys: Sequence[float], label: str = "", color: str = "") -> Plot:
        """Adds points that are not joined."""
        return self._add("points", xs, ys, label, color)

    def bars(self, names: Sequence[str], ys: Sequence[float], label: str = "") -> Plot:
        """Adds a bar for each name; several sets of bars share the names of the first."""
        self.names = self.names or tuple(names)
        return self._add("bars", range(len(names)), ys, label)

    def note(self, x: float, y: float, text: str) -> Plot:
        """Writes a text to the right of a position."""
        self.notes.append((x, y, text))
        return self

    def _add(self, kind: str, xs: Sequence[float], ys: Sequence[float], label: str, color: str = "") -> Plot:
        if len(xs) != len(ys):
            raise ValueError(f"plot: needs equally many x and y, got {len(xs)} and {len(ys)}.")
        color = color or COLORS[sum(s.color in COLORS for s in self.series) % len(COLORS)]
        self.series.append(Series(kind, tuple(map(float, xs)), tuple(map(float, ys)), label, color))
        return self

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the figure to a file.

        Raises:
          DataError: the file cannot be written.
        """
        text = self.text().encode()
        write_whole("Plot.save", path, lambda file: file.write(text))

    def text(self) -> str:
        """Returns the figure as SVG.

        Raises:
          ValueError: there is nothing to draw, or a logarithmic axis has nonpositive values.
        """
        if not any(s.xs for s in self.series):
            raise ValueError(f"plot: {self.title!r} has no data.")
        labels = [s.label for s in self.series if s.label]
        top = TOP + LEGEND_LINE * bool(labels)
        across = _axis([x for s in self.series for x in s.xs], "x" in self.log, LEFT, WIDTH - RIGHT)
        values = [y for s in self.series for y in s.ys]
        if self.names:
            across = Axis(-0.6, len(self.names) - 0.4, False, LEFT, WIDTH - RIGHT)
            values += [] if "y" in self.log else [0.0]
        up = _axis(values, "y" in self.log, HEIGHT - BOTTOM, top)
        parts = [*_frame(self, across, up), *_legend(self.series)]
        sets = [s for s in self.series if s.kind == "bars"]
        for s in self.series:
            places = [(across.at(x), up.at(y)) for x, y in zip(s.xs, s.ys)]
            if s.kind == "line":
                steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
                parts.append(f'<polyline class="curve" stroke="{s.color}" points="{steps}"/>')
            elif s.kind == "points":
                parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{s.color}"/>' for x, y in places]
            else:
                parts += _bars(places, across, up, s.color, sets.index(s), len(sets))
        parts += [_words(across.at(x) + 6, up.at(y) + 4, text) for x, y, text in self.notes]
        return _svg(WIDTH, HEIGHT, self.title, parts)


# ---- axes ----
class Axis(Record):
    """A scale from values to pixels.

    low, high:    the values at its ends
    is_log:       True for a logarithmic scale
    first, last:  the pixels at its ends
    """

    low: float
    high: float
    is_log: bool
    first: float
    last: float

    def at(self, value: float) -> float:
        """Returns the pixel of a value."""
        scale: Callable[[float], float] = math.log10 if self.is_log else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return self.first + share * (self.last - self.first)

    def ticks(self) -> list[float]:
        """Returns round values between both ends."""
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            digits = (1, 2, 5) if len(powers) <= 3 else (1,)
            values = [digit * 10.0**power for power in powers for digit in digits]
            return [value for value in values if self.low / 1.001 <= value <= self.high * 1.001]
        step = _round_step((self.high - self.low) / TICKS)
        return [step * n for n in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]


def _round_step(about: float) -> float:
    power = 10.0 ** math.floor(math.log10(about))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= about * 0.7)


def _axis(values: Sequence[float], is_log: bool, first: float, last: float) -> Axis:
    """Returns an axis that contains all values, with some room at both ends."""
    low, high = min(values), max(values)
    if is_log and low <= 0:
        raise ValueError(f"plot: a logarithmic axis needs positive values, got {low}.")
    if is_log:
        room = (high / low) ** 0.03 if high > low else 2.0
        return Axis(low / room, high * room, True, first, last)
    if low == high:
        return Axis(low - (abs(low) or 1.0), high + (abs(high) or 1.0), False, first, last)
    room = 0.03 * (high - low)
    return Axis(low - room if low else 0.0, high + room if high else 0.0, False, first, last)


def _frame(plot: Plot, across: Axis, up: Axis) -> list[str]:
    """Returns the lines and numbers of both axes, and their names."""
    parts = []
    for value in up.ticks():
        y = up.at(value)
        parts.append(f'<line class="grid" x1="{across.first:.1f}" y1="{y:.1f}" x2="{across.last:.1f}" y2="{y:.1f}"/>')
        parts.append(_words(across.first - 6, y + 4, _number(value), "end"))
    named = [(float(i), name) for i, name in enumerate(plot.names)] or [(v, _number(v)) for v in across.ticks()]
    for value, text in named:
        x = across.at(value)
        if not plot.names:
            parts.append(f'<line class="grid" x1="{x:.1f}" y1="{up.first:.1f}" x2="{x:.1f}" y2="{up.last:.1f}"/>')
        parts.append(_words(x, up.first + 16, text, "middle"))
    corners = f"{across.first:.1f},{up.last:.1f} {across.first:.1f},{up.first:.1f} {across.last:.1f},{up.first:.1f}"
    parts.append(f'<polyline class="axis" fill="none" points="{corners}"/>')
    parts.append(_words((across.first + across.last) / 2, HEIGHT - 10, plot.x, "middle"))
    middle = (up.first + up.last) / 2
    parts.append(f'<g transform="translate(14 {middle:.1f}) rotate(-90)">{_words(0, 0, plot.y, "middle")}</g>')
    return parts


def _bars(places: list[tuple[float, float]], across: Axis, up: Axis, color: str, number: int, count: int) -> list[str]:
    width = 0.8 * (across.at(1) - across.at(0)) / count
    bottom = up.first if up.is_log else up.at(0)
    parts = []
    for x, y in places:
        left = x + width * (number - count / 2)
        top, height = min(y, bottom), abs(y - bottom)
        parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{width * 0.94:.1f}" height="{height:.1f}" fill="{color}"/>'
        )
    return parts


def _legend(series: Sequence[Series]) -> list[str]:
    parts, x = [], LEFT
    for s in series:
        if s.label:
            parts.append(f'<rect x="{x:.1f}" y="33" width="12" height="12" rx="2" fill="{s.color}"/>')
            parts.append(_words(x + 17, 43, s.label))
            x += 17 + 6.6 * len(s.label) + 18
    return parts


# ---- grids of cells ----
def grid(
    title: str,
    rows: Sequence[Sequence[float]],
    texts: Sequence[Sequence[str]] | None = None,
    across: Sequence[str] = (),
    down: Sequence[str] = (),
    cell: float = CELL,
) -> str:
    """Draws numbers as a grid of cells in SVG: darker for larger numbers, or white for 0 and orange below it.

    Args:
      title:   text above the grid
      rows:    the numbers, row by row
      texts:   text in each cell, or none
      across:  names of the columns
      down:    names of the rows
      cell:    height and width of a cell, in pixels; small cells have no lines around them

    Returns:   the SVG

    >>> grid("a", [[0, 1]], texts=[["no", "yes"]]).count("<rect")
    3
    """
    low, high = min(map(min, rows)), max(map(max, rows))
    base, reach = (0.0, max(-low, high)) if low < 0 else (low, high - low)
    left, top = 12 + 7.5 * max(map(len, down), default=0), 36 + 16 * bool(across)
    line = ' stroke="#bbb"' if cell >= LINED_CELL_MIN else ""
    parts = [_words(left + cell * (j + 0.5), top - 5, name, "middle") for j, name in enumerate(across)]
    parts += [_words(left - 6, top + cell * (i + 0.5) + 4, name, "end") for i, name in enumerate(down)]
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            share = (value - base) / reach if reach else 0.0
            x, y = left + cell * j, top + cell * i
            rgb = ",".join(f"{255 - abs(share) * (255 - end):.0f}" for end in (BLUE if share > 0 else ORANGE))
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{cell:.1f}" height="{cell:.1f}" fill="rgb({rgb})"{line}/>'
            )
            if texts is not None:
                color = ' style="fill:#fff"' if abs(share) > 0.55 else ""
                parts.append(_words(x + cell / 2, y + cell / 2 + 4, texts[i][j], "middle", color))
    width = max(left + cell * len(rows[0]) + 12, 24 + 8.5 * len(title))
    return _svg(width, top + cell * len(rows) + 12, title, parts)


# ---- text ----
def _number(value: float) -> str:
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.10g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _words(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escaped(text)}</text>'


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">'
    )
    back = '<rect width="100%" height="100%" fill="#fff"/>'
    heading = f'<text class="title" x="12" y="22">{escaped(title)}</text>'
    return "\n".join([head, STYLE, back, heading, *parts, "</svg>\n"])
