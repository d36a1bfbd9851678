"""The traps of capturing a Python function (G10): each gives what the function without jit gives, or a JitError that
names what changed and the line that reads it."""

from __future__ import annotations

import collections
import datetime as datetime_module
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import monotonic_ns
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import picograd as pg
from picograd import JitError, Tensor, nn, optim
from picograd.look import watch
from picograd.tensor.generator import default_generator
from picograd.transforms import jit as jit_module

pytestmark = pytest.mark.req("G10")
CALLS = 4  # two traces and two replays
HERE = Path(__file__)


def values(*numbers: float) -> Tensor:
    return Tensor(np.array(numbers, np.float32))


def same_as_without_jit(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    """Holds where every call gives the same with and without jit, from the same seed."""
    pg.manual_seed(5)
    plain = [function(*args).tolist() for args in calls]
    pg.manual_seed(5)
    jitted = pg.jit(function)
    assert [jitted(*args).tolist() for args in calls] == plain


# ---- arguments ----
@dataclass
class Record:
    x: Tensor
    scale: float = 2.0
    parts: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    x: Tensor
    doubled: Tensor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", self.x * 2)


Point = collections.namedtuple("Point", "x y")
CONTAINERS: dict[str, tuple[Callable[[Any], Tensor], Callable[[int], Any]]] = {
    "list": (lambda a: a[0] * 2 + a[1], lambda i: [values(i), values(3)]),
    "nested list": (lambda a: a[0][0] * 2 + a[1], lambda i: [[values(i)], values(3)]),
    "tuple": (lambda a: a[0] - a[1], lambda i: (values(i), values(1))),
    "named tuple": (lambda a: a.x - a.y, lambda i: Point(values(i), values(1))),
    "dict": (lambda a: a["x"] * a["f"], lambda i: {"x": values(i), "f": 3.0}),
    "default dict": (lambda a: a["x"] + len(a["none"]), lambda i: collections.defaultdict(list, x=values(i), none=[])),
    "dataclass": (lambda a: a.x * a.scale + a.parts[0], lambda i: Record(values(i), 3.0, [values(1)])),
    "frozen dataclass": (lambda a: a.doubled + a.x, lambda i: Frozen(values(i))),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_arguments_in_containers(name: str, device: str) -> None:
    function, make = CONTAINERS[name]
    same_as_without_jit(function, [(make(i),) for i in range(CALLS)])


def test_a_plain_value_in_a_container_is_captured_anew(device: str) -> None:
    calls = [({"x": values(1), "f": f, "on": on},) for f in (2.0, 3.0) for on in (1, True, 1.0) for _ in range(3)]
    same_as_without_jit(lambda a: a["x"] * a["f"] * (2 if a["on"] is True else 1), calls)


def test_a_container_of_results_is_of_the_same_kind(device: str) -> None:
    ordered = pg.jit(lambda x: collections.OrderedDict(a=x, b=Frozen(x)))
    for i in range(CALLS):
        result = ordered(values(i))
        assert type(result) is collections.OrderedDict
        assert (result["a"].item(), result["b"].x.item(), result["b"].doubled.item()) == (i, i, 2 * i)


def test_tensors_in_a_set_are_refused(device: str) -> None:
    with pytest.raises(JitError, match="got a set with Tensors, whose order is undefined"):
        pg.jit(lambda xs: sum(xs))({values(1), values(2)})


def test_the_same_tensor_passed_twice(device: str) -> None:
    x = values(3)
    calls = [(x, x), (x, x), (x, values(1)), (x, x), (values(2), values(9))]
    same_as_without_jit(lambda a, b: a * 2 - b, calls)


def test_a_written_tensor_that_comes_twice_only_later(device: str) -> None:
    """Traced with different tensors; then one that is written is also read by another name."""
    state = values(1)

    @pg.jit
    def bump(x: Tensor, y: Tensor) -> Tensor:
        x += 1
        return x + y

    @pg.jit
    def count(x: Tensor) -> Tensor:
        state.assign(state + 1)
        return x + state

    for _ in range(CALLS):
        bump(values(1), values(2))
        count(values(1))
    x = values(5)
    for call in (lambda: bump(x, x), lambda: bump(x, x[0:1]), lambda: count(state)):
        with pytest.raises(JitError, match=r"(bump|count) writes to a tensor of shape \(1,\) that is passed in two ways"):
            call()
    assert (x.item(), state.item()) == (5.0, 1.0 + CALLS)


def test_an_output_that_is_an_input_or_another_output(device: str) -> None:
    @pg.jit
    def several(x: Tensor) -> list[Tensor]:
        y = x + 1
        return [x, y, y, x.reshape(1, 1), y[0:1]]

    for i in range(CALLS):
        x = values(i)
        results = several(x)
        for k, result in enumerate(results):
            result += 10 * (k + 1)
        assert [r.sum().item() for r in results] == [i + 50, i + 101, i + 101, i + 50, i + 101]  # they share storage
        assert results[0] is x and x.item() == i + 50


# ---- what Python says besides ----
@pytest.mark.parametrize("change", [2, 3.5, True])
def test_a_closures_number(change: Any, device: str) -> None:
    n = 1
    step = pg.jit(lambda x: x * n)
    for _ in range(3):
        assert step(values(2)).item() == 2.0
    n = change
    with pytest.raises(JitError, match=re.escape(f"<lambda> was traced, n was 1 and is {change}")) as raised:
        step(values(2))
    assert "step = pg.jit(lambda x: x * n)" in str(raised.value)  # the line that reads it
    n = 1
    assert step(values(2)).item() == 2.0


def test_a_number_that_differs_between_the_traces_is_told_with_its_line(device: str) -> None:
    count, elsewhere = [0], [pg.full((1,), number) for number in (10.0, 20.0)]  # the same constants, on another line

    @pg.jit
    def counted(x: Tensor) -> Tensor:
        y = x * 2
        count[0] += 10
        z = y + count[0]  # this line
        return z.exp()

    counted(values(2))
    with pytest.raises(JitError, match=r"differs from the first: CONST 10\.0 float32 became CONST 20\.0 float32") as raised:
        counted(values(2))
    assert "z = y + count[0]  # this line" in str(raised.value) and len(elsewhere) == 2


def test_a_second_trace_that_writes_to_another_tensor_is_told(device: str) -> None:
    first, second, chosen = values(1), values(10), [True]

    @pg.jit
    def add(x: Tensor) -> Tensor:
        total = first + second + x  # both graphs are the same
        (first if chosen[0] else second).assign(total)
        return total

    assert add(values(0)).item() == 11.0
    chosen[0] = False
    with pytest.raises(JitError, match="the second trace of add writes to other tensors than the first"):
        add(values(0))
    assert [first.item(), second.item()] == [11.0, 10.0]
    chosen[0] = True
    assert [add(values(0)).item() for _ in range(2)] == [21.0, 31.0]


factor = 2.0


def test_a_global(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = pg.jit(lambda x: x * factor)
    for _ in range(3):
        step(values(2))
    monkeypatch.setitem(globals(), "factor", 3.0)
    with pytest.raises(JitError, match=r"factor was 2\.0 and is 3\.0") as raised:
        step(values(2))
    assert raised.value.line is not None
    assert raised.value.line.file == __file__


def test_training_mode(device: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    step = pg.jit(lambda x: model(x))
    x = Tensor(np.arange(12, dtype=np.float32).reshape(4, 3))
    for mode in (True, False, True, False):
        model.train(mode)
        for seed in range(3):
            pg.manual_seed(seed)
            plain = model(x).tolist()
            pg.manual_seed(seed)
            np.testing.assert_allclose(step(x).tolist(), plain, rtol=1e-6)


def test_a_mode_that_is_changed_inside(device: str) -> None:
    model = nn.Dropout(0.5)

    def leaves_it(x: Tensor) -> Tensor:
        return model.eval()(x)

    with pytest.raises(JitError, match="leaves_it puts a Dropout into eval mode and leaves it there"):
        pg.jit(leaves_it)(values(1))
    assert model.training

    @pg.jit
    def puts_it_back(x: Tensor) -> Tensor:
        model.eval()
        result = model(x)
        model.train()
        return result

    assert [puts_it_back(values(1)).item() for _ in range(CALLS)] == [1.0] * CALLS


def test_a_learning_rate_that_changes(device: str) -> None:
    def train(wrap: bool) -> list[float]:
        w = Tensor([1.0, 2.0], requires_grad=True)
        optimizer = optim.Adam([w], lr=0.5)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = ((w * x) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        run, losses = pg.jit(step) if wrap else step, []
        for i in range(6):
            optimizer.param_groups[0]["lr"] = 0.5 / (i + 1)
            losses.append(run(values(1, 1)).item())
        return [*losses, *w.tolist()]

    assert train(True) == pytest.approx(train(False), rel=1e-6)


def test_a_rate_passed_as_a_number_is_right_and_mentioned(device: str) -> None:
    step = pg.jit(lambda x, rate: x * rate)
    with pytest.warns(UserWarning, match="<lambda> has been captured for 8 forms of its arguments") as warned:
        for i in range(10):
            assert step(values(2), i / 4).item() == i / 2
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert "pass changing numbers, such as lengths of sequences, as Tensors: only such" in str(warned[0].message)


# ---- randomness ----
def test_dropout_and_random_numbers_are_those_without_jit_and_differ_by_call(device: str) -> None:
    def drawn(x: Tensor) -> Tensor:
        kept = nn.functional.dropout(x, 0.5)
        return kept + Tensor.rand(8) + Tensor.randn(8) * 0.5

    ones = Tensor.ones(8)
    pg.manual_seed(11)
    plain = [drawn(ones).numpy() for _ in range(5)]
    pg.manual_seed(11)
    jitted = pg.jit(drawn)
    for expected in plain:
        np.testing.assert_allclose(jitted(ones).numpy(), expected, atol=1e-6)
    assert len({array.tobytes() for array in plain}) == 5
    pg.manual_seed(11)  # a seed set later is used
    np.testing.assert_allclose(jitted(ones).numpy(), plain[0], atol=1e-6)


def test_a_generator_that_was_never_used_before(device: str) -> None:
    first, second = pg.Generator(3), pg.Generator(3)
    jitted = pg.jit(lambda: Tensor.rand(4, generator=first))
    for _ in range(CALLS):
        assert jitted().tolist() == Tensor.rand(4, generator=second).tolist()
    assert Tensor.rand(4, generator=first).tolist() == Tensor.rand(4, generator=second).tolist()


def test_a_generator_that_is_made_inside(device: str) -> None:
    jitted = pg.jit(lambda: Tensor.rand(4, generator=pg.Generator(3)))
    expected = Tensor.rand(4, generator=pg.Generator(3)).tolist()
    assert [jitted().tolist() for _ in range(CALLS)] == [expected] * CALLS


# ---- functions within functions ----
def test_a_nested_jit(device: str) -> None:
    w = values(1)

    @pg.jit
    def inner(x: Tensor) -> Tensor:
        w.assign(w + 1)
        return x * w

    @pg.jit
    def outer(x: Tensor) -> Tensor:
        return inner(x) + inner(x * 10)

    assert [outer(values(1)).item() for _ in range(CALLS)] == [2 + 30, 4 + 50, 6 + 70, 8 + 90]
    assert inner(values(1)).item() == 10.0
    assert w.item() == 10.0


def test_what_a_nested_jit_reads_is_remembered(device: str) -> None:
    rate = 2.0
    inner = pg.jit(lambda x: x * rate)
    outer = pg.jit(lambda x: inner(x) + 1)
    for _ in range(3):
        outer(values(1))
    rate = 5.0
    with pytest.raises(JitError, match=r"inner's rate was 2\.0 and is 5\.0"):
        outer(values(1))


def test_recursion(device: str) -> None:
    @pg.jit
    def power(x: Tensor, n: int) -> Tensor:
        return x if n == 1 else x * power(x, n - 1)

    for n in (1, 2, 5):
        assert [power(values(i), n).item() for i in range(CALLS)] == [float(i**n) for i in range(CALLS)]


def test_recursion_without_end_is_pythons_error_and_leaves_nothing_behind(device: str) -> None:
    state = values(1)

    @pg.jit
    def endless(x: Tensor) -> Tensor:
        state.assign(state + 1)
        return endless(x)

    with pytest.raises(RecursionError):
        endless(values(1))
    assert state.item() == 1.0


# ---- sizes ----
def test_a_last_partial_batch_is_compiled_once(device: str) -> None:
    step = pg.jit(lambda x: (x * 3 + 1).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            for count in (4, 4, 4, 3):
                with watch() as counts:
                    assert step(values(*range(count))).item() == sum(3 * i + 1 for i in range(count))
                last = counts.scheduled
    assert last == 0


def test_ever_new_sizes_are_mentioned_with_function_shapes_and_count(device: str) -> None:
    @pg.jit
    def shrinking(x: Tensor) -> Tensor:
        return x.sum() * (1 + len(x) // 100)  # a quotient has no symbolic form: each length is captured

    with pytest.warns(UserWarning) as warned:
        for n in range(1, 70):
            assert shrinking(Tensor.ones(n)).item() == n
    said = [text for text in (str(w.message) for w in warned) if text.startswith("jit:")]
    assert len(said) == 2
    assert said[0].startswith(
        "jit: shrinking has been captured for 8 forms of its arguments, the last with Tensors of shape (8,)."
    )
    assert "captured for 64 forms of its arguments, the last with Tensors of shape (64,)" in said[1]


def test_the_oldest_capture_goes_first(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_module, "CAPTURES_MAX", 3)
    traced = Mock()  # it is not looked into, as a list would be

    @pg.jit
    def scaled(x: Tensor, n: int) -> Tensor:
        traced(n)
        return x * n

    for n in (1, 1, 1, 2, 3, 4, 4, 4, 2, 1):
        assert scaled(values(2), n).item() == 2 * n
    numbers = [call.args[0] for call in traced.call_args_list]
    assert numbers == [1, 1, 2, 3, 4, 4, 2, 1]  # 2 is traced the second time, 1 anew


# ---- errors inside ----
class Stateful:
    """All that a failing step may have touched."""

    def __init__(self) -> None:
        self.w = Tensor([1.0, 2.0], requires_grad=True)
        self.optimizer = optim.Adam([self.w], lr=0.1)
        (self.w * 3).sum().backward()
        self.count = values(0)

    def seen(self) -> list[Any]:
        moments = [t.tolist() for state in self.optimizer.state.values() for t in state.values()]
        assert self.w.grad is not None
        return [self.w.tolist(), self.w.grad.tolist(), self.count.tolist(), moments]


FAILURES: dict[str, tuple[Callable[[Tensor], Any], type[Exception], str]] = {
    "an exception of the user's": (lambda loss: {}["none"], KeyError, "none"),
    "item": (lambda loss: loss.item(), JitError, r"item\(\) asks for a value while step is traced"),
    "tolist": (lambda loss: loss.tolist(), JitError, "asks for a value while step is traced"),
    "numpy": (lambda loss: loss.detach().numpy(), JitError, "asks for a value while step is traced"),
    "bool": (lambda loss: 1 if loss > 0 else 0, JitError, "asks for a value while step is traced"),
    "float": (lambda loss: float(loss), JitError, "asks for a value while step is traced"),
    "print": (lambda loss: f"{loss}", JitError, "asks for a value while step is traced"),
    "nonzero": (lambda loss: loss.reshape(1).nonzero(), JitError, "asks for a value while step is traced"),
    "shapes": (lambda loss: loss.reshape(7), pg.ShapeError, "reshape"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("at", ["first", "later"])
def test_an_error_inside_leaves_all_as_it_was(name: str, at: str, device: str) -> None:
    fails, kind, said = FAILURES[name]
    state, wrong = Stateful(), {"now": at == "first"}

    def step(x: Tensor, key: int) -> Tensor:
        state.optimizer.zero_grad()
        state.count.assign(state.count + 1)
        loss = (nn.functional.dropout(state.w * x, 0.5) ** 2).sum() + Tensor.rand(1).sum()
        loss.backward()
        state.optimizer.step()
        if wrong["now"]:
            fails(loss)
        return loss

    jitted, x = pg.jit(step), values(1, 2)
    if at == "later":
        for _ in range(CALLS):
            jitted(x, 0)
        state.w.grad = values(3, 3)
        wrong["now"] = True
    before, draw = state.seen(), default_generator.state(device).count.op
    with pytest.raises(kind, match=said) as raised:
        jitted(x, 1)
    if isinstance(raised.value, JitError):
        assert raised.value.line is not None and raised.value.line.file == __file__
    assert state.seen() == before
    assert int(Tensor.from_op(default_generator.state(device).count.op, device).item()) == int(
        Tensor.from_op(draw, device).item()
    )
    wrong["now"] = False
    assert np.isfinite(jitted(x, 1).item())
    assert state.count.item() == before[2][0] + 1


def test_an_index_out_of_range_in_a_replay_leaves_all_as_it_was(device: str) -> None:
    table, count = values(10, 20, 30), values(0)

    @pg.jit
    def step(i: Tensor) -> Tensor:
        count.assign(count + 1)
        return table[i] + Tensor.rand(1) * 0

    for _ in range(CALLS):
        assert step(Tensor([1])).item() == 20.0
    drawn = Tensor.rand(2)
    pg.manual_seed(0)
    for _ in range(CALLS):
        step(Tensor([1]))
    with pytest.raises(pg.IndexingError, match="5"):
        step(Tensor([5]))
    assert count.item() == 2 * CALLS
    assert Tensor.rand(2).tolist() == drawn.tolist()  # the failed call has used up no random number


# ---- the decorator itself ----
def test_the_decorator_with_and_without_arguments(device: str) -> None:
    @pg.jit
    def one(x: Tensor) -> Tensor:
        return x + 1

    @pg.jit()
    def two(x: Tensor) -> Tensor:
        return x + 2

    assert [one(values(1)).item() + two(values(1)).item() for _ in range(CALLS)] == [5.0] * CALLS
    assert (one.__name__, two.__name__) == ("one", "two")


def test_what_is_no_function_of_tensors_is_refused() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def later() -> None: ...

    for wrong, said in ((3, "a value that cannot be called"), (numbers, "a generator"), (later, "a coroutine")):
        with pytest.raises(JitError, match=f"jit: needs a function of Tensors, got {said}"):
            pg.jit(wrong)  # type: ignore[call-overload]


def test_numbers_drawn_by_numpy_inside_are_an_error(device):
    rng = np.random.default_rng(0)
    noisy = pg.jit(lambda x: x + Tensor(rng.random(2)))
    noisy(Tensor([1.0, 2.0]))
    with pytest.raises(pg.JitError, match=r"makes a Tensor \(float64, 2 elements\) from host data"):
        noisy(Tensor([1.0, 2.0]))


def test_equal_numbers_made_inside_from_host_data_are_constants(device):
    shifted = pg.jit(lambda x: x + Tensor([float("nan"), 2.0]))
    assert [shifted(Tensor([1.0, 2.0])).tolist()[1] for _ in range(3)] == [4.0] * 3


# ---- what is outside of the program ----
def seconds() -> float:
    return time.perf_counter()


def length_of_this_file() -> int:
    with open(__file__) as file:
        return len(file.read())


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x * (time.time() > 0), "<lambda> calls time.time()"),
        (lambda x: x * (monotonic_ns() > 0), "<lambda> calls monotonic_ns()"),
        (lambda x: x * (seconds() > 0), "<lambda> calls time.perf_counter()"),
        (lambda x: x * datetime.now().hour, "<lambda> calls datetime.now()"),
        (lambda x: x * length_of_this_file(), "<lambda> calls open()"),
        (lambda x: x * len(os.urandom(1)), "<lambda> calls os.urandom()"),
        (lambda x: x * datetime_module.datetime.now().hour, "<lambda> calls datetime.now()"),
        (lambda x: x * len(Path(__file__).read_text()), "<lambda> calls Path.read_text()"),
        (lambda x: x * len(HERE.read_bytes()), "<lambda> calls Path.read_bytes()"),
        (lambda x: x * len(np.fromfile(HERE, np.uint8)), "<lambda> calls np.fromfile()"),
        (lambda x: x * os.path.exists(HERE), "<lambda> calls exists()"),
        (lambda x: x * os.stat(HERE).st_size, "<lambda> calls os.stat()"),
        (lambda x: x * HERE.stat().st_size, "<lambda> calls Path.stat()"),
        (lambda x: x * (os.times().elapsed > 0), "<lambda> calls os.times()"),
    ],
)
def test_clocks_and_files_are_not_read_once_and_for_all(function: Callable[[Tensor], Tensor], said: str) -> None:
    jitted = pg.jit(function)
    jitted(values(1.0))
    with pytest.raises(JitError) as caught:
        jitted(values(1.0))
    assert caught.value.fact == f"jit: {said}, whose result would be the same in all later calls."
    assert caught.value.line is not None and caught.value.line.file == __file__


def test_names_beside_clocks_and_files_are_free() -> None:
    def open(x: Tensor) -> Tensor:
        time.sleep(0)
        return x * 2.0

    def unused(x: Tensor) -> Tensor:
        return x if x.shape == (1,) else x * time.time()

    same_as_without_jit(lambda x: open(x) + unused(x), [(values(float(i)),) for i in range(CALLS)])


def test_a_cache_that_the_first_call_makes_is_an_error_that_says_to_call_once_without_jit() -> None:
    cache: dict[str, Tensor] = {}

    def scaled(x: Tensor) -> Tensor:
        if "scale" not in cache:
            cache["scale"] = Tensor.arange(2) * 0.5
        return x * cache["scale"]

    x = Tensor([1.0, 2.0])
    with pytest.raises(pg.JitError) as caught:
        pg.jit(scaled)(x)
    assert "one call without jit makes a cache or an optimizer's state" in (caught.value.hint or "")
    cache.clear()
    scaled(x)
    assert pg.jit(scaled)(x).tolist() == [0.0, 1.0]
