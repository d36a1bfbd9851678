"""Kernels that a vendor's library may compute: cuBLASLt, where it is installed, is a candidate of tuning.

In:    Kernel, Device
Out:   the library's name; `Library`, a candidate; `Binary`, a call of it
Called by: engine/choose.py, engine/tune.py, engine/compiler.py, engine/plan.py
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.codegen.plain_product import plain_product
from picograd.engine.show import show
from picograd.engine.watch import note
from picograd.errors import DeviceError
from picograd.ir.backend import Device, LibraryDevice
from picograd.ir.opts import Library, write_library
from picograd.ir.stages import Binary, Kernel, Launch, Param


def library_of(device: Device) -> str:
    """Returns the name of the library whose kernels are candidates on a device, with its version; "" where none is.

    PICOGRAD_PLAIN_SUMS=1 leaves it out, for who wants the sums of generated kernels: their order is written down, and the
    same in every version.
    """
    if device.target.plain_sums or not isinstance(device, LibraryDevice):
        return ""
    return device.library() or ""


def library_candidates(kernel: Kernel, device: Device) -> list[Library]:
    """Returns the library's way to compute a kernel, where it has one; PICOGRAD_SHOW=plan says why it has none."""
    name = library_of(device)
    if not name or not isinstance(device, LibraryDevice):
        return []
    product = plain_product(kernel)
    if isinstance(product, str):
        show("plan", lambda: f"{kernel.name}: {name} is no candidate: {product}.")
        return []
    try:
        return [device.way_of(product)]
    except DeviceError as error:
        note_failure(kernel, name, error.fact)
        return []


def note_failure(kernel: Kernel, name: str, reason: str) -> None:
    """Notes that a library failed and is no candidate for a kernel: the generated ones do without it."""
    note("library_failures")
    show("plan", lambda: f"{kernel.name}: {name} is no candidate: {reason}")


def library_binary(kernel: Kernel, choice: Library) -> Binary:
    """Returns a call of the library as a kernel's code; what it works in is scratch memory that the plan gives it."""
    scratch = (Param(dtypes.uint8, choice.workspace_nbytes, "scratch"),) if choice.workspace_nbytes else ()
    product = choice.product
    work = 2 * product.batch * product.m * product.n * product.k
    params = (*kernel.params, *scratch)
    return Binary(kernel.name, write_library(choice), params, (), (Launch(f"{kernel.name}_library", 1, 1, work),))
