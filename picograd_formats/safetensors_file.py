"""Safetensors files: tensors by name, all other values of a state as JSON in the metadata, and a checksum of both.

The safetensors library, loaded on first use, writes and checks the bytes. Ours are the dtypes, some of which NumPy lacks,
and the checksum, since the format does not detect a flipped bit in a number. A flat dict of tensors is an ordinary file.
The format has no views: tensors on the same memory come back separate.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, DataError
from picograd.files import PathName, opened
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor
from picograd_formats.torch_file import hint_for

# ---- arrays ----
HEADER_NBYTES_MAX = 100_000_000  # as in the safetensors library
Array = np.ndarray[Any, Any]
NAMES: dict[str, DType] = {
    "BOOL": dtypes.bool_, "U8": dtypes.uint8, "U16": dtypes.uint16, "U32": dtypes.uint32, "U64": dtypes.uint64,
    "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "F8_E4M3": dtypes.float8_e4m3, "F8_E5M2": dtypes.float8_e5m2,
    "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64,
}  # fmt: skip


def encode(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Returns the bytes of a file with these arrays."""
    import safetensors

    held = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # alive while addresses are used
    specs = {
        name: safetensors.TensorSpec(dtype=a.dtype.name, shape=a.shape, data_ptr=a.ctypes.data, data_len=a.nbytes)
        for name, a in held.items()
    }
    return bytes(safetensors.serialize(specs, dict(metadata) or None))


def decode(data: bytes) -> tuple[dict[str, tuple[Array, DType]], dict[str, str]]:
    """Returns the arrays with their dtypes by name, and the metadata.

    Raises:
      DataError: the bytes are not an intact file of this format, or have a dtype or shape that picograd lacks.
    """
    import safetensors

    try:
        entries = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
        header_nbytes = int.from_bytes(data[:8], "little")
        metadata = json_of(data[8 : 8 + header_nbytes].decode()).get("__metadata__") or {}
    except (safetensors.SafetensorError, ValueError) as error:
        raise DataError(error.fact if isinstance(error, DataError) else cut_short(data) or str(error)) from None
    del data  # the entries are copies: unless the caller keeps the bytes, they are freed now
    arrays: dict[str, tuple[Array, DType]] = {}
    for name, entry in entries:
        dtype = NAMES.get(entry["dtype"])
        if dtype is None:
            raise DataError(f"tensor {name} has dtype {entry['dtype']}, which picograd does not have")
        try:
            arrays[name] = (np.frombuffer(entry["data"], dtype.numpy).reshape(entry["shape"]), dtype)
        except (ValueError, OverflowError):  # NumPy's limits of axes and lengths
            raise DataError(f"tensor {name} has the impossible shape {str(entry['shape'])[:60]}") from None
    return arrays, metadata


def map_arrays(path: PathName) -> dict[str, Array]:
    """Returns the arrays of a file by name, as views: their bytes are read from the disk when they are used.

    Raises:
      FileError: it cannot be read.
      DataError: it is not an intact file of this format, or has a dtype that picograd lacks.
    """
    with opened("map_arrays", path) as file:
        is_empty = not file.read(1)
        data = memoryview(b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        return _mapped(data)
    except DataError as error:
        raise DataError(f"{path}: {error.fact}", error.hint) from None


def _mapped(data: memoryview) -> dict[str, Array]:
    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or start > min(len(data), HEADER_NBYTES_MAX):
        raise DataError(
            f"it has {len(data):,} bytes, and its header would end at {start:,}: it is cut short, or not safetensors."
        )
    arrays, past = dict[str, Array](), 0
    try:
        header = json_of(bytes(data[8:start]).decode())
        header.pop("__metadata__", None)
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            dtype, shape, (first, end) = NAMES.get(entry["dtype"]), entry["shape"], entry["data_offsets"]
            if dtype is None:
                raise DataError(f"tensor {name:.60} has dtype {str(entry['dtype'])[:20]}, which picograd does not have.")
            if (
                first != past
                or end - first != math.prod(shape) * dtype.itemsize
                or any(type(n) is not int or n < 0 for n in shape)
            ):
                raise DataError(f"tensor {name:.60} of {str(shape)[:60]} has the bytes {first} to {end}, which do not fit.")
            if start + end > len(data):
                raise DataError(
                    f"it is cut short: it has {len(data):,} bytes, and tensor {name:.60} ends at {start + end:,}."
                )
            arrays[name], past = np.frombuffer(data[start + first : start + end], dtype.numpy).reshape(shape), end
    except (AttributeError, TypeError, KeyError, ValueError, OverflowError) as error:
        raise DataError(error.fact if isinstance(error, DataError) else f"its header is damaged ({error}).") from None
    return arrays


def cut_short(data: bytes) -> str:
    """Returns the message that a file is shorter than its header says, or ""."""
    header_nbytes = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json_of(data[8:header_nbytes].decode())
        ends = [header_nbytes + entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return f"it is cut short: it has {len(data):,} of {max(ends):,} bytes" if len(data) < max(ends) else ""
    except (DataError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return ""  # other damage is reported by the library


def json_of(text: str) -> Any:
    """Returns the value of some JSON.

    Raises:
      DataError: it is damaged or nested too deeply, or a dict in it has a repeated key.
    """
    try:
        return json.loads(text, object_pairs_hook=_dict_of)
    except RecursionError:
        raise DataError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise DataError(error.fact if isinstance(error, DataError) else f"its JSON is damaged: {error}") from None


def _dict_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise DataError("a dict in its JSON has a duplicate key")
    return made


def digest_of(text: str, arrays: Mapping[str, Array]) -> str:
    """Returns the SHA-256 of some text, and of names, shapes, dtypes and elements in the order of names."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode("utf-8", "surrogatepass"))
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


# ---- states ----
STRUCTURE = "picograd"  # metadata entry with the JSON of everything but tensors
DIGEST = "picograd.sha256"  # metadata entry with the checksum
FORMAT = {"format": "pt"}  # required by programs that read PyTorch's weights from a file with metadata
# A dict with one of these as its only key is the form of another value.
TENSOR, TUPLE = "__tensor__", "__tuple__"
INTEGERS = "__integers__"  # a dict with integers as keys, which are strings in JSON
PLAIN = "__dict__"  # a dict that itself has one of these as its only key
MARKS = frozenset({TENSOR, TUPLE, INTEGERS, PLAIN})
TensorOf = Callable[[Array, DType], Tensor]


def state_bytes(state: Any) -> bytes:
    """Returns the bytes of a file with a state.

    Raises:
      ArgumentError: a value is not supported, or the keys of a dict are not all strings or all integers.
    """
    tensors: dict[str, Tensor] = {}
    structure = _take_out(state, "", tensors)
    realize(tensors.values())
    # Flat: each tensor under its own name.
    flat = isinstance(state, Mapping) and all(tensors.get(name) is value for name, value in state.items())
    arrays = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
    text = "" if flat else json.dumps(structure)
    return encode(arrays, {**(FORMAT if flat else {STRUCTURE: text}), DIGEST: digest_of(text, arrays)})


def read_state(file: BinaryIO, tensor_of: TensorOf) -> Any:
    """Returns the state in a file of `state_bytes`, or of any other writer of safetensors.

    Raises:
      DataError: the file is damaged, or of another format.
    """
    arrays, metadata = decode(file.read())
    text, expected = metadata.get(STRUCTURE, ""), metadata.get(DIGEST)
    actual = digest_of(text, {name: array for name, (array, _) in arrays.items()}) if expected is not None else None
    if actual != expected:
        raise DataError(f"its contents have SHA-256 {actual}, its header says {expected}")
    tensors = {name: tensor_of(*arrays.pop(name)) for name in list(arrays)}  # each array is freed once it is copied
    try:
        return _put_back(json_of(text), tensors) if text else tensors
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"its structure is damaged ({error})") from None


def _take_out(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Returns `value` with each tensor replaced by its name in `tensors`."""
    if isinstance(value, Tensor):
        name = path or "tensor"
        while name in tensors or name == "__metadata__":  # {"a": {"b": x}, "a.b": y}; the format's own name
            name += "_"
        tensors[name] = value
        return {TENSOR: name}
    if isinstance(value, Mapping):
        return _dict_taken_out(value, path, tensors)
    if isinstance(value, (list, tuple)):
        items = [_take_out(v, f"{path}.{i}" if path else str(i), tensors) for i, v in enumerate(value)]
        return {TUPLE: items} if isinstance(value, tuple) else items
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ArgumentError(
        f"save: {path or 'the state'} is a {type(value).__name__}; tensors, numbers, strings, dicts, lists and tuples fit.",
        hint=hint_for(value),
    )


def _dict_taken_out(value: Mapping[Any, Any], path: str, tensors: dict[str, Tensor]) -> Any:
    is_numbered = bool(value) and all(type(key) is int for key in value)
    for key in value:
        if not is_numbered and not isinstance(key, str):
            where = path or "the state"
            raise ArgumentError(
                f"save: {where} has the key {key!r}; keys must be all strings or all integers.",
                hint="a .pt file has keys of every kind.",
            )
    taken = {str(key): _take_out(item, f"{path}.{key}" if path else str(key), tensors) for key, item in value.items()}
    if is_numbered:
        return {INTEGERS: taken}
    return {PLAIN: taken} if len(taken) == 1 and MARKS & taken.keys() else taken


def _put_back(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Returns a JSON value with its tensors and containers restored."""
    if isinstance(value, list):
        return [_put_back(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not MARKS & value.keys():
        return {name: _put_back(item, tensors) for name, item in value.items()}
    ((mark, held),) = value.items()
    if mark == TENSOR:
        return tensors[held]
    if mark == TUPLE and isinstance(held, list):
        return tuple(_put_back(item, tensors) for item in held)
    if mark == TUPLE or not isinstance(held, dict):
        raise DataError(f"its structure is damaged ({mark})")
    items = {name: _put_back(item, tensors) for name, item in held.items()}
    if mark == PLAIN:
        return items
    if any(str(int(name)) != name for name in items):
        raise DataError("its structure is damaged (integers)")
    return {int(name): item for name, item in items.items()}
