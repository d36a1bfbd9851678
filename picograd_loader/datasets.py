"""Data sets: examples by index, or by iteration; samplers: the order in which a loader takes them.

A data set may have a faster way to a batch than single examples: `batch(numbers)`, which the loader calls with its default
collate_fn. For tensors it is one gather each.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from types import GenericAlias
from typing import Any

import numpy as np

from picograd.annotations import Shown, shown
from picograd.errors import ArgumentError, IndexingError, ShapeError
from picograd.tensor.arguments import at_least
from picograd.tensor.build import is_integer
from picograd.tensor.generator import Generator
from picograd.tensor.tensor import Tensor


class Dataset(Shown):
    """Base of data sets with examples by index: subclasses define `__getitem__`, and usually `__len__`.

    >>> class Squares(utils.data.Dataset):
    ...     def __len__(self): return 3
    ...     def __getitem__(self, number): return number * number
    >>> list(utils.data.DataLoader(Squares(), batch_size=2))
    [Tensor([0, 1]), Tensor([4])]
    """

    def __class_getitem__(cls, types: Any) -> GenericAlias:
        return GenericAlias(cls, types)  # Dataset[Tensor], in typed programs

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.__getitem__: a data set must define its examples.")

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Base of data sets that are iterated: subclasses define `__iter__`.

    >>> class Squares(utils.data.IterableDataset):
    ...     def __iter__(self): return (number * number for number in range(3))
    >>> list(utils.data.DataLoader(Squares(), batch_size=2))
    [Tensor([0, 1]), Tensor([4])]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__}.__iter__: a data set must define its examples.")

    def __add__(self, other: Any) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset):
    """Examples from the rows of tensors: example i is (a[i], b[i], ...).

    Raises:
      ArgumentError: no tensors are given.
      ShapeError:    they have different numbers of rows.

    >>> x, y = Tensor([[1.0], [2.0], [3.0]]), Tensor([0, 1, 0])
    >>> data = utils.data.TensorDataset(x, y)
    >>> len(data), data[1]
    (3, (Tensor([2.]), Tensor(1)))
    """

    def __init__(self, *tensors: Tensor):
        if not tensors:
            raise ArgumentError("TensorDataset: needs at least one tensor.")
        counts = {tensor.shape[0] if tensor.shape else None for tensor in tensors}
        if len(counts) != 1 or None in counts:
            shapes = ", ".join(str(tensor.shape) for tensor in tensors)
            raise ShapeError(f"TensorDataset: tensors of shapes {shapes} have no common number of rows.")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])

    def batch(self, numbers: Sequence[int]) -> list[Tensor]:
        """Returns the rows `numbers` of all tensors.

        >>> utils.data.TensorDataset(Tensor([1.0, 2.0, 3.0])).batch([2, 0])
        [Tensor([3., 1.])]
        """
        rows = np.asarray(numbers, np.int64)
        return [tensor[rows] for tensor in self.tensors]


class StackDataset(Dataset):
    """Data sets in parallel: example i has that of each, as a tuple, or by name as a dict.

    Args:
      args, kwargs:  data sets of one length, all without names or all with names

    Raises:
      ArgumentError: no data sets, names for only some, or lengths that differ or are missing.

    >>> data = utils.data.StackDataset(x=[1, 2], y=[3, 4])
    >>> data[1]
    {'x': 2, 'y': 4}
    """

    def __init__(self, *args: Any, **kwargs: Any):
        if bool(args) == bool(kwargs):
            raise ArgumentError("StackDataset: needs data sets, all of them with names or all without.")
        self.datasets: Any = kwargs or args
        lengths = [_length_of("StackDataset", part) for part in (kwargs.values() if kwargs else args)]
        if len(set(lengths)) != 1:
            raise ArgumentError(f"StackDataset: data sets have lengths {lengths}; they must be equal.")
        self._length = lengths[0]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: part[index] for name, part in self.datasets.items()}
        return tuple(part[index] for part in self.datasets)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset):
    """Concatenated data sets.

    Args:
      datasets:  data sets with lengths and examples by index

    Raises:
      ArgumentError: no data sets, or one without a length.
      IndexingError: (of an item) the index is out of range.

    >>> data = utils.data.ConcatDataset([[1, 2], [3]])
    >>> len(data), data[2], data[-3]
    (3, 3, 1)
    """

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("ConcatDataset: needs at least one data set.")
        self.cumulative_sizes = list(accumulate(_length_of("ConcatDataset", part) for part in self.datasets))

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexingError(f"ConcatDataset: there is no example {index} of {len(self)}.")
        number = bisect.bisect_right(self.cumulative_sizes, place)
        return self.datasets[number][place - (self.cumulative_sizes[number - 1] if number else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset):
    """Concatenated iterables.

    Args:
      datasets:  the iterables

    >>> list(utils.data.ChainDataset([[1, 2], [3]]))
    [1, 2, 3]
    """

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        return sum(len(part) for part in self.datasets)


class Subset(Dataset):
    """A subset of a data set.

    Args:
      dataset:  a data set with examples by index
      indices:  indices of the subset

    >>> utils.data.Subset(["a", "b", "c"], [2, 0])[0]
    'c'
    """

    def __init__(self, dataset: Any, indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[[self.indices[i] for i in index] if isinstance(index, list) else self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)

    def __getattr__(self, name: str) -> Any:
        if name != "batch":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        batch = self.dataset.batch  # AttributeError if the data set itself has none
        return lambda numbers: batch([self.indices[i] for i in numbers])


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Generator | None = None) -> list[Subset]:
    """Splits a data set at random into disjoint parts.

    Args:
      dataset:    a data set with a length
      lengths:    numbers of examples, or fractions that sum to 1; the remainder goes to the first parts
      generator:  source of the random order; None: the default one

    Raises:
      ArgumentError: the lengths do not sum to the data set's, or it has none.

    >>> [len(part) for part in utils.data.random_split(range(10), [0.75, 0.25])]
    [8, 2]
    """
    total = _length_of("random_split", dataset)
    are_fractions = any(isinstance(length, float) for length in lengths) and math.isclose(sum(lengths), 1.0)
    counts = [math.floor(total * length) if are_fractions else int(length) for length in lengths]
    if are_fractions:
        for place in range(total - sum(counts)):
            counts[place] += 1
    if sum(counts) != total or min(lengths) < 0:
        raise ArgumentError(
            f"random_split: the lengths {list(lengths)} must not be negative, and must add up to the {total} examples."
        )
    order = Tensor.randperm(total, generator=generator).tolist()
    return [Subset(dataset, order[end - count : end]) for end, count in zip(accumulate(counts), counts)]


def _length_of(function: str, dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError:
        raise ArgumentError(f"{function}: a data set must have a length, got {shown(dataset)}.") from None


# ---- samplers ----
class Sampler(Shown):
    """Base of samplers: subclasses define `__iter__`, and `__len__` if it is known.

    >>> class Even(utils.data.Sampler):
    ...     def __iter__(self): return iter(range(0, 6, 2))
    >>> [batch.tolist() for batch in utils.data.DataLoader(range(6), sampler=Even(), batch_size=2)]
    [[0, 2], [4]]
    """

    def __class_getitem__(cls, types: Any) -> GenericAlias:
        return GenericAlias(cls, types)

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__}.__iter__: a sampler must define the order of examples.")


class SequentialSampler(Sampler):
    """All indices in order.

    Args:
      data_source:  a data set with a length

    >>> list(utils.data.SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Any):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """All indices in a new random order each time, or with `replacement` independent draws.

    Args:
      data_source:  a data set with a length
      replacement:  allow repeated indices
      num_samples:  number of draws; None: the length
      generator:    source of the draws; None: the default one

    Raises:
      ArgumentError: num_samples is not positive.

    >>> sorted(utils.data.RandomSampler("abc"))
    [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ):
        if num_samples is not None:
            at_least("RandomSampler", "num_samples", num_samples, 1)
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples

    @property
    def num_samples(self) -> int:
        """Number of draws."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        count, left = len(self.data_source), self.num_samples
        if self.replacement:
            yield from Tensor.randint(0, count, (left,), generator=self.generator).tolist()
            return
        while left > 0:
            order = Tensor.randperm(count, generator=self.generator).tolist()[:left]
            yield from order
            left -= len(order)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Given indices in a new random order each time.

    Args:
      indices:    the indices
      generator:  source of the order; None: the default one

    >>> sorted(utils.data.SubsetRandomSampler([4, 2]))
    [2, 4]
    """

    def __init__(self, indices: Sequence[int], generator: Generator | None = None):
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        order = Tensor.randperm(len(self.indices), generator=self.generator).tolist()
        return (self.indices[place] for place in order)

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Indices drawn with probabilities proportional to weights.

    Args:
      weights:      nonnegative, one per index
      num_samples:  number of draws
      replacement:  allow repeated indices
      generator:    source of the draws; None: the default one

    Raises:
      ArgumentError: num_samples is not positive.

    >>> list(utils.data.WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Generator | None = None
    ):
        at_least("WeightedRandomSampler", "num_samples", num_samples, 1)
        self.weights, self.num_samples = Tensor(weights).double(), num_samples
        self.replacement, self.generator = replacement, generator

    def __iter__(self) -> Iterator[int]:
        drawn = self.weights.multinomial(self.num_samples, self.replacement, generator=self.generator)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Another sampler's indices in lists of batch_size; a shorter last list is left out with drop_last.

    Raises:
      ArgumentError: batch_size is not positive.

    >>> list(utils.data.BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool):
        if not is_integer(batch_size) or batch_size < 1:
            raise ArgumentError(f"BatchSampler: batch_size must be a positive integer, got {batch_size!r}.")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for number in self.sampler:
            batch.append(number)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
