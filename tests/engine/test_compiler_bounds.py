"""A Compiler holds so many kernels and no more, and what it forgets goes on running."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import Tensor
from picograd.engine import compiler as engine
from picograd.engine.compiler import Compiler
from picograd.engine.devices import compiler_for
from picograd.engine.plan import make_plan, template


@pytest.mark.req("G8")
def test_kernels_are_forgotten_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setattr(engine, "KERNELS_MAX", 3)
    own = compiler_for("CPU")
    compiler = Compiler(own.device, own.backend)
    plans, held = [], []
    for length in range(2, 12):
        roots = [(Tensor(np.ones(length, np.float32)) * float(length)).op]
        form = template(roots)
        plans.append((make_plan(roots, form, compiler, False), form, length))
        held.append(len(compiler._made) + len(compiler._by_entry))
    assert max(held) <= 8 and len(plans) == 10
    for plan, form, length in plans:
        out = Tensor(np.zeros(length, np.float32)).op.arg[0]
        plan.run([form.buffers[op.arg[0]] for op in plan.schedule.inputs], [out], form.variables)
        found = np.empty(length, np.float32)
        own.device.copy_out(out.memory, found)
        assert (found == length).all()
