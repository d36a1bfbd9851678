"""Kernels for the PTX device, run on this machine: the same LLVM IR for this processor, on the simulator's threads.

What the IR means is tested by it: threads, blocks, shared memory, shuffles, barriers. LLVM's code generator for GPUs, the
driver's compiler and the GPU are not. The intrinsics become functions of the simulator's, whose fibers are the threads.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from picograd.device import Target
from picograd.devices import compile_llvm as llvm
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import CudaSimDevice
from picograd.devices.ptx.compile import gpu_target
from picograd.devices.ptx.render import render
from picograd.engine.compiler import Backend, Compiler
from picograd.ir.stages import Binary, Source
from picograd.record import replace

TARGET = replace(gpu_target(9, 0, 99 * 1024), device="PTX_ON_HOST")
AS_FUNCTIONS = {  # text of the IR -> what it is on this machine
    "ptx_kernel ": "", '"nvvm.maxntid"': '"threads"', "internal addrspace(3) global": "internal global",
    "addrspacecast ptr addrspace(3)": "getelementptr i8, ptr",
    "external addrspace(3) global [0 x i8]": f"internal global [{99 * 1024} x i8] poison",
    "@llvm.nvvm.read.ptx.sreg.tid.x": "@sim_thread", "@llvm.nvvm.read.ptx.sreg.ctaid.x": "@sim_block",
    "@llvm.nvvm.barrier.cta.sync.aligned.all": "@sim_barrier", "@llvm.nvvm.shfl.sync.bfly.i32": "@sim_shuffle",
    "@llvm.nvvm.mma.m16n8k16.row.col.f32.f32": "@sim_mma_float16",
    "@llvm.nvvm.mma.m16n8k16.row.col.bf16": "@sim_mma_bfloat16",
    "@llvm.nvvm.mma.m16n8k8.row.col.tf32": "@sim_mma_tf32", "@llvm.nvvm.f2tf32.rna": "@sim_tf32",
    "@llvm.nvvm.ex2.approx.ftz.f": "@sim_rough_exp2",
    "@llvm.nvvm.cp.async.commit.group": "@sim_commit", "@llvm.nvvm.cp.async.wait.group": "@sim_wait",
    "@llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3": "@sim_matrices",
    "@llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3": "@sim_matrices_turned",
}  # fmt: skip
COPY = "@llvm.nvvm.cp.async.{}.shared.global.{}.s"
AS_FUNCTIONS |= {COPY.format("cg" if nbytes == 16 else "ca", nbytes): f"@sim_copy_{nbytes}" for nbytes in (4, 8, 16)}
DECLARATIONS = (
    "declare void @sim_copy_4(ptr, ptr, i32)", "declare void @sim_copy_8(ptr, ptr, i32)",
    "declare void @sim_copy_16(ptr, ptr, i32)", "declare void @sim_commit()", "declare void @sim_wait(i32)",
    "declare i32 @sim_thread()", "declare i32 @sim_block()", "declare void @sim_barrier(i32)",
    "declare i32 @sim_shuffle(i32, i32, i32, i32)", "declare i32 @sim_tf32(float)",
    "declare float @sim_rough_exp2(float)",
)  # fmt: skip
PAIRS = {"float16": "<2 x half>", "bfloat16": "i32", "tf32": "i32"}
# A product of a warp takes its parts in memory: C++ returns a struct of four floats in other registers than LLVM does.
PRODUCT = """
declare void @sim_product_{name}(ptr, ptr)
define {{float, float, float, float}} @sim_mma_{name}({params}) {{
  %acc = alloca [4 x float], align 16
  %pairs = alloca [6 x {kind}], align 16
  {stores}
  call void @sim_product_{name}(ptr %acc, ptr %pairs)
  %result = load {{float, float, float, float}}, ptr %acc, align 4
  ret {{float, float, float, float}} %result
}}
"""
# So are the four pairs that a warp brings.
MATRICES = """
declare void @sim_bring_{name}(ptr, ptr)
define {{i32, i32, i32, i32}} @sim_{name}(ptr %row) {{
  %pairs = alloca [4 x i32], align 16
  call void @sim_bring_{name}(ptr %pairs, ptr %row)
  %result = load {{i32, i32, i32, i32}}, ptr %pairs, align 4
  ret {{i32, i32, i32, i32}} %result
}}
"""
FUNCTIONS = """#include "primitives.h"
#include "cudasim/simulator.cpp"
#include <deque>
#include <vector>
extern "C" int32 sim_thread() { return threadIdx.x; }
extern "C" int32 sim_block() { return blockIdx.x; }
extern "C" void sim_barrier(int32) { __syncthreads(); }
extern "C" int32 sim_shuffle(int32, int32 value, int32 distance, int32) { return shuffle_xor(value, distance, 0); }
template <class T> static void product(float32* acc, const T* pairs) {
  REGISTERS(float32, sums, 4);
  REGISTERS(T, lhs, 8);
  REGISTERS(T, rhs, 4);
  for (int64 i = 0; i < 4; i++) sums[i] = acc[i];
  for (int64 i = 0; i < 8; i++) lhs[i] = pairs[i];
  for (int64 i = 0; i < 4; i++) rhs[i] = pairs[8 + i];
  mma_m16n8k16(sums, 0, lhs, 0, rhs, 0, 0);
  for (int64 i = 0; i < 4; i++) acc[i] = sums[i];
}
extern "C" void sim_product_float16(float32* acc, const float16* pairs) { product(acc, pairs); }
extern "C" void sim_product_bfloat16(float32* acc, const bfloat16* pairs) { product(acc, pairs); }
extern "C" float32 sim_rough_exp2(float32 value) { return rough_exp2(value); }
extern "C" uint32 sim_tf32(float32 value) { return bitcast<uint32>(as_multiplied(value)); }
// PTX ISA 9.7.15.5.4, mma.m16n8k8: a thread has rows g, g + 8 of lhs at k = t, then at t + 4; and column g of rhs at those.
extern "C" void sim_product_tf32(float32* acc, const uint32* given) {
  struct Part { float32 lhs[4], rhs[2]; } own;
  for (int64 i = 0; i < 4; i++) own.lhs[i] = bitcast<float32>(given[i]);
  for (int64 i = 0; i < 2; i++) own.rhs[i] = bitcast<float32>(given[4 + i]);
  const Part* parts[32];
  const int64 lane = cudasim::meet(own, parts, 3);
  for (int64 i = 0; i < 4; i++) {
    const int64 row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
    for (int64 k = 0; k < 8; k++)
      acc[i] += parts[row % 8 * 4 + k % 4]->lhs[row / 8 + 2 * (k / 4)] * parts[column * 4 + k % 4]->rhs[k / 4];
  }
}
struct Row { uint16 at[8]; };
static void bring(uint16* pairs, const Row* own, bool turned, int32 line) {
  const Row* rows[32];
  const int64 lane = cudasim::meet(*own, rows, line), g = lane / 4, t = lane % 4;
  for (int64 m = 0; m < 4; m++)
    for (int64 i = 0; i < 2; i++)
      pairs[2 * m + i] = turned ? rows[8 * m + 2 * t + i]->at[g] : rows[8 * m + g]->at[2 * t + i];
}
extern "C" void sim_bring_matrices(uint16* pairs, const Row* own) { bring(pairs, own, false, 1); }
extern "C" void sim_bring_matrices_turned(uint16* pairs, const Row* own) { bring(pairs, own, true, 2); }
// Copies arrive when their thread waits for them, and not before.
struct Copy { char* to; char bytes[16]; int64 nbytes; };
static std::deque<std::vector<Copy>> closed[1024];
static std::vector<Copy> open[1024];
static void copy(char* to, const char* from, int64 nbytes, int64 there) {
  Copy one = {to, {}, nbytes};
  memcpy(one.bytes, from, (size_t)there);
  open[threadIdx.x].push_back(one);
}
extern "C" void sim_copy_4(char* to, const char* from, int32 there) { copy(to, from, 4, there); }
extern "C" void sim_copy_8(char* to, const char* from, int32 there) { copy(to, from, 8, there); }
extern "C" void sim_copy_16(char* to, const char* from, int32 there) { copy(to, from, 16, there); }
extern "C" void sim_commit() {
  closed[threadIdx.x].push_back(open[threadIdx.x]);
  open[threadIdx.x].clear();
}
extern "C" void sim_wait(int32 still) {
  for (auto& groups = closed[threadIdx.x]; (int32)groups.size() > still; groups.pop_front())
    for (const Copy& one : groups.front()) memcpy(one.to, one.bytes, (size_t)one.nbytes);
}
extern "C" const char* sim_launch(const char* name, void (*thread)(), const int64* arguments, const int64* shape,
                                  int64 order, int64 seed) {
  return cudasim::launch(name, thread, (const cudasim::Argument*)arguments, shape, order, seed);
}
"""
# Of each launch, in C: an argument is an address and its bytes, or a number and -1; a kernel takes the first of the two.
LAUNCHER = """
void {symbol}({types});
static void {symbol}_run(void) {{ {symbol}({values}); }}
const long long {symbol}_num_arguments = {count};
const char* {symbol}_launch(const long long* given, const long long* shape, long long order, long long seed) {{
  arguments = given;
  return sim_launch("{symbol}", {symbol}_run, given, shape, order, seed);
}}
"""
LAUNCHERS = """static const long long* arguments;
const char* sim_launch(const char*, void (*)(void), const long long*, const long long*, long long, long long);
"""


def product_of_a_warp(name: str, kind: str) -> str:
    """Returns the function that a matrix instruction becomes; `kind` is how pairs of operands come."""
    params = [f"{kind} %pair{i}" for i in range(6)] + [f"float %acc{i}" for i in range(4)]
    stores = []
    for i, param in enumerate(params):
        array, place = ("%acc", i - 6) if i >= 6 else ("%pairs", i)
        stores.append(f"%at{i} = getelementptr i32, ptr {array}, i64 {place}")
        stores.append(f"store {param}, ptr %at{i}, align 4")
    return PRODUCT.format(name=name, kind=kind, params=", ".join(params), stores="\n  ".join(stores))


def host_text(source: Source) -> str:
    """Returns the IR with functions in the place of a GPU's intrinsics."""
    text = source.text
    for before, after in AS_FUNCTIONS.items():
        text = text.replace(before, after)
    text = re.sub(r"(getelementptr i8, ptr @\w+) to ptr", r"\1, i64 0", text)
    text = re.sub(r"addrspacecast ptr (\S+) to ptr addrspace\(\d\)", r"getelementptr i8, ptr \1, i64 0", text)
    text = re.sub(r"ptr addrspace\(\d\) %", "ptr %", text)
    products = [product_of_a_warp(name, kind) for name, kind in PAIRS.items() if f"@sim_mma_{name}(" in text]
    brought = [MATRICES.format(name=name) for name in ("matrices", "matrices_turned") if f"@sim_{name}(" in text]
    return "\n".join([text, *DECLARATIONS, *products, *brought])


@cache
def functions() -> bytes:
    """Returns the functions as an object file: they are the same for every kernel."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "functions.cpp").write_text(FUNCTIONS)
        command = [hostcxx.compiler(), *hostcxx.OPTIONS, "-c", "functions.cpp", "-o", "functions.o"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return (Path(folder) / "functions.o").read_bytes()


def launchers(source: Source) -> str:
    """Returns the functions by which Python starts the launches of a kernel, in C."""
    count = len(source.params) + len(source.variables)
    types, values = ", ".join(["long long"] * count), ", ".join(f"arguments[{2 * i}]" for i in range(count))
    made = [LAUNCHER.format(symbol=each.symbol, types=types, values=values, count=count) for each in source.launches]
    return "".join([LAUNCHERS, *made])


def compile_source(source: Source, target: Target) -> Binary:
    """Compiles a kernel's IR for this processor, and links it with the threads of the simulator."""
    made = llvm.compile_source(replace(source, text=host_text(source)), llvm.host_target())
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.o").write_bytes(made.data)
        (Path(folder) / "functions.o").write_bytes(functions())
        (Path(folder) / "launch.c").write_text(launchers(source))
        files = ["-x", "c", "launch.c", "-x", "none", "kernel.o", "functions.o"]
        command = [hostcxx.compiler(), "-fPIC", "-shared", *files, "-o", "library.so", "-lm"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return replace(made, data=(Path(folder) / "library.so").read_bytes())


class HostDevice(CudaSimDevice):
    """The simulator's memory and threads, for kernels of the PTX device."""

    name = TARGET.device
    target = TARGET


def make_compiler() -> Compiler:
    """Returns the Compiler of the PTX device, run here."""
    return Compiler(HostDevice(), Backend(render, compile_source))


def check_usable() -> None:
    """Checks nothing: who asks has a C++ compiler."""
