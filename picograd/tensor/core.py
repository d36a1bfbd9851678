"""The core of a Tensor: a view of a cell, with the identity under which gradients are collected.

`Tensor` (tensor.py) is the subclass with all methods. The annotations Tensor and `T`, here and in the files of functions,
mean that class, which is defined after them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from functools import partial
from sys import getrefcount
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Union
from weakref import ref

import numpy as np

from picograd.device import device as Device
from picograd.device import named
from picograd.dtype import DType, Scalar
from picograd.engine.devices import default_device, usable_device
from picograd.engine.host_memory import (
    MAYBE_ON_HOST,
    WRITTEN_NBYTES_MAX,
    is_small,
    number_on_host,
    place_on_host,
    value_on_host,
    with_number,
)
from picograd.engine.realize import Carries, from_host, on_memory, to_host
from picograd.errors import DeviceError, DTypeError, GradientError, ShapeError
from picograd.interrupts import LivingKeys
from picograd.ir.bodies import substitute
from picograd.ir.build import cast
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.origin import Graphless, record
from picograd.ir.shape import check_array
from picograd.tensor.build import apply_step, axis_of, detached, static_numel
from picograd.tensor.cell import (
    Cell,
    Held,
    View,
    changed_through,
    grad_mode,
    last_change,
    own_places,
    read_through,
    replace_op,
    set_op,
    trace,
)
from picograd.tensor.compute import NextLook, compute, plain_cells, settle, settle_constants
from picograd.tensor.first_values import apart, begin_apart, begins_apart, compute_first, is_fill, stored_fill
from picograd.tensor.hooks import LeafNumber
from picograd.tensor.intake import host_array
from picograd.tensor.sharing import is_shared, store
from picograd.tensor.unasked import differentiable_cells, leaf_tensors

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor

P = ParamSpec("P")
T = TypeVar("T", bound="Tensor")  # self and result of methods, which are functions in the file of their subject
Operand = Union["Tensor", Scalar]  # noqa: UP007  # Tensor is made after the functions that use this

if TYPE_CHECKING:

    class of_class(Generic[P]):  # noqa: N801
        """The type of a classmethod that returns an object of the class on which it is called."""

        def __init__(self, function: Callable[Concatenate[Any, P], Any]) -> None: ...

        def __get__(self, instance: T | None, owner: type[T]) -> Callable[P, T]: ...

    class several_of_class(Generic[P]):  # noqa: N801
        """The type of a classmethod that returns several such objects."""

        def __init__(self, function: Callable[Concatenate[Any, P], Any]) -> None: ...

        def __get__(self, instance: T | None, owner: type[T]) -> Callable[P, tuple[T, ...]]: ...

else:
    of_class = several_of_class = classmethod

new = object.__new__
FEW_ELEMENTS_MAX = 4096  # when some elements are read, a value with at most this many is computed as a whole
leaf_ids = itertools.count()  # each LEAF has a number, so that no two are equal
frozen: LivingKeys[TensorCore, LeafNumber] = LivingKeys()  # leaves without requires_grad now; they keep their number


class Size(tuple[int, ...]):
    """The lengths of the axes of a tensor: a tuple that knows how many elements there are.

    >>> pg.ones(2, 3).shape.numel(), pg.Size([2, 3]) == (2, 3)
    (6, True)
    """

    __slots__ = ()

    def numel(self) -> int:
        """Returns the product of the lengths."""
        return math.prod(self)


class ShownLengths:
    """While a function is traced for any length: the function from a shape to what `x.shape` returns; else None."""

    of: Callable[[Shape], Shape] | None = None

    @staticmethod
    def to(frame: FrameType) -> bool:
        """True for code outside picograd while a function is traced for any length."""
        return ShownLengths.of is not None and frame.f_globals.get("__name__", "").partition(".")[0] != "picograd"


class TensorCore:
    """A view of a cell.

    cell:  the storage, shared with every other view of it
    steps: the view: the steps from the cell's Op to this tensor's
    _grad: the gradient that backward() has accumulated, or None
    _role: "parameter", "buffer" or "temporary" if a module is to hold it as such; mostly unset
    """

    __slots__ = ("cell", "steps", "_grad", "_shown", "_role", "__weakref__")
    cell: Cell
    steps: View
    _grad: Self | None
    _role: str

    def __init__(
        self, data: Any, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
    ) -> None:
        """Copies host data into a new tensor.

        Args:
          data:           a number, a nested list of numbers, an array, or a Tensor
          dtype:          default: float32 for Python floats, int64 for Python ints, an array's own
          device:         name of a device; default PICOGRAD_DEVICE
          requires_grad:  backward() collects a gradient here

        Raises:
          ShapeError: the list is ragged.
          DTypeError: the data is neither numbers nor bools, or integers are to require grad.

        >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).shape
        (2, 2)
        """
        if isinstance(data, TensorCore):
            place = usable_device(device) if device is not None else None
            op = detached(data.read())
            if place is not None and place != data.device:
                op = Op(OpCode.COPY, op.dtype, (op,), place)
            op = cast(op, dtype) if dtype is not None else op
            cell = Cell(op, place or data.cell.device)
        else:
            array, kept = host_array(data, dtype)
            place = usable_device(device) if device is not None else default_device()
            op = from_host(array, kept, place)
            record(op)
            cell = Cell(op, place)
        self.cell, self.steps, self._grad = cell, (), None
        # Cached by the last read: the cell's value, the view's, and the view's without gradient, if it was read so.
        self._shown: tuple[Op, ...] | None = None
        if requires_grad:
            self.requires_grad_()

    # ---- making tensors from Ops ----
    @classmethod
    def from_cell(cls, cell: Cell, view: View = ()) -> Self:
        """Returns a view of a cell, without a copy of its value."""
        tensor = object.__new__(cls)
        tensor.cell, tensor.steps, tensor._grad, tensor._shown = cell, view, None, None
        return tensor

    @classmethod
    def from_op(cls, op: Op, device: str | None = None, settles: bool = True) -> Self:
        """Returns a tensor with new storage for the value `op`; if it `settles`, a very long graph is computed now."""
        tensor = new(cls)  # from_cell and Cell written out: every operation ends here
        if op.needs_grad and op.is_read and own_places.get():
            op = Op(OpCode.LEAF, op.dtype, (op,), tensor._own_place(device))
        if op.code is OpCode.BUFFER or trace.get() is not None:
            cell = Cell(op, device)
        else:
            cell = new(Cell)
            cell.content, cell.device = op, device
            cell._named = cell.made_in = None
            cell.computed_with, cell.turn = (), Carries.turn
        tensor.cell, tensor.steps, tensor._grad, tensor._shown = cell, (), None, None
        if op.needs_grad:
            differentiable_cells.add(cell)
        elif not grad_mode.get():
            plain_cells.append(ref(cell))
        record(op)
        if settles and (op.depth >= NextLook.depth or len(Op.interned) >= NextLook.limit):  # mostly neither
            settle(cell, op)
        elif device is None and op.depth >= Carries.depth:
            settle_constants(cell, op)
        return tensor

    @classmethod
    def from_memory(cls, held: Held, device: str | None) -> Self:
        """Returns a tensor whose value is in memory that a plan has filled; not in a trace."""
        tensor = new(cls)  # from_cell and Cell written out, as in from_op
        cell = tensor.cell = new(Cell)
        cell.content, cell.device = held, device
        cell._named = cell.made_in = cell.turn = tensor._grad = tensor._shown = None
        cell.computed_with = tensor.steps = ()
        return tensor

    def viewed(self, code: OpCode, arg: Any) -> Self:
        """Returns a view of the same storage, one step further."""
        return self.viewed_by(((code, arg),))

    def viewed_by(self, steps: View) -> Self:
        """Returns a view of the same storage, several steps further; steps without effect are left out."""
        op, base, taken = self.read(), self.cell.op, self.steps
        if op is not (self.op if taken else base):
            taken = (*taken, (OpCode.DETACH, None))
        for step in steps:
            before, op = op, apply_step(op, *step)
            if op is not before:
                taken = (*taken, step)
        tensor = object.__new__(type(self))  # from_cell written out, as in from_op
        if op.needs_grad and op.is_read and own_places.get():
            taken = (*taken, (OpCode.LEAF, tensor._own_place(self.cell.device)))
            op = apply_step(op, *taken[-1])
        tensor.cell, tensor.steps, tensor._grad, tensor._shown = self.cell, taken, None, (base, op)
        record(op)
        return tensor

    # ---- reading and writing ----
    @property
    def op(self) -> Op:
        """The value now, as a graph."""
        base = self.cell.op
        if not self.steps:
            return base
        shown = self._shown
        if shown is None or shown[0] is not base:
            self._shown = shown = base, read_through(base, self.steps)
        return shown[1]

    def forget_old(self) -> None:
        """Drops the cached view of a value that the cell no longer holds, to free its memory."""
        shown = self._shown
        if shown is not None and shown[0] is not self.cell.op:
            self._shown = None

    def read(self) -> Op:
        """Returns the value as an operand of a new graph; without gradient under no_grad; a trace records the read."""
        active = trace.get()
        if active is not None:
            active.on_read(self.cell)
        cell = self.cell
        op: Any = cell.content  # `self.op` written out
        if op.__class__ is not Op or cell.__class__ is not Cell:  # memory, or a PutOff (unasked.py)
            named = cell._named if op.__class__ is tuple and cell.__class__ is Cell else None
            op = cell.op if named is None or named[0] is not op else named[1]
        if (op.realized is not None or cell.turn != Carries.turn) and active is None and not op.needs_grad:
            cell.turn = Carries.turn
            if op.code is not OpCode.BUFFER and (kept := on_memory(op)) is not op:
                replace_op(cell, op, kept)  # else the graph of a loop's turn would keep those of all earlier turns
                op = cell.op
        base = op
        if self.steps:
            shown = self._shown
            op = shown[1] if shown is not None and shown[0] is op else self.op
        op.is_read = True
        if grad_mode.get() or not (op.needs_grad or Graphless.living):
            return op
        if not (self.steps and op.needs_grad):
            return detached(op)
        shown = self._shown  # a loop reads its parameters so at each step
        if shown is None or len(shown) < 3 or shown[1] is not op:
            self._shown = shown = base, op, detached(op)
        return shown[2]

    def write(self, function: str, value: Op) -> Self:
        """Stores `value`, of this tensor's shape, in the places this tensor shows; returns self.

        Raises:
          GradientError: this is, or is a view of, a leaf that requires grad, outside no_grad.
        """
        if grad_mode.get():
            self._check_writable(function)
        else:
            value = detached(value)
        cell = self.cell
        active = trace.get()
        if value.needs_grad and self.steps and self.steps[-1][0] is OpCode.DETACH and active is None:
            return self._apart_with(function, value)
        if active is not None:
            active.on_read(cell)
        before = cell.op
        if LeafNumber.hooked and before.needs_grad:
            value = self._without_hooks_of_views(value)
        op = value if value.dtype is before.dtype else cast(value, before.dtype)
        if self.steps or before.needs_grad:
            if not op.shape and active is None and (written := self._written_on_host(op)) is not None:
                cell.op = written
                return self
            op = changed_through(before, self.steps, op)
        if active is None and begins_apart(before):
            if is_fill(op):
                op = apart(op)
            else:
                compute_first([(before, cell.device)])
        if is_shared(cell):
            store(function, cell, op)
            return self
        op = self._placed(before, op) if op.needs_grad else op
        num_pending = set_op(cell, op)
        if op.needs_grad:
            differentiable_cells.add(cell)
        record(op)
        settle(cell, op, num_pending)
        return self

    def _check_writable(self, function: str) -> None:
        """Raises GradientError if this shows a leaf that requires grad."""
        op = self.cell.op
        leaf = False
        for code, arg in self.steps:
            leaf = code is not OpCode.DETACH and (leaf or (code is OpCode.LEAF and not op.needs_grad))
            op = apply_step(op, code, arg)
        if leaf:
            call = function if " = " in function else f"x.{function}(...)"
            raise GradientError(
                f"{function}: a leaf of shape {self.cell.op.shape} that requires grad cannot be changed in place"
                " where gradients are recorded.",
                hint=f"with pg.no_grad(): {call}",
            )

    def other_device(self, function: str, *others: TensorCore) -> str | None:
        """Returns the one device of this tensor and `others`.

        Raises:
          DeviceError: they are on different devices.
        """
        device = self.cell.device
        for other in others:
            if device is None:
                device = other.cell.device
            elif other.cell.device is not None and other.cell.device != device:
                raise DeviceError(
                    f"{function}: operands are on two devices: {self.shape} on {self.device}"
                    f" and {other.shape} on {other.device}.",
                    hint=f'move one of them: x.to("{device}").'
                    if trace.get() is None
                    else f'a traced function cannot move it: make it with device="{device}", or move it before the call.',
                )
        return device

    # ---- extent ----
    @property
    def shape(self) -> Size:
        """Lengths of the axes."""
        shape = self.op.shape if ShownLengths.of is None else ShownLengths.of(self.op.shape)
        return Size(shape)  # type: ignore[arg-type]  # symbolic ones answer to the same operations

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.cell.op.dtype

    @property
    def device(self) -> Device:
        """The device that holds it; a constant is on the default device."""
        return named(self.cell.device or default_device())

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.op.shape)

    def dim(self) -> int:
        """Returns the number of axes.

        >>> Tensor([[1, 2]]).dim()
        2
        """
        return len(self.op.shape)

    def numel(self) -> int:
        """Returns the number of elements.

        Raises:
          ShapeError: an axis has a symbolic length, so a plan made with the number would be wrong for other lengths.

        >>> Tensor.zeros(2, 3).numel()
        6
        """
        return static_numel(self.op.shape)

    def size(self, dim: int | None = None) -> Any:
        """Returns the shape, or the length of one axis.

        >>> Tensor.zeros(2, 3).size(-1)
        3
        """
        return self.shape if dim is None else self.shape[axis_of("size", self.shape, dim)]

    def element_size(self) -> int:
        """Returns the bytes of one element.

        >>> Tensor([1.0]).element_size()
        4
        """
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    # ---- identity ----
    @property
    def requires_grad(self) -> bool:
        """True if gradients flow: it is a leaf that requires grad, or depends on one."""
        if not self.steps:
            return self.cell.held() is None and self.cell.op.needs_grad
        return self.steps[-1][0] is OpCode.LEAF or self.op.needs_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:
        """True when no differentiable operation made this tensor."""
        op = self.op
        return not op.needs_grad or (op.code is OpCode.LEAF and not op.src[0].needs_grad)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Makes this tensor a leaf whose gradient backward() collects, or stops that; returns self.

        Raises:
          DTypeError:    it is not a float.
          GradientError: it is a result; results always need gradients.

        >>> Tensor([1.0]).requires_grad_()
        Tensor([1.], requires_grad=True)
        """
        if requires_grad and not self.op.needs_grad:
            if not self.dtype.is_float:
                raise DTypeError(
                    f"requires_grad: only floats have gradients, got {self.dtype} of shape {self.shape}.",
                    hint="Tensor(data, dtype=dtypes.float32, requires_grad=True)",
                )
            self._become_leaf()
        elif not requires_grad and self.op.needs_grad:
            if not self.is_leaf:
                raise GradientError(
                    f"requires_grad: a result of shape {self.shape} needs gradients because its operands do.",
                    hint="use x.detach().",
                )
            if self.steps and self.steps[-1][0] is OpCode.LEAF:
                if isinstance(number := self.steps[-1][1], LeafNumber):
                    frozen[self] = number
                self.steps, self._shown = self.steps[:-1], None
                last_change.note()
        return self

    def retain_grad(self) -> None:
        """Makes backward() collect the gradient of this result, too; after a write in place that of its last value.

        Raises:
          GradientError: no gradient flows here.

        >>> x = Tensor(3.0, requires_grad=True)
        >>> y = x * 2
        >>> y.retain_grad()
        >>> (y * y).backward()
        >>> y.grad.item()
        12.0
        """
        if not self.op.needs_grad:
            raise GradientError(f"retain_grad: a tensor of shape {self.shape} without requires_grad gets no gradient.")
        if not self._has_leaf_of_its_own():
            self._become_leaf()
        elif isinstance(self.op.arg, LeafNumber):  # a hook made it one
            self.op.arg.collects = True

    def _has_leaf_of_its_own(self) -> bool:
        """True if gradients are or can be collected here: False for a clone of a leaf, although it shows the same Op."""
        op = self.op
        return op.code is OpCode.LEAF and (leaf_tensors.get(op.arg) is self or not isinstance(op.arg, LeafNumber))

    def _become_leaf(self, collects: bool = True) -> None:
        """Makes this tensor a LEAF: its present value if it is a result with its own storage, else the view itself."""
        begin_apart(self.cell)
        is_used = self.op.needs_grad and (bool(self.steps) or _references(self.cell) > UNUSED)
        kind, device, op = type(self), self.cell.device, self.op
        number = frozen.pop(self, None) if frozen.data else None
        if number is None:
            number = LeafNumber(next(leaf_ids), partial(kind.from_op, device=device), collects)
        else:
            number.make, number.collects = partial(kind.from_op, device=device), collects
        if is_used:
            number.results.add(int(number))
        if op.needs_grad and not self.steps and self.cell.made_in is trace.get():
            replace_op(self.cell, op, Op(OpCode.LEAF, op.dtype, (op,), number))
        else:
            self.steps, self._shown = (*self.steps, (OpCode.LEAF, number)), None
        last_change.note()
        if leaf_tensors.get(number) is not self:
            leaf_tensors[number] = self
        record(self.op)

    def _own_place(self, device: str | None, collects: bool = False) -> LeafNumber:
        """Returns the number of a LEAF of an Op that another tensor has, so that its uses are not counted here."""
        number = LeafNumber(next(leaf_ids), partial(type(self).from_op, device=device), collects)
        leaf_tensors[number] = self
        return number

    def _placed(self, before: Op, op: Op) -> Op:
        """Returns a new value of the storage: a LEAF if the one before collects its gradient, or another tensor has it."""
        is_leaf = grad_mode.get() and before.code is OpCode.LEAF
        owner = leaf_tensors.get(before.arg) if is_leaf and getattr(before.arg, "collects", False) else None
        if owner is not None:  # it collects the gradient of its last value
            before.arg.collects = False
        elif not (op.is_read and own_places.get()):
            return op
        number = (self if owner is None else owner)._own_place(self.cell.device, owner is not None)
        return Op(OpCode.LEAF, op.dtype, (op,), number)

    def _apart_with(self, function: str, value: Op) -> Self:
        """Gives this detached view a value with its gradient; other tensors on the storage have the value alone."""
        self.write(function, detached(value))
        self.cell = type(self).from_op(cast(value, self.dtype), self.cell.device).cell
        self.steps, self._shown = (), None
        return self

    def _without_hooks_of_views(self, value: Op) -> Op:
        """Keeps the hooks of views at the values that they show before a write; returns `value` without those hooks."""
        for number in sorted(LeafNumber.hooked):
            view = leaf_tensors.get(number)
            if view is not None and view.cell is self.cell and view.steps and view.steps[-1][1] == number:
                leaf = view.op
                (value,) = substitute([value], {leaf: leaf.src[0]})
                place = view._own_place(self.cell.device, leaf.arg.collects)
                view.steps, view._shown = (*view.steps[:-1], (OpCode.LEAF, place)), None
        return value

    def detach(self) -> Self:
        """Returns a tensor on the same storage with no gradient.

        >>> Tensor([1.0], requires_grad=True).detach()
        Tensor([1.])
        """
        view = self.steps[:-1] if self.steps and self.steps[-1][0] is OpCode.LEAF else self.steps
        return self.from_cell(self.cell, (*view, (OpCode.DETACH, None)))

    # ---- computing ----
    def _written_on_host(self, value: Op) -> Op | None:
        """Returns the cell's memory with a number stored in the element this shows; None if that takes a plan.

        As graphs, writes to chosen elements would have a different form for each pattern of equal positions.
        """
        cell = self.cell  # NOTE: the elements of a graph, such as a clone of a transpose, may be in another order
        if is_fill(cell.op) and value.code is OpCode.CONST and cell.op.nbytes <= WRITTEN_NBYTES_MAX:
            replace_op(cell, cell.op, stored_fill(cell.op, cell.device))
        given = cell.held() is None or value.needs_grad or is_shared(cell)
        place = None if given or (shown := self.op).needs_grad else place_on_host(shown, is_written=True)
        number = None if place is None else value.arg if value.code is OpCode.CONST else number_on_host(value)
        if place is None or number is None or (array := with_number(*place, number)) is None:
            return None
        return from_host(array.reshape(cell.op.shape), value.dtype, place[0].device)

    def realize(self) -> Self:
        """Computes the value now and keeps it; returns self. Inside a trace it does nothing.

        >>> (Tensor([1, 2]) + 1).realize().op.code.name
        'BUFFER'
        """
        realize([self])
        return self

    def contiguous(self) -> Self:
        """Returns the value, stored in row-major order; it is not fused with its readers.

        >>> Tensor([[1, 2], [3, 4]]).T.contiguous()
        Tensor([[1, 3],
                [2, 4]])
        """
        op = self.read()
        return self.from_op(Op(OpCode.CONTIGUOUS, op.dtype, (op,)), self.cell.device)

    def clone(self) -> Self:
        """Returns a copy with storage of its own; gradients flow through it.

        >>> x = Tensor([1, 2])
        >>> y = x.clone()
        >>> x += 1
        >>> y
        Tensor([1, 2])
        """
        return self.from_op(self.read(), self.cell.device)

    def assign(self, value: Any) -> Self:
        """Stores `value` here in place; shapes must be equal, the dtype stays this tensor's.

        Raises:
          ShapeError:    the shapes differ.
          GradientError: this is a leaf that requires grad, outside no_grad.

        >>> Tensor([1.0, 2.0]).assign([3, 4])
        Tensor([3., 4.])
        """
        value = value if isinstance(value, TensorCore) else type(self)(value, self.dtype, self.device)
        if value.shape != self.shape:
            raise ShapeError(f"assign: a value of shape {value.shape} does not fit {self.shape}.")
        self.cell.device = self.other_device("assign", value)
        return self.write("assign", value.read())

    def _host(self, function: str) -> np.ndarray[Any, Any]:
        """Returns a copy of the value as an array."""
        active = trace.get()
        if active is not None:
            active.on_host_read(function)
        return host_value(self)

    def _number(self, function: str) -> Any:
        """Returns the value of the one element."""
        if trace.get() is None:
            found = number_on_host(self.op)
            if found is not None:
                return found
        return self._host(function).reshape(()).item()


# ---- uses ----
def _references(holder: Any) -> int:
    """Returns the reference count of a cell's Op: each Op that reads it and each other tensor adds one."""
    op = holder.op
    return getrefcount(op)


UNUSED = _references(SimpleNamespace(op=object()))


# ---- computing ----
def realize(tensors: Iterable[TensorCore]) -> None:
    """Computes the values of all tensors in one plan; their storage then holds them. Inside a trace: nothing.

    A tensor that needs gradients keeps its graph, for backward(); later readers find its value all the same.
    Writes in place that are still pending join the plan.

    >>> x = Tensor([1, 2]) + 1
    >>> realize([x, x * 2])
    >>> x.op.code.name
    'BUFFER'
    """
    if trace.get() is None:
        tensors = list(tensors)
        compute([tensor.cell for tensor in tensors])
        for tensor in tensors:
            tensor.forget_old()


def host_value(tensor: TensorCore) -> np.ndarray[Any, Any]:
    """Computes a tensor and returns a copy on the host."""
    op = tensor.op
    check_array("numpy", op.shape, op.dtype.itemsize)
    if op.code in MAYBE_ON_HOST or op.realized is not None:
        on_host = value_on_host(op)
        if on_host is not None:
            return on_host
    if tensor.cell.op.numel <= max(4 * op.numel, FEW_ELEMENTS_MAX):  # else only the view is computed
        compute([tensor.cell])
    op = tensor.op
    while op.code in (OpCode.LEAF, OpCode.DETACH):
        op = op.src[0]
    return to_host(op if op.code is OpCode.BUFFER else compute([], [op])[0])


def chosen_on_host(tensor: T, mask: TensorCore) -> T | None:
    """Returns the elements of a small value in host memory that a mask selects; None for values that need a plan."""
    op = tensor.read()
    if op.needs_grad or not is_small(op) or mask.op.shape != op.shape[: mask.ndim]:
        return None
    where_true = mask._host("index")
    value = value_on_host(op)
    return None if value is None else type(tensor)(value[where_true], tensor.dtype, tensor.device)
