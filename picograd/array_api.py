"""The Python array API standard as a namespace: the package picograd_array_api under the name that users know."""

from picograd_array_api import *  # noqa: F403
from picograd_array_api import __all__ as __all__
