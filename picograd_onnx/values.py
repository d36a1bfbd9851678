"""Values on the edges of an ONNX graph, their conversion to an operator's arguments, and the cost of a value.

A value is a Tensor; an array of the host, if it is known before the run (constants, shapes, and results computed from
them) or has an element type that tensors lack (strings, 4-bit integers, ...); a list for a sequence; None for an empty
optional. Estimates of the work limit constant folding in time and memory (`is_little`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from picograd import dtype as dtypes
from picograd.autodiff.gradient import written_out
from picograd.dtype import DType
from picograd.engine.devices import default_device
from picograd.errors import DataError, UnsupportedOp
from picograd.interrupts import Latest
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode
from picograd.tensor.cell import trace
from picograd.tensor.modes import Mode, no_grad
from picograd.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
Value = Any  # Tensor | Array | list[Value] | None

KNOWN_NBYTES = 1 << 24  # longer known values become tensors, so that folding does not fill memory
HOST_NUMEL_MAX = 1 << 22  # elements of a result that a function of the host computes in Python
PYTHON_WORK = 16  # elements that NumPy computes in the time of one step of Python
HOST = "NUMPY"  # device of known values


@contextmanager
def unwatched() -> Iterator[None]:
    """Computes known values inside a trace, without recording them."""
    with Mode(trace, None), no_grad():
        yield


def numpy_of(elem_type: int) -> np.dtype[Any]:
    """Returns the NumPy dtype (ml_dtypes' where NumPy has none) of an ONNX element type; object for strings.

    Raises:
      DataError: there is no such element type.
    """
    if elem_type == TensorProto.STRING:
        return np.dtype(object)
    if elem_type == TensorProto.UNDEFINED or elem_type not in TensorProto.DataType.values():
        raise DataError(f"there is no element type {elem_type}.")
    return helper.tensor_dtype_to_np_dtype(elem_type)


def element_type(value: Tensor | Array) -> int:
    """Returns the ONNX element type of a value."""
    dtype = value.dtype.numpy if isinstance(value, Tensor) else value.dtype
    return TensorProto.STRING if dtype.kind in "OU" else int(helper.np_dtype_to_tensor_dtype(dtype))


def type_name(elem_type: int) -> str:
    """Returns the name of an element type in the operators' tables, such as "float16" or "int4"."""
    return str(onnx.TensorProto.DataType.Name(elem_type)).lower()


def dtype_of(elem_type: int, function: str) -> DType:
    """Returns the tensor dtype of an ONNX element type.

    Raises:
      UnsupportedOp: tensors have no such dtype.
    """
    found = dtypes.from_numpy(numpy_of(elem_type)) if elem_type != TensorProto.STRING else None
    if found is None:
        raise UnsupportedOp(f"{function}: tensors cannot have element type {type_name(elem_type)}.")
    return found


def is_tensor_dtype(array: Array) -> bool:
    """Returns whether tensors have the dtype of an array."""
    return array.dtype.kind in "biufV" and dtypes.from_numpy(array.dtype) is not None


_FIXED: Latest[tuple[Any, ...], Tensor] = Latest(1024)  # the last tensors made from known arrays
MAX_FIXED_NBYTES = 1 << 26  # bytes of all these tensors together


def fixed(array: Array, device: str | None = None) -> Tensor:
    """Returns the tensor of a known array; equal arrays share one, since a repeated trace asks for the same tensor."""
    if array.size == 1 and array.dtype.kind in "biuf":
        dtype = dtypes.from_numpy(array.dtype)
        return Tensor.full(array.shape, array.reshape(()).item(), dtype=dtype, device=device)
    key = (device or default_device(), array.dtype, array.shape, sha256(array.tobytes()).digest())
    found = _FIXED.get(key)
    if found is None:
        with unwatched():
            found = Tensor(array, device=device)
    _FIXED.put(key, found)
    while len(_FIXED) > 1 and sum(t.nbytes for t in [*_FIXED.values()]) > MAX_FIXED_NBYTES:
        _FIXED.popitem(last=False)
    return found


class Constants:
    """Tensors of a model's arrays, each made once.

    device:  device of the tensors
    """

    def __init__(self, device: str | None = None) -> None:
        self.device = device
        self._kept: dict[int, tuple[Array, Tensor | None]] = {}

    def keep(self, array: Array) -> None:
        """Registers an array that never changes, so that its tensor is found by identity, not by its elements."""
        self._kept[id(array)] = array, None

    def tensor(self, array: Array) -> Tensor:
        """Returns the tensor that holds `array`."""
        device = self.device or default_device()
        if id(array) not in self._kept or array.size == 1:
            return fixed(array, device)
        found = self._kept[id(array)][1]
        if found is None or found.device != device:
            with unwatched():
                found = Tensor(array, device=device)
            self._kept[id(array)] = array, found
        return found


def affordable(function: str, *lengths: int) -> None:
    """Checks the size of an array of the host, or of nested loops over it, before it is made.

    Raises:
      DataError: the product of the lengths is above HOST_NUMEL_MAX.
    """
    if math.prod(lengths) > HOST_NUMEL_MAX:
        shown = " x ".join(map(str, lengths))
        raise DataError(f"{function}: {shown} elements on the host; at most {HOST_NUMEL_MAX} are computed there.")
    spend(math.prod(lengths) * PYTHON_WORK)


_spent: ContextVar[list[int] | None] = ContextVar("spent", default=None)


@contextmanager
def spending() -> Iterator[list[int]]:
    """Counts the work in this context; the first element of the list is the sum so far."""
    counter = [0]
    with Mode(_spent, counter):
        yield counter


def spend(work: int) -> None:
    """Adds work, in elements that NumPy computes."""
    counter = _spent.get()
    if counter is not None:
        counter[0] += work


def counted(function: str, start: int, end: int) -> Array:
    """Returns the integers from start to end, up to a limit of their number."""
    affordable(function, end - start)
    return np.arange(start, end)


def choose(condition: Tensor, a: Tensor, b: Tensor | float) -> Tensor:
    """Returns a if the condition holds, else b."""
    return a.where(condition, b)


def as_array(value: Tensor | Array) -> Array:
    """Returns the elements of a value; a tensor is computed first, which a trace refuses."""
    if isinstance(value, Tensor):
        return value.detach().numpy()
    return value


def known(value: Value) -> bool:
    """Returns whether a value is on the host: an array, or a sequence of them."""
    if isinstance(value, list):
        return all(known(item) for item in value)
    return value is None or isinstance(value, np.ndarray)


def settled(value: Value) -> Value:
    """Converts the result of an operator with known inputs to an array, unless it is long."""
    if isinstance(value, (list, tuple)):
        return type(value)(settled(item) for item in value)
    if isinstance(value, Tensor) and value.nbytes <= KNOWN_NBYTES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a constant may be infinite
            return value.numpy()
    return value


# ---- the work of computing a graph ----
WORK_MAX = 1 << 23  # elements of all results of a graph together
FOLDED_WORK_MAX = 1 << 25  # elements while a model is loaded, plus, for large files,
FOLDED_WORK_A_BYTE = 16  # this many for each byte of the file's arrays
PRODUCTS = 16  # multiplications and additions in the time of one element


def is_little(values: Sequence[Value]) -> bool:
    """Returns whether values take at most KNOWN_NBYTES, and little time and memory to compute."""
    flat = [*_flat(values)]
    nbytes = sum(map(_nbytes, flat))
    work = 0 if nbytes > KNOWN_NBYTES else _work([value.op for value in flat if isinstance(value, Tensor)])
    if nbytes > KNOWN_NBYTES or work > WORK_MAX:
        return False
    spend(nbytes + work)
    return True


def _flat(values: Sequence[Value]) -> list[Value]:
    """Returns the arrays and tensors among values and inside sequences."""
    found: list[Value] = []
    for value in values:
        found += _flat(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]
    return found


def _nbytes(value: Value) -> int:
    """Returns the bytes of an array, including those of its strings."""
    strings = sum(map(len, value.reshape(-1))) if isinstance(value, np.ndarray) and value.dtype.kind == "O" else 0
    return int(value.nbytes) + strings


def _work(roots: Sequence[Op]) -> int:
    """Returns the number of elements that a graph's Ops compute; matrix products count their multiplications."""
    return sum(map(_work_of, toposort(written_out(roots))))


def _work_of(op: Op) -> int:
    if op.code is OpCode.LOOP:
        body, _, steps = op.arg
        return int(steps) * _work(body.src)
    if op.code is OpCode.CALL:
        return _work(op.arg.src)
    if op.code in SEVERAL_RESULTS:  # their OUTPUTs are counted
        return 0
    made = _numel(op)
    if op.code is OpCode.MATMUL:
        return made + made * int(op.src[0].shape[-1]) // PRODUCTS
    if op.code is OpCode.CONV:
        return made + made * math.prod(map(int, op.src[1].shape[1:])) // PRODUCTS
    if op.code is OpCode.CUSTOM:  # of matrices and signals: a row of each element
        return sum(_numel(src) * int(src.shape[-1] if src.shape else 1) for src in op.src) // PRODUCTS
    return made


def _numel(op: Op) -> int:
    return math.prod(map(int, op.shape))
