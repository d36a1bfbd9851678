"""Writes a function of tensors as JavaScript: picograd's kernels in order, for a page without a server.

    script = javascript([logits], {"tokens": tokens})
    script.text         function model(weights) { ... return function (tokens) { ...; return [logits]; }; }

In:    tensors that are not computed yet; computed tensors whose values a page gives at each call
Out:   `Script`: the text, and the other arrays that it needs

The graphs are compiled as for every device (road.py), for a machine without vectors; this file has a row per statement and
a row per operation, as docs/course/22_a_device_of_your_own.md has for Python. JavaScript's numbers are float64: float32 is
rounded when it is stored, not at each step, and integers are exact up to 2**53.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.autodiff.gradient import written_out
from picograd.device import Target
from picograd.dtype import DType
from picograd.engine.plan import parametrize, template
from picograd.engine.realize import to_host
from picograd.errors import ArgumentError, UnsupportedOp
from picograd.ir.op import Buffer, Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Kernel, Program, Schedule, ScheduleItem
from picograd.ir.statements import Alloc, Check, For, If, Let, Load, Statement, Store
from picograd.record import Record
from picograd.road import lower, schedule_graphs
from picograd.tensor.tensor import Tensor

TARGET = Target("JAVASCRIPT", "javascript", "es2015", vector_bytes=1)
ARRAYS = {
    dtypes.float32: "Float32Array", dtypes.float64: "Float64Array", dtypes.int32: "Int32Array", dtypes.int16: "Int16Array",
    dtypes.int8: "Int8Array", dtypes.uint32: "Uint32Array", dtypes.uint16: "Uint16Array", dtypes.uint8: "Uint8Array",
    dtypes.bool_: "Uint8Array", dtypes.int64: "Float64Array",  # as long as an int64
}  # fmt: skip
ROWS = {
    OpCode.NEG: "-{}", OpCode.RECIPROCAL: "1 / {}", OpCode.FLOOR: "Math.floor({})", OpCode.SQRT: "Math.sqrt({})",
    OpCode.EXP: "Math.exp({})", OpCode.EXP2: "2 ** {}", OpCode.LOG: "Math.log({})", OpCode.LOG2: "Math.log2({})",
    OpCode.SIN: "Math.sin({})", OpCode.COS: "Math.cos({})", OpCode.TANH: "Math.tanh({})",
    OpCode.ADD: "{} + {}", OpCode.SUB: "{} - {}", OpCode.MUL: "{} * {}", OpCode.DIV: "{} / {}", OpCode.POW: "{} ** {}",
    OpCode.IDIV: "Math.floor({} / {})", OpCode.MOD: "{0} - {1} * Math.floor({0} / {1})", OpCode.FMA: "{} * {} + {}",
    OpCode.MAX: "Math.max({}, {})", OpCode.MIN: "Math.min({}, {})", OpCode.WHERE: "{} ? {} : {}",
    OpCode.CMPLT: "{} < {}", OpCode.CMPLE: "{} <= {}", OpCode.CMPEQ: "{} == {}", OpCode.CMPNE: "{} != {}",
    OpCode.AND: "{} & {}", OpCode.OR: "{} | {}", OpCode.XOR: "{} ^ {}", OpCode.EXPAND: "{}",
}  # fmt: skip


class Script(Record, eq=False):
    """A function as JavaScript.

    text:     function model(weights) {...}: it returns a function of the inputs, which returns a list of the outputs, all
              as typed arrays
    weights:  argument of `model`: the arrays that are not inputs, flat
    """

    text: str
    weights: tuple[np.ndarray[Any, Any], ...]


def javascript(outputs: Sequence[Tensor], inputs: Mapping[str, Tensor]) -> Script:
    """Returns JavaScript that computes tensors.

    Args:
      outputs:  tensors that are not computed yet
      inputs:   computed tensors that they read, by parameter names for the text

    Raises:
      ArgumentError: the outputs do not depend on an input.
      UnsupportedOp: an operation or dtype has no row, or the graph has a loop or an unknown length.

    >>> x = Tensor([1.0, 2.0])
    >>> "Math.exp" in javascript([x.exp()], {"x": x}).text
    True
    """
    roots = written_out([tensor.op for tensor in outputs])
    form = template(roots)
    schedule = schedule_graphs(parametrize(roots, form), TARGET)
    leaves = {leaf.arg[0]: leaf for leaf in form.leaves.values()}
    names = {_buffer_of(tensor): name for name, tensor in inputs.items()}
    if unread := [name for buffer, name in names.items() if buffer not in leaves]:
        raise ArgumentError(f"javascript: no output reads the input {unread[0]!r}.")
    sources = [form.buffers[op.arg[0]] for op in schedule.inputs]
    weights = [buffer for buffer in sources if buffer not in names]
    kernels: dict[Kernel, str] = {}
    calls = []
    for item in schedule.items:
        if not isinstance(item, ScheduleItem):
            raise UnsupportedOp("javascript: a loop over kernels cannot be written.")
        name = kernels.setdefault(item.kernel, f"{item.kernel.name}_{len(kernels)}")
        calls.append(f"{name}({', '.join(f'm{number}' for number in item.buffers)});")
    given = [f"m{n} = {names[sources[use.source]]};" for n, use in _inputs(schedule) if sources[use.source] in names]
    lines = [line for kernel, name in kernels.items() for line in _kernel(name, lower(kernel, TARGET))]
    lines += [f"const arena = new ArrayBuffer({schedule.arena_nbytes});"]
    lines += _memory(schedule, [weights.index(buffer) if buffer in weights else None for buffer in sources])
    lines += [f"return function ({', '.join(inputs)}) {{", *("  " + line for line in [*given, *calls])]
    lines += [f"  return [{', '.join(f'm{number}' for number in schedule.outputs)}];", "};"]
    text = "\n".join(["function model(weights) {", *("  " + line for line in lines), "}"])
    return Script(f"{text}\n", tuple(to_host(leaves[buffer]).reshape(-1) for buffer in weights))


def _buffer_of(tensor: Tensor) -> Buffer:
    (buffer,) = template([tensor.detach().realize().op]).buffers
    return buffer


# ---- memory ----
def _inputs(schedule: Schedule) -> Iterable[tuple[int, Any]]:
    return [(number, use) for number, use in enumerate(schedule.buffers) if use.role == "input"]


def _memory(schedule: Schedule, weight_of: Sequence[int | None]) -> list[str]:
    """Returns a line per buffer: inputs are set at each call, temporaries share the arena or are in outputs."""
    outputs = {use.source: number for number, use in enumerate(schedule.buffers) if use.role == "output"}
    lines, lent = [], []
    for number, use in enumerate(schedule.buffers):
        kind, numel = _array(use.dtype), _length(use.numel)
        if use.role == "input":
            weight = weight_of[use.source]
            lines.append(f"let m{number};" if weight is None else f"const m{number} = weights[{weight}];")
        elif use.role == "output":
            lines.append(f"const m{number} = new {kind}({numel});")
        elif use.role == "temporary":
            lines.append(f"const m{number} = new {kind}(arena, {use.source}, {numel});")
        else:
            lent.append(f"const m{number} = new {kind}(m{outputs[use.source]}.buffer, 0, {numel});")
    return lines + lent


def _array(dtype: DType) -> str:
    if dtype not in ARRAYS:
        raise UnsupportedOp(f"javascript: JavaScript has no array of {dtype}.")
    return ARRAYS[dtype]


def _length(numel: Dim) -> int:
    if not isinstance(numel, int):
        raise UnsupportedOp("javascript: lengths must be known.")
    return numel


# ---- kernels ----
def _kernel(name: str, program: Program) -> list[str]:
    """Returns a function; besides its buffers it needs memory that is allocated once."""
    given = [f"p{slot}" for slot, param in enumerate(program.params) if param.role in ("in", "out")]
    own = [
        f"const {name}_p{slot} = new {_array(param.dtype)}({_length(param.numel)});"
        for slot, param in enumerate(program.params)
        if param.role == "scratch"
    ]
    taken = [line.split()[1] for line in own]
    lines = [*own, f"function {name}({', '.join(given)}) {{"]
    lines += [f"  const {each.removeprefix(name + '_')} = {each};" for each in taken]
    for statements in program.phases:
        lines += ["  {", *_written(statements, 2), "  }"]
    return [*lines, "}"]


def _written(statements: Iterable[Statement], depth: int) -> list[str]:
    """Returns the lines of statements, each by its row."""
    lines, indent = [], "  " * depth
    for s in statements:
        if isinstance(s, For):
            i = _operand(s.range)
            lines.append(f"{indent}for (let {i} = 0; {i} < {_operand(s.range.src[0])}; {i}++) {{")
            lines += [*_written(s.body, depth + 1), f"{indent}}}"]
        elif isinstance(s, If):
            lines += [f"{indent}if ({_operand(s.condition)}) {{", *_written(s.body, depth + 1), f"{indent}}}"]
        elif isinstance(s, Alloc):
            lines.append(f"{indent}const {_name(s.memory)} = new {_array(s.memory.dtype)}({s.memory.arg[1]});")
        elif isinstance(s, Let):
            lines.append(f"{indent}const {_operand(s.var)} = {_expression(s.value)};")
        elif isinstance(s, Load):
            place = f"{_name(s.memory)}[{_operand(s.index)}]"
            value = place if s.valid is None else f"{_operand(s.valid)} ? {place} : 0"
            lines.append(f"{indent}const {_operand(s.var)} = {value};")
        elif isinstance(s, Store):
            condition = "" if s.valid is None else f"if ({_operand(s.valid)}) "
            lines.append(f"{indent}{condition}{_name(s.memory)}[{_operand(s.index)}] = {_operand(s.value)};")
        elif isinstance(s, Check):
            message = f'"index " + {_operand(s.value)} + " is outside"'
            lines.append(f"{indent}if (!({_operand(s.inside)})) throw new RangeError({message});")
        else:
            raise UnsupportedOp(f"javascript: cannot write the statement {type(s).__name__}.")
    return lines


def _name(memory: Op) -> str:
    return f"p{memory.arg[0]}" if memory.code is OpCode.PARAM else str(memory.arg[0])


def _operand(op: Op) -> str:
    if op.code is OpCode.CONST:
        number = float(op.arg) if op.dtype.is_float else int(op.arg)
        if math.isfinite(number):
            return f"({number!r})" if number < 0 else repr(number)
        return "NaN" if math.isnan(number) else f"({'-' if number < 0 else ''}Infinity)"
    return f"i{op.arg[0]}" if op.code is OpCode.RANGE else str(op.arg[0])


def _expression(op: Op) -> str:
    operands = [_operand(source) for source in op.src]
    if op.code is OpCode.CAST:
        return _cast(operands[0], op.src[0].dtype, op.dtype)
    if op.code is OpCode.BITCAST and (op.src[0].dtype, op.dtype) == (dtypes.int64, dtypes.uint64):
        return f"{operands[0]} < 0 ? {operands[0]} + 2 ** 64 : {operands[0]}"  # an index below 0 is a large number
    if op.code not in ROWS:
        raise UnsupportedOp(f"javascript: cannot write {op.code.name}.")
    return ROWS[op.code].format(*operands)


def _cast(value: str, source: DType, target: DType) -> str:
    if target is dtypes.bool_:
        return f"{value} != 0"
    if source is dtypes.bool_:
        return f"+{value}"
    return f"Math.trunc({value})" if source.is_float and not target.is_float else value
