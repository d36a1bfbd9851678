"""What a vendor's library is left to compute of a product, in an epilogue of its own."""

from __future__ import annotations

import pytest

import picograd as pg
import picograd.nn.functional as F
from picograd import Tensor
from picograd.codegen.unfuse import NotPlain, epilogue_of
from picograd.ir.build import gather, iota
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.opts import Bias, Epilogue, Matrix
from tests.gpu_kernels import Form, held, kernel_of

h, b16 = pg.float16, pg.bfloat16


def product(dtype: pg.DType = pg.float32) -> Tensor:
    return held(8, 6, dtype=dtype) @ held(6, 10, dtype=dtype)


def widened() -> Tensor:
    return held(8, 6, dtype=h).float() @ held(6, 10, dtype=h).float()


def batch() -> Tensor:
    return held(3, 8, 6) @ held(3, 6, 10)


def with_slot(slot: int, stride: int = 10, offset: int = 0, batch: int = 0) -> Matrix:
    return Matrix(slot, offset, stride, is_column_major=False, batch_stride=batch)


# name: (form, its epilogue). Slots are numbered as values are met: what stands before a product comes first.
TAKEN: dict[str, tuple[Form, Epilogue]] = {
    "nothing": (product, Epilogue()),
    "another shape": (lambda: product().reshape(2, 4, 10), Epilogue()),
    "a bias": (lambda: product() + held(10), Epilogue(bias=Bias(2, 0))),
    "a bias of 16 bits": (lambda: product(h) + held(10, dtype=h), Epilogue(bias=Bias(2, 0))),
    "a part of a bias": (lambda: product() + held(15)[3:13], Epilogue(bias=Bias(2, 3))),
    "a bias before": (lambda: held(10) + product(), Epilogue(bias=Bias(0, 0))),
    "a bias in another shape": (lambda: product().reshape(2, 4, 10) + held(10), Epilogue(bias=Bias(2, 0))),
    "a bias of a batch": (lambda: batch() + held(10), Epilogue(bias=Bias(2, 0))),
    "a linear layer": (lambda: F.linear(held(2, 4, 6), held(10, 6), held(10)), Epilogue(bias=Bias(2, 0))),
    "relu": (lambda: product().relu(), Epilogue(relu=True)),
    "relu of 16 bits": (lambda: product(b16).relu(), Epilogue(relu=True)),
    "relu, narrowed": (lambda: widened().relu().half(), Epilogue(relu=True)),
    "a bias and relu": (lambda: (product() + held(10)).relu(), Epilogue(bias=Bias(2, 0), relu=True)),
    "a scale": (lambda: product() * 0.5, Epilogue(scale=0.5)),
    "minus": (lambda: -product(), Epilogue(scale=-1.0)),
    "a scale, a bias and relu": (lambda: (0.5 * product() + held(10)).relu(), Epilogue(0.5, bias=Bias(2, 0), relu=True)),
    "a residual": (lambda: product() + held(8, 10), Epilogue(factor=1.0, added=with_slot(2))),
    "a residual before": (lambda: held(8, 10) + product(), Epilogue(factor=1.0, added=with_slot(0))),
    "a residual of 16 bits": (lambda: held(8, 10, dtype=h) + product(h), Epilogue(factor=1.0, added=with_slot(0))),
    "a residual of a batch": (lambda: batch() + held(3, 8, 10), Epilogue(factor=1.0, added=with_slot(2, batch=80))),
    "a part of a residual": (lambda: product() + held(9, 12)[1:, 2:], Epilogue(factor=1.0, added=with_slot(2, 12, 14))),
    "one residual for a batch": (lambda: batch() + held(8, 10), Epilogue(factor=1.0, added=with_slot(2))),
    "a step down": (lambda: held(8, 10) - 0.25 * product(), Epilogue(-0.25, 1.0, with_slot(0))),
    "what is too much": (lambda: product() - held(8, 10), Epilogue(1.0, -1.0, with_slot(2))),
    "a moving average": (lambda: 0.75 * held(8, 10) + 0.25 * product(), Epilogue(0.25, 0.75, with_slot(0))),
    "a bias, then a residual": (
        lambda: held(8, 10) + F.linear(held(8, 6), held(10, 6), held(10)), Epilogue(1.0, 1.0, with_slot(0), Bias(3, 0)),
    ),
    "a product less": (lambda: (held(8, 10) + held(10)) - product(), Epilogue(-1.0, 1.0, with_slot(0), Bias(1, 0))),
    "a residual, then a bias": (
        lambda: ((product() + held(8, 10)) + held(10)).relu(), Epilogue(1.0, 1.0, with_slot(2), Bias(3, 0), True),
    ),
}  # fmt: skip
REFUSED: dict[str, Form] = {
    "a bias of rows": lambda: product() + held(8, 1),
    "a bias turned round": lambda: product() + held(10).flip(0),
    "a bias with gaps": lambda: product() + held(20)[::2],
    "a bias that is computed": lambda: product() + held(10).exp(),
    "a bias of another dtype": lambda: product(h) + held(10).half(),
    "a wider bias": lambda: (widened() + held(10)).half(),
    "a bias less": lambda: held(10) - product() * held(10),
    "two biases": lambda: (product() + held(10)) + held(10),
    "two residuals": lambda: (product() + held(8, 10)) + held(8, 10),
    "less a bias": lambda: product() - held(10),
    "a scale of a sum": lambda: (product() + held(10)) * 0.5,
    "a residual by columns": lambda: product() + held(10, 8).T,
    "a residual that is computed": lambda: product() + held(8, 10).exp(),
    "a residual with zeros around": lambda: product() + held(8, 8).pad((1, 1)),
    "itself": lambda: (lambda x: x + x)(product()),
    "a scale for each": lambda: product() * held(8, 10),
    "no product": lambda: product() * 0.0,
    "no residual": lambda: product() + held(8, 10) * 0.0,
    "another limit": lambda: product().clamp(min=1.0),
    "relu of something else": lambda: F.leaky_relu(product()),
    "relu before a bias": lambda: product().relu() + held(10),
    "gelu": lambda: F.gelu(product(), approximate="tanh"),
    "a cast": lambda: product(h).float(),
    "a comparison": lambda: product() > 0,
}


@pytest.mark.req("E4")
@pytest.mark.parametrize("name", TAKEN)
def test_what_a_library_has_is_left_to_it(name: str) -> None:
    form, epilogue = TAKEN[name]
    ((nest,),) = kernel_of(form).phases
    assert nest.anchor is not None
    assert epilogue_of(nest.outputs[0][1], nest.anchor) == epilogue


@pytest.mark.req("E4")
@pytest.mark.parametrize("name", REFUSED)
def test_what_it_has_not_is_refused(name: str) -> None:
    ((nest,),) = kernel_of(REFUSED[name]).phases
    assert nest.anchor is not None
    with pytest.raises(NotPlain, match="it computes more than the product"):
        epilogue_of(nest.outputs[0][1], nest.anchor)


def test_what_is_read_in_part_is_refused() -> None:
    """The eighth row of seven reads 0 in a gather; a library would read what lies behind them."""
    a, b, rows = (Op(OpCode.PARAM, pg.float32, (), arg) for arg in ((0, (8, 6)), (1, (6, 10)), (2, (7, 10))))
    anchor = Op(OpCode.MATMUL, pg.float32, (a, b))
    with pytest.raises(NotPlain, match="it computes more than the product"):
        epilogue_of(anchor + gather(rows, iota(8), 0, 0), anchor)


def test_an_epilogue_says_what_it_computes() -> None:
    assert str(Epilogue()) == ""
    assert str(Epilogue(0.5, -1.0, with_slot(2), Bias(3, 0), True)) == "times 0.5, plus -1.0 of a matrix, plus a bias, relu"
