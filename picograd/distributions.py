"""torch.distributions by its names: the package picograd_distributions."""

import sys

from picograd.public import publish
from picograd_distributions import *  # noqa: F403
from picograd_distributions import __all__ as __all__
from picograd_distributions import constraints as constraints
from picograd_distributions import transforms as transforms

publish(globals())
for _part in (constraints, transforms):  # import picograd.distributions.constraints
    sys.modules[_part.__name__.replace("picograd_distributions", __name__)] = _part
