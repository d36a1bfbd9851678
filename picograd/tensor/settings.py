"""Settings of the process by PyTorch's names: the dtype of new floats, threads of the CPU, reproducibility.

In:    what users set
Out:   `set_default_dtype` and the others; PICOGRAD_THREADS (config.py), `default_float` (dtype.py)
Next:  picograd/tensor/creation/window_functions.py
"""

from __future__ import annotations

from picograd import config
from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, DTypeError
from picograd.tensor.arguments import at_least
from picograd.tensor.change import last_change

__all__ = [
    "are_deterministic_algorithms_enabled", "get_default_dtype", "get_num_threads", "set_default_dtype",
    "set_num_threads", "use_deterministic_algorithms",
]  # fmt: skip


def get_default_dtype() -> DType:
    """Returns the dtype of Python's floats, and of new tensors for which none is given: float32 until another is set.

    >>> get_default_dtype()
    float32
    """
    return dtypes.default_float


def set_default_dtype(d: DType) -> None:
    """Makes `d` the dtype of Python's floats, and of new tensors and layers for which none is given, in every thread.

    Tensors that exist keep their dtype; a jitted function is captured again.

    Raises:
      DTypeError: it is no float of 16, 32 or 64 bits.

    >>> set_default_dtype(pg.float64)
    >>> Tensor([1.0]).dtype, pg.nn.Linear(2, 3).weight.dtype
    (float64, float64)
    >>> set_default_dtype(pg.float32)
    """
    found = dtypes.named("set_default_dtype", d)
    if not found.is_float or found.bits < 16:
        raise DTypeError(f"set_default_dtype: needs a float of 16, 32 or 64 bits, got {found}.", hint="pg.float64")
    dtypes.default_float = found
    last_change.note()


def set_num_threads(number: int) -> None:
    """Says how many threads the CPU computes with: for what is computed for the first time from here on.

    A plan keeps the threads that it was made for. Results have the same bits for any number of threads.

    Raises:
      ArgumentError: it is below 1, or above 1024.

    >>> before = pg.get_num_threads()
    >>> pg.set_num_threads(1)
    >>> pg.get_num_threads()
    1
    >>> pg.set_num_threads(before)
    """
    count = at_least("set_num_threads", "number", number, 1)
    if count > config.THREADS_MAX:
        raise ArgumentError(f"set_num_threads: number must be at most {config.THREADS_MAX}, got {count}.")
    config.set_num_threads(count)


def get_num_threads() -> int:
    """Returns how many threads the CPU computes with: PICOGRAD_THREADS, or one for each processor of this process.

    >>> pg.get_num_threads() >= 1
    True
    """
    return config.num_threads()


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Does nothing: every run gives the same bits, with any settings and any number of threads.

    Args:
      mode:       True or False
      warn_only:  has no effect

    >>> pg.use_deterministic_algorithms(True)
    """


def are_deterministic_algorithms_enabled() -> bool:
    """Returns True: every run gives the same bits.

    >>> pg.are_deterministic_algorithms_enabled()
    True
    """
    return True
