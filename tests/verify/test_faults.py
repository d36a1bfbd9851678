"""Planted faults: each is found, and the kernel, the rule, the pass or the memory that has it is named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.engine.devices import compiler_for, why_not
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.pattern import Pattern, Rule
from picograd.ir.stages import Executable
from picograd.record import replace
from picograd_lab.verify import watch
from tests.verify import faults
from tests.verify.faults import exchange, plant_in_emitter, plant_in_pass, plant_in_rule, plant_in_schedule, swap, with_arg

Plant = Callable[[pytest.MonkeyPatch], None]


def normal(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32))


@dataclass
class Fault:
    """A fault, a program that meets it, and the words by which it is named.

    what:  begins the mismatch
    ops:   stands in its Ops
    """

    plant: Plant
    program: Callable[[], Any]
    what: str
    ops: str = ""


def emitter(change: faults.Change) -> Plant:
    return lambda patch: plant_in_emitter(patch, change)


def rule(name: str, action: Callable[..., Any]) -> Plant:
    return lambda patch: plant_in_rule(patch, name, action)


def causal(x: Tensor) -> Tensor:
    return pg.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


def masked(x: Tensor) -> Tensor:
    return pg.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=normal(16, 16))


def conv() -> Tensor:
    return pg.nn.functional.conv2d(normal(2, 3, 9, 9), normal(4, 3, 3, 3))


def mirrored(size: int) -> Tensor:
    """An image that is mirrored at its edges and then read at places that are rounded products."""
    image = pg.nn.functional.pad(normal(1, 1, 3, 3), (1, 1, 1, 1), mode="reflect")
    return pg.nn.functional.interpolate(image, size=(size, size), mode="nearest")


def recurrence() -> Tensor:
    """A loop that carries a matrix."""
    x = normal(4, 4) * 0.3

    def body(h: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        new = (h @ x + row).tanh()
        return new, new.sum()

    return pg.scan(body, pg.zeros(4, 4), normal(6, 4, 4))[1]


EMITTERS = {
    "a least for a greatest": Fault(
        emitter(with_arg(OpCode.REDUCE, lambda arg: (OpCode.MIN, arg[1]))), lambda: normal(7, 5).amax(1), "kernel", "REDUCE"
    ),
    "a difference the other way": Fault(
        emitter(swap(OpCode.SUB)), lambda: normal(6, 5) - normal(6, 5).sum(), "kernel", "SUB"
    ),
    "a sum for a difference": Fault(
        emitter(exchange(OpCode.SUB, OpCode.ADD)), lambda: normal(9) - normal(9).exp(), "kernel", "SUB"
    ),
    "a quotient the other way": Fault(
        emitter(swap(OpCode.DIV)), lambda: normal(9, 2) / (normal(9, 2).exp() + 1), "kernel", "DIV"
    ),
    "the power of another base": Fault(
        emitter(exchange(OpCode.EXP, OpCode.EXP2)), lambda: normal(8, 3).exp(), "kernel", "EXP"
    ),
    "a cosine": Fault(emitter(exchange(OpCode.SIN, OpCode.COS)), lambda: (normal(11) * 0.1).sin(), "kernel", "SIN"),
    "a sum without its last term": Fault(
        emitter(faults.half_of_terms), lambda: (normal(5, 33) * 2).sum(1), "kernel", "REDUCE"
    ),
    "a greatest for a sum": Fault(
        emitter(
            lambda op: (
                op.replace(arg=(OpCode.MAX, op.arg[1])) if op.code is OpCode.REDUCE and op.arg[0] is OpCode.ADD else None
            )
        ),
        lambda: normal(5, 16).sum(0),
        "kernel",
        "REDUCE",
    ),
    "a block an element too early": Fault(emitter(faults.off_by_one), lambda: normal(8, 4)[3:6] * 2, "kernel", "SHRINK"),
    "zeros at the other end": Fault(
        emitter(with_arg(OpCode.PAD, lambda pads: tuple((b, a) for a, b in pads))),
        lambda: pg.nn.functional.pad(normal(4, 4), (1, 0)) * 2,
        "kernel",
        "PAD",
    ),
    "rows not reversed": Fault(
        emitter(lambda op: op.src[0] if op.code is OpCode.FLIP else None),
        lambda: normal(6, 3).flip(0) + 1,
        "kernel",
        "FLIP",
    ),
    "a sort downwards": Fault(
        emitter(with_arg(OpCode.SORT, lambda arg: (arg[0], not arg[1]))), lambda: normal(17).argsort(), "kernel", "SORT"
    ),
    "a running product": Fault(
        emitter(with_arg(OpCode.SCAN, lambda arg: (OpCode.MUL, arg[1]))), lambda: normal(3, 20).cumsum(1), "kernel", "SCAN"
    ),
    "a convolution flipped": Fault(
        emitter(
            lambda op: (
                op.replace(src=(op.src[0], Op(OpCode.FLIP, op.dtype, (op.src[1],), (2, 3))))
                if op.code is OpCode.CONV
                else None
            )
        ),
        conv,
        "kernel",
        "CONV",
    ),
    "a square product transposed": Fault(
        emitter(swap(OpCode.MATMUL)), lambda: normal(12, 12) @ normal(12, 12).exp(), "kernel", "MATMUL"
    ),
    "every key visible": Fault(
        emitter(with_arg(OpCode.ATTENTION, lambda arg: replace(arg, causal=False))),
        lambda: causal(normal(1, 2, 16, 8)),
        "kernel",
        "ATTENTION",
    ),
    "a choice the other way": Fault(
        emitter(lambda op: op.replace(src=(op.src[0], op.src[2], op.src[1])) if op.code is OpCode.WHERE else None),
        lambda: pg.where(normal(9, 3) > 0, normal(9, 3), -1.0),
        "kernel",
        "WHERE",
    ),
}
INDICES = {
    "places of two axes have one name": Fault(faults.places_with_one_name, lambda: mirrored(4), "kernel", "GATHER"),
    "and some are not certain": Fault(faults.places_with_one_name, lambda: mirrored(7), "kernel", "GATHER"),
    "what is read, the other way": Fault(
        emitter(lambda op: op.replace(src=(-op.src[0], op.src[1])) if op.code is OpCode.GATHER else None),
        lambda: normal(9)[(pg.linspace(0.0, 8.0, 30) * 0.7 + 0.3).int()],
        "kernel",
        "GATHER",
    ),
    "twice what is added": Fault(
        emitter(lambda op: op.replace(src=(*op.src[:2], op.src[2] * 2)) if op.code is OpCode.SCATTER else None),
        lambda: pg.zeros(9).index_add(0, (pg.linspace(0.0, 8.0, 30) * 0.7 + 0.3).int(), normal(30)),
        "kernel",
        "SCATTER",
    ),
}
ROUNDED = {  # what could be anything while nobody knows what rounding does to bits, to extremes and to lost places
    "a product of drawn numbers transposed": Fault(
        emitter(swap(OpCode.MATMUL)), lambda: pg.randn(12, 12) @ pg.randn(12, 12).exp(), "kernel", "MATMUL"
    ),
    "the place of the least for that of the greatest": Fault(
        emitter(
            lambda op: (
                op.replace(arg=(OpCode.MIN, op.arg[1])) if op.code is OpCode.REDUCE and op.arg[0] is OpCode.MAX else None
            )
        ),
        lambda: normal(6, 8).sin().argmax(1),
        "kernel",
        "REDUCE",
    ),
    "the sign of another number": Fault(
        emitter(
            lambda op: op.replace(src=(-op.src[0],)) if op.code is OpCode.BITCAST and op.src[0].code is OpCode.COS else None
        ),
        lambda: normal(9).exp().copysign(normal(9).cos()),
        "kernel",
        "BITCAST",
    ),
    "infinities that are left out of a sum": Fault(
        emitter(faults.half_of_terms),
        lambda: pg.tensor([[1.0, 2.0, float("inf")]] * 2).exp().sum(1),
        "kernel",
        "REDUCE",
    ),
}
WRITTEN = {  # in tables of numbers, and in the text of a language
    "a coefficient of tanh": Fault(faults.in_table("TANH", 0, 3e-5), lambda: (normal(64) * 0.3).tanh(), "kernel", "TANH"),
    "a coefficient of the error function": Fault(
        faults.in_table("ERF", 0, 1e-5), lambda: pg.erf(normal(64) * 0.3), "kernel", "ERF"
    ),
    "a loop that ends early": Fault(
        faults.in_text(r"icmp slt i64 (%i\d+\.next), 33", r"icmp slt i64 \1, 32"),
        lambda: normal(5, 33).cumsum(1),
        "kernel",
        "SCAN",
    ),
    "or equal": Fault(
        faults.in_text("fcmp olt", "fcmp ole"), lambda: normal(9).sign() < normal(9).flip(0).sign(), "kernel", "CMPLT"
    ),
    "a shift without the sign": Fault(
        faults.in_text(r"\bashr\b", "lshr"), lambda: pg.tensor([-8, 9, -7]).int() >> 1, "kernel", "SHR"
    ),
    "unsigned numbers as signed": Fault(
        faults.in_text("icmp ult", "icmp slt"),
        lambda: pg.tensor([200, 3]).to(pg.uint8) < pg.tensor([9, 9]).to(pg.uint8),
        "kernel",
        "CMPLT",
    ),
    "bits of a float cut off": Fault(
        emitter(faults.cut_to_bfloat16), lambda: (normal(7, 9) * 1.0001).to(pg.bfloat16), "kernel", "CAST"
    ),
    "terms in float16": Fault(emitter(faults.summed_in_float16), lambda: normal(4, 60).sum(1), "kernel", "REDUCE"),
    "NaN that does not win": Fault(
        emitter(
            lambda op: (
                Op(OpCode.WHERE, op.dtype, (Op(OpCode.CMPLT, pg.bool_, op.src), *op.src[::-1]))
                if op.code is OpCode.MAX
                else None
            )
        ),
        lambda: pg.tensor([1.0, float("nan")]).maximum(pg.tensor([float("nan"), 1.0])),
        "kernel",
        "MAX",
    ),
    "the last bit of a sum": Fault(
        emitter(lambda op: op * (1 + 2**-23) if op.code is OpCode.ADD and op.dtype.is_float else None),
        lambda: normal(9) + normal(9).flip(0),
        "kernel",
        "ADD",
    ),
    "other random bits": Fault(
        emitter(lambda op: op.replace(src=(op.src[0] + 1, op.src[1])) if op.code is OpCode.THREEFRY else None),
        lambda: pg.rand(9),
        "kernel",
    ),
    "gradients of attention": Fault(
        emitter(lambda op: op.replace(src=(op.src[0] * 1.01, *op.src[1:])) if op.code is OpCode.ATTENTION_GRAD else None),
        lambda: pg.grad(causal(x := normal(1, 2, 16, 8).requires_grad_()).square().sum(), [x])[0],
        "kernel",
        "ATTENTION_GRAD",
    ),
}
RULES = {
    "x^2 becomes x^3": Fault(
        rule("pow two", lambda out: out.src[0] * out.src[0] * out.src[0]),
        lambda: normal(6, 7) ** pg.full((6, 7), 2.0),
        'the rule "pow two"',
        "POW",
    ),
    "a cast to double, left out": Fault(
        rule("cast cast", lambda out: out.filled(0)), lambda: normal(5).double().float() * 2, 'the rule "cast cast"', "CAST"
    ),
    "zeros on one side only": Fault(
        rule(
            "pad pad",
            lambda out: (
                out.src[0]
                if out.shape == out.src[0].shape
                else out.replace(
                    src=(out.src[0].src[0],),
                    arg=tuple((a + c + b + d, 0) for (a, b), (c, d) in zip(out.src[0].arg, out.arg)),
                )
            ),
        ),
        lambda: pg.nn.functional.pad(pg.nn.functional.pad(normal(4, 4), (1, 0)), (2, 3)) * 2,
        'the rule "pad pad"',
        "PAD",
    ),
    "the other branch": Fault(
        rule("where constant", lambda out: out.src[2]),
        lambda: pg.where(pg.ones(5, dtype=pg.bool_), normal(5), 1.0),
        'the rule "where constant"',
        "WHERE",
    ),
    "a least of greatest": Fault(
        rule("reduce reduce", lambda out: out.replace(arg=(OpCode.MIN, out.arg[1]))),
        lambda: normal(4, 5, 6).amax(2).amax(1),
        'the rule "reduce reduce"',
        "REDUCE",
    ),
    "-(-x) = -x": Fault(rule("neg neg", lambda x: -x), lambda: (normal(5) + 1).neg().neg(), 'the rule "neg neg"', "NEG"),
    "x 1 = 1": Fault(
        rule("mul one", lambda x: x.filled(1)), lambda: normal(5, 5).exp() * pg.ones(5, 5), 'the rule "mul one"', "MUL"
    ),
    "flips that do not add up": Fault(
        rule("flip flip", lambda out: out.src[0].src[0]),
        lambda: normal(5, 6).flip(0).flip(1) * 2,
        'the rule "flip flip"',
        "FLIP",
    ),
    "-(-x) = -x, behind a function of the host": Fault(
        rule("neg neg", lambda x: -x),
        lambda: pg.linalg.inv(normal(3, 3) + pg.eye(3)).neg().neg(),
        'the rule "neg neg"',
        "NEG",
    ),
    "x 0 = 0, of infinity, too": Fault(
        lambda patch: faults.plant_new_rule(
            patch, Rule("float zero", Pattern(OpCode.MUL, (Pattern(name="x"), Pattern(value=0.0))), lambda x: x.filled(0))
        ),
        lambda: pg.tensor([float("inf"), 2.0]).neg() * 0.0,
        'the rule "float zero"',
        "MUL",
    ),
    "a block of a block from its start": Fault(
        rule("shrink shrink", lambda out: out.replace(src=out.src[0].src)),
        lambda: normal(20)[4:12][2:5] + 1,
        'the rule "shrink shrink"',
        "SHRINK",
    ),
}
PASSES = {
    "attention composed without its scale": Fault(
        lambda patch: plant_in_pass(patch, "compose_attention", exchange(OpCode.EXP, OpCode.EXP2)),
        lambda: masked(normal(1, 2, 16, 8)),
        "the pass compose_attention",
    ),
    "a product contracted the wrong way": Fault(
        lambda patch: plant_in_pass(patch, "contract", swap(OpCode.MATMUL)),
        lambda: normal(8, 8) @ normal(8, 8).exp(),
        "create_schedule",
    ),
    "a loop that carries nothing": Fault(
        lambda patch: plant_in_schedule(patch, faults.without_carry), recurrence, "create_schedule"
    ),
}


def twelve_runs() -> None:
    """A plan that runs often; the eighth run is compared."""
    double = pg.jit(lambda x: (x * 2).sum())
    for n in range(12):
        double(normal(5) + n).item()


def chain() -> Tensor:
    """Three products, whose results are temporaries that are needed at the same time."""
    x = normal(16, 16)
    a, b, c = x @ x, (x + 1) @ x, (x + 2) @ x
    return ((a @ b) @ c) + (c @ a)


MEMORY = {
    "kernels in another order": Fault(
        lambda patch: plant_in_schedule(patch, faults.in_other_order), chain, "the memory of a plan"
    ),
    "an input is written over": Fault(
        lambda patch: faults.plant_in_runs(patch, "CPU", faults.scribbling),
        lambda: chain().sum().item(),
        "the memory of a plan",
    ),
    "a run that is left out": Fault(
        lambda patch: faults.plant_in_runs(patch, "CPU", faults.left_out),
        lambda: chain().sum().item(),
        "the memory of a plan",
    ),
    "a run that is wrong from the sixth on": Fault(
        lambda patch: faults.plant_in_runs(patch, "CPU", faults.from_the_sixth_run_on), twelve_runs, "the memory of a plan"
    ),
    "a length of one less": Fault(
        lambda patch: faults.plant_in_runs(patch, "CPU", faults.one_less),
        lambda: (normal(64, 3)[: pg.Variable("n", 1, 64).bind(20)] * 2).sum(0),
        "the memory of a plan",
    ),
    "inputs exchanged": Fault(
        lambda patch: faults.plant_in_runs(patch, "CPU", faults.exchanged),
        lambda: normal(9) - normal(9, 1)[:, 0].exp(),
        "the memory of a plan",
    ),
    "temporaries share their memory": Fault(
        lambda patch: plant_in_schedule(patch, faults.all_in_one_place), chain, "the memory of a plan"
    ),
}
ALL = {**EMITTERS, **INDICES, **ROUNDED, **WRITTEN, **RULES, **PASSES, **MEMORY}


def verdict_of(fault: Fault, monkeypatch: pytest.MonkeyPatch, device: str) -> Any:
    faults.nothing_is_kept(monkeypatch, device)
    monkeypatch.setenv("PICOGRAD_DEVICE", device)
    right = pg.verify(fault.program)
    assert right, f"an alarm without the fault:\n{right}"
    faults.nothing_is_kept(monkeypatch, device)
    fault.plant(monkeypatch)
    return pg.verify(fault.program)


@pytest.mark.parametrize("name", ALL)
def test_a_fault_is_found_and_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = ALL[name]
    found = verdict_of(fault, monkeypatch, "CPU").first
    assert found is not None, "it was not found"
    assert found.what.startswith(fault.what), found
    assert fault.ops in found.ops, found
    assert any(line.file == __file__ for line in found.lines), found
    if fault in MEMORY.values():  # it is that of a whole plan
        return
    assert "The smallest input that shows it has" in found.fact, found
    with pytest.raises(AssertionError):
        exec(compile(found.script, "shown.py", "exec"), {})


@pytest.mark.parametrize("device", ["C", "CUDASIM"])
@pytest.mark.parametrize("name", ["a least for a greatest", "a sum without its last term", "a quotient the other way"])
def test_a_fault_in_an_emitter_is_found_on_other_devices(device: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why_not(device):
        pytest.skip(f"there is no {device} here")
    found = verdict_of(ALL[name], monkeypatch, device).first
    assert found is not None and found.what.startswith("kernel") and found.what.endswith(device)


def test_the_script_of_a_mismatch_shows_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault is gone in another process, so the script ends without an error there; here it raises Wrong."""
    found = verdict_of(EMITTERS["a difference the other way"], monkeypatch, "CPU").first
    assert "has 2 elements and 3 Ops" in found.fact, found
    script = tmp_path / "shown.py"
    script.write_text(found.script)
    with pytest.raises(AssertionError, match="elements are wrong"):
        exec(compile(found.script, str(script), "exec"), {})
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_plan_whose_kernels_are_others_is_compared_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of an earlier process may be, which was made otherwise."""
    faults.nothing_is_kept(monkeypatch, "CPU")
    monkeypatch.setattr(watch, "_is_same", lambda ours, theirs: False)
    right = pg.verify(chain)
    assert right and any("compared as a whole" in note for note in right.notes)
    faults.nothing_is_kept(monkeypatch, "CPU")
    plant_in_emitter(monkeypatch, swap(OpCode.MATMUL))
    found = pg.verify(chain).first
    assert found is not None and found.what == "a plan kept on disk" and found.lines


def test_code_of_another_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale entry of the cache: it is compiled again, and then it is right, which is said."""
    faults.nothing_is_kept(monkeypatch, "CPU")
    compiler = compiler_for("CPU")
    x = normal(31)
    right = compiler.executables

    def stale(kernels: Any, tune: bool = False) -> list[Executable]:
        monkeypatch.setattr(compiler, "executables", right)
        (code,) = right(kernels, tune)
        other = (x.cos()).realize() is not None and list(compiler._made.values())[-1]
        return [other if other is not code else code]

    monkeypatch.setattr(compiler, "executables", stale)
    found = pg.verify(lambda: x.exp()).first
    assert found is not None and "Compiled again it is right" in found.fact
