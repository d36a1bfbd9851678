"""Boxes of a drawing for several Ops: a function, random numbers, a module with its parameters.

In:    a graph, names
Out:   `Folds`, `folds_of`
Called by: tools/view.py.    Next: picograd/tools/layout.py

An Op that the user made has that line; an intermediate Op of a function has none, and is a part of the box that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from picograd.ir.op import Op, toposort
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode
from picograd.nn.module import Module
from picograd.record import Record
from picograd.tensor.tensor import Tensor

KEPT = SEVERAL_RESULTS | {OpCode.LEAF, OpCode.OUTPUT, OpCode.BUFFER}  # never random, never a part of another box
NAMES_MAX = 3  # of Ops in a title
BITS = "bits_of"  # the function that draws


class Folds(Record):
    """Ops that are drawn within other boxes.

    random:  Ops made of random bits and constants alone: boxes without sources
    inside:  Ops that are a part of the box that reads them
    owners:  by parameter the module that it is drawn in, as "0 Linear"
    names:   by Op, those of the user
    """

    random: frozenset[Op] = frozenset()
    inside: frozenset[Op] = frozenset()
    owners: Mapping[Op, str] = {}
    names: Mapping[Op, str] = {}

    def below(self, op: Op) -> Op:
        """Returns the operand of a broadcast, or the Op itself: broadcasts are no boxes."""
        while op not in self.names and is_broadcast(op):
            op = op.src[0]
        return op

    def parts(self, op: Op) -> list[Op]:
        """Returns the Ops within a box, itself last."""
        return toposort([op], sources=lambda each: [s for s in map(self.below, each.src) if s in self.inside])

    def title(self, op: Op, own: str) -> str | None:
        """Returns the title of a box of several Ops, or with parameters; None for others.

        Args:
          own:  the name of the Op alone
        """
        if op in self.random:
            return "RANDOM"
        parts = self.parts(op)
        owners = dict.fromkeys(self.owners[s] for part in parts for s in map(self.below, part.src) if s in self.owners)
        if len(owners) == 1:
            return next(iter(owners))
        names = [name_of(part) for part in parts[:-1]]
        if not names:
            return None
        shown = names if len(names) <= NAMES_MAX else [*names[:NAMES_MAX], "..."]
        return f"{own} of {', '.join(shown)}"


def folds_of(root: Op, names: Mapping[Op, str], model: Module | None) -> Folds:
    """Returns the Ops of a graph that are drawn within other boxes."""
    order = toposort([root])
    random = _random(order)
    own = {root, *names, *random}
    inside = {op for op in order if op.src and not op.lines and op.code not in KEPT and not is_broadcast(op)} - own
    return Folds(frozenset(random), frozenset(inside), {} if model is None else _owners(model), names)


def _random(order: list[Op]) -> set[Op]:
    """Returns the Ops that are made of random bits, constants, and the keys of generators alone."""
    constant, random = set[Op](), set[Op]()
    for op in order:
        others = [s for s in op.src if s not in constant]
        if op.code in (OpCode.CONST, OpCode.IOTA) or (op.src and not others):
            constant.add(op)
            continue
        draws = op.code is OpCode.THREEFRY or (op.code is OpCode.FORMULA and name_of(op) == BITS)
        may_be = op.code is OpCode.FORMULA or op.code not in KEPT
        if draws or (others and may_be and random.issuperset(others)):
            random.add(op)
    return random


def _owners(model: Module) -> dict[Op, str]:
    """Returns for each parameter the module that has it."""
    found: dict[Op, str] = {}
    for path, module in model.named_modules():
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            found[tensor.op] = f"{path} {type(module).__name__}".strip()
    return found


def is_broadcast(op: Op) -> bool:
    """True for an Op that repeats its source, or adds or removes axes of length 1."""
    if op.code is OpCode.RESHAPE:
        return [dim for dim in op.shape if dim != 1] == [dim for dim in op.src[0].shape if dim != 1]
    return op.code is OpCode.EXPAND


def name_of(op: Op) -> str:
    """Returns the opcode of an Op, or the name of its function."""
    formula = op.src[0] if op.code is OpCode.OUTPUT else op
    if formula.code is not OpCode.FORMULA:
        return op.code.name
    options = formula.arg.options
    is_called = isinstance(options, tuple) and options and callable(options[0])
    function: Any = options[0] if is_called else formula.arg.function
    return str(getattr(function, "__name__", "FORMULA")).strip("_").removesuffix("_op")


def names_of(names: Mapping[str, Tensor] | Module | None) -> Mapping[str, Tensor]:
    """Returns the names that the user gave: those of a model are its parameters'."""
    return dict(names.named_parameters()) if isinstance(names, Module) else names or {}
