"""Modules: networks as objects that hold tensors and other modules.

In:    attributes that are tensors, modules, or lists of modules
Out:   `Module`
Next:  picograd/nn/parameter.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.autograd import no_grad
from picograd.tensor.build import cast
from picograd.tensor.cell import set_op
from picograd.tensor.change import last_change
from picograd.tensor.tensor import Tensor


class Module:
    """Base of all layers and networks. Subclasses define `forward`.

    A tensor attribute that requires grad when it is set is a parameter, and stays one when it is frozen. Other
    tensors become part of the state with `register_buffer`. Lists of modules count as well as modules.

    >>> class Double(Module):
    ...     def __init__(self):
    ...         self.weight = Tensor([2.0], requires_grad=True)
    ...     def forward(self, x):
    ...         return x * self.weight
    >>> Double()(Tensor([3.0])).tolist(), [name for name, _ in Double().named_parameters()]
    ([6.0], ['weight'])
    """

    training: bool = True

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and value.requires_grad and value.is_leaf:
            self._kinds()[name] = "parameter"
        elif not isinstance(value, Tensor):
            self._kinds().pop(name, None)
        self._put(name, value)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        last_change.note()

    def _put(self, name: str, value: Any) -> None:
        """Sets an attribute, whatever it is."""
        object.__setattr__(self, name, value)
        last_change.note()

    def _kinds(self) -> dict[str, str]:
        """Returns what each tensor attribute of the state is."""
        kinds: dict[str, str] = self.__dict__.setdefault("_state_kinds", {})
        return kinds

    def register_buffer(self, name: str, tensor: Tensor | None) -> None:
        """Makes `tensor`, which is not trained, part of the state under `name`.

        >>> net = nn.Linear(1, 1)
        >>> net.register_buffer("mean", Tensor([0.0]))
        >>> sorted(net.state_dict())
        ['bias', 'mean', 'weight']
        """
        self._put(name, tensor)
        if tensor is not None:
            self._kinds()[name] = "buffer"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the result from whatever arguments a subclass takes (args, kwargs); what calling the module does.

        >>> nn.Linear(2, 3).forward(Tensor.ones(4, 2)).shape
        (4, 3)
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward(); define it.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    # ---- what it holds ----
    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yields (name, module) for the modules held directly; those in a list are name.0, name.1, ...

        >>> [(name, type(child).__name__) for name, child in nn.Sequential(nn.Linear(2, 3), nn.Tanh()).named_children()]
        [('0', 'Linear'), ('1', 'Tanh')]
        """
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, (list, tuple)):
                for place, item in enumerate(value):
                    if isinstance(item, Module):
                        yield f"{name}.{place}", item

    def children(self) -> Iterator[Module]:
        """Yields the modules held directly.

        >>> [type(child).__name__ for child in nn.Sequential(nn.Linear(2, 3), nn.Tanh()).children()]
        ['Linear', 'Tanh']
        """
        for _, module in self.named_children():
            yield module

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yields (path, module) for this module and all below it, each once; paths start with `prefix`.

        >>> [path for path, _ in nn.MLP(2, [3, 1]).named_modules()]
        ['', 'layers', 'layers.0', 'layers.1']
        """
        seen: set[int] = set()
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield path, module
            below = [(f"{path}.{name}" if path else name, child) for name, child in module.named_children()]
            stack.extend(reversed(below))

    def modules(self) -> Iterator[Module]:
        """Yields this module and all below it, each once.

        >>> len(list(nn.MLP(2, [3, 1]).modules()))
        4
        """
        for _, module in self.named_modules():
            yield module

    def _named_tensors(self, kind: str) -> Iterator[tuple[str, Tensor]]:
        for path, module in self.named_modules():
            for name, own in module._kinds().items():
                tensor = vars(module).get(name)
                if own == kind and tensor is not None:
                    yield (f"{path}.{name}" if path else name), tensor

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yields (path, parameter), each parameter once even where it is shared.

        >>> [(path, p.shape) for path, p in nn.Linear(2, 3).named_parameters()]
        [('weight', (3, 2)), ('bias', (3,))]
        """
        seen: set[int] = set()
        for name, tensor in self._named_tensors("parameter"):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor

    def parameters(self) -> Iterator[Tensor]:
        """Yields the parameters, each once.

        >>> sum(p.numel() for p in nn.Linear(2, 3).parameters())
        9
        """
        for _, tensor in self.named_parameters():
            yield tensor

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Yields (path, tensor) for the state that is not trained.

        >>> list(nn.Linear(2, 3).named_buffers())
        []
        """
        return self._named_tensors("buffer")

    def buffers(self) -> Iterator[Tensor]:
        """Yields the state that is not trained.

        >>> list(nn.Linear(2, 3).buffers())
        []
        """
        for _, tensor in self.named_buffers():
            yield tensor

    # ---- state ----
    def state_dict(self) -> dict[str, Tensor]:
        """Returns all parameters and buffers by path; the tensors share storage with the module.

        >>> list(nn.MLP(2, [3, 1]).state_dict())
        ['layers.0.weight', 'layers.0.bias', 'layers.1.weight', 'layers.1.bias']
        """
        state = {name: tensor.detach() for name, tensor in self._named_tensors("parameter")}
        state.update((name, tensor.detach()) for name, tensor in self._named_tensors("buffer"))
        return state

    def load_state_dict(self, state_dict: Mapping[str, Tensor], strict: bool = True) -> None:
        """Stores tensors by path into the parameters and buffers, in place.

        Raises:
          ArgumentError: paths are missing or unknown (unless strict is False).
          ShapeError:    a tensor has another shape than its place.

        >>> a, b = nn.Linear(2, 3), nn.Linear(2, 3)
        >>> b.load_state_dict(a.state_dict())
        >>> bool((a.weight == b.weight).all())
        True
        """
        own = self.state_dict()
        missing = [name for name in own if name not in state_dict]
        unknown = [name for name in state_dict if name not in own]
        if strict and (missing or unknown):
            raise ArgumentError(
                f"load_state_dict: missing: {_listed(missing)}; unknown: {_listed(unknown)}.",
                hint="strict=False loads what fits by name.",
            )
        for name, tensor in state_dict.items():
            if name in own and tensor.shape != own[name].shape:
                raise ShapeError(f"load_state_dict: {name} has shape {tensor.shape}, its place {own[name].shape}.")
        with no_grad():
            for name, tensor in state_dict.items():
                if name in own:
                    own[name].assign(tensor.detach().to(own[name].device, own[name].dtype))

    # ---- modes ----
    def train(self, mode: bool = True) -> Self:
        """Sets the training mode of this module and all below it; returns self.

        >>> nn.Dropout().train(False).training
        False
        """
        for module in self.modules():
            module._put("training", mode)
        return self

    def eval(self) -> Self:
        """Sets the evaluation mode of this module and all below it; returns self.

        >>> nn.Dropout().eval().training
        False
        """
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freezes or unfreezes all parameters; returns self.

        >>> any(p.requires_grad for p in nn.Linear(2, 3).requires_grad_(False).parameters())
        False
        """
        for tensor in self.parameters():
            tensor.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all parameters; with set_to_none=False makes them 0.

        >>> net = nn.Linear(2, 1)
        >>> net(Tensor.ones(1, 2)).sum().backward()
        >>> net.zero_grad()
        >>> net.weight.grad is None
        True
        """
        for tensor in self.parameters():
            if set_to_none:
                tensor.grad = None
            elif tensor.grad is not None:
                tensor.grad.zero_()

    def apply(self, function: Callable[[Module], None]) -> Self:
        """Calls `function` with every module below this one, then with this one; returns self.

        >>> net = nn.MLP(2, [3, 1])
        >>> seen = []
        >>> _ = net.apply(lambda module: seen.append(type(module).__name__))
        >>> seen
        ['Linear', 'Linear', 'ModuleList', 'MLP']
        """
        for module in reversed(list(self.modules())):
            function(module)
        return self

    def to(self, *targets: Any) -> Self:
        """Moves all parameters and buffers to a device, floats also to a dtype; the tensors stay the same objects.

        `targets`: the name of a device, a dtype, or both.

        >>> nn.Linear(2, 3).to(dtypes.float16).weight.dtype
        float16
        """
        seen: set[int] = set()
        for _, tensor in [*self._named_tensors("parameter"), *self.named_buffers()]:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                _move(tensor, targets)
                if tensor.grad is not None:
                    _move(tensor.grad, targets)
        return self

    def __repr__(self) -> str:
        inside = [f"  ({name}): " + repr(child).replace("\n", "\n  ") for name, child in self.named_children()]
        shown = self.extra_repr()
        if not inside:
            return f"{type(self).__name__}({shown})"
        return f"{type(self).__name__}({shown}\n" + "\n".join(inside) + "\n)"

    def extra_repr(self) -> str:
        """Returns what stands between the brackets when the module is printed.

        >>> nn.Linear(2, 3)
        Linear(2, 3, bias=True)
        """
        return ""


def _move(tensor: Tensor, targets: tuple[Any, ...]) -> None:
    """Gives a tensor its value on another device or, of floats, in another dtype; the object stays."""
    value = tensor.detach()
    moved = value.to(*(target for target in targets if isinstance(target, str)))
    dtype = next((target for target in targets if target is not None and not isinstance(target, str)), tensor.dtype)
    if tensor.dtype.is_float:
        moved = moved.cast(dtype)
    if moved is not value:
        if tensor.steps and tensor.op.shape != tensor.cell.op.shape:
            raise ArgumentError(f"to: a parameter of shape {tensor.shape} is a view of other storage; clone it first.")
        tensor.cell.device = moved.cell.device
        set_op(tensor.cell, cast(moved.op, moved.dtype))


def _listed(names: list[str]) -> str:
    return (", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")) or "none"
