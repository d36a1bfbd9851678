"""Tools of training programs: batches of data, memory for time."""

from picograd.utils import checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack"]
