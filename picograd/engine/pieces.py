"""Large graphs that are computed in pieces, because their line makes a different graph at each step.

In:    the roots of a graph that has no plan
Out:   `is_for_pieces`: whether to compute it in pieces;  `pieces_of`: the pieces, in order
       `single_operations`: the operations of a piece, if the piece has no plan either

A network whose layers are drawn at random, or a tree that differs at each step, would be planned and compiled every time.
A piece is one operation or formula with the cheap operations around it; plans of pieces are soon all known. A graph that
comes again gets a plan of its own.

    state = cell(word if coin() else guess, state)   # the ninth sentence is computed cell by cell

A loss over objects that are drawn has other graphs for no object and for one, and for images without any: some dozens, most
of them soon. Two graphs that differ from earlier ones in lengths alone weigh as much as one that is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from picograd.engine.known import Seen
from picograd.interrupts import Latest
from picograd.ir.bodies import NEEDS_GRAD
from picograd.ir.op import Op, realized, toposort
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, SEVERAL_RESULTS, SOURCES, OpCode

OPS_OF_LARGE = 32  # Ops of a large graph: planning it costs more than computing it in pieces
PLANNINGS_MAX = 8  # large graphs of a line, different in more than lengths, that are planned; later ones are in pieces
RECURRENCES = 2  # graphs that differ from earlier ones in lengths alone, for which a line may plan one more
TIMES_TO_PLAN = 4  # a graph that comes more often than that gets a plan
TIMES_TO_JOIN = 2  # a piece that comes more often than that gets a plan; until then its operations are computed one by one
PIECE_OPS_MAX = 4  # cheap operations in a row before a value is stored
_planned_at: Latest[Hashable, float] = Latest(1024)  # line -> plannings of large graphs that differ in more than lengths
_times: Latest[int, int] = Latest(4096)  # hash of the key of a graph or piece without a plan -> how often it came
NEVER_STORED = MOVEMENT | SOURCES | {OpCode.LEAF, OpCode.DETACH}
CHEAP = ELEMENTWISE | NEVER_STORED | {OpCode.CONTIGUOUS}


def forget() -> None:
    """Forgets which lines have made large graphs, and which pieces have come."""
    _planned_at.clear()
    _times.clear()


def note_planning(roots: Sequence[Op], num_ops: int) -> None:
    """Counts the planning of a graph, if it is large and only for the lengths that it has."""
    if num_ops >= OPS_OF_LARGE:
        _planned_at.put(_line(roots), _planned_at.get(_line(roots), 0) + 1)


def note_recurrence(roots: Sequence[Op]) -> None:
    """Counts a graph that differs from an earlier one in lengths alone."""
    if plannings := _planned_at.get(_line(roots), 0):
        _planned_at.put(_line(roots), max(0, plannings - 1 / RECURRENCES))


def _line(roots: Sequence[Op]) -> Hashable:
    return roots[0].lines, len(roots[0].shape), roots[0].dtype


def is_for_pieces(roots: Sequence[Op], seen: Seen) -> bool:
    """Returns whether to compute a graph without a plan, and alone with its lengths, in pieces; counts it if so.

    Only graphs with gradients are: weights that are packed in few bits must be unpacked within a kernel, since the unpacked
    ones may not fit the memory.
    """
    if len(seen.ops) < OPS_OF_LARGE or _planned_at.get(_line(roots), 0) < PLANNINGS_MAX:
        return False
    has_gradients = any(map(NEEDS_GRAD, roots)) or any(op.code is OpCode.GRADIENT for op in seen.ops)
    return has_gradients and _comes_seldom(seen, TIMES_TO_PLAN)


def single_operations(piece: Sequence[Op], seen: Seen) -> list[list[Op]] | None:
    """Returns the operations of a piece that comes seldom, sources first; None if it is one, or is to be planned."""
    singles = _cut(piece, 0) if _comes_seldom(seen, TIMES_TO_JOIN) else []
    return singles if len(singles) > 1 else None


def _comes_seldom(seen: Seen, times_max: int) -> bool:
    """Counts a graph; False once it has come more than `times_max` times."""
    key = hash(seen.key)  # the key is as large as the graph
    times = _times.get(key, 0)
    if times < times_max:
        _times.put(key, times + 1)
    return times < times_max


def pieces_of(graphs: Sequence[Op]) -> list[list[Op]]:
    """Returns the pieces of graphs, sources first, each as the Ops whose values it stores."""
    return _cut(graphs, PIECE_OPS_MAX)


def _cut(graphs: Sequence[Op], ops_max: int) -> list[list[Op]]:
    """Returns pieces: views, constants, and cheap operations with one reader are computed in the piece of their reader.

    Args:
      ops_max:  number of cheap operations in a row that are computed together
    """
    order = toposort(graphs, stop=realized)
    readers = Counter([s for op in order if op.realized is None for s in op.src])
    near = dict[Op, int]()  # cheap Ops since the last stored value; has no entry for an Op with no memory below it
    most = dict[Op, int]()  # elements of the largest stored value below
    pieces = dict[Op, list[Op]]()
    ends, most_asked = {*graphs}, max(op.numel for op in graphs)
    for op in order:
        below = [near[s] for s in op.src if s in near]
        if op.code is OpCode.BUFFER or op.realized is not None:
            near[op], most[op] = 0, op.numel
        elif below or op in ends:
            near[op] = sum(below) + (op.code not in NEVER_STORED)
            most[op] = max([most.get(s, 0) for s in op.src], default=0)
            is_shared = op.code not in NEVER_STORED and (readers[op] > 1 or near[op] > ops_max)
            # A value that an EXPAND made larger than every value below and every result is not stored but computed again.
            costs = op.code not in CHEAP or (is_shared and op.numel <= max(most[op], most_asked))
            if (costs and not _gives_several(op)) or op in ends:
                pieces.setdefault(op.src[0] if op.code is OpCode.OUTPUT else op, []).append(op)
                near[op], most[op] = 0, op.numel
    return [*pieces.values()]


def _gives_several(op: Op) -> bool:
    """True for an Op whose values are read through several OUTPUTs."""
    return op.code in SEVERAL_RESULTS and not (op.code is OpCode.FORMULA and len(op.arg.kinds) == 1)
