"""Special functions by torch.special's names: picograd_math.special."""

from picograd.public import publish
from picograd_math.special import *  # noqa: F403
from picograd_math.special import __all__ as __all__

publish(globals())
