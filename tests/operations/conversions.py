"""Conversions, copies, and shapes taken from other tensors: the rows of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import picograd as pg
from tests.operations.table import SHAPES, Operation, Rng, Sample, sample

CASTS = ("bool", "byte", "char", "short", "int", "long", "half", "bfloat16", "float", "double")
SAME = ("clone", "contiguous", "conj", "conj_physical", "resolve_conj", "resolve_neg", "real")
QUERIES = (
    "dim", "ndimension", "numel", "nelement", "element_size", "size", "is_floating_point", "is_signed", "is_complex",
    "is_conj", "is_neg",
)  # fmt: skip


def each(rng: Rng) -> list[Sample]:
    """Calls on one tensor, none of whose values is below 0: what PyTorch makes of those as uint8 is the machine's."""
    return [sample(rng.uniform(0.0, 90.0, shape)) for shape in SHAPES]


def numbers(rng: Rng) -> list[Sample]:
    """Calls on one tensor."""
    return [sample(rng.uniform(-2.0, 2.0, shape)) for shape in SHAPES]


def like(*shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Callable[[Rng], list[Sample]]:
    """Returns calls on a tensor and another, whose shape is asked for."""
    return lambda rng: [sample(rng.uniform(-2.0, 2.0, a), rng.uniform(-2.0, 2.0, b)) for a, b in shapes]


def alike(rng: Rng) -> list[Sample]:
    """Pairs of tensors: equal, nearly, not at all, of other shapes that broadcast, empty, with NaN."""
    x, missing = rng.uniform(-2.0, 2.0, (4, 5)), np.array([1.0, np.nan])
    return [sample(x, x + 0), sample(x, x + 1e-7), sample(x, -x), sample(x[:0], x[:0]), sample(missing, missing)]


def every(names: tuple[str, ...]) -> Callable[..., Any]:
    """Returns the results of several methods of a tensor of either library."""
    return lambda x: tuple(getattr(x, name)() if callable(getattr(x, name)) else getattr(x, name) for name in names)


def to(x: Any) -> Any:
    """By dtype, by another tensor, by nothing."""
    library = pg if isinstance(x, pg.Tensor) else torch
    return x.to(library.float64), x.to(library.int32), x.to(dtype=library.float16), x.to(x.double()), x.to()


def as_tensors(x: Any) -> Any:
    """New tensors of an array, of nested lists, of numbers, of another tensor."""
    library = pg if isinstance(x, pg.Tensor) else torch
    values = x.detach().numpy()
    makers = (library.tensor, library.as_tensor, library.asarray)
    made = [make(given) for make in makers for given in (values, values.tolist())]
    typed = [make(values.tolist(), dtype=library.float64) for make in makers]
    return *made, *typed, library.from_numpy(values), library.scalar_tensor(2.5), library.as_tensor(x)


def together(x: Any) -> Any:
    """What both libraries say of two dtypes, as numbers and tensors."""
    library = pg if isinstance(x, pg.Tensor) else torch
    half, whole = x.half(), x.long()
    kinds = [library.result_type(a, b) for a, b in ((x, half), (half, whole), (whole, 2.5), (half, x.sum()))]
    pairs = [(library.float16, library.int64), (library.float64, library.int8), (library.int64, library.float16)]
    promoted = [library.promote_types(a, b) for a, b in pairs]
    fitting = [library.can_cast(a, b) for a, b in pairs]
    shapes = [library.broadcast_shapes(tuple(x.shape), (1,)), library.broadcast_shapes((4, 1), (5,))]
    named = [str(kind).removeprefix("torch.") for kind in (*kinds, *promoted)]
    return [len(name) for name in named], fitting, [list(map(int, shape)) for shape in shapes], library.is_tensor(x)


def method(name: str, samples: Any, also: tuple[str, ...] = (), call: Any = None, **kwargs: Any) -> Operation:
    """A row of methods that take every dtype."""
    reference = kwargs.pop("torch", call)
    return Operation(f"Tensor.{name}", samples, reference, call, **{"dtypes": "fiub", **kwargs}, also=also)


def methods(*names: str) -> tuple[str, ...]:
    return tuple(f"Tensor.{name}" for name in names)


OPERATIONS = [
    method("float", each, methods(*CASTS), every(CASTS)),
    method("to", each, call=to),
    method("clone", numbers, methods(*SAME), every(SAME)),
    method("detach", numbers, methods("data"), every(("detach", "data")), orders=0),
    method("numel", numbers, methods(*QUERIES), every(QUERIES), orders=0),
    method("type_as", lambda rng: [sample(*c.args, np.array([1, 2])) for c in each(rng)]),
    method("expand_as", like(((3, 1), (2, 3, 4)), ((), (3,)), ((1, 0), (2, 0)), ((4,), (4,)))),
    method("view_as", like(((4, 3), (6, 2)), ((), (1, 1)), ((0, 3), (3, 0))), torch="Tensor.reshape_as"),
    method("reshape_as", like(((4, 3), (6, 2)), ((), (1, 1)), ((0, 3), (3, 0)))),
    method("is_same_size", like(((4, 3), (4, 3)), ((4, 3), (3, 4)), ((), (1,))), orders=0),
    method("is_nonzero", lambda rng: [sample(np.array(v)) for v in (1.5, 0.0, np.nan)], dtypes="fi", orders=0),
    method("equal", alike, orders=0),
    method("allclose", alike, dtypes="f", orders=0),
    method("allclose", lambda rng: [sample(*c.args, equal_nan=True, rtol=0.1) for c in alike(rng)], dtypes="f", orders=0,
           variant="nan"),
    Operation("tensor", numbers, as_tensors, as_tensors, "iub", 0,
              also=("as_tensor", "asarray", "from_numpy", "scalar_tensor")),
    Operation("result_type", numbers, together, together, "i", 0,
              also=("promote_types", "can_cast", "broadcast_shapes", "is_tensor")),
]  # fmt: skip
