"""A failing graph as a script that fails when it is run.

In:    a `Graph`
Out:   Python source
Next:  picograd/tools/fuzz/writes.py
"""

from __future__ import annotations

import numpy as np

from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode
from picograd.ir.text import format_graph
from picograd.tools.fuzz.values import Array, Graph

TEMPLATE = '''# {title}
# {error}

import ml_dtypes
import numpy as np
from numpy import inf, nan

from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode
from picograd.ir.text import parse_graph
from picograd.tools.fuzz.{module} import {check}
from picograd.tools.fuzz.values import Graph

roots = parse_graph("""
{text}
""")
values = {{
{arrays}
}}
arrays = {{op: values[op.arg[0]] for op in toposort(roots) if op.code is OpCode.PARAM}}
{check}(Graph(roots, arrays, {errors}), {arguments})
'''


def script(graph: Graph, check: str, arguments: str, title: str, error: str) -> str:
    """Returns a script that calls `check`, a name of check.py or opts.py, on the graph with further `arguments`."""
    used = [op for op in toposort(graph.roots) if op.code is OpCode.PARAM]
    return TEMPLATE.format(
        title=title,
        error=error.replace("\n", "\n# "),
        check=check,
        module="opts" if check == "check_opts" else "check",
        text=format_graph(graph.roots).strip(),
        arrays="\n".join(f"    {op.arg[0]}: {literal(graph.arrays[op])}," for op in used),
        errors=graph.errors,
        arguments=arguments,
    )


def literal(array: Array) -> str:
    """Returns an array as an expression with all of its bits."""
    name = f"np.{array.dtype.name}" if hasattr(np, array.dtype.name) else f"ml_dtypes.{array.dtype.name}"
    if array.dtype.kind in "biu":
        return f"np.array({array.tolist()!r}, {name}).reshape({array.shape})"
    return f"np.array({array.astype(np.float64).tolist()!r}).astype({name}).reshape({array.shape})"


WRITES = '''# picograd fuzz: writes, seed {seed}
# {error}

from picograd.tools.fuzz.writes import check_writes

check_writes({seed}, {device!r}, is_jitted={is_jitted})
'''


def writes_script(seed: int, device: str, is_jitted: bool, error: str) -> str:
    """Returns a script that makes the writes of a seed again."""
    return WRITES.format(seed=seed, device=device, is_jitted=is_jitted, error=error.replace("\n", "\n# "))


PROGRAM = '''# picograd fuzz: programs, seed {seed}
# {error}

from picograd.tools.fuzz.programs import check_program

SOURCE = """\\
{source}"""
check_program(SOURCE, {device!r})
'''


def program_script(source: str, seed: int, device: str, error: str) -> str:
    """Returns a script that runs a program with jit and without."""
    return PROGRAM.format(seed=seed, device=device, source=source, error=error.replace("\n", "\n# "))
