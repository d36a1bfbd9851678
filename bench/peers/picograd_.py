"""picograd: the whole step under `pg.jit`, un-jitted, and as a loop over stacked batches.

In:    a workload
Out:   functions of picograd tensors (see `bench.runner.Peer`)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import picograd as pg
from bench.language import Language
from bench.peers import picograd_language
from bench.runner import Runner
from bench.singles import Generation, Overhead
from bench.workloads import LAYER_NORM_EPS, Array, Forward, Training, start_embedding, start_weights
from picograd.look import watch

VARIANTS = ("picograd", "picograd_eager", "picograd_loop", "picograd_layers")
F = pg.nn.functional
Step = Callable[[Any, Any], Any]


def version() -> str:
    return str(getattr(pg, "__version__", "unknown"))


def tensor(array: Array) -> Any:
    return pg.Tensor(array)


def wait(handle: Any) -> None:
    handle.realize()


def numpy(handle: Any) -> Array:
    return np.asarray(handle.detach().numpy())


def tensor_nbytes(runner: Runner) -> int | None:
    """The most bytes of tensors, temporaries of plans included, held at one time during a step; data and network count."""
    pg.reset_peak_memory_stats()
    runner.step(runner.granularity)
    return pg.max_memory_allocated()


def scratch_nbytes() -> int | None:
    """What the peak is higher with packed operands and the like."""
    return pg.max_memory_allocated(scratch=True) - pg.max_memory_allocated()


def count(work: Callable[[], None]) -> dict[str, int | None]:
    with watch() as counts:
        work()
    return {"kernels": counts.kernels, "binaries": counts.compiled + counts.disk_hits}


def train(workload: Training | Language, variant: str) -> Step:
    """One step: forward, backward and update, in one plan under jit; or one for each of the stacked batches."""
    if isinstance(workload, Language):
        step = picograd_language.make_step(workload, variant == "picograd_layers")
    else:
        step = _make_step(workload)
    return _compiled(step, variant, workload.num_batches)


def _compiled(function: Callable[..., Any], variant: str, num_steps: int) -> Callable[..., Any]:
    if variant == "picograd_eager":
        return function
    compiled: Callable[..., Any] = pg.jit(function, steps=num_steps) if variant == "picograd_loop" else pg.jit(function)
    return compiled


def _make_step(workload: Training) -> Step:
    """One step of SGD."""
    layers = [tuple(pg.Tensor(a, requires_grad=True) for a in layer) for layer in start_weights(workload)]
    table_array = start_embedding(workload)
    table = None if table_array is None else pg.Tensor(table_array, requires_grad=True)
    params = [param for layer in layers for param in layer] + ([] if table is None else [table])
    optimizer = pg.optim.SGD(params, lr=workload.learning_rate)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = _loss(workload, _network(workload, layers, table, x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _network(workload: Training, layers: list[tuple[Any, ...]], table: Any, x: Any) -> Any:
    if table is not None:
        x = table[x].reshape(workload.batch, -1)
    for number, (weight, bias) in enumerate(layers):
        x = x @ weight.T + bias
        if number < len(layers) - 1:
            x = x.tanh() if workload.activation == "tanh" else x.relu()
    return x


def _loss(workload: Training, out: Any, y: Any) -> Any:
    return ((out - y) ** 2).mean() if workload.loss == "mse" else F.cross_entropy(out, y)


def forward(workload: Forward | Overhead | Generation, variant: str) -> Callable[..., Any]:
    """One expression; un-jitted it is built and realized at each call."""
    if isinstance(workload, Generation):
        generator = picograd_language.Generator(workload, variant != "picograd_eager")
        if workload.op == "prefill":
            return generator.prefill
        generator.read_prompt()
        return generator.decode
    function = _FORWARD[workload.op](workload)
    if variant == "picograd_loop":
        return _mapped(function, workload.num_operands)
    return _compiled(function, variant, 1)


def _mapped(function: Callable[..., Any], num_steps: int) -> Callable[..., Any]:
    """The function of each row of the first operand, in one call; the other operands, kept, are the same in all."""
    made: list[Callable[..., Any]] = []

    def loop(xs: Any, *ws: Any) -> Any:
        if not made:
            made.append(pg.jit(lambda x: function(x, *ws), steps=num_steps))
        return made[0](xs)

    return loop


def _chain(workload: Overhead) -> Callable[..., Any]:
    def chain(x: Any, *ws: Any) -> Any:
        for number in range(workload.num_kernels):
            x = x @ ws[number % len(ws)]
        return x

    return chain


def _matmul(workload: Forward) -> Callable[[Any, Any], Any]:
    return {
        "NN": lambda a, b: a @ b,
        "NT": lambda a, b: a @ b.T,
        "TN": lambda a, b: a.T @ b,
        "TT": lambda a, b: a.T @ b.T,
    }[workload.layout]


def _layer_norm(workload: Forward) -> Callable[..., Any]:
    width = workload.shape[1]
    return lambda x, weight, bias: F.layer_norm(x, (width,), weight, bias, eps=LAYER_NORM_EPS)


_FORWARD: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "matmul": _matmul,
    "gelu_scaled": lambda workload: lambda x, a, b, c: F.gelu(x * a + b) * c,
    "softmax": lambda workload: lambda x: x.softmax(-1),
    "layer_norm": _layer_norm,
    "chain": _chain,
    "sum": lambda workload: lambda x, *ws: sum(ws, x),
}
