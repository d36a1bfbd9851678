"""The text of a tensor, printed as NumPy prints arrays, with options of its own; and HTML for notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from picograd import dtype as dtypes
from picograd.annotations import fits, shown
from picograd.dtype import DType
from picograd.errors import ArgumentError

__all__ = [
    "set_printoptions",
]  # fmt: skip

PROFILES: dict[str, dict[str, Any]] = {
    "default": {},  # NumPy's own settings
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2},
    "full": {"threshold": math.inf},
}
_options: dict[str, Any] = {}  # arguments of numpy.array2string


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: Literal["default", "short", "full"] | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets options of printing; options left out keep their value, at first NumPy's.

    Args:
      precision:  digits after the point
      threshold:  number of elements from which the middle of a tensor is left out
      edgeitems:  elements shown then at both ends of each axis
      linewidth:  characters per line
      profile:    "default" resets all options; "short" and "full" set several
      sci_mode:   True: print floats as 1.0000e+00. False: never

    Raises:
      ArgumentError: a number is negative, or not a number.

    >>> set_printoptions(precision=2)
    >>> Tensor([3.14159, 2.0])
    Tensor([3.14, 2.  ])
    >>> set_printoptions(sci_mode=True)
    >>> Tensor([3.14159, 2.0])
    Tensor([3.14e+00, 2.00e+00])
    >>> set_printoptions(profile="default")
    """
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "max_line_width": linewidth}
    for name, value in given.items():
        kind = float if name == "threshold" else int  # threshold may be infinite: all elements are shown
        if value is not None and (not fits(value, kind) or not value >= 0):
            name = "linewidth" if name == "max_line_width" else name
            number = "a number" if kind is float else "an integer"
            raise ArgumentError(f"set_printoptions: {name} must be {number} from 0 on, got {shown(value)}.")
    if profile is not None:
        _options.clear()
        _options.update(PROFILES[profile])
    _options.update({name: value for name, value in given.items() if value is not None})
    if sci_mode is not None:
        _options.update(suppress_small=not sci_mode, formatter={"float_kind": _scientific} if sci_mode else None)


def _scientific(value: float) -> str:
    return f"{value:.{_options.get('precision', 4)}e}"


def is_shortened(array: np.ndarray[Any, Any]) -> bool:
    """Returns whether the text of an array leaves out its middle."""
    return bool(array.size > _options.get("threshold", np.get_printoptions()["threshold"]))


def text_of(array: np.ndarray[Any, Any], dtype: DType, prefix: str) -> str:
    """Returns numbers as text; NumPy prints floats that it does not know, such as bfloat16, as integers."""
    options = {"separator": ", ", "prefix": prefix, **_options}
    if dtype.is_narrow and dtype is not dtypes.float16:
        array = array.astype(np.float32)
        options.setdefault("precision", 1 + math.ceil(dtype.precision * math.log10(2.0)))
    return np.array2string(array, **options)


# ---- HTML: tables, and trees that unfold ----
SHOWN_PER_AXIS = 10  # rows or columns of a table; longer axes show both ends


def escaped(text: str) -> str:
    """Returns text escaped for HTML and SVG.

    >>> escaped('"a" < b & c')
    '&quot;a&quot; &lt; b &amp; c'
    """
    for letter, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot")):
        text = text.replace(letter, f"&{name};")
    return text


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Returns an HTML table; numbers are right-aligned.

    >>> table(["a"], [["1"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td style="text-align:right">1</td></tr></tbody></table>'
    """
    above = f"<caption>{escaped(caption)}</caption>" if caption else ""
    heading = "".join(f"<th>{escaped(text)}</th>" for text in head)
    heading = f"<thead><tr>{heading}</tr></thead>" if heading else ""
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table>{above}{heading}<tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    is_number = text[-1:].isdigit() and not any(letter in text for letter in "( ")
    return f'<td style="text-align:{"right" if is_number else "left"}">{escaped(text)}</td>'


def array_table(array: np.ndarray[Any, Any], caption: str) -> str:
    """Returns a table of a vector or a matrix; the middle of long axes is left out.

    >>> array_table(np.zeros((99, 1)), "zeros").count("<tr>")
    11
    """
    rows = [[_number(value) for value in _ends(row)] for row in _ends(array.reshape(-1, array.shape[-1]))]
    if array.shape[-1] > SHOWN_PER_AXIS:
        rows = [[*row[: SHOWN_PER_AXIS // 2], "…", *row[SHOWN_PER_AXIS // 2 :]] for row in rows]
    if len(rows) < array.size // array.shape[-1]:
        rows.insert(SHOWN_PER_AXIS // 2, ["…"] * len(rows[0]))
    return table((), rows, caption)


def _ends(items: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the first and the last of many items."""
    half = SHOWN_PER_AXIS // 2
    return items if len(items) <= SHOWN_PER_AXIS else np.concatenate([items[:half], items[-half:]])


def _number(value: Any) -> str:
    return str(value) if isinstance(value, (np.integer, np.bool_)) else f"{float(value):.4g}"


def text_block(text: str) -> str:
    """Returns preformatted text in HTML.

    >>> text_block("a < b")
    '<pre>a &lt; b</pre>'
    """
    return f"<pre>{escaped(text)}</pre>"


def tree(text: str, parts: Sequence[str], is_open: bool = False) -> str:
    """Returns a line of HTML that unfolds to other trees; without parts, the line alone.

    >>> tree("a < b", [])
    '<div style="margin-left:1.2em"><code>a &lt; b</code></div>'
    """
    line = f"<code>{escaped(text)}</code>"
    if not parts:
        return f'<div style="margin-left:1.2em">{line}</div>'
    start = '<details open="open"' if is_open else "<details"
    return f'{start} style="margin-left:1.2em"><summary>{line}</summary>{"".join(parts)}</details>'
