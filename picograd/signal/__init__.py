"""Signal processing by torch.signal's names: windows, as yet."""

from picograd.signal import windows as windows

__all__ = ["windows"]
