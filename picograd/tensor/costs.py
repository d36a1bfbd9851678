"""Costs of tensors: Ops, kernels and programs without running them, and memory by PyTorch's names.

Memory counts all live buffers, and while a plan runs on the CPU its temporaries. Memory kept for the next plan does not
count between runs; results of up to 4 KiB that a jitted function keeps to overwrite do count.

Scratch of kernels (packed operands of a product, pairs being sorted) is not counted by default, as in PyTorch's figures for
the CPU, since BLAS and oneDNN allocate it. `scratch=True` counts it, except operands that a thread packs on its stack. On
a GPU all plans share one block for temporaries and scratch, one plan after the other: every figure contains a plan's part
of the block while the plan is submitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from picograd import config
from picograd.autodiff.gradient import ops_by_code, written_out
from picograd.device import Target
from picograd.engine.devices import EVALUATOR, compiler_for, default_device, device_or_default, memory_of
from picograd.engine.plan import parametrize, template
from picograd.engine.realize import devices_of
from picograd.errors import ArgumentError
from picograd.ir.backend import MemoryUse
from picograd.ir.op import Op
from picograd.ir.text import format_graph
from picograd.ir.text_program import format_schedule
from picograd.tensor.core import TensorCore

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


# ---- Ops, kernels, programs ----
STAGES = config.STAGES[:-1]  # except the plan, which would run


def explain(*tensors: Tensor, stages: Sequence[str] = STAGES, target: Target | None = None) -> str:
    """Returns the stages of tensors, as text, without running anything.

    Args:
      tensors:  tensors that are not computed yet; values that are computed already are inputs
      stages:   any of "graph", "schedule", "kernel", "choice" (tiles), "program" (loops), "source" (LLVM IR or CUDA C)
      target:   another machine of the same kind, e.g. one with shorter vectors

    Raises:
      ArgumentError: no tensors, an unknown stage, or a target of a different kind than the tensors' device.

    >>> x = Tensor([1.0, 2.0])
    >>> print(explain(x + x, stages=["graph"]))
    %0 = PARAM 0                         float32 (2,)
    %1 = ADD %0 %0                       float32 (2,)
    return %1
    """
    others = [tensor for tensor in tensors if not isinstance(tensor, TensorCore)]
    if others or not tensors:
        raise ArgumentError(f"explain: needs tensors, got {type(others[0]).__name__ if others else 'nothing'}.")
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown:
        raise ArgumentError(f"explain: there is no stage {unknown[0]!r}; the stages are {', '.join(STAGES)}.")
    return stage_texts([tensor.op for tensor in tensors], stages, target)


def stage_texts(roots: Sequence[Op], stages: Sequence[str] = STAGES, target: Target | None = None) -> str:
    """Returns the text of stages, for the graphs' own device or for another target of the same language.

    The evaluator has the schedule of a CPU, and no later stages.

    Args:
      stages: names from STAGES

    Raises:
      ArgumentError: the target speaks another language than the graphs' device.
    """
    roots = written_out(roots)
    graphs = parametrize(roots, template(roots))
    device = devices_of(roots[:1])[0] or default_device()
    own = None if device == EVALUATOR else compiler_for(device).device.target
    schedule = compiler_for("CPU" if own is None else device).schedule(graphs)
    parts = [format_graph(graphs)] if "graph" in stages else []
    parts += [format_schedule(schedule)] if "schedule" in stages else []
    if own is not None:
        if target is not None and target.language != own.language:
            raise ArgumentError(
                f"explain: the target takes {target.language}, but these tensors are on {device}: {own.language}.",
                "move them to a device of the target's kind with .to(...).",
            )
        for kernel in dict.fromkeys(item.kernel for item in schedule.kernel_items()):
            texts = compiler_for(device).explain(kernel, target or own)
            parts += [text for stage, text in texts.items() if stage in stages]
    return "\n\n".join(part.strip() for part in parts)


def count_ops(*tensors: Tensor, known: Iterable[Tensor] = ()) -> dict[str, int]:
    """Returns the number of operations of each kind that compute tensors; views and reshapes are free.

    Args:
      tensors:  tensors that are not computed yet: values, gradients, directional derivatives
      known:    tensors whose operations are not counted, such as the loss for its gradients

    >>> x = Tensor([0.5, 1.5], requires_grad=True)
    >>> y = x.sin() * x
    >>> count_ops(y)
    {'SIN': 1, 'MUL': 1}
    >>> count_ops(*grad(y.sum(), [x]), known=[y])
    {'MUL': 3, 'COS': 1, 'ADD': 1}
    """
    before = [tensor.op for tensor in known]
    every = written_out([*[tensor.op for tensor in tensors], *before])
    found = ops_by_code(every[: len(tensors)], every[len(tensors) :])
    return {code.name: count for code, count in found.items()}


# ---- memory ----
def memory_allocated(device: str | None = None) -> int:
    """Returns the bytes that tensors hold on a device now.

    memory_allocated = sum of nbytes of live buffers + arenas of running plans        (without memory kept for reuse)

    Args:
      device:  name of a device; default PICOGRAD_DEVICE

    Raises:
      DeviceError: the device is unknown, or this machine cannot use it.

    >>> import picograd as pg
    >>> x = pg.Tensor([1.0, 2.0, 3.0])
    >>> pg.memory_allocated() >= x.nbytes
    True
    """
    return _memory(device).in_use


def max_memory_allocated(device: str | None = None, *, scratch: bool = False) -> int:
    """Returns the peak of bytes that tensors held on a device.

    max_memory_allocated = max over time of memory_allocated, since reset_peak_memory_stats or the start

    Args:
      device:   name of a device; default PICOGRAD_DEVICE
      scratch:  count workspace of kernels, such as packed operands of products, too

    Raises:
      DeviceError: the device is unknown, or this machine cannot use it.

    >>> import picograd as pg
    >>> pg.reset_peak_memory_stats()
    >>> total = (pg.Tensor([1.0, 2.0]) * 2).sum().realize()
    >>> pg.max_memory_allocated(scratch=True) >= pg.max_memory_allocated() >= pg.memory_allocated()
    True
    """
    use = _memory(device)
    return use.peak_with_scratch if scratch else use.peak


def reset_peak_memory_stats(device: str | None = None) -> None:
    """Makes max_memory_allocated start from the present use of a device.

    Args:
      device:  name of a device; default PICOGRAD_DEVICE

    Raises:
      DeviceError: the device is unknown, or this machine cannot use it.

    >>> import picograd as pg
    >>> pg.reset_peak_memory_stats("CPU")
    """
    _memory(device).reset_peak()


def _memory(device: str | None) -> MemoryUse:
    return memory_of(device_or_default(device))
