"""Windows by torch.signal.windows' names: picograd_math.windows."""

from picograd.public import publish
from picograd_math.windows import *  # noqa: F403
from picograd_math.windows import __all__ as __all__

publish(globals())
