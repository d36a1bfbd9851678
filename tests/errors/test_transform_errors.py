"""The full text of what the transforms of functions refuse, with the user's line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.control.closure import WITH_LENGTHS_OF_VALUES
from picograd.errors import PicogradError

X, Y = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 2.0, 3.0])


def square(x: Tensor) -> Tensor:
    return (x * x).sum()


def draw(x: Tensor) -> Tensor:
    return x + Tensor.rand(2)


def look(x: Tensor) -> Tensor:
    return x * x.sum().item()


def count(x: Tensor) -> Tensor:
    return x.nonzero()


TOTAL = Tensor([0.0, 0.0])


def accumulate(x: Tensor) -> Tensor:
    TOTAL.add_(x)
    return x


def overwrite(x: Tensor, w: Tensor) -> Tensor:
    w += x
    return w


CASES: dict[str, tuple[Callable[[], Any], type[Exception], str, str | None]] = {
    # ---- vmap ----
    "sizes": (
        lambda: pg.vmap(lambda x, y: x)(X, Y), pg.ShapeError,
        "vmap: args[0] has 2 examples, args[1] of shape (3,) has 3 along axis 0.",
        "in_dims=None for args[1], if all examples share it.",
    ),
    "no axis": (
        lambda: pg.vmap(square, in_dims=None)(X), pg.ArgumentError,
        "vmap: in_dims=None names no axis of examples.", "in_dims=0 for at least one argument.",
    ),
    "axis out of range": (
        lambda: pg.vmap(square, in_dims=2)(X), pg.IndexingError,
        "vmap: in_dims gives axis 2 for args[0], whose shape is (2, 2).", None,
    ),
    "out axis out of range": (
        lambda: pg.vmap(square, out_dims=1)(X), pg.IndexingError,
        "vmap: out_dims gives axis 1 for result, whose shape is ().", None,
    ),
    "a number with an axis": (
        lambda: pg.vmap(lambda x, n: x * n)(X, 3), pg.ArgumentError,
        "vmap: in_dims gives axis 0 for args[1], which is 3, not a Tensor.",
        "in_dims=None for it: all examples share it.",
    ),
    "form": (
        lambda: pg.vmap(lambda x, y: x, in_dims=(0,))(X, X), pg.ArgumentError,
        "vmap: in_dims is (0,), whose structure differs from args.",
        "one axis, or None, for each part of args: in a tuple of 2.",
    ),
    "no axis at all": (
        lambda: pg.vmap(square, in_dims=("0",))(X), pg.ArgumentError,
        "vmap: in_dims gives '0' for args[0], which is one Tensor.", "an axis, or None.",
    ),
    "randomness": (
        lambda: pg.vmap(square, randomness="some"), pg.ArgumentError,
        "vmap: randomness must be one of error, different, same, got 'some'.", None,
    ),
    "chunks": (
        lambda: pg.vmap(square, chunk_size=0), pg.ArgumentError,
        "vmap: chunk_size must be a number of examples, got 0.", None,
    ),
    "a draw": (
        lambda: pg.vmap(draw)(X), pg.ArgumentError,
        "vmap: draw draws random numbers; randomness must say whether examples share them.",
        'vmap(f, randomness="different"), or "same".',
    ),
    "a value": (
        lambda: pg.vmap(look)(X), pg.JitError,
        "vmap: item() asks for a value while look is traced; there is none yet.", "return the tensor and read it outside.",
    ),
    "a shape from values": (
        lambda: pg.vmap(count)(X), pg.JitError,
        "vmap: nonzero() asks for a value while count is traced; there is none yet.",
        "pg.where(x != 0, ...) keeps the shape; the number of places depends on values.",
    ),
    "no tensor": (
        lambda: pg.vmap(lambda x: 3)(X), pg.ArgumentError,
        "vmap: <lambda> returned 3 as result, which is not a Tensor.",
        "return Tensors, alone or in lists, tuples, dicts and dataclasses.",
    ),
    "a write for each example": (
        lambda: pg.vmap(accumulate)(X), pg.ArgumentError,
        "vmap: accumulate writes a different value per example to a tensor of shape (2,) made before.",
        "return the value, or pass the tensor as an argument with an axis of examples.",
    ),
    "a write to a shared argument": (
        lambda: pg.vmap(overwrite, (0, None))(X, Tensor([0.0, 0.0])), pg.ArgumentError,
        "vmap: overwrite writes a different value per example to args[1], which all examples share.",
        "return the value, or give the argument an axis of examples.",
    ),
    "one result for all": (
        lambda: pg.vmap(square, out_dims=None)(X), pg.ArgumentError,
        "vmap: out_dims=None declares result equal for all examples; it is not.", None,
    ),
    "no function": (
        lambda: pg.vmap(X), pg.ArgumentError, "vmap: needs a function, got a Tensor of shape (2, 2).", None,
    ),
    # ---- grad and the others ----
    "a number for a function": (lambda: pg.grad(3), pg.ArgumentError, "grad: needs a function, got 3.", None),
    "no function to jvp": (
        lambda: pg.jvp(3, (X,), (X,)), pg.ArgumentError, "jvp: needs a function, got 3.", None,
    ),
    "no function to jacrev": (
        lambda: pg.jacrev(X), pg.ArgumentError, "jacrev: needs a function, got a Tensor of shape (2, 2).", None,
    ),
    "no scalar": (
        lambda: pg.grad(lambda x: x * 2)(X), pg.ShapeError,
        "grad: <lambda> must return a scalar, got shape (2, 2).",
        "loss.mean(), or jacrev(f) for the derivative of each element.",
    ),
    "several results": (
        lambda: pg.value_and_grad(lambda x: (x.sum(), x))(X), pg.ArgumentError,
        "value_and_grad: <lambda> must return one Tensor, got tuple.",
        "return loss, aux    and has_aux=True, to return more than the loss.",
    ),
    "no aux": (
        lambda: pg.grad(square, has_aux=True)(X), pg.ArgumentError,
        "grad: with has_aux square must return (result, aux), got Tensor.", None,
    ),
    "integers": (
        lambda: pg.grad(lambda p: p["w"].sum())({"w": Tensor([1, 2])}), pg.DTypeError,
        "grad: args[0]['w'] of <lambda> is int64 of shape (2,); only floats have derivatives.",
        "name other arguments with argnums, or let the function read it as a closure.",
    ),
    "an integer loss": (
        lambda: pg.grad(lambda x: x.argmax())(X), pg.DTypeError, "grad: <lambda> must return a float, got int64.", None,
    ),
    "nothing to differentiate": (
        lambda: pg.grad(lambda n: X.sum())(3), pg.ArgumentError,
        "grad: the differentiated arguments of <lambda> hold no Tensor.", "argnums selects other arguments.",
    ),
    "argnums": (
        lambda: pg.grad(square, argnums=1)(X), pg.ArgumentError,
        "grad: argnums names argument 1 of square, which got 1 positional arguments.", None,
    ),
    "argnums twice": (
        lambda: pg.jacrev(square, argnums=(0, -1))(X), pg.ArgumentError,
        "jacrev: argnums=(0, -1) names an argument twice.", None,
    ),
    "argnums of a kind": (
        lambda: pg.hessian(square, argnums="x")(X), pg.ArgumentError,
        "jacfwd: argnums must be the number of an argument or a tuple of them, got 'x'.", None,
    ),
    "integer results": (
        lambda: pg.jacrev(lambda x: x.argmax(0))(X), pg.DTypeError,
        "jacrev: result of <lambda> is int64; only floats have derivatives.", None,
    ),
    "cotangents of another form": (
        lambda: pg.vjp(lambda x: (x, x), X)[1](X), pg.ArgumentError,
        "vjp: cotangents and what comes with it has 1 Tensors, the result has 2.",
        "give a Tensor for each Tensor of the result, in a container of its form.",
    ),
    "a cotangent of another shape": (
        lambda: pg.vjp(lambda x: x, X)[1](Y), pg.ShapeError,
        "vjp: cotangents has shape (3,), result that it belongs to has (2, 2).", None,
    ),
    "a tangent of another shape": (
        lambda: pg.jvp(square, (X,), (Y,)), pg.ShapeError,
        "jvp: tangents[0] has shape (3,), args[0] that it belongs to has (2, 2).", None,
    ),
    "primals": (
        lambda: pg.jvp(square, X, X), pg.ArgumentError,
        "jvp: primals and tangents must be tuples of one length, a tangent for each primal.", "jvp(f, (x,), (v,))",
    ),
    "strict": (
        lambda: pg.jvp(lambda x: Y, (X,), (X,), strict=True), pg.ArgumentError,
        "jvp: result of <lambda> does not depend on the primals, and strict=True.",
        "strict=False uses zeros as its tangent.",
    ),
    "tangents": (
        lambda: pg.linearize(square, X)[1](X, X), pg.ArgumentError, "linearize: 2 tangents were given for 1 primals.", None,
    ),
    "vector": (
        lambda: pg.hvp(square, X), pg.ArgumentError,
        "hvp: v may be left out only where the one input has one element.", None,
    ),
}  # fmt: skip


@pytest.mark.req("A9")
@pytest.mark.parametrize("name", CASES)
def test_the_text_of_an_error(name: str) -> None:
    call, kind, fact, hint = CASES[name]
    with pytest.raises(kind) as error:
        call()
    assert isinstance(error.value, PicogradError)
    assert (error.value.fact, error.value.hint) == (fact, hint)
    assert error.value.line is not None and error.value.line.file == sys.modules[__name__].__file__


def test_nothing_is_left_after_an_error() -> None:
    before = TOTAL.tolist()
    with pytest.raises(pg.ArgumentError):
        pg.vmap(accumulate)(X)
    assert TOTAL.tolist() == before
    assert pg.vmap(square)(X).tolist() == [5.0, 25.0]
    with pytest.raises(pg.JitError):
        pg.vmap(look)(X)
    assert np.isfinite(Tensor.rand(2).numpy()).all()


def test_a_tensor_that_is_kept_is_named() -> None:
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x * 2)
        return x

    with pytest.raises(pg.JitError) as error:
        pg.vmap(keep)(X)
    assert error.value.fact == "vmap: keep keeps a tensor of shape (2,) that it made; it is that of one example."
    assert error.value.hint == "return it."


MASK = pg.tensor([True, False, True])
AS_LONG_AS_VALUES_SAY: dict[str, tuple[Any, Any]] = {  # refused in a trace, and what its hint says
    "bincount": (lambda x: x.bincount(), lambda x: pg.zeros(4).index_add(0, x, pg.ones(len(x)))),
    "index": (lambda x: x[MASK], lambda x: pg.where(MASK, x, 0)),
    "masked_select": (lambda x: x.masked_select(MASK), lambda x: pg.where(MASK, x, 0)),
    "nonzero": (lambda x: x.nonzero(), lambda x: pg.where(x != 0, x, 5)),
    "one_hot": (lambda x: pg.nn.functional.one_hot(x), lambda x: pg.nn.functional.one_hot(x, num_classes=4)),
    "repeat_interleave": (lambda x: pg.repeat_interleave(x, x), lambda x: pg.repeat_interleave(x, x, output_size=6)),
    "unique": (lambda x: x.unique(), lambda x: x),
}


@pytest.mark.parametrize("name", WITH_LENGTHS_OF_VALUES)
def test_what_is_as_long_as_values_say_has_a_remedy_in_a_trace(name: str) -> None:
    x = pg.tensor([1, 3, 2])
    refused, remedy = AS_LONG_AS_VALUES_SAY[name]
    with pytest.raises(pg.JitError, match=rf"jit: {name}\(\) asks for a value") as error:
        pg.jit(refused)(x)
    assert error.value.hint == WITH_LENGTHS_OF_VALUES[name]
    assert pg.jit(remedy)(x).tolist() == remedy(x).tolist()
