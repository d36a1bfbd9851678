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


def both(folder: Path, program: str) -> tuple[str, str]:
    """Returns what a program prints with picograd in the place of torch, and what it prints with torch."""
    (folder / "program.py").write_text(program)
    where = {"cwd": folder, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}
    runs = [[sys.executable, "-m", "picograd_torch"], [sys.executable]]
    ours, theirs = (subprocess.run([*run, "program.py"], **where, capture_output=True, text=True) for run in runs)  # type: ignore[call-overload]
    assert not ours.returncode and not theirs.returncode, ours.stderr + theirs.stderr
    return ours.stdout, theirs.stdout


def test_a_list_hides_modules_from_a_program_as_it_does_in_pytorch(tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, HIDDEN)
    assert ours == theirs and ours.startswith("['net.weight', 'net.bias'] False")


CONSTRUCTOR = """
import numpy as np
import torch

x, y = torch.ones(2, requires_grad=True), torch.tensor([1, 2])
for made in (
    torch.Tensor(), torch.Tensor(5), torch.Tensor(2, 3), torch.Tensor(1, 4, 1), torch.Tensor(x.size()),
    torch.Tensor(np.int64(3)), torch.Tensor(size=(2, 3)), torch.Tensor(0), torch.FloatTensor(x.size()),
    torch.LongTensor(2, 3), x.new(2, 3), y.new(x.size()), x.new(),
):
    print(tuple(made.shape), made.dtype == torch.float32)
for made in (
    torch.Tensor([1, 2]), torch.Tensor((1, 2)), torch.Tensor(np.array([1.5, 2])), torch.Tensor(np.array(3.0)),
    torch.Tensor([True, False]), torch.Tensor(range(3)), torch.Tensor([y[0], y[1]]), torch.Tensor(y), torch.Tensor(2 * x),
    torch.Tensor([]), y.new([1.5, 2]), x.new([1, 2]),
):
    print(made.tolist(), made.dtype == torch.float32, made.requires_grad, made.type())
torch.Tensor(y)[0] = 7
torch.Tensor(x).sum().backward()
print(y.tolist(), x.grad.tolist(), type(x) is torch.Tensor)
torch.set_default_dtype(torch.float64)
print(torch.Tensor([1, 2]).type(), torch.nn.Linear(2, 1)(torch.Tensor([1, 2])).dtype == torch.float64)
"""


def test_the_old_constructor_makes_what_it_makes_in_pytorch(tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, CONSTRUCTOR)
    assert ours == theirs


OLD_NAMES = """
import warnings; warnings.simplefilter("ignore")
import torch
from torch import nn
from torch.nn import init
from torch.autograd.graph import save_on_cpu
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from torch.nn.modules.module import _IncompatibleKeys
from torch.types import Device, Number, _size
from torch.utils import _pytree

assert torch.distributions.normal.Normal is torch.distributions.Normal
assert isinstance(nn.Linear(1, 1).load_state_dict({}, strict=False), _IncompatibleKeys)
assert _pytree._dict_unflatten(*_pytree._dict_flatten({"a": 1})) == {"a": 1}
assert torch.utils.data.dataloader.DataLoader is torch.utils.data.DataLoader and torch.__config__.show()

layer, seen = nn.Linear(2, 2), []
assert init._calculate_correct_fan(torch.ones(2, 3), "fan_in") == 3
init.constant(layer.weight, 0.5), init.xavier_uniform(nn.Linear(3, 3).weight), init.orthogonal(torch.empty(2, 2))
layer.register_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_output[0].tolist()))
(layer(torch.ones(1, 2, requires_grad=True)) * torch.tensor([30.0, 40.0])).sum().backward()
layer.bias.grad.zero_()
torch.nn.utils.clip_grad_norm(layer.parameters(), 5.0)
print(seen, [round(number, 3) for number in layer.weight.grad.flatten().tolist()], isinstance(nn.NLLLoss2d(), nn.NLLLoss))
"""


def test_names_that_pytorch_warns_of_are_there(tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, OLD_NAMES)
    assert ours == theirs
