"""HTML for notebooks: tables and trees that unfold.

In:    texts, arrays
Out:   `table`, `array_table`, `tree`, `text_block`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

SHOWN_PER_AXIS = 10  # rows or columns of a table; of more, the first half and the last half


def escaped(text: str) -> str:
    """Returns text as HTML and SVG have it.

    >>> escaped('"a" < b & c')
    '&quot;a&quot; &lt; b &amp; c'
    """
    for letter, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot")):
        text = text.replace(letter, f"&{name};")
    return text


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Returns a table; cells of digits are on the right.

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
    """Returns text in letters of one width, its lines as they are.

    >>> text_block("a < b")
    '<pre>a &lt; b</pre>'
    """
    return f"<pre>{escaped(text)}</pre>"


def tree(text: str, parts: Sequence[str], is_open: bool = False) -> str:
    """Returns a line that unfolds to other trees; without parts, the line alone.

    >>> tree("a < b", [])
    '<div style="margin-left:1.2em"><code>a &lt; b</code></div>'
    """
    line = f"<code>{escaped(text)}</code>"
    if not parts:
        return f'<div style="margin-left:1.2em">{line}</div>'
    start = '<details open="open"' if is_open else "<details"
    return f'{start} style="margin-left:1.2em"><summary>{line}</summary>{"".join(parts)}</details>'
