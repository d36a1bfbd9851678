"""Programs written for PyTorch run with picograd in its place: the same weights, three steps, the same losses.

Weights are not compared: Adam divides a gradient by its own size, even what rounding leaves of one that is 0, as of
a bias of keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from tests.programs.gan import gan
from tests.programs.gpt import gpt
from tests.programs.program import Program
from tests.programs.translation import seq2seq

PROGRAMS = [gan, gpt, seq2seq]


def run(library: Any, program: Callable[..., Program], weights: Any = None) -> tuple[dict[str, Any], list[float], Any]:
    """Returns the weights before, what the steps return, and the weights after."""
    library.manual_seed(0)
    net, step, data = program(library, library.nn, library.nn.functional)
    if weights is not None:
        assert str(net.load_state_dict(weights)) == "<All keys matched successfully>"
    before = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
    found = [step(*[library.tensor(array) for array in arrays]) for arrays in data]
    return before, [float(value) for result in found for value in np.atleast_1d(result)], net.state_dict()


@pytest.mark.variants(every=3, first=2)
@pytest.mark.req("B9")
@pytest.mark.req("C7")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_it_runs_unchanged(program: Callable[..., Program]) -> None:
    weights, theirs, after = run(torch, program)
    _, ours, state = run(pg, program, weights)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert list(state) == list(after)
