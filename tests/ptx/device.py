"""Two devices that run PTX here: of NVRTC, which makes it of CUDA C, and of LLVM, which makes it of LLVM IR.

In:    Sources
Out:   `PtxDevice`; `NVRTC`, `LLVM`, names that PICOGRAD_DEVICE takes while they are `installed`
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from picograd.device import Target
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda import render as cuda_text
from picograd.devices.cuda import tile_maps
from picograd.devices.cudasim.device import CudaSimDevice
from picograd.devices.launches import Call, HostFunction
from picograd.devices.ptx import compile as nvptx
from picograd.devices.ptx import render as nvptx_text
from picograd.engine import devices
from picograd.engine.compiler import Backend, Compiler
from picograd.errors import DeviceError
from picograd.ir.stages import Binary, Executable, Source
from picograd.ir.symbolic import dim_value
from picograd.record import replace
from tests.ptx.inline import inline
from tests.ptx.launch import Buffers, Pointer, launch
from tests.ptx.module import Module, PtxError
from tests.ptx.parse import parse
from tests.ptx.tensor_maps import encoded

NVRTC, LLVM = "PTX_OF_NVRTC", "PTX_OF_LLVM"
SHARED = 99 * 1024
TARGETS = {
    NVRTC: Target(
        NVRTC, "cuda", "sm_80", vector_bytes=16, block_threads=256, shared_bytes=SHARED, has_mma=True, has_async_copies=True
    ),
    LLVM: replace(nvptx.gpu_target(8, 0, SHARED), device=LLVM),
}


@lru_cache(maxsize=4096)
def module_of(text: str) -> Module:
    """Returns the module of a text, whose kernels call nobody."""
    return inline(parse(text))


class PtxDevice(CudaSimDevice):
    """Memory of this process, and kernels that the interpreter runs."""

    def __init__(self, name: str, target: Target | None = None):
        super().__init__()
        self.name, self.target = name, target or TARGETS[name]

    def load(self, binary: Binary) -> Executable:
        """Reads the PTX of a kernel."""
        module = module_of(binary.data.rstrip(b"\0").decode())
        functions = tuple((module, each.symbol) for each in binary.launches)
        return binary.executable(functions, module)

    def _launch(self, call: Call, addresses: list[int], variables: dict[str, int]) -> None:  # type: ignore[override]
        """Runs one kernel; each buffer may be accessed as far as its parameter says."""
        if isinstance(call.function, HostFunction):
            super()._launch(call, addresses, variables)
            return
        module, symbol = call.function
        pointers = [
            Pointer(f"parameter {slot}", address, dim_value(argument.numel, variables) * argument.dtype.itemsize)
            for slot, (argument, address) in enumerate(zip(call.arguments, addresses))
        ]
        buffers = Buffers(pointers, module)
        given = [buffers.address_of(pointer).to_bytes(8, "little") for pointer in pointers]
        given += self.maps_of(call, pointers, buffers)
        given += [variables[variable.arg[0]].to_bytes(8, "little", signed=True) for variable in call.variables]
        grid = max(0, dim_value(call.launch.grid, variables))
        try:
            launch(module, symbol, grid, call.launch.block, call.launch.shared_nbytes, buffers, given)
        except PtxError as error:
            raise DeviceError(f"{self.name}: {error}") from error

    def maps_of(self, call: Call, pointers: list[Pointer], buffers: Buffers) -> list[bytes]:
        """Returns the maps of tiles that a launch passes between buffers and variables."""
        given = []
        for tile_map in call.launch.tile_maps:
            argument, pointer = call.arguments[tile_map.param], pointers[tile_map.param]
            tile_maps.check_inside(tile_map, pointer.nbytes // argument.dtype.itemsize)
            begin = buffers.address_of(pointer) + tile_map.offset * argument.dtype.itemsize
            given.append(encoded(tile_map, argument.dtype, begin))
        return given


def compile_nvrtc(source: Source, target: Target) -> Binary:
    """Returns the PTX that NVRTC makes."""
    text, _ = nvrtc.compiled(source, target, form="PTX")
    return source.binary(text.rstrip(b"\0"))


ROADS: dict[str, Backend] = {
    NVRTC: Backend(cuda_text.render, compile_nvrtc),
    LLVM: Backend(nvptx_text.render, nvptx.compile_source),
}


@contextmanager
def installed() -> Iterator[None]:
    """Makes both devices known by their names."""
    made = {name: Compiler(PtxDevice(name), backend) for name, backend in ROADS.items()}
    for name, compiler in made.items():
        devices.FACTORIES[name] = __name__
        devices._compilers[name] = compiler
    try:
        yield
    finally:
        for name in made:
            del devices.FACTORIES[name], devices._compilers[name]


def check_usable() -> None:
    """Checks nothing: both are always here."""
