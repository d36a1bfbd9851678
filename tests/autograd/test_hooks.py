"""Hooks, retained gradients and functions with a gradient of their own: programs say in both libraries the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg


def numbers(tensor: Any) -> Any:
    return None if tensor is None else tensor.detach().tolist()


def hooks_around_a_write(lib: Any, log: list[Any]) -> Any:
    x = lib.tensor([1.0], requires_grad=True)
    y = x.clone()
    y.register_hook(lambda grad: (log.append(numbers(grad)), grad * 2)[1])
    y.mul_(2)
    y.register_hook(lambda grad: (log.append(numbers(grad)), grad * 3)[1])
    y.sum().backward()
    return x.grad


def hook_before_a_view_is_written(lib: Any, log: list[Any]) -> Any:
    x = lib.ones(3, requires_grad=True)
    y = x.clone()
    y.register_hook(lambda grad: grad * 10)
    y[0:2].mul_(2)
    y.sum().backward()
    return x.grad


def hook_after_use(lib: Any, log: list[Any]) -> Any:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    out = (y * y).sum()
    y.register_hook(lambda grad: (log.append(numbers(grad)), grad * 2)[1])
    out.backward()
    return x.grad


def hook_of_a_leaf_and_its_clone(lib: Any, log: list[Any]) -> Any:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = x.clone()
    out = (x * 5).sum()
    y.register_hook(lambda grad: log.append(numbers(grad)))
    (out + (y * 2).sum()).backward()
    return x.grad


def hook_of_what_is_gone(lib: Any, log: list[Any]) -> Any:
    def made() -> Any:
        y = lib.tensor([1.0, 2.0], requires_grad=True) * 2
        y.register_hook(lambda grad: log.append(numbers(grad)))
        return y.clone()

    made().sum().backward()


def retained_after_use(lib: Any, log: list[Any]) -> Any:
    y = lib.tensor([1.0, 2.0], requires_grad=True) * 3
    out = (y * y).sum()
    y.retain_grad()
    out.backward(retain_graph=True)
    log.append(numbers(y.grad))
    out.backward()
    return y.grad


def retained_of_views_and_what_they_show(kind: str, first: str, uses_both: bool) -> Any:
    """Returns a program: a result and a view of it are used, and then both retain their gradients, or get hooks."""
    views = {"rows": lambda y: y.view(4), "transpose": lambda y: y.T, "part": lambda y: y[0], "expanded": lambda y: y[None]}

    def program(lib: Any, log: list[Any]) -> Any:
        x = lib.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        result = x * 2
        view = views[kind](result)
        out = (view * view).sum() + (result.sum() * 5 if uses_both else 0.0)
        for tensor in (view, result) if first == "view" else (result, view):
            tensor.retain_grad()
        out.backward()
        log.append((numbers(view.grad), numbers(result.grad)))
        return x.grad

    program.__name__ = f"retained_of_a_view_{kind}_{first}_first{'_both_used' * uses_both}"
    return program


def retained_of_the_last_value(lib: Any, log: list[Any]) -> Any:
    y = lib.tensor([1.0], requires_grad=True).clone()
    y.retain_grad()
    y.mul_(2)
    y.mul_(2)
    y.sum().backward()
    return y.grad


def retained_of_one_result_of_two(lib: Any, log: list[Any]) -> Any:
    var, mean = lib.var_mean(lib.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True), dim=0)
    var.retain_grad()
    mean.retain_grad()
    var.mul_(2)
    (var + mean).sum().backward()
    log.append(numbers(mean.grad))
    return var.grad


def after_hooks_may_write(lib: Any, log: list[Any]) -> Any:
    x = lib.ones(2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda leaf: leaf.sub_(leaf.grad))
    (x * 2).sum().backward()
    return x


def backward_to_a_result(lib: Any, log: list[Any]) -> Any:
    x = lib.ones(2, requires_grad=True)
    y = x * 2
    (y * y).sum().backward(inputs=[y])
    log.append(numbers(x.grad))
    return y.grad


def a_deleted_gradient(lib: Any, log: list[Any]) -> Any:
    x = lib.ones(2, requires_grad=True)
    x.sum().backward()
    del x.grad
    return x.grad


def function_with_setup_context(lib: Any, log: list[Any]) -> Any:
    class Product(lib.autograd.Function):
        @staticmethod
        def forward(x: Any, y: Any, scale: float, power: int = 2) -> Any:
            return x * y * scale

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, y, ctx.scale, power = inputs
            log.append(power)
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x, None, y)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, nothing, y = ctx.saved_tensors
            assert nothing is None
            return grad * y * ctx.scale, grad * x * ctx.scale, None, None

    x, y = lib.tensor([1.0, 2.0], requires_grad=True), lib.tensor([3.0, 4.0], requires_grad=True)
    Product.apply(x, y, 10.5).sum().backward()
    log.append(numbers(y.grad))
    return x.grad


def function_that_writes_its_argument(lib: Any, log: list[Any]) -> Any:
    class Scaled(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x.mul_(2.5)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2.5

    x = lib.ones(2, requires_grad=True)
    y = x * 2
    log.append(Scaled.apply(y) is y)
    log.append(numbers(y))
    (y * y).sum().backward()
    return x.grad


def functions_of_numbers_alone(lib: Any, log: list[Any]) -> Any:
    class Twice(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, n: int) -> Any:
            return n * 2 if n < 5 else lib.ones(n)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return None

    made = Twice.apply(5)
    log.extend([Twice.apply(3), made.requires_grad])
    return made


def function_for_transforms(lib: Any, log: list[Any]) -> Any:
    class Product(lib.autograd.function.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x * 3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(output)
            ctx.scale = 3

        @staticmethod
        @lib.autograd.function.once_differentiable
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad * ctx.scale * x

    x = lib.tensor([1.0, 2.0], requires_grad=True)
    log.append(numbers(lib.func.vmap(Product.apply)(lib.ones(2, 2))))
    Product.apply(x).sum().backward()
    return x.grad


def hook_of_a_view(kind: str, then: str, uses: bool) -> Any:
    """Returns a program: a view has a hook, or retains its gradient; something is written, and all are used."""

    def program(lib: Any, log: list[Any]) -> Any:
        x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = x * 1
        view = y[:2]
        if kind == "retained":
            view.retain_grad()
        else:
            view.register_hook(lambda grad: (log.append(numbers(grad)), grad * 10 if kind == "changing" else None)[1])
        used = (view * 7).sum() if uses else 0.0
        if then == "elements":
            y[0] = 9.0
        elif then != "nothing":
            (y if then == "base" else view).mul_(2)
        (used + y.sum() * 3 + (view * 5).sum()).backward()
        log.append(numbers(view.grad) if kind == "retained" else None)
        return x.grad

    program.__name__ = f"{kind}_hook_of_a_view_then_{then}{'_after_use' * uses}"
    return program


def hook_of_another_equal_result(lib: Any, log: list[Any]) -> Any:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    hooked, kept = x * 2, x * x
    hooked.register_hook(lambda grad: log.append(numbers(grad)) or grad * 10)
    kept.retain_grad()
    (x * 2 + x * x * 3).sum().backward()  # the same numbers, of other results
    log.append(kept.grad is None)
    (hooked * x * 2 + kept).sum().backward()
    log.append(numbers(kept.grad))
    return x.grad


def hooks_read_gradients(create_graph: bool, to_grad: bool) -> Any:
    def program(lib: Any, log: list[Any]) -> Any:
        def note(kind: str, grad: Any) -> None:
            log.append((kind, grad.requires_grad, lib.is_grad_enabled(), numbers(grad)))
            if not create_graph:
                log.append(grad.numpy().tolist())

        layer = lib.nn.Linear(2, 2, bias=False)
        with lib.no_grad():
            layer.weight.copy_(lib.tensor([[1.0, 2.0], [0.5, -1.0]]))
        layer.register_full_backward_hook(lambda module, grads, arriving: note("module", arriving[0]))
        x = lib.tensor([3.0, 1.0], requires_grad=True)
        hidden = x * x
        hidden.register_hook(lambda grad: note("result", grad))
        x.register_hook(lambda grad: note("leaf", grad))
        loss = layer(hidden).pow(2).sum()
        if to_grad:
            return lib.autograd.grad(loss, x, create_graph=create_graph)[0]
        loss.backward(create_graph=create_graph)
        return x.grad

    program.__name__ = f"hooks_read_gradients_{create_graph}_{to_grad}"
    return program


PROGRAMS = [
    hook_of_another_equal_result,
    *[hooks_read_gradients(*asked) for asked in ((False, False), (False, True), (True, True))],
    hooks_around_a_write, hook_before_a_view_is_written, hook_after_use, hook_of_a_leaf_and_its_clone,
    hook_of_what_is_gone, retained_after_use, retained_of_the_last_value, retained_of_one_result_of_two,
    after_hooks_may_write, backward_to_a_result, a_deleted_gradient, function_with_setup_context,
    function_that_writes_its_argument, functions_of_numbers_alone, function_for_transforms,
    *[hook_of_a_view(kind, then, False) for kind in ("seeing", "changing", "retained")
      for then in ("nothing", "base", "view", "elements")],
    *[hook_of_a_view("changing", then, True) for then in ("nothing", "base", "view")],
    *[retained_of_views_and_what_they_show(kind, first, both) for kind in ("rows", "transpose", "part", "expanded")
      for first in ("view", "result") for both in (False, True)],
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_says_what_it_says_in_pytorch(program: Any) -> None:
    logs: tuple[list[Any], list[Any]] = [], []
    found, wanted = (numbers(program(lib, log)) for lib, log in zip((pg, torch), logs))
    assert found == wanted and logs[0] == logs[1]


FUNCTIONS: dict[str, Any] = {
    "layer_norm": lambda lib, x: lib.nn.functional.layer_norm(x, (4,)),
    "gelu": lambda lib, x: lib.nn.functional.gelu(x),
    "silu": lambda lib, x: lib.nn.functional.silu(x),
    "var": lambda lib, x: x.var(-1),
    "index": lambda lib, x: x[lib.tensor([0, 2])],
    "cross_entropy": lambda lib, x: lib.nn.functional.cross_entropy(x, lib.tensor([0, 1, 2]), reduction="none"),
    "mul": lambda lib, x: x * 2,
}


@pytest.mark.req("A9")
@pytest.mark.parametrize("when", ["retained", "retained later", "hooked", "hooked later", "written", "asked", "to inputs"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_gradient_of_a_gradient_finds_results(name: str, when: str) -> None:
    def run(lib: Any) -> list[Any]:
        numbers = [[1.0, 2.0, -1.5, 0.5], [0.25, -1.0, 3.0, 1.0], [2.0, 0.75, 0.5, -2.0]]
        x = lib.tensor(numbers, dtype=lib.float64, requires_grad=True)
        hidden = x * lib.tensor([1.0, 0.5, 2.0, -1.0], dtype=lib.float64)
        y, seen = FUNCTIONS[name](lib, hidden), []

        def watch() -> None:
            if "hooked" in when:
                y.register_hook(lambda grad: (seen.append(grad.detach().clone()), grad * 2)[1])
            else:
                y.retain_grad(), hidden.retain_grad()

        if "later" not in when:
            watch()
        if when == "written":
            y.mul_(3.0)
        loss = (y * y * y).sum()
        if "later" in when:
            watch()
        (first,) = lib.autograd.grad(loss, x, create_graph=True)
        seen += [None if one.grad is None else one.grad.detach().clone() for one in (y, hidden) if "hooked" not in when]
        second = (first * first).sum()
        if when == "asked":
            seen += lib.autograd.grad(second, [y, hidden, x], retain_graph=True)
        second.backward(inputs=[y, x] if when == "to inputs" else None)
        return [*seen, x.grad] if "hooked" in when else [*seen, y.grad, hidden.grad, x.grad]

    found, wanted = ([None if t is None else t.tolist() for t in run(lib)] for lib in (pg, torch))
    assert [one if one is None else pytest.approx(np.array(one), 1e-9) for one in wanted] == [
        one if one is None else np.array(one) for one in found
    ]


@pytest.mark.parametrize("to", ["x", "w", "y", "h", "z"])
def test_grad_adds_to_retained_results_between_outputs_and_inputs(to: str) -> None:
    def run(lib: Any) -> list[Any]:
        held = {"x": lib.tensor([1.0, 2.0], requires_grad=True), "w": lib.tensor([3.0, 5.0], requires_grad=True)}
        held["h"] = held["x"] * held["w"]
        held["y"] = held["h"] * held["h"]
        held["z"] = held["y"] * held["w"]
        held["y"].retain_grad(), held["h"].retain_grad()
        for _ in range(2):
            lib.autograd.grad((held["z"] * held["z"]).sum(), held[to], retain_graph=True)
        return [None if held[name].grad is None else held[name].grad.tolist() for name in ("y", "h", "x", "w")]

    assert run(pg) == run(torch)


@pytest.mark.req("A9")
@pytest.mark.parametrize("where", ["is_grads_batched", "jacobian", "jacrev", "chunks"])
@pytest.mark.parametrize("what", ["gradient", "argument"])
def test_a_function_that_reads_values_has_a_jacobian(where: str, what: str) -> None:
    class Reading(pg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return pg.tensor(x.detach().numpy() ** 2)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return pg.tensor(grad.numpy()) * 2 * x if what == "gradient" else grad * 2 * pg.tensor(x.detach().numpy())

    x = pg.tensor([1.0, 2.0, 4.0], requires_grad=True)
    found = {
        "is_grads_batched": lambda: pg.autograd.grad(Reading.apply(x), x, pg.eye(3), is_grads_batched=True)[0],
        "jacobian": lambda: pg.autograd.functional.jacobian(Reading.apply, x),
        "jacrev": lambda: pg.func.jacrev(Reading.apply)(x),
        "chunks": lambda: pg.func.jacrev(Reading.apply, chunk_size=2)(x),
    }[where]()
    assert found.tolist() == [[2, 0, 0], [0, 4, 0], [0, 0, 8]]


def test_a_function_returns_the_argument_that_it_writes() -> None:
    class Lost(pg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(2)
            return x + 1

    with pytest.raises(pg.JitError, match="forward of Lost writes to argument 0 and does not return it"):
        pg.jit(Lost.apply)(pg.ones(2))
    x = pg.ones(2)
    assert Lost.apply(x).tolist() == [3, 3] and x.tolist() == [2, 2]  # as in PyTorch
