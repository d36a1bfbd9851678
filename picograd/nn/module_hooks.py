"""Calling a module: its forward, and the hooks around it.

In:    arguments of a forward
Out:   `ModuleHooks`, which Module extends
Next:  picograd/nn/module_state.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from picograd.nn.hooks import GradientWatch, after_forward, before_forward, registered
from picograd.nn.module_state import ModuleState
from picograd.public import explain
from picograd.tensor.hooks import RemovableHandle

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class HasForward(Protocol[P, R]):
    """A module, as a checker of types sees it."""

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Computes the result."""
        ...


class ModuleHooks(ModuleState):
    """What is called when a module is called."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the result from whatever arguments a subclass takes (args, kwargs); what calling the module does.

        >>> nn.Linear(2, 3).forward(Tensor.ones(4, 2)).shape
        (4, 3)
        """
        raise NotImplementedError(f"{type(self).__name__} has no method forward(); define it in the class.")

    if TYPE_CHECKING:

        @property
        def __call__(self: HasForward[P, R]) -> Callable[P, R]:
            """The forward of the class: a call takes and gives what that does."""

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
        """Calls forward and the hooks after it."""
        if "_forward_hooks" not in vars(self):
            return self.forward(*args, **kwargs)
        try:
            result = self.forward(*args, **kwargs)
        except Exception:
            after_forward(self, args, kwargs, None, has_failed=True)
            raise
        return after_forward(self, args, kwargs, result)

    # ---- hooks ----
    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls hook(module, args) before every forward; what it returns, if not None, becomes the arguments.

        Args:
          hook:         with_kwargs: hook(module, args, kwargs), which returns None or both
          prepend:      before those that are there
          with_kwargs:  it gets keyword arguments, too

        Returns:        a handle whose remove() takes it away

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
        """Calls hook(module, args, output) after every forward; what it returns, if not None, becomes the output.

        Args:
          hook:         with_kwargs: hook(module, args, kwargs, output)
          prepend:      before those that are there
          with_kwargs:  it gets keyword arguments, too
          always_call:  even when forward raises; output is None then

        Returns:        a handle whose remove() takes it away

        >>> net = nn.Identity()
        >>> handle = net.register_forward_hook(lambda module, args, output: output * 10)
        >>> net(Tensor([1.0]))
        Tensor([10.])
        """
        return registered(self, "_forward_hooks", hook, prepend, with_kwargs, always_call)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls hook(module, grad_input, grad_output) when the gradients of a call are known.

        grad_input are those of the positional arguments, None where one needs none; grad_output those of the results. What
        the hook returns, if not None, takes the place of grad_input. Gradients are graphs: nothing is computed unless read.

        Args:
          hook:     a function of the module and two tuples
          prepend:  before those that are there

        Returns:    a handle whose remove() takes it away

        Raises:
          GradientError: in backward(): a hook replaces the gradients of several arguments, of which only one can be.

        >>> net = nn.Linear(1, 1, bias=False)
        >>> handle = net.register_full_backward_hook(lambda module, grad_input, grad_output: print(grad_output))
        >>> net(Tensor([1.0])).sum().backward()
        (Tensor([1.]),)
        """
        return registered(self, "_backward_hooks", hook, prepend, False)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls hook(module, grad_output) when gradients of the results are known, before they go on into the module.

        What the hook returns, if not None, takes the place of grad_output.

        Args:
          hook:     a function of the module and a tuple
          prepend:  before those that are there

        Returns:    a handle whose remove() takes it away

        Raises:
          GradientError: in backward(): a hook replaces the gradients of several results, of which only one can be.

        >>> net, x = nn.Identity(), Tensor([1.0], requires_grad=True)
        >>> handle = net.register_full_backward_pre_hook(lambda module, grad_output: (grad_output[0] * 10,))
        >>> net(x).sum().backward()
        >>> x.grad
        Tensor([10.])
        """
        return registered(self, "_backward_pre_hooks", hook, prepend, False)
