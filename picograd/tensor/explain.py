"""What tensors cost and what they become, said without running anything.

In:    tensors that are not computed yet
Out:   `explain`: every stage of the compiler as text;  `count_ops`: how many operations of each kind
Next:  picograd/tensor/autograd.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from picograd.autodiff.gradient import ops_by_code
from picograd.device import Target
from picograd.engine import explain as engine
from picograd.errors import ArgumentError
from picograd.tensor.core import TensorCore

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


def explain(*tensors: Tensor, stages: Sequence[str] = engine.STAGES, target: Target | None = None) -> str:
    """Returns what becomes of tensors, stage by stage, without running it.

    Args:
      tensors:  not computed yet; what is computed already is an input
      stages:   of "graph", "schedule", "kernel", "choice" (tiles), "program" (loops), "source" (LLVM IR or CUDA C)
      target:   another machine of the same kind, e.g. one with shorter vectors

    Raises:
      ArgumentError: no tensors, a stage has no such name, or the target is of another kind than the tensors' device.

    >>> x = Tensor([1.0, 2.0])
    >>> print(explain(x + x, stages=["graph"]))
    %0 = PARAM 0                         float32 (2,)
    %1 = ADD %0 %0                       float32 (2,)
    return %1
    """
    others = [tensor for tensor in tensors if not isinstance(tensor, TensorCore)]
    if others or not tensors:
        raise ArgumentError(f"explain: needs tensors, got {type(others[0]).__name__ if others else 'nothing'}.")
    unknown = [stage for stage in stages if stage not in engine.STAGES]
    if unknown:
        raise ArgumentError(f"explain: there is no stage {unknown[0]!r}; the stages are {', '.join(engine.STAGES)}.")
    return engine.explain([tensor.op for tensor in tensors], stages, target)


def count_ops(*tensors: Tensor, known: Iterable[Tensor] = ()) -> dict[str, int]:
    """Returns how many operations of each kind computing tensors takes; views and copies between shapes are free.

    Args:
      tensors:  not computed yet: values, gradients, directional derivatives
      known:    tensors whose own operations do not count, as the loss for its gradients

    >>> x = Tensor([0.5, 1.5], requires_grad=True)
    >>> y = x.sin() * x
    >>> count_ops(y)
    {'SIN': 1, 'MUL': 1}
    >>> count_ops(*grad(y.sum(), [x]), known=[y])
    {'MUL': 3, 'COS': 1, 'ADD': 1}
    """
    found = ops_by_code([tensor.op for tensor in tensors], [tensor.op for tensor in known])
    return {code.name: count for code, count in found.items()}
