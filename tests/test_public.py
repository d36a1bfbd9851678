"""Functions that users call are wrapped once, and are what they were but for their errors."""

from __future__ import annotations

import inspect
import pickle
from types import ModuleType

import pytest

import picograd as pg
from picograd import Tensor, nn
from picograd.public import DONE_BY, plain, published


def test_a_published_function_has_name_signature_and_text_of_the_one_behind_it() -> None:
    relu = nn.functional.relu
    assert plain(relu) is not relu and plain(plain(relu)) is plain(relu)
    assert (relu.__name__, relu.__doc__) == (plain(relu).__name__, plain(relu).__doc__)
    assert inspect.signature(relu) == inspect.signature(plain(relu))


def test_a_function_is_published_once_whatever_its_names() -> None:
    assert pg.linalg.det is pg.linalg.det and plain(pg.sum) is plain(Tensor.sum)
    assert published(pg.relu, "elsewhere", "relu") is pg.relu
    assert plain(pg.zeros) is plain(Tensor.zeros)


@pytest.mark.parametrize(
    "function",
    [
        pg.exp, pg.sum, pg.cat, pg.zeros, nn.functional.relu, pg.linalg.det, pg.vmap, Tensor.exp, Tensor.sum, Tensor.add,
        Tensor.reshape,
    ],
)  # fmt: skip
def test_a_published_function_can_be_pickled(function: object) -> None:
    assert plain(pickle.loads(pickle.dumps(function))) is plain(function)


def test_inside_functions_call_each_other_unwrapped() -> None:
    from picograd.nn.functions import activations

    assert plain(activations.relu) is activations.relu is plain(nn.functional.relu)


def test_a_layer_of_the_users_is_named_by_the_one_of_picograd_below_it() -> None:
    class Wide(nn.Linear):
        def __init__(self) -> None:
            super().__init__("x", 3)  # type: ignore[arg-type]

    with pytest.raises(pg.ArgumentTypeError, match="Linear: in_features must be an int, got str 'x'"):
        Wide()


def test_a_forward_of_the_users_is_not_explained() -> None:
    class Net(nn.Module):
        def forward(self, x: int) -> int:
            return x + "1"  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand") as caught:
        Net()(1)
    assert not isinstance(caught.value, pg.PicogradError)


def test_arguments_may_have_the_other_names_that_pytorch_takes() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert pg.select(input=x, axis=0, index=1).tolist() == x.select(axis=0, index=1).tolist() == [3.0, 4.0]
    assert pg.matmul(input=x, other=x).tolist() == (x @ x).tolist() and pg.cat(tensors=[x, x], axis=1).shape == (2, 4)
    assert x.gather(axis=1, index=Tensor([[1], [0]])).tolist() == [[2.0], [3.0]]
    assert len(pg.split(x, split_size_or_sections=1, dim=1)) == len(x.vsplit(sections=2)) == 2
    assert [piece.shape for piece in pg.tensor_split(x, indices=(1,), dim=-1)] == [(2, 1), (2, 1)]
    y = x + 1
    assert x.clone().copy_(src=y, non_blocking=True).tolist() == x.clone().copy_(y, True).tolist() == y.tolist()
    assert x.clone().uniform_(**{"from": 5, "to": 5}).tolist() == [[5.0, 5.0], [5.0, 5.0]]
    with pytest.raises(pg.ArgumentTypeError, match="select: missing a required argument: 'dim'"):
        x.select(axes=0, index=1)
    with pytest.raises(pg.ArgumentTypeError, match="select: multiple values for argument 'dim'"):
        x.select(0, axis=0, index=1)


def test_an_argument_that_has_no_meaning_here_says_so() -> None:
    with pytest.raises(pg.ArgumentTypeError) as told:
        pg.zeros(3, pin_memory=True)
    assert told.value.fact == "zeros: got an unexpected keyword argument 'pin_memory'."
    assert told.value.hint == "leave it out; copies to a GPU go by way of pinned memory by themselves."


@pytest.mark.parametrize("name", sorted(DONE_BY))
def test_an_error_has_the_name_of_the_function_that_was_called(name: str) -> None:
    x = pg.ones(3, 4)
    function = getattr(pg, name, None) or getattr(nn.functional, name, None) or getattr(Tensor, name)
    others = {"cosine_similarity": (x,)}.get(name, ())
    with pytest.raises(pg.PicogradError) as caught:
        function(x, *others, dim=9)
    assert caught.value.fact.startswith(f"{name}: ")


def test_what_is_no_shape_and_no_equation_is_told() -> None:
    for call, fact in (
        (lambda: pg.broadcast_shapes(None), "broadcast_shapes: shapes must be an int or a sequence of ints, got None."),
        (lambda: pg.einsum(None), "einsum: equation must be a str or a tensor, got None."),
    ):
        with pytest.raises(pg.ArgumentTypeError) as caught:
            call()
        assert caught.value.fact == fact


PAGES = [pg, nn, nn.functional, nn.init, nn.utils.rnn, pg.optim, pg.optim.lr_scheduler, pg.cuda, pg.amp, pg.random]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_lists_what_users_find_there_and_no_helper(page: ModuleType) -> None:
    names = [name for name in dir(page) if not name.startswith("__")]
    assert len(names) == len(set(names)) > 4 and all(hasattr(page, name) for name in names)
    assert not {"annotations", "publish", "Any", "Callable", "np", "math", "functools"} & {*names}
    for name in names:
        value = getattr(page, name)
        if isinstance(value, ModuleType):
            assert value.__name__.startswith("picograd"), name


def test_old_programs_find_autocast_by_the_device() -> None:
    with pg.autocast("cpu"):
        assert pg.is_autocast_enabled("cpu") and pg.is_autocast_enabled()
    assert not pg.is_autocast_enabled("cuda")
