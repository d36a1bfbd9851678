"""What every device is asked, as a table: the tests of each run its rows, and their names are the tests' ids.

Out:   `checks`: the rows as parameters of a test
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from tests import on_devices as ask

Check = Callable[[str, np.random.Generator, pytest.MonkeyPatch], None]


def _expressions(names: dict[str, Any]) -> dict[str, Check]:
    return {name: lambda device, rng, _, compute=compute: ask.check_expression(compute, device, rng)
            for name, compute in names.items()}  # fmt: skip


def _of_dtypes(check: Callable[[pg.DType, str, np.random.Generator], None], *dtypes: pg.DType) -> dict[str, Check]:
    return {str(dtype): lambda device, rng, _, dtype=dtype: check(dtype, device, rng) for dtype in dtypes}
