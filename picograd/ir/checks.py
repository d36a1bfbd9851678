"""Errors that only values decide: an index outside its axis, a matrix without an inverse.

A CHECK, and a CUSTOM that may fail, carries a Site in the graphs a user builds: the words of its error. Plans and
kernels, which are compiled and kept, have numbers in place of Sites: a plan numbers its checks, and each kernel its
own. So two kernels that differ only in their author are one, and no cache holds a line of a user's code. When a check
fails, the engine looks up the Site and the line of its number in the graph that it was asked to compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, IndexingError, LinAlgError, Line, PicogradError
from picograd.ir.host import HostCall
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.origin import record
from picograd.record import Record, replace


class Site(Record):
    """The error message of a CHECK or of a CUSTOM.

    fact:      one sentence, with {} in place of the value
    hint:      one thing to do, or None
    from_end:  the user's negative indices were counted from the end before the CHECK: the error shows them as written
    of_values: it is about what a value may be, not about places along an axis: an ArgumentError
    float_nbytes: of the float whose bits, all inverted, are the value; 0: that is an integer
    """

    fact: str
    hint: str | None = None
    from_end: bool = False
    of_values: bool = False
    float_nbytes: int = 0

    def shown(self, value: int, length: int) -> str:
        """Returns the value as the user knows it."""
        if self.float_nbytes:
            bits = (~value).to_bytes(8, "little", signed=True)[: self.float_nbytes]
            return str(np.frombuffer(bits, f"<f{self.float_nbytes}")[0])
        return str(value - length if self.from_end and value < 0 else value)


class Refused(PicogradError):
    """A value that a CHECK or a CUSTOM did not take.

    site:   the Site, or in a plan the number of the Op
    value:  the index; of a CUSTOM the number of the matrix in its batch
    check:  the user's Op, where it is known
    """

    def __init__(self, site: Site | int, value: int, length: int = 0, line: Line | None = None, check: Op | None = None):
        self.site, self.value, self.check = site, value, check
        if isinstance(site, Site):
            super().__init__(site.fact.format(site.shown(value, length)), site.hint, line)
        else:
            super().__init__(f"index: {value} is out of range for check {site}.", None, line)

    def __reduce__(self) -> tuple[Any, ...]:
        make, given, state = super().__reduce__()
        return make, given, {**state, "check": None}  # a graph is of this process alone


class OutOfRange(Refused, IndexingError):
    """An index that a CHECK did not let pass."""


class OutOfDomain(Refused, ArgumentError):
    """A value that a function has no meaning for."""


class Unsolvable(Refused, LinAlgError):
    """A matrix for which a function of the host has no result."""


MAY_FAIL = frozenset({OpCode.CHECK, OpCode.CUSTOM})


def site_of(op: Op) -> tuple[Site | int, Dim] | None:
    """Returns the error message of an Op that may fail, and the length of its axis; None for one that can't."""
    if op.code is OpCode.CHECK:
        return op.arg
    if op.code is OpCode.CUSTOM and isinstance(op.arg, HostCall) and op.arg.site is not None:
        return op.arg.site, 0
    return None


def with_site(op: Op, site: int) -> Any:
    """Returns the argument of an Op that may fail, with a number in place of its Site."""
    return (site, op.arg[1]) if op.code is OpCode.CHECK else replace(op.arg, site=site)


def refusal_of(site: Site | int) -> type[Refused]:
    """Returns the error of a CHECK."""
    return OutOfDomain if isinstance(site, Site) and site.of_values else OutOfRange


def checked(x: Op, length: Dim, site: Site) -> Op:
    """Returns an integer Op as int64, with the error of `site` where it is not one of 0 .. length - 1.

    Raises:
      IndexingError: there are indices, but the axis has no elements.
    """
    if length == 0 and x.numel:
        raise IndexingError(site.fact.format("of any value"), site.hint)
    wide = x if x.dtype is dtypes.int64 else Op(OpCode.CAST, dtypes.int64, (x,))
    op = Op(OpCode.CHECK, dtypes.int64, (wide,), (site, length))
    record(op)
    return op


def first_report(reports: Sequence[Sequence[int]], checks: Sequence[Sequence[int]]) -> OutOfRange:
    """Returns the error of the first kernel that has reported one.

    Args:
      reports: by kernel, what its "report" parameter holds
      checks:  by kernel, the numbers of its CHECKs in the plan
    """
    (number, value), numbers = next((r, own) for r, own in zip(reports, checks) if r[0])
    return OutOfRange(numbers[number - 1], value)
