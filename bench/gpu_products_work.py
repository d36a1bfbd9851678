"""The working process of bench.gpu_products: it compiles all variants of products, runs and times them.

In:    names of variants to skip, in SKIP
Out:   a line of JSON for each variant
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from bench.gpu_products_list import WIDE, Problem, problems
from picograd.record import replace

MOST_WIDE = 11  # variants of a product of float32
SAMPLES, TIMED, MOST_REPEATS = 7, 3e-3, 40
ROTATED_NBYTES = 120 << 20  # more than the L2 cache holds


# ---- what is compiled ----
def kernel_of(problem: Problem) -> Any:
    """Returns the kernel of a product, with a bias and a relu where it has them."""
    from picograd.dtype import dtype_named
    from picograd.ir.build import expand, reshape, swap_last
    from picograd.ir.op import Op
    from picograd.ir.opcode import OpCode
    from picograd.ir.shape import MatmulArg
    from picograd.ir.stages import Kernel, Nest, NestKind, Param

    dtype = dtype_named(problem.stored)
    shapes = [(problem.m, problem.k), (problem.k, problem.n)]
    operands, params = [], []
    for slot, (shape, major) in enumerate(zip(shapes, problem.majors)):
        stored = shape if major == "N" else shape[::-1]
        held = Op(OpCode.PARAM, dtype, (), (slot, stored))
        operands.append(held if major == "N" else swap_last(held))
        params.append(Param(dtype, stored[0] * stored[1], "in"))
    anchor = Op(OpCode.MATMUL, dtype, tuple(operands), MatmulArg(tf32=True) if problem.dtype == "tf32" else None)
    value = anchor
    if problem.bias:
        bias = Op(OpCode.PARAM, dtype, (), (2, (problem.n,)))
        params.append(Param(dtype, problem.n, "in"))
        value = Op(OpCode.ADD, dtype, (anchor, expand(reshape(bias, (1, problem.n)), anchor.shape)))
    params.append(Param(dtype, problem.m * problem.n, "out"))
    nest = Nest(NestKind.MATMUL, anchor.shape, (), anchor, ((len(params) - 1, value),))
    name = f"product_{problem.dtype}_{problem.m}_{problem.n}_{problem.k}_{problem.majors.lower()}"
    return Kernel(name, tuple(params), (), ((nest,),))


def variants_of(kernel: Any, target: Any, problem: Problem, simulates: bool) -> dict[str, Any]:
    """Returns the choices for a kernel by name, the one that is thought to be fastest first."""
    from picograd.codegen.emit import guess
    from picograd.codegen.hopper import TILE_GROUP_ROWS
    from picograd.engine import choose as written
    from picograd.ir.opts import Generated

    written.CANDIDATES_MAX = 1000
    found = written.written_candidates(kernel, target)
    more = {"generated": Generated(guess(kernel, target))} if problem.dtype in WIDE else {}
    if simulates:
        found = [each for each in found if each.tile.rows * each.tile.columns <= 128 * 128][:3]
    elif problem.dtype in WIDE:
        found = found[:MOST_WIDE]
    elif problem.is_timed:
        chosen = found[:14] if problem.name.startswith("square") else found[:9]
        for each in found[:2]:
            groups = [group for group in (4, 16, 32) if group != TILE_GROUP_ROWS]
            chosen += [replace(each, tile=replace(each.tile, group=group)) for group in groups]
            chosen += [replace(each, tile=replace(each.tile, slabs=1)), replace(each, tile=replace(each.tile, stages=3))]
        found = chosen
    else:
        seen = {}
        for each in found:  # every tile once, and every number of parts
            seen.setdefault((each.tile.rows, each.tile.columns), each)
            seen.setdefault(each.product.parts, each)
        found = list(dict.fromkeys(seen.values()))
    return {short_name(each): each for each in found} | more


def short_name(choice: Any) -> str:
    tile, parts = choice.tile, choice.product.parts
    in_parts = f" /{parts}" if parts > 1 else ""
    return f"{tile.rows}x{tile.columns} s{tile.stages}.{tile.slabs} g{tile.group}{in_parts}"


def compile_all(compiler: Any, wanted: dict[str, tuple[Any, Any]], threads: int) -> dict[str, Any]:
    """Returns a Binary, or the error, by name."""
    from picograd.engine.cache import kept
    from picograd.ir.text import format_kernel

    begun = {}
    for name, (kernel, choice) in wanted.items():
        entry = compiler._entry_of(format_kernel(kernel), choice)
        begun[name] = kept(entry, partial(compiler._begin, kernel, choice))

    def finish(name: str) -> Any:
        try:
            return begun[name]()
        except Exception as error:  # the others go on
            return error

    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(begun, pool.map(finish, begun)))


# ---- memory ----
class Borrowed:
    """Memory of PyTorch's."""

    def __init__(self, tensor: Any):
        self.tensor, self.address = tensor, tensor.data_ptr()
        self.nbytes = tensor.numel() * tensor.element_size()


class Tensors:
    """Sets of inputs as tensors of PyTorch's, each with its output."""

    torch: Any
    inputs: list[list[Any]]
    outputs: list[Any]

    def sets(self) -> tuple[list[list[Any]], list[list[Any]]]:
        return [[Borrowed(each) for each in held] for held in self.inputs], [[Borrowed(each)] for each in self.outputs]

    def poison(self) -> None:
        for out in self.outputs:
            out.fill_(float("nan"))
        self.torch.cuda.synchronize()


class SimulatedMemory:
    """Inputs and an output on the simulator, where nothing is timed."""

    def __init__(self, device: Any, arrays: list[Any], expected: Any, dtype: Any):
        self.device, self.expected, self.out = device, expected, np.empty(expected.shape, dtype)
        self.inputs = [device.allocate(each.nbytes) for each in arrays]
        for memory, each in zip(self.inputs, arrays):
            device.copy_in(memory, np.ascontiguousarray(each))
        self.output = device.allocate(self.out.nbytes)

    def sets(self) -> tuple[list[list[Any]], list[list[Any]]]:
        return [self.inputs], [[self.output]]

    def poison(self) -> None:
        self.device.copy_in(self.output, np.full_like(self.out, np.nan))

    def error(self) -> float:
        self.device.copy_out(self.output, self.out)
        value = float(np.linalg.norm(self.out.astype(np.float64) - self.expected) / np.linalg.norm(self.expected))
        return value if value == value else float("inf")


class OnGpu(Tensors):
    """Memory, a reference and timing by PyTorch.

    expected:  of the first set, in float32
    """

    def __init__(self, problem: Problem, device: Any):
        import torch

        self.torch, self.device, self.problem = torch, device, problem
        dtype = getattr(torch, problem.stored)
        torch.backends.cuda.matmul.allow_tf32 = problem.dtype == "tf32"
        count = max(1, min(6, -(-ROTATED_NBYTES // problem.nbytes))) if problem.is_timed else 1
        shapes = [(problem.m, problem.k), (problem.k, problem.n)]
        stored = [shape if major == "N" else shape[::-1] for shape, major in zip(shapes, problem.majors)]
        more = [(problem.n,)] if problem.bias else []
        self.inputs = [[torch.randn(shape, device="cuda").to(dtype) for shape in (*stored, *more)] for _ in range(count)]
        self.outputs = [torch.empty((problem.m, problem.n), dtype=dtype, device="cuda") for _ in range(count)]
        a, b = self._operands(self.inputs[0])
        if problem.is_timed and problem.dtype not in WIDE:
            self.expected = (a @ b).float()
        else:
            self.expected = a.double() @ b.double()
        if problem.bias:
            self.expected = self.expected + self.inputs[0][2].float()
        torch.cuda.synchronize()

    def _operands(self, held: list[Any]) -> list[Any]:
        return [each if major == "N" else each.T for each, major in zip(held, self.problem.majors)]

    def error(self) -> float:
        found = self.outputs[0].to(self.expected.dtype)
        value = float((found - self.expected).norm() / self.expected.norm())
        return value if value == value else float("inf")

    def reference(self, repeats: int) -> list[float]:
        """Returns the seconds of PyTorch's product."""
        torch = self.torch
        operands = [self._operands(held) for held in self.inputs]

        def run() -> None:
            for i in range(repeats):
                torch.matmul(*operands[i % len(operands)], out=self.outputs[i % len(operands)])

        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        found = []
        for _ in range(SAMPLES + 1):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            stop.record()
            stop.synchronize()
            found.append(start.elapsed_time(stop) / 1e3 / repeats)
        return found[1:]


class Simulated(SimulatedMemory):
    """The same on the simulator."""

    def __init__(self, problem: Problem, device: Any):
        from picograd.dtype import dtype_named

        rng, dtype = np.random.default_rng(), dtype_named(problem.stored)
        shapes = [(problem.m, problem.k), (problem.k, problem.n), *([(problem.n,)] if problem.bias else [])]
        arrays = [rng.standard_normal(shape).astype(dtype.numpy) for shape in shapes]
        wide = [each.astype(np.float64) for each in arrays]
        stored = [array.T if major == "T" else array for array, major in zip(arrays, problem.majors + "N")]
        expected = wide[0] @ wide[1] + (wide[2] if problem.bias else 0.0)
        super().__init__(device, stored, expected, dtype.numpy)

    def reference(self, repeats: int) -> list[float]:
        return [1.0]


def runner_of(device: Any, kernel: Any, executable: Any, memory: Any, repeats: int) -> Callable[[], None]:
    """Returns what submits a kernel so many times, on one set of memory after the other."""
    from picograd.ir.op import Buffer
    from picograd.ir.stages import BufferUse, Schedule, ScheduleItem

    sets, outputs = memory.sets()
    given = [param for param in kernel.params if param.role == "in"]
    made = kernel.params[len(given) :]
    uses, inputs = [], []
    for held in sets:
        for param, each in zip(given, held):
            uses.append(BufferUse(param.dtype, param.numel, "input", len(inputs)))
            inputs.append(Buffer(device.name, param.dtype, param.numel, each))
    first = len(uses)
    results = []
    for held in outputs:
        for param, each in zip(made, held):
            uses.append(BufferUse(param.dtype, param.numel, "output", len(results)))
            results.append(Buffer(device.name, param.dtype, param.numel, each))
    items = []
    for i in range(repeats):
        at = i % len(sets)
        places = range(at * len(given), (at + 1) * len(given)), range(first + at * len(made), first + (at + 1) * len(made))
        items.append(ScheduleItem(kernel, (*places[0], *places[1])))
    submit = device.make_runner(Schedule(tuple(items), tuple(uses), (), (), 0), [executable] * repeats)
    return lambda: submit(inputs, results, {})


# ---- the process that works ----
def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def work(arguments: argparse.Namespace) -> None:
    """Runs all variants that are not to be skipped, and tells of each."""
    compiler, device = simulated() if arguments.simulate else on_gpu()
    target, skip = device.target, set(json.loads(os.environ.get("SKIP", "[]")))
    wanted: dict[str, dict[str, tuple[Any, Any]]] = {}
    for problem in problems(arguments.simulate, arguments.only):
        kernel = kernel_of(problem)
        variants = variants_of(kernel, target, problem, arguments.simulate)
        wanted[problem.name] = {name: (kernel, choice) for name, choice in variants.items()}
    start = time.perf_counter()
    todo = {f"{name}|{variant}": one for name, own in wanted.items() for variant, one in own.items()}
    binaries = compile_all(compiler, {key: one for key, one in todo.items() if key not in skip}, arguments.threads)
    tell(note=f"{len(binaries)} variants in {time.perf_counter() - start:.1f} s, on {device.name}")
    for problem in problems(arguments.simulate, arguments.only):
        keys = [f"{problem.name}|{variant}" for variant in wanted[problem.name]]
        if f"{problem.name}|*" in skip or all(key in skip for key in keys):
            continue
        memory = (Simulated if arguments.simulate else OnGpu)(problem, device)
        repeats = max(2, min(MOST_REPEATS, int(TIMED * 6e14 / problem.flops))) if problem.is_timed else 1
        reference = f"{problem.name}|torch"
        if problem.is_timed and not arguments.simulate:
            tell(begin=reference)
            samples = memory.reference(repeats)
            tell(key=reference, samples=samples, distance=memory.error())
        for key in keys:
            if key in skip:
                continue
            tell(begin=key)
            if isinstance(binaries[key], Exception):
                tell(key=key, error=f"compiling: {binaries[key]}"[:600])
                continue
            try:
                measure(device, todo[key][0], binaries[key], memory, repeats if not arguments.simulate else 2, key,
                        problem.is_timed and not arguments.simulate)  # fmt: skip
            except Exception as error:
                tell(key=key, error=f"{type(error).__name__}: {error}"[:600])
                if not arguments.simulate:
                    os._exit(3)  # the GPU may be unusable for this process
        if problem.is_timed and not arguments.simulate:
            tell(begin=reference)
            tell(key=f"{reference} again", samples=memory.reference(repeats))
        del memory
    tell(done=True)


def measure(device: Any, kernel: Any, binary: Any, memory: Any, repeats: int, key: str, times: bool) -> None:
    run = runner_of(device, kernel, device.load(binary), memory, repeats)
    memory.poison()
    for _ in range(2 if times else 1):
        run()
    if hasattr(device, "synchronize"):
        device.synchronize()
    distance = memory.error()
    samples = []
    if times:
        device.timed(run)
        samples = [device.timed(run) / repeats for _ in range(SAMPLES)]
    tell(key=key, distance=distance, samples=samples, repeats=repeats)


def on_gpu() -> tuple[Any, Any]:
    from picograd.engine.devices import compiler_for

    compiler = compiler_for("CUDA")
    return compiler, compiler.device


def simulated() -> tuple[Any, Any]:
    from picograd.devices.cuda.render import render
    from picograd.devices.cudasim.compile import compile_source
    from picograd.devices.cudasim.device import TARGET, CudaSimDevice
    from picograd.engine.compiler import Backend, Compiler

    device = CudaSimDevice()
    device.target = replace(TARGET, has_warpgroups=True, multiprocessors=4, shared_bytes=227 * 1024)
    return Compiler(device, Backend(render, compile_source)), device


def parsed(program: str, description: str, seconds: float, words: list[str] | None) -> argparse.Namespace:
    """Reads the command line of a measurement on a GPU, for both of its processes."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{program}", description=description)
    parser.add_argument("--only", default="", help="comma list of words with which names begin; all if empty")
    parser.add_argument("--seconds", type=float, default=seconds, help="seconds after which no further variant is measured")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads that compile")
    parser.add_argument("--json", help="file that receives all samples")
    parser.add_argument("--simulate", action="store_true", help="run tiny sizes on the simulator")
    return parser.parse_args(words)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    return parsed("gpu_products", "Measures products by warpgroups on a GPU.", 220.0, words)


if __name__ == "__main__":
    work(parse())
