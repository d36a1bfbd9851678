"""Reverse mode: the gradient of one Op with respect to leaves, as a graph.

In:    a root, the gradient that arrives at it, the LEAF Ops asked for
Out:   for each leaf that the root depends on, its gradient
Next:  picograd/autodiff/jvp.py
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.reverse import reverse
from picograd.errors import GradientError
from picograd.ir.op import Op
from picograd.ir.pattern import PatternMatcher


def gradient(
    root: Op,
    seed: Op,
    leaves: Iterable[Op],
    rules: PatternMatcher = chain_rules,
    constant: Collection[Op] = frozenset(),
) -> dict[Op, Op]:
    """Returns d<root, seed> / d leaf for each leaf.

    Args:
      root:      any shape, float
      seed:      shape of root: the gradient that arrives there (ones for a scalar)
      leaves:    LEAF Ops; one in the middle of the graph collects its gradient and passes it on
      rules:     the derivative table
      constant:  Ops known not to depend on the leaves: the graph below is not looked at

    Returns:   leaf -> gradient, of its shape and dtype; a leaf that root does not depend on is missing

    Raises:
      GradientError: an Op between root and a leaf has no row in `rules`.

    >>> x = Op(OpCode.LEAF, dtypes.float32, (const(3.0, dtypes.float32),), "x")
    >>> gradient(x + x, const(1.0, dtypes.float32), [x])[x]
    <ADD float32 ()>
    """
    if seed.shape != root.shape:
        raise GradientError(f"backward: the gradient given has shape {seed.shape}, the result {root.shape}.")
    return reverse({root: seed}, set(leaves), rules, constant)
