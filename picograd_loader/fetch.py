"""Batches from indices: the work of a loader itself, or of its workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from picograd.engine.host_memory import value_on_host
from picograd.errors import ArgumentError, ArgumentTypeError, ShapeError
from picograd.ir.opcode import OpCode
from picograd.record import Record
from picograd.tensor.cell import pending, trace
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor


class Fetch(Record):
    """The way in which a loader makes a batch.

    dataset:     the examples
    collate_fn:  makes a batch from a list of examples; without batches, converts one example
    collates:    collate_fn is the default: then a data set's own batch() may be used
    batched:     indices come in lists
    batch_size:  for a data set that is iterated; None: single examples
    drop_last:   for such a data set: leave out a shorter last batch
    """

    dataset: Any
    collate_fn: Callable[[Any], Any]
    collates: bool
    batched: bool
    batch_size: int | None
    drop_last: bool

    def of(self, numbers: Any) -> Any:
        """Returns the batch for a list of indices, or the example for a single index.

        Raises:
          ArgumentError: the data set or collate_fn raises StopIteration, which would end the pass silently.
        """
        try:
            return self._made(numbers)
        except StopIteration as error:
            fact = "DataLoader: making an example raised StopIteration, which would end the pass silently."
            raise ArgumentError(fact, hint="next(iterator, default) in __getitem__, or an IterableDataset.") from error

    def _made(self, numbers: Any) -> Any:
        if not self.batched:
            return self.collate_fn(self.dataset[numbers])
        batch = getattr(self.dataset, "batch", None) if self.collates else None
        if batch is not None:
            return batch(numbers)
        several = getattr(self.dataset, "__getitems__", None)  # PyTorch's name for several examples at once
        examples = [written(self.dataset[number]) for number in numbers] if several is None else several(numbers)
        return self.collate_fn(examples)

    def stream(self) -> Iterator[Any]:
        """Yields the batches of a data set that is iterated."""
        examples = map(written, self.dataset)
        if self.batch_size is None:
            yield from map(self.collate_fn, examples)
            return
        while batch := list(islice(examples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)


# ---- workers ----
class WorkerInfo(Record):
    """Properties of a worker.

    id:           its number, from 0
    num_workers:  number of workers
    seed:         seed of its random numbers
    dataset:      its copy of the data set
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None  # of this process, if it is a worker


def become_worker(info: WorkerInfo) -> None:
    """Makes this process a worker."""
    global _info
    _info = info


def get_worker_info() -> WorkerInfo | None:
    """Returns the properties of the calling worker: id, num_workers, seed, dataset; None outside workers.

    Each worker iterates over an IterableDataset, which can ask here for its part of the examples.

    >>> class Count(utils.data.IterableDataset):
    ...     def __iter__(self):
    ...         worker = utils.data.get_worker_info()
    ...         return iter(range(4) if worker is None else range(worker.id, 4, worker.num_workers))
    >>> [batch.tolist() for batch in utils.data.DataLoader(Count(), batch_size=2)]
    [[0, 1], [2, 3]]
    """
    return _info


# ---- from examples to a batch ----
def written(example: Any) -> Any:
    """Returns an example, computed now if it has pending writes in place.

    Why: these would join the next plan, and each mixture of examples in a batch, such as words of different lengths written
    into rows of zeros, would need its own plan.
    """
    if pending.writes.data:
        realize(_tensors(example))
    return example


def _tensors(example: Any) -> Iterator[Tensor]:
    """Yields the tensors within an example."""
    if isinstance(example, Tensor):
        yield example
    elif isinstance(example, Mapping | tuple | list):
        for value in example.values() if isinstance(example, Mapping) else example:
            yield from _tensors(value)


def default_collate(batch: Sequence[Any]) -> Any:
    """Collates a list of examples, `batch`: tensors, arrays and numbers are stacked, containers item by item, texts listed.

    Python floats become float64, as in PyTorch.

    Raises:
      ShapeError:    tensors of different shapes, or sequences of different lengths.
      ArgumentTypeError: examples of an unsupported type.

    >>> utils.data.default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
    {'x': Tensor([1, 2]), 'name': ['a', 'b']}
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return _stacked(batch)
    if isinstance(first, np.ndarray | np.generic | bool | int | float):
        arrays = [np.asarray(example) for example in batch]
        shapes = sorted({array.shape for array in arrays})
        if len(shapes) > 1:
            fact = f"default_collate: arrays of shapes {', '.join(map(str, shapes))} make no batch."
            raise ShapeError(fact, "collate_fn=... pads them, such as nn.utils.rnn.pad_sequence.")
        return Tensor(np.stack(arrays))
    if isinstance(first, Mapping):
        return {name: default_collate([example[name] for example in batch]) for name in first}
    if isinstance(first, str | bytes):
        return list(batch)
    if not isinstance(first, Sequence):
        raise ArgumentTypeError(
            f"default_collate: makes batches of tensors, arrays, numbers, texts, dicts and sequences, got {first!r}.",
            hint="DataLoader(..., collate_fn=...) makes them of anything.",
        )
    if len({len(example) for example in batch}) != 1:
        raise ShapeError(f"default_collate: sequences of lengths {[len(example) for example in batch]} make no batch.")
    columns = [default_collate(column) for column in zip(*batch)]
    return type(first)(*columns) if hasattr(first, "_fields") else columns


def _stacked(examples: Sequence[Tensor]) -> Tensor:
    """Returns examples as one tensor: rows of one tensor by one plan, others copied or computed one by one.

    Why: examples that may have been flipped at random would need a plan per combination in a batch.
    """
    if len({example.cell for example in examples}) == 1:
        return Tensor.stack(list(examples))
    if trace.get() is None and not any(example.requires_grad for example in examples):
        arrays = [value_on_host(example.op) for example in examples]
        found = [array for array in arrays if array is not None]
        if len(found) == len(arrays) and len({(array.shape, array.dtype) for array in found}) == 1:
            return Tensor(np.stack(found), dtype=examples[0].dtype, device=examples[0].device)
    return Tensor.stack([x if x.op.code is OpCode.BUFFER else x.contiguous().realize() for x in examples])


def default_convert(example: Any) -> Any:
    """Returns an example with arrays converted to tensors.

    >>> import numpy as np
    >>> utils.data.default_convert({"x": np.array([1, 2]), "name": "a"})
    {'x': Tensor([1, 2]), 'name': 'a'}
    """
    if isinstance(example, np.ndarray | np.generic):
        return Tensor(example)
    if isinstance(example, Mapping):
        return {name: default_convert(value) for name, value in example.items()}
    if isinstance(example, tuple) and hasattr(example, "_fields"):
        return type(example)(*map(default_convert, example))
    if isinstance(example, tuple | list):
        return [default_convert(value) for value in example]
    return example
