"""Hooks around a module's state: called when it is asked for, and when another is loaded.

In:    functions of a module and its state
Out:   `StateHooks`, which ModuleState extends
Next:  picograd/nn/module_attributes.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from picograd.nn.hooks import registered
from picograd.nn.module_attributes import ModuleAttributes
from picograd.tensor.hooks import RemovableHandle


class StateHooks(ModuleAttributes):
    """What is called before and after state_dict and load_state_dict, module by module."""

    def _call_state_hooks(self, place: str, *args: Any) -> None:
        for hook in vars(self).get(place, {}).values():
            hook.call(self, *args)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls hook(module, prefix, keep_vars) before the module's tensors enter a state_dict.

        Args:
          hook:   a function of the module, of what its paths start with, and of whether tensors keep their gradients

        Returns:  a handle whose remove() takes it away

        >>> net = nn.Linear(1, 1, bias=False)
        >>> handle = net.register_state_dict_pre_hook(lambda module, prefix, keep_vars: print("asked for"))
        >>> list(net.state_dict())
        asked for
        ['weight']
        """
        return registered(self, "_state_dict_pre_hooks", hook, False, False)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls hook(module, state_dict, prefix, local_metadata) when all below the module has entered a state_dict.

        Args:
          hook:   it may change state_dict in place; local_metadata is {"version": 1}

        Returns:  a handle whose remove() takes it away

        >>> net = nn.Linear(1, 1, bias=False)
        >>> handle = net.register_state_dict_post_hook(lambda module, state, prefix, facts: state.pop(prefix + "weight"))
        >>> net.state_dict()
        {}
        """
        return registered(self, "_state_dict_hooks", hook, False, False)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls a hook before a state is loaded into the module, which may change keys of that state in place.

        Args:
          hook:   a function of (module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                  error_msgs); what it adds to the last three lists is reported with the rest

        Returns:  a handle whose remove() takes it away

        >>> net = nn.Linear(1, 1, bias=False)
        >>> def renamed(module, state_dict, prefix, *rest):
        ...     state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")
        >>> handle = net.register_load_state_dict_pre_hook(renamed)
        >>> net.load_state_dict({"w": Tensor([[2.0]])})
        <All keys matched successfully>
        """
        return registered(self, "_load_state_dict_pre_hooks", hook, False, False)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls hook(module, incompatible_keys) when a state is loaded into the module and all below it.

        Args:
          hook:   it may take out of both lists of incompatible_keys what is no error

        Returns:  a handle whose remove() takes it away

        >>> net = nn.Linear(1, 1)
        >>> handle = net.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.remove("bias"))
        >>> net.load_state_dict({"weight": Tensor([[2.0]])})
        <All keys matched successfully>
        """
        return registered(self, "_load_state_dict_post_hooks", hook, False, False)
