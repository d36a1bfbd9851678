"""Results of the two libraries compared: number, names, shapes, dtypes, values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import picograd as pg
from tools.opinfo.convert import dtype_of, theirs
from tools.opinfo.found import Differs, Skipped, Values

# (rtol, atol) that are near enough, where PyTorch's own table asks for more
LOOSEST = {
    "samples": {torch.float32: (1e-5, 1e-5), torch.float16: (4e-3, 4e-3), torch.bfloat16: (3e-2, 3e-2)},
    "gradients": {torch.float32: (1e-4, 1e-5)},
}


def compare(mine: Any, reference: Any, rtol: float, atol: float, is_random: bool = False) -> None:
    """Compares two results.

    Raises:
      Differs: number, names, shapes, dtypes or values do.
      Skipped: PyTorch's has complex numbers.
    """
    if isinstance(reference, torch.Tensor):
        _compare_tensors(mine, reference, rtol, atol, is_random)
    elif isinstance(reference, (list, tuple)):
        if not isinstance(mine, (list, tuple)) or len(mine) != len(reference):
            raise Differs(f"result is {type(mine).__name__} of {_length(mine)}, not of {len(reference)}")
        if type(reference).__module__ == "torch.return_types":
            names = [name for name in dir(type(reference)) if name not in dir(tuple) and not name.startswith(("_", "n_"))]
            if missing := [name for name in names if not hasattr(mine, name)]:
                raise Differs(f"result has no {', '.join(missing)}")
        for part, known in zip(mine, reference):
            compare(part, known, rtol, atol, is_random)
    elif isinstance(reference, torch.dtype):
        if mine is not dtype_of(reference):
            raise Differs(f"{mine} is not {reference}")
    elif isinstance(reference, complex):
        raise Skipped("complex numbers")
    elif isinstance(reference, float):
        if not isinstance(mine, float) or not np.isclose(mine, reference, rtol, atol, equal_nan=True):
            raise Values(f"{mine!r} is not {reference!r}")
    elif mine != reference:
        raise Differs(f"{mine!r} is not {reference!r}")


def _length(value: Any) -> str:
    return str(len(value)) if isinstance(value, (list, tuple)) else "no length"


def _compare_tensors(mine: Any, reference: torch.Tensor, rtol: float, atol: float, is_random: bool) -> None:
    """Raises what differs: kind, shape, dtype, and where neither side drew numbers, values."""
    if reference.layout is not torch.strided:
        raise Skipped("sparse or quantized tensors")
    if not isinstance(mine, pg.Tensor):
        raise Differs(f"result is {type(mine).__name__}, not a Tensor")
    if reference.dtype.is_complex:
        if tuple(mine.shape) != (*reference.shape, 2):
            raise Skipped("complex numbers")
        reference = torch.view_as_real(reference.resolve_conj())
    if tuple(mine.shape) != tuple(reference.shape):
        raise Differs(f"shape {tuple(mine.shape)} is not {tuple(reference.shape)}")
    if mine.dtype is not dtype_of(reference.dtype):
        raise Differs(f"dtype {mine.dtype} is not {str(reference.dtype).removeprefix('torch.')}")
    values = theirs(mine)  # computed also where only shapes can be compared
    if is_random or not reference.numel():
        return
    if not reference.is_floating_point():
        rtol = atol = 0.0
    elif not rtol:  # integers came in
        known = LOOSEST["samples"].get(reference.dtype)
        rtol, atol = known or torch.testing._comparison.default_tolerances(reference.dtype)
    try:
        torch.testing.assert_close(values, reference.detach(), rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        raise Values("values: " + " ".join(str(error).split())[:200]) from None


def tolerance(op: Any, dtype: torch.dtype, kind: str) -> tuple[float, float]:
    """Returns (rtol, atol): the widest that PyTorch's own tests of this operator use."""
    rtol, atol = torch.testing._comparison.default_tolerances(dtype)
    pairs = [(rtol, atol), LOOSEST[kind].get(dtype, (0.0, 0.0))]
    for info in op.decorators:
        for decorator in getattr(info, "decorators", ()):
            overrides = getattr(decorator, "d", None)
            if isinstance(overrides, dict) and hasattr(overrides.get(dtype), "rtol"):
                pairs.append((overrides[dtype].rtol, overrides[dtype].atol))
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
