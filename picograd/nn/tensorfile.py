"""The safetensors format: a JSON header with names, dtypes, shapes and byte ranges, then the bytes.

In:    arrays by name, or the bytes of a file
Out:   `encode`, `decode`
Next:  picograd/transforms/jit.py

Source: huggingface/safetensors, README, "Format". 8 bytes of header length (little endian), the header, the data;
the byte ranges follow each other with no gap, so that a file cut short or damaged is noticed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import DataError
from picograd.tensor.host import Array

NAMES: dict[str, DType] = {
    "BOOL": dtypes.bool_, "U8": dtypes.uint8, "U16": dtypes.uint16, "U32": dtypes.uint32, "U64": dtypes.uint64,
    "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "F8_E4M3": dtypes.float8_e4m3, "F8_E5M2": dtypes.float8_e5m2,
    "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64,
}  # fmt: skip
BY_DTYPE = {dtype: name for name, dtype in NAMES.items()}


def encode(arrays: Mapping[str, tuple[Array, DType]], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """Returns the pieces of a file in order; wide elements come first, so that each is aligned to its size."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    pieces: list[bytes | memoryview] = []
    offset = 0
    for name in sorted(arrays, key=lambda n: (-arrays[n][1].itemsize, n)):
        array, dtype = arrays[name]
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        header[name] = {
            "dtype": BY_DTYPE[dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + data.nbytes],
        }
        offset += data.nbytes
        pieces.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *pieces]


def decode(data: Array) -> tuple[dict[str, tuple[Array, DType]], dict[str, str]]:
    """Returns the arrays by name, as views of the uint8 array `data`, and the metadata.

    Raises:
      DataError: the bytes are not an intact file of this format.
    """
    view = data.data
    length = int.from_bytes(view[:8], "little")
    if len(view) < 8 or 8 + length > len(view):
        raise DataError(f"a header of {length} bytes does not fit into {len(view)} bytes")
    try:
        header = json.loads(bytes(view[8 : 8 + length]))
    except ValueError:
        raise DataError("the header is no JSON") from None
    if not isinstance(header, dict):
        raise DataError("the header is no JSON object")
    metadata = header.pop("__metadata__", None) or {}
    body = view[8 + length :]
    entries = {name: _checked(name, entry) for name, entry in header.items()}
    end = 0
    arrays: dict[str, tuple[Array, DType]] = {}
    for name, (dtype, shape, start, stop) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if start != end or stop > len(body):
            raise DataError(f"tensor {name} has bytes {start}:{stop}, where {end} follows, of {len(body)}")
        arrays[name] = (np.frombuffer(body[start:stop], dtype.numpy).reshape(shape), dtype)
        end = stop
    if end != len(body):
        raise DataError(f"{len(body) - end} bytes after the last tensor belong to none")
    return {name: arrays[name] for name in header}, metadata


def _checked(name: str, entry: Any) -> tuple[DType, tuple[int, ...], int, int]:
    """Returns (dtype, shape, first byte, byte after the last) of a header entry."""
    try:
        shape = tuple(int(n) for n in entry["shape"])
        start, stop = (int(n) for n in entry["data_offsets"])
        dtype = NAMES.get(entry["dtype"])
    except (TypeError, KeyError, ValueError):
        raise DataError(f"the header entry of tensor {name} is incomplete") from None
    if dtype is None:
        raise DataError(f"tensor {name} has dtype {entry['dtype']}, which picograd does not have")
    if min((0, start, *shape)) < 0 or stop - start != math.prod(shape) * dtype.itemsize:
        raise DataError(f"tensor {name} of shape {shape} and dtype {dtype} does not fill bytes {start}:{stop}")
    return dtype, shape, start, stop
