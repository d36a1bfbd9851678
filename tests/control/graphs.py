"""The graphs behind tensors, as they are scheduled."""

from __future__ import annotations

from picograd import Tensor
from picograd.autodiff.gradient import written_out
from picograd.engine.plan import parametrize, template
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.rewrites.merge_bodies import merge_bodies


def merged_ops(tensors: list[Tensor]) -> list[Op]:
    """Returns the Ops of these tensors after CALLs and LOOPs were merged, sources first."""
    roots = written_out([tensor.op for tensor in tensors])
    return toposort(merge_bodies(parametrize(roots, template(roots))))


def of_code(code: OpCode, ops: list[Op]) -> list[Op]:
    return [op for op in ops if op.code is code]
