"""Keeps binaries on disk: a second process compiles nothing.

In:    a Kernel and a Target
Out:   the Binary stored for them, or None
Called by: engine/compiler.py, engine/kept_plans.py, engine/choose.py, devices/cpu/backend.py

An entry is one file, named by the digest of the kernel's text, the target, LLVM's version and the compiler's own source.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.dtype import dtype_named
from picograd.engine.entries import read_entry, write_entry
from picograd.engine.watch import note
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Binary, Launch, Param, TileMap
from picograd.ir.text import format_graph, parse_graph
from picograd.record import asdict, astuple

STAGES = (
    "engine", "dtype.py", "device.py", "ir", "rewrites", "schedule", "codegen", "render", "compilers",
    "runtime", "devices",
)  # fmt: skip


@cache
def compiler_digest() -> str:
    """Returns a digest of every source file that decides what a plan or a binary contains, and of LLVM's version."""
    import llvmlite.binding

    digest = hashlib.sha256(f"{llvmlite.__version__} {llvmlite.binding.llvm_version_info}".encode())
    package = Path(__file__).resolve().parent.parent
    for stage in STAGES:
        root = package / stage
        for file in [root] if root.is_file() else sorted(root.rglob("*")):
            if file.suffix in (".py", ".h", ".cu", ".rsp"):
                digest.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def entry_name(text: str, target: Target) -> str:
    """Returns the file name under which what was made from `text`, for a target, is kept."""
    return hashlib.sha256(f"{compiler_digest()}\n{_target_text(target)}\n{text}".encode()).hexdigest() + ".bin"


@cache
def _target_text(target: Target) -> str:
    return json.dumps(target, sort_keys=True, default=asdict)


def kept(text: str, target: Target, make: Callable[[], Binary]) -> Callable[[], Binary]:
    """Looks for the Binary kept for `text`; what is returned gives it, or makes it and keeps it, on any thread."""
    name = entry_name(text, target)
    found = load(name)
    if found is not None:
        note("disk_hits")
        return lambda: found

    def make_and_keep() -> Binary:
        made = make()
        store(name, made)
        return made

    return make_and_keep


def load(name: str) -> Binary | None:
    """Returns a stored Binary, or None if there is none that is whole."""
    rest = read_entry("kernels", name)
    if rest is None:
        return None
    header, _, data = rest.partition(b"\n")
    return _from_record(json.loads(header), data)


def store(name: str, binary: Binary) -> bool:
    """Keeps a Binary; returns False where the folder cannot be written to or is full."""
    return write_entry("kernels", name, json.dumps(_to_record(binary)).encode() + b"\n" + binary.data)


def dim_text(dim: Dim) -> int | str:
    """Returns a dimension as records on disk hold it."""
    return dim if isinstance(dim, int) else format_graph([dim])


def read_dim(value: int | str) -> Dim:
    """Returns the dimension that `dim_text` wrote."""
    return value if isinstance(value, int) else parse_graph(value)[0]


def _to_record(binary: Binary) -> dict[str, Any]:
    return {
        "name": binary.name,
        "params": [[p.dtype.name, dim_text(p.numel), p.role] for p in binary.params],
        "variables": [list(v.arg) for v in binary.variables],
        "launches": [
            [x.symbol, dim_text(x.grid), x.block, x.work, x.shared_nbytes, [list(astuple(one)) for one in x.tile_maps]]
            for x in binary.launches
        ],
    }


def _from_record(record: dict[str, Any], data: bytes) -> Binary:
    params = tuple(Param(dtype_named(name), read_dim(numel), role) for name, numel, role in record["params"])
    variables = tuple(Op(OpCode.VARIABLE, dtypes.int64, (), tuple(arg)) for arg in record["variables"])
    launches = tuple(
        Launch(symbol, read_dim(grid), block, work, shared_nbytes, tuple(map(_read_map, maps)))
        for symbol, grid, block, work, shared_nbytes, maps in record["launches"]
    )
    return Binary(record["name"], data, params, variables, launches)


def _read_map(values: list[Any]) -> TileMap:
    param, shape, box, swizzles, offset, strides, rounds = values
    return TileMap(param, tuple(shape), tuple(box), swizzles, offset, tuple(strides), rounds)
