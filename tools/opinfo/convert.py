"""Tensors, dtypes and functions of PyTorch as those of picograd."""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import torch

import picograd as pg
from tools.opinfo.found import Missing, Skipped


# ---- tensors ----
class Converter:
    """Makes picograd's arguments of PyTorch's: what was one tensor stays one tensor.

    pairs:  a Fourier transform that takes complex numbers takes pairs of real ones here
    """

    def __init__(self, function: str = "") -> None:
        self.made: dict[int, tuple[torch.Tensor, pg.Tensor, pg.Tensor]] = {}  # the first keeps its id from others
        self.pairs = re.fullmatch(r"fft\.(i?fft|hfft|irfft)[2n]?", function) is not None

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.made:
                leaf = ours(value)
                self.made[id(value)] = value, leaf, pg.fft.pairs(leaf) if self.pairs else leaf
            return self.made[id(value)][-1]
        if isinstance(value, torch.dtype):
            return dtype_of(value)
        if isinstance(value, torch.device):
            return str(value)
        if isinstance(value, (torch.layout, torch.memory_format, torch.Generator)):
            raise Skipped(f"{type(value).__name__} as an argument")
        if isinstance(value, complex) or isinstance(value, np.generic) and np.iscomplexobj(value):
            raise Skipped("complex numbers")
        if isinstance(value, slice):
            return slice(*(self(part) for part in (value.start, value.stop, value.step)))
        if isinstance(value, torch.Size):
            return tuple(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self(part) for part in value)
        if isinstance(value, dict):
            return {name: self(part) for name, part in value.items()}
        if isinstance(value, torch.nn.Module):
            raise Skipped("a module as an argument")
        if str(getattr(value, "__module__", "")).startswith("torch.nn.functional") and hasattr(value, "__name__"):
            return found(value.__module__ + "." + value.__name__)
        if isinstance(value, types.BuiltinFunctionType):
            return found("nn.functional." + value.__name__)
        return value


def dtype_of(dtype: torch.dtype) -> Any:
    """Returns picograd's dtype of the same name."""
    name = str(dtype).removeprefix("torch.")
    if dtype.is_complex:
        raise Skipped("complex numbers")
    if not hasattr(pg.dtypes, "bool_" if name == "bool" else name):
        raise Skipped(f"dtype {name}")
    return getattr(pg.dtypes, "bool_" if name == "bool" else name)


def ours(tensor: torch.Tensor) -> pg.Tensor:
    """Returns a tensor of picograd with the values, dtype and requires_grad of one of PyTorch."""
    dtype_of(tensor.dtype)
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise Skipped("sparse or quantized tensors")
    if tensor.device.type != "cpu":
        raise Skipped(f"device {tensor.device.type}")
    if max(tensor.dim(), 1) > 64:
        raise Skipped("more axes than NumPy has")
    array = tensor.detach()
    values = array.float().numpy().astype(ml_dtypes.bfloat16) if array.dtype is torch.bfloat16 else array.numpy()
    return pg.Tensor(values.copy(), requires_grad=tensor.requires_grad)


def theirs(tensor: pg.Tensor) -> torch.Tensor:
    """Returns a tensor of PyTorch with the values and dtype of one of picograd."""
    array = tensor.detach().numpy()
    if tensor.dtype is pg.bfloat16:
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(np.array(array))


def mapped(value: Any, convert: Callable[[torch.Tensor], torch.Tensor], made: dict[int, torch.Tensor]) -> Any:
    """Returns arguments of PyTorch with each tensor converted, one that stands twice once."""
    if isinstance(value, torch.Tensor):
        if id(value) not in made:
            made[id(value)] = convert(value)
        return made[id(value)]
    if isinstance(value, dict):
        return {name: mapped(part, convert, made) for name, part in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(mapped(part, convert, made) for part in value)
    return value


def copied(arguments: Any) -> Any:
    return mapped(arguments, torch.clone, {})


def doubled(arguments: Any) -> Any:
    """Returns arguments with the same values in float64."""
    return mapped(arguments, lambda x: x.double() if x.is_floating_point() else x.clone(), {})


def rounded(value: Any, like: Any) -> Any:
    """Returns a result in the dtypes of another."""
    if isinstance(like, torch.Tensor):
        return value.to(like.dtype)
    if isinstance(like, (list, tuple)):
        return [rounded(part, known) for part, known in zip(value, like)]
    return value


# ---- functions ----
def found(dotted: str) -> Callable[..., Any]:
    """Returns picograd's function of a name as it stands after `torch.`, or the method.

    Raises:
      Missing: there is none.
    """
    dotted = dotted.removeprefix("torch.")
    for root in (pg, pg.Tensor) if "." not in dotted else (pg,):
        try:
            function: Any = functools.reduce(getattr, dotted.split("."), root)
        except AttributeError:
            continue
        if isinstance(function, property):
            return function.fget
        if callable(function):
            return function
    raise Missing(dotted)


def function_of(op: Any) -> Callable[..., Any]:
    """Returns picograd's counterpart of what a row calls.

    Where that is a function written beside the row, as `lambda x, n: torch.polygamma(n, x)`, it is the same function with
    another meaning of `torch`.
    """
    if not isinstance(op.op, types.FunctionType) or not op.op.__module__.startswith("torch.testing"):
        return found(op.name)
    return rebound(op.op)


def rebound(function: Any) -> Callable[..., Any]:
    """Returns a function of PyTorch's tests with picograd under the name `torch`."""
    if not isinstance(function, types.FunctionType):
        return function
    names = {**function.__globals__, "torch": Names("")}
    made = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


class Names:
    """`torch` in a function that is called for picograd: attributes are looked up there."""

    def __init__(self, prefix: str):
        self.prefix = prefix

    def __getattr__(self, name: str) -> Any:
        dotted = self.prefix + name
        if name in ("nn", "functional", "linalg", "special", "signal", "windows", "fft", "Tensor"):
            return Names(dotted.removeprefix("Tensor") + "." * (name != "Tensor"))
        return found(dotted)


def variants(op: Any) -> Iterator[tuple[str, Callable[..., Any], Callable[[], Callable[..., Any]]]]:
    """Yields the ways to call an operator: how, PyTorch's function, and what finds picograd's."""
    yield "function", op.op, lambda: function_of(op)
    for alias in op.aliases:
        yield alias.name, alias.op, functools.partial(found, alias.name)
    for how, method in (("method", op.get_method()), ("inplace", op.get_inplace())):
        if isinstance(method, functools.partial):  # relu(x, inplace=True)
            yield how, method, functools.partial(_with_keywords, op.name, method.keywords)
        elif method is not None and not isinstance(method, types.FunctionType):
            yield how, method, functools.partial(_method, method.__name__)


def _with_keywords(name: str, keywords: dict[str, Any]) -> Callable[..., Any]:
    return functools.partial(found(name), **keywords)


def _method(name: str) -> Callable[..., Any]:
    if not hasattr(pg.Tensor, name):
        raise Missing(f"Tensor.{name}")
    function: Callable[..., Any] = getattr(pg.Tensor, name)
    return function
