"""Optimizers that PyTorch does not have, against NumPy; Muon, which it computes in bfloat16; options and errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, optim
from picograd.look import watch


def grads(rng, steps=5, shape=(3, 4)):
    return rng.standard_normal((steps, *shape)).astype(np.float32)


def run(make, start, given):
    w = Tensor(start, requires_grad=True)
    optimizer = make([w])
    for grad in given:
        w.grad = Tensor(grad)
        optimizer.step()
    return w.detach().numpy()


@pytest.mark.req("C8")
def test_lion(device, rng):
    start, given = grads(rng, 1)[0], grads(rng)
    p, m = start.astype(np.float64), 0.0
    for g in given.astype(np.float64):
        p = p * (1 - 0.01 * 0.1) - 0.01 * np.sign(0.9 * m + 0.1 * g)
        m = 0.99 * m + 0.01 * g
    found = run(lambda w: optim.Lion(w, lr=0.01, weight_decay=0.1), start, given)
    np.testing.assert_allclose(found, p, rtol=1e-5, atol=1e-6)


@pytest.mark.req("C8")
def test_lamb(device, rng):
    start, given = grads(rng, 1)[0], grads(rng)
    p, m, v = start.astype(np.float64), 0.0, 0.0
    for t, g in enumerate(given.astype(np.float64), 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        r = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + 0.1 * p
        p = p - 0.01 * np.linalg.norm(p) / np.linalg.norm(r) * r
    found = run(lambda w: optim.LAMB(w, lr=0.01, weight_decay=0.1), start, given)
    np.testing.assert_allclose(found, p, rtol=1e-5, atol=1e-6)


def test_lamb_of_a_parameter_of_zeros(device, rng):
    """Its norm is 0: the step is that of Adam."""
    given = grads(rng)
    found = run(lambda w: optim.LAMB(w, lr=0.01), np.zeros((3, 4), np.float32), given[:1])
    np.testing.assert_allclose(found, -0.01 * np.sign(given[0]), rtol=1e-3)


@pytest.mark.req("C8")
@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 5)])
@pytest.mark.parametrize("settings", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.0}])
def test_muon(shape, settings, device, rng):
    start, given = grads(rng, 1, shape)[0], grads(rng, 5, shape)
    found = run(lambda w: optim.Muon(w, lr=0.01, **settings), start, given)
    w = torch.tensor(start, requires_grad=True)
    other = torch.optim.Muon([w], lr=0.01, **settings)
    for grad in given:
        w.grad = torch.tensor(grad)
        other.step()
    # PyTorch's iteration rounds to bfloat16, 2^-8 of each update of about 0.01, several times over.
    np.testing.assert_allclose(found, w.detach().numpy(), atol=2e-3)


def test_muon_steps_by_nearly_orthogonal_matrices(rng):
    (grad,) = grads(rng, 1, (4, 6))
    settings = {"momentum": 0.0, "weight_decay": 0.0, "nesterov": False}
    step = run(lambda w: optim.Muon(w, lr=1.0, **settings), np.zeros((4, 6), np.float32), [grad])
    values = np.linalg.svd(step, compute_uv=False)
    assert values.min() > 0.6 and values.max() < 1.3  # the iteration's bounds
    u, _, v = np.linalg.svd(-grad, full_matrices=False)
    assert (step * (u @ v)).sum() / np.linalg.norm(step) / 2 > 0.97  # |U V| is 2: nearly its direction


@pytest.mark.req("G1")
@pytest.mark.parametrize("name", ["Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "ASGD", "Rprop", "Lion"])
def test_a_step_over_all_parameters_is_few_kernels(name, rng, monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    tensors = [Tensor(grads(rng, 1, shape)[0], requires_grad=True) for shape in ((8, 4), (8,), (4, 8), (4,))]
    optimizer = getattr(optim, name)(tensors)
    for _ in range(2):
        for tensor in tensors:
            tensor.grad = Tensor(grads(rng, 1, tensor.shape)[0])
        with watch() as counts:
            optimizer.step()
    assert counts.kernels <= 5


ERRORS = [
    (lambda w: optim.Adam([w], betas=(1.0, 0.9)), "Adam: betas must be in [0, 1), got (1.0, 0.9)."),
    (lambda w: optim.SGD([w], lr=-1.0), "SGD: lr must not be negative, got -1.0."),
    (lambda w: optim.SGD([w], colour=True), "SGD: has no setting colour."),
    (lambda w: optim.Adam([w], differentiable=True), "Adam: differentiable=True: no gradient flows through a step."),
    (lambda w: optim.Rprop([w], etas=(1.5, 2.0)), "Rprop: etas must be below and above 1, got (1.5, 2.0)."),
    (lambda w: optim.Muon([w]), "Muon: parameters must be matrices, got (1,)."),
    (lambda w: optim.Adafactor([w], d=0.5), "Adafactor: d must be at least 1, got 0.5."),
    (lambda w: optim.Adadelta([w], rho=2.0), "Adadelta: rho must be in [0, 1], got 2.0."),
]


@pytest.mark.parametrize(("call", "fact"), ERRORS)
def test_errors(call, fact):
    with pytest.raises(pg.PicogradError) as caught:
        call(Tensor([1.0], requires_grad=True))
    assert caught.value.fact == fact and caught.value.line.file == __file__
