"""The operators of ONNX: a subject a file, with functions on tensors and a row of the table for each operator and version.

An operator without a row is computed by its body in onnx.defs, if it has one there.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator

from picograd_onnx.operators import casts, control, images, layers, learning, math, movement, recurrent, reductions, text
from picograd_onnx.record import Operator

CHAPTERS = (math, reductions, movement, casts, control, layers, images, text, learning, recurrent)
# Newest versions of domains that the rows implement; an older row does not compute an operator that changed later.
NEWEST = {"": 28, "ai.onnx.ml": 5, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1}


def _rows() -> Iterator[Operator]:
    for chapter in CHAPTERS:
        yield from chapter.OPERATORS


OPERATORS: dict[tuple[str, str], list[Operator]] = {}
for _row in _rows():
    OPERATORS.setdefault((_row.domain, _row.name), []).append(_row)


def find(domain: str, name: str, version: int) -> Operator | None:
    """Returns the row for a version of an operator, or None."""
    rows = [entry for entry in OPERATORS.get((domain, name), []) if entry.since <= version]
    return max(rows, key=lambda entry: entry.since) if rows and version <= newest(domain) else None


# Copies of a model keep the rows themselves, since pickle finds some of their functions by no name.
copyreg.pickle(Operator, lambda row: (_row_of, (row.domain, row.name, row.since)))


def _row_of(domain: str, name: str, since: int) -> Operator:
    return next(row for row in OPERATORS[domain, name] if row.since == since)


def newest(domain: str) -> int:
    """Returns the newest version of a domain that the rows implement."""
    return NEWEST.get(domain, 0)
