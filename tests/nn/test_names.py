"""No name of torch.nn, torch.optim, their modules and base classes is missing silently: each is here, or a reason why not.

`python -m tests.nn.test_names` prints what is missing and stands under no reason but "not yet".
"""

from __future__ import annotations

import inspect
from fnmatch import fnmatchcase
from typing import Any

import pytest
import torch

from picograd import nn, optim

# reason: names and patterns
NEVER = {
    "quantized and sparse networks, other machines": """
        intrinsic qat quantizable quantized SparseAdam sparse ipu mtia xpu DataParallel parallel SyncBatchNorm share_memory
        convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format memory_format
    """,
    "old names that PyTorch warns of": """
        Container NLLLoss2d clip_grad_norm register_backward_hook constant dirac eye kaiming_normal kaiming_uniform normal
        orthogonal uniform xavier_normal xavier_uniform CrossMapLRN2d
    """,
    "what PyTorch keeps for itself, and modules of its sources": """
        common_types factory_kwargs attention T_destination call_super_init dump_patches compile
        OptimizerPostHook OptimizerPreHook profile_hook_step UninitializedTensorMixin PackedSequence_ bind Optimizer
    """,
    "elsewhere: pg.func.functional_call": "stateless",
}
NOT_YET = {
    "nn": """
        LinearCrossEntropyLoss LinearCrossEntropyOptions UninitializedBuffer UninitializedParameter
    """,
    "parameter": "UninitializedBuffer UninitializedParameter is_lazy",
    "optim": "swap_in_optimizer_params_and_state",
    "Optimizer": "",
    "parametrizations": "",
    "parametrize": "transfer_parametrizations_and_params type_before_parametrizations",
    "rnn": "invert_permutation",
}
SURFACES: dict[str, tuple[Any, Any]] = {
    "nn": (torch.nn, nn),
    "parameter": (torch.nn.parameter, nn.parameter),
    "init": (torch.nn.init, nn.init),
    "utils": (torch.nn.utils, nn.utils),
    "rnn": (torch.nn.utils.rnn, nn.utils.rnn),
    "parametrize": (torch.nn.utils.parametrize, nn.utils.parametrize),
    "parametrizations": (torch.nn.utils.parametrizations, nn.utils.parametrizations),
    "optim": (torch.optim, optim),
    "lr_scheduler": (torch.optim.lr_scheduler, optim.lr_scheduler),
    "Module": (torch.nn.Module, nn.Module),
    "Optimizer": (torch.optim.Optimizer, optim.Optimizer),
    "LRScheduler": (torch.optim.lr_scheduler.LRScheduler, optim.lr_scheduler.LRScheduler),
    "ModuleList": (torch.nn.ModuleList, nn.ModuleList),
    "ModuleDict": (torch.nn.ModuleDict, nn.ModuleDict),
    "Sequential": (torch.nn.Sequential, nn.Sequential),
}


def names_of(surface: Any) -> list[str]:
    """Returns the public functions and classes that a module of PyTorch's has made, or all public attributes of a class."""
    public = [name for name in dir(surface) if not name.startswith("_")]
    if isinstance(surface, type):
        return public
    found = [(name, getattr(surface, name)) for name in public]
    own = surface.__name__  # what it imports from elsewhere is of another surface
    return [name for name, value in found if callable(value) and getattr(value, "__module__", "").startswith(own)]


def missing(kind: str) -> list[str]:
    """Returns PyTorch's names that are not here, but those that never will be."""
    theirs, ours = SURFACES[kind]
    never = [pattern for patterns in NEVER.values() for pattern in patterns.split()]
    absent = [name for name in names_of(theirs) if not hasattr(ours, name)]
    return [name for name in absent if not any(fnmatchcase(name, pattern) for pattern in never)]


@pytest.mark.req("C7")
@pytest.mark.req("C8")
@pytest.mark.parametrize("kind", SURFACES)
def test_no_name_of_pytorch_is_missing_without_a_reason(kind: str) -> None:
    assert not set(missing(kind)) - set(NOT_YET.get(kind, "").split())


@pytest.mark.parametrize("kind", NOT_YET)
def test_no_name_that_is_here_stands_among_the_missing(kind: str) -> None:
    assert not [name for name in NOT_YET[kind].split() if hasattr(SURFACES[kind][1], name)]


# ---- arguments ----
OLD = ("size_average", "reduce", "_weight", "_freeze", "min_value", "max_value", "_stacklevel", "params", "args", "kwargs")
# Ours has these further names of its own, or PyTorch's are options here.
OPTIONS = {"foreach", "fused", "capturable", "differentiable", "maximize", "generator", "options"}


def arguments_of(function: Any) -> list[str] | None:
    """Returns the names of arguments in order, but old ones; None where PyTorch takes anything."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters if p.name != "options"):
        return None
    return [p.name for p in parameters if p.name not in OLD and p.name not in OPTIONS]


def defaults_of(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    kept = [p for p in parameters if p.name not in OLD and p.name not in OPTIONS]
    return {p.name: p.default for p in kept if p.default is not p.empty}


BASES = ("RNNBase", "RNNCellBase")  # nobody but their subclasses makes one


def pairs() -> list[Any]:
    found = []
    for kind in ("nn", "init", "utils", "rnn", "parametrize", "parametrizations", "optim", "lr_scheduler"):
        theirs, ours = SURFACES[kind]
        for name in names_of(theirs):
            if hasattr(ours, name) and name not in BASES:
                found.append(pytest.param(getattr(theirs, name), getattr(ours, name), id=f"{kind}.{name}"))
    return found


# Here a function where PyTorch's default is that function; what may be left out there must be said here, or is told apart.
OTHER_DEFAULTS = {"activation", "modules", "values"}


@pytest.mark.req("C7")
@pytest.mark.req("C8")
@pytest.mark.parametrize(("theirs", "ours"), pairs())
def test_arguments_have_pytorchs_names_order_and_defaults(theirs: Any, ours: Any) -> None:
    wanted, own = arguments_of(theirs), arguments_of(ours)
    if wanted is None or own is None:
        return
    assert own[: len(wanted)] == wanted or set(own) == set(wanted)
    known = defaults_of(ours)
    for name, value in defaults_of(theirs).items():
        assert name in OTHER_DEFAULTS or known.get(name, value) == value, name


if __name__ == "__main__":
    for kind in SURFACES:
        print(f"{kind}:", *missing(kind))
