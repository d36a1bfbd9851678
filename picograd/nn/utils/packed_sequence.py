"""A packed sequence: a padded batch and its lengths, which looks like all first steps, then all second steps, ...

In:    a padded batch and lengths, or packed rows
Out:   `PackedSequence`;  `Order`: its lengths as numbers;  `is_inside`: which sequences have each step
Next:  picograd/nn/utils/parametrize.py

T steps, B sequences. The batch and its lengths are Tensors, so inputs of plans: one plan serves all lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from picograd.errors import ArgumentError, JitError
from picograd.record import Record
from picograd.tensor.cell import trace
from picograd.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]


class Order(Record):
    """Lengths of sequences as numbers of the host, and the order in which they are packed.

    lengths:  (B,), in the order of the padded batch
    places:   (B,): which sequence is packed first, second, ...; None: as they are
    """

    lengths: Array
    places: Array | None

    @property
    def sizes(self) -> Array:
        """How many sequences have each step, (longest,)."""
        found: Array = (self.lengths > np.arange(self.lengths.max(initial=0))[:, None]).sum(1)
        return found

    def rows(self) -> Array:
        """Returns the row in (T B, *) of each packed row."""
        batch = len(self.lengths)
        places = np.arange(batch) if self.places is None else self.places
        steps = np.arange(len(self.sizes))[:, None]
        found: Array = (steps * batch + places)[steps < self.lengths[places]]
        return found


@dataclass(init=False, eq=False, repr=False)
class PackedSequence:
    """Sequences of different lengths, as recurrent layers take them; unpacks like PyTorch's tuple of four.

    padded:           (T, B, *), zeros behind the ends
    lengths:          (B,), int64
    sorted_indices:   (B,): which sequence is packed first, second, ...; None for the order as it is

    From these it is made, when somebody asks for it (a copy, to be read):

    data:             (sum of lengths, *): all first steps, then all second steps, ..., the longest sequence first
    batch_sizes:      (longest,), int64: how many sequences have each step
    unsorted_indices: (B,): the place of each sequence, or None

    Where a function is traced that gets lengths as a Tensor, data and batch_sizes have no shape, and asking for them is an
    error. All that takes and gives packed sequences does without.

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
          batch_sizes:       (longest,), which never rise
          sorted_indices:    (B,), or None
          unsorted_indices:  (B,), where each of them is in the other; found from it if None

        Raises:
          ArgumentError: batch_sizes rise, or do not add up to the rows of data; or indices are missing.
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
                    f"PackedSequence: sorted_indices {places.tolist()} must have each of 0 to {len(lengths) - 1} once."
                )
            lengths = lengths[np.argsort(places)]
        order = Order(lengths, places)
        self._set(padded(data, order), Tensor(lengths, device=data.device), sorted_indices, order)

    def _set(self, padded: Tensor, lengths: Tensor, sorted_indices: Tensor | None, order: Order | None) -> None:
        self.padded, self.lengths, self.sorted_indices = padded, lengths, sorted_indices
        self._order: Order | None = order  # where the lengths are known
        self._data: Tensor | None = None  # once it is asked for

    @property
    def data(self) -> Tensor:
        """The packed rows, (sum of lengths, *)."""
        if self._data is not None:
            return self._data
        rows = Tensor(order_of(self, "data").rows(), device=self.padded.device)
        data = self.padded.flatten(0, 1).index_select(0, rows)
        if trace.get() is None:  # a trace lets nobody keep what is made in it
            self._data = data
        return data

    @property
    def batch_sizes(self) -> Tensor:
        """How many sequences have each step, (longest,)."""
        return Tensor(order_of(self, "batch_sizes").sizes)

    @property
    def unsorted_indices(self) -> Tensor | None:
        """The place of each sequence among the packed ones, (B,)."""
        if self.sorted_indices is None:
            return None
        if self._order is None or self._order.places is None:
            return self.sorted_indices.argsort()
        return Tensor(np.argsort(self._order.places), device=self.sorted_indices.device)

    def to(self, *targets: Any, **named: Any) -> PackedSequence:
        """Returns the same with its data on another device or in another dtype, `targets` or `named`, as Tensor.to.

        >>> nn.utils.rnn.pack_sequence([Tensor([1.0])]).to(dtypes.float64).data.dtype
        float64
        """
        padded, order = self.padded.to(*targets, **named), self.sorted_indices
        return packed_of(
            padded, self.lengths.to(padded.device), None if order is None else order.to(padded.device), self._order
        )

    # ---- a tuple of four, as PyTorch's is ----
    def __iter__(self) -> Iterator[Tensor | None]:
        return iter((self.data, self.batch_sizes, self.sorted_indices, self.unsorted_indices))

    def __getitem__(self, place: int) -> Tensor | None:
        return tuple(self)[place]

    def __len__(self) -> int:
        return 4

    def _replace(self, **named: Any) -> PackedSequence:
        """Returns the same with others of its four parts; of another `data`, packed in the same way, nothing is read."""
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
        # NOTE: whoever copies it puts other Tensors in place of these, of which the numbers of the host would be untrue.
        made = PackedSequence.__new__(PackedSequence)
        made._set(self.padded, self.lengths, self.sorted_indices, None)
        return made


# ---- for what takes and gives them ----
def packed_of(x_TB: Tensor, lengths: Tensor, sorted_indices: Tensor | None, order: Order | None) -> PackedSequence:
    """Returns sequences whose padded batch is `x_TB` up to their ends; `order` where the lengths are known."""
    made = PackedSequence.__new__(PackedSequence)
    made._set(x_TB.where(is_inside(x_TB, lengths), 0), lengths, sorted_indices, order)
    return made


def packed_like(x_TB: Tensor, packed: PackedSequence) -> PackedSequence:
    """Returns (T, B, *), of the lengths and the order of `packed`."""
    return packed_of(x_TB, packed.lengths, packed.sorted_indices, packed._order)


def is_known(packed: PackedSequence) -> bool:
    """Returns whether the lengths can be had as numbers now."""
    return packed._order is not None or trace.get() is None


def order_of(packed: PackedSequence, wanted: str) -> Order:
    """Returns the lengths as numbers, for whoever makes what is `wanted`.

    Raises:
      JitError: a function is traced that gets them as a Tensor.
    """
    if packed._order is None:
        if trace.get() is not None:
            raise JitError(
                f"jit: {wanted} depends on the lengths of a packed sequence, which are an input of what is traced.",
                "pad_packed_sequence(packed, total_length=T) has all steps, with zeros behind the ends.",
            )
        places = None if packed.sorted_indices is None else np.asarray(packed.sorted_indices.tolist(), np.int64)
        packed._order = Order(np.asarray(packed.lengths.tolist(), np.int64), places)
    return packed._order


def is_inside(x_TB: Tensor, lengths: Tensor) -> Tensor:
    """Returns (T, B, 1, ...) bools: which sequences have each step."""
    steps = Tensor.arange(x_TB.shape[0], device=x_TB.device).unsqueeze(1)
    return (steps < lengths).reshape(*x_TB.shape[:2], *[1] * (x_TB.ndim - 2))


def padded(data: Tensor, order: Order) -> Tensor:
    """Returns packed rows as (longest, B, *), zeros behind the ends."""
    steps, batch = len(order.sizes), len(order.lengths)
    places = np.full(steps * batch, len(data), np.int64)  # behind the data is one row of zeros
    places[order.rows()] = np.arange(len(data))
    more = (0, 0) * (data.ndim - 1) + (0, 1)
    return data.pad(more).index_select(0, Tensor(places, device=data.device)).unflatten(0, (steps, batch))
