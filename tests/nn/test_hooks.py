"""Hooks, registration, paths and the summary of a module."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, dtypes, nn
from picograd.look import watch


def test_hooks_change_arguments_and_results(device):
    net, seen = nn.Linear(2, 1), []
    first = net.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    second = net.register_forward_pre_hook(lambda module, args, kwargs: seen.append(kwargs), with_kwargs=True)
    third = net.register_forward_hook(lambda module, args, output: output + 1)
    x = Tensor([[1.0, 2.0]])
    np.testing.assert_allclose(net(x).detach().numpy(), (net.forward(x * 2) + 1).detach().numpy(), rtol=1e-6)
    assert seen == [{}]
    for handle in (first, second, third):
        handle.remove()
    assert net(x).tolist() == net.forward(x).tolist()
    assert not [name for name in vars(net) if name.startswith("_forward")]


def test_hooks_run_in_order_and_prepended_ones_first(device):
    net, seen = nn.Identity(), []
    for name, prepend in (("a", False), ("b", False), ("c", True)):
        net.register_forward_hook(lambda module, args, output, name=name: seen.append(name), prepend=prepend)
    net(Tensor([1.0]))
    assert seen == ["c", "a", "b"]
    with net.register_forward_hook(lambda module, args, kwargs, output: output * 3, with_kwargs=True):
        assert net(Tensor([1.0])).tolist() == [3.0]
    assert net(Tensor([1.0])).tolist() == [1.0]


def test_buffers_that_are_not_saved():
    net = nn.Linear(2, 1)
    net.register_buffer("mask", Tensor([1.0]), persistent=False)
    net.register_buffer("later", None)
    net.register_parameter("free", None)
    assert sorted(net.state_dict()) == ["bias", "weight"]
    assert [name for name, _ in net.named_buffers()] == ["mask"]
    net.later = Tensor([2.0])
    assert [name for name, _ in net.named_buffers()] == ["mask", "later"] and "later" in net.state_dict()
    assert net.to(dtypes.float64).mask.dtype is dtypes.float64


def test_paths():
    net = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3)))
    assert net.get_submodule("1.0") is net[1][0]
    assert net.get_parameter("0.weight") is net[0].weight
    assert net.get_buffer("1.0.running_mean") is net[1][0].running_mean
    assert [name for name, _ in net.named_parameters(prefix="net", recurse=False)] == []
    assert next(iter(net.named_parameters(prefix="net")))[0] == "net.0.weight"
    net.add_module("again", net[0])
    assert len(list(net.named_parameters())) == 4 and len(list(net.named_modules(remove_duplicate=False))) == 5


def test_a_state_of_pytorch_is_loaded(rng):
    mine, other = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), torch.nn.Sequential(
        torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)
    )
    assert mine.load_state_dict(other.state_dict()) == ([], [])
    x = rng.standard_normal((4, 2)).astype(np.float32)
    ours, theirs = mine(Tensor(x)), other(torch.tensor(x))
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-4, atol=1e-5)
    missing, unknown = mine.load_state_dict({"0.bias": torch.ones(3), "2.bias": torch.ones(1)}, strict=False)
    assert mine[0].bias.tolist() == [1.0] * 3 and unknown == ["2.bias"] and "0.weight" in missing


def test_a_buffer_that_cannot_be_written_to_is_named():
    net = nn.Linear(2, 2)
    net.register_buffer("repeated", Tensor.zeros(1).expand(3))
    state = {**net.state_dict(), "repeated": Tensor.ones(3)}
    with pytest.raises(pg.ShapeError, match="^load_state_dict: repeated: in-place: .* repeats elements"):
        net.load_state_dict(state)


def test_dtypes_by_name():
    net = nn.BatchNorm1d(3)
    for method, dtype in (("half", "float16"), ("bfloat16", "bfloat16"), ("double", "float64"), ("float", "float32")):
        assert str(getattr(net, method)().weight.dtype) == dtype and str(net.running_mean.dtype) == dtype
        assert net.num_batches_tracked.dtype is dtypes.int64


@pytest.mark.req("C7")
def test_summary():
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False))
    with watch() as counts:
        summary = net.summary((5, 8))
    assert not counts.plans
    assert [row.name for row in summary.rows] == ["0 Linear", "1 ReLU", "2 Linear"]
    assert [(row.inputs, row.outputs) for row in summary.rows][0] == ("(5, 8)", "(5, 16)")
    assert [row.parameters for row in summary.rows] == [8 * 16 + 16, 0, 64]
    assert summary.rows[0].flops == 2 * 5 * 8 * 16 + 5 * 16 and summary.rows[2].flops == 2 * 5 * 16 * 4
    assert summary.total.parameters == 208 and summary.total.nbytes == 832
    assert summary.total.flops == sum(row.flops for row in summary.rows)
    assert not [name for name in vars(net[0]) if name.startswith("_forward")]


def test_a_summary_leaves_averages_and_random_numbers_as_they_were():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout())
    pg.manual_seed(1)
    first = pg.rand(2).tolist()
    pg.manual_seed(1)
    before = {name: value.tolist() for name, value in net.state_dict().items()}
    summary = net.summary((4, 2))
    assert summary.total.flops == sum(row.flops for row in summary.rows)
    assert {name: value.tolist() for name, value in net.state_dict().items()} == before
    assert pg.rand(2).tolist() == first
    with pytest.raises(pg.ShapeError):
        net.summary((4, 5))
    assert pg.rand(2).tolist() != first


class Shifted(nn.Module):
    """A module with a parameter of its own between those of its layers."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(Tensor.ones(8))
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.second(self.first(x).transpose(0, 1).T + self.shift)


def test_summary_has_a_row_for_parameters_of_a_module_that_has_layers():
    summary = Shifted().summary((4, 8))
    assert [(row.name, row.parameters) for row in summary.rows] == [
        ("first Linear", 72), ("second Linear", 72), ("Shifted", 8),
    ]  # fmt: skip
    assert [row.flops for row in summary.rows] == [544, 544, 32], "moved inputs are not computed a second time"
    assert summary.total.parameters == 152 and summary.total.flops == 1120


def test_notebooks_show_summaries_as_tables_and_modules_as_trees():
    shown = Shifted().summary((4, 8))._repr_html_()
    assert shown.count("<tr>") == 5 and "<td style=\"text-align:left\">first Linear</td>" in shown
    shown = nn.Sequential(Shifted(), nn.ReLU())._repr_html_()
    assert shown.startswith("<details open") and shown.count("<details") == 2
    assert "(0): Shifted()  152 parameters" in shown and "(1): ReLU()</code>" in shown


def test_summary_of_several_inputs():
    lines = str(nn.Bilinear(2, 3, 4).summary((5, 2), Tensor.ones(5, 3))).splitlines()
    assert lines[1].split("  ")[0] == "Bilinear" and "(5, 2), (5, 3)" in lines[1] and len(lines) == 3


ERRORS = [
    (lambda net: net.register_buffer("a.b", Tensor([1.0])), "register_buffer: 'a.b' is taken, empty or dotted."),
    (lambda net: net.register_parameter("forward", None),
     "register_parameter: 'forward' is taken, empty or dotted."),
    (lambda net: net.register_parameter("w", Tensor([1.0])),
     "register_parameter: w must be an nn.Parameter, or a leaf that requires grad."),
    (lambda net: net.get_submodule("0"), "get_submodule: Linear has no module '0'."),
    (lambda net: net.get_parameter("0"), "get_parameter: Linear has no parameter '0'."),
    (lambda net: net.get_buffer("0"), "get_buffer: Linear has no buffer '0'."),
    (lambda net: net.load_state_dict({"weight": "text", "bias": 1}),
     "load_state_dict: weight is a str, which is neither a tensor nor an array."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "fact"), ERRORS)
def test_errors(call, fact):
    with pytest.raises(pg.PicogradError) as caught:
        call(nn.Linear(2, 1))
    assert caught.value.fact == fact and caught.value.line.file == __file__


# ---- gradients ----
def watched(library, net, x, replaced: bool) -> list:
    seen = []

    def before(module, grad_output):
        seen.append(("before", [g.tolist() for g in grad_output]))
        return (grad_output[0] * 2,) if replaced else None

    def after(module, grad_input, grad_output):
        seen.append(("after", [None if g is None else g.tolist() for g in (*grad_input, *grad_output)]))
        return (grad_input[0] * 3,) if replaced and grad_input[0] is not None else None

    handles = [net[1].register_full_backward_hook(after), net[1].register_full_backward_pre_hook(before)]
    net(x).square().sum().backward()
    handles += [net[0].register_full_backward_hook(after)]
    seen.append(net[0].weight.grad.tolist())
    net(x.detach()).sum().backward()
    for handle in handles:
        handle.remove()
    net(x).sum().backward()
    return [*seen, net[0].weight.grad.tolist(), x.grad.tolist()]


@pytest.mark.req("A7")
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("replaced", [False, True])
def test_hooks_see_the_gradients_pytorchs_see(replaced, device):
    found = []
    for library in (pg, torch):
        net = library.nn.Sequential(library.nn.Linear(2, 2, bias=False), library.nn.Linear(2, 1, bias=False))
        with library.no_grad():
            net[0].weight.copy_(library.tensor([[1.0, 2.0], [3.0, -1.0]]))
            net[1].weight.copy_(library.tensor([[0.5, -2.0]]))
        x = library.tensor([[1.0, 2.0]]).requires_grad_()
        found.append(watched(library, net, x, replaced))
    assert found[0] == found[1]


def hooked_inside_and_after(library) -> list:
    seen = []

    class Hooked(library.nn.Module):
        def forward(self, x):
            x.register_hook(lambda grad: grad * 7)
            y = x * x
            y.register_hook(lambda grad: grad * 11)
            return y

    net, x = Hooked(), library.tensor([1.0, 2.0], requires_grad=True)
    net.register_full_backward_hook(lambda net, grads, outs: seen.append([g.tolist() for g in (*grads, *outs)]))
    net.register_full_backward_pre_hook(lambda net, outs: seen.append(outs[0].tolist()))
    y = net(x)
    y.retain_grad()
    y.register_hook(lambda grad: grad * 2)
    y.sum().backward()
    return [*seen, x.grad.tolist(), y.grad.tolist()]


def test_hooks_of_a_module_see_gradients_after_those_of_its_arguments_and_results():
    assert hooked_inside_and_after(pg) == hooked_inside_and_after(torch)


class Sum(nn.Module):
    def forward(self, a, b):
        return a + b, a * b


def test_of_several_gradients_none_is_replaced(device):
    net, seen = Sum(), []
    a, b = Tensor([2.0], requires_grad=True), Tensor([3.0], requires_grad=True)
    handle = net.register_full_backward_hook(lambda net, grads, outs: seen.append([g.item() for g in (*grads, *outs)]))
    sum(net(a, b)).sum().backward()
    assert seen == [[4.0, 3.0, 1.0, 1.0]] and a.grad.item() == 4.0
    handle.remove()
    net.register_full_backward_hook(lambda module, grads, outputs: tuple(g * 2 for g in grads))
    with pytest.raises(pg.GradientError) as caught:
        sum(net(a, b)).sum().backward()
    assert caught.value.fact == "register_full_backward_hook: a hook of Sum replaced the gradients of several tensors."


def test_of_gradients_of_several_results_none_is_replaced(device):
    net, a = Sum(), Tensor([2.0], requires_grad=True)
    net.register_full_backward_pre_hook(lambda module, grads: tuple(Tensor([1.0]) for _ in grads))
    with pytest.raises(pg.GradientError) as caught:
        sum(net(a, a)).sum().backward()
    assert caught.value.fact == "register_full_backward_pre_hook: a hook of Sum replaced the gradients of several tensors."


def test_a_hook_that_is_always_called_sees_a_forward_fail():
    net, seen = nn.Linear(2, 1), []
    net.register_forward_hook(lambda module, args, output: seen.append("only then"))
    net.register_forward_hook(lambda module, args, output: seen.append(output), always_call=True)
    with pytest.raises(pg.ShapeError):
        net(Tensor.ones(1, 3))
    assert seen == [None]
    net(Tensor.ones(1, 2))
    assert seen[1] == "only then" and len(seen) == 3


# ---- state ----
@pytest.mark.req("B9")
def test_a_module_under_two_names_is_saved_under_both():
    def net(library):
        first = library.nn.Linear(1, 1)
        return library.nn.ModuleDict({"a": first, "b": first})

    assert list(net(pg).state_dict()) == list(net(torch).state_dict())
    assert str(net(pg).load_state_dict(net(torch).state_dict())) == "<All keys matched successfully>"


@pytest.mark.req("B9")
def test_state_beside_tensors_is_saved_and_assigned():
    class Named(nn.Linear):
        name = "a"

        def get_extra_state(self):
            return {"name": self.name}

        def set_extra_state(self, state):
            self.name = state["name"]

    a, b = nn.Sequential(Named(2, 1), nn.BatchNorm1d(1)).double(), nn.Sequential(Named(2, 1), nn.BatchNorm1d(1))
    a[0].name = "b"
    b[0].bias.requires_grad_(False)
    state = a.state_dict()
    assert list(state)[:3] == ["0.weight", "0.bias", "0._extra_state"]
    assert b.load_state_dict(state, assign=True) == ([], []) and b[0].name == "b"
    assert b[0].weight.dtype is dtypes.float64 and [p.requires_grad for p in b.parameters()] == [True, False, True, True]
    assert [name for name, _ in b.named_buffers()] == [name for name, _ in a.named_buffers()]
    assert a.state_dict(prefix="net.", destination={"x": 1})["net.0.bias"].shape == (1,)


def test_attributes_that_are_not_there_say_so():
    net = nn.Linear(1, 1)
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'wieght'"):
        _ = net.wieght
    del net.bias
    assert [name for name, _ in net.named_parameters()] == ["weight"] and not hasattr(net, "bias")
    net.set_submodule("inner", nn.Sequential(nn.Tanh()))
    net.set_submodule("inner.0", nn.ReLU(), strict=True)
    assert isinstance(net.get_submodule("inner.0"), nn.ReLU)
    with pytest.raises(pg.ArgumentError) as caught:
        net.set_submodule("inner.1", nn.ReLU(), strict=True)
    assert caught.value.fact == "set_submodule: Linear has no module 'inner.1'."
