"""Data sets by name, and transforms of images: what users know as `pg.data`."""

from picograd_loader import transforms as transforms
from picograd_programs.data import *  # noqa: F403
from picograd_programs.data import __all__ as names

__all__ = [*names, "transforms"]  # noqa: PLE0604
