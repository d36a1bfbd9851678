"""linear_cross_entropy a few rows at a time: PyTorch's values and gradients, and little memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.nn import functional as F
from picograd.nn.functions import class_losses

ROWS, FEATURES, CLASSES = 40, 5, 7


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six rows at a time: 40 rows are six chunks and four rows more."""
    monkeypatch.setattr(class_losses, "CHUNK_NBYTES", 6 * CLASSES * 4)


def arrays(rng: np.random.Generator) -> dict[str, Any]:
    classes = rng.integers(0, CLASSES, ROWS)
    classes[::9] = -100
    return {
        "input": rng.standard_normal((ROWS, FEATURES)).astype(np.float32),
        "linear_weight": rng.standard_normal((CLASSES, FEATURES)).astype(np.float32),
        "linear_bias": rng.standard_normal(CLASSES).astype(np.float32),
        "weight": rng.uniform(0.5, 2.0, CLASSES).astype(np.float32),
        "target": classes,
    }


def loss_and_gradients(library: Any, given: dict[str, Any], **options: Any) -> list[Any]:
    tensor = Tensor if library is pg else torch.tensor
    tensors = {name: tensor(array) for name, array in given.items()}
    leaves = [tensors[name].requires_grad_() for name in ("input", "linear_weight", "linear_bias") if name in given]
    loss = library.nn.functional.linear_cross_entropy(
        tensors.pop("input"), tensors.pop("linear_weight"), tensors.pop("target"), **tensors, **options
    )
    (loss * 3.0).sum().backward()
    return [loss.detach().numpy(), *(leaf.grad.numpy() for leaf in leaves)]


@pytest.mark.variants
@pytest.mark.req("C4")
@pytest.mark.parametrize("left_out", [(), ("linear_bias",), ("weight",), ("linear_bias", "weight")])
@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"reduction": "none"}, {"ignore_index": 2}], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_chunks_add_up_to_pytorchs_loss(
    left_out: tuple[str, ...], options: dict[str, Any], smoothing: float, small_chunks: None, rng: np.random.Generator
) -> None:
    given = {name: array for name, array in arrays(rng).items() if name not in left_out}
    if "ignore_index" in options:
        given["target"] = np.where(given["target"] < 0, 2, given["target"])
    options = {**options, "label_smoothing": smoothing}
    for mine, theirs in zip(loss_and_gradients(pg, given, **options), loss_and_gradients(torch, given, **options)):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=5e-6)  # sums of 40 float32


def test_what_is_no_number_a_row_takes_the_two_functions(small_chunks: None, rng: np.random.Generator) -> None:
    given = arrays(rng)
    x, w = Tensor(given["input"]), Tensor(given["linear_weight"])
    chances = Tensor(rng.random((ROWS, CLASSES)).astype(np.float32))
    assert F.linear_cross_entropy(x, w, chances).item() == F.cross_entropy(x @ w.T, chances).item()
    assert F.linear_cross_entropy(x[0], w, Tensor(3)).item() == F.cross_entropy(F.linear(x[0], w), Tensor(3)).item()


def test_a_captured_step_trains_as_the_two_functions_do(small_chunks: None, rng: np.random.Generator) -> None:
    given = arrays(rng)
    losses = []
    for chunked in (True, False):
        w = Tensor(given["linear_weight"], requires_grad=True)

        @pg.jit
        def step(x: Tensor, target: Tensor, w: Tensor = w, chunked: bool = chunked) -> Tensor:
            loss = F.linear_cross_entropy(x, w, target) if chunked else F.cross_entropy(F.linear(x, w), target)
            (change,) = pg.autograd.grad(loss, [w])
            with pg.no_grad():
                w.sub_(change)
            return loss

        losses.append([step(Tensor(given["input"]), Tensor(given["target"])).item() for _ in range(5)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert losses[0][-1] < losses[0][0]


def test_further_derivatives_and_forward_mode(small_chunks: None, rng: np.random.Generator) -> None:
    """Each number of 14 rows, which are two chunks and two rows more, is moved."""
    given = arrays(rng)
    target = Tensor(given["target"][:14])
    inputs = [Tensor(given[name][:14].astype(np.float64)) for name in ("input", "linear_weight")]

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return F.linear_cross_entropy(x, w, target, label_smoothing=0.1)

    assert class_losses._is_large(*inputs, target)
    assert pg.gradcheck(loss, inputs, check_forward_ad=True)
    assert pg.gradgradcheck(loss, inputs)


def test_a_wrong_class_is_reported(small_chunks: None, rng: np.random.Generator) -> None:
    given = arrays(rng)
    target = given["target"].copy()
    target[17] = CLASSES
    with pytest.raises(pg.IndexingError, match="target 7 is not one of the 7 classes"):
        F.linear_cross_entropy(Tensor(given["input"]), Tensor(given["linear_weight"]), Tensor(target)).item()


def test_the_scores_of_all_rows_are_never_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setattr(class_losses, "CHUNK_NBYTES", 64 << 10)
    rows, features, classes = 4096, 8, 512
    x, w = (Tensor(np.ones(shape, np.float32), requires_grad=True) for shape in ((rows, features), (classes, features)))
    target = Tensor(np.arange(rows) % classes)
    peaks = []
    for loss in (F.linear_cross_entropy, lambda x, w, t: F.cross_entropy(F.linear(x, w), t)):
        for _ in range(2):
            x.grad = w.grad = None
            before = pg.memory_allocated()
            pg.reset_peak_memory_stats()
            loss(x, w, target).backward()
            pg.realize([x.grad, w.grad])
        peaks.append(pg.max_memory_allocated() - before)
    scores = 4 * rows * classes
    assert peaks[0] < scores / 8 and peaks[1] >= scores
