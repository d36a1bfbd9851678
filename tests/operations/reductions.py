"""Reductions: the rows of the table."""

from __future__ import annotations

import numpy as np

from tests.operations.table import Operation, Rng, Sample, reductions, sample


def over_axes(rng: Rng) -> list[Sample]:
    """Calls over no axis, one, several, from the end, and of what is empty."""
    x = rng.uniform(-2.0, 2.0, (3, 4, 5))
    return [sample(x), sample(x, 1), sample(x, (0, -1)), sample(x, dim=-1, keepdim=True), sample(np.array(x[0, 0, 0]))]


OPERATIONS = [
    Operation("Tensor.sum", over_axes, dtypes="fiub", drawn=reductions()),
    Operation("Tensor.mean", over_axes, drawn=reductions()),
]
