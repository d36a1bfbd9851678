"""What picograd knows of a machine, as data: stages read a Target and never ask a backend.

In:    measured or given facts of a machine
Out:   `Target`
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A machine to generate code for.

    device:            name users choose it by, e.g. "CPU"
    language:          what `render` writes: "llvm", "cuda" or "" (the evaluator)
    arch:              processor or architecture, e.g. "cascadelake", "sm_90a"
    vector_bytes:      width of one vector register; 0 where threads are the vectors
    num_registers:     vector registers
    block_threads:     threads of a block; 1 on a CPU
    shared_bytes:      memory one block shares
    features:          processor features the compiler is told
    """

    device: str
    language: str
    arch: str
    vector_bytes: int = 0
    num_registers: int = 16
    block_threads: int = 1
    shared_bytes: int = 0
    features: str = ""

    @property
    def is_gpu(self) -> bool:
        return self.block_threads > 1
