"""Programs as text one wants to read, and that reads back (picograd_lab/reader.py); Schedules and Plans as text.

    program add_4
      param p0: in float32[4]
      param p1: out float32[4]
      phase
        for r1 in grid(4):
          p1[r1] = p0[r1] + 1.0

Expressions are Python's, and read with Python's parser. An int literal is int64, a float literal float32, True and
False bool; other constants are `float16(1.0)`. p0[i] is a LOAD, `load v: float32 = p0[i]` a Load statement. Ops without
a shorter form are `CODE(dtype, sources, arg=...)`. An expression used several times gets a line `t := ...` before its
first use. `name as 'text'` gives the name an Op really has when another Op took it first.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import COMPARE, ELEMENTWISE, INFIX, OpCode
from picograd.ir.stages import Executable, Kernel, LoopItem, Plan, Program, Schedule
from picograd.ir.statements import For, If, Statement, operands, walk
from picograd.ir.text import format_kernel, show, show_float

# ---- writing a program ----
ATOM = 9
NAMED = frozenset({OpCode.RANGE, OpCode.VAR, OpCode.ALLOC, OpCode.PARAM, OpCode.VARIABLE})
FUNCTIONS = ELEMENTWISE - INFIX.keys() - {OpCode.CAST, OpCode.BITCAST, OpCode.CHECK}
RESERVED = frozenset(
    {"load", "check", "prefetch", "transpose", "copy", "commit", "wait", "matrices", "shuffle", "mma", "spread", "lanes"}
    | {"cast", "bitcast"}
    | {"inf", "nan", "nan_bits", "when"}
    | {*keyword.kwlist}
    | {t.name for t in dtypes.ALL}
    | {code.name for code in OpCode}
    | {code.name.lower() for code in FUNCTIONS}
)
HOLE = re.compile(r"\{(\w+)(?:\[(\w+)\])?(\?)?\}")  # in the text of a statement
WHEN = "when"  # begins what may be left out
SHARED_COST, LONGEST_COST = 6, 40  # operations from which a repeated, or any, expression gets a line of its own


def derived_dtype(code: OpCode, src: Sequence[Op]) -> DType:
    """Returns the dtype an elementwise Op has when nothing is said."""
    if code in COMPARE:
        return dtypes.bool_
    return src[1].dtype if code is OpCode.WHERE else src[0].dtype


def format_program(program: Program) -> str:
    """Returns the text of a Program, in its free or its linear form."""
    writer = _Writer(program)
    lines = [f"program {program.name}", *writer.header()]
    for phase in program.phases:
        lines.append("  phase")
        lines += writer.body(phase, "    ")
    return "\n".join(lines)


def format_statement(statement: Statement) -> str:
    """Returns the text of one statement by itself, without its body: what errors show."""
    try:
        return _Writer(Program("", (), (), ((statement,),)), share=False).head(statement)
    except (AttributeError, IndexError, KeyError):  # a broken statement must not hide the error about it
        return repr(statement)


def format_expression(value: Op | int) -> str:
    """Returns the text of an integer expression of symbolic integers: what a dimension or a grid is."""
    return _Writer(Program("", (), (), ()), share=False).extent(value)


class _Writer:
    """Names of memory, loops and variables, and the expressions that get a line of their own."""

    def __init__(self, program: Program, share: bool = True):
        self.program = program
        self.names: dict[Op, str] = {}
        self.taken: set[str] = set(RESERVED)
        self.declared: set[Op] = set()
        roots = [op for phase in program.phases for s in walk(phase) for op in operands(s)]
        order = toposort([*program.variables, *roots, *(p.numel for p in program.params if isinstance(p.numel, Op))])
        for op in order:
            if op.code in NAMED:
                self.names[op] = self.new_name(wanted_name(op))
        self.shared = {op: self.new_name("t") for op in _shared(order, roots)} if share else {}

    def new_name(self, wanted: str) -> str:
        found, number = wanted, 0
        while found in self.taken:
            number += 1
            found = f"{wanted}_{number}"
        self.taken.add(found)
        return found

    def declare(self, op: Op) -> str:
        """Returns the name, with what the Op is called where that cannot be seen from the name."""
        name = self.names[op]
        identity = op.arg[0]
        plain = name == (f"r{identity}" if op.code is OpCode.RANGE else identity)
        return name if plain else f"{name} as {identity!r}"

    def header(self) -> Iterator[str]:
        for variable in self.program.variables:
            _, least, greatest = variable.arg
            yield f"  variable {self.declare(variable)}: {variable.dtype} {least}..{greatest}"
        for slot, param in enumerate(self.program.params):
            yield f"  param p{slot}: {param.role} {param.dtype}[{self.extent(param.numel)}]"
        for op, name in self.names.items():
            if op.code is OpCode.PARAM:
                yield f"  memory {name} = {op.arg[0]} {op.dtype} {show(op.arg[1], self.expression)}"

    def extent(self, numel: Any) -> str:
        return self.expression(numel) if isinstance(numel, Op) else str(numel)

    # ---- statements ----
    def body(self, statements: Iterable[Statement], indent: str) -> Iterator[str]:
        for statement in statements:
            for op in toposort(operands(statement)):
                if op in self.shared and op not in self.declared:
                    yield f"{indent}{self.shared[op]} := {self.expression(op, define=True)}"
                    self.declared.add(op)
            yield indent + self.head(statement)
            if isinstance(statement, For | If):
                yield from self.body(statement.body, indent + "  ")

    def head(self, statement: Statement) -> str:
        """Returns the line of a statement, without its body."""
        if isinstance(statement, For):
            r = statement.range
            width = "" if r.dtype is dtypes.int64 else f": {r.dtype}"
            return f"for {self.declare(r)}{width} in {r.arg[1].name.lower()}({self.expression(r.src[0])}):"
        if isinstance(statement, If):
            return f"if {self.expression(statement.condition)}:"
        return HOLE.sub(lambda found: self.part(statement, *found.groups()), statement.text)

    def part(self, statement: Statement, name: str, index: str | None, may_be_left_out: str | None) -> str:
        """Returns the text of one field of a statement."""
        held = getattr(statement, name)
        if may_be_left_out:
            if isinstance(held, bool):
                return f"{name} " * held
            return "" if held is None else f" {WHEN} {self.expression(held)}"
        if index:
            return f"{self.expression(held)}[{self.expression(getattr(statement, index))}]"
        if name == "var":
            return f"{self.declare(held)}: {vector_type(held)}"
        if name == "memory":  # that an Alloc makes
            return f"{self.declare(held)}: {held.dtype}[{held.arg[1]}] {held.arg[2].name.lower()}"
        return self.expression(held) if isinstance(held, Op) else str(held)

    # ---- expressions ----
    def expression(self, op: Op, define: bool = False) -> str:
        return self.term(op, define)[0]

    def term(self, op: Op, define: bool = False) -> tuple[str, int]:
        """Returns the text of an expression and how tightly it binds."""
        if op in self.shared and not define:
            return self.shared[op], ATOM
        if op in self.names:
            return self.names[op], ATOM
        if op.code in NAMED:
            return wanted_name(op), ATOM
        if op.code is OpCode.CONST:
            return show_constant(op), ATOM
        if op.code in INFIX and len(op.src) == 2 and op.dtype is derived_dtype(op.code, op.src) and op.arg is None:
            symbol, binding = INFIX[op.code]
            (left, left_binding), (right, right_binding) = self.term(op.src[0]), self.term(op.src[1])
            left = left if left_binding > binding - (binding > 1) else f"({left})"
            right = right if right_binding > binding else f"({right})"
            return f"{left} {symbol} {right}", binding
        return self.call(op), ATOM

    def call(self, op: Op) -> str:
        """Returns an expression that is not an operator: a load, a function, or CODE(...)."""
        sources = [self.expression(s) for s in op.src]
        if op.code is OpCode.LOAD and op.dtype is op.src[0].dtype:
            memory, index, *valid = sources
            return f"load({memory}, {index}, {valid[0]})" if valid else f"{memory}[{index}]"
        if op.code in FUNCTIONS and op.dtype is derived_dtype(op.code, op.src) and op.arg is None:
            return f"{op.code.name.lower()}({', '.join(sources)})"
        if op.code in (OpCode.CAST, OpCode.BITCAST) and op.arg is None:
            return f"{op.code.name.lower()}({sources[0]}, {op.dtype})"
        if op.code is OpCode.EXPAND and op.dtype is op.src[0].dtype:
            return f"spread({sources[0]}, {show(op.arg, self.expression)})"
        if op.code is OpCode.LANES and op.dtype is dtypes.int64:
            return f"lanes({op.arg})"
        argument = [] if op.arg is None else [f"arg={show(op.arg, self.expression)}"]
        return f"{op.code.name}({', '.join([op.dtype.name, *sources, *argument])})"


def wanted_name(op: Op) -> str:
    """Returns the name an Op has in text if no other took it."""
    identity = op.arg[0]
    if op.code is OpCode.PARAM:
        return f"p{identity}"
    if op.code is OpCode.RANGE:
        return f"r{identity}" if isinstance(identity, int) and identity >= 0 else "r"
    return identity if isinstance(identity, str) and identity.isidentifier() else "x"


def vector_type(var: Op) -> str:
    """Returns the dtype of a VAR and its lanes: float32, float32x8."""
    lanes = var.arg[1]
    return var.dtype.name if lanes == 1 else f"{var.dtype}x{lanes}"


def show_constant(op: Op) -> str:
    """Returns a constant, with its dtype unless it is int64, float32 or bool."""
    text = show_float(float(op.arg)) if op.dtype.is_float else repr(op.arg)
    return text if op.dtype in (dtypes.int64, dtypes.float32, dtypes.bool_) else f"{op.dtype}({text})"


def _shared(order: Sequence[Op], roots: Iterable[Op]) -> list[Op]:
    """Returns the expressions that get a line of their own, which bounds the length of every line."""
    uses: dict[Op, int] = {}
    for op in [*(s for o in order if o.code not in NAMED for s in o.src), *roots]:
        uses[op] = uses.get(op, 0) + 1
    cost: dict[Op, int] = {}
    found: list[Op] = []
    for op in order:
        cost[op] = 0 if op.code in NAMED else 1 + sum(cost[s] for s in op.src)
        if cost[op] > (SHARED_COST if uses.get(op, 0) > 1 else LONGEST_COST):
            found.append(op)
            cost[op] = 0
    return found


# ---- schedules and plans ----
def format_schedule(schedule: Schedule) -> str:
    """Returns the text of a schedule: kernels in order with their buffers; each kernel's text is at its first use."""
    return "\n".join(_schedule_lines(schedule, set()))


def _schedule_lines(schedule: Schedule, shown: set[Kernel]) -> list[str]:
    """Returns the lines of a schedule; a kernel in `shown` has been written before and is named only."""
    lines = [f"schedule of {len(schedule.kernel_items())} kernels, arena of {schedule.arena_nbytes} bytes"]
    for i, use in enumerate(schedule.buffers):
        place = {"temporary": f"at byte {use.source}", "lent": f"by output {use.source}"}.get(use.role, str(use.source))
        over = "" if use.over is None else f" {'in' if use.keeps else 'over'} input {use.over}"
        lines.append(f"  buffer {i}: {use.dtype}[{format_expression(use.numel)}] {use.role} {place}{over}")
    for item in schedule.items:
        if isinstance(item, LoopItem):
            lines += _loop_lines(item, shown)
            continue
        checks = f" with checks {', '.join(map(str, item.checks))}" if item.checks else ""
        lines.append(f"  run {item.kernel.name} on buffers {', '.join(map(str, item.buffers))}{checks}")
        if item.kernel not in shown:
            lines += ["    " + line for line in format_kernel(item.kernel).splitlines()]
            shown.add(item.kernel)
    lines.append(f"  outputs in buffers {', '.join(map(str, schedule.outputs))}")
    return lines


def _loop_lines(item: LoopItem, shown: set[Kernel]) -> list[str]:
    """Returns the lines of a loop: what each input and each output of a step is, then the schedule of the step."""
    own = "" if item.memory is None else f" with its own memory in buffer {item.memory}"
    lines = [f"  repeat {format_expression(item.steps)} times{own}"]
    for i, feed in enumerate(item.feeds):
        rows = f"row by row{' from the last' if feed.reversed else ''} " if feed.is_row else ""
        carried = "" if feed.carried is None else f", then output {feed.carried} of the step before"
        lines.append(f"    input {i} is {rows}buffer {feed.buffer}{carried}")
    for i, result in enumerate(item.results):
        rows = "row by row " if result.is_row else ""
        where = "nowhere" if result.buffer is None else f"{rows}into buffer {result.buffer}"
        spare = "".join(f", in turn with byte {at} of its memory" for at in (result.spare, result.other) if at is not None)
        lines.append(f"    output {i} goes {where}{spare}")
    return lines + ["    " + line for line in _schedule_lines(item.body, shown)]


def format_plan(plan: Plan) -> str:
    """Returns the launches of one run of a plan, in order: kernel, phase, grid, threads of a block, buffers."""
    num_launches = sum(len(executable.launches) for executable in plan.executables)
    lines = [f"plan of {len(plan.executables)} kernels, {num_launches} launches"]
    lines += _launch_lines(plan.schedule, iter(plan.executables), "  ")
    return "\n".join(lines)


def _launch_lines(schedule: Schedule, executables: Iterator[Executable], indent: str) -> list[str]:
    """Returns a line for each launch of a plan, those in loops indented."""
    lines = []
    for item in schedule.items:
        if isinstance(item, LoopItem):
            lines.append(f"{indent}repeat {format_expression(item.steps)} times")
            lines += _launch_lines(item.body, executables, indent + "  ")
            continue
        for launch in next(executables).launches:
            shape = f"grid {format_expression(launch.grid)}" + (f" x {launch.block}" if launch.block > 1 else "")
            lines.append(f"{indent}{launch.symbol}  {shape}  on buffers {', '.join(map(str, item.buffers))}")
    return lines
