"""Mutants of files: whatever is changed in one, it reads as something or is a DataError, at once and in little memory.

`FILE_MUTANTS=10000 python -m pytest tests/formats/test_mutations.py` tries as many of each kind.
"""

from __future__ import annotations

import io
import os
import random
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import DataError, Tensor

MUTANTS = int(os.environ.get("FILE_MUTANTS", "150"))
PEAK_NBYTES_MAX = 20 * 2**20  # a file has 3 KB


def state(library: Any) -> dict[str, Any]:
    """A checkpoint with views, dtypes and values of most kinds, in either library."""
    x = library.tensor(np.arange(12, dtype=np.float32)).reshape(3, 4)
    tensors = {"x": x, "row": x[1], "turned": x.T, "half": x[0].half(), "flags": x[2] > 9, "wide": x[:1].expand(6, 4)}
    return {
        "model": OrderedDict(tensors),
        "optimizer": {"state": {0: {"step": library.tensor(3.0), "m": x + 1}}, "groups": [{"betas": (0.9, 0.99)}]},
        "epoch": 300, "name": "räksmörgås", "big": 2**70, "none": [None, True, -1.5],
    }  # fmt: skip


def of_torch(is_zip: bool) -> bytes:
    file = io.BytesIO()
    torch.save(state(torch), file, _use_new_zipfile_serialization=is_zip)
    return file.getvalue()


def of_picograd() -> bytes:
    file = io.BytesIO()
    pg.save(state(pg), file)
    return file.getvalue()


def of_numpy(save: Callable[..., Any]) -> bytes:
    file = io.BytesIO()
    save(file, a=np.arange(12.0).reshape(3, 4), b=np.ones(2, bool))
    return file.getvalue()


FILES: dict[str, Callable[[], bytes]] = {
    "zip": lambda: of_torch(True),
    "stream": lambda: of_torch(False),
    "safetensors": of_picograd,
    "npz": lambda: of_numpy(np.savez),
    "npz packed": lambda: of_numpy(np.savez_compressed),
}
NUMBERS = [0, 1, 2, 0x7F, 0x80, 0xFF]


def mutant(data: bytes, chance: random.Random) -> bytes:
    """Returns a file with one to four changes: bits, bytes, numbers, parts that are cut, doubled, moved or exchanged."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        place, length = chance.randrange(len(changed)), chance.choice([1, 1, 2, 4, 8, 32])
        part = bytes(changed[place : place + length])
        kind = chance.randrange(7)
        if kind == 0:
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[place] = chance.choice(NUMBERS)
        elif kind == 2:
            changed[place : place + length] = bytes([chance.choice(NUMBERS)]) * len(part)
        elif kind == 3:
            del changed[place : place + length]
        elif kind == 4:
            changed[place:place] = part
        elif kind == 5:
            other = chance.randrange(len(changed))
            changed[other : other + len(part)] = part
        else:
            changed[place:] = changed[place:][: chance.randrange(1, len(changed) - place + 1)]
        if not changed:
            return b""
    return bytes(changed)


def look_at(value: Any, depth: int = 0) -> None:
    """Reads every tensor of what was loaded that is not enormous by its strides."""
    if isinstance(value, Tensor) and value.numel() < 10_000:
        value.numpy(force=True)
    elif isinstance(value, (dict, list, tuple)) and depth < 20:
        for part in value.values() if isinstance(value, dict) else value:
            look_at(part, depth + 1)


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    pg.load(io.BytesIO(of_picograd()))  # what is loaded late is there now
    tracemalloc.start()
    yield
    tracemalloc.stop()


def tried(data: bytes, **options: Any) -> bool:
    """Returns whether a file reads as something; checks that it does so in little memory, and else is a DataError."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        look_at(pg.load(io.BytesIO(data), **options))
        return True
    except DataError:
        return False
    finally:
        assert tracemalloc.get_traced_memory()[1] - before < PEAK_NBYTES_MAX


@pytest.mark.parametrize("kind", FILES)
def test_mutants_of_files(kind: str, bounded: None) -> None:
    data, chance = FILES[kind](), random.Random(kind)
    read = sum(tried(mutant(data, chance), weights_only=chance.random() < 0.5) for _ in range(MUTANTS))
    assert tried(data) and read < MUTANTS


@pytest.mark.parametrize("others", [False, True])
def test_mutants_of_pickles_in_intact_archives(others: bool, bounded: None) -> None:
    data, chance = of_torch(True), random.Random(1)
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        contents = {entry: old.read(entry) for entry in old.namelist()}
    for _ in range(MUTANTS):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in contents.items():
                archive.writestr(name, mutant(content, chance) if name.endswith("data.pkl") else content)
        tried(file.getvalue(), weights_only=not others)


def test_mutants_of_headers_with_the_right_length(bounded: None) -> None:
    data, chance = of_picograd(), random.Random(2)
    header_nbytes = int.from_bytes(data[:8], "little")
    for _ in range(MUTANTS):
        header = mutant(data[8 : 8 + header_nbytes], chance)
        tried(len(header).to_bytes(8, "little") + header + data[8 + header_nbytes :])
