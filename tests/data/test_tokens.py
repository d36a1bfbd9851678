"""Windows of files of tokens that are mapped into memory, through a loader with and without workers."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import picograd as pg
from picograd.data import TokenFile
from picograd.errors import ArgumentError, DataError, FileError, IndexingError
from picograd.utils.data import DataLoader
from picograd_programs.data.tokens import CHECKED, write_tokens


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_windows_of_nanogpts_files_are_those_of_the_tokens(dtype: str, tmp_path: Path, rng: np.random.Generator) -> None:
    tokens = rng.integers(0, 60_000, 1_000).astype(dtype)
    tokens.tofile(tmp_path / "train.bin")
    for block, stride in [(8, None), (8, 1), (7, 3), (999, None)]:
        file = TokenFile(tmp_path / "train.bin", block, dtype, stride)
        assert isinstance(file.tokens_N, np.memmap)
        starts = range(0, 1_000 - block, stride or block)
        assert len(file) == len(starts)
        for number, start in enumerate(starts):
            x, y = file[number]
            assert (x == tokens[start : start + block]).all() and (y == tokens[start + 1 : start + block + 1]).all()
        assert (file[-1][0] == file[len(file) - 1][0]).all()
        for wrong in (len(file), -len(file) - 1):
            with pytest.raises(IndexingError, match=f"window {wrong} is out of range"):
                file[wrong]


def test_a_loader_has_each_window_once_with_workers_and_without(tmp_path: Path, rng: np.random.Generator) -> None:
    rng.integers(0, 500, 4_000).astype(np.uint16).tofile(tmp_path / "train.bin")
    file = TokenFile(tmp_path / "train.bin", 16)
    expected = [file[number][0].tolist() for number in range(len(file))]
    for workers in (0, 2):
        for shuffle in (False, True):
            batches = list(DataLoader(file, batch_size=8, shuffle=shuffle, num_workers=workers))
            assert batches[0][1].shape == (8, 16) and batches[0][0].dtype == pg.int32
            found = [row for x, _ in batches for row in x.tolist()]
            assert (found == expected) is not shuffle and sorted(found) == sorted(expected)


def test_a_worker_is_sent_the_path_and_not_the_tokens(tmp_path: Path) -> None:
    np.zeros(1_000_000, np.uint16).tofile(tmp_path / "train.bin")
    sent = pickle.dumps(TokenFile(tmp_path / "train.bin", 4))
    assert len(sent) < 1_000 and isinstance(pickle.loads(sent).tokens_N, np.memmap)


def test_a_file_with_the_header_of_llm_c_says_its_type(tmp_path: Path) -> None:
    write_tokens(tmp_path / "a.bin", range(50), 50)
    assert TokenFile(tmp_path / "a.bin", 4, "uint32", vocabulary=50)[1][0].tolist() == [4, 5, 6, 7]
    header = np.zeros(256, "<i4")
    header[:3] = 20240801, 7, 50
    (tmp_path / "b.bin").write_bytes(header.tobytes() + (np.arange(50, dtype="<u4") + 100_000).tobytes())
    assert TokenFile(tmp_path / "b.bin", 4)[1][1].tolist() == [100_005, 100_006, 100_007, 100_008]


def test_wrong_files_and_numbers_are_sentences(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    write_tokens(path, range(50), 50)
    of_llm_c = path.read_bytes()
    late = np.zeros(CHECKED + 9, np.uint16)
    late[CHECKED + 5] = 900
    for data, options, said in [
        (b"", {}, "has 0 tokens; a window and the token after it take 5."),
        (b"\0" * 8, {}, "has 4 tokens; a window and"),
        (b"\0" * 13, {}, "has 13 bytes of tokens of 2, not 12: it is cut."),
        (b"\0" * 22, {"dtype": "uint32"}, "has 22 bytes of tokens of 4, not 20: it is cut."),
        (of_llm_c[:-2], {}, "has 98 bytes of tokens of 2, not 100: it is cut."),
        (of_llm_c + b"\0\0", {}, "has 102 bytes of tokens of 2, not 100"),
        (late.tobytes(), {"vocabulary": 900}, f"token {CHECKED + 5:,} is 900, beyond a vocabulary of 900."),
    ]:
        path.write_bytes(data)
        with pytest.raises(DataError) as caught:
            TokenFile(path, 4, **options)
        assert said in caught.value.fact and str(path) in caught.value.fact
    with pytest.raises(FileError, match="TokenFile: .*nowhere: cannot be read"):
        TokenFile(tmp_path / "nowhere", 4)
    for block, stride, dtype in [(0, None, "uint16"), (4, 0, "uint16"), (4, None, "int64")]:
        with pytest.raises(ArgumentError, match="TokenFile: "):
            TokenFile(path, block, dtype, stride)


def test_a_training_on_a_file_goes_on_bit_for_bit(tmp_path: Path, rng: np.random.Generator) -> None:
    rng.integers(0, 20, 600).astype(np.uint16).tofile(tmp_path / "train.bin")

    def trainer() -> pg.train.Trainer:
        pg.manual_seed(0)
        model = pg.nn.Sequential(pg.nn.Embedding(20, 8), pg.nn.Linear(8, 20))
        optimizer = pg.optim.AdamW(model.parameters(), lr=1e-2)
        return pg.train.Trainer(
            model, optimizer, lambda model, x, y: pg.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        )

    loader = DataLoader(TokenFile(tmp_path / "train.bin", 8, vocabulary=20), batch_size=16, shuffle=True)
    unbroken, ours, again = trainer(), trainer(), trainer()
    unbroken.fit(loader, 20)
    checkpoints = pg.train.Checkpoints(tmp_path / "run")
    ours.fit(loader, 7, [checkpoints])
    assert checkpoints.restore(again)
    again.fit(loader, 20)
    for a, b in zip(unbroken.model.parameters(), again.model.parameters()):
        assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
