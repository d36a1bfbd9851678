"""Checkpoints: what is saved reads back; what is damaged or foreign is refused and left alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from picograd.errors import DataError
from picograd.record import replace
from picograd_formats.safetensors_file import digest_of, encode
from picograd_programs.train.checkpoint import FORMAT, Checkpoint, check_fits, load_checkpoint, save_checkpoint


def example() -> Checkpoint:
    model = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(0.5, np.float64)}
    return Checkpoint("mnist", 12, {"seed": 3, "out": "runs/a"}, model, {"step": np.array(12, np.int64)})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, example())
    return path


def refused(path: Path, kind: str = "mnist") -> DataError:
    """Returns the error of loading a file, after checking that the file is as it was."""
    before = path.read_bytes()
    with pytest.raises(DataError) as caught:
        load_checkpoint(path, kind)
    assert path.read_bytes() == before
    return caught.value


@pytest.mark.req("B9")
def test_everything_reads_back_bit_for_bit(saved: Path) -> None:
    back, expected = load_checkpoint(saved, "mnist"), example()
    assert (back.kind, back.step, back.config) == (expected.kind, expected.step, expected.config)
    for part, original in ((back.model, expected.model), (back.optimizer, expected.optimizer)):
        assert part.keys() == original.keys()
        for name, array in part.items():
            assert (array.dtype, array.shape) == (original[name].dtype, original[name].shape)
            assert array.tobytes() == original[name].tobytes()


def test_array_in_column_order_reads_back(tmp_path: Path) -> None:
    # safetensors writes memory as it lies, which would transpose it.
    weight = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    save_checkpoint(tmp_path / "a", replace(example(), model={"w": weight}))
    assert np.array_equal(load_checkpoint(tmp_path / "a", "mnist").model["w"], weight)


def test_any_safetensors_reader_finds_the_weights(saved: Path) -> None:
    assert safetensors.numpy.load_file(saved)["model.w"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_every_truncation_is_refused(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    for kept in range(0, len(whole), 7):
        cut = tmp_path / "cut"
        cut.write_bytes(whole[:kept])
        assert refused(cut).fact.startswith(
            f"load_checkpoint: {cut}: truncated or not a safetensors file ({kept:,} bytes)"
        )


def test_every_flipped_byte_is_refused(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        path = tmp_path / "damaged"
        path.write_bytes(damaged)
        # A space of the header's padding may change without meaning; everything else must not.
        if whole[position : position + 1] == b" " and _same(path):
            continue
        refused(path)


def _same(path: Path) -> bool:
    try:
        return load_checkpoint(path, "mnist").config == example().config
    except DataError:
        return False


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_checkpoint(tmp_path / "none", "mnist")
    assert caught.value.fact == f"load_checkpoint: {tmp_path / 'none'}: cannot be read: No such file or directory."


def test_plain_weights_are_not_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(safetensors.numpy.save({"w": np.zeros(2, np.float32)}))
    error = refused(path)
    assert error.fact == (
        f"load_checkpoint: {path}: a safetensors file, but not a checkpoint: its metadata has format None, "
        "a checkpoint has 'picograd checkpoint 1'."
    )
    assert error.hint == "pg.load(path) reads plain weights."


def test_checkpoint_of_another_training_says_which(saved: Path) -> None:
    error = refused(saved, "names")
    assert error.fact == f"load_checkpoint: {saved}: a checkpoint of `train mnist`, not of `train names`."
    assert error.hint == f"picograd train mnist --resume {saved}"


def test_changed_settings_are_noticed(saved: Path) -> None:
    whole = saved.read_bytes()
    run = json.dumps(json.dumps({"kind": "mnist", "step": 12, "config": {"seed": 3, "out": "runs/a"}})).encode()
    assert run in whole
    saved.write_bytes(whole.replace(run, run.replace(b"12", b"13")))
    assert "corrupt: its contents have SHA-256" in refused(saved).fact


@pytest.mark.parametrize(
    "run",
    ["null", "[]", "{}", "", "[" * 100_000, '{"kind": "mnist"}', '{"kind": "mnist", "step": "x", "config": {}}',
     '{"kind": "mnist", "step": -1, "config": {}}', '{"kind": "mnist", "step": true, "config": {}}',
     '{"kind": "mnist", "step": 1, "config": []}', '{"kind": "mnist", "kind": "mnist", "step": 1, "config": {}}'],
    ids=range(11),
)  # fmt: skip
def test_run_of_another_form_is_refused(tmp_path: Path, run: str) -> None:
    arrays = {"model.w": np.ones(2, np.float32)}
    (tmp_path / "a").write_bytes(encode(arrays, {"format": FORMAT, "run": run, "sha256": digest_of(run, arrays)}))
    assert refused(tmp_path / "a").fact.startswith(f"load_checkpoint: {tmp_path / 'a'}: ")


def test_failed_save_leaves_the_old_checkpoint(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    before = saved.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError) as caught:
        save_checkpoint(saved, replace(example(), step=13))
    assert caught.value.fact == f"save_checkpoint: {saved}: cannot be written: No space left on device."
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_bytes(b"")
    with pytest.raises(DataError, match="cannot be written: "):
        save_checkpoint(tmp_path / "runs" / "a", example())


@pytest.mark.parametrize(
    ("expected", "fact"),
    [
        ({"b": (), "w": (3, 2)}, "w is (2, 3), this run needs (3, 2)."),
        ({"b": ()}, "w is (2, 3), this run needs no such array."),
        ({"a": (4,), "b": (), "w": (2, 3)}, "a is not there, this run needs (4,)."),
    ],
)
def test_arrays_that_do_not_fit_are_named(expected: dict[str, tuple[int, ...]], fact: str) -> None:
    with pytest.raises(DataError) as caught:
        check_fits(Path("a"), example().model, expected)
    assert caught.value.fact == f"load_checkpoint: a: {fact}"
    assert caught.value.hint == "resume with the settings the checkpoint was made with."


def test_arrays_that_fit_pass() -> None:
    check_fits(Path("a"), example().model, {"w": (2, 3), "b": ()})
