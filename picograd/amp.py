"""Mixed precision by torch.amp's names: picograd_torch.amp."""

from picograd.public import publish
from picograd_torch.amp import *  # noqa: F403
from picograd_torch.amp import __all__ as __all__

publish(globals())
