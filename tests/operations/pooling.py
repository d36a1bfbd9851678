"""Pooling and its inverse: the rows of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

import picograd as pg
from tests.operations.table import Operation, Rng, Sample, sample

# Distinct values half a unit apart, so that no dtype has ties that rounding made; whole ones, with many ties, come after.
Kwargs = dict[str, Any]


def images(rng: Rng, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape))
    return (rng.permutation(count).reshape(shape) - count // 2) / 4.0


def calls(*each: tuple[tuple[int, ...], Kwargs]) -> Callable[[Rng], Sequence[Sample]]:
    return lambda rng: [sample(images(rng, shape), **kwargs) for shape, kwargs in each]


def drawn(axes: int, dilated: bool) -> st.SearchStrategy[Sample]:
    """Returns calls of whole numbers, many of them equal."""

    @st.composite
    def call(draw: st.DrawFn) -> Sample:
        kernel = tuple(draw(st.integers(1, 3)) for _ in range(axes))
        steps = tuple(draw(st.integers(1, 2)) if dilated else 1 for _ in range(axes))
        lengths = tuple((k - 1) * d + 1 + draw(st.integers(0, 4)) for k, d in zip(kernel, steps))
        kwargs: Kwargs = {"kernel_size": kernel, "stride": tuple(draw(st.integers(1, 3)) for _ in range(axes))}
        kwargs |= {"padding": tuple(draw(st.integers(0, k // 2)) for k in kernel), "ceil_mode": draw(st.booleans())}
        kwargs |= {"dilation": steps, "return_indices": draw(st.booleans())} if dilated else {}
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        return sample(rng.integers(-2, 3, (2, 2, *lengths)).astype(np.float64), **kwargs)

    return call()


def maxima(name: str, axes: int, *each: tuple[tuple[int, ...], Kwargs]) -> Operation:
    return Operation(f"nn.functional.{name}", calls(*each), dtypes="f" if axes == 1 else "fi", drawn=drawn(axes, True))


def means(name: str, axes: int, *each: tuple[tuple[int, ...], Kwargs]) -> Operation:
    return Operation(f"nn.functional.{name}", calls(*each), in_float32(name), drawn=drawn(axes, False))


def in_float32(name: str) -> Callable[..., Any]:
    """Returns PyTorch's function, which lacks 16-bit floats on a CPU, for these too."""

    def reference(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        result: torch.Tensor = getattr(torch.nn.functional, name)(wide, *args, **kwargs)
        return result.to(x.dtype)

    return reference


def bins(name: str, *each: tuple[tuple[int, ...], Any]) -> Operation:
    return Operation(f"nn.functional.{name}", calls(*((shape, {"output_size": size}) for shape, size in each)))


def norms(name: str, *shapes: tuple[int, ...]) -> Operation:
    def samples(rng: Rng) -> list[Sample]:
        return [sample(rng.uniform(0.5, 2.0, shape), p, 2, ceil_mode=p > 2) for shape in shapes for p in (2.0, 3.0)]

    return Operation(f"nn.functional.{name}", samples, in_float32(name))


def unpooled(name: str, shape: tuple[int, ...]) -> Operation:
    """Places that are distinct in each image."""

    def samples(rng: Rng) -> list[Sample]:
        count = int(np.prod(shape[2:]))
        places = np.stack([rng.permutation(count * 2 ** (len(shape) - 2))[:count] for _ in range(shape[0] * shape[1])])
        return [sample(images(rng, shape), places.reshape(shape), 2)]

    return Operation(f"nn.functional.{name}", samples)


RETURNED = {"return_indices": True}
def drawn_windows(axes: int, variant: str = "", **more: Any) -> Operation:
    """Returns a row of fractional max pooling; the draws are given, and have no gradient."""

    def samples(rng: Rng) -> list[Sample]:
        x, u = images(rng, (2, 3, *(7, 6, 8)[:axes])), rng.uniform(0, 1, (2, 3, axes))
        calls = [((x, u, 2), {"output_size": 3}), ((x, u, (2, 1, 3)[:axes]), {"output_size": (4, 2, 5)[:axes]})]
        calls += [((x, u, 3), {"output_ratio": (0.5, 0.4, 0.6)[:axes]}), ((x[0], u[:1], 2), {"output_size": 2})]
        return [Sample(args, {**kwargs, **more}) for args, kwargs in calls]

    def called(library: Any) -> Any:
        function = getattr(library.nn.functional, f"fractional_max_pool{axes}d")
        return lambda x, u, size, **kwargs: function(x, size, _random_samples=u.detach(), **kwargs)

    name = f"nn.functional.fractional_max_pool{axes}d"
    return Operation(name, samples, called(torch), called(pg), dtypes="", variant=variant)


OPERATIONS = [
    *[drawn_windows(axes) for axes in (2, 3)],
    drawn_windows(2, "indices", return_indices=True),
    maxima("max_pool1d", 1, ((2, 3, 7), {"kernel_size": 2}), ((3, 9), {"kernel_size": 3, "stride": 2, "padding": 1})),
    maxima("max_pool2d", 2, ((2, 2, 5, 6), {"kernel_size": 2}),
           ((2, 5, 6), {"kernel_size": (3, 2), "stride": 1, **RETURNED}),
           ((1, 1, 6, 6), {"kernel_size": 3, "padding": 1, "dilation": 2, "ceil_mode": True}),
           ((0, 2, 4, 4), {"kernel_size": 2})),
    maxima("max_pool3d", 3, ((2, 1, 3, 4, 4), {"kernel_size": 2}), ((1, 3, 4, 4), {"kernel_size": 3, "stride": 1})),
    means("avg_pool1d", 1, ((2, 3, 7), {"kernel_size": 2}), ((3, 9), {"kernel_size": 3, "stride": 2, "padding": 1})),
    means("avg_pool2d", 2, ((2, 2, 5, 6), {"kernel_size": 2}), ((2, 4, 6), {"kernel_size": 2}),
          ((1, 2, 5, 6), {"kernel_size": 3, "padding": 1, "count_include_pad": False}),
          ((1, 2, 5, 6), {"kernel_size": (3, 2), "stride": 2, "ceil_mode": True, "padding": 1}),
          ((1, 2, 5, 6), {"kernel_size": 2, "divisor_override": 3})),
    means("avg_pool3d", 3, ((2, 1, 3, 4, 5), {"kernel_size": 2}), ((1, 2, 4, 4, 4), {"kernel_size": 2})),
    bins("adaptive_max_pool1d", ((2, 3, 7), 3), ((3, 8), 2)),
    bins("adaptive_max_pool2d", ((2, 2, 5, 6), (2, 4)), ((2, 4, 6), (None, 7))),
    bins("adaptive_max_pool3d", ((2, 1, 3, 4, 5), 2)),
    bins("adaptive_avg_pool1d", ((2, 3, 7), 3), ((3, 8), 2)),
    bins("adaptive_avg_pool2d", ((2, 2, 5, 6), (2, 4)), ((2, 4, 6), (None, 7)), ((2, 2, 4, 4), 1)),
    bins("adaptive_avg_pool3d", ((2, 1, 3, 4, 5), 2)),
    norms("lp_pool1d", (2, 3, 7)),
    norms("lp_pool2d", (2, 2, 5, 6)),
    norms("lp_pool3d", (1, 2, 4, 4, 5)),
    unpooled("max_unpool1d", (2, 3, 4)),
    unpooled("max_unpool2d", (2, 2, 2, 3)),
    unpooled("max_unpool3d", (1, 2, 2, 2, 2)),
]  # fmt: skip
