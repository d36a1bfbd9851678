"""Counts what graphs and Programs are made of.

In:    Tensors
Out:   `counts_of`: lines of text
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from picograd import Tensor
from picograd.autodiff.gradient import written_out
from picograd.engine.compiler import runs_on_host
from picograd.engine.plan import parametrize, template
from picograd.ir.bodies import bodies_in
from picograd.ir.op import Op, greatest, toposort
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.stages import Kernel, LoopItem, Program, Schedule
from picograd.ir.statements import Alloc, For, If, Let, Statement
from picograd.road import lower, schedule_graphs
from tests.same_meaning import CPU_TARGETS, GPU_TARGET

TARGETS = {"cpu": CPU_TARGETS[1], "gpu": GPU_TARGET}
SOME_STEPS = 8  # of a loop whose length is computed


def counts_of(tensors: Sequence[Tensor]) -> list[str]:
    """Returns what the graphs of tensors are made of, and the Programs of their kernels on each target."""
    roots = written_out([tensor.op for tensor in tensors])
    graphs = parametrize(roots, template(roots))
    schedules = {name: schedule_graphs(graphs, target) for name, target in TARGETS.items()}
    lines = [f"graph {_joined(_codes(roots))}", f"plan {_joined(_memory(schedules['cpu']))}"]
    kernels = {name: {item.kernel for item in schedule.kernel_items()} for name, schedule in schedules.items()}
    for kernel in dict.fromkeys(item.kernel for schedule in schedules.values() for item in schedule.kernel_items()):
        lines.append(f"kernel {_joined(_nests(kernel))}")
        for name in [name for name in TARGETS if kernel in kernels[name] and not runs_on_host(kernel)]:
            lines.append(f"  {name} {_joined(_statements(lower(kernel, TARGETS[name])))}")
    return lines


def _codes(roots: Iterable[Op]) -> Counter[str]:
    """Returns how many Ops of each kind there are, in bodies too."""
    ops = toposort(roots)
    found = Counter(op.code.name for op in ops)
    for body in bodies_in(ops):
        found += _codes(body.src)
    return found


def _memory(schedule: Schedule) -> Counter[str]:
    """Returns how often kernels run, in how many loops, and the bytes of temporaries."""
    found = Counter({"arena_bytes": schedule.arena_nbytes})
    for item in schedule.items:
        if isinstance(item, LoopItem):
            found += Counter({"loops": 1}) + _memory(item.body)
        else:
            found["kernels"] += 1
    return found


def _nests(kernel: Kernel) -> Counter[str]:
    """Returns the nests of a kernel by kind, and how many Ops are in them."""
    nests = [nest for phase in kernel.phases for nest in phase]
    ops = toposort([value for nest in nests for _, value in nest.outputs])
    return Counter({"ops": len(ops)}) + Counter(nest.kind.name.lower() for nest in nests)


def _statements(program: Program) -> Counter[str]:
    """Returns the statements of a Program by kind, the memory it asks for, and how many it runs."""
    found = Counter({"phases": len(program.phases), "guards": program.num_guards})
    for param in program.params:
        found["scratch_elements"] += greatest(param.numel) if param.role == "scratch" else 0
    for phase in program.phases:
        found["run"] += _count(phase, 1, found)
    return +found


def _count(statements: Iterable[Statement], times: int, found: Counter[str]) -> int:
    """Counts statements, and returns how many are run where their loop is entered so often."""
    run = 0
    for statement in statements:
        run += times
        if isinstance(statement, Let):
            found["values"] += 1
        elif isinstance(statement, Alloc):
            _, numel, space = statement.memory.arg
            found[f"{space.name.lower()}_elements"] += numel
        elif isinstance(statement, For):
            (extent,), (_, kind) = statement.range.src, statement.range.arg
            found[f"{kind.name.lower()}_loops" if kind is not AxisKind.LOOP else "loops"] += 1
            run += _count(statement.body, times * (extent.arg if extent.code is OpCode.CONST else SOME_STEPS), found)
        elif isinstance(statement, If):
            found["ifs"] += 1
            run += _count(statement.body, times, found)
        else:
            name = type(statement).__name__.lower()
            found[name.removesuffix("s") + ("es" if name.endswith("ch") else "s")] += 1
    return run


def _joined(counts: Counter[str]) -> str:
    return ", ".join(f"{key} {counts[key]}" for key in sorted(counts))
