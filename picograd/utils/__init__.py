"""Tools of training programs: batches of data, memory for time."""

from typing import TYPE_CHECKING

from picograd.public import publish_late
from picograd.utils import checkpoint, dlpack

if TYPE_CHECKING:
    from picograd.utils import data as data

__all__ = ["checkpoint", "data", "dlpack"]

publish_late(globals(), ["picograd.utils.data"])
