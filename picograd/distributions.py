"""torch.distributions by its names: the package picograd_distributions."""

from picograd.public import publish
from picograd_distributions import *  # noqa: F403
from picograd_distributions import __all__ as __all__
from picograd_distributions import constraints as constraints
from picograd_distributions import transforms as transforms
from picograd_distributions import utils as utils

publish(globals())
