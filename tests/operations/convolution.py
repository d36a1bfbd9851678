"""Convolutions and their transposes: the rows of the table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from tests.operations.table import Operation, Rng, Sample, sample

Shapes = tuple[tuple[int, ...], ...]


def calls(*each: tuple[Shapes, dict[str, Any]]) -> Callable[[Rng], Sequence[Sample]]:
    """Returns calls with operands of the given shapes."""
    return lambda rng: [sample(*(rng.uniform(-1.0, 1.0, shape) for shape in shapes), **kwargs) for shapes, kwargs in each]


def drawn(axes: int, transposed: bool) -> st.SearchStrategy[Sample]:
    """Returns calls with any arguments that fit."""

    @st.composite
    def call(draw: st.DrawFn) -> Sample:
        def each(low: int, high: int) -> tuple[int, ...]:
            return tuple(draw(st.integers(low, high)) for _ in range(axes))

        groups, channels, outputs = (draw(st.integers(1, 3)) for _ in range(3))
        taps, dilation, stride, padding = each(1, 3), each(1, 2), each(1, 3), each(0, 2)
        lengths = tuple((k - 1) * d + 1 + draw(st.integers(0, 4)) for k, d in zip(taps, dilation))
        kwargs: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        shape = (groups * channels, outputs) if transposed else (groups * outputs, channels)
        if transposed:
            kwargs["output_padding"] = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation))
            kwargs["padding"] = tuple(min(p, (k - 1) * d // 2) for p, k, d in zip(padding, taps, dilation))
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        operands = [(draw(st.integers(1, 2)), groups * channels, *lengths), (*shape, *taps), (groups * outputs,)]
        return sample(*(rng.uniform(-1.0, 1.0, s) for s in operands), **kwargs)

    return call()


def quiet(name: str) -> Callable[..., Any]:
    """Returns PyTorch's function without its warnings (of a margin that it copies, of names it would rather not have)."""

    def reference(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings(action="ignore"):
            return getattr(torch.nn.functional, name)(*args, **kwargs)

    return reference


def row(name: str, axes: int, *each: tuple[Shapes, dict[str, Any]]) -> Operation:
    return Operation(f"nn.functional.{name}", calls(*each), quiet(name), drawn=drawn(axes, "transpose" in name), atol=1e-5)


OPERATIONS = [
    row("conv1d", 1, (((2, 4, 9), (6, 2, 3), (6,)), {"groups": 2, "padding": 1}), (((4, 9), (3, 4, 2)), {"stride": 3}),
        (((2, 3, 8), (4, 3, 4)), {"padding": "same"}), (((0, 3, 8), (4, 3, 4)), {})),
    row("conv2d", 2, (((2, 3, 6, 5), (4, 3, 3, 2), (4,)), {"padding": (1, 0)}), (((3, 6, 5), (4, 3, 1, 1)), {}),
        (((2, 4, 7, 6), (4, 1, 3, 3)), {"groups": 4, "stride": 2, "padding": 1}),
        (((1, 2, 6, 7), (3, 2, 2, 3)), {"dilation": (2, 1), "padding": "same"}),
        (((1, 2, 6, 7), (3, 2, 6, 7)), {"padding": "valid"})),
    row("conv3d", 3, (((2, 2, 3, 4, 3), (2, 2, 2, 2, 2), (2,)), {"padding": 1, "stride": (1, 2, 1)})),
    row("conv_transpose1d", 1, (((2, 4, 5), (4, 3, 3), (6,)), {"groups": 2, "stride": 2, "output_padding": 1}),
        (((4, 5), (4, 3, 3)), {"padding": 1, "dilation": 2})),
    row("conv_transpose2d", 2, (((2, 3, 4, 3), (3, 2, 3, 2), (2,)), {"stride": (2, 1), "padding": 1}),
        (((3, 4, 3), (3, 2, 1, 1)), {"stride": 3})),
    row("conv_transpose3d", 3, (((2, 2, 2, 3, 2), (2, 2, 2, 2, 2), (2,)), {"stride": 2})),
]  # fmt: skip
