"""What the backward part of a LOOP stacks: nothing that is the same at each step."""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.autodiff.gradient import gradient
from picograd.ir.build import unary
from picograd.ir.op import Op, filled, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import Shape

f64 = dtypes.float64
STEPS = 5


def param(slot: int, *shape: int) -> Op:
    return Op(OpCode.PARAM, f64, (), (slot, shape))


def leaf(name: str, *shape: int) -> Op:
    return Op(OpCode.LEAF, f64, (filled(1, f64, shape),), name)


def shapes_below(roots: list[Op]) -> set[Shape]:
    return {op.shape for op in toposort(roots)}


def test_what_is_made_of_an_invariant_alone_is_not_stacked() -> None:
    """x[t] @ sin(w) reads sin(w) on its way back: one matrix, not one a step."""
    h, w, x = param(0, 2, 3), param(1, 3, 3), param(2, 2, 3)
    row = Op(OpCode.MATMUL, f64, (unary(OpCode.SIN, h * x), unary(OpCode.SIN, w)))
    body = Op(OpCode.SINK, f64, (unary(OpCode.TANH, h + x), w, row))
    leaves = [leaf("h", 2, 3), leaf("w", 3, 3), leaf("x", STEPS, 2, 3)]
    run = Op(OpCode.LOOP, f64, tuple(leaves), (body, 2, STEPS))
    rows = Op(OpCode.OUTPUT, f64, (run,), 2)
    grads = gradient(rows, filled(1, f64, rows.shape), leaves)
    assert set(grads) == set(leaves)
    assert (STEPS, 2, 3) in shapes_below(list(grads.values())) and (STEPS, 3, 3) not in shapes_below(list(grads.values()))


def test_a_source_of_each_step_is_read_again_and_not_stacked() -> None:
    """The way back through h x[t] reads h, which is stacked, and x[t], which is there."""
    h, x, y = param(0, 2, 3), param(1, 2, 3), param(2, 2, 3)
    body = Op(OpCode.SINK, f64, (h * x + y,))
    leaves = [leaf("h", 2, 3), leaf("x", STEPS, 2, 3), leaf("y", STEPS, 2, 3)]
    run = Op(OpCode.LOOP, f64, tuple(leaves), (body, 1, STEPS))
    last = Op(OpCode.OUTPUT, f64, (run,), 0)
    grads = gradient(last, filled(1, f64, last.shape), leaves)
    loops = [op for op in toposort(list(grads.values())) if op.code is OpCode.LOOP]
    assert [len(loop.arg[0].src) - loop.arg[1] for loop in loops] == [1, 2]  # rows: of h; gradients of x and y
