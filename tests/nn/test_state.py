"""Saved state: bit for bit, readable by others, whole or not at all."""

from __future__ import annotations

import gzip
import io
import json
import pickle

import numpy as np
import pytest
import safetensors.numpy

import picograd as pg
from picograd import ArgumentError, DataError, Tensor, dtypes, nn


@pytest.mark.req("B9")
def test_a_module_comes_back_bit_for_bit(device, tmp_path):
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)).to(dtypes.bfloat16)
    path = tmp_path / "net.safetensors"
    pg.save(net.state_dict(), path)
    twin = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)).to(dtypes.bfloat16)
    twin.load_state_dict(pg.load(path))
    for a, b in zip(net.parameters(), twin.parameters()):
        assert a.dtype is b.dtype is dtypes.bfloat16
        assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()


@pytest.mark.req("B9")
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_dtype_survives(dtype, device, rng, tmp_path):
    bits = rng.integers(0, 2 if dtype is dtypes.bool_ else 256, (5, 8), dtype=np.uint8)
    x = Tensor(bits.view(dtype.numpy))
    pg.save({"x": x, "empty": Tensor.zeros(0, 2, dtype=dtype), "scalar": x[0, 0]}, tmp_path / "x.safetensors")
    loaded = pg.load(tmp_path / "x.safetensors")
    assert loaded["x"].dtype is dtype
    assert loaded["x"].numpy().tobytes() == x.numpy().tobytes()
    assert (loaded["empty"].shape, loaded["scalar"].shape) == ((0, 2), ())


def test_other_programs_read_a_flat_dict(device, tmp_path):
    pg.save({"a": Tensor([1.0, 2.0]), "b": Tensor([[3]])}, tmp_path / "x.safetensors")
    arrays = safetensors.numpy.load_file(tmp_path / "x.safetensors")
    assert arrays["a"].tolist() == [1.0, 2.0] and arrays["b"].tolist() == [[3]]
    safetensors.numpy.save_file({"c": np.ones(2, np.float16)}, tmp_path / "y.safetensors")
    assert pg.load(tmp_path / "y.safetensors")["c"].dtype is dtypes.float16


def test_nested_state_with_plain_values(device, tmp_path):
    state = {"step": 7, "name": "run", "nested": {"list": [Tensor([1.0]), 2.5, None, True]}}
    pg.save(state, tmp_path / "x.safetensors")
    loaded = pg.load(tmp_path / "x.safetensors")
    assert loaded["nested"]["list"][0].tolist() == [1.0]
    assert (loaded["step"], loaded["name"], loaded["nested"]["list"][1:]) == (7, "run", [2.5, None, True])


def test_open_files_and_bare_tensors(device, tmp_path):
    file = io.BytesIO()
    for state in (Tensor([1.0, 2.0]), [Tensor([3]), {"a": 4}]):
        file.seek(0)
        file.truncate()
        pg.save(state, file)
        file.seek(0)
        loaded = pg.load(file, map_location=device, weights_only=False)
        assert type(loaded) is type(state)
    assert (loaded[0].tolist(), loaded[1]) == ([3], {"a": 4})
    with open(tmp_path / "x.safetensors", "wb") as out:
        pg.save({"a": Tensor([1.0])}, out)
    assert pg.load(tmp_path / "x.safetensors")["a"].tolist() == [1.0]
    with pytest.raises(pg.ArgumentTypeError, match="path must be a str, a PathLike or a BinaryFile, got int 3"):
        pg.save({}, 3)


def test_what_is_no_file_of_tensors_is_refused():
    formats = "safetensors, .pt, .pth, .npy and .npz are read."
    for data, said, hint in (
        (b"12345678", "of an unknown format", formats),
        (pickle.dumps({"a": 1}), "a pickle", "torch.save(state, path) and pg.save(state, path) write such files."),
        (b"", "empty", formats),
        (b"GGUF\3\0\0\0\0\0", "a GGUF file", formats),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file", formats),
        (gzip.compress(b"x"), "packed with gzip", "gunzip it first."),
        (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS, not the file itself", "git lfs pull"),
        (b"<!DOCTYPE html>", "a page of HTML or XML: perhaps an error page that was saved instead of the file", formats),
    ):
        with pytest.raises(DataError) as error:
            pg.load(io.BytesIO(data))
        assert (error.value.fact, error.value.hint) == (f"load: what was read is {said}.", hint)


def test_files_that_are_open_for_text_are_refused(tmp_path):
    (tmp_path / "a").write_text("text")
    with open(tmp_path / "a") as file, pytest.raises(pg.ArgumentTypeError, match="load: the file is open for text"):
        pg.load(file)
    with open(tmp_path / "a", "w") as file, pytest.raises(pg.ArgumentTypeError, match="save: the file is open for text"):
        pg.save({"a": pg.ones(1)}, file)


@pytest.mark.parametrize("place", ["nowhere", "meta"])
@pytest.mark.parametrize("ending", ["pt", "npz", "safetensors"])
def test_a_device_that_is_not_there_is_no_fault_of_the_file(ending, place, tmp_path):
    pg.save({"a": pg.ones(1)}, tmp_path / f"a.{ending}")
    with pytest.raises(pg.DeviceError, match="this is not a device"):
        pg.load(tmp_path / f"a.{ending}", map_location=place)
    assert pg.load(tmp_path / f"a.{ending}", mmap=True)["a"].tolist() == [1.0]


@pytest.mark.parametrize("name", ["x.safetensors", "x.pt", "x.npy", "x.npz"])
def test_missing_and_unreadable_files_are_named(name, tmp_path):
    path = str(tmp_path / "nowhere" / name)
    with pytest.raises(DataError) as caught:
        pg.load(path)
    assert caught.value.fact == f"load: {path}: cannot be read: No such file or directory."
    assert isinstance(caught.value, FileNotFoundError)
    state = Tensor([1.0]) if name.endswith(".npy") else {"a": Tensor([1.0])}
    with pytest.raises(DataError) as caught:
        pg.save(state, path)
    assert caught.value.fact == f"save: {path}: cannot be written: No such file or directory."
    assert caught.value.hint == f"os.makedirs('{tmp_path / 'nowhere'}')"
    for call in (lambda: pg.load(tmp_path), lambda: pg.save(state, tmp_path)):
        with pytest.raises(DataError, match=f"{tmp_path}: cannot be .*: (Is|it is) a (directory|folder)"):
            call()


def test_the_format_is_told_by_content(tmp_path):
    state = {"a": Tensor([1.0, 2.0]), "b": Tensor([[3.0]])}
    for name in ("x.pt", "x.npz", "x.safetensors"):
        pg.save(state, tmp_path / name)
        (tmp_path / name).rename(tmp_path / "renamed")
        loaded = pg.load(tmp_path / "renamed")
        assert {key: value.tolist() for key, value in loaded.items()} == {"a": [1.0, 2.0], "b": [[3.0]]}


def test_a_header_that_looks_like_a_pickle_is_none(tmp_path):
    """Its length in the first two bytes may be those with which pickles begin."""
    for length in range(560, 700, 8):
        pg.save({"x" * length: Tensor([1.0])}, tmp_path / "x")
        assert len(pg.load(tmp_path / "x")) == 1


@pytest.mark.parametrize("state", [{"a": [1.5, 2.0]}, {"step": 7, "nested": ({"b": [3]}, 2.5)}], ids=["flat", "nested"])
def test_every_flipped_bit_is_found_or_harmless(state, tmp_path, monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")

    def mapped(value, leaf):
        if isinstance(value, dict):
            return {name: mapped(item, leaf) for name, item in value.items()}
        return tuple(mapped(item, leaf) for item in value) if isinstance(value, tuple) else leaf(value)

    def plain(value):
        return mapped(value, lambda leaf: leaf.tolist() if isinstance(leaf, Tensor) else leaf)

    file = io.BytesIO()
    pg.save(mapped(state, lambda leaf: Tensor(leaf) if isinstance(leaf, list) else leaf), file)
    whole, missed = file.getvalue(), 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        try:
            assert plain(pg.load(io.BytesIO(bytes(damaged)))) == state
            missed += 1
        except DataError:
            pass
    assert missed < 60  # in the name of the checksum's entry, and in padding


def test_what_cannot_be_saved_is_named(device, tmp_path):
    with pytest.raises(ArgumentError, match=r"save: a\.b is a set"):
        pg.save({"a": {"b": {1, 2}}}, tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "header", "empty", "text"])
def test_damaged_files_are_data_errors(damage, device, tmp_path):
    path = tmp_path / "x.safetensors"
    pg.save({"a": Tensor([1.0, 2.0])}, path)
    data = path.read_bytes()
    path.write_bytes({"cut": data[:-3], "header": b"\xff" * 9 + data[9:], "empty": b"", "text": b"hello there"}[damage])
    with pytest.raises(DataError, match="is empty" if damage == "empty" else "cannot be read as a safetensors file"):
        pg.load(path)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"b": {"__tensor__": "missing"}}),
        '{"__tensor__": []}',
        '{"__tensor__": {}}',
        '{"__tuple__": 3}',
        '{"__integers__": [1]}',
        '{"__integers__": {"1": 1, "01": 2}}',
        '{"__integers__": {"x": 1}}',
        '{"a": 1, "a": 2}',
        "[" * 100_000,
        '{"a":' * 20_000,
        "[" * 2000 + "]" * 2000,
        "{",
        "nothing",
    ],
    ids=range(13),
)
def test_damaged_structure_is_a_data_error(text, tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"a": np.ones(1)}, path, {"picograd": text})
    with pytest.raises(DataError):
        pg.load(path)


@pytest.mark.parametrize("shape", [[1] * 65, [0, 2**62, 2**62], [2**63, 0]])
def test_shapes_that_no_array_has_are_data_errors(shape, tmp_path):
    nbytes = 0 if 0 in shape else 4
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, nbytes]}}).encode()
    with pytest.raises(DataError, match="cannot be read as a safetensors file"):
        pg.load(io.BytesIO(len(header).to_bytes(8, "little") + header + bytes(nbytes)))


def test_tuples_and_marks_come_back_as_they_were(tmp_path):
    state = {"betas": (0.9, 0.999), "deep": [(1, (2, [()]))], "marks": [{"__tuple__": 1}, {"__dict__": {"__tensor__": 2}}]}
    pg.save(state, tmp_path / "x")
    assert pg.load(tmp_path / "x") == state


def test_numbers_of_numpy_are_numbers(tmp_path):
    pg.save({"loss": np.float32(1.5), "step": np.int64(3), "done": np.bool_(True)}, tmp_path / "x")
    assert pg.load(tmp_path / "x") == {"loss": 1.5, "step": 3, "done": True}


def test_a_module_is_saved_by_its_state(tmp_path):
    with pytest.raises(ArgumentError) as caught:
        pg.save(nn.Linear(1, 1), tmp_path / "x")
    assert caught.value.fact == ("save: the state is a Linear; tensors, numbers, strings, dicts, lists and tuples fit.")
    assert caught.value.hint == "save its state_dict()."


def test_a_failed_write_leaves_the_old_file(device, tmp_path, monkeypatch):
    import os

    path = tmp_path / "x.safetensors"
    pg.save({"a": Tensor([1.0])}, path)

    def full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="no space"):
        pg.save({"a": Tensor([2.0])}, path)
    assert pg.load(path)["a"].tolist() == [1.0]
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]


def test_names_that_collide_keep_their_tensors(device, tmp_path):
    path = tmp_path / "x.safetensors"
    pg.save({"a": {"b": Tensor([1.0])}, "a.b": Tensor([2.0]), "__metadata__": Tensor([3.0])}, path)
    loaded = pg.load(path)
    assert loaded["a"]["b"].tolist() == [1.0]
    assert loaded["a.b"].tolist() == [2.0] and loaded["__metadata__"].tolist() == [3.0]


def test_keys_that_would_come_back_as_strings_are_refused(device, tmp_path):
    for key in (1.5, (1, 2), True, None):
        with pytest.raises(ArgumentError, match="keys must be all strings or all integers"):
            pg.save({"a": {key: Tensor([1.0])}}, tmp_path / "x.safetensors")
    with pytest.raises(ArgumentError) as caught:
        pg.save({"a": {1: Tensor([1.0]), "b": 2}}, tmp_path / "x.safetensors")
    assert caught.value.fact == "save: a has the key 1; keys must be all strings or all integers."


def test_integers_come_back_as_keys(device, tmp_path):
    state = {"state": {0: {"step": Tensor([1.0])}, 12: {"__integers__": 3}}, "none": {}, "deep": [{-1: "x"}]}
    pg.save(state, tmp_path / "x.safetensors")
    loaded = pg.load(tmp_path / "x.safetensors")
    assert loaded["state"][0]["step"].tolist() == [1.0] and loaded["state"][12] == {"__integers__": 3}
    assert loaded["none"] == {} and loaded["deep"] == [{-1: "x"}]
