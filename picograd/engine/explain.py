"""Shows what becomes of a graph, stage by stage, without running it.

In:    graphs, a Target
Out:   the text of every stage
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.lower import lower
from picograd.device import Target
from picograd.engine.choose import choose
from picograd.engine.devices import compiler_for
from picograd.engine.plan import parametrize, schedule_graphs, template
from picograd.engine.realize import default_device, devices_of, realized
from picograd.ir.op import Op
from picograd.ir.text import format_graph, format_kernel, format_program, format_schedule

STAGES = ("graph", "schedule", "kernel", "choice", "program", "source")


def explain(roots: Sequence[Op], stages: Sequence[str] = STAGES, target: Target | None = None) -> str:
    """Returns the text of the asked stages, for the graphs' own device or for another target of the same language.

    Args:
      stages: of "graph", "schedule", "kernel", "choice", "program", "source"
    """
    compiler = compiler_for(devices_of(roots[:1])[0] or default_device())
    target = target or compiler.device.target
    graphs = parametrize(roots, template(roots, realized))
    schedule = schedule_graphs(graphs)
    parts = []
    if "graph" in stages:
        parts.append(format_graph(graphs))
    if "schedule" in stages:
        parts.append(format_schedule(schedule))
    for kernel in dict.fromkeys(item.kernel for item in schedule.items):
        opts = choose(kernel, compiler.device, compiler.make).opts
        program = lower(kernel, target, opts)
        if "kernel" in stages:
            parts.append(format_kernel(kernel))
        if "choice" in stages and opts.products:
            parts.append(f"choice {opts}")
        if "program" in stages:
            parts.append(format_program(program))
        if "source" in stages:
            parts.append(compiler.backend.render(program, target).text)
    return "\n\n".join(part.strip() for part in parts)
