"""Gradients as users meet them: leaves, accumulation, modes, higher orders, and the traps of other systems."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import GradientError, Tensor, dtypes
from picograd.look import watch
from tests.helpers import same_as_torch, same_value
from tests.same_meaning import GPU_TARGET


def readme_expression(a, b):
    """The expression of micrograd's README."""
    c = a + b
    d = a * b + b**3
    c = c + (c + 1)
    c = c + (1 + c + (-a))
    d = d + (d * 2 + (b + a).relu())
    d = d + (3 * d + (b - a).relu())
    e = c - d
    f = e**2
    return f / 2.0 + 10.0 / f


@pytest.mark.req("A1")
def test_micrograds_readme(device):
    a, b = (Tensor(value, dtypes.float64, requires_grad=True) for value in (-4.0, 2.0))
    g = readme_expression(a, b)
    g.backward()
    assert (round(g.item(), 4), round(a.grad.item(), 4), round(b.grad.item(), 4)) == (24.7041, 138.8338, 645.5773)


def random_expression(source: random.Random, leaves: list, depth: int):
    if depth == 0:
        return source.choice(leaves)
    a, b = (random_expression(source, leaves, depth - 1) for _ in range(2))
    return source.choice(
        [
            lambda: a + b,
            lambda: a - b,
            lambda: a * b,
            lambda: a / (b * b + 1.0),
            lambda: a.tanh(),
            lambda: (a * 0.1).exp(),
            lambda: (a * a + 1.0).log(),
            lambda: (a * a + 1.0) ** 0.3,
            lambda: a.relu() + b.sin(),
            lambda: a.sigmoid(),
        ]
    )()


@pytest.mark.variants
@pytest.mark.req("A2")
@pytest.mark.parametrize("seed", range(20))
def test_random_expressions_equal_pytorch(seed, device):
    values = np.random.default_rng(seed).uniform(-2, 2, 4)
    ours = [Tensor(v, dtypes.float64, requires_grad=True) for v in values]
    theirs = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values]
    result, expected = (random_expression(random.Random(seed), leaves, 5) for leaves in (ours, theirs))
    result.backward()
    expected.backward()
    assert result.item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-6)
    for a, b in zip(ours, theirs):
        assert (0.0 if a.grad is None else a.grad.item()) == pytest.approx(
            0.0 if b.grad is None else b.grad.item(), rel=1e-6, abs=1e-6
        )


@pytest.mark.req("A7")
def test_only_scalars_unless_a_gradient_is_given(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError, match=r"must be a scalar, got shape \(2,\)"):
        (x * 2).backward()
    (x * 2).backward(Tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2.0, 20.0]


@pytest.mark.req("A7")
def test_gradients_accumulate_over_calls(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    for times in (1, 2, 3):
        (x * x).sum().backward()
        assert x.grad.tolist() == [2.0 * times, 4.0 * times]


@pytest.mark.req("A8")
def test_two_backwards_give_exactly_twice(device):
    x = Tensor([1.0, 3.0], requires_grad=True)
    y = x.exp().sum()
    y.backward()
    once = x.grad.numpy().copy()
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * once)


@pytest.mark.req("A8")
def test_a_tensor_used_twice(device):
    a = Tensor(3.0, requires_grad=True)
    (a + a).backward()
    assert a.grad.item() == 2.0


@pytest.mark.req("A8")
def test_equal_leaves_have_gradients_of_their_own(device):
    a, b = Tensor(2.0, requires_grad=True), Tensor(2.0, requires_grad=True)
    (a * b * b).backward()
    assert (a.grad.item(), b.grad.item()) == (4.0, 8.0)


@pytest.mark.req("A8")
def test_through_views_broadcasts_and_indices(device):
    x = Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    bias = Tensor(np.zeros(2), requires_grad=True)
    ((x.T + bias)[1:, :] * 2 + x[0, [0, 0]]).sum().backward()
    reference = torch.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    reference_bias = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    ((reference.T + reference_bias)[1:, :] * 2 + reference[0, [0, 0]]).sum().backward()
    same_value(x.grad, reference.grad)
    same_value(bias.grad, reference_bias.grad)


@pytest.mark.req("A7")
def test_retain_grad_in_the_middle(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    y.retain_grad()
    (y * y).sum().backward()
    assert y.grad.tolist() == [6.0, 12.0]
    assert x.grad.tolist() == [18.0, 36.0]
    assert not y.is_leaf


def test_a_clone_of_a_leaf_retains_a_gradient_and_has_hooks_of_its_own(device):
    x, seen = Tensor([1.0, 2.0], requires_grad=True), []
    kept, hooked, same_shape = x.clone(), x.clone(), x.view(2)
    kept.retain_grad()
    hooked.register_hook(lambda grad: seen.append(grad.tolist()))
    same_shape.retain_grad()
    ((kept * kept).sum() + (hooked * 3).sum() + (x * 5).sum() + same_shape.sum()).backward()
    assert x.grad.tolist() == [11.0, 13.0] and seen == [[3.0, 3.0]]
    assert kept.grad.tolist() == [2.0, 4.0] and same_shape.grad.tolist() == [1.0, 1.0]


@pytest.mark.req("A7")
def test_a_graph_of_10000_nodes_in_a_row(device):
    x = Tensor(1.0, requires_grad=True)
    y = x
    for _ in range(10000):
        y = y * 1.0001
    y.backward()
    assert x.grad.item() == pytest.approx(1.0001**10000, rel=1e-3)


@pytest.mark.req("A7")
def test_only_floats_require_gradients(device):
    with pytest.raises(pg.DTypeError, match="only floats have gradients, got int64"):
        Tensor([1], requires_grad=True)
    x = Tensor([1.0, 5.0], requires_grad=True)
    assert not x.argmax().requires_grad
    assert not (x > 1).requires_grad


@pytest.mark.req("A9")
def test_the_second_derivative_of_a_cube(device):
    x = Tensor(3.0, requires_grad=True)
    (first,) = pg.grad(x**3, [x], create_graph=True)
    (second,) = pg.grad(first, [x], create_graph=True)
    (third,) = pg.grad(second, [x])
    assert (first.item(), second.item(), third.item()) == (27.0, 18.0, 6.0)
    (x**3).backward(create_graph=True)
    first = x.grad
    x.grad = None
    first.backward()
    assert x.grad.item() == 18.0


@pytest.mark.req("A9")
def test_a_hessian_vector_product(device, rng):
    x = Tensor(rng.standard_normal(4), requires_grad=True)
    v = Tensor(rng.standard_normal(4))
    (first,) = pg.grad((x.exp() * x.sum()).sum(), [x], create_graph=True)
    (product,) = pg.grad((first * v).sum(), [x])
    reference = torch.tensor(x.detach().numpy())
    _, expected = torch.autograd.functional.hvp(lambda t: (t.exp() * t.sum()).sum(), reference, torch.tensor(v.numpy()))
    same_value(product, expected, rtol=1e-10)


@pytest.mark.req("A5")
def test_forward_mode_equals_reverse_mode(device):
    x1, x2 = Tensor(9.0, dtypes.float64, requires_grad=True), Tensor(10.0, dtypes.float64, requires_grad=True)
    y = x1.exp() * x2.sin() ** 2
    one, zero = Tensor(1.0, dtypes.float64), Tensor(0.0, dtypes.float64)
    forward = [pg.jvp(y, [x1, x2], tangents).item() for tangents in ([one, zero], [zero, one])]
    reverse = [g.item() for g in pg.grad(y, [x1, x2])]
    assert y.item() == pytest.approx(math.exp(9) * math.sin(10) ** 2)
    assert forward == pytest.approx(reverse, rel=1e-12)
    assert reverse == pytest.approx([2398.1804, 7397.6720], abs=1e-3)


def test_grad_of_an_input_that_does_not_matter_is_none(device):
    x, y = Tensor(1.0, requires_grad=True), Tensor(1.0, requires_grad=True)
    assert pg.grad(x * 2, [x, y], allow_unused=True)[1] is None
    assert x.grad is None


@pytest.mark.req("C9")
def test_no_grad_as_a_context_and_as_a_decorator(device):
    x = Tensor([1.0], requires_grad=True)
    with pg.no_grad():
        y = x * 2
        assert not y.requires_grad and not pg.is_grad_enabled() and not x.T.requires_grad
        with pg.enable_grad():
            assert (x * 2).requires_grad

    @pg.no_grad()
    def double(t):
        return t * 2

    assert not double(x).requires_grad
    assert (x * 2).requires_grad


@pytest.mark.req("C9")
@pytest.mark.parametrize("library", [pg, torch], ids=["picograd", "PyTorch"])
def test_no_grad_without_brackets_and_of_generators(library: Any) -> None:
    x = library.ones(1, requires_grad=True)

    def is_recorded() -> bool:
        return (x * 2).requires_grad

    @library.no_grad
    def off() -> bool:
        return is_recorded()

    @library.no_grad()
    def steps() -> Any:
        got = []
        for _ in range(3):
            try:
                got.append((yield is_recorded()))
            except ValueError:
                got.append("thrown")
        return got

    with library.no_grad():
        on = library.enable_grad(is_recorded)
        assert on() and not is_recorded()
    assert not off() and is_recorded()
    generator = steps()
    seen = [next(generator), is_recorded(), generator.send(5), is_recorded(), generator.throw(ValueError()), is_recorded()]
    assert seen == [False, True] * 3
    with pytest.raises(StopIteration) as end:
        generator.send(7)
    assert end.value.value == [5, "thrown", 7] and is_recorded()
    generator = steps()
    next(generator)
    generator.close()
    assert is_recorded()


def test_only_functions_are_decorated() -> None:
    with pytest.raises(pg.ArgumentTypeError, match="no_grad: decorates functions, got int 3"):
        pg.no_grad(3)  # type: ignore[call-overload]


def test_detach_shares_storage(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    d = x.detach()
    assert not d.requires_grad
    d[0] = 7.0
    assert x.tolist() == [7.0, 2.0]
    y = x * 2
    assert not y.detach().requires_grad
    assert y.detach().cell is y.cell


def test_data_replaces_the_value_of_a_leaf(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    x.data = x - 0.5 * x.grad
    assert x.tolist() == [0.0, 0.0]
    assert x.requires_grad and x.is_leaf


def test_data_put_aside_comes_back(device):
    weight = pg.nn.Parameter(Tensor([1.0, 2.0]))
    average, kept = Tensor([5.0, 6.0]), weight.data
    for _ in range(2):
        weight.data = average
        assert weight.tolist() == [5.0, 6.0] and kept.tolist() == [1.0, 2.0]
        weight.data = kept
        assert weight.tolist() == [1.0, 2.0]
    weight.data += 1.0
    assert weight.tolist() == [2.0, 3.0] and average.tolist() == [5.0, 6.0]


def test_data_of_another_shape_and_dtype(device):
    weight = pg.nn.Parameter(Tensor([1.0, 2.0, 3.0]))
    weight.data = weight.data[:2]
    (weight * weight).sum().backward()
    assert weight.grad.tolist() == [2.0, 4.0] and weight.is_leaf
    weight.data = weight.data.half()
    assert weight.dtype is dtypes.float16 and weight.requires_grad
    with pytest.raises(pg.DTypeError, match=r"data: only floats have gradients, got int64 of shape \(1,\)"):
        weight.data = Tensor([1])


def test_data_in_a_jitted_function(device):
    weight = pg.nn.Parameter(Tensor([1.0, 2.0]))

    @pg.jit
    def loss(x):
        return (weight * x).sum()

    @pg.jit
    def swapped(x):
        kept = weight.data
        weight.data = x
        value = weight.sum()
        weight.data = kept
        return value

    for x in ([1.0, 1.0], [2.0, 2.0], [3.0, 3.0]):
        kept = weight.data
        assert loss(Tensor(x)).item() == 3 * x[0]
        assert swapped(Tensor(x)).item() == 2 * x[0]
        weight.data = Tensor([0.0, 1.0])
        assert loss(Tensor(x)).item() == x[0]
        weight.data = kept
        assert weight.tolist() == [1.0, 2.0]


def test_requires_grad_can_be_turned_on_and_off(device):
    x = Tensor([1.0])
    x.requires_grad = True
    assert x.requires_grad and x.is_leaf
    x.requires_grad_(False)
    assert not (x * 2).requires_grad
    y = x.clone().requires_grad_()
    assert y.cell is not x.cell
    with pytest.raises(GradientError):
        (y * 2).requires_grad_(False)


def test_leaves_cannot_be_changed_in_place_where_gradients_are_recorded(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    for change in (lambda: x.add_(1), lambda: x.T.mul_(2), lambda: x[0].zero_(), lambda: x.__setitem__(0, 1.0)):
        with pytest.raises(GradientError, match="a leaf of shape"):
            change()
    assert x.tolist() == [1.0, 2.0]


def test_realize_keeps_the_graph_for_backward(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum().realize()
    assert y.item() == 5.0
    y.backward()
    assert x.grad.tolist() == [2.0, 4.0]


@pytest.mark.req("G1")
def test_backward_computes_nothing(device, monkeypatch):
    from picograd.tensor import compute

    calls = []
    monkeypatch.setattr(compute, "realize", lambda ops: calls.append(ops))
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = (x.exp() @ x).softmax(0) + x.T[0].sum()
    y.backward()
    assert calls == [] and x.grad.shape == (2,)


def test_gradients_are_forgotten(device):
    x = Tensor([1.0], requires_grad=True)
    (x * 2).backward()
    x.grad = None
    (x * 2).backward()
    assert x.grad.tolist() == [2.0]


# ---- A4: four ways to one derivative ----
def textbook(x1, x2):
    return x1.exp() * x2.sin() ** 2


@pytest.mark.req("A4")
def test_reverse_forward_symbolic_and_central_differences_agree(device):
    def at(*point):
        return [Tensor(value, dtypes.float64) for value in point]

    x1, x2 = (x.requires_grad_() for x in at(9.0, 10.0))
    y = textbook(x1, x2)
    y.backward()
    reverse = [x1.grad.item(), x2.grad.item()]
    forward = [pg.jvp(y, [x1, x2], at(*tangent)).item() for tangent in ((1.0, 0.0), (0.0, 1.0))]
    h = 1e-5  # the error is h**2 times a third derivative, plus 1e-16 / h of rounding: some 1e-10, relative
    central = [
        ((textbook(*at(9.0 + a, 10.0 + b)) - textbook(*at(9.0 - a, 10.0 - b))) / (2 * h)).item()
        for a, b in ((h, 0.0), (0.0, h))
    ]

    @pg.jit  # the derivative as an expression: derived once, evaluated anywhere
    def symbolic(x1, x2):
        leaves = [x1.clone().requires_grad_(), x2.clone().requires_grad_()]
        return pg.grad(textbook(*leaves), leaves)

    for a, b in ((1.0, 2.0), (-0.5, 0.3), (9.0, 10.0)):
        found = [g.item() for g in symbolic(*at(a, b))]
        assert found == pytest.approx(
            [math.exp(a) * math.sin(b) ** 2, 2 * math.exp(a) * math.sin(b) * math.cos(b)], rel=1e-12
        )
    assert [round(v, 4) for v in (y.item(), *reverse)] == [2398.1804, 2398.1804, 7397.6720]
    assert forward == pytest.approx(reverse, rel=1e-12)
    assert found == pytest.approx(reverse, rel=1e-12)
    assert central == pytest.approx(reverse, rel=1e-8)


@pytest.mark.req("A7")
def test_backward_of_what_has_no_gradient_is_refused(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    for root in (Tensor([1, 2]).sum(), x.argmax(), x.detach().sum(), (x > 1).sum()):
        with pytest.raises(GradientError, match="depends on no tensor that requires grad"):
            root.backward()
    with pytest.raises(pg.ShapeError, match=r"a gradient of shape \(3,\) was given for a result of shape \(2,\)"):
        (x * 2).backward(Tensor([1.0, 2.0, 3.0]))
    assert x.grad is None


@pytest.mark.req("A7")
def test_a_deep_graph_has_second_derivatives_and_forward_mode(device):
    n = 40
    x = Tensor(1.0, dtypes.float64, requires_grad=True)
    y = x
    for _ in range(n):
        y = (y * x + y) * 0.5
    (first,) = pg.grad(y, [x], create_graph=True)  # y = x ((x + 1) / 2)^n
    assert first.item() == pytest.approx(1 + n / 2, rel=1e-12)
    assert pg.jvp(y, [x], [Tensor(1.0, dtypes.float64)]).item() == pytest.approx(1 + n / 2, rel=1e-12)
    assert pg.grad(first, [x])[0].item() == pytest.approx(n + n * (n - 1) / 4, rel=1e-12)


@pytest.mark.req("A8")
def test_a_gradient_through_every_kind_of_view_counts_each_element(device):
    x = np.arange(12.0).reshape(3, 4)
    for view in (
        lambda t: t.T[1:, ::2],
        lambda t: t[::2, 1:4:2].flatten(),
        lambda t: t.reshape(4, 3)[[0, 0, 2]],
        lambda t: t[1, [3, 3, 0]],
        lambda t: t.unsqueeze(0).expand(5, 3, 4)[1:3],
        lambda t: t.flip([0])[:2].permute(1, 0).reshape(-1)[::3],
    ):
        same_as_torch(view, x)


@pytest.mark.req("A5")
def test_both_modes_say_what_they_cost(device):
    x = Tensor([0.5, 1.5], requires_grad=True)
    y = x.sin() * x
    assert pg.count_ops(y) == {"SIN": 1, "MUL": 1}
    forward = pg.count_ops(pg.jvp(y, [x], [Tensor([1.0, 2.0])]), known=[y])
    reverse = pg.count_ops(*pg.grad(y.sum(), [x]), known=[y])
    assert forward == reverse == {"COS": 1, "MUL": 3, "ADD": 1}


def test_explain_shows_every_stage(monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    product = Tensor(np.ones((4, 8), np.float32)) @ Tensor(np.ones((8, 4), np.float32))
    text = pg.explain(product)
    for part in ("MATMUL", "schedule of", "kernel matmul_4_4", "choice registers", "program matmul_4_4", "define void"):
        assert part in text
    with pytest.raises(pg.ArgumentError, match="explain: there is no stage 'llvm'; the stages are graph, "):
        pg.explain(product, stages=["llvm"])
    with pytest.raises(pg.ArgumentError, match="the target takes cuda, but these tensors are on CPU: llvm"):
        pg.explain(product, target=GPU_TARGET)
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    assert "schedule of" in pg.explain(Tensor([1.0]) + 1) and "define" not in pg.explain(Tensor([1.0]) + 1)


@pytest.mark.parametrize("name", ["sign", "floor", "ceil", "round", "trunc"])
def test_flat_functions_have_gradient_zero(name, device):
    same_as_torch(lambda t: getattr(t, name)(), np.array([0.5, -1.5, 0.0, 2.0, -3.0], np.float32))
    x = Tensor([0.5, -1.5], requires_grad=True)
    getattr(x, name)().sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


# ---- the forms of backward() and grad() ----
@pytest.mark.req("A7")
def test_backward_to_chosen_inputs_and_with_every_argument(device):
    x, y = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0], requires_grad=True)
    loss = (x * y).sum()
    loss.backward(None, True, False, [x])
    assert x.grad.tolist() == [3.0, 4.0] and y.grad is None
    loss.backward(retain_graph=False, inputs=y)
    loss.backward()  # a graph is never used up
    assert x.grad.tolist() == [6.0, 8.0] and y.grad.tolist() == [2.0, 4.0]
    with pytest.raises(GradientError, match=r"backward: an input of shape \(2,\) needs no gradient"):
        loss.backward(inputs=[x.detach()])
    with pytest.raises(pg.ArgumentError, match="backward: inputs must not be empty"):
        loss.backward(inputs=[])


def test_grad_of_several_outputs(device):
    x, y = Tensor([1.0, 2.0], requires_grad=True), Tensor(3.0, requires_grad=True)
    found = pg.grad([x.sum() * y, x * x], (x, y), [None, Tensor([1.0, 10.0])])
    assert [g.tolist() for g in found] == [[5.0, 43.0], 3.0]
    with pytest.raises(pg.ArgumentError, match="grad: 1 gradients were given for 2 tensors"):
        pg.grad([x.sum(), y], x, [Tensor(1.0)])


@pytest.mark.req("A9")
def test_grad_by_results_on_the_way(device):
    def steps(library, start):
        """Two steps of gradient descent that are differentiated themselves, as in MAML; the gradients by all results."""
        w = library.tensor(start, requires_grad=True)
        ways = [w]
        for _ in range(2):
            loss = (ways[-1] ** 3).sum()
            (g,) = library.autograd.grad(loss, ways[-1], create_graph=True, retain_graph=True, only_inputs=True)
            ways.append(ways[-1] - 0.1 * g)
        first, second = ways[-1].reshape(2, 1).split(1)
        found = library.autograd.grad((first * second).sum(), [*ways, first, second])
        return [g.tolist() for g in found]

    for ours, expected in zip(steps(pg, [0.5, -1.0]), steps(torch, [0.5, -1.0])):
        np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_grad_by_a_reshaped_result(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    row = (x * 2).reshape(1, 2)
    assert pg.autograd.grad((row * row).sum(), row)[0].tolist() == [[4.0, 8.0]]
    assert pg.autograd.grad(row.sum(), [row, x])[1].tolist() == [2.0, 2.0]
    for loss in (row.reshape(2).sum(), row.sum() + (x * 2).sum()):  # what reads x * 2 may have come by the row, or not
        with pytest.raises(GradientError) as error:
            pg.autograd.grad(loss, row)
        assert error.value.fact == "grad: an input of shape (1, 2) is a view of a tensor that is also used directly."
        assert error.value.hint == "retain_grad() before it is used."


def test_grad_by_a_result_that_a_formula_reads_in_another_shape(device):
    """The formula is written out only when it is differentiated."""
    x = Tensor([[[1.0, 2.0, 4.0], [3.0, 5.0, 9.0]]], requires_grad=True)
    weights = Tensor([[[1.0, -2.0, 0.5], [2.0, 1.0, -1.0]]])
    rows = (x * 2).reshape(1, 2, 3)
    assert pg.grad((rows.softmax(-1) * weights).sum(), rows)[0].abs().sum().item() > 0.05  # it reads them as they are
    rows, weights = (x * 2).reshape(1, 3, 2), weights.reshape(1, 3, 2)
    normal = pg.nn.functional.group_norm(rows, 3)
    with pytest.raises(GradientError, match="also used directly"):
        pg.grad((normal * weights).sum(), rows)
    rows.retain_grad()
    normal = pg.nn.functional.group_norm(rows, 3)
    (found,) = pg.grad((normal * weights).sum(), rows)
    alone = rows.detach().requires_grad_()
    (expected,) = pg.grad((pg.nn.functional.group_norm(alone, 3) * weights).sum(), alone)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-7)


def test_grad_by_what_needs_none(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError) as error:
        pg.autograd.grad(x.sum(), x.detach())
    assert error.value.fact == "grad: an input of shape (2,) needs no gradient."
    with pytest.raises(GradientError, match="do not depend on an input"):
        pg.autograd.grad(x.sum(), x * 2)
    with pytest.raises(pg.ArgumentError, match="only_inputs must be True"):
        pg.autograd.grad(x.sum(), x, only_inputs=False)


def test_inputs_that_do_not_matter(device):
    x, y = Tensor([1.0], requires_grad=True), Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError) as error:
        pg.grad(x.sum(), [x, y])
    assert error.value.fact == "grad: the outputs do not depend on an input of shape (2,)."
    assert error.value.hint == "allow_unused=True gives None for it, materialize_grads=True zeros."
    assert pg.grad(x.sum(), [x, y], allow_unused=True)[1] is None
    assert pg.grad(x.sum(), [x, y], materialize_grads=True)[1].tolist() == [0.0, 0.0]
    assert pg.grad(y.floor().sum(), y)[0].tolist() == [0.0, 0.0]  # it matters, if only in steps
    with pytest.raises(pg.ArgumentError, match="materialize_grads=True makes zeros"):
        pg.grad(x.sum(), [x, y], materialize_grads=True, allow_unused=False)


def test_several_rows_of_weights_at_once(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x**3
    (rows,) = pg.grad(y, x, Tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), is_grads_batched=True)
    assert rows.tolist() == [[3.0, 0.0], [0.0, 12.0], [3.0, 12.0]]
    reference = torch.tensor([1.0, 2.0], requires_grad=True)
    weights = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    (expected,) = torch.autograd.grad(reference**3, reference, weights, is_grads_batched=True)
    same_value(rows, expected)
    with pytest.raises(pg.ShapeError, match=r"weights of shape \(2,\) are not rows of \(2,\)"):
        pg.grad(y, x, Tensor([1.0, 0.0]), is_grads_batched=True)


@pytest.mark.req("C9")
def test_recording_is_switched(device):
    x = Tensor(1.0, requires_grad=True)
    try:
        pg.set_grad_enabled(False)
        assert not (x * 2).requires_grad
        with pg.set_grad_enabled(True):
            assert (x * 2).requires_grad
        assert not pg.is_grad_enabled()
    finally:
        pg.set_grad_enabled(True)

    @pg.set_grad_enabled(False)
    def double(t):
        return t * 2

    assert pg.is_grad_enabled() and not double(x).requires_grad and (x * 2).requires_grad
    with pg.inference_mode():
        assert not (x * 2).requires_grad
    with pg.inference_mode(False):
        assert (x * 2).requires_grad


# ---- hooks ----
@pytest.mark.req("A7")
def test_hooks_see_and_replace_gradients(device):
    for make in (lambda v: Tensor(v, requires_grad=True), lambda v: torch.tensor(v, requires_grad=True)):
        seen = []
        x = make([1.0, 2.0])
        handle = x.register_hook(lambda grad: seen.append(grad.tolist()))  # noqa: B023
        x.register_hook(lambda grad: grad * 10)
        (x * x).sum().backward()
        assert seen == [[2.0, 4.0]] and x.grad.tolist() == [20.0, 40.0]
        handle.remove()
        (x * x).sum().backward()
        assert len(seen) == 1 and x.grad.tolist() == [40.0, 80.0]


def test_a_hook_of_a_result_changes_what_goes_on(device):
    for make in (lambda v: Tensor(v, requires_grad=True), lambda v: torch.tensor(v, requires_grad=True)):
        x = make([1.0, 2.0])
        y = x * 3
        y.register_hook(lambda grad: grad + 1)
        z = (y * y).sum()
        del y
        z.backward()
        assert x.grad.tolist() == [21.0, 39.0]
    x = Tensor([1.0], requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: grad * 5)
    assert pg.grad((y * y).sum(), x)[0].tolist() == [40.0]
    (y * y).sum().backward()
    assert y.grad is None
    z = x * 3
    z.register_hook(lambda grad: grad * 5)
    z.retain_grad()
    (z * z).sum().backward()
    assert z.grad.tolist() == [30.0]


def test_a_hook_must_keep_the_shape(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    x.register_hook(lambda grad: grad.sum())
    with pytest.raises(GradientError, match=r"returned float32 of shape \(\) for a gradient float32 of shape \(2,\)"):
        x.sum().backward()
    with pytest.raises(GradientError, match=r"register_hook: a tensor of shape \(1,\) without requires_grad"):
        Tensor([1.0]).register_hook(print)


# ---- what a tensor is to gradients ----
@pytest.mark.req("A7")
def test_what_made_a_result() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    assert x.grad_fn is None and Tensor([1.0]).grad_fn is None
    assert not x.retains_grad and not y.retains_grad
    made = y.grad_fn
    y.retain_grad()
    assert y.retains_grad and y.grad_fn == made and len({y.grad_fn, made, (x * 3).grad_fn}) == 2
    hooked = x * 3
    hooked.register_hook(print)
    assert not hooked.retains_grad and hooked.grad_fn is not None


def test_what_made_a_result_is_told_by_name_and_line() -> None:
    x = pg.ones(3, 4, requires_grad=True)
    results = [x * 2, x.sum(), x.cumsum(0), x @ x.T, pg.nn.functional.gelu(x), pg.checkpoint(lambda x: x * 2, x)]
    names = ["Mul", "Sum", "Cumsum", "Matmul", "Gelu", "Call"]
    assert [str(y.grad_fn) for y in results] == [f"<{name}Backward at test_autograd.py:{LINE}>" for name in names]
    product = (x * 2 + 1).grad_fn
    assert product.name() == "AddBackward"
    assert [source and source.name() for source, _ in product.next_functions] == ["MulBackward", None]


LINE = test_what_made_a_result_is_told_by_name_and_line.__code__.co_firstlineno + 2


def test_detach_in_place() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    z = y * 3
    assert y.detach_() is y and y.is_leaf and not y.requires_grad and y.grad_fn is None
    z.sum().backward()  # made before
    assert x.grad.tolist() == [6.0, 6.0]
    assert not x.detach_().requires_grad and x.tolist() == [1.0, 2.0]


def test_a_hook_after_accumulation_sees_the_leaf_and_may_use_up_its_gradient() -> None:
    x, seen = Tensor([1.0, 2.0], requires_grad=True), []

    def use(leaf: Tensor) -> None:
        seen.append(leaf.grad.tolist())
        leaf.grad = None

    handle = x.register_post_accumulate_grad_hook(use)
    for _ in range(2):
        (x * x).sum().backward()
    assert seen == [[2.0, 4.0], [2.0, 4.0]] and x.grad is None
    handle.remove()
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0] and len(seen) == 2


def test_a_hook_after_accumulation_needs_a_leaf() -> None:
    with pytest.raises(GradientError, match="is not a leaf that requires grad"):
        (Tensor([1.0], requires_grad=True) * 2).register_post_accumulate_grad_hook(print)


def test_a_gradient_comes_back_to_the_device_of_what_was_copied() -> None:
    x = Tensor([1.0, 2.0], device="CPU", requires_grad=True)
    y = x.to("NUMPY") * 3
    (y * y).sum().backward()
    assert x.grad.device == "CPU" and (x.detach() - x.grad).tolist() == [-17.0, -34.0]


def test_powers_0_and_1_have_a_gradient_everywhere() -> None:
    for exponent, expected in ((0, [0.0] * 3), (0.0, [0.0] * 3), (1, [1.0] * 3)):
        x = Tensor([0.0, 2.0, float("inf")], requires_grad=True)
        (x**exponent).sum().backward()
        assert x.grad.tolist() == expected


def test_the_first_step_makes_the_random_weights_and_is_planned_as_the_others(monkeypatch, alone):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    pg.manual_seed(0)
    weights = [pg.randn(5, 7, requires_grad=True), pg.randn(7, 3, requires_grad=True)]
    x = Tensor(np.ones((4, 5), np.float32))

    def step():
        loss = ((x @ weights[0]).tanh() @ weights[1]).square().mean()
        loss.backward()
        assert counts.kernels == 0 or len(losses) > 0  # backward() computes nothing
        with pg.no_grad():
            for weight in weights:
                weight -= 0.1 * weight.grad
                weight.grad = None
        losses.append(loss.item())

    losses, num_scheduled = [], []
    with watch() as counts:
        for _ in range(3):
            step()
            num_scheduled.append(counts.scheduled)
    assert num_scheduled == [1, 1, 1] and losses[0] > losses[2]  # a step: the weights are drawn by the evaluator


def drawn_and_read():
    """Returns a layer, and a loss that has been read: its drawn weights have memory, and another LEAF than in the loss."""
    layer = pg.nn.Linear(3, 2)
    loss = layer(pg.randn(4, 3)).sum()
    loss.item()
    return layer, loss


def test_a_leaf_that_was_computed_since_has_its_gradient_all_the_same():
    layer, loss = drawn_and_read()
    weight, bias = pg.autograd.grad(loss, list(layer.parameters()), allow_unused=True)
    assert weight.shape == (2, 3) and bias.tolist() == [4.0, 4.0]
    layer, loss = drawn_and_read()
    loss.backward(inputs=[layer.bias])
    assert layer.bias.grad.tolist() == [4.0, 4.0] and layer.weight.grad is None
    layer, loss = drawn_and_read()
    assert pg.jvp(loss, [layer.bias], [pg.ones(2)]).item() == 8.0


def test_a_leaf_used_before_and_after_it_was_computed_has_the_sum_of_both_gradients():
    x, shift = pg.rand(3, requires_grad=True), pg.rand(3)
    before = (x * 2 + shift).sum()
    before.item()
    both = before + (x * 3).sum()
    assert pg.autograd.grad(both, [x])[0].tolist() == [5.0] * 3
    assert pg.jvp(both, [x], [pg.ones(3)]).item() == 15.0


def used_before_and_after(lib, result, kind: str) -> list:
    """Gradients where a result has been used, then gets a hook or retains its gradient, and is used again."""
    x = lib.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
    v = result(lib, x)
    view, loss = v.view(3, 2), v.tanh().sum() + v.exp().sum()
    if kind != "retain":
        v.register_hook(lambda grad: grad * 0.5)
    if kind in ("retain", "both"):
        v.retain_grad()
    loss = loss + (v * v).sum() + (view * view).sum()
    if kind == "twice":
        v.register_hook(lambda grad: grad + 1)
    if kind == "asked":
        return [lib.autograd.grad(loss, asked, retain_graph=True)[0].tolist() for asked in (v, x)]
    if kind == "second":
        (grad,) = lib.autograd.grad(loss, x, create_graph=True)
        loss = loss + (grad * grad).sum()
    loss.backward()
    return [x.grad.tolist(), v.grad.tolist() if v.retains_grad else 0.0]


@pytest.mark.parametrize("kind", ["hook", "retain", "both", "twice", "asked", "second"])
@pytest.mark.parametrize("result", [lambda lib, x: x * 0.75, lambda lib, x: x.sigmoid() + 1, lambda lib, x: x @ x.T @ x])
def test_a_hook_or_a_retained_gradient_takes_in_uses_before_it(result, kind: str, monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    found, expected = used_before_and_after(pg, result, kind), used_before_and_after(torch, result, kind)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_hook_of_a_clone_sees_no_gradient_of_what_it_was_cloned_from():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    copy = y.clone()
    copy.register_hook(lambda grad: grad * 10)
    (y.sum() + copy.sum()).backward()
    assert x.grad.tolist() == [33.0, 33.0]


def test_second_gradients_of_a_weight_that_is_still_a_graph_are_not_counted_twice(device):
    """The first gradient is made of the graph written out, the loss of the graph as it was built: two forms of one leaf."""
    pg.manual_seed(0)
    w = pg.nn.functional.gelu(pg.randn(3)).detach().requires_grad_()
    (g,) = pg.autograd.grad((w**3).sum(), [w], create_graph=True)
    total = ((w - 0.1 * g) ** 2).sum()
    (found,) = pg.autograd.grad(total, [w])
    total.backward(inputs=[w])
    x = w.detach().numpy()
    for grad in (found, w.grad):
        np.testing.assert_allclose(grad.numpy(), 2 * (x - 0.3 * x * x) * (1 - 0.6 * x), rtol=1e-4)
