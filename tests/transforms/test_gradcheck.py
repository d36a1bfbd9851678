"""gradcheck finds what is wrong, says where, and agrees where nothing is."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg
from picograd import GradientError, Tensor, nn
from tests.helpers import mostly_evaluated

f64 = pg.dtypes.float64
FUNCTIONS = {
    "elementwise": lambda x, y: x.tanh() * y.exp() / (x * x + 1),
    "contraction": lambda x, y: ((x @ y.T).softmax(-1), x.std(0)),
    "movement": lambda x, y: {"a": x[1:, ::2].T, "b": [y.flip([0]).cumsum(1)]},
    "scan": lambda x, y: pg.scan(lambda c, row: ((c * row).sin() + row, c), y[0], x)[1],
    "outline": lambda x, y: pg.outline(lambda a, b: (a * b).sum(0).exp())(x, y),
    "integers beside": lambda x, y: (x * y, x.argmax()),
}


@pytest.mark.req("A9")
@mostly_evaluated(every=5)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_both_orders_and_modes_agree(name: str, device: str, rng: np.random.Generator) -> None:
    inputs = tuple(Tensor(rng.standard_normal((2, 3))) for _ in range(2))
    function = FUNCTIONS[name]
    assert pg.gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True)
    assert pg.gradgradcheck(function, inputs, check_fwd_over_rev=True, check_batched_grad=True)


def test_scalars_and_empty_inputs_and_other_arguments() -> None:
    assert pg.gradcheck(lambda x: x**3, Tensor(2.0, f64))
    assert pg.gradcheck(lambda x: x.sum(), Tensor(np.zeros((0, 2))))
    assert pg.gradcheck(lambda x, n, axes: (x**n).sum(axes[0]), (Tensor(np.ones((2, 2))), 3, [1]))
    assert pg.gradcheck(lambda x, index: x[index], (Tensor(np.ones(3)), Tensor([0, 2, 2])))


def test_only_what_requires_grad_is_checked_where_something_does() -> None:
    x, y = Tensor(np.ones(2), requires_grad=True), Tensor(np.ones(2))
    assert pg.gradcheck(lambda x, y: x * y.floor().detach(), (x, y))
    assert x.grad is None


def test_the_first_element_that_differs_is_named() -> None:
    def wrong(x: Tensor, y: Tensor) -> Tensor:
        return x * 2 + (y * x).detach()

    inputs = Tensor([[1.0, 2.0]], f64), Tensor([[3.0, 4.0]], f64)
    with pytest.raises(GradientError) as error:
        pg.gradcheck(wrong, inputs)
    assert error.value.fact == (
        "gradcheck: the derivative of result[0][0] by inputs[0][0][0] is 2 in reverse mode, 5 by central differences; 2 of"
        " 4 differ by more than atol=1e-05 + rtol=0.001 * |difference|."
    )
    assert pg.gradcheck(wrong, inputs, raise_exception=False) is False
    with pytest.raises(GradientError, match="is 2 in forward mode, 5 by central"):
        pg.gradcheck(wrong, inputs, check_backward_ad=False, check_forward_ad=True)
    with pytest.raises(GradientError, match="is 2 in reverse mode under vmap, 5 by central"):
        pg.gradcheck(wrong, inputs, check_backward_ad=False, check_batched_grad=True)


def test_a_wrong_second_derivative_is_found() -> None:
    def wrong(x: Tensor) -> Tensor:  # the gradient is right, its derivative is not
        slope = (x * x * 3).detach()
        return slope * x - slope.detach() * x.detach() + (x**3).detach()

    x = Tensor([2.0], f64)
    assert pg.gradcheck(wrong, x)
    assert not pg.gradgradcheck(wrong, x, raise_exception=False)


def test_layers_as_functions(rng: np.random.Generator) -> None:
    net = nn.MLP(3, [4, 2]).to(f64)
    params = {name: p.detach() for name, p in net.named_parameters()}
    x = Tensor(rng.standard_normal((2, 3)))
    smooth = lambda p, x: pg.functional_call(net, p, (x,)).tanh()  # noqa: E731
    assert pg.gradcheck(smooth, (params, x), check_forward_ad=True)


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(pg.DTypeError) as error:
        pg.gradcheck(lambda x: x, Tensor([1.0]))
    assert error.value.fact == "gradcheck: inputs[0] is float32 of shape (1,); central differences need float64."
    with pytest.raises(pg.ArgumentError, match="gradcheck: no input of <lambda> is a Tensor of floats"):
        pg.gradcheck(lambda x: x, Tensor([1]))
