"""The GPU by torch.cuda's names: picograd_torch.cuda."""

from picograd.cuda import amp as amp
from picograd.public import publish
from picograd.tensor.generator import manual_seed as seed_all  # noqa: F401
from picograd_torch.cuda import *  # noqa: F403
from picograd_torch.cuda import __all__ as __all__

publish(globals())
