"""Linear algebra: the rows of the table."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import picograd
from tests.operations.matrices import (
    SQUARES,
    S,
    calls,
    free_of_signs,
    lower,
    numeric,
    positive,
    real_parts,
    rectangles,
    regular,
    spread,
    squared_vectors,
    squares,
    symmetric,
    systems,
)
from tests.operations.table import Operation, Rng, Sample, sample


def _singular_det(rng: Rng) -> list[Sample]:
    row = rng.standard_normal(3)
    return [sample(np.stack([row, 2 * row, rng.standard_normal(3)]))]


def _det_of_three(x: torch.Tensor) -> torch.Tensor:
    """The determinant by its definition: PyTorch's gradient of a singular matrix depends on the rounding of its factors."""
    return (x[0] * torch.linalg.cross(x[1], x[2])).sum()


NORM_ORDERS = (2, 1, 0, 3, 0.5, float("inf"), float("-inf"), -1, 1.5)


def vector_norms(rng: Rng) -> list[Sample]:
    x = rng.standard_normal((3, 4))
    some = [sample(x, order, 1) for order in NORM_ORDERS]
    return [
        sample(x),
        *some,
        sample(x, 2, (0, 1), True),
        sample(np.array(x[0, 0])),
        sample(np.zeros((2, 0)), 2, 1),
        sample(np.zeros(3)),
    ]


def matrix_norms(rng: Rng) -> list[Sample]:
    x = rng.standard_normal((2, 3, 4))
    orders = ("fro", "nuc", float("inf"), float("-inf"), 1, -1, 2, -2)
    return [sample(x), *(sample(x, order) for order in orders), sample(x, 1, (0, 2), True), sample(x, "nuc", (2, 0))]


def norms(rng: Rng) -> list[Sample]:
    x = rng.standard_normal((3, 4))
    return [sample(x), sample(x, 2), sample(x, "nuc"), sample(x, 1, 0), sample(x, dim=(0, 1)), sample(x[0], 3)]


def lu_systems(rng: Rng) -> list[Sample]:
    found = []
    for shape in ((3, 3), (2, 3, 3)):
        factors, pivots = torch.linalg.lu_factor(torch.tensor(regular(rng, *shape)))
        found.append(sample(factors.numpy(), pivots.numpy(), rng.standard_normal((*shape[:-1], 2))))
    first = found[0].args
    return [*found, sample(*first, adjoint=True), sample(first[0], first[1], first[2].T.copy(), left=False)]


def lu_factors(rng: Rng) -> list[Sample]:
    factors = [torch.linalg.lu_factor(torch.tensor(rng.standard_normal(shape))) for shape in ((3, 3), (2, 4, 2), (2, 4))]
    return [sample(lu.numpy(), pivots.numpy()) for lu, pivots in factors]


def triangles(*kind: bool) -> Callable[[Rng], list[Sample]]:
    """Returns calls of triangular_solve, which takes the right side first."""
    return lambda rng: [sample(c.args[1], c.args[0], *kind) for c in systems(lower)(rng)]


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of PyTorch's without its word that another one is newer."""

    def called(*args: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*args)

    return called


TALL_AND_WIDE = (S(3, 3), S(2, 4, 2), S(2, 4), S(0, 2, 3))


def squares_of(name: str, *signed: int) -> Callable[..., Any]:
    """Returns a method of either library, with those of its results squared whose signs are free."""

    def call(a: Any) -> tuple[Any, ...]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch would rather be asked for linalg's
            found = getattr(a, name)()
        return tuple(part * part if i in signed else part for i, part in enumerate(found))

    return call


OPERATIONS = [
    # ---- powers and determinants ----
    numeric("Tensor.matrix_power", calls((S(3, 3), 3), (S(2, 3, 3), 0), (S(3, 3), 1), (S(3, 3), 6), (S(0, 2, 2), 2))),
    numeric("linalg.matrix_power", squares(regular, SQUARES, -2)),
    numeric("Tensor.matrix_exp", calls(*((s,) for s in (S(3, 3), S(2, 4, 4), S(0, 2, 2), S(0, 0))))),
    numeric(
        "linalg.matrix_exp", lambda rng: [sample(rng.standard_normal((2, 3, 3)) * scale) for scale in (0.01, 3)], rtol=1e-3
    ),
    numeric("Tensor.det", squares()),
    numeric("linalg.det", squares()),
    numeric("linalg.det", _singular_det, _det_of_three, orders=1, atol=1e-4, variant="singular"),
    numeric("Tensor.slogdet", squares()),
    numeric("linalg.slogdet", squares()),
    numeric("Tensor.logdet", squares(positive)),
    # ---- systems ----
    numeric("Tensor.inverse", squares()),
    numeric("linalg.inv", squares()),
    numeric("linalg.inv_ex", squares(), torch=lambda a: tuple(torch.linalg.inv_ex(a))),
    numeric("linalg.solve", systems()),
    numeric(
        "linalg.solve",
        lambda rng: [
            sample(regular(rng, 3, 3), rng.standard_normal(3)),
            sample(regular(rng, 2, 3, 3), rng.standard_normal((2, 3))),
        ],
        variant="vector",
    ),
    numeric(
        "linalg.solve",
        lambda rng: [Sample((regular(rng, 3, 3), rng.standard_normal((2, 3))), {"left": False})],
        variant="right",
    ),
    numeric("linalg.solve_ex", systems(), torch=lambda a, b: tuple(torch.linalg.solve_ex(a, b))),
    *(
        numeric(
            "linalg.solve_triangular",
            systems(regular, upper=upper, unitriangular=unit),
            variant=f"{'upper' if upper else 'lower'}{'-unit' * unit}",
        )
        for upper in (True, False)
        for unit in (True, False)
    ),
    numeric(
        "linalg.solve_triangular",
        lambda rng: [Sample((lower(rng, 3, 3), rng.standard_normal((2, 3))), {"upper": False, "left": False})],
        variant="right",
    ),
    numeric("linalg.pinv", rectangles()),
    numeric(
        "linalg.pinv",
        lambda rng: [
            Sample((rng.standard_normal((4, 3)),), {"atol": 0.5}),
            Sample((rng.standard_normal((4, 3)),), {"rtol": 0.5}),
        ],
        orders=0,
        variant="cut",
    ),
    numeric("Tensor.pinverse", rectangles()),
    numeric(
        "linalg.lstsq",
        calls((S(4, 2), S(4, 3)), (S(2, 5, 3), S(2, 5, 1)), (S(3, 3), S(3, 2))),
        orders=1,
        torch=lambda a, b: tuple(torch.linalg.lstsq(a, b)),
    ),
    numeric(
        "linalg.tensorinv",
        lambda rng: [sample(regular(rng, 6, 6).reshape(2, 3, 6)), sample(regular(rng, 6, 6).reshape(6, 3, 2), 1)],
    ),
    numeric(
        "linalg.tensorsolve",
        lambda rng: [
            sample(regular(rng, 6, 6).reshape(2, 3, 6), rng.standard_normal((2, 3))),
            Sample(
                (
                    regular(rng, 6, 6).reshape(2, 3, 3, 2).transpose(0, 2, 1, 3).copy().reshape(2, 3, 3, 2),
                    rng.standard_normal((2, 3)),
                ),
                {},
            ),
        ],
    ),
    numeric(
        "Tensor.cholesky_solve",
        call=lambda b, f: b.cholesky_solve(f.tril()),
        torch=lambda b, f: b.cholesky_solve(f.tril()),
        samples=lambda rng: [
            sample(rng.standard_normal((3, 2)), lower(rng, 3, 3)),
            sample(rng.standard_normal((2, 3, 2)), lower(rng, 3, 3)),
        ],
    ),
    numeric(
        "Tensor.cholesky_inverse",
        squares(lower),
        lambda f: f.tril().cholesky_inverse(),
        lambda f: f.tril().cholesky_inverse(),
    ),
    # ---- factors ----
    numeric("Tensor.cholesky", squares(positive), torch.linalg.cholesky),
    numeric("linalg.cholesky", squares(positive)),
    numeric("linalg.cholesky", lambda rng: [Sample((positive(rng, 3, 3),), {"upper": True})], variant="upper"),
    numeric("linalg.cholesky_ex", squares(positive), torch=lambda a: tuple(torch.linalg.cholesky_ex(a))),
    free_of_signs("lu", rectangles(), 0, 1, 2, dtypes=""),
    free_of_signs("lu_factor", rectangles(), 0, 1, dtypes=""),
    free_of_signs("lu_factor_ex", rectangles(), 0, 1, 2, dtypes=""),
    numeric("linalg.lu_solve", lu_systems),
    numeric("Tensor.lu", rectangles(), torch=quiet(torch.lu)),
    numeric("Tensor.lu", rectangles(True, True, shapes=(S(3, 3), S(2, 4))), quiet(torch.lu), orders=0, variant="infos"),
    numeric("lu_unpack", lu_factors),
    numeric("Tensor.lu_solve", lambda rng: [sample(b, lu, p) for lu, p, b in (c.args for c in lu_systems(rng)[:2])],
            torch=quiet(torch.lu_solve)),
    *[
        numeric("Tensor.triangular_solve", triangles(*kind), torch=quiet(torch.triangular_solve), variant=str(kind))
        for kind in ((False,), (True, True), (False, False, True))
    ],
    free_of_signs(
        "qr", rectangles(shapes=(S(3, 3), S(2, 4, 2), S(2, 4), S(0, 2, 3), S(0, 3))), 0, 1, squared=(0, 1), dtypes=""
    ),
    free_of_signs(
        "qr",
        rectangles("complete", shapes=(S(3, 3), S(2, 4), S(4, 2))),
        1,
        squared=(1,),
        dtypes="",
        orders=0,
        variant="complete",
    ),
    free_of_signs("qr", rectangles("r", shapes=(S(3, 3), S(2, 4))), 0, 1, squared=(1,), dtypes="", orders=0, variant="r"),
    numeric("linalg.householder_product", calls((S(4, 3), S(3)), (S(2, 4, 3), S(2, 2)), (S(3, 3), S(3))), orders=1),
    numeric("linalg.eigvals", squares(spread), real_parts),
    numeric("linalg.eig", squares(spread), squared_vectors, lambda a: picograd.linalg.eig(a).eigenvectors.square()),
    free_of_signs("eigh", squares(positive), 0, 1, squared=(1,), dtypes=""),
    free_of_signs("eigh", squares(positive, ((3, 3),), "U"), 0, 1, squared=(1,), dtypes="", variant="upper"),
    numeric(
        "linalg.eigvalsh",
        squares(positive),
        call=symmetric(lambda a: picograd.linalg.eigvalsh(a)),
        torch=symmetric(torch.linalg.eigvalsh),
    ),
    free_of_signs(
        "svd", rectangles(False, shapes=(S(3, 3), S(2, 4, 2), S(2, 4), S(0, 2, 3))), 0, 1, 2, squared=(0, 2), dtypes=""
    ),
    free_of_signs("svd", rectangles(shapes=(S(3, 3), S(2, 4), S(4, 2), S(3, 0))), 1, dtypes="", variant="full"),
    numeric("linalg.svdvals", rectangles()),
    numeric("Tensor.svd", rectangles(shapes=TALL_AND_WIDE), squares_of("svd", 0, 2), squares_of("svd", 0, 2)),
    numeric("Tensor.qr", rectangles(shapes=TALL_AND_WIDE), squares_of("qr", 0, 1), squares_of("qr", 0, 1)),
    # ---- norms ----
    numeric("linalg.vector_norm", vector_norms, orders=1),
    Operation("linalg.vector_norm", calls((S(3, 4),), (S(3, 4), 3, 1)), variant="twice"),
    numeric("linalg.matrix_norm", matrix_norms),
    numeric("linalg.norm", norms),
    numeric("linalg.cond", lambda rng: [sample(regular(rng, 2, 3, 3), p) for p in (None, 2, -2)]),
    numeric(
        "linalg.cond",
        lambda rng: [sample(regular(rng, 2, 3, 3), p) for p in ("fro", 1, float("inf"), "nuc")],
        orders=0,
        variant="by inverse",
    ),
    numeric(
        "linalg.matrix_rank",
        lambda rng: [
            sample(rng.standard_normal((4, 3))),
            sample(np.ones((2, 3, 3))),
            sample(np.zeros((0, 3))),
            Sample((rng.standard_normal((4, 3)),), {"atol": 1.0}),
        ],
        orders=0,
    ),
]
