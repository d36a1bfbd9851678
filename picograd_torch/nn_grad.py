"""torch.nn.grad: gradients of convolutions with respect to the input or the weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd.nn import functional
from picograd.public import renamed
from picograd.tensor.tensor import Tensor
from picograd.transforms.derivatives import vjp

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]
Each = int | tuple[int, ...]


def _gradient(convolve: Callable[[Tensor], Tensor], shape: Sequence[int], grad_output: Tensor) -> Tensor:
    """Returns the gradient of a convolution with respect to an operand of this shape; its values do not matter."""
    (found,) = vjp(convolve, grad_output.new_zeros(tuple(shape)))[1](grad_output)
    return found


def _input(axes: int) -> Callable[..., Tensor]:
    """Returns the gradient function of the input for a number of axes."""
    convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[axes - 1]

    def gradient(
        input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Each = 1, padding: str | Each = 0,
        dilation: Each = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        def of_input(x: Tensor) -> Tensor:
            return convolve(x, weight, None, stride, padding, dilation, groups)

        return _gradient(of_input, input_size, grad_output)

    ones = (1, 1, *(2,) * axes)
    return renamed(gradient, f"conv{axes}d_input", f"""Returns the gradient of conv{axes}d with respect to its input.

    Args:
      input_size:   the shape of the input
      weight:       of the convolution
      grad_output:  the gradient of its result
      stride, padding, dilation, groups: as in nn.functional.conv{axes}d

    >>> nn.grad.conv{axes}d_input({(1, 1, *(3,) * axes)}, pg.ones{ones}, pg.ones{ones}).sum()
    Tensor({4**axes}.)
    """)  # fmt: skip


def _weight(axes: int) -> Callable[..., Tensor]:
    """Returns the gradient function of the weight for a number of axes."""
    convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[axes - 1]

    def gradient(
        input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Each = 1,  # noqa: A002
        padding: str | Each = 0, dilation: Each = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        def of_weight(weight: Tensor) -> Tensor:
            return convolve(input, weight, None, stride, padding, dilation, groups)

        return _gradient(of_weight, weight_size, grad_output)

    ones = (1, 1, *(2,) * axes)
    return renamed(gradient, f"conv{axes}d_weight", f"""Returns the gradient of conv{axes}d with respect to its weight.

    Args:
      input:        of the convolution
      weight_size:  the shape of the weight
      grad_output:  the gradient of its result
      stride, padding, dilation, groups: as in nn.functional.conv{axes}d

    >>> nn.grad.conv{axes}d_weight(pg.ones{(1, 1, *(3,) * axes)}, {ones}, pg.ones{ones}).sum()
    Tensor({4**axes}.)
    """)  # fmt: skip


conv1d_input, conv2d_input, conv3d_input = _input(1), _input(2), _input(3)
conv1d_weight, conv2d_weight, conv3d_weight = _weight(1), _weight(2), _weight(3)
