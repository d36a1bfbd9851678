"""Other sizes, margins, windows as columns, channels as pixels, grids: the rows of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.operations.convolution import quiet
from tests.operations.table import Operation, Rng, Sample, sample

Call = tuple[tuple[tuple[int, ...], ...], tuple[Any, ...], dict[str, Any]]


def calls(*each: Call) -> Callable[[Rng], Sequence[Sample]]:
    """Returns calls with operands of the given shapes, further arguments and those with names."""
    return lambda rng: [sample(*(rng.uniform(-1.2, 1.2, s) for s in shapes), *args, **kw) for shapes, args, kw in each]


def row(name: str, *each: Call, **more: Any) -> Operation:
    return Operation(f"nn.functional.{name}", calls(*each), **more)


def on(*shape: int) -> tuple[tuple[int, ...], ...]:
    return (shape,)


# float16 and bfloat16: PyTorch rounds places between elements, too, on some of these ways.
OPERATIONS = [
    row("unfold", (on(2, 3, 5, 6), ((3, 2),), {"padding": 1, "stride": (2, 1), "dilation": (1, 2)}),
        (on(3, 4, 4), (2,), {})),
    row("fold", (on(2, 12, 20), ((5, 6), 2), {}), (on(12, 6), ((4, 5), (2, 3)), {"stride": (2, 1), "padding": (0, 0)})),
    row("pad", (on(2, 3, 5), ((1, 2),), {}), (on(2, 3, 5), ((1, -2, 0, 1),), {"value": 2.0}), dtypes="fiub"),
    row("pad", (on(2, 3, 5), ((1, 2), "reflect", 0), {}), (on(2, 3, 5, 4), ((3, 2, 1, -1), "reflect"), {}),
        variant="reflect"),
    row("pad", (on(2, 3, 5), ((1, 7), "replicate"), {}), (on(1, 2, 3, 4, 5), ((1, 0, 2, 2, 1, 3), "replicate"), {}),
        variant="replicate"),
    row("pad", (on(2, 3, 5), ((1, 5), "circular"), {}), (on(2, 3, 5, 4), ((3, 2, 1, -1), "circular"), {}),
        variant="circular"),
    row("pixel_shuffle", (on(2, 8, 3, 2), (2,), {}), (on(9, 1, 2), (3,), {}), dtypes="fiub"),
    row("pixel_unshuffle", (on(2, 2, 6, 4), (2,), {}), (on(1, 3, 6), (3,), {}), dtypes="fiub"),
    row("channel_shuffle", (on(2, 6, 3, 2), (3,), {}), (on(2, 4, 3), (2,), {}), orders=0,
        torch=lambda x, groups: torch.nn.ChannelShuffle(groups)(x)),
    *(
        row("interpolate", (on(2, 3, 5), (7,), {"mode": mode}), (on(2, 2, 5, 6), ((7, 3),), {"mode": mode}),
            (on(2, 2, 5, 6), (), {"scale_factor": (2.0, 1.7), "mode": mode}),
            (on(1, 1, 3, 4, 5), (), {"scale_factor": 2.0, "mode": mode}),
            (on(1, 1, 12, 11), (), {"scale_factor": 0.4, "mode": mode, "recompute_scale_factor": True}),
            variant=mode, dtypes="")
        for mode in ("nearest", "nearest-exact", "area")
    ),
    *(
        row("interpolate", *((shape, (), {"scale_factor": 1.6, "mode": mode, "align_corners": corners})
                             for corners in (True, False, None)),
            (shape, (3,), {"mode": mode}), (shape, (1,), {"mode": mode, "align_corners": True}), variant=mode, dtypes="")
        for mode, shape in (("linear", on(2, 3, 5)), ("bilinear", on(2, 2, 5, 4)), ("bicubic", on(2, 2, 5, 4)),
                            ("trilinear", on(1, 2, 3, 4, 3)))
    ),
    row("upsample", (on(2, 3, 5), (7,), {}), (on(2, 2, 3, 4), (), {"scale_factor": 2.0, "mode": "bilinear"}),
        torch=quiet("upsample")),
    row("upsample_nearest", (on(2, 3, 5), (7,), {}), (on(2, 2, 3, 4), (), {"scale_factor": 2.0}),
        torch=quiet("upsample_nearest")),
    row("upsample_bilinear", (on(2, 2, 3, 4), (5,), {}), (on(2, 2, 3, 4), (), {"scale_factor": (2.0, 1.5)}),
        torch=quiet("upsample_bilinear")),
    *(
        row("grid_sample", *((shapes, (), {"mode": mode, "padding_mode": padding, "align_corners": corners})
                             for padding in ("zeros", "border", "reflection") for corners in (True, False)
                             for shapes in (((2, 2, 4, 5), (2, 3, 2, 2)), ((1, 2, 3, 4, 3), (1, 2, 2, 2, 3)))
                             if mode != "bicubic" or len(shapes[0]) == 4),
            variant=mode, dtypes="", orders=1, atol=1e-5)
        for mode in ("bilinear", "nearest", "bicubic")
    ),
    row("affine_grid", *((on(2, 2, 3), ((2, 1, 4, 5),), {"align_corners": corners}) for corners in (True, False)),
        (on(2, 3, 4), ((2, 1, 4, 5, 3),), {}), dtypes="",
        torch=quiet("affine_grid")),
]  # fmt: skip
