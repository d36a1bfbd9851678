"""Errors from within a realize show the user's line that made the Op at fault, not the one that asked for its value."""

from __future__ import annotations

import inspect
import os

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.devices.cpu.render import render
from picograd.engine.compiler import Backend
from picograd.engine.devices import compiler_for
from picograd.engine.plan import parametrize, template
from picograd.errors import CompileError, UnsupportedOp, VerifyError
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.origin import line_of
from picograd.ir.spec import verify_graph
from picograd.rewrites.simplify import simplify_graph
from picograd.road import create_schedule

HERE = os.path.basename(__file__)


def made_at(function) -> str:
    """Returns how an error names the line marked "# here" in a function of this file."""
    lines, start = inspect.getsourcelines(function)
    number = next(i for i, line in enumerate(lines) if line.rstrip().endswith("# " + "here"))
    return f"  at {HERE}:{start + number}    {lines[number].strip()}"


@pytest.fixture
def broken_compiler(monkeypatch: pytest.MonkeyPatch):
    """A CPU whose compiler rejects everything, and has no kernels of tests before."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setenv("PICOGRAD_CACHE", "off")

    def reject(source, target):
        raise CompileError(f"llvm rejected kernel {source.name} for any.")

    for name, value in (("backend", Backend(render, reject)), ("_made", {}), ("_by_entry", {})):
        monkeypatch.setattr(compiler_for("CPU"), name, value)


@pytest.mark.req("B6")
def test_a_rejected_kernel_names_the_line_of_what_it_computes(broken_compiler):
    x = Tensor(np.ones(10007, np.float32))
    y = x.tanh() * 3.5  # here
    with pytest.raises(CompileError) as caught:
        y.numpy()
    assert str(caught.value) == (
        "llvm rejected kernel elementwise_10007 for any.\n"
        + made_at(test_a_rejected_kernel_names_the_line_of_what_it_computes)
    )


@pytest.mark.req("B6")
def test_a_rejected_gradient_names_the_line_it_is_the_gradient_of(broken_compiler):
    x = Tensor(np.ones(10009, np.float32), requires_grad=True)
    y = x.sin()  # here
    weights = Tensor(np.ones(10009, np.float32))
    y.backward(weights)
    with pytest.raises(CompileError) as caught:
        x.grad.numpy()
    here = made_at(test_a_rejected_gradient_names_the_line_it_is_the_gradient_of)
    assert str(caught.value) == f"llvm rejected kernel elementwise_10009 for any.\n{here}"


@pytest.mark.req("B6")
def test_what_has_no_kernel_names_its_line(monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x = Tensor(np.ones((1, 2, 9), np.float32))
    y = Tensor.from_op(Op(OpCode.COLLECTIVE, x.dtype, (x.op,), ("sum", 0)), "CPU")  # here
    with pytest.raises(UnsupportedOp) as caught:
        (y * 2).numpy()
    assert str(caught.value) == (
        f"COLLECTIVE: no kernel can be generated for it.\n{made_at(test_what_has_no_kernel_names_its_line)}\n"
        "  hint: PICOGRAD_DEVICE=NUMPY runs every operation"
    )


@pytest.mark.req("B6")
def test_a_broken_graph_names_the_line_of_the_op(monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x = Tensor(np.ones(3, np.float32))
    y = Tensor.from_op(Op(OpCode.IDIV, pg.bool_, (x.op, x.op)), "CPU")  # here
    with pytest.raises(VerifyError) as caught:
        verify_graph([y.op], after="test")
    text = str(caught.value)
    assert text.startswith("after pass test, IDIV breaks rule 'the dtype of an elementwise result' of spec GRAPH.\n")
    assert text.endswith(made_at(test_a_broken_graph_names_the_line_of_the_op))


def test_lines_live_through_every_pass(monkeypatch):
    """From the user's Op to the Kernel: parametrize, simplify, contract and create_schedule copy them."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    a, b = Tensor(np.ones((5, 7), np.float32)), Tensor(np.ones((7, 11), np.float32))
    product = a @ b
    result = (product + 0.0) * 1.0 - 2.25  # here
    graphs = simplify_graph(parametrize([result.op], template([result.op])))
    kernel = create_schedule(graphs).items[-1].kernel
    ((_, value),) = kernel.phases[-1][-1].outputs
    assert f"  at {line_of(value)}" == made_at(test_lines_live_through_every_pass)


def test_an_equal_graph_of_another_line_names_its_own(broken_compiler):
    """What is interned is shared; the lines are those of the graph that was asked for last."""
    x = Tensor(np.ones(10037, np.float32))
    first = x.exp() * 0.5
    with pytest.raises(CompileError):
        first.numpy()
    z = Tensor(np.ones(10037, np.float32))
    second = z.exp() * 0.5  # here
    with pytest.raises(CompileError) as caught:
        second.numpy()
    assert str(caught.value).endswith(made_at(test_an_equal_graph_of_another_line_names_its_own))
