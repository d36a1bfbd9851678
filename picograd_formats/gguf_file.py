"""GGUF files of ggml: metadata, and tensors whose numbers are packed in blocks of a few bits each.

A file is mapped, not read: a tensor is a view of it, and its bytes are read from the disk when they are used. Each kind of
block has a function that unpacks it, in NumPy: groups of small integers, each with a scale and perhaps a minimum. K-quants
pack scales of their scales, too; IQ4's integers are indices into a table of 16. Counts and lengths are trusted only as far
as the file has bytes for them, and nothing in it is executed.

Source: ggml, its description of GGUF (the file), ggml-common and ggml-quants (the blocks).

Letters: N blocks, G groups of a block, n numbers of a group.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from picograd.errors import DataError
from picograd.files import PathName, opened
from picograd.record import Record

Array = np.ndarray[Any, Any]
MAGIC = b"GGUF"
HEADER_NBYTES_MAX = 32 * 2**20  # for metadata and the list of tensors; a vocabulary of 262,144 tokens takes 10 MB
AXES_MAX = 4  # GGML_MAX_DIMS
ALIGNMENT = 32  # of tensors in the file, unless the metadata has another


# ---- blocks ----
class Groups(Record, eq=False):
    """The unpacked numbers of some blocks: value = scale * number + least.

    numbers:  (N, G, n): G groups of n small integers per block; or floats, which are the values
    scale:    (N, G, 1) float32; None for floats
    least:    the same, or None for 0
    table:    table of 16 small integers, into which the numbers are indices; None: they are values themselves
    """

    numbers: Array
    scale: Array | None = None
    least: Array | None = None
    table: Array | None = None

    def values(self) -> Array:
        """Returns (N, G, n) float32."""
        values = (self.numbers if self.table is None else self.table[self.numbers]).astype(np.float32)
        if self.scale is not None:
            values *= self.scale
        if self.least is not None:
            values += self.least
        return values


class Packing(Record):
    """A kind of block.

    name:    ggml's name: "Q4_K"
    numel:   elements per block
    nbytes:  bytes per block
    groups:  unpacks blocks (N, nbytes) uint8
    bits:    bits per number; 0 for floats
    """

    name: str
    numel: int
    nbytes: int
    groups: Callable[[Array], Groups]
    bits: int = 0

    def unpack(self, blocks: Array) -> Array:
        """Returns the elements of blocks (N, nbytes) as float32, (N, numel)."""
        with np.errstate(invalid="ignore", over="ignore"):  # a scale of a damaged file may be infinite
            return self.groups(blocks).values().reshape(-1, self.numel)


def halves(blocks: Array, start: int) -> Array:
    """Returns the float16 at an offset of each block as float32, (N, 1, 1)."""
    return blocks[:, None, start : start + 2].copy().view("<f2").astype(np.float32)


def nibbles(packed: Array) -> Array:
    """Returns 4-bit numbers of bytes, (..., n) -> (..., 2n): the low ones of all bytes, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], -1)


def bits_of(packed: Array) -> Array:
    """Returns the bits of bytes, (N, n) -> (N, 8n), the lowest first."""
    return np.unpackbits(packed, axis=-1, bitorder="little")


def of_floats(dtype: str) -> Callable[[Array], Groups]:
    """Returns a function that unpacks plain numbers of a NumPy dtype."""
    return lambda blocks: Groups(np.ascontiguousarray(blocks).view(dtype)[:, None])


def of_bfloat16(blocks: Array) -> Groups:
    """Returns bfloat16, the upper half of a float32, as float32."""
    return Groups((np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << 16).view(np.float32)[:, None])


def of_q4_0(blocks: Array) -> Groups:
    """d * (q - 8): d float16, 16 bytes of q."""
    return Groups(nibbles(blocks[:, None, 2:]).view(np.int8) - 8, halves(blocks, 0))


def of_q4_1(blocks: Array) -> Groups:
    """d * q + m: d and m float16, 16 bytes of q."""
    return Groups(nibbles(blocks[:, None, 4:]), halves(blocks, 0), halves(blocks, 2))


def of_q5_0(blocks: Array) -> Groups:
    """d * (q - 16): d float16, 32 fifth bits, 16 bytes of the lower four."""
    q = nibbles(blocks[:, 6:]) | bits_of(blocks[:, 2:6]) << 4
    return Groups(q[:, None].view(np.int8) - 16, halves(blocks, 0))


def of_q5_1(blocks: Array) -> Groups:
    """d * q + m: d and m float16, 32 fifth bits, 16 bytes of the lower four."""
    q = nibbles(blocks[:, 8:]) | bits_of(blocks[:, 4:8]) << 4
    return Groups(q[:, None], halves(blocks, 0), halves(blocks, 2))


def of_q8_0(blocks: Array) -> Groups:
    """d * q: d float16, 32 signed bytes of q."""
    return Groups(blocks[:, None, 2:].view(np.int8), halves(blocks, 0))


def pairs_of_bits(packed: Array) -> Array:
    """Returns the four 2-bit numbers of bytes, (N, ..., n) -> (N, ..., 4, n): the lowest of all bytes first."""
    return packed[..., None, :] >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3


def of_q2_k(blocks: Array) -> Groups:
    """d * scale * q - dmin * minimum for 16 groups of 16: 16 bytes of scale and minimum, 64 of q, d and dmin float16."""
    q = pairs_of_bits(blocks[:, 16:80].reshape(-1, 2, 32)).reshape(-1, 16, 16)
    scales, minima = blocks[:, :16, None] & 15, blocks[:, :16, None] >> 4
    return Groups(q, halves(blocks, 80) * scales, -(halves(blocks, 82) * minima))


def of_q3_k(blocks: Array) -> Groups:
    """d * (scale - 32) * (q - 4) for 16 groups of 16: 32 bytes of third bits, 64 of lower two, 12 of scales, d float16.

    Bit g of byte i is the third bit of element i of the 32 elements of group g. Scales have six bits: the lower four in
    eight bytes, the upper two in four.
    """
    third = bits_of(blocks[:, :32]).reshape(-1, 32, 8).swapaxes(1, 2)
    q = pairs_of_bits(blocks[:, 32:96].reshape(-1, 2, 32)).reshape(-1, 8, 32) | third << 2
    scales = nibbles(blocks[:, 96:104]) | pairs_of_bits(blocks[:, 104:108]).reshape(-1, 16) << 4
    return Groups(q.reshape(-1, 16, 16).view(np.int8) - 4, halves(blocks, 108) * (scales.view(np.int8) - 32)[:, :, None])


def k_scales(blocks: Array) -> tuple[Array, Array]:
    """Returns scale and minimum of each of the eight groups of a Q4_K or Q5_K block: (N, 8, 1) each.

    Both have six bits, in 12 bytes: the first four of each are in the lower bits of eight bytes, whose two upper bits are
    the upper bits of the other four, whose lower bits are in the last four bytes.
    """
    first, second, last = (blocks[:, start : start + 4, None] for start in (4, 8, 12))
    scales = np.concatenate([first & 63, last & 15 | first >> 6 << 4], 1)
    minima = np.concatenate([second & 63, last >> 4 | second >> 6 << 4], 1)
    return halves(blocks, 0) * scales, -(halves(blocks, 2) * minima)


def of_q4_k(blocks: Array) -> Groups:
    """d * scale * q - dmin * minimum for eight groups of 32: d and dmin float16, 12 bytes of scales, 128 of q."""
    return Groups(nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32), *k_scales(blocks))


def of_q5_k(blocks: Array) -> Groups:
    """As `of_q4_k`, with 32 bytes of fifth bits before q: bit g of byte i belongs to element i of group g."""
    fifth = bits_of(blocks[:, 16:48]).reshape(-1, 32, 8).swapaxes(1, 2)
    q = nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | fifth << 4
    return Groups(q, *k_scales(blocks))


def of_q6_k(blocks: Array) -> Groups:
    """d * scale * (q - 32) for 16 groups of 16: 128 bytes of lower four bits, 64 of upper two, 16 scales, d float16.

    Each half of 128 elements has 64 and 32 of those bytes; byte i has the upper bits of elements i, 32 + i, 64 + i, 96 + i.
    """
    lower = nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    upper = pairs_of_bits(blocks[:, 128:192].reshape(-1, 2, 32))
    q = (lower | upper << 4).reshape(-1, 16, 16).view(np.int8) - 32
    return Groups(q, halves(blocks, 208) * blocks[:, 192:208, None].view(np.int8))


# Values of four-bit indices: closer together near 0, where most weights are.
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)


def of_iq4_nl(blocks: Array) -> Groups:
    """d * IQ4[q]: d float16, 16 bytes of q."""
    return Groups(IQ4[nibbles(blocks[:, None, 2:])], halves(blocks, 0))


def of_iq4_xs(blocks: Array) -> Groups:
    """d * (scale - 32) * IQ4[q] for eight groups of 32: d float16, upper two bits of scales, lower four, 128 bytes of q."""
    upper = pairs_of_bits(blocks[:, 2:4, None]).reshape(-1, 8)
    lower = np.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], -1).reshape(-1, 8)
    scales = (lower | upper << 4).view(np.int8) - 32
    return Groups(IQ4[nibbles(blocks[:, 8:].reshape(-1, 8, 16))], halves(blocks, 0) * scales[:, :, None])


# Four-bit floats, doubled: a sign, two bits of exponent, one of fraction.
FP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


def of_mxfp4(blocks: Array) -> Groups:
    """2^(e - 128) * FP4[q]: a byte e, 16 bytes of q."""
    scale = np.ldexp(np.float32(1), blocks[:, None, :1].astype(np.int32) - 128)
    return Groups(nibbles(blocks[:, None, 1:]), scale, table=FP4)


MXFP4 = Packing("MXFP4", 32, 17, of_mxfp4, 4)
PACKINGS = {
    0: Packing("F32", 1, 4, of_floats("<f4")), 1: Packing("F16", 1, 2, of_floats("<f2")),
    28: Packing("F64", 1, 8, of_floats("<f8")), 30: Packing("BF16", 1, 2, of_bfloat16),
    2: Packing("Q4_0", 32, 18, of_q4_0, 4), 3: Packing("Q4_1", 32, 20, of_q4_1, 4),
    6: Packing("Q5_0", 32, 22, of_q5_0, 5), 7: Packing("Q5_1", 32, 24, of_q5_1, 5),
    8: Packing("Q8_0", 32, 34, of_q8_0, 8), 10: Packing("Q2_K", 256, 84, of_q2_k, 2),
    11: Packing("Q3_K", 256, 110, of_q3_k, 3), 12: Packing("Q4_K", 256, 144, of_q4_k, 4),
    13: Packing("Q5_K", 256, 176, of_q5_k, 5), 14: Packing("Q6_K", 256, 210, of_q6_k, 6),
    20: Packing("IQ4_NL", 32, 18, of_iq4_nl, 8), 23: Packing("IQ4_XS", 256, 136, of_iq4_xs, 8),
    39: MXFP4,
}  # fmt: skip


# ---- files ----
class PackedTensor(Record, eq=False):
    """A tensor in its packed form.

    shape:    outermost axis first
    packing:  kind of its blocks, which run along the last axis
    blocks:   (N, nbytes of a block) uint8, a view of the file
    """

    shape: tuple[int, ...]
    packing: Packing
    blocks: Array

    def unpacked(self) -> Array:
        """Returns its elements as float32."""
        return self.packing.unpack(self.blocks).reshape(self.shape)


def plain_tensor(array: Array) -> PackedTensor:
    """Returns a tensor of float32 in the packed form of a file.

    >>> plain_tensor(np.eye(2)).unpacked().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return PackedTensor(array.shape, PACKINGS[0], np.ascontiguousarray(array, "<f4").reshape(-1, 1).view(np.uint8))


class GGUF(Record, eq=False):
    """The contents of a file.

    metadata:  numbers, bools, strings; arrays of numbers as NumPy arrays, of strings as lists
    tensors:   by name
    """

    metadata: dict[str, Any]
    tensors: dict[str, PackedTensor]


def read_gguf(path: PathName) -> GGUF:
    """Returns metadata and tensors of a file, which stays mapped as long as a tensor is used.

    Raises:
      FileError: it cannot be read.
      DataError: it is not a GGUF file of version 2 or 3, is damaged or cut short, or has an unknown kind of blocks.
    """
    with opened("read_gguf", path) as file:
        is_empty = not file.read(1)
        data = memoryview(b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        return parse_gguf(data)
    except DataError as error:
        raise DataError(f"{path}: {error.fact}", error.hint) from None


def parse_gguf(data: memoryview) -> GGUF:
    """Returns the contents of the bytes of a file, as views of them.

    Raises:
      DataError: as `read_gguf`.
    """
    header = Header(data)
    if bytes(header.take(4)) != MAGIC:
        raise DataError("it does not begin with GGUF, as files of llama.cpp do")
    version = header.number("<I")
    if version not in (2, 3):
        raise DataError(f"it is of GGUF's version {version}; versions 2 and 3 are read")
    num_tensors, num_values = header.number("<Q"), header.number("<Q")
    header.check_count(num_tensors, 24, "tensors")
    header.check_count(num_values, 13, "metadata")
    metadata: dict[str, Any] = {}
    for _ in range(num_values):
        name = header.text()
        if name in metadata:
            raise DataError(f"its metadata contain {shortened(name)} twice")
        metadata[name] = header.value(header.number("<I"))
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or not 8 <= alignment <= 2**16 or alignment % 8:
        raise DataError(f"its general.alignment is {shortened(alignment)}; it must be a multiple of 8 up to 65,536")
    entries = [header.entry() for _ in range(num_tensors)]
    start = -(-header.place // alignment) * alignment
    tensors: dict[str, PackedTensor] = {}
    for name, shape, packing, offset in entries:
        num_blocks = math.prod(shape) // packing.numel
        first, past = start + offset, start + offset + num_blocks * packing.nbytes
        if name in tensors:
            raise DataError(f"tensor {shortened(name)} occurs twice")
        if offset % alignment or past > len(data):
            place = f"bytes {first:,} to {past:,} of {len(data):,}, aligned to {alignment}"
            raise DataError(f"tensor {shortened(name)} has {place}: the file is cut short or damaged")
        blocks = np.frombuffer(data[first:past], np.uint8).reshape(num_blocks, packing.nbytes)
        tensors[name] = PackedTensor(shape, packing, blocks)
    return GGUF(metadata, tensors)


def shortened(value: object) -> str:
    """Returns a value of a file, shortened for a message."""
    return repr(value)[:60]


NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 10: "<Q", 11: "<q", 12: "<d"}
BOOL, STRING, LIST = 7, 8, 9


class Header:
    """A position in the bytes of a file, which advances with each read. All methods raise a DataError at the end."""

    def __init__(self, data: memoryview):
        self.data, self.place = data, 0

    def take(self, nbytes: int) -> memoryview:
        """Returns the next bytes."""
        start, self.place = self.place, self.place + nbytes
        if self.place > min(len(self.data), HEADER_NBYTES_MAX):
            raise DataError(f"its header is cut short, or longer than {HEADER_NBYTES_MAX:,} bytes")
        return self.data[start : self.place]

    def check_count(self, count: int, nbytes: int, what: str) -> None:
        """Checks that this number of items of at least `nbytes` each can follow."""
        left = min(len(self.data), HEADER_NBYTES_MAX) - self.place
        if count * nbytes > left:
            raise DataError(f"its header says {count:,} {what}, and has {left:,} bytes left")

    def number(self, form: str) -> Any:
        """Returns a number in a format of `struct`."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        """Returns a string."""
        try:
            return str(self.take(self.number("<Q")), "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"a string in its header is not UTF-8 ({error.reason})") from None

    def value(self, kind: int) -> Any:
        """Returns a value of the metadata."""
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == BOOL:
            return bool(self.number("<B"))
        if kind == STRING:
            return self.text()
        if kind == LIST:
            return self.values(self.number("<I"), self.number("<Q"))
        raise DataError(f"its metadata have a value of kind {kind}; kinds are 0 to 12")

    def values(self, kind: int, count: int) -> Array | list[str]:
        """Returns the values of an array."""
        if kind == STRING:
            self.check_count(count, 8, "strings")
            return [self.text() for _ in range(count)]
        form = "?" if kind == BOOL else NUMBERS.get(kind)
        if form is None:
            raise DataError(f"its metadata have an array of kind {kind}; arrays of numbers and of strings are read")
        nbytes = struct.calcsize(form)
        self.check_count(count, nbytes, "numbers")
        numbers: Array = np.frombuffer(self.take(count * nbytes), np.uint8 if form == "?" else form)
        return numbers.astype(bool) if form == "?" else numbers

    def entry(self) -> tuple[str, tuple[int, ...], Packing, int]:
        """Returns name, shape, packing and offset of a tensor."""
        name, num_axes = self.text(), self.number("<I")
        if num_axes > AXES_MAX:
            raise DataError(f"tensor {shortened(name)} has {num_axes:,} axes, more than {AXES_MAX}")
        shape = tuple([self.number("<Q") for _ in range(num_axes)])[::-1]
        kind, offset = self.number("<I"), self.number("<Q")
        packing = PACKINGS.get(kind)
        if packing is None:
            known = ", ".join(each.name for each in PACKINGS.values())
            raise DataError(f"tensor {shortened(name)} is of ggml's type {kind}; {known} are read")
        if math.prod(shape) >= 2**62 or (shape or (1,))[-1] % packing.numel:
            raise DataError(f"tensor {shortened(name)} has the shape {shape}, which blocks of {packing.numel} cannot fill")
        return name, shape, packing, offset
