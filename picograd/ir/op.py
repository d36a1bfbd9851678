"""The one node type of every graph: immutable and hash-consed, so equal Ops are the same object.

In:    an OpCode, a dtype, sources and a static argument
Out:   `Op`, with its shape; `toposort`; `Buffer`

Two exceptions: `unshared` Ops, which stand for graphs that are yet to be made, and an Op that is made while the garbage
collector frees an equal one (`_intern_late`).
"""

from __future__ import annotations

import functools
import struct
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from math import copysign
from operator import attrgetter
from types import MethodType
from typing import Any, ClassVar, Protocol, Union

from picograd.dtype import DType, Scalar
from picograd.errors import ShapeError
from picograd.interrupts import whole_at_fork
from picograd.ir.arithmetic import ARITHMETIC, INTERVALS, Interval
from picograd.ir.opcode import INFIX, OpCode

Dim = Union[int, "Op"]
Shape = tuple[Dim, ...]


class Buffer:
    """Memory of a device, by identity.

    device:  name of the device that owns it
    dtype:   element type
    numel:   elements
    memory:  what the device allocated; None until something is stored
    """

    __slots__ = ("device", "dtype", "numel", "memory", "__weakref__")

    def __init__(self, device: str, dtype: DType, numel: int, memory: Any = None):
        self.device, self.dtype, self.numel, self.memory = device, dtype, numel, memory

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"Buffer({self.device}, {self.dtype}, {self.numel})"


class Op:
    """An operation on sources. `Op(code, dtype, src, arg)` returns the existing equal Op if there is one.

    code:        OpCode
    dtype:       element type of the result
    src:         the Ops it reads
    arg:         static payload, by opcode (see opcode.py)
    shape:       of the result; a dimension is an int or a symbolic integer Op
    needs_grad:  gradients flow to it: a LEAF, where they are collected, is reachable through differentiable Ops
    depth:       Ops on the longest way down to one without sources
    realized:    the BUFFER Op with its value, once that has been computed
    lines:       places in the user's source that made it; see ir/origin.py
    """

    __slots__ = (
        "code", "dtype", "src", "arg", "shape", "needs_grad", "depth", "realized", "lines", "terms", "text",
        "times_computed", "is_read", "__weakref__"
    )  # fmt: skip
    code: OpCode
    dtype: DType
    src: tuple[Op, ...]
    arg: Any
    shape: Shape
    needs_grad: bool
    depth: int
    realized: Op | None
    lines: tuple[tuple[str, int], ...]
    terms: tuple[dict[Op, int], int]  # of an integer expression, once ir/symbolic.py has looked
    text: str  # by which terms of a sum are ordered, once ir/symbolic.py has asked
    times_computed: int  # by plans that did not keep its value; not counted further once the next one is to keep it
    is_read: bool  # as the value of a tensor, since it was last built: who has it now was given it

    interned: ClassVar[dict[Hashable, weakref.ref[Op]]] = {}
    # Filled by ir/shape.py: a rule by opcode; and opcodes whose sources and result have one shape, which need no rule then.
    shape_rules: ClassVar[dict[OpCode, Callable[[tuple[Op, ...], Any], Shape]]] = {}
    shape_keeping: ClassVar[set[OpCode]] = set()

    def __new__(cls, code: OpCode, dtype: DType, src: tuple[Op, ...] = (), arg: Any = None) -> Op:
        # NOTE: 0.0 == -0.0 and nan != nan; a constant is the same only if its bits are.
        key = (code, dtype, src, struct.pack("d", arg) if code is OpCode.CONST and dtype.kind == "f" else arg)
        entry = _interned.get(key)
        if entry is not None:
            found = entry()
            if found is not None:
                found.is_read = False
                return found
        op = object.__new__(cls)
        op.code, op.dtype, op.src, op.arg, op.realized, op.times_computed, op.lines = code, dtype, src, arg, None, 0, ()
        depth, needs_grad, keeps_shape = -1, code is OpCode.LEAF, code in _shape_keeping
        shape = src[0].shape if keeps_shape else ()
        for s in src:
            if s.depth > depth:
                depth = s.depth
            if s.needs_grad:
                needs_grad = True
            if keeps_shape and s.shape is not shape and s.shape != shape:
                keeps_shape = False  # the rule raises the error
        rule = None if keeps_shape else _shape_rules.get(code)
        op.shape = shape if rule is None else rule(src, arg)
        if needs_grad and (dtype.kind != "f" or code is OpCode.DETACH):
            needs_grad = code is OpCode.CALL or code is OpCode.LOOP
        op.needs_grad, op.depth, op.is_read = needs_grad, depth + 1, False
        entry = weakref.ref(op, MethodType(_leave, key))
        winner = _interned.setdefault(key, entry)
        return op if winner is entry else _intern_late(winner, entry, key, op)

    def __copy__(self) -> Op:
        return self

    def __deepcopy__(self, memo: object) -> Op:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.code is OpCode.BUFFER or self.code is OpCode.LEAF:
            raise TypeError("a graph cannot be pickled, because it refers to this process's memory; pickle tensors instead")
        return Op, (self.code, self.dtype, self.src, self.arg)

    def __repr__(self) -> str:
        length = _length_text(self)
        if length is not None:
            return length
        shown = "" if self.arg is None else f" {self.arg}"
        return f"<{self.code.name}{shown} {self.dtype} {self.shape}>"

    def replace(self, src: tuple[Op, ...] | None = None, arg: Any = None) -> Op:
        """Returns this Op with other sources or another argument."""
        if arg is None and src == self.src:
            return self
        return Op(self.code, self.dtype, self.src if src is None else src, self.arg if arg is None else arg)

    @property
    def numel(self) -> int:
        """Elements of the result; a symbolic dimension counts with its greatest value."""
        return greatest_numel(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize

    # ---- arithmetic on Ops of one shape, or with a Python scalar ----
    def filled(self, value: Scalar) -> Op:
        """Returns `value` in the dtype and shape of this Op."""
        return filled(value, self.dtype, self.shape)

    def __add__(self, other: Op | Scalar) -> Op:
        return Op(OpCode.ADD, self.dtype, (self, other if isinstance(other, Op) else self.filled(other)))

    def __sub__(self, other: Op | Scalar) -> Op:
        return Op(OpCode.SUB, self.dtype, (self, other if isinstance(other, Op) else self.filled(other)))

    def __mul__(self, other: Op | Scalar) -> Op:
        return Op(OpCode.MUL, self.dtype, (self, other if isinstance(other, Op) else self.filled(other)))

    def __truediv__(self, other: Op | Scalar) -> Op:
        return Op(OpCode.DIV, self.dtype, (self, other if isinstance(other, Op) else self.filled(other)))

    def __neg__(self) -> Op:
        return Op(OpCode.NEG, self.dtype, (self,))

    __radd__, __rmul__ = __add__, __mul__

    # ---- what Python asks of numbers: a symbolic length of a shape has no one value ----
    def _no_number(self, other: object = None) -> int:
        raise ShapeError(
            f"a symbolic length, {self}, is used where one number is needed.",
            "use the symbolic integer n itself, as in x[:n] and x.reshape(n, -1), or n.value, its present number.",
        )

    __index__ = __lt__ = __le__ = __gt__ = __ge__ = _no_number
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __rsub__ = _no_number


_interned, _shape_rules, _shape_keeping = Op.interned, Op.shape_rules, Op.shape_keeping
# NOTE: called as _leave(key, entry) when an Op dies: a function in C, which neither an interrupt nor another thread enters.
_leave = _interned.pop
_replacing = threading.RLock()  # a signal handler may make Ops, too
whole_at_fork(_replacing.acquire, _replacing.release)


def _intern_late(winner: weakref.ref[Op], entry: weakref.ref[Op], key: Hashable, op: Op) -> Op:
    """Returns the equal Op that another thread was faster to make, or `op` where `winner` is one that is dying.

    A dying Op is seen only during garbage collection. Its end may remove the entry of `op`; the next equal Op is then
    another object.
    """
    found = winner()
    if found is not None:
        return found
    with _replacing:
        known = _interned.get(key)
        found = None if known is None else known()
        if found is None:
            _interned[key] = entry
        return op if found is None else found


# ---- memory ----
def is_memory(op: Op) -> bool:
    """True for a value that is in memory, or a graph whose value is."""
    return op.code is OpCode.BUFFER or op.realized is not None


def memory_op(buffer: Buffer, shape: Shape) -> Op:
    """Returns the BUFFER Op of memory, at half the cost of `Op`: each result of a plan is one, and most are new."""
    op = object.__new__(Op)
    op.code, op.dtype, op.src, op.realized, op.times_computed, op.lines = OpCode.BUFFER, buffer.dtype, (), None, 0, ()
    op.arg, op.shape, op.needs_grad, op.depth = (buffer, shape), shape, False, 0
    key = (OpCode.BUFFER, buffer.dtype, (), op.arg)
    entry = weakref.ref(op, MethodType(_leave, key))
    winner = _interned.setdefault(key, entry)
    return op if winner is entry else _intern_late(winner, entry, key, op)


def unshared(code: OpCode, dtype: DType, src: tuple[Op, ...], arg: Any, shape: Shape, needs_grad: bool) -> Op:
    """Returns an Op that is not in the table of living Ops: equal ones are different objects. It costs a third of `Op`.

    It stands for a graph that is yet to be made, whose Ops are shared.
    """
    op = object.__new__(Op)
    op.code, op.dtype, op.src, op.arg, op.realized, op.times_computed, op.lines = code, dtype, src, arg, None, 0, ()
    op.shape, op.needs_grad, op.is_read, op.depth = shape, needs_grad, False, 1 + max(map(DEPTH, src))
    return op


# ---- constants ----
def const(value: Scalar, dtype: DType) -> Op:
    """Returns the scalar constant `value` as a dtype holds it."""
    return Op(OpCode.CONST, dtype, (), dtype.scalar(value))


def filled(value: Scalar, dtype: DType, shape: Shape) -> Op:
    """Returns `value` repeated over `shape`; those used last are kept, so that x * 0.5 builds one Op and not three."""
    # NOTE: 0.0 and -0.0 are equal and would share an entry.
    return _kept(value, dtype, shape) if value or copysign(1.0, value) > 0 else _filled(value, dtype, shape)


def _filled(value: Scalar, dtype: DType, shape: Shape) -> Op:
    scalar = const(value, dtype)
    return Op(OpCode.EXPAND, dtype, (scalar,), shape) if shape else scalar


_kept = functools.lru_cache(maxsize=512, typed=True)(_filled)


def const_value(op: Op) -> Scalar | None:
    """Returns the value of a constant seen through movement that only repeats it, else None."""
    while op.code in (OpCode.EXPAND, OpCode.RESHAPE, OpCode.PERMUTE, OpCode.SHRINK, OpCode.FLIP):
        op = op.src[0]
    return op.arg if op.code is OpCode.CONST else None


# ---- lengths ----
def greatest(dim: Dim) -> int:
    """Returns the largest value a dimension can have."""
    return _extremes(dim)[1]


def greatest_numel(shape: Shape) -> int:
    """Returns the elements of a shape, a symbolic dimension counted with its greatest value."""
    count = 1
    for dim in shape:
        count *= dim if isinstance(dim, int) else greatest(dim)
    return count


def _extremes(dim: Dim) -> Interval:
    """Returns the interval of a dimension, each occurrence of a variable by itself; `bounds` (ir/symbolic.py) sees sums."""
    if isinstance(dim, int):
        return dim, dim
    if dim.code is OpCode.CONST:
        return int(dim.arg), int(dim.arg)
    if dim.code is OpCode.VARIABLE:
        return int(dim.arg[1]), int(dim.arg[2])
    if dim.code is OpCode.BIND:
        return _extremes(dim.src[0])
    assert dim.code in ARITHMETIC, f"greatest: {dim} is not a dimension"
    found = INTERVALS[dim.code](*map(_extremes, dim.src))
    assert found is not None, f"greatest: there is no bound for {dim}"
    return found


def _length_text(op: Op) -> str | None:
    """Returns a symbolic length as users write it, with its value where it has one; None for any other Op."""
    if op.shape or op.code not in _LENGTHS or not op.dtype.is_int or op.depth > SHOWN_DEPTH_MAX:
        return None
    parts = _shown(op)
    if parts is None or parts[0].isdigit():
        return None
    text, value = parts
    return text if value is None else f"{text}{' = ' if ' ' in text else '='}{value}"


def length_name(dim: Op) -> str:
    """Returns a symbolic length as users write it.

    >>> length_name(Op(OpCode.VARIABLE, int64, (), ("n", 1, 8)))
    'n'
    """
    found = _shown(dim)
    return repr(dim) if found is None else found[0]


def _shown(op: Op) -> tuple[str, int | None] | None:
    """Returns the text and the value of a part of a symbolic length."""
    if op.code is OpCode.CONST:
        return str(op.arg), int(op.arg)
    if op.code is OpCode.VARIABLE:
        return str(op.arg[0]), None
    if op.code is OpCode.BIND:
        return str(op.src[0].arg[0]), int(op.src[1].arg)
    found = [_shown(s) for s in op.src] if op.code in _LENGTHS else [None]
    if None in found:
        return None
    (left, a), (right, b) = found  # type: ignore[misc]
    value = None if a is None or b is None else ARITHMETIC[op.code](a, b)
    if op.code in INFIX:
        if op.code is OpCode.ADD and right.startswith("-"):
            return f"{left} - {right[1:]}", value
        if op.code is not OpCode.ADD:
            left, right = (f"({part})" if " " in part else part for part in (left, right))
        if op.code is OpCode.MUL:
            left, right = right, left
        return f"{left} {INFIX[op.code][0]} {right}", value
    return f"{op.code.name.lower()}({left}, {right})", value


SHOWN_DEPTH_MAX = 16  # of a length that is written out, in Ops
_LENGTHS = frozenset({OpCode.VARIABLE, OpCode.BIND, *ARITHMETIC})


# ---- walks over graphs ----
class OpSet(Protocol):
    """A test of whether an Op belongs: a set, a dict, a rule."""

    def __contains__(self, op: Op, /) -> bool: ...


class _Realized:
    """The set of Ops whose values have been computed, at which a walk over a graph stops."""

    def __contains__(self, op: Op) -> bool:
        return op.realized is not None


realized = _Realized()


def toposort(roots: Iterable[Op], stop: OpSet = (), sources: Callable[[Op], Sequence[Op]] | None = None) -> list[Op]:
    """Returns every Op reachable from `roots`, sources first; Ops in `stop` are returned, their sources are not followed.

    Iterative: a graph may be deeper than Python's stack. Cost: linear in Ops and edges.

    Args:
      sources:  what comes before an Op, if not its `src`
    """
    order: dict[Op, None] = {}
    waiting: list[tuple[Op | None, Iterator[Op]]] = []  # Ops, and their sources that are still to be looked at
    op, left = None, iter(roots)
    while True:
        for s in left:
            if s not in order:
                before = () if s in stop else s.src if sources is None else sources(s)
                if before:
                    waiting.append((op, left))
                    op, left = s, iter(before)
                    break
                order[s] = None
        else:
            if op is None:
                return list(order)
            order[op] = None
            op, left = waiting.pop()


CODE, DEPTH = attrgetter("code"), attrgetter("depth")


def codes_in(roots: Iterable[Op]) -> set[OpCode]:
    """Returns the opcodes of graphs: a pass that is about others has nothing to do there.

    >>> n = Op(OpCode.VARIABLE, int64, (), ("n", 1, 8))
    >>> sorted(code.name for code in codes_in([n + n]))
    ['ADD', 'VARIABLE']
    """
    return set(map(CODE, toposort(roots)))
