"""Where a plan runs that a function was traced into: constants are made there, and numbers come and go.

In:    the graphs of a trace, and where their values are wanted
Out:   `on_one_device`: the graphs without COPYs, the one device they run on, and what crosses over to it and back; `moved`
Called by: transforms/described.py, transforms/capture.py.    Next: picograd/transforms/steps.py

A plan runs on one device. What has no axes may be on the CPU all the same, as outside (tensor/arguments.py): its value is
brought before each run, and what it becomes is taken back after it. Anything larger would have to be copied by the user.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import cast

from picograd.engine.plan import Template, computed_from, template
from picograd.engine.realize import default_device, from_host, to_host
from picograd.errors import JitError
from picograd.ir.bodies import substitute
from picograd.ir.graphless import Graphless
from picograd.ir.lines import line_of
from picograd.ir.op import Buffer, Op, Shape, toposort
from picograd.ir.opcode import OpCode
from picograd.record import Record
from picograd.tensor.arguments import GOES_ALONG

Place = tuple[str | None, Shape]  # a device, and the shape of what is there


class OnOneDevice(Record):
    """Graphs that one plan computes.

    roots:    the graphs
    form:     the same, as a template
    device:   where the plan runs
    brought:  a Buffer of the form  ->  the Buffer on the CPU whose number it holds
    """

    roots: list[Op]
    form: Template
    device: str
    brought: Mapping[Buffer, Buffer]


def on_one_device(
    roots: Sequence[Op], written: Sequence[Place], given: Collection[Op], name: str
) -> OnOneDevice:  # fmt: skip
    """Returns graphs as one plan computes them.

    Args:
      written:  where state is that is written
      given:    what arguments and state held before the call
      name:     of the function

    Raises:
      JitError: what is copied has axes and is no constant, or tensors with axes are on two devices.
    """
    roots, named = _without_copies(roots, given, name)
    form = template(roots, computed_anew=computed_from(given, roots))
    read = [(leaf.arg[0].device, leaf.shape) for leaf in form.leaves.values()]
    device = _home([*named, *read, *written], name)
    places = dict(form.leaves)
    brought: dict[Buffer, Buffer] = {}
    for op, leaf in form.leaves.items():
        if leaf.arg[0].device != device:
            places[op] = here = from_host(to_host(leaf), leaf.dtype, device)
            brought[here.arg[0]] = leaf.arg[0]
    if brought:
        roots = substitute(roots, places)
        form = template(roots, computed_anew=computed_from([*given, *places.values()], roots))
    return OnOneDevice(roots, form, device, brought)


def _home(places: Iterable[Place], name: str) -> str:
    """Returns the one device of tensors; the CPU's numbers do not count where there is another."""
    known = {(device, bool(shape)) for device, shape in places if device is not None}
    devices = {device for device, has_axes in known if has_axes or device != GOES_ALONG}
    if len(devices) > 1:
        raise JitError(
            f"jit: {name} computes on several devices: {', '.join(sorted(devices))}.",
            f"move them to one before the call; only a tensor of no axes may stay on {GOES_ALONG}.",
        )
    return next(iter(devices or {device for device, _ in known}), default_device())


def _without_copies(roots: Sequence[Op], given: Collection[Op], name: str) -> tuple[list[Op], list[Place]]:
    """Returns graphs whose constants and numbers are made where the plan runs, and the places that constants name.

    pg.ones(3, device="CUDA") is a COPY where another device is the default one; constants alone live everywhere.
    """
    reads, made = set(given), {op: op for op in given}
    anew = cache(lambda: computed_from(given, roots))  # a walk that few graphs need
    named: list[Place] = []
    for op in toposort(roots, stop=made):
        if op.code is OpCode.BUFFER or not reads.isdisjoint(op.src):
            reads.add(op)
        if op.code is OpCode.DETACH and Graphless.living and not op.src[0].needs_grad:  # a plan is the same without
            made[op] = substitute([op.src[0]], made)[0]
        if op.code is not OpCode.COPY or op in made:
            continue
        is_constant = op not in reads
        if is_constant or not op.shape:
            made[op] = substitute([op.src[0]], made)[0]
            named += [(op.arg, op.shape)] * is_constant
        elif op.realized is None or op in anew():
            raise JitError(
                f"jit: {name} copies a tensor of shape {op.shape} to {op.arg}; a plan runs on one device.",
                "copy what it takes before the call, and what it returns after it.",
                line_of(op),
            )
    return (substitute(roots, made) if len(made) > len(given) else list(roots)), named


def moved(buffer: Buffer, device: str) -> Buffer:
    """Returns a copy of a number on another device."""
    op = Op(OpCode.BUFFER, buffer.dtype, (), (buffer, ()))
    return cast(Buffer, from_host(to_host(op), buffer.dtype, device).arg[0])
