"""Modules as functions of their state: functional_call, stack_module_state.

In:    a Module, and values for its parameters and buffers
Out:   its result with these values;  the states of several Modules stacked, for vmap
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from picograd.errors import ArgumentError
from picograd.interrupts import whole_context
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Removes the running statistics, which vmap cannot write, from all batch norms in `root`; returns `root`.

    Args:
      root:  a Module

    >>> net = pg.func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2)))
    >>> sorted(net.state_dict())
    ['0.bias', '0.weight']
    """
    for part in root.modules():
        if getattr(part, "track_running_stats", False):
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                setattr(part, name, None)
            part.track_running_stats = False
    return root


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls a Module with other Tensors as its parameters and buffers.

    Afterwards the Module has its own again. So its parameters can be an argument of grad and vmap.

    Args:
      module:                      a Module
      parameter_and_buffer_dicts:  path -> Tensor, as from named_parameters and named_buffers; or several such dicts
      args:                        arguments: a tuple, or a single argument
      kwargs:                      keyword arguments
      tie_weights:                 replace a Tensor with several paths under all of them
      strict:                      all paths must be given

    Returns:   the Module's result

    Raises:
      ArgumentError: a path is unknown, is given twice, or with strict is missing.

    >>> net = nn.Linear(2, 1)
    >>> weights = {"weight": Tensor([[1.0, 2.0]]), "bias": Tensor([0.5])}
    >>> functional_call(net, weights, Tensor([[1.0, 1.0]]))
    Tensor([[3.5]])
    """
    state = _merged(parameter_and_buffer_dicts)
    places = _places(module)
    unknown = [path for path in state if path not in places]
    if unknown:
        raise ArgumentError(
            f"functional_call: {unknown[0]!r} is not a path of {type(module).__name__}.",
            f"its paths are {', '.join(map(repr, list(places)[:8]))}{', ...' if len(places) > 8 else '.'}",
        )
    chosen = _chosen(places, state, tie_weights)
    missing = [path for path, (owner, name) in places.items() if (id(owner), name) not in chosen]
    if strict and missing:
        raise ArgumentError(f"functional_call: {missing[0]!r} of {type(module).__name__} is missing, and strict=True.")
    with _replaced(chosen):
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns the parameters and the buffers of several Modules of one kind, each stacked along a new axis 0.

    Args:
      models: Modules of one class whose states have the same shapes; they are not changed

    Returns:   path -> (number of models, ...) for parameters, as leaves that require grad, and for buffers

    Raises:
      ArgumentError: there is no model, or classes or modes differ.

    >>> params, buffers = stack_module_state([nn.Linear(2, 3) for _ in range(4)])
    >>> params["weight"].shape, buffers
    ((4, 3, 2), {})
    """
    models = list(models)
    if not models:
        raise ArgumentError("stack_module_state: there is no model.")
    first = models[0]
    for number, model in enumerate(models):
        if type(model) is not type(first) or model.training is not first.training:
            raise ArgumentError(
                f"stack_module_state: model {number} is a {type(model).__name__} in {_mode(model)} mode, model 0 a"
                f" {type(first).__name__} in {_mode(first)} mode.",
            )
    params = [dict(model.named_parameters()) for model in models]
    buffers = [dict(model.named_buffers()) for model in models]
    stacked = {path: Tensor.stack([own[path].detach() for own in params]).requires_grad_() for path in params[0]}
    return stacked, {path: Tensor.stack([own[path] for own in buffers]) for path in buffers[0]}


def _mode(model: Module) -> str:
    return "train" if model.training else "eval"


def _merged(given: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for part in [given] if isinstance(given, Mapping) else given:
        for path, tensor in part.items():
            if path in state:
                raise ArgumentError(f"functional_call: {path!r} is given twice.")
            state[path] = tensor
    return state


Attribute = tuple[Module, str]


def _places(module: Module) -> dict[str, Attribute]:
    """Returns the owner of each parameter and buffer: path -> (Module, attribute), under all of its paths."""
    state = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    return {
        f"{path}.{name}" if path else name: (owner, name)
        for path, owner in module.named_modules()
        for name, value in vars(owner).items()
        if id(value) in state
    }


def _chosen(
    places: Mapping[str, Attribute], state: Mapping[str, Tensor], tie_weights: bool
) -> dict[tuple[int, str], tuple[Module, str, Tensor]]:
    """Returns the assignments; with tie_weights to all paths of a Tensor for which nothing else is given."""
    chosen: dict[tuple[int, str], tuple[Module, str, Tensor]] = {}
    instead: dict[int, Tensor] = {}
    for path, tensor in state.items():
        owner, name = places[path]
        chosen[id(owner), name] = owner, name, tensor
        instead[id(vars(owner)[name])] = tensor
    for owner, name in places.values() if tie_weights else ():
        own = vars(owner)[name]
        if id(own) in instead:
            chosen.setdefault((id(owner), name), (owner, name, instead[id(own)]))
    return chosen


@whole_context
def _replaced(chosen: Mapping[tuple[int, str], tuple[Module, str, Tensor]]) -> Iterator[None]:
    # NOTE: vars(), since a Module records every attribute that is set; all are restored at the end.
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in chosen.values()]
    try:
        for owner, name, tensor in chosen.values():
            vars(owner)[name] = tensor
        yield
    finally:
        for owner, name, tensor in before:
            vars(owner)[name] = tensor
