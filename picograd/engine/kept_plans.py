"""Keeps schedules on disk: a second process that sees a graph of the same form loads its code and compiles nothing.

In:    the form of some graphs (`Template.key`), a Compiler
Out:   the Schedule and Executables kept for it, or None

An entry names the binaries of its kernels, which stay entries of their own (engine/cache.py): where one of them is gone,
all is made again. Of a kernel that is compiled a runner needs no more than its code, so that no graph is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from picograd.config import cache_folder, is_on, num_threads, setting, shown_stages
from picograd.device import Target
from picograd.dtype import DType, dtype_named
from picograd.engine.cache import dim_text, entry_name, read_dim
from picograd.engine.entries import read_entry, write_entry
from picograd.ir.op import Op
from picograd.ir.opcode import Named, OpCode
from picograd.ir.stages import BufferUse, Executable, Feed, Kernel, LoopItem, Result, Schedule, ScheduleItem
from picograd.ir.text import format_graph
from picograd.ir.text_program import RECORDS, show
from picograd.record import replace

if TYPE_CHECKING:
    from picograd.engine.compiler import Compiler  # loads every stage, which importing picograd should not

LEAST_KERNELS = 2  # one alone is scheduled again as quickly as it would be read
RECORD_TYPES = tuple(RECORDS.values())
Numbers = dict[Any, int]


def plan_entry(key: Hashable, target: Target, tune: bool, library: str = "") -> str | None:
    """Returns the name of the entry for a form of graph on a target; None where none is kept.

    Where somebody looks on, every stage runs again.

    Args:
      tune:     whether candidates are timed
      library:  a vendor's, that is among them
    """
    looked_on = shown_stages() or setting("PICOGRAD_DUMP") or is_on("PICOGRAD_VERIFY")
    if looked_on or cache_folder() is None:
        return None
    text = form_text(key)
    kind = f"plan tuned with {num_threads()} threads {library}" if tune else "plan"
    return None if text is None else entry_name(f"{kind}\n{text}", target)


def form_text(key: Hashable) -> str | None:
    """Returns a text that is equal for equal forms in every process, and for no others; None if a form has none."""
    known: dict[Hashable, str] = {}

    def text(value: Any) -> str:
        if value.__class__ is int:
            return str(value)
        found = known.get(value)
        if found is None:
            found = known[value] = _text_of(value, text)
        return found

    try:
        return text(key)
    except _WithoutText:
        return None


class _WithoutText(Exception):
    """A part of a form that has no text: code of the user's, say."""


def _text_of(value: Any, text: Callable[[Any], str]) -> str:
    """Returns a text of a part of a form that is the same in every process; raises _WithoutText where there is none."""
    if isinstance(value, tuple):
        return f"({' '.join([text(part) for part in value])})"
    if isinstance(value, Named | DType):
        return value.name
    if isinstance(value, Op):
        return f"{{{format_graph([value])}}}"
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return show(value, str)
    if isinstance(value, RECORD_TYPES):
        return show(value, text)
    raise _WithoutText


# ---- what is kept of a schedule ----
def compiled(schedule: Schedule, executables: Iterator[Executable]) -> Schedule:
    """Returns a schedule whose kernels have code, by `kernel_items()`: nothing is kept of their graphs."""
    items: list[ScheduleItem | LoopItem] = []
    for item in schedule.items:
        if isinstance(item, LoopItem):
            items.append(replace(item, body=compiled(item.body, executables)))
        else:
            items.append(replace(item, kernel=_compiled_kernel(next(executables), len(item.buffers))))
    return replace(schedule, items=tuple(items))


def _compiled_kernel(code: Executable, num_buffers: int) -> Kernel:
    """Returns the kernel of some code, which may have parameters of its own behind those of the kernel."""
    return Kernel(code.name, code.params[:num_buffers], code.variables, ())


# ---- an entry ----
def keep_plan(name: str, schedule: Schedule, executables: Sequence[Executable], compiler: Compiler) -> bool:
    """Keeps a schedule, with its executables by `kernel_items()`; returns whether it does.

    It does not where the schedule is small, where a kernel is no entry of the cache, and where its folder cannot be used.
    """
    code = {item.kernel: executable for item, executable in zip(schedule.kernel_items(), executables)}
    kernels, entries = list(code), [compiler.entries.get(executable) for executable in code.values()]
    if len(executables) < LEAST_KERNELS or None in entries:
        return False
    bodies = list(dict.fromkeys(_bodies(schedule)))
    of_kernel, of_body = ({made: i for i, made in enumerate(found)} for found in (kernels, bodies))
    schedules = [_to_record(body, of_kernel, of_body) for body in [*bodies, schedule]]
    return write_entry("plans", name, json.dumps({"kernels": entries, "schedules": schedules}).encode())


def find_kept(name: str, compiler: Compiler) -> tuple[Schedule, list[Executable]] | None:
    """Returns a kept schedule and its executables, by `kernel_items()`; None if they are not all there."""
    content = read_entry("plans", name)
    if content is None:
        return None
    record = json.loads(content)
    executables = compiler.from_disk(record["kernels"])
    if executables is None:
        return None
    numbers: dict[int, list[int]] = {}
    schedules: list[Schedule] = []
    for number, found in enumerate(record["schedules"]):
        numbers[number] = []
        schedules.append(_from_record(found, executables, schedules, numbers))
    return schedules[-1], [executables[i] for i in numbers[len(schedules) - 1]]


def _bodies(schedule: Schedule) -> Iterator[Schedule]:
    """Yields the schedules of bodies, inner ones first."""
    for item in schedule.items:
        if isinstance(item, LoopItem):
            yield from _bodies(item.body)
            yield item.body


def _to_record(schedule: Schedule, of_kernel: Numbers, of_body: Numbers) -> dict[str, Any]:
    """Returns a schedule as JSON holds it: kernels and bodies by number."""
    return {
        "items": [_item_record(item, of_kernel, of_body) for item in schedule.items],
        "buffers": [
            [use.dtype.name, dim_text(use.numel), use.role, use.source, use.over, use.keeps, use.also, use.late]
            for use in schedule.buffers
        ],
        "inputs": [[op.arg[0], op.dtype.name, [dim_text(dim) for dim in op.shape]] for op in schedule.inputs],
        "outputs": schedule.outputs,
        "arena_nbytes": schedule.arena_nbytes,
        "commit": schedule.commit,
    }


def _item_record(item: ScheduleItem | LoopItem, of_kernel: Numbers, of_body: Numbers) -> dict[str, Any]:
    if isinstance(item, ScheduleItem):
        return {"kernel": of_kernel[item.kernel], "buffers": item.buffers, "checks": item.checks}
    return {
        "body": of_body[item.body],
        "steps": dim_text(item.steps),
        "feeds": [[feed.buffer, feed.is_row, feed.reversed, feed.carried] for feed in item.feeds],
        "results": [[result.buffer, result.is_row, result.spare, result.other] for result in item.results],
        "memory": item.memory,
    }


def _from_record(
    record: dict[str, Any], executables: Sequence[Executable], bodies: Sequence[Schedule], numbers: dict[int, list[int]]
) -> Schedule:
    """Returns a schedule.

    Args:
      numbers:  of each body's kernels among `executables`; those of this schedule are added to the last one
    """
    own = numbers[len(bodies)]
    items: list[ScheduleItem | LoopItem] = []
    for item in record["items"]:
        if "body" in item:
            feeds = tuple([Feed(*fields) for fields in item["feeds"]])
            results = tuple([Result(*fields) for fields in item["results"]])
            items.append(LoopItem(bodies[item["body"]], read_dim(item["steps"]), feeds, results, item["memory"]))
            own += numbers[item["body"]]
        else:
            kernel = _compiled_kernel(executables[item["kernel"]], len(item["buffers"]))
            items.append(ScheduleItem(kernel, tuple(item["buffers"]), tuple(item["checks"])))
            own.append(item["kernel"])
    buffers = [
        BufferUse(dtype_named(dtype), read_dim(numel), role, source, over, keeps, tuple(also), late)
        for dtype, numel, role, source, over, keeps, also, late in record["buffers"]
    ]
    inputs = [
        Op(OpCode.PARAM, dtype_named(dtype), (), (slot, tuple([read_dim(dim) for dim in shape])))
        for slot, dtype, shape in record["inputs"]
    ]
    outputs = tuple(record["outputs"])
    return Schedule(tuple(items), tuple(buffers), tuple(inputs), outputs, record["arena_nbytes"], record["commit"])
