"""Fourier transforms, with the names, arguments and defaults of torch.fft, of any length: picograd_math.fft.

picograd has no complex dtype. A complex tensor is a real one with a last axis of 2, real part and imaginary part, as
torch.view_as_real returns it. Where a function of torch.fft takes or returns a complex tensor, the one of this name here
takes or returns such pairs; `dim` counts the axes before that of the pairs. `pairs` makes them of real numbers.
"""

from picograd.public import publish
from picograd_math.fft import *  # noqa: F403
from picograd_math.fft import __all__ as __all__

publish(globals())
