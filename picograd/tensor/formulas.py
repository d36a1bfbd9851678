"""Functions whose graphs are made when their plan is, where nobody looks at graphs before.

In:    a function of Ops, and its operands
Out:   `by_formula`
Called by: optim/optimizer.py, nn/functions/.    Next: picograd/tensor/build.py
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from picograd.ir import formula
from picograd.ir.formula import Kind
from picograd.ir.op import Op
from picograd.tensor.cell import trace


def by_formula(
    function: Callable[..., Sequence[Op]], options: Hashable, operands: Sequence[Op | float], kinds: tuple[Kind, ...]
) -> Sequence[Op]:
    """Returns function(options, *operands), as graphs that are made later: in a trace, which is read, now.

    Args:
      kinds:  dtype and shape of each result
    """
    if trace.get() is None and not formula.at_once.get():
        return formula.by_formula(function, options, operands, kinds)
    return function(options, *operands)
