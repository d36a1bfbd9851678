"""What a graph and a Kernel must be: rules with names, checked between passes.

In:    Ops, a Kernel or a Program, and the name of the pass that made it
Out:   nothing, or a VerifyError that names the pass, the rule and the neighbourhood
Next:  picograd/ir/spec_program.py

Shapes are checked when an Op is built (ir/shape.py); here stand dtypes, arguments and who may use what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isnan
from typing import Any

from picograd import dtype as dtypes
from picograd.errors import VerifyError
from picograd.ir.lines import line_of
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import (
    ATTENTIONS,
    BINARY,
    COMPARE,
    ELEMENTWISE,
    IDENTITY,
    MOVEMENT,
    SEVERAL_RESULTS,
    SOURCES,
    OpCode,
)
from picograd.ir.shape import AttentionArg, ConvArg, MatmulArg
from picograd.ir.shape import numel as numel_of
from picograd.ir.spec_program import verify_program as verify_program
from picograd.ir.stages import Kernel, Nest, NestKind
from picograd.ir.text import neighbourhood
from picograd.record import Record

COMBINING = frozenset({OpCode.ADD, OpCode.MUL, OpCode.MAX, OpCode.MIN})
SHIFTS = frozenset({OpCode.SHL, OpCode.SHR})
FLOAT_ONLY = frozenset(
    {
        OpCode.RECIPROCAL, OpCode.EXP, OpCode.EXP2, OpCode.LOG, OpCode.LOG2, OpCode.SIN, OpCode.COS, OpCode.TANH,
        OpCode.ERF, OpCode.SQRT, OpCode.FLOOR, OpCode.DIV, OpCode.ATTENTION, OpCode.ATTENTION_GRAD,
    }
)  # fmt: skip
KINDS: dict[OpCode, str] = {
    **dict.fromkeys(FLOAT_ONLY, "f"),
    **dict.fromkeys((OpCode.AND, OpCode.OR, OpCode.XOR), "biu"),
    **dict.fromkeys((OpCode.NEG, OpCode.SUB, OpCode.MOD, OpCode.POW, OpCode.FMA), "iuf"),
    **dict.fromkeys((OpCode.IDIV, *SHIFTS, OpCode.THREEFRY), "iu"),
}
PROGRAM_ONLY = frozenset({OpCode.RANGE, OpCode.LOAD, OpCode.ALLOC, OpCode.VAR, OpCode.LANES})
NUM_SOURCES: dict[OpCode, int] = {
    **dict.fromkeys(SOURCES - {OpCode.BIND}, 0),
    **dict.fromkeys(ELEMENTWISE - BINARY - {OpCode.WHERE, OpCode.FMA} | MOVEMENT | IDENTITY, 1),
    **dict.fromkeys(BINARY | {OpCode.BIND, OpCode.ASSIGN, OpCode.GATHER, OpCode.UPDATE, OpCode.MATMUL}, 2),
    OpCode.CONV: 2,
    OpCode.ATTENTION_GRAD: 6,
    **dict.fromkeys((OpCode.WHERE, OpCode.FMA, OpCode.SCATTER), 3),
    **dict.fromkeys((OpCode.COPY, OpCode.REDUCE, OpCode.SCAN, OpCode.SORT, OpCode.OUTPUT, OpCode.COLLECTIVE), 1),
}


class Rule(Record):
    """A property every Op of some opcodes must have.

    name:   as errors show it, a statement that must hold
    codes:  the opcodes it is about
    holds:  the property
    """

    name: str
    codes: frozenset[OpCode]
    holds: Callable[[Op], bool]


# ---- properties longer than a line ----
def _same_dtypes(op: Op) -> bool:
    values = op.src[1:] if op.code is OpCode.WHERE else op.src
    return all(s.dtype is values[0].dtype for s in values)


def _elementwise_result(op: Op) -> bool:
    if op.code in (OpCode.CAST, OpCode.BITCAST):
        return True
    return op.dtype is (dtypes.bool_ if op.code in COMPARE else op.src[-1].dtype)


def _constant_fits(op: Op) -> bool:
    if not isinstance(op.arg, bool | int | float):
        return False
    held = op.dtype.scalar(op.arg) if not (op.dtype.is_int and isinstance(op.arg, float)) else None
    return held == op.arg or (isinstance(held, float) and isnan(held) and isnan(op.arg))


def _bound(op: Op) -> bool:
    variable, value = op.src
    if variable.code is not OpCode.VARIABLE or value.code is not OpCode.CONST:
        return False
    return bool(variable.arg[1] <= value.arg <= variable.arg[2])


def _contraction_result(op: Op) -> bool:
    operand = op.src[0].dtype
    return op.dtype is operand or (op.dtype is dtypes.float32 and operand.is_float and operand.itemsize <= 2)


def _attention_dtypes(op: Op) -> bool:
    return all(s.dtype is op.dtype for s in op.src[:3]) and all(s.dtype.is_float or s.dtype.kind == "b" for s in op.src[3:])


def _attention_grad_dtypes(op: Op) -> bool:
    return all(s.dtype is op.dtype for s in op.src[:4]) and all(s.dtype is op.dtype.compute_dtype for s in op.src[4:])


def _checks(op: Op) -> bool:
    return op.dtype is dtypes.int64 and isinstance(op.arg, tuple) and len(op.arg) == 2


def _combines(op: Op) -> bool:
    return isinstance(op.arg, tuple) and len(op.arg) == 2 and op.arg[0] in COMBINING


def _parameters(body: Op) -> dict[int, Op]:
    return {p.arg[0]: p for p in toposort(body.src) if p.code is OpCode.PARAM}


def _call_fits(op: Op) -> bool:
    """A PARAM of the body has the dtype and the shape of the argument in its slot."""
    if not isinstance(op.arg, Op) or op.arg.code is not OpCode.SINK:
        return False
    slots = _parameters(op.arg)
    return all(
        slot < len(op.src) and p.dtype is op.src[slot].dtype and p.shape == op.src[slot].shape for slot, p in slots.items()
    )


def _loop_fits(op: Op) -> bool:
    """The carry keeps dtype and shape; a stacked input gives its rows, one for each step."""
    body, num_carry, num_steps = op.arg
    if not isinstance(body, Op) or body.code is not OpCode.SINK or num_carry > min(len(body.src), len(op.src)):
        return False
    if any(a.dtype is not b.dtype or a.shape != b.shape for a, b in zip(body.src[:num_carry], op.src)):
        return False
    for slot, p in _parameters(body).items():
        if slot >= len(op.src) or p.dtype is not op.src[slot].dtype:
            return False
        expected = p.shape if slot < num_carry else (num_steps, *p.shape)
        if op.src[slot].shape != expected:
            return False
    return True


def _all(codes: Iterable[OpCode]) -> frozenset[OpCode]:
    return frozenset(codes)


ANY = frozenset(OpCode)
KEEP_DTYPE = MOVEMENT | IDENTITY | {OpCode.COPY, OpCode.ASSIGN, OpCode.GATHER, OpCode.SCATTER, OpCode.COLLECTIVE}
KEEP_DTYPE |= {OpCode.REDUCE, OpCode.SCAN, OpCode.UPDATE}

ONE_DTYPE = _all({OpCode.MATMUL, OpCode.CONV, OpCode.ASSIGN, OpCode.UPDATE})

GRAPH: tuple[Rule, ...] = (
    Rule("no loops, memory accesses or lanes", ANY, lambda op: op.code not in PROGRAM_ONLY),
    Rule("the number of sources", _all(NUM_SOURCES), lambda op: len(op.src) == NUM_SOURCES[op.code]),
    Rule("q, k, v and at most a mask", _all({OpCode.ATTENTION}), lambda op: len(op.src) in (3, 4)),
    Rule("elementwise operands of one dtype", ELEMENTWISE, _same_dtypes),
    Rule("the dtype of an elementwise result", ELEMENTWISE, _elementwise_result),
    Rule("an operation its dtype has", _all(KINDS), lambda op: op.src[0].dtype.kind in KINDS[op.code]),
    Rule("a condition is bool", _all({OpCode.WHERE}), lambda op: op.src[0].dtype is dtypes.bool_),
    Rule("random bits are uint64", _all({OpCode.THREEFRY}), lambda op: op.dtype is dtypes.uint64),
    Rule("a bitcast keeps the width", _all({OpCode.BITCAST}), lambda op: op.dtype.itemsize == op.src[0].dtype.itemsize),
    Rule("the result has the dtype of the first source", KEEP_DTYPE, lambda op: op.dtype is op.src[0].dtype),
    Rule("a constant its dtype can hold", _all({OpCode.CONST}), _constant_fits),
    Rule("a symbolic integer is int64", _all({OpCode.VARIABLE, OpCode.BIND}), lambda op: op.dtype is dtypes.int64),
    Rule("a bound value is within its variable's range", _all({OpCode.BIND}), _bound),
    Rule("REDUCE and SCAN combine by ADD, MUL, MAX or MIN", _all({OpCode.REDUCE, OpCode.SCAN}), _combines),
    Rule("a CHECK is of an int64, by (site, length)", _all({OpCode.CHECK}), _checks),
    Rule("SORT gives int64", _all({OpCode.SORT}), lambda op: op.dtype is dtypes.int64),
    Rule("an index is an integer", _all({OpCode.GATHER, OpCode.SCATTER}), lambda op: op.src[1].dtype.is_int),
    Rule("updates have the dtype of the base", _all({OpCode.SCATTER}), lambda op: op.src[2].dtype is op.dtype),
    Rule(
        "SCATTER stores, or combines by ADD, MUL, MAX or MIN",
        _all({OpCode.SCATTER}),
        lambda op: op.arg[0] is None or op.arg[0] in COMBINING,
    ),
    Rule("operands of one dtype", ONE_DTYPE, _same_dtypes),
    Rule("a contraction keeps its dtype, or widens to float32", _all({OpCode.MATMUL, OpCode.CONV}), _contraction_result),
    Rule("the argument is None or a MatmulArg", _all({OpCode.MATMUL}), lambda op: isinstance(op.arg, MatmulArg | None)),
    Rule("the argument is a ConvArg", _all({OpCode.CONV}), lambda op: isinstance(op.arg, ConvArg)),
    Rule("the argument is an AttentionArg", _all(ATTENTIONS), lambda op: isinstance(op.arg, AttentionArg)),
    Rule("q, k and v of one dtype, a mask of bool or a float", _all({OpCode.ATTENTION}), _attention_dtypes),
    Rule("the rows' values have the dtype that is computed in", _all({OpCode.ATTENTION_GRAD}), _attention_grad_dtypes),
    Rule("OUTPUT is of an Op with several results", _all({OpCode.OUTPUT}), lambda op: op.src[0].code in SEVERAL_RESULTS),
    Rule("a CALL's arguments fit the PARAMs of its body", _all({OpCode.CALL}), _call_fits),
    Rule("a LOOP's sources fit the PARAMs of its body", _all({OpCode.LOOP}), _loop_fits),
)
RULES_OF: dict[OpCode, tuple[Rule, ...]] = {code: tuple(r for r in GRAPH if code in r.codes) for code in OpCode}


def verify_graph(roots: Sequence[Op], after: str) -> None:
    """Checks every Op of a tensor graph, and of the bodies in it, against GRAPH.

    Raises:
      VerifyError: naming `after`, the pass that made the graph.
    """
    _verify_ops(roots, f"after pass {after}", "GRAPH")


def _verify_ops(roots: Iterable[Op], where: str, spec: str) -> None:
    """Raises VerifyError at the first Op that breaks a rule, bodies of CALL and LOOP included."""
    order = toposort(roots)
    for op in order:
        for rule in RULES_OF[op.code]:
            if not rule.holds(op):
                fact = f"{where}, {op.code.name} breaks rule {rule.name!r} of spec {spec}."
                raise VerifyError(f"{fact}\n{neighbourhood(op)}", line_of(op))
    bodies = [op.arg if op.code is OpCode.CALL else op.arg[0] for op in order if op.code in (OpCode.CALL, OpCode.LOOP)]
    if bodies:
        _verify_ops([value for body in dict.fromkeys(bodies) for value in body.src], where, spec)


# ---- kernels ----
IN_KERNELS = ELEMENTWISE | MOVEMENT | {
    OpCode.PARAM, OpCode.CONST, OpCode.VARIABLE, OpCode.BIND, OpCode.IOTA, OpCode.REDUCE, OpCode.SCAN, OpCode.SORT,
    OpCode.GATHER, OpCode.SCATTER, OpCode.UPDATE, OpCode.MATMUL, OpCode.CONV, OpCode.ATTENTION, OpCode.ATTENTION_GRAD,
    OpCode.OUTPUT,
    OpCode.CUSTOM,
}  # fmt: skip


def _is_param(op: Op, kernel: Kernel) -> bool:
    slot = op.arg[0]
    if not 0 <= slot < len(kernel.params):
        return False
    return op.dtype is kernel.params[slot].dtype and _fits(numel_of(op.shape), kernel.params[slot].numel)


def _fits(needed: Any, held: Any) -> bool:
    return needed <= held if isinstance(needed, int) and isinstance(held, int) else True


def _goes_out(slot: int, value: Op, nest: Nest, kernel: Kernel) -> bool:
    return 0 <= slot < len(kernel.params) and kernel.params[slot].role in ("out", "inout", "scratch")


def _has_param_dtype(slot: int, value: Op, nest: Nest, kernel: Kernel) -> bool:
    return value.dtype is kernel.params[slot].dtype


def _has_stored_shape(slot: int, value: Op, nest: Nest, kernel: Kernel) -> bool:
    if nest.kind is NestKind.ATTENTION:
        return value.code is OpCode.OUTPUT and value.src[0] is nest.anchor
    return value.shape in (nest.domain, nest.row_shape)


def _fits_param(slot: int, value: Op, nest: Nest, kernel: Kernel) -> bool:
    return _fits(numel_of(value.shape), kernel.params[slot].numel)


KERNEL_OPS: tuple[tuple[str, frozenset[OpCode], Callable[[Op, Kernel], bool]], ...] = (
    ("no buffers, identities, bodies or copies", ANY, lambda op, kernel: op.code in IN_KERNELS),
    ("a PARAM is one of the kernel's", _all({OpCode.PARAM}), _is_param),
    ("a symbolic integer is among the variables", _all({OpCode.VARIABLE}), lambda op, kernel: op in kernel.variables),
)
KERNEL_OUTPUTS: tuple[tuple[str, Callable[[int, Op, Nest, Kernel], bool]], ...] = (
    ("a value is stored into an out or scratch param", _goes_out),
    ("a stored value has the param's dtype", _has_param_dtype),
    ("a stored value has the domain's shape, or in a REDUCE nest its rows'", _has_stored_shape),
    ("a stored value fits the param", _fits_param),
)


def verify_kernel(kernel: Kernel, after: str) -> None:
    """Checks a Kernel: its graphs against GRAPH and KERNEL_OPS, what it stores against KERNEL_OUTPUTS.

    Raises:
      VerifyError: naming `after`, the pass that made the kernel.
    """
    where = f"after pass {after} of kernel {kernel.name}"
    outputs = [(slot, value, nest) for phase in kernel.phases for nest in phase for slot, value in nest.outputs]
    order = toposort([value for _, value, _ in outputs])
    for op in order:
        for name, codes, holds in KERNEL_OPS:
            if op.code in codes and not holds(op, kernel):
                fact = f"{where}, {op.code.name} breaks rule {name!r} of spec KERNEL."
                raise VerifyError(f"{fact}\n{neighbourhood(op)}", line_of(op))
    _verify_ops(order, where, "KERNEL")
    for slot, value, nest in outputs:
        for name, fits in KERNEL_OUTPUTS:
            if not fits(slot, value, nest, kernel):
                raise VerifyError(f"{where}, slot {slot} breaks rule {name!r} of spec KERNEL.\n{neighbourhood(value)}")
    _verify_order(kernel, where)


def _verify_order(kernel: Kernel, where: str) -> None:
    """Nothing is read in the phase that stores it, or before; every out param is stored."""
    stored: set[int] = set()
    for phase in kernel.phases:
        values = [value for nest in phase for _, value in nest.outputs]
        for op in toposort(values):
            fresh = op.code is OpCode.PARAM and kernel.params[op.arg[0]].role not in ("in", "inout")
            if fresh and op.arg[0] not in stored:
                rule = "what is read was stored in an earlier phase"
                raise VerifyError(f"{where}, slot {op.arg[0]} breaks rule {rule!r} of spec KERNEL.\n{neighbourhood(op)}")
        stored |= {slot for nest in phase for slot, _ in nest.outputs}
    for slot, param in enumerate(kernel.params):
        if param.role in ("out", "inout") and slot not in stored:
            raise VerifyError(f"{where}, slot {slot} breaks rule 'every out param is stored' of spec KERNEL.")
