"""Gradients of attention for bench.gpu_attention: what is compiled, what it is computed of, what it is held against.

In:    a Problem
Out:   `kernel_of`, `variants_of`; `OnGpu`, `Simulated`: memory, references
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.gpu_heads import ROTATED_NBYTES, Problem, name_of, timed_by_torch, way
from bench.gpu_products_work import Borrowed
from picograd.record import replace

CUTS = {  # beside those of the menu: warpgroups, rows of a tile, whether products lag, by whether of keys, and by features
    (True, 64): ((2, 64, False), (2, 80, False)),
    (True, 128): (),
    (False, 64): ((2, 128, False), (2, 96, True), (3, 64, False), (3, 80, False)),
    (False, 128): ((2, 80, True), (2, 96, False), (2, 128, False)),
}


def shapes_of(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes of q, k, v and the gradient of the averages."""
    B, H, G, T, S, D = (problem.batch, problem.heads, problem.groups, problem.queries, problem.keys, problem.features)
    return (B, H, T, D), (B, G, S, D), (B, G, S, D), (B, H, T, D)


def kernel_of(problem: Problem) -> Any:
    """Returns the kernel of all three gradients."""
    from picograd import dtype as dtypes
    from picograd.dtype import dtype_named
    from picograd.ir.attention import outputs
    from picograd.ir.op import Op
    from picograd.ir.opcode import OpCode
    from picograd.ir.shape import AttentionArg, numel
    from picograd.ir.stages import Kernel, Nest, NestKind, Param

    dtype, shapes = dtype_named(problem.dtype), shapes_of(problem)
    given = [Op(OpCode.PARAM, dtype, (), (slot, shape)) for slot, shape in enumerate(shapes)]
    given += [Op(OpCode.PARAM, dtypes.float32, (), (slot, shapes[0][:3])) for slot in (4, 5)]
    anchor = Op(OpCode.ATTENTION_GRAD, dtype, tuple(given), AttentionArg(problem.scale, problem.causal))
    params = [Param(each.dtype, numel(each.shape), "in") for each in given]
    params += [Param(dtype, numel(shape), "out") for shape in shapes[:3]]
    made = tuple((6 + i, value) for i, value in enumerate(outputs(anchor)))
    nest = Nest(NestKind.ATTENTION, anchor.shape, (), anchor, made)
    name = f"gradient_{problem.batch}_{problem.heads}_{problem.queries}_{problem.features}_{int(problem.causal)}"
    return Kernel(name, tuple(params), (), ((nest,),))


def variants_of(kernel: Any, target: Any, problem: Problem, simulates: bool) -> dict[str, Any]:
    """Returns the choices for a kernel by name, the first choice first, with the generated kernel last."""
    from picograd.codegen.emit import guess
    from picograd.codegen.hopper import cut_gradients
    from picograd.engine.choose import written_candidates
    from picograd.ir.opts import Generated

    found: list[Any] = [*written_candidates(kernel, target)]
    first = found[0]
    if problem.is_timed and not simulates:
        shape = first.plain.shape
        for by_keys, name in ((True, "by_keys"), (False, "by_queries")):
            cuts = [
                tile for each in CUTS[by_keys, problem.features] for tile in cut_gradients(shape, by_keys, *each, target)
            ]
            own = getattr(first, name)
            cuts += [replace(own, stages=own.stages - 1), replace(own, stages=own.stages - 2), replace(own, keeps=1)]
            if problem.features == 128:
                cuts.append(replace(own, columns=64, stages=2, keeps=2))
            found += [replace(first, **{name: each}) for each in cuts if each.stages > 1]
    if not simulates:
        found.append(Generated(guess(kernel, target)))
    return {short_name(each, first): each for each in dict.fromkeys(found)}


def short_name(choice: Any, first: Any) -> str:
    """Returns the names of tiles, or of the one in which a choice differs from the first."""
    if type(choice) is not type(first):
        return "generated"
    own = {"k": (choice.by_keys, first.by_keys), "q": (choice.by_queries, first.by_queries)}
    differing = [f"{kind} {name_of(tile)}" for kind, (tile, usual) in own.items() if tile != usual]
    return ", ".join(differing) or f"k {name_of(first.by_keys)}, q {name_of(first.by_queries)}"


class OnGpu:
    """Memory, a reference and timing by PyTorch; expected: gradients of the first set."""

    def __init__(self, problem: Problem, device: Any):
        import torch

        self.torch, self.device, self.problem = torch, device, problem
        dtype = getattr(torch, problem.dtype)
        count = max(1, min(4, -(-ROTATED_NBYTES // problem.nbytes))) if problem.is_timed else 1
        shapes = shapes_of(problem)
        self.inputs = [[torch.randn(shape, device="cuda").to(dtype) for shape in shapes] for _ in range(count)]
        for held in self.inputs:
            held += self._rows(*held)
        self.outputs = [[torch.empty(shape, dtype=dtype, device="cuda") for shape in shapes[:3]] for _ in range(count)]
        self.expected = self._exact(*self.inputs[0])
        torch.cuda.synchronize()

    def _heads(self) -> list[tuple[int, int]]:
        return [(b, h) for b in range(self.problem.batch) for h in range(self.problem.heads)]

    def _weights(self, q: Any, k: Any, wide: Any) -> tuple[Any, Any]:
        """Returns the weights of one head and its logsumexp."""
        torch, problem = self.torch, self.problem
        scores = problem.scale * q.to(wide) @ k.to(wide).T
        if problem.causal:
            here = torch.arange(problem.queries, device="cuda")[:, None] + problem.keys - problem.queries
            scores.masked_fill_(torch.arange(problem.keys, device="cuda") > here, float("-inf"))
        return torch.nan_to_num(torch.softmax(scores, -1)), torch.logsumexp(scores, -1)

    def _rows(self, q: Any, k: Any, v: Any, grad: Any) -> list[Any]:
        """Returns logsumexp and delta."""
        torch, problem = self.torch, self.problem
        logsumexp, delta = (torch.empty(q.shape[:3], device="cuda") for _ in range(2))
        share = problem.heads // problem.groups
        for b, h in self._heads():
            weights, logsumexp[b, h] = self._weights(q[b, h], k[b, h // share], torch.float32)
            delta[b, h] = (grad[b, h].float() * (weights @ v[b, h // share].float())).sum(-1)
        return [logsumexp, delta]

    def _exact(self, q: Any, k: Any, v: Any, grad: Any, _: Any, delta: Any) -> list[Any]:
        """Returns the gradients in float64, or of what is timed in float32."""
        torch, problem = self.torch, self.problem
        wide, share = torch.float32 if problem.is_timed else torch.float64, problem.heads // problem.groups
        dq, dk, dv = (torch.zeros(each.shape, dtype=wide, device="cuda") for each in (q, k, v))
        for b, h in self._heads():
            own = tuple(each.to(wide) for each in (q[b, h], k[b, h // share], v[b, h // share], grad[b, h]))
            weights, _ = self._weights(own[0], own[1], wide)
            slopes = problem.scale * weights * (own[3] @ own[2].T - delta[b, h][:, None].to(wide))
            dq[b, h] = slopes @ own[1]
            dk[b, h // share] += slopes.T @ own[0]
            dv[b, h // share] += weights.T @ own[3]
        return [each.float() for each in (dq, dk, dv)]

    def sets(self) -> tuple[list[list[Any]], list[list[Any]]]:
        given, made = ([[Borrowed(each) for each in held] for held in sets] for sets in (self.inputs, self.outputs))
        return given, made

    def poison(self) -> None:
        for held in self.outputs:
            for each in held:
                each.fill_(float("nan"))
        self.torch.cuda.synchronize()

    def error(self) -> float:
        """Returns the greatest relative distance of the three."""
        pairs = zip(self.outputs[0], self.expected)
        found = [float((own.float() - expected).norm() / expected.norm()) for own, expected in pairs]
        return max(each if each == each else float("inf") for each in found)

    def reference(self, name: str, repeats: int) -> list[float]:
        """Returns the seconds of PyTorch's backward pass by one of its ways."""
        torch, calls = self.torch, []
        for held in self.inputs:
            operands = [each.detach().requires_grad_() for each in held[:3]]
            with way(name):
                out = torch.nn.functional.scaled_dot_product_attention(*operands, is_causal=self.problem.causal)
            calls.append(partial(torch.autograd.grad, out, operands, held[3], retain_graph=True))
        return timed_by_torch(calls, name, repeats)


class Simulated:
    """The same on the simulator, where nothing is timed."""

    def __init__(self, problem: Problem, device: Any):
        from picograd.dtype import dtype_named

        self.device, rng, dtype = device, np.random.default_rng(), dtype_named(problem.dtype)
        arrays = [rng.standard_normal(shape).astype(dtype.numpy) for shape in shapes_of(problem)]
        q, k, v, grad = (each.astype(np.float64) for each in arrays)
        k, v = (np.repeat(each, problem.heads // problem.groups, axis=1) for each in (k, v))
        scores = problem.scale * q @ k.swapaxes(2, 3)
        last = np.arange(problem.queries)[:, None] + problem.keys - problem.queries
        powers = np.exp(np.where((np.arange(problem.keys) <= last) | (not problem.causal), scores, -np.inf))
        total = powers.sum(-1, keepdims=True)
        weights = powers / total
        delta = (grad * (weights @ v)).sum(-1, keepdims=True)
        slopes = problem.scale * weights * (grad @ v.swapaxes(2, 3) - delta)
        shared = (problem.batch, problem.groups, -1, problem.keys, problem.features)
        dk, dv = ((each.swapaxes(2, 3) @ of).reshape(shared).sum(2) for each, of in ((slopes, q), (weights, grad)))
        self.expected = [slopes @ k, dk, dv]
        arrays += [np.log(total[..., 0]).astype(np.float32), delta[..., 0].astype(np.float32)]
        self.inputs = [device.allocate(each.nbytes) for each in arrays]
        for memory, each in zip(self.inputs, arrays):
            device.copy_in(memory, each)
        self.found = [np.empty(each.shape, dtype.numpy) for each in self.expected]
        self.outputs = [device.allocate(each.nbytes) for each in self.found]

    def sets(self) -> tuple[list[list[Any]], list[list[Any]]]:
        return [self.inputs], [self.outputs]

    def poison(self) -> None:
        for memory, each in zip(self.outputs, self.found):
            self.device.copy_in(memory, np.full_like(each, np.nan))

    def error(self) -> float:
        distances = []
        for memory, own, expected in zip(self.outputs, self.found, self.expected):
            self.device.copy_out(memory, own)
            distances.append(float(np.linalg.norm(own.astype(np.float64) - expected) / np.linalg.norm(expected)))
        return max(each if each == each else float("inf") for each in distances)
