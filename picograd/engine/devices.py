"""The devices by name: made when first asked for, so that importing picograd needs none of their drivers.

In:    a device's name
Out:   its Compiler (or none, for the evaluator);  `usable`, `why_not`, `hint_of`; `memory_of`; `default_device`,
       `usable_device`: its name as picograd spells it
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache, partial
from sys import intern
from typing import TYPE_CHECKING, Any

import numpy as np

from picograd.config import DEVICES, setting
from picograd.device import chosen_device, device, named
from picograd.errors import ArgumentError, CompileError, DeviceError, PicogradError
from picograd.interrupts import AtDeath
from picograd.ir.backend import MemoryCount, MemoryUse
from picograd.loading import load_late

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from picograd.engine.compiler import Compiler

FACTORIES = {name: f"picograd.devices.{name.lower()}.backend" for name in DEVICES}  # modules that make a Compiler
EVALUATOR, COMPUTES_NOTHING = "NUMPY", "NULL"
_evaluator_memory = MemoryCount()


class _CountedArray(weakref.ref[np.ndarray[Any, Any]]):
    """A weak reference to an array of the evaluator, and the count of its bytes while it is alive."""

    __slots__ = ("held",)
    held: AtDeath


_counted_arrays: dict[int, _CountedArray] = {}
_compilers: dict[str, Compiler] = {}  # NOTE: functools.cache would distinguish a `device` from the string that it equals.


def compiler_for(name: str) -> Compiler:
    """Returns the Compiler of a device; a backend's driver is loaded here and nowhere earlier.

    Raises:
      DeviceError: there is no such device, or this machine cannot use it.
    """
    if name not in _compilers:
        factory = _factory(name)
        if factory is None:
            raise _unknown(name, usable_for_values())
        try:
            _compilers.setdefault(name, factory())
        except (DeviceError, CompileError) as error:  # a device without its compiler cannot be used either
            raise DeviceError(error.fact, error.hint, usable=usable_for_values()) from None
    return _compilers[name]


def check_usable(name: str) -> None:
    """Checks that this machine can use a device, whose driver is loaded.

    Raises:
      DeviceError: there is no such device, or this machine cannot use it.
    """
    if name != EVALUATOR:
        compiler_for(name)


def compiler_in_use(name: str) -> Compiler | None:
    """Returns the Compiler of a device that this process has used, else None."""
    return _compilers.get(name)


def check_exists(name: str, lists_usable: bool = True) -> None:
    """Checks that there is a device of that name, on this machine or another; does not load its driver.

    Args:
      lists_usable:  True: an error lists the devices that can be used here, which loads their drivers

    Raises:
      DeviceError: there is no such device.
    """
    if name != EVALUATOR and name not in FACTORIES and name not in _plugins():
        raise _unknown(name, usable_for_values() if lists_usable else ())


def _unknown(name: str, usable: tuple[str, ...]) -> DeviceError:
    fact = f"{name}: this is not a device; the devices are {', '.join([*FACTORIES, EVALUATOR, *_plugins()])}."
    hint = 'use "CPU", which is always there; PICOGRAD_DEVICE=CPU makes it the default.'
    return DeviceError(fact, 'use "null": shapes and no values.' if name == "META" else hint, usable=usable)


def memory_of(name: str) -> MemoryUse:
    """Returns the count of a device's memory.

    Raises:
      DeviceError: there is no such device, or this machine cannot use it.
    """
    return _evaluator_memory if name == EVALUATOR else compiler_for(name).device.memory


def counted(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns an array that counts as memory of the evaluator while it is alive."""
    number = id(array)  # unique while the array is alive
    reference = _CountedArray(array, partial(_counted_arrays.pop, number))
    reference.held = _evaluator_memory.take(array.nbytes)
    _counted_arrays[number] = reference
    return array


def _factory(name: str) -> Callable[[], Compiler] | None:
    module = FACTORIES.get(name)
    if module is not None:
        return load_late(module).make_compiler
    plugin = _plugins().get(name)
    return None if plugin is None else _loaded(name, plugin)


def _plugins() -> dict[str, EntryPoint]:
    """Returns the entry points of the devices that other packages bring, by name."""
    from importlib.metadata import entry_points  # takes a tenth of picograd's own import, and is seldom needed

    return {plugin.name.upper(): plugin for plugin in entry_points(group="picograd.devices")}


def _loaded(name: str, plugin: EntryPoint) -> Callable[[], Compiler]:
    """Returns the function that an entry point names.

    Raises:
      DeviceError: it cannot be imported, or is not there.
    """
    try:
        loaded: Callable[[], Compiler] = plugin.load()
    except Exception as error:  # another package's module may raise anything; other devices are still listed
        fact = f"{name}: the entry point {plugin.value!r} of picograd.devices cannot be loaded ({error})."
        hint = "it must name a module and a function in it that makes a Compiler: docs/accelerator.md"
        raise DeviceError(fact, hint) from error
    return loaded


def why_not(name: str) -> str | None:
    """Returns the reason why this machine cannot use a device, or None."""
    plugin = _plugins().get(name) if name not in FACTORIES else None
    return reason_of(load_late(FACTORIES[name]).check_usable if plugin is None else partial(_loaded, name, plugin))


def reason_of(check: Callable[[], object]) -> str | None:
    """Returns the fact of the error that a check raises, or None."""
    try:
        check()
    except PicogradError as error:
        return error.fact
    return None


def hint_of(name: str) -> str:
    """Returns one thing to do if a device cannot be used; "" if its backend names none."""
    return getattr(load_late(FACTORIES[name]), "HINT", "") if name in FACTORIES else ""


def usable_for_values() -> tuple[str, ...]:
    """Returns the names of the devices on which this machine can compute something."""
    return tuple(name for name, reason in usable().items() if reason is None and name != COMPUTES_NOTHING)


def usable() -> dict[str, str | None]:
    """Returns for each device None, or the reason why this machine cannot use it."""
    return {**{name: why_not(name) for name in (*FACTORIES, *_plugins())}, EVALUATOR: None}


# ---- names as users write them ----
def default_device() -> str:
    """Returns the device of new tensors: the one that the program has chosen, or PICOGRAD_DEVICE."""
    chosen = chosen_device()
    return intern(chosen) if chosen else _named_by_setting(setting("PICOGRAD_DEVICE"))


@cache
def _named_by_setting(text: str) -> str:
    """Returns the device that PICOGRAD_DEVICE names; the CPU if it is empty."""
    try:
        return intern(str(named(text or "CPU")))  # the devices of two cells are compared by identity first
    except (ArgumentError, DeviceError) as error:
        raise type(error)(f"PICOGRAD_DEVICE={text}: {error.fact.removeprefix('device: ')}", "PICOGRAD_DEVICE=CPU") from None


def device_or_default(name: str | None) -> str:
    """Returns the device that an argument `device` names; None names the default one.

    Raises:
      DeviceError: there is no such device, or this machine cannot use it.
    """
    return default_device() if name is None else usable_device(name)


def gpu_named(wanted: str | int | None) -> str:
    """Returns the device that an argument of `cuda(device)` names: a number, a name, or None for the GPU.

    Raises:
      ArgumentError: it names another device, or none.
      DeviceError:   another number than 0, or this machine has no GPU.
    """
    chosen = "CUDA" if wanted is None else device("cuda", wanted) if isinstance(wanted, int) else wanted
    if device_named(chosen) != "CUDA":
        raise ArgumentError(f'cuda: needs a GPU, such as 0 or "cuda:0", got {wanted!r}.', ".to(...) moves to any device")
    return usable_device("CUDA")


def usable_device(name: str) -> str:
    """Returns a device's name as picograd spells it, once this machine can use it.

    Raises:
      ArgumentError: it is not a name.
      DeviceError:   there is no such device, or this machine cannot use it.
    """
    plain = device_named(name)
    check_usable(plain)
    return plain


def device_named(name: str) -> str:
    """Returns a device's name as picograd spells it ("cuda" and "cuda:0" are "CUDA").

    Raises:
      ArgumentError: it is not a name.
      DeviceError:   there is no device of that name.
    """
    plain = intern(str(device(name)))  # the devices of two cells are compared by identity first
    check_exists(plain)
    return plain
