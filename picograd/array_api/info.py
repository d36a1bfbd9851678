"""What this namespace can do.

In:    nothing
Out:   `Info`: capabilities, devices, dtypes
"""

from __future__ import annotations

from picograd import dtype as dtypes_of
from picograd.array_api.array import checked_choice
from picograd.array_api.data_types import KINDS, STANDARD
from picograd.dtype import DType
from picograd.engine.devices import usable_for_values
from picograd.tensor.exchange.host import default_device, device_named


class Info:
    """Answers of the inspection functions.

    >>> Info().default_dtypes()["real floating"]
    float32
    """

    def capabilities(self) -> dict[str, bool | int | None]:
        """Returns what depends on the library: bool masks index, shapes depend on values, axes are at most 64."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Returns the device of new arrays, by PICOGRAD_DEVICE."""
        return default_device()

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """Returns the default dtype of each kind, on every device."""
        if device is not None:
            device_named(device)
        integer = dtypes_of.default_int
        return {"real floating": dtypes_of.default_float, "integral": integer, "indexing": dtypes_of.int64}

    def devices(self) -> tuple[str, ...]:
        """Returns the names of the devices that this machine can use."""
        return usable_for_values()

    def dtypes(
        self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """Returns the dtypes of the standard by name, or those of some kinds, on every device.

        Args:
          kind:  "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric",
                 or a tuple of these

        Raises:
          ArgumentError: another kind.
        """
        if device is not None:
            device_named(device)
        wanted = tuple(KINDS) if kind is None else (kind,) if isinstance(kind, str) else kind
        for one in wanted:
            checked_choice("dtypes", "kind", one, tuple(KINDS))
        letters = "".join(KINDS[one] for one in wanted)
        return {name: dtype for name, dtype in STANDARD.items() if dtype.kind in letters}


def __array_namespace_info__() -> Info:
    """Returns what this namespace can do.

    >>> __array_namespace_info__().capabilities()["boolean indexing"]
    True
    """
    return Info()
