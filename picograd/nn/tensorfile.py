"""The safetensors format: arrays of every dtype and text metadata, as the bytes of a file.

In:    arrays by name, or the bytes of a file
Out:   `encode`, `decode`
Next:  picograd/optim/optimizer.py

The safetensors library, loaded when first needed, writes and checks the bytes. What is ours is the dtypes, of which it
knows more than NumPy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import DataError
from picograd.tensor.exchange.host import Array

NAMES: dict[str, DType] = {
    "BOOL": dtypes.bool_, "U8": dtypes.uint8, "U16": dtypes.uint16, "U32": dtypes.uint32, "U64": dtypes.uint64,
    "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "F8_E4M3": dtypes.float8_e4m3, "F8_E5M2": dtypes.float8_e5m2,
    "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64,
}  # fmt: skip


def encode(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Returns the bytes of a file with these arrays."""
    import safetensors

    held = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # alive while their addresses are used
    specs = {
        name: safetensors.TensorSpec(dtype=a.dtype.name, shape=a.shape, data_ptr=a.ctypes.data, data_len=a.nbytes)
        for name, a in held.items()
    }
    return bytes(safetensors.serialize(specs, dict(metadata) or None))


def decode(data: bytes) -> tuple[dict[str, tuple[Array, DType]], dict[str, str]]:
    """Returns the arrays with their dtypes by name, and the metadata.

    Raises:
      DataError: the bytes are not an intact file of this format, or of a dtype that picograd does not have.
    """
    import safetensors

    try:
        entries = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    except (safetensors.SafetensorError, ValueError) as error:
        raise DataError(str(error)) from None
    arrays: dict[str, tuple[Array, DType]] = {}
    for name, entry in entries:
        dtype = NAMES.get(entry["dtype"])
        if dtype is None:
            raise DataError(f"tensor {name} has dtype {entry['dtype']}, which picograd does not have")
        arrays[name] = (np.frombuffer(entry["data"], dtype.numpy).reshape(entry["shape"]), dtype)
    header_nbytes = int.from_bytes(data[:8], "little")
    return arrays, json.loads(data[8 : 8 + header_nbytes]).get("__metadata__") or {}
