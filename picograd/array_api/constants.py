"""Constants, as Python floats.

In:    nothing
Out:   `e`, `inf`, `nan`, `newaxis`, `pi`
Next:  picograd/array_api/creation.py
"""

from __future__ import annotations

import math

e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi
