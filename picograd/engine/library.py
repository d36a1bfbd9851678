"""Kernels that a vendor's library may compute: cuBLASLt, where it is installed, is a candidate of tuning.

In:    Kernel, Device
Out:   the library's name; `Library`, a candidate; `Binary`, a call of it among launches of generated code
Called by: engine/choose.py, engine/tune.py, engine/compiler.py, engine/plan.py
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.codegen.unfuse import Split, unfuse
from picograd.engine.watch import note
from picograd.errors import DeviceError
from picograd.ir.backend import Device, LibraryDevice
from picograd.ir.opts import Epilogue, Library, LibraryCall, PlainProduct, write_library
from picograd.ir.stages import Binary, Kernel, Launch, Param
from picograd.look import show
from picograd.record import replace


def library_of(device: Device) -> str:
    """Returns the name of the library whose kernels are candidates on a device, with its version; "" where none is.

    PICOGRAD_PLAIN_SUMS=1 leaves it out, for who wants the sums of generated kernels: their order is written down, and the
    same in every version.
    """
    if device.target.plain_sums or not isinstance(device, LibraryDevice):
        return ""
    return device.library() or ""


def library_candidates(kernel: Kernel, device: Device) -> list[Library]:
    """Returns the library's way to compute a kernel, where it has one; PICOGRAD_SHOW=plan says why it has none.

    Of several splits the first is taken whose product the library has an algorithm for: one without an epilogue of its own,
    say, where a library is too old for that.
    """
    name = library_of(device)
    if not name or not isinstance(device, LibraryDevice):
        return []
    splits = unfuse(kernel)
    if isinstance(splits, str):
        show("plan", lambda: f"{kernel.name}: {name} is no candidate: {splits}.")
        return []
    for split in splits:
        try:
            return [device.way_of(split.product)]
        except DeviceError as error:
            note_failure(kernel, name, split.product, error.fact)
    return []


def note_failure(kernel: Kernel, name: str, product: PlainProduct, reason: str) -> None:
    """Notes that a library failed and is no candidate for a kernel: what is generated does without it."""
    note("library_failures")
    own = f" ({product.epilogue})" if product.epilogue != Epilogue() else ""
    show("plan", lambda: f"{kernel.name}: {name}{own} is no candidate: {reason}")


def split_of(kernel: Kernel, choice: Library) -> Split:
    """Returns the split of a kernel that a choice is about."""
    splits = unfuse(kernel)
    assert not isinstance(splits, str), f"{kernel.name} has no split, but a library was chosen for it"
    return next(split for split in splits if split.product == choice.product)


def rest_of(split: Split, choice: Library) -> Kernel:
    """Returns what is generated beside a call of the library; its params end with the memory that the library works in."""
    workspace = (Param(dtypes.uint8, choice.workspace_nbytes, "scratch"),) if choice.workspace_nbytes else ()
    return replace(split.generated, params=(*split.kernel.params, *workspace))


def library_binary(kernel: Kernel, split: Split, choice: Library, generated: Binary | None) -> Binary:
    """Returns a kernel's code: a call of the library, among the launches of what else was generated for it."""
    product, params = choice.product, rest_of(split, choice).params
    work = 2 * product.batch * product.m * product.n * product.k
    launches = [] if generated is None else [*generated.launches]
    assert len(launches) == len(split.kernel.phases) - 1, "each phase that stores elements is one launch"
    launches.insert(split.place, Launch(f"{kernel.name}_library", 1, 1, work))
    call = LibraryCall(choice, split.place, len(params) - 1 if choice.workspace_nbytes else None)
    if generated is None:
        return Binary(kernel.name, write_library(call), params, (), tuple(launches))
    return Binary(kernel.name, write_library(call, generated.data), generated.params, (), tuple(launches))
