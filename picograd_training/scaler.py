"""Loss scaling, which keeps gradients of 16-bit floats from underflowing."""

from __future__ import annotations

from typing import Any

from picograd.errors import ArgumentError, JitError
from picograd.optim.optimizer import Optimizer
from picograd.tensor.arguments import saved_state
from picograd.tensor.cell import trace
from picograd.tensor.core import realize
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.tensor.unasked import wait_for


class GradScaler:
    """Scales losses, unscales gradients, and skips steps whose gradients are not finite.

    The scale is a buffer on the device, so plans serve all its values. step() reads whether the gradients are finite, which
    computes them now. Inside jit, where values cannot be read, the step is always made, and each parameter and each tensor
    of its state gets its old value back if a gradient is not finite: one plan does both.

    Args:
      device:           has no effect: the scale is on the loss's device
      init_scale:       initial scale
      growth_factor:    applied to the scale after growth_interval consecutive steps with finite gradients
      backoff_factor:   applied to the scale after a skipped step
      growth_interval:  see growth_factor
      enabled:          False: losses and gradients are not changed

    Raises:
      ArgumentError: growth_factor is not above 1, or backoff_factor not below 1.

    Source: Micikevicius et al. 2017, arXiv:1710.03740, section 3.2.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer, scaler = optim.SGD([w], lr=0.5), pg.GradScaler(init_scale=8.0)
    >>> scaler.scale((w * 2.0).sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w.item(), scaler.get_scale()
    (0.0, 8.0)
    """

    def __init__(
        self,
        device: str | None = None,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        if not growth_factor > 1.0 or not 0.0 < backoff_factor < 1.0:
            raise ArgumentError(
                f"GradScaler: growth_factor must be above 1 and backoff_factor in (0, 1), got {growth_factor} and"
                f" {backoff_factor}."
            )
        self.growth_factor, self.backoff_factor, self.growth_interval = growth_factor, backoff_factor, growth_interval
        self._enabled = enabled
        self._scale, self._good_steps = Tensor(float(init_scale)), Tensor(0)
        self._finite: dict[int, Tensor] = {}  # by optimizer: whether its gradients are finite, since the last update
        realize([self._scale, self._good_steps])

    def scale(self, outputs: Any) -> Any:
        """Returns the loss `outputs`, or each of a list or tuple of losses, times the scale.

        Raises:
          ArgumentError: outputs is something else.

        >>> pg.GradScaler(init_scale=4.0).scale(Tensor(2.0))
        Tensor(8.)
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._factor(outputs.device)
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(output) for output in outputs)
        raise ArgumentError(f"scale: outputs must be a Tensor, or several in a list or tuple, got {outputs!r}.")

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divides the gradients of an optimizer's parameters by the scale, in place, and checks that they are finite.

        Raises:
          ArgumentError: they have been unscaled since the last update().

        >>> w = Tensor([1.0], requires_grad=True)
        >>> optimizer, scaler = optim.SGD([w]), pg.GradScaler(init_scale=4.0)
        >>> scaler.scale(w.sum()).backward()
        >>> scaler.unscale_(optimizer)
        >>> w.grad
        Tensor([1.])
        """
        if not self._enabled:
            return
        if id(optimizer) in self._finite:
            raise ArgumentError(
                "unscale_: the gradients of this optimizer are unscaled already.",
                hint="scaler.update() after scaler.step()",
            )
        grads = [parameter.grad for parameter in optimizer.parameters() if parameter.grad is not None]
        with no_grad():
            for grad in grads:
                grad.mul_((1.0 / self._factor(grad.device)).to(grad.dtype))
            found = [grad.isfinite().all().to(self._scale.device) for grad in grads]
            self._finite[id(optimizer)] = finite = Tensor.stack(found).all() if found else Tensor(True)
        if trace.get() is None:  # clip_grad_norm_ may write to the gradients before the check is read
            wait_for((), [finite.cell, *[grad.cell for grad in grads]])

    def step(self, optimizer: Optimizer) -> None:
        """Takes the optimizer's step unless a gradient is not finite; unscales the gradients first, if necessary.

        Raises:
          JitError: in jit, the step makes state of the optimizer, as SGD's first step with momentum and dampening does.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> optimizer, scaler = optim.SGD([w], lr=0.5), pg.GradScaler()
        >>> scaler.scale(w.sum() * float("inf")).backward()
        >>> scaler.step(optimizer)
        >>> w.item()
        1.0
        """
        if not self._enabled:
            optimizer.step()
            return
        if id(optimizer) not in self._finite:
            self.unscale_(optimizer)
        finite = self._finite[id(optimizer)]
        if trace.get() is None:
            if finite.item():
                optimizer.step()
            return
        tensors = written_by(optimizer)
        with no_grad():
            before = [tensor.clone() for tensor in tensors]
            optimizer.step()
            if len(written_by(optimizer)) > len(tensors):
                raise JitError(
                    f"GradScaler.step: {type(optimizer).__name__} makes new state in a function that is traced, which could"
                    " not be taken back.",
                    hint="call one step without jit before.",
                )
            for tensor, old in zip(tensors, before):
                tensor.assign(Tensor.choose(finite.to(tensor.device), tensor, old))

    def update(self, new_scale: float | None = None) -> None:
        """Lowers the scale after a skipped step, raises it after many that were not skipped; or sets `new_scale`.

        >>> scaler = pg.GradScaler()
        >>> scaler.update(new_scale=2.0)
        >>> scaler.get_scale()
        2.0
        """
        if not self._enabled:
            return
        with no_grad():
            if new_scale is not None:
                self._scale.assign(float(new_scale))
            else:
                found = [*self._finite.values()]
                finite = Tensor.stack(found).all() if found else Tensor(True)
                good = self._good_steps + 1
                larger = self._scale * self.growth_factor
                grown = Tensor.choose((good == self.growth_interval) & larger.isfinite(), larger, self._scale)
                self._scale.assign(Tensor.choose(finite, grown, self._scale * self.backoff_factor))
                self._good_steps.assign(Tensor.choose(finite & (good < self.growth_interval), good, 0))
        if trace.get() is None:
            realize([self._scale, self._good_steps])
        self._finite = {}

    def get_scale(self) -> float:
        """Returns the scale; 1 if it is disabled.

        >>> pg.GradScaler(enabled=False).get_scale()
        1.0
        """
        return self._scale.item() if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Returns whether scaling is enabled.

        >>> pg.GradScaler(enabled=False).is_enabled()
        False
        """
        return self._enabled

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.state_dict().items() if not name.startswith("_"))
        return f"{type(self).__name__}({shown or 'enabled=False'})"

    def state_dict(self) -> dict[str, Any]:
        """Returns the scale, its settings, and the number of steps since it changed; {} if disabled.

        >>> pg.GradScaler().state_dict()["scale"]
        65536.0
        """
        if not self._enabled:
            return {}
        rules = {"growth_factor": self.growth_factor, "backoff_factor": self.backoff_factor}
        steps = {"growth_interval": self.growth_interval, "_growth_tracker": self._good_steps.item()}
        return {"scale": self._scale.item(), **rules, **steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a result of state_dict(), or of PyTorch's.

        >>> scaler = pg.GradScaler()
        >>> scaler.load_state_dict(pg.GradScaler(init_scale=2.0).state_dict())
        >>> scaler.get_scale()
        2.0
        """
        if self._enabled:
            names = ("growth_factor", "backoff_factor", "growth_interval", "_growth_tracker", "scale")
            state_dict = saved_state(self, state_dict, *names)
            self.growth_factor, self.backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
            self.growth_interval = state_dict["growth_interval"]
            with no_grad():
                self._scale.assign(float(state_dict["scale"]))
                self._good_steps.assign(int(state_dict["_growth_tracker"]))
            realize([self._scale, self._good_steps])

    def _factor(self, device: str) -> Tensor:
        """Returns the scale on a device; if that changes, the scale and its count move, unless a plan may hold them."""
        if self._scale.device != device and trace.get() is None:
            self._scale, self._good_steps = self._scale.to(device), self._good_steps.to(device)
            realize([self._scale, self._good_steps])
        return self._scale.to(device)


def written_by(optimizer: Optimizer) -> list[Tensor]:
    """Returns the tensors that a step writes: parameters and state, each once."""
    state = [value for kept in optimizer.state.values() for value in kept.values() if isinstance(value, Tensor)]
    return [*{id(tensor): tensor for tensor in [*optimizer.parameters(), *state]}.values()]
