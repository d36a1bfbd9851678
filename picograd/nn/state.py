"""State on disk: tensors as safetensors, everything else as JSON in the same file.

In:    state dicts: nested dicts and lists of tensors and plain values
Out:   `save`, `load`
Next:  picograd/transforms/jit.py

A flat dict of tensors is an ordinary safetensors file that other programs read. Files are replaced as a whole:
whoever reads one sees the old content or the new, never a half.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, DataError
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor

NAMES: dict[str, DType] = {
    "BOOL": dtypes.bool_, "U8": dtypes.uint8, "U16": dtypes.uint16, "U32": dtypes.uint32, "U64": dtypes.uint64,
    "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "F8_E4M3": dtypes.float8_e4m3, "F8_E5M2": dtypes.float8_e5m2,
    "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64,
}  # fmt: skip
STRUCTURE = "picograd"  # metadata entry with the JSON of everything but tensors
MARK = "__tensor__"


def save(state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes tensors and plain values (numbers, strings, None, in dicts and lists) to one file, bit for bit.

    Raises:
      ArgumentError: something is neither.

    >>> import tempfile, os
    >>> name = os.path.join(tempfile.mkdtemp(), "w.safetensors")
    >>> save({"w": Tensor([1.5, 2.0])}, name)
    >>> load(name)["w"].tolist()
    [1.5, 2.0]
    """
    tensors: dict[str, Tensor] = {}
    structure = _take_out(state, "", tensors)
    realize(tensors.values())
    entries: dict[str, Any] = {}
    for name, tensor in tensors.items():
        array = np.ascontiguousarray(tensor.detach().numpy())
        entries[name] = {"dtype": array.dtype.name, "shape": array.shape, "data": array.tobytes()}
    flat = all(isinstance(value, Tensor) for value in state.values())
    metadata = None if flat else {STRUCTURE: json.dumps(structure)}
    _write_whole(Path(path), safetensors.serialize(entries, metadata))


def load(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Any]:
    """Reads what `save`, or any safetensors writer, wrote; tensors go to `device`.

    Raises:
      DataError: the file is corrupt, cut short, or of another format.
    """
    data = Path(path).read_bytes()
    try:
        entries = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
        tensors = {name: _tensor(name, entry, device) for name, entry in entries}
        text = _metadata(data).get(STRUCTURE)
        return tensors if text is None else _put_back(json.loads(text), tensors)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"load: {os.fspath(path)} is no intact safetensors file: {error}.") from None


def _tensor(name: str, entry: Mapping[str, Any], device: str | None) -> Tensor:
    dtype = NAMES.get(entry["dtype"])
    if dtype is None:
        raise DataError(f"load: tensor {name} has dtype {entry['dtype']}, which picograd does not have.")
    array = np.frombuffer(entry["data"], dtype.numpy).reshape(entry["shape"])
    return Tensor(array, dtype, device)


def _metadata(data: bytes) -> dict[str, str]:
    length = int.from_bytes(data[:8], "little")
    found: dict[str, str] = json.loads(data[8 : 8 + length]).get("__metadata__") or {}
    return found


def _take_out(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Returns `value` with each tensor replaced by its name in `tensors`."""
    if isinstance(value, Tensor):
        tensors[path] = value
        return {MARK: path}
    if isinstance(value, Mapping):
        return {str(k): _take_out(v, f"{path}.{k}" if path else str(k), tensors) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_take_out(v, f"{path}.{i}" if path else str(i), tensors) for i, v in enumerate(value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ArgumentError(f"save: {path} is a {type(value).__name__}; tensors, numbers, strings, dicts and lists fit.")


def _put_back(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict):
        return tensors[value[MARK]] if set(value) == {MARK} else {k: _put_back(v, tensors) for k, v in value.items()}
    return [_put_back(v, tensors) for v in value] if isinstance(value, list) else value


def _write_whole(path: Path, data: bytes) -> None:
    """Replaces a file in one step."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            os.unlink(file.name)
            raise
    os.replace(file.name, path)
