"""Watches the plans of a program: compares each kernel on its own inputs, and each plan as a whole, with their meaning.

In:    the plans that the engine makes and runs (picograd/look.py, `Profiling.recorder`)
Out:   a `Verdict`

A plan runs normally, and then again on copies of its inputs, in three steps. The error of one kernel does not spread to
the next, since each kernel gets the inputs that the device itself has computed.

    kernels   each kernel alone is compared with the evaluator's value of its Ops (bounds.py), or with another device
    memory    the whole run has the same bits as the kernels alone; inputs that no output replaces are unchanged
    rules     the kernels' meaning is the meaning of the graph before any rewriting pass (passes.py)

At the end each differentiated operation is compared with its slope (slopes.py).
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from picograd.engine.compiler import given_kernel
from picograd.engine.devices import COMPUTES_NOTHING, EVALUATOR, compiler_for
from picograd.engine.plan import Template, parametrize
from picograd.evaluator.graph import shape_value
from picograd.ir.op import Buffer, Op, toposort
from picograd.ir.opcode import SEVERAL_RESULTS
from picograd.ir.stages import Kernel, Plan, Schedule, ScheduleItem
from picograd.ir.text import format_kernel
from picograd.look import Profiling
from picograd.record import replace
from picograd.rewrites.contract import compose_attention
from picograd_lab.fuzz.check import copies
from picograd_lab.recorder import Recorder, recording
from picograd_lab.verify.blocks import block, every
from picograd_lab.verify.bounds import Bounded, Difference, bounded, difference
from picograd_lab.verify.graphs import cost, in_params, lines_in, of_numbers, values_of
from picograd_lab.verify.passes import deviating_pass, values_by_slot
from picograd_lab.verify.slopes import Slopes, recorded_rules
from picograd_lab.verify.smaller import reproduction, reproduction_of_pass
from picograd_lab.verify.verdict import Held, Mismatch, Verdict
from picograd_lab.verify.walk import Alone, Array, Step, memory_as_planned, memory_for, on_host, outputs_of, walk

MISMATCHES_MAX = 16
COST_MAX = 1 << 24  # limit for whole comparison of a kernel: elements that NumPy computes, about a second
ALWAYS_COMPARED = 3  # first runs of a plan; after them the 4th, 8th, 16th, ...
TURNS_COMPARED = 3  # first steps of a loop; also its last
NESTED = "verify: a profile is being made, or a verification; they do not nest."
IN_PARTS = re.compile(r"_split$|_by_.*")  # suffixes of kernels' names that are not fully generated


class Watched(NamedTuple):
    """A watched plan.

    graphs:    over PARAMs, before any pass
    schedule:  computed again from them, since a plan keeps no Ops; None if it differs from the plan's
    held:      its kernels, by `schedule.kernel_items()`
    unread:    by slot, inputs of the graphs that no kernel reads, with their values when the plan was made
    runs:      number of runs
    """

    plan: Plan
    device: str
    graphs: list[Op]
    schedule: Schedule | None
    held: list[Held]
    unread: dict[int, Array]
    runs: list[int]


class Watcher(Recorder):
    """Compares the plans that run while it is the recorder of `Profiling`.

    against:     None for the evaluator, or a device
    of_program:  a whole program is watched, which may profile or verify parts of itself
    """

    def __init__(self, against: str | None = None, of_program: bool = False):
        super().__init__()
        self.against, self.of_program = against, of_program
        self.verdict = Verdict("the evaluator" if against is None else against)
        self._watched: dict[int, Watched] = {}
        self._alone: dict[tuple[int, int, str], Alone] = {}
        self._one_by_one = threading.RLock()  # plans of several threads
        self._comparing: int | None = None  # the thread that compares, whose own plans are not the program's

    def gives_way(self) -> bool:
        """True for the watcher of a program, in which a profile or a verification of its own begins."""
        if self.of_program:
            self.verdict.note("the program profiles or verifies a part of itself, which is not compared here")
        return self.of_program

    # ---- what the engine calls ----
    def learn(self, plan: Plan, roots: Sequence[Op], form: Template, device: str, began: float | None) -> None:
        """Records the Ops of a plan's kernels."""
        if self._comparing == threading.get_ident() or id(plan) in self._watched:
            return
        if device in (EVALUATOR, COMPUTES_NOTHING):
            self.verdict.note(f"plans of {device} have no kernels to compare")
            return
        with self._aside():
            graphs = parametrize(roots, form)
            schedule: Schedule | None = compiler_for(device).schedule(graphs)
            held = [Held(item.kernel.name) for item in plan.schedule.kernel_items()]
            if schedule is None or not _is_same(schedule, plan.schedule):
                self.verdict.note("a plan kept on disk has other kernels than its graph gives now: compared as a whole")
                schedule = None
            read = {op.arg[0] for op in plan.schedule.inputs}
            others = [(slot, buffer) for slot, buffer in enumerate(form.buffers) if slot not in read]
            unread = {slot: on_host(buffer) for slot, buffer in others if buffer.memory is not None}
            self.verdict.plans += 1
            self.verdict.kernels += held
            self._watched[id(plan)] = Watched(plan, device, graphs, schedule, held, unread, [0])

    def run(
        self, plan: Plan, inputs: Sequence[Buffer], outputs: Sequence[Buffer], variables: Mapping[str, int], may_stop: bool
    ) -> None:
        """Runs a plan, then each of its kernels on copies of its inputs."""
        watched = self._watched.get(id(plan))
        if self._comparing == threading.get_ident() or watched is None:
            plan.run(inputs, outputs, variables, may_stop)
            return
        watched.runs[0] += 1
        self.verdict.runs += 1
        if not _is_due(watched.runs[0]) or len(self.verdict.mismatches) >= MISMATCHES_MAX:
            plan.run(inputs, outputs, variables, may_stop)
            return
        before = [on_host(buffer) for buffer in inputs]
        plan.run(inputs, outputs, variables, may_stop)
        after = [on_host(buffer) for buffer in outputs]
        self.verdict.watched += 1
        with self._aside():
            number = len(self.verdict.mismatches)
            if watched.schedule is None:
                self._hold_whole(watched, before, after, variables)
                return
            memory = memory_for(watched.schedule, before, variables)
            walk(watched.schedule, memory, variables, lambda step, slots: self._execute(watched, step, slots, variables))
            if len(self.verdict.mismatches) == number:
                self._hold_memory(watched, before, after, memory, inputs, outputs, variables)
            if len(self.verdict.mismatches) == number and watched.runs[0] == 1:
                self._hold_rules(watched, before, variables)

    def hold_slopes(self, slopes: Slopes) -> None:
        """Compares the gradient of each differentiated operation with its slope."""
        with self._aside():
            for mismatch in slopes.mismatches():
                self._add(mismatch)
        self.verdict.gradients = len(slopes.asked)
        if slopes.skipped:
            self.verdict.note(f"the gradients of {len(slopes.skipped)} operations are too large to compare with slopes")

    def is_forked(self) -> None:
        """Records that a process is forked."""
        if Profiling.recorder is self:
            self.verdict.note("the program forks; what is computed in its children is not compared")

    def leave(self) -> None:
        """Stops looking at plans."""
        if Profiling.recorder is self:
            Profiling.recorder = None

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Keeps the comparison's computations unwatched, and its errors away from the program; other threads wait."""
        with self._one_by_one:
            self._comparing = threading.get_ident()
            try:
                with np.errstate(all="ignore"):
                    yield
            except Exception as error:  # an error of the comparison; the program continues
                self.verdict.note(f"not compared: {_said(error)}")
            finally:
                self._comparing = None

    def _add(self, mismatch: Mismatch) -> None:
        if all(known.what != mismatch.what or known.lines != mismatch.lines for known in self.verdict.mismatches):
            self.verdict.mismatches.append(mismatch)

    # ---- kernels ----
    def _alone_on(self, watched: Watched, step: Step, device: str) -> Alone:
        key = id(watched.plan), step.number, device
        if key not in self._alone:
            if device == watched.device:
                code = watched.plan.executables[step.number]
            else:
                (code,) = compiler_for(device).executables([step.item.kernel])
            self._alone[key] = Alone(step.item, code, device)
        return self._alone[key]

    def _execute(self, watched: Watched, step: Step, slots: list[Array], variables: Mapping[str, int]) -> None:
        """Runs one kernel on its own inputs and compares its results; `slots` then hold the device's results."""
        kernel, held = step.item.kernel, watched.held[step.number]
        is_due = step.turn < TURNS_COMPARED or step.turn & (step.turn - 1) == 0
        given = copies(slots)
        self._alone_on(watched, step, watched.device)(slots, variables)
        if not is_due:
            return
        parts, why_not = chosen_parts(kernel, given, variables)
        if why_not:
            held.note = why_not
            self.verdict.note(f"{kernel.name}: {why_not}")
            return
        try:
            meanings = bounded([value for _, value, _ in parts], in_params(parts, given, variables), variables)
        except Exception as error:  # the meaning of a user's kernel, say
            held.note = _said(error)
            self.verdict.note(f"{kernel.name}: not compared: {held.note}")
            return
        held.runs += 1
        held.is_sample = held.is_sample or any(ranges is not None for _, _, ranges in parts)
        other = None
        if self.against is not None:
            other = copies(given)
            self._alone_on(watched, step, self.against)(other, variables)
        held.unbounded = 0
        for (slot, value, ranges), meaning in zip(parts, meanings):
            shape = meaning.value.shape
            found = _part(slots[slot], kernel, slot, shape, ranges, variables)
            expected = meaning.value if other is None else _part(other[slot], kernel, slot, shape, ranges, variables)
            seen = difference(found, expected, meaning.error, value.dtype)
            held.ulp, held.share = max(held.ulp, seen.ulp), max(held.share, seen.share)
            held.unbounded += seen.unbounded
            if seen.wrong:
                self._add(self._of_kernel(watched, step, slot, given, variables, seen, found, expected, meaning))

    def _of_kernel(
        self, watched: Watched, step: Step, slot: int, given: Sequence[Array], variables: Mapping[str, int],
        seen: Difference, found: Array, expected: Array, meaning: Bounded,
    ) -> Mismatch:  # fmt: skip
        kernel, code = step.item.kernel, watched.plan.executables[step.number]
        at = tuple(int(i) for i in np.unravel_index(seen.at, expected.shape)) if expected.shape else ()
        allowed = 0.0 if meaning.error is None else 2 * float(meaning.error.reshape(-1)[seen.at])
        fact = (
            f"{seen.wrong} of {found.size} elements of its result (slot {slot}) are too far from {self.verdict.against}; "
            f"the farthest at {at}: {found.reshape(-1)[seen.at]} instead of {expected.reshape(-1)[seen.at]}, "
            f"where rounding may change {allowed:.2g}."
        )
        ops, script = format_kernel(kernel), ""
        if (call := given_kernel(kernel)) is not None:  # no text says which Python function is its meaning
            ops = call.arg[0].text
            fact += " It is a user's kernel, held against its meaning; check(...) of it compares it alone."
        elif code.name.startswith(f"{kernel.name}_by_"):  # such a kernel, compiled again, may become the compiler's own
            fact += f" It is computed by {code.name.removeprefix(f'{kernel.name}_by_')}, which was offered for it."
        elif self.against is None and not variables:
            smallest = reproduction(kernel, slot, given, watched.device)
            ops, script = smallest.ops or ops, smallest.script
            fact += smallest.said
        return Mismatch(f"kernel {kernel.name} on {watched.device}", fact, ops, lines_in(kernel.values()), script)

    # ---- a plan as a whole ----
    def _hold_whole(
        self, watched: Watched, before: Sequence[Array], after: Sequence[Array], variables: Mapping[str, int]
    ) -> None:
        """Compares the results of a plan with unknown kernels with the meaning of its graph."""
        schedule = watched.plan.schedule
        if cost(watched.graphs, variables) > COST_MAX:
            self.verdict.note("a plan kept on disk is too large for the evaluator: PICOGRAD_CACHE=off makes it again")
            return
        values = values_by_slot(toposort(watched.graphs), schedule, before, watched.unread)
        for number, meaning in zip(schedule.outputs, bounded(watched.graphs, values, variables)):
            use = schedule.buffers[number]
            if use.role == "output":
                seen = difference(after[use.source][: meaning.value.size], meaning.value, meaning.error, use.dtype)
                if seen.wrong:
                    fact = f"{seen.wrong} of {meaning.value.size} elements of an output differ from its graph."
                    hint = " `picograd cache clear plans` makes it again."
                    self._add(Mismatch("a plan kept on disk", fact + hint, lines=lines_in(watched.graphs)))

    # ---- memory ----
    def _hold_memory(
        self, watched: Watched, before: Sequence[Array], after: Sequence[Array], memory: Sequence[Array],
        inputs: Sequence[Buffer], outputs: Sequence[Buffer], variables: Mapping[str, int],
    ) -> None:  # fmt: skip
        """Compares a whole run with its kernels alone, bit by bit, and its inputs with their values before."""
        schedule = watched.schedule
        assert schedule is not None
        lines = lines_in(watched.graphs)
        replaced = {id(buffer.memory) for buffer in outputs}
        for number, (buffer, held) in enumerate(zip(inputs, before)):
            if id(buffer.memory) not in replaced and not _is_equal(on_host(buffer), held):
                fact = f"input {number}, {buffer.numel} of {buffer.dtype}, was overwritten, although no output replaces it."
                self._add(Mismatch(f"the memory of a plan on {watched.device}", fact, lines=lines))
        for number, (found, expected) in enumerate(zip(after, outputs_of(schedule, memory))):
            if not _is_equal(found[: expected.size], expected):
                why = self._culprit(watched, before, variables)
                fact = f"output {number} of its run differs in bits from its kernels run one by one; {why}"
                self._add(Mismatch(f"the memory of a plan on {watched.device}", fact, lines=lines))
                return

    def _culprit(self, watched: Watched, before: Sequence[Array], variables: Mapping[str, int]) -> str:
        """Describes the first kernel whose inputs the schedule's temporaries overwrite."""
        schedule = watched.schedule
        assert schedule is not None
        seen: list[list[Array]] = []

        def alone(step: Step, slots: list[Array]) -> None:
            seen.append(_read(step.item, slots))
            self._alone_on(watched, step, watched.device)(slots, variables)

        walk(schedule, memory_for(schedule, before, variables), variables, alone)
        order, found = iter(seen), list[str]()

        def together(step: Step, slots: list[Array]) -> None:
            for number, (array, expected) in enumerate(zip(_read(step.item, slots), next(order))):
                if not found and not _is_equal(array, expected):
                    found.append(
                        f"{step.item.kernel.name} reads its input {number} after another kernel overwrote it."
                    )
            self._alone_on(watched, step, watched.device)(slots, variables)

        walk(schedule, memory_as_planned(schedule, before, variables), variables, together)
        return (
            found[0] if found else "the memory of its temporaries is as planned, so its launches or their order are wrong."
        )

    # ---- rules ----
    def _hold_rules(self, watched: Watched, before: Sequence[Array], variables: Mapping[str, int]) -> None:
        """Compares the meaning of the graph before all passes with that after each."""
        schedule = watched.schedule
        assert schedule is not None
        target = compiler_for(watched.device).device.target
        values = values_by_slot(toposort(watched.graphs), schedule, before, watched.unread)
        found, why_not = deviating_pass(watched.graphs, schedule, target, values, before, variables, COST_MAX)
        if why_not:
            self.verdict.note(why_not)
        if found is not None and not variables:
            small = reproduction_of_pass(watched.graphs, values, watched.device, found)
            found = replace(found, fact=found.fact + small.said, script=small.script)
        if found is not None:
            self._add(found)


# ---- one kernel ----
def _said(error: Exception) -> str:
    """Returns the first line of an error, behind its kind."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _is_due(run: int) -> bool:
    return run <= ALWAYS_COMPARED or run & (run - 1) == 0


def _is_same(a: Schedule, b: Schedule) -> bool:
    """True if two schedules run kernels of the same names on the same buffers."""
    ours, theirs = a.kernel_items(), b.kernel_items()
    made = [(IN_PARTS.sub("", item.kernel.name), item.buffers) for item in theirs]
    names = [(item.kernel.name, item.buffers) for item in ours] == made
    return names and a.buffers == b.buffers and len(a.inputs) == len(b.inputs)


def _is_equal(a: Array, b: Array) -> bool:
    """True if arrays have the same bits, up to those of NaN."""
    return a.tobytes() == b.tobytes() or bool(((a == b) | ((a != a) & (b != b))).all())


def _read(item: ScheduleItem, slots: Sequence[Array]) -> list[Array]:
    return [array.copy() for array, param in zip(slots, item.kernel.params) if param.role in ("in", "inout")]


Part = tuple[int, Op, tuple[tuple[int, int], ...] | None]


def chosen_parts(kernel: Kernel, given: Sequence[Array], variables: Mapping[str, int]) -> tuple[list[Part], str]:
    """Returns the parts of a kernel to compare: for each output its slot, its graph, and the block of it.

    The block is None for a whole output. Large outputs have a block at the beginning and one at the end.
    """
    values = values_of(kernel)
    if cost([value for _, value in values], variables) <= COST_MAX:
        return [(slot, value, None) for slot, value in values], ""
    graphs = compose_attention([value for _, value in values])
    if any(op.code in SEVERAL_RESULTS for op in toposort(graphs)):
        return [], "too large for the evaluator, and it has no blocks that are computed alone"
    values = list(zip([slot for slot, _ in values], of_numbers(graphs, variables)))
    parts: list[Part] = []
    for slot, value in values:
        for at_end in (False, True):
            ranges = every(value.shape)
            part = value
            while cost([part], {}) > COST_MAX // (2 * len(values)):
                axis = next((a for a, (start, stop) in enumerate(ranges) if stop - start > 1), None)
                if axis is None:
                    return [], "too large for the evaluator, and it has no blocks that are computed alone"
                start, stop = ranges[axis]
                middle = (start + stop) // 2
                ranges = (*ranges[:axis], (middle, stop) if at_end else (start, middle), *ranges[axis + 1 :])
                part = block(value, ranges)
            parts.append((slot, part, ranges))
    return parts, ""


def _part(
    array: Array, kernel: Kernel, slot: int, shape: tuple[int, ...], ranges: Any, variables: Mapping[str, int]
) -> Array:
    """Returns the block of a slot's memory."""
    if ranges is None:
        return array[: math.prod(shape)].reshape(shape)
    (whole,) = [shape_value(value.shape, variables) for number, value in values_of(kernel) if number == slot]
    return array[: math.prod(whole)].reshape(whole)[tuple(slice(*one) for one in ranges)]


# ---- the block of a program ----
@contextmanager
def watching(watcher: Watcher) -> Iterator[Verdict]:
    """Lets a watcher see every plan that runs inside the block, except in forked processes.

    Raises:
      ArgumentError: a profile or another verification is active.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=watcher.is_forked, after_in_child=watcher.leave)
    owner = os.getpid()
    with recording(watcher, NESTED), recorded_rules() as slopes:
        yield watcher.verdict
    if os.getpid() == owner:
        watcher.hold_slopes(slopes)
