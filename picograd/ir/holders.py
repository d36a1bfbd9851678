"""Which values of a program hold the most memory of a device: what somebody who has run out of it needs to know.

In:    a device's name
Out:   `out_of_memory`; `format_nbytes`
"""

from __future__ import annotations

import gc
from typing import NamedTuple

from picograd.dtype import DType
from picograd.errors import Line, OutOfMemoryError
from picograd.ir.lines import lines_of
from picograd.ir.op import Buffer, Op, Shape
from picograd.ir.opcode import OpCode

NAMED = 4  # of the largest


class Holder(NamedTuple):
    """A value that lies in memory.

    line:  of the user's that made it, where that is known
    """

    nbytes: int
    dtype: DType
    shape: Shape
    line: Line | None

    def __str__(self) -> str:
        made = f" made at {self.line}" if self.line is not None else ""
        return f"{format_nbytes(self.nbytes)} {self.dtype} {self.shape}{made}"


def holders(device: str) -> list[Holder]:
    """Returns the values whose memory a device has allocated, the largest first.

    Cost: a look at every living object.
    """
    found = {
        buffer: Holder(buffer.nbytes, buffer.dtype, (buffer.numel,), None)
        for buffer in gc.get_objects()
        if type(buffer) is Buffer and buffer.device == device and buffer.memory is not None
    }
    for entry in list(Op.interned.values()):  # which know shapes and lines
        op = entry()
        value = None if op is None else _value_of(op)
        if op is None or value is None:
            continue
        buffer, shape = value.arg
        if buffer in found and found[buffer].line is None:
            found[buffer] = found[buffer]._replace(shape=shape, line=next(iter(lines_of(op)), None))
    return sorted(found.values(), key=lambda holder: -holder.nbytes)


def _value_of(op: Op) -> Op | None:
    """Returns the BUFFER with an Op's value, where it has one."""
    op = op.src[0] if op.code is OpCode.LEAF else op
    return op if op.code is OpCode.BUFFER else op.realized


def out_of_memory(device: str, wanted: int | str, state: str = "") -> OutOfMemoryError:
    """Returns the error for an allocation that failed: it names the values that hold the most.

    Args:
      wanted: bytes; or words for them, where the driver allocates later and does not say how many
      state:  how much the device has, and who has it
    """
    shown = wanted if isinstance(wanted, str) else format_nbytes(wanted)
    fact = f"{device}: cannot allocate {shown}" + (f": {state}" if state else "")
    found = holders(device)
    texts = [str(holder) for holder in found[:NAMED]]
    rest = found[NAMED:]
    if rest:
        texts.append(f"{len(rest)} others with {format_nbytes(sum(holder.nbytes for holder in rest))}")
    if texts:
        fact = "\n    ".join([f"{fact}; the largest of its values:", *texts])
    hint = "let go of tensors, use smaller batches, or compute values twice with pg.checkpoint"
    return OutOfMemoryError(f"{fact}.", hint)


def format_nbytes(nbytes: int) -> str:
    """Returns a number of bytes for people.

    >>> format_nbytes(0), format_nbytes(54_950_048)
    ('0 B', '52.4 MiB')
    """
    if nbytes < 1024:
        return f"{nbytes} B"
    amount, unit = nbytes / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if amount >= 1024:
            amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}"
