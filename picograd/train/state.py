"""Between a live run and its checkpoint.

In:    a model, its optimizer and the run's settings; or a checkpoint
Out:   a checkpoint; or the model and the optimizer as they were
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from picograd.errors import DataError
from picograd.nn import Module
from picograd.optim.optimizer import Optimizer
from picograd.tensor.tensor import Tensor
from picograd.train.checkpoint import Arrays, Checkpoint, check_fits, load_checkpoint


class Settings(Protocol):
    """What every training's settings have.

    seed:    of start weights and batches
    batch:   items in a step
    resume:  a checkpoint to go on from, or None
    """

    @property
    def seed(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def resume(self) -> Path | None: ...


def checkpoint_of(kind: str, step: int, config: Any, model: Module, optimizer: Optimizer, **facts: str) -> Checkpoint:
    """Returns the state of a run after so many steps, copied to host memory.

    Args:
      facts:  what the settings do not say and the run depends on, kept among them
    """
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    moments = {
        f"{place}.{name}": tensor
        for place, state in optimizer.state_dict()["state"].items()
        for name, tensor in state.items()
    }
    return Checkpoint(kind, step, {**settings, **facts}, _arrays_of(model.state_dict()), _arrays_of(moments))


def resume(kind: str, config: Settings, model: Module, optimizer: Optimizer, same: Sequence[str] = (), **facts: str) -> int:
    """Sets a model and its optimizer as the checkpoint in `config.resume` says; the settings stay this run's.

    Args:
      same:   settings that must be those of the checkpoint, beside seed and batch
      facts:  what checkpoint_of was given beside the settings, as this run has it; must be the same too

    Returns:   steps done; 0 if there is nothing to resume

    Raises:
      DataError: the checkpoint is corrupt, or was made with other shapes, another seed or another batch.
    """
    path = config.resume
    if path is None:
        return 0
    saved = load_checkpoint(path, kind)
    for name in ("seed", "batch", *same):
        value, before = getattr(config, name), saved.config.get(name)
        if before != value:
            raise DataError(
                f"load_checkpoint: {path}: made with {name} {before}, this run has {name} {value}: "
                "the next batch would not be the one an unbroken run sees.",
                hint=f"--{name.replace('_', '-')} {before}",
            )
    for name, value in facts.items():
        if saved.config.get(name) != value:
            raise DataError(
                f"load_checkpoint: {path}: the {name.replace('_', ' ')} that it was made with are not those of this run: "
                "the next batch would not be the one an unbroken run sees.",
                hint="resume with the data the checkpoint was made with.",
            )
    load_weights(path, saved, model)
    moments: dict[str, dict[str, Tensor]] = {}
    for key, tensor in _tensors_of(saved.optimizer).items():
        place, _, name = key.partition(".")
        moments.setdefault(place, {})[name] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    return saved.step


def load_weights(path: Path, saved: Checkpoint, model: Module) -> None:
    """Gives a model the weights in the checkpoint that `path` holds.

    Raises:
      DataError: they are not of its names and shapes.
    """
    check_fits(path, saved.model, {name: tuple(value.shape) for name, value in model.state_dict().items()})
    model.load_state_dict(_tensors_of(saved.model))


def _arrays_of(state: Mapping[str, Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: value.detach().numpy() for name, value in state.items()}


def _tensors_of(arrays: Arrays) -> dict[str, Tensor]:
    return {name: Tensor(array) for name, array in arrays.items()}
