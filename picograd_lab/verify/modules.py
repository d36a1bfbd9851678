"""Compares a module with a PyTorch module of the same weights, layer by layer: outputs, buffers and gradients.

In:    two modules whose state_dict() has the same names and values, and arguments for their forward
Out:   a `Verdict`, whose first mismatch is the first layer that deviates

Layers are matched by their names in named_modules(). Forward, a layer finishes before its readers and before its parent
module, so the first layer with a deviating output has the fault. Backward, it is the last layer whose parameters or
inputs have a deviating gradient. The gradients are those of the sum of all results times fixed random numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from picograd.autograd import grad
from picograd.errors import ArgumentError
from picograd.nn.module import Module
from picograd.record import Struct, field
from picograd.tensor.tensor import Tensor
from picograd_lab.verify.verdict import Held, Mismatch, Verdict

ROUNDINGS_MAX = 2048.0  # of a layer, relative to its largest element: 1.2e-4 in float32
GRADIENT_ROUNDINGS_MAX = 8 * ROUNDINGS_MAX  # gradients pass through all layers twice
CANCELLED_ROUNDINGS = 64.0  # of the largest gradient; a gradient may be 0, such as a bias's before a normalization
SAME = 1e-6  # for weights; both update running statistics, with different roundings
Array = np.ndarray[Any, Any]


def is_torch_module(value: object) -> bool:
    """True for a PyTorch module; PyTorch is loaded then."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "nn") and isinstance(value, torch.nn.Module)


def verify_module(ours: Any, theirs: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Verdict:
    """Compares a module with a PyTorch module of the same weights.

    Raises:
      ArgumentError: `ours` is not a module, or modules have random dropout, which differs between them.
    """
    if not isinstance(ours, Module):
        raise ArgumentError(f"verify: a module is compared with PyTorch's, got {type(ours).__name__}.")
    if any("Dropout" in type(layer).__name__ and layer.training and layer.p for layer in ours.modules()):
        raise ArgumentError("verify: both modules drop random elements, so they cannot agree.", hint="call eval() on both.")
    verdict = Verdict("PyTorch", compared="layers")
    if not _have_same_weights(ours, theirs, verdict):
        return verdict
    with _seen(ours) as found, _seen(theirs) as expected:
        other = theirs(*map(_theirs, args), **{name: _theirs(arg) for name, arg in kwargs.items()})
        results = _tensors(ours(*args, **kwargs)), _tensors(other)
    for name, output in found.outputs.items():
        if name in expected.outputs:
            _compare(verdict, f"layer {_called(ours, name)}", "output", output, expected.outputs[name], ROUNDINGS_MAX)
    kept = dict(theirs.named_buffers())
    for name, value in ours.named_buffers():  # as running means, which this run has changed
        layer, _, part = name.rpartition(".")
        if name in kept:
            _compare(verdict, f"layer {_called(ours, layer)}", part, [_array(value)], [_array(kept[name])], ROUNDINGS_MAX)
    if verdict:
        _compare_gradients(verdict, ours, theirs, found, expected, *results)
    return verdict


def verify_modules_of(names: Mapping[str, Any]) -> Verdict:
    """Compares the modules that a program has left: one of picograd and one of PyTorch, with the same names of weights.

    Args:
      names:  the program's variables; `inputs` among them is a tensor, or a tuple of arguments

    Raises:
      ArgumentError: the modules or the inputs are missing.
    """
    theirs = [value for value in names.values() if is_torch_module(value)]
    for ours in [value for value in names.values() if isinstance(value, Module)]:
        for other in theirs:
            if ours.state_dict().keys() == other.state_dict().keys() and "inputs" in names:
                given = names["inputs"]
                return verify_module(ours, other, given if isinstance(given, tuple) else (given,), {})
    raise ArgumentError(
        "verify --against torch: the program must leave a module, PyTorch's with the same names of weights, and `inputs`.",
        hint="inputs = x at its end; or pg.verify(model, x, against=theirs) in it.",
    )


# ---- weights ----
def _have_same_weights(ours: Module, theirs: Any, verdict: Verdict) -> bool:
    mine, other = ours.state_dict(), theirs.state_dict()
    only = [name for name in (*mine, *other) if (name in mine) != (name in other)]
    if only:
        verdict.mismatches.append(
            Mismatch("the names of the weights", f"{', '.join(only[:8])}: only one of the modules has these.")
        )
        return False
    for name, value in mine.items():
        a, b = _array(value), _array(other[name])
        if a.shape != b.shape or not np.allclose(a, b, rtol=SAME, atol=SAME, equal_nan=True):
            fact = (
                f"{a.shape} here, {b.shape} there."
                if a.shape != b.shape
                else "it has other values there; load_state_dict()."
            )
            verdict.mismatches.append(Mismatch(f"the weight {name}", fact))
            return False
    return True


# ---- tensors of both libraries ----
def _array(value: Any) -> Array:
    array = value.detach()
    if str(array.dtype).endswith(("bfloat16", "float8_e4m3", "float8_e5m2")):
        array = array.float()
    return np.asarray(array.cpu().numpy() if hasattr(array, "cpu") else array.numpy())


def _theirs(arg: Any) -> Any:
    """Converts an argument for PyTorch: a Tensor to a torch tensor."""
    if not isinstance(arg, Tensor):
        return arg
    made = sys.modules["torch"].tensor(_array(arg))
    return made.requires_grad_(arg.requires_grad)


def _tensors(result: Any) -> list[Any]:
    """Returns the tensors of a result, in order."""
    if isinstance(result, Mapping):
        return [part for value in result.values() for part in _tensors(value)]
    if isinstance(result, (tuple, list)):
        return [part for value in result for part in _tensors(value)]
    return [result] if hasattr(result, "detach") else []


class Seen(Struct):
    """The run of a module.

    outputs:  output of each layer, in the order of completion
    inputs:   tensors with gradients among the inputs of each layer without sublayers
    """

    outputs: dict[str, list[Array]] = field(default_factory=dict)
    inputs: dict[str, list[Any]] = field(default_factory=dict)


@contextmanager
def _seen(module: Any) -> Iterator[Seen]:
    """Collects the inputs and outputs of each layer inside the block."""
    seen = Seen()

    def collect(name: str) -> Callable[..., None]:
        def hook(layer: Any, args: Any, result: Any) -> None:
            seen.outputs.setdefault(name, []).extend(map(_array, _tensors(result)))
            if not any(True for _ in layer.children()):
                seen.inputs.setdefault(name, []).extend(arg for arg in _tensors(args) if arg.requires_grad)

        return hook

    def keep(layer: Any, args: Any) -> None:
        for arg in _tensors(args):
            if isinstance(arg, Tensor) and arg.requires_grad and not arg.is_leaf:
                arg.retain_grad()  # else a layer that reads it in another shape passes its gradient by

    handles = [layer.register_forward_hook(collect(name)) for name, layer in module.named_modules()]
    handles += [layer.register_forward_pre_hook(keep) for _, layer in module.named_modules()]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


# ---- comparing ----
def _called(module: Module, name: str) -> str:
    layer = dict(module.named_modules())[name]
    return f"{name} {type(layer).__name__}".strip()


def _compare(
    verdict: Verdict, what: str, part: str, found: Sequence[Array], expected: Sequence[Array], roundings: float,
    others: float = 0.0,
) -> None:  # fmt: skip
    """Compares the arrays of a layer, with a tolerance in roundings of its largest element.

    Args:
      others:  additional tolerance, in units of roundings
    """
    held = Held(f"{what}, {part}", 1)
    verdict.kernels.append(held)
    if len(found) != len(expected):
        verdict.mismatches.append(Mismatch(what, f"{len(found)} tensors as {part}, PyTorch's has {len(expected)}."))
        return
    for a, b in zip(found, expected):
        if a.shape != b.shape:
            verdict.mismatches.append(Mismatch(what, f"{part} of shape {a.shape}, PyTorch's is {b.shape}."))
            return
        if not a.size:
            continue
        wide, other = a.astype(np.float64), b.astype(np.float64)
        unit = float(np.finfo(a.dtype).eps) / 2 if a.dtype.kind == "f" else 0.0
        size = float(np.abs(other[np.isfinite(other)]).max(initial=0.0))
        with np.errstate(invalid="ignore"):
            far = np.where((wide == other) | (np.isnan(wide) & np.isnan(other)), 0.0, np.abs(wide - other))
        far = np.where(np.isnan(far), np.inf, far)
        allowed = unit * (roundings * size + others) + 1e-300
        at = np.unravel_index(int(far.argmax()), far.shape)
        held.share = max(held.share, float(far[at]) / allowed)
        held.ulp = max(held.ulp, float(far[at]) / (2 * unit * size) if unit and size else float(far[at]))
        if far[at] > allowed:
            place, count = tuple(map(int, at)), int((far > allowed).sum())
            fact = f"{part}: {count} of {far.size} elements deviate, at {place} {a[at]} instead of {b[at]}."
            verdict.mismatches.append(Mismatch(what, fact))
            return


def _compare_gradients(
    verdict: Verdict, ours: Module, theirs: Any, seen: Seen, expected: Seen, results: Sequence[Any], others: Sequence[Any]
) -> None:
    """Compares the gradients of each layer's parameters and inputs, the last layer's first."""
    torch, rng = sys.modules["torch"], np.random.default_rng(0)
    weights = [rng.standard_normal(tuple(result.shape)).astype(_array(result).dtype) for result in results]
    pairs = [(a, b, w) for a, b, w in zip(results, others, weights) if a.requires_grad and b.requires_grad]
    places: list[tuple[str, str, Any, Any]] = []
    mine, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    for layer in reversed(seen.outputs):
        for name in [name for name in mine if name.rpartition(".")[0] == layer and name in other]:
            if mine[name].requires_grad and other[name].requires_grad:
                places.append((layer, f"gradient of {name.rpartition('.')[2]}", mine[name], other[name]))
        for number, (a, b) in enumerate(zip(seen.inputs.get(layer, []), expected.inputs.get(layer, []))):
            places.append((layer, f"gradient of its input {number}", a, b))
    if not pairs or not places:
        return
    loss = sum((a * Tensor(w, device=a.device)).sum() for a, _, w in pairs)
    their_loss = sum((b * torch.tensor(w)).sum() for _, b, w in pairs)
    found = grad(loss, [a for _, _, a, _ in places], allow_unused=True)
    right = torch.autograd.grad(their_loss, [b for _, _, _, b in places], allow_unused=True)
    largest = max((float(np.abs(_array(each)).max(initial=0)) for each in right if each is not None), default=0.0)
    for (layer, part, _, _), *both in zip(places, found, right):
        a, b = ([] if each is None else [_array(each)] for each in both)
        roundings = GRADIENT_ROUNDINGS_MAX, CANCELLED_ROUNDINGS * largest
        _compare(verdict, f"layer {_called(ours, layer)}", part, a, b, *roundings)
