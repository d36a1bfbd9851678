"""Profiles: time, GFLOP/s and GB/s of each kernel, by line and by module, and the time of planning.

In:    a block of a program
Out:   `profile`, whose result prints as a table and can be saved as a trace
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from os import PathLike
from time import perf_counter
from typing import Any

from picograd.errors import ArgumentTypeError, Line
from picograd.files import write_whole
from picograd.interrupts import whole_context
from picograd.ir.origin import Following
from picograd.nn.module import Module
from picograd.record import Struct, field
from picograd.tensor.printing import table
from picograd.transforms.jit import forget_captures
from picograd_lab.recorder import NOWHERE, PLANNING, Recorder, Span, recording

HEADS = ("kernel", "calls", "ms", "%", "GFLOP/s", "GB/s", "line")
TEXTS = frozenset({"kernel", "line", "module"})  # the other columns are numbers
ROWS_MAX, LINE_LETTERS_MAX = 20, 72


class Profile(Struct):
    """Times within a block of a program.

    spans:    kernels, and the making of plans, in order
    start:    start of the block, seconds on the clock of perf_counter
    seconds:  duration of the block
    """

    spans: list[Span] = field(default_factory=list)
    start: float = 0.0
    seconds: float = 0.0

    # ---- tables ----
    def __str__(self) -> str:
        return f"{self._text(HEADS, self._kernel_rows())}\n{self._totals()}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table(HEADS, self._kernel_rows(), self._totals())

    def by_line(self) -> str:
        """Returns a table of the program's lines, most expensive first."""
        return self._by("line", _shown)

    def by_module(self) -> str:
        """Returns a table of the given model's modules; gradients count for their modules."""
        return self._by("module", lambda line: line.module or "outside of the model")

    def _by(self, head: str, name: Any) -> str:
        seconds: dict[str, float] = {}
        flops: dict[str, float] = {}
        for span in self.kernels:
            for line, part in span.lines.items():
                key = name(line)
                seconds[key] = seconds.get(key, 0.0) + part * span.seconds
                flops[key] = flops.get(key, 0.0) + part * span.flops
        total = sum(seconds.values()) or 1.0
        order = sorted(seconds, key=seconds.__getitem__, reverse=True)
        rows = [
            (key, f"{1e3 * seconds[key]:.3f}", f"{100 * seconds[key] / total:.0f}", _rate(flops[key], seconds[key]))
            for key in order
        ]
        return self._text((head, "ms", "%", "GFLOP/s"), rows)

    def _kernel_rows(self) -> list[tuple[str, ...]]:
        """Returns the rows of kernels, slowest first."""
        groups: dict[tuple[str, Line], list[Span]] = {}
        for span in self.kernels:
            groups.setdefault((span.name, max(span.lines, key=span.lines.__getitem__, default=NOWHERE)), []).append(span)
        total = sum(span.seconds for span in self.kernels) or 1.0
        rows: list[tuple[str, ...]] = []
        for (name, line), spans in sorted(groups.items(), key=lambda group: -_seconds(group[1])):
            taken, more = _seconds(spans), len({each for span in spans for each in span.lines}) - 1
            shown = _shown(line) + (f" (and {more} more)" if more else "")
            flops, nbytes = sum(span.flops for span in spans), sum(span.nbytes for span in spans)
            rates = _rate(flops, taken), _rate(nbytes, taken)
            rows.append((name, str(len(spans)), f"{1e3 * taken:.3f}", f"{100 * taken / total:.0f}", *rates, shown))
        if len(rows) > ROWS_MAX:
            rest = rows[ROWS_MAX:]
            rows = [*rows[:ROWS_MAX], (f"{len(rest)} others", *_sums(rest), "", "", "")]
        return rows

    @property
    def kernels(self) -> list[Span]:
        """The spans that are kernels, in order."""
        return [span for span in self.spans if span.name != PLANNING]

    def _totals(self) -> str:
        plannings = [span for span in self.spans if span.name == PLANNING]
        kernels, planning = _seconds(self.kernels), _seconds(plannings)
        rest = max(self.seconds - kernels - planning, 0.0)
        return (
            f"{len(self.kernels)} launches {1e3 * kernels:.1f} ms; {len(plannings)} plans made or loaded"
            f" {1e3 * planning:.1f} ms; Python and the rest {1e3 * rest:.1f} ms"
        )

    @staticmethod
    def _text(heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
        cells = [tuple(heads), *rows]
        widths = [max(map(len, column)) for column in zip(*cells)]
        lines = []
        for row in cells:
            texts = [c.ljust(w) if h in TEXTS else c.rjust(w) for h, c, w in zip(cells[0], row, widths)]
            lines.append("  ".join(texts).rstrip())
        return "\n".join(lines)

    # ---- a trace ----
    def save(self, path: str | PathLike[str]) -> None:
        """Writes a trace for chrome://tracing and https://ui.perfetto.dev, with FLOPs, bytes and lines.

        Raises:
          DataError: the file cannot be written.
        """
        tracks = {"kernel": 0, PLANNING: 1}
        events: list[dict[str, Any]] = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": tracks[kind], "args": {"name": kind}} for kind in tracks
        ]
        for span in self.spans:
            kind = PLANNING if span.name == PLANNING else "kernel"
            details = {"FLOPs": span.flops, "bytes": span.nbytes, "lines": [str(line) for line in span.lines]}
            events.append({
                "name": span.name, "cat": kind, "ph": "X", "pid": 0, "tid": tracks[kind],
                "ts": 1e6 * (span.start - self.start), "dur": 1e6 * span.seconds, "args": details,
            })  # fmt: skip
        text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
        write_whole("Profile.save", path, lambda file: file.write(text.encode()))


def _shown(line: Line) -> str:
    """Returns a line of a table, with its text shortened."""
    return "no line known" if line is NOWHERE else textwrap.shorten(str(line), LINE_LETTERS_MAX, placeholder=" ...")


def _seconds(spans: Iterable[Span]) -> float:
    return sum(span.seconds for span in spans)


def _rate(amount: float, seconds: float) -> str:
    return f"{amount / seconds / 1e9:.1f}" if seconds and amount else ""


def _sums(rows: list[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(f"{sum(float(row[i]) for row in rows):.{digits}f}" for i, digits in ((1, 0), (2, 3), (3, 0)))


@whole_context
def profile(model: Module | None = None) -> Iterator[Profile]:
    """Times every kernel within a `with` block.

    Kernels run one after the other, each timed separately, so the block takes longer than otherwise; a single kernel does
    not. A kernel of several lines is divided among them by their FLOPs. Jitted functions are traced again, before and
    after.

    Args:
      model:  by_module() has a row for each of its modules

    Raises:
      ArgumentError: a profile is already in progress.
      ArgumentTypeError: `model` is not a module.

    >>> x = Tensor([[1.0, 2.0]])
    >>> with profile() as timed:
    ...     _ = (x @ x.T).item()
    >>> len(timed.kernels)
    1
    """
    if model is not None and not isinstance(model, Module):
        raise ArgumentTypeError(f"profile: model must be a Module, got {type(model).__name__}.")
    recorder, found = Recorder(), Profile(start=perf_counter())
    with recording(recorder, "profile: another profile is running; profiles do not nest."):
        handles = _follow(model) if model is not None else []
        forget_captures()
        Following.is_on = True
        try:
            yield found
        finally:
            Following.is_on, Following.module = False, ""
            for handle in handles:
                handle.remove()
            forget_captures()
            found.spans, found.seconds = recorder.spans, perf_counter() - found.start


def _follow(model: Module) -> list[Any]:
    """Makes the modules of a model report which of them runs; returns the handles of the hooks."""
    handles: list[Any] = []
    around: list[str] = []
    for name, module in model.named_modules():
        called = f"{name} {type(module).__name__}".strip()

        def enters(module: Module, args: Any, called: str = called) -> None:
            around.append(Following.module)
            Following.module = called

        def leaves(module: Module, args: Any, result: Any) -> None:
            Following.module = around.pop()

        handles.append(module.register_forward_pre_hook(enters))
        handles.append(module.register_forward_hook(leaves, always_call=True))
    return handles
