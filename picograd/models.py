"""Networks that are trained by `picograd train`: picograd_programs.models under the name that users know."""

from picograd_programs.models import *  # noqa: F403
from picograd_programs.models import __all__ as __all__
