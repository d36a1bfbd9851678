"""The full text of what users are told, one function a message."""

from __future__ import annotations

import inspect
import os

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, dtypes, nn, optim
from picograd.nn import functional


def text_of(function, kind) -> str:
    """Returns the message of the error, with this file's line replaced by HERE."""
    with pytest.raises(kind) as caught:
        function()
    lines = str(caught.value).split("\n")
    source, start = inspect.getsourcelines(function)
    here = f"  at {os.path.basename(__file__)}:"
    assert lines[1].startswith(here), lines
    number = int(lines[1][len(here) :].split(" ")[0])
    assert start <= number < start + len(source), "the error names another line than the user's"
    return "\n".join([lines[0], *lines[2:]])


CASES = [
    (
        lambda: Tensor.zeros(32, 768) @ Tensor.zeros(50257, 512),
        pg.ShapeError,
        "matmul: inner dimensions differ: lhs (32, 768) has K=768, rhs (50257, 512) has K=50257.\n"
        "  hint: neither side fits after a transpose either; check the sizes 768 and 50257.",
    ),
    (
        lambda: Tensor.zeros(32, 768) @ Tensor.zeros(512, 768),
        pg.ShapeError,
        "matmul: inner dimensions differ: lhs (32, 768) has K=768, rhs (512, 768) has K=512.\n"
        "  hint: lhs @ rhs.mT fits.",
    ),
    (
        lambda: Tensor.zeros(2, 3, 4) @ Tensor.zeros(3, 4, 5),
        pg.ShapeError,
        "matmul: shapes (2,) and (3,) do not broadcast: axis -1 is 2 and 3.\n"
        "  hint: lengths must be equal or 1, counted from the last axis; reshape or unsqueeze one of them.",
    ),
    (
        lambda: Tensor(1.0) @ Tensor([1.0]),
        pg.ShapeError,
        "matmul: both operands need at least one axis, got () and (1,).\n  hint: lhs * rhs",
    ),
    (
        lambda: Tensor.zeros(4, 6).reshape(5, -1),
        pg.ShapeError,
        "reshape: (4, 6) has 24 elements, (5, -1) needs a multiple of 5.",
    ),
    (
        lambda: Tensor.zeros(4, 6).reshape(5, 5),
        pg.ShapeError,
        "reshape: (4, 6) has 24 elements, (5, 5) has 25.",
    ),
    (
        lambda: Tensor.zeros(2, 3) + Tensor.zeros(2, 4),
        pg.ShapeError,
        "add: shapes (2, 3) and (2, 4) do not broadcast: axis -1 is 3 and 4.\n"
        "  hint: lengths must be equal or 1, counted from the last axis; reshape or unsqueeze one of them.",
    ),
    (
        lambda: Tensor.zeros(2, 3).expand(2, 4),
        pg.ShapeError,
        "expand: (2, 3) does not fit (2, 4): each axis must be equal or of length 1.",
    ),
    (
        lambda: Tensor.zeros(2, 3).permute(0, 0),
        pg.ShapeError,
        "permute: (0, 0) does not name each of the 2 axes of (2, 3) once.\n"
        "  hint: x.transpose(0, 1) exchanges two axes.",
    ),
    (
        lambda: Tensor.cat([Tensor.zeros(2, 3), Tensor.zeros(2, 4)]),
        pg.ShapeError,
        "cat: shapes must match except along axis 0, got (2, 3), (2, 4).\n"
        "  hint: they fit along axis 1: pg.cat([...], 1).",
    ),
    (
        lambda: Tensor.zeros(2, 3).sum(2),
        pg.IndexingError,
        "sum: axis 2 is out of range for shape (2, 3) with 2 axes.",
    ),
    (
        lambda: Tensor.zeros(2, 3).sum(0, axis=1),
        pg.ArgumentError,
        "sum: dim=0 and axis=1 are two names of one argument; give one.",
    ),
    (
        lambda: Tensor([[1, 2], [3]]),
        pg.ShapeError,
        "Tensor: the nested list is ragged: lists at one depth must have equal lengths.\n  hint: pad the short ones.",
    ),
    (
        lambda: Tensor(["a"]),
        pg.DTypeError,
        "Tensor: needs real numbers or bools, got list of NumPy dtype <U1.\n"
        "  hint: number the words first: one integer per word.",
    ),
    (
        lambda: Tensor([1, 2]).mean(),
        pg.DTypeError,
        "mean: needs a float, got int64 of shape (2,).\n  hint: x.float()",
    ),
    (
        lambda: Tensor([True]) - Tensor([True]),
        pg.DTypeError,
        "sub: bools have no sub, got bool of shape (1,).\n  hint: use ^, & or |.",
    ),
    (
        lambda: Tensor([True]) ** Tensor([True]),
        pg.DTypeError,
        "pow: bools have no pow, got bool of shape (1,).\n  hint: use ^, & or |.",
    ),
    (
        lambda: Tensor([1.0]) & 1,
        pg.DTypeError,
        "bitwise_and: needs integers or bools, got float32 of shape (1,).",
    ),
    (
        lambda: Tensor([1]).add_(1.5),
        pg.DTypeError,
        "add_: a result of dtype float32 does not fit in place into int64.\n"
        "  hint: x = x.cast(dtypes.float32) first.",
    ),
    (
        lambda: Tensor([1.0]).add_(Tensor.zeros(3)),
        pg.ShapeError,
        "add_: a result of shape (3,) does not fit into (1,).",
    ),
    (
        lambda: Tensor.zeros(3).copy_(Tensor.zeros(4)),
        pg.ShapeError,
        "copy_: a source of shape (4,) does not broadcast to (3,).\n"
        "  hint: it may have fewer axes, and length 1 where this tensor is longer.",
    ),
    (
        lambda: Tensor.zeros(2, 1).expand(2, 3).add_(1),
        pg.ShapeError,
        "in-place: (2, 1) expanded to (2, 3) repeats elements, so it cannot be written through expand.\n"
        "  hint: write to x.expand(...).clone(), or to x before it is expanded.",
    ),
    (
        lambda: Tensor.zeros(3)[3],
        pg.IndexingError,
        "index: 3 is out of range for axis 0 of length 3 in shape (3,).\n  hint: indices are -3 to 2.",
    ),
    (
        lambda: Tensor.zeros(3)[[0, -4]],
        pg.IndexingError,
        "index: -4 is out of range for axis 0 of length 3 in shape (3,).\n  hint: indices are -3 to 2.",
    ),
    (
        lambda: Tensor.zeros(3)[0, 0],
        pg.IndexingError,
        "index: 2 indices are too many for shape (3,).",
    ),
    (
        lambda: Tensor.zeros(3)[1.5],
        pg.IndexingError,
        "index: needs ints, slices, None, ..., integer arrays or bool masks, got 1.5.",
    ),
    (
        lambda: Tensor.zeros(3)[Tensor([True, False])],
        pg.IndexingError,
        "index: a mask of shape (2,) does not fit the axes (3,) of (3,).",
    ),
    (
        lambda: Tensor.zeros(3).__setitem__(slice(0, 2), Tensor.zeros(3)),
        pg.ShapeError,
        "x[...] = value: a value of shape (3,) does not broadcast to (2,).",
    ),
    (
        lambda: (Tensor.zeros(32, 10, requires_grad=True) * 2).backward(),
        pg.GradientError,
        "backward: the loss must be a scalar, got shape (32, 10).\n  hint: loss.mean().backward()",
    ),
    (
        lambda: Tensor(1.0).backward(),
        pg.GradientError,
        "backward: a float32 of shape () depends on no tensor that requires grad.\n"
        "  hint: set requires_grad=True on a tensor it is made of, and make it outside no_grad and without detach.",
    ),
    (
        lambda: Tensor([1], requires_grad=True),
        pg.DTypeError,
        "requires_grad: only floats have gradients, got int64 of shape (1,).\n"
        "  hint: Tensor(data, dtype=dtypes.float32, requires_grad=True)",
    ),
    (
        lambda: Tensor([1.0], requires_grad=True).add_(1),
        pg.GradientError,
        "add_: a leaf of shape (1,) that requires grad cannot be changed in place where gradients are recorded.\n"
        "  hint: with pg.no_grad(): x.add_(...)",
    ),
    (
        lambda: Tensor([1.0], requires_grad=True).numpy(),
        pg.GradientError,
        "numpy: a tensor of shape (1,) that needs gradients would lose them.\n  hint: x.detach().numpy()",
    ),
    (
        lambda: Tensor([1.0, 2.0]).item(),
        pg.ShapeError,
        "item: needs exactly one element, got shape (2,).\n  hint: x.tolist()",
    ),
    (
        lambda: bool(Tensor([1.0, 2.0])),
        pg.ShapeError,
        "bool: a tensor of shape (2,) has no single value; it needs exactly one element.\n"
        "  hint: x.any() or x.all()",
    ),
    (
        lambda: Tensor([2]) ** -1,
        pg.ArgumentError,
        "pow: integers have no negative integer powers, got int64 ** -1.\n  hint: x.float() ** exponent",
    ),
    (
        lambda: Tensor.arange(1, 5, -1),
        pg.ArgumentError,
        "arange: step -1 leads away from end: start is 1, end 5.",
    ),
    (
        lambda: Tensor.zeros(2, -1),
        pg.ShapeError,
        "zeros: lengths of axes must be integers >= 0, got (2, -1).",
    ),
    (
        lambda: Tensor.rand(2, dtype=dtypes.int32),
        pg.DTypeError,
        "rand: needs a float dtype, got int32.\n  hint: Tensor.randint(low, high, size)",
    ),
    (
        lambda: Tensor([1, None]),
        pg.DTypeError,
        "Tensor: needs real numbers or bools, got None.\n  hint: np.asarray(data, float)",
    ),
    (
        lambda: Tensor([1, 2**70]),
        pg.DTypeError,
        "Tensor: needs real numbers or bools, got 1180591620717411303424, which does not fit 64 bits."
        "\n  hint: np.asarray(data, float)",
    ),
    (
        lambda: Tensor(np.array([1, 2], object)),
        pg.DTypeError,
        "Tensor: needs real numbers or bools, got ndarray of NumPy dtype object.\n  hint: np.asarray(data, float)",
    ),
    (
        lambda: Tensor.zeros(0).max(),
        pg.ShapeError,
        "max: shape (0,) has no element.",
    ),
    (
        lambda: nn.Linear(3, 4)(Tensor.zeros(2, 5)),
        pg.ShapeError,
        "linear: input (2, 5) does not fit weight (4, 3): the last axes must be equal.\n"
        "  hint: weight is (out_features, in_features).",
    ),
    (
        lambda: functional.cross_entropy(Tensor.zeros(2, 3, 5), Tensor.zeros(2, 3, dtype=dtypes.int64)),
        pg.ShapeError,
        "cross_entropy: target (2, 3) does not fit input (2, 3, 5): it must be (2, 5).\n"
        "  hint: classes are axis 1 of input; for (B, T, C) scores use input.flatten(0, 1) and target.flatten().",
    ),
    (
        lambda: functional.embedding(Tensor([1.0]), Tensor.zeros(3, 4)),
        pg.DTypeError,
        "embedding: the indices must be integers, got float32 of shape (1,).\n  hint: input.long()",
    ),
    (
        lambda: functional.mse_loss(Tensor([1.0]), Tensor([1.0]), reduction="max"),
        pg.ArgumentError,
        "mse_loss: reduction must be one of mean, sum, none, got 'max'.",
    ),
    (
        lambda: nn.Linear(2, 2).load_state_dict({"weight": Tensor.zeros(2, 2), "extra": Tensor(1.0)}),
        pg.ArgumentError,
        "load_state_dict: missing: bias; unknown: extra.\n  hint: strict=False loads what fits by name.",
    ),
    (
        lambda: nn.Linear(2, 2, bias=False).load_state_dict({"weight": Tensor.zeros(3, 2)}),
        pg.ShapeError,
        "load_state_dict: weight has shape (3, 2); the model's has (2, 2).",
    ),
    (
        lambda: optim.SGD([], lr=0.1),
        pg.ArgumentError,
        "SGD: got no parameters.\n"
        "  hint: an iterator can be read once: use list(model.parameters()) to read it twice.",
    ),
]


@pytest.mark.req("B6")
@pytest.mark.parametrize(("function", "kind", "expected"), CASES, ids=[case[2].split(".")[0][:50] for case in CASES])
def test_messages(function, kind, expected, device):
    assert text_of(function, kind) == expected


@pytest.mark.req("B6")
def test_operands_on_two_devices(monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    here, there = Tensor([1.0, 2.0]), Tensor([1.0, 2.0])
    there.cell.device = "ELSEWHERE"
    assert text_of(lambda: here + there, pg.DeviceError) == (
        "add: operands are on two devices: (2,) on NUMPY and (2,) on ELSEWHERE.\n"
        '  hint: move one of them: x.to("NUMPY").'
    )


@pytest.mark.req("B6")
def test_operands_on_two_devices_in_a_trace(monkeypatch):
    """A hint to move one of them would lead to a JitError: nothing is copied there."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x = Tensor([1.0, 2.0], device="NUMPY")
    assert text_of(lambda: pg.jit(lambda x: x + pg.rand(2))(x), pg.DeviceError) == (
        "add: operands are on two devices: (2,) on NUMPY and (2,) on CPU.\n"
        '  hint: a traced function cannot move it: make it with device="NUMPY", or move it before the call.'
    )
    assert pg.jit(lambda x: x + pg.rand(2, device="NUMPY"))(x).device == "NUMPY"


ON_TWO = {
    "masked_fill": lambda x, y: x.masked_fill(y > 1, 0.0),
    "index_put": lambda x, y: x.index_put((y.int(),), x[:1]),
    "backward": lambda x, y: (x.requires_grad_() * 2).backward(y),
    "index": lambda x, y: x[y.int()],
    "cat": lambda x, y: pg.cat([x, y]),
    "where": lambda x, y: pg.where(x > 1, y, x),
    "x[...] = value": lambda x, y: x.__setitem__([1, 0], y),
}


@pytest.mark.req("B6")
@pytest.mark.parametrize("name", ON_TWO)
def test_an_operation_on_two_devices_names_both_and_itself(name):
    here, there = Tensor([1.0, 2.0], device="CPU"), Tensor([1.0, 2.0], device="NUMPY")
    with pytest.raises(pg.DeviceError) as caught:
        ON_TWO[name](here, there)
    assert caught.value.fact == f"{name}: operands are on two devices: (2,) on CPU and (2,) on NUMPY."
    assert caught.value.hint == 'move one of them: x.to("CPU").'


@pytest.mark.req("B6")
def test_families_are_also_pythons_own_errors():
    assert issubclass(pg.ShapeError, ValueError) and issubclass(pg.DTypeError, TypeError)
    assert issubclass(pg.IndexingError, IndexError) and issubclass(pg.GradientError, ValueError)


@pytest.mark.req("B6")
def test_python_containers_are_named(device):
    with pytest.raises(TypeError, match="unsupported operand"):
        Tensor([1.0]) + [1.0]
    with pytest.raises(TypeError):
        iter(Tensor(1.0))
    with pytest.raises(TypeError):
        len(Tensor(1.0))
