"""Loss scaling: gradients of 16-bit floats are kept from vanishing."""

from __future__ import annotations

from typing import Any

from picograd.errors import ArgumentError
from picograd.optim.optimizer import Optimizer
from picograd.tensor.arguments import saved_state
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor


class GradScaler:
    """Multiplies losses, divides gradients, and leaves out steps whose gradients are not finite.

    The scale is a buffer on the device: when it changes, plans stay. step() looks at the gradients, so it
    computes them now and does not work inside jit; scale() does.

    Args:
      device:           has no effect: the scale goes where the loss is
      init_scale:       the first factor
      growth_factor:    of the scale after growth_interval steps in a row with finite gradients
      backoff_factor:   of the scale after a step that was left out
      growth_interval:  see growth_factor
      enabled:          False: everything passes unchanged

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
        self._enabled, self._value, self._good_steps = enabled, float(init_scale), 0
        self._scale: Tensor | None = None
        self._found: dict[int, bool] = {}  # by optimizer: a gradient was not finite, since the last update

    def scale(self, outputs: Any) -> Any:
        """Returns the loss `outputs`, or each of several in a list or tuple, times the scale.

        Raises:
          ArgumentError: outputs is neither.

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
        """Divides the gradients of an optimizer's parameters by the scale, in place, and looks at them.

        Raises:
          ArgumentError: that was done already since the last update().

        >>> w = Tensor([1.0], requires_grad=True)
        >>> optimizer, scaler = optim.SGD([w]), pg.GradScaler(init_scale=4.0)
        >>> scaler.scale(w.sum()).backward()
        >>> scaler.unscale_(optimizer)
        >>> w.grad
        Tensor([1.])
        """
        if not self._enabled:
            return
        if id(optimizer) in self._found:
            raise ArgumentError(
                "unscale_: the gradients of this optimizer are unscaled already.",
                hint="scaler.update() after scaler.step()",
            )
        grads = [parameter.grad for parameter in optimizer.parameters() if parameter.grad is not None]
        with no_grad():
            for grad in grads:
                grad.mul_((1.0 / self._factor(grad.device)).to(grad.dtype))
            finite = [grad.isfinite().all() for grad in grads]
            self._found[id(optimizer)] = not all(bool(ok) for ok in finite)

    def step(self, optimizer: Optimizer) -> None:
        """Takes the optimizer's step, unless a gradient is not finite; unscales first where that was not done.

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
        if id(optimizer) not in self._found:
            self.unscale_(optimizer)
        if not self._found[id(optimizer)]:
            optimizer.step()

    def update(self, new_scale: float | None = None) -> None:
        """Makes the scale smaller after a step that was left out, greater after many that were not; or `new_scale`.

        >>> scaler = pg.GradScaler()
        >>> scaler.update(new_scale=2.0)
        >>> scaler.get_scale()
        2.0
        """
        if not self._enabled:
            return
        if new_scale is not None:
            self._set(float(new_scale))
        elif any(self._found.values()):
            self._good_steps = 0
            self._set(self._value * self.backoff_factor)
        else:
            self._good_steps += 1
            if self._good_steps == self.growth_interval:
                self._good_steps = 0
                self._set(self._value * self.growth_factor)
        self._found = {}

    def get_scale(self) -> float:
        """Returns the scale, 1 where it is not enabled.

        >>> pg.GradScaler(enabled=False).get_scale()
        1.0
        """
        return self._value if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Returns whether losses are scaled.

        >>> pg.GradScaler(enabled=False).is_enabled()
        False
        """
        return self._enabled

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.state_dict().items() if not name.startswith("_"))
        return f"{type(self).__name__}({shown or 'enabled=False'})"

    def state_dict(self) -> dict[str, Any]:
        """Returns the scale, how it changes, and how many good steps there were; {} where it is not enabled.

        >>> pg.GradScaler().state_dict()["scale"]
        65536.0
        """
        if not self._enabled:
            return {}
        rules = {"growth_factor": self.growth_factor, "backoff_factor": self.backoff_factor}
        steps = {"growth_interval": self.growth_interval, "_growth_tracker": self._good_steps}
        return {"scale": self._value, **rules, **steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a result of state_dict(), or of PyTorch's.

        >>> scaler = pg.GradScaler()
        >>> scaler.load_state_dict(pg.GradScaler(init_scale=2.0).state_dict())
        >>> scaler.get_scale()
        2.0
        """
        if self._enabled:
            names = ("growth_factor", "backoff_factor", "growth_interval", "_growth_tracker", "scale")
            state_dict = saved_state(self, state_dict, *names)
            self.growth_factor, self.backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
            self.growth_interval, self._good_steps = state_dict["growth_interval"], state_dict["_growth_tracker"]
            self._set(float(state_dict["scale"]))

    def _factor(self, device: str) -> Tensor:
        if self._scale is None:
            self._scale = Tensor(self._value, device=device)
        return self._scale.to(device)

    def _set(self, value: float) -> None:
        self._value = value
        if self._scale is not None:
            with no_grad():
                self._scale.assign(value)
