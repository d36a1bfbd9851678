"""What expressions become in each copy of an unrolled body: most often only the constant of an index is new.

In:    an expression of the free form, the values of the unrolled loops it stands in, the names of values read in this copy
Out:   `Copies`: the expression as it stands in this copy;  `Split`: an index taken apart, so that copies cost little
Called by: codegen/passes/linearize.py.    Next: picograd/render/llvm.py, and for a GPU picograd/devices/cuda/render.py

Example:  For u UNROLL 2: y[i * 2 + u] = LOAD(x, i * 2 + u)      becomes x[i * 2], then x[i * 2 + 1]: the split of the
          index is (rest i * 2, constant 0, steps [(u, 1)]), made once for all copies.
"""

from __future__ import annotations

from typing import NamedTuple

from picograd import dtype as dtypes
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import INDEX_ARITHMETIC, affine, plus, to_op, with_values, without

NOTHING: frozenset[Op] = frozenset()
INDICES = frozenset({OpCode.RANGE})
ATOMS = frozenset({OpCode.RANGE, OpCode.VAR, OpCode.LOAD})


class Split(NamedTuple):
    """A sum, of which copies differ by a constant.

    steps:  (index of an unrolled loop, factor)
    """

    rest: Dim
    constant: int
    steps: list[tuple[Op, int]]


class Copies:
    """The copy that is being written, and what expressions became in it and in copies before.

    names:      VAR of the free form -> that of the linear form, in this copy
    constants:  RANGE of each open UNROLL loop -> its value in this copy
    """

    def __init__(self) -> None:
        self.names: dict[Op, Op] = {}
        self.constants: dict[Op, int] = {}
        self._varying: dict[Op, tuple[bool, tuple[Op, ...]]] = {}  # expression -> `_what_varies`
        self._became: dict[tuple[Op | int | None, ...], Op] = {}  # (expression, values of its loops) -> what it became
        self._splits: dict[Op, Split | None] = {}  # expression -> `split`
        self._atoms: dict[Op, frozenset[Op]] = {}

    def resolve(self, op: Op) -> Op:
        """Puts the values of unrolled loops and the names of this copy into an expression."""
        done: dict[Op, Op] = {}
        stack = [op]
        while stack:
            here = stack[-1]
            if here not in done:
                new = self._resolved(here, done)
                if new is None:
                    stack += [s for s in here.src if s not in done]
                    continue
                done[here] = new
            stack.pop()
        return done[op]

    def _resolved(self, op: Op, done: dict[Op, Op]) -> Op | None:
        """Returns what stands for `op` in this copy, or None where that is not `done` for its sources."""
        named, loops = self._varying.get(op) or self._what_varies(op)
        if not named and not loops:
            return op
        if op.code is OpCode.VAR:
            return self.names[op]
        copy = (op, *map(self.constants.get, loops))
        if not named and copy in self._became:
            return self._became[copy]
        if not named and self.is_index(op):
            new = self._index_here(op)
        else:
            src = [done[s] for s in op.src if s in done]
            if len(src) < len(op.src):
                return None
            new = op.replace(src=tuple(src))
        if not named:
            self._became[copy] = new
        return new

    def _what_varies(self, op: Op) -> tuple[bool, tuple[Op, ...]]:
        """Returns whether `op` reads what each copy names anew, and the unrolled loops whose index it contains."""
        atoms = self.atoms_in(op)
        found = self._varying[op] = not self.names.keys().isdisjoint(atoms), tuple(atoms & self.constants.keys())
        return found

    def _index_here(self, op: Op) -> Op:
        if op not in self._splits:
            self._splits[op] = self.split(op)
        split = self._splits[op]
        return to_op(with_values(op, self.constants)) if split is None else self.sum_here(split)

    def sum_here(self, split: Split) -> Op:
        """Returns the sum that was split, in this copy."""
        rest, constant, steps = split
        for atom, factor in steps:
            constant += factor * self.constants[atom]
        return to_op(plus(rest, constant))

    def split(self, op: Op) -> Split | None:
        """Takes the constant of a sum and its terms in unrolled loops out of it.

        None where such a loop's index also stands inside another term.
        """
        open_here = self.constants.keys()
        terms = affine(op)[0]
        if any(not open_here.isdisjoint(self.atoms_in(atom)) for atom in terms if atom not in open_here):
            return None
        return Split(*without(op, open_here), [(atom, factor) for atom, factor in terms.items() if atom in open_here])

    def is_index(self, op: Op) -> bool:
        """True for arithmetic on RANGEs and VARIABLEs alone, which cannot overflow: it may be put in normal form."""
        if op.code is OpCode.RANGE:
            return True
        if op.code not in INDEX_ARITHMETIC or op.dtype is not dtypes.int64:
            return False
        return {atom.code for atom in self.atoms_in(op)} <= INDICES

    def atoms_in(self, op: Op) -> frozenset[Op]:
        """Returns the RANGEs, VARs and LOADs an expression contains."""
        known = self._atoms
        found = known.get(op)
        if found is None:
            for here in toposort([op], stop=known):
                if here not in known:
                    found = NOTHING
                    for s in here.src:
                        own = known[s]
                        if not own <= found:
                            found = own if found <= own else found | own
                    known[here] = found | {here} if here.code in ATOMS else found
            found = known[op]
        return found
