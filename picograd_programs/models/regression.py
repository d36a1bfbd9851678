"""`picograd train linear` and `picograd train logistic`: regressions, by gradient descent and by exact solutions.

Linear regression has a closed form, least squares. Logistic regression is solved by Newton's method, here as repeated
least squares with other weights (IRLS).

Source: Bishop 2006, "Pattern Recognition and Machine Learning", sections 3.1.1 and 4.3.3.

Letters: N rows, F features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from picograd import linalg, nn
from picograd.nn import functional as F
from picograd.optim.descent import SGD
from picograd.tensor.generator import manual_seed
from picograd.tensor.tensor import Tensor
from picograd_programs.data.tables import Table, load_cells, load_diabetes, standardised
from picograd_programs.train.program import NoOption, Program, SampleSettings, Settings, check_settings, trained

HELD_OUT = 5  # every fifth row


# ---- exact solutions ----
def least_squares(x_NF: Tensor, y_N: Tensor) -> Tensor:
    """Returns the weights of least squares, the bias last: argmin_w |[x 1] w - y|^2, (F + 1,)."""
    solution_F1 = linalg.lstsq(with_ones(x_NF), y_N.unsqueeze(1))[0]
    return solution_F1.squeeze(1)


def newton(x_NF: Tensor, y_N: Tensor, decay: float, steps: int = 10) -> Tensor:
    """Returns the weights of logistic regression, the bias last, by Newton's method.

    w <- w - H^-1 g,  g = X^T (s - y) / N + decay w,  H = X^T diag(s (1 - s)) X / N + decay I,  s = sigmoid(X w)

    Args:
      x_NF:   (N, F)
      y_N:    (N,)  0 or 1
      decay:  decay of all weights except the bias
      steps:  number of steps; each doubles the correct digits

    Returns:  (F + 1,)
    """
    x_NF = with_ones(x_NF)
    num_rows, num_features = x_NF.shape
    penalty_F = Tensor([decay] * (num_features - 1) + [0.0], dtype=x_NF.dtype)
    w_F = Tensor.zeros(num_features, dtype=x_NF.dtype)
    for _ in range(steps):
        s_N = (x_NF @ w_F).sigmoid()
        gradient_F = x_NF.T @ (s_N - y_N) / num_rows + penalty_F * w_F
        hessian_FF = (x_NF.T * (s_N * (1 - s_N))) @ x_NF / num_rows + penalty_F.diag()
        w_F = (w_F - linalg.solve(hessian_FF, gradient_F)).realize()
    return w_F


def with_ones(x_NF: Tensor) -> Tensor:
    """Appends a 1 to each row, the factor of the bias: (N, F + 1)."""
    return Tensor.cat([x_NF, Tensor.ones(len(x_NF), 1, dtype=x_NF.dtype)], dim=1)


# ---- what both have ----
@dataclass(frozen=True)
class RegressionSettings(Settings):
    """Settings of trainings on a table; a step uses all its rows."""

    steps: int = 500
    lr: float = 0.1  # constant learning rate
    eval_every: int = 100
    batch: NoOption[int] = 32
    warmup: NoOption[int] = 0
    weight_decay: NoOption[float] = 0.0


@dataclass(frozen=True)
class SampleRegressionSettings(SampleSettings):
    """Settings of `picograd sample linear` and `picograd sample logistic`; only the choice of shown rows is random."""

    num: int = 10  # number of held-out rows
    temperature: NoOption[float] = 1.0


class Regression(Program):
    """A linear layer on the standardized columns of a table, with every fifth row held out."""

    item = "rows"
    samples: ClassVar[type | None] = SampleRegressionSettings

    def __init__(self, settings: Any):
        table = self.table()
        is_held_out = np.arange(len(table.inputs)) % HELD_OUT == 0
        inputs, targets = table.inputs[~is_held_out], table.targets[~is_held_out]
        self.train_x, self.train_y = standardised(inputs, inputs), targets.astype(np.float32)
        self.test_x = standardised(table.inputs[is_held_out], inputs)
        self.test_y = table.targets[is_held_out].astype(np.float32)
        super().__init__(settings, features=inputs.shape[1])
        manual_seed(settings.seed)
        self.model = self.build(self.facts)
        self.optimizer = SGD(self.model.parameters(), lr=settings.lr)

    @staticmethod
    def table() -> Table:
        """Returns the table."""
        raise NotImplementedError

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> nn.Linear:
        """Returns the layer."""
        return nn.Linear(facts["features"], 1)

    def schedule(self, step: int) -> float:
        """Returns 1: the learning rate is constant."""
        return 1.0

    def batch(self, number: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns all rows."""
        return self.train_x, self.train_y

    @classmethod
    def said(cls, output: float, target: float) -> str:
        """Returns a line with the model's output and the true value."""
        raise NotImplementedError

    @classmethod
    def sample(cls, settings: SampleRegressionSettings) -> str:
        """Returns a line for each of some held-out rows: the model's output, and the true value.

        Raises:
          ArgumentError: a setting is out of its range.
          DataError: the checkpoint is missing, corrupt, or of another training.
        """
        check_settings(settings)
        model, _ = trained(cls, settings.checkpoint)
        run = cls(cls.takes())  # with the same held-out rows
        rows = np.random.default_rng(settings.seed).permutation(len(run.test_y))[: settings.num]
        outputs = model(Tensor(run.test_x[rows])).squeeze(1).tolist()
        return "\n".join(map(cls.said, outputs, run.test_y[rows].tolist()))

    def describe(self) -> str:
        """Returns the size of the table."""
        rows, features = self.train_x.shape
        return f"{rows} rows of {features} features, {len(self.test_x)} held out; {super().describe()}"


# ---- picograd train linear ----
@dataclass(frozen=True)
class LinearSettings(RegressionSettings):
    """Settings of `picograd train linear`: diabetes' progression, from ten measurements."""

    out: Path = Path("runs/linear")


class LinearRegression(Regression):
    """Predicts a number by least mean squared error."""

    name, takes = "linear", LinearSettings
    about = "Linear regression, by gradient descent and by least squares."

    @staticmethod
    def table() -> Table:
        """Returns the measurements of patients."""
        return load_diabetes()

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Returns the mean squared error."""
        return F.mse_loss(model(batch[0]).squeeze(1), batch[1])

    @classmethod
    def said(cls, output: float, target: float) -> str:
        """Returns both numbers."""
        return f"{output:5.0f} is expected, {target:4.0f} was measured"

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Returns the mean squared error on held-out rows."""
        return {"held-out loss": self.loss(model, Tensor(self.test_x), Tensor(self.test_y)).item()}

    def report(self, model: nn.Module) -> str:
        """Returns both solutions' errors, and the explained share of the variance."""
        x_NF, y_N = Tensor(self.train_x).double(), Tensor(self.train_y).double()
        w_F = least_squares(x_NF, y_N)
        exact = (with_ones(x_NF) @ w_F - y_N).square().mean().item()
        held_out = (with_ones(Tensor(self.test_x).double()) @ w_F - Tensor(self.test_y)).square().mean().item()
        fitted = self.loss(model, Tensor(self.train_x), Tensor(self.train_y)).item()
        told = 1 - held_out / float(((self.test_y - self.train_y.mean()) ** 2).mean())
        return (
            f"mean squared error by gradient descent: {fitted:.2f}; by least squares: {exact:.2f}\n"
            f"held out: {held_out:.2f}, which tells {told:.1%} of the variance"
        )


# ---- picograd train logistic ----
@dataclass(frozen=True)
class LogisticSettings(RegressionSettings):
    """Settings of `picograd train logistic`: whether a tumour is benign, from thirty measurements of its cells."""

    steps: int = 1000
    lr: float = 1.0
    decay: float = 0.01  # factor of half the squares of all weights in the loss
    out: Path = Path("runs/logistic")


class LogisticRegression(Regression):
    """Predicts a class by least negative log-likelihood."""

    name, takes = "logistic", LogisticSettings
    about = "Logistic regression, by gradient descent and by Newton's method."

    @staticmethod
    def table() -> Table:
        """Returns the measurements of cells."""
        return load_cells()

    def loss(self, model: Any, *batch: Tensor) -> Tensor:
        """Returns the mean negative log-likelihood, plus half the decay times the squares of the weights."""
        x_NF, y_N = batch
        nll = F.binary_cross_entropy_with_logits(model(x_NF).squeeze(1), y_N)
        return nll + 0.5 * self.settings.decay * model.weight.square().sum()

    @classmethod
    def said(cls, output: float, target: float) -> str:
        """Returns the probability of a benign tumour, and the true class."""
        return f"{1 / (1 + math.exp(-output)):6.1%} benign; it is {'benign' if target else 'malignant'}"

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Returns the share of held-out rows with the correct class."""
        right = (model(Tensor(self.test_x)).squeeze(1) > 0).numpy() == (self.test_y > 0.5)
        return {"held-out accuracy": float(right.mean())}

    def report(self, model: Any) -> str:
        """Returns both solutions' losses, and the accuracy on held-out rows."""
        x_NF, y_N = Tensor(self.train_x).double(), Tensor(self.train_y).double()
        w_F = newton(x_NF, y_N, self.settings.decay)
        nll = F.binary_cross_entropy_with_logits(with_ones(x_NF) @ w_F, y_N).item()
        exact = nll + 0.5 * self.settings.decay * w_F[:-1].square().sum().item()
        fitted = self.loss(model, Tensor(self.train_x), Tensor(self.train_y)).item()
        right = (with_ones(Tensor(self.test_x).double()) @ w_F > 0).numpy() == (self.test_y > 0.5)
        losses = f"loss by gradient descent: {fitted:.6f}; by Newton's method: {exact:.6f}"
        return f"{losses}\nheld-out accuracy: {right.mean():.2%}"
