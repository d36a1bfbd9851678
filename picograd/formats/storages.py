"""Tensors that a file describes as views of storages: where they begin, their shape and strides.

In:    storages and views of them, as they are met in a file; then the bytes of each storage
Out:   `Storages`
Called by: formats/torch_file.py

A tensor that has a storage alone gets memory of its own, in order. Views of one storage are views of one memory again.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from picograd.dtype import DType
from picograd.errors import DataError
from picograd.ir.opcode import OpCode
from picograd.record import Record
from picograd.tensor.cell import View
from picograd.tensor.exchange.arrays import steps_to, strided
from picograd.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
AXES_MAX = 64  # of a NumPy array
COPIED_MAX = 2  # bytes of tensors for each byte of a file, views not counted


class Place(Record):
    """The part of a storage that a tensor shows, in elements of its dtype.

    offset:   of the first element
    strides:  from one element to the next along each axis
    """

    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def extent(self) -> int:
        """The number of elements from the first to the last one."""
        return 1 + sum((dim - 1) * stride for dim, stride in zip(self.shape, self.strides))


class Storage:
    """The bytes that some tensors are views of.

    dtype:   that of its elements, None of bytes without one
    nbytes:  how many there are
    home:    the device it was on, as the file names it: "cuda:0"
    """

    def __init__(self, key: str, dtype: DType | None, nbytes: int, home: str):
        self.key, self.dtype, self.nbytes, self.home = key, dtype, nbytes, home
        self.views: list[tuple[Tensor, Place]] = []


class Storages:
    """The storages of a file, and the tensors on them, which are empty until `fill` is called.

    Args:
      nbytes:  of the whole file: no storages are larger
    """

    def __init__(self, nbytes: int):
        self.nbytes, self.left = nbytes, nbytes
        self.found: dict[str, Storage] = {}
        self.roles: list[tuple[Tensor, str | None, bool]] = []

    def add(self, key: str, dtype: DType | None, nbytes: int, home: str) -> Storage:
        """Returns the storage of a key, a new one where the key is new.

        Raises:
          DataError: it has been described in another way, or the file is too small for all of them.
        """
        known = self.found.get(key)
        if known is None:
            known = self.found[key] = Storage(key, dtype, nbytes, home)
            self.left -= nbytes
            if self.left < 0:
                raise DataError(f"it has storages of more than its {self.nbytes:,} bytes")
        if (known.dtype, known.nbytes) != (dtype, nbytes):
            raise DataError(f"storage {key} has {known.nbytes:,} bytes of {known.dtype} and {nbytes:,} of {dtype}")
        return known

    def view(self, storage: Storage, place: Place, requires_grad: bool) -> Tensor:
        """Returns a tensor that is filled later.

        Raises:
          DataError: it is not within its storage.
        """
        numbers = (place.offset, *place.shape, *place.strides)
        if len(place.shape) != len(place.strides) or len(place.shape) > AXES_MAX:
            raise DataError(f"a tensor has shape {place.shape} and strides {place.strides}")
        if not all(type(number) is int and 0 <= number < 2**62 for number in numbers) or math.prod(place.shape) >= 2**62:
            raise DataError(f"a tensor has offset {place.offset}, shape {place.shape} and strides {place.strides}")
        if 0 not in place.shape and (place.offset + place.extent) * place.dtype.itemsize > storage.nbytes:
            raise DataError(f"a tensor of shape {place.shape} is not within the {storage.nbytes:,} bytes of its storage")
        tensor: Tensor = object.__new__(Tensor)
        storage.views.append((tensor, place))
        self.note(tensor, None, requires_grad)
        return tensor

    def note(self, tensor: Tensor, role: str | None, requires_grad: bool) -> None:
        """Remembers what a tensor becomes when it is filled."""
        if requires_grad not in (True, False):
            raise TypeError
        self.roles.append((tensor, role, requires_grad))

    def fill(self, read: Callable[[Storage], bytearray], is_little: bool, device_of: Callable[[str], str | None]) -> None:
        """Gives all tensors their values.

        Args:
          read:       the bytes of a storage
          is_little:  the order of bytes in the file
          device_of:  where the tensors of a storage go, by where it was
        """
        copied = 0
        for storage in self.found.values():
            data, device = read(storage), device_of(storage.home)
            for dtype in dict.fromkeys(place.dtype for _, place in storage.views):
                views = [(tensor, place) for tensor, place in storage.views if place.dtype is dtype]
                elements = _elements(data, dtype, is_little)
                arrays = {place: _shown(elements, place) for _, place in views}
                is_alone = len(arrays) == 1 and all(array.nbytes <= elements.nbytes for array in arrays.values())
                made = {} if is_alone else _on_one_memory(elements, arrays, dtype, device)
                for place in arrays.keys() - made.keys():
                    copied += arrays[place].nbytes
                    if copied > COPIED_MAX * self.nbytes:
                        raise DataError("it has overlapping tensors that are larger than the file")
                    made[place] = Tensor(arrays[place], dtype, device)
                for tensor, place in views:
                    _become(tensor, made[place])
        for tensor, role, requires_grad in self.roles:
            if role is not None:
                tensor._role = role
            if requires_grad and not tensor.requires_grad:
                tensor.requires_grad_()


def _become(tensor: Tensor, value: Tensor) -> None:
    """Makes an empty tensor a view of the same storage as another."""
    tensor.cell, tensor.steps, tensor._grad, tensor._shown = value.cell, value.steps, None, None


def _elements(data: bytearray, dtype: DType, is_little: bool) -> Array:
    """Returns the elements in some bytes, in the byte order of this machine."""
    count = len(data) // dtype.itemsize
    elements = np.frombuffer(data, dtype.numpy, count)
    if is_little != (sys.byteorder == "little") and dtype.itemsize > 1:
        elements = elements.view(f"u{dtype.itemsize}").byteswap().view(dtype.numpy)
    return elements


def _shown(elements: Array, place: Place) -> Array:
    """Returns the elements of a storage that a tensor shows."""
    if 0 in place.shape:
        return np.empty(place.shape, elements.dtype)
    part = elements[place.offset : place.offset + place.extent]
    return strided(part, place.shape, [stride * elements.itemsize for stride in place.strides])


def _on_one_memory(elements: Array, arrays: Mapping[Place, Array], dtype: DType, device: str | None) -> dict[Place, Tensor]:
    """Returns tensors that are views of one memory: those whose strides the steps of a view can make."""
    memory = Tensor(elements, dtype, device)
    views: dict[Place, Tensor] = {}
    for place, array in arrays.items():
        found = steps_to(array, elements.size - place.offset)
        if found is not None:
            extent, steps = found
            start: View = ((OpCode.SHRINK, ((place.offset, place.offset + extent),)),)
            views[place] = memory.viewed_by((*start, *steps))
    return views
