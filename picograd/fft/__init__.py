"""Fourier transforms, with the names, arguments and defaults of torch.fft, of any length.

In:    tensors of float32 or float64
Out:   tensors
Next:  picograd/fft/transforms.py

picograd has no complex dtype. A complex tensor is a real one with a last axis of 2, real part and imaginary part: what
torch.view_as_real gives. Where a function of torch.fft takes or returns a complex tensor, the one of this name here takes
or returns such pairs; `dim` counts the axes before that of the pairs. `pairs` makes them of real numbers.
"""

from picograd.fft.frequencies import fftfreq, fftshift, ifftshift, rfftfreq
from picograd.fft.hermitian import hfft, hfft2, hfftn, ihfft, ihfft2, ihfftn
from picograd.fft.real import irfft, irfft2, irfftn, rfft, rfft2, rfftn
from picograd.fft.transforms import fft, fft2, fftn, ifft, ifft2, ifftn, pairs
from picograd.public import publish

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft",
    "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "pairs", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

publish(globals())
