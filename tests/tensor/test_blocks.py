"""Views with what they cut in front show the same elements."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.evaluator import evaluate
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.cell import Step, cut_first, read_through


def test_a_row_of_a_layer_is_one_block() -> None:
    view = [
        (OpCode.SHRINK, ((1, 2), (0, 9), (0, 4))), (OpCode.RESHAPE, (9, 4)),
        (OpCode.SHRINK, ((3, 4), (0, 4))), (OpCode.RESHAPE, (4,)),
    ]  # fmt: skip
    assert cut_first((2, 9, 4), view) == (
        (OpCode.SHRINK, ((1, 2), (3, 4), (0, 4))), (OpCode.RESHAPE, (1, 4)), (OpCode.RESHAPE, (4,)),
    )  # fmt: skip


def test_a_cut_stays_behind_what_mixes_axes_and_behind_leaves() -> None:
    cut = (OpCode.SHRINK, ((0, 2),))
    assert cut_first((2, 3), [(OpCode.RESHAPE, (6,)), cut]) == ((OpCode.RESHAPE, (6,)), cut)
    assert cut_first((4,), [(OpCode.LEAF, 7), cut]) == ((OpCode.LEAF, 7), cut)


@pytest.mark.parametrize("seed", range(60))
def test_a_random_view_shows_the_same_elements(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(1, 4))))
    shape, view = start, list[Step]()
    for _ in range(int(rng.integers(1, 9))):
        kind = rng.choice(["cut", "cut", "cut", "order", "turn", "one", "drop", "flat"])
        if kind == "cut" and shape:
            starts = [int(rng.integers(n)) for n in shape]
            view.append((OpCode.SHRINK, tuple((a, int(rng.integers(a + 1, n + 1))) for a, n in zip(starts, shape))))
        elif kind == "order":
            view.append((OpCode.PERMUTE, tuple(int(a) for a in rng.permutation(len(shape)))))
        elif kind == "turn" and shape:
            view.append((OpCode.FLIP, (int(rng.integers(len(shape))),)))
        elif kind == "one":
            at = int(rng.integers(len(shape) + 1))
            view.append((OpCode.RESHAPE, (*shape[:at], 1, *shape[at:])))
        elif kind == "drop":
            view.append((OpCode.RESHAPE, tuple(n for n in shape if n != 1)))
        elif kind == "flat" and rng.random() < 0.3:
            view.append((OpCode.RESHAPE, (int(np.prod(shape)),)))
        op = read_through(Op(OpCode.PARAM, dtypes.float32, (), (0, start)), tuple(view))
        shape = tuple(int(n) for n in op.shape)  # type: ignore[arg-type]
    base = Op(OpCode.PARAM, dtypes.float32, (), (0, start))
    data = {base: np.arange(np.prod(start), dtype=np.float32).reshape(start)}
    found = read_through(base, cut_first(start, view))
    np.testing.assert_array_equal(evaluate([found], data)[0], evaluate([read_through(base, tuple(view))], data)[0])
