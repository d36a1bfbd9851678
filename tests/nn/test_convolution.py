"""Layers that convolve, pool, resample and put margins around, against PyTorch's with the same weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, nn
from picograd.autodiff.gradient import written_out
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.op import toposort
from picograd.nn import functional as F
from picograd.rewrites.simplify import simplify_graph
from picograd.road import create_schedule
from tests.helpers import same_value

IMAGE = (2, 4, 6, 7)
LAYERS = [
    (lambda m: m.Conv1d(4, 6, 3, padding=1, groups=2), (2, 4, 9)),
    (lambda m: m.Conv1d(4, 6, 4, padding="same", padding_mode="replicate"), (2, 4, 9)),
    (lambda m: m.Conv2d(4, 6, (3, 2), stride=2, dilation=(1, 2), bias=False), IMAGE),
    (lambda m: m.Conv2d(4, 6, 3, padding=(2, 1), padding_mode="reflect"), IMAGE),
    (lambda m: m.Conv2d(4, 4, 3, padding="same", padding_mode="circular", groups=4), IMAGE),
    (lambda m: m.Conv3d(2, 3, 2, padding=1), (1, 2, 3, 4, 3)),
    (lambda m: m.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (2, 4, 5)),
    (lambda m: m.ConvTranspose2d(4, 3, (3, 2), stride=(2, 1), dilation=2, bias=False), IMAGE),
    (lambda m: m.ConvTranspose3d(2, 3, 2, stride=2), (1, 2, 3, 4, 3)),
    (lambda m: m.MaxPool1d(3, 2, 1), (2, 4, 9)),
    (lambda m: m.MaxPool2d(2, ceil_mode=True), IMAGE),
    (lambda m: m.MaxPool3d(2), (1, 2, 4, 4, 4)),
    (lambda m: m.AdaptiveMaxPool1d(3), (2, 4, 9)),
    (lambda m: m.AdaptiveMaxPool2d((None, 3)), IMAGE),
    (lambda m: m.AdaptiveMaxPool3d(2), (1, 2, 3, 4, 5)),
    (lambda m: m.AvgPool1d(3, 2, 1, count_include_pad=False), (2, 4, 9)),
    (lambda m: m.AvgPool2d(3, 2, 1, divisor_override=5), IMAGE),
    (lambda m: m.AvgPool3d(2, ceil_mode=True), (1, 2, 3, 4, 5)),
    (lambda m: m.AdaptiveAvgPool1d(3), (2, 4, 9)),
    (lambda m: m.AdaptiveAvgPool2d(1), IMAGE),
    (lambda m: m.AdaptiveAvgPool3d((2, None, 1)), (1, 2, 3, 4, 5)),
    (lambda m: m.LPPool1d(2, 3, stride=2), (2, 4, 9)),
    (lambda m: m.LPPool2d(2, 3), IMAGE),
    (lambda m: m.LPPool3d(2, 2), (1, 2, 3, 4, 5)),
    (lambda m: m.Upsample(scale_factor=2), (2, 4, 9)),
    (lambda m: m.Upsample((5, 9), mode="bilinear", align_corners=True), IMAGE),
    (lambda m: m.UpsamplingNearest2d(9), IMAGE),
    (lambda m: m.UpsamplingBilinear2d(scale_factor=2), IMAGE),
    (lambda m: m.Unfold((3, 2), padding=1, stride=2), IMAGE),
    (lambda m: m.Fold((4, 5), 2), (2, 8, 12)),
    (lambda m: m.PixelShuffle(2), IMAGE),
    (lambda m: m.PixelUnshuffle(2), (2, 4, 6, 8)),
    (lambda m: m.ZeroPad1d(1), (2, 4, 9)),
    (lambda m: m.ZeroPad2d((1, 2, -1, 0)), IMAGE),
    (lambda m: m.ZeroPad3d(1), (1, 2, 3, 4, 5)),
    (lambda m: m.ConstantPad1d((1, 2), 3.0), (2, 4, 9)),
    (lambda m: m.ConstantPad2d(1, -1.0), IMAGE),
    (lambda m: m.ConstantPad3d(1, 2.0), (1, 2, 3, 4, 5)),
    (lambda m: m.ReflectionPad1d((1, 2)), (2, 4, 9)),
    (lambda m: m.ReflectionPad2d(2), IMAGE),
    (lambda m: m.ReflectionPad3d(1), (1, 2, 3, 4, 5)),
    (lambda m: m.ReplicationPad1d((1, 2)), (2, 4, 9)),
    (lambda m: m.ReplicationPad2d(2), IMAGE),
    (lambda m: m.ReplicationPad3d(1), (1, 2, 3, 4, 5)),
    (lambda m: m.CircularPad1d((1, 2)), (2, 4, 9)),
    (lambda m: m.CircularPad2d(2), IMAGE),
    (lambda m: m.CircularPad3d(1), (1, 2, 3, 4, 5)),
]


@pytest.mark.variants
@pytest.mark.req("C6")
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(("make", "shape"), LAYERS)
def test_layers(make: Callable[[Any], Any], shape: tuple[int, ...], rng: np.random.Generator) -> None:
    theirs, ours = make(torch.nn), make(nn)
    assert repr(ours).split("(")[0] == repr(theirs).split("(")[0]
    ours.load_state_dict({name: Tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x = rng.standard_normal(shape).astype(np.float32)
    mine, other = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    result, expected = ours(mine), theirs(other)
    same_value(result, expected, 1e-5, 1e-5)
    (result * result).sum().backward()
    (expected * expected).sum().backward()
    same_value(mine.grad, other.grad, 1e-4, 1e-4)
    for name, parameter in theirs.named_parameters():
        same_value(dict(ours.named_parameters())[name].grad, parameter.grad, 1e-4, 1e-4)


@pytest.mark.req("C6")
@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_a_subclass_convolves_with_another_weight(mode: str) -> None:
    found = []
    for lib in (pg, torch):

        class Centered(lib.nn.Conv2d):  # type: ignore[name-defined, misc]
            def forward(self, x: Any) -> Any:
                return self._conv_forward(x, self.weight - self.weight.mean((1, 2, 3), keepdim=True), None)

        layer = Centered(2, 3, 3, stride=2, padding=1, padding_mode=mode)
        with lib.no_grad():
            layer.weight.copy_(lib.arange(54.0).reshape(3, 2, 3, 3).sin())
        found.append(layer(lib.arange(60.0).reshape(1, 2, 5, 6).cos()).detach().numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_maxima_and_back(rng: np.random.Generator) -> None:
    x = rng.standard_normal(IMAGE).astype(np.float32)
    for make in (lambda m: (m.MaxPool2d(2, return_indices=True), m.MaxUnpool2d(2)),):
        (pool, unpool), (their_pool, their_unpool) = make(nn), make(torch.nn)
        (value, index), (their_value, their_index) = pool(Tensor(x)), their_pool(torch.tensor(x))
        same_value((value, index), (their_value, their_index))
        same_value(unpool(value, index, IMAGE), their_unpool(their_value, their_index, IMAGE))


def test_a_window_whose_taps_step_over_the_image_has_no_greatest_element() -> None:
    for shape, dilation in (((1, 1, 1), 2), ((1, 2, 3, 1), (1, 2)), ((1, 1, 2, 2), (3, 1)), ((1, 1, 2, 2), 3)):
        name, x = f"max_pool{len(shape) - 2}d", np.ones(shape, np.float32)
        theirs = getattr(torch.nn.functional, name)(torch.tensor(x), 2, 1, 1, dilation)
        assert getattr(F, name)(Tensor(x), 2, 1, 1, dilation).tolist() == theirs.tolist()


def test_the_first_of_equal_elements_has_the_gradient() -> None:
    x = Tensor([[[1.0, 1.0], [0.0, 1.0]]], requires_grad=True)
    F.max_pool2d(x, 2).sum().backward()
    assert x.grad.tolist() == [[[1.0, 0.0], [0.0, 0.0]]]


def test_nan_is_the_greatest() -> None:
    x = np.array([[1.0, np.nan, 3.0, np.nan, 2.0, 0.0]], np.float32)
    ours, theirs = F.max_pool1d(Tensor(x), 3, 1), torch.nn.functional.max_pool1d(torch.tensor(x), 3, 1)
    same_value(ours, theirs)
    _, place = F.max_pool2d(Tensor(x[None]), (1, 6), return_indices=True)
    assert place.tolist() == torch.nn.functional.max_pool2d(torch.tensor(x[None]), (1, 6), return_indices=True)[1].tolist()


@pytest.mark.req("C3")
@pytest.mark.parametrize(("padding", "dilation"), [(1, 1), (1, 2), (1, 3)])
def test_a_window_where_nothing_is_greater_takes_its_first_element_inside(padding: int, dilation: int) -> None:
    for x in (np.full((1, 1, 9, 8), -np.inf, np.float32), np.full((1, 1, 9, 8), -(2**31), np.int32)):
        ours = F.max_pool2d(Tensor(x), 3, 2, padding, dilation, return_indices=True)
        theirs = torch.nn.functional.max_pool2d(torch.tensor(x), 3, 2, padding, dilation, return_indices=True)
        assert [part.tolist() for part in ours] == [part.tolist() for part in theirs]


@pytest.mark.req("C3")
def test_no_op_and_no_kernel_stands_for_an_element_of_a_window() -> None:
    def cost(pool: Callable[[Tensor], Tensor]) -> tuple[int, int]:
        x = Tensor.zeros(1, 2, 40, 40, requires_grad=True)
        pool(x).sum().backward()
        schedule = create_schedule(simplify_graph(written_out([pool(x.detach()).op])))
        return len(toposort([x.grad.op])), len(schedule.items)

    for few, many in (
        (lambda x: F.max_pool2d(x, 3, 1), lambda x: F.max_pool2d(x, 31, 1)),
        (lambda x: F.max_pool2d(x, 3, 1, 1), lambda x: F.max_pool2d(x, 31, 1, 15)),
        (lambda x: F.adaptive_max_pool2d(x, 19), lambda x: F.adaptive_max_pool2d(x, 3)),
    ):
        (ops, kernels), (most_ops, most_kernels) = cost(few), cost(many)
        assert kernels == most_kernels and abs(ops - most_ops) < 9  # constants that happen to be equal are one


def test_start_values_are_within_pytorchs_bounds() -> None:
    layer = nn.Conv2d(16, 64, 3, groups=2)
    bound = 1 / math.sqrt(8 * 9)
    values = layer.weight.detach().numpy()
    assert abs(values).max() <= bound
    assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.03)  # of 4608 even draws: 1 % is a sigma
    assert abs(layer.bias.detach().numpy()).max() <= bound
    other = nn.ConvTranspose2d(16, 8, 3)
    assert abs(other.weight.detach().numpy()).max() <= 1 / math.sqrt(8 * 9)


@pytest.mark.req("C6")
def test_the_bits_are_the_same_for_1_2_and_4_threads(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    for x, w in (((16, 8, 20, 20), (24, 8, 3, 3)), ((64, 1, 28, 28), (8, 1, 3, 3)), ((8, 12, 9, 9), (12, 1, 3, 3))):
        a, b = (rng.standard_normal(shape).astype(np.float32) for shape in (x, w))
        found = set()
        for threads in (1, 2, 4):
            monkeypatch.setenv("PICOGRAD_THREADS", str(threads))
            mine, weight = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
            out = F.conv2d(mine, weight, padding=1, groups=x[1] // w[1])
            (out * out).sum().backward()
            found.add(b"".join(value.detach().numpy().tobytes() for value in (out, mine.grad, weight.grad)))
        assert len(found) == 1


# ---- errors ----
X, W = Tensor.zeros(1, 3, 5, 5), Tensor.zeros(4, 3, 3, 3)
ERRORS = [
    (lambda: F.conv2d(X, Tensor.zeros(4, 2, 3, 3)), ShapeError,
     "conv2d: input (1, 3, 5, 5) has 3 channels, weight (4, 2, 3, 3) with groups=1 needs 2."),
    (lambda: F.conv2d(X, W[:, :, :, 0]), ShapeError,
     "conv2d: weight must have 4 axes, the last 2 not empty, got (4, 3, 3)."),
    (lambda: F.conv2d(X[0, 0], W), ShapeError, "conv2d: input must be (N, C, H, W) or (C, H, W), got (5, 5)."),
    (lambda: F.conv2d(X, W, Tensor.zeros(3)), ShapeError,
     "conv2d: bias must be (4,), one number per output, got (3,)."),
    (lambda: F.conv2d(X, W.double()), DTypeError, "conv2d: input is float32, weight is float64."),
    (lambda: F.conv2d(X, W, stride=0), ArgumentError, "conv2d: stride must be at least 1, got 0."),
    (lambda: nn.ConvTranspose2d(3, 4, 2, padding_mode="reflect"), ArgumentError,
     "ConvTranspose2d: padding_mode must be one of zeros, got 'reflect'."),
    (lambda: F.conv2d(X, W, padding=(1, 2, 3)), ArgumentError,
     "conv2d: padding must be an int, or 2 of them, got (1, 2, 3)."),
    (lambda: F.conv2d(X, W, padding="full"), ArgumentError,
     "conv2d: padding must be numbers, \"valid\" or \"same\", got 'full'."),
    (lambda: F.conv2d(X, W, stride=2, padding="same"), ArgumentError,
     'conv2d: padding="same" needs stride 1, got (2, 2).'),
    (lambda: F.conv2d(X, W, dilation=3), ShapeError,
     "conv2d: a kernel spanning 7 is longer than axis 2 of input (1, 3, 5, 5), 5 with padding."),
    (lambda: F.conv2d(X, W, groups=0), ArgumentError, "conv2d: groups must be at least 1, got 0."),
    (lambda: F.conv2d(1.0, W), ArgumentError, "conv2d: input must be a tensor, got float."),
    (lambda: F.conv_transpose2d(X, Tensor.zeros(2, 3, 3, 3)), ShapeError,
     "conv_transpose2d: input (1, 3, 5, 5) has 3 channels, weight (2, 3, 3, 3) needs 2."),
    (lambda: F.conv_transpose2d(X, Tensor.zeros(3, 3, 3, 3), output_padding=1), ArgumentError,
     "conv_transpose2d: output_padding 1 must be below stride 1 or below dilation 1."),
    (lambda: F.max_pool2d(X, 6), ShapeError,
     "max_pool2d: a window spanning 6 does not fit an axis of length 5 with padding 0."),
    (lambda: F.max_pool2d(X, 2, padding=2), ArgumentError, "max_pool2d: padding 2 must be at most half of kernel_size 2."),
    (lambda: F.avg_pool2d(X.long(), 2), DTypeError, "avg_pool2d: input must be a float, got int64 of shape (1, 3, 5, 5)."),
    (lambda: F.adaptive_avg_pool2d(X, (1, 2, 3)), ArgumentError,
     "adaptive_avg_pool2d: output_size must be an int, or 2 of them, got (1, 2, 3)."),
    (lambda: F.max_unpool2d(X, X[0].long(), 2), ShapeError,
     "max_unpool2d: indices (3, 5, 5) must have the shape of input (1, 3, 5, 5)."),
    (lambda: F.fold(X[0], (4, 5), 2), ShapeError,
     "fold: input (3, 5, 5) must have a multiple of 4 channels and 12 windows: "
     "(4, 5) has 3 x 4 windows of 2 x 2."),
    (lambda: F.pad(X[0], (1, 0), "reflect", 2.0), ArgumentError, 'pad: mode="reflect" takes no value, got 2.0.'),
    (lambda: F.pad(X, (6, 0), "reflect"), ArgumentError,
     'pad: mode="reflect" needs a pair for each axis of (1, 3, 5, 5) except the first one or two, got (6, 0).'),
    (lambda: F.pad(X, (5, 0, 0, 0), "reflect"), ShapeError,
     'pad: a margin of 5 is too long for axis 3 of length 5 in mode "reflect".'),
    (lambda: F.interpolate(X), ArgumentError, "interpolate: give one of size and scale_factor, got None and None."),
    (lambda: F.interpolate(X, 3, mode="linear"), ShapeError,
     "interpolate: mode 'linear' does not take an input with 4 axes, (1, 3, 5, 5)."),
    (lambda: F.interpolate(X, 3, align_corners=True), ArgumentError,
     "interpolate: align_corners goes with linear, bilinear, bicubic, trilinear, not with 'nearest'."),
    (lambda: F.pixel_shuffle(X, 2), ShapeError, "pixel_shuffle: input (1, 3, 5, 5) has 3 channels, no multiple of 2 * 2."),
    (lambda: F.grid_sample(X, X), ShapeError,
     "grid_sample: grid (1, 3, 5, 5) must be (N, *new lengths, 2) for input (1, 3, 5, 5)."),
    (lambda: nn.Conv2d(3, 4, 3, groups=2), ArgumentError, "Conv2d: groups=2 must divide in_channels=3 and out_channels=4."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), ERRORS)
def test_errors_name_the_rule_and_the_values(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert caught.value.fact == text  # type: ignore[attr-defined]
    assert caught.value.line.file == __file__  # type: ignore[attr-defined]
