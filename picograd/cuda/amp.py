"""Mixed precision by torch.cuda.amp's names: picograd_torch.cuda_amp."""

from picograd.public import publish
from picograd_torch.cuda_amp import *  # noqa: F403
from picograd_torch.cuda_amp import __all__ as __all__

publish(globals())
