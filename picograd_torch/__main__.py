"""Runs an unchanged PyTorch program on picograd: `import torch` gives it picograd.

    python -m picograd_torch program.py [arguments of the program]

In:    a program
Out:   its effects, with picograd's tensors; a missing name raises an AttributeError or ImportError with a hint
"""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

import picograd
from picograd_torch.left_out import add_left_out
from picograd_torch.nn_modules import FILES
from picograd_torch.old_constructor import install_constructor

# PyTorch's modules under picograd's modules of the same name, or of a different name.
SAME = (
    "amp", "autograd", "autograd.function", "autograd.functional", "backends", "cuda", "cuda.amp", "distributions",
    "distributions.constraints", "distributions.transforms", "distributions.utils", "fft", "func", "linalg", "nn",
    "nn.attention", "nn.functional", "nn.grad", "nn.init", "nn.modules", "nn.parameter", "nn.utils",
    "nn.utils.parametrizations", "nn.utils.parametrize", "nn.utils.prune", "nn.utils.rnn", "optim", "optim.lr_scheduler",
    "optim.swa_utils", "random", "signal", "signal.windows", "special", "utils",
    "utils.checkpoint", "utils.data", "utils.tensorboard",
)  # fmt: skip
DISTRIBUTIONS = (
    "bernoulli", "beta", "binomial", "categorical", "cauchy", "chi2", "constraint_registry", "continuous_bernoulli",
    "dirichlet", "distribution", "exponential", "fishersnedecor", "gamma", "generalized_pareto", "geometric",
    "gumbel", "half_cauchy", "half_normal", "independent", "inverse_gamma", "kl", "kumaraswamy", "laplace",
    "lkj_cholesky", "log_normal", "logistic_normal", "lowrank_multivariate_normal", "mixture_same_family",
    "multinomial", "multivariate_normal", "negative_binomial", "normal", "one_hot_categorical", "pareto", "poisson",
    "relaxed_bernoulli", "relaxed_categorical", "studentT", "transformed_distribution", "uniform", "von_mises",
    "weibull", "wishart",
)  # fmt: skip
OPTIMIZERS = (
    "adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "lbfgs", "nadam", "optimizer", "radam", "rmsprop", "rprop",
    "sgd",
)  # fmt: skip
OTHER = {
    **{f"optim.{file}": "optim" for file in OPTIMIZERS},
    **dict.fromkeys(("utils.data.dataloader", "utils.data.dataset", "utils.data.sampler"), "utils.data"),
    **{f"nn.modules.{file}": f"nn.modules.{file}" for file in FILES},
    **dict.fromkeys((f"distributions.{part}" for part in DISTRIBUTIONS), "distributions"),
}


def install() -> None:
    """Makes `import torch`, and imports of PyTorch's modules that picograd has, return picograd's."""
    sys.modules["torch"] = picograd
    for theirs, ours in {**dict(zip(SAME, SAME)), **OTHER}.items():
        module = sys.modules[f"torch.{theirs}"] = importlib.import_module(f"picograd.{ours}")
        above, _, name = f"torch.{theirs}".rpartition(".")
        vars(sys.modules[above]).setdefault(name, module)  # torch.distributions.normal.Normal works
    picograd.nn.Module._lists_are_parts = False  # programs hide modules in lists: self.teacher = [teacher]
    sys.modules["torch.accelerator"] = picograd.accelerator
    for name in picograd.backends.__all__:
        sys.modules[f"torch.backends.{name}"] = getattr(picograd.backends, name)
    add_left_out()
    install_constructor()


def main(arguments: list[str]) -> None:
    """Runs the program given as the first argument, with the other arguments."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit("usage: python -m picograd_torch PROGRAM.py [arguments of the program]")
    install()
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
