"""The same emitters for other processors: their vectors and multiply-adds are in the code, which is compiled.

What a processor of another family would run is looked at; what this one can run, it runs.
"""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import picograd as pg
from picograd.device import Target
from picograd.devices.compile_llvm import GENERATIONS, assembly, compile_source, host_target, processor_target
from picograd.devices.cpu.device import CPUDevice
from picograd.devices.cpu.render import render
from picograd.devices.cpu.walker import walker_source
from picograd.engine.compiler import Backend, Compiler
from picograd.engine.plan import parametrize, template
from picograd.ir.op import Buffer
from picograd.ir.spec import verify_program
from picograd.ir.stages import Schedule
from picograd.ir.symbolic import dim_value
from picograd.nn.functional import conv2d, scaled_dot_product_attention
from picograd.road import finish, lower, schedule_graphs
from picograd_lab.ladder.product import product_for
from picograd_lab.ladder.rungs import RUNGS

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
AVX512, AVX2, SSE = (processor_target(X86, *GENERATIONS[name]) for name in ("avx512", "avx2", "sse"))
NEON = processor_target(ARM, "neoverse-n1", "+neon,+fp-armv8")
PROCESSORS = {"avx512": AVX512, "avx2": AVX2, "sse": SSE, "neon": NEON}
# What arithmetic on vectors of float32 looks like: a whole vector of each processor.
VECTORS = {"avx512": r"%zmm\d+", "avx2": r"%ymm\d+", "sse": r"%xmm\d+", "neon": r"v\d+\.4s"}
MULTIPLY_ADD = {"avx512": "vfmadd", "avx2": "vfmadd", "neon": "fmla"}
CONTRACTIONS = ["matmul", "matmul of bfloat16", "convolution", "attention", "attention gradient"]
# Of the C library, in every process, and exact in each of them: the remainder of a division.
IN_EVERY_PROCESS = {"fmod", "fmodf"}


def zeros(*shape: int, dtype: pg.DType = pg.float32) -> pg.Tensor:
    return pg.Tensor.zeros(*shape, dtype=dtype).realize()


def attention_gradient() -> pg.Tensor:
    q, k, v = (zeros(1, 2, 40, 20).requires_grad_() for _ in range(3))
    scaled_dot_product_attention(q, k, v, is_causal=True).backward(zeros(1, 2, 40, 20))
    assert k.grad is not None
    return k.grad


KERNELS: dict[str, Callable[[], pg.Tensor]] = {
    "matmul": lambda: zeros(100, 64) @ zeros(64, 128),
    "matmul of bfloat16": lambda: zeros(100, 64, dtype=pg.bfloat16) @ zeros(64, 128, dtype=pg.bfloat16),
    "convolution": lambda: conv2d(zeros(2, 3, 20, 20), zeros(8, 3, 3, 3)),
    "attention": lambda: scaled_dot_product_attention(*[zeros(1, 2, 40, 20)] * 3, is_causal=True),
    "attention gradient": attention_gradient,
    "softmax": lambda: zeros(100, 300).softmax(-1),
    "exp": lambda: zeros(100, 300).exp(),
    "sin": lambda: zeros(100, 300).sin(),
    "power": lambda: zeros(100, 300) ** zeros(100, 300),
    "from float16": lambda: zeros(1000, dtype=pg.float16).float() * 2,
    "to float16": lambda: (zeros(1000) * 2).half(),
    "from bfloat16": lambda: zeros(1000, dtype=pg.bfloat16).float() * 2,
    "to bfloat16": lambda: (zeros(1000) * 2).bfloat16(),
    "floor": lambda: zeros(1000).floor(),
    "four bits": lambda: zeros(1, 256) @ ((zeros(64, 256, dtype=pg.uint8) & 15).float() - 8).T,
    "remainder": lambda: zeros(1000) % zeros(1000),
    "sort": lambda: zeros(1000).sort()[0],
    "random": lambda: pg.randn(1000),
}


@cache
def schedule(kernel: str) -> Schedule:
    root = KERNELS[kernel]().op
    return schedule_graphs(parametrize([root], template([root])))


@cache
def code(kernel: str, processor: str) -> str:
    """Returns the assembly text of a kernel, or a rung of the ladder, for a processor."""
    target = PROCESSORS[processor]
    if kernel in RUNGS:
        emit = RUNGS[kernel].emit
        assert emit is not None
        programs = [finish(emit(product_for(96, 96, 96, target)), target)]
    else:
        programs = [lower(item.kernel, target) for item in schedule(kernel).kernel_items()]
    for program in programs:
        verify_program(program, after="lower")
    return "\n".join(assembly(render(program, target), target) for program in programs)


def instructions(text: str) -> Counter[str]:
    """Returns how often each instruction stands in an assembly text."""
    return Counter(line.split()[0] for line in text.splitlines() if re.match(r"\t[a-z]", line))


def whole_vectors(text: str, processor: str, instruction: str) -> int:
    """Returns how often an instruction, by the start of its name, works on whole vectors."""
    lines = [line for line in text.splitlines() if line.startswith(f"\t{instruction}")]
    return sum(re.search(VECTORS[processor], line) is not None for line in lines)


def called(text: str) -> set[str]:
    """Returns the functions that a text calls; not those of its own, nor the jumps to its labels."""
    found = re.findall(r"^\t(?:callq?|bl|jmp|b)\t([\w.@]+)", text, re.MULTILINE)
    own = re.findall(r"^([\w.]+):", text, re.MULTILINE)
    return {name.partition("@")[0] for name in found if not name.startswith(".")} - {*own}


# ---- what a target is ----
def test_widths_and_registers_come_from_features() -> None:
    known = {name: (t.vector_bytes, t.num_registers, t.has_fma) for name, t in PROCESSORS.items()}
    assert known == {"avx512": (64, 32, True), "avx2": (32, 16, True), "sse": (16, 16, False), "neon": (16, 32, True)}
    old = processor_target(X86, "ivybridge", "+avx,+f16c")
    assert (old.vector_bytes, old.has_fma) == (16, False), "integers have no longer vectors before AVX2"


def test_the_host_is_one_of_them() -> None:
    host = host_target()
    assert host == processor_target(host.triple, host.arch, host.features)
    assert host.triple.split("-")[0] in ("x86_64", "aarch64", "arm64")


# ---- every kernel ----
@pytest.mark.variants
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_calls_nothing_that_could_be_missing(kernel: str, processor: str) -> None:
    assert called(code(kernel, processor)) <= IN_EVERY_PROCESS


@pytest.mark.parametrize("processor", MULTIPLY_ADD)
@pytest.mark.parametrize("kernel", [*CONTRACTIONS, "softmax", "exp", "power"])
def test_vectors_are_multiplied_and_added_by_one_instruction(kernel: str, processor: str) -> None:
    vector = VECTORS[processor] if kernel != "power" else VECTORS[processor].replace(".4s", ".2d")  # in float64
    lines = [line for line in code(kernel, processor).splitlines() if line.startswith(f"\t{MULTIPLY_ADD[processor]}")]
    assert sum(re.search(vector, line) is not None for line in lines) >= 5


@pytest.mark.parametrize("kernel", ["matmul", "matmul of bfloat16", "convolution", "registers", "packed"])
def test_without_the_instruction_vectors_are_multiplied_then_added(kernel: str) -> None:
    text = code(kernel, "sse")
    assert whole_vectors(text, "sse", "mulps") >= 10 and whole_vectors(text, "sse", "addps") >= 10  # a tile of 5 x 2
    assert not re.search("%[yz]mm", text) and not any("fmadd" in name for name in instructions(text))
    assert "cvtps2pd" not in text, "a sum of products is no function: two roundings do"


@pytest.mark.parametrize(("processor", "converts"), [("avx512", False), ("avx2", True), ("sse", True), ("neon", True)])
def test_four_bits_are_looked_up_where_lanes_can_be_chosen_by_a_vector(processor: str, converts: bool) -> None:
    text = code("four bits", processor)
    convert = re.findall(r"^	(?:v?cvtdq2ps|[su]cvtf)\b", text, re.MULTILINE)
    look_up = re.findall(r"^	vperm(?:d|ps)\t.*zmm.*zmm.*zmm", text, re.MULTILINE)
    assert (len(convert) >= 8, len(look_up) >= 16) == (converts, not converts)


@pytest.mark.parametrize(("processor", "tile"), [("avx512", 24), ("avx2", 12), ("neon", 24)])
@pytest.mark.parametrize("rung", ["registers", "packed"])
def test_a_register_tile_fills_the_registers_and_no_more(rung: str, processor: str, tile: int) -> None:
    text = code(rung, processor)
    assert whole_vectors(text, processor, MULTIPLY_ADD[processor]) == tile
    stack = re.findall(r"\(%rsp\)|\[sp", "".join(line for line in text.splitlines() if re.search(VECTORS[processor], line)))
    assert not stack, "a sum left the registers"


# ---- what runs here ----
@cache
def compiler_of(target: Target) -> Compiler:
    device = CPUDevice(target, lambda: compile_source(walker_source(target.triple), target))
    return Compiler(device, Backend(render, compile_source))


def results(kernel: str, target: Target) -> list[np.ndarray]:
    """Returns what the code for a processor computes, on this one: for random inputs, the same each time."""
    device = compiler_of(target).device
    executables = compiler_of(target).executables([item.kernel for item in schedule(kernel).kernel_items()])
    rng = np.random.default_rng(0)
    buffers: dict[str, list[Buffer]] = {"input": [], "output": []}
    uses = sorted(schedule(kernel).buffers, key=lambda use: use.source)
    for use in uses:
        if use.role in buffers and len(buffers[use.role]) == use.source:
            array = rng.uniform(0.1, 2, dim_value(use.numel, {})).astype(use.dtype.numpy)
            held = device.allocate(array.nbytes)
            device.copy_in(held, array)
            buffers[use.role].append(Buffer("CPU", use.dtype, array.size, held))
    device.make_runner(schedule(kernel), executables)(buffers["input"], buffers["output"], {})
    found = [np.empty(dim_value(out.numel, {}), out.dtype.numpy) for out in buffers["output"]]
    for out, array in zip(buffers["output"], found):
        device.copy_out(out.memory, array)
    return found


@pytest.mark.variants
@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="runs code for x86-64")
@pytest.mark.parametrize("processor", ["sse", "avx2"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_code_for_older_processors_computes_the_same(kernel: str, processor: str) -> None:
    target = PROCESSORS[processor]
    if target.vector_bytes > host_target().vector_bytes:
        pytest.skip("this processor has no such vectors")
    for found, expected in zip(results(kernel, target), results(kernel, host_target()), strict=True):
        wide = [x.astype(np.float64) for x in (found, expected)]
        # Sums of up to 64 products below 4 that are cut or rounded otherwise; a bfloat16 may fall on the other side.
        tolerance = 2.0**-7 if "bfloat16" in kernel else 2.0**-10 if "float16" in kernel else 64 * 2.0**-24
        np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance)


# ---- narrow floats ----
CONVERSIONS = {
    ("from float16", "avx512"): "vcvtph2ps", ("to float16", "avx512"): "vcvtps2ph",
    ("from float16", "avx2"): "vcvtph2ps", ("to float16", "avx2"): "vcvtps2ph",
    ("from float16", "neon"): "fcvtl", ("to float16", "neon"): "fcvtn",
}  # fmt: skip


@pytest.mark.parametrize(("kernel", "processor"), CONVERSIONS)
def test_float16_is_converted_by_its_instruction(kernel: str, processor: str) -> None:
    assert whole_vectors(code(kernel, processor), processor, CONVERSIONS[kernel, processor]) >= 1


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("kernel", ["from float16", "to float16", "from bfloat16", "to bfloat16"])
def test_narrow_floats_are_converted_a_vector_at_a_time(kernel: str, processor: str) -> None:
    text = code(kernel, processor)
    multiply = "fmul" if processor == "neon" else "mulps" if processor == "sse" else "vmulps"
    adds_itself = "fadd" if processor == "neon" else "addps" if processor == "sse" else "vaddps"
    assert whole_vectors(text, processor, multiply) + whole_vectors(text, processor, adds_itself) >= 1
    converts = any(name in text for name in ("vcvt", "fcvtl", "fcvtn"))
    assert converts == ((kernel, processor) in CONVERSIONS), "otherwise by integers"


# ---- what runs plans ----
@pytest.mark.parametrize(("target", "pause"), [(SSE, "pause"), (NEON, "yield")], ids=["x86-64", "AArch64"])
def test_the_walker_of_plans_compiles_and_says_that_it_waits(target: Target, pause: str) -> None:
    source = walker_source(target.triple)
    assert compile_source(source, target).data
    assert re.search(rf"^\t(rep\s+)?({pause}|hint\s+#1|rep)\b", assembly(source, target), re.MULTILINE)


def test_object_files_are_of_the_targets_machine() -> None:
    source = render(finish(RUNGS["naive"].emit(product_for(4, 4, 4, NEON)), NEON), NEON)  # type: ignore[misc]
    machines = {name: int.from_bytes(compile_source(source, t).data[18:20], "little") for name, t in PROCESSORS.items()}
    assert machines == {"avx512": 62, "avx2": 62, "sse": 62, "neon": 183}  # EM_X86_64, EM_AARCH64 (ELF)
