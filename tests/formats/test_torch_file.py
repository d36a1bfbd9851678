"""Files of torch.save, read here; and files written here, read by torch.load."""

from __future__ import annotations

import argparse
import io
import pickle
import struct
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import DataError, Tensor, dtypes, nn
from picograd_formats.torch_file import DTYPE_NAMES

FORMATS = pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "stream"])


@pytest.fixture(autouse=True)
def evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")


def saved(state: Any, is_zip: bool = True) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(state, file, _use_new_zipfile_serialization=is_zip)
    file.seek(0)
    return file


def is_same(ours: Tensor, theirs: torch.Tensor) -> bool:
    """True where dtype, shape, need for gradients and all bits are equal."""
    theirs = theirs.detach()
    bits = theirs.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if theirs.numel() else b""
    same_kind = DTYPE_NAMES[ours.dtype] == str(theirs.dtype).removeprefix("torch.")
    return same_kind and ours.shape == tuple(theirs.shape) and ours.numpy(force=True).tobytes() == bits


# ---- reading ----
@FORMATS
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_dtype_comes_with_its_bits(dtype: pg.dtypes.DType, is_zip: bool, rng: np.random.Generator) -> None:
    kind = getattr(torch, DTYPE_NAMES[dtype])
    if not is_zip and dtype.name in ("uint16", "uint32", "uint64", "float8_e4m3", "float8_e5m2"):
        pytest.skip("younger than that format")
    bits = torch.from_numpy(rng.integers(0, 2 if dtype is dtypes.bool_ else 256, (6, 8), dtype=np.uint8))
    tensor = bits.view(kind)
    state = {"all": tensor, "turned": tensor.t(), "one": tensor[1, 0], "empty": torch.zeros(0, 3, dtype=kind)}
    loaded = pg.load(saved(state, is_zip))
    assert list(loaded) == list(state)
    assert all(is_same(loaded[name], value) for name, value in state.items())


VIEWS = {
    "slice": lambda x: x[1:3],
    "steps": lambda x: x[1:, :, ::2],
    "uneven": lambda x: x[1:, ::2],
    "column": lambda x: x[:, 1],
    "turned": lambda x: x.permute(2, 0, 1),
    "expanded": lambda x: x[:1].expand(5, 3, 4),
    "middle": lambda x: x[:, 1:2, 1:3],
    "one": lambda x: x[2, 1, 3],
    "empty": lambda x: x[3:],
    "windows": lambda x: x.reshape(-1).unfold(0, 5, 2),
    "reshaped": lambda x: x.view(6, 6),
}
APART = {"windows", "uneven"}  # not said by steps of picograd's views: elements overlap, or strides are not multiples


@FORMATS
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_alone_and_beside_its_whole(name: str, is_zip: bool) -> None:
    whole = torch.arange(36.0).reshape(3, 3, 4)
    view = VIEWS[name](whole)
    assert is_same(pg.load(saved(view, is_zip)), view)
    ours, other, twin = pg.load(saved([whole, view, VIEWS[name](whole)], is_zip))
    assert is_same(ours, whole) and is_same(other, view) and is_same(twin, view)
    whole += 1
    ours += 1
    if name not in APART:
        assert is_same(other, view) and is_same(twin, view)


@FORMATS
def test_a_storage_of_more_than_its_tensor_is_not_kept(is_zip: bool) -> None:
    part = pg.load(saved(torch.zeros(1000)[:3], is_zip))
    assert part.cell.op.numel == 3


@FORMATS
def test_layers_that_share_a_weight_share_it_again(is_zip: bool, tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    net[1].weight = net[0].weight
    loaded = pg.load(saved(net.state_dict(), is_zip))
    loaded["0.weight"] += 1
    assert loaded["1.weight"].tolist() == (net[0].weight + 1).tolist()
    pg.save(loaded, tmp_path / "x.pt")
    back = torch.load(tmp_path / "x.pt", weights_only=True)
    assert back["0.weight"].data_ptr() == back["1.weight"].data_ptr()


@pytest.mark.parametrize("ending", [".pt", ".safetensors", ".npz"])
def test_an_open_file_has_the_format_of_its_name(ending: str, tmp_path: Path) -> None:
    named, opened = tmp_path / f"named{ending}", tmp_path / f"opened{ending}"
    state = {"a": pg.arange(3.0)}
    pg.save(state, named)
    with open(opened, "wb") as file:
        pg.save(state, file)
    assert opened.read_bytes()[:2] == named.read_bytes()[:2] and pg.load(opened)["a"].tolist() == [0.0, 1.0, 2.0]
    if ending == ".pt":
        assert torch.load(opened)["a"].tolist() == [0.0, 1.0, 2.0]


@FORMATS
def test_parameters_and_leaves(is_zip: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    frozen = torch.nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False)
    leaf = torch.ones(2, requires_grad=True)
    loaded = pg.load(saved([weight, frozen, leaf, torch.ones(2), weight], is_zip))
    assert [value.requires_grad for value in loaded] == [True, False, True, False, True]
    assert [getattr(value, "_role", None) for value in loaded[:4]] == ["parameter", "parameter", None, None]
    assert loaded[0] is loaded[4] and isinstance(loaded[0], nn.Parameter)


def values() -> dict[Any, Any]:
    """One of each that is no tensor."""
    return {
        "integers": [0, 1, 255, 256, 65536, -1, -(2**31), 2**31, 2**70, -(2**70)],
        "numbers": [1.5, float("inf"), 1 + 2j, True, False, None],
        "text": ["", "a", "ä€😀", "line\nline\t\0", "x" * 300],
        "bytes": [b"", b"\x00\xff", bytearray(b"abc")],
        "nested": ((), (1,), (1, 2, 3, 4, (5, [{"six": {7, 8}}])), frozenset({1})),
        "ordered": OrderedDict([("b", 1), ("a", 2)]),
        3: "a number", (1, "a"): "a tuple", None: "nothing", 1.5: "a float", b"k": "bytes",
    }  # fmt: skip


@FORMATS
def test_containers_numbers_and_text(is_zip: bool) -> None:
    state = values()
    loaded = pg.load(saved(state, is_zip))
    assert loaded == state and list(loaded) == list(state)
    assert type(loaded["ordered"]) is OrderedDict and list(loaded["ordered"]) == ["b", "a"]
    assert [type(value) for value in loaded["numbers"]] == [type(value) for value in state["numbers"]]


@FORMATS
def test_what_pytorch_and_numpy_have_of_their_own(is_zip: bool) -> None:
    state = {
        "size": torch.ones(2, 3).shape,
        "dtypes": [torch.float32, torch.bfloat16, torch.int64, torch.bool],
        "devices": [torch.device("cpu"), torch.device("cuda:0")],
        "counter": Counter("abca"),
        "scalars": [np.float64(1.5), np.int32(-3), np.bool_(True)],
        "arrays": [np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.ones(2, ">f4")],
    }
    loaded = pg.load(saved(state, is_zip))
    assert loaded["size"] == (2, 3)
    assert loaded["dtypes"] == [dtypes.float32, dtypes.bfloat16, dtypes.int64, dtypes.bool_]
    assert loaded["devices"] == [pg.device("cpu"), pg.device("cuda:0")]
    assert loaded["counter"] == Counter("abca")
    assert loaded["scalars"] == [1.5, -3, True]
    assert all(np.array_equal(a, b) for a, b in zip(loaded["arrays"], state["arrays"]))


def test_values_that_are_one_object_stay_one() -> None:
    shared, endless = [1], []
    endless.append(endless)
    a, b, c = pg.load(saved([shared, {"x": shared}, endless]))
    assert a is b["x"] and c[0] is c


@FORMATS
def test_objects_of_other_classes_are_refused_or_come_as_records(is_zip: bool) -> None:
    state = {"args": argparse.Namespace(lr=0.1, steps=[1]), "net": torch.nn.Linear(2, 3)}
    with pytest.raises(DataError) as caught:
        pg.load(saved(state, is_zip))
    assert caught.value.fact == (
        "load: what was read cannot be read as a PyTorch file: its pickle names argparse.Namespace, "
        "which is not a tensor, "
        "container or number that picograd reads."
    )
    assert caught.value.hint == (
        "weights_only=False reads other classes as records of their attributes, and runs no code."
    )
    loaded = pg.load(saved(state, is_zip), weights_only=False)
    assert repr(loaded["args"]) == "<stored argparse.Namespace>"
    assert (loaded["args"].lr, loaded["args"].steps) == (0.1, [1])
    assert is_same(loaded["net"]._parameters["weight"], state["net"].weight)
    with pytest.raises(AttributeError, match="a stored argparse.Namespace has no 'momentum'"):
        _ = loaded["args"].momentum


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("a file was run",)


@FORMATS
def test_no_code_is_run(is_zip: bool, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved([Harmful()], is_zip)
    with pytest.raises(DataError, match=r"names builtins\.print"):
        pg.load(file)
    file.seek(0)
    assert repr(pg.load(file, weights_only=False)) == "[<stored builtins.print>]"
    assert capsys.readouterr().out == ""


@FORMATS
@pytest.mark.parametrize("kind", ["complex64", "sparse"])
def test_dtypes_and_layouts_that_are_not_here_are_named(kind: str, is_zip: bool) -> None:
    tensor = torch.ones(2).to_sparse() if kind == "sparse" else torch.ones(2, dtype=torch.complex64)
    with pytest.raises(DataError, match="its pickle names torch"):
        pg.load(saved(tensor, is_zip))


def test_map_location() -> None:
    state = {"a": torch.ones(2), "b": torch.zeros(1)}
    for location in ("numpy", pg.device("NUMPY"), {"cpu": "numpy"}, lambda storage, home: storage.to("NUMPY")):
        assert pg.load(saved(state), map_location=location)["a"].device == "NUMPY"
    for location in (None, torch.device("cpu"), lambda storage, home: storage, {"cuda:0": "cpu"}):
        assert pg.load(saved(state), map_location=location)["a"].tolist() == [1.0, 1.0]
    assert pg.load(saved(state), "NUMPY")["b"].device == "NUMPY"


# ---- writing ----
@pytest.mark.parametrize("ending", [".pt", ".pth", ".PT"])
def test_what_is_written_is_read_by_torch_load(ending: str, tmp_path: Path) -> None:
    state = values()
    del state["nested"], state["bytes"]  # of which torch.load does not read all with weights_only
    state |= {"tuples": ((), (1, (2,))), "sets": [{1, 2}], "raw": b"\x00\xff", "numpy": np.float32(1.5)}
    pg.save(state, tmp_path / f"x{ending}")
    back = torch.load(tmp_path / f"x{ending}", weights_only=True)
    assert back == state and list(back) == list(state)
    assert pg.load(tmp_path / f"x{ending}") == state


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_dtype_goes_to_pytorch(dtype: pg.dtypes.DType, rng: np.random.Generator, tmp_path: Path) -> None:
    bits = rng.integers(0, 2 if dtype is dtypes.bool_ else 256, (6, 8), dtype=np.uint8)
    x = Tensor(bits.view(dtype.numpy))
    state = {"all": x, "turned": x.T, "one": x[1, 0], "empty": x[:0], "lazy": (x == x).float() + 1}
    pg.save(state, tmp_path / "x.pt")
    back = torch.load(tmp_path / "x.pt", weights_only=True)
    assert all(is_same(value, back[name]) for name, value in state.items())
    assert back["all"].data_ptr() == back["turned"].data_ptr()


def test_views_of_one_memory_stay_views_in_both(tmp_path: Path) -> None:
    """But a flipped one: files have no negative strides."""
    x = Tensor(np.arange(12.0, dtype=np.float32)).reshape(3, 4)
    state = {"x": x, "row": x[1], "column": x[:, 2], "block": x[1:, 1:3], "flip": x.flip(0), "same": x.detach()}
    pg.save(state, tmp_path / "x.pt")
    for load in (lambda: torch.load(tmp_path / "x.pt"), lambda: pg.load(tmp_path / "x.pt")):
        back = load()
        back["x"][1, 2] = 100.0
        assert back["row"].tolist() == [4.0, 5.0, 100.0, 7.0]
        assert back["column"].tolist() == [2.0, 100.0, 10.0]
        assert back["block"].tolist() == [[5.0, 100.0], [9.0, 10.0]]
        assert back["same"].tolist() == back["x"].tolist()
        assert back["flip"].tolist() == [[8.0, 9.0, 10.0, 11.0], [4.0, 5.0, 6.0, 7.0], [0.0, 1.0, 2.0, 3.0]]


def test_an_expanded_tensor_takes_the_bytes_of_its_elements(tmp_path: Path) -> None:
    pg.save(Tensor([1.0]).expand(2**20), tmp_path / "x.pt")
    assert (tmp_path / "x.pt").stat().st_size < 2000
    assert torch.load(tmp_path / "x.pt", weights_only=True).sum().item() == 2**20
    assert pg.load(tmp_path / "x.pt").shape == (2**20,)


def test_parameters_go_as_parameters(tmp_path: Path) -> None:
    net = nn.Linear(2, 3)
    net.bias.requires_grad_(False)
    pg.save({"own": dict(net.named_parameters()), "leaf": Tensor([1.0], requires_grad=True)}, tmp_path / "x.pt")
    back = torch.load(tmp_path / "x.pt", weights_only=True)
    assert isinstance(back["own"]["weight"], torch.nn.Parameter) and back["own"]["weight"].requires_grad
    assert isinstance(back["own"]["bias"], torch.nn.Parameter) and not back["own"]["bias"].requires_grad
    assert back["leaf"].requires_grad and not isinstance(back["leaf"], torch.nn.Parameter)


def test_entries_are_aligned_and_files_equal(tmp_path: Path) -> None:
    state = {"a": Tensor([1.0, 2.0]), "b": {"c": Tensor([[3]])}}
    for name in ("x.pt", "y.pt"):
        pg.save(state, tmp_path / name)
    data = (tmp_path / "x.pt").read_bytes()
    assert data == (tmp_path / "y.pt").read_bytes()
    for entry in zipfile.ZipFile(tmp_path / "x.pt").infolist():
        name_nbytes, extra_nbytes = struct.unpack("<HH", data[entry.header_offset + 26 : entry.header_offset + 30])
        assert (entry.header_offset + 30 + name_nbytes + extra_nbytes) % 64 == 0
    assert torch.load(tmp_path / "x.pt", mmap=True, weights_only=True)["b"]["c"].item() == 3


@pytest.mark.parametrize(
    ("value", "fact", "hint"),
    [
        (nn.Linear(1, 1), "the state.a is a Linear; tensors, numbers, strings, dicts, lists, tuples and sets fit.",
         "save its state_dict()."),
        (np.ones(2), "the state.a is a ndarray; tensors, numbers, strings, dicts, lists, tuples and sets fit.",
         "Tensor(array)"),
        (1 << 3000, "the state.a is an integer of 376 bytes; 255 fit.", None),
    ],
    ids=["module", "array", "integer"],
)  # fmt: skip
def test_what_has_no_place_is_named(value: Any, fact: str, hint: str | None, tmp_path: Path) -> None:
    with pytest.raises(pg.ArgumentError) as caught:
        pg.save({"a": value}, tmp_path / "x.pt")
    assert (caught.value.fact, caught.value.hint) == (f"save: {fact}", hint)
    assert not list(tmp_path.iterdir())


def test_states_without_end_are_named(tmp_path: Path) -> None:
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(pg.ArgumentError, match="save: the state is nested more than 200 deep"):
        pg.save(deep, tmp_path / "x.pt")
    endless: list[Any] = []
    endless.append(endless)
    pg.save(endless, tmp_path / "x.pt")
    back = pg.load(tmp_path / "x.pt")
    assert back[0] is back
    with pytest.raises(pg.ArgumentError, match="save: the state is nested too deeply, or contains itself"):
        pg.save(endless, tmp_path / "x.safetensors")


# ---- damaged files, and files that claim too much ----
def rewritten(file: io.BytesIO, change: dict[str, bytes | None], packed: bool = False) -> io.BytesIO:
    """Returns a zip file with other contents of some entries, without those that are None."""
    made = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED if packed else 0) as new:
        for name in old.namelist():
            content = change.get(name.partition("/")[2], old.read(name))
            if content is not None:
                new.writestr(name, content)
    made.seek(0)
    return made


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"data/0": None}, "storage 0 has 0 bytes for 4 elements of float32"),
        ({"data/0": b"123"}, "storage 0 has 3 bytes for 4 elements of float32"),
        ({"data.pkl": b"\x80\x02N"}, "its pickle is cut short: 1 bytes are missing at byte 3"),
        ({"data.pkl": b"\x80\x02\xff."}, "its pickle is damaged at byte 3 (opcode 0xff)"),
        ({"data.pkl": None}, "it is a zip file of something else; torch.save(model.state_dict(), path) writes tensors"),
        ({"byteorder": b"big"}, None),
    ],
)
def test_damaged_zip_files(change: dict[str, bytes | None], fact: str | None) -> None:
    file = rewritten(saved(torch.tensor([1.0, 2.0, 3.0, 4.0])), change)
    if fact is None:
        assert pg.load(file).tolist() == np.array([1, 2, 3, 4], "f4").byteswap().tolist()
        return
    with pytest.raises(DataError) as caught:
        pg.load(file)
    assert caught.value.fact.startswith(f"load: what was read cannot be read as a PyTorch file: {fact}")


def test_packed_entries_are_refused() -> None:
    with pytest.raises(DataError, match="is packed; torch.save stores entries as they are"):
        pg.load(rewritten(saved(torch.zeros(10)), {}, packed=True))


def test_a_program_of_torch_jit_is_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("net/data.pkl", b"N.")
        archive.writestr("net/constants.pkl", b"N.")
    file.seek(0)
    with pytest.raises(DataError, match=r"it is a program of torch.jit; torch.save\(model.state_dict\(\), path\)"):
        pg.load(file)


@pytest.mark.parametrize("kept", range(0, 600, 37))
@FORMATS
def test_truncated_files(kept: int, is_zip: bool) -> None:
    data = saved({"a": torch.ones(3), "b": [1, 2.5, "x"]}, is_zip).getvalue()
    with pytest.raises(DataError):
        pg.load(io.BytesIO(data[: min(kept, len(data) - 1)]))


def tensor_pickle(offset: Any, shape: Any, strides: Any, numel: int = 4) -> bytes:
    """Returns a pickle of a tensor on storage 0, as torch.save writes it, with these numbers."""

    class Storage:
        pass

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", numel) if isinstance(value, Storage) else None

    class View:
        def __reduce__(self) -> tuple[Any, ...]:
            return torch._utils._rebuild_tensor_v2, (Storage(), offset, shape, strides, False, OrderedDict())

    file = io.BytesIO()
    Pickler(file, 2).dump(View())
    return file.getvalue()


@pytest.mark.parametrize(
    ("place", "fact"),
    [
        ((0, (5,), (1,)), "a tensor of shape (5,) is not within the 16 bytes of its storage"),
        ((1, (2, 2), (2, 1)), "a tensor of shape (2, 2) is not within the 16 bytes of its storage"),
        ((-1, (2,), (1,)), "a tensor has offset -1, shape (2,) and strides (1,)"),
        ((0, (2,), (-1,)), "a tensor has offset 0, shape (2,) and strides (-1,)"),
        ((0, (2**62,), (0,)), f"a tensor has offset 0, shape ({2**62},) and strides (0,)"),
        ((0, (2**40, 2**40), (0, 0)), f"a tensor has offset 0, shape ({2**40}, {2**40}) and strides (0, 0)"),
        ((0, (2, 2), (1,)), "a tensor has shape (2, 2) and strides (1,)"),
        ((0, (1,) * 65, (1,) * 65), f"a tensor has shape {(1,) * 65} and strides {(1,) * 65}"),
        ((0, (True,), (1,)), "a tensor has offset 0, shape (True,) and strides (1,)"),
        ((0, (1.0,), (1,)), "a tensor has offset 0, shape (1.0,) and strides (1,)"),
        ((0, [2], (1,)), "its pickle is damaged"),
        ((0, (3, 3, 3, 3, 3, 3, 3, 3, 3), (1, 0, 0, 0, 0, 0, 0, 0, 0), 4), None),
    ],
)
def test_views_that_are_not_within_their_storage(place: tuple[Any, ...], fact: str | None) -> None:
    file = rewritten(saved(torch.tensor([1.0, 2.0, 3.0, 4.0])), {"data.pkl": tensor_pickle(*place)})
    if fact is None:
        assert pg.load(file).shape == place[1]
        return
    with pytest.raises(DataError) as caught:
        pg.load(file)
    assert caught.value.fact.startswith(f"load: what was read cannot be read as a PyTorch file: {fact}")


def test_overlapping_tensors_are_bounded_by_the_file() -> None:
    windows = [torch.arange(1000.0).unfold(0, 500 - k, 1) for k in range(3)]
    with pytest.raises(DataError, match="it has overlapping tensors that are larger than the file"):
        pg.load(saved(windows))


def test_one_entry_is_not_many_storages() -> None:
    """Entries of a zip file may be the same bytes."""
    file = saved([torch.zeros(1000), torch.zeros(1000)])
    data = file.getvalue()
    first, second = (entry for entry in zipfile.ZipFile(file).infolist() if "/data/" in entry.filename)
    at = data.index(second.filename.encode(), zipfile.ZipFile(file).start_dir)
    moved = bytearray(data)
    moved[at - 4 : at] = struct.pack("<I", first.header_offset)
    with pytest.raises(DataError, match="it is a damaged zip file"):
        pg.load(io.BytesIO(bytes(moved)))


@pytest.mark.parametrize("damage", ["version", "keys", "numel", "end"])
def test_damaged_streams(damage: str) -> None:
    data = saved(torch.tensor([1.0, 2.0]), False).getvalue()
    at = {"version": data.index(b"M\xe9\x03.") + 1, "keys": data.rindex(b"]q\x00"), "numel": len(data) - 16}.get(damage)
    other = {"version": b"\xe8", "keys": b"N", "numel": b"\x07"}
    changed = data[:-1] if at is None else data[:at] + other[damage] + data[at + 1 :]
    with pytest.raises(DataError, match="cannot be read as a PyTorch file"):
        pg.load(io.BytesIO(changed))


@FORMATS
def test_a_tensor_that_is_negated_by_a_flag_is_refused(is_zip: bool) -> None:
    file = saved({"a": torch.ones(3)._neg_view()}, is_zip)
    with pytest.raises(DataError, match="a tensor in it is negated by a flag"):
        pg.load(file)
    resolved = saved({"a": torch.ones(3)._neg_view().resolve_neg()}, is_zip)
    assert pg.load(resolved)["a"].tolist() == [-1.0] * 3
