"""HTML for notebooks."""

from __future__ import annotations

import xml.etree.ElementTree as xml

import numpy as np
import pytest

from picograd.tensor.printing import array_table, table, text_block, tree


@pytest.mark.parametrize("shape", [(1,), (11,), (3, 4), (10, 10), (12, 3), (3, 12), (99, 99)])
def test_the_rows_of_a_table_are_equally_long(shape: tuple[int, ...]) -> None:
    rows = xml.fromstring(array_table(np.arange(np.prod(shape)).reshape(shape), "n")).findall("tbody/tr")
    assert len({len(row) for row in rows}) == 1
    assert len(rows) == min(11, shape[0] if len(shape) > 1 else 1) and len(rows[0]) == min(11, shape[-1])
    assert rows[0][0].text == "0" and rows[-1][-1].text == str(np.prod(shape) - 1)


def test_text_is_escaped() -> None:
    assert xml.fromstring(table(["<a>"], [["&"]], "<b>")).findtext("caption") == "<b>"
    assert xml.fromstring(text_block("<c>")).text == "<c>"
    assert xml.fromstring(tree("<d>", [tree("<e>", [])], is_open=True)).findtext("div/code") == "<e>"
