"""What probabilities and weights may be: numbers are looked at when they are given, elements of tensors when computed.

In:    numbers; Ops of floats
Out:   `probability`, `probabilities`, `weights`, `not_all_zero`
Next:  picograd/tensor/creation/distributions.py
"""

from __future__ import annotations

import math

from picograd import dtype as dtypes
from picograd.errors import ArgumentError
from picograd.ir.build import both, compare, where
from picograd.ir.checks import Site, checked
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.arguments import number
from picograd.tensor.build import broadcast_to


def probability(function: str, name: str, p: float) -> float:
    """Returns an argument that must be a probability.

    Raises:
      ArgumentTypeError: it is no number.
      ArgumentError:     it is not in [0, 1].
    """
    if not 0.0 <= number(function, name, p) <= 1.0:  # NaN is not either
        raise ArgumentError(f"{function}: {name} must be a probability, got {p}.")
    return p


def probabilities(function: str, op: Op, hint: str | None = None) -> Op:
    """Returns `op`; when it is computed, an element outside of [0, 1], or NaN, is an error with a hint."""
    inside = both(compare(OpCode.CMPLE, op.filled(0), op), compare(OpCode.CMPLE, op, op.filled(1)))
    return _guarded(op, inside, f"{function}: a probability is not in [0, 1].", hint)


def weights(function: str, op: Op) -> Op:
    """Returns `op`; when it is computed, an element that is negative, infinite or NaN is an error."""
    inside = both(compare(OpCode.CMPLE, op.filled(0), op), compare(OpCode.CMPLT, op, op.filled(math.inf)))
    return _guarded(op, inside, f"{function}: a weight is negative, infinite or NaN.")


def not_all_zero(function: str, op: Op, total: Op) -> Op:
    """Returns `op`, whose rows have sums of weights (..., 1): when it is computed, a sum not above 0 is an error."""
    return _guarded(op, compare(OpCode.CMPLT, total.filled(0), total), f"{function}: all weights of a row are 0.")


def _guarded(op: Op, inside: Op, fact: str, hint: str | None = None) -> Op:
    """Returns `op`, with an error of `fact` and `hint` where something broadcast to its shape is not `inside`."""
    wrong = where(inside, filled(0, dtypes.int64, inside.shape), 1)
    passed = checked(wrong, 1, Site(fact, hint, of_values=True))
    return where(broadcast_to(compare(OpCode.CMPEQ, passed, 0), op.shape), op, 0)
