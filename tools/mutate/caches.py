"""Empties what functions of picograd keep of earlier calls: else a change, or a mark, is not come to again.

In:    a process with picograd loaded
Out:   `Caches`, which forgets
"""

from __future__ import annotations

import functools
import gc
import sys
from typing import Any

PURE = ("ir", "autodiff", "rewrites", "schedule", "codegen", "render")  # parts whose functions keep nothing but results


def all_objects() -> list[Any]:
    """Returns the objects that the collector knows, and the frozen ones: picograd's own functions are among these."""
    gc.unfreeze()
    found = gc.get_objects()
    gc.freeze()
    return found


class Caches:
    """The caches of picograd's pure functions, its plans and its kernels, as far as they are loaded."""

    def __init__(self) -> None:
        self.num_modules = 0
        self.functions: list[Any] = []

    def forget(self) -> None:
        """Empties them."""
        if self.num_modules != len(sys.modules):
            self._find()
        for function in self.functions:
            function.cache_clear()
        if "picograd.engine.realize" not in sys.modules:
            return
        sys.modules["picograd.engine.realize"]._plans.clear()
        for compiler in sys.modules["picograd.engine.devices"]._compilers.values():
            compiler._made, compiler._by_entry, compiler.entries = {}, {}, {}

    def _find(self) -> None:
        """Finds them; more may come with a module that is loaded later."""
        # NOTE: not isinstance, which asks the object: lazy ones of libraries warn then, and a warning is an error here.
        parts = tuple(f"picograd.{part}." for part in PURE)
        self.num_modules = len(sys.modules)
        wrapped = [one for one in all_objects() if type(one) is functools._lru_cache_wrapper]
        self.functions = [one for one in wrapped if str(one.__module__).startswith(parts)]
