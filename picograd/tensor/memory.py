"""How much memory tensors take, under the names PyTorch has for it.

In:    a device's name
Out:   `memory_allocated`, `max_memory_allocated`, `reset_peak_memory_stats`
Next:  picograd/tensor/explain.py

Counted is what was asked for: the bytes of every buffer that is alive, and while a plan runs on the CPU those of its
temporaries. Memory that is kept for the next plan does not count between two runs; results of up to 4 KiB that a jitted
function keeps to write the next ones to do.

What kernels work in is no tensor: operands of a product, packed; pairs that are sorted. PyTorch's figures for the CPU leave
out the same, which its BLAS and oneDNN allocate for themselves. `scratch=True` counts it too, but for what a thread packs
on its own stack. A GPU's plans have their temporaries and scratch in one block, one plan after the other: while a plan is
submitted, all that it needs of that is in every figure.
"""

from __future__ import annotations

from picograd.engine.devices import memory_of
from picograd.ir.backend import MemoryUse
from picograd.tensor.exchange.host import device_or_default


def memory_allocated(device: str | None = None) -> int:
    """Returns the bytes that tensors hold on a device now.

    memory_allocated = sum of nbytes of live buffers + arenas of plans that run        (memory kept for reuse is not in it)

    Args:
      device:  name of a device; default PICOGRAD_DEVICE

    Raises:
      DeviceError: there is no such device, or this machine cannot use it.

    >>> import picograd as pg
    >>> x = pg.Tensor([1.0, 2.0, 3.0])
    >>> pg.memory_allocated() >= x.nbytes
    True
    """
    return _memory(device).in_use


def max_memory_allocated(device: str | None = None, *, scratch: bool = False) -> int:
    """Returns the most bytes that tensors held on a device at one time.

    max_memory_allocated = max over time of memory_allocated, since reset_peak_memory_stats or the start

    Args:
      device:   name of a device; default PICOGRAD_DEVICE
      scratch:  whether what kernels work in, such as packed operands of products, counts too

    Raises:
      DeviceError: there is no such device, or this machine cannot use it.

    >>> import picograd as pg
    >>> pg.reset_peak_memory_stats()
    >>> total = (pg.Tensor([1.0, 2.0]) * 2).sum().realize()
    >>> pg.max_memory_allocated(scratch=True) >= pg.max_memory_allocated() >= pg.memory_allocated()
    True
    """
    use = _memory(device)
    return use.peak_with_scratch if scratch else use.peak


def reset_peak_memory_stats(device: str | None = None) -> None:
    """Makes max_memory_allocated start from what a device holds now.

    Args:
      device:  name of a device; default PICOGRAD_DEVICE

    Raises:
      DeviceError: there is no such device, or this machine cannot use it.

    >>> import picograd as pg
    >>> pg.reset_peak_memory_stats("CPU")
    """
    _memory(device).reset_peak()


def _memory(device: str | None) -> MemoryUse:
    return memory_of(device_or_default(device))
