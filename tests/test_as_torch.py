"""A program written for PyTorch computes the same on picograd, unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from torch.distributions import Normal
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed import init_process_group
import torch.backends.cudnn as cudnn
import torch.distributed as dist
from torch.distributions.categorical import Categorical
from torch.nn.modules.loss import CrossEntropyLoss
from torch.utils.data.distributed import DistributedSampler

assert not dist.is_initialized()

cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = False
assert isinstance(Normal(0.0, 1.0), torch.distributions.Normal)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 8), nn.Linear(8, 2)
        for place, p in enumerate(self.parameters()):
            with torch.no_grad():
                p.copy_(torch.linspace(-0.5, 0.7 + place / 10, p.numel()).view_as(p))

    def forward(self, x):
        return F.log_softmax(self.second(torch.relu(self.first(x))), dim=1)

device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
x = torch.sin(torch.arange(60, dtype=torch.float32)).reshape(20, 3)
loader = DataLoader(TensorDataset(x, (x.sum(dim=1) > 0).long()), batch_size=int(sys.argv[1]), drop_last=True)
net = Net().to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
scheduler = StepLR(optimizer, step_size=1, gamma=0.9)
for epoch in range(3):
    net.train()
    for data, target in loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(net(data), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        print(f"{loss.item():.4f}")
    scheduler.step()
"""


def test_a_program_runs_unchanged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "picograd_torch", str(program), "6"]
    mine = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    monkeypatch.setattr(sys, "argv", [str(program), "6"])
    settings = torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32
    exec(PROGRAM, {"__name__": "__main__"})  # importing PyTorch once more takes seconds
    torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32 = settings
    assert mine == capfd.readouterr().out and len(mine.split()) == 9


HIDDEN = """
import torch
from torch import nn

class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher, self.net = [nn.Sequential(nn.Linear(1, 1), nn.Dropout())], nn.Linear(1, 1)

student = Student()
student.teacher[0].eval()
print([name for name, _ in student.train().named_parameters()], student.teacher[0].training, student)
"""


def test_a_list_hides_modules_from_a_program_as_it_does_in_pytorch(tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(HIDDEN)
    runs = [[sys.executable], [sys.executable, "-m", "picograd_torch"]]
    ours, theirs = (
        subprocess.run([*run, "hidden.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
        for run in runs
    )
    assert ours.stdout == theirs.stdout and ours.stdout.startswith(b"['net.weight', 'net.bias'] False"), ours.stderr
