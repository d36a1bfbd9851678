"""The recording of a traced call, and the conditions under which it holds.

In:    the graphs and cells of one trace
Out:   `Recording`: the values that the function read and computed, and their destinations;  `Conditions`, for each call

A plan runs on one device. A tensor of no axes may still be on the CPU, as outside of jit: its value is copied to the device
before each run, and its new value back after it. A larger one must be copied by the user. A plan takes memory by
its address, and would misread a value that was moved or cast since the trace: `CellKinds` notices that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

from picograd.dtype import DType
from picograd.engine.devices import default_device
from picograd.engine.plan import Template, computed_from, template
from picograd.engine.realize import from_host, to_host
from picograd.errors import JitError
from picograd.ir.bodies import substitute
from picograd.ir.op import Buffer, Op, Shape, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.origin import Graphless, graphless_in, line_of
from picograd.record import Record, replace
from picograd.tensor.arguments import GOES_ALONG
from picograd.tensor.cell import Cell, CellKind, last_move
from picograd.transforms.guards import Guards, Watched
from picograd.transforms.results import Collected, Returned

# ---- devices ----
DeviceAndShape = tuple[str | None, Shape]  # a device, and the shape of the value


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
    roots: Sequence[Op], written: Sequence[DeviceAndShape], given: Collection[Op], name: str
) -> OnOneDevice:  # fmt: skip
    """Returns graphs in the form in which one plan can compute them.

    Args:
      written:  device and shape of state that is written
      given:    values of arguments and state before the call
      name:     name of the function

    Raises:
      JitError: a copied value has axes and is not a constant, or tensors with axes are on two devices.
    """
    roots, named = _without_copies(roots, given, name)
    form = template(roots, recomputed=computed_from(given, roots))
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
        form = template(roots, recomputed=computed_from([*given, *places.values()], roots))
    return OnOneDevice(roots, form, device, brought)


def _home(places: Iterable[DeviceAndShape], name: str) -> str:
    """Returns the one device of tensors; numbers on the CPU do not count if there is another device."""
    known = {(device, bool(shape)) for device, shape in places if device is not None}
    devices = {device for device, has_axes in known if has_axes or device != GOES_ALONG}
    if len(devices) > 1:
        raise JitError(
            f"jit: {name} computes on several devices: {', '.join(sorted(devices))}.",
            f"move them to one before the call; only a tensor of no axes may stay on {GOES_ALONG}.",
        )
    return next(iter(devices or {device for device, _ in known}), default_device())


def _without_copies(roots: Sequence[Op], given: Collection[Op], name: str) -> tuple[list[Op], list[DeviceAndShape]]:
    """Returns graphs whose constants and numbers are made on the plan's device, and the devices that constants name.

    pg.ones(3, device="CUDA") is a COPY if another device is the default one, since constants belong to no device.
    """
    reads, made = set(given), {op: op for op in given}
    recomputed = cache(lambda: computed_from(given, roots))  # a walk that few graphs need
    named: list[DeviceAndShape] = []
    for op in toposort(roots, stop=made):
        if op.code is OpCode.BUFFER or not reads.isdisjoint(op.src):
            reads.add(op)
        if op.code is OpCode.DETACH and Graphless.living and not op.src[0].needs_grad:  # it changes nothing in a plan
            made[op] = substitute([op.src[0]], made)[0]
        if op.code is not OpCode.COPY or op in made:
            continue
        is_constant = op not in reads
        if is_constant or not op.shape:
            made[op] = substitute([op.src[0]], made)[0]
            named += [(op.arg, op.shape)] * is_constant
        elif op.realized is None or op in recomputed():
            raise JitError(
                f"jit: {name} copies a tensor of shape {op.shape} to {op.arg}; a plan runs on one device.",
                "copy what it takes before the call, and what it returns after it.",
                line_of(op),
            )
    return (substitute(roots, made) if len(made) > len(given) else list(roots)), named


# ---- recorded ----
Source = tuple[str, int]  # origin of a Buffer, see Recording
BROUGHT = "brought "  # prefix of sources of numbers on the CPU, for a plan on another device


class Values(Record, eq=False):
    """The values that recorded graphs compute: those returned, then those of written cells, then of updated arguments.

    kinds:      dtype and shape of each value
    away:       for each value the device to which it is moved after a run, if it is a number; else None
    written:    cells that the function writes
    updated:    numbers of the arguments that it writes in place
    graphless:  numbers of returned values that would need gradients without jit
    """

    kinds: tuple[tuple[DType, Shape], ...]
    away: tuple[str | None, ...]
    written: tuple[Cell, ...]
    updated: tuple[int, ...]
    graphless: tuple[int, ...]

    @property
    def num_returned(self) -> int:
        """The number of returned values, gradients included."""
        return len(self.kinds) - len(self.written) - len(self.updated)


class Recording(Record, eq=False):
    """One run of the function on stand-ins: the graphs it built, their sources, and the destinations of their values.

    It lives from the first trace until it is compared with the second one. A plan is made of its graphs; then it becomes
    `bare()`, since the graphs would keep memory alive.

    name:       of the function
    device:     where the plan runs
    form:       the graphs as a template
    roots:      the graphs
    sources:    for each buffer of the form its origin: ("arg", i), ("state", i) or ("constant", i); for a number on
                the CPU, if the plan runs elsewhere, ("brought arg", i) or ("brought state", i)
    state:      cells made before that the function reads or writes
    constants:  buffers that the function made itself
    values:     the values of the graphs
    returned:   the function's return value, made of these
    """

    name: str
    device: str
    form: Template
    roots: tuple[Op, ...]
    sources: tuple[Source, ...]
    state: tuple[Cell, ...]
    constants: tuple[Buffer, ...]
    values: Values
    returned: Returned

    def bare(self) -> Recording:
        """Returns the recording without its graphs."""
        return replace(self, form=self.form.bare(), roots=())


def recorded(
    name: str, state: Mapping[Cell, Op], arguments: Sequence[Op], roots: Sequence[Op], places: Sequence[str | None],
    written: Sequence[Cell], updated: Sequence[int], returned: Returned,
) -> Recording:  # fmt: skip
    """Returns the recording of a trace.

    Args:
      state:      cells made before, each with its value before the call
      arguments:  their stand-ins
      roots:      returned values, then those of written cells, then of updated arguments
      places:     device of each root
    """
    values = [*arguments, *state.values()]  # the plan computes all that depends on them, even if it is realized
    graphs = on_one_device(roots, [(cell.device, cell.op.shape) for cell in written], values, name)
    origins: dict[Buffer, Source] = {op.arg[0]: ("arg", i) for i, op in enumerate(arguments)}
    origins |= {(op.realized or op).arg[0]: ("state", i) for i, op in enumerate(state.values())}
    sources: list[Source] = []
    constants: list[Buffer] = []
    for buffer in graphs.form.buffers:
        origin = graphs.brought.get(buffer, buffer)
        if origin in origins:
            kind, i = origins[origin]
            sources.append((kind if origin is buffer else BROUGHT + kind, i))
        else:
            sources.append(("constant", len(constants)))
            constants.append(buffer)
    returned_first = roots[: len(roots) - len(written) - len(updated)]
    found = Values(
        kinds=tuple((op.dtype, op.shape) for op in graphs.roots),
        away=tuple(
            place if place not in (None, graphs.device) and not op.shape else None
            for place, op in zip(places, graphs.roots)
        ),
        written=tuple(written),
        updated=tuple(updated),
        graphless=tuple(i for i, op in enumerate(returned_first) if op.needs_grad or graphless_in((op,)) is not None),
    )
    return Recording(
        name, graphs.device, graphs.form, tuple(graphs.roots), tuple(sources), tuple(state), tuple(constants), found,
        returned,
    )  # fmt: skip


# ---- checked ----
class CellKinds:
    """Device, dtype and shape of state when the function was traced."""

    def __init__(self, cells: Iterable[Cell], device: str):
        """`device`: the plan's; state without a device counts as being there."""
        self.device, self.kinds = device, [(cell, cell.kind()) for cell in cells]
        self._looked = -1  # the number of the last move at the last look

    def have_changed(self) -> bool:
        """True if some state has been moved to another device, cast, or given another shape."""
        move = last_move.number
        if move != self._looked and not all(self._fits(cell.kind(), before) for cell, before in self.kinds):
            return True
        self._looked = move
        return False

    def _fits(self, now: CellKind, before: CellKind) -> bool:
        (device, dtype, shape), (old_device, old_dtype, old_shape) = now, before
        is_symbolic = any(isinstance(dim, Op) for dim in (*shape, *old_shape))  # the length may differ in each call
        same_place = device in (None, old_device or self.device)
        return same_place and dtype == old_dtype and (is_symbolic or shape == old_shape)


class Conditions:
    """The state that must be the same at each call as in the trace, apart from the form of the arguments.

    They live as long as the plan, until the function is captured again. `watched` is made at the third call, and again
    when a name has another object that the guards find equal.

    name:       of the function
    guards:     Python values that it reads
    kinds:      kinds of the state's cells
    collected:  the changes of leaves' `.grad`, or None
    watched:    the quick half of the guards: while it holds, nothing that they guard has changed
    """

    def __init__(self, name: str, guards: Guards, kinds: CellKinds, collected: Collected | None):
        self.name, self.guards, self.kinds, self.collected = name, guards, kinds, collected
        self.watched: Watched | None = None

    def have_ended(self, is_seen: bool, is_checked: bool) -> bool:
        """Returns whether to trace the function again: some state is of another kind, or an object is another one.

        Args:
          is_seen:     True: nothing has been moved since the last look
          is_checked:  True: the second trace was the same

        Raises:
          JitError: something else has changed.
        """
        if not is_seen and self.kinds.have_changed() or self.collected is not None and not self.collected.fits():
            return True
        if not is_checked:  # the second trace finds other changes
            broken = self.guards.broken()
            return broken is not None and broken.renews
        if self.watched is not None and self.watched.is_the_same(look_into_modules=True):
            return False
        also = (self.collected.fits,) if self.collected is not None and self.collected.depends else ()
        watched = Watched(self.guards, also)  # first: a later change makes an object other than the one noted here
        broken = self.guards.broken()
        if broken is not None and broken.renews:
            return True
        if broken is not None:
            raise JitError(
                f"jit: since {self.name} was traced, {broken.text}.",
                "what changes from call to call must be an argument, or a Tensor written in place.",
                line=broken.line,
            )
        self.watched = watched
        return False
