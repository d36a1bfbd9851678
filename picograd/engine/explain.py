"""Shows what becomes of a graph, stage by stage, without running it.

In:    graphs, a Target
Out:   the text of every stage
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd import config
from picograd.autodiff.gradient import written_out
from picograd.device import Target
from picograd.engine.devices import EVALUATOR, compiler_for
from picograd.engine.plan import parametrize, template
from picograd.engine.realize import default_device, devices_of
from picograd.errors import ArgumentError
from picograd.ir.op import Op
from picograd.ir.text import format_graph
from picograd.ir.text_program import format_schedule

STAGES = config.STAGES[:-1]  # a plan runs, and nothing runs here


def explain(roots: Sequence[Op], stages: Sequence[str] = STAGES, target: Target | None = None) -> str:
    """Returns the text of the asked stages, for the graphs' own device or for another target of the same language.

    The evaluator has no stages after the schedule, which is that of a CPU.

    Args:
      stages: of STAGES

    Raises:
      ArgumentError: the target speaks another language than the graphs' device.
    """
    roots = written_out(roots)
    graphs = parametrize(roots, template(roots))
    device = devices_of(roots[:1])[0] or default_device()
    own = None if device == EVALUATOR else compiler_for(device).device.target
    schedule = compiler_for("CPU" if own is None else device).schedule(graphs)
    parts = [format_graph(graphs)] if "graph" in stages else []
    parts += [format_schedule(schedule)] if "schedule" in stages else []
    if own is not None:
        if target is not None and target.language != own.language:
            raise ArgumentError(
                f"explain: the target takes {target.language}, but these tensors are on {device}: {own.language}.",
                "move them to a device of the target's kind with .to(...).",
            )
        for kernel in dict.fromkeys(item.kernel for item in schedule.kernel_items()):
            texts = compiler_for(device).explain(kernel, target or own)
            parts += [text for stage, text in texts.items() if stage in stages]
    return "\n\n".join(part.strip() for part in parts)
