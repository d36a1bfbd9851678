"""What a product packs: only operands that are read often, from places that a processor finds slowly."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen.emit import guess
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import expand
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.opts import Opts, RegisterTile
from picograd.ir.statements import For, Prefetch, Store, lanes_of, walk
from picograd.road import create_schedule, lower
from tests.same_meaning import CPU_TARGETS, check_same_meaning


def packed(m: int, k: int, n: int, computed: bool) -> list[int]:
    """Elements of each operand that is packed for all threads."""
    a, b = (Op(OpCode.PARAM, dtypes.float32, (), (slot, shape)) for slot, shape in enumerate([(m, k), (k, n)]))
    (item,) = create_schedule([Op(OpCode.MATMUL, dtypes.float32, (a * a if computed else a, b))]).items
    return [int(param.numel) for param in lower(item.kernel, CPU_TARGETS[2]).params if param.role == "scratch"]


@pytest.mark.parametrize(
    ("m", "k", "n", "computed", "elements"),
    [
        (64, 63, 128, False, []),  # four tiles of columns read a row where it lies
        (64, 63, 300, False, [64 * (63 + 16)]),  # more of them read a packed one
        (64, 63, 128, True, [64 * (63 + 16)]),  # what is computed is computed once
        (60, 63, 300, False, [60 * (63 + 16)]),
        (64, 1023, 32, False, [1023 * 32]),
        (64, 64, 32, False, []),
        (64, 512, 32, False, []),
        (64, 2048, 32, False, [64 * (2048 + 16), 2048 * 32]),
        (64, 1024, 32, False, [64 * (1024 + 16), 1024 * 32]),  # rows a power of two apart share a cache set
    ],
)
def test_rows_are_packed_where_that_pays(m: int, k: int, n: int, computed: bool, elements: list[int]) -> None:
    assert packed(m, k, n, computed) == elements


@pytest.mark.parametrize(
    ("dtype", "nbytes", "lanes"),
    [(dtypes.float32, 16, 4), (dtypes.float16, 16, 4), (dtypes.float64, 16, 2), (dtypes.float64, 4, 1)],
)
def test_a_vector_has_as_many_lanes_as_accumulators_fit_and_one_at_least(dtype: DType, nbytes: int, lanes: int) -> None:
    assert Target("CPU", "llvm", "any", vector_bytes=nbytes).sum_lanes(dtype) == lanes


@pytest.mark.parametrize(("n", "expected"), [(256, [2]), (192, [])], ids=["beyond the cache", "near"])
def test_what_a_tiles_epilogue_reads_of_large_values_is_asked_for_before_it(n: int, expected: list[int]) -> None:
    """The residual, not the bias; a line for each vector of the tile, in bounds or not."""
    a, b, residual = (
        Op(OpCode.PARAM, dtypes.float32, (), (slot, shape)) for slot, shape in enumerate([(256, 3), (3, n), (256, n)])
    )
    bias = expand(Op(OpCode.PARAM, dtypes.float32, (), (3, (1, n))), (256, n))
    root = Op(OpCode.MATMUL, dtypes.float32, (a, b)) + bias + residual
    (item,) = create_schedule([root]).items
    program = lower(item.kernel, CPU_TARGETS[2])
    asked = [s.memory.arg[0] for phase in program.phases for s in walk(phase) if isinstance(s, Prefetch)]
    tile = guess(item.kernel, CPU_TARGETS[2]).products[0]
    assert isinstance(tile, RegisterTile) and len(asked) == len(expected) * tile.rows * tile.vectors
    assert [item.kernel.params[slot].numel for slot in {*asked}] == [256 * n for _ in expected]
    arrays = {p: np.ones(p.shape, np.float32) for p in toposort([root]) if p.code is OpCode.PARAM}
    check_same_meaning([root], arrays, targets=())


# ---- the last panel of columns ----
@pytest.mark.variants(every=10)
@pytest.mark.parametrize(
    ("n", "grids"),
    [(80, 2), (96, 1), (65, 2), (32 * 16 + 1, 2), (32 * 20 + 1, 1)],
    ids=["half a panel more", "whole panels", "one column more", "of seventeen panels", "of more: not worth it"],
)
@pytest.mark.parametrize("is_epilogue", [False, True], ids=["stored", "with a bias"])
def test_a_last_panel_that_half_a_tile_computes_has_loops_of_its_own(n: int, grids: int, is_epilogue: bool) -> None:
    """And the tiles before it are whole, so that they are stored from registers."""
    shapes = [(36, 8), (8, n), (1, n)]
    a, b, bias = (Op(OpCode.PARAM, dtypes.float32, (), (slot, shape)) for slot, shape in enumerate(shapes))
    root = Op(OpCode.MATMUL, dtypes.float32, (a, b))
    root = root + expand(bias, (36, n)) if is_epilogue else root
    (item,) = create_schedule([root]).items
    program = lower(item.kernel, CPU_TARGETS[2], Opts((RegisterTile(12, 2, 8, False),)))
    assert sum(isinstance(one, For) for one in program.phases[-1]) == grids and program.num_guards == 0
    arrays = {p: np.random.default_rng(0).integers(-4, 5, p.shape).astype(np.float32) for p in (a, b, bias)}
    check_same_meaning([root], {p: v for p, v in arrays.items() if p in toposort([root])}, targets=CPU_TARGETS)


@pytest.mark.variants(every=3)
# ---- the last columns ----
@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 14, 15, 17, 30, 47, 62, 300])
def test_the_last_columns_of_a_dear_epilogue_mean_the_same(n: int) -> None:
    """Of panels that are the last, or the only ones; where they are no whole vector, in halves, quarters and so on."""
    a, b, bias = (Op(OpCode.PARAM, dtypes.float32, (), (i, shape)) for i, shape in enumerate([(7, 5), (5, n), (7, n)]))
    root = Op(OpCode.TANH, dtypes.float32, (Op(OpCode.MATMUL, dtypes.float32, (a, b)) + bias,))
    arrays = {p: np.random.default_rng(n).integers(-1, 2, p.shape).astype(np.float32) for p in (a, b, bias)}
    check_same_meaning([root], arrays, tolerance=4 * 2.0**-24, targets=CPU_TARGETS)  # 2 ulp on either side, below 1


@pytest.mark.parametrize(("code", "lanes"), [(OpCode.TANH, [8, 2]), (OpCode.NEG, [1])])
def test_ten_columns_of_a_dear_epilogue_are_two_vectors(code: OpCode, lanes: list[int]) -> None:
    """On a machine with vectors of sixteen; of a cheap one they are a loop over elements, which is less code."""
    a, b = (Op(OpCode.PARAM, dtypes.float32, (), (i, shape)) for i, shape in enumerate([(7, 5), (5, 10)]))
    (item,) = create_schedule([Op(code, dtypes.float32, (Op(OpCode.MATMUL, dtypes.float32, (a, b)),))]).items
    program = lower(item.kernel, CPU_TARGETS[2])
    (out,) = (slot for slot, param in enumerate(program.params) if param.role == "out")
    stores = [s for s in walk(program.phases[-1]) if isinstance(s, Store) and s.memory.arg[0] == out]
    assert [lanes_of(s.value) for s in stores] == lanes
