"""Random programs with loops and calls: written once, run as pg.scan, pg.checkpoint and pg.outline or as plain Python.

A program is data: a Block of Steps over numbered values, whose "scan", "outline" and "checkpoint" Steps hold Blocks
that read what is around them as closures do. `run` interprets it, with control flow in the graph or without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import picograd as pg
from picograd import Tensor

Shape = tuple[int, ...]
Env = dict[int, Tensor]
WIDTH = 3
SHAPES: tuple[Shape, ...] = ((), (WIDTH,), (1, WIDTH), (2, WIDTH), (WIDTH, WIDTH))


@dataclass(frozen=True)
class Step:
    """One line: `out` = code(`src`).

    arg:  what the code needs besides; of "scan" and of calls a Body
    """

    code: str
    out: tuple[int, ...]
    src: tuple[int, ...]
    arg: Any = None


@dataclass(frozen=True)
class Block:
    """Lines, and which values they return."""

    steps: tuple[Step, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Body:
    """What a loop or a call runs.

    params:     names of its arguments: of a loop the carry, then a row of each input
    num_carry:  of a loop
    length:     of a loop
    shapes:     of the results
    """

    block: Block
    params: tuple[int, ...]
    shapes: tuple[Shape, ...]
    num_carry: int = 0
    length: int = 0
    reverse: bool = False


@dataclass(frozen=True)
class Program:
    """A Block over leaves (which require grad) and states (which Blocks write in place).

    shapes:  of leaves and states, by number
    """

    block: Block
    leaves: tuple[int, ...]
    states: tuple[int, ...]
    shapes: dict[int, Shape]

    def __str__(self) -> str:
        names = ", ".join(f"v{n}: {self.shapes[n]}" for n in (*self.leaves, *self.states))
        return "\n".join([f"({names}), v{list(self.states)} are states", *_lines(self.block, "  ")])


def _lines(block: Block, indent: str) -> Iterator[str]:
    for step in block.steps:
        out, src = ", ".join(f"v{n}" for n in step.out), ", ".join(f"v{n}" for n in step.src)
        if not isinstance(step.arg, Body):
            yield f"{indent}{out} = {step.code}({src}){'' if step.arg is None else f'  {step.arg}'}"
            continue
        body = step.arg
        what = f" carry {body.num_carry}, length {body.length}, reverse {body.reverse}" if step.code == "scan" else ""
        yield f"{indent}{out} = {step.code}({src}){what} of ({', '.join(f'v{n}' for n in body.params)}):"
        yield from _lines(body.block, indent + "    ")
    yield f"{indent}return {', '.join(f'v{n}' for n in block.results)}"


# ---- what a line computes ----
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": lambda x: x.tanh(),
    "sin": lambda x: x.sin(),
    "sigmoid": lambda x: x.sigmoid(),
    "half": lambda x: x * 0.5,
    "negative": lambda x: -x,
    "root": lambda x: (x * x + 1.0).sqrt(),
    "detach": lambda x: x.detach(),
    "mean": lambda x: x.mean(),
    "total": lambda x: x.sum(-1, keepdim=True) if x.ndim else x,
    "softmax": lambda x: x.softmax(-1) if x.ndim else x,
    "norm": lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, correction=0).unsqueeze(-1) + 1.0) if x.ndim else x,
    "cumsum": lambda x: x.cumsum(0) if x.ndim else x,
    "flip": lambda x: x.flip(0) if x.ndim else x,
    "turn": lambda x: x.transpose(0, 1) if x.ndim == 2 and x.shape[0] == x.shape[1] else x,
    "shift": lambda x: pg.cat([x[1:], x[:1] * 0.5]) if x.ndim else x,
    "padded": lambda x: x[..., 1:].pad((0, 1)) if x.ndim else x,
    "picked": lambda x: x[..., Tensor([2, 0, 2])] if x.ndim else x,
    "noise": lambda x: x + pg.rand(*x.shape, dtype=pg.float64),
    "positions": lambda x: x + pg.arange(WIDTH).cast(pg.float64) if x.ndim else x,
    "stored": lambda x: x.contiguous(),
}  # fmt: skip
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "quotient": lambda a, b: a / (b * b + 1.0),
}
SHAPE_CHANGING = {"mean": lambda s: (), "total": lambda s: (*s[:-1], 1) if s else s}
WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add_": lambda state, value: state.add_(value),
    "add_detached_": lambda state, value: state.add_(value.detach()),
    "mul_": lambda state, value: state.mul_(value),
    "assign": lambda state, value: state.assign(value + state * 0.5),
    "row_add_": lambda state, value: state[-1:].add_(value[:1]) if state.ndim else state.add_(value),
    "row_set": lambda state, value: state.__setitem__(0, value[0]) if state.ndim else state.assign(value),
    "row_of_view_set": lambda state, value: state.reshape(-1)[1:].__setitem__(0, value.mean()) if state.ndim else None,
}  # fmt: skip


def run(block: Block, env: Env, control: bool) -> list[Tensor]:
    """Returns what a block returns; with `control` loops and calls are in the graph, else Python runs them."""
    env = dict(env)
    for step in block.steps:
        values = _run_step(step, [env[n] for n in step.src], env, control)
        env.update(zip(step.out, values))
    return [env[n] for n in block.results]


def _run_step(step: Step, src: list[Tensor], env: Env, control: bool) -> Sequence[Tensor]:
    if step.code in UNARY:
        return [UNARY[step.code](src[0])]
    if step.code in BINARY:
        return [BINARY[step.code](src[0], src[1])]
    if step.code in WRITES:
        WRITES[step.code](src[0], src[1])
        return []
    if step.code == "matmul":
        return [src[0] @ src[1]]
    if step.code == "fit":
        return [src[0].expand(step.arg) if _broadcasts(src[0].shape, step.arg) else src[0].mean().expand(step.arg)]
    if step.code == "zeros":
        return [pg.zeros(shape, dtype=pg.float64) for shape in step.arg]
    if step.code == "stacked":
        return [pg.stack([src[0] * (i + 1.0) / step.arg for i in range(step.arg)])]
    if step.code == "row":
        return [src[0][step.arg]]
    body: Body = step.arg
    inside = lambda *args: run(body.block, {**env, **dict(zip(body.params, args))}, control)  # noqa: E731
    if step.code == "scan":
        return (_scanned if control else _unrolled)(body, src, inside)
    if not control:
        return inside(*src)
    return pg.outline(inside)(*src) if step.code == "outline" else pg.checkpoint(inside, *src)


def _scanned(body: Body, src: list[Tensor], inside: Callable[..., list[Tensor]]) -> list[Tensor]:
    def step(carry: list[Tensor], rows: Any) -> tuple[list[Tensor], list[Tensor]]:
        made = inside(*carry, *(rows or []))
        return made[: body.num_carry], made[body.num_carry :]

    carry, xs = src[: body.num_carry], src[body.num_carry :]
    last, ys = pg.scan(step, carry, xs or None, length=body.length, reverse=body.reverse)
    return [*last, *ys]


def _unrolled(body: Body, src: list[Tensor], inside: Callable[..., list[Tensor]]) -> list[Tensor]:
    carry, xs = src[: body.num_carry], src[body.num_carry :]
    rows: dict[int, list[Tensor]] = {}
    for t in reversed(range(body.length)) if body.reverse else range(body.length):
        made = inside(*carry, *(x[t] for x in xs))
        carry, rows[t] = made[: body.num_carry], made[body.num_carry :]
    ys = [[rows[t][i] for t in range(body.length)] for i in range(len(body.shapes) - body.num_carry)]
    shapes = body.shapes[body.num_carry :]
    return [*carry, *(pg.stack(y) if y else pg.zeros(0, *s, dtype=pg.float64) for y, s in zip(ys, shapes))]


def _broadcasts(small: Shape, shape: Shape) -> bool:
    padded = (1,) * (len(shape) - len(small)) + tuple(small)
    return len(small) <= len(shape) and all(a in (1, b) for a, b in zip(padded, shape))


# ---- making programs ----
@dataclass
class Maker:
    """Makes one program from a seed."""

    rng: np.random.Generator
    shapes: dict[int, Shape] = field(default_factory=dict)
    states: list[int] = field(default_factory=list)
    nesting: int = 0

    def program(self) -> Program:
        leaves = [self.new(self.pick(SHAPES)) for _ in range(int(self.rng.integers(1, 4)))] + [self.new((WIDTH, WIDTH))]
        self.states = [self.new(self.pick(SHAPES)) for _ in range(int(self.rng.integers(0, 3)))]
        given = {n: self.shapes[n] for n in (*leaves, *self.states)}
        block = self.block(leaves, steps=int(self.rng.integers(3, 9)), results=int(self.rng.integers(1, 4)))
        return Program(block, tuple(leaves), tuple(self.states), given)

    def block(self, scope: list[int], steps: int, results: int) -> Block:
        scope, made = list(scope), list[Step]()
        for _ in range(steps):
            self.grow(scope, made)
        return Block(tuple(made), tuple(self.late(scope) for _ in range(results)))

    def grow(self, scope: list[int], made: list[Step]) -> None:
        """Adds a line or a few to `made`, and their values to `scope`."""
        kind = self.rng.random()
        if kind < (0.35 if self.nesting == 0 else 0.18) and self.nesting < 3:
            self.nesting += 1
            self.scan(scope, made) if self.chance(0.6) else self.call(scope, made)
            self.nesting -= 1
        elif kind < 0.38 and self.states:  # a value, never a view: what a loop returns would change with the state
            self.add(Step("half", (self.new(self.shapes[state := self.pick(self.states)]),), (state,)), scope, made)
        elif kind < 0.45 and self.states:
            state = self.pick(self.states)
            code, value = self.pick(tuple(WRITES)), self.fitted(self.late(scope), self.shapes[state], scope, made)
            made.append(Step(code, (), (state, self.bounded(value, scope, made))))
        elif kind < 0.7:
            a = self.late(scope)
            code = self.pick(tuple(UNARY))
            shape = SHAPE_CHANGING.get(code, lambda s: s)(self.shapes[a])
            if shape and shape[-1] != WIDTH and shape not in SHAPES:
                return
            self.add(Step(code, (self.new(shape),), (a,)), scope, made)
        else:
            self.pair(scope, made)

    def pair(self, scope: list[int], made: list[Step]) -> None:
        a, b = self.late(scope), self.late(scope)
        left, right = self.shapes[a], self.shapes[b]
        if right == (WIDTH, WIDTH) and left and left[-1] == WIDTH and self.chance(0.7):
            self.add(Step("matmul", (self.new(left),), (a, b)), scope, made)
            self.add(Step("tanh", (self.new(left),), (scope[-1],)), scope, made)
            return
        if not _broadcasts(left, right):
            a, b, left, right = b, a, right, left
        if _broadcasts(left, right):
            self.add(Step(self.pick(tuple(BINARY)), (self.new(right),), (a, b)), scope, made)

    def scan(self, scope: list[int], made: list[Step]) -> None:
        carry = [self.late(scope) for _ in range(int(self.rng.choice([0, 1, 1, 2, 3])))]
        length = int(self.rng.choice([0, 1, 2, 2, 3, 3, 4, 5])) if self.chance(0.3) else int(self.rng.integers(2, 4))
        xs = []
        for _ in range(int(self.rng.choice([0, 1, 1, 2]))):
            value = self.late(scope)
            if self.shapes[value] and self.shapes[value][0] == length:
                xs.append(value)
            elif length:
                out = self.new((length, *self.shapes[value]))
                made.append(Step("stacked", (out,), (value,), length))
                xs.append(out)
        inner = [self.new(self.shapes[n]) for n in carry] + [self.new(self.shapes[n][1:]) for n in xs]
        inside, steps = [*scope, *inner], list[Step]()
        for _ in range(int(self.rng.integers(1, 6))):
            self.grow(inside, steps)
        on = [self.bounded(self.fitted(self.late(inside), self.shapes[n], inside, steps), inside, steps) for n in carry]
        ys = [self.late(inside) for _ in range(int(self.rng.choice([0, 1, 1, 2])))]
        results = (*on, *ys)
        shapes = tuple(self.shapes[n] for n in results)
        body = Body(Block(tuple(steps), results), tuple(inner), shapes, len(carry), length, self.chance(0.3))
        out = [self.new(self.shapes[n]) for n in carry] + [self.new((length, *self.shapes[n])) for n in ys]
        made.append(Step("scan", tuple(out), (*carry, *xs), body))
        scope += out[: len(carry)]
        for n in out[len(carry) :]:
            if length and self.chance(0.6):
                self.add(Step("row", (self.new(self.shapes[n][1:]),), (n,), int(self.rng.integers(length))), scope, made)
            elif self.shapes[n] in SHAPES:
                scope.append(n)
            else:
                self.add(Step("mean" if length else "zeros", (self.new(()),), (n,), None if length else ((),)), scope, made)

    def call(self, scope: list[int], made: list[Step]) -> None:
        args = [self.pick(scope) for _ in range(int(self.rng.integers(1, 3)))]
        inner = [self.new(self.shapes[n]) for n in args]
        block = self.block([*scope, *inner], steps=int(self.rng.integers(1, 6)), results=int(self.rng.integers(1, 3)))
        shapes = tuple(self.shapes[n] for n in block.results)
        code = self.pick(("outline", "checkpoint"))
        for _ in range(int(self.rng.choice([1, 1, 2]))):  # twice the same body
            out = tuple(self.new(shape) for shape in shapes)
            self.add(Step(code, out, tuple(args), Body(block, tuple(inner), shapes)), scope, made)

    # ---- choosing ----
    def add(self, step: Step, scope: list[int], made: list[Step]) -> None:
        made.append(step)
        scope += step.out

    def fitted(self, value: int, shape: Shape, scope: list[int], made: list[Step]) -> int:
        if self.shapes[value] == shape:
            return value
        self.add(Step("fit", (self.new(shape),), (value,), shape), scope, made)
        return scope[-1]

    def bounded(self, value: int, scope: list[int], made: list[Step]) -> int:
        if self.chance(0.2):
            return value
        self.add(Step(self.pick(("tanh", "sin", "half")), (self.new(self.shapes[value]),), (value,)), scope, made)
        return scope[-1]

    def new(self, shape: Shape) -> int:
        self.shapes[len(self.shapes)] = shape
        return len(self.shapes) - 1

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def late(self, scope: list[int]) -> int:
        return scope[-1 - min(len(scope) - 1, int(self.rng.geometric(0.3)) - 1)]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)


# ---- smaller programs that fail, too ----
def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Returns a program from which no line can be taken without its failure going, too."""
    changed = True
    while changed:
        changed = False
        for block in _smaller(program.block):
            made = replace(program, block=_without_unused(block, program.states))
            if made != program and _weight(made.block) < _weight(program.block) and fails(made):
                program, changed = made, True
                break
    return program


def _weight(block: Block) -> int:
    """A measure that each step of shrinking lowers."""
    total = 4 * len(block.results)
    for step in block.steps:
        total += {"zeros": 1, "half": 3}.get(step.code, 4) + len(step.src)
        if isinstance(step.arg, Body):
            total += 50 + 9 * len(step.src) + _weight(step.arg.block) + step.arg.reverse
    return total


def _smaller(block: Block) -> Iterator[Block]:
    if len(block.results) > 1:
        for i in range(len(block.results)):
            yield replace(block, results=(block.results[i],))
    for i in reversed(range(len(block.steps))):
        for other in _smaller_step(block.steps[i]):
            yield replace(block, steps=(*block.steps[:i], *other, *block.steps[i + 1 :]))


def _smaller_step(step: Step) -> Iterator[tuple[Step, ...]]:
    if step.code in WRITES:
        yield ()
        return
    body = step.arg
    if isinstance(body, Body):
        yield (Step("zeros", step.out, (), tuple(_outer(s, i, body, step) for i, s in enumerate(body.shapes))),)
        if step.code != "scan":
            renamed = tuple(Step("half", (p,), (n,)) for p, n in zip(body.params, step.src))
            yield (*renamed, *body.block.steps, *(Step("half", (o,), (r,)) for o, r in zip(step.out, body.block.results)))
        if body.reverse:
            yield (replace(step, arg=replace(body, reverse=False)),)
        if step.code == "scan":
            yield from _narrower(step, body)
        for block in _smaller(replace(body.block, results=())):
            yield (replace(step, arg=replace(body, block=replace(block, results=body.block.results))),)
    elif step.code in UNARY and step.code not in SHAPE_CHANGING and step.code != "half":
        yield (replace(step, code="half"),)


def _narrower(step: Step, body: Body) -> Iterator[tuple[Step, ...]]:
    """A loop without one of its stacked results, carries or inputs."""
    results, k = body.block.results, body.num_carry

    def without(items: tuple[Any, ...], i: int) -> tuple[Any, ...]:
        return (*items[:i], *items[i + 1 :])

    for i in range(len(results)):
        block = replace(body.block, results=without(results, i))
        shorter = replace(body, block=block, shapes=without(body.shapes, i))
        if i >= k:
            instead = Step("zeros", (step.out[i],), (), ((body.length, *body.shapes[i]),))
            yield (replace(step, out=without(step.out, i), arg=shorter), instead)
            continue
        inside = Step("half", (body.params[i],), (step.src[i],))
        block = replace(block, steps=(inside, *block.steps))
        shorter = replace(shorter, block=block, params=without(body.params, i), num_carry=k - 1)
        instead = Step("half", (step.out[i],), (step.src[i],))
        yield (replace(step, out=without(step.out, i), src=without(step.src, i), arg=shorter), instead)
    for i in range(k, len(step.src) if body.length else 0):
        row = Step("row", (body.params[i],), (step.src[i],), 0)
        block = replace(body.block, steps=(row, *body.block.steps))
        yield (replace(step, src=without(step.src, i), arg=replace(body, block=block, params=without(body.params, i))),)


def _outer(shape: Shape, i: int, body: Body, step: Step) -> Shape:
    return (body.length, *shape) if step.code == "scan" and i >= body.num_carry else shape


def _without_unused(block: Block, states: Sequence[int], needed: Sequence[int] = ()) -> Block:
    used, steps = {*block.results, *needed}, list[Step]()
    for step in reversed(block.steps):
        writes = step.code in WRITES or (isinstance(step.arg, Body) and _writes(step.arg.block))
        if not writes and used.isdisjoint(step.out):
            continue
        if isinstance(step.arg, Body):
            step = replace(step, arg=replace(step.arg, block=_without_unused(step.arg.block, states)))
            used |= _reads(step.arg.block)
        used |= set(step.src)
        steps.append(step)
    return replace(block, steps=tuple(reversed(steps)))


def _writes(block: Block) -> bool:
    return any(s.code in WRITES or (isinstance(s.arg, Body) and _writes(s.arg.block)) for s in block.steps)


def _reads(block: Block) -> set[int]:
    found = set(block.results)
    for step in block.steps:
        found |= set(step.src) | (_reads(step.arg.block) if isinstance(step.arg, Body) else set())
    return found
