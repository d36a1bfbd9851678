"""The loader: batches of examples, collated to tensors.

In:    a data set, a batch size or a sampler
Out:   `DataLoader`, `default_collate`, `default_convert`
Next:  picograd/nn/module.py

Batches are made when they are asked for, in this process: what makes them wait is the reading of examples, which a program
can do ahead in threads of its own. Settings of worker processes and of pinned memory are taken, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from picograd.annotations import Shown
from picograd.engine.lying import lying_on_host
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.opcode import OpCode
from picograd.tensor.cell import trace
from picograd.tensor.creation.generator import Generator
from picograd.tensor.tensor import Tensor
from picograd.utils.data.datasets import IterableDataset
from picograd.utils.data.samplers import BatchSampler, RandomSampler, SequentialSampler


class DataLoader(Shown):
    """Batches of a data set.

    Args:
      dataset:        with a length and items by number, or an IterableDataset
      batch_size:     examples in a batch; None: single examples, not collated
      shuffle:        in another random order each time
      sampler:        the numbers of examples, in order, instead of shuffle
      batch_sampler:  lists of numbers, instead of batch_size, shuffle, sampler and drop_last
      num_workers, pin_memory, timeout, worker_init_fn, multiprocessing_context, prefetch_factor, persistent_workers,
                      pin_memory_device, in_order:  taken, of no effect
      collate_fn:     makes a batch of a list of examples; None: default_collate
      drop_last:      leaves out a last batch that is shorter
      generator:      draws the order; None: the default one

    Raises:
      ArgumentError: settings that exclude each other, or a batch_size that is not positive.

    >>> loader = utils.data.DataLoader(utils.data.TensorDataset(Tensor([1.0, 2.0, 3.0])), batch_size=2)
    >>> [batch.tolist() for (batch,) in loader], len(loader)
    ([[1.0, 2.0], [3.0]], 2)
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ):
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.num_workers, self.pin_memory, self.generator = num_workers, pin_memory, generator
        self._is_iterable = isinstance(dataset, IterableDataset)
        _check_settings(self._is_iterable, batch_size, bool(shuffle), sampler, batch_sampler, drop_last)
        self._collates = collate_fn is None  # then a data set's own way to a batch will do
        self.collate_fn = collate_fn or (default_convert if batch_size is None else default_collate)
        if batch_sampler is not None:
            self.batch_size = None
        elif not self._is_iterable:
            if sampler is None:
                sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            if batch_size is not None:
                batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.sampler, self.batch_sampler = sampler, batch_sampler

    def __iter__(self) -> Iterator[Any]:
        if self._is_iterable:
            yield from self._of_an_iterable()
        elif self.batch_sampler is None:
            for number in self.sampler:  # type: ignore[union-attr]
                yield self.collate_fn(self.dataset[number])
        else:
            batch = getattr(self.dataset, "batch", None) if self._collates else None
            for numbers in self.batch_sampler:
                yield self.collate_fn(self._examples(numbers)) if batch is None else batch(numbers)

    def _of_an_iterable(self) -> Iterator[Any]:
        examples = iter(self.dataset)
        if self.batch_size is None:
            yield from map(self.collate_fn, examples)
            return
        while batch := list(islice(examples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)

    def _examples(self, numbers: Sequence[int]) -> list[Any]:
        several = getattr(self.dataset, "__getitems__", None)  # PyTorch's name for many examples at once
        return [self.dataset[number] for number in numbers] if several is None else several(numbers)

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        if not self._is_iterable:
            return len(self.sampler)  # type: ignore[arg-type]
        count = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


def _check_settings(
    is_iterable: bool, batch_size: int | None, shuffle: bool, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    """Raises ArgumentError where settings exclude each other."""
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise ArgumentError(f"DataLoader: batch_size must be a positive integer or None, got {batch_size!r}.")
    if is_iterable and (shuffle or sampler is not None or batch_sampler is not None):
        raise ArgumentError("DataLoader: an IterableDataset has an order of its own, without shuffle or samplers.")
    if shuffle and sampler is not None:
        raise ArgumentError("DataLoader: shuffle=True makes a sampler, and one is given; give one of them.")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ArgumentError("DataLoader: a batch_sampler excludes batch_size, shuffle, sampler and drop_last.")
    if batch_size is None and drop_last:
        raise ArgumentError("DataLoader: drop_last=True says what to do with the last batch; batch_size=None makes none.")


# ---- from examples to a batch ----
def default_collate(batch: Sequence[Any]) -> Any:
    """Returns a batch of examples as one: tensors, arrays and numbers stacked, containers item by item, texts as a list.

    Floats of Python become float64, as PyTorch has it.

    Raises:
      ShapeError:    tensors of different shapes, or sequences of different lengths.
      ArgumentError: examples of another type.

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
        raise ArgumentError(
            f"default_collate: makes batches of tensors, arrays, numbers, texts, dicts and sequences, got {first!r}.",
            hint="DataLoader(..., collate_fn=...) makes them of anything.",
        )
    if len({len(example) for example in batch}) != 1:
        raise ShapeError(f"default_collate: sequences of lengths {[len(example) for example in batch]} make no batch.")
    columns = [default_collate(column) for column in zip(*batch)]
    return type(first)(*columns) if hasattr(first, "_fields") else columns


def _stacked(examples: Sequence[Tensor]) -> Tensor:
    """Returns examples as one tensor: rows of one tensor in one plan, others copied or computed one by one.

    Why: examples that were flipped at random, or not, would make a plan for each combination in a batch.
    """
    if len({example.cell for example in examples}) == 1:
        return Tensor.stack(list(examples))
    if trace.get() is None and not any(example.requires_grad for example in examples):
        arrays = [lying_on_host(example.op) for example in examples]
        found = [array for array in arrays if array is not None]
        if len(found) == len(arrays) and len({(array.shape, array.dtype) for array in found}) == 1:
            return Tensor(np.stack(found), dtype=examples[0].dtype, device=examples[0].device)
    return Tensor.stack([x if x.op.code is OpCode.BUFFER else x.contiguous().realize() for x in examples])


def default_convert(example: Any) -> Any:
    """Returns an example with its arrays as tensors.

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
