"""Kernels of one product split into what a vendor's library computes of it and the rest, which is generated.

A split is a kernel itself, so the evaluator says whether it means the same; and what the library is asked for is computed
here from the data that it gets, by strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import picograd as pg
import picograd.nn.functional as F
from picograd import Tensor
from picograd.codegen.unfuse import Split, unfuse, unfuse_in_parts
from picograd.devices.cudasim.device import TARGET
from picograd.dtype import dtype_named
from picograd.evaluator.graph import evaluate_kernel
from picograd.ir.op import toposort
from picograd.ir.opts import Matrix, Opts, PlainProduct
from picograd.ir.spec import verify_kernel
from picograd.ir.stages import Kernel
from picograd.record import replace
from picograd.road import lower
from tests.gpu_kernels import Form, held, kernels_of, product_kernel_of

pytestmark = pytest.mark.req("E4")

Arrays = list[np.ndarray[Any, Any]]
h = pg.float16


def autocast(form: Form) -> Form:
    def cast() -> Tensor | tuple[Tensor, ...]:
        with pg.autocast(dtype=h):
            return form()

    return cast


def linear_gradients() -> tuple[Tensor, ...]:
    """Returns both gradients of a linear layer under autocast; its bias's is no product."""
    x, w = (Tensor(held(*shape).numpy(), device="NUMPY", requires_grad=True).realize() for shape in ((8, 6), (10, 6)))
    with pg.autocast(dtype=h):
        y = F.linear(x, w)
    (y.float() * held(8, 10)).sum().backward()
    assert x.grad is not None and w.grad is not None
    return x.grad, w.grad


def for_training(activation: Callable[[Tensor], Tensor]) -> Form:
    """Returns a step of two layers: for the gradient of its activation the first stores the product, too."""

    def form() -> tuple[Tensor, ...]:
        arrays = held(6, 10).numpy(), held(10, 4).numpy()
        weights = [Tensor(array, device="NUMPY", requires_grad=True).realize() for array in arrays]
        loss = (activation(held(8, 6) @ weights[0]) @ weights[1]).sum()
        loss.backward()
        return loss, *[weight.grad for weight in weights if weight.grad is not None]

    return form


def adam() -> tuple[Tensor, ...]:
    """Returns a weight and both its moments after a step, whose gradient is a product."""
    gradient, w, m, v = held(6, 8).T @ held(6, 10), held(8, 10), held(8, 10), held(8, 10).abs().realize()
    m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient * gradient
    return w - 0.01 * m / (v.sqrt() + 1e-8), m, v


# name: (form, what its splits are: launches before the product and behind, bytes in between, the library's own epilogue)
SPLITS: dict[str, tuple[Form, list[tuple[int, int, int, str]]]] = {
    "a product": (lambda: held(8, 6) @ held(6, 10), [(0, 0, 0, "")]),
    "linear": (lambda: F.linear(held(8, 6), held(10, 6), held(10)), [(0, 0, 0, "plus a bias"), (0, 1, 320, "")]),
    "linear, relu": (
        lambda: F.linear(held(8, 6), held(10, 6), held(10)).relu(), [(0, 0, 0, "plus a bias, relu"), (0, 1, 320, "")],
    ),
    "linear, gelu, residual": (
        lambda: F.gelu(F.linear(held(8, 6), held(10, 6), held(10))) + held(8, 10), [(0, 1, 320, "")],
    ),
    "linear under autocast": (
        autocast(lambda: F.linear(held(8, 6), held(10, 6), held(10))), [(1, 0, 236, "plus a bias"), (1, 1, 376, "")],
    ),
    "linear of 16 bits, gelu": (
        lambda: F.gelu(F.linear(held(8, 6, dtype=h), held(10, 6, dtype=h), held(10, dtype=h))), [(0, 1, 160, "")],
    ),
    "a step of sgd": (
        lambda: held(8, 10) - 0.1 * (held(6, 8).T @ held(6, 10)),
        [(0, 0, 0, "times -0.10000000149011612, plus 1.0 of a matrix"), (0, 1, 320, "")],
    ),
    "a step of adam": (adam, [(0, 1, 320, "")]),
    "gelu and its argument": (for_training(F.gelu), [(0, 1, 0, "")]),
    "a result that may lie where something is read": (for_training(lambda y: F.gelu(y) + held(8, 10)), [(0, 1, 320, "")]),
    "attention scores": (
        lambda: held(2, 8, 3, 6).transpose(1, 2) @ held(2, 9, 3, 6).permute(0, 2, 3, 1) * 0.5,
        [(1, 0, 2 * 3 * 6 * 17 * 4, "times 0.5"), (1, 1, 2 * 3 * 6 * 17 * 4 + 2 * 3 * 72 * 4, "")],
    ),
    "scores of heads, masked": (
        lambda: (held(8, 3, 6).transpose(0, 1) @ held(9, 3, 6).permute(1, 2, 0)).masked_fill(held(8, 9) > 0, -1.0),
        [(0, 1, 3 * 72 * 4, "")],
    ),
    "a cast operand": (lambda: held(8, 6) @ held(6, 10, dtype=h).float(), [(1, 0, 240, "")]),
    "widened operands, a bias": (
        lambda: held(8, 6, dtype=h).float() @ held(6, 10, dtype=h).float() + held(10),
        [(0, 0, 0, "plus a bias"), (0, 1, 320, "")],
    ),
    "a widened operand with gaps": (
        lambda: held(8, 12, dtype=h)[:, ::2].float() @ held(6, 10, dtype=h).float(), [(1, 0, 96, "")],
    ),
    "masked operands": (
        lambda: (held(8, 6) * (held(8, 6) > 0).float()) @ (held(6, 10) * 2.0), [(1, 0, 4 * (48 + 60), "")],
    ),
    "an operand by columns": (lambda: held(6, 8).exp().T @ held(6, 10), [(1, 0, 192, "")]),
    "one computed operand for a batch": (lambda: held(8, 6).exp() @ held(3, 6, 10), [(1, 0, 192, "")]),
    "one computed operand twice": (lambda: (lambda x: x.exp() @ x.exp().T)(held(8, 6)), [(1, 0, 192, "")]),
    "padding": (lambda: held(8, 4).pad((1, 1)) @ held(6, 10), [(1, 0, 192, "")]),
    "taken rows": (
        lambda: held(9, 6)[Tensor([1, 3, 8, 0] * 2, device="NUMPY").realize()] @ held(6, 10), [(1, 0, 192, "")],
    ),
    "a narrower result": (lambda: (held(8, 6) @ held(6, 10)).half(), [(0, 1, 320, "")]),
    "a wider result": (lambda: (held(8, 6, dtype=h) @ held(6, 10, dtype=h)).float(), [(0, 1, 160, "")]),
    "a comparison": (lambda: held(8, 6) @ held(6, 10) > 0, [(0, 1, 320, "")]),
    "everything at once": (
        lambda: (held(8, 6).relu() @ held(6, 10).half().float() + held(8, 1)).sigmoid().bfloat16(),
        [(1, 1, 4 * (48 + 60 + 80), "")],
    ),
}  # fmt: skip
REFUSED: dict[str, tuple[Form, str]] = {
    "a sum": (lambda: held(8, 6).sum(1), "it is not one product"),
    "a convolution": (lambda: F.conv2d(held(2, 3, 8, 8), held(4, 3, 3, 3)), "it is not one product"),
    "float64": (lambda: held(8, 6, dtype=pg.float64) @ held(6, 10, dtype=pg.float64), "its dtype is float64"),
    "int32": (lambda: held(8, 6, dtype=pg.int32) @ held(6, 10, dtype=pg.int32), "its dtype is int32"),
    "a length that varies": (lambda: held(8, 6)[: pg.Variable("n", 1, 8).bind(4)] @ held(6, 10), "its shape is symbolic"),
    "a column that varies": (
        lambda: held(8, 6) @ held(6, 10) * (lambda n: held(10)[n : n + 1])(pg.Variable("n", 1, 9).bind(4)),
        "it reads a symbolic integer",
    ),
    "what grows on its way": (
        lambda: held(64, 1) * held(1, 64) @ held(64, 2),
        "16384 bytes would be stored in between, more than 2 times its own 1536",
    ),
}  # fmt: skip


def splits_of(kernel: Kernel) -> tuple[Split, ...]:
    found = unfuse(kernel)
    assert not isinstance(found, str), found
    return found


@pytest.mark.parametrize("name", SPLITS)
def test_a_kernel_is_split_around_its_product(name: str) -> None:
    form, expected = SPLITS[name]
    splits = splits_of(product_kernel_of(form))
    found = []
    for split in splits:
        behind = len(split.kernel.phases) - 1 - split.place
        nbytes = sum(p.numel * p.dtype.itemsize for p in split.kernel.params if p.role == "scratch")  # type: ignore[operator]
        found.append((split.place, behind, nbytes, str(split.product.epilogue)))
    assert found == expected


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_product_or_too_dear_is_refused_with_a_reason(name: str) -> None:
    form, reason = REFUSED[name]
    assert [unfuse(kernel) for kernel in kernels_of(form)] == [reason]


@pytest.mark.parametrize(
    ("left", "is_column_major"),
    [(lambda: held(8, 6).exp(), False), (lambda: held(6, 8).exp().T, True)],
    ids=["rows", "columns"],
)
def test_an_operand_is_stored_as_what_it_is_read_from_lies(left: Callable[[], Tensor], is_column_major: bool) -> None:
    """So that both are read and written side by side, and nothing is turned round on its way."""
    (split,) = splits_of(product_kernel_of(lambda: left() @ held(6, 10)))
    stored, _ = split.kernel.phases
    assert stored[0].domain == ((6, 8) if is_column_major else (8, 6))
    assert split.product.a == Matrix(3, 0, 8 if is_column_major else 6, is_column_major, 0)


def test_joined_heads_are_stored_row_by_row_also_where_they_are_transposed() -> None:
    """A head is contiguous: copied the other way round, neighbouring threads would write far from each other."""

    def heads() -> Tensor:
        return held(3, 8, 2).transpose(0, 1).reshape(8, 6)

    for form in (lambda: heads() @ held(6, 10), lambda: heads().T @ held(8, 10)):
        stored, _ = splits_of(product_kernel_of(form))[0].kernel.phases
        assert stored[0].domain == (8, 6)


def test_both_gradients_under_autocast_are_split() -> None:
    """The gradient behind and the weight are cast, or x; each result is cast to float32 in the kernel of its product."""
    said = [[str(split) for split in splits_of(kernel)] for kernel in kernels_of(linear_gradients)]
    assert said == [["as launch 2 of 3, with 376 bytes in between"]] * 2


# ---- meaning ----
def arrays_for(kernel: Kernel, rng: np.random.Generator) -> Arrays:
    """Returns memory for each param, of normal numbers; zeros where they may be indices."""
    found = []
    for param in kernel.params:
        assert isinstance(param.numel, int)
        numbers = rng.standard_normal(param.numel) if param.dtype.is_float else np.zeros(param.numel)
        found.append(numbers.astype(param.dtype.numpy))
    return found


def matrices(memory: np.ndarray[Any, Any], matrix: Matrix, batch: int, rows: int, columns: int) -> np.ndarray[Any, Any]:
    """Returns the matrices of a batch as a library sees them, in float32: nothing outside of the memory is read."""
    steps = (1, matrix.stride) if matrix.is_column_major else (matrix.stride, 1)
    b, r, c = np.ogrid[:batch, :rows, :columns]
    found: np.ndarray[Any, Any] = memory[matrix.offset + b * matrix.batch_stride + r * steps[0] + c * steps[1]]
    return found.astype(np.float32)


def as_a_library(product: PlainProduct, memories: Arrays) -> None:
    """Computes a product from its description, in float32, and rounds once."""
    epilogue, batch, m, n, k = product.epilogue, product.batch, product.m, product.n, product.k
    for matrix in product.a, product.b:
        assert memories[matrix.slot].dtype == dtype_named(product.dtype).numpy
    a = matrices(memories[product.a.slot], product.a, batch, m, k)
    value = np.float32(epilogue.scale) * (a @ matrices(memories[product.b.slot], product.b, batch, k, n))
    out_dtype = dtype_named(product.out_dtype).numpy
    if epilogue.added is not None:
        assert memories[epilogue.added.slot].dtype == out_dtype and not epilogue.added.is_column_major
        value += np.float32(epilogue.factor) * matrices(memories[epilogue.added.slot], epilogue.added, batch, m, n)
    if epilogue.bias is not None:
        bias = memories[epilogue.bias.slot][epilogue.bias.offset :][:n]
        assert bias.dtype == out_dtype and len(bias) == n
        value += bias.astype(np.float32)
    value = np.maximum(value, 0) if epilogue.relu else value
    assert memories[product.out].dtype == out_dtype
    memories[product.out][...] = value.reshape(-1).astype(out_dtype)


@pytest.mark.parametrize("dtype", [pg.float32, pg.bfloat16], ids=str)
@pytest.mark.parametrize("parts", [2, 3])
def test_k_in_parts_means_the_same(parts: int, dtype: pg.DType) -> None:
    """The last of three parts has less of K than the others."""
    kernel = product_kernel_of(lambda: held(8, 400).cast(dtype) @ held(400, 12).cast(dtype) + 1)
    split = unfuse_in_parts(kernel, parts)
    assert split is not None and split.product.parts == parts and split.product.out_dtype == "float32"
    verify_kernel(split.kernel, after="unfuse")
    given = arrays_for(split.kernel, np.random.default_rng(0))
    expected = [array.copy() for array in given[: len(kernel.params)]]
    evaluate_kernel(kernel, expected)
    evaluate_kernel(split.kernel, given)
    for one, wanted in zip(given, expected):
        one, wanted = one.astype(np.float32), wanted.astype(np.float32)
        np.testing.assert_allclose(one, wanted, rtol=0, atol=1e-4 if dtype is pg.float32 else 0.2)


def test_k_has_no_more_parts_than_steps() -> None:
    kernel = product_kernel_of(lambda: held(8, 96) @ held(96, 12))
    assert unfuse_in_parts(kernel, 3) is not None and unfuse_in_parts(kernel, 4) is None


def check_meaning(kernel: Kernel) -> None:
    """Compares the splits of a kernel with it: to the bit as kernels, and as the library is asked for, but for rounding."""
    given = arrays_for(kernel, np.random.default_rng(0))
    expected = [array.copy() for array in given]
    evaluate_kernel(kernel, expected)
    for split in splits_of(kernel):
        verify_kernel(split.kernel, after="unfuse")
        extra = arrays_for(replace(split.kernel, params=split.kernel.params[len(given) :]), np.random.default_rng(1))
        as_kernel = [array.copy() for array in (*given, *extra)]
        evaluate_kernel(split.kernel, as_kernel)
        in_parts = [array.copy() for array in (*given, *extra)]
        evaluate_kernel(replace(split.kernel, phases=split.kernel.phases[: split.place]), in_parts)
        as_a_library(split.product, in_parts)
        evaluate_kernel(replace(split.kernel, phases=split.kernel.phases[split.place + 1 :]), in_parts)
        roots = [root for phase in kernel.phases for nest in phase for _, root in nest.outputs]
        dtypes = {op.dtype for op in toposort(roots)}
        eps = {h: 2e-3, pg.bfloat16: 2e-2}.get(kernel.params[-1].dtype, 2e-3 if h in dtypes else 1e-5)
        eps = max(eps, 2e-3 if "float16" in {split.product.dtype, split.product.out_dtype} else 0)
        for param, wanted, one, other in zip(kernel.params, expected, as_kernel, in_parts):
            np.testing.assert_array_equal(one, wanted)
            if param.dtype.is_float:
                wanted, other = (x.astype(np.float32) for x in (wanted, other))
                # some units in the last place of the sums, of six normal products each; a division spreads them
                np.testing.assert_allclose(other, wanted, rtol=4 * eps, atol=16 * eps)
            else:
                assert np.mean(other != wanted) < 0.02


@pytest.mark.parametrize("name", SPLITS)
def test_a_split_computes_what_its_kernel_does(name: str) -> None:
    check_meaning(product_kernel_of(SPLITS[name][0]))


@pytest.mark.parametrize("name", SPLITS)
def test_what_is_generated_is_a_launch_a_phase(name: str) -> None:
    for split in splits_of(product_kernel_of(SPLITS[name][0])):
        generated = split.generated
        assert len(generated.phases) == len(split.kernel.phases) - 1
        if generated.phases:
            program = lower(generated, TARGET, Opts())
            assert len(program.phases) == len(generated.phases)
            assert program.params[: len(generated.params)] == generated.params


# ---- drawn forms ----
OPERANDS: dict[str, Callable[[int, int], Tensor]] = {
    "rows": lambda rows, columns: held(rows, columns),
    "columns": lambda rows, columns: held(columns, rows).T,
    "cut out": lambda rows, columns: held(rows + 2, columns + 3)[1 : rows + 1, 2 : columns + 2],
    "gaps": lambda rows, columns: held(rows, 2 * columns)[:, ::2],
    "turned round": lambda rows, columns: held(rows, columns).flip(1),
    "computed": lambda rows, columns: held(rows, columns).sigmoid(),
    "computed columns": lambda rows, columns: (held(columns, rows) * 2.0).T,
    "scaled rows": lambda rows, columns: held(rows, columns) * held(rows, 1),
    "half": lambda rows, columns: held(rows, columns, dtype=h).float(),
    "bfloat16 columns": lambda rows, columns: held(columns, rows, dtype=pg.bfloat16).T.float(),
    "joined": lambda rows, columns: held(rows, columns - 1).pad((0, 1)),
    "a batch": lambda rows, columns: held(3, rows, columns),
    "heads": lambda rows, columns: held(rows, 3, columns).transpose(0, 1),
    "computed heads": lambda rows, columns: held(rows, 3, columns).transpose(0, 1).tanh(),
}
STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda y: y.relu(),
    "bias": lambda y: y + held(y.shape[-1]),
    "residual": lambda y: held(*y.shape) + y,
    "less": lambda y: held(*y.shape) - y,
    "scale": lambda y: y * -0.5,
    "gelu": F.gelu,
    "rows": lambda y: y * held(y.shape[-2], 1),
    "shape": lambda y: y.reshape(-1, y.shape[-1]),
    "half": lambda y: y.half(),
    "float": lambda y: y.float(),
}
Names = Sequence[str]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(OPERANDS)), st.sampled_from(sorted(OPERANDS)),
    st.lists(st.sampled_from(sorted(STEPS)), max_size=4), st.booleans(), st.booleans(),
)  # fmt: skip
def test_drawn_products_mean_the_same(left: str, right: str, steps: Names, narrow: bool, both: bool) -> None:
    def form() -> Tensor | tuple[Tensor, ...]:
        a, b = OPERANDS[left](8, 6), OPERANDS[right](6, 10)
        product = y = a.half() @ b.half() if narrow else a @ b
        for step in steps:
            y = STEPS[step](y)
        return (y, product) if both else y

    for kernel in kernels_of(form):
        if kernel.name.startswith("matmul"):
            check_meaning(kernel)
