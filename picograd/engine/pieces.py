"""Large graphs that are computed in pieces: those of a line that makes another one at each step.

In:    the roots of a graph that has no plan
Out:   `is_for_pieces`: whether to compute it so;  `pieces_of`: in which order, and what is stored
       `single_operations`: the same of a piece that is new

A network whose layers are drawn, or a tree in each step, would be planned and compiled at every step. The plans of pieces,
an operation or a formula each with the cheap operations around it, are soon known. A graph that comes again has a plan.

    state = cell(word if coin() else guess, state)   # the ninth sentence is computed cell by cell
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from picograd.engine.known import Seen
from picograd.interrupts import Latest
from picograd.ir.bodies import NEEDS_GRAD
from picograd.ir.op import Op, realized, toposort
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, SEVERAL_RESULTS, SOURCES, OpCode

OPS_OF_LARGE = 32  # at least, in a graph whose planning costs more than a run in pieces
PLANNINGS_MAX = 8  # of large graphs that a line makes, no two alike but for lengths: others are computed in pieces
TIMES_TO_PLAN = 4  # that a graph is computed in pieces before it has a plan, since it comes again
TIMES_TO_JOIN = 2  # that a piece is computed by single operations before it has a plan: of those there are fewer kinds
PIECE_OPS_MAX = 4  # cheap operations in a row before a value is stored
_planned_at: Latest[Hashable, int] = Latest(1024)  # line -> plannings of large graphs that differ in more than lengths
_times: Latest[int, int] = Latest(4096)  # hash of the short key of a graph or a piece without a plan -> how often it came
NEVER_STORED = MOVEMENT | SOURCES | {OpCode.LEAF, OpCode.DETACH}
CHEAP = ELEMENTWISE | NEVER_STORED | {OpCode.CONTIGUOUS}


def forget() -> None:
    """Forgets which lines have made large graphs, and what has come in pieces."""
    _planned_at.clear()
    _times.clear()


def note_planning(roots: Sequence[Op], num_ops: int) -> None:
    """Counts a planning of a large graph that is not for many lengths."""
    if num_ops >= OPS_OF_LARGE:
        _planned_at.put(_line(roots), _planned_at.get(_line(roots), 0) + 1)


def _line(roots: Sequence[Op]) -> Hashable:
    return roots[0].lines, len(roots[0].shape), roots[0].dtype


def is_for_pieces(roots: Sequence[Op], seen: Seen) -> bool:
    """Returns whether a graph that is alone with its lengths and has no plan is computed in pieces; counts it if so.

    Only those with gradients are: packed weights are read by fused kernels alone, and may be larger than the memory.
    """
    if len(seen.ops) < OPS_OF_LARGE or _planned_at.get(_line(roots), 0) < PLANNINGS_MAX:
        return False
    has_gradients = any(map(NEEDS_GRAD, roots)) or any(op.code is OpCode.GRADIENT for op in seen.ops)
    return has_gradients and _comes_seldom(seen, TIMES_TO_PLAN)


def single_operations(piece: Sequence[Op], seen: Seen) -> list[list[Op]] | None:
    """Returns the operations of a piece that has come seldom, sources first; None for one, or a piece to be planned."""
    singles = _cut(piece, 0) if _comes_seldom(seen, TIMES_TO_JOIN) else []
    return singles if len(singles) > 1 else None


def _comes_seldom(seen: Seen, times_max: int) -> bool:
    """Counts a graph; False from the time on that it has come often."""
    key = hash(seen.key)  # itself it would be as large as the graph
    times = _times.get(key, 0)
    if times < times_max:
        _times.put(key, times + 1)
    return times < times_max


def pieces_of(graphs: Sequence[Op]) -> list[list[Op]]:
    """Returns the Ops of graphs whose values are stored, sources first: those of one producer together."""
    return _cut(graphs, PIECE_OPS_MAX)


def _cut(graphs: Sequence[Op], ops_max: int) -> list[list[Op]]:
    """Returns pieces in which cheap operations with one reader are computed by that, as are views and constants.

    Args:
      ops_max:  cheap operations in a row that are computed together
    """
    order = toposort(graphs, stop=realized)
    readers = Counter([s for op in order if op.realized is None for s in op.src])
    near = dict[Op, int]()  # cheap Ops since the last value that is stored; none has memory below it where it is missing
    most = dict[Op, int]()  # elements of the largest value that is stored below
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
            # A value that an EXPAND has made larger than all below and all that is asked for is computed again.
            costs = op.code not in CHEAP or (is_shared and op.numel <= max(most[op], most_asked))
            if (costs and not _gives_several(op)) or op in ends:
                pieces.setdefault(op.src[0] if op.code is OpCode.OUTPUT else op, []).append(op)
                near[op], most[op] = 0, op.numel
    return [*pieces.values()]


def _gives_several(op: Op) -> bool:
    """True for an Op that is seen by its OUTPUTs."""
    return op.code in SEVERAL_RESULTS and not (op.code is OpCode.FORMULA and len(op.arg.kinds) == 1)
