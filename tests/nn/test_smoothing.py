"""Pictures made smaller without aliasing, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.nn import functional as F
from tests.helpers import same_value

SIZES: list[dict[str, Any]] = [
    {"size": (4, 3)}, {"size": (20, 5)}, {"scale_factor": 0.4}, {"scale_factor": (0.7, 1.6)}, {"size": (1, 1)},
    {"scale_factor": 0.45, "recompute_scale_factor": True},
]  # fmt: skip


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_antialiased_pictures_and_their_gradients_are_pytorchs(mode: str, align_corners: bool) -> None:
    values = np.random.default_rng(0).normal(size=(2, 3, 9, 7))
    for dtype in ("float32", "float64"):
        for size in SIZES if dtype == "float64" else SIZES[:1]:
            x, y = pg.tensor(values.astype(dtype)).requires_grad_(), torch.tensor(values.astype(dtype)).requires_grad_()
            ours, theirs = (
                library.interpolate(one, mode=mode, antialias=True, align_corners=align_corners, **size)
                for library, one in ((F, x), (torch.nn.functional, y))
            )
            same_value(ours.detach(), theirs.detach(), rtol=1e-5, atol=1e-5)
            (ours**2).sum().backward()
            (theirs**2).sum().backward()
            same_value(x.grad, y.grad, rtol=1e-5, atol=1e-5)


def test_other_modes_take_no_antialias() -> None:
    with pytest.raises(pg.ArgumentError, match="antialias=True goes with bilinear and bicubic, not with 'nearest'"):
        F.interpolate(pg.ones(1, 1, 4, 4), 2, antialias=True)
