"""Every public method of Tensor on x[:n]: right, or an error that names the length, the line and what to do."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, dtypes
from picograd.errors import IndexingError, PicogradError, ShapeError
from picograd.nn import functional as F
from picograd.public import plain
from tests.helpers import mostly_evaluated
from tests.operations.table import all_operations

N = pg.Variable("n", 1, 6).bind(4)
DATA = np.random.default_rng(0).uniform(0.1, 0.9, (6, 4)).astype(np.float32)


def row() -> Tensor:
    return Tensor(DATA[5])


def table() -> Tensor:
    return Tensor(DATA)


# by method: calls that give what they give for four rows
WORKS: dict[str, list[Callable[[Tensor], Any]]] = {
    "movement": [
        lambda x: x.T,
        lambda x: x.mT,
        lambda x: x.transpose(0, 1),
        lambda x: x.permute(1, 0),
        lambda x: x.movedim(0, 1),
        lambda x: x.flatten(),
        lambda x: x.unsqueeze(0).flatten(0, 1),
        lambda x: x.reshape(-1),
        lambda x: x.reshape(-1, 4),
        lambda x: x.reshape(2, -1),
        lambda x: x.reshape(x.shape[0], -1),
        lambda x: x.view(-1, 2),
        lambda x: x.view_as(x),
        lambda x: x.unflatten(1, (2, -1)),
        lambda x: x.squeeze(),
        lambda x: x.unsqueeze(1),
        lambda x: x.unsqueeze(0).squeeze(0),
        lambda x: x.expand(3, -1, -1),
        lambda x: x.broadcast_to((2, *x.shape)),
        lambda x: x[:1].expand_as(x),
        lambda x: x.repeat(2, 1),
        lambda x: x.repeat(1, 2),
        lambda x: x.repeat(2, 1, 3),
        lambda x: x.repeat_interleave(2),
        lambda x: x.repeat_interleave(2, 0),
        lambda x: x.repeat_interleave(2, 1),
        lambda x: x.narrow(0, 0, 1),
        lambda x: x.narrow(1, 1, 2),
        lambda x: x.split(2, 1)[1],
        lambda x: x.chunk(2, 1)[0],
        lambda x: x.unbind(1)[3],
        lambda x: x.flip(0),
        lambda x: x.roll(1, 1),
        lambda x: x.roll(1, 0),
        lambda x: x.roll(-2, 0),
        lambda x: x.roll(9, 0),
        lambda x: x.roll(3),
        lambda x: x.select(0, -1),
        lambda x: x.select_scatter(x[0] * 2, 0, -1),
        lambda x: x.rearrange("a (b c) -> b a c", b=2),
        lambda x: x.rearrange("a b -> (b a)"),
        lambda x: x.repeat(2, 1).rearrange("(k a) b -> a k b", k=2),
        lambda x: x.reduce("a b -> b", "mean"),
        lambda x: x.pad((1, 2)),
        lambda x: x.pad((0, 0, 1, 1)),
        lambda x: x.cat([x, x], 1),
        lambda x: x.cat([x, x * 2]),
        lambda x: x.cat([table(), x, x[1:]]),
        lambda x: x.vstack([x, row()]),
        lambda x: pg.block_diag(x, x),
        lambda x: (x @ x.T).diagonal(),
        lambda x: x.diagonal() * 2,
        lambda x: pg.diag(x[:, 0]),
        lambda x: x.T.diag_embed(1, 0, 2),
        lambda x: (x * 1).fill_diagonal_(2.0, wrap=True),
        lambda x: x.stack([x, x]),
        lambda x: x.tril(),
        lambda x: x.triu(1),
        lambda x: x.bmm(x) if x.ndim == 3 else x[None].bmm(x.T[None]),
        lambda x: x.contiguous(),
        lambda x: x.clone(),
    ],
    "statistics": [
        lambda x: x.reshape_as(x * 2),
        lambda x: x.to_device(x.device),
        lambda x: x.var_mean(0)[0],
        lambda x: x.var_mean(0)[1],
        lambda x: x.std_mean()[0],
        lambda x: x.std_mean(correction=0.5)[0],
        lambda x: x.equal(x * 1),
        lambda x: x.allclose(x + 1e-9),
        lambda x: x.is_same_size(x * 2),
        lambda x: x.conj(),
    ],
    "elementwise": [
        *[
            (lambda x, name=name: getattr(x, name)())
            for name in [
                "abs",
                "ceil",
                "cos",
                "cosh",
                "erf",
                "exp",
                "exp2",
                "expm1",
                "floor",
                "gelu",
                "isfinite",
                "isinf",
                "isnan",
                "log",
                "log10",
                "log1p",
                "log2",
                "logical_not",
                "neg",
                "reciprocal",
                "relu",
                "round",
                "rsqrt",
                "sigmoid",
                "sign",
                "silu",
                "sin",
                "sinh",
                "softplus",
                "sqrt",
                "square",
                "tan",
                "tanh",
                "trunc",
            ]
        ],
        *[
            (lambda x, name=name: getattr(x, name)(x * 0.5))
            for name in [
                "add",
                "div",
                "eq",
                "floor_divide",
                "ge",
                "gt",
                "le",
                "lt",
                "maximum",
                "minimum",
                "mul",
                "ne",
                "pow",
                "remainder",
                "sub",
            ]
        ],
        lambda x: x + row(),
        lambda x: x.logical_and(x > 0.5),
        lambda x: x.logical_or(x > 0.5),
        lambda x: x.lerp(x, 0.5),
        lambda x: x.clamp(0.2, 0.5),
        lambda x: x.where(x > 0.5, 0.0),
        lambda x: x.masked_fill(x > 0.5, 0.0),
        lambda x: (x > 0.5).bitwise_not(),
        lambda x: x.int().bitwise_and(1),
        lambda x: x.int().bitwise_or(1),
        lambda x: x.int().bitwise_xor(1),
        lambda x: x.int().bitwise_left_shift(1),
        lambda x: x.int().bitwise_right_shift(1),
        lambda x: x.cast(dtypes.float64),
        lambda x: x.bitcast(dtypes.int32),
        lambda x: x.bool(),
        lambda x: x.double(),
        lambda x: x.float(),
        lambda x: x.half().float(),
        lambda x: x.bfloat16().float(),
        lambda x: x.long(),
        lambda x: x.type_as(x),
        lambda x: x.to("NUMPY"),
        lambda x: x.detach(),
        lambda x: x.data,
    ],
    "reduce": [
        lambda x: x.sum(),
        lambda x: x.sum(0),
        lambda x: x.sum(1),
        lambda x: x.mean(),
        lambda x: x.mean(0),
        lambda x: x.var(),
        lambda x: x.var(0),
        lambda x: x.std(1),
        lambda x: x.norm(),
        lambda x: x.prod(0),
        lambda x: x.all(),
        lambda x: x.any(0),
        lambda x: x.amax(0),
        lambda x: x.amin(-1),
        lambda x: x.max(),
        lambda x: x.min(),
        lambda x: x.max(1)[0],
        lambda x: x.argmax(1),
        lambda x: x.argmin(1),
        lambda x: x.argmax(0),
        lambda x: x.argmin(),
        lambda x: x.max(0)[1],
        lambda x: x.min(1)[1],
        lambda x: x.cumsum(0),
        lambda x: x.cumprod(1),
        lambda x: x.logsumexp(0),
        lambda x: x.log_softmax(0),
        lambda x: x.softmax(1),
        lambda x: x.argsort(0),
        lambda x: x.sort(0)[0],
        lambda x: x.sort(1)[1],
        lambda x: x.topk(2, 1)[0],
    ],
    "products": [
        lambda x: x.matmul(table().T),
        lambda x: x.T @ x,
        lambda x: x.mm(x.T),
        lambda x: x.mv(row()),
        lambda x: x[:, 0].dot(x[:, 1]),
        lambda x: x[:, 0].outer(x[:, 1]),
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.linear(x, table()),
    ],
    "indices": [
        lambda x: x[0],
        lambda x: x[-1],
        lambda x: x[1:],
        lambda x: x[:2],
        lambda x: x[:-1],
        lambda x: x[1:-1],
        lambda x: x[..., 0],
        lambda x: x[:, 1:3],
        lambda x: x[Tensor([0, 1])],
        lambda x: x[:, [0, 2]],
        lambda x: x[[0, 1]],
        lambda x: x[[0, -1], [1, 2]],
        lambda x: x[N - 1],
        lambda x: x[: N - 1],
        lambda x: x.index_select(0, Tensor([0, 1])),
        lambda x: x.index_select(1, Tensor([3])),
        lambda x: x.nonzero(),
        lambda x: x.take_along_dim(x.argsort(1), 1),
        lambda x: x.gather(0, Tensor([[0, 1, 2, 0]])),
        lambda x: x.gather(1, x.argsort(1)[:, :2]),
        lambda x: x.argmax(1).one_hot(4),
    ],
    "new": [
        lambda x: x.zeros_like(x),
        lambda x: x.ones_like(x),
        lambda x: x.full_like(x, 2.0),
        lambda x: x.empty_like(x) * 0,
        lambda x: x.new_zeros(*x.shape),
        lambda x: x.new_ones(x.shape),
        lambda x: x.new_empty(*x.shape),
        lambda x: x.new_full(x.shape, 2.0),
        lambda x: x.new_tensor([1, 2]),
        lambda x: (x * 9).short(),
        lambda x: (x * 9).char(),
        lambda x: (x * 9).byte(),
        lambda x: pg.zeros(*x.shape),
        lambda x: pg.arange(x.shape[0]),
        lambda x: pg.arange(2, x.shape[0] + 3),
        lambda x: x + pg.arange(x.shape[0]).unsqueeze(1),
        lambda x: pg.full(x.shape, 2.0),
        lambda x: pg.zeros(3, x.shape[0]),
    ],
    "in place": [
        lambda x: x.clone().add_(1.0),
        lambda x: x.clone().sub_(x),
        lambda x: x.clone().mul_(x),
        lambda x: x.clone().div_(x),
        lambda x: x.clone().pow_(2.0),
        lambda x: x.clone().fill_(2.0),
        lambda x: x.clone().zero_(),
        lambda x: x.clone().copy_(x),
        lambda x: x.clone().assign(x * 2),
        lambda x: _written(x, 0),
        lambda x: _written(x, -1),
        lambda x: _written(x, slice(1, None)),
        lambda x: x.clone().realize(),
        lambda x: x.clone().tril_(),
        lambda x: x.clone().triu_(1),
        lambda x: (x * 2).detach_(),
        lambda x: x.clone().addmm_(x, Tensor(DATA[:4])),
        lambda x: x[:, 0].clone().addmv_(x, row()),
        lambda x: x.clone().addr_(x[:, 1], row()),
        lambda x: x.clone()[None].baddbmm_(x[None], Tensor(DATA[None, :4])),
        lambda x: x.clone().addbmm_(x[None], Tensor(DATA[None, :4])),
    ],
    "host": [
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: repr(x),
        lambda x: x.dim(),
        lambda x: x.ndimension(),
        lambda x: x.get_device(),
        lambda x: (x.is_complex(), x.is_conj(), x.is_neg()),
        lambda x: (x.is_floating_point(), x.is_signed(), x.is_cpu, x.is_cuda, x.itemsize),
        lambda x: x.ndim,
        lambda x: x.dtype.name,
        lambda x: x.element_size(),
        lambda x: x.device,
        lambda x: x.sum().item(),
        lambda x: [part.tolist() for part in x.T],
        lambda x: x.is_leaf,
        lambda x: x.requires_grad,
        lambda x: x.size(1),
        lambda x: x.grad,
        lambda x: (x.grad_fn, x.retains_grad, x.is_contiguous(), x.is_pinned(), x.storage_offset()),
        lambda x: x.pin_memory(),
        lambda x: x.cpu(),
    ],
    "gradients": [
        lambda x: _gradient(x, lambda x: x.requires_grad_().exp().sum().backward()),
        lambda x: _gradient(x, lambda x: (pg.cat([x.requires_grad_(), x * 2]) ** 2).sum().backward()),
        lambda x: _gradient(x, lambda x: (x.requires_grad_().roll(1, 0) * x.max(0)[0]).sum().backward()),
        lambda x: pg.scan(lambda s, part: (s + part, s), row(), x)[1],
        lambda x: pg.outline(lambda x: x * 2)(x),
        lambda x: pg.checkpoint(lambda x: x.flatten(), x),
    ],
}

WORKS["strides and sizes"] = [
    lambda x: x.as_strided((2, 2), (1, 1)),
    lambda x: x.sum_to_size(1, 4),
    lambda x: x.to_dense(),
    lambda x: (x - 0.5).prelu(Tensor([0.25])),
]

REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "topk": lambda x: x.topk(2, 0),
    "split": lambda x: x.split(2),
    "split into lengths": lambda x: x.split([1, 3]),
    "chunk": lambda x: x.chunk(2),
    "unbind": lambda x: x.unbind(),
    "iteration": lambda x: list(x),
    "len": len,
    "resize_": lambda x: x.clone().resize_(2, 2),
    "resize_as_": lambda x: row().resize_as_(x),
    "apply_": lambda x: x.clone().apply_(float),
    "gather": lambda x: x.gather(1, Tensor([[0], [1]])),
    "select outside": lambda x: x.select(0, 5),
    "masked_select": lambda x: x.masked_select(x > 0.5),
    "mask": lambda x: x[x > 0.5],
    "step": lambda x: x[::2],
    "outside": lambda x: x[5],
    "unflatten": lambda x: x.unflatten(0, (2, -1)),
    "reshape": lambda x: x.reshape(16),
    "reshape to a multiple": lambda x: x.reshape(-1, 3),
    "view": lambda x: x.view(2, 9),
    "expand": lambda x: x.expand(7, 4),
    "numel": lambda x: x.numel(),
    "qr": lambda x: x.qr(),
    "svd": lambda x: x.svd(),
    "from_dlpack": lambda x: Tensor.from_dlpack(x),
    "nelement": lambda x: x.nelement(),
    "is_nonzero": lambda x: x.is_nonzero(),
    "nbytes": lambda x: x.nbytes,
    "stride": lambda x: x.stride(),
    "data_ptr": lambda x: x.data_ptr(),
    "item": lambda x: x.item(),
    "bool": bool,
    "float": float,
    "int of a length": lambda x: int(x.shape[0]),
    "range of a length": lambda x: range(x.shape[0]),
    "a length compared": lambda x: x.shape[0] > 3,
    "half a length": lambda x: x.shape[0] // 2,
    "arange in steps": lambda x: pg.arange(0, x.shape[0], 2),
    "arange of the integer in steps": lambda x: pg.arange(0, N, 0.5),
    "linspace": lambda x: pg.linspace(0, 1, N),
    "integer compared": lambda x: N > 3,
    "rand": lambda x: pg.rand(*x.shape),
    "rand_like": lambda x: x.rand_like(x),
    "randn_like": lambda x: x.randn_like(x),
    "bernoulli": lambda x: x.bernoulli(),
    "multinomial": lambda x: x.multinomial(2),
    "uniform_": lambda x: x.clone().uniform_(),
    "normal_": lambda x: x.clone().normal_(),
    "bernoulli_": lambda x: x.clone().bernoulli_(),
    "exponential_": lambda x: x.clone().exponential_(),
    "geometric_": lambda x: x.clone().geometric_(0.5),
    "log_normal_": lambda x: x.clone().log_normal_(),
    "cauchy_": lambda x: x.clone().cauchy_(),
    "random_": lambda x: x.clone().random_(),
    "randint_like": lambda x: x.randint_like(x, 5),
    "dropout": lambda x: F.dropout(x, 0.5),
    "other length": lambda x: x + table(),
    "product": lambda x: x @ x,
    "cross_entropy": lambda x: F.cross_entropy(x, Tensor([0, 1, 2, 3])),
}

# What the tables above need not name: they make tensors without one, or belong to the inside.
ELSEWHERE = [
    "is_inference",
    "is_meta",
    "is_mkldnn",
    "is_mps",
    "is_nested",
    "is_xpu",
    "is_quantized",
    "is_sparse",
    "take_result",
    "broadcast_shapes",
    "choose",
    "arange",
    "logspace",
    "eye",
    "linspace",
    "randint",
    "randn",
    "rand",
    "randperm",
    "full",
    "zeros",
    "ones",
    "empty",
    "from_op",
    "from_memory",
    "from_cell",
    "viewed",
    "viewed_by",
    "read",
    "write",
    "steps",
    "cell",
    "op",
    "forget_old",
    "other_device",
    "cuda",
    "requires_grad",
    "register_hook",
    "register_post_accumulate_grad_hook",
    "retain_grad",
    "backward",
]


def symbolic() -> Tensor:
    return Tensor(DATA).realize()[:N]


def _written(x: Tensor, at: Any) -> Tensor:
    x = x.clone()
    x[at] = 1.5
    return x


def _gradient(x: Tensor, use: Callable[[Tensor], Any]) -> Tensor:
    x = x.clone().detach()
    use(x)
    assert x.grad is not None
    return x.grad


def _value(result: Any) -> Any:
    return result.detach().numpy() if isinstance(result, Tensor) else result


@pytest.mark.req("G4")
@mostly_evaluated(every=3)
@pytest.mark.parametrize("kind", WORKS)
def test_a_method_gives_what_it_gives_for_as_many_rows(kind: str, device: str) -> None:
    for call in WORKS[kind]:
        found, expected = _value(call(symbolic())), _value(call(Tensor(DATA[:4])))
        if isinstance(expected, np.ndarray):
            assert found.shape == expected.shape and found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)  # sums may be in another order
        else:
            assert found == expected


@pytest.mark.req("G4")
@pytest.mark.parametrize("name", REFUSED)
def test_a_method_that_needs_a_number_says_so(name: str) -> None:
    with pytest.raises((ShapeError, IndexingError)) as caught:
        REFUSED[name](symbolic())
    error = caught.value
    assert isinstance(error, PicogradError) and error.line is not None and error.line.file == __file__
    assert "<" not in error.fact and ("n=4" in error.fact or "4 * n = 16" in error.fact), error.fact


def test_the_tables_name_every_public_method() -> None:
    import inspect

    source = inspect.getsource(inspect.getmodule(test_the_tables_name_every_public_method))  # type: ignore[arg-type]
    rows = {row.name for row in all_operations()}  # tests/operations does the same with each
    functions = {plain(getattr(Tensor, row.removeprefix("Tensor."))) for row in rows if row.startswith("Tensor.")}
    named = source[: source.index("# What the tables above need not name")]
    functions |= {plain(getattr(Tensor, name)) for name in dir(Tensor) if f".{name}(" in named}  # other names of it
    missing = [
        name
        for name in dir(Tensor)
        if not name.startswith("_") and name not in ELSEWHERE and f".{name}" not in named and f" {name}" not in named
        and f'"{name}' not in named and f"Tensor.{name}" not in rows and plain(getattr(Tensor, name)) not in functions
        and not hasattr(Tensor, name.removesuffix("_") if name.endswith("_") else "")  # what stores a result
    ]  # fmt: skip
    assert not missing, missing


def test_errors_name_lengths_as_users_write_them() -> None:
    x = symbolic()
    with pytest.raises(ShapeError) as caught:
        x.unbind()
    assert str(caught.value).splitlines()[0] == (
        "unbind: axis 0 of shape (n=4, 4) has a symbolic length, n=4; here one number is needed."
    )
    assert caught.value.hint == "cut it to a number of elements first, as in x[:3], or along another axis."
    assert [str(table()[part].shape) for part in (slice(N + 1), slice(N - 1), slice(1, N))] == [
        "(n + 1 = 5, 4)", "(n - 1 = 3, 4)", "(n - 1 = 3, 4)",
    ]  # fmt: skip
    assert str(Tensor(np.zeros(20))[: 2 * N + 1].shape) == "(2 * n + 1 = 9,)"


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "add", "sub", "mul", "truediv", "floordiv", "pow"])
def test_a_length_beside_a_tensor_is_an_error_and_no_comparison_of_objects(name: str) -> None:
    length, x = symbolic().shape[0], Tensor([4.0, 5.0])
    for function in (getattr(operator, name), getattr(pg, {"truediv": "div", "floordiv": "floor_divide"}.get(name, name))):
        with pytest.raises(ShapeError, match="a symbolic length, n=4, is used where one number is needed"):
            function(x, length)


@pytest.mark.req("G4")
def test_symbolic_integers_may_stand_in_shapes(device: str) -> None:
    """In jit, where the length of an argument is one: every value by one plan."""
    n, x = pg.Variable("n", 1, 6), Tensor(DATA).realize()

    @pg.jit
    def f(n: Any) -> tuple[Tensor, Tensor]:
        rows = x[:n]
        return rows.reshape(n, 2, 2).sum(0), (pg.zeros(n, 4) + rows).reshape(n * 4).sum() + rows[-1].sum()

    for k in (4, 1, 6):
        blocks, total = f(n.bind(k))
        np.testing.assert_allclose(blocks.numpy(), DATA[:k].reshape(k, 2, 2).sum(0), rtol=1e-5)
        assert total.item() == pytest.approx(DATA[:k].sum() + DATA[k - 1].sum(), rel=1e-5)
    assert len(f.forms) == 1


SPELLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "repeated once": lambda x: x.repeat_interleave(1, 0),
    "once a length": lambda x: x.reshape(1 * x.shape[0], 4),
    "a length and nothing": lambda x: x.view(x.shape[0] + 0, 4),
    "less and more": lambda x: x.expand(x.shape[0] - 1 + 1, 4),
    "twice a length": lambda x: x.repeat_interleave(2, 0).reshape(x.shape[0] + x.shape[0], 4).unflatten(0, (-1, 2))[:, 0],
    "made of that length": lambda x: x + pg.zeros(x.shape[0] + 1 - 1, 4),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_length_that_is_written_in_another_way_is_the_same(name: str, device: str) -> None:
    """Python's operators on lengths of a shape make no normal form: 1 * n had been another length than n."""
    whole = table().to(device).requires_grad_()
    x = whole[:N]
    y = SPELLINGS[name](x)
    assert y.shape == x.shape
    (y[1:] * x[1:]).sum().backward()
    assert whole.grad is not None
    expected = np.zeros_like(DATA)
    expected[1:4] = 2 * DATA[1:4]
    np.testing.assert_allclose(whole.grad.numpy(), expected, rtol=1e-6)
