"""Axes by name: "b (h w) c -> b c h w" as in einops, to move, repeat and reduce them.

parse -> plan -> apply: no graph is built before the plan is complete.
"""

from __future__ import annotations

import re
from typing import Any

from picograd.errors import ArgumentError, ShapeError
from picograd.ir.op import Dim, Shape
from picograd.ir.shape import numel
from picograd.ir.symbolic import floordiv, mod
from picograd.record import Record
from picograd.tensor.arguments import check_one_of
from picograd.tensor.build import whole
from picograd.tensor.core import T

__all__ = [
    "rearrange", "reduce",
]  # fmt: skip

Groups = tuple[tuple[str, ...], ...]
MERGED_DOTS = "(...)"  # all axes without a name, as part of one axis
TOKEN = re.compile(r"\(|\)|\.\.\.|…|[A-Za-z_]\w*|1(?!\w)|\S+")
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "any", "all")


class Plan(Record):
    """A pattern applied to one shape, as the steps of the operation.

    split:     shape with one axis per name on the left
    reduced:   axes of `split` that the right does not name
    order:     order of the remaining axes
    new:       (position, length) of repeated axes, in rising order
    shape:     shape of the result
    """

    split: Shape
    reduced: tuple[int, ...]
    order: tuple[int, ...]
    new: tuple[tuple[int, Dim], ...]
    shape: Shape


def rearrange(self: T, pattern: str, **lengths: int) -> T:
    """Returns a view with axes moved, split and merged by a pattern; axes named only on the right are repeated.

    A name is an axis, (a b) is one axis in which b changes faster, ... all axes without names, 1 an axis of length 1.

    Args:
      pattern: the old and the new axes, separated by ->
      lengths: lengths of named axes that do not follow from the shape: all but one of each (), and repeated ones

    Raises:
      ArgumentError: the pattern has a syntax error, or leaves out an axis.
      ShapeError:    the shape does not match it.

    >>> Tensor([[1, 2], [3, 4]]).rearrange("h w -> (w h)")
    Tensor([1, 3, 2, 4])
    >>> Tensor([1, 2, 3, 4]).rearrange("(a b) -> b a", a=2).tolist()
    [[1, 3], [2, 4]]
    >>> Tensor([1, 2]).rearrange("a -> a n", n=2).tolist()
    [[1, 1], [2, 2]]
    """
    plan = _plan("rearrange", pattern, self.op.shape, lengths)
    if plan.reduced:
        raise ArgumentError(f'rearrange: "{pattern}" drops an axis on its right side.', hint='x.reduce(pattern, "sum")')
    return _arranged(self, plan)


def reduce(self: T, pattern: str, reduction: str, **lengths: int) -> T:
    """Reduces the axes that the right of a pattern leaves out; arranges the others as rearrange does.

    Args:
      pattern:    the old and the new axes, separated by ->
      reduction:  "sum", "mean", "max", "min", "prod", "any" or "all"
      lengths:    lengths of named axes that do not follow from the shape

    Raises:
      ArgumentError: a syntax error in the pattern, or an unknown reduction.
      ShapeError:    the shape does not match it.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).reduce("(h k) w -> h w", "mean", k=2).tolist()
    [[2.0, 3.0]]
    """
    check_one_of("reduce", "the reduction", reduction, REDUCTIONS)
    plan = _plan("reduce", pattern, self.op.shape, lengths)
    return _arranged(self, plan, {"max": "amax", "min": "amin"}.get(reduction, reduction))


def _arranged(self: T, plan: Plan, reduction: str = "") -> T:
    view = self.reshape(plan.split)
    if plan.reduced:
        view = getattr(view, reduction)(plan.reduced)
    view = view.permute(plan.order)
    for place, length in plan.new:
        view = view.unsqueeze(place)
        view = view.expand((*view.shape[:place], length, *view.shape[place + 1 :]))
    return view.reshape(plan.shape)


# ---- plan ----
def _plan(function: str, pattern: str, shape: Shape, given: dict[str, int]) -> Plan:
    """Returns a pattern applied to one shape."""
    left, right = _sides(function, pattern)
    lengths: dict[str, Dim] = {name: whole(function, name, length) for name, length in given.items()}
    left, right = _without_dots(function, pattern, left, right, shape)
    names, wanted = ([name for group in side for name in group] for side in (left, right))
    for name in (*names, *wanted):
        if names.count(name) > 1 or wanted.count(name) > 1:
            raise ArgumentError(f'{function}: "{pattern}" names axis {name} twice on one side.')
    for group, dim in zip(left, shape):
        _solve(function, pattern, group, dim, lengths)
    for name in (*names, *wanted, *given):
        if name not in lengths or name not in names + wanted:
            said = "has no length" if name not in lengths else "is not in it"
            raise ArgumentError(f'{function}: "{pattern}": axis {name} {said}.', hint=f"x.{function}(pattern, {name}=2)")
    kept = [name for name in names if name in wanted]
    return Plan(
        tuple(lengths[name] for name in names),
        tuple(axis for axis, name in enumerate(names) if name not in wanted),
        tuple(kept.index(name) for name in wanted if name in names),
        tuple((place, lengths[name]) for place, name in enumerate(wanted) if name not in names),
        tuple(numel(tuple(lengths[name] for name in group)) for group in right),
    )


def _solve(function: str, pattern: str, group: tuple[str, ...], dim: Dim, lengths: dict[str, Dim]) -> None:
    """Computes the unknown length of a group, if there is one, and checks that all multiply to the axis' length."""
    unknown = [name for name in group if name not in lengths]
    product = numel(tuple(lengths[name] for name in group if name in lengths))
    if len(unknown) == 1 and product != 0 and mod(dim, product) == 0:
        lengths[unknown[0]] = floordiv(dim, product)
    elif len(unknown) > 1:
        raise ArgumentError(f'{function}: "{pattern}": of ({" ".join(group)}) all lengths but one must be given.')
    elif product != dim:
        shown = " ".join(f"{name}={lengths[name]}" if name in lengths else name for name in group) or "1"
        raise ShapeError(f'{function}: "{pattern}": an axis of length {dim} is not ({shown}).')


# ---- parse ----
def _sides(function: str, pattern: Any) -> tuple[Groups, Groups]:
    if not isinstance(pattern, str) or pattern.count("->") != 1:
        raise ArgumentError(f'{function}: a pattern has two sides, as in "h w -> w h"; got {pattern!r}.')
    left, right = (_groups(function, pattern, side) for side in pattern.split("->"))
    return left, right


def _groups(function: str, pattern: str, side: str) -> Groups:
    """Returns the axes of one side, each as a list of names."""
    groups: list[tuple[str, ...]] = []
    inside: list[str] | None = None
    for token in TOKEN.findall(side.replace("(", " ( ").replace(")", " ) ")):
        token = "..." if token == "…" else token
        if token == "(" and inside is None:
            inside = []
        elif token == ")" and inside is not None:
            groups.append(tuple(inside))
            inside = None
        elif token == "..." or token == "1" or token.isidentifier():
            names = () if token == "1" else (MERGED_DOTS if token == "..." and inside is not None else token,)
            if inside is None:
                groups.append(names)
            else:
                inside += names
        else:
            raise ArgumentError(f'{function}: "{pattern}": {token!r} is not a name, 1, ... or pair of ().')
    if inside is not None:
        raise ArgumentError(f'{function}: "{pattern}": a ( has no closing ).')
    return tuple(groups)


def _without_dots(function: str, pattern: str, left: Groups, right: Groups, shape: Shape) -> tuple[Groups, Groups]:
    """Returns both sides with ... replaced by its axes."""
    count = len(shape) - len(left) + 1 if ("...",) in left else 0
    dots = tuple(f"...{i}" for i in range(count))
    if count < 0 or (("...",) not in left and len(left) != len(shape)):
        raise ShapeError(f'{function}: "{pattern}" has {len(left)} axes on its left side, the shape is {shape}.')
    if any(MERGED_DOTS in group for group in left) or (
        any("..." in group or MERGED_DOTS in group for group in right) and ("...",) not in left
    ):
        raise ArgumentError(f'{function}: "{pattern}": ... must be an axis of its own on the left.')
    sides = []
    for side in (left, right):
        groups: list[tuple[str, ...]] = []
        for group in side:
            if group == ("...",):
                groups += [(name,) for name in dots]
            else:
                groups.append(tuple(n for name in group for n in (dots if name == MERGED_DOTS else (name,))))
        sides.append(tuple(groups))
    return sides[0], sides[1]
