"""Runs a tensor graph Op by Op with NumPy: what every graph means.

In:    output Ops, and arrays for the Ops whose values are known
Out:   an array for each output, of its dtype and shape
Next:  picograd/evaluator/kernel.py
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from picograd.errors import ShapeError, UnsupportedOp, VerifyError
from picograd.evaluator.arrays import ARRAY_RULES, Rule, Variables, shape_value
from picograd.evaluator.contractions import CONTRACTION_RULES
from picograd.evaluator.elementwise import ELEMENTWISE_RULES, Array, check, rounded
from picograd.evaluator.host import HOST_FUNCTIONS, Failed
from picograd.ir.checks import Unsolvable
from picograd.ir.holders import out_of_memory
from picograd.ir.host import HostCall
from picograd.ir.lines import line_of
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import check_array

Value = Array | tuple[Array, ...]


def evaluate(outputs: Sequence[Op], values: Mapping[Op, Array], variables: Mapping[str, int] | None = None) -> list[Array]:
    """Returns the value of each output; nothing returned shares memory with `values`.

    Args:
      outputs:    Ops of a tensor graph
      values:     arrays for BUFFER, PARAM and any other Op already known; the graph below those is not looked at
      variables:  values of VARIABLEs by name; a BIND in the graph gives the value of its own

    Returns:   arrays with op.dtype.numpy and op.shape

    Raises:
      Refused: a CHECK does not let an index pass, or a matrix has no result.
      UnsupportedOp: an Op that needs more than one process, or a CUSTOM without a NumPy meaning.

    Cost:      memory for what is still to be read: a result is dropped after its last use.

    >>> from picograd import dtype as dtypes
    >>> x = Op(OpCode.IOTA, dtypes.float32, (), 3)
    >>> evaluate([x + x], {})
    [array([0., 2., 4.], dtype=float32)]
    """
    with np.errstate(all="ignore"):
        order = toposort(outputs, stop=values)
        known = dict(variables or {})
        known.update(_bound(order))
        results = _run(order, list(outputs), values, known)
    try:
        return _own(results, values)
    except MemoryError:
        raise out_of_memory("NUMPY", max(array.nbytes for array in results)) from None


def _bound(order: Sequence[Op]) -> dict[str, int]:
    """Returns the values that BINDs among these Ops, or in their shapes, give to variables."""
    found: dict[str, int] = {}
    dims = [dim for op in order for dim in op.shape if isinstance(dim, Op)]
    for op in toposort([*order, *dims]):
        if op.code is OpCode.BIND:
            found[op.src[0].arg[0]] = int(op.src[1].arg)
    return found


def _run(order: Sequence[Op], outputs: list[Op], values: Mapping[Op, Array], variables: Variables) -> list[Array]:
    """Runs Ops in order; a value is dropped once its last reader has run."""
    uses: dict[Op, int] = {}
    for op in order:
        if op not in values:
            for s in op.src:
                uses[s] = uses.get(s, 0) + 1
    for op in outputs:
        uses[op] = uses.get(op, 0) + 1
    live: dict[Op, Value] = {}
    for op in order:
        if op in values:
            live[op] = _given(op, values[op], variables)
            continue
        try:
            live[op] = apply(op, [live[s] for s in op.src], variables)
        except (MemoryError, ValueError) as error:
            raise _too_large(op, error, variables) from None
        for s in op.src:
            uses[s] -= 1
            if not uses[s]:
                del live[s]
    return [_first(live[op]) for op in outputs]


def _too_large(op: Op, error: Exception, variables: Variables) -> Exception:
    """Returns the error for a result that NumPy has no memory for, no axes, or no numbers to say how large it is."""
    shape = shape_value(op.shape, variables)
    check_array("NUMPY", shape, op.dtype.itemsize)
    nbytes = math.prod(shape) * op.dtype.itemsize
    return out_of_memory("NUMPY", nbytes) if isinstance(error, MemoryError) or nbytes > sys.maxsize else error


def _first(value: Value) -> Array:
    return value[0] if isinstance(value, tuple) else value


def _given(op: Op, array: Array, variables: Variables) -> Array:
    shape = shape_value(op.shape, variables)
    array = np.asarray(array)
    if array.dtype != op.dtype.numpy or array.size != math.prod(shape):
        raise ShapeError(f"evaluate: {op} was given a {array.dtype} array of shape {array.shape}.")
    return array.reshape(shape)


def _own(results: list[Array], values: Mapping[Op, Array]) -> list[Array]:
    """Returns C-contiguous arrays that alias neither each other nor the given values."""
    taken = {id(array) for array in values.values()}
    owned: list[Array] = []
    for array in results:
        if id(array) in taken or array.base is not None or not array.flags.c_contiguous:
            array = np.array(array, order="C")
        taken.add(id(array))
        owned.append(array)
    return owned


def apply(op: Op, args: Sequence[Value], variables: Variables) -> Value:
    """Returns the value of one Op from those of its sources."""
    if op.code is OpCode.OUTPUT:
        producer = args[0]
        assert isinstance(producer, tuple), f"OUTPUT of {op.src[0]}, which has one result"
        return rounded(producer[op.arg], op.dtype)
    arrays = [_first(a) for a in args]
    if op.code is OpCode.CHECK:
        return check(op, arrays, shape_value(op.arg[1:], variables)[0])
    elementwise = ELEMENTWISE_RULES.get(op.code)
    if elementwise is not None:
        return rounded(elementwise(op, arrays), op.dtype)
    rule = RULES.get(op.code)
    if rule is None:
        fact = f"evaluate: {op.code.name} has no meaning in a tensor graph of one process."
        raise UnsupportedOp(fact, line=line_of(op))
    result = rule(op, arrays, variables)
    return tuple(np.asarray(r) for r in result) if isinstance(result, tuple) else rounded(result, op.dtype)


# ---- sources and identities ----
def _missing(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    raise VerifyError(f"evaluate: {op} has no value.")


def _const(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    return np.array(op.arg, np.float64 if op.dtype.is_float else op.dtype.numpy)


def _variable(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    return np.array(shape_value((op,), variables)[0])


def _bind(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    return args[1]


def _identity(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    return args[0]


def _assign(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    return args[1]


# ---- bodies ----
def _run_body(body: Op, args: Sequence[Array], variables: Variables) -> list[Array]:
    order = toposort(body.src)
    values = {op: args[op.arg[0]] for op in order if op.code is OpCode.PARAM}
    return _run(order, list(body.src), values, variables)


def _call(op: Op, args: Sequence[Array], variables: Variables) -> tuple[Array, ...]:
    return tuple(_run_body(op.arg, args, variables))


def _loop(op: Op, args: Sequence[Array], variables: Variables) -> tuple[Array, ...]:
    """Runs the body for step i on (carry, row i of each stacked input); it gives the new carry, then a row of each."""
    body, num_carry, num_steps = op.arg
    carry, stacked = list(args[:num_carry]), args[num_carry:]
    steps = shape_value((num_steps,), variables)[0]
    rows: list[list[Array]] = [[] for _ in body.src[num_carry:]]
    for i in range(steps):
        results = _run_body(body, [*carry, *(np.asarray(s[i]) for s in stacked)], variables)
        carry = results[:num_carry]
        for collected, row in zip(rows, results[num_carry:]):
            collected.append(row)
    shapes = [(steps, *shape_value(out.shape, variables)) for out in body.src[num_carry:]]
    made = [np.stack(r) if r else np.zeros(s, o.dtype.numpy) for r, s, o in zip(rows, shapes, body.src[num_carry:])]
    return (*carry, *made)


def _custom(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    """Calls the function of the host, or what a hand-written kernel means in NumPy."""
    if isinstance(op.arg, HostCall):
        if 0 in shape_value(op.shape, variables):
            return np.zeros(shape_value(op.shape, variables), op.dtype.numpy)
        try:
            return HOST_FUNCTIONS[op.arg.name](*args, *op.arg.options)
        except Failed as failed:
            assert op.arg.site is not None, f"{op.arg.name} cannot fail"
            raise Unsolvable(op.arg.site, failed.number, 0, line_of(op), op) from None
    meaning = getattr(op.arg, "numpy", None)
    if meaning is None:
        raise UnsupportedOp(f"evaluate: the kernel {getattr(op.arg, 'name', op.arg)} has no NumPy meaning.")
    return meaning(*args)


RULES: dict[OpCode, Rule] = {
    OpCode.BUFFER: _missing,
    OpCode.PARAM: _missing,
    OpCode.CONST: _const,
    OpCode.VARIABLE: _variable,
    OpCode.BIND: _bind,
    OpCode.LEAF: _identity,
    OpCode.DETACH: _identity,
    OpCode.CONTIGUOUS: _identity,
    OpCode.COPY: _identity,
    OpCode.ASSIGN: _assign,
    OpCode.CALL: _call,
    OpCode.LOOP: _loop,
    OpCode.CUSTOM: _custom,
    **ARRAY_RULES,
    **CONTRACTION_RULES,
}
