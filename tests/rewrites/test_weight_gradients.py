"""Gradients of a convolution's weight: products where it sees one element, and roles that fill vectors."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.autodiff.transposes import conv_w
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import cast
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg
from picograd.record import replace
from picograd.rewrites import convolutions
from picograd.rewrites.contract import contract
from tests.rewrites.test_contract import values_for
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, check_same_meaning

TARGET = CPU_TARGETS[-1]  # 16 lanes


def weight_gradient(
    channels: int,
    outputs: int,
    pixels: int,
    taps: int = 1,
    stride: int = 1,
    padding: int = 0,
    dtype: DType = dtypes.float32,
) -> Op:
    """The gradient of a weight, of two images."""
    x, w = param(0, dtype, 2, channels, pixels, pixels), param(1, dtype, outputs, channels, taps, taps)
    out = Op(OpCode.CONV, dtype, (x, w), ConvArg((stride,) * 2, ((padding, padding),) * 2, (1, 1), (1, 1)))
    return conv_w(param(2, dtype, *out.shape), out)


def param(slot: int, dtype: DType, *shape: int) -> Op:
    return cast(Op(OpCode.PARAM, dtypes.float32, (), (slot, shape)), dtype)


def codes(graph: Op, target: Target | None = TARGET) -> set[OpCode]:
    return {op.code for op in toposort(contract([graph], target))} & {OpCode.MATMUL, OpCode.CONV}


@pytest.mark.parametrize(
    ("graph", "code"),
    [
        (weight_gradient(8, 4, 6), OpCode.MATMUL),
        (weight_gradient(8, 4, 6, stride=2), OpCode.CONV),
        (weight_gradient(64, 64, 2), OpCode.MATMUL),
        (weight_gradient(8, 4, 6, taps=3), OpCode.CONV),
    ],
    ids=["images are larger than weights", "every second element", "weights are larger than images", "several elements"],
)
def test_a_weight_that_sees_one_element_is_a_product(graph: Op, code: OpCode) -> None:
    assert codes(graph) == {code}
    assert codes(graph, GPU_TARGET) == codes(graph, replace(TARGET, plain_sums=True)) == {OpCode.CONV}


@pytest.mark.parametrize(("pixels", "stride", "batch"), [(64, 1, (2,)), (1, 1, ()), (64, 2, ())])
def test_so_does_one_over_images_of_a_symbolic_length(
    pixels: int, stride: int, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guess says whether images are larger than the weight."""
    monkeypatch.setattr(convolutions, "GUESSED_PIXELS", pixels)
    channels, outputs = 8, 4
    n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 2, 31))
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, (2, channels, n, n)))
    w = param(1, dtypes.float32, outputs, channels, 1, 1)
    out = Op(OpCode.CONV, w.dtype, (x, w), ConvArg((stride,) * 2, ((0, 0),) * 2, (1, 1), (1, 1)))
    grad = Op(OpCode.PARAM, dtypes.float32, (), (2, out.shape))
    graph = conv_w(grad, out)
    (found,) = [op for op in toposort(contract([graph], TARGET)) if op.code is OpCode.MATMUL]
    assert found.shape[:-2] == batch and codes(graph) == {OpCode.MATMUL}
    rng = np.random.default_rng(0)
    for length in (2, 3, 12, 13):
        values = {op: rng.standard_normal((2, *op.shape[1:2], *size), np.float32)
                  for op, size in ((x, (length,) * 2), (grad, ((length - 1) // stride + 1,) * 2))}  # fmt: skip
        check_same_meaning([graph], values, targets=CPU_TARGETS, variables={"n": length}, tolerance=1e-4)


@pytest.mark.parametrize(("pixels", "batch"), [(6, (2,)), (2, ())], ids=["of each image", "of all images"])
def test_the_product_of_large_images_is_that_of_each(pixels: int, batch: tuple[int, ...]) -> None:
    (found,) = (op for op in toposort(contract([weight_gradient(64, 32, pixels)], TARGET)) if op.code is OpCode.MATMUL)
    assert found.shape[:-2] == batch


def outputs_of_conv(graph: Op, target: Target = TARGET) -> int:
    """Returns how many outputs the one CONV has that a gradient becomes."""
    (found,) = (op for op in toposort(contract([graph], target)) if op.code is OpCode.CONV)
    return int(found.shape[1])


@pytest.mark.parametrize(
    ("channels", "outputs", "expected"),
    [(16, 1, 16), (16, 3, 16), (32, 8, 32), (16, 16, 16), (17, 16, 16), (3, 16, 16), (5, 3, 3)],
)
def test_vectors_are_of_channels_where_outputs_would_leave_them_empty(channels: int, outputs: int, expected: int) -> None:
    graph = weight_gradient(channels, outputs, 6, taps=3, padding=1)
    assert outputs_of_conv(graph) == expected
    assert outputs_of_conv(graph, GPU_TARGET) == outputs


@pytest.mark.variants(every=6)
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("taps", [2, 3])
def test_roles_are_swapped_with_padding_that_no_window_is_in_alone(taps: int, padding: int) -> None:
    """Elements of the gradient whose windows are in the padding alone are left out before."""
    graph = weight_gradient(16, 3, 6, taps, padding=padding)
    assert outputs_of_conv(graph) == 16
    check_same_meaning([graph], values_for([graph]), tolerance=1e-4)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("dtype", "error"), [(dtypes.float64, 1e-5), (dtypes.float32, 1e-4), (dtypes.bfloat16, 0.5), (dtypes.float16, 0.1)]
)
@pytest.mark.parametrize("taps", [1, 3])
def test_they_add_up_to_the_gradient_in_every_float(taps: int, dtype: DType, error: float) -> None:
    graph = cast(weight_gradient(16, 4, 6, taps, dtype=dtype), dtypes.float32)
    check_same_meaning([graph], values_for([graph]), tolerance=error)
