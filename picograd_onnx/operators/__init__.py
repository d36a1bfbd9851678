"""The operators of ONNX: a chapter a file, functions on tensors and a row of the table for each operator and version.

An operator that is not here but has a body in onnx.defs is computed through that body.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator

from picograd_onnx.operators import casts, control, images, layers, learning, math, movement, recurrent, reductions, text
from picograd_onnx.record import Operator

CHAPTERS = (math, reductions, movement, casts, control, layers, images, text, learning, recurrent)
# Versions of domains that the rows were written for: what changes later is not computed by an older rule.
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


# A copy of a model has the rows themselves, whose functions may have no name that a pickle could look up.
copyreg.pickle(Operator, lambda row: (_row_of, (row.domain, row.name, row.since)))


def _row_of(domain: str, name: str, since: int) -> Operator:
    return next(row for row in OPERATORS[domain, name] if row.since == since)


def newest(domain: str) -> int:
    """Returns the version of a domain that the rows know."""
    return NEWEST.get(domain, 0)
