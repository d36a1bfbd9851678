"""Movement: other views of the same storage, and the few operations that join pieces.

In:    a tensor
Out:   `Movement`; a view shares storage, so a write through it is seen by all
Next:  picograd/tensor/elementwise.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from picograd.dtype import DType, bool_
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import pad, where
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import axes_of, axis_of, broadcast_shapes, broadcast_to, cast, promoted, sizes, static
from picograd.tensor.core import TensorCore


class Movement(TensorCore):
    """Views: reshape permute transpose squeeze expand split ...; and flip, pad, roll, repeat, cat, stack."""

    __slots__ = ()

    # ---- shape ----
    def reshape(self, *shape: Any) -> Self:
        """Returns a view of another shape; one dimension may be -1.

        Raises:
          ShapeError: the numbers of elements differ.

        >>> Tensor.arange(6).reshape(2, -1).tolist()
        [[0, 1, 2], [3, 4, 5]]
        """
        target = sizes(shape)
        if target == self.op.shape:
            return self.viewed(OpCode.RESHAPE, target)
        return self.viewed(OpCode.RESHAPE, self._full_shape(target))

    def _full_shape(self, target: tuple[Any, ...]) -> tuple[Any, ...]:
        unknown = [axis for axis, dim in enumerate(target) if isinstance(dim, int) and dim < 0]
        if not unknown:
            return tuple(dim if isinstance(dim, Op) else int(dim) for dim in target)
        if len(unknown) > 1 or target[unknown[0]] != -1:
            raise ShapeError(f"reshape: {target} may have one unknown dimension, written -1.")
        known = 1
        for dim in target:
            known *= dim if dim != -1 else 1
        count = self.numel()
        if known == 0 or count % known:
            raise ShapeError(f"reshape: {self.shape} has {count} elements, {target} needs a multiple of {known}.")
        return tuple(count // known if dim == -1 else int(dim) for dim in target)

    def view(self, *shape: Any) -> Self:
        """Returns a view of another shape, as reshape does, or with the bits of another dtype of the same width."""
        if len(shape) == 1 and isinstance(shape[0], DType):
            return self.from_op(Op(OpCode.BITCAST, shape[0], (self.read(),)), self.cell.device)
        return self.reshape(*shape)

    def view_as(self, other: TensorCore) -> Self:
        """Returns a view of the shape of `other`."""
        return self.reshape(other.shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Returns a view with the axes start_dim..end_dim made one."""
        shape = self.shape
        if not shape:
            return self.reshape(1)
        start, end = axis_of("flatten", shape, start_dim), axis_of("flatten", shape, end_dim)
        if start > end:
            raise ArgumentError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim} in shape {shape}.")
        length = 1
        for dim in shape[start : end + 1]:
            length *= dim
        return self.reshape(*shape[:start], length, *shape[end + 1 :])

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Self:  # noqa: A002
        """Returns a view with one axis split into several; one of them may be -1."""
        shape = self.shape
        axis = axis_of("unflatten", shape, dim)
        known = 1
        for length in sizes:
            known *= length if length != -1 else 1
        parts = tuple(shape[axis] // known if length == -1 else length for length in sizes)
        return self.reshape(*shape[:axis], *parts, *shape[axis + 1 :])

    def squeeze(self, dim: int | Sequence[int] | None = None) -> Self:
        """Returns a view without axes of length 1: all of them, or those named."""
        shape = self.shape
        chosen = axes_of("squeeze", shape, dim)
        return self.reshape(*(n for axis, n in enumerate(shape) if axis not in chosen or n != 1))

    def unsqueeze(self, dim: int) -> Self:
        """Returns a view with an axis of length 1 at `dim`."""
        shape = self.shape
        axis = axis_of("unsqueeze", shape, dim, extra=1)
        return self.reshape(*shape[:axis], 1, *shape[axis:])

    # ---- order ----
    def permute(self, *dims: Any) -> Self:
        """Returns a view with the axes in the order given.

        Raises:
          ShapeError: `dims` does not name each axis once.
        """
        order = sizes(dims)
        axes = tuple(axis_of("permute", self.shape, d) for d in order)
        return self.viewed(OpCode.PERMUTE, axes)

    def transpose(self, dim0: int, dim1: int) -> Self:
        """Returns a view with two axes exchanged."""
        first, second = axis_of("transpose", self.shape, dim0), axis_of("transpose", self.shape, dim1)
        axes = list(range(self.ndim))
        if axes:
            axes[first], axes[second] = axes[second], axes[first]
        return self.viewed(OpCode.PERMUTE, tuple(axes))

    @property
    def T(self) -> Self:
        """View with all axes in reverse order."""
        return self.viewed(OpCode.PERMUTE, tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> Self:
        """View with the last two axes exchanged."""
        if self.ndim < 2:
            raise ShapeError(f"mT: needs two axes, got shape {self.shape}.")
        return self.transpose(-2, -1)

    def movedim(self, source: int, destination: int) -> Self:
        """Returns a view with one axis moved to another place."""
        start, end = axis_of("movedim", self.shape, source), axis_of("movedim", self.shape, destination)
        axes = [axis for axis in range(self.ndim) if axis != start]
        axes.insert(end, start)
        return self.permute(*axes)

    # ---- repetition ----
    def expand(self, *shape: Any) -> Self:
        """Returns a view that repeats axes of length 1; -1 keeps an axis, new axes come in front.

        Raises:
          ShapeError: an axis to be changed is not of length 1.
        """
        target, own = sizes(shape), self.shape
        extra = len(target) - len(own)
        if extra < 0:
            raise ShapeError(f"expand: {own} has more axes than {target}.")
        own = (1,) * extra + own
        full = tuple(own[axis] if dim == -1 else dim for axis, dim in enumerate(target))
        if any(have not in (1, want) for have, want in zip(own, full)):
            raise ShapeError(f"expand: {self.shape} does not fit {full}: each axis must be equal or of length 1.")
        view = self.reshape(own) if extra and self.ndim else self
        return view if full == view.shape else view.viewed(OpCode.EXPAND, full)

    def expand_as(self, other: TensorCore) -> Self:
        """Returns a view repeated to the shape of `other`."""
        return self.expand(other.shape)

    def broadcast_to(self, shape: Sequence[int]) -> Self:
        """Returns a view repeated to `shape`."""
        return self.expand(tuple(shape))

    def repeat(self, *repeats: Any) -> Self:
        """Returns the tensor tiled `repeats` times along each axis.

        >>> Tensor([1, 2]).repeat(2, 2).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
        """
        times = sizes(repeats)
        if len(times) < self.ndim:
            raise ShapeError(f"repeat: {times} needs a number for each axis of {self.shape}.")
        shape = (1,) * (len(times) - self.ndim) + self.shape
        paired = tuple(n for dim in shape for n in (1, dim))
        tiled = tuple(n for count, dim in zip(times, shape) for n in (count, dim))
        op = broadcast_to(self.reshape(paired).read(), tiled)
        joined = tuple(count * dim for count, dim in zip(times, shape))
        return self.from_op(Op(OpCode.RESHAPE, op.dtype, (op,), joined), self.cell.device)

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Returns each element repeated `repeats` times, along one axis or along the flattened tensor."""
        if dim is None:
            return self.flatten().repeat_interleave(repeats, 0)
        shape = self.shape
        axis = axis_of("repeat_interleave", shape, dim)
        view = self.unsqueeze(axis + 1).expand(*shape[: axis + 1], repeats, *shape[axis + 1 :])
        return view.reshape(*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :])

    # ---- new storage ----
    def flip(self, *dims: Any) -> Self:
        """Returns a tensor with the order of elements reversed along the axes named."""
        axes = tuple(sorted({axis_of("flip", self.shape, d) for d in sizes(dims)}))
        op = self.read()
        return self.from_op(Op(OpCode.FLIP, op.dtype, (op,), axes) if axes and op.shape else op, self.cell.device)

    def pad(self, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Self:
        """Returns the tensor with `value` around it.

        Args:
          pad:   before and after for the last axis, then for the one before it, ...; negative numbers cut off
          mode:  "constant"
          value: what is filled in

        Raises:
          ArgumentError: an odd count of numbers, more than two for each axis, or another mode.
        """
        if mode != "constant":
            raise ArgumentError(f'pad: mode must be "constant", got {mode!r}.')
        if len(pad) % 2 or len(pad) > 2 * self.ndim:
            raise ArgumentError(f"pad: {tuple(pad)} needs a pair for each of the last axes of {self.shape}.")
        given = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
        pairs = [(0, 0)] * (self.ndim - len(given)) + given
        cut = tuple((max(0, -before), dim - max(0, -after)) for (before, after), dim in zip(pairs, self.shape))
        op = self.read()
        if any(before < 0 or after < 0 for before, after in pairs):
            op = Op(OpCode.SHRINK, op.dtype, (op,), cut)
        margins = tuple((max(0, before), max(0, after)) for before, after in pairs)
        padded = pad_op(op, margins, value)
        return self.from_op(padded, self.cell.device)

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Returns the elements moved along axes, those pushed out coming in at the other end."""
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        moves = (shifts,) if isinstance(shifts, int) else tuple(shifts)
        axes = (dims,) if isinstance(dims, int) else tuple(dims)
        if len(moves) != len(axes):
            raise ArgumentError(f"roll: shifts {moves} and dims {axes} must be of one length.")
        result = self
        for move, dim in zip(moves, axes):
            axis = axis_of("roll", self.shape, dim)
            length = self.shape[axis]
            cut = (-move) % length if length else 0
            result = result.cat([result.narrow(axis, cut, length - cut), result.narrow(axis, 0, cut)], axis)
        return result

    # ---- pieces ----
    def narrow(self, dim: int, start: int, length: int) -> Self:
        """Returns the view of `length` elements from `start` along one axis."""
        axis = axis_of("narrow", self.shape, dim)
        bounds = tuple((start, start + length) if a == axis else (0, n) for a, n in enumerate(self.shape))
        return self.viewed(OpCode.SHRINK, bounds)

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Returns views of pieces along one axis: of one length (the last may be shorter), or of those given.

        Raises:
          ShapeError: the lengths given do not add up to the axis.
        """
        axis = axis_of("split", self.shape, dim)
        length = self.shape[axis]
        if isinstance(split_size, int):
            if split_size < 1:
                raise ArgumentError(f"split: a piece must have at least 1 element, got {split_size}.")
            lengths = [min(split_size, length - start) for start in range(0, max(length, 1), split_size)]
        else:
            lengths = list(split_size)
            if sum(lengths) != length:
                raise ShapeError(f"split: {lengths} adds up to {sum(lengths)}, axis {dim} of {self.shape} is {length}.")
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        return tuple(self.narrow(axis, start, n) for start, n in zip(starts, lengths))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """Returns views of at most `chunks` pieces of one length along one axis."""
        length = self.shape[axis_of("chunk", self.shape, dim)]
        return self.split(max(1, -(-length // chunks)), dim)

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """Returns the views along one axis, which disappears."""
        axis = axis_of("unbind", self.shape, dim)
        shape = self.shape[:axis] + self.shape[axis + 1 :]
        return tuple(self.narrow(axis, i, 1).reshape(shape) for i in range(self.shape[axis]))

    @classmethod
    def cat(cls, tensors: Sequence[TensorCore], dim: int = 0) -> Self:
        """Returns tensors joined along one axis; their other axes must be equal.

        Raises:
          ShapeError: an axis other than `dim` differs.

        >>> Tensor.cat([Tensor([1]), Tensor([2, 3])]).tolist()
        [1, 2, 3]
        """
        if not tensors:
            raise ArgumentError("cat: needs at least one tensor.")
        first = tensors[0]
        axis = axis_of("cat", first.shape, dim)
        ops = [t.read() for t in tensors]
        for op in ops:
            if len(op.shape) != first.ndim or any(
                a != b for i, (a, b) in enumerate(zip(op.shape, first.shape)) if i != axis
            ):
                shapes = ", ".join(str(t.shape) for t in tensors)
                raise ShapeError(f"cat: shapes must be equal but for axis {dim}, got {shapes}.")
        dtype = ops[0].dtype
        for op in ops[1:]:
            dtype = promoted(filled(0, dtype, ops[0].shape), op)
        return cls.from_op(_join([cast(op, dtype) for op in ops], axis), first.other_device("cat", *tensors[1:]))

    @classmethod
    def stack(cls, tensors: Sequence[TensorCore], dim: int = 0) -> Self:
        """Returns tensors of one shape joined along a new axis."""
        if not tensors:
            raise ArgumentError("stack: needs at least one tensor.")
        shape = tensors[0].shape
        if any(t.shape != shape for t in tensors):
            shapes = ", ".join(str(t.shape) for t in tensors)
            raise ShapeError(f"stack: shapes must be equal, got {shapes}.")
        axis = axis_of("stack", shape, dim, extra=1)
        line = (*shape[:axis], 1, *shape[axis:])
        return cls.cat([t.viewed(OpCode.RESHAPE, line) for t in tensors], axis)


def pad_op(op: Op, margins: tuple[tuple[int, int], ...], value: float) -> Op:
    """Returns `op` with `value` around it."""
    padded = pad(op, margins)
    if padded is op or op.dtype.scalar(value) == 0:
        return padded
    inside = pad(filled(True, bool_, op.shape), margins)
    return where(inside, padded, value)


def _join(ops: list[Op], axis: int) -> Op:
    """Returns Ops side by side: each padded to the whole length, chosen by position."""
    ops = [op for op in ops if op.shape[axis] != 0] or ops[:1]
    if len(ops) == 1:
        return ops[0]
    lengths = [static(op.shape[axis]) for op in ops]
    total = sum(lengths)
    result: Op | None = None
    start = 0
    for op, length in zip(ops, lengths):
        margins = tuple((start, total - start - length) if a == axis else (0, 0) for a in range(len(op.shape)))
        piece = pad(op, margins)
        if result is None:
            result = piece
        else:
            result = where(pad(filled(True, bool_, op.shape), margins), piece, result)
        start += length
    assert result is not None
    return result


def broadcast_tensors(*tensors: Movement) -> tuple[Movement, ...]:
    """Returns views of all tensors repeated to their common shape."""
    shape = broadcast_shapes("broadcast_tensors", *(t.op.shape for t in tensors))
    return tuple(t.expand(shape) for t in tensors)
