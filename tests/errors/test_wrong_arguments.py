"""Every public function, called with one argument that is wrong, ends in a result or in an error that says what is wrong.

That is an error of picograd, or a TypeError that begins with the name of the function: never a bare one from inside.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import picograd as pg
from picograd import Tensor, nn
from picograd.errors import PicogradError
from picograd.public import plain, signature_of
from tests.errors import wrong_arguments
from tests.errors.wrong_arguments import WITHOUT_CALL, WRONG, Call, calls, places, public_functions, replaced

pytestmark = pytest.mark.req("B6")
CALLS = list(calls())


@pytest.fixture(autouse=True)
def on_the_evaluator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No kernel is at stake; and what a setting was called with holds for one test."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    monkeypatch.setenv("PICOGRAD_THREADS", "1")
    yield
    pg.autograd.set_detect_anomaly(False)
    pg.set_default_dtype(pg.float32)
    pg.set_printoptions(profile="default")


def computed(value: Any) -> None:
    """Computes the tensors of a result: what only values decide is an error then."""
    if isinstance(value, Tensor):
        value.realize()
    elif isinstance(value, (tuple, list)):
        for part in value:
            computed(part)


def outcome(name: str, work: Callable[[], Any]) -> str | None:
    """Returns what a call ended in, if that is no result and no error that a user would want."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning)  # mse_loss of two shapes, as in PyTorch
            computed(work())
    except PicogradError:
        return None
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        named = isinstance(error, TypeError) and str(error).startswith(f"{name.split('.')[-1]}(")
        is_own = last.filename == wrong_arguments.__file__  # of the function that the call was given
        return None if named or is_own else f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
    return None


@pytest.mark.variants
@pytest.mark.parametrize("call", CALLS, ids=[call.name for call in CALLS])
def test_a_wrong_argument_is_named(call: Call) -> None:
    found = {
        (place, kind): text
        for place in places(call)
        for kind, make in WRONG.items()
        if (text := outcome(call.name, replaced(call, place, make()))) is not None
    }
    assert not found


LAYERS = [call for call in CALLS if isinstance(call.function, type) and issubclass(call.function, nn.Module)]
WITH_FORWARD = [call for call in LAYERS if call.function.forward is not nn.Module.forward]  # type: ignore[attr-defined]


@pytest.mark.parametrize("call", WITH_FORWARD, ids=[call.name for call in WITH_FORWARD])
def test_a_wrong_input_of_a_layer_is_named(call: Call) -> None:
    args, kwargs = call.arguments()
    layer = call.function(*args, **kwargs)
    found = {kind: text for kind, make in WRONG.items() if (text := outcome(call.name, partial(layer, make())))}
    assert not found


@pytest.mark.variants(every=7)
@pytest.mark.parametrize("call", CALLS, ids=[call.name for call in CALLS])
def test_the_call_is_right_before(call: Call) -> None:
    computed(call.function(*call.arguments()[0], **call.arguments()[1]))


def test_every_public_function_is_called_or_there_is_a_reason() -> None:
    called = {call.name for call in CALLS}
    names = {name for name, _ in public_functions()}
    assert names - called == set(WITHOUT_CALL)


def test_the_annotations_of_all_public_functions_stand_for_types() -> None:
    for _, function in public_functions():
        made = function.__init__ if isinstance(function, type) else function
        if hasattr(plain(made), "__annotations__"):
            signature_of(plain(made))
