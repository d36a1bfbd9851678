"""What bench.gpu measures: products, what memory limits, attention, whole steps of training, and what a launch costs.

In:    nothing
Out:   `Case`; `all_cases`

`m` in each function is picograd or torch, `F` its nn.functional: one text for both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@lru_cache(maxsize=1)
def drawn(shapes: tuple[Shape, ...]) -> list[np.ndarray[Any, Any]]:
    """Returns standard normal float32 arrays, the same at each call; the last ones are kept, for large ones take long."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


@dataclass(frozen=True)
class Case:
    """One kernel, a few, or a step of training.

    work:         bytes that it must move, or FLOPs
    unit:         "B" or "FLOP"
    shapes:       of its operands, standard normal
    compute:      of the framework's module, its nn.functional, and the operands
    dtype:        of the operands
    takes_tf32:   products of float32 may round their operands to TF32, in every framework
    is_pull:      times the gradient too: the last operand is the cotangent, the others are differentiated
    make:         instead of all that, makes a step of training from the framework's module
    is_compiled:  torch.compile makes other kernels of it than PyTorch has
    replays:      it is about launches: torch.compile may replay a CUDA graph of them
    """

    work: float
    unit: str
    shapes: tuple[Shape, ...] = ()
    compute: Callable[..., Any] = lambda *_: None
    dtype: str = "float32"
    takes_tf32: bool = False
    is_pull: bool = False
    make: Callable[[Any], Callable[[], Any]] | None = None
    is_compiled: bool = True
    replays: bool = False

    def operands(self) -> list[np.ndarray[Any, Any]]:
        """Returns float32 arrays, the same at each call. NOTE: nobody may write to them."""
        return drawn(self.shapes)

    def rate(self, seconds: float) -> str:
        """Returns work over time, readable.

        >>> Case(3e9, "B").rate(1e-3)
        '3000.0 GB/s'
        """
        return f"{self.work / seconds / 1e9:.1f} G{self.unit}/s"


def all_cases(small: bool) -> dict[str, Case]:
    """Returns every case by name; `small` ones are for trying the program where there is no GPU."""
    return {
        **_launches(),
        **_steps(small),
        **_bound_by_memory(256 if small else 8192),
        **_attentions(((1, 2, 64, 32),) if small else ((12, 4, 64, 32), (8, 12, 1024, 64), (4, 16, 4096, 128))),
        **_products((64, 128) if small else (512, 1024, 2048, 4096, 8192)),
    }


# ---- what a launch costs ----
def _launches() -> dict[str, Case]:
    """Returns kernels with next to no work, one alone, and a hundred in a row, which are a graph of the driver's."""
    sizes = (32, 32), (32, 32)
    return {
        "launch: one element": Case(8.0, "B", ((1,),), lambda m, F, x: x + 1, replays=True),
        "launch: 100 small products": Case(2.0 * 100 * 32**3, "FLOP", sizes, _chain, replays=True),
    }


def _chain(m: Any, F: Any, x: Any, w: Any) -> Any:
    w = w * 0.17  # so that x stays of one size
    for _ in range(100):
        x = x @ w
    return x


# ---- what memory limits ----
def _bound_by_memory(n: int) -> dict[str, Case]:
    """Returns operations on n x n floats, each with the bytes that it has to move: what it reads and what it writes."""
    whole, row, nbytes = (n, n), (n,), 4.0 * n * n
    forward: dict[str, Callable[..., Any]] = {
        "scale": lambda m, F, x: x * 1.5,
        "gelu(x * a + b) * c": lambda m, F, x: F.gelu(x * 0.5 + 0.25) * 2.0,
        "add": lambda m, F, x, y: x + y,
        "sum of rows": lambda m, F, x: x.sum(1),
        "sum of columns": lambda m, F, x: x.sum(0),
        "sum": lambda m, F, x: x.sum(),
        "transpose": lambda m, F, x: x.T + 0.0,
        "softmax": lambda m, F, x: x.softmax(1),
        "layer norm": lambda m, F, x, w, b: F.layer_norm(x, row, w, b),
        "RMS norm": lambda m, F, x, w: F.rms_norm(x, row, w),
    }
    operands = {"add": (whole, whole), "layer norm": (whole, row, row), "RMS norm": (whole, row)}
    moved = {"add": 3.0, "sum of rows": 1.0, "sum of columns": 1.0, "sum": 1.0}
    cases = {}
    for name, compute in forward.items():
        cases[name] = Case(moved.get(name, 2.0) * nbytes, "B", operands.get(name, (whole,)), compute)
    for name in ("softmax", "layer norm", "RMS norm"):  # reads x and the cotangent, writes a gradient
        shapes = (*operands.get(name, (whole,)), whole)
        cases[f"{name}, gradients"] = Case(3.0 * nbytes, "B", shapes, forward[name], is_pull=True)
    return cases


# ---- products ----
# label -> dtype of the operands, and whether they may be rounded to TF32
PRECISIONS = {"float32": ("float32", False), "tf32": ("float32", True), "float16": ("float16", False),
              "bfloat16": ("bfloat16", False)}  # fmt: skip


def _products(sizes: tuple[int, ...]) -> dict[str, Case]:
    shapes = {f"{n}": (n, n, n) for n in sizes}
    if max(sizes) >= 4096:  # layers of GPT-2, forward
        rows = (4096, 768, 2304), (4096, 768, 3072), (4096, 3072, 768), (1024, 768, 50257)
        shapes |= {f"{m}x{k} @ {k}x{n}": (m, k, n) for m, k, n in rows}
    found = {f"matmul {label} {name}": _product(*shape, label) for name, shape in shapes.items() for label in PRECISIONS}
    n = max(sizes) // 4
    for label in ("float32", "bfloat16"):
        found |= {f"matmul {label} {n} {letters}": _product(n, n, n, label, letters) for letters in ("NT", "TN", "TT")}
    return found


def _product(m: int, k: int, n: int, label: str, letters: str = "NN") -> Case:
    """Returns the product of m x k and k x n; T says that an operand lies transposed."""
    shapes = ((m, k) if letters[0] == "N" else (k, m)), ((k, n) if letters[1] == "N" else (n, k))

    def compute(_: Any, F: Any, a: Any, b: Any) -> Any:
        return (a if letters[0] == "N" else a.T) @ (b if letters[1] == "N" else b.T)

    dtype, takes_tf32 = PRECISIONS[label]
    return Case(2.0 * m * k * n, "FLOP", shapes, compute, dtype, takes_tf32, is_compiled=False)


# ---- attention ----
def _attentions(shapes: tuple[tuple[int, int, int, int], ...]) -> dict[str, Case]:
    found = {}
    for B, H, T, D in shapes:
        for label in ("float32", "tf32", "bfloat16"):
            name, shape, pairs = f"attention {label} {B}x{H}x{T}x{D} causal", (B, H, T, D), B * H * T * T / 2
            found[name] = Case(4.0 * pairs * D, "FLOP", (shape,) * 3, _attend, *PRECISIONS[label], is_compiled=False)
            found[f"{name}, gradients"] = Case(
                14.0 * pairs * D, "FLOP", (shape,) * 4, _attend, *PRECISIONS[label], is_pull=True, is_compiled=False
            )
    return found


def _attend(m: Any, F: Any, q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# ---- whole steps ----
def _steps(small: bool) -> dict[str, Case]:
    """Returns steps of training, each with the operations of its products: six for a weight and an example."""
    gpt, gpt2 = ((2, 2, 32, 16, 2),) * 2 if small else ((6, 6, 384, 256, 64), (12, 12, 768, 1024, 8))
    layers, _, width, length, batch = gpt
    weights = 12 * layers * width**2 + 65 * width
    flops = 6.0 * batch * length * weights
    return {
        "step: MLP 300-300-300-1, batch 100": Case(6.0 * 100 * (2 * 300**2 + 300), "FLOP", make=mlp_step),
        "step: MNIST MLP 784-300-300-10, batch 512": Case(6.0 * 512 * (784 * 300 + 300**2 + 3000), "FLOP", make=mnist_step),
        f"step: GPT {gpt}": Case(flops, "FLOP", make=lambda m: gpt_step(m, *gpt)),
        f"step: GPT {gpt} tf32": Case(flops, "FLOP", takes_tf32=True, make=lambda m: gpt_step(m, *gpt)),
        f"step: GPT {gpt} bfloat16": Case(flops, "FLOP", make=lambda m: gpt_step(m, *gpt, dtype="bfloat16")),
        f"step: GPT-2 {gpt2} bfloat16": _gpt2(gpt2, 503 if small else 50304),
    }


def _gpt2(sizes: tuple[int, int, int, int, int], vocabulary: int) -> Case:
    """Returns a step of GPT-2: with (12, 12, 768, 1024, batch) the network of 124M parameters, its vocabulary padded."""
    layers, _, width, length, batch = sizes
    weights = 12 * layers * width**2 + vocabulary * width
    flops = 6.0 * batch * length * weights
    return Case(flops, "FLOP", make=lambda m: gpt_step(m, *sizes, dtype="bfloat16", vocabulary=vocabulary))


def _training(m: Any, network: Any, loss_of: Callable[[], Any], optimizer: Any) -> Callable[[], Any]:
    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss

    return step


def mlp_step(m: Any) -> Callable[[], Any]:
    """Returns a step of the perceptron of micrograd-cuda, by SGD on the mean square."""
    nn, rng = m.nn, np.random.default_rng(0)
    network = nn.Sequential(nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 1))
    x, y = (m.tensor(rng.standard_normal(shape, dtype=np.float32)) for shape in ((100, 300), (100, 1)))
    optimizer = m.optim.SGD(network.parameters(), 1e-3)
    return _training(m, network, lambda: ((network(x) - y) ** 2).mean(), optimizer)


def mnist_step(m: Any) -> Callable[[], Any]:
    """Returns a step of a perceptron for MNIST, by Adam on the cross-entropy."""
    nn, rng = m.nn, np.random.default_rng(0)
    network = nn.Sequential(nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 10))
    x, y = m.tensor(rng.standard_normal((512, 784), dtype=np.float32)), m.tensor(rng.integers(0, 10, 512))
    optimizer = m.optim.Adam(network.parameters(), 1e-3)
    return _training(m, network, lambda: nn.functional.cross_entropy(network(x), y), optimizer)


def gpt_step(
    m: Any,
    layers: int,
    heads: int,
    width: int,
    length: int,
    batch: int,
    dtype: str | None = None,
    vocabulary: int = 65,
) -> Callable[[], Any]:
    """Returns a step of a GPT, by AdamW on the cross-entropy: nanoGPT's network without dropout.

    Args:
      dtype:       of products under autocast; None: float32
      vocabulary:  number of tokens; 65 are the characters of tiny Shakespeare
    """
    nn, F, rng = m.nn, m.nn.functional, np.random.default_rng(0)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            parts = self.qkv(self.before(x)).reshape(batch, length, 3, heads, width // heads)
            q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.joined(seen.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(F.gelu(self.up(self.after(x))))

    tokens, places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
    blocks, last = nn.Sequential(*[Block() for _ in range(layers)]), nn.LayerNorm(width)
    head = nn.Linear(width, vocabulary)
    network = nn.ModuleList([tokens, places, blocks, last, head])
    text = rng.integers(0, vocabulary, (batch, length + 1))
    x, y, at = m.tensor(text[:, :-1]), m.tensor(text[:, 1:].reshape(-1)), m.arange(length)

    def loss_of() -> Any:
        with m.autocast(x.device.type, getattr(m, dtype or "bfloat16"), enabled=dtype is not None):
            logits = head(last(blocks(tokens(x) + places(at))))
            return F.cross_entropy(logits.reshape(-1, vocabulary), y)

    return _training(m, network, loss_of, m.optim.AdamW(network.parameters(), 1e-3))
