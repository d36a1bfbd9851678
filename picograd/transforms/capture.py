"""A traced call, and how it is run again: what a call needs is worked out once, so that little Python is left of it.

In:    the graphs and cells of one trace; later the arguments of a call
Out:   `Capture`; its `replay(arguments)` gives what the function returned;  `on_one_device`: the graphs of a trace
       without COPYs, the one device they run on, and what crosses over to it and back

A plan runs on one device. What has no axes may be on the CPU all the same, as outside: its value is brought before each
run, and what it becomes is taken back after it. Anything larger would have to be copied by the user. A plan takes
memory by its address, and would read what was moved or cast since as what it had been: `CellKinds` tells.

A call of a small kernel is mostly Python. What most replays ask at each call (has somebody read state, how long is a
symbolic axis, is memory donated, is a number on another device, is an argument written) has the answer no in a
`StraightCall`: Tensors of fixed shapes in, Tensors out, and no state but what is only read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, cast

from picograd.control.structure import PLACE, mapped
from picograd.engine.devices import EVALUATOR
from picograd.engine.plan import Template, bound, computed_from, template, unbound
from picograd.engine.realize import default_device, from_host, new_outputs, run, to_host
from picograd.engine.watch import active
from picograd.errors import JitError
from picograd.forks import cached_property
from picograd.ir.bodies import substitute
from picograd.ir.host import Refused
from picograd.ir.op import Buffer, Op, Shape, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.origin import Graphless, line_of
from picograd.ir.stages import FixedMemory, Plan
from picograd.living import AtDeath, later
from picograd.record import Record, replace
from picograd.tensor.arguments import GOES_ALONG
from picograd.tensor.cell import Arranged, Cell, CellKind, Held, TakenBuffers, last_move
from picograd.tensor.compute import cell_buffer
from picograd.tensor.tensor import Tensor
from picograd.transforms.buffer_reuse import BufferPool, give_donated, has_readers
from picograd.transforms.containers import Arguments, two_ways
from picograd.transforms.guards import Guards, Watched
from picograd.transforms.results import Collected, Recipe, results_of

# ---- devices ----
Place = tuple[str | None, Shape]  # a device, and the shape of the value


class OnOneDevice(Record):
    """Graphs that one plan computes.

    roots:    the graphs
    form:     the same, as a template
    device:   where the plan runs
    brought:  a Buffer of the form  ->  the Buffer on the CPU whose number it holds
    """

    roots: list[Op]
    form: Template
    device: str
    brought: Mapping[Buffer, Buffer]


def on_one_device(
    roots: Sequence[Op], written: Sequence[Place], given: Collection[Op], name: str
) -> OnOneDevice:  # fmt: skip
    """Returns graphs as one plan computes them.

    Args:
      written:  where state is that is written
      given:    what arguments and state held before the call
      name:     of the function

    Raises:
      JitError: what is copied has axes and is no constant, or tensors with axes are on two devices.
    """
    roots, named = _without_copies(roots, given, name)
    form = template(roots, computed_anew=computed_from(given, roots))
    read = [(leaf.arg[0].device, leaf.shape) for leaf in form.leaves.values()]
    device = _home([*named, *read, *written], name)
    places = dict(form.leaves)
    brought: dict[Buffer, Buffer] = {}
    for op, leaf in form.leaves.items():
        if leaf.arg[0].device != device:
            places[op] = here = from_host(to_host(leaf), leaf.dtype, device)
            brought[here.arg[0]] = leaf.arg[0]
    if brought:
        roots = substitute(roots, places)
        form = template(roots, computed_anew=computed_from([*given, *places.values()], roots))
    return OnOneDevice(roots, form, device, brought)


def _home(places: Iterable[Place], name: str) -> str:
    """Returns the one device of tensors; the CPU's numbers do not count where there is another."""
    known = {(device, bool(shape)) for device, shape in places if device is not None}
    devices = {device for device, has_axes in known if has_axes or device != GOES_ALONG}
    if len(devices) > 1:
        raise JitError(
            f"jit: {name} computes on several devices: {', '.join(sorted(devices))}.",
            f"move them to one before the call; only a tensor of no axes may stay on {GOES_ALONG}.",
        )
    return next(iter(devices or {device for device, _ in known}), default_device())


def _without_copies(roots: Sequence[Op], given: Collection[Op], name: str) -> tuple[list[Op], list[Place]]:
    """Returns graphs whose constants and numbers are made where the plan runs, and the places that constants name.

    pg.ones(3, device="CUDA") is a COPY where another device is the default one; constants alone live everywhere.
    """
    reads, made = set(given), {op: op for op in given}
    anew = cache(lambda: computed_from(given, roots))  # a walk that few graphs need
    named: list[Place] = []
    for op in toposort(roots, stop=made):
        if op.code is OpCode.BUFFER or not reads.isdisjoint(op.src):
            reads.add(op)
        if op.code is OpCode.DETACH and Graphless.living and not op.src[0].needs_grad:  # a plan is the same without
            made[op] = substitute([op.src[0]], made)[0]
        if op.code is not OpCode.COPY or op in made:
            continue
        is_constant = op not in reads
        if is_constant or not op.shape:
            made[op] = substitute([op.src[0]], made)[0]
            named += [(op.arg, op.shape)] * is_constant
        elif op.realized is None or op in anew():
            raise JitError(
                f"jit: {name} copies a tensor of shape {op.shape} to {op.arg}; a plan runs on one device.",
                "copy what it takes before the call, and what it returns after it.",
                line_of(op),
            )
    return (substitute(roots, made) if len(made) > len(given) else list(roots)), named


def moved(buffer: Buffer, device: str) -> Buffer:
    """Returns a copy of a number on another device."""
    op = Op(OpCode.BUFFER, buffer.dtype, (), (buffer, ()))
    return cast(Buffer, from_host(to_host(op), buffer.dtype, device).arg[0])


# ---- kinds of cells ----
class CellKinds:
    """Device, dtype and shape of state as a function was traced with it."""

    def __init__(self, cells: Iterable[Cell], device: str):
        """`device` is where the plan runs, and with it state that is of no device yet."""
        self.device, self.kinds = device, [(cell, cell.kind()) for cell in cells]
        self._looked = -1  # the last move there was then

    def have_changed(self) -> bool:
        """True where some state has been moved to another device, cast, or given another shape."""
        move = last_move.number
        if move != self._looked and not all(self._fits(cell.kind(), before) for cell, before in self.kinds):
            return True
        self._looked = move
        return False

    def _fits(self, now: CellKind, before: CellKind) -> bool:
        (device, dtype, shape), (old_device, old_dtype, old_shape) = now, before
        is_symbolic = any(isinstance(dim, Op) for dim in (*shape, *old_shape))  # each call has a length of its own
        same_place = device in (None, old_device or self.device)
        return same_place and dtype == old_dtype and (is_symbolic or shape == old_shape)


# ---- the order of memory ----
LEAST_RUN = 4  # neighbours that go as one: a slice costs as much as three that go alone


def in_order(places: Sequence[int]) -> Callable[[list[Any]], Sequence[Any]]:
    """Returns a function that reorders: item `places[i]` comes at i."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


def side_by_side(pairs: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[slice, slice]]]:
    """Returns pairs of single places, and those that are neighbours in both, as slices."""
    alone: list[tuple[int, int]] = []
    runs: list[tuple[slice, slice]] = []
    # Neighbours are those for which the distance to their number is the same in both.
    for _, group in groupby(enumerate(pairs), lambda pair: (pair[1][0] - pair[0], pair[1][1] - pair[0])):
        found = [pair for _, pair in group]
        if len(found) < LEAST_RUN:
            alone += found
        else:
            (a, b), count = found[0], len(found)
            runs.append((slice(a, a + count), slice(b, b + count)))
    return alone, runs


# ---- the short way ----
StraightCall = Callable[[list[Buffer]], Any]


def straight(
    plan: Plan, device: str, form: Template, fixed: FixedMemory, constants: Sequence[Buffer], reads: Sequence[Cell],
    inputs_of: Callable[[list[Any]], Sequence[Any]], spares: BufferPool, shapes: Sequence[Shape], returned: Any,
    graphless: Mapping[int, str],
) -> StraightCall:  # fmt: skip
    """Returns a function that runs a plan whose outputs are the results, in order.

    Args:
      device:     where it runs
      form:       of its graphs
      fixed:      which inputs and outputs are other memory at each call
      constants:  buffers that the function made itself
      reads:      state that it reads
      inputs_of:  [*constants, *memory of state, *of arguments]  ->  the plan's inputs
      spares:     memory of small results of earlier calls
      shapes:     of the results
      returned:   what the function returned, with a mark for each Tensor
      graphless:  numbers of the results that would have a graph without jit, with the name of the function
    """
    is_one, run, variables = returned is PLACE, plan.run, form.variables

    def new_results(inputs: Sequence[Any], held: list[Held | None]) -> list[Held]:
        """Returns memory for results, new where no version of an earlier call is free."""
        missing = [number for number, version in enumerate(held) if version is None]
        made = dict(zip(missing, new_outputs(plan, device, {}, inputs, missing)))
        made |= {number: Graphless.of(made[number], graphless[number]) for number in missing if number in graphless}
        return [version or (made[number], shapes[number]) for number, version in enumerate(held)]

    def call(buffers: list[Buffer]) -> Any:
        others = [*constants]
        for cell in reads:
            content = cell.content
            others.append(content[0] if type(content) is tuple else cell_buffer(cell))
        inputs = inputs_of(others + buffers)
        held: list[Any] = spares.given()
        if None in held:
            held = new_results(inputs, held)
            spares.keep(held)
        version = held[0]
        try:
            run(inputs, version[:1] if is_one else [buffer for buffer, _ in held], variables, True, fixed)
        except Refused as report:
            raise form.error(report) from None
        for counts in active():
            counts.add_run(plan)
        if is_one:
            return Tensor.from_memory(version, device)
        results = map(Tensor.from_memory, held, [device] * len(held))
        return mapped(returned, lambda _: next(results))

    return call


# ---- captures ----
Result = tuple[bool, int, Shape]
BROUGHT = "brought "  # of sources: see Capture
cell_of = attrgetter("cell")


class Capture(Record, dict=True):
    """A traced call.

    form:      the graphs it builds, as a template
    roots:     returned values, then what written cells and updated arguments hold; () once it is checked
    sources:   for each buffer of the form where it comes from: ("arg", i), ("state", i) or ("constant", i); of a number
               that is on the CPU, while the plan runs elsewhere, ("brought arg", i) or ("brought state", i)
    state:     cells it reads
    kinds:     of state
    constants: buffers it made itself, and numbers that other captures have other ones of
    written:   cells it writes
    updated:   which arguments it writes in place
    returned:  what the function returned, with a mark for each Tensor, and
    recipes:   how each of these is made, None where each is a value of its own
    shapes:    dtype and shape of each root
    away:      for each root the device to which its value, a number, is taken after a run, or None
    device:    where the plan runs
    name:      of the function
    guards:    what must mean the same at every call
    collected: what becomes of `.grad` of leaves, if anything
    graphless: numbers of results from which gradients would flow on without jit
    plan:      None until it is made
    """

    form: Template
    roots: tuple[Op, ...]
    sources: tuple[tuple[str, int], ...]
    state: tuple[Cell, ...]
    kinds: CellKinds
    constants: tuple[Buffer, ...]
    written: tuple[Cell, ...]
    updated: tuple[int, ...]
    returned: Any
    shapes: tuple[tuple[Any, Any], ...]
    away: tuple[str | None, ...]
    device: str
    name: str
    guards: Guards
    collected: Collected | None
    recipes: tuple[Recipe, ...] | None
    graphless: tuple[int, ...]
    plan: Plan | None = None

    @cached_property
    def replay(self) -> Replay:
        """Runs the plan on the Tensors of a call."""
        return Replay(self)


class Replay:
    """A capture in the form a call needs.

    watched:    what the guards depend on, once they have been looked at
    taken:      memory of the state that the plan writes over, call after call
    replaced:   of its places those whose values the plan does not read
    apart:      cells that the plan writes otherwise
    reads:      other state that the plan reads
    brought:    sources of numbers that are brought from another device, and
    away:       (which of the results, device) of those that are taken to one
    constants:  buffers the function made itself, and numbers of the capture
    inputs_of:  [*memory of taken state, *constants, *memory of other state, *of arguments]  ->  the plan's inputs
    outputs_of: [*memory of taken state, *of what else the plan makes]  ->  the plan's outputs
    numbers:    which output each of these is
    loose_inputs:   (place among the plan's inputs, place among the reads besides taken state) of inputs that each call
                    brings
    loose_runs:     the same of neighbours in both, as slices
    of_some_length: state that the plan reads or writes whose shape has symbolic integers
    loose_outputs:  places among the plan's outputs of those besides taken state
    is_single:  one new value is all that a call gives, and no gradient comes
    spares:     memory of small results and state that earlier calls wrote
    graphless:  which outputs of the plan are results that would have a graph without jit
    passed_on:  such results that are inputs of the plan, unchanged, as `w * 1.0` is
    straight:   the short way to run this, where nothing but Tensors comes in and out
    donatable:  (place among the plan's other outputs, argument) where a result may be written over a donated argument
    results:    for each root but taken state: whether it is an output of the plan (or an input, unchanged), which one,
                and its shape; what is returned, then what is `stored` in cells, then updated arguments
    """

    def __init__(self, capture: Capture):
        plan = capture.plan
        assert plan is not None
        # NOTE: a copy, which does not know this Replay: a cycle would keep what a trace wrote until it is found.
        self.capture, self.plan, self.device = replace(capture), plan, capture.device
        grads_come = capture.collected is not None and capture.collected.takes_results
        self.is_single = capture.returned is PLACE and capture.recipes is None and not grads_come
        takes = [capture.sources[op.arg[0]] for op in plan.schedule.inputs]
        uses = [plan.schedule.buffers[index] for index in plan.schedule.outputs]
        roots = [(use.role == "output", use.source, shape) for use, (_, shape) in zip(uses, capture.shapes)]
        self.form = capture.form
        self.state, self.written = frozenset(capture.state), frozenset(capture.written)
        self.watched: Watched | None = None
        self.num_returned = first = len(roots) - len(capture.written) - len(capture.updated)
        over = self._written_over(takes, roots)
        self.taken = TakenBuffers([capture.state[i] for i in over.values()], [roots[root][2] for root in over])
        read = {i for kind, i in takes if kind == "state"}
        self.replaced = frozenset(place for place, i in enumerate(over.values()) if i not in read)
        self.stored = [cell for root, cell in enumerate(capture.written, first) if root not in over]
        self.results = [result for root, result in enumerate(roots) if root not in over]
        places = [place for root, place in enumerate(capture.away) if root not in over]
        self.away = [(k, place) for k, place in enumerate(places) if place is not None]
        symbolic = any(isinstance(dim, Op) for _, _, shape in roots for dim in shape)
        self.symbolic_shapes = list(self.taken.shapes) if symbolic else None
        shapes = [(cell, kind[2]) for i, (cell, kind) in enumerate(capture.kinds.kinds) if ("state", i) in takes]
        shapes += [(cell, shape) for cell, (_, _, shape) in zip(capture.written, roots[first:])]
        self.of_some_length = {cell for cell, shape in shapes if any(isinstance(dim, Op) for dim in shape)}
        self.apart, self.updated = frozenset(self.stored), capture.updated
        self._find_inputs(takes, list(over.values()))
        self._find_outputs(takes, [roots[root][1] for root in over])
        returned = [self.results[k] for k in capture.graphless]
        self.graphless = [i for is_made, i, _ in returned if is_made]
        self.passed_on = [k for k, (is_made, _, _) in zip(capture.graphless, returned) if not is_made]
        self.straight = self._find_straight()
        self._ends = AtDeath(self.taken.cells.clear), AtDeath(later.append, self.taken.dissolve)

    def _written_over(self, takes: Sequence[tuple[str, int]], roots: Sequence[Result]) -> dict[int, int]:
        """Returns the roots that may be written where the value before was, each with the state whose value it is.

        That is where the plan reads the value before it writes the new one, or does not read it.
        """
        capture = self.capture
        made = Counter(i for is_made, i, _ in roots if is_made)
        unchanged = {i for is_made, i, _ in roots if not is_made}
        number, read = {cell: i for i, cell in enumerate(capture.state)}, set(takes)
        found: dict[int, int] = {}
        for root, cell in enumerate(capture.written, self.num_returned):
            is_made, i, _ = roots[root]
            if not is_made or made[i] > 1 or capture.away[root]:
                continue
            use, state = self.plan.outputs[i], ("state", number[cell])
            places = {use.over, *use.also} - {None} - unchanged
            is_unread = use.late and isinstance(use.numel, int) and state not in read
            if is_unread or state in [takes[at] for at in places if at is not None]:
                found[root] = number[cell]
        return found

    def _find_inputs(self, takes: Sequence[tuple[str, int]], claimed: Sequence[int]) -> None:
        """Finds where each input of the plan comes from."""
        used = dict.fromkeys(takes)
        reads = [i for kind, i in used if kind == "state" and i not in claimed]
        constants = [i for kind, i in used if kind == "constant"]
        self.reads = tuple(self.capture.state[i] for i in reads)
        self.constants = [self.capture.constants[i] for i in constants]
        self.brought = [take for take in used if take[0].startswith(BROUGHT)]
        order = [*[("state", i) for i in claimed], *[("constant", i) for i in constants], *[("state", i) for i in reads]]
        order += self.brought
        place = {source: at for at, source in enumerate(order)}
        sources = [place.get(take, len(order) + take[1]) for take in takes]
        self.inputs_of, self.num_sources = in_order(sources), max(sources, default=-1) + 1
        first = len(claimed) + len(constants)
        loose = [(at, source - len(claimed)) for at, source in enumerate(sources) if source >= first]
        self.loose_inputs, self.loose_runs = side_by_side(loose)

    def _find_outputs(self, takes: Sequence[tuple[str, int]], claimed: Sequence[int]) -> None:
        """Finds the memory that results may have besides that of taken state: of arguments, and of earlier calls."""
        plan, claims = self.plan, set(claimed)
        others = [i for i in range(len(plan.outputs)) if i not in claims]
        self.numbers, self.loose_outputs = [*claimed, *others], others
        self.outputs_of = in_order(sorted(range(len(self.numbers)), key=self.numbers.__getitem__))
        made = Counter(i for is_made, i, _ in self.results if is_made)
        away = {k for k, _ in self.away}
        result = {i: k for k, (is_made, i, _) in enumerate(self.results) if is_made and made[i] == 1 and k not in away}
        self.donatable: list[tuple[int, int]] = []
        for n, i in enumerate(others):
            places = [at for at in (plan.outputs[i].over, *plan.outputs[i].also) if at is not None and i in result]
            self.donatable += [(n, takes[at][1]) for at in places if takes[at][0] == "arg"]
        lengths = plan.fixed_lengths if self.device != EVALUATOR else ()  # () where they are not fixed
        # An output that keeps what its input holds cannot start from an earlier version.
        kept = [(n, i) for n, i in enumerate(others) if lengths and i in result and not plan.outputs[i].keeps]
        self.spares = BufferPool(len(others), [(n, result[i], lengths[i]) for n, i in kept])

    def _find_straight(self) -> StraightCall | None:
        """Returns the short way to run this, where Tensors come in and new ones come out, and state is only read."""
        capture = self.capture
        changes = capture.written or self.updated or capture.recipes is not None or capture.collected is not None
        if changes or self.brought or self.away or self.symbolic_shapes is not None or self.of_some_length:
            return None
        outputs = [(True, i) for i in range(len(self.plan.outputs))]
        if not outputs or [(is_made, i) for is_made, i, _ in self.results] != outputs:
            return None
        shapes = [shape for _, _, shape in self.results]
        return straight(
            self.plan, self.device, self.form, self._fixed(), self.constants, self.reads, self.inputs_of, self.spares,
            shapes, capture.returned, dict.fromkeys(self.graphless, capture.name),
        )  # fmt: skip

    def _fixed(self) -> FixedMemory:
        """Says which inputs and outputs are other memory at each call, as long as nobody looks at taken state."""
        alone, runs = tuple(at for at, _ in self.loose_inputs), tuple(places for places, _ in self.loose_runs)
        return FixedMemory(alone, tuple(self.loose_outputs), runs)

    def __call__(self, tensors: Sequence[Tensor], buffers: list[Buffer], given: Arguments | None = None) -> Any:
        """Runs the plan on arguments and on what the state's cells hold now.

        Args:
          given:  what else they say, where they are not only Tensors of fixed shapes
        """
        form: Template = self.form
        variables = {} if given is None else given.variables
        for cell in self.of_some_length:  # else three rows would be read, or written, as five are
            unbound(cell.op.shape, variables)
        if variables:
            form = replace(form, variables={**form.variables, **variables})
        # Taken state that is an argument, too, is out: it was read when arguments were gathered.
        if self.taken.out or self.updated or self.apart and not self.apart.isdisjoint(map(cell_of, tensors)):
            self._check_aliases(tensors)
        free = [version and version[0] for version in self.spares.given()]
        if given is not None and given.donated:
            give_donated(given, self.donatable, self.state, self.capture.name, free)
        others = self.constants.copy()
        for cell in self.reads:
            content = cell.content
            others.append(content[0] if type(content) is tuple else cell_buffer(cell))
        for kind, i in self.brought:
            held = buffers[i] if kind == BROUGHT + "arg" else cell_buffer(self.capture.state[i])
            others.append(moved(held, self.device))
        others += buffers
        if self.taken.cells:
            results = self._run_over_state(form, others, free)
        else:
            results = self._run(form, self.inputs_of(others), [*self.outputs_of(free)], free)
        self.spares.keep(results)
        return self._returned(results, tensors)

    def _run_over_state(self, form: Template, others: list[Buffer], free: list[Buffer | None]) -> list[Held]:
        """Runs the plan on taken state, whose new values are written over the old where nobody else reads these."""
        taken = self.taken
        with taken.running:
            if not taken.out:
                arranged = taken.arranged or self._arrange()
                inputs, outputs = arranged.inputs.copy(), arranged.outputs.copy()
                for at, source in self.loose_inputs:
                    inputs[at] = others[source]
                for places, brought in self.loose_runs:
                    inputs[places] = others[brought]
                for at, buffer in zip(self.loose_outputs, free):
                    outputs[at] = buffer
                return self._run(form, inputs, outputs, free, (), arranged.fixed)
        came: list[int] = []  # the state that was out
        known: dict[int, Buffer | None] = {}  # and its memory, where that is read
        while True:
            with taken.running:
                out = sorted(taken.out)
                if known.keys() >= set(out):
                    known = {place: known[place] for place in out}  # graphs that are kept, for their gradients
                    fresh = [place for place in came if place in known or not self._may_write(place)]
                    claimed = [known.get(place, buffer) for place, buffer in enumerate(taken.buffers)]
                    written = [None if place in fresh else buffer for place, buffer in enumerate(claimed)]
                    inputs, outputs = [*self.inputs_of(claimed + others)], [*self.outputs_of(written + free)]
                    return self._run(form, inputs, outputs, free, fresh)
            # NOTE: read while `running` is not held: two plans that waited for each other would do so for ever.
            came += [place for place in out if place not in came]
            known = {place: self._memory_of(place) for place in out}
            taken.take(out)

    def _memory_of(self, place: int) -> Buffer | None:
        """Returns the buffer of taken state, computed now if need be; None if the plan does not need it."""
        if place not in self.replaced:
            return cell_buffer(self.taken.cells[place])
        held = self.taken.cells[place].held()  # taken back from another function
        return None if held is None else held[0]

    def _may_write(self, place: int) -> bool:
        """Returns whether the new value of taken state fits where the old one is, and nobody else reads that."""
        buffers = self.taken.buffers
        return not has_readers(buffers, place) and (place not in self.replaced or self._fits(place, buffers[place]))

    def _fits(self, place: int, old: Buffer | None) -> bool:
        """Returns whether what a state held has the length of its new value: it may have been moved, or cast."""
        use = self.plan.outputs[self.numbers[place]]
        return old is not None and (old.device, old.dtype, old.numel) == (self.device, use.dtype, use.numel)

    def _arrange(self) -> Arranged:
        """Puts taken state and constants in the places in which the plan takes them, for as long as no cell leaves."""
        taken, fixed = self.taken, [*self.taken.buffers, *self.constants]
        inputs = self.inputs_of(fixed + [None] * (self.num_sources - len(fixed)))
        outputs = self.outputs_of(taken.buffers + [None] * len(self.loose_outputs))
        taken.arranged = arranged = Arranged([*inputs], [*outputs], self._fixed())
        return arranged

    def _run(
        self,
        form: Template,
        inputs: Sequence[Any],
        outputs: list[Any],
        free: Sequence[Buffer | None],
        fresh: Sequence[int] = (),
        fixed: FixedMemory | None = None,
    ) -> list[Held]:
        """Runs the plan and gives state its new values; returns the memory of the results.

        Args:
          outputs: memory to write to; None where it is to be allocated
          free:    of these what is no taken state
          fresh:   places of taken state that get new memory
          fixed:   which inputs and outputs are other memory than in an earlier run; None: any may be
        """
        if fresh or None in free:
            numbers = [number for number, buffer in enumerate(outputs) if buffer is None]
            for number, buffer in zip(numbers, new_outputs(self.plan, self.device, form.variables, inputs, numbers)):
                outputs[number] = buffer
        may_stop = not self.replaced or self.replaced <= {*fresh}
        run(self.plan, inputs, outputs, form.variables, form.error, may_stop, fixed)
        for i in self.graphless:
            if type(outputs[i]) is not Graphless:
                outputs[i] = Graphless.of(outputs[i], self.capture.name)
        results = []
        for is_made, i, shape in self.results:
            results.append((outputs[i] if is_made else inputs[i], shape))
        if self.symbolic_shapes is not None:
            results = [(buffer, bound(shape, form.variables)) for buffer, shape in results]
            self.taken.shapes[:] = [bound(shape, form.variables) for shape in self.symbolic_shapes]
        if fresh:
            self.taken.put(fresh, [outputs[self.numbers[place]] for place in fresh])
        for k, device in self.away:
            results[k] = (moved(results[k][0], device), results[k][1])
        for k in self.passed_on:
            results[k] = (Graphless.of(results[k][0], self.capture.name), results[k][1])
        if self.stored:
            Cell.hold(self.stored, results[self.num_returned :])
        return results

    def _check_aliases(self, tensors: Sequence[Tensor]) -> None:
        """Raises where a tensor that is written reaches the function in two ways, which it did not when it was traced."""
        cells = [tensor.cell for tensor in tensors]
        again = [] if self.written.isdisjoint(cells) else [cell for cell in cells if cell in self.written]
        again += [cells[i] for i in self.capture.updated if cells.count(cells[i]) > 1 or cells[i] in self.state]
        if again:
            raise two_ways(self.capture.name, again[0].op.shape)

    def _returned(self, held: list[Held], tensors: Sequence[Tensor]) -> Any:
        """Gives updated arguments their new values; returns what the function returned."""
        capture = self.capture
        if capture.updated:
            for i, value in zip(capture.updated, held[self.num_returned + len(self.stored) :]):
                tensors[i].write("jit", Op(OpCode.BUFFER, value[0].dtype, (), value))
        if self.is_single:
            if capture.collected is not None:
                capture.collected.leave()
            return Tensor.from_memory(held[0], held[0][0].device)
        values = results_of(capture.recipes, held[: self.num_returned], tensors)
        if capture.collected is not None:
            values = capture.collected.arrive([*values])
        return mapped(capture.returned, lambda _: next(values))
