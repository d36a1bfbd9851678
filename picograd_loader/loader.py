"""The loader: batches of examples, collated to tensors.

Batches are made in this process on demand, or ahead of time by workers. Options for pinned memory are accepted, without
effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from picograd.annotations import Shown
from picograd.errors import ArgumentError
from picograd.interrupts import finish_later
from picograd.loading import load_late
from picograd.tensor.build import is_integer
from picograd.tensor.generator import Generator
from picograd.tensor.tensor import Tensor
from picograd_loader.datasets import BatchSampler, IterableDataset, RandomSampler, SequentialSampler
from picograd_loader.fetch import Fetch, default_collate, default_convert

if TYPE_CHECKING:  # loaded on first use, by load_late
    from picograd_loader.workers import Workers

START_METHODS = ("fork", "spawn", "forkserver")
AHEAD = 2  # per worker


class DataLoader(Shown):
    """Batches of a data set.

    Args:
      dataset:        data set with a length and examples by index, or an IterableDataset
      batch_size:     examples per batch; None: single examples, not collated
      shuffle:        use a new random order each time
      sampler:        indices of the examples, in order, instead of shuffle
      batch_sampler:  lists of indices, instead of batch_size, shuffle, sampler and drop_last
      num_workers:    number of processes that make batches ahead of time; 0: this process makes them on demand
      pin_memory, pin_memory_device:  accepted, without effect
      timeout:        seconds to wait for a worker's batch; 0: without limit
      worker_init_fn: called in each worker with its number, before its first batch
      multiprocessing_context:  start method of workers: "fork", "spawn", "forkserver", or a context of multiprocessing
      prefetch_factor:     batches that each worker makes ahead; None: 2
      persistent_workers:  keep workers from one pass over the data to the next
      in_order:       False: give batches as they arrive
      collate_fn:     makes a batch from a list of examples; None: default_collate
      drop_last:      leave out a shorter last batch
      generator:      source of the order; None: the default one

    A worker has a copy of the data set and its own random numbers, those of picograd, NumPy and module random; an
    IterableDataset asks `get_worker_info` for its part of the examples. An error in a worker is raised here.

    Raises:
      ArgumentError: options that exclude each other, or a number that is too small.
      WorkerError:   (during a pass) a worker has died, or no batch arrived in time.

    >>> loader = utils.data.DataLoader(utils.data.TensorDataset(Tensor([1.0, 2.0, 3.0])), batch_size=2)
    >>> [batch.tolist() for (batch,) in loader], len(loader)
    ([[1.0, 2.0], [3.0]], 2)
    """

    def __class_getitem__(cls, types: Any) -> GenericAlias:
        return GenericAlias(cls, types)

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
        self.timeout, self.worker_init_fn, self.in_order = timeout, worker_init_fn, in_order
        self.multiprocessing_context, self.persistent_workers = multiprocessing_context, persistent_workers
        self._is_iterable, self._collates = isinstance(dataset, IterableDataset), collate_fn is None
        _check_workers(num_workers, timeout, multiprocessing_context, prefetch_factor, persistent_workers)
        self.prefetch_factor = prefetch_factor or AHEAD
        _check_settings(self._is_iterable, batch_size, bool(shuffle), sampler, batch_sampler, drop_last)
        self.collate_fn = collate_fn or (default_convert if batch_size is None else default_collate)
        if batch_sampler is not None:
            self.batch_size = None
        elif not self._is_iterable:
            if sampler is None:
                sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            if batch_size is not None:
                batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self._workers: Workers | None = None  # persistent workers

    def __iter__(self) -> Iterator[Any]:
        finish_later()  # workers of an unfinished pass may still exist
        if self.num_workers:
            return self._pass()
        fetch = self._fetch()
        return fetch.stream() if self._is_iterable else map(fetch.of, self._numbers())

    def _fetch(self) -> Fetch:
        batched = self.batch_sampler is not None
        return Fetch(self.dataset, self.collate_fn, self._collates, batched, self.batch_size, self.drop_last)

    def _numbers(self) -> Iterator[Any]:
        """Returns an iterator over the indices of each batch; over single indices without batches."""
        return iter(self.sampler if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]

    def _pass(self) -> Iterator[Any]:
        """Returns the batches of a pass by workers, new or persistent ones."""
        workers, late = self._workers, load_late("picograd_loader.workers")
        if workers is None or not len(workers):
            seed = int(Tensor.randint(0, 2**31 - 1, (), generator=self.generator).item())
            workers = late.Workers(self._fetch(), self.num_workers, seed, self.worker_init_fn, self.multiprocessing_context)
        if self.persistent_workers:
            self._workers = workers
        tasks, ahead = None if self._is_iterable else self._numbers(), self.prefetch_factor
        return late.Pass(workers, tasks, ahead, self.timeout, self.in_order, self.persistent_workers)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_workers": None}

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
    """Raises ArgumentError for options that exclude each other."""
    if batch_size is not None and (not is_integer(batch_size) or batch_size < 1):
        raise ArgumentError(f"DataLoader: batch_size must be a positive integer or None, got {batch_size!r}.")
    if is_iterable and (shuffle or sampler is not None or batch_sampler is not None):
        raise ArgumentError("DataLoader: an IterableDataset defines its order; leave out shuffle and samplers.")
    if shuffle and sampler is not None:
        raise ArgumentError("DataLoader: give one of shuffle=True and a sampler.")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ArgumentError("DataLoader: a batch_sampler excludes batch_size, shuffle, sampler and drop_last.")
    if batch_size is None and drop_last:
        raise ArgumentError("DataLoader: drop_last=True is about batches; batch_size=None makes none.")


def _check_workers(num_workers: int, timeout: float, context: Any, prefetch_factor: int | None, stay: bool) -> None:
    """Raises ArgumentError for wrong options of workers, or options of workers without any."""
    if not is_integer(num_workers) or num_workers < 0:
        raise ArgumentError(
            f"DataLoader: num_workers must be a number of processes, got {num_workers!r}.",
            "num_workers=0 makes batches in this process.",
        )
    if timeout < 0:
        raise ArgumentError(f"DataLoader: timeout must be a number of seconds, or 0 for no limit, got {timeout!r}.")
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ArgumentError(f"DataLoader: prefetch_factor must be positive, got {prefetch_factor!r}.")
    if isinstance(context, str) and context not in START_METHODS:
        raise ArgumentError(f"DataLoader: multiprocessing_context is one of {', '.join(START_METHODS)}, got {context!r}.")
    given = {"prefetch_factor": prefetch_factor is not None, "persistent_workers": stay, "multiprocessing_context": context}
    for name in [name for name, is_given in given.items() if is_given and not num_workers]:
        raise ArgumentError(f"DataLoader: {name} is a setting of workers, and num_workers is 0.")
