"""MNIST: from the carrier's pickle to the published bytes, and the normalised rows a model sees."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from picograd.errors import DataError
from picograd_programs.data import mnist
from picograd_programs.data.fetch import sha256_of
from picograd_programs.data.mnist import format_idx, parse_idx


def carrier(contents: object, kept: int | None = None) -> zipfile.ZipFile:
    """A wheel with a pickle in it, as the carrier package has it: written by NumPy 1, perhaps cut short."""
    return carrier_of(pickle.dumps(contents, protocol=3).replace(b"numpy._core.", b"numpy.core.")[:kept])


def carrier_of(pickled: bytes, packed: bytes | None = None) -> zipfile.ZipFile:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(mnist.CARRIER_MEMBER, gzip.compress(pickled) if packed is None else packed)
    return zipfile.ZipFile(file)


def pairs(*counts: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    levels = [rng.integers(0, 256, (count, 784)) for count in counts]
    return [((x / 256).astype(np.float32), rng.integers(0, 10, len(x)).astype(np.int64)) for x in levels]


def test_carrier_becomes_the_four_idx_files() -> None:
    contents = pairs(5, 2, 3)
    files = mnist.unpack_carrier(carrier(contents))
    train, valid, test = contents
    images = parse_idx(files["train-images-idx3-ubyte"], "images")
    assert images.shape == (7, 28, 28)
    assert np.array_equal(images.reshape(7, 784) / 256, np.concatenate([train[0], valid[0]]))
    assert np.array_equal(parse_idx(files["train-labels-idx1-ubyte"], "labels"), np.concatenate([train[1], valid[1]]))
    assert parse_idx(files["t10k-images-idx3-ubyte"], "images").shape == (3, 28, 28)
    assert np.array_equal(parse_idx(files["t10k-labels-idx1-ubyte"], "labels"), test[1])


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("unpickling ran this",)


def test_pickle_that_asks_for_anything_but_arrays_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError) as caught:
        mnist.unpack_carrier(carrier(Harmful()))
    assert caught.value.fact == (
        "mnist/data/mnist.pkl.gz: does not unpack: its pickle names builtins.print, which is not a tensor, "
        "container or number that picograd reads"
    )
    assert capsys.readouterr().out == ""


def test_array_of_objects_is_refused() -> None:
    # NumPy would read the bytes as the address of an object.
    array = b"cnumpy\nndarray\n(K\x01\x85cnumpy\ndtype\nU\x02O8\x85RB\x08\x00\x00\x00AAAAAAAAtR."
    for pickled in (b"\x80\x02" + array, pickle.dumps([np.array([None, 1])], 3).replace(b"numpy._core.", b"numpy.core.")):
        with pytest.raises(DataError, match="does not unpack: it has an array of dtype 'O8'; only numbers and bools"):
            mnist.unpack_carrier(carrier_of(pickled))


def test_pickle_that_unpacks_to_gigabytes_is_refused() -> None:
    packed = gzip.compress(bytes(2**20), 1) * 300  # one after the other, as gzip allows
    with pytest.raises(DataError, match="unpack to more than 268,435,456, as no file of a data set does"):
        mnist.unpack_carrier(carrier_of(b"", packed))


@pytest.mark.parametrize("contents", [[], [1, 2, 3], "text", pairs(2, 2), [[{}] * 2] * 3, [(np.ones(3), 1)] * 3])
def test_pickle_of_another_form_is_refused(contents: object) -> None:
    with pytest.raises(DataError, match=r"mnist/data/mnist\.pkl\.gz: does not unpack: "):
        mnist.unpack_carrier(carrier(contents))


def test_truncated_pickle_is_refused() -> None:
    with pytest.raises(DataError, match="does not unpack"):
        mnist.unpack_carrier(carrier(pairs(2, 2, 2), kept=-100))


def test_normalised_rows_have_mean_0_and_variance_1_for_the_published_constants() -> None:
    images = np.array([[[0, 255]]], np.uint8)
    rows = mnist.normalise(images)
    assert rows.dtype == np.float32
    assert rows.shape == (1, 2)
    # Two float32 operations after exact constants: 2 ulp of 2.8.
    assert rows[0] == pytest.approx([-0.1307 / 0.3081, (1 - 0.1307) / 0.3081], abs=5e-7)


def test_user_files_are_parsed(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {
        "train-images-idx3-ubyte": np.zeros((4, 28, 28), np.uint8),
        "train-labels-idx1-ubyte": np.arange(4, dtype=np.uint8),
        "t10k-images-idx3-ubyte": np.ones((2, 28, 28), np.uint8),
        "t10k-labels-idx1-ubyte": np.arange(2, dtype=np.uint8),
    }
    raw = {name: format_idx(array) for name, array in arrays.items()}
    for name, data in raw.items():
        (tmp_path / name).write_bytes(data)
    for digests in ("DIGESTS", "FASHION_DIGESTS"):
        monkeypatch.setattr(mnist, digests, {name: sha256_of(data) for name, data in raw.items()})
    monkeypatch.setenv("PICOGRAD_DATA", str(tmp_path))
    for name in ("mnist", "fashion"):
        data = mnist.load_images(name)
        assert data.train_images.shape == (4, 28, 28)
        assert data.test_labels.tolist() == [0, 1]


def test_published_files_come_out_of_some_source(published_mnist: mnist.Mnist) -> None:
    assert published_mnist.train_images.shape == (60000, 28, 28)
    assert published_mnist.test_images.shape == (10000, 28, 28)
    assert published_mnist.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    mean, square = published_mnist.train_images.mean(), np.square(published_mnist.train_images, dtype=np.uint16).mean()
    dark, light = mnist.normalise(np.array([[[0, 255]]], np.uint8)).ravel()
    # The two constants are given to four digits.
    assert dark + (light - dark) * mean / 255 == pytest.approx(0, abs=1e-3)
    assert (light - dark) / 255 * (square - mean**2) ** 0.5 == pytest.approx(1, abs=1e-3)
