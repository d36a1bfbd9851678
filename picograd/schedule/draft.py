"""A nest while it grows, and where Ops stand in it.

In:    Ops, coordinates of a domain
Out:   `Draft`, `Attached`, `Fused`; `fits`, `is_element`, `is_row`: whether an Op is a value of each element or of each row
Called by: schedule/fuse.py, schedule/nests.py, schedule/edges.py.    Next: picograd/schedule/group.py
"""

from __future__ import annotations

from functools import lru_cache

from picograd.ir.coordinates import Coords, flatten, move, placeholders
from picograd.ir.op import Dim, Op, Shape, greatest_numel, toposort
from picograd.ir.opcode import MOVEMENT, SOURCES, OpCode
from picograd.ir.stages import NestKind, WithRows
from picograd.ir.symbolic import affine, with_values
from picograd.record import Record, Struct, field

KINDS = {
    OpCode.REDUCE: NestKind.REDUCE, OpCode.MATMUL: NestKind.MATMUL, OpCode.CONV: NestKind.CONV,
    OpCode.SCATTER: NestKind.SCATTER, OpCode.SCAN: NestKind.SCAN, OpCode.SORT: NestKind.SORT,
    OpCode.UPDATE: NestKind.UPDATE, OpCode.CUSTOM: NestKind.HOST, OpCode.ATTENTION: NestKind.ATTENTION,
    OpCode.ATTENTION_GRAD: NestKind.ATTENTION,
}  # fmt: skip
Coordinates = tuple[tuple[int, Dim], ...]  # (axis of the domain, coordinate as a function of an Op's own), by axis


class Draft(WithRows, Struct, eq=False):
    """A nest while it grows.

    number:   order in which nests were begun
    reduced:  axes of `domain` that are reduced
    anchors:  the reductions, or the one product, scatter, scan or sort
    stored:   values it writes to memory
    members:  Ops attached to it
    num_ops:  how many Ops it computes, those not attached included; what it computes twice may count twice
    needs:    nests whose memory it reads; they must run before it
    readers:  nests that need it
    level:    more than that of all it needs (see order.py)
    """

    kind: NestKind
    number: int
    domain: Shape
    reduced: tuple[int, ...]
    anchors: list[Op] = field(default_factory=list)
    stored: list[Op] = field(default_factory=list)
    members: list[Op] = field(default_factory=list)
    num_ops: int = 0
    needs: dict[Draft, None] = field(default_factory=dict)
    readers: dict[Draft, None] = field(default_factory=dict)
    level: int = 0


class Attached(Record):
    """Where an Op stands in a nest: for the mapped axes of the domain, the coordinate as a function of its own."""

    nest: Draft
    where: Coordinates


class Fused(Record):
    """The nests in order, and which nest stores each value."""

    nests: tuple[Draft, ...]
    home: dict[Op, Draft]


def in_memory(op: Op) -> bool:
    """True for values that need no nest: buffers and parameters."""
    return op.code in (OpCode.BUFFER, OpCode.PARAM)


def is_block(op: Op) -> bool:
    """True for a block of rows of a value in memory, such as x[k : k + 1]."""
    if op.code is not OpCode.SHRINK or not in_memory(op.src[0]):
        return False
    return all(start == 0 and end == length for (start, end), length in zip(op.arg[1:], op.src[0].shape[1:]))


READ_IN_PLACE = {OpCode.CUSTOM: slice(None), OpCode.ATTENTION: slice(1, 4), OpCode.ATTENTION_GRAD: slice(0, 4)}


def sources_in_memory(op: Op) -> list[Op]:
    """Returns the values that an Op needs in memory: of sources that it reads in place, what is below their movement.

    The host moves what a CUSTOM reads itself. An attention reads keys and values many times, an element at a time: a
    movement after which an element has to be looked for by divisions is stored. A convolution with gaps between the
    elements of x would compute each anew for each tap.
    """
    found: list[Op] = []
    read = op.src[READ_IN_PLACE[op.code]] if op.code in READ_IN_PLACE else ()
    if op.code is OpCode.CONV and max(op.arg.input_dilation) > 1:
        read = op.src[:1]
    for source in read:
        base = source
        while base.code in MOVEMENT and base.code is not OpCode.PAD:
            base = base.src[0]
        base = base if op.code is OpCode.CUSTOM or _is_straight(source, base) else source
        if base.code not in SOURCES or in_memory(base):
            found.append(base)
    return found


@lru_cache(maxsize=256)
def _is_straight(view: Op, base: Op) -> bool:
    """True where the place in `base` of an element of a movement of it is a sum of multiples of its coordinates.

    How many times a coordinate counts may be a symbolic length.
    """
    coords: Coords = placeholders(view.shape)
    own = set(coords)
    while view is not base:
        coords, _ = move(view, coords)
        view = view.src[0]
    return _is_sum_of_multiples(flatten(coords, base.shape), own)


def _is_sum_of_multiples(place: Dim, own: set[Dim]) -> bool:
    for atom in affine(place)[0]:
        of_coordinates = own.intersection(toposort([atom]))
        if atom.code is OpCode.MUL and len(of_coordinates) == 1:
            if not all(_is_sum_of_multiples(factor, own) for factor in atom.src):
                return False
        elif of_coordinates and atom not in own:
            return False
    return True


def nbytes(op: Op) -> int:
    """Returns the bytes of a value in memory."""
    return op.numel * op.dtype.itemsize


# ---- coordinates ----
def meet(places: set[Coordinates]) -> Coordinates | None:
    """Joins what sources know of their place in the domain, or None where they contradict each other."""
    joined: dict[int, Dim] = {}
    for place in places:
        for axis, dim in place:
            if joined.setdefault(axis, dim) is not dim and joined[axis] != dim:
                return None
    return tuple(sorted(joined.items()))


def moved(op: Op, where: Coordinates) -> Coordinates:
    """Returns where a movement Op stands whose source stands at `where`."""
    source = op.src[0]
    coordinates, _ = move(op, placeholders(op.shape))
    values = {old: new for old, new in zip(placeholders(source.shape), coordinates) if isinstance(old, Op)}
    return tuple((axis, with_values(dim, values)) for axis, dim in where)


# ---- values of every element, values of every row ----
def fits(op: Op, nest: Draft, where: Coordinates) -> bool:
    """True when `op` is a value of every element of the nest's domain, or of every row."""
    return is_element(op, nest, where) or is_row(op, nest, where)


def is_element(op: Op, nest: Draft, where: Coordinates) -> bool:
    """True when `op` has one value for each element of the domain, in the same order."""
    if len(where) == len(nest.domain):
        return _same_position(where, nest.domain, tuple(range(len(nest.domain))), op.shape)
    return op.shape == nest.domain and all(dim == placeholders(op.shape)[axis] for axis, dim in where)


def is_row(op: Op, nest: Draft, where: Coordinates) -> bool:
    """True when `op` has one value for each row of a reduce nest, in the same order."""
    if nest.kind is not NestKind.REDUCE or tuple(axis for axis, _ in where) != nest.row_axes:
        return False
    return _same_position(where, nest.row_shape, nest.row_axes, op.shape)


@lru_cache(maxsize=4096)  # the layers of a network ask the same again and again
def _same_position(where: Coordinates, extents: Shape, axes: tuple[int, ...], shape: Shape) -> bool:
    """True when walking `shape` in order walks `extents` in order."""
    if tuple(axis for axis, _ in where) != axes:
        return False
    there = flatten([dim for _, dim in where], extents)
    here = flatten(placeholders(shape), shape)
    return greatest_numel(extents) == greatest_numel(shape) and (there is here or there == here)
