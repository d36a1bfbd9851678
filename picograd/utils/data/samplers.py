"""The order in which a loader takes examples.

In:    a data set with a length
Out:   samplers: iterables of numbers, or of lists of numbers
Next:  picograd/utils/data/loader.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from picograd.annotations import Shown
from picograd.errors import ArgumentError
from picograd.tensor.creation.generator import Generator
from picograd.tensor.tensor import Tensor


class Sampler(Shown):
    """Base of samplers: subclasses define `__iter__`, and `__len__` where it is known.

    >>> class Even(utils.data.Sampler):
    ...     def __iter__(self): return iter(range(0, 6, 2))
    >>> [batch.tolist() for batch in utils.data.DataLoader(range(6), sampler=Even(), batch_size=2)]
    [[0, 2], [4]]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__}.__iter__: a sampler says which examples come when.")


class SequentialSampler(Sampler):
    """All numbers in order.

    Args:
      data_source:  with a length

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
    """All numbers in another random order each time, or with `replacement` numbers drawn independently.

    Args:
      data_source:  with a length
      replacement:  a number can come more than once
      num_samples:  how many to draw; None: as many as there are
      generator:    draws them; None: the default one

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
        if num_samples is not None and num_samples < 1:
            raise ArgumentError(f"RandomSampler: num_samples must be positive, got {num_samples}.")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples

    @property
    def num_samples(self) -> int:
        """How many numbers are drawn."""
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
    """Given numbers in another random order each time.

    Args:
      indices:    the numbers
      generator:  draws the order; None: the default one

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
    """Numbers drawn with probabilities in proportion to weights.

    Args:
      weights:      one for each number, not negative
      num_samples:  how many to draw
      replacement:  a number can come more than once
      generator:    draws them; None: the default one

    Raises:
      ArgumentError: num_samples is not positive.

    >>> list(utils.data.WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Generator | None = None
    ):
        if num_samples < 1:
            raise ArgumentError(f"WeightedRandomSampler: num_samples must be positive, got {num_samples}.")
        self.weights, self.num_samples = Tensor(weights).double(), num_samples
        self.replacement, self.generator = replacement, generator

    def __iter__(self) -> Iterator[int]:
        drawn = self.weights.multinomial(self.num_samples, self.replacement, generator=self.generator)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """The numbers of another sampler in lists of batch_size; the last may be shorter, with drop_last it is left out.

    Raises:
      ArgumentError: batch_size is not positive.

    >>> list(utils.data.BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool):
        if not isinstance(batch_size, int) or batch_size < 1:
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
