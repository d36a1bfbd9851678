"""Random small Python programs with a jitted function: with jit, each has the same result, or a JitError.

In:    a seed
Out:   `Program`, `any_program`; `check_program`, which raises `Wrong` if the two runs differ

A program consists of features: a module, an optimizer, a closure, a container, a view, ... Each has lines before the
function, lines of the function on `y`, lines between calls, and lines after them, with its own names. The function has
arguments x, a matrix of two columns, and k, a number; y is a matrix like x, and the function returns some of its
values. No result is assumed: the program without jit is right.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from picograd.errors import JitError
from picograd.record import Record, replace
from picograd.tensor.generator import manual_seed
from picograd.tensor.settings import set_default_device
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_lab.fuzz.check import Wrong


# ---- features ----
class Feature(Record):
    """One feature of programs.

    before:   its setup
    body:     lines of the function; one is chosen
    between:  lines that run once, before some call
    always:   lines that run before each call; one is chosen
    after:    lines that run after each call; one is chosen
    results:  possible results of the function besides y
    is_rare:  jit mostly refuses it, which hides other features
    """

    before: str
    body: tuple[str, ...]
    between: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    is_rare: bool = False


NET = """\
class Net(nn.Module):
    def __init__(self):
        self.layer, self.act, self.scale, self.calls = nn.Linear(2, 2), pg.relu, 2.0, 0
        self.sizes, self.options = [1.0, 2.0], {"bias": 1.0}
    def forward(self, x):
        if self.training:
            x = x * self.scale
        return self.act(self.layer(x)) + self.options["bias"] * self.sizes[0]
net = Net()"""
COUNTING = """\
class Counting(nn.Module):
    calls = 0
    def forward(self, x):
        self.calls += 1
        return x * (2.0 if self.calls > 3 else 1.0)
counting = Counting()"""
CONFIG = """\
class Config:
    rate = 1.0
    def __init__(self, scale):
        self.scale, self.flag, self.parts = scale, True, [scale]
    def times(self, x):
        return x * self.scale if self.flag else x + self.parts[0]
config = Config(2.0)"""
HIDDEN = """\
class Base:
    scale = 2.0
    def grown(self, x):
        return x * self.held
    @classmethod
    def rate(cls):
        return cls.scale
class Held(Base):
    def __init__(self):
        self.held, self.table = 1.0, {"a": 1.0, "b": 2.0}
    def grown(self, x):
        return super().grown(x) + self.scale
    def __call__(self, x):
        return x - self.held
    def __rmul__(self, x):
        return x.mul(self.held)
    def __getitem__(self, name):
        return self.table[name]
    def __len__(self):
        return len(self.table)
    def __enter__(self):
        return self.held
    def __exit__(self, *error):
        pass
hidden, ways = Held(), {"a": 1.0, "b": 2.0}
part = functools.partial(lambda table, x: x * table["a"], ways)"""
FEATURES: list[Feature] = [
    Feature(
        HIDDEN,
        ("y = hidden.grown(y)", "y = hidden(y)", "y = y.__mul__(hidden['a'])", "y = y * len(hidden)", "y = part(y)",
         "with hidden as held:\n    y = y * held", "y = y * Held.rate()", "y = y + getattr(hidden, 'gain', 1.0)",
         "y = y * (2.0 if hasattr(hidden, 'gain') else 1.0)", "for way in ways.values():\n    y = y * 0.5 + way",
         "match hidden:\n    case Held(held=1.0):\n        y = y * 2.0", "y = hidden.__rmul__(y)"),
        ("hidden.held = 3.0", "hidden.gain = 4.0", "Base.scale = 5.0", "Held.__call__ = lambda self, x: x * 3.0",
         "hidden.table['a'] = 6.0", "hidden.table['c'] = 1.0", "ways['a'] = ways.pop('a')", "ways['a'] = 7.0",
         "Base.grown = lambda self, x: x", "Held.grown.__code__ = Base.grown.__code__", "hidden.other = 1.0"),
        after=("show(sorted(vars(hidden)))", ""),
    ),
    Feature(
        "m = nn.Linear(2, 2)", ("y = m(y)", "y = pg.relu(m(y)) + y", "y = m(m(y))"),
        ("m.weight.data.mul_(2.0)", "m.weight = nn.Parameter(pg.ones(2, 2))", "m.forward = lambda x: x * 5.0",
         "m.register_forward_hook(lambda module, args, output: output * 2.0)", "m.requires_grad_(False)",
         "m.register_forward_pre_hook(lambda module, args: (args[0] * 2.0,))", "m.bias = None",
         "m.load_state_dict({name: value * 2 for name, value in m.state_dict().items()})"),
        after=("show(m.weight)",), results=("m.weight", "m.weight.t()"),
    ),
    Feature(
        "seq = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))", ("y = seq(y)", "y = seq[0](y)"),
        ("seq.eval()", "seq[1].eval()", "seq[0] = nn.Identity()", "seq.append(nn.Tanh())", "seq[2].p = 0.1"),
        always=("seq.train(call % 3 != 0)", ""), after=("show(seq[1].running_mean)",),
    ),
    Feature(
        NET, ("y = net(y)", "y = net.act(y) * net.scale", "y = net.layer(y) + len(net.sizes)"),
        ("net.act = pg.tanh", "net.act = lambda x: x * net.scale", "net.scale = 3.0", "net.eval()", "net.sizes[0] = 7.0",
         "net.options['bias'] = 4.0", "net.layer = nn.Linear(2, 2)", "net.forward = net.layer", "net = Net()",
         "net.sizes = (3.0,)", "net.layer.register_forward_hook(lambda module, args, output: None)",
         "net.layer.weight.data = pg.ones(2, 2)"),
        after=("show(net.calls)", "show(net.sizes)"),
    ),
    Feature(COUNTING, ("y = counting(y)",), ("counting.calls = 9",), after=("show(counting.calls)",), is_rare=True),
    Feature(
        CONFIG, ("y = config.times(y)", "y = y * getattr(config, 'scale')", "y = y * config.rate + config.parts[-1]",
                 "config.last = 1.0", "config.scale += 1.0", "config.parts.append(2.0)", "config.flag = not config.flag",
                 "config.shape = x.shape"),
        ("config.scale = 3.0", "config = Config(5.0)", "config.parts[0] = 4.0", "config.flag = False", "Config.rate = 4.0",
         "config.rate = 6.0", "Config.times = lambda self, x: x - 1.0"),
        after=("show([config.scale, config.flag, config.parts])", "show(sorted(vars(config)))"),
    ),
    Feature(
        "scale = 2.0", ("y = y * scale", "y = y + (1.0 if scale > 2 else 0.0)"), ("scale = 3.0", "scale = True"),
        always=("scale = scale + 1.0", "", ""),
    ),
    Feature(
        "items = [1.0, 2.0]", ("y = y * items[0]", "y = y + sum(items)", "items.append(1.0)", "items[0] += 1.0",
                               "y = y * len(items)", "items[0] = 1.0"),
        ("items[0] = 5.0", "items.append(3.0)", "items = [9.0]", "items.pop()"), after=("show(items)",),
    ),
    Feature(
        "table = {str(i): float(i) for i in range(40)}", ("y = y * table['7']", "y = y + len(table)",
                                                          "table['a'] = 1.0", "y = y * table.get('b', 1.0)"),
        ("table['7'] = 1.5", "table['b'] = 2.0", "del table['3']", "table = {'7': 2.0, '3': 1.0}"),
        after=("show(len(table))",),
    ),
    Feature(
        "chosen = {1, 2}", ("y = y * (2.0 if 3 in chosen else 1.0)", "chosen.add(len(chosen))", "chosen.add(2)"),
        ("chosen.add(3)", "chosen.discard(1)", "chosen = {3}"), after=("show(chosen)",),
    ),
    Feature(
        "count = 0", ("nonlocal count\ncount += 1", "nonlocal count\ncount = 5\ny = y + count",
                      "nonlocal count\ncount += 1\ny = y * (1.0 if count % 4 else 2.0)"), after=("show(count)",),
        is_rare=True,
    ),
    Feature("numbers = (n for n in (1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0))", ("y = y * next(numbers)",), is_rare=True),
    Feature("steps = itertools.count()", ("y = y * (1.0 if next(steps) < 4 else 2.0)",), is_rare=True),
    Feature(
        "cell, tail = nn.GRUCell(2, 2), nn.Linear(2, 2)\n"
        "descent = optim.SGD([*cell.parameters(), *tail.parameters()], lr=0.1)",
        ("for _ in range(20):\n    y = cell(y, y)", "h = y\nfor _ in range(6):\n    h = cell(y, h)\ny = h",
         "outs, h = [], y\nfor t in range(10):\n    h = cell(y, h)\n    outs.append(tail(h))\ny = pg.stack(outs).mean(0)",
         "for t in range(17):\n    y = pg.tanh(tail(y) * (1.0 if t % 2 else k + 0.5))",
         "for t in range(18):\n    y = pg.tanh(y * 0.5 + k)", "for t in range(5):\n    y = pg.tanh(tail(y) + t * 0.1)",
         "h = y\nfor _ in range(9):\n    h = cell(y, h)\ndescent.zero_grad()\n(h ** 2).mean().backward()\ndescent.step()",
         "h, all = y, 0.0\nfor _ in range(5):\n    h = cell(y, h)\n    all = all + (tail(h) ** 2).mean()\nall.backward()"),
        ("cell.weight_hh.data.mul_(0.5)", "cell = nn.GRUCell(2, 2)", "descent.param_groups[0]['lr'] = 0.5",
         "cell.requires_grad_(False)", "tail.bias = None"),
        always=("", "", "descent.zero_grad()"), after=("show(cell.weight_hh)", "show(tail.weight.grad)"),
    ),
    Feature("", ("y = y * (1.0 if random.random() < 0.8 else 2.0)", "y = y * (1.0 if np.random.rand() < 0.8 else 2.0)"),
            is_rare=True),
    Feature("", ("y = y + pg.rand(2)", "y = y * (pg.rand(1) > 0.5)", "y = nn.functional.dropout(y)"),
            ("pg.manual_seed(5)",), always=("", "pg.rand(3)")),
    Feature("draw = np.random.default_rng(0)", ("y = y * (1.0 if draw.random() < 0.8 else 2.0)",), is_rare=True),
    Feature("kept = []", ("kept.append(y)", "kept.append(y[0])", "kept.append(y.shape)"), after=("show(kept)",),
            results=("x",), is_rare=True),
    Feature(
        "def times(n):\n    return lambda v: v * n\nact = times(2.0)", ("y = act(y)", "y = list(map(act, [y]))[0]"),
        ("act = times(3.0)", "act = pg.tanh", "act = functools.partial(pg.mul, other=2.0)", "act = pg.relu"),
    ),
    Feature(
        "acts = [pg.relu, pg.tanh]", ("for one in acts:\n    y = one(y)", "y = acts[-1](y)"),
        ("acts[1] = pg.sigmoid", "acts.reverse()", "acts = [pg.sigmoid]"),
    ),
    Feature(
        "buf = Tensor([[1.0, 2.0], [3.0, 4.0]])",
        ("buf.add_(1.0)\ny = y @ buf", "buf[0] = 5.0\ny = y + buf[0]", "buf[0, 0] += 1.0", "y = y @ buf",
         "buf.mul_(0.5)\ny = y @ buf.t()", "buf[buf > 2.0] = 1.0\ny = y + buf.sum()", "buf.t_()\ny = y @ buf",
         "row = buf[1]\nrow.add_(1.0)\ny = y + row", "buf.copy_(buf.t())\ny = y @ buf", "buf.data = buf.data + 1.0"),
        ("buf.fill_(2.0)", "buf = pg.ones(2, 2)", "buf[1].zero_()", "buf.t_()", "buf.data = pg.zeros(2, 2)", "buf += 1.0"),
        after=("show(buf)", "show(buf)", "r.add_(1.0)\nshow(buf)"), results=("buf", "buf[0]", "buf.t()", "buf * 1.0"),
    ),
    Feature(
        "", ("x.add_(1.0)", "x[0] = 3.0", "x.t_()", "x[x < 0] = 0.0\ny = y + x", "x[:1].mul_(2.0)", "x.unsqueeze_(0)",
             "mask = y > 0\ny[mask] = -1.0\ny = y * mask", "y[y > 1] *= 2.0",
             "mask = y > 0\ny[mask] = 1 / y[mask] ** 0.5 + 1.0",
             "y[y.sum(1) > 0] -= x.mean()", "y[y < 0] = -y[y < 0]"),
        after=("r.mul_(2.0)\nshow(x)\nshow(r)", "show(x)", "x.zero_()\nshow(r)"),
        results=("x", "x[0]", "x.t()", "(y, y[0])", "(y, y)", "{'x': x, 'y': y}", "[x, x[:1]]", "x.view(-1)", "x.detach()"),
    ),
    Feature(
        "w = Tensor([[1.0, 2.0], [0.5, -1.0]], requires_grad=True)\nopt = optim.SGD([w], lr=0.1, momentum=0.9)",
        ("loss = ((y @ w) ** 2).mean()\nloss.backward()", "opt.zero_grad()\n((y @ w) ** 2).mean().backward()\nopt.step()",
         "((y @ w) ** 2).mean().backward()\nopt.step()", "((y @ w) ** 2).mean().backward()\nopt.step()\nopt.zero_grad()",
         "opt.zero_grad(set_to_none=False)\n((y @ w) ** 2).mean().backward()\nopt.step()",
         "((y @ w) ** 2).mean().backward()\nnn.utils.clip_grad_norm_([w], 0.5)",
         "opt.step()\nopt.zero_grad()\n((y @ w) ** 2).mean().backward()",
         "((y @ w) ** 2).mean().backward()\nwith pg.no_grad():\n    w -= 0.1 * w.grad\nw.grad = None",
         "y = y + pg.autograd.grad((y @ w).sum(), [w])[0].sum()", "if w.grad is not None:\n    y = y + w.grad.sum()",
         "(y @ w).sum().backward()\nw.grad.mul_(2.0)", "w.grad = None\n(y @ w).sum().backward()", "opt.step()"),
        ("opt.param_groups[0]['lr'] = 0.5", "w.register_hook(lambda grad: grad * 2.0)", "w.data.zero_()",
         "w.grad = pg.ones(2, 2)", "opt.param_groups[0]['momentum'] = 0.5", "w.requires_grad_(False)",
         "w.register_post_accumulate_grad_hook(lambda leaf: leaf.grad.mul_(2.0))",
         "w = Tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True)", "(w * w).sum().backward()"),
        always=("opt.zero_grad()", "opt.zero_grad(set_to_none=False)", "", "if call % 2:\n    opt.zero_grad()",
                "w.grad = None\n(w * 2.0).sum().backward()"),
        after=("show(w)\nshow(w.grad)", "opt.step()\nshow(w)", "show(w)", "opt.step()\nopt.zero_grad()\nshow(w)"),
        results=("w", "w.grad", "w * 1.0"),
    ),
    Feature(
        "u = Tensor([1.0, 2.0], requires_grad=True)",
        ("y = y * u", "y = y * u.detach()", "with pg.no_grad():\n    y = y * u",
         "y = y * (u if pg.is_grad_enabled() else 2.0)",
         "mask = y > 0\ny[mask] = y[mask] ** 0.5 * 3.0\n(y * u).sum().backward()", "y = (y * u > 1.0).float()"),
        ("u.requires_grad_(False)", "u.grad = None"), always=("u.grad = None", ""),
        after=("(r.sum() + (u * 3.0).sum()).backward()\nshow(u.grad)",
               "(r.detach().sum() * u.sum()).backward()\nshow(u.grad)",
               "with pg.no_grad():\n    t = r.sum()\n(u * t).sum().backward()\nshow(u.grad)",
               "with pg.no_grad():\n    show(g(x, 0.0))",
               "t = r.sum() + 1.0\nshow(t)\n(t * u).sum().backward()\nshow(u.grad)",
               "((r > 0).float().sum() * u).sum().backward()\nshow(u.grad)"),
        results=("y * u", "(y * u).sum()"),
    ),
    Feature(
        "q = Tensor([1.0, 2.0], requires_grad=True)\nsgd = optim.SGD([q], lr=0.1, momentum=0.9, dampening=0.5)",
        ("sgd.zero_grad()\n((y * q) ** 2).mean().backward()\nsgd.step()", "sgd.step()"),
        ("sgd.param_groups[0]['lr'] = 0.5", "sgd.load_state_dict(sgd.state_dict())"),
        always=("", "", "sgd.zero_grad()\n(q * q).sum().backward()\nsgd.step()"), after=("show(q)",), results=("q * 1.0",),
    ),
    Feature(
        "v = Tensor([1.0, 2.0], requires_grad=True)\nadam = optim.Adam([v], lr=0.1)\n"
        "plan = optim.lr_scheduler.StepLR(adam, step_size=2, gamma=0.5)",
        ("adam.zero_grad()\n((y * v) ** 2).mean().backward()\nadam.step()",
         "adam.zero_grad()\n((y * v) ** 2).mean().backward()\nadam.step()\nplan.step()",
         "((y * v) ** 2).mean().backward()", "adam.zero_grad()\n((y * v) ** 2).mean().backward()"),
        ("adam.add_param_group({'params': [Tensor([1.0], requires_grad=True)]})",
         "adam.param_groups[0]['weight_decay'] = 0.5", "adam.load_state_dict(adam.state_dict())", "adam.lr = 0.01"),
        always=("plan.step()", "", "adam.zero_grad()"),
        after=("show(v)\nshow(adam.lr)", "adam.step()\nshow(v)", "show(v.grad)"),
    ),
    Feature(
        "e = Tensor([1.0, 2.0], requires_grad=True)\nrms = optim.RMSprop([e], lr=0.1)",
        ("rms.zero_grad()\n((y * e) ** 2).mean().backward()\nrms.step()", "y = y * getattr(e, 'ndim')"),
        ("rms.register_step_pre_hook(lambda *_: e.grad.mul_(0.0))", "rms.register_step_pre_hook(print).remove()",
         "rms.register_step_post_hook(lambda *_: e.data.mul_(2.0))"), after=("show(e)",),
    ),
]  # fmt: skip


# ---- programs ----
CALLS = 7
RARE = 0.1  # probability of a feature that is mostly refused
ARGUMENTS = (
    "Tensor([[1.0, -2.0], [0.5, call]])", "pg.arange(4.0).reshape(2, 2) - call", "pg.ones(2 + call % 2, 2)",
    "(pg.arange(12.0) - call).reshape(6, 2)[: 2 + call % 5]", "pg.ones([2, 3, 4, 4, 6, 5, 3][call], 2) * call",
    "pg.ones([2, 9, 12, 13, 40, 10, 12][call], 2) * 0.5",
)  # fmt: skip
# Lines that depend on the number of rows of y.
OF_LENGTHS = (
    "if y.shape[0] > 2:\n    y = y * 2.0", "y = y / len(y)", "y = y + pg.arange(y.shape[0]).unsqueeze(1)",
    "y = y[1:] if len(y) > 4 else y", "y = y * (y.shape[0] == 4)", "for i in range(len(y)):\n    y = y + i",
    "y = y * (1.0 if y.shape == (3, 2) else 2.0)", "y = y[pg.arange(len(y)), 0].unsqueeze(1) + y", "y = y - y.mean(0)",
    "y = pg.cat([y, y[:1]])", "y = y.flip(0)", "y = y * {2: 1.0, 3: 2.0}.get(len(y), 3.0)", "y = y.reshape(-1, len(y)).t()",
    "try:\n    y = y * (len(y) % 3)\nexcept Exception:\n    y = y * 5.0", "y = y if isinstance(len(y), int) else -y",
    "n, m = y.shape\ny = y * n + m * pg.ones(n, 1)", "y = y.softmax(0) * y.size(0)",
    "y = y * (2.0 if len(y) in (3, 4) else 1.0)", "y = y * (2.0 if f'{len(y)}' == '4' else 1.0)", "y = y.cumsum(0)",
    "y = y + y.std(0)", "y = y[-1:] + y[len(y) - 1]",
)  # fmt: skip
TOLERANCE = 1e-4  # of float32 values of order 1 after few operations
HEADER = """\
import copy, functools, itertools, random
import numpy as np
import picograd as pg
from picograd import Tensor, nn, optim

def program(jit, show):
"""


class Program(Record):
    """The lines of a program, by place. An entry may be several lines.

    before:   setup
    body:     lines of the function on y, in order
    result:   returned expression
    between:  lines before each call, whose number is `call`
    after:    lines on the results `r`, and on observed values
    x:        argument of each call
    """

    before: tuple[str, ...]
    body: tuple[str, ...]
    result: str
    between: tuple[str, ...]
    after: tuple[str, ...]
    x: str

    @property
    def source(self) -> str:
        """The program as Python source: `program(jit, show)`."""
        call = [*self.between, f"x = {self.x}", "r = g(x, call % 2 * 1.0)", "show(r)", "show(x)", *self.after]
        function = ["def f(x, k):", *_indented(["y = x * 1.0 + k", *self.body, f"return {self.result}"]), "g = jit(f)"]
        lines = [*self.before, *function, f"for call in range({CALLS}):", *_indented(call)]
        return HEADER + "\n".join(_indented(lines)) + "\n"


def _indented(entries: Any) -> list[str]:
    return ["    " + line for entry in entries for line in entry.split("\n")]


def any_program(seed: int) -> Program:
    """Returns a program of one to four features."""
    rng = random.Random(seed)
    common = [feature for feature in FEATURES if not feature.is_rare or rng.random() < RARE]
    chosen: list[Feature] = rng.sample(common, rng.randint(1, 4))
    before: list[str] = []
    body: list[str] = []
    between: list[str] = []
    after: list[str] = []
    results = ["y", "y", "y.sum()"]
    for feature in chosen:
        before.append(feature.before)
        body.append(rng.choice(feature.body))
        results += feature.results
        if feature.between and rng.random() < 0.8:
            at = rng.randint(1, CALLS - 2)
            between.append(f"if call == {at}:\n    " + rng.choice(feature.between).replace("\n", "\n    "))
        between += [rng.choice(feature.always)] if feature.always else []
        after += [rng.choice(feature.after)] if feature.after else []
    for _ in range(rng.randint(1, 3)) if rng.random() < 0.3 else ():
        body.insert(rng.randint(0, len(body)), rng.choice(OF_LENGTHS))
    made = tuple(entry for entry in before if entry)
    return Program(made, tuple(body), rng.choice(results), tuple(between), tuple(after), rng.choice(ARGUMENTS))


def check_program(source: str, device: str) -> bool:
    """Runs a program with jit and without; returns whether jit accepted it.

    Raises:
      Wrong: the observed values differ.
    """
    plain, error = _run(source, device, lambda function: function)
    if error is not None:
        return False
    jitted, error = _run(source, device, jit)
    if error is not None and not isinstance(error, JitError):
        raise Wrong(f"with jit: {type(error).__name__}: {error}")
    for number, (right, found) in enumerate(zip(plain, jitted)):
        if not _same(right, found):
            raise Wrong(f"value {number} of {len(plain)} is {found!r} with jit, and {right!r} without.")
    if error is None and len(plain) != len(jitted):
        raise Wrong(f"{len(jitted)} values are seen with jit, and {len(plain)} without.")
    return True


def _run(source: str, device: str, jit: Callable[[Any], Any]) -> tuple[list[Any], Exception | None]:
    """Returns the values that a program shows, and the error that ended it."""
    names: dict[str, Any] = {"__name__": "program"}
    seen: list[Any] = []
    exec(compile(source, "program.py", "exec"), names)
    manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    set_default_device(device)
    try:
        with warnings.catch_warnings():  # about many captures, which programs without jit do not have
            warnings.simplefilter("ignore", UserWarning)
            names["program"](jit, lambda value: seen.append(_plain(value)))
    except Exception as error:
        return seen, error
    finally:
        set_default_device(None)
    return seen, None


def _plain(value: Any) -> Any:
    """Returns a copy of a value that later changes do not affect."""
    if isinstance(value, Tensor):
        return value.detach().numpy().copy()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return sorted(value) if isinstance(value, set) else value


def _same(right: Any, found: Any) -> bool:
    if isinstance(right, np.ndarray):
        is_array = isinstance(found, np.ndarray) and right.shape == found.shape
        return is_array and np.allclose(right, found, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    if isinstance(right, list):
        return isinstance(found, list) and len(right) == len(found) and all(map(_same, right, found))
    if isinstance(right, dict):
        return isinstance(found, dict) and right.keys() == found.keys() and all(_same(right[k], found[k]) for k in right)
    return type(right) is type(found) and right == found


def shrunk(program: Program, device: str) -> Program:
    """Returns the program without the entries that are not necessary for the failure."""
    for place in ("after", "between", "body", "before"):
        for entry in reversed(getattr(program, place)):
            rest: dict[str, Any] = {place: tuple(e for e in getattr(program, place) if e is not entry)}
            smaller = replace(program, **rest)
            if _is_wrong(smaller, device):
                program = smaller
    return program


def _is_wrong(program: Program, device: str) -> bool:
    try:
        check_program(program.source, device)
    except Wrong:
        return True
    return False
