"""The working process of bench.gpu_attention: it compiles all cuts of attentions, runs and times them.

In:    names of variants to skip, in SKIP
Out:   a line of JSON for each variant
Called by: bench/gpu_attention.py, which begins it again where a variant hangs
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench.gpu_products_work import SAMPLES, Borrowed, compile_all, measure, on_gpu, simulated, tell
from picograd.record import replace

TIMED, MOST_REPEATS = 4e-3, 20
ROTATED_NBYTES = 120 << 20  # more than the L2 cache holds
SLEPT_CLOCKS = 1_000_000  # in which the host gets ahead of the GPU
REFERENCES = ("flash", "cudnn")
CUTS = {  # warpgroups that look, and keys of a tile, by features
    64: ((3, 128), (2, 128), (3, 112), (3, 96), (2, 176), (2, 192)),
    128: ((2, 128), (2, 112), (2, 160), (2, 176), (3, 64)),
}


@dataclass(frozen=True)
class Problem:
    """An attention of q (B, H, T, D), k and v (B, G, S, D), as they are or views of one array; timed, or only looked at."""

    name: str
    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    features: int
    causal: bool = True
    dtype: str = "bfloat16"
    is_timed: bool = True
    is_view: bool = False

    @property
    def flops(self) -> float:
        """FLOPs, half of them where it is causal, as others count."""
        return 4.0 * self.batch * self.heads * self.queries * self.keys * self.features / (2 if self.causal else 1)

    @property
    def nbytes(self) -> int:
        rows = 2 * self.heads * self.queries + 2 * self.groups * self.keys
        return 2 * self.batch * rows * self.features

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of q, k and v in memory."""
        B, H, G, T, S, D = self.batch, self.heads, self.groups, self.queries, self.keys, self.features
        return ((B, T, 3, H, D),) if self.is_view else ((B, H, T, D), (B, G, S, D), (B, G, S, D))

    @property
    def scale(self) -> float:
        return float(self.features) ** -0.5


def problems(simulates: bool, only: str) -> list[Problem]:
    """Returns what is computed, the most telling first."""
    if simulates:
        found = [Problem("check views", 1, 2, 2, 200, 200, 64, is_timed=False, is_view=True),
                 Problem("grouped", 1, 2, 1, 72, 136, 128, dtype="float16")]  # fmt: skip
    else:
        found = [
            Problem("check edges", 2, 3, 3, 1000, 1000, 64, is_timed=False),
            Problem("check full", 2, 3, 3, 1000, 777, 64, False, "float16", False),
            Problem("check grouped", 2, 8, 2, 520, 1160, 128, True, "bfloat16", False),
            Problem("check more queries", 1, 2, 2, 1160, 520, 128, True, "bfloat16", False),
            Problem("check views", 2, 12, 12, 1024, 1024, 64, is_timed=False, is_view=True),
            Problem("check 80", 2, 4, 4, 450, 450, 80, is_timed=False),
            Problem("8x12x1024x64 causal", 8, 12, 12, 1024, 1024, 64),
            Problem("4x16x4096x128 causal", 4, 16, 16, 4096, 4096, 128),
            Problem("8x12x1024x64 views", 8, 12, 12, 1024, 1024, 64, is_view=True),
            Problem("8x12x1024x64 full", 8, 12, 12, 1024, 1024, 64, False),
            Problem("4x16x4096x128 full", 4, 16, 16, 4096, 4096, 128, False),
            Problem("4x16x4096x64 causal", 4, 16, 16, 4096, 4096, 64),
        ]
    return [each for each in found if each.name.startswith(tuple(only.split(",")))]


# ---- what is compiled ----
def kernel_of(problem: Problem) -> Any:
    """Returns the kernel of an attention, whose averages alone are asked for."""
    from picograd.dtype import dtype_named
    from picograd.ir.attention import outputs
    from picograd.ir.build import permute, reshape, shrink_axis
    from picograd.ir.op import Op
    from picograd.ir.opcode import OpCode
    from picograd.ir.shape import AttentionArg, numel
    from picograd.ir.stages import Kernel, Nest, NestKind, Param

    dtype = dtype_named(problem.dtype)
    held = [Op(OpCode.PARAM, dtype, (), (slot, shape)) for slot, shape in enumerate(problem.shapes)]
    if problem.is_view:
        B, T, _, H, D = problem.shapes[0]
        parts = [reshape(shrink_axis(held[0], 2, i, i + 1), (B, T, H, D)) for i in range(3)]
        operands = [permute(part, (0, 2, 1, 3)) for part in parts]
    else:
        operands = held
    anchor = Op(OpCode.ATTENTION, dtype, tuple(operands), AttentionArg(problem.scale, problem.causal))
    params = [Param(dtype, numel(shape), "in") for shape in problem.shapes]
    params.append(Param(dtype, numel(anchor.shape), "out"))
    nest = Nest(NestKind.ATTENTION, anchor.shape, (), anchor, ((len(params) - 1, outputs(anchor)[0]),))
    name = f"attention_{problem.batch}_{problem.heads}_{problem.queries}_{problem.features}_{int(problem.causal)}"
    return Kernel(name, tuple(params), (), ((nest,),))


def variants_of(kernel: Any, target: Any, problem: Problem, simulates: bool) -> dict[str, Any]:
    """Returns the choices for a kernel by name, the first choice first, with the generated kernel last."""
    from picograd.codegen.opts import guess
    from picograd.codegen.plain_attention import BARRIER_NBYTES, _cut
    from picograd.engine.written import written_candidates
    from picograd.ir.opts import Generated

    found: list[Any] = [*written_candidates(kernel, target)]
    attention = found[0].attention
    if problem.is_timed and not simulates and not problem.is_view:
        for lookers, columns in CUTS[problem.features]:
            (tile,) = _cut(attention, lookers, target)
            room = target.shared_bytes - BARRIER_NBYTES - attention.nbytes(tile.rows)
            stages = min(4, room // attention.nbytes(columns))
            if stages >= 2:
                found.append(replace(found[0], tile=replace(tile, columns=columns, stages=stages)))
        found.append(replace(found[0], tile=replace(found[0].tile, together=attention.batch * attention.heads)))
        found.append(replace(found[0], tile=replace(found[0].tile, together=16)))
        if problem.features == 64:
            found.append(replace(found[0], tile=replace(found[0].tile, stages=2)))
        found.append(Generated(guess(kernel, target)))
    return {short_name(each): each for each in dict.fromkeys(found)}


def short_name(choice: Any) -> str:
    tile = getattr(choice, "tile", None)
    return "generated" if tile is None else f"{tile.rows}x{tile.columns} s{tile.stages} g{tile.together}"


# ---- memory ----
class OnGpu:
    """Memory, a reference and timing by PyTorch."""

    def __init__(self, problem: Problem, device: Any):
        import torch

        self.torch, self.device, self.problem = torch, device, problem
        dtype = getattr(torch, problem.dtype)
        count = max(1, min(4, -(-ROTATED_NBYTES // problem.nbytes))) if problem.is_timed else 1
        self.inputs = [[torch.randn(shape, device="cuda").to(dtype) for shape in problem.shapes] for _ in range(count)]
        shape = (problem.batch, problem.heads, problem.queries, problem.features)
        self.outputs = [torch.empty(shape, dtype=dtype, device="cuda") for _ in range(count)]
        self.expected = self._exact(*self._operands(self.inputs[0]))
        torch.cuda.synchronize()

    def _operands(self, held: list[Any]) -> list[Any]:
        return [held[0][:, :, i].transpose(1, 2) for i in range(3)] if self.problem.is_view else held

    def _exact(self, q: Any, k: Any, v: Any) -> Any:
        """Returns averages in float64, or of what is timed, one head after the other in float32."""
        torch, problem = self.torch, self.problem
        wide = torch.float32 if problem.is_timed else torch.float64
        out = torch.empty((problem.batch, problem.heads, problem.queries, problem.features), device="cuda")
        every, here = torch.arange(problem.keys, device="cuda"), torch.arange(problem.queries, device="cuda")
        hidden = every[None, :] > here[:, None] + problem.keys - problem.queries
        share = problem.heads // problem.groups
        for b in range(problem.batch):
            for h in range(problem.heads):
                scores = problem.scale * q[b, h].to(wide) @ k[b, h // share].to(wide).T
                if problem.causal:
                    scores.masked_fill_(hidden, float("-inf"))
                weights = torch.nan_to_num(torch.softmax(scores, -1))
                out[b, h] = (weights @ v[b, h // share].to(wide)).float()
        return out

    def sets(self) -> tuple[list[list[Any]], list[Any]]:
        return [[Borrowed(each) for each in held] for held in self.inputs], [Borrowed(each) for each in self.outputs]

    def poison(self) -> None:
        for out in self.outputs:
            out.fill_(float("nan"))
        self.torch.cuda.synchronize()

    def error(self) -> float:
        value = float((self.outputs[0].float() - self.expected).norm() / self.expected.norm())
        return value if value == value else float("inf")

    def reference(self, name: str, repeats: int) -> list[float]:
        """Returns the seconds of PyTorch's attention by one of its ways."""
        torch = self.torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[name]
        operands = [self._operands(held) for held in self.inputs]

        def run() -> None:
            with sdpa_kernel(backend):
                for i in range(repeats):
                    q, k, v = operands[i % len(operands)]
                    torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.problem.causal)

        found = []
        for _ in range(SAMPLES + 1):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(SLEPT_CLOCKS)
            start.record()
            run()
            stop.record()
            stop.synchronize()
            found.append(start.elapsed_time(stop) / 1e3 / repeats)
        return found[1:]


class Simulated:
    """The same on the simulator, where nothing is timed."""

    def __init__(self, problem: Problem, device: Any):
        from picograd.dtype import dtype_named

        self.device, rng, dtype = device, np.random.default_rng(), dtype_named(problem.dtype)
        arrays = [rng.standard_normal(shape).astype(dtype.numpy) for shape in problem.shapes]
        self.inputs = [device.allocate(each.nbytes) for each in arrays]
        for memory, each in zip(self.inputs, arrays):
            device.copy_in(memory, each)
        wide = [each.astype(np.float64) for each in arrays]
        q, k, v = [wide[0][:, :, i].transpose(0, 2, 1, 3) for i in range(3)] if problem.is_view else wide
        k, v = (np.repeat(each, problem.heads // problem.groups, axis=1) for each in (k, v))
        scores = problem.scale * q @ k.swapaxes(2, 3)
        if problem.causal:
            last = np.arange(problem.queries)[:, None] + problem.keys - problem.queries
            scores = np.where(np.arange(problem.keys) <= last, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        self.expected = weights @ v / weights.sum(-1, keepdims=True)
        self.out = np.empty(self.expected.shape, dtype.numpy)
        self.output = device.allocate(self.out.nbytes)

    def sets(self) -> tuple[list[list[Any]], list[Any]]:
        return [self.inputs], [self.output]

    def poison(self) -> None:
        self.device.copy_in(self.output, np.full_like(self.out, np.nan))

    def error(self) -> float:
        self.device.copy_out(self.output, self.out)
        value = float(np.linalg.norm(self.out.astype(np.float64) - self.expected) / np.linalg.norm(self.expected))
        return value if value == value else float("inf")


# ---- the process that works ----
def work(arguments: argparse.Namespace) -> None:
    """Runs all variants that are not to be skipped, and tells of each."""
    compiler, device = simulated() if arguments.simulate else on_gpu()
    skip, chosen = set(json.loads(os.environ.get("SKIP", "[]"))), problems(arguments.simulate, arguments.only)
    todo: dict[str, tuple[Any, Any]] = {}
    for problem in chosen:
        kernel = kernel_of(problem)
        for name, choice in variants_of(kernel, device.target, problem, arguments.simulate).items():
            todo[f"{problem.name}|{name}"] = (kernel, choice)
    start = time.perf_counter()
    binaries = compile_all(compiler, {key: one for key, one in todo.items() if key not in skip}, arguments.threads)
    tell(note=f"{len(binaries)} variants in {time.perf_counter() - start:.1f} s, on {device.name}")
    for problem in chosen:
        keys = [key for key in todo if key.split("|")[0] == problem.name and key not in skip]
        if f"{problem.name}|*" in skip or not keys:
            continue
        memory: Any = (Simulated if arguments.simulate else OnGpu)(problem, device)
        times = problem.is_timed and not arguments.simulate
        repeats = max(2, min(MOST_REPEATS, int(TIMED * 4e14 / problem.flops))) if times else 1
        for key in keys:
            _attempt(key, partial(_measure, device, todo[key], binaries[key], memory, repeats, key, times))
        for name in REFERENCES if times else ():
            key = f"{problem.name}|torch {name}"
            _attempt(key, partial(_time_reference, memory, name, repeats, key), is_ours=False)
        del memory
    tell(done=True)


def _measure(device: Any, made: tuple[Any, Any], binary: Any, memory: Any, repeats: int, key: str, times: bool) -> None:
    if isinstance(binary, Exception):
        tell(key=key, error=f"compiling: {binary}"[:600])
    else:
        measure(device, made[0], binary, memory, repeats, key, times)


def _time_reference(memory: Any, name: str, repeats: int, key: str) -> None:
    tell(key=key, samples=memory.reference(name, repeats))


def _attempt(key: str, do: Callable[[], None], is_ours: bool = True) -> None:
    """Does what may fail; behind an error of ours the GPU may be unusable for this process."""
    tell(begin=key)
    try:
        do()
    except Exception as error:
        tell(key=key, error=f"{type(error).__name__}: {error}"[:600])
        if is_ours:
            os._exit(3)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line of both processes."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_attention", description="Attention by warpgroups on a GPU.")
    parser.add_argument("--only", default="", help="comma list of first words of names; all if empty")
    parser.add_argument("--seconds", type=float, default=100.0, help="after which nothing more is measured")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="that compile")
    parser.add_argument("--json", help="file that receives everything")
    parser.add_argument("--simulate", action="store_true", help="tiny sizes, on the simulator")
    return parser.parse_args(words)


if __name__ == "__main__":
    work(parse())
