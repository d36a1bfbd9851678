"""NumPy's files: read as NumPy reads them, without objects, and written so that it reads them."""

from __future__ import annotations

import errno
import io
import itertools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import DataError, Tensor, dtypes
from picograd_formats.zipped import opened_zip

NUMPYS = [dtype for dtype in dtypes.ALL if dtype.numpy.isbuiltin == 1]


@pytest.fixture(autouse=True)
def evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")


def npy(array: Any, version: tuple[int, int] | None = None) -> io.BytesIO:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), version, allow_pickle=True)
    file.seek(0)
    return file


@pytest.mark.parametrize("dtype", NUMPYS, ids=str)
@pytest.mark.parametrize("order", "<>")
def test_every_dtype_in_both_byte_orders(dtype: dtypes.DType, order: str, rng: np.random.Generator) -> None:
    bits = rng.integers(0, 2 if dtype is dtypes.bool_ else 256, (4, 8), dtype=np.uint8)
    array = bits.view(dtype.numpy)
    loaded = pg.load(npy(array.astype(array.dtype.newbyteorder(order))))
    assert loaded.dtype is dtype and loaded.numpy().tobytes() == array.tobytes()


@pytest.mark.parametrize("array", [np.float32(3), np.zeros((0, 3)), np.asfortranarray(np.arange(6).reshape(2, 3))], ids=str)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_form_and_version(array: Any, version: tuple[int, int]) -> None:
    loaded = pg.load(npy(array, version))
    assert loaded.shape == array.shape and loaded.tolist() == array.tolist()


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_several_arrays_by_name(write: Any, tmp_path: Path) -> None:
    write(tmp_path / "x.npz", np.arange(3), weight=np.ones((2, 2), np.float32), empty=np.zeros(0))
    loaded = pg.load(tmp_path / "x.npz")
    assert {name: value.tolist() for name, value in loaded.items()} == {
        "weight": [[1.0, 1.0], [1.0, 1.0]], "empty": [], "arr_0": [0, 1, 2],
    }  # fmt: skip


@pytest.mark.parametrize("dtype", NUMPYS, ids=str)
def test_what_is_written_is_read_by_numpy(dtype: dtypes.DType, tmp_path: Path) -> None:
    x = Tensor([[0, 1, 1], [1, 0, 1]], dtype)
    pg.save(x.T, tmp_path / "x.npy")
    assert np.array_equal(np.load(tmp_path / "x.npy"), x.numpy().T) and np.load(tmp_path / "x.npy").dtype == dtype.numpy
    pg.save({"a": x, "b/c": x[0], "file": x.sum()}, tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as arrays:
        assert sorted(arrays) == ["a", "b/c", "file"] and np.array_equal(arrays["a"], x.numpy())
    assert pg.load(tmp_path / "x.npz")["b/c"].tolist() == x[0].tolist()


@pytest.mark.parametrize(
    ("name", "state", "fact"),
    [
        ("x.npy", {"a": 1}, "save: a .npy file holds one tensor, got a dict."),
        ("x.npz", {"a": 1}, "save: a .npz file holds tensors by name, got 'a': int."),
        ("x.npz", [1], "save: a .npz file holds tensors by name, got '': list."),
        ("x.npy", Tensor([1.0]).cast(dtypes.bfloat16), "save: the tensor is bfloat16, which NumPy's files do not have."),
    ],
)
def test_what_has_no_place_is_named(name: str, state: Any, fact: str, tmp_path: Path) -> None:
    with pytest.raises(pg.PicogradError) as caught:
        pg.save(state, tmp_path / name)
    assert caught.value.fact == fact
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.array([None, 1], object), "|O"),
        (np.array(["text"]), "<U4"),
        (np.array([1 + 2j]), "<c16"),
        (np.array(["2026-11-27"], "M8[D]"), "<M8[D]"),
        (np.zeros(2, [("a", "f4")]), "[('a', '<f4')]"),
        (np.zeros(2, "V2"), "|V2"),
    ],
    ids=["object", "text", "complex", "date", "record", "void"],
)
def test_elements_that_are_no_numbers_are_refused(array: Any, dtype: str) -> None:
    with pytest.raises(DataError) as caught:
        pg.load(npy(array))
    assert caught.value.fact == (
        f"load: what was read cannot be read as a NumPy file: it has an array of dtype {dtype!r}; "
        "only numbers and bools are read."
    )


def with_header(text: str, data: bytes = b"") -> io.BytesIO:
    return io.BytesIO(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data)


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }"


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (GOOD % "(3,)", "it is cut short: shape (3,) of float32 needs 12 bytes, it has 8"),
        (GOOD % f"({2**40},)", f"it is cut short: shape ({2**40},) of float32 needs {2**42:,} bytes, it has 8"),
        (GOOD % f"({2**60}, 0)", None),
        (GOOD % "(-1,)", "its header has shape (-1,)"),
        (GOOD % f"({2**63}, 0)", f"its header has shape ({2**63}, 0)"),
        (GOOD % f"({2**40}, {2**40})", "its header is damaged"),
        (GOOD % "(True,)", "its header has shape (True,)"),
        (GOOD % "[2]", "its header has shape [2]"),
        (GOOD % str((1,) * 65), "its header has shape (1, 1,"),
        (GOOD % "(2,)" + "x", "its header is damaged"),
        ("{'descr': '<f4'}", "its header is damaged"),
        ("(" * 5000, "its header is damaged"),
        ("-" * 9000 + "1", "its header is damaged"),
        ("__import__('os').system('true')", "its header is damaged"),
        (" " * 20000, "its header has 20,000 bytes, more than 10,000"),
    ],
    ids=range(15),
)
def test_headers_that_claim_too_much(text: str, fact: str | None) -> None:
    file = with_header(text, bytes(8))
    if fact is None:
        assert pg.load(file).shape == (2**60, 0)
        return
    with pytest.raises(DataError) as caught:
        pg.load(file)
    assert caught.value.fact.startswith(f"load: what was read cannot be read as a NumPy file: {fact}")


@pytest.mark.parametrize("kept", range(6, 140, 9))
def test_truncated_files(kept: int) -> None:
    data = npy(np.arange(4.0)).getvalue()
    with pytest.raises(DataError, match="cannot be read as a NumPy file"):
        pg.load(io.BytesIO(data[:kept]))


def test_a_small_file_that_unpacks_to_gigabytes_is_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, archive.open("a.npy", "w") as entry:
        for _ in range(257):
            entry.write(bytes(2**20))
    file.seek(0)
    with pytest.raises(DataError, match=r"its [\d,]+ bytes unpack to 269,484,032; at most 268,435,456 are read"):
        pg.load(file)


@pytest.mark.parametrize("kind", ["npz", "pt"])
def test_a_directory_that_names_places_outside_is_damage_and_no_fault_of_the_disk(kind: str, tmp_path: Path) -> None:
    whole, path = tmp_path / f"whole.{kind}", tmp_path / f"damaged.{kind}"
    if kind == "npz":
        np.savez(whole, a=np.arange(6.0), b=np.arange(3))
    else:
        pg.save({"a": pg.arange(6.0), "b": pg.arange(3)}, whole)
    data = whole.read_bytes()
    places = range(data.index(b"PK\x01\x02"), len(data))
    for place, width in itertools.product(places, (2, 8)):  # two at its end, in the offset, are what zipfile does not see
        path.write_bytes((data[:place] + b"\xff" * width + data[place + width :])[: len(data)])
        try:
            pg.load(path)
        except DataError as error:
            assert not isinstance(error, OSError), (place, error.fact)
    # Some versions of Python go where the directory says.
    with pytest.raises(DataError, match="it names places outside of itself"), whole.open("rb") as file, opened_zip(file):
        file.seek(-1)
    with pytest.raises(OSError, match="Input/output") as caught, whole.open("rb") as file, opened_zip(file):
        raise OSError(errno.EIO, "Input/output error")
    assert not isinstance(caught.value, DataError), "a fault of the disk stays one"


def test_damage_in_an_archive_names_the_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", good=np.ones(2), bad=np.array([None]))
    with pytest.raises(DataError, match="cannot be read as a NumPy file: bad: it has an array of dtype '|O'"):
        pg.load(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", a=np.arange(100.0))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    data[400] ^= 1
    with pytest.raises(DataError, match="it is a damaged zip file .Bad CRC-32"):
        pg.load(io.BytesIO(bytes(data)))
