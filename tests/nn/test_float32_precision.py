"""How exact products of float32 are: what `set_float32_matmul_precision` says, where, and of what."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.autodiff.gradient import written_out
from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import takes_tf32
from picograd.nn import functional as F
from tests.on_devices import tf32

PRODUCTS = {OpCode.MATMUL, OpCode.CONV, OpCode.ATTENTION, OpCode.ATTENTION_GRAD}


def products_of(*tensors: Tensor) -> list[bool]:
    """Returns of each product in a graph whether it takes TF32."""
    return [takes_tf32(op) for op in toposort(written_out([tensor.op for tensor in tensors])) if op.code in PRODUCTS]


def functions(dtype: pg.DType) -> list[Tensor]:
    """Returns a result of everything that multiplies matrices."""
    x, w = (Tensor(np.ones((2, 3, 8, 8), np.float32)).to(dtype).requires_grad_() for _ in range(2))
    linear, image = F.linear(x[0, 0], w[0, 0]), F.conv2d(x, w[:, :, :3, :3])
    spread = F.conv_transpose2d(x, w[:, :, :3, :3].permute(1, 0, 2, 3))
    return [x @ w, pg.einsum("bcij,bcjk->ik", x, w), linear, image, spread, F.scaled_dot_product_attention(x, w, w)]


def test_it_is_said_and_asked_as_in_pytorch() -> None:
    assert pg.get_float32_matmul_precision() == "highest"
    for precision in ("high", "medium", "highest"):
        pg.set_float32_matmul_precision(precision)
        assert pg.get_float32_matmul_precision() == precision
    with pytest.raises(pg.ArgumentError, match="precision must be one of highest, high, medium, got 'low'"):
        pg.set_float32_matmul_precision("low")


def test_it_holds_for_all_products_and_their_gradients() -> None:
    assert not any(products_of(*functions(pg.float32)))
    with tf32():
        results = functions(pg.float32)
        assert not any(products_of(*functions(pg.float64), *functions(pg.bfloat16)))
    assert all(products_of(*results))
    x, w = (Tensor(np.ones((2, 3, 8, 8), np.float32)).requires_grad_() for _ in range(2))
    with tf32():
        out = (x @ w).sum() + F.conv2d(x, w[:, :, :3, :3]).sum() + F.scaled_dot_product_attention(x, w, w).sum()
    grads = pg.autograd.grad(out, [x, w])  # outside of the block: what was built in it says so
    assert all(products_of(*grads))


def test_the_cpu_computes_as_ever(rng: np.random.Generator) -> None:
    a, b = (Tensor(rng.standard_normal((65, 65), np.float32), device="CPU") for _ in range(2))
    exact = (a @ b).numpy()
    with tf32():
        assert np.array_equal((a @ b).numpy(), exact)


def test_a_jitted_function_has_a_plan_for_each_precision() -> None:
    function = pg.jit(lambda x: x @ x)
    x = Tensor(np.eye(3, dtype=np.float32))
    assert [function(x).dtype for _ in range(3)] == [pg.float32] * 3
    with pg.autocast("cpu"):
        assert [function(x).dtype for _ in range(3)] == [pg.bfloat16] * 3
    with tf32():
        assert [function(x).dtype for _ in range(3)] == [pg.float32] * 3
    assert function(x).dtype is pg.float32 and function.num_captures == 3
