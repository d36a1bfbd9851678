"""Checkpoints: everything a training run needs to go on, in one safetensors file.

In:    a model, its optimizer, steps done, settings
Out:   a file that is complete or not there; or a `Checkpoint` read back, and the model and the optimizer as they were

The arrays are called `model.<name>` and `optimizer.<name>`, so that any safetensors reader finds the weights. The
header's metadata holds the rest: the run (kind, step, settings) as JSON, and the SHA-256 of all of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from picograd.errors import DataError
from picograd.files import read_whole, write_whole
from picograd.nn import Module
from picograd.optim.optimizer import Optimizer
from picograd.record import Record
from picograd.tensor.tensor import Tensor
from picograd_formats.safetensors_file import decode, digest_of, encode, json_of

# ---- files ----
Arrays = Mapping[str, np.ndarray[Any, Any]]
FORMAT = "picograd checkpoint 1"
SAMPLED = ("gpt", "lstm")  # kinds of training that `picograd sample` knows


class Checkpoint(Record):
    """The state of a training run between two steps.

    kind:       which training made it: "mnist", "names"
    step:       steps done, counted from the start of training
    config:     the run's settings, as JSON values; its seed and `step` say which batch comes next
    model:      array by parameter name
    optimizer:  array by name
    """

    kind: str
    step: int
    config: Mapping[str, Any]
    model: Arrays
    optimizer: Arrays


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint. The one that was there before stays whole until the new one is.

    Raises:
      DataError: the folder is read-only or full.
    """
    arrays = {f"model.{name}": array for name, array in checkpoint.model.items()}
    arrays |= {f"optimizer.{name}": array for name, array in checkpoint.optimizer.items()}
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    run = json.dumps({"kind": checkpoint.kind, "step": checkpoint.step, "config": dict(checkpoint.config)})
    metadata = {"format": FORMAT, "run": run, "sha256": digest_of(run, arrays)}
    data = encode(arrays, metadata)
    hint = "name another place with --out; a checkpoint that was there before is untouched."
    write_whole("save_checkpoint", path, lambda file: file.write(data), hint, makes_folder=True)


def load_checkpoint(path: Path, kind: str, command: str = "train {kind} --resume {path}") -> Checkpoint:
    """Returns the checkpoint in a file; the file is only read.

    Args:
      kind:     the training that is to go on
      command:  what to do with a checkpoint of another kind, which an error recommends

    Raises:
      DataError: no such file; truncated, corrupt or not a checkpoint; or one of another training.
    """
    arrays, metadata = _read(path, kind)
    if metadata.get("format") != FORMAT:
        raise DataError(
            f"load_checkpoint: {path}: a safetensors file, but not a checkpoint: its metadata has format "
            f"{metadata.get('format')!r}, a checkpoint has {FORMAT!r}.",
            hint="pg.load(path) reads plain weights.",
        )
    actual, expected = digest_of(metadata.get("run", ""), arrays), metadata.get("sha256")
    if actual != expected:
        raise DataError(
            f"load_checkpoint: {path}: corrupt: its contents have SHA-256 {actual}, its header says {expected}. "
            "The file is left as it is.",
            hint="resume from another checkpoint.",
        )
    run = _run_of(path, metadata.get("run", ""))
    if run["kind"] != kind:
        command = command if command.startswith("train") or run["kind"] in SAMPLED else "train {kind} --resume {path}"
        raise DataError(
            f"load_checkpoint: {path}: a checkpoint of `train {run['kind']}`, not of `train {kind}`.",
            hint="picograd " + command.format(kind=run["kind"], path=path),
        )
    return Checkpoint(kind, run["step"], run["config"], _part(arrays, "model."), _part(arrays, "optimizer."))


def _run_of(path: Path, text: str) -> dict[str, Any]:
    """Returns kind, step and settings.

    Raises:
      DataError: they are not what a checkpoint has.
    """
    try:
        run = json_of(text)
    except DataError as error:
        raise DataError(f"load_checkpoint: {path}: {error.fact}.") from None
    kinds = {"kind": str, "step": int, "config": dict}
    if not isinstance(run, dict) or not all(type(run.get(name)) is kind for name, kind in kinds.items()) or run["step"] < 0:
        raise DataError(f"load_checkpoint: {path}: not a checkpoint: its kind, step and settings are {text[:60]!r}.")
    return run


def check_fits(path: Path, saved: Arrays, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Checks that saved arrays have the names and shapes that this run needs.

    Raises:
      DataError: a name is missing or unknown, or a shape differs.
    """
    shapes = {name: array.shape for name, array in saved.items()}
    for name in sorted(shapes.keys() | expected.keys()):
        if shapes.get(name) != expected.get(name):
            raise DataError(
                f"load_checkpoint: {path}: {name} is {shapes.get(name, 'not there')}, "
                f"this run needs {expected.get(name, 'no such array')}.",
                hint="resume with the settings the checkpoint was made with.",
            )


def _read(path: Path, kind: str) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    """Returns the arrays and the metadata of a checkpoint file."""
    data = read_whole("load_checkpoint", path, f"picograd train {kind} writes checkpoints; --out names the place.")
    try:
        arrays, metadata = decode(data)
    except DataError as error:
        raise DataError(
            f"load_checkpoint: {path}: truncated or not a safetensors file ({len(data):,} bytes): {error.fact}. "
            "The file is left as it is.",
            hint="resume from another checkpoint.",
        ) from None
    return {name: array for name, (array, _) in arrays.items()}, metadata


def _part(arrays: Arrays, prefix: str) -> dict[str, np.ndarray[Any, Any]]:
    return {name.removeprefix(prefix): arrays[name] for name in sorted(arrays) if name.startswith(prefix)}


# ---- between a live run and its checkpoint ----
class Settings(Protocol):
    """The settings that every training has.

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
      same:   settings that must be those of the checkpoint, besides seed and batch
      facts:  checkpoint_of's arguments besides the settings, as this run has them; must be the same too

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
