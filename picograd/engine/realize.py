"""Computes graphs and remembers what they are, here with the evaluator alone.

In:    Ops
Out:   BUFFER Ops that hold their values; `realized`
Next:  picograd/engine/plan.py
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from picograd.dtype import DType
from picograd.errors import DeviceError
from picograd.evaluator import evaluate
from picograd.ir.op import Buffer, Op, toposort
from picograd.ir.opcode import OpCode

DEVICES = ("NUMPY", "CPU")
realized: weakref.WeakKeyDictionary[Op, Op] = weakref.WeakKeyDictionary()


def realize(ops: Sequence[Op]) -> list[Op]:
    """Returns for each graph a BUFFER Op with its value, contiguous; `realized` then knows it."""
    missing = [op for op in dict.fromkeys(ops) if op.code is not OpCode.BUFFER and op not in realized]
    if missing:
        values: dict[Op, np.ndarray[Any, Any]] = {}
        for op in toposort(missing, stop=realized):
            if op.code is OpCode.BUFFER:
                values[op] = op.arg[0].memory.reshape(op.shape)
            elif op in realized:
                values[op] = realized[op].arg[0].memory.reshape(op.shape)
        for op, value in zip(missing, evaluate(missing, values)):
            realized[op] = from_host(np.asarray(value), op.dtype, DEVICES[0])
    return [op if op.code is OpCode.BUFFER else realized[op] for op in ops]


def from_host(array: np.ndarray[Any, Any], dtype: DType, device: str) -> Op:
    """Returns a BUFFER Op with a copy of `array`."""
    if device not in DEVICES:
        raise DeviceError(f"{device}: no such device. usable here: {', '.join(DEVICES)}.")
    memory = np.array(array, dtype=dtype.numpy, order="C")
    return Op(OpCode.BUFFER, dtype, (), (Buffer(device, dtype, memory.size, memory), memory.shape))


def to_host(buffer: Op) -> np.ndarray[Any, Any]:
    """Returns a copy of what a BUFFER Op holds."""
    memory: np.ndarray[Any, Any] = buffer.arg[0].memory
    return memory.reshape(buffer.shape).copy()
