"""Which kernels a vendor's library is asked for: a product that stands alone, of matrices as they lie in memory.

Each form is a function of tensors; its kernel is made as for a GPU, and nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.codegen.plain_product import plain_product
from picograd.engine.plan import parametrize, schedule_graphs, template
from picograd.ir.opts import Library, Matrix, PlainProduct, read_library, write_library
from picograd.ir.stages import Kernel
from picograd.runtime.cudasim import TARGET

Form = Callable[[], Tensor | tuple[Tensor, ...]]


def held(*shape: int, dtype: pg.DType = pg.float32) -> Tensor:
    """Returns a tensor in memory, other memory for each."""
    return Tensor(np.random.default_rng().standard_normal(shape).astype(np.float32), device="NUMPY").cast(dtype).realize()


def kernel_of(form: Form) -> Kernel:
    """Returns the only kernel of a form."""
    made = form()
    roots = [tensor.op for tensor in (made if isinstance(made, tuple) else (made,))]
    schedule = schedule_graphs(parametrize(roots, template(roots)), TARGET)
    (item,) = schedule.kernel_items()
    return item.kernel


@pytest.fixture
def tf32() -> Iterator[None]:
    pg.set_float32_matmul_precision("high")
    yield
    pg.set_float32_matmul_precision("highest")


def rows(slot: int, stride: int, offset: int = 0, batch: int = 0) -> Matrix:
    return Matrix(slot, offset, stride, is_turned=False, batch_stride=batch)


def columns(slot: int, stride: int, offset: int = 0, batch: int = 0) -> Matrix:
    return Matrix(slot, offset, stride, is_turned=True, batch_stride=batch)


# name: (form, left operand, right operand, (batch, m, n, k), dtype)
TAKEN: dict[str, tuple[Form, Matrix, Matrix, tuple[int, int, int, int], str]] = {
    "rows": (lambda: held(8, 6) @ held(6, 10), rows(0, 6), rows(1, 10), (1, 8, 10, 6), "float32"),
    "right columns": (lambda: held(8, 6) @ held(10, 6).T, rows(0, 6), columns(1, 6), (1, 8, 10, 6), "float32"),
    "left columns": (lambda: held(6, 8).T @ held(6, 10), columns(0, 8), rows(1, 10), (1, 8, 10, 6), "float32"),
    "columns": (lambda: held(6, 8).T @ held(10, 6).T, columns(0, 8), columns(1, 6), (1, 8, 10, 6), "float32"),
    "float16": (
        lambda: held(8, 6, dtype=pg.float16) @ held(6, 10, dtype=pg.float16),
        rows(0, 6), rows(1, 10), (1, 8, 10, 6), "float16",
    ),
    "bfloat16": (
        lambda: held(8, 6, dtype=pg.bfloat16) @ held(10, 6, dtype=pg.bfloat16).T,
        rows(0, 6), columns(1, 6), (1, 8, 10, 6), "bfloat16",
    ),
    "a batch": (
        lambda: held(3, 8, 6) @ held(3, 6, 10), rows(0, 6, batch=48), rows(1, 10, batch=60), (3, 8, 10, 6), "float32",
    ),
    "a batch of two axes": (
        lambda: held(2, 3, 8, 6) @ held(2, 3, 6, 10),
        rows(0, 6, batch=48), rows(1, 10, batch=60), (6, 8, 10, 6), "float32",
    ),
    "a batch with one right operand": (
        lambda: held(3, 8, 6) @ held(6, 10), rows(0, 6), rows(1, 10), (1, 24, 10, 6), "float32",
    ),
    "a batch with one left operand": (
        lambda: held(8, 6) @ held(3, 6, 10), rows(0, 6), rows(1, 10, batch=60), (3, 8, 10, 6), "float32",
    ),
    "heads": (
        lambda: held(8, 3, 6).transpose(0, 1) @ held(9, 3, 6).transpose(0, 1).transpose(1, 2),
        rows(0, 18, batch=6), columns(1, 18, batch=6), (3, 8, 9, 6), "float32",
    ),
    "columns cut out": (lambda: held(8, 9)[:, 2:8] @ held(6, 10), rows(0, 9, 2), rows(1, 10), (1, 8, 10, 6), "float32"),
    "rows cut out": (lambda: held(8, 6) @ held(9, 10)[3:], rows(0, 6), rows(1, 10, 30), (1, 8, 10, 6), "float32"),
    "every other row": (lambda: held(16, 6)[::2] @ held(6, 10), rows(0, 12), rows(1, 10), (1, 8, 10, 6), "float32"),
    "a long K of one": (lambda: held(8, 1) @ held(1, 10), rows(0, 1), rows(1, 10), (1, 8, 10, 1), "float32"),
    "one matrix twice": (lambda: (lambda x: x @ x.T)(held(8, 6)), rows(0, 6), columns(0, 6), (1, 8, 8, 6), "float32"),
}  # fmt: skip

LEFT, RIGHT = "the left operand", "the right operand"
REFUSED: dict[str, tuple[Form, str]] = {
    "a sum": (lambda: held(8, 6).sum(1), "it is not one product"),
    "a convolution": (lambda: pg.nn.functional.conv2d(held(2, 3, 8, 8), held(4, 3, 3, 3)), "it is not one product"),
    "two results": (lambda: (lambda y: (y.exp(), y.sin()))(held(8, 6) @ held(6, 10)), "more is computed than the product"),
    "a bias": (lambda: held(8, 6) @ held(6, 10) + held(10), "more is computed than the product"),
    "an activation": (lambda: (held(8, 6) @ held(6, 10)).relu(), "more is computed than the product"),
    "a wider result": (
        lambda: (held(8, 6, dtype=pg.float16) @ held(6, 10, dtype=pg.float16)).float(), "more is computed than the product",
    ),
    "an operand's activation": (lambda: held(8, 6).relu() @ held(6, 10), f"{LEFT} is computed"),
    "an operand's cast": (lambda: held(8, 6) @ held(6, 10, dtype=pg.float16).float(), f"{RIGHT} is computed"),
    "padding": (lambda: held(8, 4).pad((1, 1)) @ held(6, 10), f"{LEFT} is computed"),
    "a backward step": (lambda: held(8, 6).flip(0) @ held(6, 10), f"{LEFT} has neither rows nor columns side by side"),
    "two steps": (lambda: held(8, 12)[:, ::2] @ held(6, 10), f"{LEFT} has neither rows nor columns side by side"),
    "one row for all": (lambda: held(1, 6).expand(8, 6) @ held(6, 10), f"{LEFT} has neither rows nor columns side by side"),
    "windows": (lambda: held(13).unfold(0, 6, 1) @ held(6, 10), f"{LEFT} does not lie at equal distances"),
    "taken rows": (
        lambda: held(9, 6)[Tensor([1, 3], device="NUMPY").realize()] @ held(6, 10),
        f"{LEFT} does not lie at equal distances",
    ),
    "heads of a batch": (
        lambda: held(2, 8, 3, 6).transpose(1, 2) @ held(2, 3, 6, 9), f"the batch of {LEFT} does not lie at equal distances",
    ),
    "rows of a wider matrix": (
        lambda: held(4, 3, 6)[:, :2].reshape(8, 6) @ held(6, 10), f"{LEFT} does not lie at equal distances",
    ),
    "float64": (lambda: held(8, 6, dtype=pg.float64) @ held(6, 10, dtype=pg.float64), "its dtype is float64"),
    "int32": (lambda: held(8, 6, dtype=pg.int32) @ held(6, 10, dtype=pg.int32), "its dtype is int32"),
    "a length that varies": (
        lambda: held(8, 6)[: pg.Variable("n", 1, 8).bind(4)] @ held(6, 10), "its shape is symbolic",
    ),
}  # fmt: skip


@pytest.mark.req("E4")
@pytest.mark.parametrize("name", TAKEN)
def test_what_lies_in_memory_is_taken(name: str) -> None:
    form, a, b, (batch, m, n, k), dtype = TAKEN[name]
    kernel = kernel_of(form)
    assert plain_product(kernel) == PlainProduct(a, b, len(kernel.params) - 1, batch, m, n, k, dtype)


@pytest.mark.req("E4")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_computed_otherwise_is_refused_with_a_reason(name: str) -> None:
    form, reason = REFUSED[name]
    found = plain_product(kernel_of(form))
    assert isinstance(found, str) and found.startswith(reason), found


@pytest.mark.req("G13")
def test_tf32_is_allowed_where_the_graph_asks_for_it(tf32: None) -> None:
    product = plain_product(kernel_of(lambda: held(8, 6) @ held(6, 10)))
    assert isinstance(product, PlainProduct) and product.tf32


def test_a_choice_reads_back() -> None:
    product = plain_product(kernel_of(lambda: held(3, 8, 6) @ held(3, 6, 10)))
    assert isinstance(product, PlainProduct)
    choice = Library("cuBLASLt 13.10.0", product, "00ff", "01ff", 4096)
    assert read_library(write_library(choice)) == choice
