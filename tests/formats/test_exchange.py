"""A training that goes on from the other library's file: its losses are those of one that stayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg

STEPS = 4
# Each by the same name and arguments in both libraries.
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {"lr": 0.1}),
    "momentum": ("SGD", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    "nesterov": ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True}),
    "dampening": ("SGD", {"lr": 0.05, "momentum": 0.8, "dampening": 0.1}),
    "Adam": ("Adam", {"lr": 0.02, "betas": (0.8, 0.95)}),
    "amsgrad": ("Adam", {"lr": 0.02, "amsgrad": True, "weight_decay": 0.01}),
    "AdamW": ("AdamW", {"lr": 0.02, "weight_decay": 0.1}),
    "RMSprop": ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True}),
    "Adagrad": ("Adagrad", {"lr": 0.05}),
    "Adadelta": ("Adadelta", {"lr": 0.5}),
    "Adamax": ("Adamax", {"lr": 0.02}),
    "NAdam": ("NAdam", {"lr": 0.02}),
    "RAdam": ("RAdam", {"lr": 0.02}),
}


class Training:
    """A small regression in one of the libraries: two layers, two groups of parameters, a schedule."""

    def __init__(self, library: Any, name: str):
        self.library = library
        nn = library.nn
        self.model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
        kind, settings = OPTIMIZERS[name]
        first, last = (list(self.model[place].parameters()) for place in (0, 2))
        groups = [{"params": first}, {"params": last, "lr": settings["lr"] / 2}]
        self.optimizer = getattr(library.optim, kind)(groups, **settings)
        self.schedule = library.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)

    def steps(self, first: int, count: int) -> list[float]:
        """Returns the losses of some steps, whose batches follow from their numbers."""
        losses = []
        for number in range(first, first + count):
            x = np.random.default_rng(number).standard_normal((8, 3)).astype(np.float32)
            y = x.sum(1, keepdims=True)
            loss = ((self.model(self.library.tensor(x)) - self.library.tensor(y)) ** 2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            losses.append(loss.item())
        return losses

    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}

    def save(self, path: Path, epoch: int, **options: Any) -> None:
        state = {"epoch": epoch, **{name: part.state_dict() for name, part in self.parts().items()}}
        self.library.save(state, path, **options)

    def load(self, path: Path, **options: Any) -> int:
        saved = self.library.load(path, **options)
        for name, part in self.parts().items():
            part.load_state_dict(saved[name])
        return int(saved["epoch"])


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("old_format", [False, True], ids=["zip", "stream"])
def test_a_training_of_pytorch_goes_on_here(
    name: str, old_format: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    torch.manual_seed(0)
    there, here = Training(torch, name), Training(pg, name)
    there.steps(0, STEPS)
    there.save(tmp_path / "x.pt", STEPS, _use_new_zipfile_serialization=not old_format)
    assert here.load(tmp_path / "x.pt") == STEPS
    # Four steps of float32 in another order of additions.
    assert here.steps(STEPS, STEPS) == pytest.approx(there.steps(STEPS, STEPS), rel=2e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_of_ours_goes_on_in_pytorch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    there, here = Training(torch, name), Training(pg, name)
    here.steps(0, STEPS)
    here.save(tmp_path / "x.pt", STEPS)
    assert there.load(tmp_path / "x.pt", weights_only=True) == STEPS
    assert there.steps(STEPS, STEPS) == pytest.approx(here.steps(STEPS, STEPS), rel=2e-5)
