"""New tensors: the rows of the table."""

from __future__ import annotations

from typing import Any

import torch

import picograd as pg
from tests.operations.table import Operation, Rng, Sample, sample


def calls(*given: tuple[Any, ...]) -> Any:
    """Returns samples without tensors, the same every time."""
    return lambda rng: [sample(*args) for args in given]


def in_every_dtype(function: Any, library: Any) -> Any:
    """Returns a call that makes one result for each dtype."""
    names = ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
    return lambda *args: [function(*args, dtype=getattr(library, name)) for name in names]


def likes(rng: Rng) -> list[Sample]:
    """Calls of the *_like forms."""
    return [sample(rng.uniform(-2.0, 2.0, shape)) for shape in ((4, 5), (), (0,), (2, 0, 3))]


def filled_likes(rng: Rng) -> list[Sample]:
    """Calls of full_like."""
    return [sample(*call.args, 3) for call in likes(rng)]


def new(name: str, *args: Any) -> list[Operation]:
    """Rows of a method that makes a tensor of self's dtype."""
    return [Operation(f"Tensor.{name}", lambda rng: [sample(*c.args, *args) for c in likes(rng)], dtypes="fiub", orders=0)]


RANGES = ((5,), (2, 7), (7, 2, -2), (0, 1, 0.25), (1.0, -1.0, -0.3), (0,), (3, 3), (0.5, 6), (-3, 4, 3), (0, 100, 0.1))
LINES = ((0, 1, 5), (-3, 7, 4), (2.5, -2.5, 11), (1, 1, 3), (0, 1, 1), (0, 1, 0), (0, 10, 7), (3, 90, 50))
SHAPES = (((2, 3),), ((),), ((0, 4),), (2, 3), (0,))

OPERATIONS = [
    Operation("arange", calls(*RANGES), dtypes="", orders=0),
    Operation("linspace", calls(*LINES), dtypes="", orders=0),
    Operation("logspace", calls((0, 2, 5), (-1, 1, 4, 2.0), (0, 1, 1), (0, 1, 0)), dtypes="", orders=0),
    Operation(
        "arange", calls((5,), (2, 7), (7, 2, -2), (-3, 4, 3)), in_every_dtype(torch.arange, torch),
        in_every_dtype(pg.arange, pg), "", 0, variant="dtypes",
    ),
    Operation(
        "linspace", calls((0, 10, 7), (3, 90, 50), (1, 1, 3), (0, 100, 11)), in_every_dtype(torch.linspace, torch),
        in_every_dtype(pg.linspace, pg), "", 0, variant="dtypes", rtol=1e-2,
    ),
    Operation("zeros", calls(*SHAPES), dtypes="", orders=0),
    Operation("ones", calls(*SHAPES), dtypes="", orders=0),
    Operation("full", calls(((2, 3), 7), ((), 1.5), ((0, 2), True)), dtypes="", orders=0),
    Operation("eye", calls((3,), (2, 4), (4, 2), (0,)), dtypes="", orders=0),
    Operation("zeros_like", likes, dtypes="fiub", orders=0),
    Operation("ones_like", likes, dtypes="fiub", orders=0),
    Operation("full_like", filled_likes, dtypes="fiu", orders=0),
    Operation("fill", filled_likes, dtypes="fiu", orders=0),
    *new("new_zeros", (2, 3)),
    *new("new_ones", 2, 3),
    *new("new_full", (2, 3), 1),
    *new("new_tensor", [[1, 0], [3, 4]]),
]  # fmt: skip
