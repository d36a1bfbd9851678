"""picograd.special, and functions that are no methods: the rows of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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


def windows(rng: Rng) -> list[Sample]:
    """Calls of a window: lengths from 0 up, periodic and not."""
    return [sample(n, periodic) for n in (5, 0, 1, 2, 8) for periodic in (True, False)]


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
    Operation("polygamma", orders, dtypes="", rtol=1e-4),
    Operation("trapezoid", areas, dtypes="i"),
    Operation("cumulative_trapezoid", areas, dtypes="i"),
    Operation("rsub", reversed_difference, dtypes="iu"),
    *[
        Operation(f"{name}_window", windows, dtypes="", orders=0)
        for name in ("hann", "hamming", "blackman", "bartlett", "kaiser")
    ],
    Operation("tril_indices", triangles, dtypes="", orders=0),
    Operation("triu_indices", triangles, dtypes="", orders=0),
]
