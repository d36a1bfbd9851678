"""Values that jitted functions computed from tensors that require grad: no graph leads back from them.

In:    memory of a result
Out:   `Graphless`, that memory with the name of the function;  `graphless_in` graphs;  `like_its_sources`, `named_anew`

Without jit a gradient would flow on from such a value. A backward() that comes upon one would leave that part out, so it
is an error there; detach(), and reading it under no_grad, say that no gradient is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, cast

from picograd.ir.op import Buffer, Op
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode
from picograd.living import LivingSet


class Graphless(Buffer):
    """Memory of such a value.

    function:  the name of the jitted function
    living:    those that there are
    """

    __slots__ = ("function",)
    function: str
    living: ClassVar[LivingSet[Graphless]] = LivingSet()

    @classmethod
    def of(cls, buffer: Buffer, function: str) -> Graphless:
        """Returns the memory of a buffer as that of a result of a jitted function."""
        found = cls(buffer.device, buffer.dtype, buffer.numel, buffer.memory)
        found.function = function
        cls.living.add(found)
        return found


def named_anew(buffer: Buffer) -> Buffer:
    """Returns the memory of a buffer as another buffer."""
    if type(buffer) is Graphless:
        return Graphless.of(buffer, buffer.function)
    return Buffer(buffer.device, buffer.dtype, buffer.numel, buffer.memory)


def is_graphless(op: Op) -> bool:
    """Returns whether an Op is such a value."""
    return op.code is OpCode.BUFFER and type(op.arg[0]) is Graphless


def graphless_in(roots: Iterable[Op]) -> Graphless | None:
    """Returns the memory of such a value from which a gradient would flow to one of the roots, or None."""
    if not Graphless.living:
        return None
    stack = list(roots)
    seen = set(stack)
    while stack:
        op = stack.pop()
        if op.code is OpCode.DETACH or op.dtype.kind != "f" and op.code not in SEVERAL_RESULTS:
            continue
        if is_graphless(op):
            return cast(Graphless, op.arg[0])
        fresh = [source for source in op.src if source not in seen]
        seen.update(fresh)
        stack += fresh
    return None


def like_its_sources(buffer: Buffer, root: Op, read: Iterable[Buffer]) -> Buffer:
    """Returns the memory of a computed graph, which reads some memory: without a graph if it comes from such a value."""
    if Graphless not in map(type, read):
        return buffer
    source = graphless_in((root,))
    return buffer if source is None else Graphless.of(buffer, source.function)
