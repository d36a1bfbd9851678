"""Estimates the work of computing a graph, so that folding constants is bounded in time and memory.

In:    values: arrays, and tensors with graphs
Out:   `is_little`
Next:  picograd/onnx/run.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from picograd.autodiff.gradient import written_out
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode
from picograd.onnx.values import KNOWN_NBYTES, Value, spend
from picograd.tensor.tensor import Tensor

WORK_MAX = 1 << 23  # elements of all results of a graph together
FOLDED_WORK_MAX = 1 << 25  # elements while a model is loaded, and more for a large file:
FOLDED_WORK_A_BYTE = 16  # of the arrays that its file holds
PRODUCTS = 16  # multiplications and additions that take as long as one element


def is_little(values: Sequence[Value]) -> bool:
    """Returns whether values take KNOWN_NBYTES at most, and computing them little time and memory."""
    flat = [*_flat(values)]
    nbytes = sum(map(_nbytes, flat))
    work = 0 if nbytes > KNOWN_NBYTES else _work([value.op for value in flat if isinstance(value, Tensor)])
    if nbytes > KNOWN_NBYTES or work > WORK_MAX:
        return False
    spend(nbytes + work)
    return True


def _flat(values: Sequence[Value]) -> list[Value]:
    """Returns the arrays and tensors among values and in sequences."""
    found: list[Value] = []
    for value in values:
        found += _flat(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]
    return found


def _nbytes(value: Value) -> int:
    """Returns the bytes of an array, those of its strings too."""
    strings = sum(map(len, value.reshape(-1))) if isinstance(value, np.ndarray) and value.dtype.kind == "O" else 0
    return int(value.nbytes) + strings


def _work(roots: Sequence[Op]) -> int:
    """Returns how many elements the Ops of a graph make; products of matrices count with their multiplications."""
    return sum(map(_work_of, toposort(written_out(roots))))


def _work_of(op: Op) -> int:
    if op.code is OpCode.LOOP:
        body, _, steps = op.arg
        return int(steps) * _work(body.src)
    if op.code is OpCode.CALL:
        return _work(op.arg.src)
    if op.code in SEVERAL_RESULTS:  # their OUTPUTs count
        return 0
    made = _numel(op)
    if op.code is OpCode.MATMUL:
        return made + made * int(op.src[0].shape[-1]) // PRODUCTS
    if op.code is OpCode.CONV:
        return made + made * math.prod(map(int, op.src[1].shape[1:])) // PRODUCTS
    if op.code is OpCode.CUSTOM:  # of matrices and signals: a row of each element
        return sum(_numel(src) * int(src.shape[-1] if src.shape else 1) for src in op.src) // PRODUCTS
    return made


def _numel(op: Op) -> int:
    return math.prod(map(int, op.shape))
