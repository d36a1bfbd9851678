"""State on disk: tensors as safetensors, everything else as JSON in the same file.

In:    state dicts: nested dicts and lists of tensors and plain values
Out:   `save`, `load`
Next:  picograd/nn/tensorfile.py

A flat dict of tensors is an ordinary safetensors file that other programs read. Files are replaced as a whole:
whoever reads one sees the old content or the new, never a half.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from picograd.errors import ArgumentError, DataError
from picograd.nn.tensorfile import decode, encode
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor

STRUCTURE = "picograd"  # metadata entry with the JSON of everything but tensors
MARK = "__tensor__"
INTEGERS = "__integers__"  # marks a dict whose keys are integers, which JSON has as strings
PICKLED = (b"PK\x03\x04", b"\x80\x02")  # how files of torch.save begin


@runtime_checkable
class BinaryFile(Protocol):
    """An open file of bytes, io.BytesIO among them."""

    def read(self, count: int = -1, /) -> bytes:
        """Returns the next bytes."""
        ...

    def write(self, data: bytes, /) -> Any:
        """Adds bytes."""
        ...


def save(state: Any, path: str | os.PathLike[str] | BinaryFile) -> None:
    """Writes `state`, tensors and plain values (numbers, strings, None) in dicts and lists, to one file, bit for bit.

    `path` names the file, or is a file that is open for writing bytes; there the state goes on from where it stands.

    Raises:
      ArgumentError: something is neither, or a key of a dict is no string while not all of them are integers.

    >>> import tempfile, os
    >>> name = os.path.join(tempfile.mkdtemp(), "w.safetensors")
    >>> save({"w": Tensor([1.5, 2.0])}, name)
    >>> load(name)["w"].tolist()
    [1.5, 2.0]
    """
    tensors: dict[str, Tensor] = {}
    structure = _take_out(state, "", tensors)
    realize(tensors.values())
    # Flat: each tensor under its own name.
    flat = isinstance(state, Mapping) and all(tensors.get(name) is value for name, value in state.items())
    arrays = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
    data = encode(arrays, {} if flat else {STRUCTURE: json.dumps(structure)})
    if isinstance(path, (str, os.PathLike)):
        _write_whole(Path(path), data)
    else:
        path.write(data)


def load(
    path: str | os.PathLike[str] | BinaryFile,
    device: str | None = None,
    *,
    map_location: str | None = None,
    weights_only: bool = True,
) -> Any:
    """Reads what `save`, or any safetensors writer, wrote.

    Args:
      path:          the file's name, or a file that is open for reading bytes, which is read to its end
      device:        where the tensors go
      map_location:  PyTorch's name of `device`
      weights_only:  changes nothing: such a file holds no code, whatever is asked

    Raises:
      DataError: the file is corrupt, cut short, or of another format.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "w.safetensors")
    >>> save({"step": 3, "weights": [Tensor([1.5])]}, path)
    >>> load(path)
    {'step': 3, 'weights': [Tensor([1.5])]}
    """
    device = device if map_location is None else map_location
    if isinstance(path, (str, os.PathLike)):
        data, called = Path(path).read_bytes(), os.fspath(path)
    else:
        data, called = path.read(), "what was read"
    try:
        arrays, metadata = decode(data)
        structure = json.loads(metadata[STRUCTURE]) if STRUCTURE in metadata else None
        tensors = {name: Tensor(array, dtype, device) for name, (array, dtype) in arrays.items()}
        return tensors if structure is None else _put_back(structure, tensors)
    except (DataError, ValueError, KeyError) as error:
        fact = error.fact if isinstance(error, DataError) else f"its structure is damaged ({error})"
        hint = "write it with safetensors.torch.save_file there." if data.startswith(PICKLED) else None
        raise DataError(f"load: {called} is no intact safetensors file: {fact}.", hint=hint) from None


def _take_out(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Returns `value` with each tensor replaced by its name in `tensors`."""
    if isinstance(value, Tensor):
        name = path or "tensor"
        while name in tensors or name == "__metadata__":  # {"a": {"b": x}, "a.b": y}; the format's own name
            name += "_"
        tensors[name] = value
        return {MARK: name}
    if isinstance(value, Mapping):
        if value and all(type(key) is int for key in value):
            return {INTEGERS: _take_out({str(key): item for key, item in value.items()}, path, tensors)}
        for key in value:
            if not isinstance(key, str):
                where = path or "the state"
                raise ArgumentError(
                    f"save: {where} has the key {key!r}; only strings, or integers alone, come back as they are."
                )
        return {k: _take_out(v, f"{path}.{k}" if path else k, tensors) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_take_out(v, f"{path}.{i}" if path else str(i), tensors) for i, v in enumerate(value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ArgumentError(f"save: {path} is a {type(value).__name__}; tensors, numbers, strings, dicts and lists fit.")


def _put_back(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict) and set(value) == {INTEGERS} and isinstance(value[INTEGERS], dict):
        return {int(key): _put_back(item, tensors) for key, item in value[INTEGERS].items()}
    if isinstance(value, dict):
        return tensors[value[MARK]] if set(value) == {MARK} else {k: _put_back(v, tensors) for k, v in value.items()}
    return [_put_back(v, tensors) for v in value] if isinstance(value, list) else value


def _write_whole(path: Path, data: bytes) -> None:
    """Replaces a file in one step."""
    beside = path.with_name(f"{path.name}.{os.urandom(8).hex()}.part")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
