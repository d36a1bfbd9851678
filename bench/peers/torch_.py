"""PyTorch, eager and through torch.compile.

In:    a workload
Out:   functions of torch tensors (see `bench.runner.Peer`)
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.language import Language
from bench.peers import torch_language
from bench.runner import NOT_COUNTED, Runner
from bench.singles import Generation, Overhead
from bench.workloads import LAYER_NORM_EPS, Array, Forward, Training, start_embedding, start_weights

VARIANTS = ("torch", "torch_compile")

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))


def version() -> str:
    return torch.__version__


def tensor(array: Array) -> Tensor:
    made = torch.tensor(array)
    return made.long() if made.dtype == torch.int32 else made  # class numbers must be int64


def wait(handle: Tensor) -> None:
    """On the CPU every call returns when it is done."""
    if handle.is_cuda:
        torch.cuda.synchronize()


def numpy(handle: Tensor) -> Array:
    return handle.detach().cpu().numpy()


def train(workload: Training | Language, variant: str) -> Callable[[Tensor, Tensor], Tensor]:
    """One step; compiled: loss and gradient. The update is torch's fused loop, as fast as a compiled one."""
    loss_of, optimizer = torch_language.make_loss(workload) if isinstance(workload, Language) else _make_loss(workload)
    loss_function = _compiled(loss_of) if variant == "torch_compile" else loss_of

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_function(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _make_loss(workload: Training) -> tuple[Callable[[Tensor, Tensor], Tensor], torch.optim.Optimizer]:
    """Returns the loss of a perceptron at the start weights, and SGD on its parameters."""
    layers = [(_param(weight), _param(bias)) for weight, bias in start_weights(workload)]
    table_array = start_embedding(workload)
    table = None if table_array is None else _param(table_array)
    params = [param for layer in layers for param in layer] + ([] if table is None else [table])
    optimizer = torch.optim.SGD(params, lr=workload.learning_rate, fused=True)

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        return _loss(workload, _network(workload, layers, table, x), y)

    return loss_of, optimizer


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    # Forgetting the workload before keeps dynamo's limit on recompiling one code object out of play.
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False)
    return compiled


def _param(array: Array) -> Tensor:
    return torch.tensor(array, requires_grad=True)


def _network(workload: Training, layers: list[tuple[Tensor, Tensor]], table: Tensor | None, x: Tensor) -> Tensor:
    if table is not None:
        x = F.embedding(x, table).reshape(workload.batch, -1)
    for number, (weight, bias) in enumerate(layers):
        x = F.linear(x, weight, bias)
        if number < len(layers) - 1:
            x = x.tanh() if workload.activation == "tanh" else x.relu()
    return x


def _loss(workload: Training, out: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(out, y) if workload.loss == "mse" else F.cross_entropy(out, y)


def forward(workload: Forward | Overhead | Generation, variant: str) -> Callable[..., Any]:
    """One expression, without autograd."""
    if isinstance(workload, Generation):
        generator = torch_language.Generator(workload)
        if workload.op == "prefill":
            return _compiled(generator.prefill) if variant == "torch_compile" else generator.prefill
        generator.read_prompt()
        return generator.decode
    function = torch.no_grad()(_FORWARD[workload.op](workload))
    return _compiled(function) if variant == "torch_compile" else function


def _matmul(workload: Forward) -> Callable[[Tensor, Tensor], Tensor]:
    return {
        "NN": lambda a, b: a @ b,
        "NT": lambda a, b: a @ b.T,
        "TN": lambda a, b: a.T @ b,
        "TT": lambda a, b: a.T @ b.T,
    }[workload.layout]


def _chain(workload: Overhead) -> Callable[..., Tensor]:
    def chain(x: Tensor, *ws: Tensor) -> Tensor:
        for number in range(workload.num_kernels):
            x = x @ ws[number % len(ws)]
        return x

    return chain


def _layer_norm(workload: Forward) -> Callable[..., Tensor]:
    width = workload.shape[1]
    return lambda x, weight, bias: F.layer_norm(x, (width,), weight, bias, LAYER_NORM_EPS)


_FORWARD: dict[str, Callable[[Any], Callable[..., Tensor]]] = {
    "matmul": _matmul,
    "gelu_scaled": lambda workload: lambda x, a, b, c: F.gelu(x * a + b) * c,
    "softmax": lambda workload: lambda x: x.softmax(-1),
    "layer_norm": _layer_norm,
    "chain": _chain,
    "sum": lambda workload: lambda x, *ws: sum(ws, x),
}


def count(work: Callable[[], None]) -> dict[str, int | None]:
    work()
    return NOT_COUNTED


def tensor_nbytes(runner: Runner) -> int | None:
    """The largest "total allocated" that the profiler's memory events report during one step.

    The allocator's total counts from when profiling begins: the tensors alive before are added.
    """
    alive = _alive_nbytes()
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        runner.step(runner.granularity)
    held = peak = 0
    for event in sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return alive + peak


def _alive_nbytes() -> int:
    storages = {}
    for found in gc.get_objects():
        if type(found) is Tensor and found.device.type == "cpu":  # not the compiler's fake tensors, which hold nothing
            for one in (found, found.grad if found.is_leaf else None):
                if one is not None:
                    storages[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
    return sum(storages.values())


def scratch_nbytes() -> int | None:
    """Its BLAS and oneDNN pack operands in memory of their own, which the allocator does not know."""
    return None
