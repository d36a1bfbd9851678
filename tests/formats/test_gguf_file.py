"""GGUF files: metadata and blocks as the gguf package reads them; damaged files are one kind of error."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from picograd import DataError
from picograd.errors import FileError
from picograd_formats.gguf_file import HEADER_NBYTES_MAX, PACKINGS, parse_gguf, read_gguf
from tests.formats.test_mutations import MUTANTS, PEAK_NBYTES_MAX, mutant

gguf = pytest.importorskip("gguf", reason="the gguf package, which writes and unpacks these files, is not installed")
BLOCKS = {kind: packing for kind, packing in PACKINGS.items() if packing.numel > 1}
NUMBERS = {0: np.float32, 1: np.float16, 28: np.float64}


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: PACKINGS[kind].name)
def test_blocks_of_all_bits_unpack_as_in_the_gguf_package(kind: int, rng: np.random.Generator) -> None:
    blocks = rng.integers(0, 256, (200, PACKINGS[kind].nbytes), dtype=np.uint8)
    with np.errstate(invalid="ignore", over="ignore"):
        ours, theirs = PACKINGS[kind].unpack(blocks), gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(kind))
    assert ours.dtype == np.float32 and ours.shape == (200, PACKINGS[kind].numel)
    np.testing.assert_array_equal(ours, theirs)


def test_sizes_of_blocks_are_those_of_the_gguf_package() -> None:
    for kind, packing in PACKINGS.items():
        theirs = gguf.GGMLQuantizationType(kind)
        assert (packing.name, packing.numel, packing.nbytes) == (theirs.name, *gguf.GGML_QUANT_SIZES[theirs])


def written(path: Path, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Writes a file with values and tensors of most kinds, and returns the tensors as they unpack."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("small", 2**32 - 1)
    writer.add_int64("least", -(2**63))
    writer.add_float32("third", 0.25)
    writer.add_bool("yes", True)
    writer.add_string("name", "räksmörgås")
    writer.add_array("words", ["a", "", "\u2581b"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("flags", [True, False])
    tensors = {f"plain.{kind}": rng.normal(size=(3, 4)).astype(dtype) for kind, dtype in NUMBERS.items()}
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    for kind in (2, 3, 8, 30):
        theirs = gguf.GGMLQuantizationType(kind)
        packed = gguf.quants.quantize(rng.normal(size=(5, 64)).astype(np.float32), theirs)
        writer.add_tensor(f"packed.{kind}", packed, raw_dtype=theirs)
        tensors[f"packed.{kind}"] = gguf.quants.dequantize(packed, theirs)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def test_a_file_of_the_gguf_package_is_read_as_it_was_written(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = written(tmp_path / "a.gguf", rng)
    file = read_gguf(tmp_path / "a.gguf")
    found = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in file.metadata.items()}
    assert found == {
        "general.architecture": "llama", "small": 2**32 - 1, "least": -(2**63), "third": 0.25, "yes": True,
        "name": "räksmörgås", "words": ["a", "", "\u2581b"], "numbers": [1, -2, 3], "flags": [True, False],
    }  # fmt: skip
    assert list(file.tensors) == list(tensors)
    for name, array in tensors.items():
        np.testing.assert_array_equal(file.tensors[name].unpacked(), array.astype(np.float32))


def test_a_tensor_is_a_view_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"
    entry = struct.pack("<Q1sIQIQ", 1, b"w", 1, 2**28, 0, 0)
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + entry)
    with open(path, "r+b") as file:
        file.truncate(2**30 + 64)  # a hole, which takes no disk
    tracemalloc.start()
    blocks = read_gguf(path).tensors["w"].blocks
    assert blocks.shape == (2**28, 4) and tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    with pytest.raises(ValueError, match="read-only"):
        blocks[0] = 1


def test_mutants_read_as_something_or_are_data_errors(tmp_path: Path, rng: np.random.Generator) -> None:
    written(tmp_path / "a.gguf", rng)
    data, chance, read = (tmp_path / "a.gguf").read_bytes(), random.Random(0), 0
    tracemalloc.start()
    for _ in range(MUTANTS):
        tracemalloc.reset_peak()
        try:
            for tensor in parse_gguf(memoryview(mutant(data, chance))).tensors.values():
                tensor.unpacked()
            read += 1
        except DataError:
            pass
        assert tracemalloc.get_traced_memory()[1] < PEAK_NBYTES_MAX
    tracemalloc.stop()
    assert 0 < read < MUTANTS


START = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + struct.pack("<Q1s", 1, b"a")
TENSOR = struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + struct.pack("<Q1s", 1, b"w")
WRONG = {
    "empty": (b"", "cut short"),
    "of another format": (b"PK\3\4" + bytes(99), "does not begin with GGUF"),
    "old": (struct.pack("<4sIQQ", b"GGUF", 1, 0, 0), "version 1; versions 2 and 3"),
    "many tensors": (struct.pack("<4sIQQ", b"GGUF", 3, 2**60, 0), "says 1,152,921,504,606,846,976 tensors"),
    "a long string": (START + struct.pack("<IQ", 8, 2**40), "cut short"),
    "a long array": (START + struct.pack("<IIQ", 9, 4, 2**61), "2,305,843,009,213,693,952 numbers"),
    "nested arrays": (START + struct.pack("<IIQ", 9, 9, 1), "array of kind 9"),
    "a value of no kind": (START + struct.pack("<I", 77), "kind 77"),
    "a type of no blocks": (TENSOR + struct.pack("<IQIQ", 1, 32, 99, 0), "ggml's type 99; F32, F16"),
    "half a block": (TENSOR + struct.pack("<IQIQ", 1, 31, 2, 0), r"shape \(31,\), which blocks of 32 cannot"),
    "an enormous shape": (TENSOR + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0), "which blocks of 1 cannot"),
    "many axes": (TENSOR + struct.pack("<IQIQ", 2**31, 31, 2, 0), "axes, more than 4"),
    "no elements there": (TENSOR + struct.pack("<IQIQ", 1, 32, 0, 0), "cut short or damaged"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_the_error_of_a_wrong_file_names_the_file_and_the_rule(kind: str, tmp_path: Path) -> None:
    data, words = WRONG[kind]
    (tmp_path / "a.gguf").write_bytes(data)
    with pytest.raises(DataError, match=rf"a\.gguf: .*{words}"):
        read_gguf(tmp_path / "a.gguf")


def test_a_header_of_many_empty_strings_is_not_read_for_long() -> None:
    count = HEADER_NBYTES_MAX
    with pytest.raises(DataError, match="strings, and has"):
        parse_gguf(memoryview(START + struct.pack("<IIQ", 9, 8, count) + bytes(8 * count)))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(FileError, match="nowhere.gguf"):
        read_gguf("nowhere.gguf")
