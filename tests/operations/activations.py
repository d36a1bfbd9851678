"""Activations: the rows of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.operations.table import Operation, Rng, Sample, broadcasting, sample, uniform

WIDE = (-6.0, 6.0)


def activation(name: str, *more: Any, dtypes: str = "f", variant: str = "", orders: int = 2, **kwargs: Any) -> Operation:
    """A row of a function of each element, called with further arguments.

    Gradients at 0, where pieces meet, are compared in tests/nn/test_activations.py: of elu PyTorch's second one is
    that of the other piece.
    """

    def samples(rng: Rng) -> list[Sample]:
        calls = [Sample((*call.args, *more), kwargs) for call in uniform(WIDE)(rng)]
        return [*calls, Sample((np.array([-3.0, -0.5, 0.5, 1.0, 3.0, 6.0, -30.0, 50.0]), *more), kwargs)]

    drawn = broadcasting(WIDE).map(lambda call: Sample((*call.args, *more), kwargs))
    return Operation(f"nn.functional.{name}", samples, dtypes=dtypes, orders=orders, drawn=drawn, variant=variant)


def slopes(rng: Rng) -> list[Sample]:
    """Calls of prelu: one slope, one for each channel."""
    x = rng.uniform(-2.0, 2.0, (2, 3, 4))
    one, several = rng.uniform(0.1, 0.9, 1), rng.uniform(0.1, 0.9, 3)
    return [sample(x, several), sample(x, one), sample(x[0, :, 0], one), sample(x[:, :0], one), sample(x[..., 0], several)]


def halves(rng: Rng) -> list[Sample]:
    """Calls of glu along several axes."""
    x = rng.uniform(-2.0, 2.0, (4, 2, 6))
    return [sample(x), sample(x, 0), sample(x, dim=1), sample(x[:, :0]), sample(x[0, 0])]


def along_an_axis(rng: Rng) -> list[Sample]:
    """Calls of a softmax."""
    x = rng.uniform(-4.0, 4.0, (3, 4, 5))
    edges = [sample(np.array(x[0, 0, 0]), 0), sample(x[:, :0], 1), sample(x * 200, 2)]
    return [sample(x, 1), sample(x, dim=-1), sample(x, 0), *edges]


def drawn_axis(low: float, high: float) -> st.SearchStrategy[Sample]:
    """Drawn calls of a function along one axis."""
    return broadcasting((low, high)).flatmap(
        lambda call: st.integers(-max(call.args[0].ndim, 1), max(call.args[0].ndim, 1) - 1).map(
            lambda dim: Sample((call.args[0], dim))
        )
    )


OPERATIONS = [
    activation("relu", dtypes="fiu"),
    activation("hardtanh", dtypes="fi"),
    activation("hardtanh", -0.5, 2.0, variant="bounds"),
    activation("relu6", dtypes="fi"),
    activation("hardsigmoid", orders=1),  # PyTorch has no second
    activation("hardswish"),
    activation("hardshrink"),
    activation("hardshrink", 1.0, variant="lambd"),
    activation("softshrink"),
    activation("softshrink", lambd=1.0, variant="lambd"),
    activation("threshold", 0.5, -1.0),
    activation("leaky_relu"),
    activation("leaky_relu", negative_slope=0.3, variant="slope"),
    activation("rrelu"),
    activation("elu"),
    activation("elu", alpha=1.5, variant="alpha"),
    activation("selu"),
    activation("celu"),
    activation("celu", alpha=1.5, variant="alpha"),
    activation("sigmoid", dtypes="fiub"),
    activation("tanh", dtypes="fiub"),
    activation("gelu"),
    activation("gelu", approximate="tanh", variant="tanh"),
    activation("silu"),
    activation("mish"),
    activation("softplus"),
    activation("softplus", beta=2.0, threshold=5.0, variant="beta"),
    activation("logsigmoid"),
    activation("softsign", dtypes="fiu"),
    activation("tanhshrink", dtypes="fiu"),
    Operation("nn.functional.prelu", slopes),
    Operation("Tensor.prelu", slopes),
    Operation("nn.functional.glu", halves),
    Operation("nn.functional.softmax", along_an_axis, drawn=drawn_axis(-5.0, 5.0)),
    Operation("nn.functional.log_softmax", along_an_axis, drawn=drawn_axis(-5.0, 5.0)),
    Operation("nn.functional.softmin", along_an_axis, drawn=drawn_axis(-5.0, 5.0)),
]
