"""Functions in torch.*'s own order of arguments, and old names."""

from __future__ import annotations

import numpy as np
import torch

import picograd as pg
from picograd import nn
from picograd.nn.attention import SDPBackend, sdpa_kernel
from tests.helpers import same_value

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def test_functions_are_those_of_torch() -> None:
    x, y = pg.tensor(X), torch.tensor(X)
    line, other = pg.arange(4).float(), torch.arange(4).float()
    calls = (
        lambda m, x, v: m.dropout(x, 0.5, False), lambda m, x, v: m.alpha_dropout(x, 0.5, False),
        lambda m, x, v: m.feature_dropout(x, 0.5, False), lambda m, x, v: m.rrelu(x, 0.25, 0.75),
        lambda m, x, v: m.batch_norm(x, v, v + 1, v * 0.0, v + 1, False, 0.1, 1e-5, False),
        lambda m, x, v: m.embedding(x, m.tensor([[0, 2], [1, 1]])),
        lambda m, x, v: m.bilinear(x, x, m.ones(2, 4, 4), v[:2]),
    )  # fmt: skip
    for call in calls:
        same_value(call(pg, x, line), call(torch, y, other))


def test_whole_channels_are_dropped() -> None:
    dropped = pg.feature_dropout(pg.ones(64, 4, 3, 2), 0.5, True).numpy()
    assert {*np.unique(dropped.reshape(256, 6).sum(1))} == {0.0, 12.0}


def test_old_names() -> None:
    same = {"kaiming_normal", "xavier_uniform", "uniform", "orthogonal", "constant"}
    assert all(getattr(nn.init, name) is getattr(nn.init, f"{name}_") for name in same)
    assert nn.init._calculate_fan_in_and_fan_out(pg.ones(8, 3, 5, 5)) == (75, 200)
    assert nn.utils.clip_grad_norm is nn.utils.clip_grad_norm_ and issubclass(pg.optim.SGD, pg.optim.Optimizer)
    assert pg.optim.lr_scheduler._LRScheduler is pg.optim.lr_scheduler.LRScheduler
    found = nn.functional.max_pool2d_with_indices(pg.tensor(X)[None], 2)
    for mine, theirs in zip(found, torch.nn.functional.max_pool2d_with_indices(torch.tensor(X)[None], 2)):
        same_value(mine, theirs)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        same_value(nn.functional.scaled_dot_product_attention(*[pg.tensor(X)] * 3),
                   torch.nn.functional.scaled_dot_product_attention(*[torch.tensor(X)] * 3))  # fmt: skip
