"""PyTorch's tables of modules and of optimizers: constructors, results, gradients, what is kept, calls that must raise."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import picograd as pg
from tools.opinfo.calls import attempt, run_wrong, weighted_sum
from tools.opinfo.compare import LOOSEST, compare
from tools.opinfo.convert import Converter, found, mapped
from tools.opinfo.found import Differs, Row, Skipped
from tools.opinfo.reasons import reason_for

STEPS = 5
DROPS = ("Dropout", "RReLU", "Transformer", "FractionalMaxPool")


def check_modules(names: list[str] | None, limit: int | None) -> Iterator[Row]:
    """Yields what was found of each module, in training and not."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        if names is not None and info.name not in names:
            continue
        row = Row(info.name, "modules", "float32")
        if reason := reason_for(info.name, "left out"):
            row.verdict, row.examples = "not applicable", [reason]
            yield row
            continue
        torch.manual_seed(0)
        for training in (True, False):
            inputs = info.module_inputs_func(info, "cpu", torch.float32, requires_grad=True, training=training)
            for module_input in inputs[:limit]:
                call = functools.partial(run_module, info, module_input, training)
                attempt(row, "training" if training else "eval", functools.partial(_shown, module_input), call)
        for wrong in _wrong_modules(info):
            call = functools.partial(run_wrong, info.name, functools.partial(_construct_and_run, info, wrong), wrong)
            attempt(row, "error", functools.partial(_shown, wrong.module_error_input), call)
        if row.counts:
            yield row.close()


def _wrong_modules(info: Any) -> list[Any]:
    make = info.module_error_inputs_func
    return [] if make is None else make(info, "cpu", torch.float32, requires_grad=False, training=True)


def _shown(module_input: Any) -> str:
    parts = [(part.args, part.kwargs) for part in (module_input.constructor_input, module_input.forward_input) if part]
    return str(mapped(parts, lambda x: tuple(x.shape), {}))[:200]


def _class(info: Any) -> Any:
    module = info.module_cls.__module__.split(".")[1]
    return found(f"{module}.{info.module_cls.__name__}")


def run_module(info: Any, module_input: Any, training: bool) -> None:
    """Compares one module with the same parameters: result, gradients, and what it keeps."""
    make, call = module_input.constructor_input, module_input.forward_input
    theirs = info.module_cls(*make.args, **make.kwargs).train(training)
    try:
        theirs(*call.args, **call.kwargs)  # a lazy one has parameters after that
    except RuntimeError as error:
        raise Skipped(f"PyTorch raises {type(error).__name__}") from None
    convert = Converter()
    args, kwargs = convert((make.args, make.kwargs))
    ours = _class(info)(*args, **kwargs).train(training)
    state = {name: value.detach() for name, value in theirs.state_dict().items()}
    if set(state) != set(ours.state_dict()):
        raise Differs(f"state_dict: {sorted(set(state) ^ set(ours.state_dict()))}")
    ours.load_state_dict({name: convert(value) for name, value in state.items()})
    known = theirs(*call.args, **call.kwargs)
    args, kwargs = convert((call.args, call.kwargs))
    result = ours(*args, **kwargs)
    rtol, atol = LOOSEST["gradients"][torch.float32]
    is_drawn = training and info.module_cls.__name__.startswith(DROPS)
    compare(result, known, rtol, atol, is_drawn)
    if not is_drawn:
        compare([ours.state_dict()[name] for name in state], list(theirs.state_dict().values()), rtol, atol)
        leaves = [pair[:2] for pair in convert.made.values() if pair[0].requires_grad and pair[0].is_leaf]
        wanted = [*(leaf for leaf, _ in leaves), *theirs.parameters()]
        mine = [*(leaf for _, leaf in leaves), *ours.parameters()]
        _compare_gradients(result, known, mine, wanted)


def _compare_gradients(result: Any, known: Any, mine: list[Any], wanted: list[Any]) -> None:
    total, reference = weighted_sum(result, pg.Tensor), weighted_sum(known, torch.tensor)
    if reference is None or not wanted or reference.isnan():  # what is not a number has no slope
        return
    if total is None:
        raise Differs("result has no gradient")
    grads, references = pg.grad(total, mine, allow_unused=True), torch.autograd.grad(reference, wanted, allow_unused=True)
    for grad, reference, leaf, own in zip(grads, references, wanted, mine, strict=True):
        expected = torch.zeros_like(leaf) if reference is None else reference
        compare(own * 0 if grad is None else grad, expected, 1e-3, 1e-4)


def _construct_and_run(info: Any, wrong: Any) -> Any:
    make, call = wrong.module_error_input.constructor_input, wrong.module_error_input.forward_input
    args, kwargs = Converter()((make.args, make.kwargs))
    module = _class(info)(*args, **kwargs)
    if call is None:
        return None
    args, kwargs = Converter()((call.args, call.kwargs))
    return module(*args, **kwargs)


# ---- optimizers ----
def check_optimizers(names: list[str] | None, limit: int | None) -> Iterator[Row]:
    """Yields what was found of each optimizer: parameters after some steps."""
    from torch.testing._internal.common_optimizers import optim_db

    for info in optim_db:
        name = info.optim_cls.__name__
        if names is not None and name not in names:
            continue
        row = Row(name, "optimizers", "float32")
        for inputs in info.optim_inputs_func("cpu")[:limit]:
            text = functools.partial(str, inputs.kwargs)
            attempt(row, "steps", text, functools.partial(run_optimizer, info, inputs))
        for wrong in info.optim_error_inputs_func("cpu", torch.float32):
            inputs = wrong.optimizer_error_input
            call = functools.partial(run_wrong, name, functools.partial(_construct, info, inputs), wrong)
            attempt(row, "error", lambda inputs=inputs: f"{inputs.desc} {inputs.kwargs}", call)
        yield row.close()


def _arrays() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (4, 2))]


def _construct(info: Any, inputs: Any) -> Any:
    cls = found(f"optim.{info.optim_cls.__name__}")
    params = [torch.nn.Parameter(torch.tensor(array)) for array in _arrays()] if inputs.params is None else inputs.params
    return cls(Converter()(params), **Converter()(inputs.kwargs))


def run_optimizer(info: Any, inputs: Any) -> None:
    """Compares the parameters after steps along gradients that depend on them."""
    theirs = [torch.nn.Parameter(torch.tensor(array)) for array in _arrays()]
    ours = [pg.Tensor(array, requires_grad=True) for array in _arrays()]
    cls = found(f"optim.{info.optim_cls.__name__}")
    try:
        optimizer = info.optim_cls(theirs, **inputs.kwargs)
    except Exception as error:
        raise Skipped(f"PyTorch raises {type(error).__name__}") from None
    mine = cls(ours, **Converter()(inputs.kwargs))
    for _ in range(STEPS):
        for params, owner in ((theirs, optimizer), (ours, mine)):

            def closure(params: Any = params, owner: Any = owner) -> Any:
                owner.zero_grad()
                loss = sum((param * param + param.sin()).sum() for param in params)  # with a least value: LBFGS goes there
                loss.backward()
                return loss

            owner.step(closure)
    bounds = (1e-2, 1e-3) if reason_for(info.optim_cls.__name__, "coarse") else (1e-5, 1e-6)
    compare([tensor.detach() for tensor in ours], [tensor.detach() for tensor in theirs], *bounds)

