"""Arguments of another type than a function takes, and values outside its domain: the full text of what users are told."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, dtypes, nn, optim
from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode
from picograd.nn import functional as F

X = Tensor([[1.0, 2.0], [3.0, 4.0]])


def leaf() -> Tensor:
    return Tensor([1.0], requires_grad=True)


def text_of(function: Callable[[], Any], kind: type[Exception]) -> str:
    """Returns the message of the error, without the line of this file that it names."""
    with pytest.raises(kind) as caught:
        function()
    lines = str(caught.value).split("\n")
    assert lines[1].startswith(f"  at {os.path.basename(__file__)}:"), lines
    return "\n".join([lines[0], *lines[2:]])


def with_grad(value: Any) -> None:
    leaf().grad = value


TYPES: list[tuple[Callable[[], Any], str]] = [
    (lambda: pg.exp(None), "exp: input must be a tensor, got None."),
    (lambda: pg.exp([1.0]), "exp: input must be a tensor, got list [1.0].\n  hint: pg.tensor(...) makes a tensor of it."),
    (
        lambda: F.softplus(np.ones(2)),
        "softplus: input must be a tensor, got an ndarray of shape (2,) and dtype float64.\n"
        "  hint: pg.tensor(...) makes a tensor of it.",
    ),
    # Python asks the tensor for a truth, a float or an integer there.
    (
        lambda: pg.cat(X, X),
        "cat: tensors must be a sequence of tensors, got a Tensor of shape (2, 2) and dtype float32.\n"
        "  hint: put them into a list: [x, y].",
    ),
    (
        lambda: pg.stack(X),
        "stack: tensors must be a sequence of tensors, got a Tensor of shape (2, 2) and dtype float32.\n"
        "  hint: put them into a list: [x, y].",
    ),
    (
        lambda: F.layer_norm(X, X),
        "layer_norm: normalized_shape must be a sequence of ints, got a Tensor of shape (2, 2) and dtype float32.",
    ),
    (lambda: pg.full((2,), X), "full: fill_value must be a number, got a Tensor of shape (2, 2) and dtype float32."),
    (lambda: X.tril(X), "tril: diagonal must be an int, got a Tensor of shape (2, 2) and dtype float32."),
    (lambda: X.topk(X), "topk: k must be an int, got a Tensor of shape (2, 2) and dtype float32."),
    (lambda: X.sum(1.5), "sum: dim must be an int, a sequence of ints or None, got float 1.5."),
    (lambda: X.reshape(2.0, 2), "reshape: lengths of axes must be ints, got float 2.0."),
    (lambda: X.repeat("x"), "repeat: lengths of axes must be ints, got str 'x'."),
    (lambda: X.index_fill(0, Tensor([0]), None), "index_fill: value must be a tensor or a number, got None."),
    (lambda: pg.gradient(X, dim=object()), "gradient: dim must be an int, a sequence of ints or None, got object."),
    (lambda: pg.histogramdd(X, None), "histogramdd: bins must be an int or a sequence of ints or tensors, got None."),
    (
        lambda: pg.unravel_index([1], (2,)),
        "unravel_index: indices must be a tensor, got list [1].\n  hint: pg.tensor(...) makes a tensor of it.",
    ),
    (
        lambda: pg.Tensor([1.0], foo=1),
        "Tensor: got an unexpected keyword argument 'foo'.\n"
        "  hint: Tensor(data, dtype=None, device=None, requires_grad=False)",
    ),
    (lambda: F.linear(X, None), "linear: weight must be a tensor, got None."),
    (lambda: nn.Linear(2, 3)(None), "Linear: input must be a tensor, got None."),
    (
        lambda: nn.BCELoss()(X),
        "BCELoss: missing a required argument: 'target'.\n  hint: BCELoss(input, target)",
    ),
    (lambda: nn.Linear(2.5, 3), "Linear: in_features must be an int, got float 2.5."),
    (lambda: nn.Conv2d(1, 1, 2.5), "Conv2d: kernel_size must be an int or a sequence of ints, got float 2.5."),
    (lambda: nn.Dropout("x"), "Dropout: p must be a number, got str 'x'."),
    (lambda: nn.Sequential(1), "Sequential: layers must be a module, a function or a dict of modules, got int 1."),
    (lambda: nn.ModuleList([1]), "ModuleList: modules must be an iterable of modules or None, got list [1]."),
    (lambda: optim.Adam([leaf()], lr="x"), "Adam: lr must be a number or a tensor, got str 'x'."),
    (lambda: optim.Adam([leaf()], betas=0.9), "Adam: betas must be 2 numbers, got float 0.9."),
    (lambda: optim.Adam(None), "Adam: params must be an iterable, got None."),
    (lambda: optim.SGD(leaf()), "SGD: params must be several tensors, got one.\n  hint: SGD([tensor], ...)"),
    (lambda: optim.SGD([{"params": leaf(), "lr": "x"}]), "SGD: lr must be a number, got str 'x'."),
    (lambda: optim.lr_scheduler.StepLR(1, 2), "StepLR: optimizer must be an Optimizer, got int 1."),
    (lambda: X.bernoulli("x"), "bernoulli: p must be a number or None, got str 'x'."),
    (lambda: with_grad(1.0), "grad: must be a tensor or None, got float 1.0."),
    (
        lambda: pg.sum(X, foo=1),
        "sum: got an unexpected keyword argument 'foo'.\n"
        "  hint: sum(dim=None, keepdim=False, *, dtype=None, axis=None, keepdims=False)",
    ),
    (lambda: F.relu(X, True, 3), "relu: too many positional arguments.\n  hint: relu(input, inplace=False)"),
    (
        lambda: nn.Linear(3),
        "Linear: missing a required argument: 'out_features'.\n"
        "  hint: Linear(in_features, out_features, bias=True, device=None, dtype=None)",
    ),
]
VALUES: list[tuple[Callable[[], Any], type[pg.PicogradError], str]] = [
    (lambda: nn.Dropout(2), pg.ArgumentError, "Dropout: p must be a probability, got 2."),
    (lambda: F.dropout(X, float("nan")), pg.ArgumentError, "dropout: p must be a probability, got nan."),
    (lambda: nn.Linear(-1, 3), pg.ArgumentError, "Linear: in_features must be at least 0, got -1."),
    (lambda: nn.Conv2d(1, 1, 0), pg.ArgumentError, "Conv2d: kernel_size must be at least 1, got 0."),
    (
        lambda: nn.Conv2d(1, 1, 2, padding="x"),
        pg.ArgumentError,
        "Conv2d: padding must be \"same\", \"valid\" or numbers, got 'x'.",
    ),
    (lambda: pg.tril_indices(1.5, 2), pg.ArgumentError, "tril_indices: row must be an int, got float 1.5."),
    (lambda: X.tril(1.5), pg.ArgumentError, "tril: diagonal must be an int, got float 1.5."),
    (lambda: pg.linspace(0, 1, 1.5), pg.ArgumentError, "linspace: steps must be an int, got float 1.5."),
    (lambda: pg.manual_seed("x"), pg.ArgumentError, "manual_seed: seed must be an int, got str 'x'."),
    (
        lambda: X.logical_and("x"),
        pg.DTypeError,
        "logical_and: the other operand must be a Tensor or a number, got str.\n  hint: Tensor(value)",
    ),
    (
        lambda: optim.Adam([{"lr": 1.0}]),
        pg.ArgumentError,
        "Adam: a group needs \"params\", got ['lr'].\n  hint: {\"params\": [tensor], \"lr\": 0.1}",
    ),
    (
        lambda: optim.lr_scheduler.StepLR(optim.SGD([leaf()]), 0),
        pg.ArgumentError,
        "StepLR: step_size must be at least 1, got 0.",
    ),
    (
        lambda: with_grad(Tensor([1.0, 2.0])),
        pg.ShapeError,
        "grad: a gradient of shape (2,) does not fit a tensor of shape (1,).",
    ),
    (lambda: with_grad(Tensor([1])), pg.DTypeError, "grad: a gradient of int64 does not fit a tensor of float32."),
]
COMPUTED: list[tuple[Callable[[], Tensor], str]] = [
    (lambda: Tensor([0.5, 1.5]).bernoulli(), "bernoulli: a probability is not in [0, 1]."),
    (lambda: Tensor([float("nan")]).bernoulli(), "bernoulli: a probability is not in [0, 1]."),
    (lambda: Tensor.zeros(2).bernoulli_(Tensor([0.5, -0.1])), "bernoulli_: a probability is not in [0, 1]."),
    (lambda: F.binary_cross_entropy(Tensor([1.5]), Tensor([1.0])),
     "binary_cross_entropy: a probability is not in [0, 1].\n  hint: binary_cross_entropy_with_logits takes scores."),
    (lambda: Tensor([1.0, -1.0]).multinomial(1), "multinomial: a weight is negative, infinite or NaN."),
    (lambda: Tensor([1.0, float("inf")]).multinomial(2), "multinomial: a weight is negative, infinite or NaN."),
    (lambda: Tensor([0.0, 0.0]).multinomial(1), "multinomial: all weights of a row are 0."),
    (lambda: Tensor([[1.0, 1.0], [0.0, 0.0]]).multinomial(2), "multinomial: all weights of a row are 0."),
]


@pytest.mark.req("B6")
@pytest.mark.parametrize(("call", "text"), TYPES, ids=[text.split(",")[0] for _, text in TYPES])
def test_an_argument_of_another_type_is_named(call: Callable[[], Any], text: str) -> None:
    assert text_of(call, pg.ArgumentTypeError) == text


@pytest.mark.req("B6")
@pytest.mark.parametrize(("call", "kind", "text"), VALUES, ids=[text.split(",")[0] for _, _, text in VALUES])
def test_a_value_outside_the_domain_is_named(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    assert text_of(call, kind) == text


@pytest.mark.req("B6")
@pytest.mark.parametrize(("call", "text"), COMPUTED, ids=[f"{place}: {text}" for place, (_, text) in enumerate(COMPUTED)])
def test_elements_outside_the_domain_are_an_error_when_they_are_computed(
    call: Callable[[], Tensor], text: str, device: str
) -> None:
    assert text_of(lambda: call().realize(), pg.ArgumentError) == text


# ---- what passes as it is ----
def test_an_error_of_a_function_of_the_users_passes_unchanged() -> None:
    def wrong(x: Tensor) -> Tensor:
        raise KeyError("mine")

    for transform in (pg.vmap, pg.value_and_grad, pg.jit, pg.outline):
        with pytest.raises(KeyError, match="mine"):
            transform(wrong)(X)


def test_a_learning_rate_may_be_a_tensor() -> None:
    assert optim.SGD([leaf()], lr=Tensor(0.5)).param_groups[0].lr_tensor.item() == 0.5


def test_a_type_error_is_one_for_python_too() -> None:
    with pytest.raises(TypeError):
        pg.exp(None)


def test_a_gradient_can_be_set_and_taken_away() -> None:
    w = leaf()
    w.grad = Tensor([2.0])
    assert w.grad.tolist() == [2.0]
    w.grad = None
    assert w.grad is None
    with pytest.raises(pg.ArgumentError, match="its own gradient"):
        w.grad = w
    with pytest.raises(pg.DeviceError, match="a gradient on NUMPY does not fit a tensor on CPU"):
        Tensor([1.0], device="CPU").grad = Tensor([1.0], device="NUMPY")


def test_draws_are_what_they_were_for_weights_that_are_right() -> None:
    drawn = Tensor([0.0, 1.0, 0.0]).multinomial(4, replacement=True)
    assert drawn.tolist() == [1] * 4 and drawn.dtype is dtypes.int64
    assert sorted(Tensor([0.5, 0.0, 1.0]).multinomial(2).tolist()) == [0, 2]


@pytest.mark.req("C7")
def test_a_flag_where_a_number_is_meant_leaves_no_op_behind_that_equals_the_numbers() -> None:
    x, w = Tensor.ones(1, 2, 5), Tensor.ones(3, 2, 2)
    found = nn.functional.conv1d(x, w, groups=True)
    (conv,) = [op for op in toposort([found.op]) if op.code is OpCode.CONV]
    assert type(conv.arg.groups) is int and found.tolist() == [[[4.0] * 4] * 3]


@pytest.mark.req("B6")
def test_windows_are_of_32_bits_or_64() -> None:
    for name in ("hann", "bartlett", "kaiser", "cosine"):
        with pytest.raises(pg.DTypeError, match=f"{name}: needs float32 or float64, got bfloat16"):
            getattr(pg.signal.windows, name)(4, dtype=dtypes.bfloat16)
