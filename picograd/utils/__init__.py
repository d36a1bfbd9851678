"""What training programs need beside tensors and layers: batches of data, memory for time."""

from picograd.utils import checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack"]
