"""Drawing tokens: the chances are those of the softmax."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import Tensor
from picograd_programs.models.gpt import drawn_from


def test_drawn_tokens_follow_temperature_and_top_k() -> None:
    logits = Tensor(np.tile(np.log(np.array([0.5, 0.3, 0.2], np.float32)), (4000, 1)))
    expected = {1.0: [0.5, 0.3, 0.2], 0.5: [0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38]}
    for temperature, chances in expected.items():
        counts = np.bincount(drawn_from(logits, temperature).numpy(), minlength=3)
        assert counts / 4000 == pytest.approx(chances, abs=0.04)  # 5 standard errors
    counts = np.bincount(drawn_from(logits, top_k=2).numpy(), minlength=3)
    assert counts / 4000 == pytest.approx([0.625, 0.375, 0.0], abs=0.04)
