"""Which nests are a product that a vendor's library computes, of matrices as they lie in memory.

Each form is a function of tensors; its kernel is made as for a GPU, and nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import picograd as pg
from picograd import Tensor
from picograd.codegen.unfuse import NotPlain, product_of
from picograd.ir.opts import Bias, Epilogue, Library, LibraryCall, Matrix, PlainProduct, read_library, write_library
from picograd.ir.stages import Kernel
from tests.gpu_kernels import Form, held, kernel_of


def product_in(kernel: Kernel) -> PlainProduct:
    """Returns the product that a kernel's only nest is; raises NotPlain."""
    ((nest,),) = kernel.phases
    return product_of(nest)


@pytest.fixture
def tf32() -> Iterator[None]:
    pg.set_float32_matmul_precision("high")
    yield
    pg.set_float32_matmul_precision("highest")


def rows(slot: int, stride: int, offset: int = 0, batch: int = 0) -> Matrix:
    return Matrix(slot, offset, stride, is_column_major=False, batch_stride=batch)


def columns(slot: int, stride: int, offset: int = 0, batch: int = 0) -> Matrix:
    return Matrix(slot, offset, stride, is_column_major=True, batch_stride=batch)


# name: (form, left operand, right operand, (batch, m, n, k), dtype; that of the result where it is another)
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
    "float16, widened": (
        lambda: held(8, 6, dtype=pg.float16).float() @ held(6, 10, dtype=pg.float16).float(),
        rows(0, 6), rows(1, 10), (1, 8, 10, 6), "float16 float32",
    ),
    "bfloat16, widened and narrowed": (
        lambda: (held(8, 6, dtype=pg.bfloat16).float() @ held(10, 6, dtype=pg.bfloat16).T.float()).bfloat16(),
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
    "two results": (lambda: (lambda y: (y.exp(), y.sin()))(held(8, 6) @ held(6, 10)), "it has several results"),
    "an activation": (lambda: (held(8, 6) @ held(6, 10)).tanh(), "it computes more than the product"),
    "a wider result": (
        lambda: (held(8, 6, dtype=pg.float16) @ held(6, 10, dtype=pg.float16)).float(), "it computes more than the product",
    ),
    "a narrower result": (lambda: (held(8, 6) @ held(6, 10)).half(), "its result is float16"),
    "one operand widened": (
        lambda: held(8, 6, dtype=pg.float16).float() @ held(6, 10, dtype=pg.bfloat16).float(), f"{LEFT} is computed",
    ),
    "an operand's activation": (lambda: held(8, 6).relu() @ held(6, 10), f"{LEFT} is computed"),
    "an operand's cast": (lambda: held(8, 6) @ held(6, 10, dtype=pg.float16).float(), f"{RIGHT} is computed"),
    "padding": (lambda: held(8, 4).pad((1, 1)) @ held(6, 10), f"{LEFT} is computed"),
    "a backward step": (lambda: held(8, 6).flip(0) @ held(6, 10), f"{LEFT} has no contiguous rows or columns"),
    "two steps": (lambda: held(8, 12)[:, ::2] @ held(6, 10), f"{LEFT} has no contiguous rows or columns"),
    "one row for all": (lambda: held(1, 6).expand(8, 6) @ held(6, 10), f"{LEFT} has no contiguous rows or columns"),
    "windows": (lambda: held(13).unfold(0, 6, 1) @ held(6, 10), f"{LEFT} is not strided"),
    "taken rows": (
        lambda: held(9, 6)[Tensor([1, 3], device="NUMPY").realize()] @ held(6, 10),
        f"{LEFT} is not strided",
    ),
    "heads of a batch": (
        lambda: held(2, 8, 3, 6).transpose(1, 2) @ held(2, 3, 6, 9), f"the matrices of {LEFT} are not at equal distances",
    ),
    "rows of a wider matrix": (
        lambda: held(4, 3, 6)[:, :2].reshape(8, 6) @ held(6, 10), f"{LEFT} is not strided",
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
    form, a, b, (batch, m, n, k), dtypes = TAKEN[name]
    kernel = kernel_of(form)
    operands, _, result = dtypes.partition(" ")
    assert product_in(kernel) == PlainProduct(a, b, len(kernel.params) - 1, batch, m, n, k, operands, result or operands)


@pytest.mark.req("E4")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_computed_otherwise_is_refused_with_a_reason(name: str) -> None:
    form, reason = REFUSED[name]
    with pytest.raises(NotPlain) as refused:
        product_in(kernel_of(form))
    assert str(refused.value).startswith(reason)


@pytest.mark.req("G13")
def test_tf32_is_allowed_where_the_graph_asks_for_it(tf32: None) -> None:
    assert product_in(kernel_of(lambda: held(8, 6) @ held(6, 10))).tf32
    narrow = kernel_of(lambda: held(8, 6, dtype=pg.float16).float() @ held(6, 10, dtype=pg.float16).float())
    assert not product_in(narrow).tf32  # which is exact already


@pytest.mark.parametrize("epilogue", [Epilogue(), Epilogue(0.5, -2.0, rows(3, 10, 1, 80), Bias(4, 2), True)], ids=str)
def test_a_choice_reads_back(epilogue: Epilogue) -> None:
    a, b = rows(0, 6, batch=48), rows(1, 10, batch=60)
    product = PlainProduct(a, b, 2, 3, 8, 10, 6, "float16", "float32", epilogue=epilogue)
    for call in LibraryCall(Library("a library", product, "00ff", "01ff", 4096), 1, 5), LibraryCall(
        Library("a library", product, "", "", 0), 0, None
    ):
        for code in b"", b"\x7fELF\n\0library":
            assert read_library(write_library(call, code)) == (call, code)
