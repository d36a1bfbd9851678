"""Sequences of different lengths: padded to one length, or packed; `PackedSequence`, which recurrent layers take.

Packed data is all first steps, then all second steps, and so on. Here the padded batch and its lengths are kept instead: as
Tensors they are inputs of plans, so one plan serves all lengths.

Shapes: T steps, B sequences.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.engine.devices import gpu_named
from picograd.errors import ArgumentError, JitError, ShapeError
from picograd.ir.opcode import OpCode
from picograd.record import Record
from picograd.tensor.build import guarded
from picograd.tensor.cell import trace
from picograd.tensor.conversions import named_cast
from picograd.tensor.tensor import Tensor

__all__ = [
    "PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence", "unpack_sequence",
    "unpad_sequence",
]  # fmt: skip


# ---- packed sequences ----
Array = np.ndarray[Any, Any]


class Order(Record):
    """Lengths of sequences as numbers on the host, and the order in which they are packed.

    lengths:  (B,), in the order of the padded batch
    places:   (B,): index of the sequence packed first, second, ...; None: in order
    """

    lengths: Array
    places: Array | None

    @property
    def sizes(self) -> Array:
        """Number of sequences that have each step, (longest,)."""
        return (self.lengths > np.arange(self.lengths.max(initial=0))[:, None]).sum(1)

    def rows(self) -> Array:
        """Returns the row in (T B, *) of each packed row."""
        batch = len(self.lengths)
        places = np.arange(batch) if self.places is None else self.places
        steps = np.arange(len(self.sizes))[:, None]
        return (steps * batch + places)[steps < self.lengths[places]]


@dataclass(init=False, eq=False, repr=False)
class PackedSequence:
    """Sequences of different lengths, as recurrent layers take them; it unpacks as PyTorch's tuple of four.

    padded:           (T, B, *), zeros after the ends
    lengths:          (B,), int64
    sorted_indices:   (B,): index of the sequence packed first, second, ...; None: in order

    Computed on first use, as copies to be read:

    data:             (sum of lengths, *): all first steps, then all second steps, ..., the longest sequence first
    batch_sizes:      (longest,), int64: number of sequences that have each step
    unsorted_indices: (B,): position of each sequence in the packed order, or None

    In a traced function that gets lengths as a Tensor, data and batch_sizes do not have a shape, so reading them is an
    error. Layers and functions of packed sequences do not read them.

    >>> packed = nn.utils.rnn.pack_sequence([Tensor([1.0, 2.0]), Tensor([3.0])])
    >>> packed.data, packed.batch_sizes
    (Tensor([1., 3., 2.]), Tensor([2, 1]))
    """

    padded: Tensor
    lengths: Tensor
    sorted_indices: Tensor | None

    def __init__(
        self,
        data: Tensor,
        batch_sizes: Tensor,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ):
        """
        Args:
          data:              (sum of lengths, *)
          batch_sizes:       (longest,), never increasing
          sorted_indices:    (B,), or None
          unsorted_indices:  (B,), the inverse permutation; computed if None

        Raises:
          ArgumentError: batch_sizes increase, or do not add up to the rows of data; or indices are missing.
        """
        sizes, rows = np.asarray(batch_sizes.reshape(-1).tolist(), np.int64), data.shape[0] if data.ndim else 0
        if np.any(sizes[1:] > sizes[:-1]) or np.any(sizes < 1) or sizes.sum() != rows:
            raise ArgumentError(
                f"PackedSequence: batch_sizes {sizes.tolist()} must not rise, and add up to {rows} rows of data."
            )
        lengths: Array = (sizes[:, None] > np.arange(sizes.max(initial=0))).sum(0)
        if sorted_indices is None and unsorted_indices is not None:
            sorted_indices = unsorted_indices.argsort()
        places = None
        if sorted_indices is not None:
            places = np.asarray(sorted_indices.reshape(-1).tolist(), np.int64)
            if not np.array_equal(np.sort(places), np.arange(len(lengths))):
                raise ArgumentError(
                    f"PackedSequence: sorted_indices {places.tolist()} must hold each of 0 to {len(lengths) - 1} once."
                )
            lengths = lengths[np.argsort(places)]
        order = Order(lengths, places)
        self._set(padded(data, order), Tensor(lengths, device=data.device), sorted_indices, order)

    def _set(self, padded: Tensor, lengths: Tensor, sorted_indices: Tensor | None, order: Order | None) -> None:
        self.padded, self.lengths, self.sorted_indices = padded, lengths, sorted_indices
        self._order: Order | None = order  # None if the lengths are not known
        self._data: Tensor | None = None  # computed on first use

    @property
    def data(self) -> Tensor:
        """The packed rows, (sum of lengths, *)."""
        if self._data is not None:
            return self._data
        rows = Tensor(order_of(self, "data").rows(), device=self.padded.device)
        data = self.padded.flatten(0, 1).index_select(0, rows)
        if trace.get() is None:  # values made in a trace must not be kept
            self._data = data
        return data

    @property
    def batch_sizes(self) -> Tensor:
        """Number of sequences that have each step, (longest,)."""
        return Tensor(order_of(self, "batch_sizes").sizes)

    @property
    def unsorted_indices(self) -> Tensor | None:
        """Position of each sequence in the packed order, (B,)."""
        if self.sorted_indices is None:
            return None
        if self._order is None or self._order.places is None:
            return self.sorted_indices.argsort()
        return Tensor(np.argsort(self._order.places), device=self.sorted_indices.device)

    def to(self, *targets: Any, **named: Any) -> PackedSequence:
        """Returns the sequences on another device or in another dtype; `targets` or `named` are those of Tensor.to.

        >>> nn.utils.rnn.pack_sequence([Tensor([1.0])]).to(dtypes.float64).data.dtype
        float64
        """
        padded, order = self.padded.to(*targets, **named), self.sorted_indices
        return packed_of(
            padded, self.lengths.to(padded.device), None if order is None else order.to(padded.device), self._order
        )

    _of_sequences = "Returns the sequences as", "nn.utils.rnn.pack_sequence([Tensor([1.5])]).{}().data"
    float, double = named_cast(dtypes.float32, *_of_sequences), named_cast(dtypes.float64, *_of_sequences)
    half, long = named_cast(dtypes.float16, *_of_sequences), named_cast(dtypes.int64, *_of_sequences)
    int, short = named_cast(dtypes.int32, *_of_sequences), named_cast(dtypes.int16, *_of_sequences)
    char, byte = named_cast(dtypes.int8, *_of_sequences), named_cast(dtypes.uint8, *_of_sequences)

    def cpu(self) -> PackedSequence:
        """Returns the sequences on the CPU.

        >>> nn.utils.rnn.pack_sequence([Tensor([1.0])]).cpu().data.device
        device(type='cpu')
        """
        return self.to("CPU")

    def cuda(self, device: str | builtins.int | None = None) -> PackedSequence:
        """Returns the sequences on the GPU: `device` is 0, "cuda" or "cuda:0"."""
        return self.to(gpu_named(device))

    @property
    def is_cuda(self) -> builtins.bool:
        """True if the sequences are on a GPU."""
        return self.padded.is_cuda

    def is_pinned(self) -> builtins.bool:
        """Returns False, as Tensor.is_pinned does.

        >>> nn.utils.rnn.pack_sequence([Tensor([1.0])]).is_pinned()
        False
        """
        return self.padded.is_pinned()

    def pin_memory(self) -> PackedSequence:
        """Returns the sequences themselves, as Tensor.pin_memory does.

        >>> nn.utils.rnn.pack_sequence([Tensor([1.0])]).pin_memory().batch_sizes
        Tensor([1])
        """
        return self

    # ---- a tuple of four, as PyTorch's is ----
    def __iter__(self) -> Iterator[Tensor | None]:
        return iter((self.data, self.batch_sizes, self.sorted_indices, self.unsorted_indices))

    def __getitem__(self, place: builtins.int) -> Tensor | None:
        return tuple(self)[place]

    def __len__(self) -> builtins.int:
        return 4

    def _replace(self, **named: Any) -> PackedSequence:
        """Returns a copy with some of its four parts replaced; replacing `data` alone reads no values."""
        if [*named] == ["data"]:
            order = order_of(self, "data")
            return packed_of(padded(named["data"], order), self.lengths, self.sorted_indices, order)
        data, batch_sizes, sorted_indices, unsorted_indices = self
        parts = {"data": data, "batch_sizes": batch_sizes, "sorted_indices": sorted_indices}
        return PackedSequence(**{**parts, "unsorted_indices": unsorted_indices, **named})

    def __repr__(self) -> str:
        names = ("data", "batch_sizes", "sorted_indices", "unsorted_indices")
        return f"PackedSequence({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def __copy__(self) -> PackedSequence:
        # NOTE: a copy replaces these Tensors, and numbers kept on the host would be wrong for it.
        made = PackedSequence.__new__(PackedSequence)
        made._set(self.padded, self.lengths, self.sorted_indices, None)
        return made


# ---- for layers and functions that take them ----
def packed_of(x_TB: Tensor, lengths: Tensor, sorted_indices: Tensor | None, order: Order | None) -> PackedSequence:
    """Returns packed sequences from the padded batch `x_TB`; `order` is given if the lengths are known."""
    made = PackedSequence.__new__(PackedSequence)
    made._set(x_TB.where(is_inside(x_TB, lengths), False), lengths, sorted_indices, order)
    return made


def packed_like(x_TB: Tensor, packed: PackedSequence) -> PackedSequence:
    """Returns packed sequences of `padded` (T, B, *), with the lengths and the order of `packed`."""
    return packed_of(x_TB, packed.lengths, packed.sorted_indices, packed._order)


def is_known(packed: PackedSequence) -> bool:
    """Returns whether the lengths are available as numbers now."""
    return packed._order is not None or trace.get() is None


def order_of(packed: PackedSequence, wanted: str) -> Order:
    """Returns the lengths as numbers; an error names `wanted`, which needs them.

    Raises:
      JitError: a traced function gets the lengths as a Tensor.
    """
    if packed._order is None:
        if trace.get() is not None:
            raise JitError(
                f"jit: {wanted} depends on the lengths of a packed sequence, an input of the traced function.",
                "pad_packed_sequence(packed, total_length=T) has all steps, padded with zeros.",
            )
        places = None if packed.sorted_indices is None else np.asarray(packed.sorted_indices.tolist(), np.int64)
        packed._order = Order(np.asarray(packed.lengths.tolist(), np.int64), places)
    return packed._order


def is_inside(x_TB: Tensor, lengths: Tensor) -> Tensor:
    """Returns (T, B, 1, ...) bools: whether a sequence has the step."""
    steps = Tensor.arange(x_TB.shape[0], device=x_TB.device).unsqueeze(1)
    return (steps < lengths).reshape(*x_TB.shape[:2], *[1] * (x_TB.ndim - 2))


def padded(data: Tensor, order: Order) -> Tensor:
    """Returns packed rows as (longest, B, *), zeros after the ends."""
    steps, batch = len(order.sizes), len(order.lengths)
    places = np.full(steps * batch, len(data), np.int64)  # index of a row of zeros after the data
    places[order.rows()] = np.arange(len(data))
    more = (0, 0) * (data.ndim - 1) + (0, 1)
    return data.pad(more).index_select(0, Tensor(places, device=data.device)).unflatten(0, (steps, batch))


# ---- packing and padding ----
def pack_padded_sequence(
    input: Tensor,  # noqa: A002  # PyTorch's name
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Packs a padded batch, without the elements after the end of each sequence.

    Args:
      input:           (T, B, *), or (B, T, *) if batch_first
      lengths:         (B,) integers, 1 to T
      batch_first:     the batch is the first axis
      enforce_sorted:  require lengths that do not increase; False: sort the sequences, and restore the order at the end

    Returns:   a PackedSequence

    Raises:
      ArgumentError: lengths are not B numbers from 1 to T, or increase although enforce_sorted is True.
      ShapeError:    input has fewer than two axes.

    >>> padded = Tensor([[1.0, 2.0, 0.0], [3.0, 4.0, 5.0]])
    >>> pack_padded_sequence(padded, [2, 3], batch_first=True, enforce_sorted=False).data
    Tensor([3., 1., 4., 2., 5.])
    """
    if input.ndim < 2:
        raise ShapeError(f"pack_padded_sequence: input must have axes of steps and sequences, got {input.shape}.")
    x_TB = input.transpose(0, 1) if batch_first else input
    if isinstance(lengths, Tensor) and trace.get() is not None:
        found = _checked_lengths(lengths, x_TB, enforce_sorted)
        return packed_of(x_TB, found, None if enforce_sorted else found.argsort(descending=True), None)
    order = _order_of(lengths, x_TB.shape[0], x_TB.shape[1], enforce_sorted)
    places = None if order.places is None else Tensor(order.places, device=input.device)
    return packed_of(x_TB, Tensor(order.lengths, device=input.device), places, order)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns a packed batch padded again, in its original order, and the lengths.

    Args:
      sequence:       a packed batch
      batch_first:    the result is (B, T, *), not (T, B, *)
      padding_value:  value after the ends
      total_length:   T of the result, at least the longest length, which is the default. If a traced function gets the
                      lengths as a Tensor, the default is the T that was packed, which one sequence must have

    Returns:   (T, B, *), and (B,) int64

    Raises:
      ArgumentError: total_length is below the longest length.

    >>> pad_packed_sequence(pack_sequence([Tensor([1.0, 2.0]), Tensor([3.0])]), batch_first=True)
    (Tensor([[1., 2.],
            [3., 0.]]), Tensor([2, 1]))
    """
    x_TB, lengths = sequence.padded, sequence.lengths
    steps = x_TB.shape[0]
    if is_known(sequence):
        longest = int(order_of(sequence, "its longest").lengths.max(initial=0))
        if total_length is not None and total_length < longest:
            raise ArgumentError(f"pad_packed_sequence: total_length {total_length} is below the longest, {longest}.")
        wanted = longest if total_length is None else total_length
    else:
        wanted = steps if total_length is None else total_length
        lengths = _checked_longest(lengths, steps, total_length)
    x_TB = x_TB[:wanted]
    if padding_value != 0 or lengths is not sequence.lengths:
        x_TB = x_TB.where(is_inside(x_TB, lengths), padding_value).cast(x_TB.dtype)
    if wanted > steps:
        x_TB = x_TB.pad((0, 0) * (x_TB.ndim - 1) + (0, wanted - steps), value=padding_value)
    return x_TB.transpose(0, 1) if batch_first else x_TB, lengths


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stacks sequences of different lengths, padded to the longest.

    Args:
      sequences:      (L, *) each
      batch_first:    the result is (B, T, *), not (T, B, *)
      padding_value:  value of missing steps
      padding_side:   "right": pad at the end; "left": at the start

    Returns:   (T, B, *), dtype of the first sequence

    Raises:
      ArgumentError: there are no sequences, or padding_side is another text.

    >>> pad_sequence([Tensor([1, 2, 3]), Tensor([4])], batch_first=True, padding_value=-1)
    Tensor([[ 1,  2,  3],
            [ 4, -1, -1]])
    """
    listed = list(sequences)
    if not listed:
        raise ArgumentError("pad_sequence: got no sequences.")
    if padding_side not in ("left", "right"):
        raise ArgumentError(f'pad_sequence: padding_side must be "left" or "right", got {padding_side!r}.')
    longest, dtype = max(x.shape[0] for x in listed), listed[0].dtype
    listed = [x if x.dtype is dtype else x.cast(dtype) for x in listed]
    if _are_data(listed):
        return _padded_on_host(listed, longest, batch_first, padding_value, padding_side)
    rows = []
    for x in listed:
        missing = longest - x.shape[0]
        more = (missing, 0) if padding_side == "left" else (0, missing)
        rows.append(x.pad((0, 0) * (x.ndim - 1) + more, value=padding_value))
    return Tensor.stack(rows, 0 if batch_first else 1)


def _are_data(sequences: Sequence[Tensor]) -> bool:
    """True for stored sequences without gradients, outside a trace."""
    alike = len({(x.cell.device, x.dtype, *x.shape[1:]) for x in sequences}) == 1
    return alike and trace.get() is None and all(x.op.code is OpCode.BUFFER and not x.requires_grad for x in sequences)


def _padded_on_host(sequences: Sequence[Tensor], longest: int, batch_first: bool, value: float, side: str) -> Tensor:
    """Pads in host memory, since each combination of lengths would be a plan on the device."""
    arrays = [x.numpy() for x in sequences]
    shape = (len(arrays), longest, *arrays[0].shape[1:])
    rows = np.full(shape, value, arrays[0].dtype)
    for row, array in zip(rows, arrays):
        start = longest - len(array) if side == "left" else 0
        row[start : start + len(array)] = array
    padded = Tensor(rows, device=sequences[0].device)
    return padded if batch_first else padded.transpose(0, 1).contiguous()


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False) -> list[Tensor]:
    """Returns the sequences of a padded batch, each in its own length.

    Args:
      padded_sequences:  (T, B, *), or (B, T, *) if batch_first
      lengths:           (B,) integers
      batch_first:       the batch is the first axis

    Returns:   B tensors (length, *)

    Raises:
      ArgumentError: there are not B lengths.

    >>> unpad_sequence(Tensor([[1, 2], [4, 0]]), [2, 1], batch_first=True)
    [Tensor([1, 2]), Tensor([4])]
    """
    x_BT = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    known = lengths.reshape(-1).tolist() if isinstance(lengths, Tensor) else list(lengths)
    if len(known) != len(x_BT):
        raise ArgumentError(f"unpad_sequence: got {len(known)} lengths for {len(x_BT)} sequences.")
    return [x[:length] for x, length in zip(x_BT, known)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs `sequences`, (L, *) each; lengths must not increase unless `enforce_sorted` is False.

    >>> pack_sequence([Tensor([1.0]), Tensor([2.0, 3.0])], enforce_sorted=False).data
    Tensor([2., 1., 3.])
    """
    lengths = [x.shape[0] for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Returns the sequences in `packed_sequences`, each in its own length.

    >>> unpack_sequence(pack_sequence([Tensor([1.0, 2.0]), Tensor([3.0])]))
    [Tensor([1., 2.]), Tensor([3.])]
    """
    lengths = order_of(packed_sequences, "each sequence").lengths.tolist()
    return unpad_sequence(packed_sequences.padded, lengths)


# ---- lengths ----
def _order_of(lengths: Tensor | Sequence[int], steps: int, batch: int, enforce_sorted: bool) -> Order:
    """Returns the order of padded sequences whose lengths are known."""
    known = np.asarray(lengths.tolist() if isinstance(lengths, Tensor) else list(lengths), np.int64)
    if known.shape != (batch,) or (batch and not (known.min() >= 1 and known.max() <= steps)):
        raise ArgumentError(f"pack_padded_sequence: lengths {known.tolist()} must be {batch} numbers from 1 to {steps}.")
    if enforce_sorted and np.any(known[1:] > known[:-1]):
        raise ArgumentError(
            f"pack_padded_sequence: lengths {known.tolist()} must fall.", hint="enforce_sorted=False sorts them."
        )
    return Order(known, None if enforce_sorted else np.argsort(-known, kind="stable"))


def _checked_lengths(lengths: Tensor, x_TB: Tensor, enforce_sorted: bool) -> Tensor:
    """Returns lengths that are an input of a trace; its plan checks them at each run."""
    steps, batch = x_TB.shape[:2]
    if lengths.shape != (batch,):
        raise ArgumentError(
            f"pack_padded_sequence: lengths of shape {lengths.shape} must be {batch} numbers from 1 to {steps}."
        )
    wide = lengths.to(x_TB.device).cast(dtypes.int64)
    wide = _refused_where((wide < 1) | (wide > steps), wide, f"lengths must be {batch} numbers from 1 to {steps}.")
    if enforce_sorted and batch > 1:
        wide = _refused_where((wide[1:] > wide[:-1]).any(), wide, "lengths must fall.", "enforce_sorted=False sorts them.")
    return wide


def _checked_longest(lengths: Tensor, steps: int, total_length: int | None) -> Tensor:
    """Returns lengths that are an input of a trace; its plan checks the longest at each run."""
    longest = lengths.max()
    if total_length is None:
        fault = "in a traced function one sequence must have all {} steps that were packed."
        return _refused_where(longest < steps, lengths, fault.format(steps), f"total_length={steps}", "pad_packed_sequence")
    fault = f"total_length {total_length} is below the longest."
    return _refused_where(longest > total_length, lengths, fault, None, "pad_packed_sequence")


def _refused_where(
    is_wrong: Tensor, lengths: Tensor, fault: str, hint: str | None = None, function: str = "pack_padded_sequence"
) -> Tensor:
    """Returns the lengths; computing them raises an ArgumentError if `is_wrong`."""
    kept = guarded(lengths.read(), is_wrong.logical_not().read(), f"{function}: {fault}", hint)
    return Tensor.from_op(kept, lengths.device)
