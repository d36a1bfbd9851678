"""Sums of products over named axes, in an order that a greedy choice finds cheap; every pair is one MATMUL.

In:    an equation and operands
Out:   `einsum`, `tensordot`; `Equation`, `contract`
Next:  picograd/tensor/reductions/measures.py

A label names an axis: the ordinal of a letter, a number of the sublist format, or a negative number for an axis that an
ellipsis stands for, counted from the last.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import diagonal, expand, permute, reduce, reshape
from picograd.ir.op import Dim, Op, Shape, greatest
from picograd.ir.opcode import OpCode
from picograd.ir.shape import MatmulArg, numel
from picograd.record import Record
from picograd.tensor.arguments import tensor_of
from picograd.tensor.autocast import lowered, uses_tf32
from picograd.tensor.build import cast, promoted
from picograd.tensor.core import TensorCore

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


Labels = tuple[int, ...]


class Equation(Record):
    """What is multiplied and summed.

    inputs:  labels of the axes of each operand
    output:  labels of the axes of the result; the others are summed over
    """

    inputs: tuple[Labels, ...]
    output: Labels


class Operand(Record):
    """A factor on its way: an Op, and the labels of its axes, each once."""

    op: Op
    labels: Labels


# ---- equations ----
def parse(equation: str, ranks: Sequence[int]) -> Equation:
    """Returns what "ij,jk->ik" says about operands with so many axes.

    Raises:
      ArgumentError: it is not of the grammar, or does not fit the operands.
    """
    text = equation.replace(" ", "")
    terms, arrow, result = text.partition("->")
    parts = terms.split(",")
    if len(parts) != len(ranks):
        raise ArgumentError(f"einsum: {equation!r} has {len(parts)} terms, but there are {len(ranks)} operands.")
    symbols = [_symbols(equation, part) for part in [*parts, result]]
    return _equation(equation, symbols[:-1], symbols[-1] if arrow else None, ranks)


def _symbols(equation: str, term: str) -> list[int | None]:
    """Returns the labels of a term, None for an ellipsis."""
    pieces = term.split("...")
    if len(pieces) > 2 or any(not letter.isascii() or not letter.isalpha() for piece in pieces for letter in piece):
        raise ArgumentError(
            f"einsum: {term!r} in {equation!r} must be letters, with at most one ellipsis '...'.",
            hint="an equation is like 'bij,bjk->bik'.",
        )
    found: list[int | None] = list(map(ord, pieces[0]))
    return found + [None, *map(ord, pieces[1])] if len(pieces) == 2 else found


def _equation(
    shown: object, terms: Sequence[Sequence[int | None]], result: Sequence[int | None] | None, ranks: Sequence[int]
) -> Equation:
    """Returns an equation, with labels for the axes that ellipses stand for."""
    inputs: list[Labels] = []
    for term, rank in zip(terms, ranks):
        hidden = rank - len(term) + (None in term)
        if hidden < 0 or (hidden and None not in term):
            raise ArgumentError(f"einsum: an operand of {shown} has {rank} axes, its term names {rank - hidden}.")
        inputs.append(_spelled(term, hidden))
    width = max([sum(label < 0 for label in labels) for labels in inputs], default=0)
    if result is None:
        counts = Counter(label for labels in inputs for label in labels if label >= 0)
        output = (*range(-width, 0), *sorted(label for label, count in counts.items() if count == 1))
    else:
        output = _spelled(result, width)
    known = {label for labels in inputs for label in labels}
    if len(set(output)) != len(output) or not known.issuperset(output):
        raise ArgumentError(f"einsum: each label of the result of {shown} must stand there once, and in an operand.")
    return Equation(tuple(inputs), output)


def _spelled(term: Sequence[int | None], hidden: int) -> Labels:
    return tuple(label for symbol in term for label in (range(-hidden, 0) if symbol is None else (symbol,)))


def _sublists(args: Sequence[Any]) -> tuple[list[Tensor], Equation]:
    """Returns operands and equation of the format einsum(x, [0, 1], y, [1, 2], [0, 2])."""
    result = args[-1] if len(args) % 2 else None
    operands = [tensor_of("einsum", "an operand", value) for value in args[: len(args) // 2 * 2 : 2]]
    lists = [*args[1 : len(args) // 2 * 2 : 2], *([result] if result is not None else [])]
    terms: list[list[int | None]] = []
    for each in lists:
        if not isinstance(each, (list, tuple)) or any(s is not ... and not (type(s) is int and 0 <= s < 52) for s in each):
            raise ArgumentError(f"einsum: a sublist must hold numbers from 0 to 51, or an Ellipsis, got {each!r}.")
        terms.append([None if symbol is ... else symbol for symbol in each])
    named = terms[: len(operands)]
    return operands, _equation("the sublists", named, terms[-1] if result is not None else None, [x.ndim for x in operands])


# ---- one operand ----
def _diagonals(op: Op, labels: Labels) -> Operand:
    """Returns an operand in which each label stands once: axes of one label become their diagonal."""
    for label, count in Counter(labels).items():
        for _ in range(count - 1):
            first, second = [i for i, other in enumerate(labels) if other == label][:2]
            rest = [i for i in range(len(labels)) if i not in (first, second)]
            if op.shape[first] != op.shape[second]:
                raise ShapeError(f"einsum: a label names axes {first} and {second} of {op.shape}, which differ.")
            op = diagonal(permute(op, (*rest, first, second)))
            labels = (*(labels[i] for i in rest), label)
    return Operand(op, labels)


def _summed(x: Operand, kept: set[int]) -> Operand:
    """Returns an operand summed over the axes whose labels nobody else needs."""
    axes = tuple(i for i, label in enumerate(x.labels) if label not in kept)
    return Operand(reduce(x.op, OpCode.ADD, axes), tuple(label for label in x.labels if label in kept)) if axes else x


def _lengths(operands: Sequence[Operand]) -> dict[int, Dim]:
    """Returns the length of each label; an axis of length 1 is repeated where others are longer."""
    found: dict[int, Dim] = {}
    for x in operands:
        for label, dim in zip(x.labels, x.op.shape):
            before = found.get(label, 1)
            if before != 1 and dim != 1 and before != dim:
                name = chr(label) if label > 51 else f"number {label}" if label >= 0 else f"{label} of the ellipsis"
                raise ShapeError(f"einsum: axes with label {name} have lengths {before} and {dim}.")
            found[label] = dim if before == 1 else before
    return found


def _without_repeats(x: Operand, lengths: dict[int, Dim]) -> Operand:
    """Returns an operand without the axes of length 1 that stand for longer ones: it is the same for all of those."""
    kept = [i for i, label in enumerate(x.labels) if x.op.shape[i] == lengths[label]]
    return Operand(reshape(x.op, tuple(x.op.shape[i] for i in kept)), tuple(x.labels[i] for i in kept))


# ---- pairs ----
def _arranged(x: Operand, *groups: Sequence[int]) -> tuple[Op, list[Shape]]:
    """Returns an operand with one axis for each group of labels, and the lengths in each group."""
    place = {label: i for i, label in enumerate(x.labels)}
    shapes = [tuple(x.op.shape[place[label]] for label in group) for group in groups]
    moved = permute(x.op, tuple(place[label] for group in groups for label in group))
    return reshape(moved, tuple(numel(shape) for shape in shapes)), shapes


def _pair(a: Operand, b: Operand, kept: set[int]) -> Operand:
    """Returns the product of two operands, summed over the labels that are not kept, in one MATMUL."""
    shared = [label for label in a.labels if label in b.labels]
    batch, inner = ([label for label in shared if (label in kept) is wanted] for wanted in (True, False))
    rows, columns = ([label for label in x.labels if label not in shared] for x in (a, b))
    lhs, (batch_shape, row_shape, _) = _arranged(a, batch, rows, inner)
    rhs, (_, _, column_shape) = _arranged(b, batch, inner, columns)
    if inner:
        product = Op(OpCode.MATMUL, lhs.dtype, (lhs, rhs), MatmulArg(tf32=True) if uses_tf32(lhs.dtype) else None)
    else:
        whole = (*lhs.shape[:2], rhs.shape[2])
        product = expand(lhs, whole) * expand(rhs, whole)
    return Operand(reshape(product, (*batch_shape, *row_shape, *column_shape)), (*batch, *rows, *columns))


def _cost(a: Operand, b: Operand, kept: set[int]) -> tuple[int, int]:
    """Returns how much larger a pair's product is than the pair, and the multiplications it takes."""
    lengths = {label: greatest(dim) for x in (a, b) for label, dim in zip(x.labels, x.op.shape)}

    def elements(labels: set[int]) -> int:
        count = 1
        for label in labels:
            count *= lengths[label]
        return count

    left, right = set(a.labels), set(b.labels)
    return elements((left | right) & kept) - elements(left) - elements(right), elements(left | right)


def contract(equation: Equation, ops: Sequence[Op]) -> Op:
    """Returns the sum of products of Ops of one dtype.

    Raises:
      ShapeError: axes with one label have different lengths.
    """
    left = [_diagonals(op, labels) for op, labels in zip(ops, equation.inputs)]
    lengths = _lengths(left)
    left = [_without_repeats(x, lengths) for x in left]

    def needed(*pair: Operand) -> set[int]:
        return set(equation.output).union(*(x.labels for x in left if not any(x is other for other in pair)))

    while True:
        left = [_summed(x, needed(x)) for x in left]
        if len(left) == 1:
            break
        # NOTE: the first of equal choices, so that a graph depends on the equation alone.
        pairs = itertools.combinations(left, 2)
        a, b = min(pairs, key=lambda pair: _cost(pair[0], pair[1], needed(*pair)))
        product = _pair(a, b, needed(a, b))
        left = [*(x for x in left if x is not a and x is not b), product]
    return _in_order(left[0], equation.output, lengths)


def _in_order(x: Operand, output: Labels, lengths: dict[int, Dim]) -> Op:
    """Returns the result with its axes in order; a label that only operands of length 1 had is there already."""
    present = [label for label in output if label in x.labels]
    op = permute(x.op, tuple(x.labels.index(label) for label in present))
    return reshape(op, tuple(lengths[label] for label in output))


# ---- what users call ----
def _common(function: str, tensors: Sequence[TensorCore]) -> list[Op]:
    """Returns the values in one dtype, inside autocast of 16 bits."""
    ops = [tensor.read() for tensor in tensors]
    whole = ops[0]
    for op in ops[1:]:
        whole = cast(whole, promoted(whole, op))
    if whole.dtype.kind == "b":
        raise DTypeError(f"{function}: bools have no sum of products.", hint="cast them: x.int()")
    return [cast(op, lowered(whole.dtype)) for op in ops]


def _factors(tensors: Sequence[TensorCore], plan: Equation) -> list[Op]:
    """Returns the operands of einsum in one dtype: int64 where integers are summed over an axis of one operand alone."""
    ops = [tensors[0].read()] if len(tensors) == 1 else _common("einsum", tensors)
    counts = Counter(label for labels in plan.inputs for label in set(labels))
    summed = any(
        counts[label] == 1 and label not in plan.output and (dim != 1 or len(ops) == 1)
        for op, labels in zip(ops, plan.inputs)
        for label, dim in zip(labels, op.shape)
    )
    return [cast(op, dtypes.int64) for op in ops] if summed and not ops[0].dtype.is_float else ops


def einsum(equation: str | Tensor, *operands: Any) -> Any:
    """Returns the sum of products that an equation names: "ij,jk->ik" is the product of two matrices.

    out[output labels] = sum over all other labels of the product of the operands at their labels

    Args:
      equation:  terms of letters, one for each operand, apart by commas, then perhaps "->" and the labels of the result;
                 without that, those that stand once, in alphabetic order. A letter that stands twice in a term is a
                 diagonal; "..." is any number of leading axes, which broadcast. Or an operand: einsum(x, [0, 1], [1, 0])
                 names axes by numbers
      operands:  tensors, or a list of them

    Raises:
      ArgumentError: the equation is not of this grammar, or does not fit the operands.
      ShapeError:    axes with one label have different lengths, of which none is 1.
      DTypeError:    bools.

    Cost:      one MATMUL for each operand but one. The pair whose product is smallest beside it is multiplied next.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> einsum("ij,ij->i", x, x), einsum("ii", x)
    (Tensor([ 5., 25.]), Tensor(5.))
    """
    if isinstance(equation, str):
        given = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
        tensors = [tensor_of("einsum", "an operand", value) for value in given]
        if not tensors:
            raise ArgumentError("einsum: needs at least one operand.")
        plan = parse(equation, [tensor.ndim for tensor in tensors])
    else:
        tensors, plan = _sublists((equation, *operands))
    op = contract(plan, _factors(tensors, plan))
    return tensors[0].from_op(op, tensors[0].other_device("einsum", *tensors[1:]))


def tensordot(a: Any, b: Any, dims: Any = 2) -> Any:
    """Returns the sum of products over pairs of axes; the other axes of a, then those of b, are left.

    Args:
      a, b:  tensors
      dims:  how many: the last axes of a with the first of b; or two lists of as many axes. An axis of length 1 is
             repeated

    Raises:
      ArgumentError: `dims` is neither, or names other numbers of axes.
      ShapeError:    the lengths of a pair differ.

    >>> tensordot(Tensor.ones(2, 3, 4), Tensor.ones(4, 3, 5), dims=([1, 2], [1, 0])).shape
    (2, 5)
    """
    lhs, rhs = (tensor_of("tensordot", name, value) for name, value in (("a", a), ("b", b)))
    first, second = _pairs_of_axes(lhs, rhs, dims)
    for i, j in zip(first, second):
        if lhs.shape[i] == 1 != rhs.shape[j]:
            rhs = rhs.sum(j, keepdim=True, dtype=rhs.dtype)
        elif rhs.shape[j] == 1 != lhs.shape[i]:
            lhs = lhs.sum(i, keepdim=True, dtype=lhs.dtype)
        elif lhs.shape[i] != rhs.shape[j]:
            raise ShapeError(
                f"tensordot: axis {i} of {lhs.shape} has length {lhs.shape[i]}, axis {j} of {rhs.shape} has {rhs.shape[j]}."
            )
    left = list(range(lhs.ndim))
    right = [lhs.ndim + j if j not in second else first[second.index(j)] for j in range(rhs.ndim)]
    output = (*(i for i in left if i not in first), *(j for j in right if j >= lhs.ndim))
    op = contract(Equation((tuple(left), tuple(right)), output), _common("tensordot", [lhs, rhs]))
    return lhs.from_op(op, lhs.other_device("tensordot", rhs))


def _pairs_of_axes(a: TensorCore, b: TensorCore, dims: Any) -> tuple[list[int], list[int]]:
    """Returns the axes of a and of b that are summed over, pair by pair."""
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.ndim, b.ndim):
            raise ArgumentError(f"tensordot: dims={dims} axes are not there in both {a.shape} and {b.shape}.")
        return list(range(a.ndim - dims, a.ndim)), list(range(dims))
    both = list(dims) if isinstance(dims, (list, tuple)) else []
    if len(both) != 2 or not all(isinstance(part, (int, list, tuple)) for part in both):
        raise ArgumentError(f"tensordot: dims must be a number or two lists of axes, got {dims!r}.")
    first, second = ([part] if isinstance(part, int) else list(part) for part in both)
    if len(first) != len(second):
        raise ArgumentError(f"tensordot: dims={dims!r} names {len(first)} axes of a and {len(second)} of b.")
    found = []
    for axes, x in ((first, a), (second, b)):
        if any(not isinstance(axis, int) or not -x.ndim <= axis < x.ndim for axis in axes):
            raise ArgumentError(f"tensordot: axes {axes} are not all axes of {x.shape}.")
        found.append([axis % x.ndim for axis in axes])
        if len(set(found[-1])) != len(axes):
            raise ArgumentError(f"tensordot: axes {axes} of {x.shape} name one axis twice.")
    return found[0], found[1]
