"""Functions with a gradient that the user has written: against PyTorch's, through every transform."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.autograd import Function
from picograd.control import closure, custom
from picograd.engine import realize
from picograd.ir import bodies
from picograd.look import watch
from picograd.tensor.gradients import jvp
from tests.helpers import same_as_torch


def classes(base: Any, ones: Any) -> dict[str, Any]:
    """Returns the same Functions of either library."""

    class Exp(base):  # type: ignore[misc]
        """Saves its result."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (y,) = ctx.saved_tensors
            return grad * y

    class Scaled(base):  # type: ignore[misc]
        """Saves its arguments, takes a number, and gives two results."""

        @staticmethod
        def forward(ctx: Any, x: Any, w: Any, power: int) -> Any:
            ctx.power = power
            ctx.save_for_backward(x, w)
            return x**power * w, w.sin()

        @staticmethod
        def backward(ctx: Any, by_product: Any, by_sine: Any) -> Any:
            x, w = ctx.saved_tensors
            return (
                by_product * w * x ** (ctx.power - 1) * ctx.power, by_product * x**ctx.power + by_sine * w.cos(), None,
            )

    class Clipped(base):  # type: ignore[misc]
        """The identity, whose gradient is cut off: not its own."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad.clamp(-0.5, 0.5)

    class Middle(base):  # type: ignore[misc]
        """Saves what is neither argument nor result, and reads a tensor made before."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            s = x.sigmoid()
            ctx.save_for_backward(s, x)
            return x * s + ones

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            s, x = ctx.saved_tensors
            return grad * (s + x * s * (ones - s))

    return {c.__name__: c for c in (Exp, Scaled, Clipped, Middle)}


OURS = classes(Function, Tensor(1.0).double())
THEIRS = classes(torch.autograd.Function, torch.tensor(1.0).double())


@pytest.mark.req("A6")
@pytest.mark.parametrize("name", ["Exp", "Clipped"])
def test_values_and_gradients_are_pytorchs(name: str, device: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))
    same_as_torch(lambda t: OURS[name].apply(t) * t, x, reference=lambda t: THEIRS[name].apply(t) * t)


def test_what_is_saved_in_the_middle_and_read_from_outside(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))
    same_as_torch(lambda t: OURS["Middle"].apply(t) * t, x, reference=lambda t: THEIRS["Middle"].apply(t) * t)


def test_several_arguments_and_results(device: str, rng: np.random.Generator) -> None:
    x, w = rng.uniform(0.5, 2.0, (2, 3)), rng.standard_normal((2, 3))
    same_as_torch(lambda a, b: OURS["Scaled"].apply(a, b, 3), x, w, reference=lambda a, b: THEIRS["Scaled"].apply(a, b, 3))


@pytest.mark.req("A9")
@pytest.mark.parametrize("name", ["Exp", "Middle"])
def test_every_order_and_mode_agrees_with_differences(name: str, rng: np.random.Generator) -> None:
    """Saved results in the middle are differentiated, too: PyTorch takes them as constants."""
    x = Tensor(rng.standard_normal(3))
    assert pg.gradcheck(OURS[name].apply, x, check_forward_ad=True, check_batched_grad=True)
    assert pg.gradgradcheck(OURS[name].apply, x, check_fwd_over_rev=True, check_batched_grad=True)


def test_two_arguments_in_every_order_and_mode(rng: np.random.Generator) -> None:
    inputs = (Tensor(rng.uniform(0.5, 2.0, 3)), Tensor(rng.standard_normal(3)), 3)
    assert pg.gradcheck(OURS["Scaled"].apply, inputs, check_forward_ad=True, check_batched_grad=True)
    assert pg.gradgradcheck(OURS["Scaled"].apply, inputs, check_fwd_over_rev=True, check_batched_grad=True)


def test_its_own_gradient_and_no_other() -> None:
    x = Tensor([0.1, 3.0])
    assert pg.grad(lambda x: (OURS["Clipped"].apply(x) * 2).sum())(x).tolist() == [0.5, 0.5]
    assert pg.vmap(pg.grad(lambda x: OURS["Clipped"].apply(x) * 2))(x).tolist() == [0.5, 0.5]
    scanned = lambda x: pg.scan(lambda c, row: (c, OURS["Clipped"].apply(row * 3)), Tensor(0.0), x)[1].sum()  # noqa: E731
    assert pg.grad(scanned)(x).tolist() == [1.5, 1.5]
    outlined = lambda x: pg.outline(lambda x: OURS["Clipped"].apply(x * 3))(x).sum()  # noqa: E731
    assert pg.grad(outlined)(x).tolist() == [1.5, 1.5]
    captured = pg.jit(lambda x: pg.grad(lambda x: (OURS["Clipped"].apply(x) * 2).sum())(x))
    for _ in range(3):
        assert captured(x).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0)])
def test_examples_and_what_is_the_same_for_all(in_dims: Any, rng: np.random.Generator) -> None:
    shapes = [(4, 3) if dim == 0 else (3,) for dim in in_dims]
    x, w = Tensor(rng.uniform(0.5, 2.0, shapes[0])), Tensor(rng.standard_normal(shapes[1]))

    def total(f: Any) -> Any:
        return lambda x, w: sum((part * part).sum() for part in pg.vmap(f, in_dims)(x, w))

    mine = pg.value_and_grad(total(lambda x, w: OURS["Scaled"].apply(x, w, 3)), (0, 1))(x, w)
    plain = pg.value_and_grad(total(lambda x, w: (x**3 * w, w.sin())), (0, 1))(x, w)
    np.testing.assert_allclose(mine[0].numpy(), plain[0].numpy(), rtol=1e-12)
    for a, b in zip(mine[1], plain[1]):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)


def test_the_identity_and_results_without_gradients() -> None:
    class Marked(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            big = x > 1
            ones = x * 0 + 1
            ctx.mark_non_differentiable(ones)
            return x, big, ones

        @staticmethod
        def backward(ctx: Any, grad: Tensor, *rest: Tensor) -> Tensor:
            assert ctx.needs_input_grad == (True,)
            return grad * 10

    x = Tensor([1.0, 2.0], requires_grad=True)
    same, big, ones = Marked.apply(x)
    assert (same.requires_grad, big.requires_grad, ones.requires_grad) == (True, False, False)
    assert big.tolist() == [False, True]
    same.sum().backward()
    assert x.grad.tolist() == [10.0, 10.0]


def test_an_argument_whose_gradient_is_none_gets_none() -> None:
    class Weighted(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(w)
            return x * w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            (w,) = ctx.saved_tensors
            return grad * w, None

    x, w = Tensor([3.0], requires_grad=True), Tensor([2.0], requires_grad=True)
    Weighted.apply(x, w).sum().backward()
    assert x.grad.tolist() == [2.0] and w.grad is None
    assert pg.func.jvp(Weighted.apply, (x.detach(), w.detach()), (x.detach(), w.detach()))[1].tolist() == [6.0]


def test_a_closure_gets_no_gradient() -> None:
    w = Tensor([2.0], requires_grad=True)

    class Times(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * w

    assert not Times.apply(Tensor([3.0])).requires_grad
    x = Tensor([3.0], requires_grad=True)
    Times.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] and w.grad is None


def test_what_is_refused() -> None:
    class Short(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, n: int) -> Tensor:
            return x * n

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return grad

    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            return x.sum() if x.ndim else 3

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return grad

    class Kept(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.x = x * 2
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.x

    class Looks(Kept):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * x.sum().item()

    with pytest.raises(pg.ArgumentError) as error:
        Short.apply(Tensor([1.0]), 2)
    assert error.value.fact == "Short.apply: backward returned 1 gradients, forward got 2 arguments."
    assert error.value.hint == "return one for each argument, None for those without a gradient."
    with pytest.raises(pg.ShapeError) as wrong:
        Wrong.apply(Tensor([1.0, 2.0]))
    assert wrong.value.fact == (
        "Wrong.apply: backward returned a gradient of shape () for argument 0, which is float32 of shape (2,)."
    )
    with pytest.raises(pg.ArgumentError, match="Wrong.apply: forward must return a Tensor or a tuple of them"):
        Wrong.apply(Tensor(1.0))
    with pytest.raises(pg.JitError) as kept:
        pg.jit(Kept.apply)(Tensor([1.0]))
    assert kept.value.hint == "ctx.save_for_backward(x), or return it."
    with pytest.raises(pg.JitError, match="item\\(\\) asks for a value while Looks is traced"):
        pg.jit(Looks.apply)(Tensor([1.0]))


def function_that_reads(lib: Any) -> Any:
    """A function that reads values in both of its parts, and keeps tensors."""

    class Reads(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, factor: int) -> Any:
            ctx.kept = y * 2
            z = x * float(x.sum()) * factor
            ctx.save_for_backward(x, z, None, x + 1)
            return z, y.long(), "text"

        @staticmethod
        def backward(ctx: Any, grad: Any, of_integers: Any, of_text: Any) -> Any:
            x, z, nothing, more = ctx.saved_tensors
            assert nothing is of_text is None
            return grad * more * float(grad.detach().sum()) + z, ctx.kept * x * grad, None

    return Reads


def test_a_function_that_reads_values_runs_as_it_is_called(device: str) -> None:
    found: list[list[Any]] = []
    for lib in (pg, torch):
        x, y = lib.tensor([1.0, 2.0], requires_grad=True), lib.tensor([3.0, 4.0], requires_grad=True)
        reads = function_that_reads(lib)
        for _ in range(2):
            z, whole, text = reads.apply(x * 1, y, 2)
            assert text == "text" and z.requires_grad and not whole.requires_grad
        (z * y).sum().backward(retain_graph=True)
        (first,) = lib.autograd.grad((z * y).sum(), x, create_graph=True)
        second = lib.autograd.grad(first.sum(), [x, y])
        with lib.no_grad():
            assert not reads.apply(x, y, 2)[0].requires_grad
            x.mul_(2.0)  # what was saved stays as it was
        found.append([t.tolist() for t in (z, whole, x.grad, y.grad, first, *second)])
    assert found[0] == found[1]


def test_a_function_that_keeps_the_state_of_draws_draws_the_same_again() -> None:
    class Dropped(pg.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def, override]
            pg.rand(3)  # so that the state is a number that only the device has
            ctx.state = pg.get_rng_state()
            return x * pg.rand(3)

        @staticmethod
        def backward(ctx, grad):  # type: ignore[no-untyped-def, override]
            pg.set_rng_state(ctx.state)
            return grad * pg.rand(3)

    x = pg.ones(3, requires_grad=True)
    for _ in range(2):
        x.grad = None
        y = Dropped.apply(x)
        y.sum().backward()
        assert x.grad is not None and x.grad.tolist() == y.tolist()
    with pytest.raises(pg.JitError, match=r"get_rng_state\(\) asks for a value"):
        pg.jit(lambda x: (pg.rand(2), pg.get_rng_state(), x)[-1])(pg.ones(3))


def test_a_function_that_reads_values_writes_in_place_and_gets_none() -> None:
    found: list[list[Any]] = []
    for lib in (pg, torch):

        class Tripled(lib.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                if x.sum() > 0:
                    x.mul_(3)
                ctx.mark_dirty(x)
                return x

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                return grad * 3

        class Two(lib.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.set_materialize_grads(False)
                return x * float(x.max()), x * 3

            @staticmethod
            def backward(ctx: Any, first: Any, second: Any) -> Any:
                assert first is None
                return second * 3

        x = lib.tensor([1.0, 2.0], requires_grad=True)
        before = x * 1
        after = Tripled.apply(before)
        assert after is before
        (after * after).sum().backward()
        Two.apply(x)[1].sum().backward()
        found.append([after.tolist(), x.grad.tolist()])
    assert found[0] == found[1]


def test_steps_with_a_function_that_reads_values_share_their_plans() -> None:
    reads, layer = function_that_reads(pg), pg.nn.Linear(2, 2)
    optimizer = pg.optim.SGD(layer.parameters(), lr=1e-3)
    counts = []
    for _ in range(5):
        layer.zero_grad()
        reads.apply(layer(pg.ones(3, 2)), pg.ones(3, 2), 1)[0].sum().backward()
        optimizer.step()
        counts.append(len(realize._plans))
    assert counts[2] == counts[4]


def test_where_a_function_that_reads_values_cannot_be() -> None:
    reads, x = function_that_reads(pg), Tensor([1.0, 2.0], requires_grad=True)
    result = reads.apply(x, x, 1)[0]
    with pytest.raises(pg.JitError, match="asks for a value while"):
        pg.jit(lambda y: reads.apply(x * y, x, 1)[0].sum().backward())(pg.ones(2))
    with pytest.raises(pg.GradientError, match="no graph of its gradient"):
        jvp(result, x, Tensor([1.0, 0.0]))


@pytest.mark.req("A9")
def test_what_a_function_leaves_is_forgotten_with_its_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "BODIES_MAX", 1000)  # else the Function soon runs as it is called

    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return grad * ctx.factor, None

    gc.collect()
    x, before = Tensor([1.0, 2.0], requires_grad=True), len(bodies._marks.data)
    kept = [Scaled.apply(x, float(number)) for number in range(1000)]
    assert len(bodies._marks.data) == before + 1000
    del kept
    gc.collect()
    assert len(bodies._marks.data) == before


def test_a_function_with_a_loop_inside_is_checked_without_a_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection takes as long as there are objects in the process: a second, for each call, in a large program."""

    class Summed(Function):
        @staticmethod
        def forward(ctx, x):
            total, _ = pg.scan(lambda carry, row: (carry + row, carry), pg.zeros(2), x)
            return total

        @staticmethod
        def backward(ctx, grad):
            return grad.expand(3, 2)

    monkeypatch.setattr(closure.gc, "collect", lambda: pytest.fail("collects"))
    x = Tensor(np.ones((3, 2), np.float32), requires_grad=True)
    Summed.apply(x).sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0]] * 3


def by_adjoint(library: Any) -> list[Any]:
    """Gradients and second gradients of a function whose backward asks for gradients of what it saved."""
    numbers = [[0.1, 0.2], [0.3, -0.4]]

    class Adjoint(library.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx, function, x, *weights):
            ctx.function = function
            ctx.save_for_backward(x, *weights)
            return function(x)

        @staticmethod
        def backward(ctx, grad):
            x, *weights = ctx.saved_tensors
            with library.enable_grad():
                x = x.detach().requires_grad_()
                return (None, *library.autograd.grad(ctx.function(x), [x, *weights], grad, allow_unused=True))

    found = []
    for change in (lambda x: x, lambda x: x * 2, lambda x: x[:1]):  # a leaf, a result, a view
        weight, x = (library.tensor(numbers, requires_grad=True) for _ in range(2))
        saved = change(weight)
        Adjoint.apply(lambda x, saved=saved: (x @ saved).tanh() ** 2, x[:, : saved.shape[0]], saved).sum().backward()
        found += [x.grad, weight.grad]

    factor = library.tensor([2.0], requires_grad=True)

    class Scaled(library.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * factor

        @staticmethod
        def backward(ctx, grad):
            return grad * 2 * ctx.saved_tensors[0] * factor  # the product with what needs gradients itself, too

    x = library.tensor([3.0], requires_grad=True)
    first = library.autograd.grad(Scaled.apply(x), x, create_graph=True)[0]
    return [*found, first, library.autograd.grad(first, x)[0]]


def test_backward_may_ask_for_gradients_of_what_was_saved() -> None:
    for ours, theirs in zip(by_adjoint(pg), by_adjoint(torch)):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-7)


def test_a_gradient_of_a_broadcast_argument_is_summed() -> None:
    found = []
    for lib in (pg, torch):

        class Added(lib.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                return x + y

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                return grad, grad

        x, y = lib.ones(2, 3, requires_grad=True), lib.ones(2, 1, requires_grad=True)
        z = lib.tensor(1.0, requires_grad=True)
        (Added.apply(x, y) * lib.arange(6.0).reshape(2, 3)).sum().backward()
        Added.apply(x, z).sum().backward()
        found.append([x.grad.tolist(), y.grad.tolist(), z.grad.tolist()])
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["argument", "attribute"])
def test_a_number_that_changes_at_each_call_is_an_input_of_a_plan(kind: str) -> None:
    class Reversed(Function):
        alpha = 1.0

        @staticmethod
        def forward(ctx: Any, x: Any, alpha: Any) -> Any:
            ctx.alpha = Reversed.alpha if alpha is None else alpha
            return x * (1 + ctx.alpha)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return -ctx.alpha * grad, None

    weight = Tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)
    planned = []
    for i in range(24):
        alpha = Reversed.alpha = 0.1 + 0.03 * i
        weight.grad = None
        with watch() as counts:
            loss = (Reversed.apply(weight @ weight, alpha if kind == "argument" else None) * Tensor([1.0, 2.0])).sum()
            loss.backward()
            value = loss.item()
        planned.append(counts.scheduled)
        numbers = weight.detach().numpy()
        assert value == pytest.approx((numbers @ numbers * [1.0, 2.0]).sum() * (1 + alpha), rel=1e-5)
        grad = np.array([[1.0, 2.0], [1.0, 2.0]]) * -alpha
        assert weight.grad is not None
        np.testing.assert_allclose(weight.grad.numpy(), grad @ numbers.T + numbers.T @ grad, rtol=1e-5)
    assert not any(planned[-4:])


def reversible(lib: Any) -> Any:
    class Reversible(lib.autograd.Function):  # type: ignore[name-defined, misc]
        """Computes its input again in its backward pass, and calls backward() from there."""

        @staticmethod
        def forward(ctx: Any, x: Any, f: Any, *params: Any) -> Any:
            ctx.f = f
            first, second = x.chunk(2, -1)
            with lib.no_grad():
                y = lib.cat([first + f(second), second], -1)
            ctx.save_for_backward(y, *params)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            y, *params = ctx.saved_tensors
            second, by_first, by_second = y.chunk(2, -1)[1], *grad.chunk(2, -1)
            with lib.enable_grad():
                second = second.detach().requires_grad_()
                lib.autograd.backward(ctx.f(second), by_first)
            return lib.cat([by_first, by_second + second.grad], -1), None, *[None for _ in params]

    return Reversible


@pytest.mark.parametrize("given", ["arguments", "a closure"])
def test_backward_may_add_to_the_gradients_of_others(given: str) -> None:
    found = []
    for lib in (pg, torch):
        layer, x = lib.nn.Linear(2, 2), lib.tensor([[1.0, 2.0, -1.0, 0.5]], requires_grad=True)
        with lib.no_grad():
            layer.weight.copy_(lib.tensor([[1.0, -2.0], [0.5, 3.0]]))
            layer.bias.copy_(lib.tensor([0.25, -1.0]))
        function = reversible(lib)
        for _ in range(2):
            y = function.apply(x, layer, *(layer.parameters() if given == "arguments" else ()))
            y.pow(2).sum().backward()
        found.append([tensor.tolist() for tensor in (y, x.grad, layer.weight.grad, layer.bias.grad)])
    assert found[0] == found[1]


def test_a_traced_backward_that_adds_to_gradients_is_refused() -> None:
    layer, x = pg.nn.Linear(2, 2), Tensor([[1.0, 2.0, -1.0, 0.5]], requires_grad=True)
    step = pg.jit(lambda scale: (reversible(pg).apply(x, layer) * scale).sum().backward())
    with pytest.raises(pg.JitError, match=r"calls backward\(\) while it is traced"):
        step(pg.ones(1))


def by_gradients_inside(lib: Any) -> Any:
    """A Function whose forward differentiates a network by parameters that it is given, as residual flows do."""

    class Inside(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, network: Any, x: Any, *weights: Any) -> Any:
            assert all(given is own and given.requires_grad for given, own in zip(weights, network.parameters()))
            with lib.enable_grad():
                x = x.detach().requires_grad_(True)
                energy = (network(x) ** 2).sum(1)
                grads = lib.autograd.grad(energy.sum(), (x, *weights), allow_unused=True)
            ctx.save_for_backward(*grads)
            return energy.detach()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return (None, *(None if saved is None else saved * grad[0] for saved in ctx.saved_tensors))

    return Inside


@pytest.mark.parametrize("is_jitted", [False, True])
def test_forward_is_given_the_arguments_themselves(is_jitted: bool) -> None:
    found = []
    for lib in (pg, torch):
        network = lib.nn.Linear(3, 2)
        with lib.no_grad():
            network.weight.copy_(lib.arange(6.0).reshape(2, 3))
            network.bias.fill_(0.5)
        network.unused = lib.nn.Parameter(lib.ones(1))
        inside = by_gradients_inside(lib)

        def step(x: Any, inside: Any = inside, network: Any = network) -> Any:
            network.zero_grad()
            x = x.detach().requires_grad_()
            loss = inside.apply(network, x, *network.parameters()).sum()
            loss.backward()
            return loss, x.grad

        run = pg.jit(step) if is_jitted and lib is pg else step
        values = []
        for number in range(3):
            loss, grad = run(lib.arange(12.0).reshape(4, 3) + number)
            grads = network.weight.grad.tolist(), network.bias.grad.tolist(), network.unused.grad
            values.append([loss.item(), grad.tolist(), *grads])
        found.append(values)
    assert found[0] == found[1]


def test_an_argument_that_is_given_twice_and_one_that_is_returned() -> None:
    found = []
    for lib in (pg, torch):

        class Product(lib.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                ctx.save_for_backward(x, y)
                return x * y, x.view_as(x)

            @staticmethod
            def backward(ctx: Any, grad: Any, same: Any) -> Any:
                x, y = ctx.saved_tensors
                return grad * y + 10 * same, grad * x

        x = lib.tensor([1.0, 2.0], requires_grad=True)
        product, same = Product.apply(x, x)
        (product.sum() + same.sum()).backward()
        found.append([product.tolist(), same.tolist(), x.grad.tolist()])
    assert found[0] == found[1] == [[1.0, 4.0], [1.0, 2.0], [12.0, 14.0]]
