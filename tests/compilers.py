"""What tests need of a machine that may have no compiler."""

from __future__ import annotations

import shutil

import pytest

from picograd.compile import hostcxx

HAS_COMPILER = any(map(shutil.which, hostcxx.COMPILERS))
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C++ compiler is on PATH, and CUDASIM needs one")
