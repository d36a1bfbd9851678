"""tinygrad: the whole step under TinyJit, on its CPU device, BEAM off.

In:    a workload
Out:   functions of tinygrad tensors (see `bench.runner.Peer`)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

# tinygrad reads these when it is imported. Its CPU device needs clang, also where it renders LLVM IR.
CLANGS = ("clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14")
os.environ["CC"] = next((found for name in CLANGS if (found := shutil.which(name))), "clang")
os.environ.update(DEV="CPU", BEAM="0", TRAINING="1")

from tinygrad.device import Device  # noqa: E402
from tinygrad.engine.jit import TinyJit  # noqa: E402
from tinygrad.helpers import GlobalCounters  # noqa: E402
from tinygrad.nn.optim import SGD  # noqa: E402
from tinygrad.tensor import Tensor  # noqa: E402

from bench.language import Language  # noqa: E402
from bench.peers import tinygrad_language  # noqa: E402
from bench.runner import NOT_COUNTED, Runner  # noqa: E402
from bench.singles import Generation, Overhead  # noqa: E402
from bench.workloads import LAYER_NORM_EPS, Array, Forward, Training, start_embedding, start_weights  # noqa: E402

VARIANTS = ("tinygrad",)


def version() -> str:
    from importlib.metadata import version as installed

    if shutil.which(os.environ["CC"]) is None:
        raise RuntimeError("tinygrad's CPU device needs clang, none is on PATH")
    return installed("tinygrad")


def tensor(array: Array) -> Tensor:
    # .contiguous: a tensor made from an array may alias it until it is copied to the device.
    return Tensor(array).contiguous().realize()


def wait(handle: Tensor) -> None:
    handle.realize()
    Device[Device.DEFAULT].synchronize()  # type: ignore[no-untyped-call]


def numpy(handle: Tensor) -> Array:
    return handle.numpy()


def train(workload: Training | Language, variant: str) -> Callable[[Tensor, Tensor], Tensor]:
    """One step, captured at its second call and replayed from the third."""
    if isinstance(workload, Language):
        return tinygrad_language.make_step(workload)
    layers = [(_param(weight), _param(bias)) for weight, bias in start_weights(workload)]
    table_array = start_embedding(workload)
    table = None if table_array is None else _param(table_array)
    params = [param for layer in layers for param in layer] + ([] if table is None else [table])
    optimizer = SGD(params, lr=workload.learning_rate)

    @TinyJit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = _loss(workload, _network(workload, layers, table, x), y).backward()
        return loss.realize(*optimizer.schedule_step())

    return step


def _param(array: Array) -> Tensor:
    return tensor(array).is_param_()


def _network(workload: Training, layers: list[tuple[Tensor, Tensor]], table: Tensor | None, x: Tensor) -> Tensor:
    if table is not None:
        x = table[x].reshape(workload.batch, -1)
    for number, (weight, bias) in enumerate(layers):
        x = x.linear(weight.T, bias)
        if number < len(layers) - 1:
            x = x.tanh() if workload.activation == "tanh" else x.relu()
    return x


def _loss(workload: Training, out: Tensor, y: Tensor) -> Tensor:
    return (out - y).square().mean() if workload.loss == "mse" else out.sparse_categorical_crossentropy(y)


def forward(workload: Forward | Overhead | Generation, variant: str) -> Callable[..., Any]:
    """One expression, captured and replayed."""
    if isinstance(workload, Generation):
        generator = tinygrad_language.Generator(workload)
        if workload.op == "prefill":
            return generator.prefill
        generator.read_prompt()
        return generator.decode
    function = _FORWARD[workload.op](workload)
    jitted: Callable[..., Tensor] = TinyJit(lambda *operands: function(*operands).realize())
    return jitted


def _matmul(workload: Forward) -> Callable[[Tensor, Tensor], Tensor]:
    return {
        "NN": lambda a, b: a @ b,
        "NT": lambda a, b: a @ b.T,
        "TN": lambda a, b: a.T @ b,
        "TT": lambda a, b: a.T @ b.T,
    }[workload.layout]


def _gelu_scaled(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    inner = x * a + b
    out: Tensor = inner * 0.5 * (1 + (inner * 0.5**0.5).erf()) * c  # tinygrad's gelu is the tanh form
    return out


def _chain(workload: Overhead) -> Callable[..., Tensor]:
    def chain(x: Tensor, *ws: Tensor) -> Tensor:
        for number in range(workload.num_kernels):
            x = x @ ws[number % len(ws)]
        return x

    return chain


_FORWARD: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "matmul": _matmul,
    "gelu_scaled": lambda workload: _gelu_scaled,
    "softmax": lambda workload: lambda x: x.softmax(-1),
    "layer_norm": lambda workload: lambda x, weight, bias: x.layernorm(eps=LAYER_NORM_EPS) * weight + bias,
    "chain": _chain,
    "sum": lambda workload: lambda x, *ws: sum(ws, x),
}


def count(work: Callable[[], None]) -> dict[str, int | None]:
    work()
    return NOT_COUNTED


def tensor_nbytes(runner: Runner) -> int | None:
    """Bytes allocated once the step is captured: its scratch is kept between calls, so this is the peak too."""
    return int(GlobalCounters.mem_used)


def scratch_nbytes() -> int | None:
    """Kernels have none."""
    return None
