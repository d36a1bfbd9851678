"""Linear algebra by torch.linalg's names: picograd_math.linalg."""

from typing import TYPE_CHECKING

from picograd.public import publish
from picograd_math.linalg import *  # noqa: F403

if not TYPE_CHECKING:  # a type checker follows the star
    from picograd_math.linalg import __all__ as __all__

publish(globals())
