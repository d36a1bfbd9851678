"""The examples run, and picograd imports where there is no GPU, no CUDA toolkit and no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import picograd as pg
from examples.micrograd_cuda import train
from picograd import Tensor
from picograd.nn import MLP

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.req("B1")
def test_micrograd_cudas_script_learns(device: str) -> None:
    losses = train(device, steps=8, width=40)
    assert losses[-1] < losses[0] / 2


@pytest.mark.req("B1")
def test_micrograd_cudas_script_at_its_own_width_equals_pytorch(device: str) -> None:
    losses = train(device, steps=3)
    pg.manual_seed(0)
    start, xs = MLP(300, [300, 300, 1]), Tensor.randn(4, 300)
    weights = [torch.tensor(p.detach().numpy(), requires_grad=True) for p in start.parameters()]
    ys = torch.tensor([[1.0], [-1.0], [-1.0], [1.0]])
    for loss in losses:
        h = torch.tensor(xs.numpy())
        for k in range(0, 6, 2):
            h = h @ weights[k].T + weights[k + 1]
            h = h.relu() if k < 4 else h
        expected = ((h - ys) ** 2).sum()
        # sums of 300 float32 terms in another order
        assert loss == pytest.approx(expected.item(), rel=1e-4)
        for weight, grad in zip(weights, torch.autograd.grad(expected, weights)):
            weight.data -= 0.01 * grad


@pytest.mark.req("B1")
@pytest.mark.req("I1")
def test_eager_and_compiled_training_agree() -> None:
    # Eight steps of float32 sums of 40 terms in another order: some 1e-6 each, growing with the steps.
    assert train("CPU", steps=8, width=40) == pytest.approx(train("NUMPY", steps=8, width=40), rel=1e-4)


@pytest.mark.req("B5")
@pytest.mark.req("I2")
def test_import_and_training_need_no_gpu_and_no_compiler(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('cuda', 'torch', 'pyopencl', 'mpi4py'):\n"
        "            raise ImportError(name + ' is hidden by the test')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import picograd\n"
        "assert not {'llvmlite', 'rich', 'tyro', 'safetensors'} & {m.split('.')[0] for m in sys.modules}\n"
        "x = picograd.Tensor([1.0, 2.0], requires_grad=True)\n"
        "(x * x).sum().backward()\n"
        "print(x.grad.tolist())\n"
    )
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PICOGRAD_CACHE": str(tmp_path / "cache")}
    environment |= {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "[2.0, 4.0]\n"
