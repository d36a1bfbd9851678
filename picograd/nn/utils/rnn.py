"""Sequences of different lengths: padded to one length, or packed.

In:    sequences, or a padded batch with its lengths
Out:   `PackedSequence`, which recurrent layers take, and ways there and back
Next:  picograd/nn/utils/packed_sequence.py

T steps, B sequences.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.checks import Site, checked
from picograd.ir.opcode import OpCode
from picograd.nn.utils.packed_sequence import Order, PackedSequence, is_inside, is_known, order_of, packed_of
from picograd.tensor.cell import trace
from picograd.tensor.tensor import Tensor

__all__ = [
    "PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence", "unpack_sequence",
    "unpad_sequence",
]  # fmt: skip


def pack_padded_sequence(
    input: Tensor,  # noqa: A002  # PyTorch's name
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Packs a padded batch: what is behind the end of a sequence is left out.

    Args:
      input:           (T, B, *), or (B, T, *) if batch_first
      lengths:         (B,) integers, 1 to T
      batch_first:     the batch is the first axis
      enforce_sorted:  lengths must fall already; False: sequences are sorted, and unsorted at the end

    Returns:   a PackedSequence

    Raises:
      ArgumentError: lengths are not B numbers from 1 to T, or do not fall while they must.
      ShapeError:    input has less than two axes.

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
    """Returns a packed batch padded again, in its order of before, and the lengths.

    Args:
      sequence:       packed
      batch_first:    the result is (B, T, *), not (T, B, *)
      padding_value:  behind the ends
      total_length:   T of the result, at least the longest length; that by default. Where a function is traced that gets
                      lengths as a Tensor, the default is the T that was packed, and one sequence must have it

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
        x_TB = x_TB.where(is_inside(x_TB, lengths), padding_value)
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
      padding_value:  where a sequence has no steps
      padding_side:   "right": behind its end; "left": before its start

    Returns:   (T, B, *)

    Raises:
      ArgumentError: there are no sequences, or another side.

    >>> pad_sequence([Tensor([1, 2, 3]), Tensor([4])], batch_first=True, padding_value=-1)
    Tensor([[ 1,  2,  3],
            [ 4, -1, -1]])
    """
    listed = list(sequences)
    if not listed:
        raise ArgumentError("pad_sequence: got no sequences.")
    if padding_side not in ("left", "right"):
        raise ArgumentError(f'pad_sequence: padding_side must be "left" or "right", got {padding_side!r}.')
    longest = max(x.shape[0] for x in listed)
    if _are_data(listed):
        return _padded_on_host(listed, longest, batch_first, padding_value, padding_side)
    rows = []
    for x in listed:
        missing = longest - x.shape[0]
        more = (missing, 0) if padding_side == "left" else (0, missing)
        rows.append(x.pad((0, 0) * (x.ndim - 1) + more, value=padding_value))
    return Tensor.stack(rows, 0 if batch_first else 1)


def _are_data(sequences: Sequence[Tensor]) -> bool:
    """True for stored sequences without gradients, outside a trace: their lengths differ from batch to batch."""
    alike = len({(x.cell.device, x.dtype, *x.shape[1:]) for x in sequences}) == 1
    return alike and trace.get() is None and all(x.op.code is OpCode.BUFFER and not x.requires_grad for x in sequences)


def _padded_on_host(sequences: Sequence[Tensor], longest: int, batch_first: bool, value: float, side: str) -> Tensor:
    """Pads in host memory: on the device, each combination of lengths would be a plan."""
    arrays = [x.numpy() for x in sequences]
    shape = (len(arrays), longest, *arrays[0].shape[1:])
    rows = np.full(shape, value, arrays[0].dtype)
    for row, array in zip(rows, arrays):
        start = longest - len(array) if side == "left" else 0
        row[start : start + len(array)] = array
    padded = Tensor(rows, device=sequences[0].device)
    return padded if batch_first else padded.transpose(0, 1).contiguous()


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False) -> list[Tensor]:
    """Returns the sequences of a padded batch, each as long as it is.

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
        raise ArgumentError(f"unpad_sequence: {len(known)} lengths are given for {len(x_BT)} sequences.")
    return [x[:length] for x, length in zip(x_BT, known)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs `sequences`, (L, *) each; lengths must fall unless `enforce_sorted` is False.

    >>> pack_sequence([Tensor([1.0]), Tensor([2.0, 3.0])], enforce_sorted=False).data
    Tensor([2., 1., 3.])
    """
    lengths = [x.shape[0] for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Returns the sequences that `packed_sequences` was made of.

    >>> unpack_sequence(pack_sequence([Tensor([1.0, 2.0]), Tensor([3.0])]))
    [Tensor([1., 2.]), Tensor([3.])]
    """
    lengths = order_of(packed_sequences, "each sequence").lengths.tolist()
    return unpad_sequence(packed_sequences.padded, lengths)


# ---- lengths ----
def _order_of(lengths: Tensor | Sequence[int], steps: int, batch: int, enforce_sorted: bool) -> Order:
    """Returns lengths of padded sequences that are known."""
    known = np.asarray(lengths.tolist() if isinstance(lengths, Tensor) else list(lengths), np.int64)
    if known.shape != (batch,) or (batch and not (known.min() >= 1 and known.max() <= steps)):
        raise ArgumentError(f"pack_padded_sequence: lengths {known.tolist()} must be {batch} numbers from 1 to {steps}.")
    if enforce_sorted and np.any(known[1:] > known[:-1]):
        raise ArgumentError(
            f"pack_padded_sequence: lengths {known.tolist()} must fall.", hint="enforce_sorted=False sorts them."
        )
    return Order(known, None if enforce_sorted else np.argsort(-known, kind="stable"))


def _checked_lengths(lengths: Tensor, x_TB: Tensor, enforce_sorted: bool) -> Tensor:
    """Returns lengths that are an input of what is traced, which are looked at when it runs."""
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
    """Returns lengths that are an input of what is traced, of which the longest is looked at when it runs."""
    longest = lengths.max()
    if total_length is None:
        fault = "in a traced function one sequence must have all {} steps that were packed."
        return _refused_where(longest < steps, lengths, fault.format(steps), f"total_length={steps}", "pad_packed_sequence")
    fault = f"total_length {total_length} is below the longest."
    return _refused_where(longest > total_length, lengths, fault, None, "pad_packed_sequence")


def _refused_where(
    is_wrong: Tensor, lengths: Tensor, fault: str, hint: str | None = None, function: str = "pack_padded_sequence"
) -> Tensor:
    """Returns the lengths, with an ArgumentError where something is wrong when they are computed."""
    site = Site(f"{function}: {fault}", hint, of_values=True)
    return lengths + Tensor.from_op(checked(is_wrong.cast(dtypes.int64).read(), 1, site), lengths.device)
