"""Forward mode: how roots change along given tangents, from the same table as reverse mode.

In:    roots, and the tangents of some Ops
Out:   for each root its tangent, or None where it does not change
Next:  picograd/autodiff/later.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.forward import forward
from picograd.errors import GradientError
from picograd.ir.op import Op
from picograd.ir.pattern import PatternMatcher


def jvp(roots: Iterable[Op], tangents: Mapping[Op, Op], rules: PatternMatcher = chain_rules) -> list[Op | None]:
    """Returns d root / d x * tangent of x, summed over the Ops x in `tangents`.

    Args:
      roots:     any shapes
      tangents:  Op -> its tangent, of its shape and dtype; the graph below such an Op is not looked at
      rules:     the derivative table

    Raises:
      GradientError: an Op that changes has no row in `rules`.

    >>> x = Op(OpCode.BUFFER, dtypes.float32, (), ("x", ()))
    >>> jvp([x * x], {x: const(1.0, dtypes.float32)})
    [<ADD float32 ()>]
    """
    for op, tangent in tangents.items():
        if tangent.shape != op.shape or tangent.dtype is not op.dtype:
            raise GradientError(f"jvp: the tangent is {tangent.dtype} {tangent.shape}, its Op {op.dtype} {op.shape}.")
    return forward(list(roots), tangents, rules)
