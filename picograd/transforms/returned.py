"""How the Tensors that a function returns are made from what its plan has computed.

In:    the Tensors that a trace returned
Out:   `recipes_of` them, and the Tensors whose values the plan is to compute;  `results_of` a run
Called by: transforms/jit.py, transforms/capture.py, transforms/traced.py.    Next: picograd/transforms/collected.py

A result that is an argument, a parameter or a view of one shares its storage, as without jit; so do results that are views
of one another. All other results have memory of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any

from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.record import Record
from picograd.tensor.cell import Cell, Held, Trace, View
from picograd.tensor.core import leaf_tensors
from picograd.tensor.tensor import Tensor

GRADIENTS = (OpCode.LEAF, OpCode.DETACH)


class Recipe(Record, eq=False):
    """How one result is made.

    source:  number of a result of the plan, of an argument, or a tensor made before that the function did not make
    is_arg:  source is an argument
    view:    of the source; None: its value
    """

    source: int | Tensor
    is_arg: bool = False
    view: View | None = None

    @property
    def form(self) -> Hashable:
        """What two traces must agree on."""
        source = self.source if isinstance(self.source, int) else (self.source.cell, self.source.steps)
        return source, self.is_arg, self.view


def recipes_of(
    leaves: Sequence[Tensor], stand_ins: Sequence[Tensor], donated: Collection[int], watch: Trace
) -> tuple[tuple[Recipe, ...] | None, list[Tensor]]:
    """Returns a recipe for each result, None where each is a value of its own, and what the plan is to compute."""
    arguments = {tensor.cell: i for i, tensor in enumerate(stand_ins)}
    counts = Counter(leaf.cell for leaf in leaves)
    shared: dict[Cell, int] = {}
    wanted: list[Tensor] = []
    recipes: list[Recipe] = []
    for leaf in leaves:
        cell, is_fixed = leaf.cell, not _is_symbolic((leaf.op.shape, leaf.cell.op.shape, leaf.steps))
        if is_fixed and cell in arguments and arguments[cell] not in donated:
            recipes.append(Recipe(arguments[cell], True, leaf.steps))
        elif is_fixed and cell not in arguments and cell.made_in is not watch:
            recipes.append(Recipe(leaf if _collects(leaf) else Tensor.from_cell(cell, leaf.steps)))
        elif is_fixed and counts[cell] > 1:
            if cell not in shared:
                shared[cell] = len(wanted)
                wanted.append(Tensor.from_cell(cell))
            recipes.append(Recipe(shared[cell], view=tuple(step for step in leaf.steps if step[0] not in GRADIENTS)))
        else:
            recipes.append(Recipe(len(wanted)))
            wanted.append(leaf)
    is_plain = [recipe.form for recipe in recipes] == [(i, False, None) for i in range(len(recipes))]
    return None if is_plain else tuple(recipes), wanted


def _is_symbolic(part: Any) -> bool:
    """True for shapes and views with a symbolic integer, which is another number at each call."""
    return isinstance(part, Op) or isinstance(part, tuple) and any(map(_is_symbolic, part))


def _collects(tensor: Tensor) -> bool:
    """True where a tensor made before collects gradients: who returns it gives itself, and no view of its storage."""
    return bool(tensor.steps) and tensor.steps[-1][0] is OpCode.LEAF and leaf_tensors.get(tensor.steps[-1][1]) is tensor


def results_of(recipes: Sequence[Recipe] | None, held: Sequence[Held], args: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yields the results of a run."""
    if recipes is None:
        for value in held:
            yield Tensor.from_memory(value, value[0].device)
        return
    shared: dict[int, Tensor] = {}
    for recipe in recipes:
        if isinstance(recipe.source, Tensor):
            tensor = recipe.source
            yield tensor if _collects(tensor) else Tensor.from_cell(tensor.cell, tensor.steps)
        elif recipe.is_arg:
            yield args[recipe.source].viewed_by(recipe.view) if recipe.view else args[recipe.source]
        else:
            if recipe.source not in shared:
                value = held[recipe.source]
                shared[recipe.source] = Tensor.from_memory(value, value[0].device)
            whole = shared[recipe.source]
            yield whole.viewed_by(recipe.view) if recipe.view else whole
