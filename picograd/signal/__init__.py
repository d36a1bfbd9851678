"""Signal processing by torch.signal's names: windows, as yet.

In:    lengths
Out:   `windows`
Next:  picograd/signal/windows.py
"""

from picograd.signal import windows as windows

__all__ = ["windows"]
