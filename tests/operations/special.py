"""picograd.special, and functions that are no methods: the rows of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import picograd as pg
from tests.operations.table import Operation, Rng, Sample, broadcasting, sample, uniform

WIDE, POSITIVE, UNIT = (-2.0, 2.0), (0.1, 3.0), (0.05, 0.95)


def special(name: str, *domains: tuple[float, float], dtypes: str = "", orders: int = 2, **given: Any) -> Operation:
    """A row of a function of torch.special, which takes no 16-bit floats there."""
    drawn = broadcasting(*domains) if domains else None
    return Operation(f"special.{name}", uniform(*domains), dtypes=dtypes, orders=orders, drawn=drawn, **given)


def areas(rng: Rng) -> list[Sample]:
    """Calls of the trapezoidal rule: steps of 1, of another length, at points, along another axis."""
    y, x = rng.uniform(-2.0, 2.0, (3, 4)), np.sort(rng.uniform(0.0, 5.0, (4,)))
    calls = [sample(y), sample(y, dx=0.5), sample(y, x), sample(y, y * 2)]
    return [*calls, sample(y, dim=0), sample(y[:, :1]), sample(y[0], x)]


def reversed_difference(rng: Rng) -> list[Sample]:
    """Calls of rsub."""
    a, b = rng.uniform(-2.0, 2.0, (2, 4, 5))
    return [sample(a, b), sample(a, 3), sample(a, b[0], alpha=2)]


def orders(rng: Rng) -> list[Sample]:
    """Calls of polygamma, whose first argument is its order."""
    return [sample(n, rng.uniform(0.3, 4.0, (4, 5))) for n in (0, 1, 2, 3)]


def degrees(rng: Rng) -> list[Sample]:
    """Calls of a polynomial: a degree for each number, one for all, one number for several degrees."""
    x, n = rng.uniform(-2.0, 2.0, (4, 5)), rng.integers(-1, 8, (4, 5))
    ends = np.array([1.0, -1.0, 0.0])
    return [sample(x, n), sample(x, 3), sample(np.array(0.5), n), sample(x[:0], n[:0]), sample(ends, 9)]


def incomplete(rng: Rng) -> list[Sample]:
    """Calls of the incomplete gamma functions: orders small and large, limits beside them and far away."""
    a = 10.0 ** rng.uniform(-2, 3, (4, 5))
    edges = [np.array(v) for v in ([0.0, 0.0, 1.0, np.inf, 3.0], [0.0, 2.0, 0.0, 1.0, np.inf])]
    beside, none = a * rng.uniform(0.3, 2.0, (4, 5)), rng.uniform(1, 2, (0, 5))
    calls = [sample(a, beside), sample(a, np.array(2.0)), sample(a[:0], none)]
    return [*calls, sample(*edges)]


def by_the_limit(library: Any, name: str) -> Any:
    """Returns the function with a gradient by its limit alone, as PyTorch has it."""
    return lambda a, x: getattr(library, name)(a.detach(), x)


def windows(rng: Rng) -> list[Sample]:
    """Calls of a window: lengths from 0 up, periodic and not."""
    return [sample(n, periodic) for n in (5, 0, 1, 2, 8) for periodic in (True, False)]


def lengths(*kinds: dict[str, Any]) -> Callable[[Rng], list[Sample]]:
    """Returns calls of a window of torch.signal: lengths from 0 up, symmetric and periodic, with each kind of options."""
    return lambda rng: [
        Sample((n,), {"sym": sym, **kind}) for n in (5, 0, 1, 2, 8) for sym in (True, False) for kind in kinds or ({},)
    ]


def triangles(rng: Rng) -> list[Sample]:
    """Calls of tril_indices and triu_indices."""
    return [sample(r, c, o) for r, c in ((3, 4), (4, 2), (0, 3), (1, 1)) for o in (0, 1, -1, 9, -9)]


def slopes(rng: Rng) -> list[Sample]:
    """Calls of gradient: distances of every kind, both orders at the edges."""
    x, (a, b) = rng.standard_normal((5, 6)), (rng.uniform(0.5, 1.0, n).cumsum() for n in (5, 6))
    kinds = [{}, {"edge_order": 2}, {"spacing": 0.5}, {"dim": 1}, {"dim": (1, 0), "spacing": [2.0, 0.5]}]
    kinds += [{"spacing": [a, b]}, {"spacing": [a, b], "edge_order": 2}]
    return [Sample((x,), kind) for kind in kinds]


def segments(**kwargs: Any) -> Callable[[Rng], list[Sample]]:
    """Returns calls of segment_reduce, an empty segment among them."""
    lengths = np.array([2, 0, 3, 1])
    ends = np.array([0, 2, 2, 5, 6])
    return lambda rng: [
        Sample((rng.standard_normal(shape),), {**where, **kwargs})
        for shape in ((6,), (6, 2)) for where in ({"lengths": lengths}, {"offsets": ends})
    ]  # fmt: skip


def boxes(rng: Rng) -> list[Sample]:
    """Calls of histogramdd."""
    x, edges = rng.uniform(-1.0, 1.0, (20, 2)).astype(np.float32), np.array([-1.0, 0.0, 0.25, 1.0], np.float32)
    weight = rng.uniform(0.0, 1.0, 20).astype(np.float32)
    calls = [((x, 3), {}), ((x, [2, 3]), {"density": True}), ((x, [edges, edges]), {"weight": weight})]
    return [Sample(*call) for call in (*calls, ((x, [2, 2]), {"range": [-0.5, 0.5, 0.0, 1.0]}))]


OPERATIONS = [
    Operation("gradient", slopes, atol=1e-5),
    *[
        Operation("segment_reduce", segments(reduce=kind, initial=first), dtypes="", orders=order,
                  variant=f"{kind} {first}")
        for kind, first, order in (
            ("sum", None, 1), ("mean", None, 0), ("mean", 1.5, 0), ("max", None, 1), ("min", 0.0, 0), ("prod", None, 0),
        )
    ],
    Operation("histogramdd", boxes, dtypes="", orders=0),
    Operation("unravel_index", lambda rng: [sample(rng.integers(0, 24, s), (2, 3, 4)) for s in ((5,), (), (0,))],
              dtypes="", orders=0),
    special("entr", POSITIVE),
    special("erfcx", WIDE),
    special("i0e", (-12.0, 12.0)),
    special("i1", (-12.0, 12.0)),
    special("i1e", (-12.0, 12.0)),
    special("ndtr", WIDE),
    special("ndtri", UNIT),
    special("log_ndtr", (-6.0, 3.0)),
    special("xlog1py", WIDE, POSITIVE),
    special("zeta", (1.5, 4.0), POSITIVE, orders=0),
    *[special(name, WIDE) for name in ("erf", "erfc", "exp2", "expm1", "expit", "i0", "sinc")],
    *[special(name, POSITIVE) for name in ("digamma", "psi", "gammaln", "log1p")],
    special("erfinv", (-0.9, 0.9)),
    special("xlogy", WIDE, POSITIVE),
    *[special(name, (-12.0, 12.0), rtol=1e-5, atol=1e-6, orders=0) for name in (
        "airy_ai", "bessel_j0", "bessel_j1", "modified_bessel_i0", "modified_bessel_i1", "spherical_bessel_j0",
    )],
    *[special(name, (0.1, 40.0), orders=0) for name in (
        "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
        "scaled_modified_bessel_k1",
    )],
    *[
        Operation(f"special.{name}", degrees, dtypes="", orders=0, rtol=1e-4, atol=1e-5)
        for kind in ("chebyshev_polynomial_", "shifted_chebyshev_polynomial_") for name in (f"{kind}{c}" for c in "tuvw")
    ],
    *[
        Operation(f"special.{name}", degrees, dtypes="", orders=0, rtol=1e-4, atol=1e-5)
        for name in ("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p")
    ],
    *[
        row
        for name, alias in (("igamma", "special.gammainc"), ("igammac", "special.gammaincc"))
        for row in (
            Operation(f"Tensor.{name}", incomplete, dtypes="", orders=0, also=(alias,)),
            Operation(f"Tensor.{name}", lambda rng: incomplete(rng)[:3], by_the_limit(torch, name), by_the_limit(pg, name),
                      dtypes="", variant="limit"),
        )
    ],
    Operation("polygamma", orders, dtypes="", rtol=1e-4),
    Operation("trapezoid", areas, dtypes="i"),
    Operation("cumulative_trapezoid", areas, dtypes="i"),
    Operation("rsub", reversed_difference, dtypes="iu"),
    *[
        Operation(f"{name}_window", windows, dtypes="", orders=0)
        for name in ("hann", "hamming", "blackman", "bartlett", "kaiser")
    ],
    *[
        Operation(f"signal.windows.{name}", lengths(*kinds), dtypes="", orders=0)
        for name, kinds in {
            "hann": (), "hamming": (), "blackman": (), "nuttall": (), "bartlett": (), "cosine": (),
            "general_hamming": ({}, {"alpha": 0.7}), "kaiser": ({}, {"beta": 0.0}, {"beta": 3.0}),
            "general_cosine": ({"a": [0.5, 0.25, 0.25]}, {"a": (1.0,)}),
            "exponential": ({}, {"tau": 2.5}), "gaussian": ({}, {"std": 2.5}),
        }.items()
    ],
    Operation("signal.windows.exponential", lambda rng: [Sample((n,), {"sym": False, "center": 1.5}) for n in (1, 4)],
              dtypes="", orders=0, variant="center"),
    Operation("tril_indices", triangles, dtypes="", orders=0),
    Operation("triu_indices", triangles, dtypes="", orders=0),
]
