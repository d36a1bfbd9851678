"""Transforms: lengths with large primes, nothing to transform, what goes there and back."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor


@pytest.mark.parametrize("length", [1, 2, 3, 7, 12, 97, 1009])
def test_any_length_goes_there_and_back(length, device, rng):
    x = rng.standard_normal((2, length))
    pairs = pg.fft.pairs(Tensor(x))
    np.testing.assert_allclose(pg.fft.ifft(pg.fft.fft(pairs)).numpy()[..., 0], x, atol=1e-12)
    np.testing.assert_allclose(pg.fft.irfft(pg.fft.rfft(Tensor(x)), length).numpy(), x, atol=1e-12)
    spectrum = pg.fft.fft(pairs).numpy()
    np.testing.assert_allclose(spectrum[..., 0] + 1j * spectrum[..., 1], np.fft.fft(x), atol=1e-10)


def test_no_signals_have_no_spectra(device):
    assert pg.fft.rfft(Tensor.zeros(0, 4)).shape == (0, 3, 2)
    assert pg.fft.rfft(Tensor.zeros(0, 4)).numpy().shape == (0, 3, 2)
    assert pg.fft.fft(Tensor.zeros(2, 0, 4, 2)).numpy().shape == (2, 0, 4, 2)


def test_integers_become_floats(device):
    assert pg.fft.rfft(Tensor([1, 2])).tolist() == [[3.0, 0.0], [-1.0, 0.0]]


def test_of_half_a_spectrum_imaginary_parts_that_must_be_zero_have_no_gradient(device):
    x = Tensor(np.ones((3, 2)), requires_grad=True)
    pg.fft.irfft(x).sum().backward()
    assert x.grad is not None
    assert x.grad.numpy()[[0, 2], 1].tolist() == [0.0, 0.0]
