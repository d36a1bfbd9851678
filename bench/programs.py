"""The programs of examples/ that both libraries run: the one line that names the library is all that differs.

In:    a name of `TINY`, "picograd" or "torch"
Out:   the program as a module
Called by: bench/cliffs_worker.py, tests/test_cliffs.py
Next:  examples/xor.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "examples"
LINE = "import picograd as torch  # import torch: the same program on PyTorch"
# For each program what its `train` takes where seconds count: in tests, and with --quick.
TINY: dict[str, dict[str, Any]] = {
    "xor": {"num_steps": 10},
    "moons": {"num_steps": 10},
    "bigram": {"num_steps": 5},
    "makemore_mlp": {"num_steps": 5},
    "wavenet": {"num_steps": 5},
    "gpt": {"num_steps": 4, "B": 2, "count": 3},
    "cnn": {"count": 40, "B": 16},
    "vae": {"count": 40, "B": 16},
    "ddpm": {"num_steps": 3, "B": 4, "count": 1},
    "lstm": {"count": 15, "B": 6},
    "bert": {"count": 8, "B": 4},
    "reinforce": {"num_episodes": 3, "longest": 12},
    "finetune": {"count": 60, "B": 16},
}


def load(name: str, library: str = "picograd") -> ModuleType:
    """Returns a new module with a program: `make()` returns its model, `train(model, jit)` yields epochs and losses."""
    text = (FOLDER / f"{name}.py").read_text()
    if LINE not in text:
        raise ValueError(f"examples/{name}.py has no line {LINE!r}.")
    module = ModuleType(f"{library}_{name}")
    module.__file__ = str(FOLDER / f"{name}.py")
    sys.modules[module.__name__] = module  # where worker processes and pickle look for its classes
    if library != "picograd":
        text = text.replace(LINE, f"import {library} as torch")
    exec(compile(text, module.__file__, "exec"), module.__dict__)
    return module
