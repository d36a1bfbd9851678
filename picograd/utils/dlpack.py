"""`torch.utils.dlpack` by its name: memory shared with other libraries."""

from picograd.tensor.names import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
