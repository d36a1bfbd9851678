"""Random eager programs of autograd's features: values, flags, gradients and calls of hooks are PyTorch's, in float64.

A program is a list of steps on a list of tensors: operations, views, writes in place, hooks that look or change,
retain_grad(), detach_(), custom Functions, checkpoints, blocks without gradients, and in between backward() and
autograd.grad() in all their forms. It is drawn while PyTorch runs it, so that each step is one that PyTorch accepts.
A few seeds beyond those of the test crash PyTorch in register_hook(). To look for more:

    python -m tests.fuzz.test_autograd 1000 3000
"""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint as torch_checkpoint

import picograd as pg
from tests.fuzz.seeds import run_seeds

SEEDS = range(48)
STEPS_MAX = 16
Rng = np.random.Generator
Step = tuple[Any, ...]

UNARY = ("exp", "tanh", "sin", "square", "sigmoid", "neg", "abs")
BINARY = ("add", "mul", "sub", "matmul", "mean")
ANY_RANK = ("all", "view", "clone", "detach", "cat", "flat")
VIEWS = (*ANY_RANK, "rows", "row", "column", "transpose", "expand", "chunk", "unsqueeze")
WRITES = ("mul_", "add_", "copy_", "rows", "neg_", "sub_")
STATES = {
    "retain": 0.2, "hook": 0.3, "unhook": 0.06, "post": 0.06, "detach_": 0.05, "requires": 0.08, "mode": 0.06, "zero": 0.06,
    "none": 0.05, "deepcopy": 0.03, "pickle": 0.02, "freeze": 0.03,
}  # fmt: skip


class Run:
    """A program's state in one library.

    tensors:  all tensors so far, leaves first
    seen:     what hooks have seen, and what autograd.grad() has returned
    """

    def __init__(self, lib: Any, leaves: list[np.ndarray]):
        self.lib = lib
        self.tensors = [lib.tensor(leaf, dtype=lib.float64, requires_grad=True) for leaf in leaves]
        self.seen: list[Any] = []
        self.handles: list[Any] = []
        self.records = True
        self.gradients: set[int] = set()  # what no gradient flows through may require grad in picograd: zeros
        self.checkpoint = pg.checkpoint if lib is pg else torch_checkpoint
        self.functions = functions_of(lib)

    def do(self, step: Step) -> None:
        """Runs a step."""
        with self.lib.set_grad_enabled(self.records):
            made = getattr(self, "_" + step[0])(*step[1:])
        self.tensors += [] if made is None else made

    def values(self, tensor: Any) -> Any:
        return None if tensor is None else np.array(tensor.detach().tolist(), np.float64)

    def state(self) -> list[Any]:
        """Returns all that a program sees at its end."""
        found: list[Any] = []
        for n, t in enumerate(self.tensors):
            flags = [] if n in self.gradients else [t.requires_grad, t.is_leaf, t.grad_fn is None]
            found.append([self.values(t), self.values(t.grad), *flags])
        order: list[Any] = []  # calls of hooks on different ways come in any order
        for event in self.seen:
            order += [[event]] if event[0] == "grad" or not order or order[-1][0][0] == "grad" else []
            order[-1] += [] if order[-1][-1] is event else [event]
        return [*found, [sorted(events, key=lambda event: str(event[:2])) for events in order]]

    # ---- operations ----
    def _unary(self, name: str, n: int, factor: float) -> list[Any]:
        return [getattr(self.tensors[n] * factor, name)()]

    def _binary(self, name: str, n: int, m: int, factor: float) -> list[Any]:
        a, b = self.tensors[n], self.tensors[m] * factor
        if name == "matmul":
            return [a.reshape(-1, 1)[:4] @ b.reshape(1, -1)[:, :4]]
        return [(a * b).mean()] if name == "mean" else [getattr(a, name)(b)]

    def _view(self, kind: str, n: int) -> list[Any]:
        x = self.tensors[n]
        if kind == "cat":
            return [self.lib.cat([x])]
        if kind == "chunk":
            return list(x.chunk(2))
        views: dict[str, Callable[[], Any]] = {
            "all": lambda: x[:], "view": lambda: x.view(x.shape), "rows": lambda: x[1:], "row": lambda: x[0],
            "column": lambda: x[..., 0], "transpose": lambda: x.transpose(0, -1), "flat": lambda: x.reshape(-1),
            "clone": lambda: x.clone(), "detach": lambda: x.detach(), "expand": lambda: x.expand(2, *x.shape),
            "unsqueeze": lambda: x.unsqueeze(0),
        }  # fmt: skip
        return [views[kind]()]

    def _function(self, name: str, n: int, m: int, factor: float) -> list[Any]:
        found = self.functions[name].apply(self.tensors[n], self.tensors[m] * factor)
        return [found] if isinstance(found, self.lib.Tensor) else [*found]

    def _checkpointed(self, n: int, m: int, factor: float) -> list[Any]:
        f = lambda a, b: (a * b * factor).tanh() + a  # noqa: E731
        if self.lib is pg:
            return [pg.checkpoint(f, self.tensors[n], self.tensors[m])]
        return [torch_checkpoint(f, self.tensors[n], self.tensors[m], use_reentrant=False)]

    # ---- writes and states ----
    def _write(self, kind: str, n: int, m: int, factor: float, plainly: bool) -> None:
        x, y = self.tensors[n], self.tensors[m]
        with self.lib.set_grad_enabled(self.records and not plainly):
            if kind == "neg_":
                x.neg_()
            elif kind == "rows":
                x[:1] = y[:1] * factor
            elif kind == "mul_":
                x.mul_(factor)
            else:
                getattr(x, kind)(y * factor if kind != "copy_" else y)

    def _retain(self, n: int) -> None:
        self.tensors[n].retain_grad()

    def _hook(self, n: int, kind: str, factor: float) -> None:
        number = len(self.handles)

        def hook(grad: Any) -> Any:
            self.seen.append(("hook", number, self.values(grad)))
            return grad * factor if kind == "scale" else grad + factor if kind == "add" else None

        self.handles.append(self.tensors[n].register_hook(hook))

    def _post(self, n: int) -> None:
        number = len(self.handles)
        self.handles.append(
            self.tensors[n].register_post_accumulate_grad_hook(
                lambda t: self.seen.append(("post", number, self.values(t.grad)))
            )
        )

    def _unhook(self, n: int) -> None:
        self.handles[n].remove()

    def _detach_(self, n: int) -> None:
        self.tensors[n].detach_()

    def _requires(self, n: int) -> None:
        self.tensors[n].requires_grad_()

    def _freeze(self, n: int) -> None:
        self.tensors[n].requires_grad_(False)

    def _mode(self) -> None:
        self.records = not self.records

    def _zero(self, n: int) -> None:
        self.tensors[n].grad.zero_()

    def _none(self, n: int) -> None:
        self.tensors[n].grad = None

    def _deepcopy(self, n: int) -> list[Any]:
        return [copy.deepcopy(self.tensors[n])]

    def _pickle(self, n: int) -> list[Any]:
        kept = io.BytesIO()
        pickle.dump(self.tensors[n], kept)
        kept.seek(0)
        return [pickle.load(kept)]

    # ---- gradients ----
    def _loss(self, parts: tuple[tuple[int, float], ...]) -> Any:
        return sum((self.tensors[n] * factor).square().sum() + self.tensors[n].sum() for n, factor in parts)

    def _backward(self, parts: tuple[tuple[int, float], ...], inputs: tuple[int, ...], create: bool) -> None:
        named: dict[str, Any] = {"inputs": [self.tensors[n] for n in inputs]} if inputs else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._loss(parts).backward(retain_graph=True, create_graph=create, **named)

    def _grad(self, roots: list[int], inputs: list[int], factor: float, create: bool, zeros: bool) -> list[Any]:
        outputs = [self.tensors[n] * 1.25 for n in roots]  # PyTorch calls hooks of roots even if no input is below them
        weights = [self.lib.ones_like(output) * factor for output in outputs]
        found = self.lib.autograd.grad(
            outputs, [self.tensors[n] for n in inputs], weights, retain_graph=True, create_graph=create, allow_unused=True,
            materialize_grads=zeros,
        )  # fmt: skip
        self.seen.append(("grad", [self.values(g) for g in found]))
        made = [g for g in found if g is not None] if create else []
        self.gradients |= {*range(len(self.tensors), len(self.tensors) + len(made))}
        return made


def functions_of(lib: Any) -> dict[str, Any]:
    """Returns Functions with two results, one of which may be not differentiable, and one that changes gradients."""

    class Two(lib.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a * b, a.sin() + b

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            a, b = ctx.saved_tensors
            return first * b + second * a.cos(), first * a + second

    class Marked(lib.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            sign = (a > b).to(a.dtype)
            ctx.mark_non_differentiable(sign)
            ctx.save_for_backward(sign)
            return a * sign + b * (1 - sign), sign

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            (sign,) = ctx.saved_tensors
            return first * sign, first * (1 - sign)

    class Reversed(lib.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a + b * 0.5

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return -grad if ctx.needs_input_grad[0] else None, grad * 3.0

    return {"two": Two, "marked": Marked, "reversed": Reversed}


# ---- drawing ----
class Program:
    """Steps that PyTorch accepts, drawn from a seed."""

    def __init__(self, seed: int, steps_max: int = STEPS_MAX):
        self.rng = np.random.default_rng(seed)
        self.leaves = [self.rng.standard_normal((2, 2)).round(2) for _ in range(2)]
        self.steps: list[Step] = []
        self.viewed: set[tuple[str, int]] = set()
        run = Run(torch, self.leaves)
        for _ in range(steps_max):
            step = self._step(run)
            if step is None:
                continue
            try:
                run.do(step)
            except Exception:  # PyTorch's error may come in the middle
                break
            if step[0] == "grad" and all(g is None for g in run.seen[-1][1]):
                break
            self.steps.append(step)
        run = Run(torch, self.leaves)
        for step in self.steps:
            run.do(step)
        last = [n for n, t in enumerate(run.tensors) if t.requires_grad and t.numel() < 20]
        step = ("backward", tuple((n, 0.5) for n in last), (), False)
        try:
            run.records = True
            run.do(step)
            self.steps += [("mode",)] if not self._records() else []
            self.steps.append(step)
        except Exception:
            return

    def _records(self) -> bool:
        return sum(step[0] == "mode" for step in self.steps) % 2 == 0

    def _factor(self) -> float:
        return float(np.round(self.rng.uniform(0.2, 1.4), 3))

    def _step(self, run: Run) -> Step | None:
        rng, tensors = self.rng, run.tensors
        some = [n for n, t in enumerate(tensors) if t.numel() < 20]
        some = [n for n in some if n not in run.gradients or tensors[n].requires_grad]
        n = int(rng.choice(some))
        same = [m for m in some if tensors[m].shape == tensors[n].shape]
        m = int(rng.choice(same))
        grads = [i for i in some if tensors[i].requires_grad]
        kind = rng.random()
        if kind < 0.2:
            return ("unary", str(rng.choice(UNARY)), n, self._factor())
        if kind < 0.32:
            return ("binary", str(rng.choice(BINARY)), n, m, self._factor())
        if kind < 0.45:
            view = str(rng.choice(VIEWS))
            if (view, n) in self.viewed or not run.records or not (view in ANY_RANK or tensors[n].ndim):
                return None
            self.viewed.add((view, n))
            return ("view", view, n)
        if kind < 0.5:
            return ("function", str(rng.choice(["two", "marked", "reversed"])), n, m, self._factor())
        if kind < 0.53:
            return ("checkpointed", n, m, self._factor())
        if kind < 0.62:
            return ("write", str(rng.choice(WRITES)), n, m, self._factor(), bool(rng.random() < 0.3))
        if kind < 0.82:
            return self._state(run, n)
        if not grads:
            return None
        chosen = sorted({int(i) for i in rng.choice(grads, 2)})
        inputs = tuple(sorted({int(i) for i in rng.choice(grads, int(rng.integers(1, 3)))}))
        if kind < 0.9:
            return ("backward", tuple((i, self._factor()) for i in chosen), inputs if rng.random() < 0.4 else (), False)
        create = bool(rng.random() < 0.4)
        return ("grad", tuple(chosen), inputs, self._factor(), create, not create and bool(rng.random() < 0.2))

    def _state(self, run: Run, n: int) -> Step | None:
        rng = self.rng
        kind = str(rng.choice([*STATES], p=[*STATES.values()]))
        t = run.tensors[n]
        if kind == "mode":
            return ("mode",)
        if kind == "hook":
            return ("hook", n, str(rng.choice(["look", "scale", "add"])), self._factor())
        if kind == "unhook":
            return ("unhook", int(rng.integers(len(run.handles)))) if run.handles else None
        if kind == "post" and not (t.is_leaf and t.requires_grad):
            return None
        if kind == "requires" and t.requires_grad or kind == "freeze" and not (t.is_leaf and t.requires_grad):
            return None
        if kind in ("zero", "none") and t.grad is None:
            return None
        if kind in ("deepcopy", "pickle") and not t.is_leaf:
            return None
        return (kind, n)


def state_of(lib: Any, leaves: list[np.ndarray], steps: list[Step]) -> list[Any]:
    run = Run(lib, leaves)
    for step in steps:
        run.do(step)
    found = run.state()
    for handle in run.handles:
        handle.remove()  # a hook refers to the run, whose tensors have it: a cycle, in which they would live on
    return found


def difference(found: Any, wanted: Any, at: str = "") -> str | None:
    """Returns where two states differ first; None where they are equal."""
    if isinstance(wanted, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(wanted):
            return f"{at}: {found} where PyTorch has {wanted}"
        parts = (difference(a, b, f"{at}[{i}]") for i, (a, b) in enumerate(zip(found, wanted)))
        return next((part for part in parts if part), None)
    if isinstance(wanted, np.ndarray):
        if found is None and not wanted.any():  # PyTorch has zeros for a value that was replaced
            return None
        same = isinstance(found, np.ndarray) and found.shape == wanted.shape
        equal = same and np.allclose(found, wanted, 1e-9, 1e-9, equal_nan=True)
        return None if equal else f"{at}: {found} where PyTorch has {wanted}"
    same = type(found) is type(wanted) and found == wanted
    return None if same else f"{at}: {found} where PyTorch has {wanted}"


ANNOUNCED = ("is a view of a tensor that is also used directly", "that collects gradients cannot change")


def outcome(leaves: list[np.ndarray], steps: list[Step]) -> str | None:
    """Returns how the libraries differ; an error that picograd announces is no difference. PyTorch's errors are raised."""
    wanted = state_of(torch, leaves, steps)
    try:
        found = state_of(pg, leaves, steps)
    except Exception as error:
        return None if any(said in str(error) for said in ANNOUNCED) else f"{type(error).__name__}: {error}"
    return difference(found, wanted)


def smaller(leaves: list[np.ndarray], steps: list[Step]) -> list[Step]:
    """Returns fewer or simpler steps that differ, too."""
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(steps))):
            makes = steps[i][0] in ("unary", "binary", "view", "function", "checkpointed", "grad", "deepcopy", "pickle")
            last = i == len(steps) - 1
            others = [[*steps[:i], *steps[i + 1 :]]] if not makes or last else []
            if makes and steps[i][0] != "unary":
                others = [*others, [*steps[:i], ("unary", "neg", 0, 1.0 + i / 64), *steps[i + 1 :]]]
            if steps[i][0] == "backward" and len(steps[i][1]) > 1:
                before, parts, after = steps[:i], steps[i][1], steps[i + 1 :]
                for k in range(len(parts)):
                    one = ("backward", (*parts[:k], *parts[k + 1 :]), *steps[i][2:])
                    others.append([*before, one, *after])
            for other in others:
                try:
                    if outcome(leaves, other):
                        steps, changed = other, True
                        break
                except Exception:
                    continue
            if changed:
                break
    return steps


def check(seed: int) -> None:
    with pg.device("NUMPY"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = Program(seed)
        try:
            found = outcome(program.leaves, program.steps)
        except RuntimeError as error:
            assert "view" in str(error) or "inplace" in str(error), error  # PyTorch's, of the last backward()
            return
        if found:
            steps = smaller(program.leaves, program.steps)
            lines = "\n".join(map(str, steps))
            raise AssertionError(f"{outcome(program.leaves, steps)}\n{[leaf.tolist() for leaf in program.leaves]}\n{lines}")


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_program_of_autograd_does_what_pytorch_does(seed: int) -> None:
    check(seed)


if __name__ == "__main__":
    run_seeds(check)
