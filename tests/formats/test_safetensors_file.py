"""The safetensors format, compared with its own library: each reads what the other writes and refuses what it refuses."""

from __future__ import annotations

import io
import json
import os
import random
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from picograd import dtype as dtypes
from picograd.errors import DataError
from picograd.formats.safetensors_file import NAMES, read_array, read_header, write_arrays

MUTANTS = int(os.environ.get("FILE_MUTANTS", "400"))


def written(arrays: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    file = io.BytesIO()
    write_arrays(file, arrays, metadata or {})
    return file.getvalue()


def read(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    file = io.BytesIO(data)
    entries, metadata = read_header(file, len(data))
    return {name: read_array(file, entry) for name, entry in entries.items()}, metadata


def example(rng: np.random.Generator) -> dict[str, np.ndarray]:
    most = {dtype: 2 if dtype is dtypes.bool_ else 256 for dtype in NAMES.values()}
    arrays = {f"of {t}": rng.integers(0, n, (3, 8), dtype=np.uint8).view(t.numpy) for t, n in most.items()}
    odd = np.asfortranarray(np.eye(2))[:, ::-1]
    return {**arrays, "one": np.array(1.5), "empty": np.zeros((0, 3), np.float32), "ä/é": odd}


def test_the_library_reads_what_is_written(rng: np.random.Generator) -> None:
    arrays = example(rng)
    found = dict(safetensors.deserialize(written(arrays, {"a": "ä", "b": ""})))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (tuple(found[name]["shape"]), bytes(found[name]["data"])) == (array.shape, array.tobytes())
        assert NAMES[found[name]["dtype"]].numpy == array.dtype


def test_what_the_library_writes_is_read(rng: np.random.Generator) -> None:
    arrays = {name: np.ascontiguousarray(array) for name, array in example(rng).items()}
    specs = {
        name: safetensors.TensorSpec(dtype=a.dtype.name, shape=a.shape, data_ptr=a.ctypes.data, data_len=a.nbytes)
        for name, a in arrays.items()
    }
    for data in (bytes(safetensors.serialize(specs, {"a": "ä"})), written(arrays, {"a": "ä"})):
        found, metadata = read(data)
        assert metadata == {"a": "ä"} and found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            assert found[name].tobytes() == array.tobytes()


def test_arrays_are_aligned(rng: np.random.Generator) -> None:
    data = written(example(rng), {"odd": "x"})
    entries, _ = read_header(io.BytesIO(data), len(data))
    assert all(entry.start % entry.dtype.itemsize == 0 for entry in entries.values())


def test_no_arrays_at_all() -> None:
    assert read(written({}))[0] == {} and safetensors.deserialize(written({})) == []


def with_header(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def one(dtype: Any = "F32", shape: Any = (1,), place: Any = (0, 4)) -> dict[str, Any]:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": place}}


HEADERS: list[tuple[Any, int]] = [  # with the number of bytes after it
    (b"{}", 0), (b"{}", 1), (b"[]", 0), (b"null", 0), (b"{", 0), (b"{} x", 0), (b"{}  ", 0), (b"\xff{}", 0),
    (b'{"__metadata__": null}', 0), (b'{"__metadata__": {"a": 1}}', 0), (b'{"__metadata__": []}', 0),
    (one(), 4), (one(), 3), (one(), 5), (one(place=(0, 3)), 4), (one(place=(4, 8)), 8), (one(place=(4, 0)), 4),
    (one(place=(0,)), 4), (one(shape=[-1]), 4), (one(shape=[1.0]), 4), (one(shape=[True]), 4), (one(shape=1), 4),
    (one(shape=[]), 4), (one(shape=[2**40, 2**40]), 4), (one(shape=[0, 5], place=(0, 0)), 0), (one("f32"), 4),
    (one("F33"), 4), (one(None), 4), ({"a": 1}, 0), ({"a": {}}, 0), ({**one(), "b": one()["a"]}, 4),
    ({**one(), "b": one()["a"]}, 8), ({**one(), "b": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}, 4),
    ({**one(), "b": {"dtype": "U8", "shape": [0], "data_offsets": [4, 4]}}, 4), ({"a": {**one()["a"], "more": 1}}, 4),
]  # fmt: skip
CRAFTED = [b"", b"1234567", bytes(8), b"\xff" * 8 + b"{}", *(with_header(header, bytes(n)) for header, n in HEADERS)]


def accepted(read: Any, data: bytes) -> bool:
    try:
        read(data)
        return True
    except (DataError, safetensors.SafetensorError, ValueError):
        return False


@pytest.mark.parametrize("number", range(len(CRAFTED)))
def test_crafted_files_have_the_verdict_of_the_library(number: int) -> None:
    assert accepted(read, CRAFTED[number]) == accepted(safetensors.deserialize, CRAFTED[number])


def test_mutants_have_the_verdict_of_the_library() -> None:
    """Those apart that are refused here alone: dtypes that picograd does not have, a key twice."""
    chance = random.Random(0)
    whole = written({"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.ones(2, np.int8)}, {"k": "v"})
    header_nbytes = int.from_bytes(whole[:8], "little")
    num_accepted = 0
    for _ in range(MUTANTS):
        header = bytearray(whole[8 : 8 + header_nbytes])
        for _ in range(chance.choice([1, 1, 2])):
            place = chance.randrange(len(header))
            header[place] = chance.choice([header[place] ^ 1 << chance.randrange(7), *b"0123456789,:{}[] "])
        data = with_header(bytes(header), whole[8 + header_nbytes :])
        theirs = accepted(safetensors.deserialize, data)
        num_accepted += theirs
        if accepted(read, data) != theirs:
            assert theirs
            with pytest.raises(DataError, match="which picograd does not have|has a key twice"):
                read(data)
    assert 0 < num_accepted < MUTANTS
