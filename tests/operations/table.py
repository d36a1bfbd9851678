"""An operation of the public surface as data: its name, what to call it with, and what PyTorch calls it.

A family of operations is a file beside this one with a list `OPERATIONS`; `all_operations` joins them. What is done with a
row stands in test_operations.py: values in every dtype and layout, gradients of two orders, drawn shapes, each against
PyTorch. The page of public names (tools/api.py) takes the dtypes and the orders of gradients that it states from the rows.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

Rng = np.random.Generator
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sample:
    """The arguments of one call. Arrays become tensors, in lists and tuples too; all else is passed as it is.

    An array of float64 takes the dtype under test and, where that is a float, has its gradient compared. An array of
    another dtype (an index, a mask) keeps its own.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


def sample(*args: Any, **kwargs: Any) -> Sample:
    """Returns the arguments of a call as it would be written."""
    return Sample(args, kwargs)


@dataclass(frozen=True)
class Operation:
    """A row of the table.

    name:       as users write it after `pg.`: "Tensor.exp", "nn.functional.conv2d", "linalg.solve"
    samples:    makes the calls to compare; among them shapes (), (0,), (2, 0, 3) where the operation takes them
    torch:      the name after `torch.`, or a function that computes the same; None: `name` itself
    call:       a function in place of `name`, where the call is not that of a function
    dtypes:     letters of the kinds it takes beside float32: f (16 and 64 bits), i, u, b
    orders:     how often it can be differentiated: 0, 1, 2 (all further ones)
    drawn:      further calls, drawn by hypothesis
    rtol, atol: of float32 values; gradients are compared in float64, to 1e-7
    variant:    tells rows of one name apart
    is_single:  PyTorch computes float64 with the digits of float32 here; else ours has a million times the digits there
    also:       further names that the call goes through
    since:      the release of PyTorch that has it; with an earlier one, as beside a GPU, the row is skipped
    """

    name: str
    samples: Callable[[Rng], Sequence[Sample]]
    torch: str | Callable[..., Any] | None = None
    call: Callable[..., Any] | None = None
    dtypes: str = "f"
    orders: int = 2
    drawn: st.SearchStrategy[Sample] | None = None
    rtol: float = 1e-5
    atol: float = 1e-6
    variant: str = ""
    is_single: bool = False
    also: tuple[str, ...] = ()
    since: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}-{self.variant}" if self.variant else self.name

    def ours(self) -> Callable[..., Any]:
        """Returns the function of picograd."""
        return self.call or _found("picograd", self.name)

    def theirs(self) -> Callable[..., Any]:
        """Returns the function of PyTorch."""
        if tuple(map(int, torch.__version__.split("+")[0].split("."))) < self.since:
            pytest.skip(f"PyTorch has {self.name} since {self.since}; here is {torch.__version__}")
        return self.torch if callable(self.torch) else _found("torch", self.torch or self.name)


def _found(package: str, dotted: str) -> Callable[..., Any]:
    found: Callable[..., Any] = reduce(getattr, dotted.split("."), importlib.import_module(package))
    return found


def all_operations() -> list[Operation]:
    """Returns the rows of all families."""
    names = [info.name for info in pkgutil.iter_modules(_folder()) if not info.name.startswith("test_")]
    families = (importlib.import_module(f"{__package__}.{name}") for name in names)
    return [row for family in families for row in getattr(family, "OPERATIONS", [])]


def _folder() -> list[str]:
    return list(importlib.import_module(__package__ or "").__path__)


# ---- samples many rows share ----
SHAPES: tuple[tuple[int, ...], ...] = ((4, 5), (), (0,), (2, 0, 3), (3, 1, 7))
PAIRS: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((4, 5), (4, 5)), ((4, 5), (5,)), ((4, 1), (1, 5)), ((), (3,)), ((), ()), ((2, 0, 3), (3,)),
)  # fmt: skip


def uniform(*domains: tuple[float, float]) -> Callable[[Rng], list[Sample]]:
    """Returns the samples of an elementwise function, whose operands are uniform over `domains`.

    One operand takes each of SHAPES, two each of PAIRS, three broadcast to (4, 5).
    """

    def samples(rng: Rng) -> list[Sample]:
        shapes = {1: tuple((shape,) for shape in SHAPES), 2: PAIRS}.get(len(domains), (((4, 5), (5,), (4, 1)), ((),) * 3))
        return [Sample(tuple(rng.uniform(*domain, shape) for domain, shape in zip(domains, call))) for call in shapes]

    return samples


def broadcasting(*domains: tuple[float, float]) -> st.SearchStrategy[Sample]:
    """Returns drawn calls of an elementwise function: shapes that broadcast, of up to 4 axes of up to 5."""
    shapes = hnp.mutually_broadcastable_shapes(num_shapes=len(domains), min_side=0, max_side=5, max_dims=4)
    arrays = shapes.flatmap(
        lambda found: st.tuples(*(floats(shape, domain) for shape, domain in zip(found.input_shapes, domains)))
    )
    return arrays.map(Sample)


def reductions(low: float = -2.0, high: float = 2.0, **kwargs: Any) -> st.SearchStrategy[Sample]:
    """Returns drawn calls of a reduction: any axes of an array of up to 4, kept or not, none of length 0."""
    arrays = hnp.array_shapes(max_dims=4, max_side=5).flatmap(lambda shape: floats(shape, (low, high)))
    return arrays.flatmap(
        lambda x: st.builds(
            lambda axes, keepdim: Sample((x, tuple(axes)), {"keepdim": keepdim, **kwargs}),
            st.sets(st.integers(-x.ndim, x.ndim - 1).map(lambda axis: axis % x.ndim), min_size=1),
            st.booleans(),
        )
    )


def floats(shape: tuple[int, ...], domain: tuple[float, float]) -> st.SearchStrategy[Array]:
    # of 32 bits, so that no value is lost on the way to float32
    return hnp.arrays(np.float64, shape, elements=st.floats(*map(float, map(np.float32, domain)), width=32))


def arrays_of(value: Any) -> Iterator[Array]:
    """Yields the arrays among arguments, in order."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from arrays_of(part)
    elif isinstance(value, dict):
        yield from arrays_of(list(value.values()))


def with_arrays(value: Any, convert: Callable[[Array], Any]) -> Any:
    """Returns arguments with each array converted, in the order of `arrays_of`."""
    if isinstance(value, np.ndarray):
        return convert(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(with_arrays(part, convert) for part in value)
    if isinstance(value, dict):
        return {name: with_arrays(part, convert) for name, part in value.items()}
    return value
