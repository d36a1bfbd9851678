"""The operations an Op can be: few and orthogonal, in one list.

In:    nothing
Out:   `OpCode`, `AxisKind`, `MemorySpace`, and the sets of opcodes that stages dispatch on
Next:  picograd/ir/op.py
"""

from __future__ import annotations

from enum import Enum


class OpCode(Enum):
    """What an Op computes. `src` and `arg` of each are given at its right."""

    __hash__ = object.__hash__  # Enum's own hashes the name in Python, each time an Op is looked up

    # ---- sources ----                src                  arg
    BUFFER = "BUFFER"  #               ()                   (Buffer, shape): memory of a device
    CONST = "CONST"  #                 ()                   Python scalar; shape ()
    VARIABLE = "VARIABLE"  #           ()                   (name, least, greatest): a symbolic integer
    BIND = "BIND"  #                   (VARIABLE, CONST)    None: the variable, with its value for this run
    IOTA = "IOTA"  #                   ()                   n: the integers 0..n-1, shape (n,)
    # ---- identity with a meaning ----
    LEAF = "LEAF"  #                   (x,)                 id: x, as a place where gradients are collected
    DETACH = "DETACH"  #               (x,)                 None: x, with no gradient
    CONTIGUOUS = "CONTIGUOUS"  #       (x,)                 None: x, stored
    COPY = "COPY"  #                   (x,)                 device name: x on another device
    ASSIGN = "ASSIGN"  #               (target, value)      None: value, stored in the memory of target
    # ---- movement: never a copy ----
    RESHAPE = "RESHAPE"  #             (x,)                 shape
    PERMUTE = "PERMUTE"  #             (x,)                 axes
    EXPAND = "EXPAND"  #               (x,)                 shape (axes of length 1 repeat; a scalar fills any shape)
    PAD = "PAD"  #                     (x,)                 ((before, after), ...): zeros
    SHRINK = "SHRINK"  #               (x,)                 ((start, stop), ...)
    FLIP = "FLIP"  #                   (x,)                 axes
    # ---- elementwise, one operand ----
    NEG = "NEG"
    RECIPROCAL = "RECIPROCAL"
    EXP = "EXP"
    EXP2 = "EXP2"
    LOG = "LOG"
    LOG2 = "LOG2"
    SIN = "SIN"
    COS = "COS"
    TANH = "TANH"
    ERF = "ERF"
    SQRT = "SQRT"
    FLOOR = "FLOOR"
    CAST = "CAST"  #                   (x,)                 None: to the dtype of the Op
    BITCAST = "BITCAST"  #             (x,)                 None: the same bits as the dtype of the Op
    # ---- elementwise, two operands of one dtype ----
    ADD = "ADD"
    SUB = "SUB"
    MUL = "MUL"
    DIV = "DIV"  #                     floats: correctly rounded quotient
    IDIV = "IDIV"  #                   integers: rounds to minus infinity
    MOD = "MOD"  #                     sign of the divisor
    POW = "POW"
    MAX = "MAX"  #                     NaN wins
    MIN = "MIN"
    CMPLT = "CMPLT"
    CMPLE = "CMPLE"
    CMPEQ = "CMPEQ"
    CMPNE = "CMPNE"
    AND = "AND"
    OR = "OR"
    XOR = "XOR"
    SHL = "SHL"
    SHR = "SHR"
    THREEFRY = "THREEFRY"  #           (counter, key)       uint64 each: 64 random bits
    # ---- elementwise, three operands ----
    WHERE = "WHERE"  #                 (condition, a, b)
    FMA = "FMA"  #                     (a, b, c)            a * b + c with one rounding
    # ---- elementwise, with an error for what it does not let pass ----
    CHECK = "CHECK"  #                 (x,)                 (site, length): x where 0 <= x < length, else 0 and an error
    # ---- along axes ----
    REDUCE = "REDUCE"  #               (x,)                 (ADD | MUL | MAX | MIN, axes): the axes disappear
    SCAN = "SCAN"  #                   (x,)                 (ADD | MUL | MAX | MIN, axis): inclusive
    SORT = "SORT"  #                   (x,)                 (axis, descending): stable argsort, int64
    GATHER = "GATHER"  #               (x, index)           (axis, batch): see ir/shape.py; outside x it is 0
    SCATTER = "SCATTER"  #             (base, index, updates)  (op, axis, batch); op None stores; outside: left out
    UPDATE = "UPDATE"  #               (base, value)        ((start, stop), ...): base, with value in that block
    # ---- contractions ----
    MATMUL = "MATMUL"  #               (a, b)               None: (..., M, K) (..., K, N) -> (..., M, N)
    CONV = "CONV"  #                   (x, w)               ConvArg
    ATTENTION = "ATTENTION"  #         (q, k, v)            AttentionArg: two results
    # ---- several results, bodies ----
    OUTPUT = "OUTPUT"  #               (x,)                 i: the i-th result of x
    CALL = "CALL"  #                   arguments            body, a SINK over PARAMs
    LOOP = "LOOP"  #                   carry + stacked      (body, num_carry, num_steps)
    COLLECTIVE = "COLLECTIVE"  #       (x,)                 (kind, mesh axis)
    CUSTOM = "CUSTOM"  #               operands             a hand-written kernel's record
    SINK = "SINK"  #                   any                  None: the one root of a graph
    # ---- inside kernels and programs ----
    PARAM = "PARAM"  #                 ()                   (slot, shape): the slot-th argument
    RANGE = "RANGE"  #                 (extent,)            (id, AxisKind): a loop's integer, from 0
    LOAD = "LOAD"  #                   (memory, index[, valid])   None: 0 where not valid
    ALLOC = "ALLOC"  #                 ()                   (name, numel, MemorySpace): memory of the program
    VAR = "VAR"  #                     ()                   (name, lanes): a value a statement has named
    LANES = "LANES"  #                 ()                   n: the vector 0..n-1


class AxisKind(Enum):
    """What runs a loop."""

    GRID = "GRID"  # blocks of a launch, on a CPU the pieces threads share out
    BLOCK = "BLOCK"  # threads of a block
    LOOP = "LOOP"  # one after the other
    UNROLL = "UNROLL"  # written out
    VECTOR = "VECTOR"  # lanes of a vector register


class MemorySpace(Enum):
    """Where memory lives."""

    GLOBAL = "GLOBAL"
    SHARED = "SHARED"  # one copy a block; on a CPU the stack of the thread
    REGISTER = "REGISTER"


MOVEMENT = frozenset(
    {OpCode.RESHAPE, OpCode.PERMUTE, OpCode.EXPAND, OpCode.PAD, OpCode.SHRINK, OpCode.FLIP}
)  # fmt: skip
IDENTITY = frozenset({OpCode.LEAF, OpCode.DETACH, OpCode.CONTIGUOUS})
UNARY = frozenset(
    {
        OpCode.NEG, OpCode.RECIPROCAL, OpCode.EXP, OpCode.EXP2, OpCode.LOG, OpCode.LOG2, OpCode.SIN, OpCode.COS,
        OpCode.TANH, OpCode.ERF, OpCode.SQRT, OpCode.FLOOR, OpCode.CAST, OpCode.BITCAST,
    }
)  # fmt: skip
COMPARE = frozenset({OpCode.CMPLT, OpCode.CMPLE, OpCode.CMPEQ, OpCode.CMPNE})
BINARY = COMPARE | frozenset(
    {
        OpCode.ADD, OpCode.SUB, OpCode.MUL, OpCode.DIV, OpCode.IDIV, OpCode.MOD, OpCode.POW, OpCode.MAX, OpCode.MIN,
        OpCode.AND, OpCode.OR, OpCode.XOR, OpCode.SHL, OpCode.SHR, OpCode.THREEFRY,
    }
)  # fmt: skip
TERNARY = frozenset({OpCode.WHERE, OpCode.FMA})
ELEMENTWISE = UNARY | BINARY | TERNARY | {OpCode.CHECK}
TRANSCENDENTAL = frozenset(
    {
        OpCode.EXP, OpCode.EXP2, OpCode.LOG, OpCode.LOG2, OpCode.SIN, OpCode.COS, OpCode.TANH, OpCode.ERF,
        OpCode.POW, OpCode.THREEFRY,
    }
)  # fmt: skip
SOURCES = frozenset({OpCode.BUFFER, OpCode.CONST, OpCode.VARIABLE, OpCode.BIND, OpCode.IOTA, OpCode.PARAM})
