"""Makes the linear form: one operation a statement, each in the outermost loop where it can be computed.

In:    statements in the free form (trees of expressions, UNROLL and VECTOR loops)
Out:   statements in the linear form (ir/statements.py)

Example:  For v VECTOR 16: y[i * 16 + v] = LOAD(x, i * 16 + v) * LOAD(b, 0)      becomes
          v1 = load b[0];  v2 = splat v1                  (before the loop of i)
          v3 = i * 16;  v4 = load 16 of x at v3;  v5 = v4 * v2;  store 16 of y at v3

In copies of an unrolled body, most often only the constant of an index is new. So an index is split once for all copies:

          For u UNROLL 2: y[i * 2 + u] = LOAD(x, i * 2 + u)      becomes x[i * 2], then x[i * 2 + 1]: the split of the
          index is (rest i * 2, constant 0, steps [(u, 1)])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.build import bitcast
from picograd.ir.op import Dim, Op, const, toposort
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.statements import Alloc, Check, For, If, Let, Load, Statement, Store, lanes_of, mapped
from picograd.ir.symbolic import INDEX_ARITHMETIC, affine, bounds, from_op, plus, to_op, with_values, without
from picograd.record import replace


# ---- statements ----
def linearize(statements: Sequence[Statement], numbers: Iterator[int]) -> tuple[Statement, ...]:
    """Turns the statements of one phase into the linear form.

    Args:
      numbers: for the names of VARs, which are unique in the whole Program

    After:   every expression is one operation on VARs, RANGEs and CONSTs; only GRID, BLOCK and LOOP loops are left;
             equal expressions in scope of each other are computed once, values that a loop does not change before it.
    Before:  `legalize`, so that every operation is one the target has.
    """
    work = _Linearizer(statements, numbers)
    work.run(statements)
    return tuple(work.scopes[0].statements)


NOTHING: frozenset[Op] = frozenset()
BARRIER = Op(OpCode.SINK, dtypes.bool_)  # "other threads store here" in a set of stored memory
READY = frozenset({OpCode.CONST, OpCode.VARIABLE, OpCode.VAR})
OWN_SOURCES = frozenset({OpCode.LOAD, OpCode.RANGE})  # compute() names their sources itself


class _Scope:
    """One open body: its statements so far, and the values that were first named in it."""

    def __init__(self, stored: frozenset[Op], conditional: bool, may_be_skipped: bool):
        self.statements: list[Statement] = []
        self.named: list[tuple[Op, Op]] = []
        self.readers: dict[Op, list[Op]] = {}  # memory -> the values above that were read from it
        self.stored, self.conditional, self.may_be_skipped = stored, conditional, may_be_skipped


# The ways to an address, which is (index of the first lane, lanes):
#   address        of an index whose RANGEs and VARs are those of this copy
#   address_here   of an index as the free form has it, by way of `addresses`, which keeps
#   first_address  the part that all copies of an unrolled body share
class _Linearizer:
    """The state of the walk: open scopes with their values, and the copy of an unrolled body that is being written."""

    def __init__(self, statements: Sequence[Statement], numbers: Iterator[int]):
        self.scopes = [_Scope(NOTHING, False, False)]
        self.values: dict[Op, Op] = {}  # expression, or VAR of a Load -> the VAR of an open scope that holds its value
        self.stored_in: dict[int, frozenset[Op]] = {}
        self.stored = _stored_in(statements, self.stored_in)
        self.reads_stored = False  # an expression has read memory that is stored to: values may become stale
        self.depth_of: dict[Op, int] = {}  # RANGE or VAR -> index of the scope it belongs to
        self.ranges: dict[Op, Op] = {}  # RANGE whose extent is an expression -> the one that names its VAR
        self.copies = Copies()
        self.addresses: dict[Op, tuple[Split, int] | None] = {}  # index -> `first_address`
        self.numbers = numbers
        self.vector: Op | None = None  # the open VECTOR loop's RANGE
        self.mask: Op | None = None  # the lanes for which the body of an If runs
        self.of_lanes: set[Op] = set()  # memory made in such a body: lanes that do not run may write to it

    # ---- statements ----
    def run(self, statements: Sequence[Statement]) -> None:
        """Writes statements into the innermost open scope."""
        for statement in statements:
            if isinstance(statement, For):
                self.run_for(statement)
            elif isinstance(statement, If):
                self.run_if(statement)
            elif isinstance(statement, Store):
                self.run_store(statement)
            elif isinstance(statement, Load):
                load = self.load(statement.memory, self.address_here(statement.index), statement.valid)
                self.scopes[-1].statements.append(load)
                self.rename(statement.var, load.var)
            elif isinstance(statement, Let | Check):
                raise AssertionError(f"linearize: {statement} is a statement of the linear form already")
            else:
                has_effect = statement.writes or statement.orders
                assert self.mask is None or not has_effect, f"linearize: {statement} is in a condition of lanes"
                if self.mask is not None and isinstance(statement, Alloc):
                    self.of_lanes.add(statement.memory)
                written = mapped(statement, lambda index: self.address_here(index)[0], self.value_here)
                var: Op | None = getattr(statement, "var", None)
                if var is not None:
                    new = _var(var.dtype, next(self.numbers), 1)  # as in the free form
                    written = replace(written, var=new)
                    self.rename(var, new)
                self.scopes[-1].statements.append(written)
                if statement.writes or statement.orders:
                    self.forget_loads(None if statement.orders else getattr(statement, statement.writes))

    def rename(self, var: Op, to: Op) -> None:
        """Puts the VAR of a statement that is written right here in the place of `var` of the free form from now on."""
        self.depth_of[to] = len(self.scopes) - 1
        (self.copies.names if self.copies.constants else self.values)[var] = to

    def run_for(self, loop: For) -> None:
        """Writes a loop: UNROLL as copies of its body, VECTOR as one body of vectors, others as loops."""
        kind = loop.range.arg[1]
        if kind is AxisKind.UNROLL:
            for value in range(int(loop.range.src[0].arg)):
                self.copies.constants[loop.range] = value
                self.run(loop.body)
            del self.copies.constants[loop.range]
        elif kind is AxisKind.VECTOR:
            assert self.vector is None, "linearize: a VECTOR loop is nested in another"
            self.vector = loop.range
            self.run(loop.body)
            self.vector = None
        else:
            extent = self.value_here(loop.range.src[0])
            index = loop.range if extent is loop.range.src[0] else loop.range.replace(src=(extent,))
            self.ranges[loop.range] = index
            turns = loop.range.src[0]
            may_be_empty = turns.code is not OpCode.CONST and bounds(from_op(turns))[0] < 1
            body = self.inside(loop.body, self.stored_in[id(loop)], False, may_be_empty, loop.range)
            self.scopes[-1].statements.append(For(index, body))

    def run_if(self, branch: If) -> None:
        """Writes an If; where its condition differs from lane to lane, it becomes one of each load and store."""
        condition, outer = self.value_here(branch.condition), self.mask
        if lanes_of(condition) > 1:
            self.mask = self.both(condition, outer)
        body = self.inside(branch.body, self.stored_in[id(branch)], True, True, None)
        self.scopes[-1].statements += (If(condition, body),) if self.mask is outer else body
        self.mask = outer

    def both(self, condition: Op, other: Op | None) -> Op:
        return condition if other is None else self.value(Op(OpCode.AND, dtypes.bool_, (condition, other)))

    def inside(
        self, body: Sequence[Statement], stored: frozenset[Op], conditional: bool, may_be_skipped: bool, index: Op | None
    ) -> tuple[Statement, ...]:
        """Returns the statements of a body, written in a scope of its own; its stores make earlier loads stale."""
        self.scopes.append(_Scope(stored, conditional, may_be_skipped))
        if index is not None:
            self.depth_of[index] = self.depth_of[self.ranges[index]] = len(self.scopes) - 1
        self.run(body)
        scope = self.scopes.pop()
        for key, var in scope.named:
            if self.values.get(key) is var:
                del self.values[key]
        for memory in stored:
            self.forget_loads(None if memory is BARRIER else memory)
        return tuple(scope.statements)

    def run_store(self, store: Store) -> None:
        value = self.value_here(store.value)
        index, lanes = self.address_here(store.index)
        lanes = max(lanes, lanes_of(value), 1)
        valid = None if store.valid is None else self.value_here(store.valid)
        if self.mask is not None and store.memory not in self.of_lanes:
            assert lanes > 1, f"linearize: {store} stores one element in some lanes"
            valid = self.both(self.mask, valid)
        value = value if lanes == 1 else self.splat(value, lanes)
        self.scopes[-1].statements.append(Store(store.memory, index, value, valid))
        self.forget_loads(store.memory)

    def forget_loads(self, memory: Op | None) -> None:
        """Drops values that were read from `memory`, or from any memory of the program when it is None."""
        for scope in self.scopes:
            stale = [memory] if memory is not None else [m for m in scope.readers if m.code is OpCode.ALLOC]
            for m in stale:
                for value in scope.readers.pop(m, ()):
                    self.values.pop(value, None)

    # ---- expressions ----
    def value(self, op: Op) -> Op:
        """Returns the VAR, RANGE or CONST that holds `op`, computing missing operands; iterative, for deep chains."""
        found = self.values.get(op)
        if found is not None:
            return found
        if op.code in READY:
            return op
        if op.code is OpCode.RANGE and op is not self.vector:
            return self.ranges[op]
        stack = [op]
        while stack:
            here = stack[-1]
            if here not in self.values:
                before = len(stack)
                for s in here.src[::-1] if here.code not in OWN_SOURCES else ():
                    if s.code not in READY and s not in self.values and (s.code is not OpCode.RANGE or s is self.vector):
                        stack.append(s)
                if len(stack) > before:
                    continue
                self.compute(here)
            stack.pop()
        return self.values[op]

    def value_here(self, op: Op) -> Op:
        """Returns the linear-form value of `op` in this copy."""
        return self.value(self.copies.resolve(op))

    def compute(self, op: Op) -> None:
        """Writes the statement for one operation whose sources are available, in the outermost scope for it."""
        if op.code is OpCode.RANGE:
            lanes = int(op.src[0].arg)
            if lanes == 1:
                self.values[op] = const(0, dtypes.int64)
            else:
                self.name(op, Op(OpCode.LANES, dtypes.int64, (), lanes), lanes)
            return
        if op.code is OpCode.LOAD:
            self.reads_stored = self.reads_stored or self.is_stored(op.src[0])
            statement = self.load(op.src[0], self.address(op.src[1]), op.src[2] if len(op.src) > 2 else None)
            depth = self.place(statement.index, statement.valid, load_of=op.src[0])
            self.keep(op, statement.var, depth, statement)
            return
        if op.code is OpCode.CHECK:
            self.check(op)
            return
        lanes, sources, values = 1, list[Op](), self.values
        for s in op.src:
            own = values.get(s)
            if own is None:
                own = s if s.code in READY else self.value(s)
            sources.append(own)
            if own.code is OpCode.VAR and own.arg[1] > lanes:
                lanes = own.arg[1]
        if op.code is OpCode.REDUCE:
            self.name(op, Op(op.code, op.dtype, tuple(sources), (op.arg[0], lanes)), 1)
            return
        if lanes > 1:
            sources = [s if s.code is OpCode.VAR and s.arg[1] == lanes else self.splat(s, lanes) for s in sources]
        self.name(op, Op(op.code, op.dtype, tuple(sources), op.arg), lanes)

    def check(self, op: Op) -> None:
        """Writes a Check and what passes it; it leaves no condition, and no loop that may have no turn."""
        (index,), (number, length) = op.src, op.arg
        unsigned = [bitcast(x, dtypes.uint64) for x in (index, to_op(length))]
        if isinstance(length, int):
            unsigned[1] = const(length, dtypes.uint64)
        inside = Op(OpCode.CMPLT, dtypes.bool_, tuple(unsigned))  # a negative index is a large unsigned one
        value = self.value(index)
        holds = self.splat(self.value(inside), lanes_of(value))
        if self.mask is not None and lanes_of(value) > 1:
            holds = self.value(Op(OpCode.WHERE, dtypes.bool_, (self.mask, holds, const(True, dtypes.bool_))))
        depth = self.place(holds, value)
        depth = max([depth, *(i for i, scope in enumerate(self.scopes) if scope.may_be_skipped)])
        self.scopes[depth].statements.append(Check(holds, value, number))
        passed = Op(OpCode.WHERE, dtypes.int64, (holds, value, self.splat(const(0, dtypes.int64), lanes_of(value))))
        var = _var(dtypes.int64, next(self.numbers), lanes_of(value))
        self.keep(op, var, depth, Let(var, passed))

    def splat(self, value: Op, lanes: int) -> Op:
        """Returns `value` in every lane of a vector."""
        if lanes == 1 or (value.code is OpCode.VAR and value.arg[1] == lanes):
            return value
        spread = Op(OpCode.EXPAND, value.dtype, (value,), lanes)
        return self.values.get(spread) or self.name(spread, spread, lanes)

    def name(self, key: Op, value: Op, lanes: int) -> Op:
        """Writes a Let for `value`, in the outermost scope that has its sources, and returns its VAR."""
        var, depth = _var(value.dtype, next(self.numbers), lanes), 0
        for s in value.src:
            own = self.depth_of.get(s, 0)
            if own > depth:
                depth = own
        self.keep(key, var, depth, Let(var, value))
        return var

    def keep(self, key: Op, var: Op, depth: int, statement: Statement) -> None:
        """Writes a statement into a scope; until that scope ends, `key` is read from `var`."""
        scope = self.scopes[depth]
        scope.statements.append(statement)
        scope.named.append((key, var))
        self.values[key] = var
        for atom in self.copies.atoms_in(key) if self.reads_stored else ():
            if atom.code is OpCode.LOAD:
                scope.readers.setdefault(atom.src[0], []).append(key)
        self.depth_of[var] = depth

    def is_stored(self, memory: Op) -> bool:
        """True for memory that something in the phase stores to."""
        return memory in self.stored or (BARRIER in self.stored and memory.code is OpCode.ALLOC)

    def place(self, *sources: Op | None, load_of: Op | None = None) -> int:
        """Returns the number of the outermost scope where all sources exist; a load does not pass a store to its memory."""
        depth = 0
        for s in sources:
            if s is not None and self.depth_of.get(s, 0) > depth:
                depth = self.depth_of[s]
        if load_of is not None:
            for i in range(depth + 1, len(self.scopes)):
                scope = self.scopes[i]
                shared = load_of.code is OpCode.ALLOC and BARRIER in scope.stored
                if scope.conditional or load_of in scope.stored or shared:
                    depth = i
        return depth

    def load(self, memory: Op, address: tuple[Op, int], valid: Op | None) -> Load:
        """Returns the Load of an address, (first index, lanes), whose condition is named here."""
        where, lanes = address
        condition = None if valid is None else self.value_here(valid)
        if self.mask is not None and lanes > 1 and memory not in self.of_lanes:
            condition = self.both(self.mask, condition)
        if condition is not None and lanes_of(condition) > lanes:  # one element, wanted by some lanes
            lanes = lanes_of(condition)
            where = self.splat(where, lanes)
        return Load(_var(memory.dtype, next(self.numbers), lanes), memory, where, condition)

    def address(self, index: Op) -> tuple[Op, int]:
        """Returns the index to access at and the lanes: consecutive elements are named by the first one's index."""
        if self.vector is None or not self.is_vector(index):
            value = self.value(index)
            return value, lanes_of(value)
        if self.is_consecutive(index, self.vector):
            return self.value(to_op(plus(*without(index, (self.vector,))))), int(self.vector.src[0].arg)
        value = self.value(index)
        return value, lanes_of(value)

    def address_here(self, index: Op) -> tuple[Op, int]:
        """Returns `address` of an index of the free form, in this copy: most often only a constant is new."""
        if index not in self.addresses:
            self.addresses[index] = self.first_address(index)
        known = self.addresses[index]
        if known is None:
            return self.address(self.copies.resolve(index))
        split, lanes = known
        return self.value(self.copies.sum_here(split)), lanes

    def first_address(self, index: Op) -> tuple[Split, int] | None:
        """Returns the part of the addresses at `index` that all copies share, and their lanes.

        None if copies differ in more than a constant.
        """
        atoms = self.copies.atoms_in(index)
        if atoms and not self.copies.is_index(index):
            return None
        split = Split(index, 0, []) if self.copies.constants.keys().isdisjoint(atoms) else self.copies.split(index)
        if split is None:
            return None
        if self.vector is None or self.vector not in atoms:
            return split, 1
        if not self.is_consecutive(split.rest, self.vector):
            return None
        rest, own = without(split.rest, (self.vector,))
        return Split(rest, split.constant + own, split.steps), int(self.vector.src[0].arg)

    def is_consecutive(self, index: Dim, lane: Op) -> bool:
        """True when lanes access one element after the other: the lane is a term, and no other term differs."""
        terms = affine(index)[0]
        return terms.get(lane) == 1 and True not in [self.is_vector(atom) for atom in terms if atom is not lane]

    def is_vector(self, op: Op) -> bool:
        """True when an expression differs from lane to lane."""
        stack, seen = [op], set()
        while stack:
            here = stack.pop()
            if here is self.vector or (here.code is OpCode.VAR and lanes_of(self.values.get(here, here)) > 1):
                return True
            if here in seen or here.code in (OpCode.REDUCE, OpCode.RANGE):
                continue
            seen.add(here)
            stack.extend(here.src)
        return False


# ---- copies of an unrolled body ----
ATOMS = frozenset({OpCode.RANGE, OpCode.VAR, OpCode.LOAD})


class Split(NamedTuple):
    """A sum that differs by a constant between copies.

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
        """Returns the expression of `op` in this copy, or None while its sources are not `done`."""
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
            if not all(map(done.__contains__, op.src)):
                return None
            new = op.replace(src=tuple(map(done.__getitem__, op.src)))
        if not named:
            self._became[copy] = new
        return new

    def _what_varies(self, op: Op) -> tuple[bool, tuple[Op, ...]]:
        """Returns whether `op` reads names that differ between copies, and the unrolled loops whose index it contains."""
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
        found = plus(rest, constant)
        return found if isinstance(found, Op) else to_op(found)

    def split(self, op: Op) -> Split | None:
        """Takes the constant of a sum and its terms in unrolled loops out of it.

        None where such a loop's index is also inside another term.
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
        return {atom.code for atom in self.atoms_in(op)} <= {OpCode.RANGE}

    def atoms_in(self, op: Op) -> frozenset[Op]:
        """Returns the RANGEs, VARs and LOADs an expression contains."""
        known = self._atoms
        found = known.get(op)
        if found is not None:
            return found
        for here in (op,) if all(map(known.__contains__, op.src)) else toposort([op], stop=known):
            if here in known:
                continue
            found = NOTHING
            for s in here.src:
                own = known[s]
                if not own <= found:
                    found = own if found <= own else found | own
            known[here] = found | {here} if here.code in ATOMS else found
        return known[op]


# ---- names and stores ----
@lru_cache(4096)
def _var(dtype: DType, number: int, lanes: int) -> Op:
    """Returns the VAR of a number; those of one Program serve the next, so that most need not be made."""
    return Op(OpCode.VAR, dtype, (), (f"v{number}", lanes))


def _stored_in(body: Sequence[Statement], found: dict[int, frozenset[Op]]) -> frozenset[Op]:
    """Returns the memory that is stored to; `found` receives, for each For and If (by id), that of its body."""
    stored: set[Op] = set()
    for statement in body:
        if statement.orders:
            stored.add(BARRIER)
        elif statement.writes:
            stored.add(getattr(statement, statement.writes))
        elif isinstance(statement, For | If):
            found[id(statement)] = inner = _stored_in(statement.body, found)
            stored |= inner
    return frozenset(stored)
