"""From a trace to a capture: where each buffer of the graphs comes from.

In:    what a function touched, returned and wrote while it was traced
Out:   `described`: a `Capture` without a plan; `with_plan`, `with_plan_of`: as it is kept
Called by: transforms/jit.py.    Next: picograd/transforms/homes.py
"""

from __future__ import annotations

from typing import Any

from picograd.engine.plan import Template
from picograd.ir.op import Buffer, Op
from picograd.ir.stages import Plan
from picograd.record import replace
from picograd.transforms.capture import BROUGHT, Capture
from picograd.transforms.collected import Collected
from picograd.transforms.guards import Guards
from picograd.transforms.homes import on_one_device
from picograd.transforms.kinds import Kinds
from picograd.transforms.returned import Recipe
from picograd.transforms.traced import TraceOfFunction


def described(
    watch: TraceOfFunction, starts: list[Op], skeleton: Any, roots: list[Op], wanted: list[str | None],
    updated: tuple[int, ...], guards: Guards, collected: Collected | None,
    recipes: tuple[Recipe, ...] | None, graphless: tuple[int, ...],
) -> Capture:  # fmt: skip
    """Returns what a trace found, by where each buffer comes from; `wanted` says where each value is to be."""
    name = watch.function
    # NOTE: what somebody has computed of them before is realized, and would be frozen as it was.
    given = [*starts, *watch.before.values()]
    written = [(cell.device, cell.op.shape) for cell in watch.written]
    plan = on_one_device(roots, written, given, name)
    arguments = {op.arg[0]: i for i, op in enumerate(starts)}
    state = {(op.realized or op).arg[0]: (i, cell) for i, (cell, op) in enumerate(watch.before.items())}
    cells = list(watch.before)
    sources: list[tuple[str, int]] = []
    constants: list[Buffer] = []
    for buffer in plan.form.buffers:
        origin = plan.brought.get(buffer, buffer)
        kind = "" if origin is buffer else BROUGHT
        if origin in arguments:
            sources.append((kind + "arg", arguments[origin]))
        elif origin in state:
            sources.append((kind + "state", state[origin][0]))
        else:
            sources.append(("constant", len(constants)))
            constants.append(buffer)
    shapes = tuple((op.dtype, op.shape) for op in plan.roots)
    away = tuple(
        place if place not in (None, plan.device) and not shape else None for place, (_, shape) in zip(wanted, shapes)
    )
    return Capture(
        plan.form, tuple(plan.roots), tuple(sources), tuple(cells), Kinds(cells, plan.device), tuple(constants),
        tuple(watch.written), updated, skeleton, shapes, away, plan.device, name, guards, collected, recipes, graphless,
    )  # fmt: skip


def with_plan(capture: Capture, form: Template, plan: Plan) -> Capture:
    """Returns a capture as it is kept: with the plan, and without the graphs, which would keep memory alive.

    Args:
      form:  which the plan was made of: it may read numbers besides the buffers of the capture's own form
    """
    own = {name: value for name, value in form.variables.items() if name not in capture.form.variables}
    numbers, first = form.buffers[len(capture.sources) :], len(capture.constants)
    return replace(
        capture,
        plan=plan.of(own) if own else plan,
        form=replace(capture.form.bare(), variables=form.variables),
        roots=(),
        sources=(*capture.sources, *[("constant", first + i) for i in range(len(numbers))]),
        constants=(*capture.constants, *numbers),
    )


def with_plan_of(first: Capture, second: Capture) -> Capture:
    """Returns a second capture, which is the same, with the plan of the first."""
    numbers = first.constants[len(second.constants) :]
    constants = (*second.constants, *numbers)
    return replace(second, plan=first.plan, form=first.form, roots=(), sources=first.sources, constants=constants)
