"""Replays: a plan bound to the memory that it runs on, call after call.

In:    a recording, and the plan of its graphs; later the arguments of a call
Out:   `replay_of` a recording: a function of a call's arguments that returns the results of the recorded function

A call checks that no written tensor reaches the function in two ways, binds memory to the plan's inputs and outputs, runs
the plan and hands out the results. Everything that calls have in common is worked out once, so that little Python is left.

Memory has four owners. Values of arguments and cells are read in place (`Inputs`). State that the plan overwrites
stays with the plan until somebody reads it (`StateInPlace`). Small results are written to memory of earlier ones
that are dead, and results of any length over donated arguments (`Outputs`). All other memory is new
at each call.

A call of a small kernel is mostly Python. The questions of a general call (has somebody read state, how long is a symbolic
axis, is memory donated, is a number on another device, is an argument written) need not be asked in a `stateless` one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, cast

from picograd.control.structure import mapped
from picograd.engine.devices import EVALUATOR
from picograd.engine.plan import Template, bound, unbound
from picograd.engine.realize import from_host, new_outputs, run, to_host
from picograd.interrupts import AtDeath, held_back, later
from picograd.ir.checks import Refused
from picograd.ir.op import Buffer, Op, Shape, memory_op
from picograd.ir.origin import Graphless
from picograd.ir.stages import FixedMemory, Plan
from picograd.look import Profiling, active
from picograd.record import Record, replace
from picograd.tensor.cell import Arranged, Cell, Held, TakenBuffers, write_through
from picograd.tensor.compute import cell_buffer
from picograd.tensor.sharing import check_not_read_only
from picograd.tensor.tensor import Tensor
from picograd.transforms.buffer_reuse import BufferPool, give_donated, has_readers
from picograd.transforms.capture import BROUGHT, Recording, Source
from picograd.transforms.containers import Arguments, two_ways

Result = tuple[bool, int, Shape]  # True for an output of the plan, False for an unchanged input; its number; the shape
ReplayCall = Callable[[Sequence[Tensor], list[Buffer], Arguments | None], Any]
cell_of = attrgetter("cell")


# ---- the order of memory ----
RUN_INPUTS_MIN = 4  # neighbours that are handled as one slice, which costs as much as three single ones


def in_order(places: Sequence[int]) -> Callable[[list[Any]], Sequence[Any]]:
    """Returns a function that reorders items: item `places[i]` comes at i."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


def runs_in(pairs: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[slice, slice]]]:
    """Returns the pairs of places that stand alone, and as slices those that are neighbours in both places."""
    alone: list[tuple[int, int]] = []
    runs: list[tuple[slice, slice]] = []
    # The difference between a place and its number in the list is the same for neighbours.
    for _, group in groupby(enumerate(pairs), lambda pair: (pair[1][0] - pair[0], pair[1][1] - pair[0])):
        found = [pair for _, pair in group]
        if len(found) < RUN_INPUTS_MIN:
            alone += found
        else:
            (a, b), count = found[0], len(found)
            runs.append((slice(a, a + count), slice(b, b + count)))
    return alone, runs


def moved(buffer: Buffer, device: str) -> Buffer:
    """Returns a copy of a number on another device."""
    op = memory_op(buffer, ())
    return cast(Buffer, from_host(to_host(op), buffer.dtype, device).arg[0])


# ---- owners of memory ----
class Inputs:
    """The memory that a plan reads. It is joined in this order: state in place, constants, other state, numbers from
    another device, arguments; a call brings all but the first (`brought`).

    constants:    buffers that the function made itself, and numbers that are inputs of the plan
    cells:        other state that the plan reads
    numbers:      cells, and arguments by number, that are on another device than the plan
    device:       device of the plan
    num_joined:   number of joined buffers
    in_order:     the joined memory  ->  the plan's inputs
    moving:       (place among the inputs, place among the brought ones) of buffers that may differ from call to call
    moving_runs:  the same of neighbours in both, as slices
    """

    def __init__(self, takes: Sequence[Source], in_place: Sequence[int], recording: Recording, constants: Sequence[Buffer]):
        """Orders the sources of a plan's inputs; `in_place` are the numbers of state in place."""
        used = dict.fromkeys(takes)
        read = [i for kind, i in used if kind == "state" and i not in in_place]
        made = [i for kind, i in used if kind == "constant"]
        away = [source for source in used if source[0].startswith(BROUGHT)]
        self.constants = [constants[i] for i in made]
        self.cells = tuple(recording.state[i] for i in read)
        self.numbers = [i if kind == BROUGHT + "arg" else recording.state[i] for kind, i in away]
        self.device = recording.device
        joined = [*[("state", i) for i in in_place], *[("constant", i) for i in made], *[("state", i) for i in read], *away]
        place = {source: at for at, source in enumerate(joined)}
        places = [place.get(source, len(joined) + source[1]) for source in takes]
        self.num_joined, self.in_order = max(places, default=-1) + 1, in_order(places)
        first = len(in_place) + len(made)
        moving = [(at, joined_at - len(in_place)) for at, joined_at in enumerate(places) if joined_at >= first]
        self.moving, self.moving_runs = runs_in(moving)

    def brought(self, buffers: list[Buffer]) -> list[Buffer]:
        """Returns the memory that a call brings; `buffers` is that of its arguments."""
        found = self.constants.copy()
        for cell in self.cells:
            content = cell.content
            found.append(content[0] if type(content) is tuple else cell_buffer(cell))
        for number in self.numbers:
            found.append(moved(cell_buffer(number) if isinstance(number, Cell) else buffers[number], self.device))
        found += buffers
        return found

    def arranged(self, in_place: Sequence[Buffer | None]) -> list[Buffer | None]:
        """Returns the plan's inputs that stay the same; None for those that a call brings."""
        fixed = [*in_place, *self.constants]
        return [*self.in_order(fixed + [None] * (self.num_joined - len(fixed)))]


class Outputs:
    """The memory that a plan writes, without state in place: that of earlier calls, of donated arguments, or new.

    in_order:   [*memory of state in place, *of the others]  ->  the plan's outputs
    moving:     numbers of the other outputs
    pool:       versions of small results and state that are not read
    donatable:  (place among the others, argument) of results that may be written over a donated argument
    """

    def __init__(
        self, plan: Plan, takes: Sequence[Source], in_place: Sequence[int], results: Sequence[Result],
        away: Mapping[int, str], device: str,
    ):  # fmt: skip
        """Orders the plan's outputs; `in_place` are the numbers of those that are state in place."""
        self.moving = others = [i for i in range(len(plan.outputs)) if i not in in_place]
        numbers = [*in_place, *others]
        self.in_order = in_order(sorted(range(len(numbers)), key=numbers.__getitem__))
        made = Counter(i for is_made, i, _ in results if is_made)
        number = {i: k for k, (is_made, i, _) in enumerate(results) if is_made and made[i] == 1 and k not in away}
        self.donatable: list[tuple[int, int]] = []
        for n, i in enumerate(others):
            places = [at for at in (plan.outputs[i].over, *plan.outputs[i].also) if at is not None and i in number]
            self.donatable += [(n, takes[at][1]) for at in places if takes[at][0] == "arg"]
        lengths = plan.fixed_lengths if device != EVALUATOR else ()  # () if they are not fixed
        # An output that is written only in part begins with its input's values, not with an earlier version's.
        kept = [(n, i) for n, i in enumerate(others) if lengths and i in number and not plan.outputs[i].keeps]
        self.pool = BufferPool(len(others), [(n, number[i], lengths[i]) for n, i in kept])

    def arranged(self, in_place: Sequence[Buffer | None]) -> list[Buffer | None]:
        """Returns the plan's outputs that stay the same; None for the others."""
        return [*self.in_order([*in_place, *[None] * len(self.moving)])]


class StateInPlace:
    """State whose new values a plan writes over the old ones if nothing else reads these.

    The plan takes buffers from cells when a call finds them there, and returns one when its cell is read, and all when this
    dies.

    taken:    the buffers that the plan has taken
    outputs:  for each cell the output of the plan that is its new value
    kinds:    device, dtype and number of elements of the new values
    unread:   places of cells whose old value the plan does not read
    shapes:   shapes of the new values, if some have symbolic integers; else None
    """

    def __init__(
        self, cells: Sequence[Cell], outputs: Sequence[int], shapes: Sequence[Shape], plan: Plan, device: str,
        unread: frozenset[int], is_symbolic: bool,
    ):  # fmt: skip
        self.taken, self.outputs, self.unread = TakenBuffers(cells, shapes), outputs, unread
        self.kinds = [(device, plan.outputs[i].dtype, plan.outputs[i].numel) for i in outputs]
        self.shapes = list(shapes) if is_symbolic else None
        self._ends = AtDeath(self.taken.cells.clear), AtDeath(later.append, self.taken.dissolve)

    def fetch(self) -> dict[int, Buffer | None]:
        """Takes the buffers of cells that are out, except of those that hold graphs; returns the memory of all by place."""
        out = sorted(self.taken.out)
        found = {place: self._memory_of(place) for place in out}
        self.taken.take(out)
        return found

    def _memory_of(self, place: int) -> Buffer | None:
        """Returns the buffer of a cell, which is computed now if it is a graph; None if the plan does not need it."""
        cell = self.taken.cells[place]
        if place not in self.unread:
            return cell_buffer(cell)
        held = cell.held()  # taken back from another function
        return None if held is None else held[0]

    def may_write(self, place: int) -> bool:
        """Returns whether the new value of a cell fits the memory of the old one, which nothing else reads."""
        buffers = self.taken.buffers
        return not has_readers(buffers, place) and (place not in self.unread or self._fits(place, buffers[place]))

    def _fits(self, place: int, old: Buffer | None) -> bool:
        """Returns whether the old value of a cell has the length of its new one: it may have been moved or cast."""
        return old is not None and (old.device, old.dtype, old.numel) == self.kinds[place]

    def put(self, places: Sequence[int], outputs: Sequence[Buffer], variables: Mapping[str, int]) -> None:
        """Takes the new memory of some cells, and notes the shapes of all."""
        if self.shapes is not None:
            self.taken.shapes[:] = [bound(shape, variables) for shape in self.shapes]
        self.taken.put(places, [outputs[self.outputs[place]] for place in places])


# ---- results ----
class BoundMemory(Record, eq=False):
    """The memory of one run.

    inputs, outputs:  of the plan
    fresh:            places of state that gets new memory
    fixed:            a promise to the plan, or None
    """

    inputs: list[Any]
    outputs: list[Any]
    fresh: Sequence[int]
    fixed: FixedMemory | None


class Results:
    """The values of a recording, without state in place: those returned, stored in cells, and of updated arguments.

    name:          name of the function
    sources:       the source of each value
    is_symbolic:   True if some shapes have symbolic integers
    num_returned:  number of returned values
    stored:        cells that get the values behind the returned ones
    away:          number of a value  ->  the device to which it is moved
    graphless:     outputs of the plan that would have a graph without jit
    passed_on:     values of that kind that are unchanged inputs of the plan, such as `w * 1.0`
    """

    def __init__(self, recording: Recording, roots: Sequence[Result], in_place: Mapping[int, int]):
        """Takes the roots that are not `in_place`."""
        values, self.name, self.num_returned = recording.values, recording.name, recording.values.num_returned
        self.sources = [result for root, result in enumerate(roots) if root not in in_place]
        self.is_symbolic = any(isinstance(dim, Op) for _, _, shape in roots for dim in shape)
        self.stored = [cell for root, cell in enumerate(values.written, self.num_returned) if root not in in_place]
        places = [place for root, place in enumerate(values.away) if root not in in_place]
        self.away = {k: place for k, place in enumerate(places) if place is not None}
        returned = [(k, *self.sources[k]) for k in values.graphless]
        self.graphless = [i for _, is_made, i, _ in returned if is_made]
        self.passed_on = [k for k, is_made, _, _ in returned if not is_made]

    def of(self, memory: BoundMemory, variables: Mapping[str, int]) -> list[Held]:
        """Returns the memory of each value after a run, and gives cells theirs."""
        inputs, outputs, held = memory.inputs, memory.outputs, []
        for i in self.graphless:
            if type(outputs[i]) is not Graphless:
                outputs[i] = Graphless.of(outputs[i], self.name)
        for is_made, i, shape in self.sources:
            held.append((outputs[i] if is_made else inputs[i], shape))
        if self.is_symbolic:
            held = [(buffer, bound(shape, variables)) for buffer, shape in held]
        for k, device in self.away.items():
            held[k] = (moved(held[k][0], device), held[k][1])
        for k in self.passed_on:
            held[k] = (Graphless.of(held[k][0], self.name), held[k][1])
        if self.stored:
            Cell.hold(self.stored, held[self.num_returned :])
        return held


# ---- replays ----
class Planned(Record, eq=False):
    """The plan of recorded graphs.

    form:     of the graphs, with values of the plan's symbolic integers
    numbers:  further buffers that the plan reads: constants of the graphs that are its inputs
    """

    plan: Plan
    form: Template
    numbers: tuple[Buffer, ...]

    @staticmethod
    def of(recording: Recording, form: Template, plan: Plan) -> Planned:
        """Returns a plan of another `form` of the graphs, in which constants may be inputs, too."""
        own = {name: value for name, value in form.variables.items() if name not in recording.form.variables}
        bare = replace(recording.form.bare(), variables=form.variables)
        return Planned(plan.of(own) if own else plan, bare, form.buffers[len(recording.sources) :])


class Aliases(Record, eq=False):
    """The ways in which a tensor that the function writes must not reach it: in the trace it did not.

    name:     of the function
    state:    cells that it reads or writes
    written:  those that it writes
    stored:   those of `written` that are not state in place
    updated:  numbers of the arguments that it writes
    """

    name: str
    state: frozenset[Cell]
    written: frozenset[Cell]
    stored: frozenset[Cell]
    updated: tuple[int, ...]

    def check(self, tensors: Sequence[Tensor]) -> None:
        """Raises JitError if an argument is state that is written, or a written argument is state or is given twice.

        For one that cannot be written to it raises the error of a write now, because none may come after the run.
        """
        cells = [tensor.cell for tensor in tensors]
        again = [] if self.written.isdisjoint(cells) else [cell for cell in cells if cell in self.written]
        again += [cells[i] for i in self.updated if cells.count(cells[i]) > 1 or cells[i] in self.state]
        if again:
            raise two_ways(self.name, again[0].op.shape)
        for i in self.updated:
            tensor = tensors[i]
            write_through(tensor.cell.op, tensor.steps, tensor.read())
            check_not_read_only("jit", tensor.cell)


class Replay:
    """A plan bound to its memory: a call checks, binds, runs and hands out results.

    It lives until the function is captured again or forgotten; then the cells of state get their buffers back.

    plan, form:  of the graphs
    device:      device of the plan
    symbolic:    cells with symbolic integers in their shapes, whose values a call takes from them
    aliases:     ways in which a written tensor must not reach the function
    inputs, outputs, state:  owners of memory
    results:     places of the values, and their destinations
    returned:    the function's return value, made of these
    """

    def __init__(self, recording: Recording, planned: Planned):
        plan, values, device = planned.plan, recording.values, recording.device
        sources = [*recording.sources, *[("constant", len(recording.constants) + i) for i in range(len(planned.numbers))]]
        takes = [sources[op.arg[0]] for op in plan.schedule.inputs]
        uses = [plan.schedule.buffers[index] for index in plan.schedule.outputs]
        roots = [(use.role == "output", use.source, shape) for use, (_, shape) in zip(uses, values.kinds)]
        over = written_over(recording, plan, takes, roots)
        cells, outputs = [recording.state[i] for i in over.values()], [roots[root][1] for root in over]
        read = {i for kind, i in takes if kind == "state"}
        unread = frozenset(place for place, i in enumerate(over.values()) if i not in read)
        self.plan, self.form, self.device, self.returned = plan, planned.form, device, recording.returned
        self.results = results = Results(recording, roots, over)
        self.state = StateInPlace(
            cells, outputs, [roots[root][2] for root in over], plan, device, unread, results.is_symbolic
        )  # fmt: skip
        self.inputs = Inputs(takes, [*over.values()], recording, [*recording.constants, *planned.numbers])
        self.outputs = Outputs(plan, takes, outputs, results.sources, results.away, device)
        self.aliases = Aliases(
            recording.name, frozenset(recording.state), frozenset(values.written), frozenset(results.stored), values.updated
        )
        shapes = [(cell, cell.kind()[2]) for cell in [recording.state[i] for i in read]]
        shapes += [(cell, shape) for cell, (_, _, shape) in zip(values.written, roots[values.num_returned :])]
        self.symbolic = {cell for cell, shape in shapes if any(isinstance(dim, Op) for dim in shape)}

    def __call__(self, tensors: Sequence[Tensor], buffers: list[Buffer], given: Arguments | None = None) -> Any:
        """Runs the plan on arguments and the present state; returns what the function would.

        Args:
          given:  the whole arguments, unless they are only Tensors of fixed shapes
        """
        state, taken, aliases, outputs = self.state, self.state.taken, self.aliases, self.outputs
        form = self._form_of(given) if self.symbolic or given is not None and given.variables else self.form
        # Taken state that is an argument, too, is out: it was read when arguments were gathered.
        if taken.out or aliases.updated or aliases.stored and not aliases.stored.isdisjoint(map(cell_of, tensors)):
            aliases.check(tensors)
        free = outputs.pool.given()
        if given is not None and given.donated:
            give_donated(given, outputs.donatable, aliases.state, aliases.name, free)
        brought = self.inputs.brought(buffers)
        came: list[int] = []  # places of state that was out
        known: dict[int, Buffer | None] = {}  # their memory, if it was read already
        with held_back() if aliases.updated else nullcontext() as hold:
            while True:
                with taken.running:  # nobody takes state back before the run is over
                    if not taken.out or taken.out <= known.keys():
                        held = self._run(form, self._bind(form, brought, free, came, known), hold)
                        break
                # NOTE: read while `running` is not held: two plans that waited for each other would do so for ever.
                known = state.fetch()
                came = [*dict.fromkeys([*came, *known])]
            outputs.pool.keep(held)
            for i, value in zip(aliases.updated, held[len(held) - len(aliases.updated) :]):
                tensors[i].write("jit", memory_op(*value))
        return self.returned.hand_out(held[: self.results.num_returned], tensors)

    def _run(self, form: Template, memory: BoundMemory, hold: held_back | None) -> list[Held]:
        """Runs the plan once, gives cells their new values, and returns the memory of the results.

        An interrupt comes when all cells have their new values, or none. So it waits for a plan that writes some of these
        into the memory of the old ones, and ends any other plan.

        Args:
          hold:  makes interrupts wait already, until arguments have their values, too
        """
        state = self.state
        is_in_place = len(memory.fresh) < len(state.taken.cells)
        sets_more = memory.fresh or self.results.stored or state.shapes is not None
        may_stop = not state.unread or state.unread <= {*memory.fresh}
        arguments = self.plan, memory.inputs, memory.outputs, form.variables, form.error, may_stop, memory.fixed
        with held_back() if sets_more and hold is None else nullcontext(hold) as hold:
            if hold is None or is_in_place:
                run(*arguments)
            else:
                hold.let_in(run, *arguments)
            held = self.results.of(memory, form.variables)
            if memory.fresh or state.shapes is not None:
                state.put(memory.fresh, memory.outputs, form.variables)
        return held

    def _form_of(self, given: Arguments | None) -> Template:
        """Returns the form with this call's values of symbolic integers."""
        variables = {} if given is None else given.variables
        for cell in self.symbolic:  # else a state of three rows would be read as the five rows of the trace
            unbound(cell.op.shape, variables)
        return replace(self.form, variables={**self.form.variables, **variables}) if variables else self.form

    def _bind(
        self, form: Template, brought: list[Buffer], free: Sequence[Held | None], came: Sequence[int],
        known: dict[int, Buffer | None],
    ) -> BoundMemory:  # fmt: skip
        """Returns memory for all that the plan reads and writes; new memory if there is none yet.

        Args:
          free:   versions of outputs that are not read
          came:   places of state that was out
          known:  the memory that this state had
        """
        taken, moving = self.state.taken, self.outputs.moving
        fresh: Sequence[int] = ()
        fixed: FixedMemory | None = None
        if not taken.cells:
            inputs, outputs = [*self.inputs.in_order(brought)], [*self.outputs.in_order([None] * len(moving))]
        elif came:
            inputs, outputs, fresh = self._bind_again(brought, came, known)
        else:
            arranged = taken.arranged or self._arrange()
            inputs, outputs, fixed = arranged.inputs.copy(), arranged.outputs.copy(), arranged.fixed
            for at, place in self.inputs.moving:
                inputs[at] = brought[place]
            for places, run in self.inputs.moving_runs:
                inputs[places] = brought[run]
        for at, version in zip(moving, free):
            if version is not None:
                outputs[at] = version[0]
        if fresh or None in free:
            missing = [number for number, buffer in enumerate(outputs) if buffer is None]
            for number, buffer in zip(missing, new_outputs(self.plan, self.device, form.variables, inputs, missing)):
                outputs[number] = buffer
        return BoundMemory(inputs, outputs, fresh, fixed)

    def _arrange(self) -> Arranged:
        """Puts taken state and constants in their places in the plan, until somebody reads state."""
        taken, inputs, outputs = self.state.taken, self.inputs, self.outputs
        taken.arranged = arranged = Arranged(inputs.arranged(taken.buffers), outputs.arranged(taken.buffers), self.fixed())
        return arranged

    def fixed(self) -> FixedMemory:
        """Returns the promise to the plan that holds until somebody reads state."""
        places = tuple(at for at, _ in self.inputs.moving)
        return FixedMemory(places, tuple(self.outputs.moving), tuple(run for run, _ in self.inputs.moving_runs))

    def _bind_again(
        self, brought: list[Buffer], came: Sequence[int], known: dict[int, Buffer | None]
    ) -> tuple[list[Any], list[Any], list[int]]:
        """Returns inputs, outputs and places of fresh state after state was read: buffers with readers are not written."""
        state, taken = self.state, self.state.taken
        for place in known.keys() - taken.out:
            del known[place]  # else it would count as a reader itself; graphs that are kept for gradients remain
        fresh = [place for place in came if place in known or not state.may_write(place)]
        old = [known.get(place, buffer) for place, buffer in enumerate(taken.buffers)]
        new = [None if place in fresh else buffer for place, buffer in enumerate(old)]
        outputs = self.outputs.in_order(new + [None] * len(self.outputs.moving))
        return [*self.inputs.in_order(old + brought)], [*outputs], fresh


def written_over(recording: Recording, plan: Plan, takes: Sequence[Source], roots: Sequence[Result]) -> dict[int, int]:
    """Returns the roots that may be written over the old value of a state, each with the number of that state.

    The plan must read the old value before it writes the new one, or not at all.
    """
    values = recording.values
    made = Counter(i for is_made, i, _ in roots if is_made)
    unchanged = {i for is_made, i, _ in roots if not is_made}
    number, read = {cell: i for i, cell in enumerate(recording.state)}, set(takes)
    found: dict[int, int] = {}
    for root, cell in enumerate(values.written, values.num_returned):
        is_made, i, _ = roots[root]
        if not is_made or made[i] > 1 or values.away[root]:
            continue
        use, state = plan.outputs[i], ("state", number[cell])
        places = {use.over, *use.also} - {None} - unchanged
        is_unread = use.late and isinstance(use.numel, int) and state not in read
        if is_unread or state in [takes[at] for at in places if at is not None]:
            found[root] = number[cell]
    return found


# ---- replays without state ----
def replay_of(recording: Recording, planned: Planned, only_tensors: bool) -> ReplayCall:
    """Returns a replay of a recording: a stateless one if that is enough.

    Args:
      only_tensors:  arguments have no symbolic integers, and none is donated
    """
    replay = Replay(recording, planned)
    values, inputs, results = recording.values, replay.inputs, replay.results
    has_effects = values.written or values.updated or not recording.returned.makes_new
    moves = inputs.numbers or results.away or results.is_symbolic or replay.symbolic
    outputs = [(True, i) for i in range(len(replay.plan.outputs))]
    is_plain = outputs and [(is_made, i) for is_made, i, _ in results.sources] == outputs
    # A profiler replaces runs, and has functions traced again when it begins and when it ends.
    is_short = only_tensors and is_plain and not has_effects and not moves and Profiling.recorder is None
    return stateless(replay) if is_short else replay


def stateless(replay: Replay) -> ReplayCall:
    """Returns a replay of a plan whose outputs are the results, in order: Tensors come in, and new ones come out."""
    plan, inputs, pool, results = replay.plan, replay.inputs, replay.outputs.pool, replay.results
    run, variables, error, fixed, device = plan.run, replay.form.variables, replay.form.error, replay.fixed(), inputs.device
    constants, cells, joined = inputs.constants, inputs.cells, inputs.in_order
    container, is_one = replay.returned.container, replay.returned.is_single
    shapes = [shape for _, _, shape in results.sources]

    def new_results(taken: Sequence[Any], held: list[Held | None]) -> list[Held]:
        """Returns memory for results: of an earlier call's results if some are dead, else new."""
        missing = [number for number, version in enumerate(held) if version is None]
        made = dict(zip(missing, new_outputs(plan, device, {}, taken, missing)))
        made |= {number: Graphless.of(made[number], results.name) for number in missing if number in results.graphless}
        return [version or (made[number], shapes[number]) for number, version in enumerate(held)]

    def call(tensors: Sequence[Tensor], buffers: list[Buffer], given: Arguments | None = None) -> Any:
        brought = [*constants]
        for cell in cells:  # `Inputs.brought` written out: a call more would be felt here
            content = cell.content
            brought.append(content[0] if type(content) is tuple else cell_buffer(cell))
        taken = joined(brought + buffers)
        held: list[Any] = pool.given()
        if None in held:
            held = new_results(taken, held)
            pool.keep(held)
        version = held[0]
        try:
            run(taken, version[:1] if is_one else [buffer for buffer, _ in held], variables, True, fixed)
        except Refused as report:
            raise error(report) from None
        for counts in active():
            counts.add_run(plan)
        if is_one:
            return Tensor.from_memory(version, device)
        made = map(Tensor.from_memory, held, [device] * len(held))
        return mapped(container, lambda _: next(made))

    return call
