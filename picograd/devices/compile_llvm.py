"""Compiles LLVM IR text to an object file by LLVM's code generator, without optimization passes before it.

The text is in SSA form, with vectors, without common subexpressions, and with invariants before their loops. Value
numbering and instruction combining changed no kernel's speed and took a third of the time; the rotations that combining
finds in random bits made instruction selection ten times slower.

In:    Source (language "llvm"), Target
Out:   Binary (an object file of the target's format); `host_target()`, `processor_target()`
"""

from __future__ import annotations

import ctypes
import functools
import os
import pkgutil
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from picograd.config import is_on, num_threads, processor
from picograd.device import Target
from picograd.errors import ArgumentError, CompileError, DeviceError
from picograd.interrupts import forks_wait, held_back
from picograd.ir.op import greatest
from picograd.ir.stages import Binary, Source
from picograd.loading import importing, load_late
from picograd.record import replace

LEAVE_OUT = Path(__file__).with_name("leave_out.rsp")  # one call sets all options of a response file
PUT_BACK = Path(__file__).with_name("put_back.rsp")
LLVM_TRIED = 22  # the options were tested with this version: an option that LLVM does not know ends the process
_idle: dict[tuple[str, str, str], list[Tools]] = {}  # by kind of machine: tools not in use
_working = threading.Lock()
_num_generating = 0  # number of threads in LLVM's code generator


# ---- Source -> object file ----
class Tools(NamedTuple):
    """Context and machine of LLVM, used by one thread at a time.

    machine:  generates code
    layout:   layout of data in its memory
    context:  owns types and constants of a text
    """

    machine: Any
    layout: str
    context: Any


def compile_source(source: Source, target: Target) -> Binary:
    """Returns the machine code of a Source.

    Raises:
      CompileError: LLVM rejects the text; the message quotes the line.

    Cost: 3 to 5 ms for an elementwise kernel, 6 to 13 ms for a matrix product (2.5 GHz).
    """
    with _in_llvm(), _parsed(source, target) as (machine, module), _without_needless_passes(_binding()):
        data = _object_file(_binding(), machine, module)
    return source.binary(data)


def assembly(source: Source, target: Target) -> str:
    """Returns the assembly text of `compile_source`'s result: for people to read, and as PTX for a driver.

    Raises:
      CompileError: LLVM rejects the text; the message quotes the line.
    """
    with _in_llvm(), _parsed(source, target) as (machine, module), _without_needless_passes(_binding()):
        return str(machine.emit_assembly(module))


@contextmanager
def _parsed(source: Source, target: Target) -> Iterator[tuple[Any, Any]]:
    """Opens a text as (machine, module), with tools that no other thread uses meanwhile.

    Raises:
      CompileError: LLVM rejects the text; the message quotes the line.
    """
    binding, key = _binding(), (target.arch, target.features, target.triple)
    with _working:
        idle = _idle.setdefault(key, [])
        tools = idle.pop() if idle else None
    tools = tools or Tools(*_machine(*key), binding.create_context())
    try:
        try:
            module = binding.parse_assembly(source.text, tools.context)
            _select_fast_where_short(source, target, module)
            module.verify()
        except RuntimeError as error:
            raise CompileError(_explain(source, str(error))) from None
        with module:
            module.triple, module.data_layout = tools.machine.triple, tools.layout
            yield tools.machine, module
    finally:
        with _working:
            idle.append(tools)


def _object_file(binding: Any, machine: Any, module: Any) -> bytes:
    """Returns the object file of a module; several threads may generate code at once.

    llvmlite holds a lock in each call, though LLVM's code generator is thread-safe if each thread has its own machine and
    context: so llvmlite's lock is bypassed for versions with which this was tested.
    """
    ffi = binding.ffi
    emit = getattr(ffi.lib.LLVMPY_TargetMachineEmitToMemory, "_cfn", None)
    if emit is None or binding.llvm_version_info[0] != LLVM_TRIED:
        return bytes(machine.emit_object(module))
    with ffi.OutputString() as problem:
        memory = emit(machine, module, 1, problem)
        if not memory:
            raise CompileError(f"llvm: {problem}")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(memory), ffi.lib.LLVMPY_GetBufferSize(memory))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(memory)


@contextmanager
def _in_llvm() -> Iterator[None]:
    """Delays forks and interrupts until this thread has left LLVM.

    A fork would leave llvmlite's lock held in the child, and an interrupt in one of its Python finalizers would be lost.
    """
    with held_back(), forks_wait():
        yield


# ---- LLVM itself ----
@contextmanager
def _without_needless_passes(binding: Any) -> Iterator[None]:
    """Disables passes of LLVM's code generator that such texts do not need: almost half of its work.

    Strength reduction (lsr): addresses are base plus counter already (devices/render_llvm.py).
    Hoisting (machine-licm): invariants are before their loops already, and constants are best left in memory, where
    instructions read them at no cost: hoisted, they fill all registers, and values are spilled.
    Sinking (cgp, machine-sink): values are computed where they are read.
    Scheduling after register allocation (post-ra): processors reorder by themselves; no kernel became faster.
    The others find nothing: there are no calls, no memory comparisons, no blocks worth copying, no dead code.

    These settings belong to the process, and another library may use LLVM, too: the first thread that enters sets them, the
    last one that leaves restores them.
    """
    global _num_generating
    with _working:
        if _num_generating == 0:
            _set_options(binding, LEAVE_OUT)
        _num_generating += 1
    try:
        yield
    finally:
        with _working:
            _num_generating -= 1
            if _num_generating == 0:
                _set_options(binding, PUT_BACK)


SHORT_WORK = 1 << 16  # of a launch of the largest length: 10 us at most, 2 us for a product
# Blends of 16-bit lanes: fast instruction selection fails an assertion of LLVM for them, which ends the process.
BLENDS_WORDS = re.compile(r" x (?:i8|i16|half|bfloat)>|uitofp <[24] x i32>")
JOINS_CONDITIONS = re.compile(r"(?:and|or|xor) <8 x i1>")  # they are 16-bit lanes, too, where there are no mask registers


def _select_fast_where_short(source: Source, target: Target, module: Any) -> None:
    """Marks short launches `optnone`: LLVM takes the first instruction that matches and does not reorder.

    Compiling takes 0.6 of the time, and the bits are the same. The 130 kernels of makemore and a U-Net with such launches
    run in 1.00 of their time, which is mostly calls; register tiles of long launches would take 1.1 to 1.2.
    """
    has_words = BLENDS_WORDS.search(source.text)
    if "-avx512f" in target.features.split(","):
        has_words = has_words or JOINS_CONDITIONS.search(source.text)
    if target.is_gpu or ("+avx2" in target.features and has_words):
        return
    for launch in source.launches:
        if greatest(launch.grid) * launch.work <= SHORT_WORK:
            function = module.get_function(launch.symbol)
            function.add_function_attribute("noinline")  # optnone requires it
            function.add_function_attribute("optnone")


def _set_options(binding: Any, file: Path) -> None:
    """Sets the options of a response file: by one call, or one by one if LLVM cannot read the file."""
    if binding.llvm_version_info[0] != LLVM_TRIED:
        return
    path = str(file)
    if os.path.isfile(path) and os.fsencode(path) == path.encode(errors="surrogatepass"):
        binding.set_option("picograd", f"@{path}")
        return
    # LLVM would end the process for a file that it does not find, in an archive or under a name that is not UTF-8.
    try:
        options = pkgutil.get_data(__package__, file.name) or b""
    except OSError:
        raise CompileError(f"CPU: {file} is missing: picograd is not wholly installed.") from None
    for option in options.decode().split():
        binding.set_option("picograd", option)


def _load_beside() -> None:
    """Loads LLVM's library on another thread while this one loads the compiler, which halves the time to import llvmlite.

    An importing thread blocks all other Python threads; one in dlopen does not. If this fails, llvmlite loads the library
    itself.
    """
    if num_threads() < 2:
        return
    with suppress(ImportError, AttributeError, TypeError, RuntimeError):  # no library, Windows, or no thread
        known = load_late("llvmlite.utils")
        path = os.path.join(os.path.dirname(known.__file__), "binding", known.get_library_name())
        load = ctypes.CDLL(None).dlopen
        load.argtypes, load.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
        threading.Thread(target=_load, args=(load, os.fsencode(path)), name="picograd_llvm").start()


def _load(dlopen: Any, path: bytes) -> None:
    with forks_wait():
        dlopen(path, os.RTLD_NOW)


@functools.cache
def _binding() -> Any:
    with importing, held_back():
        try:
            binding = load_late("llvmlite.binding")
        except ImportError:
            raise DeviceError(
                "CPU: the llvmlite package is not installed.", hint="pip install llvmlite, or PICOGRAD_DEVICE=NUMPY"
            ) from None
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        return binding


def _machine(arch: str, features: str, triple: str) -> tuple[Any, str]:
    """Returns the machine that generates code, and the layout of data in its memory."""
    binding = _binding()
    native = binding.get_default_triple()
    if triple and triple != native:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
    kind = binding.Target.from_triple(triple or native)
    machine = kind.create_target_machine(cpu=arch, features=features, opt=2, reloc="pic", codemodel="small")
    return machine, str(machine.target_data)


def has_target(triple: str) -> bool:
    """True if LLVM has a code generator for a kind of machine."""
    binding = _binding()
    with _in_llvm():
        binding.initialize_all_targets()
        try:
            binding.Target.from_triple(triple)
        except RuntimeError:
            return False
        return True


def _explain(source: Source, message: str) -> str:
    """Appends the line that LLVM names to its message."""
    found = re.search(r"<string>:(\d+):\d+: (error: .*)", message)
    if found is None:
        return f"llvm rejected kernel {source.name}.\n  {message.strip()}"
    number = int(found[1])
    lines = source.text.splitlines()
    text = lines[number - 1].strip() if number <= len(lines) else ""
    return f"llvm rejected kernel {source.name}.\n  {source.name}.ll:{number}: {found[2]}\n     {number} |   {text}"


# ---- the machine at hand ----
NATIVE = "native"
GENERATIONS = {  # x86-64 generations by their names for PICOGRAD_CPU: LLVM's name, and features
    "avx512": ("x86-64-v4", "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx2,+fma,+f16c,+sse4.2"),
    "avx2": ("x86-64-v3", "+avx2,+fma,+f16c,+sse4.2,-avx512f"),
    "sse": ("x86-64-v2", "+sse4.2,-avx,-avx2,-fma"),
}


@functools.cache
def host_target() -> Target:
    """Returns a description of this process' processor, or of the older generation in PICOGRAD_CPU.

    Raises:
      ArgumentError: PICOGRAD_CPU is not a generation, or has instructions that this processor lacks.
    """
    binding, chosen, usable = _binding(), processor(), host_generations()
    with _in_llvm():
        triple = binding.get_default_triple()
        arch, features = str(binding.get_host_cpu_name()), str(binding.get_host_cpu_features().flatten())
    if chosen != NATIVE:
        if chosen not in usable:
            raise ArgumentError(f"PICOGRAD_CPU={chosen}: this processor runs {', '.join([NATIVE, *usable])}.")
        arch, features = GENERATIONS[chosen]
    target = processor_target(triple, arch, features)
    return replace(target, plain_sums=is_on("PICOGRAD_PLAIN_SUMS"))


def host_generations() -> list[str]:
    """Returns the names in `GENERATIONS` that this processor supports; none if it is not an x86-64."""
    binding = _binding()
    with _in_llvm():
        has = binding.get_host_cpu_features()
        is_x86 = binding.get_default_triple().startswith("x86_64")
    return [
        name
        for name, (_, features) in GENERATIONS.items()
        if is_x86 and all(has.get(feature[1:]) for feature in features.split(",") if feature.startswith("+"))
    ]


def processor_target(triple: str, arch: str, features: str) -> Target:
    """Returns a description of a processor.

    Args:
      triple:    kind of machine in LLVM's form: "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
      arch:      LLVM's name of the processor: "x86-64-v3", "znver4", "neoverse-n1"
      features:  its features, each after a "+": "+avx2,+fma"; missing ones after a "-"

    >>> target = processor_target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma,-avx512f")
    >>> target.vector_bytes, target.num_registers, target.has_fma
    (32, 16, True)
    """
    names = {name[1:] for name in features.split(",") if name.startswith("+")}
    is_arm = triple.startswith(("aarch64", "arm64"))  # NEON is always there: 32 registers of 16 bytes, and FMA
    width = 64 if "avx512f" in names else (32 if "avx2" in names else 16)
    return Target(
        device="CPU",
        language="llvm",
        arch=arch,
        vector_bytes=width,
        num_registers=32 if width == 64 or is_arm else 16,
        features=features,
        triple=triple,
        has_fma=is_arm or not names.isdisjoint({"fma", "avx512f"}),
    )


_load_beside()  # programs that load this module soon compile a kernel or ask for the processor
