"""The programs of examples/ that both libraries run: the one line that names the library is all that differs.

In:    a name of `TINY`, "picograd" or "torch"
Out:   the program as a module;  `equal_work`: one whose steps are as much work in either library
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


def equal_work(name: str, program: ModuleType) -> ModuleType:
    """Returns a program whose steps are as much work whatever is drawn, for times that are compared.

    An episode of REINFORCE is as long as a pole stands, by the actions that a library draws. Here each ends after a number
    of actions that the pole's own generator gives: from a tenth to half of the longest, the same in both libraries and
    another one in nearly each episode.
    """
    if name == "reinforce":
        program.CartPole = _with_lengths_of_its_own(program.CartPole)
    return program


def _with_lengths_of_its_own(kind: Any) -> type:
    class CartPole(kind):  # type: ignore[misc]
        def reset(self) -> list[float]:
            self.end = max(2, self.rng.randint(self.longest // 10, self.longest // 2))
            state: list[float] = super().reset()
            return state

        def step(self, action: int) -> tuple[list[float], float, bool]:
            state, reward, _ = super().step(action)
            return state, reward, self.count == self.end

    return CartPole
