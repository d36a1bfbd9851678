"""CUDA C compiles to machine code for sm_90a with no GPU and no driver, and without spilling registers."""

from __future__ import annotations

import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda.render import render
from picograd.errors import CompileError
from picograd.ir import build
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Launch, Program, Source
from picograd.record import replace
from picograd.road import create_schedule, lower
from tests.gpu_programs import elementwise, matmul, row_sums

TARGET = Target(device="CUDA", language="cuda", arch="sm_90a", block_threads=256, shared_bytes=48 * 1024)
HEADER = '#include "primitives.h"\n'


def source_of(text: str, name: str = "written") -> Source:
    return Source(name, "cuda", HEADER + text, (), (), (Launch(f"{name}_0", 1, 32, 1),))


@pytest.mark.parametrize("program", [elementwise(), row_sums(8, 1000), matmul(128, 64, 32)], ids=lambda p: p.name)
def test_program_compiles_without_spills(program: Program) -> None:
    source = render(program, TARGET)
    binary = nvrtc.compile_source(source, TARGET)
    assert binary.data[:4] == b"\x7fELF" and binary.launches == source.launches
    (usage,) = nvrtc.resource_usage(source, TARGET).values()
    assert usage.spill_nbytes == 0 and usage.stack_nbytes == 0
    assert 0 < usage.registers <= 64


def test_shared_memory_is_what_the_program_allocates() -> None:
    (usage,) = nvrtc.resource_usage(render(matmul(128, 64, 32), TARGET), TARGET).values()
    assert usage.shared_nbytes == 4 * (64 * 16 + 16 * 16)


def test_the_log_is_written_into_memory_of_its_own() -> None:
    shared = [bytes([byte]) for byte in range(256)]  # CPython keeps one object for each
    nvrtc.compile_source(render(elementwise(), TARGET), TARGET)  # without a warning: a log of one byte
    assert [value[0] for value in shared] == list(range(256))


def test_rejected_source_shows_the_line() -> None:
    text = 'extern "C" __global__ void written_0() {\n  const float32 v1 = hexp2(1.0f);\n}\n'
    with pytest.raises(CompileError) as caught:
        nvrtc.compile_source(source_of(text), TARGET)
    assert caught.value.fact == (
        "nvrtc rejected kernel written for sm_90a.\n"
        '  written.cu:3: error: identifier "hexp2" is undefined\n'
        "     3 |   const float32 v1 = hexp2(1.0f);"
    )


def test_missing_semicolon_shows_the_line() -> None:
    text = 'extern "C" __global__ void written_0() {\n  const float32 v1 = 1.0f\n}\n'
    with pytest.raises(CompileError, match=r"written\.cu:4: error: expected a \";\""):
        nvrtc.compile_source(source_of(text), TARGET)


@pytest.mark.parametrize(("arch", "instead"), [("sm_7", "an older"), ("sm_999a", "a newer")])
def test_an_architecture_that_nvrtc_does_not_know_is_an_error_that_says_which_it_does(arch: str, instead: str) -> None:
    target = Target(device="CUDA", language="cuda", arch=arch, block_threads=256)
    with pytest.raises(CompileError, match=rf"nvrtc: \d+\.\d+ makes no code for {arch}, only for sm_\d+, ") as caught:
        nvrtc.compile_source(source_of(""), target)
    hint = str(caught.value.hint)
    assert f"install {instead} nvidia-cuda-nvrtc" in hint and ("PICOGRAD_DEVICE=PTX" in hint) == (arch == "sm_999a")


@pytest.mark.req("B6")
def test_a_machine_without_nvrtc_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(nvrtc, "import_module", missing)
    nvrtc._nvrtc.cache_clear()
    with pytest.raises(CompileError) as caught:
        nvrtc.compile_source(source_of(""), TARGET)
    nvrtc._nvrtc.cache_clear()
    assert caught.value.fact == "nvrtc: cannot be loaded (No module named 'cuda.bindings.nvrtc')."
    assert caught.value.hint == 'pip install "picograd[cuda]"; PICOGRAD_DEVICE=PTX needs no NVRTC'


def test_multiply_and_add_are_not_contracted() -> None:
    """Two roundings are two instructions: the text of the assembly has no fused one."""
    text = (
        'extern "C" __global__ void written_0(Global<float32> p0) {\n'
        "  const float32 v1 = p0[0] * p0[1];\n  p0[2] = v1 + p0[3];\n}\n"
    )
    assert "--fmad=false" in nvrtc.OPTIONS and "--ftz=false" in nvrtc.OPTIONS
    fused = source_of(text.replace("v1 + p0[3]", "fmaf(p0[0], p0[1], p0[3])"))
    assert nvrtc.compile_source(source_of(text), TARGET).data != nvrtc.compile_source(fused, TARGET).data


@pytest.mark.parametrize(
    "call",
    [
        "larger(p0[0], p0[1])", "smaller((float64)p0[0], (float64)p0[1])", "to_float32(to_float16(p0[0]))",
        "to_float32(to_bfloat16(p0[0]))", "to_float32(to_float8_e4m3(p0[0]))", "to_float32(to_float8_e5m2(p0[0]))",
        "to_float32(to_float16((float64)p0[0]))", "(float32)floor_div<int64>((int64)p0[0], 3)",
        "(float32)floor_mod<int8>((int8)p0[0], 3)", "(float32)int_pow<uint32>((uint32)p0[0], 3u)",
        "(float32)shift_left<int16>((int16)p0[0], 3)", "(float32)shift_right<int64>((int64)p0[0], 3)",
        "(float32)threefry((uint64)p0[0], 5u)", "float_mod<float32>(p0[0], p0[1])",
        "float_floor_div<float32>(p0[0], p0[1])", "(float32)to_integer<uint8>(p0[0])",
        "(float32)to_integer<int64>((float64)p0[0])", "bitcast<float32>(7)", "float32_of_bits(7u)",
        "(float32)float64_of_bits(7ull)",
    ],
)  # fmt: skip
def test_primitive_has_a_body_for_the_gpu(call: str) -> None:
    text = f'extern "C" __global__ void written_0(Global<float32> p0) {{\n  p0[2] = {call};\n}}\n'
    (usage,) = nvrtc.resource_usage(source_of(text), TARGET).values()
    assert usage.spill_nbytes == 0


def test_report_of_the_assembler_is_read() -> None:
    log = (
        "ptxas info    : Compiling entry function 'f_0' for 'sm_90a'\n"
        "    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers, 4096 bytes smem\n"
    )
    assert nvrtc.read_usage(log) == {"f_0": nvrtc.ResourceUsage(255, 4096, 16, 20)}


@pytest.mark.parametrize("kind", ["gather", "scatter", "scan", "sort"])
def test_kernels_of_indices_and_orders_compile(kind: str) -> None:
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, (64, 32)))
    index = Op(OpCode.PARAM, dtypes.int64, (), (1, (16,)))
    index = Op(OpCode.CHECK, dtypes.int64, (index,), (0, 64))
    root = {
        "gather": lambda: build.gather(x, index, 0, 0),
        "scatter": lambda: build.scatter(x, index, Op(OpCode.PARAM, x.dtype, (), (2, (16, 32))), OpCode.ADD, 0, 0),
        "scan": lambda: build.scan(x, OpCode.ADD, 1),
        "sort": lambda: Op(OpCode.SORT, dtypes.int64, (x,), (1, False)),
    }[kind]()
    for item in create_schedule([root]).items:
        source = render(lower(item.kernel, TARGET), TARGET)
        assert nvrtc.compile_source(source, TARGET).data[:4] == b"\x7fELF"
        assert all(usage.spill_nbytes == 0 for usage in nvrtc.resource_usage(source, TARGET).values())


def test_a_newer_gpu_gets_no_copies_of_a_loop_for_each_alignment() -> None:
    """NVRTC 13.5 wrote the epilogue of Adam out seventeen times for sm_100a, and took 16 s for it."""
    pointers = ", ".join(f"Global<{'const float32' if n < 3 else 'float32'}> p{n}" for n in range(6))
    text = f"""
extern "C" __global__ void written_0({pointers}) {{
  const float32 rate = p0[0];
  #pragma unroll
  for (int32 i = 0; i < 4; i++)
    #pragma unroll
    for (int32 j = 0; j < 4; j++)
      #pragma unroll
      for (int32 k = 0; k < 2; k++) {{
        const int32 at = threadIdx.x * 2 + i * 49152 + j * 8 + k * 24576;
        const Lanes<float32, 2> x = load_lanes<2>(p0, at), y = load_lanes<2>(p1, at), z = load_lanes<2>(p2, at);
        const Lanes<float32, 2> sum = {{x.at[0] + y.at[0] * rate, x.at[1] + y.at[1] * rate}};
        store_lanes(p3, at, sum);
        const Lanes<float32, 2> root = {{sqrtf(sum.at[0]) / rate, sqrtf(sum.at[1]) / rate}};
        store_lanes(p4, at, root);
        store_lanes(p5, at, Lanes<float32, 2>{{z.at[0] - sum.at[0] / root.at[0], z.at[1] - sum.at[1] / root.at[1]}});
      }}
}}
"""
    targets = [replace(TARGET, arch=arch) for arch in ("sm_90a", "sm_100a")]
    older, newer = (len(nvrtc.compiled(source_of(text), target, form="PTX")[0]) for target in targets)
    assert newer < 2 * older
