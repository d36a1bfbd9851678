"""Hooks, registration, paths and the summary of a module."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, dtypes, nn
from picograd.engine.watch import watch


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


def test_summary_of_several_inputs():
    lines = str(nn.Bilinear(2, 3, 4).summary((5, 2), Tensor.ones(5, 3))).splitlines()
    assert lines[1].split("  ")[0] == "Bilinear" and "(5, 2), (5, 3)" in lines[1] and len(lines) == 3


ERRORS = [
    (lambda net: net.register_buffer("a.b", Tensor([1.0])), "register_buffer: 'a.b' is taken, or no name without dots."),
    (lambda net: net.register_parameter("forward", None),
     "register_parameter: 'forward' is taken, or no name without dots."),
    (lambda net: net.register_parameter("w", Tensor([1.0])), "register_parameter: w must be a leaf that requires grad."),
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
