"""The working process of bench.gpu_attention: it compiles all cuts of attentions, runs and times them.

In:    names of variants to skip, in SKIP
Out:   a line of JSON for each variant
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench import gpu_gradients_work as gradients
from bench.gpu_heads import MOST_REPEATS, REFERENCES, ROTATED_NBYTES, TIMED, Problem, name_of, problems, timed_by_torch
from bench.gpu_products_work import SimulatedMemory, Tensors, compile_all, measure, on_gpu, parsed, simulated, tell
from picograd.record import replace

CUTS = {  # warpgroups that look, and keys of a tile, by features
    64: ((3, 128), (2, 128), (3, 112), (3, 96), (2, 176), (2, 192)),
    128: ((2, 128), (2, 112), (2, 160), (2, 176), (3, 64)),
}


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
    from picograd.codegen.emit import guess
    from picograd.codegen.hopper import _cut_attention, fitted
    from picograd.engine.choose import written_candidates
    from picograd.ir.opts import Generated, attention_nbytes

    found: list[Any] = [*written_candidates(kernel, target)]
    shape = found[0].plain.shape
    if problem.is_timed and not simulates and not problem.is_view:
        for lookers, columns in CUTS[problem.features]:
            (tile,) = _cut_attention(shape, lookers, target)
            cut = fitted(replace(tile, columns=columns, stages=4), partial(attention_nbytes, shape), target)
            found += [replace(found[0], tile=each) for each in cut]
        own = found[0].tile
        others = [replace(own, keeps=1), replace(own, together=16), replace(own, stages=2)]
        found += [replace(found[0], tile=each) for each in others]
        found.append(Generated(guess(kernel, target)))
    return {short_name(each): each for each in dict.fromkeys(found)}


def short_name(choice: Any) -> str:
    tile = getattr(choice, "tile", None)
    return "generated" if tile is None else name_of(tile)


# ---- memory ----
class OnGpu(Tensors):
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

    def error(self) -> float:
        value = float((self.outputs[0].float() - self.expected).norm() / self.expected.norm())
        return value if value == value else float("inf")

    def reference(self, name: str, repeats: int) -> list[float]:
        """Returns the seconds of PyTorch's attention by one of its ways, or by the one that it chooses."""
        operands, is_causal = [self._operands(held) for held in self.inputs], self.problem.causal
        attend = self.torch.nn.functional.scaled_dot_product_attention
        return timed_by_torch([partial(attend, *each, is_causal=is_causal) for each in operands], name, repeats)


class Simulated(SimulatedMemory):
    """The same on the simulator."""

    def __init__(self, problem: Problem, device: Any):
        from picograd.dtype import dtype_named

        rng, dtype = np.random.default_rng(), dtype_named(problem.dtype)
        arrays = [rng.standard_normal(shape).astype(dtype.numpy) for shape in problem.shapes]
        wide = [each.astype(np.float64) for each in arrays]
        q, k, v = [wide[0][:, :, i].transpose(0, 2, 1, 3) for i in range(3)] if problem.is_view else wide
        k, v = (np.repeat(each, problem.heads // problem.groups, axis=1) for each in (k, v))
        scores = problem.scale * q @ k.swapaxes(2, 3)
        if problem.causal:
            last = np.arange(problem.queries)[:, None] + problem.keys - problem.queries
            scores = np.where(np.arange(problem.keys) <= last, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        super().__init__(device, arrays, weights @ v / weights.sum(-1, keepdims=True), dtype.numpy)


# ---- the process that works ----
def work(arguments: argparse.Namespace) -> None:
    """Runs all variants that are not to be skipped, and tells of each."""
    compiler, device = simulated() if arguments.simulate else on_gpu()
    skip, chosen = set(json.loads(os.environ.get("SKIP", "[]"))), problems(arguments.simulate, arguments.only)
    todo: dict[str, tuple[Any, Any]] = {}
    for problem in chosen:
        kernel = (gradients.kernel_of if problem.is_gradient else kernel_of)(problem)
        variants = gradients.variants_of if problem.is_gradient else variants_of
        for name, choice in variants(kernel, device.target, problem, arguments.simulate).items():
            todo[f"{problem.name}|{name}"] = (kernel, choice)
    start = time.perf_counter()
    binaries = compile_all(compiler, {key: one for key, one in todo.items() if key not in skip}, arguments.threads)
    tell(note=f"{len(binaries)} variants in {time.perf_counter() - start:.1f} s, on {device.name}")
    for problem in chosen:
        keys = [key for key in todo if key.split("|")[0] == problem.name and key not in skip]
        if f"{problem.name}|*" in skip or not keys:
            continue
        kinds = (gradients.Simulated, gradients.OnGpu) if problem.is_gradient else (Simulated, OnGpu)
        memory: Any = kinds[not arguments.simulate](problem, device)
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
    return parsed("gpu_attention", "Attention by warpgroups on a GPU.", 100.0, words)


if __name__ == "__main__":
    work(parse())
