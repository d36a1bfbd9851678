"""LLVM IR becomes PTX that a real assembler takes, for three generations of GPUs: no GPU, no driver and no NVRTC needed.

What stands in the text is looked at: rounding, which memory an access is of, nothing in local memory.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from picograd import dtype as dtypes
from picograd.devices import compile_llvm as llvm
from picograd.devices.compile_llvm import assembly
from picograd.devices.ptx import compile as nvptx
from picograd.devices.ptx.render import render
from picograd.errors import CompileError, DeviceError
from picograd.ir import build
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Launch, Param, Program, Source
from picograd.road import create_schedule, lower
from tests.gpu_programs import matmul, row_sums
from tests.ptx_assembler import AssemblerError, assemble, needs_assembler

GPUS = {"sm_80": (8, 0), "sm_90": (9, 0), "sm_100": (10, 0)}
SHARED = 48 * 1024
HOPPER = nvptx.gpu_target(9, 0, SHARED)


def kernel(body: str, name: str = "written") -> Source:
    """A kernel of one pointer and one number, written by hand."""
    text = f"define ptx_kernel void @{name}_0(ptr %p0, i64 %n) {{\n{body}\n  ret void\n}}\n"
    return Source(name, "nvptx", text, (), (), (Launch(f"{name}_0", 1, 32, 1),))


@cache
def ptx_of(root: Op) -> str:
    """Returns the PTX of the kernels of a graph."""
    programs = [lower(item.kernel, HOPPER) for item in create_schedule([root]).items]
    return "\n".join(assembly(render(program, HOPPER), HOPPER) for program in programs)


def values(dtype: dtypes.DType = dtypes.float32, *shape: int, slot: int = 0) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape or (300,)))


def op_of(code: OpCode, *src: Op) -> Op:
    return Op(code, src[0].dtype, src)


def opcodes(text: str) -> set[str]:
    """Returns the instructions of a text, with their modifiers."""
    return set(re.findall(r"^\t(?:@!?%p\d+ )?([a-z][\w.]*)", text, re.MULTILINE))


# ---- architectures ----
def test_an_architecture_has_the_first_version_of_ptx_that_knows_it() -> None:
    made = {gpu: nvptx.gpu_target(*numbers, SHARED) for gpu, numbers in GPUS.items()}
    assert {gpu: (t.arch, t.features) for gpu, t in made.items()} == {
        "sm_80": ("sm_80", "+ptx70"), "sm_90": ("sm_90", "+ptx78"), "sm_100": ("sm_100", "+ptx86")
    }  # fmt: skip
    assert all(t.is_gpu and t.shared_bytes == SHARED and t.has_fma for t in made.values())


def test_a_gpu_that_is_newer_than_llvm_takes_the_code_of_the_newest_known() -> None:
    assert nvptx.gpu_target(9, 5, SHARED).arch == "sm_90"
    assert nvptx.gpu_target(15, 0, SHARED).arch == "sm_121"


def test_an_old_gpu_is_told_what_code_is_made_for() -> None:
    with pytest.raises(DeviceError) as caught:
        nvptx.gpu_target(6, 1, SHARED)
    assert caught.value.fact == "PTX: the GPU is an sm_61; sm_75 or newer is needed."
    assert caught.value.hint == "PICOGRAD_DEVICE=CPU"


@pytest.mark.parametrize("number", nvptx.FIRST_VERSION)
def test_llvm_knows_every_architecture(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    target = nvptx.gpu_target(number // 10, number % 10, SHARED)
    text = assembly(kernel("  store i64 %n, ptr %p0"), target)
    version = nvptx.FIRST_VERSION[number]
    assert f".version {version // 10}.{version % 10}\n.target sm_{number}\n" in text
    assert "not a recognized" not in capfd.readouterr().err


@needs_assembler
@pytest.mark.parametrize("arch", GPUS)
def test_hundreds_of_parameters_ask_for_a_later_version(arch: str) -> None:
    target, params = nvptx.gpu_target(*GPUS[arch], SHARED), [Param(dtypes.float32, 1, "out") for _ in range(910)]
    for count in (544, 545, len(params)):
        names = ", ".join(f"ptr %p{i}" for i in range(count))
        text = f"define ptx_kernel void @many_0({names}) {{\n  store float 1.0, ptr %p{count - 1}\n  ret void\n}}\n"
        source = Source("many", "nvptx", text, tuple(params[:count]), (), (Launch("many_0", 1, 32, 1),))
        ptx = nvptx.compile_source(source, target).data.rstrip(b"\0").decode()
        version = int("".join(re.findall(r"\.version (\d+)\.(\d)", ptx)[0]))
        assert version == max(nvptx.FIRST_VERSION[int(arch[3:])], 81 if count > 544 else 0)
        assert assemble(ptx, arch)


# ---- what is compiled ----
@needs_assembler
@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("program", [row_sums(8, 1000), matmul(128, 64, 32)], ids=lambda p: p.name)
def test_program_assembles_without_spills(program: Program, gpu: str) -> None:
    target = nvptx.gpu_target(*GPUS[gpu], SHARED)
    binary = nvptx.compile_source(render(program, target), target)
    assert binary.data.endswith(b"}\n\0") and binary.data.count(b"\0") == 1
    (usage,) = assemble(binary.data[:-1].decode(), gpu).values()
    assert usage.spill_nbytes == 0 and usage.stack_nbytes == 0
    assert 0 < usage.registers <= 128


@needs_assembler
def test_the_assembler_refuses_what_is_no_ptx() -> None:
    with pytest.raises(AssemblerError):
        assemble(assembly(kernel("  store i64 %n, ptr %p0"), HOPPER).replace("st.", "stt."), "sm_90")


def test_the_number_of_threads_of_a_block_is_told() -> None:
    assert ".maxntid 256\n" in assembly(render(matmul(128, 64, 32), HOPPER), HOPPER)


def test_memory_is_global_or_shared_and_known_to_be() -> None:
    found = opcodes(assembly(render(matmul(128, 64, 32), HOPPER), HOPPER))
    accesses = {name for name in found if re.match(r"(ld|st)\.(?!param)", name)}
    assert accesses and all(re.match(r"(ld|st)\.(global|shared)\.", name) for name in accesses), accesses


def test_floats_are_rounded_correctly_and_never_contracted() -> None:
    x, y = values(), values(slot=1)
    found = opcodes(ptx_of(op_of(OpCode.SQRT, x * y + x) / y))
    assert {"mul.rn.f32", "add.rn.f32", "div.rn.f32", "sqrt.rn.f32"} <= found
    assert not [name for name in found if "approx" in name or "ftz" in name or name.startswith("fma")]


@pytest.mark.parametrize("code", [OpCode.EXP, OpCode.LOG, OpCode.SIN, OpCode.TANH, OpCode.ERF], ids=lambda c: c.name)
def test_functions_are_polynomials_of_multiply_adds(code: OpCode) -> None:
    text = ptx_of(op_of(code, values()))
    assert "fma.rn.f32" in text and "call" not in opcodes(text) and ".extern" not in text
    assert not re.search(r"approx|\.ftz|\.local", text)


def test_four_floats_are_one_access() -> None:
    assert {"ld.global.v4.b32", "st.global.v4.b32"} <= opcodes(ptx_of(values() + 1.0))


def test_half_is_converted_by_an_instruction_and_bfloat16_by_integers() -> None:
    half, brain = (ptx_of(Op(OpCode.CAST, dtype, (values(),))) for dtype in (dtypes.float16, dtypes.bfloat16))
    assert "cvt.rn.f16x2.f32" in half and "cvt.rn.bf16" not in brain


def test_a_maximum_is_one_instruction_in_which_nan_wins() -> None:
    assert "max.NaN.f32" in ptx_of(op_of(OpCode.MAX, values(), values(slot=1)))


def test_a_report_of_several_lanes_needs_no_local_memory() -> None:
    checked = Op(OpCode.CHECK, dtypes.int64, (values(dtypes.int64),), (0, 64))
    text = ptx_of(op_of(OpCode.ADD, checked, checked))
    assert "ld.global.v2.b64" in text and ".cas.b64" in text and ".local" not in text


@needs_assembler
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=str)
def test_a_choice_between_two_constants_of_bytes_is_compiled(dtype: dtypes.DType) -> None:
    """LLVM ends the process on one of four bytes at once."""
    x = values(dtype)
    one, none = (build.expand(build.reshape(const(number, dtype), (1,)), x.shape) for number in (1, 0))
    assert assemble(ptx_of(build.where(build.compare(OpCode.CMPLT, x, values(dtype, slot=1)), one, none)), "sm_90")


@needs_assembler
@pytest.mark.parametrize(("dtype", "name"), [(dtypes.float16, "f16"), (dtypes.bfloat16, "bf16")])
def test_a_product_of_16_bits_is_instructions_for_it(dtype: dtypes.DType, name: str) -> None:
    root = Op(OpCode.MATMUL, dtype, (values(dtype, 64, 32), values(dtype, 32, 48, slot=1)))
    found = opcodes(ptx_of(root))
    assert f"mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32" in found and "fma.rn.f32" not in found


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("kind", ["gather", "scatter", "scan", "sort", "remainder", "sum"])
def test_kernels_of_indices_and_orders_assemble(kind: str, gpu: str) -> None:
    x, index = values(dtypes.float32, 64, 32), values(dtypes.int64, 16, slot=1)
    index = Op(OpCode.CHECK, dtypes.int64, (index,), (0, 64))
    root = {
        "gather": lambda: build.gather(x, index, 0, 0),
        "scatter": lambda: build.scatter(x, index, values(dtypes.float32, 16, 32, slot=2), OpCode.ADD, 0, 0),
        "scan": lambda: build.scan(x, OpCode.ADD, 1),
        "sort": lambda: Op(OpCode.SORT, dtypes.int64, (x,), (1, False)),
        "remainder": lambda: op_of(OpCode.MOD, x, values(dtypes.float32, 64, 32, slot=3)),
        "sum": lambda: build.reduce(x, OpCode.ADD, (1,)),
    }[kind]()
    target = nvptx.gpu_target(*GPUS[gpu], SHARED)
    for item in create_schedule([root]).items:
        text = assembly(render(lower(item.kernel, target), target), target)
        for usage in assemble(text, gpu).values():
            assert usage.spill_nbytes == 0 and usage.stack_nbytes == 0


# ---- errors ----
def test_rejected_source_shows_the_line() -> None:
    with pytest.raises(CompileError) as caught:
        nvptx.compile_source(kernel("  %v1 = fadd i64 %n, %n"), HOPPER)
    assert caught.value.fact == (
        "llvm rejected kernel written.\n"
        "  written.ll:2: error: invalid operand type for instruction\n"
        "     2 |   %v1 = fadd i64 %n, %n"
    )


def test_llvm_without_the_target_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(triple: str) -> None:
        raise RuntimeError("No available targets are compatible with triple")

    monkeypatch.setattr(llvm._binding().Target, "from_triple", unknown)
    nvptx.check_compiler.cache_clear()
    with pytest.raises(DeviceError) as caught:
        nvptx.check_compiler()
    monkeypatch.undo()
    nvptx.check_compiler.cache_clear()
    assert caught.value.fact == "PTX: the LLVM in this llvmlite has no NVPTX target."
    assert caught.value.hint == "pip install llvmlite (wheels from PyPI have it), or PICOGRAD_DEVICE=CUDA or CPU"
    nvptx.check_compiler()
