"""Kernels of some thirty programs become machine code for three generations of GPUs, by both roads, and keep to registers.

No GPU and no driver is needed: a device that never runs is given a GPU's target, so whole programs come as far as code.
What products and attention need of registers and shared memory stands in tests/golden/compilers/gpu_resources.txt;
`python -m tests.compilers.test_generations` writes it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

import picograd as pg
import picograd.nn.functional as F
from picograd import Tensor, nn
from picograd.device import Target
from picograd.devices.compile_llvm import assembly
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda.compile import ResourceUsage
from picograd.devices.ptx import compile as nvptx
from picograd.ir.stages import Source
from picograd.record import replace
from picograd.tensor.core import realize
from tests.null_gpu import null_gpu
from tests.on_devices import tf32
from tests.ptx_assembler import assemble, is_there

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "compilers" / "gpu_resources.txt"
SHARED = {8: 163 * 1024, 9: 227 * 1024, 10: 227 * 1024}  # of a block: CUDA C++ Programming Guide, compute capabilities
CUDA = {
    arch: Target(
        "CUDA", "cuda", arch, vector_bytes=16, block_threads=256, shared_bytes=shared, has_mma=True, has_async_copies=True
    )
    for arch, shared in zip(("sm_80", "sm_90a", "sm_100a"), SHARED.values(), strict=True)
}
PTX = {f"sm_{major}0": nvptx.gpu_target(major, 0, shared) for major, shared in SHARED.items()}

# Older than these: no matrix instructions, no copies in the background, other instructions for a maximum.
TURING = Target("CUDA", "cuda", "sm_75", vector_bytes=16, block_threads=256, shared_bytes=64 * 1024)


def leaf(*shape: int, dtype: pg.DType = pg.float32) -> Tensor:
    """Returns a tensor in memory that asks for its gradient."""
    return Tensor(np.zeros(shape, np.float32)).to(dtype).realize().requires_grad_()


def indices(count: int) -> Tensor:
    return Tensor(np.zeros(count, np.int64))


def compute(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Computes a function and the gradients of its inputs, in one plan."""
    with_gradient = [one for one in inputs if one.requires_grad]
    out = function(*inputs)
    grads = pg.autograd.grad((out * out).sum(), with_gradient)
    realize([out, *grads])


def train() -> None:
    """Two steps of a perceptron under Adam, clipped."""
    weights = [leaf(64, 48), leaf(48), leaf(48, 10)]
    optimizer = pg.optim.Adam(weights, lr=1e-3, weight_decay=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        hidden = (leaf(32, 64).detach() @ weights[0] + weights[1]).relu()
        F.cross_entropy(hidden @ weights[2], indices(32)).backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()


def draw() -> None:
    """Random numbers. NOTE: of a Generator that this test owns; the default one would remember the device."""
    own = pg.Generator(1)
    realize([pg.randn(1000, 10, generator=own), pg.rand(999, generator=own) < 0.1, pg.randperm(300, generator=own)])


def attend(is_causal: bool, *shape: int, dtype: pg.DType = pg.float32) -> None:
    inputs = [leaf(*shape, dtype=dtype) for _ in range(3)]
    compute(partial(F.scaled_dot_product_attention, is_causal=is_causal), *inputs)


def attend_turned(*shape: int, dtype: pg.DType) -> None:
    """Attention of queries and keys that are turned by their positions, cast on their way."""
    q, k, v = (leaf(*shape) for _ in range(3))
    angles = leaf(shape[-2], shape[-1]).detach()

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        turned = [x * angles.cos() + x.roll(shape[-1] // 2, -1) * angles.sin() for x in (q, k)]
        return F.scaled_dot_product_attention(*(x.to(dtype) for x in (*turned, v)))

    compute(function, q, k, v)


def decode(
    queries: tuple[int, ...], keys: tuple[int, ...], dtype: pg.DType, mask: tuple[tuple[int, ...], pg.DType] | None = None
) -> None:
    """Attention of few queries over a number of keys that is known when it runs, with a mask of a shape and dtype."""
    q, k = leaf(*queries, dtype=dtype).detach(), leaf(*keys, dtype=dtype).detach()
    length = pg.Variable("length", 1, keys[2]).bind(5)
    k = k[:, :, :length]
    mask_S = Tensor.zeros(*mask[0], dtype=mask[1]).realize()[..., :length] if mask is not None else None
    realize([F.scaled_dot_product_attention(q, k, k, mask_S, enable_gqa=True)])


def attend_many(queries: tuple[int, ...], keys: tuple[int, ...], dtype: pg.DType) -> None:
    """Attention to many times as many keys as there are queries, and its gradients."""
    attend_them = partial(F.scaled_dot_product_attention, enable_gqa=True)
    compute(attend_them, leaf(*queries, dtype=dtype), *(leaf(*keys, dtype=dtype) for _ in range(2)))


def in_tf32(program: Callable[[], object]) -> None:
    with tf32():
        program()


HALF, BRAIN = pg.float16, pg.bfloat16
PROGRAMS: dict[str, Callable[[], object]] = {
    "elementwise": lambda: compute(lambda x, b: (x.exp() + b).tanh() * x.sigmoid(), leaf(1000, 70), leaf(70)),
    "transposed": lambda: compute(lambda x, y: x.T.contiguous() + y, leaf(700, 900), leaf(900, 700)),
    "channels last": lambda: compute(lambda x: x.permute(0, 2, 3, 1).contiguous(), leaf(8, 64, 20, 20, dtype=HALF)),
    "narrow floats": lambda: compute(lambda x, y: (x + 1).float() * y, leaf(999, dtype=HALF), leaf(999, dtype=BRAIN)),
    "softmax": lambda: compute(lambda x: x.softmax(-1), leaf(300, 1000)),
    "softmax of long rows": lambda: compute(lambda x: x.log_softmax(-1), leaf(20, 50257)),
    "layer norm": lambda: compute(lambda x, w, b: F.layer_norm(x, (768,), w, b), leaf(256, 768), leaf(768), leaf(768)),
    "batch norm": lambda: compute(nn.BatchNorm2d(16), leaf(8, 16, 14, 14)),
    "sums": lambda: compute(lambda x: x.sum(0) + x.amax(1).mean(), leaf(64, 4096)),
    "matmul": lambda: compute(pg.matmul, leaf(1024, 512), leaf(512, 768)),
    "matmul of bfloat16": lambda: compute(pg.matmul, leaf(256, 256, dtype=BRAIN), leaf(256, 256, dtype=BRAIN)),
    "large matmul": lambda: realize([leaf(4096, 512).detach() @ leaf(512, 4096).detach()]),
    "large matmul of float16": lambda: realize([leaf(4096, 512, dtype=HALF).detach() @ leaf(512, 4096, dtype=HALF)]),
    "large matmul of TF32": lambda: in_tf32(lambda: realize([leaf(4096, 512).detach() @ leaf(512, 4096)])),
    "turned matmul of TF32": lambda: in_tf32(lambda: compute(F.linear, leaf(1024, 512), leaf(768, 512))),
    "convolution of TF32": lambda: in_tf32(
        lambda: compute(partial(F.conv2d, padding=1), leaf(8, 32, 20, 20), leaf(64, 32, 3, 3))
    ),
    "attention of TF32": lambda: in_tf32(lambda: attend(True, 8, 16, 512, 64)),
    "linear": lambda: compute(lambda x, w, b: F.gelu(F.linear(x, w, b)), leaf(37, 100), leaf(50, 100), leaf(50)),
    "few rows": lambda: compute(pg.matmul, leaf(1, 512), leaf(512, 300)),
    "convolution": lambda: compute(partial(F.conv2d, stride=2, padding=1), leaf(4, 8, 20, 20), leaf(16, 8, 3, 3), leaf(16)),
    "convolution of float16": lambda: compute(
        partial(F.conv2d, padding=1), leaf(8, 32, 20, 20, dtype=HALF), leaf(64, 32, 3, 3, dtype=HALF)
    ),
    "attention": lambda: attend(False, 2, 4, 128, 64),
    "causal attention": lambda: attend(True, 2, 4, 128, 64),
    "attention of 128 features": lambda: attend(False, 8, 16, 512, 128),
    "causal attention of float16": lambda: attend(True, 8, 16, 512, 64, dtype=HALF),
    "causal attention of bfloat16, short": lambda: attend(True, 1, 3, 60, 48, dtype=BRAIN),
    "attention of bfloat16, 128 features": lambda: attend(False, 8, 16, 512, 128, dtype=BRAIN),
    "attention of turned heads": lambda: attend_turned(8, 16, 512, 64, dtype=pg.float32),
    "attention of turned heads, bfloat16": lambda: attend_turned(8, 16, 512, 128, dtype=BRAIN),
    "decoding, float16": lambda: decode((1, 32, 1, 128), (1, 8, 4096, 128), HALF),
    "decoding, float32": lambda: decode((2, 8, 7, 64), (2, 8, 1000, 64), pg.float32),
    "decoding, float16, masked": lambda: decode((4, 32, 1, 128), (4, 8, 4096, 128), HALF, ((4, 1, 1, 4096), pg.bool_)),
    "decoding, bfloat16, biased": lambda: decode((2, 8, 7, 64), (2, 2, 1000, 64), BRAIN, ((2, 8, 7, 1000), BRAIN)),
    "attention to many keys, float16": lambda: attend_many((1, 8, 16, 64), (1, 8, 4096, 64), HALF),
    "attention to many keys, bfloat16": lambda: attend_many((1, 32, 4, 128), (1, 1, 2048, 128), BRAIN),
    "attention to many keys, float32": lambda: attend_many((1, 8, 20, 128), (1, 4, 2048, 128), pg.float32),
    "gather": lambda: compute(lambda x: x[indices(100)], leaf(50, 32)),
    "scatter": lambda: compute(lambda x, y: x.index_add(0, indices(9), y), leaf(50, 32), leaf(9, 32)),
    "embedding": lambda: compute(lambda x: F.embedding(indices(8192), x), leaf(50257, 768)),
    "bins": lambda: realize([leaf(10).index_add(0, indices(100000), leaf(100000, dtype=HALF).float())]),
    "stored rows": lambda: compute(lambda x, y: x.index_copy(0, indices(60), y), leaf(90, 30), leaf(60, 30)),
    "sort": lambda: compute(lambda x: x.sort(1)[0], leaf(40, 300)),
    "cumsum": lambda: compute(lambda x: x.cumsum(1) + x.cumsum(0), leaf(40, 300)),
    "random": draw,
    "training": train,
}
VARIES = 16  # registers of one kernel from compilation to compilation
RECORDED = ("matmul", "conv", "attention")  # beginnings of kernels' names


def sources_of(program: str, target: Target) -> list[Source]:
    """Returns the text of every kernel of a program."""
    with null_gpu(target) as (_, made):
        PROGRAMS[program]()
    assert made, "this process has the plan of that program already"
    return made


def usages_of(program: str, arch: str) -> list[tuple[str, ResourceUsage]]:
    """Returns what each kernel function of a program in CUDA C needs, shared memory that launches ask for included."""
    usages = []
    for source in sources_of(program, CUDA[arch]):
        usage_of = nvrtc.resource_usage(source, CUDA[arch])
        for launch in source.launches:
            usage = usage_of[launch.symbol]
            usages.append((launch.symbol, replace(usage, shared_nbytes=usage.shared_nbytes + launch.shared_nbytes)))
    return usages


def line_of(program: str, arch: str, usages: list[tuple[str, ResourceUsage]]) -> str:
    """Returns what products, convolutions and attention need: registers of a thread, and bytes that a block shares."""
    parts = [f"{s} {u.registers} {u.shared_nbytes}" for s, u in usages if s.startswith(RECORDED)]
    return f"{program}, {arch}: {', '.join(dict.fromkeys(parts))}"


def spilled(usages: Iterable[tuple[str, ResourceUsage]]) -> set[str]:
    """Returns the kernel functions that keep something in local memory."""
    return {symbol for symbol, usage in usages if usage.spill_nbytes or usage.stack_nbytes}


def golden() -> tuple[str, list[str]]:
    """Returns the version of NVRTC that the golden lines are of, and the lines."""
    version, *lines = GOLDEN.read_text().splitlines()
    return version, lines


def version() -> str:
    return "nvrtc {}.{}".format(*nvrtc.version())


def is_like(line: str, known: str) -> bool:
    """True for the same kernels and shared memory, and about as many registers: ptxas gave one text 84 and 92 of them."""
    program, _, kernels = line.partition(": ")
    before, _, known_kernels = known.partition(": ")
    pairs = list(zip_longest(*(text.split(", ") for text in (kernels, known_kernels)), fillvalue="none 0 0"))
    parts = [(one.split(), other.split()) for one, other in pairs]
    return program == before and all(
        (symbol, nbytes) == (known_symbol, known_nbytes) and abs(int(registers) - int(known_registers)) <= VARIES
        for (symbol, registers, nbytes), (known_symbol, known_registers, known_nbytes) in parts
    )


@pytest.mark.variants(every=45)
@pytest.mark.parametrize("arch", CUDA)
@pytest.mark.parametrize("program", PROGRAMS)
def test_cuda_c_compiles_and_keeps_to_registers(program: str, arch: str) -> None:
    usages = usages_of(program, arch)
    assert not spilled(usages)
    known_version, known = golden()
    line = line_of(program, arch, usages)
    if known_version == version() and not line.endswith(": "):  # another assembler counts otherwise
        assert any(is_like(line, other) for other in known), "if this is meant: python -m tests.compilers.test_generations"


@pytest.mark.variants(every=47)
@pytest.mark.parametrize("arch", PTX)
@pytest.mark.parametrize("program", PROGRAMS)
def test_ptx_assembles_and_keeps_to_registers(program: str, arch: str) -> None:
    for source in sources_of(program, PTX[arch]):
        text = assembly(source, PTX[arch])
        assert ".local" not in text and ".extern .func" not in text
        assert not is_there() or not spilled(assemble(text, arch).items())


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("program", ["narrow floats", "softmax", "matmul of bfloat16", "causal attention", "sort"])
def test_older_gpus_have_code_too(program: str) -> None:
    for source in sources_of(program, TURING):
        assert nvrtc.resource_usage(source, TURING)
    target = nvptx.gpu_target(7, 5, TURING.shared_bytes)
    for source in sources_of(program, target):
        text = assembly(source, target)
        assert ".target sm_75" in text and (not is_there() or assemble(text, "sm_75"))


if __name__ == "__main__":
    lines = [line_of(program, arch, usages_of(program, arch)) for program in PROGRAMS for arch in CUDA]
    GOLDEN.write_text("\n".join([version(), *[line for line in lines if not line.endswith(": ")], ""]))
