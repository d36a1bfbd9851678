"""Arguments whose lengths change from call to call: one trace serves all lengths within some bounds.

In:    the arguments of each call with new lengths
Out:   `AnyLength`: from the third call on, their shapes with the symbolic integers that engine/lengths.py finds
       `shown_to_users`: a block in which the function's own code gets symbolic integers for lengths

    for episode in episodes:                    # 70 steps, then 90, then 65
        step(states, actions, returns)          # the third is traced for all n from 64 to 4095: (n, 4), (n,), (n,)

The first two lengths have captures and plans of their own; for one of them a second trace must have shown that
the function changes nothing in Python, because a symbolic trace that fails would change it once more. Then
tensors of symbolic shapes stand in for the arguments, and len(x) and x.shape return a `Length` without
value: + - * make others, and a comparison is decided by the bounds. If Python needs the number itself, as in
range(len(x)) or n % 8, an internal error has the function traced for each length from then on. So it is
if picograd has no symbolic form of an operation. Code that could mistake a Length for something else than a number,
because it checks types or catches errors, is not tried.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from inspect import unwrap
from types import CodeType
from typing import Any, cast

from picograd.control.closure import FunctionTrace
from picograd.engine.known import needs_numbers
from picograd.engine.lengths import Lengths, Sample, shape_of, with_dims
from picograd.engine.plan import Template, unbound
from picograd.errors import UnsupportedOp
from picograd.interrupts import Latest, whole_context
from picograd.ir.op import Dim, Op, Shape, length_name
from picograd.ir.symbolic import dim_value
from picograd.record import replace
from picograd.tensor.core import ShownLengths, TensorCore
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length
from picograd.transforms.bytecode_reads import functions_of, names_of
from picograd.transforms.capture import Recording
from picograd.transforms.containers import Arguments

SIZE = unwrap(TensorCore.size).__code__
FAMILIES_MAX = 64  # forms of arguments of one function, without lengths
KINDS = frozenset({"isinstance", "issubclass", "type", "suppress"})  # see `_asks_for_kinds`


class AnyLength:
    """The lengths that a function has been called with, for arguments that differ in nothing else."""

    def __init__(self) -> None:
        self._known: Latest[Hashable, Lengths] = Latest(FAMILIES_MAX)
        self._checked: set[Hashable] = set()

    def free(self, given: Arguments) -> None:
        """Makes changing lengths of arguments symbolic, in `shapes`, `variables` and `key`."""
        family, sample = _taken_apart(given.key)
        known = self._known.get(family)
        if known is None:
            known = Lengths(len(sample))
            self._known.put(family, known)
        sizes = known.sizes(sample, "length")
        if sizes is not None and family in self._checked:
            dims = iter(cast("tuple[Dim, ...]", sizes.dims))
            given.shapes = [with_dims(shape, dims) for shape in cast(Any, given.key)[1::3]]
            given.variables, given.key, given.lengths = sizes.values, (family, sizes.key), known

    def note_checked(self, key: Hashable) -> None:
        """Notes that two traces for arguments of a key were the same and changed nothing: more of them do no harm."""
        self._checked &= self._known.keys()
        self._checked.add(_taken_apart(key)[0])


def _taken_apart(key: Hashable) -> tuple[Hashable, Sample]:
    """Returns the key of arguments without lengths, and the lengths."""
    form, *parts = cast(Any, key)
    found = [*map(shape_of, parts[::3])]
    parts[::3] = [rest for rest, _ in found]
    return (form, *parts), tuple([length for _, lengths in found for length in lengths])


def check_symbolic(form: Template, device: str, own: Collection[str]) -> None:
    """Raises UnsupportedOp if graphs need a plan for each length, or have symbolic integers besides `own`."""
    if not form.variables.keys() <= set(own) or needs_numbers(form, device):
        raise UnsupportedOp("jit: this has a plan for each length.")


def check_own(leaves: Sequence[Tensor], stand_ins: Sequence[Tensor], watch: FunctionTrace) -> None:
    """Raises UnsupportedOp if a result of symbolic shape shares the storage of an argument, of state or of a result."""
    others = {tensor.cell for tensor in stand_ins}
    for leaf in leaves:
        cell = leaf.cell
        if any(isinstance(dim, Op) for dim in (*leaf.op.shape, *cell.op.shape)) and (
            cell in others or cell.made_in is not watch
        ):
            raise UnsupportedOp("jit: a view of symbolic length has other storage.")
        others.add(cell)


def unbound_kinds(recording: Recording) -> Recording:
    """Returns a recording without values of symbolic lengths in the shapes of its results."""
    kinds = tuple([(dtype, unbound(shape, {})) for dtype, shape in recording.values.kinds])
    return replace(recording, values=replace(recording.values, kinds=kinds))


# ---- lengths that the function sees ----
@whole_context
def shown_to_users(function: Callable[..., Any], args: Any, kwargs: Any) -> Iterator[None]:
    """Opens a block in which code outside of picograd gets a Length for each symbolic length of a tensor.

    Raises:
      UnsupportedOp: the function could mistake one for something else than a number.
    """
    functions = [called for _, called, _ in functions_of(function, args, kwargs)]
    if any(_asks_for_kinds(called.__code__) for called in functions):
        raise UnsupportedOp("jit: the function asks for types, or catches errors.")
    # Python converts the result of __len__ to an int, so `len` is replaced in modules that mention it.
    spaces = [called.__globals__ for called in functions if "len" in names_of(called.__code__).globals]
    spaces = [*{id(space): space for space in spaces if "len" not in space}.values()]
    try:
        ShownLengths.of = _shown
        for space in spaces:
            space["len"] = _len
        yield
    finally:
        ShownLengths.of = None
        for space in spaces:
            space.pop("len", None)


def _shown(shape: Shape) -> Shape:
    if not any(isinstance(dim, Op) for dim in shape):
        return shape
    frame = sys._getframe(2)
    while frame.f_back is not None and (frame.f_code is SIZE or frame.f_globals.get("__name__") == "picograd.public"):
        frame = frame.f_back
    if not ShownLengths.to(frame):
        return shape
    return tuple([_length(dim) if isinstance(dim, Op) else dim for dim in shape])  # type: ignore[misc]


def _length(dim: Op) -> Length:
    return Length(dim, dim_value(dim, {}), length_name(dim))


def _len(value: Any) -> Any:
    """Returns len(value); a Length for a tensor whose first axis is symbolic."""
    dim = value.op.shape[0] if isinstance(value, TensorCore) and value.op.shape else None
    return _length(dim) if isinstance(dim, Op) else len(value)


@functools.cache
def _asks_for_kinds(code: CodeType) -> bool:
    """True for code that checks types or catches errors, nested functions included."""
    names = names_of(code)
    if KINDS & names.globals or "suppress" in names.attributes:
        return True
    steps = [instruction.opname for instruction in dis.get_instructions(code)]
    catches = any(a == "PUSH_EXC_INFO" and b != "WITH_EXCEPT_START" for a, b in zip(steps, [*steps[1:], ""]))
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return catches or "MATCH_CLASS" in steps or any(map(_asks_for_kinds, inner))
