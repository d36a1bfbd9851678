"""Layers that are declared by fields are what classes with a constructor of their own are."""

from __future__ import annotations

import copy
import inspect
import pickle
import traceback
from typing import Any

import pytest

import picograd as pg
from picograd import Tensor, nn
from picograd.nn.layers.layer import Layer

DECLARED = [kind for kind in vars(nn).values() if isinstance(kind, type) and issubclass(kind, Layer)]


def arguments(kind: type) -> list[str]:
    return list(inspect.signature(kind).parameters)


@pytest.mark.parametrize("kind", [kind for kind in DECLARED if hasattr(kind, "_function")], ids=lambda kind: kind.__name__)
def test_the_function_gets_all_that_a_layer_keeps(kind: type[Layer]) -> None:
    """A field whose name the function does not have would be forgotten without a word."""
    assert {*arguments(kind)} <= {*kind._passed}
    taken = inspect.signature(getattr(nn.functional, kind._function)).parameters
    given = inspect.signature(kind.forward).parameters.keys() - {"self"}
    needed = {name for name, p in taken.items() if p.default is p.empty}
    assert needed - given <= {*kind._passed}, "without a default"
    assert {"training", "inplace"} & taken.keys() <= {*kind._passed}


def test_most_layers_are_declared() -> None:
    assert len(DECLARED) > 90


def test_signature_annotations_and_defaults_are_those_of_the_fields() -> None:
    assert str(inspect.signature(nn.Hardtanh)) == (
        "(min_val: 'float' = -1.0, max_val: 'float' = 1.0, inplace: 'bool' = False)"
    )
    assert str(inspect.signature(nn.GaussianNLLLoss)).startswith("(*, full: 'bool' = False")
    assert not arguments(nn.Tanh) and arguments(nn.SmoothL1Loss) == ["reduction", "beta"]
    assert not hasattr(nn.Hardtanh, "min_val"), "a default is no attribute of the class"


def test_arguments_that_do_not_fit_are_refused_on_the_users_line() -> None:
    with pytest.raises(pg.ArgumentTypeError, match="Hardtanh: min_val must be a number, got str 'x'"):
        nn.Hardtanh("x")  # type: ignore[arg-type]
    with pytest.raises(pg.ArgumentTypeError, match="GaussianNLLLoss: too many positional arguments"):
        nn.GaussianNLLLoss(True)  # type: ignore[call-arg]
    with pytest.raises(pg.ArgumentError) as caught:
        nn.Dropout2d(2.0)
    assert "at test_declared.py:" in str(caught.value), "the constructor is no code of the user's"
    assert "self._keep(locals())" in "".join(traceback.format_tb(caught.tb)), "a line that stands in a file"


def test_a_tensor_among_the_fields_is_a_buffer() -> None:
    layer = nn.CrossEntropyLoss(Tensor([1.0, 2.0]))
    assert [*layer.state_dict()] == ["weight"] and [*nn.CrossEntropyLoss().state_dict()] == []
    assert layer.half().weight.dtype is pg.float16  # type: ignore[union-attr]


class Warmer(nn.CrossEntropyLoss):
    """The user's: annotations are no fields, and the constructor is the user's own."""

    temperature: float = 2.0
    scale: Tensor

    def __init__(self, scale: float):
        super().__init__(reduction="sum")
        self.scale = Tensor([scale])

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        return super().forward(input * self.scale / self.temperature, target)


def test_users_extend_a_declared_layer() -> None:
    layer = Warmer(3.0)
    assert arguments(Warmer) == ["scale"] and layer.reduction == "sum" and layer.temperature == 2.0
    scores, target = Tensor([[1.0, 2.0]]), Tensor([1])
    expected = nn.functional.cross_entropy(scores * 1.5, target)
    assert layer(scores, target).item() == pytest.approx(expected.item())


@pytest.mark.parametrize("made", [nn.Hardtanh(-2.0, inplace=True), nn.MaxPool2d(2), nn.ZeroPad2d(1), Warmer(3.0)])
def test_copies_and_pickles_are_the_same(made: Any) -> None:
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert repr(other) == repr(made) and vars(other).keys() == vars(made).keys()


def test_what_changes_after_the_constructor_counts() -> None:
    layer = nn.Hardtanh()
    layer.max_val = 0.5
    assert layer(Tensor([2.0])).item() == 0.5 and repr(layer) == "Hardtanh(min_val=-1.0, max_val=0.5)"
    assert nn.Dropout(1.0).eval()(Tensor([2.0])).item() == 2.0


def test_the_source_of_a_declared_layer_is_its_declaration() -> None:
    assert "approximate: str = " in inspect.getsource(nn.GELU)
