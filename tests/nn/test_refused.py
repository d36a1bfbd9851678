"""Arguments that would give a number without a meaning are refused, in full sentences."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import picograd as pg
from picograd import Tensor, nn
from picograd.errors import DTypeError, PicogradError, ShapeError
from picograd.nn import functional as F

SCORES, CLASSES = pg.ones(3, 4), Tensor([0, 1, 2])
QUERY, KEYS = pg.ones(1, 2, 4), pg.ones(1, 4, 4)
REFUSED: list[tuple[Callable[[], object], type[PicogradError], str]] = [
    (lambda: F.cross_entropy(SCORES, CLASSES, weight=Tensor([1.0])), ShapeError,
     "cross_entropy: weight must be (4,), a factor for each class, got (1,)."),
    (lambda: F.cross_entropy(SCORES, SCORES, weight=pg.ones(3)), ShapeError,
     "cross_entropy: weight must be (4,), a factor for each class, got (3,)."),
    (lambda: F.nll_loss(SCORES, CLASSES, weight=pg.ones(5)), ShapeError,
     "nll_loss: weight must be (4,), a factor for each class, got (5,)."),
    (lambda: F.nll_loss(SCORES, pg.ones(3)), DTypeError,
     "nll_loss: target must hold integer classes, got float32 of shape (3,)."),
    (lambda: F.scaled_dot_product_attention(QUERY, KEYS, KEYS, Tensor([[1, 1, 0, 0], [1, 1, 1, 1]])), DTypeError,
     "scaled_dot_product_attention: attn_mask must be bool or a float, got int64 of shape (2, 4)."),
    (lambda: pg.ones(2, 3, 4).permute(0, 1), ShapeError,
     "permute: (0, 1) does not name each of the 3 axes of (2, 3, 4) once."),
    (lambda: pg.ones(3, 4).permute(()), ShapeError,
     "permute: () does not name each of the 2 axes of (3, 4) once."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "fact"), REFUSED, ids=[fact.split(":")[0] for _, _, fact in REFUSED])
def test_it_is_refused(call: Callable[[], object], error: type[PicogradError], fact: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert caught.value.fact == fact and caught.value.line is not None and caught.value.line.file == __file__


def test_a_convolution_under_autocast_takes_what_a_linear_layer_gives() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 1), nn.ConvTranspose1d(2, 1, 2))
    with pg.autocast("cpu"):
        assert net(pg.ones(2, 3)).dtype is pg.bfloat16
        assert nn.Conv1d(1, 2, 1)(pg.ones(1, 1, 3)).dtype is pg.bfloat16


def test_state_goes_module_by_module_as_in_pytorch() -> None:
    def net(library):
        return library.Sequential(library.Conv2d(1, 1, 1), library.BatchNorm2d(1), library.Linear(1, 1))

    assert list(net(nn).state_dict()) == list(net(torch.nn).state_dict())


def test_a_number_is_copied_everywhere() -> None:
    assert pg.zeros(3).copy_(5).tolist() == [5.0, 5.0, 5.0]
