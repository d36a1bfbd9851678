"""Matrices whose numbers stay packed in memory, in four or eight bits each, and are unpacked during multiplication.

A product with few rows is limited by memory, so its time depends on the bytes of a weight. A group of numbers along a row
has a scale and perhaps a minimum; value = scale * number + minimum is a formula inside the product. A group is stored as
two halves: in the lower and the upper four bits of bytes, or in two arrays of eight bits.
bfloat16 and float16 are also kept: they take half of float32's memory, and convert to it exactly; so are eight-bit floats,
whose groups are long enough for one array.

Letters: R rows of the matrix, K columns, G groups of a row, h numbers of half a group.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from picograd import dtype as dtypes
from picograd import nn
from picograd.tensor.tensor import Tensor
from picograd_formats.gguf_file import FP4, PackedTensor

BITS_OF_HALF_A_BYTE = 4
ROWS_MAX = 8  # whose sums fit into the registers of one pass
FP8_PART = 2.0**8  # ratio of the exponents' biases
HALF_FLOATS = {"F16": np.float16, "BF16": ml_dtypes.bfloat16}


def fp4(codes: Tensor) -> Tensor:
    """Returns doubled four-bit floats: the entries of gguf_file's FP4 at these codes, float32.

    >>> fp4(Tensor([1, 5, 7, 15])).tolist()
    [1.0, 6.0, 12.0, -12.0]
    """
    far = (codes & 7).float()  # 0 to 7; the step is 2 from 4 on, 4 from 6 on
    far = far + (far - 4).clamp(min=0) + (far - 6).clamp(min=0) * 2
    return (-far).where(codes > 7, far)


def fp8(bits: Tensor) -> Tensor:
    """Returns eight-bit floats with four exponent bits, divided by FP8_PART, via float16, which has five.

    >>> fp8(Tensor([0x38, 0x01, -0x38], dtype=dtypes.int8)).mul(FP8_PART).tolist()
    [1.0, 0.001953125, -4.0]
    """
    return (bits.cast(dtypes.int16) << 7 & -0x4080).view(dtypes.float16).float()  # clears the copies of the sign


class PackedMatrix(nn.Module):
    """A matrix (R, K) of a file. A call multiplies as a linear layer does: x @ matrix.T

    Numbers of two and three bits take four bits; those of five, six and IQ4's table eight; 64-bit floats 32.

    >>> from picograd_formats.gguf_file import plain_tensor
    >>> PackedMatrix(plain_tensor(np.eye(2)))(Tensor([[3.0, 4.0]])).tolist()
    [[3.0, 4.0]]
    """

    def __init__(self, tensor: PackedTensor):
        self.shape = tensor.shape
        if (dtype := HALF_FLOATS.get(tensor.packing.name)) is not None:
            self.is_float, self.has_nibbles, self.is_halved, self.is_fp8 = True, False, False, False
            self._hold("numbers", np.ascontiguousarray(tensor.blocks).view(dtype).reshape(self.shape))
            return
        groups = tensor.packing.groups(tensor.blocks)
        self.is_float = groups.scale is None
        self.has_nibbles = 0 < tensor.packing.bits <= BITS_OF_HALF_A_BYTE
        self.is_fp8 = groups.numbers.dtype == ml_dtypes.float8_e4m3fn
        self.is_halved = not (self.is_float or self.has_nibbles or self.is_fp8)
        if groups.scale is None:
            self._hold("numbers", groups.values().reshape(self.shape))
            return
        numbers, least, self.is_fp4 = groups.numbers, groups.least, groups.table is FP4
        if self.has_nibbles and numbers.dtype == np.int8:  # s (n - 8) = s n - 8 s, without rounding
            numbers, least = (numbers + 8).view(np.uint8), groups.scale * np.float32(-8)
        scale = groups.scale
        if self.is_fp8:
            numbers, scale = numbers.view(np.int8), scale * np.float32(FP8_PART)
        length = numbers.shape[-1]
        by_row = (self.shape[0], -1, length)  # (R, G, 2h)
        whole = numbers.reshape(by_row)
        if self.has_nibbles or self.is_halved:
            first, second = np.split(whole, 2, -1)
            whole = first | second << 4 if self.has_nibbles else np.stack([first, second])  # (2, R, G, h)
        self._hold("numbers", whole)
        self._hold("scale", scale.reshape(*by_row[:2], 1))
        self._hold("least", None if least is None else least.reshape(*by_row[:2], 1))

    def _hold(self, name: str, array: np.ndarray | None) -> None:
        self.register_buffer(name, None if array is None else Tensor(np.ascontiguousarray(array)).realize())

    def nbytes(self) -> int:
        """Returns its bytes of memory."""
        return sum(tensor.numel() * tensor.dtype.itemsize for tensor in self.buffers())

    def rows(self, numbers_BT: Tensor) -> Tensor:
        """Returns rows by number, (B, T, K), as an embedding does."""
        places = numbers_BT.flatten()
        numbers, *rest = self._held()
        of_rows = numbers[:, places] if self.is_halved else numbers[places]
        held = [None if each is None else each[places] for each in rest]
        return self._unpacked(of_rows, *held).reshape(*numbers_BT.shape, self.shape[1])

    def parts(self, chosen_N: Tensor, num: int) -> Tensor:
        """Returns the formulas of `num` matrices that are concatenated rows, (N, R / num, K)."""
        numbers, *rest = self._held()
        by_part = numbers.unflatten(int(self.is_halved), (num, -1))  # rows are the second axis of halves
        of_parts = by_part[:, chosen_N] if self.is_halved else by_part[chosen_N]
        held = [None if each is None else each.unflatten(0, (num, -1))[chosen_N] for each in rest]
        return self._unpacked(of_parts, *held)

    def weight(self) -> Tensor:
        """Returns the formula of the matrix, (R, K)."""
        return self._unpacked(*self._held())

    def _held(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        return (self.numbers, None, None) if self.is_float else (self.numbers, self.scale, self.least)

    def _unpacked(self, numbers: Tensor, scale: Tensor | None, least: Tensor | None) -> Tensor:
        if scale is None:
            return numbers.float()
        if self.has_nibbles:
            numbers = Tensor.cat([numbers & 15, numbers >> 4], -1)
        elif self.is_halved:
            numbers = Tensor.cat([numbers[0], numbers[1]], -1)
        floats = fp4(numbers) if self.is_fp4 else fp8(numbers) if self.is_fp8 else numbers.float()
        values = floats * scale  # (R, G, 2h)
        return (values if least is None else values + least).flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., K) -> (..., R). With one token per text, (B, 1, K), a row's bits do not depend on the other rows.

        A single row is summed along the packed rows of the matrix, several in the order of tiles. Products of single rows
        share one pass, which unpacks each number once.
        """
        if self.is_float or x.ndim != 3 or x.shape[1] != 1 or x.shape[0] > ROWS_MAX:
            return x @ self.weight().T
        x = x.contiguous()  # the order of a sum depends on its operands' formula
        rows = [x[row : row + 1] @ self.weight().T for row in range(x.shape[0])]
        return rows[0] if len(rows) == 1 else Tensor.cat(rows).contiguous()
