"""Products and contractions: the rows of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import picograd
from tests.operations.matrices import S, calls, drawn, numeric
from tests.operations.table import Operation, Rng, Sample, sample


def _positions(*shapes: tuple[int, ...]) -> st.SearchStrategy[Sample]:
    numbers = st.floats(-2.0, 2.0, width=16)
    return st.tuples(*(hnp.arrays(np.float64, shape, elements=numbers) for shape in shapes)).map(Sample)


SIDES = st.integers(0, 4)
PRODUCTS = st.tuples(
    SIDES, SIDES, SIDES, st.sampled_from([(), (2,), (1,), (0,)]), st.sampled_from([(), (2,), (1,)])
).flatmap(
    lambda drawn: (
        _positions((*drawn[3], drawn[0], drawn[1]), (*drawn[4], drawn[1], drawn[2]))
        if not (drawn[3] == (0,) and drawn[4] == (2,))
        else _positions((drawn[0], drawn[1]), (drawn[1], drawn[2]))
    )
)
PRODUCT_SHAPES = (
    (S(4, 3), S(3, 5)),
    (S(3), S(3)),
    (S(2, 3), S(3)),
    (S(3), S(3, 2)),
    (S(2, 1, 4, 3), S(5, 3, 2)),
    (S(2, 0), S(0, 3)),
    (S(0, 3), S(3, 2)),
    (S(2, 4, 3), S(3)),
    (S(3), S(2, 3, 4)),
)
EQUATIONS = (
    ("ij,jk->ik", S(3, 4), S(4, 2)),
    ("ij,jk", S(3, 4), S(4, 2)),
    ("ii", S(3, 3)),
    ("ii->i", S(3, 3)),
    ("ij->ji", S(2, 3)),
    ("ij->", S(2, 3)),
    ("i,j->ij", S(2), S(3)),
    ("bij,bjk->bik", S(2, 3, 4), S(2, 4, 5)),
    ("...ij,...jk->...ik", S(2, 3, 4), S(4, 5)),
    ("...i,...i->...", S(5, 1, 3), S(2, 3)),
    ("i...->...i", S(2, 3, 4)),
    ("iij,jk->ki", S(3, 3, 2), S(2, 4)),
    ("ab,bc,cd->ad", S(2, 3), S(3, 4), S(4, 2)),
    ("ab,ac,ad->abcd", S(2, 3), S(2, 2), S(2, 4)),
    ("ij,kl,jk,li", S(2, 3), S(4, 2), S(3, 4), S(2, 2)),
    ("ij,ij->i", S(3, 1), S(3, 4)),
    (" i j -> j ", S(2, 3)),
    ("bhqd,bhkd->bhqk", S(2, 2, 3, 4), S(2, 2, 5, 4)),
    ("ij,jk->ik", S(0, 4), S(4, 2)),
    ("ij,jk->ik", S(3, 0), S(0, 2)),
    ("->", S()),
    (",i->i", S(), S(3)),
    ("...", S(2, 3)),
    ("iii->i", S(2, 2, 2)),
    ("Ab,bA->A", S(2, 3), S(3, 2)),
    ("ab...,b...->a...", S(2, 3, 4), S(3, 4)),
)


def equations(rng: Rng) -> list[Sample]:
    return [Sample(tuple(drawn(part, rng) for part in call)) for call in EQUATIONS]


def sublists(rng: Rng) -> list[Sample]:
    x, y = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    return [sample(x, (0, 1), y, (1, 2)), sample(x, (0, 1), y, (1, 2), (2, 0)), sample(x, (..., 1), (1, ...))]


def _lists(function: Callable[..., Any]) -> Callable[..., Any]:
    """Sublists as lists: the tuples of a sample."""
    return lambda *args: function(*(list(part) if isinstance(part, tuple) else part for part in args))


def _weights(rng: Rng) -> list[Sample]:
    x, counts, weights = rng.standard_normal((3, 5)), np.array([1, 2, 1, 3, 1]), rng.uniform(0.5, 2.0, 5)
    return [
        sample(x),
        sample(x[0]),
        sample(x, correction=0),
        sample(x, fweights=counts),
        sample(x, aweights=weights),
        sample(x, fweights=counts, aweights=weights),
    ]


ADDED = {
    "addmm": (S(4, 5), S(4, 3), S(3, 5)),
    "addmv": (S(4), S(4, 3), S(3)),
    "addr": (S(4, 3), S(4), S(3)),
    "addbmm": (S(4, 5), S(2, 4, 3), S(2, 3, 5)),
    "baddbmm": (S(2, 4, 5), S(2, 4, 3), S(2, 3, 5)),
}


def added(name: str) -> Operation:
    """A row of a product that is added to something."""

    def samples(rng: Rng) -> list[Sample]:
        base, lhs, rhs = (rng.standard_normal(shape) for shape in ADDED[name])
        scaled = Sample((base, lhs, rhs), {"beta": 2, "alpha": 3})
        return [
            sample(base, lhs, rhs),
            scaled,
            Sample((base, lhs, rhs), {"beta": 0}),
            sample(base[..., :1] * 0 + 1, lhs, rhs),
        ]

    return Operation(f"Tensor.{name}", samples, dtypes="fi")


OPERATIONS = [
    # ---- products ----
    Operation("Tensor.matmul", calls(*PRODUCT_SHAPES), dtypes="fiu", drawn=PRODUCTS),
    Operation("Tensor.mm", calls((S(4, 3), S(3, 5)), (S(2, 0), S(0, 3)), (S(0, 3), S(3, 2))), dtypes="fiu"),
    Operation("Tensor.bmm", calls((S(2, 4, 3), S(2, 3, 5)), (S(0, 4, 3), S(0, 3, 5))), dtypes="fiu"),
    Operation("Tensor.mv", calls((S(4, 3), S(3)), (S(0, 3), S(3)), (S(2, 0), S(0))), dtypes="fiu"),
    Operation("Tensor.dot", calls((S(4), S(4)), (S(0), S(0))), dtypes="fiu"),
    Operation("Tensor.vdot", calls((S(4), S(4)), (S(0), S(0))), dtypes="fiu"),
    Operation(
        "Tensor.inner",
        calls((S(2, 4), S(3, 4)), (S(4), S(4)), (S(2, 3, 4), S(4)), (S(), S(3)), (S(2, 0), S(0))),
        dtypes="fiu",
    ),
    Operation("Tensor.outer", calls((S(4), S(3)), (S(0), S(3))), dtypes="fiub"),
    Operation(
        "Tensor.ger",
        calls(
            (S(4), S(3)),
        ),
        dtypes="fiub",
    ),
    Operation("Tensor.kron", calls((S(2, 3), S(4, 2)), (S(3), S(2, 2)), (S(), S(3)), (S(2, 0), S(3))), dtypes="fiub"),
    Operation("Tensor.trace", calls((S(3, 3),), (S(2, 4),), (S(0, 3),), (S(4, 2),)), dtypes="fiu"),
    Operation("Tensor.tril", calls((S(3, 4), 1), (S(2, 3, 3),), (S(0, 3),)), dtypes="fiub"),
    Operation("Tensor.triu", calls((S(3, 4), -1), (S(2, 3, 3),), (S(0, 3),)), dtypes="fiub"),
    *map(added, ADDED),
    Operation("einsum", equations, dtypes="fiu"),
    Operation("einsum", sublists, _lists(torch.einsum), _lists(picograd.einsum), variant="sublists"),
    Operation(
        "tensordot",
        calls(
            (S(2, 3, 4), S(3, 4, 5)),
            (S(2, 3, 4), S(4, 3, 5), ((1, 2), (1, 0))),
            (S(2, 3), S(4), 0),
            (S(2, 3), S(3, 2), 1),
            (S(2, 0), S(0, 3), 1),
        ),
        dtypes="fiu",
    ),
    Operation(
        "cdist",
        calls(
            (S(4, 3), S(5, 3)),
            (S(2, 4, 3), S(5, 3), 1.0),
            (S(4, 3), S(2, 3), 3.0),
            (S(4, 3), S(2, 3), 0.0),
            (S(2, 3), S(2, 3), float("inf")),
            (S(0, 3), S(2, 3)),
            (S(2, 0), S(3, 0)),
        ),
        dtypes="",
        rtol=1e-4,
        orders=1,
    ),
    Operation("Tensor.cross", calls((S(4, 3), S(4, 3), 1), (S(3, 2), S(3, 2), 0), (S(0, 3), S(0, 3), -1)), dtypes="fi"),
    numeric("Tensor.cov", _weights),
    numeric("Tensor.corrcoef", calls((S(3, 5),))),
    Operation("linalg.cross", calls((S(4, 3), S(4, 3)), (S(4, 3), S(1, 3)), (S(0, 3), S(0, 3))), dtypes="fi"),
    Operation("linalg.vecdot", calls((S(4, 3), S(4, 3)), (S(4, 3), S(3)), (S(0, 3), S(3)), (S(4, 2), S(4, 2))), dtypes="f"),
    Operation("linalg.matmul", calls((S(4, 3), S(3, 5)))),
    Operation("linalg.diagonal", calls((S(3, 4),), (S(2, 3, 3),), (S(0, 3),), (S(3, 0),)), dtypes="fiub"),
    Operation(
        "linalg.diagonal",
        lambda rng: [Sample((rng.standard_normal((2, 3, 4)),), {"offset": k, "dim1": 0}) for k in (0, 1, -1, 9)],
        dtypes="f",
        variant="moved",
    ),
    numeric("linalg.vander", lambda rng: [Sample((rng.standard_normal((2, 3)),), {"N": n}) for n in (None, 5, 2)]),
    Operation(
        "linalg.multi_dot",
        lambda rng: [
            sample([rng.standard_normal(s) for s in shapes])
            for shapes in (((2, 5), (5, 3), (3, 4), (4, 2)), ((5,), (5, 3), (3, 4)), ((2, 5), (5,)), ((5,), (5,)))
        ],
        dtypes="",
    ),
    Operation(
        "chain_matmul", calls((S(2, 3), S(3, 4), S(4, 2)), (S(2, 3), S(3, 4))), lambda *xs: torch.linalg.multi_dot(xs)
    ),
    # PyTorch's writes in place what its own gradient reads; linalg.vander has the same gradient, compared above.
    Operation("vander", calls((S(4),), (S(3), 5), (S(3), 2, True), (S(0),)), dtypes="i", orders=0),
]
