"""torch.backends by its name: picograd_torch.backends under the name that users know."""

from picograd_torch.backends import *  # noqa: F403
from picograd_torch.backends import __all__ as __all__
