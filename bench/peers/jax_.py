"""JAX: one jitted step, and a lax.scan over the stacked batches in one call.

In:    a workload
Out:   functions of JAX arrays (see `bench.runner.Peer`)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as JaxArray

from bench.language import Language
from bench.peers import jax_language
from bench.runner import NOT_COUNTED, Runner
from bench.singles import Generation, Overhead
from bench.workloads import LAYER_NORM_EPS, Array, Forward, Training, start_embedding, start_weights

VARIANTS = ("jax", "jax_scan", "jax_layers")


def version() -> str:
    return str(jax.__version__)


def tensor(array: Array) -> JaxArray:
    return jnp.array(array)


def wait(handle: JaxArray) -> None:
    handle.block_until_ready()


def numpy(handle: JaxArray) -> Array:
    return np.asarray(handle)


class Step:
    """Keeps the parameters between calls of a pure step; they are donated, so that the update is in place."""

    def __init__(self, params: Any, step: Callable[..., Any]) -> None:
        self.params = params
        self.function = jax.jit(step, donate_argnums=0)

    def __call__(self, x: JaxArray, y: JaxArray) -> JaxArray:
        loss: JaxArray
        self.params, loss = self.function(self.params, x, y)
        return loss

    def lower(self, x: JaxArray, y: JaxArray) -> Any:
        """Returns jax's lowered form of the step on this batch."""
        return self.function.lower(self.params, x, y)


def train(workload: Training | Language, variant: str) -> Step:
    """One step as a pure function of (params, x, y), or a scan of it over the first axis of x and y."""
    if isinstance(workload, Language):
        params, step = jax_language.make_step(workload, variant == "jax_layers")
    else:
        params, step = _make_step(workload)

    def scan(params: Any, xs: JaxArray, ys: JaxArray) -> Any:
        return jax.lax.scan(lambda params, batch: step(params, *batch), params, (xs, ys))

    return Step(params, scan if variant == "jax_scan" else step)


def _make_step(workload: Training) -> tuple[Any, Callable[..., Any]]:
    """The parameters, and one step of SGD."""
    params = {"layers": start_weights(workload), "table": start_embedding(workload)}

    def loss_of(params: Any, x: JaxArray, y: JaxArray) -> JaxArray:
        return _loss(workload, _network(workload, params, x), y)

    def step(params: Any, x: JaxArray, y: JaxArray) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        return jax.tree.map(lambda param, grad: param - workload.learning_rate * grad, params, grads), loss

    return jax.tree.map(jnp.array, params), step


def _network(workload: Training, params: Any, x: JaxArray) -> JaxArray:
    if params["table"] is not None:
        x = params["table"][x].reshape(workload.batch, -1)
    layers = params["layers"]
    for number, (weight, bias) in enumerate(layers):
        x = x @ weight.T + bias
        if number < len(layers) - 1:
            x = jnp.tanh(x) if workload.activation == "tanh" else jax.nn.relu(x)
    return x


def _loss(workload: Training, out: JaxArray, y: JaxArray) -> JaxArray:
    if workload.loss == "mse":
        return jnp.mean((out - y) ** 2)
    return -jnp.take_along_axis(jax.nn.log_softmax(out), y[:, None], axis=1).mean()


def forward(workload: Forward | Overhead | Generation, variant: str) -> Callable[..., Any]:
    """One jitted expression, or a map of it over the first axis of its first operand."""
    if isinstance(workload, Generation):
        generator = jax_language.Generator(workload)
        if workload.op == "prefill":
            return generator.prefill
        generator.read_prompt()
        return generator.decode_in_one if variant == "jax_scan" else generator.decode
    function = _FORWARD[workload.op](workload)
    if variant == "jax_scan":
        return jax.jit(lambda xs, *ws: jax.lax.map(lambda x: function(x, *ws), xs))
    jitted: Callable[..., JaxArray] = jax.jit(function)
    return jitted


def _matmul(workload: Forward) -> Callable[[JaxArray, JaxArray], JaxArray]:
    return {
        "NN": lambda a, b: a @ b,
        "NT": lambda a, b: a @ b.T,
        "TN": lambda a, b: a.T @ b,
        "TT": lambda a, b: a.T @ b.T,
    }[workload.layout]


def _chain(workload: Overhead) -> Callable[..., JaxArray]:
    def chain(x: JaxArray, *ws: JaxArray) -> JaxArray:
        for number in range(workload.num_kernels):
            x = x @ ws[number % len(ws)]
        return x

    return chain


def _layer_norm(workload: Forward) -> Callable[..., JaxArray]:
    def layer_norm(x: JaxArray, weight: JaxArray, bias: JaxArray) -> JaxArray:
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + LAYER_NORM_EPS) * weight + bias

    return layer_norm


_FORWARD: dict[str, Callable[[Any], Callable[..., JaxArray]]] = {
    "matmul": _matmul,
    "gelu_scaled": lambda workload: lambda x, a, b, c: jax.nn.gelu(x * a + b, approximate=False) * c,
    "softmax": lambda workload: lambda x: jax.nn.softmax(x, -1),
    "layer_norm": _layer_norm,
    "chain": _chain,
    "sum": lambda workload: lambda x, *ws: sum(ws, x),
}


def count(work: Callable[[], None]) -> dict[str, int | None]:
    work()
    return NOT_COUNTED


def tensor_nbytes(runner: Runner) -> int | None:
    """Arrays alive, plus what XLA says the compiled step adds to them: results not donated, and scratch."""
    arguments = runner.batches[0] if hasattr(runner, "batches") else runner.operands[0]  # type: ignore[attr-defined]
    stats = runner.function.lower(*arguments).compile().memory_analysis()  # type: ignore[attr-defined]
    if stats is None:
        return None
    added = stats.output_size_in_bytes - stats.alias_size_in_bytes + stats.temp_size_in_bytes
    return int(
        sum(array.nbytes for array in jax.live_arrays())  # type: ignore[no-untyped-call]
        + added
    )


def scratch_nbytes() -> int | None:
    """XLA's analysis does not tell it from temporaries: it is in `tensor_nbytes`, but for what Eigen and oneDNN take."""
    return None
