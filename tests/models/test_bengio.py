"""The model of Bengio et al. against its equation."""

from __future__ import annotations

import numpy as np

from picograd.tensor.tensor import Tensor
from picograd_programs.models.names import BengioModel


def test_logits_are_those_of_the_equation() -> None:
    model = BengioModel()
    contexts = np.random.default_rng(0).integers(0, 27, (5, 3)).astype(np.int32)
    w = {name: value.detach().numpy().astype(np.float64) for name, value in model.state_dict().items()}
    assert {name: value.shape for name, value in w.items()} == {
        "embedding.weight": (27, 10),
        "hidden.weight": (200, 30),
        "hidden.bias": (200,),
        "out.weight": (27, 200),
        "out.bias": (27,),
    }
    x = w["embedding.weight"][contexts].reshape(5, 30)
    hidden = np.tanh(x @ w["hidden.weight"].T + w["hidden.bias"])
    expected = hidden @ w["out.weight"].T + w["out.bias"]
    # Sums of 200 float32 products of order 0.1.
    np.testing.assert_allclose(model(Tensor(contexts)).detach().numpy(), expected, rtol=1e-5, atol=1e-6)
