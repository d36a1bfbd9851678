"""Numbers that change from run to run: constants of a graph that its plan takes as inputs, so that it is made once.

In:    the Template of a graph whose plan is not there
Out:   `Scalars`: the same form, with the constants that were seen to change among its leaves
Called by: engine/realize.py.    Next: picograd/engine/kept_plans.py

    for step in range(1000):
        p -= (1 - step / 1000) * p.grad         # another graph at each step, by one number

The first graph of a form is compiled with its numbers. The second, where some numbers differ, is compiled with these as
inputs, and serves whatever follows. A number that is an exponent stays: x ** 2 is compiled otherwise than x ** 2.1.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from picograd.engine.plan import Template
from picograd.ir.op import Op
from picograd.ir.opcode import MOVEMENT, OpCode

MOST_INPUTS = 32  # of one form: where more numbers change they are data, and a user keeps them in a Tensor


@dataclass
class _Seen:
    """What is known of a form.

    values:   of its constants, in the first graph
    changed:  which of them have been seen to change
    """

    values: tuple[float, ...]
    changed: frozenset[int] = frozenset()


class Scalars:
    """The forms of graphs seen so far, whatever float constants they have; threads may ask at once."""

    def __init__(self, most_forms: int = 1024) -> None:
        self.most_forms = most_forms
        self._seen: dict[Hashable, _Seen] = {}
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):  # a child must not start with the lock held by a thread it does not have
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    def freed(self, form: Template, device: str, stored: Callable[[Op], Op]) -> Template:
        """Returns a form with the constants that change as inputs; `form` itself where none is known to.

        Args:
          stored:  gives a BUFFER Op that holds a constant
        """
        constants = _constants(form)
        values = tuple(op.arg for op in constants)
        places = {op: f"number {i}" for i, op in enumerate(constants)}
        loose = tuple(places.get(op, part) for op, part in zip(form.order, form.key))  # type: ignore[call-overload]
        key = (device, loose, form.key[-1])  # type: ignore[index]
        with self._lock:
            changed = self._changed(key, values)
        if not changed:
            return form
        leaves = {constants[i]: stored(constants[i]) for i in sorted(changed)}
        kept = tuple(None if i in changed else _bits(value) for i, value in enumerate(values))
        buffers = (*form.buffers, *(leaf.arg[0] for leaf in leaves.values()))
        return replace(form, key=(key, kept), leaves={**form.leaves, **leaves}, buffers=buffers)

    def _changed(self, key: Hashable, values: tuple[float, ...]) -> frozenset[int]:
        """Returns which constants of a form have changed so far, these values counted; none of a form that is new."""
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= self.most_forms:
                del self._seen[next(iter(self._seen))]
            self._seen[key] = _Seen(values)
            return frozenset()
        differ = {i for i, (a, b) in enumerate(zip(values, seen.values)) if _bits(a) != _bits(b)}
        if len(seen.changed | differ) > MOST_INPUTS:
            return frozenset()
        seen.changed |= differ
        return seen.changed


def _constants(form: Template) -> list[Op]:
    """Returns the float constants of a form that may be inputs."""
    exponents = {_source(op.src[1]) for op in form.order if op.code is OpCode.POW and op not in form.leaves}
    return [
        op for op in form.order if op.code is OpCode.CONST and op.dtype.is_float and op not in exponents
    ]  # fmt: skip


def _source(op: Op) -> Op:
    while op.code in MOVEMENT:
        op = op.src[0]
    return op


def _bits(value: float) -> bytes:
    return struct.pack("d", value)  # -0.0 is not 0.0, and NaN is NaN
