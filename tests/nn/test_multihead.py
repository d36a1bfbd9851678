"""Attention with several heads as a function of its weights, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.nn import functional as F
from tests.helpers import same_value

E, H, L, S, N = 8, 2, 3, 5, 2


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


WEIGHTS = (drawn(3 * E, E), drawn(3 * E), None, None, False, 0.0, drawn(E, E), drawn(E))
FORMS: dict[str, dict[str, Any]] = {
    "plain": {}, "every head": {"average_attn_weights": False}, "no weights": {"need_weights": False},
    "masked": {"attn_mask": np.triu(np.ones((L, S), bool), 3), "key_padding_mask": np.arange(N * S).reshape(N, S) % 4 == 3},
    "separate": {"use_separate_proj_weight": True, "q_proj_weight": drawn(E, E), "k_proj_weight": drawn(E, E + 0),
                 "v_proj_weight": drawn(E, E) * 0.5},
    "static": {"static_k": drawn(N * H, S, E // H), "static_v": drawn(N * H, S, E // H) * 2},
}  # fmt: skip


def made(of: Any, one: Any) -> Any:
    return of(one) if isinstance(one, np.ndarray) else one


@pytest.mark.parametrize("form", FORMS)
def test_the_function_is_pytorchs(form: str) -> None:
    options, inputs = FORMS[form], (drawn(L, N, E), drawn(S, N, E), drawn(S, N, E) * 0.5)
    weights = (None, *WEIGHTS[1:]) if form == "separate" else WEIGHTS
    found = [
        library.multi_head_attention_forward(
            *(of(x) for x in inputs), E, H, *(made(of, x) for x in weights), **{k: made(of, v) for k, v in options.items()}
        )
        for library, of in ((F, pg.tensor), (torch.nn.functional, torch.tensor))
    ]
    for ours, theirs in zip(*found):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            same_value(ours, theirs, rtol=1e-4, atol=1e-5)


def test_more_keys_and_one_example_without_a_batch() -> None:
    inputs = [drawn(L, E)] * 3
    weights = (WEIGHTS[0], None, drawn(1, 1, E), drawn(1, 1, E) * 2, True, 0.0, WEIGHTS[6], None)
    ours, theirs = (
        library.multi_head_attention_forward(*(of(x) for x in inputs), E, H, *(made(of, x) for x in weights))
        for library, of in ((F, pg.tensor), (torch.nn.functional, torch.tensor))
    )
    for mine, other in zip(ours, theirs):
        same_value(mine, other, rtol=1e-4, atol=1e-5)


def test_a_missing_weight_and_heads_that_do_not_fit() -> None:
    x = pg.ones(L, N, E)
    with pytest.raises(pg.ArgumentError, match="3 heads must divide embed_dim 8"):
        F.multi_head_attention_forward(x, x, x, E, 3, None, None, None, None, False, 0.0, pg.ones(E, E), None)
    with pytest.raises(pg.ArgumentError, match="a weight of the projections is missing"):
        F.multi_head_attention_forward(x, x, x, E, H, None, None, None, None, False, 0.0, pg.ones(E, E), None)
