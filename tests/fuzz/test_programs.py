"""Random programs of views, masks and writes in place, eager and jitted: values and gradients are PyTorch's.

To look for more than a test run has time for:  python -m tests.fuzz.test_programs 1000 3000
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from tests.fuzz.seeds import run_seeds

SEEDS = range(48)
Rng = np.random.Generator
Shape = tuple[int, ...]
Step = Callable[[list[Any], Any], None]  # (tensors so far, library): adds one, or writes to one

UNARY = ("exp", "tanh", "neg", "abs", "relu", "square")
VIEWS = ("unsqueeze", "index", "view", "transpose", "slice", "select", "flip", "expand", "diagonal", "detach")
WRITES = ("add_", "mul_", "sub_", "copy_", "fill_", "zero_", "clamp_", "neg_", "masked_fill_", "index", "augmented", "mask",
          "places", "index_add_", "swap", "own", "where", "view")  # fmt: skip


def copy_of(number: int, tensors: list[Any], lib: Any) -> Any:
    return tensors[number] * 1.0


class Program:
    """Steps on tensors, drawn from a seed: views of earlier ones, values made of them, and writes to some.

    leaves:  what it starts from, with gradients
    shapes:  of all tensors, as far as they are known
    """

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.said: list[str] = []
        self.steps: list[Step] = []
        count = int(self.rng.integers(1, 3))
        self.leaves = [self._data(self._shape()) for _ in range(count)]
        self.shapes: list[Shape] = [leaf.shape for leaf in self.leaves]
        for number in range(count):  # leaves are not written to: their copies are
            self._add(self.shapes[number], partial(copy_of, number), f"t{number} * 1.0")
        self.writable = list(range(count, 2 * count))
        for _ in range(int(self.rng.integers(3, 11))):
            kind = self.rng.random()
            (self._view if kind < 0.4 else self._value if kind < 0.6 else self._write)()

    def _shape(self) -> Shape:
        return tuple(int(n) for n in self.rng.integers(1, 5, int(self.rng.integers(1, 4))))

    def _data(self, shape: Shape) -> np.ndarray:
        return (self.rng.integers(-8, 9, shape) / 4.0).astype(np.float32)

    def _add(self, shape: Shape, make: Callable[[list[Any], Any], Any], text: str) -> None:
        self.said.append(f"t{len(self.shapes)} = {text}")
        self.shapes.append(shape)
        self.steps.append(lambda ts, lib: ts.append(make(ts, lib)))

    def _pick(self, among: list[int]) -> int:
        return int(among[int(self.rng.integers(len(among)))])

    # ---- views ----
    def _view(self) -> None:
        n = self._pick(list(range(len(self.leaves), len(self.shapes))))
        shape, rng = self.shapes[n], self.rng
        kind = str(rng.choice(VIEWS if shape else ("unsqueeze", "view")))
        axis = int(rng.integers(len(shape))) if shape else 0
        other = int(rng.integers(len(shape))) if shape else 0
        call: Callable[[Any], Any]
        if kind == "transpose":
            call, text = (lambda t: t.transpose(axis, other)), f"transpose({axis}, {other})"
        elif kind == "slice":
            start = int(rng.integers(shape[axis]))
            stop, step = int(rng.integers(start + 1, shape[axis] + 1)), int(rng.choice([1, 1, 2]))
            index = (slice(None),) * axis + (slice(start, stop, step),)
            call, text = (lambda t: t[index]), f"[{index}]"
        elif kind == "select":
            place = int(rng.integers(-shape[axis], shape[axis]))
            call, text = (lambda t: t.select(axis, place)), f"select({axis}, {place})"
        elif kind == "flip":
            call, text = (lambda t: t.flip(axis)), f"flip({axis})"  # a copy in PyTorch, so here, too
        elif kind == "detach":
            call, text = (lambda t: t.detach()), "detach()"
        elif kind == "expand":
            wide = (2, *shape)
            call, text = (lambda t: t.expand(*wide)), f"expand{wide}"
        elif kind == "diagonal" and len(shape) > 1 and axis != other:
            call, text = (lambda t: t.diagonal(0, axis, other)), f"diagonal(0, {axis}, {other})"
        elif kind == "view":
            call, text = (lambda t: t.reshape(-1)), "reshape(-1)"
        elif kind == "index":
            places = rng.integers(-shape[0], shape[0], int(rng.integers(1, 4))).tolist()
            call, text = (lambda t: t[places]), f"[{places}]"
        else:
            call, text = (lambda t: t.unsqueeze(axis)), f"unsqueeze({axis})"
        made = call(torch.empty(shape))
        base = torch.empty(shape)
        is_view = call(base).untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
        # Whether a reshape or a flip is a view differs where it lies in another order: such are not written to.
        writes = n in self.writable and is_view and kind in ("transpose", "slice", "select", "diagonal", "unsqueeze")
        if writes:
            self.writable.append(len(self.shapes))
        text = f"t{n}{text}" if text.startswith("[") else f"t{n}.{text}"
        copies = kind in ("flip", "view", "index", "expand", "detach")  # what is a view in one of both is copied
        self._add(tuple(made.shape), lambda ts, lib: call(ts[n]).clone() if copies else call(ts[n]), text)

    # ---- values ----
    def _value(self) -> None:
        rng = self.rng
        n = self._pick(list(range(len(self.shapes))))
        shape = self.shapes[n]
        kind = str(rng.choice(["unary", "binary", "where", "reduce", "cumsum", "cat"]))
        if kind == "unary":
            name = str(rng.choice(UNARY))
            self._add(shape, lambda ts, lib: getattr(ts[n].clamp(-2.0, 2.0), name)(), f"t{n}.clamp(-2, 2).{name}()")
        elif kind == "reduce" and shape:
            axis, keep = int(rng.integers(len(shape))), bool(rng.random() < 0.5)
            name = str(rng.choice(["sum", "amax", "mean"]))
            made = tuple(torch.empty(shape).sum(axis, keepdim=keep).shape)
            self._add(made, lambda ts, lib: getattr(ts[n], name)(axis, keepdim=keep), f"t{n}.{name}({axis}, {keep})")
        elif kind == "cumsum" and shape:
            axis = int(rng.integers(len(shape)))
            self._add(shape, lambda ts, lib: ts[n].cumsum(axis), f"t{n}.cumsum({axis})")
        else:
            same = [m for m, other in enumerate(self.shapes) if other == shape]
            m = self._pick(same)
            if kind == "cat" and shape and shape[0] < 5:
                self._add((2 * shape[0], *shape[1:]), lambda ts, lib: lib.cat([ts[n], ts[m]]), f"cat([t{n}, t{m}])")
            elif kind == "where":
                text = f"where(t{n} > .25, t{m}, 2 t{n})"
                self._add(shape, lambda ts, lib: lib.where(ts[n] > 0.25, ts[m], ts[n] * 2.0), text)
            else:
                name = str(rng.choice(["mul", "sub", "maximum"]))
                self._add(shape, lambda ts, lib: getattr(ts[n], name)(ts[m] * 0.5), f"t{n}.{name}(t{m} * .5)")

    # ---- writes ----
    def _write(self) -> None:
        rng = self.rng
        n = self._pick(self.writable)
        shape = self.shapes[n]
        kind = str(rng.choice(WRITES))
        same = [m for m, other in enumerate(self.shapes) if other == shape]
        m, number = self._pick(same), float(rng.integers(-4, 5)) / 4
        mask = rng.random(shape) < 0.5
        place = int(rng.integers(-shape[0], shape[0])) if shape else 0
        cut = slice(place % shape[0], None) if shape else slice(None)
        places = rng.permutation(shape[0])[: int(rng.integers(1, shape[0] + 1))].tolist() if shape else []

        def write(ts: list[Any], lib: Any) -> None:
            t = ts[n]
            given = ts[m].clone() * 0.5  # what lies under both is read before it is written
            if kind in ("add_", "mul_", "sub_", "copy_"):
                getattr(t, kind)(given)
            elif kind in ("zero_", "neg_"):
                getattr(t, kind)()
            elif kind == "fill_":
                t.fill_(number)
            elif kind == "clamp_":
                t.clamp_(-1.0, 1.0)
            elif kind == "masked_fill_":
                t.masked_fill_(lib.tensor(mask), number)
            elif kind == "index" or not shape:
                t[...] = given
            elif kind == "augmented":
                t[cut] += given[cut]
            elif kind == "mask":
                t[lib.tensor(mask)] = number
            elif kind == "places":
                t[places] = given[places]
            elif kind == "index_add_":
                t.index_add_(0, lib.tensor([*places, places[0]]), given[[*places, places[0]]])
            elif kind == "swap":
                t[0], t[-1] = t[-1].clone(), t[0].clone()
            elif kind == "own":
                t[cut].copy_(t[cut].flip(0))
            elif kind == "where":
                t.copy_(lib.where(lib.tensor(mask), t, given))
            elif kind == "view":
                t.transpose(0, len(shape) - 1)[:1] *= number
            else:
                t[place] = given[place]

        self.said.append(f"t{n} {kind} t{m}, {number}, {mask.tolist()}, {place}")
        self.steps.append(write)

    # ---- running it ----
    def run(self, lib: Any, leaves: list[Any]) -> list[Any]:
        tensors = list(leaves)
        for step in self.steps:
            step(tensors, lib)
        return tensors

    def total(self, lib: Any, leaves: list[Any]) -> tuple[Any, list[Any]]:
        """Returns a weighted sum of all tensors, as they are at the end, and these."""
        tensors = self.run(lib, leaves)
        return sum((n + 1) * (t * t).sum() for n, t in enumerate(tensors[len(leaves) :])), tensors


def expected(program: Program) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
    """Returns PyTorch's values, and its gradients, or None where it refuses: it keeps no value that is replaced."""
    leaves = [torch.tensor(leaf, dtype=torch.float64, requires_grad=True) for leaf in program.leaves]
    total, tensors = program.total(torch, leaves)
    values = [t.detach().numpy() for t in tensors]
    try:
        found = torch.autograd.grad(total, leaves, allow_unused=True)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
        return values, None
    return values, [np.zeros(leaf.shape) if g is None else g.numpy() for g, leaf in zip(found, leaves)]


def check(seed: int, ways: tuple[str, ...] = ("eager", "jit")) -> None:
    program = Program(seed)
    values, gradients = expected(program)

    def both(*given: Any) -> tuple[list[Any], list[Any]]:
        leaves = [leaf.detach().requires_grad_() for leaf in given]
        total, tensors = program.total(pg, leaves)
        found = pg.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
        return [t.detach().clone() for t in tensors], list(found)

    for way in ways:
        function = pg.jit(both) if way == "jit" else both
        for _ in range(3 if way == "jit" else 1):  # traced, traced and compared, replayed
            tensors, found = function(*[pg.Tensor(leaf.astype(np.float64)) for leaf in program.leaves])
            pg.realize([*tensors, *found])
            said = f"seed {seed}, {way}: leaves {[leaf.tolist() for leaf in program.leaves]}\n" + "\n".join(program.said)
            for n, (t, value) in enumerate(zip(tensors, values)):
                np.testing.assert_allclose(t.numpy(), value, 1e-9, 1e-9, err_msg=f"t{n} of {said}")
            for n, (grad, value) in enumerate(zip(found, gradients or [])):
                np.testing.assert_allclose(grad.numpy(), value, 1e-9, 1e-9, err_msg=f"gradient of t{n} of {said}")


@pytest.mark.variants(every=2)
@pytest.mark.req("B7")
@pytest.mark.req("G10")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_program_of_views_and_writes_computes_what_pytorch_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU" if seed % 6 == 0 else "NUMPY")
    check(seed)


def test_the_programs_have_views_and_writes_of_every_kind() -> None:
    said = [line for seed in SEEDS for line in Program(seed).said]
    assert {line.split()[1] for line in said if " = " not in line} == set(WRITES)
    made = " ".join(line for line in said if " = " in line)
    assert all(f".{kind}(" in made for kind in ("unsqueeze", "transpose", "select", "flip", "expand", "diagonal", "detach"))


if __name__ == "__main__":
    run_seeds(check)
