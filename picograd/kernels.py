"""Kernels of a user's own: picograd_lab.kernels under the name that users know."""

from picograd_lab.kernels.kernel import Kernel as Kernel
from picograd_lab.kernels.kernel import kernel as kernel
