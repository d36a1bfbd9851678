"""Modules: networks as objects that hold tensors and other modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, Self, TypeVar

from picograd.annotations import shown
from picograd.errors import ArgumentTypeError, PathError
from picograd.nn.hooks import GradientWatch, after_forward, before_forward, registered
from picograd.nn.module_state import ModuleState
from picograd.nn.summary import Summary, summarized
from picograd.public import explain
from picograd.tensor.hooks import RemovableHandle
from picograd.tensor.printing import tree
from picograd.tensor.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class HasForward(Protocol[P, R]):
    """A module, for type checkers."""

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Computes the module's result."""
        ...


class Module(ModuleState):
    """Base of all layers and networks. Subclasses define `forward`.

    A tensor that requires grad when it becomes an attribute is a parameter, and stays one if it is frozen later. Other
    tensors become state by `register_buffer`. Modules in a list belong to the network, too, named by the attributes that
    lead to them, or else name.0, name.1 and so on.

    >>> class Double(Module):
    ...     def __init__(self):
    ...         self.weight = Tensor([2.0], requires_grad=True)
    ...     def forward(self, x):
    ...         return x * self.weight
    >>> Double()(Tensor([3.0])).tolist(), [name for name, _ in Double().named_parameters()]
    ([6.0], ['weight'])
    """

    training: bool = True
    _lists_are_parts: ClassVar[bool] = True  # False for PyTorch's programs, which hide modules in lists (picograd_torch)
    _forward_hooks = _forward_pre_hooks = _backward_hooks = _backward_pre_hooks = MappingProxyType[int, Any]({})  # none yet

    def __init__(self) -> None:
        """Does nothing, so that `super().__init__()` ends here; a subclass initializes its second base by name."""

    # ---- a call ----
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the result from the subclass's arguments (args, kwargs); calling the module calls it.

        >>> nn.Linear(2, 3).forward(Tensor.ones(4, 2)).shape
        (4, 3)
        """
        raise NotImplementedError(f"{type(self).__name__} has no method forward(); define it in the class.")

    if TYPE_CHECKING:

        @property
        def __call__(self: HasForward[P, R]) -> Callable[P, R]:
            """Calls forward; type checkers see its arguments and result."""

    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            hooks = vars(self)
            try:
                if "_forward_pre_hooks" in hooks:
                    args, kwargs = before_forward(self, args, kwargs)
                if "_backward_hooks" in hooks or "_backward_pre_hooks" in hooks:
                    watch = GradientWatch(self)
                    return watch.results(self._forward(watch.arguments(args), kwargs))
                if "_forward_hooks" not in hooks:
                    return self.forward(*args, **kwargs)
                return self._forward(args, kwargs)
            except Exception as error:
                explain(type(self).forward, (self, *args), kwargs, error)
                raise

    def _forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls forward, then the hooks after it."""
        if "_forward_hooks" not in vars(self):
            return self.forward(*args, **kwargs)
        try:
            result = self.forward(*args, **kwargs)
        except Exception:
            after_forward(self, args, kwargs, None, has_failed=True)
            raise
        return after_forward(self, args, kwargs, result)

    # ---- modules inside ----
    def add_module(self, name: str, module: Module | None) -> None:
        """Sets a module as an attribute; `name` need not be a Python identifier.

        Raises:
          ArgumentError:     the name is taken, or has a dot.
          ArgumentTypeError: it is not a module.

        >>> net = nn.Linear(1, 1)
        >>> net.add_module("next", nn.Tanh())
        >>> net.next
        Tanh()
        """
        if not isinstance(vars(self).get(name), Module):  # it replaces that module
            self._check_name("add_module", name)
        if not isinstance(module, Module | None):
            raise ArgumentTypeError(f"add_module: {name} must be a module or None, got {shown(module)}.")
        setattr(self, name, module)
        if module is None:
            self._kinds()[name] = "module"  # it keeps its place

    def register_module(self, name: str, module: Module | None) -> None:
        """Sets a `module` as the attribute `name`, as add_module does.

        >>> net = nn.Linear(1, 1)
        >>> net.register_module("next", nn.Tanh())
        >>> net.next
        Tanh()
        """
        self.add_module(name, module)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yields (name, module) for the direct children, each once; those in a list are name.0, name.1, ...

        >>> [(name, type(child).__name__) for name, child in nn.Sequential(nn.Linear(2, 3), nn.Tanh()).named_children()]
        [('0', 'Linear'), ('1', 'Tanh')]
        """
        seen: set[Module] = set()
        for name, module in self._held_modules():
            if module not in seen:
                seen.add(module)
                yield name, module

    def _held_modules(self) -> Iterator[tuple[str, Module]]:
        """Yields (name, module) for the direct children, under each of their names."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, (list, tuple)) and self._lists_are_parts:
                parts = [(place, item) for place, item in enumerate(value) if isinstance(item, Module)]
                named = self._named_below() if parts else set()
                yield from ((f"{name}.{place}", item) for place, item in parts if item not in named)

    def _named_below(self) -> set[Module]:
        """Returns the modules that attributes lead to; their names come from there, even if lists hold them, too."""
        found: set[Module] = set()
        stack: list[Module] = [self]
        while stack:
            new = {value for value in vars(stack.pop()).values() if isinstance(value, Module)} - found
            found |= new
            stack += new
        return found

    def children(self) -> Iterator[Module]:
        """Yields the direct children, each once.

        >>> [type(child).__name__ for child in nn.Sequential(nn.Linear(2, 3), nn.Tanh()).children()]
        ['Linear', 'Tanh']
        """
        for _, module in self.named_children():
            yield module

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yields (path, module) for this module and all below it, each once; paths start with `prefix`.

        `remove_duplicate=False`: a shared module comes once per path. `memo`: modules to be skipped.

        >>> [path for path, _ in nn.MLP(2, [3, 1]).named_modules()]
        ['', 'layers', 'layers.0', 'layers.1']
        """
        seen: set[Any] = set() if memo is None else memo
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if remove_duplicate and module in seen:
                continue
            seen.add(module)
            yield path, module
            below = [(f"{path}.{name}" if path else name, child) for name, child in module._held_modules()]
            stack.extend(reversed(below))

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """Yields this module and all below it, each once unless `remove_duplicate` is False.

        >>> len(list(nn.MLP(2, [3, 1]).modules()))
        4
        """
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def get_submodule(self, target: str) -> Module:
        """Returns the module at a path like "layers.0"; "" is this one.

        Raises:
          PathError: `target` is not the path of a module.

        >>> nn.MLP(2, [3, 1]).get_submodule("layers.0")
        Linear(in_features=2, out_features=3, bias=True)
        """
        found = dict(self.named_modules(remove_duplicate=False)).get(target)
        if found is None:
            raise PathError(f"get_submodule: {type(self).__name__} has no module {target!r}.")
        return found

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts `module` at the path `target`; with `strict` it must replace one.

        Raises:
          PathError: the path's parent does not exist, or with strict the module itself.

        >>> net = nn.MLP(2, [3, 1])
        >>> net.set_submodule("layers.0", nn.Identity())
        >>> net.layers[0]
        Identity()
        """
        before, _, name = target.rpartition(".")
        owner = self.get_submodule(before)
        if not name or (strict and not isinstance(getattr(owner, name, None), Module)):
            raise PathError(f"set_submodule: {type(self).__name__} has no module {target!r}.")
        setattr(owner, name, module)

    # ---- tensors inside ----
    def get_parameter(self, target: str) -> Tensor:
        """Returns the parameter at a path like "layers.0.weight".

        Raises:
          PathError: `target` is not the path of a parameter.

        >>> nn.MLP(2, [3, 1]).get_parameter("layers.0.bias").shape
        (3,)
        """
        found = dict(self._named_tensors("parameter")).get(target)
        if found is None:
            raise PathError(f"get_parameter: {type(self).__name__} has no parameter {target!r}.")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """Returns the buffer at a path like "norm.running_mean".

        Raises:
          PathError: `target` is not the path of a buffer.

        >>> nn.BatchNorm1d(2).get_buffer("running_var")
        Tensor([1., 1.])
        """
        found = dict(self.named_buffers(remove_duplicate=False)).get(target)
        if found is None:
            raise PathError(f"get_buffer: {type(self).__name__} has no buffer {target!r}.")
        return found

    def _named_tensors(
        self, *kinds: str, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in modules if recurse else [(prefix, self)]:
            held = vars(module)
            names = [name for name, kind in held.get("_state_kinds", {}).items() if kind in kinds]
            if len(kinds) > 1:  # parameters first, then in their order
                names.sort(key=lambda name: held["_state_kinds"][name] != "parameter")
            for name in names:
                tensor = held.get(name)
                if tensor is not None:
                    yield (f"{path}.{name}" if path else name), tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields (path, parameter), each parameter once even if it is shared.

        Args:
          prefix:            put before every path
          recurse:           False: only this module's own parameters
          remove_duplicate:  False: a shared parameter comes once per path

        >>> [(path, p.shape) for path, p in nn.Linear(2, 3).named_parameters()]
        [('weight', (3, 2)), ('bias', (3,))]
        """
        found = self._named_tensors("parameter", prefix=prefix, recurse=recurse, remove_duplicate=remove_duplicate)
        return _once(found) if remove_duplicate else found

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yields the parameters, each once; recurse=False: only this module's own.

        >>> sum(p.numel() for p in nn.Linear(2, 3).parameters())
        9
        """
        for _, tensor in self.named_parameters(recurse=recurse):
            yield tensor

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields (path, tensor) for state that is not trained.

        `prefix`, `recurse`, `remove_duplicate`: as for named_parameters.

        >>> [path for path, _ in nn.BatchNorm1d(2).named_buffers()]
        ['running_mean', 'running_var', 'num_batches_tracked']
        """
        kinds = ("buffer", "temporary")
        found = self._named_tensors(*kinds, prefix=prefix, recurse=recurse, remove_duplicate=remove_duplicate)
        return _once(found) if remove_duplicate else found

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yields state that is not trained; recurse=False: only this module's own.

        >>> list(nn.Linear(2, 3).buffers())
        []
        """
        for _, tensor in self.named_buffers(recurse=recurse):
            yield tensor

    def summary(self, *inputs: Any) -> Summary:
        """Returns a table of the layers: shapes in and out, parameters, FLOPs and bytes; no tensor is computed.

        `inputs`: the arguments of forward, as tensors or as shapes of float32 tensors.

        >>> print(nn.Linear(2, 3).summary((4, 2)))
        layer            in      out     parameters  FLOPs  bytes
        Linear           (4, 2)  (4, 3)           9     60     36
        total                                     9     60     36
        """
        return summarized(self, inputs)

    # ---- hooks ----
    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls hook(module, args) before every forward; its result, if not None, replaces the arguments.

        Args:
          hook:         hook(module, args), or with `with_kwargs` hook(module, args, kwargs), which returns None or both
          prepend:      before earlier hooks
          with_kwargs:  pass keyword arguments, too

        Returns:        a handle whose remove() removes the hook

        >>> net = nn.Identity()
        >>> handle = net.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        >>> net(Tensor([1.0])), handle.remove(), net(Tensor([1.0]))
        (Tensor([2.]), None, Tensor([1.]))
        """
        return registered(self, "_forward_pre_hooks", hook, prepend, with_kwargs)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Calls hook(module, args, output) after every forward; its result, if not None, replaces the output.

        Args:
          hook:         hook(module, args, output), or with `with_kwargs` hook(module, args, kwargs, output)
          prepend:      before earlier hooks
          with_kwargs:  pass keyword arguments, too
          always_call:  call it even when forward raises, with output None

        Returns:        a handle whose remove() removes the hook

        >>> net = nn.Identity()
        >>> handle = net.register_forward_hook(lambda module, args, output: output * 10)
        >>> net(Tensor([1.0]))
        Tensor([10.])
        """
        return registered(self, "_forward_hooks", hook, prepend, with_kwargs, always_call)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls hook(module, grad_input, grad_output) when the gradients of a call are known.

        grad_input has the gradients of the positional arguments, None for those that need none; grad_output those of the
        results. The hook's result, if not None, replaces grad_input. Gradients are lazy: those that are read are computed.

        Args:
          hook:     a function of the module and two tuples
          prepend:  before earlier hooks

        Returns:    a handle whose remove() removes the hook

        Raises:
          GradientError: in backward(): a hook replaces the gradients of several arguments; it can replace one.

        >>> net = nn.Linear(1, 1, bias=False)
        >>> handle = net.register_full_backward_hook(lambda module, grad_input, grad_output: print(grad_output))
        >>> net(Tensor([1.0])).sum().backward()
        (Tensor([1.]),)
        """
        return registered(self, "_backward_hooks", hook, prepend, False)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls hook(module, grad_output) when the gradients of the results are known, before they pass through the module.

        The hook's result, if not None, replaces grad_output.

        Args:
          hook:     a function of the module and a tuple
          prepend:  before earlier hooks

        Returns:    a handle whose remove() removes the hook

        Raises:
          GradientError: in backward(): a hook replaces the gradients of several results; it can replace one.

        >>> net, x = nn.Identity(), Tensor([1.0], requires_grad=True)
        >>> handle = net.register_full_backward_pre_hook(lambda module, grad_output: (grad_output[0] * 10,))
        >>> net(x).sum().backward()
        >>> x.grad
        Tensor([10.])
        """
        return registered(self, "_backward_pre_hooks", hook, prepend, False)

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

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Calls `fn` with every module below this one, then with this one; returns self.

        >>> net = nn.MLP(2, [3, 1])
        >>> seen = []
        >>> _ = net.apply(lambda module: seen.append(type(module).__name__))
        >>> seen
        ['Linear', 'Linear', 'ModuleList', 'MLP']
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def __repr__(self) -> str:
        shown = self.extra_repr()
        lines = shown.split("\n") if shown else []
        inside = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self._held_modules()]
        if len(lines) <= 1 and not inside:
            return f"{self._get_name()}({shown})"
        return f"{self._get_name()}(\n  " + "\n  ".join([*lines, *inside]) + "\n)"

    def _repr_html_(self) -> str:
        """Returns HTML for notebooks: the layers as a tree that unfolds, each with its number of parameters."""
        return _tree_of("", self)

    def _get_name(self) -> str:
        name = type(self).__name__
        return f"Parametrized{name}" if "parametrizations" in vars(self) else name

    def extra_repr(self) -> str:
        """Returns the text between the brackets of the printed module.

        >>> nn.Linear(2, 3)
        Linear(in_features=2, out_features=3, bias=True)
        """
        return ""


def _tree_of(name: str, module: Module) -> str:
    """Returns a module and its children as HTML; `name` is that of a child."""
    parameters = sum(parameter.numel() for parameter in module.parameters())
    text = f"{module._get_name()}({module.extra_repr()})" + (f"  {parameters:,} parameters" if parameters else "")
    parts = [_tree_of(name, child) for name, child in module._held_modules()]
    return tree(f"({name}): {text}" if name else text, parts, is_open=not name)


def _once(named: Iterator[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yields each tensor once, under its first name."""
    seen: set[int] = set()
    for name, tensor in named:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor
