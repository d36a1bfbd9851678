"""Origins of Ops and memory: the user's line of each Op, values whose graph has ended, owners of a device's memory.

The line of an Op is in a slot that is not part of its identity, so that equal graphs stay equal.

A value that a jitted function computed from tensors that require grad has no graph that leads back from it, and its memory
says so. Without jit a gradient would flow on from it. A backward() that comes upon one would leave that part out, so it is
an error there; detach(), and reading it under no_grad, say that no gradient is wanted.

Somebody who has run out of memory needs to know which values of a program hold the most of it: `out_of_memory` words that.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from types import CodeType, FrameType
from typing import Any, ClassVar, NamedTuple, cast

from picograd.dtype import DType
from picograd.errors import BETWEEN, PROGRAM_FOLDERS, Line, OutOfMemoryError
from picograd.interrupts import Latest, LivingSet
from picograd.ir.op import Buffer, Op, Shape
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode

# ---- lines ----
LINES_MAX = 3  # lines kept for one Op
Lines = tuple[tuple[Any, ...], ...]  # of an Op: file and number, and a module's name while somebody profiles

# The lines that called a function whose graph is made only now: the code that asks for it has made none of it.
of_formula: ContextVar[tuple[tuple[str, int], ...] | None] = ContextVar("picograd_lines", default=None)


class Following:
    """Notes on Ops besides their lines, taken while somebody profiles.

    is_on:   Ops that a function makes on its way to a result have the line of the result
    module:  the one whose forward runs, by its name; "" elsewhere
    """

    is_on = False
    module = ""


class _IsOwn(dict[str, bool]):
    """File name -> is it picograd's: worked out once for each name."""

    def __missing__(self, name: str) -> bool:
        own = self[name] = name.startswith(BETWEEN) and not name.startswith(PROGRAM_FOLDERS)
        return own


_is_own = _IsOwn()
# (id of a code object, place in it) -> the code object, whose id stays its own so long, and the line. To find the number of
# a line, CPython walks through the table of the whole function, 1.6 us for one of 300 lines.
_lines: Latest[tuple[int, int], tuple[CodeType, Lines]] = Latest(1 << 16)


def record(op: Op) -> None:
    """Remembers that the innermost line on the stack that is not picograd's made `op`."""
    given = of_formula.get()
    if given is not None:
        op.lines = op.lines or given
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_own[(code := frame.f_code).co_filename]:
        frame = frame.f_back
    if frame is not None:
        site = id(code), frame.f_lasti
        found = _lines.get(site)
        if found is None:
            found = code, ((code.co_filename, frame.f_lineno),)
            _lines.put(site, found)
        lines = found[1] if not Following.module else ((*found[1][0], Following.module),)
        known = op.lines
        if not known:
            op.lines = lines
        elif lines[0] not in known and len(known) < LINES_MAX:
            op.lines = (*known, *lines)


def lines_of(op: Op) -> tuple[Line, ...]:
    """Returns the user's lines that made `op`, the first one first; () if none is known."""
    return tuple(Line(*place) for place in op.lines)


def line_of(op: Op) -> Line | None:
    """Returns the user's line that made `op`, or where none is known that of the nearest Op it is computed from."""
    level, seen = [op], {op}
    while level:
        for here in level:
            if here.lines:
                return lines_of(here)[0]
        level = list(dict.fromkeys(s for here in level for s in here.src if s not in seen))
        seen.update(level)
    return None


def copy_lines(source: Op, result: Op, replace: bool = False) -> None:
    """Lets `result`, which a rewrite or a gradient made from `source`, keep the user's lines of `source`.

    Args:
      replace: lines that `result` has go: they are those of an equal Op of another graph
    """
    if result is source:
        return
    places = source.lines
    if replace or (places and not result.lines):
        result.lines = places


def spread(order: Sequence[Op]) -> None:
    """Gives Ops without a line that of an Op that reads them; `order`: sources first."""
    for op in reversed(order):
        for source in op.src:
            if source.src and not source.lines:
                source.lines = op.lines


# ---- values without a graph ----
class Graphless(Buffer):
    """Memory of such a value.

    function:  the name of the jitted function
    living:    those that there are
    """

    __slots__ = ("function",)
    function: str
    living: ClassVar[LivingSet[Graphless]] = LivingSet()

    @classmethod
    def of(cls, buffer: Buffer, function: str) -> Graphless:
        """Returns the memory of a buffer as that of a result of a jitted function."""
        found = cls(buffer.device, buffer.dtype, buffer.numel, buffer.memory)
        found.function = function
        cls.living.add(found)
        return found


def another_buffer(buffer: Buffer) -> Buffer:
    """Returns the memory of a buffer as another buffer."""
    if type(buffer) is Graphless:
        return Graphless.of(buffer, buffer.function)
    return Buffer(buffer.device, buffer.dtype, buffer.numel, buffer.memory)


def is_graphless(op: Op) -> bool:
    """Returns whether an Op is such a value."""
    return op.code is OpCode.BUFFER and type(op.arg[0]) is Graphless


def graphless_in(roots: Iterable[Op]) -> Graphless | None:
    """Returns the memory of such a value from which a gradient would flow to one of the roots, or None."""
    if not Graphless.living:
        return None
    stack = list(roots)
    seen = set(stack)
    while stack:
        op = stack.pop()
        if op.code is OpCode.DETACH or op.dtype.kind != "f" and op.code not in SEVERAL_RESULTS:
            continue
        if is_graphless(op):
            return cast(Graphless, op.arg[0])
        fresh = [source for source in op.src if source not in seen]
        seen.update(fresh)
        stack += fresh
    return None


def like_its_sources(buffer: Buffer, root: Op, read: Iterable[Buffer]) -> Buffer:
    """Returns the memory of a computed graph, which reads some memory: without a graph if it comes from such a value."""
    if Graphless not in map(type, read):
        return buffer
    source = graphless_in((root,))
    return buffer if source is None else Graphless.of(buffer, source.function)


# ---- memory ----
NAMED_MAX = 4  # of the largest


class MemoryOwner(NamedTuple):
    """A value in memory.

    line:  of the user's that made it, where that is known
    """

    nbytes: int
    dtype: DType
    shape: Shape
    line: Line | None

    def __str__(self) -> str:
        made = f" made at {self.line}" if self.line is not None else ""
        return f"{format_nbytes(self.nbytes)} {self.dtype} {self.shape}{made}"


def memory_owners(device: str) -> list[MemoryOwner]:
    """Returns the values whose memory a device has allocated, the largest first.

    Cost: a look at every living object.
    """
    found = {
        buffer: MemoryOwner(buffer.nbytes, buffer.dtype, (buffer.numel,), None)
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
    return sorted(found.values(), key=lambda owner: -owner.nbytes)


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
    found = memory_owners(device)
    texts = [str(owner) for owner in found[:NAMED_MAX]]
    rest = found[NAMED_MAX:]
    if rest:
        texts.append(f"{len(rest)} others with {format_nbytes(sum(owner.nbytes for owner in rest))}")
    if texts:
        fact = "\n    ".join([f"{fact}; the largest of its values:", *texts])
    hint = "release tensors, use smaller batches, or recompute values with pg.checkpoint"
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
