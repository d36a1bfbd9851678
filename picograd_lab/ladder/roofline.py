"""The limits of a GPU: the least time of a problem, and the time of a common library.

In:    the operations of a problem, its bytes, the device
Out:   `least_seconds`: the roofline;  `library_seconds`: of PyTorch, which uses cuBLAS and cuDNN
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any

from picograd import dtype as dtypes
from picograd.devices.cuda.driver import call, driver
from picograd.dtype import DType
from picograd_lab.ladder.runnable import Array

# FLOP of a multiprocessor in a clock, by compute capability: of multiply-adds, and of tensor cores without sparsity.
# Source: NVIDIA's architecture whitepapers: A100 19.5 and 312 TFLOP/s (108 at 1.41 GHz), H100 SXM 66.9 (132 at 1.98) and
# 989 (at 1.83), B200 2250 (148 at 1.85). The rate of others with float32 sums depends on the model.
FLOPS_PER_CLOCK: dict[int, dict[DType, int]] = {
    80: {dtypes.float32: 128, dtypes.float16: 2048, dtypes.bfloat16: 2048},
    86: {dtypes.float32: 256},
    89: {dtypes.float32: 256},
    90: {dtypes.float32: 256, dtypes.float16: 4096, dtypes.bfloat16: 4096},
    100: {dtypes.float32: 256, dtypes.float16: 8192, dtypes.bfloat16: 8192},
    120: {dtypes.float32: 256},
}
SAMPLES, RUNS, SLEPT_CLOCKS = 7, 20, 1_000_000  # the clocks give the host a lead over the GPU


def least_seconds(flops: int, dtype: DType, arch: str, multiprocessors: int, clock_hz: float, copy_s: float) -> float:
    """Returns the larger of the times of the operations and of a copy of as many bytes; 0 if the rate is unknown.

    >>> f"{least_seconds(2 * 4096**3, dtypes.bfloat16, 'sm_90a', 132, 1.98e9, 5e-5):.3g}"
    '0.000128'
    """
    rate = FLOPS_PER_CLOCK.get(int("".join(filter(str.isdigit, arch))), {}).get(dtype, 0) * multiprocessors * clock_hz
    return max(flops / rate, copy_s) if rate > 0 else 0.0


def clock_hz() -> float:
    """Returns the highest clock of the GPU's multiprocessors."""
    return 1e3 * float(call("cuDeviceGetAttribute", driver().CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 0))


def library_seconds(function: Callable[..., Any] | None, given: Sequence[Array]) -> float:
    """Returns the seconds of a function of PyTorch; 0 without PyTorch for this GPU.

    Args:
      function:  (torch, *tensors)
    """
    if function is None or find_spec("torch") is None:
        return 0.0
    torch = import_module("torch")
    if not torch.cuda.is_available():
        return 0.0
    tensors = [torch.from_numpy(array.astype("float32") if array.dtype.kind in "fV" else array).cuda() for array in given]
    tensors = [tensor.to(getattr(torch, array.dtype.name)) for tensor, array in zip(tensors, given)]
    samples = list[float]()
    for _ in range(SAMPLES + 1):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(SLEPT_CLOCKS)
        start.record()
        for _ in range(RUNS):
            function(torch, *tensors)
        stop.record()
        stop.synchronize()
        samples.append(start.elapsed_time(stop) / 1e3 / RUNS)
    return median(samples[1:])
