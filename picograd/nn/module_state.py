"""The state of modules: saved, loaded, moved to other devices and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from picograd import dtype as dtypes
from picograd.engine.devices import gpu_named
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import cast
from picograd.ir.op import Shape
from picograd.ir.opcode import OpCode
from picograd.nn.hooks import registered
from picograd.nn.parameter import ModuleAttributes, Parameter
from picograd.tensor.arguments import saved_state
from picograd.tensor.cell import note_move, set_op
from picograd.tensor.conversions import named_cast
from picograd.tensor.exchange import shown_steps
from picograd.tensor.gradients import zero_grads
from picograd.tensor.hooks import RemovableHandle
from picograd.tensor.intake import array_of
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor

WRAPPERS = ("module.", "_orig_mod.")  # prefixes in states of PyTorch's DataParallel, and of compiled modules


class IncompatibleKeys(NamedTuple):
    """Names on which a state and a module differ.

    missing_keys:     paths of the module that the state lacks
    unexpected_keys:  paths of the state that the module lacks

    >>> IncompatibleKeys(["bias"], []).missing_keys
    ['bias']
    """

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class ModuleState(ModuleAttributes):
    """Base of modules: methods for all tensors of a module."""

    def _named_tensors(
        self, *kinds: str, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields (path, tensor) of the kinds "parameter", "buffer", "temporary", module by module, parameters first."""
        raise NotImplementedError

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Yields (path, module); Module defines it.

        `memo`, `prefix`, `remove_duplicate`: see there.

        >>> [path for path, _ in nn.Linear(1, 1).named_modules()]
        ['']
        """
        raise NotImplementedError

    def get_extra_state(self) -> Any:
        """Returns extra state, which state_dict keeps under "_extra_state"; a subclass may define it.

        >>> class Named(nn.Module):
        ...     def get_extra_state(self):
        ...         return {"name": "a"}
        >>> Named().state_dict()
        {'_extra_state': {'name': 'a'}}
        """
        return None

    def set_extra_state(self, state: Any) -> None:
        """Loads `state`, a result of get_extra_state; a subclass that has extra state defines it.

        >>> nn.Linear(1, 1).set_extra_state(None)
        """

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not ModuleState.get_extra_state

    def state_dict(
        self, *, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Returns all parameters and buffers by path; the tensors share storage with the module.

        Args:
          destination:  a dict to fill and return; None: a new one
          prefix:       put before every path
          keep_vars:    include the tensors themselves, with their gradients

        >>> list(nn.MLP(2, [3, 1]).state_dict())
        ['layers.0.weight', 'layers.0.bias', 'layers.1.weight', 'layers.1.bias']
        """
        found: dict[str, Any] = {} if destination is None else destination
        modules = list(self.named_modules(prefix=prefix.removesuffix("."), remove_duplicate=False))
        for path, module in modules:
            start = _start(path)
            module._call_state_hooks("_state_dict_pre_hooks", start, keep_vars)
            for name, tensor in module._named_tensors("parameter", "buffer", prefix=path, recurse=False):
                found[name] = tensor if keep_vars else tensor.detach()
            if module._has_extra_state():
                found[f"{start}_extra_state"] = module.get_extra_state()
        for path, module in reversed(modules):
            module._call_state_hooks("_state_dict_hooks", found, _start(path), {"version": 1})
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> IncompatibleKeys:
        """Loads tensors by path into parameters and buffers, in place; returns missing and unexpected names.

        Tensors of other libraries and arrays are accepted.

        Args:
          state_dict:  path -> tensor
          strict:      the paths of the state and of the module must be the same
          assign:      the given tensors themselves become the module's, with their dtypes and devices

        Raises:
          ArgumentError: paths are missing or unexpected (unless strict is False), or a hook reports an error.
          ShapeError:    shapes differ.
          DTypeError:    a value is neither a tensor nor an array.

        >>> a, b = nn.Linear(2, 3), nn.Linear(2, 3)
        >>> b.load_state_dict(a.state_dict())
        <All keys matched successfully>
        >>> bool((a.weight == b.weight).all())
        True
        """
        owners = dict(self.named_modules(remove_duplicate=False))
        state_dict, keys = saved_state(self, state_dict), IncompatibleKeys([], [])
        messages: list[str] = []
        loaded: set[str] = set()
        for path, module in owners.items():
            version = {"version": getattr(module, "_version", 1)} | ({"assign_to_params_buffers": True} if assign else {})
            facts = (state_dict, _start(path), version, strict, *keys, messages)
            module._call_state_hooks("_load_state_dict_pre_hooks", *facts)
            if type(module)._load_from_state_dict is not ModuleState._load_from_state_dict:
                module._load_from_state_dict(*facts)
                loaded.update(module._own_tensors(path))
        own = self._own_state()
        keys.missing_keys.extend(name for name in own if name not in state_dict and name not in loaded)
        keys.unexpected_keys.extend(name for name in state_dict if name not in own)
        if not any("_load_state_dict_post_hooks" in vars(module) for module in owners.values()):
            _check_keys(keys, messages, strict)
        tensors = {name: value for name, value in own.items() if isinstance(value, Tensor) and name not in loaded}
        given = {
            name: _as_tensor(name, state_dict[name], tensor.shape) for name, tensor in tensors.items() if name in state_dict
        }
        for path, tensor in given.items():
            owners[path.rpartition(".")[0]]._load(path, tensors[path], tensor, assign)
        for path, module in owners.items():
            key = f"{_start(path)}_extra_state"
            if module._has_extra_state() and key in state_dict:
                module.set_extra_state(state_dict[key])
        for module in reversed(owners.values()):
            module._call_state_hooks("_load_state_dict_post_hooks", keys)
        _check_keys(keys, messages, strict)
        return keys

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Loads the module's own tensors; subclasses in libraries rename entries before, or accept missing ones after."""
        for path, tensor in self._own_tensors(prefix.removesuffix(".")).items():
            if path in state_dict:
                given = _as_tensor(path, state_dict[path], tensor.shape)
                self._load(path, tensor, given, local_metadata.get("assign_to_params_buffers", False))
            else:
                missing_keys.append(path)

    def _load(self, path: str, own: Tensor, tensor: Tensor, assign: bool) -> None:
        """Copies a tensor of a state to the module's own, or with assign replaces that."""
        name = path.rpartition(".")[2]
        with no_grad():
            if assign:
                self._take_over(name, tensor)
            else:
                _store(path, own, tensor)

    def _own_tensors(self, path: str) -> dict[str, Tensor]:
        """Returns this module's own parameters and saved buffers, by path."""
        return dict(self._named_tensors("parameter", "buffer", prefix=path, recurse=False))

    def _own_state(self) -> dict[str, Any]:
        """Returns state_dict(keep_vars=True) without calling hooks; extra states are None."""
        found: dict[str, Any] = {}
        for path, module in self.named_modules(remove_duplicate=False):
            found.update(module._own_tensors(path))
            if module._has_extra_state():
                found[f"{_start(path)}_extra_state"] = None
        return found

    def _take_over(self, name: str, tensor: Tensor) -> None:
        """Makes a tensor the parameter or buffer `name`; it requires grad if the old one did."""
        before = getattr(self, name)
        own = tensor.detach()
        own._role = "parameter" if isinstance(before, Parameter) else "buffer"
        setattr(self, name, own.requires_grad_() if before.requires_grad and before.is_leaf else own)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freezes or unfreezes all parameters; returns self.

        >>> any(p.requires_grad for p in nn.Linear(2, 3).requires_grad_(False).parameters())
        False
        """
        for _, tensor in self._named_tensors("parameter"):
            tensor.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters; set_to_none=False sets them to 0 instead.

        >>> net = nn.Linear(2, 1)
        >>> net(Tensor.ones(1, 2)).sum().backward()
        >>> net.zero_grad()
        >>> net.weight.grad is None
        True
        """
        zero_grads((tensor for _, tensor in self._named_tensors("parameter")), set_to_none)

    # ---- moving ----
    def to(
        self,
        *targets: Any,
        device: Any = None,
        dtype: Any = None,
        non_blocking: bool = False,
        memory_format: Any = None,
    ) -> Self:
        """Moves all parameters and buffers to a device, floats also to a dtype; the tensors stay the same objects.

        `targets`: a device, a dtype, both, or a tensor that has them. `non_blocking`, `memory_format`: without effect.

        Raises:
          ArgumentError: a target is something else.
          DTypeError:    a dtype is not a float: weights would be cut to integers.

        >>> nn.Linear(2, 3).to(dtypes.float16).weight.dtype
        float16
        """
        chosen: list[Any] = []
        for target in (*targets, device, dtype):
            chosen += [target.device, target.dtype] if isinstance(target, Tensor) else [target]
        kept = tuple(target for target in chosen if target is not None and not isinstance(target, bool))
        for target in kept:
            if not isinstance(target, (str, dtypes.DType, type)):
                raise ArgumentError(f"to: needs a device name or a dtype, got {target!r}.", '.to("cuda") or .cuda(0)')
            if target in (int, bool) or (isinstance(target, dtypes.DType) and not target.is_float):
                raise DTypeError(f"to: a module's dtype must be a float, got {target}.", "x.to(dtype) of one tensor.")
        seen: set[int] = set()
        for _, tensor in self._named_tensors("parameter", "buffer", "temporary"):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                move(tensor, kept)
                if isinstance(tensor._grad, Tensor):
                    move(tensor._grad, kept)
        return self

    def type(self, dst_type: Any) -> Self:
        """Casts floating-point parameters and buffers to `dst_type`, a dtype; returns self.

        >>> nn.Linear(2, 3).type(dtypes.float64).weight.dtype
        float64
        """
        return self.to(dst_type)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Moves parameters and buffers to a device without their values; `recurse`: those of child modules, too.

        >>> nn.Linear(2, 3).to_empty(device="cpu").weight.shape
        (3, 2)
        """
        for _, tensor in self._named_tensors("parameter", "buffer", "temporary", recurse=recurse):
            move(tensor, (device,))
        return self

    _of_modules = "Makes all floats of parameters and buffers, which stay the same objects,", "nn.Linear(2, 3).{}().weight"
    half, bfloat16 = named_cast(dtypes.float16, *_of_modules), named_cast(dtypes.bfloat16, *_of_modules)
    float, double = named_cast(dtypes.float32, *_of_modules), named_cast(dtypes.float64, *_of_modules)

    def cpu(self) -> Self:
        """Moves all parameters and buffers to the CPU; returns self.

        >>> nn.Linear(2, 3).cpu().weight.device
        device(type='cpu')
        """
        return self.to("CPU")

    def cuda(self, device: str | int | None = None) -> Self:
        """Moves all parameters and buffers to the GPU: `device` is 0, "cuda" or "cuda:0"; returns self."""
        return self.to(gpu_named(device))

    # ---- hooks around the state ----
    def _call_state_hooks(self, place: str, *args: Any) -> None:
        for hook in vars(self).get(place, {}).values():
            hook.call(self, *args)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls hook(module, prefix, keep_vars) before state_dict() collects the module's tensors.

        Args:
          hook:   gets the module, the prefix of its paths, and whether tensors keep their gradients

        Returns:  a handle whose remove() removes the hook

        >>> net = nn.Linear(1, 1, bias=False)
        >>> handle = net.register_state_dict_pre_hook(lambda module, prefix, keep_vars: print("asked for"))
        >>> list(net.state_dict())
        asked for
        ['weight']
        """
        return registered(self, "_state_dict_pre_hooks", hook, False, False)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls hook(module, state_dict, prefix, local_metadata) after state_dict() collected the module and its children.

        Args:
          hook:   it may change state_dict in place; local_metadata is {"version": 1}

        Returns:  a handle whose remove() removes the hook

        >>> net = nn.Linear(1, 1, bias=False)
        >>> handle = net.register_state_dict_post_hook(lambda module, state, prefix, facts: state.pop(prefix + "weight"))
        >>> net.state_dict()
        {}
        """
        return registered(self, "_state_dict_hooks", hook, False, False)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls a hook before a state is loaded into the module; it may change that state in place.

        Args:
          hook:   a function of (module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                  error_msgs); entries that it adds to the last three lists are reported with the rest

        Returns:  a handle whose remove() removes the hook

        >>> net = nn.Linear(1, 1, bias=False)
        >>> def renamed(module, state_dict, prefix, *rest):
        ...     state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")
        >>> handle = net.register_load_state_dict_pre_hook(renamed)
        >>> net.load_state_dict({"w": Tensor([[2.0]])})
        <All keys matched successfully>
        """
        return registered(self, "_load_state_dict_pre_hooks", hook, False, False)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> RemovableHandle:
        """Registers a hook that is called before a state is loaded, without the module as first argument."""
        call = hook if with_module else lambda module, *facts: hook(*facts)
        return self.register_load_state_dict_pre_hook(call)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls hook(module, incompatible_keys) after a state was loaded into the module and its children.

        Args:
          hook:   may remove names from both lists of incompatible_keys, so that they are not errors

        Returns:  a handle whose remove() removes the hook

        >>> net = nn.Linear(1, 1)
        >>> handle = net.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.remove("bias"))
        >>> net.load_state_dict({"weight": Tensor([[2.0]])})
        <All keys matched successfully>
        """
        return registered(self, "_load_state_dict_post_hooks", hook, False, False)


def _start(path: str) -> str:
    """Returns the prefix of the paths of a module's own tensors."""
    return f"{path}." if path else ""


def move(tensor: Tensor, targets: tuple[Any, ...]) -> None:
    """Moves a tensor's value to another device, or casts a float to another dtype; the object stays the same.

    A view of other storage, such as a slice, gets storage of its own, as in PyTorch.
    """
    value = tensor.detach()
    moved = value.to(*(target for target in targets if isinstance(target, str)))
    dtype = next((target for target in targets if target is not None and not isinstance(target, str)), tensor.dtype)
    if tensor.dtype.is_float:
        moved = moved.cast(dtype)
    if moved is not value:
        if shown_steps(tensor):
            leaf = tuple(step for step in tensor.steps[-1:] if step[0] is OpCode.LEAF)
            tensor.cell, tensor.steps, tensor._shown = moved.clone().cell, leaf, None
        else:
            tensor.cell.device = moved.cell.device
            set_op(tensor.cell, cast(moved.op, moved.dtype))
        note_move()


def _check_keys(keys: IncompatibleKeys, messages: list[str], strict: bool) -> None:
    """Raises an ArgumentError if hooks reported errors, or if `strict` and paths differ."""
    if messages:
        raise ArgumentError(f"load_state_dict: {' '.join(messages)}")
    if strict and any(keys):
        raise ArgumentError(
            f"load_state_dict: missing: {_listed(keys.missing_keys)}; unknown: {_listed(keys.unexpected_keys)}.",
            hint=_without_prefix(keys) or "strict=False loads what fits by name.",
        )


def _without_prefix(keys: IncompatibleKeys) -> str | None:
    """Returns a hint if unexpected names are the missing ones with the prefix of a wrapper."""
    for prefix in WRAPPERS:
        if keys.missing_keys and {name.removeprefix(prefix) for name in keys.unexpected_keys} == {*keys.missing_keys}:
            return f"{{name.removeprefix({prefix!r}): value for name, value in state.items()}}"
    return None


def _listed(names: list[str]) -> str:
    return (", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")) or "none"


def _as_tensor(name: str, value: Any, shape: Shape) -> Tensor:
    """Returns an entry of a state as a Tensor of this shape."""
    array = None if isinstance(value, Tensor) else array_of(value)
    if array is not None and array.dtype.kind not in "biufV":
        raise DTypeError(f"load_state_dict: {name} is a {type(value).__name__}, which is neither a tensor nor an array.")
    tensor: Tensor = value if array is None else Tensor(array)
    if tensor.shape == (1,) and shape == ():  # PyTorch before 0.4 had no tensors of zero axes
        return tensor.reshape(())
    if tensor.shape != shape:
        raise ShapeError(f"load_state_dict: {name} has shape {tensor.shape}; the model's has {shape}.")
    return tensor


def _store(path: str, own: Tensor, given: Tensor) -> None:
    """Copies a tensor of a state to one of the module."""
    held = own.detach()
    try:
        held.assign(given.detach().to(held.device, held.dtype))
    except ShapeError as error:  # an expanded tensor does not have memory for each element
        error.restate(f"load_state_dict: {path}: {error.fact}")
        raise
