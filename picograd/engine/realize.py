"""The road on one screen: from graphs to memory that holds their values.

In:    Ops
Out:   BUFFER Ops that hold their values; `realized`
Called by: tensor/core.py.    Next: picograd/engine/plan.py

    schedule = create_schedule(graphs)                 engine/plan.py
    choice   = choose(kernel, device)                  engine/compiler.py
    program  = lower(kernel, target, choice.opts)
    source   = render(program, target)
    binary   = compile(source, target)
    executable = device.load(binary)
    plan.run(inputs, outputs, variables)               here
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from picograd.config import setting
from picograd.dtype import DType
from picograd.engine.devices import EVALUATOR, compiler_for, counted
from picograd.engine.plan import Template, make_evaluator_plan, make_plan, template
from picograd.engine.scalars import Scalars
from picograd.engine.watch import active
from picograd.errors import DeviceError
from picograd.ir.checks import OutOfRange
from picograd.ir.dims import dim_value
from picograd.ir.op import Buffer, Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Plan

realized: weakref.WeakKeyDictionary[Op, Op] = weakref.WeakKeyDictionary()
_plans: dict[tuple[str, Hashable], Plan] = {}
_scalars = Scalars()
MOST_PLANS = 1024


def realize(ops: Sequence[Op]) -> list[Op]:
    """Returns for each graph a BUFFER Op with its value, contiguous; `realized` then knows it.

    Graphs are computed together, one plan for each device. A plan is made once for each form of graph.
    """
    missing = [op for op in dict.fromkeys(ops) if op.code is not OpCode.BUFFER and op not in realized]
    order = toposort(missing, stop=realized)
    by_device: dict[str | None, list[Op]] = {}
    for op, device in zip(missing, devices_of(missing, order)):
        by_device.setdefault(device, []).append(op)
    whole = len(by_device) == 1 and all(op.code is not OpCode.COPY for op in order)
    made: dict[Op, Op] = {}
    for name, roots in by_device.items():
        made.update(zip(roots, _compute(roots, name or default_device(), order if whole else None)))
        if name is not None:  # a graph of constants alone is the same Op on every device
            realized.update((op, made[op]) for op in roots)
    return [op if op.code is OpCode.BUFFER else made.get(op) or realized[op] for op in ops]


def default_device() -> str:
    """Returns the device of new tensors, by PICOGRAD_DEVICE."""
    return setting("PICOGRAD_DEVICE").upper()


def devices_of(roots: Sequence[Op], order: Sequence[Op] | None = None) -> list[str | None]:
    """Returns for each graph the device whose memory it reads, or None; copies between devices are made on the way.

    Args:
      order:  toposort(roots, stop=realized), where that is known

    Raises:
      DeviceError: a graph reads memory of two devices.
    """
    found: dict[Op, Op | None] = {}  # an Op -> some memory that it reads
    for op in toposort(roots, stop=realized) if order is None else order:
        if op.code is OpCode.COPY and op not in realized:
            realized[op] = _copy(op.src[0], op.arg)
        buffer = op if op.code is OpCode.BUFFER else realized.get(op)
        if buffer is None:
            for source in op.src:
                other = found[source]
                if buffer is None:
                    buffer = other
                elif other is not None and other.arg[0].device != buffer.arg[0].device:
                    names = ", ".join(f"{read.shape} on {read.arg[0].device}" for read in (buffer, other))
                    raise DeviceError(f"the operands are on different devices: {names}.", '.to("CPU") moves a tensor')
        found[op] = buffer
    return [None if buffer is None else buffer.arg[0].device for buffer in map(found.__getitem__, roots)]


def _copy(source: Op, device: str) -> Op:
    return from_host(to_host(realize([source])[0]), source.dtype, device)


def _compute(roots: Sequence[Op], name: str, order: Sequence[Op] | None) -> list[Op]:
    form = template(roots, realized, order)
    if name != EVALUATOR and (name, form.key) not in _plans:
        form = _scalars.freed(form, name, lambda op: from_host(np.array(op.arg), op.dtype, name))
    plan = find_plan(roots, form, name)
    inputs = [form.buffers[op.arg[0]] for op in plan.schedule.inputs]
    outputs = new_outputs(plan, name, form.variables, inputs)
    run(plan, inputs, outputs, form)
    results = []
    for root, index in zip(roots, plan.schedule.outputs):
        use = plan.schedule.buffers[index]
        buffer = outputs[use.source] if use.role == "output" else inputs[use.source]
        results.append(Op(OpCode.BUFFER, root.dtype, (), (buffer, root.shape)))
    return results


def find_plan(roots: Sequence[Op], form: Template, name: str) -> Plan:
    """Returns the plan for a form of graph, made now if it is new."""
    plan = _plans.get((name, form.key))
    if plan is None:
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        if name == EVALUATOR:
            plan = make_evaluator_plan(roots, form)
        else:
            plan = make_plan(roots, form, compiler_for(name))
        _plans[(name, form.key)] = plan
    return plan


def new_outputs(
    plan: Plan, name: str, variables: Mapping[str, int], inputs: Sequence[Buffer], some: Sequence[Buffer | None] = ()
) -> list[Buffer]:
    """Returns memory for what a plan computes: what there is in `some`, by output, and fresh memory for the others.

    Fresh memory of an output that is written in part is given what its input holds.
    """
    fixed, lengths = plan.fixed_outputs, plan.fixed_lengths
    if fixed is None:
        fixed = tuple((use.dtype, dim_value(use.numel, variables)) for use in plan.outputs)
        lengths = tuple(numel * dtype.itemsize for dtype, numel in fixed)
    if name == EVALUATOR:  # which makes the memory itself
        return [Buffer(name, dtype, numel) for dtype, numel in fixed]
    made = list(some) or [None] * len(fixed)
    if None in made:
        missing = [i for i, buffer in enumerate(made) if buffer is None]
        device = compiler_for(name).device
        for i, memory in zip(missing, device.allocate_all([lengths[i] for i in missing])):
            made[i] = Buffer(name, *fixed[i], memory)
            use = plan.outputs[i]
            if use.keeps:
                assert use.over is not None
                device.copy(memory, inputs[use.over].memory, lengths[i])
    return made  # type: ignore[return-value]  # no place is left empty


def run(plan: Plan, inputs: list[Buffer], outputs: list[Buffer], form: Template) -> None:
    """Runs a plan once, and counts it where somebody watches.

    Raises:
      OutOfRange: an index is outside its axis; the outputs are not to be used, and nothing else has changed.
    """
    try:
        plan.run(inputs, outputs, form.variables)
    except OutOfRange as report:
        raise form.error(report) from None
    for counts in active():
        counts.plans += 1
        counts.kernels += len(plan.executables)
        counts.launches += sum(len(executable.launches) for executable in plan.executables)
        counts.names += [executable.name for executable in plan.executables]
        counts.arena_nbytes = max(counts.arena_nbytes, plan.schedule.arena_nbytes)
        for use in plan.schedule.buffers:
            if use.role == "temporary" and isinstance(use.numel, int):
                counts.temporary_nbytes += use.numel * use.dtype.itemsize


# ---- host memory ----
def from_host(array: np.ndarray[Any, Any], dtype: DType, device: str) -> Op:
    """Returns a BUFFER Op with a copy of `array`.

    Raises:
      DeviceError: there is no such device here.
    """
    data = np.array(array, dtype=dtype.numpy, order="C")
    if device == EVALUATOR:
        memory: Any = counted(data)
    else:
        target = compiler_for(device).device
        memory = target.allocate(data.nbytes)
        target.copy_in(memory, data)
    return Op(OpCode.BUFFER, dtype, (), (Buffer(device, dtype, data.size, memory), data.shape))


def to_host(buffer: Op) -> np.ndarray[Any, Any]:
    """Returns a copy of what a BUFFER Op holds."""
    owner = buffer.arg[0]
    shape = [dim_value(dim, {}) for dim in buffer.shape]
    if owner.device == EVALUATOR:
        held: np.ndarray[Any, Any] = owner.memory.reshape(shape)
        return held.copy()
    array = np.empty(shape, dtype=buffer.dtype.numpy)
    compiler_for(owner.device).device.copy_out(owner.memory, array)
    return array
