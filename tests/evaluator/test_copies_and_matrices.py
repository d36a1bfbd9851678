"""Copies in the background and matrices that a warp brings: the evaluator, the simulator, PTX run here and NumPy agree."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from picograd.codegen.passes.bounds import prove_bounds
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.errors import DeviceError, VerifyError
from picograd.evaluator.program import evaluate_program
from picograd.ir.spec import verify_program
from picograd.ir.stages import Program
from picograd.ir.text_program import format_program
from picograd_lab.reader import parse_program
from tests import ptx_on_host
from tests.gpu_programs import Array, run
from tests.host_compilers import needs_compiler

# Four matrices of 8 x 8, one below the other: a thread stores what it has of them.
BROUGHT = """program brought
  param p0: in float16[256]
  param p1: out float16[256]
  memory p0 = 0 float16 (256,)
  memory p1 = 1 float16 (256,)
  phase
    for r0 in grid(1):
      alloc s: float16[256] shared
      for r1 in block(32):
        alloc r: float16[8] register
        v1: int64 = r1 * 8
        copy 8 to s[v1] of p0[v1]
        commit copies
        wait for copies but 0
        barrier
        matrices to r[0] of s[v1]
""" + "\n".join(
    f"""        load x{i}: float16 = r[{i}]
        y{i}: int64 = v1 + {i}
        p1[y{i}] = x{i}"""
    for i in range(8)
)
# y[t] = x[31 - t] of the first tile + of the second one, which comes while the first is read; of 40 elements there are 64.
PIPED = """program piped
  param p0: in float32[40]
  param p1: out float32[32]
  memory p0 = 0 float32 (40,)
  memory p1 = 1 float32 (32,)
  phase
    for r0 in grid(1):
      alloc s: float32[64] shared
      for r1 in block(32):
        v1: int64 = r1 + 32
        v2: bool = v1 < 40
        copy 1 to s[r1] of p0[r1]
        commit copies
        copy 1 to s[v1] of p0[v1] when v2
        commit copies
        wait for copies but 1
        barrier
        v3: int64 = 31 - r1
        load v4: float32 = s[v3]
        wait for copies but 0
        barrier
        v5: int64 = 63 - r1
        load v6: float32 = s[v5]
        v7: float32 = v4 + v6
        p1[r1] = v7"""


def on_the_evaluator(program: Program, arrays: list[Array]) -> None:
    evaluate_program(program, arrays)


def on_the_simulator(order: str) -> Callable[[Program, list[Array]], None]:
    def compute(program: Program, arrays: list[Array]) -> None:
        device = CudaSimDevice(order, seed=1)
        run(device, device.load(hostcxx.compile_source(render(program, TARGET), TARGET)), arrays)

    return compute


def by_ptx(program: Program, arrays: list[Array]) -> None:
    device, backend = ptx_on_host.HostDevice("shuffled", seed=1), ptx_on_host.make_compiler().backend
    compiled = backend.compile(backend.render(program, ptx_on_host.TARGET), ptx_on_host.TARGET)
    run(device, device.load(compiled), arrays)


WAYS = [
    pytest.param(on_the_evaluator, id="evaluator"),
    *[pytest.param(on_the_simulator(order), id=order, marks=needs_compiler) for order in ORDERS],
    pytest.param(by_ptx, id="ptx", marks=needs_compiler),
]
Way = Callable[[Program, list[Array]], None]


def program_of(text: str) -> Program:
    program = parse_program(text)
    verify_program(program, after="test")
    assert parse_program(format_program(program)) == program
    return program


@pytest.mark.parametrize("compute", WAYS)
@pytest.mark.parametrize("transposed", [False, True], ids=["as they are", "transposed"])
def test_a_warp_brings_matrices(transposed: bool, compute: Way) -> None:
    text = BROUGHT.replace("matrices", "transposed matrices") if transposed else BROUGHT
    x, found = np.arange(256).astype(np.float16), np.zeros(256, np.float16)
    compute(program_of(text), [x, found])
    matrices = x.reshape(4, 8, 8)
    if transposed:
        matrices = matrices.transpose(0, 2, 1)
    expected = np.stack([matrices[:, lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2].reshape(8) for lane in range(32)])
    np.testing.assert_array_equal(found.reshape(32, 8), expected)


@pytest.mark.parametrize("compute", WAYS)
def test_copies_arrive_group_by_group(compute: Way) -> None:
    x, found = np.arange(40, dtype=np.float32), np.zeros(32, np.float32)
    compute(program_of(PIPED), [x, found])
    np.testing.assert_array_equal(found, x[:32][::-1] + np.pad(x[32:], (0, 24))[::-1])


MISTAKES = {
    "a wait that leaves the last group": ("wait for copies but 0", "wait for copies but 1"),
    "no wait": ("        wait for copies but 1\n", ""),
    "groups in one": ("        commit copies\n        wait for copies but 1", "        wait for copies but 1"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("compute", WAYS[:2])
def test_what_has_not_arrived_cannot_be_read(mistake: str, compute: Way) -> None:
    right, wrong = MISTAKES[mistake]
    assert right in PIPED
    arrays: list[Array] = [np.zeros(40, np.float32), np.zeros(32, np.float32)]
    with pytest.raises((VerifyError, DeviceError), match="where nothing has been stored|a copy is on its way"):
        compute(program_of(PIPED.replace(right, wrong, 1)), arrays)


@pytest.mark.parametrize("compute", WAYS[:2])
@pytest.mark.parametrize("wrong", ["s[v1] of p0[r1]", "s[r1] of p0[v1]"])
def test_a_copy_of_several_is_between_multiples(wrong: str, compute: Way) -> None:
    text = BROUGHT.replace("s[v1] of p0[v1]", f"{wrong} when v2")
    text = text.replace("        copy 8", "        v2: bool = r1 < 0\n        copy 8")
    arrays: list[Array] = [np.zeros(256, np.float16), np.zeros(256, np.float16)]
    with pytest.raises((VerifyError, DeviceError), match="no multiple|not multiples"):
        compute(program_of(text), arrays)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (PIPED.replace("alloc s: float32[64] shared", "alloc s: float32[64] register"), "an asynchronous copy is from"),
        (PIPED.replace("alloc s: float32", "alloc s: int32"), "an asynchronous copy is from"),
        (PIPED.replace("copy 1", "copy 3"), "an asynchronous copy has 4, 8 or 16 bytes"),
        (PIPED.replace("but 1", "but -1"), "a wait leaves zero or more groups"),
        (BROUGHT.replace("of s[v1]\n        load", "of r[0]\n        load"), "matrices are loaded from SHARED memory"),
        (BROUGHT.replace("float16", "float32").replace("copy 8", "copy 4"), "loaded matrices have elements"),
    ],
)  # fmt: skip
def test_rules(text: str, rule: str) -> None:
    with pytest.raises(VerifyError, match=rule):
        program_of(text)


def test_bounds_are_proved_and_guarded() -> None:
    """A copy that may read past the end reads nothing there; one that may write past the end is refused."""
    assert prove_bounds(program_of(PIPED), iter(range(100, 200))).num_guards == 0
    unsure = program_of(PIPED.replace(" when v2", ""))
    guarded = prove_bounds(unsure, iter(range(100, 200)))
    assert guarded.num_guards == 1
    x, found = np.arange(40, dtype=np.float32), np.zeros(32, np.float32)
    evaluate_program(guarded, [x, found])
    np.testing.assert_array_equal(found, x[:32][::-1] + np.pad(x[32:], (0, 24))[::-1])
    with pytest.raises(VerifyError, match="may be outside its memory"):
        prove_bounds(program_of(PIPED.replace("s: float32[64]", "s: float32[40]")), iter(range(100, 200)))
