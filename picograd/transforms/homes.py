"""Where a plan runs that a function was traced into: constants are made there, and nothing is copied between devices.

In:    the graphs of a trace
Out:   the graphs without COPYs of constants; the devices that these were made for
Called by: transforms/jit.py.    Next: picograd/transforms/steps.py
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from picograd.engine.plan import computed_from
from picograd.errors import JitError
from picograd.ir.lines import line_of
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.substitute import substitute


def without_copies(roots: Sequence[Op], given: Collection[Op], name: str) -> tuple[list[Op], set[str]]:
    """Returns graphs whose constants are made where the plan runs, and the devices they name.

    pg.ones(3, device="CUDA") is a COPY where another device is the default one; constants alone live everywhere.

    Args:
      given:  what arguments and state held before the call
      name:   of the function

    Raises:
      JitError: what is copied is no constant.
    """
    reads, made = set(given), {op: op for op in given}
    anew = computed_from(given, roots)
    for op in toposort(roots, stop=made):
        if op.code is OpCode.BUFFER or any(s in reads for s in op.src):
            reads.add(op)
        if op.code is not OpCode.COPY or op in made:
            continue
        if op not in reads:
            made[op] = substitute([op.src[0]], made)[0]
        elif op in anew or op.realized is None:
            raise JitError(
                f"jit: {name} copies a tensor of shape {op.shape} to {op.arg}; a plan runs on one device.",
                "copy what it takes before the call, and what it returns after it.",
                line_of(op),
            )
    named = {op.arg for op in made.keys() - reads}
    return (substitute(roots, made) if named else list(roots)), named
