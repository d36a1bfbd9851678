"""Results that a product stores for kernels behind it: itself alone, where they read all that the rest is made of."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.ir.build import reduce
from picograd.ir.op import Op, codes_in, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.stages import NestKind
from picograd.road import schedule_graphs
from picograd.schedule.fuse import fuse
from tests.codegen.test_transposed_cpu import param
from tests.same_meaning import check_same_meaning
from tests.schedule.test_prices import TARGETS, graphs_of_step, products

x, w, b = param(0, 24, 8), param(1, 8, 16), param(2, 24, 16)
y = Op(OpCode.MATMUL, dtypes.float32, (x, w))
scaled = y * b


def total(value: Op, axis: int) -> Op:
    return reduce(value, OpCode.ADD, (axis,))


def function(code: OpCode, value: Op) -> Op:
    return Op(code, value.dtype, (value,))


# roots -> how many values the product stores
CUTS: dict[str, tuple[list[Op], int]] = {
    "a reader has the rest": ([total(scaled, 1), total(y, 0)], 1),
    "the product itself is not in memory": ([total(scaled, 1)], 1),
    "two readers would read more": ([total(scaled, 1), total(scaled * 2.0, 0), total(y * y, 0)], 2),
    "a costly function": ([total(function(OpCode.SIN, y) * b, 1), total(y, 0)], 2),
    "it is asked for": ([scaled, total(scaled * scaled, 1), total(y, 0)], 2),
    "another product reads it": (
        [Op(OpCode.MATMUL, dtypes.float32, (scaled, param(3, 16, 8))), total(scaled, 1), total(y, 0)], 2,
    ),
}  # fmt: skip


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("name", CUTS)
def test_a_product_stores_what_no_reader_computes_from_what_it_reads(name: str) -> None:
    roots, most = CUTS[name]
    (nest,) = [nest for nest in fuse(roots).nests if nest.kind is NestKind.MATMUL and nest.anchors[0] is y]
    assert len(nest.stored) == most
    rng = np.random.default_rng(0)
    params = [op for op in toposort(roots) if op.code is OpCode.PARAM]
    arrays = {op: rng.integers(-1, 2, op.shape).astype(np.float32) for op in params}  # every sum is exact
    check_same_meaning(roots, arrays, tolerance=1e-4 if OpCode.SIN in codes_in(roots) else 0.0)


def test_a_layer_of_gpt2_has_one_product_that_stores_two_values() -> None:
    """Its activation, before the function and behind it; in front of a layer norm's gradient each stores one.

    The gradient of each of four weights is stored with what AdamW makes of it: two averages and the weight.
    """
    found = []
    for layers in (1, 2):
        schedule = schedule_graphs(graphs_of_step(layers, "bfloat16", width=768, vocabulary=4096), TARGETS["gpu"])
        found.append([sum(p.role == "out" for p in kernel.params) for kernel in products(schedule)])
    one, two = found
    assert sum(two) - sum(one) == len(two) - len(one) + 1 + 4 * 3
