"""The operations an Op can be: few and orthogonal, in one list.

In:    nothing
Out:   `OpCode`, `AxisKind`, `MemorySpace`, all `Named`, and the sets of opcodes that stages dispatch on
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

Member = TypeVar("Member")


class _Members(type):
    """Gives a class one instance for each name that it declares, in order."""

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> None:
        super().__init__(name, bases, body)
        cls.__members__: dict[str, Any] = {}
        for member in inspect.get_annotations(cls):
            cls.__members__[member] = cls(member)
            setattr(cls, member, cls.__members__[member])

    def __iter__(cls: type[Member]) -> Iterator[Member]:
        return iter(cls.__members__.values())  # type: ignore[attr-defined]

    def __getitem__(cls: type[Member], name: str) -> Member:
        return cls.__members__[name]  # type: ignore[attr-defined]


class Named(metaclass=_Members):
    """One of a list of names. An Enum would do, but Python 3.11 takes six times as long to find one of its members."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (type(self), self.name)


class OpCode(Named):
    """The operation of an Op. `src` and `arg` of each are given at its right.

    COLLECTIVE is built by no function of Tensor yet: tensors live on one device until there are several. It has a
    specification and tests.
    """

    __slots__ = ()
    # ---- sources ----                  src                  arg
    BUFFER: ClassVar[OpCode]  #          ()                   (Buffer, shape): memory of a device
    CONST: ClassVar[OpCode]  #           ()                   Python scalar; shape ()
    VARIABLE: ClassVar[OpCode]  #        ()                   (name, least, greatest): a symbolic integer
    BIND: ClassVar[OpCode]  #            (VARIABLE, CONST)    None: the variable, with its value for this run
    IOTA: ClassVar[OpCode]  #            ()                   n: the integers 0..n-1, shape (n,)
    # ---- identity with a meaning ----
    LEAF: ClassVar[OpCode]  #            (x,)                 id: x, as a place where gradients are collected
    DETACH: ClassVar[OpCode]  #          (x,)                 None: x, with no gradient
    CONTIGUOUS: ClassVar[OpCode]  #      (x,)                 None: x, stored
    COPY: ClassVar[OpCode]  #            (x,)                 device name: x on another device
    # ---- movement: never a copy ----
    RESHAPE: ClassVar[OpCode]  #         (x,)                 shape
    PERMUTE: ClassVar[OpCode]  #         (x,)                 axes
    EXPAND: ClassVar[OpCode]  #          (x,)                 shape (axes of length 1 repeat; a scalar fills any shape)
    PAD: ClassVar[OpCode]  #             (x,)                 ((before, after), ...): zeros
    SHRINK: ClassVar[OpCode]  #          (x,)                 ((start, stop), ...)
    FLIP: ClassVar[OpCode]  #            (x,)                 axes
    # ---- elementwise, one operand ----
    NEG: ClassVar[OpCode]
    RECIPROCAL: ClassVar[OpCode]
    EXP: ClassVar[OpCode]
    EXP2: ClassVar[OpCode]
    LOG: ClassVar[OpCode]
    LOG2: ClassVar[OpCode]
    SIN: ClassVar[OpCode]
    COS: ClassVar[OpCode]
    TANH: ClassVar[OpCode]
    ERF: ClassVar[OpCode]
    SQRT: ClassVar[OpCode]
    FLOOR: ClassVar[OpCode]
    CAST: ClassVar[OpCode]  #            (x,)                 None: to the dtype of the Op
    BITCAST: ClassVar[OpCode]  #         (x,)                 None: the same bits as the dtype of the Op
    # ---- elementwise, two operands of one dtype ----
    ADD: ClassVar[OpCode]
    SUB: ClassVar[OpCode]
    MUL: ClassVar[OpCode]
    DIV: ClassVar[OpCode]  #             floats: correctly rounded quotient
    IDIV: ClassVar[OpCode]  #            integers: rounds to minus infinity
    MOD: ClassVar[OpCode]  #             sign of the divisor
    POW: ClassVar[OpCode]
    MAX: ClassVar[OpCode]  #             NaN wins
    MIN: ClassVar[OpCode]
    CMPLT: ClassVar[OpCode]
    CMPLE: ClassVar[OpCode]
    CMPEQ: ClassVar[OpCode]
    CMPNE: ClassVar[OpCode]
    AND: ClassVar[OpCode]
    OR: ClassVar[OpCode]
    XOR: ClassVar[OpCode]
    SHL: ClassVar[OpCode]
    SHR: ClassVar[OpCode]
    THREEFRY: ClassVar[OpCode]  #        (counter, key)       uint64 each: 64 random bits
    # ---- elementwise, three operands ----
    WHERE: ClassVar[OpCode]  #           (condition, a, b)
    FMA: ClassVar[OpCode]  #             (a, b, c)            a * b + c with one rounding
    # ---- elementwise, with an error for values that are refused ----
    CHECK: ClassVar[OpCode]  #           (x,)                 (site, length): x where 0 <= x < length, else 0 and an error
    # ---- along axes ----
    REDUCE: ClassVar[OpCode]  #          (x,)                 (ADD | MUL | MAX | MIN, axes): the axes disappear
    SCAN: ClassVar[OpCode]  #            (x,)                 (ADD | MUL | MAX | MIN, axis): inclusive
    SORT: ClassVar[OpCode]  #            (x[, ranks])         (axis, descending[, count]): stable argsort, int64, or a part
    GATHER: ClassVar[OpCode]  #          (x, index)           (axis, batch): see ir/shape.py; outside x it is 0
    SCATTER: ClassVar[OpCode]  #         (base, index, updates)  (op, axis, batch); op None stores; outside: left out
    UPDATE: ClassVar[OpCode]  #          (base, value)        ((start, stop), ...): base, with value in that block
    # ---- contractions ----
    MATMUL: ClassVar[OpCode]  #          (a, b)               MatmulArg or None: (..., M, K) (..., K, N) -> (..., M, N)
    CONV: ClassVar[OpCode]  #            (x, w)               ConvArg
    ATTENTION: ClassVar[OpCode]  #       (q, k, v[, mask])    AttentionArg: the values averaged, the logsumexp
    ATTENTION_GRAD: ClassVar[OpCode]  #  (q, k, v, grad,      AttentionArg: the gradients of q, k and v
    #                                     logsumexp, delta)   Both with dropout: and seeds, numbers (ir/attention.py)
    # ---- several results, bodies ----
    OUTPUT: ClassVar[OpCode]  #          (x,)                 i: the i-th result of x
    CALL: ClassVar[OpCode]  #            arguments            body, a SINK over PARAMs
    LOOP: ClassVar[OpCode]  #            carry + stacked      (body, num_carry, num_steps)
    GRADIENT: ClassVar[OpCode]  #        roots + their grads  n, the number of roots: the gradients of the leaves
    #                                     + leaves
    FORMULA: ClassVar[OpCode]  #         operands             Formula: what a function gives (ir/bodies.py)
    COLLECTIVE: ClassVar[OpCode]  #      (x,)                 (kind, mesh axis)
    CUSTOM: ClassVar[OpCode]  #          operands             HostCall: a function of the host (ir/host.py)
    KERNEL: ClassVar[OpCode]  #          operands             GivenKernel, shapes, blocks (ir/host.py)
    SINK: ClassVar[OpCode]  #            any                  None: the one root of a graph
    # ---- inside kernels and programs ----
    PARAM: ClassVar[OpCode]  #           ()                   (slot, shape): the slot-th argument
    RANGE: ClassVar[OpCode]  #           (extent,)            (id, AxisKind): a loop's integer, from 0
    LOAD: ClassVar[OpCode]  #            (memory, index[, valid])   None: 0 where not valid
    ALLOC: ClassVar[OpCode]  #           ()                   (name, numel, MemorySpace): memory of the program
    VAR: ClassVar[OpCode]  #             ()                   (name, lanes): a value a statement has named
    LANES: ClassVar[OpCode]  #           ()                   n: the vector 0..n-1


class AxisKind(Named):
    """The execution of a loop: by blocks, threads, vectors, copies, or in turn."""

    __slots__ = ()
    GRID: ClassVar[AxisKind]  # blocks of a launch, on a CPU the pieces threads share out
    BLOCK: ClassVar[AxisKind]  # threads of a block
    LOOP: ClassVar[AxisKind]  # one after the other
    UNROLL: ClassVar[AxisKind]  # written out
    VECTOR: ClassVar[AxisKind]  # lanes of a vector register


class MemorySpace(Named):
    """The space that memory is in."""

    __slots__ = ()
    GLOBAL: ClassVar[MemorySpace]
    SHARED: ClassVar[MemorySpace]  # one copy a block; on a CPU the stack of the thread
    REGISTER: ClassVar[MemorySpace]


def _section(first: OpCode, last: OpCode) -> frozenset[OpCode]:
    """Returns the operations that are declared from one to another: a section above, or a part of one."""
    codes = list(OpCode)
    return frozenset(codes[codes.index(first) : codes.index(last) + 1])


MOVEMENT = _section(OpCode.RESHAPE, OpCode.FLIP)
IDENTITY = _section(OpCode.LEAF, OpCode.CONTIGUOUS)
UNARY = _section(OpCode.NEG, OpCode.BITCAST)
FUNCTIONS = _section(OpCode.EXP, OpCode.SQRT)  # of floats; C's library has them by these names
COMPARE = _section(OpCode.CMPLT, OpCode.CMPNE)
BINARY = _section(OpCode.ADD, OpCode.THREEFRY)
TERNARY = _section(OpCode.WHERE, OpCode.FMA)
ELEMENTWISE = UNARY | BINARY | TERNARY | {OpCode.CHECK}
TRANSCENDENTAL = FUNCTIONS - {OpCode.SQRT} | {OpCode.POW, OpCode.THREEFRY}
# As Python writes them: the sign, and how tightly it binds. A comparison takes no comparison without parentheses.
INFIX: dict[OpCode, tuple[str, int]] = {
    OpCode.CMPLT: ("<", 1),
    OpCode.CMPLE: ("<=", 1),
    OpCode.CMPEQ: ("==", 1),
    OpCode.CMPNE: ("!=", 1),
    OpCode.OR: ("|", 2),
    OpCode.XOR: ("^", 3),
    OpCode.AND: ("&", 4),
    OpCode.SHL: ("<<", 5),
    OpCode.SHR: (">>", 5),
    OpCode.ADD: ("+", 6),
    OpCode.SUB: ("-", 6),
    OpCode.MUL: ("*", 7),
    OpCode.DIV: ("/", 7),
    OpCode.IDIV: ("//", 7),
    OpCode.MOD: ("%", 7),
}
ATTENTIONS = frozenset({OpCode.ATTENTION, OpCode.ATTENTION_GRAD})
ROUGHLY = "roughly"  # the arg of an EXP2 of a float32 that a GPU's instruction may compute (ir/build.py)
# Operations a few elements of which may cost as much as all.
COSTLY = frozenset({OpCode.REDUCE, OpCode.SCAN, OpCode.SORT, OpCode.SCATTER, OpCode.MATMUL, OpCode.CONV, OpCode.CUSTOM})
SEVERAL_RESULTS = ATTENTIONS | {OpCode.CALL, OpCode.LOOP, OpCode.GRADIENT, OpCode.FORMULA, OpCode.KERNEL}
SOURCES = frozenset({OpCode.BUFFER, OpCode.CONST, OpCode.VARIABLE, OpCode.BIND, OpCode.IOTA, OpCode.PARAM})
