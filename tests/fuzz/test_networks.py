"""Random networks on images and sequences of ever other sizes: results, gradients and state are PyTorch's in float64.

Kernels of symbolic lengths are made from the third size on, for lengths that share a multiple or grow, in a few plans.

To look for more than a test run has time for:  python -m tests.fuzz.test_networks 1000 1200
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.engine import realize
from tests.fuzz.seeds import run_seeds
from tests.helpers import forgotten

SEEDS = range(40)
STEPS = 9
# Of each kind the lengths that are drawn: any, multiples, two that alternate with a third.
IMAGES = ([*range(16, 49)], [16, 24, 32, 40, 48], [32, 64], [20, 21, 22, 23, 24, 25], [15, 31, 33])
SEQUENCES = ([*range(5, 41)], [8, 16, 24, 32], [3, 4, 5, 6, 7, 8], [17, 31, 33, 64], [2, 9, 40])
# Of the largest element of a value. PyTorch divides by a float32 6 in hardsigmoid; in float32 a few elements of a ReLU or
# of a maximum may fall on the other side.
TOLERANCES = {"float64": 1e-6, "float32": 1e-2}

Layer = Callable[[Any], Any]


class Network:
    """A network in one of both libraries: all draws follow from the seed, weights are NumPy's."""

    def __init__(self, seed: int, lib: Any, dtype: str = "float64"):
        self.rng, self.draws, self.dtype = random.Random(seed), np.random.default_rng(seed), getattr(lib, dtype)
        self.lib, self.nn, self.F = lib, lib.nn, lib.nn.functional
        self.modules: Any = lib.nn.ModuleList()
        self.is_image = self.rng.random() < 0.6
        self.kinds = IMAGE_LAYERS if self.is_image else SEQUENCE_LAYERS
        lengths = IMAGES if self.is_image else SEQUENCES
        self.lengths, self.batches = self.rng.choice(lengths), self.rng.choice([[2], [1, 2, 3], [4, 2]])
        self.is_square, self.names = self.rng.random() < 0.3, list[str]()
        channels = self.first = self.rng.choice([1, 3, 8, 16, 20])
        self.layers = list[Layer]()
        for _ in range(self.rng.randint(2, 6)):
            layer, channels = self.draw(channels)
            self.layers.append(layer)
        self.head = self.add(self.nn.Linear(channels, 5))
        self.modules.to(self.dtype)
        with lib.no_grad():
            for value in self.modules.parameters():
                scale = 1 / math.sqrt(max(1, math.prod(value.shape[1:])))
                value.copy_(self.data(*value.shape) * scale + (value.ndim == 1) * 0.5)
        self.optimizer = lib.optim.SGD(self.modules.parameters(), lr=0.02, momentum=self.rng.choice([0.0, 0.9]))

    def data(self, *shape: int) -> Any:
        return self.lib.tensor(self.draws.standard_normal(shape), dtype=self.dtype)

    def add(self, module: Any) -> Any:
        self.modules.append(module)
        return module

    def draw(self, channels: int) -> tuple[Layer, int]:
        self.names.append(self.rng.choice([*self.kinds]))
        return self.kinds[self.names[-1]](self, channels)

    def inner(self, channels: int, count: int) -> tuple[Layer, int]:
        """Returns a few layers in turn."""
        layers = list[Layer]()
        for _ in range(count):
            layer, channels = self.draw(channels)
            layers.append(layer)

        def run(x: Any) -> Any:
            for layer in layers:
                x = layer(x)
            return x

        return run, channels

    def width(self) -> int:
        return self.rng.choice([4, 8, 12, 16, 20, 32])

    def input(self) -> Any:
        batch, length = self.rng.choice(self.batches), self.rng.choice(self.lengths)
        other = length if self.is_square else self.rng.choice(self.lengths)
        shape = (batch, self.first, length, other) if self.is_image else (batch, length, self.first)
        return self.data(*shape)

    def steps(self) -> Iterator[tuple[tuple[int, ...], list[Any]]]:
        """Yields the shape of each step's input and what is seen of it; of all state in the end."""
        for step in range(STEPS):
            x, is_training = self.input().requires_grad_(), self.rng.random() < 0.75
            self.modules.train(is_training)
            y = x
            for layer in self.layers:
                y = layer(y)
            y = y.mean((2, 3)) if self.is_image else y.mean(1)
            y = self.head(y)
            if not is_training:
                yield tuple(x.shape), [y.detach()]
                continue
            target = self.lib.tensor((np.arange(len(x)) + step) % 5)
            loss = self.F.cross_entropy(y, target) + (y.tanh() ** 2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            reached = [p for p in self.modules.parameters() if p.grad is not None]
            yield tuple(x.shape), [loss.detach(), y.detach(), x.grad, *[p.grad for p in reached]]
            self.nn.utils.clip_grad_norm_(reached, 0.5)
            self.optimizer.step()
        yield (), [*self.modules.parameters(), *self.modules.buffers()]


# ---- layers of both ----
ACTIVATIONS = (
    "relu", "gelu", "silu", "tanh", "sigmoid", "softplus", "elu", "leaky_relu", "mish", "selu", "relu6", "hardswish",
    "softsign",
)  # fmt: skip


def activation(net: Network, channels: int) -> tuple[Layer, int]:
    return getattr(net.F, net.rng.choice(ACTIVATIONS)), channels


def residual(net: Network, channels: int) -> tuple[Layer, int]:
    """Adds a layer's result where shapes allow, else puts what overlaps of both side by side."""
    layer, made = net.inner(channels, net.rng.randint(1, 2))
    join = made != channels or net.rng.random() < 0.3
    axis = 1 if net.is_image else -1

    def run(x: Any) -> Any:
        y = layer(x)
        if net.is_image:
            h, w = min(x.shape[2], y.shape[2]), min(x.shape[3], y.shape[3])
            x, y = x[:, :, :h, :w], y[:, :, :h, :w]
        else:
            n = min(x.shape[1], y.shape[1])
            x, y = x[:, :n], y[:, :n]
        return net.lib.cat([x, y], axis) if join else x + y

    return run, channels + made if join else channels


# ---- layers of images ----
def convolution(net: Network, channels: int) -> tuple[Layer, int]:
    rng, taps = net.rng, net.rng.choice([1, 3, 3, 3, 5, (1, 3), (3, 1), 2])
    groups = rng.choice([1, 1, channels, 2 if channels % 2 == 0 else 1])
    made = channels if groups == channels and rng.random() < 0.7 else net.width() // groups * groups or groups
    most = max(taps) if isinstance(taps, tuple) else taps
    mode = rng.choice(["zeros", "zeros", "zeros", "reflect", "replicate", "circular"])
    dilation, stride = rng.choice([1, 1, 1, 2]), rng.choice([1, 1, 1, 2, 2, 3])
    padding = most // 2 * dilation if rng.random() < 0.8 else 1
    module = net.add(net.nn.Conv2d(channels, made, taps, stride, padding, dilation, groups, rng.random() < 0.7, mode))
    return lambda x: module(x) if min(x.shape[2:]) > 6 else x.repeat(1, -(-made // channels), 1, 1)[:, :made], made


def transposed(net: Network, channels: int) -> tuple[Layer, int]:
    rng, made = net.rng, net.width()
    taps, stride = rng.choice([(2, 2), (3, 2), (3, 1), (4, 2)])
    extra = rng.choice([0, stride - 1])
    module = net.add(net.nn.ConvTranspose2d(channels, made, taps, stride, rng.choice([0, 1]), extra))
    return lambda x: module(x if max(x.shape[2:]) < 40 else x[:, :, ::2, ::2]), made


def pooled(net: Network, channels: int) -> tuple[Layer, int]:
    rng, F = net.rng, net.F
    taps, stride, ceil = rng.choice([2, 3]), rng.choice([1, 2, 2, 3]), rng.random() < 0.3
    padding, kind = rng.choice([0, 1]), rng.choice(["max", "avg", "lp", "counted"])

    def run(x: Any) -> Any:
        if min(x.shape[2:]) < 4:
            return x
        if kind == "max":
            return F.max_pool2d(x, taps, stride, padding, ceil_mode=ceil)
        if kind == "lp":
            return F.lp_pool2d(x.abs() + 0.1, 2, taps, stride, ceil_mode=ceil)
        return F.avg_pool2d(x, taps, stride, padding, ceil, kind == "counted")

    return run, channels


def adaptive(net: Network, channels: int) -> tuple[Layer, int]:
    size, F = net.rng.choice([1, 2, 3, (2, 3)]), net.F
    pool = net.rng.choice([F.adaptive_avg_pool2d, F.adaptive_max_pool2d])
    gate = net.rng.random() < 0.6

    def run(x: Any) -> Any:
        y = pool(x, size)
        return (
            x * F.interpolate(y, size=tuple(x.shape[2:])).sigmoid()
            if gate or min(x.shape[2:]) < 8
            else y.repeat(1, 1, 3, 3)
        )

    return run, channels


def image_norm(net: Network, channels: int) -> tuple[Layer, int]:
    nn, kind = net.nn, net.rng.choice(["batch", "batch", "group", "instance", "layer", "local"])
    if kind == "layer":
        layer = net.add(nn.LayerNorm(channels))
        return lambda x: layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), channels
    if kind == "local":
        return lambda x: net.F.local_response_norm(x, 3), channels
    if kind == "group":
        return net.add(nn.GroupNorm(2 if channels % 2 == 0 else 1, channels)), channels
    module = net.add(nn.BatchNorm2d(channels) if kind == "batch" else nn.InstanceNorm2d(channels, affine=True))
    return lambda x: module(x) if min(x.shape[2:]) > 1 else x, channels


def resized(net: Network, channels: int) -> tuple[Layer, int]:
    rng, F, mode = net.rng, net.F, net.rng.choice(["nearest", "bilinear", "bicubic", "area", "nearest-exact"])
    corners = {"align_corners": rng.random() < 0.5} if mode in ("bilinear", "bicubic") else {}
    scale, way = rng.choice([2, 0.5, 1.5]), rng.choice(["scale", "size", "like"])

    def run(x: Any) -> Any:
        if way == "scale":
            factor = 0.5 if max(x.shape[2:]) > 40 else scale
            return F.interpolate(x, scale_factor=factor, mode=mode, **corners) if min(x.shape[2:]) > 3 else x
        if way == "size":
            return F.interpolate(x, size=(12, 17), mode=mode, **corners)
        h, w = x.shape[2:]
        small = F.avg_pool2d(x, 2) if min(h, w) > 3 else x
        return F.interpolate(small, size=(h, w), mode=mode, **corners)

    return run, channels


def moved(net: Network, channels: int) -> tuple[Layer, int]:
    kinds = ["pad", "reflect", "roll", "flip", "crop", "transpose", "stride", "shuffle", "windows"]
    F, kind = net.F, net.rng.choice(kinds)

    def run(x: Any) -> Any:
        h, w = x.shape[2:]
        if kind == "pad":
            return F.pad(x, (1, 2, 0, 1))
        if kind == "reflect":
            return F.pad(x, (1, 2, 2, 1), mode="reflect") if min(h, w) > 3 else x
        if kind == "roll":
            return x.roll((1, -2), (2, 3))
        if kind == "flip":
            return x.flip(3) + x
        if kind == "crop":
            return x[:, :, h // 4 : h // 4 + (h + 1) // 2, : -(w // 3) or None]
        if kind == "transpose":
            return x.transpose(2, 3)
        if kind == "stride":
            return x[:, :, ::2, 1::2] if min(h, w) > 3 else x
        if kind == "shuffle":
            return F.pixel_shuffle(F.pixel_unshuffle(x[:, :, : h // 2 * 2, : w // 2 * 2], 2), 2) if min(h, w) > 1 else x
        return F.fold(F.unfold(x, 3, padding=1), (h, w), 3, padding=1)

    return run, channels


def image_attention(net: Network, channels: int) -> tuple[Layer, int]:
    """Attention over few positions of the image."""
    query, rest = net.add(net.nn.Linear(channels, channels)), net.add(net.nn.Linear(channels, 2 * channels))

    def run(x: Any) -> Any:
        n, c, h, w = x.shape
        if h * w > 400:
            x = net.F.avg_pool2d(x, 3)
            n, c, h, w = x.shape
        rows = x.flatten(2).transpose(1, 2)
        keys, values = rest(rows).chunk(2, -1)
        y = net.F.scaled_dot_product_attention(query(rows), keys, values)
        return x + y.transpose(1, 2).reshape(n, c, h, w)

    return run, channels


IMAGE_LAYERS: dict[str, Callable[[Network, int], tuple[Layer, int]]] = {
    "convolution": convolution, "again": convolution, "transposed": transposed, "pooled": pooled, "adaptive": adaptive,
    "norm": image_norm, "resized": resized, "moved": moved, "attention": image_attention, "activation": activation,
    "residual": residual,
}  # fmt: skip


# ---- layers of sequences ----
def linear(net: Network, channels: int) -> tuple[Layer, int]:
    made = net.width()
    return net.add(net.nn.Linear(channels, made)), made


def line(net: Network, channels: int) -> tuple[Layer, int]:
    rng, made, taps = net.rng, net.width(), net.rng.choice([1, 3, 5])
    dilation = rng.choice([1, 2])
    groups = rng.choice([1, 1, channels])
    made = channels if groups > 1 else made
    module = net.add(net.nn.Conv1d(channels, made, taps, 1, taps // 2 * dilation, dilation, groups))
    causal = rng.random() < 0.3

    def run(x: Any) -> Any:
        y = net.F.pad(x.transpose(1, 2), (taps - 1, 0))[:, :, : -(taps - 1) or None] if causal else x.transpose(1, 2)
        return module(y).transpose(1, 2)

    return run, made


def recurrent(net: Network, channels: int) -> tuple[Layer, int]:
    kind, made, both = net.rng.choice(["LSTM", "GRU", "RNN"]), net.width(), net.rng.random() < 0.3
    module = net.add(getattr(net.nn, kind)(channels, made, batch_first=True, bidirectional=both))
    return lambda x: module(x)[0], made * (1 + both)


def heads(net: Network, channels: int) -> tuple[Layer, int]:
    rng, made = net.rng, net.width()
    enter, attention = (
        net.add(net.nn.Linear(channels, made)),
        net.add(net.nn.MultiheadAttention(made, rng.choice([1, 2, 4]), batch_first=True)),
    )
    kind = rng.choice(["all", "causal", "padded", "cross"])

    def run(x: Any) -> Any:
        x = enter(x)
        n, t, _ = x.shape
        if kind == "causal":
            mask = net.lib.ones(t, t, dtype=net.lib.bool).triu(1)
            return x + attention(x, x, x, attn_mask=mask, need_weights=False)[0]
        if kind == "padded":
            mask = net.lib.arange(t)[None] >= net.lib.tensor([max(1, t - i) for i in range(n)])[:, None]
            return x + attention(x, x, x, key_padding_mask=mask)[0]
        keys = x[:, : (t + 1) // 2] if kind == "cross" else x
        return x + attention(x, keys, keys, need_weights=False)[0]

    return run, made


def sequence_norm(net: Network, channels: int) -> tuple[Layer, int]:
    kind = net.rng.choice(["layer", "rms", "batch", "group"])
    if kind == "layer":
        return net.add(net.nn.LayerNorm(channels)), channels
    if kind == "rms":
        return net.add(net.nn.RMSNorm(channels)), channels
    module = net.add(net.nn.BatchNorm1d(channels) if kind == "batch" else net.nn.GroupNorm(1, channels))
    return lambda x: module(x.transpose(1, 2)).transpose(1, 2), channels


def placed(net: Network, channels: int) -> tuple[Layer, int]:
    """Adds rows of a table by position, or angles."""
    table, kind = net.add(net.nn.Embedding(256, channels)), net.rng.choice(["table", "clamped", "angles"])

    def run(x: Any) -> Any:
        places = net.lib.arange(x.shape[1])
        if kind == "table":
            return x + table(places)
        if kind == "clamped":
            return x + table((places[:, None] - places[None]).clamp(-4, 4) + 4).mean(1)
        angles = places.to(x.dtype)[:, None] * net.lib.linspace(0.1, 1.0, channels, dtype=x.dtype)
        return x * angles.cos() + x.flip(-1) * angles.sin()

    return run, channels


def along_time(net: Network, channels: int) -> tuple[Layer, int]:
    kind = net.rng.choice(
        ["cumsum", "softmax", "shift", "pool", "sort", "topk", "max", "mask", "roll", "halves", "scan", "gather"]
    )

    def run(x: Any) -> Any:
        t = x.shape[1]
        if kind == "cumsum":
            return x.cumsum(1) / net.lib.arange(1, t + 1)[:, None]
        if kind == "softmax":
            return x * x.softmax(1)
        if kind == "shift":
            return x - net.F.pad(x[:, :-1], (0, 0, 1, 0))
        if kind == "pool":
            return net.F.avg_pool1d(x.transpose(1, 2), 2, 1, 1).transpose(1, 2)
        if kind == "sort":
            return x.sort(1)[0] * 0.5 + x
        if kind == "topk":
            return x.topk(2, 1)[0]
        if kind == "max":
            return x - x.amax(1, keepdim=True) + x.std(1, keepdim=True)
        if kind == "mask":
            return x.masked_fill((net.lib.arange(t) % 3 == 1)[:, None], 0.5)
        if kind == "roll":
            return x.roll(t // 2, 1) + x
        if kind == "halves":
            return net.lib.cat([x[:, t // 2 :], x[:, : t // 2]], 1)
        if kind == "scan":
            return (x.tanh() * 0.3 + 1).cumprod(1).clamp(-4, 4)
        return x.gather(1, (net.lib.arange(t)[None, :, None] * 3 % t).expand(x.shape))

    return run, channels


SEQUENCE_LAYERS: dict[str, Callable[[Network, int], tuple[Layer, int]]] = {
    "linear": linear, "line": line, "recurrent": recurrent, "heads": heads, "norm": sequence_norm, "placed": placed,
    "along time": along_time, "activation": activation, "residual": residual,
}  # fmt: skip


# ---- comparison ----
def check(seed: int) -> None:
    """Compares each step of a network with PyTorch's; every third is of float32."""
    dtype = "float32" if seed % 3 == 2 else "float64"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(realize, "PLANS_MIN", 0)
        forgotten()
        theirs = Network(seed, torch)
        expected = [(shape, [value.detach().numpy().copy() for value in seen]) for shape, seen in theirs.steps()]
        for step, ((_, seen), (shape, wanted)) in enumerate(zip(Network(seed, pg, dtype).steps(), expected, strict=True)):
            largest = max([np.abs(value).max(initial=0) for value in wanted])
            for number, (ours, value) in enumerate(zip(seen, wanted, strict=True)):
                found, scale = ours.detach().numpy(), max(np.abs(value).max(initial=0), 1e-3 * largest)
                error = np.abs(found - value).max(initial=0) / scale
                assert found.shape == value.shape and error < TOLERANCES[dtype], (
                    f"{theirs.names} of {dtype}: value {number} of step {step}, an input of {shape}, is {error:.1e} apart"
                )


@pytest.mark.variants(every=10)
@pytest.mark.req("G10")
@pytest.mark.parametrize("seed", SEEDS)
def test_networks_of_other_sizes_are_pytorchs(seed: int) -> None:
    check(seed)


def test_the_networks_have_layers_of_every_kind() -> None:
    found = {name for seed in SEEDS for name in Network(seed, torch).names}
    assert found == {*IMAGE_LAYERS, *SEQUENCE_LAYERS}


if __name__ == "__main__":
    run_seeds(check)
