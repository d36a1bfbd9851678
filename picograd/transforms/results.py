"""Results of a traced function: the Tensors it returns, and gradients in `.grad`.

In:    the Tensors that a trace returned; the leaves at the beginning of a trace, and at its end; memory
Out:   `recipes_of` the results, and the Tensors whose values the plan is to compute;  `TraceOfGradients`; its
       `found(...)` is `Collected`;  `Returned`: both, by which a replay makes results of memory

A result that is an argument, a parameter or a view of one shares its storage, as without jit; so do results that are
views of one another. All other results have memory of their own.

`.grad` is a place with a tensor or None. In a trace backward() finds it empty, and the gradient that it leaves there is a
result of the plan, which a replay adds to the present one. Only a function that reads `.grad` before it has
set it to None depends on the earlier gradient: then the same tensor, or None, must be there at each call. If a parameter is
written after its gradient was made, as by step(), the gradient is used up: storing it would cost memory in every
training step, so reading it later is an error, even if other gradients were added to it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from operator import attrgetter, is_not
from typing import Any

from picograd.control.structure import PLACE, mapped
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.record import Record
from picograd.tensor.cell import Cell, Held, Trace, View
from picograd.tensor.core import TensorCore
from picograd.tensor.gradients import UsedUp
from picograd.tensor.tensor import Tensor
from picograd.tensor.unasked import leaf_tensors

# ---- results ----
GRADIENTS = (OpCode.LEAF, OpCode.DETACH)


class Recipe(Record, eq=False):
    """The making of one result.

    source:  number of a result of the plan, or of an argument; or a tensor that was made before the function ran
    is_arg:  the source is an argument
    view:    a view of the source; None: its value
    """

    source: int | Tensor
    is_arg: bool = False
    view: View | None = None

    @property
    def form(self) -> Hashable:
        """The part that two traces must agree on."""
        source = self.source if isinstance(self.source, int) else (self.source.cell, self.source.steps)
        return source, self.is_arg, self.view


def recipes_of(
    leaves: Sequence[Tensor], stand_ins: Sequence[Tensor], donated: Collection[int], watch: Trace
) -> tuple[tuple[Recipe, ...] | None, list[Tensor]]:
    """Returns a recipe for each result, None if all are values of their own, and the tensors that the plan computes."""
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
    """True for shapes and views with a symbolic integer, whose value may differ at each call."""
    return isinstance(part, Op) or isinstance(part, tuple) and any(map(_is_symbolic, part))


def _collects(tensor: Tensor) -> bool:
    """True if a tensor made before collects gradients: when returned it is itself, not a view of its storage."""
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


# ---- gradients ----
GRAD, PUT_GRAD = attrgetter("_grad"), vars(TensorCore)["_grad"].__set__  # no call of Python's for each parameter


class Collected(Record):
    """Changes of `.grad` of some leaves, made at each call.

    looked:   leaves that must have, before a call, one of
    were:     these tensors, or None
    added:    leaves to whose gradient one of the plan is added, in the order of its results
    stored:   leaves whose gradient one of the plan replaces; these results come next
    put:      leaves that have, after a call, one of
    values:   these: None, a tensor made before, or a UsedUp
    """

    looked: tuple[Any, ...] = ()
    were: tuple[Any, ...] = ()
    added: tuple[Any, ...] = ()
    stored: tuple[Any, ...] = ()
    put: tuple[Any, ...] = ()
    values: tuple[Any, ...] = ()

    @property
    def takes_results(self) -> bool:
        """True if some results of a run are gradients."""
        return bool(self.added or self.stored)

    @property
    def depends(self) -> bool:
        """True if the present `.grad` decides whether this fits."""
        return bool(self.looked)

    def fits(self) -> bool:
        """Returns whether the gradients that the function read are there."""
        return not any(map(is_not, map(GRAD, self.looked), self.were))

    def arrive(self, results: list[Tensor]) -> Iterator[Tensor]:
        """Stores the gradients of a run, which are the last of its results; returns the other results."""
        first = len(results) - len(self.added) - len(self.stored)
        grads = results[first:]
        for leaf, grad in zip(self.added, grads):
            if leaf._grad is None:
                leaf._grad = grad
            elif type(leaf._grad) is not UsedUp:
                leaf._grad.write("backward", leaf._grad.read() + grad.read())
        for leaf, grad in zip(self.stored, grads[len(self.added) :]):
            leaf._grad = grad
        self.leave()
        return iter(results[:first])

    def leave(self) -> None:
        """Puts the values that no run replaces in `.grad`."""
        deque(map(PUT_GRAD, self.put, self.values), 0)


def same_collected(first: Collected | None, second: Collected | None) -> bool:
    """Returns whether two traces change `.grad` in the same way."""
    if first is None or second is None:
        return first is second
    return _ids(first) == _ids(second)


def _ids(collected: Collected) -> list[Any]:
    values = [UsedUp if type(value) is UsedUp else value for value in collected.values]
    parts = (collected.looked, collected.were, collected.added, collected.stored, collected.put, values)
    return [[id(one) for one in part] for part in parts]


class TraceOfGradients:
    """A trace's effect on `.grad` of the leaves that existed when it began."""

    def __init__(self) -> None:
        self._leaves: list[Any] = [*leaf_tensors.values()]
        self._before: dict[int, Any] = {id(leaf): leaf._grad for leaf in self._leaves}
        self._looked: dict[int, Any] = {}
        self._forgotten: set[int] = set()
        for leaf in self._leaves:
            leaf._grad = None

    def on_look(self, leaf: Any) -> None:
        """Called before `.grad` is read: puts the gradient from before the trace back, plus the sum that was added."""
        place = id(leaf)
        if place in self._looked or place in self._forgotten or place not in self._before:
            return
        before = self._before[place]
        if type(before) is UsedUp:
            raise before.error()
        self._looked[place], made = leaf, leaf._grad
        if before is not None:
            leaf._grad = before
            if made is not None:
                before.write("backward", before.read() + made.read())

    def on_forget(self, leaf: Any) -> None:
        """Called before `.grad` is replaced."""
        if id(leaf) in self._before and id(leaf) not in self._looked:
            self._forgotten.add(id(leaf))

    def found(
        self, is_made: Callable[[Cell], bool], is_used_up: Callable[[Cell, Cell], bool], used_up: Callable[[Any], UsedUp]
    ) -> tuple[Collected | None, list[Tensor]]:
        """Returns the effect that a replay has, and the gradients that it needs.

        Args:
          is_made:     whether the trace made a cell
          is_used_up:  whether a leaf's cell was written since the cell of its gradient was
          used_up:     returns the UsedUp of a leaf
        """
        added: list[tuple[Any, Tensor]] = []
        stored: list[tuple[Any, Tensor]] = []
        put: list[tuple[Any, Any]] = []
        for leaf in self._leaves:
            place, grad = id(leaf), leaf._grad
            is_known = place in self._looked or place in self._forgotten
            if grad is (self._before[place] if place in self._looked else None) and place not in self._forgotten:
                continue
            if grad is None or type(grad) is UsedUp or not is_made(grad.cell):
                put.append((leaf, grad))
            elif is_used_up(leaf.cell, grad.cell):
                put.append((leaf, used_up(leaf)))
            else:
                (stored if is_known else added).append((leaf, grad))
        looked, were = tuple(self._looked.values()), tuple(self._before[place] for place in self._looked)
        parts = [tuple(leaf for leaf, _ in pairs) for pairs in (added, stored, put)]
        collected = Collected(looked, were, parts[0], parts[1], parts[2], tuple(value for _, value in put))
        is_any = looked or added or stored or put
        return collected if is_any else None, [grad for _, grad in (*added, *stored)]

    def restore(self) -> None:
        """Puts everything back."""
        for leaf in self._leaves:
            leaf._grad = self._before[id(leaf)]


# ---- results of a call ----
class Returned:
    """The way from the memory that a run has filled to the function's return value and `.grad` of leaves.

    container:  the returned object, with a mark for each Tensor
    recipes:    recipes of these; None if all are values of their own
    collected:  changes of `.grad` of leaves, or None
    is_single:  True if a single Tensor is returned, a value of its own, and no gradient
    """

    def __init__(self, container: Any, recipes: tuple[Recipe, ...] | None, collected: Collected | None):
        self.container, self.recipes, self.collected = container, recipes, collected
        grads_come = collected is not None and collected.takes_results
        self.is_single = container is PLACE and recipes is None and not grads_come

    @property
    def makes_new(self) -> bool:
        """True if a call returns new Tensors and does nothing else."""
        return self.recipes is None and self.collected is None

    def hand_out(self, held: Sequence[Held], args: Sequence[Tensor]) -> Any:
        """Makes results of memory as the function returns them, and puts gradients in `.grad`.

        Args:
          held:  memory of the returned values, gradients last
          args:  the call's
        """
        collected = self.collected
        if self.is_single:
            if collected is not None:
                collected.leave()
            return Tensor.from_memory(held[0], held[0][0].device)
        values = results_of(self.recipes, held, args)
        if collected is not None:
            values = collected.arrive([*values])
        return mapped(self.container, lambda _: next(values))
