"""Small tables of measurements, for regressions.

Source: Efron, Hastie, Johnstone, Tibshirani 2004, "Least angle regression", Annals of Statistics 32 (diabetes); Street,
       Wolberg, Mangasarian 1993, "Nuclear feature extraction for breast tumor diagnosis" (cells).
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from picograd_programs.data.fetch import Carrier, DataFile, get_files, unpack_gzip

FOLDER = "sklearn/datasets/data/"
DIABETES = {
    "diabetes_data_raw.csv": "86badf50b4f9436ddd1e497dc0ae1b93166f8120221ee7dca4634fe849f3be7c",
    "diabetes_target.csv": "244713a551f62a291a354212d8a048adec6cb1244b2bc44e66a0698f5006d26d",
}
CELLS = {"breast_cancer.csv": "fed3eb72d0575ef6192293f5093c6e801b1476b577d0386bf4455504522172ed"}


class Table(NamedTuple):
    """Rows of measurements with a target each.

    inputs:   (N, F)  float64
    targets:  (N,)    float64; 0 or 1 for classes
    """

    inputs: NDArray[np.float64]
    targets: NDArray[np.float64]


def load_diabetes() -> Table:
    """Returns ten measurements of 442 patients, such as age, body mass index and blood pressure, and diabetes' progression.

    Raises:
      DataError: a file is corrupt, or no source has it.
    """
    raw = _files("diabetes", DIABETES)
    inputs = np.array([[float(cell) for cell in line.split()] for line in raw["diabetes_data_raw.csv"].splitlines()])
    return Table(inputs, np.array([float(line) for line in raw["diabetes_target.csv"].split()]))


def load_cells() -> Table:
    """Returns thirty measurements of the cells of 569 tumours, and 1 for a benign one.

    Raises:
      DataError: a file is corrupt, or no source has it.
    """
    text = _files("cells", CELLS)["breast_cancer.csv"]
    rows = np.array([[float(cell) for cell in row] for row in list(csv.reader(text.splitlines()))[1:]])
    return Table(rows[:, :-1], rows[:, -1])


def standardised(inputs_NF: NDArray[np.float64], like_NF: NDArray[np.float64]) -> NDArray[np.float32]:
    """Returns columns shifted and scaled to mean 0 and variance 1 over `like`: (N, F) float32."""
    return ((inputs_NF - like_NF.mean(0)) / like_NF.std(0)).astype(np.float32)


def _files(name: str, digests: Mapping[str, str]) -> dict[str, str]:
    files = [DataFile(file, digest, ()) for file, digest in digests.items()]
    return {file: data.decode() for file, data in get_files(name, files, Carrier("scikit-learn==1.9.1", _unpack)).items()}


def _unpack(wheel: zipfile.ZipFile) -> Mapping[str, bytes]:
    """Returns the tables in scikit-learn's wheel.

    Raises:
      DataError: a table does not unpack.
    """
    found = {}
    for file in (*DIABETES, *CELLS):
        try:
            found[file] = wheel.read(FOLDER + file)
        except KeyError:
            found[file] = unpack_gzip(wheel.read(f"{FOLDER}{file}.gz"), file)
    return found
