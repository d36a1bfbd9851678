"""Sequences of different lengths: padded to one length, or packed step after step.

In:    sequences, or a padded batch with its lengths
Out:   `PackedSequence`, which recurrent layers take, and ways there and back
Next:  picograd/nn/utils/parametrize.py

T steps, B sequences. Lengths are asked for by value, so they cannot come out of a traced function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.tensor import Tensor

__all__ = [
    "PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence", "unpack_sequence",
    "unpad_sequence",
]  # fmt: skip


class PackedSequence(NamedTuple):
    """Sequences of different lengths without padding: all first steps, then all second steps, ...

    data:             (sum of lengths, *), longest sequence first within a step
    batch_sizes:      (T,), int64: how many sequences have each step
    sorted_indices:   (B,), which sequence stands at each place, or None for the order as it is
    unsorted_indices: (B,), the place of each sequence, or None

    >>> packed = pack_sequence([Tensor([1.0, 2.0]), Tensor([3.0])])
    >>> packed.data, packed.batch_sizes
    (Tensor([1., 3., 2.]), Tensor([2, 1]))
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def to(self, *targets: Any, **named: Any) -> PackedSequence:
        """Returns the same with its data on another device or in another dtype, `targets` or `named`, as Tensor.to.

        >>> pack_sequence([Tensor([1.0])]).to(dtypes.float64).data.dtype
        float64
        """
        return self._replace(data=self.data.to(*targets, **named))


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
    steps, batch = x_TB.shape[:2]
    known = np.asarray(lengths.tolist() if isinstance(lengths, Tensor) else list(lengths), np.int64)
    if known.shape != (batch,) or (batch and not (known.min() >= 1 and known.max() <= steps)):
        raise ArgumentError(f"pack_padded_sequence: lengths {known.tolist()} must be {batch} numbers from 1 to {steps}.")
    order = None
    if not enforce_sorted:
        order = np.argsort(-known, kind="stable")
        known, x_TB = known[order], x_TB.index_select(1, Tensor(order, device=input.device))
    elif np.any(known[1:] > known[:-1]):
        raise ArgumentError(
            f"pack_padded_sequence: lengths {known.tolist()} must fall.", hint="enforce_sorted=False sorts them."
        )
    sizes = _sizes_of(known)
    data = x_TB.flatten(0, 1).index_select(0, Tensor(_places_of(sizes, batch), device=input.device))
    if order is None:
        return PackedSequence(data, Tensor(sizes))
    return PackedSequence(data, Tensor(sizes), *(Tensor(each, device=input.device) for each in (order, np.argsort(order))))


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
      total_length:   T of the result, at least the longest length; that by default

    Returns:   (T, B, *), and (B,) int64

    Raises:
      ArgumentError: total_length is below the longest length.

    >>> pad_packed_sequence(pack_sequence([Tensor([1.0, 2.0]), Tensor([3.0])]), batch_first=True)
    (Tensor([[1., 2.],
            [3., 0.]]), Tensor([2, 1]))
    """
    x_TB, lengths = padded(sequence, padding_value)
    longest = x_TB.shape[0]
    if total_length is not None:
        if total_length < longest:
            raise ArgumentError(f"pad_packed_sequence: total_length {total_length} is below the longest, {longest}.")
        more = (0, 0) * (x_TB.ndim - 1) + (0, total_length - longest)
        x_TB = x_TB.pad(more, value=padding_value)
    if sequence.unsorted_indices is not None:
        x_TB = x_TB.index_select(1, sequence.unsorted_indices)
        lengths = lengths[np.asarray(sequence.unsorted_indices.tolist(), np.int64)]
    return x_TB.transpose(0, 1) if batch_first else x_TB, Tensor(lengths)


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
    rows = []
    for x in listed:
        missing = longest - x.shape[0]
        more = (missing, 0) if padding_side == "left" else (0, missing)
        rows.append(x.pad((0, 0) * (x.ndim - 1) + more, value=padding_value))
    return Tensor.stack(rows, 0 if batch_first else 1)


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
    return unpad_sequence(*pad_packed_sequence(packed_sequences))


# ---- for recurrent layers ----
def padded(packed: PackedSequence, value: float = 0.0) -> tuple[Tensor, np.ndarray[Any, Any]]:
    """Returns (T, B, *) in the packed order, longest sequence first, and the lengths."""
    sizes = np.asarray(packed.batch_sizes.tolist(), np.int64)
    batch = int(sizes[0]) if len(sizes) else 0
    places = np.full(len(sizes) * batch, len(packed.data), np.int64)  # behind the data stands one row of padding
    places[_places_of(sizes, batch)] = np.arange(len(packed.data))
    more = (0, 0) * (packed.data.ndim - 1) + (0, 1)
    rows = packed.data.pad(more, value=value).index_select(0, Tensor(places, device=packed.data.device))
    return rows.unflatten(0, (len(sizes), batch)), (sizes[:, None] > np.arange(batch)).sum(0)


def packed_like(x_TB: Tensor, packed: PackedSequence) -> PackedSequence:
    """Returns (T, B, *), in the packed order, without what is behind the ends."""
    sizes = np.asarray(packed.batch_sizes.tolist(), np.int64)
    places = Tensor(_places_of(sizes, x_TB.shape[1]), device=x_TB.device)
    return packed._replace(data=x_TB.flatten(0, 1).index_select(0, places))


def _sizes_of(lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns how many sequences have each step."""
    sizes: np.ndarray[Any, Any] = (lengths > np.arange(lengths.max(initial=0))[:, None]).sum(1)
    return sizes


def _places_of(sizes: np.ndarray[Any, Any], batch: int) -> np.ndarray[Any, Any]:
    """Returns where in (T B, *) each packed row stands."""
    return np.flatnonzero(np.arange(batch) < sizes[:, None])
