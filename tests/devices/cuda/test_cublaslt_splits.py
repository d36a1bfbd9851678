"""Kernels of which cuBLASLt computes the product, on a fake of it: what is generated around it, and epilogues of its own.

Results are compared with the evaluator's; how often the library was called tells who computed them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_driver import TUNED, run_on
from tests.helpers import in_full

pytestmark = pytest.mark.req("E4")

MODES = pytest.mark.parametrize("eager", [{}, {"FAKE_DRIVER_EAGER": "0"}, {"FAKE_DRIVER_EAGER": "1"}], ids=str)
# Functions of tensors, run on the fake and on the evaluator: calls of the library and launches of a run, and the error.
FORMS = TUNED + """
import picograd.nn.functional as F
h, b16 = pg.float16, pg.bfloat16
def arrays(*shapes):
    return [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)]
def on(device, form, given):
    made = form(*[pg.Tensor(array, device=device) for array in given])
    return [t.float().numpy() for t in (made if isinstance(made, tuple) else (made,))]
def compared(form, *shapes, eps=2e-5):
    given = arrays(*shapes)
    expected = on("NUMPY", form, given)
    step = pg.jit(form, tune=True)
    for turn in range(3):
        calls.clear()
        with watch() as counts:
            made = step(*[pg.Tensor(array, device="CUDA") for array in given])
        num_calls = len(calls)  # the first time those of tuning are among them
        for wanted, got in zip(expected, made if isinstance(made, tuple) else (made,)):
            np.testing.assert_allclose(got.float().numpy(), wanted, rtol=eps, atol=16 * eps)
    return num_calls, counts.kernels, counts.launches
def linear(x, w, b):
    return F.linear(x, w, b)
def cast(form, dtype=h):
    def under(*given):
        with pg.autocast(dtype=dtype):
            return form(*given)
    return under
def gradients(x, w, b, to):
    x, w, b = (t.requires_grad_() for t in (x, w, b))
    with pg.autocast(dtype=h):
        y = F.linear(x, w, b)
    (y.float() * to).sum().backward()
    return y.detach(), x.grad, w.grad, b.grad
LAYER = (40, 70), (50, 70), (50,)
"""


def test_products_in_larger_kernels_are_the_librarys_and_right(fake_driver: Path, cache: dict[str, str]) -> None:
    """Calls of the library, kernels and launches: a kernel stays one, whatever it is launched in."""
    code = FORMS + """
def attention(x, w, b):  # (2, 20, 24): three heads of 8
    q, k, v = F.linear(x, w, b).reshape(2, 20, 3, 3, 8).permute(2, 0, 3, 1, 4).unbind(0)
    weights = (q @ k.transpose(-1, -2) * 0.35).softmax(-1)
    return F.linear((weights @ v).transpose(1, 2).reshape(2, 20, 24), w[:24])
widen = lambda a, b: a.half().contiguous().float() @ b.half().contiguous().float()
print(*compared(lambda x, w, b: linear(x, w, b).relu(), *LAYER), "relu")
print(*compared(lambda x, w, b, r: F.gelu(linear(x, w, b)) + r, *LAYER, (40, 50)), "gelu, residual")
print(*compared(lambda x, w, b, r: r + linear(x, w, b), *LAYER, (40, 50)), "residual")
print(*compared(lambda x, w, r: r - 0.1 * (x @ w.T), *LAYER[:2], (40, 50)), "sgd")
print(*compared(cast(linear), *LAYER, eps=2e-3), "autocast")
print(*compared(cast(linear, b16), *LAYER, eps=2e-2), "autocast to bfloat16")
print(*compared(cast(lambda x, w, b: linear(x, w, b).relu()), *LAYER, eps=2e-3), "autocast, relu")
print(*compared(gradients, *LAYER, (40, 50), eps=2e-3), "autocast, gradients")
print(*compared(widen, (40, 70), (70, 50), eps=2e-3), "widened")
print(*compared(lambda x, w: (x * (x > 0)) @ (w * 2).T, *LAYER[:2]), "masked")
print(*compared(attention, (2, 20, 24), (72, 24), (72,)), "attention")
print(*compared(lambda t, x: t[(x[0] > 0).long() * 3] @ x, (9, 40), (40, 50)), "rows that are looked up")
"""
    said = run_on(fake_driver, code, **cache).splitlines()
    assert said == [
        "1 1 1 relu",
        "1 1 2 gelu, residual",
        "1 1 1 residual",
        "1 1 1 sgd",
        "1 1 2 autocast",
        "1 1 2 autocast to bfloat16",
        "1 1 2 autocast, relu",
        "3 4 9 autocast, gradients",
        "1 2 2 widened",
        "1 1 2 masked",
        "4 5 8 attention",
        "1 1 2 rows that are looked up",
    ]


def test_epilogues_are_the_librarys_own_bits(fake_driver: Path, cache: dict[str, str]) -> None:
    """In float32 they are those of the generated rest; where a bias begins, and a part of a residual, is no matter."""
    code = FORMS + """
x, w, b, r = held(40, 70), held(70, 50), held(53)[3:], held(41, 53)[1:, 2:52]
product = backwards(x.numpy(), w.numpy())
bias, residual = b.numpy(), r.numpy()
forms = {
    "bias": (lambda: x @ w + b, product + bias),
    "relu": (lambda: (x @ w).relu(), np.maximum(product, 0)),
    "bias, relu": (lambda: (x @ w + b).relu(), np.maximum(product + bias, 0)),
    "scale": (lambda: x @ w * 0.25, product * np.float32(0.25)),
    "residual": (lambda: r + x @ w, product + residual),
    "less": (lambda: r - 0.5 * (x @ w), residual - np.float32(0.5) * product),
    "all": (lambda: (2 * (x @ w) + r + b).relu(), np.maximum(2 * product + residual + bias, 0)),
    "batch": (lambda: (x.reshape(2, 20, 70) @ w + b).relu(), np.maximum(product + bias, 0).reshape(2, 20, 50)),
}
for name, (form, expected) in forms.items():
    got = pg.jit(form, tune=True)
    for turn in range(2):
        calls.clear()
        if not np.array_equal(got().numpy(), expected) or len(calls) != 1 + (turn == 0):
            print(name, turn, len(calls), abs(got().numpy() - expected).max())
"""
    assert run_on(fake_driver, code, **cache) == ""


@pytest.mark.variants(every=3)
@MODES
def test_a_split_runs_again_on_other_memory(fake_driver: Path, cache: dict[str, str], eager: dict[str, str]) -> None:
    """What is stored in between lies in the plan's arena: a run allocates its result, and nothing else."""
    code = FORMS + """
form = cast(lambda x, w, b: F.gelu(F.linear(x.softmax(-1), w, b)).float().softmax(-1))
step = pg.jit(form, tune=True)
given = [arrays(*LAYER)] + [[a * (i + 1) for a in arrays(*LAYER)] for i in range(5)]
kept, allocated = [], []
real = device._allocate
for one in given:
    tensors = [pg.Tensor(array, device="CUDA").realize() for array in one]
    numbers = []
    device._allocate = lambda nbytes, *rest, **more: (numbers.append(nbytes), real(nbytes, *rest, **more))[1]
    calls.clear()
    kept.append(step(*tensors))
    del device._allocate
    allocated.append((numbers, len(calls)))
expected = [on("NUMPY", form, one)[0] for one in given]
print(max(abs(got.numpy() - wanted).max() for got, wanted in zip(kept, expected)) < 2e-3)
print(allocated[2:] == [([40 * 50 * 4], 1)] * 4)
"""
    assert run_on(fake_driver, code, **cache, **eager).splitlines() == ["True", "True"]


@pytest.mark.variants(every=3)
@pytest.mark.parametrize(
    # How many products are added to a matrix, and of these stored there. In float32 the last layer's is added to -y, which
    # the loss is made of.
    ("optimizer", "amp", "added"),
    [
        ("SGD(net.parameters(), lr=0.05)", False, "1 0"),  # a rate is an input, and the library's scale is a number
        # One kernel stores an average and its weight with the product; the library takes the product alone.
        ("SGD(net.parameters(), lr=0.05, momentum=0.9)", False, "1 0"),
        ("SGD(net.parameters(), lr=0.05, momentum=0.9)", True, "0 0"),  # a gradient of 16 bits is widened first
        ("Adam(net.parameters(), lr=0.01)", True, "0 0"),
    ],
)
def test_a_network_trains_as_on_the_evaluator(
    fake_driver: Path, cache: dict[str, str], optimizer: str, amp: bool, added: str
) -> None:
    """The update of a weight is the epilogue of the product that is its gradient, and is written where the weight was."""
    code = FORMS + f"""
in_place = [0, 0]
def looked_at(self, addresses, stream, call=cublaslt.ProductCall.__call__):
    added, out = self._product.epilogue.added, self._product.out
    if added is not None:
        in_place[0] += 1
        in_place[1] += addresses[added.slot] == addresses[out]
    call(self, addresses, stream)
cublaslt.ProductCall.__call__ = looked_at
def losses(device):
    pg.manual_seed(0)
    net = pg.nn.Sequential(pg.nn.Linear(20, 32), pg.nn.GELU(), pg.nn.Linear(32, 10)).to(device)
    steps = pg.optim.{optimizer}
    def step(x, y):
        with pg.autocast(dtype=h, enabled={amp}):
            loss = F.mse_loss(net(x).float(), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        return loss
    step, data = pg.jit(step, tune=device == "CUDA"), arrays(*[(24, 20), (24, 10)] * 4)
    found = [float(step(*(pg.Tensor(a, device=device) for a in data[2 * i : 2 * i + 2])).item()) for i in range(4)]
    calls.clear()
    in_place[:] = 0, 0
    found += [float(step(*(pg.Tensor(a, device=device) for a in data[:2])).item())]
    return [*found, *[float(p.float().square().sum().item()) for p in net.parameters()]]
cuda = losses("CUDA")
print(len(calls), *in_place)
eps = 5e-3 if {amp} else 1e-4
np.testing.assert_allclose(cuda, losses("NUMPY"), rtol=eps)
"""
    # two products forward, one of a gradient by what came in, two by weights
    assert run_on(fake_driver, code, **cache) == f"5 {added}"


def test_an_index_out_of_range_is_an_error_and_the_next_run_is_right(fake_driver: Path, cache: dict[str, str]) -> None:
    code = FORMS + """
from picograd.errors import IndexingError
table, w = held(9, 40), held(40, 50)
step = pg.jit(lambda i: F.gelu(table[i] @ w), tune=True)
def run(*numbers):
    return step(pg.Tensor(np.array(numbers * 8), device="CUDA"))
first = run(1, 3).numpy()
try:
    run(1, 9).numpy()
except IndexingError as error:
    print("9" in error.fact)
calls.clear()
print(np.array_equal(run(1, 3).numpy(), first), len(calls))
"""
    assert run_on(fake_driver, code, **cache).splitlines() == ["True", "True 1"]


# ---- what is kept and shown ----
def test_a_second_process_times_and_compiles_nothing(fake_driver: Path, cache: dict[str, str]) -> None:
    code = FORMS + """
x, w, b = held(40, 70), held(50, 70), held(50)
with watch() as counts:
    got = pg.jit(cast(lambda: F.gelu(linear(x, w, b)).float().softmax(-1)), tune=True)().numpy()
print(counts.timed > 0, counts.lowered > 0, counts.compiled > 0, len(calls) > 0, counts.launches, got.tobytes().hex())
"""
    first, second = (run_on(fake_driver, code, **cache).split() for _ in range(2))
    assert first[:5] == ["True", "True", "True", "True", "4"]
    assert second[:5] == ["False", "False", "False", "True", "4"]
    assert first[5:] == second[5:]


def test_who_looks_on_sees_what_runs(fake_driver: Path, cache: dict[str, str]) -> None:
    code = FORMS + """
x, w, b = held(40, 70), held(50, 70), held(50)
y = cast(lambda: F.gelu(linear(x, w, b)))()
print(pg.explain(y, stages=["choice", "program", "source"]))
y.realize()
step = pg.jit(cast(lambda: F.gelu(linear(x, w, b))))
step(), step()
print("times of", *[name for name, _ in pg.cuda.kernel_times(step)])
"""
    environment = {**cache, "PICOGRAD_VERIFY": "1", "PICOGRAD_TUNE": "1"}
    said = run_on(fake_driver, code, PICOGRAD_SHOW="choice,source,plan", **environment).splitlines()
    choices = [line for line in said if "cuBLASLt" in line]
    nbytes = 2 * (40 * 70 + 50 * 70 + 40 * 50)
    assert any(line.startswith("choice cuBLASLt") for line in choices)
    assert all(line.endswith(f" bytes; as launch 2 of 3, with {nbytes} bytes in between") for line in choices)
    names = [f"matmul_40_50_{part}" for part in ("split_0", "library", "split_1")]
    assert "times of " + " ".join(names) in said
    at = said.index("plan of 1 kernels, 3 launches")
    assert [line.split()[0] for line in said[at + 1 : at + 4]] == names
    assert sum("__global__" in line for line in said) > 0
    assert any(line.strip().startswith("nest matmul") for line in said)


def test_nothing_is_split_where_nothing_is_timed_or_the_library_is_left_out(
    fake_driver: Path, cache: dict[str, str]
) -> None:
    code = FORMS + """
def run(tune):
    calls.clear()
    given = [pg.Tensor(array, device="CUDA") for array in arrays(*LAYER)]
    with watch() as counts:
        pg.jit(cast(lambda x, w, b: F.gelu(linear(x, w, b))), tune=tune)(*given)
    return len(calls) > 0, counts.launches
print(*run(True), *run(False))
"""
    assert run_on(fake_driver, code, **cache) == "True 3 False 1"
    assert run_on(fake_driver, code, PICOGRAD_PLAIN_SUMS="1", **cache) == "False 1 False 1"


def test_all_launches_of_a_split_are_timed(fake_driver: Path, cache: dict[str, str]) -> None:
    code = FORMS + """
launched = []
def counting(kernel, found, device, make):
    run = tune._started(kernel, found[-1], device, make)
    device.queue.laps = []  # what is submitted one by one
    run(2)
    launched.extend(name for name, *_ in device.queue.laps)
    device.queue.laps = None
    return [[2.0] * 9 for _ in found[1:]] + [[1.0] * 9]
tune.time_candidates = counting
compared(cast(lambda x, w, b: F.gelu(linear(x, w, b))), *LAYER, eps=2e-3)
print(*launched)
"""
    one_run = " ".join(f"matmul_40_50_{part}" for part in ("split_0", "library", "split_1"))
    assert run_on(fake_driver, code, **cache) == f"{one_run} {one_run}"


@in_full
def test_a_library_that_is_slower_is_not_taken(fake_driver: Path, cache: dict[str, str]) -> None:
    real = FORMS.replace("tune.time_candidates = library_wins", "tune.SAMPLE_SECONDS_MIN, tune.ROUNDS = 1e-6, 3")
    code = real + "print(*compared(lambda x, w, b: F.gelu(linear(x, w, b)), *LAYER))"
    assert run_on(fake_driver, code, FAKE_CUBLASLT_SLOW="1", **cache) == "0 1 1"


# ---- what fails ----
REASON = "cuBLASLt: cublasLtMatmulDescSetAttribute failed with 7 (CUBLAS_STATUS_INVALID_VALUE)."


def test_a_library_without_epilogues_leaves_them_to_generated_code(fake_driver: Path, cache: dict[str, str]) -> None:
    code = FORMS + """
with watch() as counts:
    print(*compared(lambda x, w, b: linear(x, w, b).relu(), *LAYER))
print(counts.library_failures)
"""
    said = run_on(fake_driver, code, FAKE_CUBLASLT_OLD="1", PICOGRAD_SHOW="choice", **cache).splitlines()
    assert "1 1 2" in said and "1" in said
    library = "cuBLASLt 13.99.7 for 132 multiprocessors (plus a bias, relu)"
    assert [line for line in said if "not a candidate" in line] == [
        f"matmul_40_50: {library} is not a candidate: {REASON}"
    ]


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        ("cublasLtMatmulAlgoGetHeuristic", "1 1 2 1"),  # of the epilogue: without it, it has an algorithm
        ("cublasLtMatmulDescSetAttribute", "1 1 2 1"),
        ("cublasLtMatmul", "0 1 1 1"),  # while it is timed
    ],
)
def test_a_call_that_fails_leaves_out_what_it_was_for(
    fake_driver: Path, cache: dict[str, str], failing: str, expected: str
) -> None:
    code = FORMS + f"""
real, counted_calls = cublaslt_calls.library(), []
class Failing:
    def __getattr__(self, name):
        found = getattr(real, name)
        def called(*arguments):
            counted_calls.append(name)
            return 15 if name == "{failing}" and counted_calls.count(name) == 1 else found(*arguments)
        return called
cublaslt_calls.library = lambda one=Failing(): one
with watch() as counts:
    print(*compared(lambda x, w, b: linear(x, w, b).relu(), *LAYER), end=" ")
print(counts.library_failures)
"""
    assert run_on(fake_driver, code, **cache) == expected


def test_a_product_that_it_has_no_algorithm_for_stays_generated(fake_driver: Path, cache: dict[str, str]) -> None:
    """Fused as it was, with one launch: the fake refuses 13 columns."""
    code = FORMS + """
with watch() as counts:
    print(*compared(lambda x, w, b: linear(x, w, b).relu(), (40, 70), (13, 70), (13,)), end=" ")
print(counts.library_failures)
"""
    assert run_on(fake_driver, code, **cache) == "0 1 1 2"


def test_memory_that_is_too_small_for_a_split_leaves_it_out(fake_driver: Path, cache: dict[str, str]) -> None:
    """The fake driver has 64 MB, of which 58 are held: the result fits, but not a second one beside it."""
    code = FORMS + """
others = device.allocate(58 << 20)
x, w = held(900, 8), held(900, 8)
with watch() as counts:
    got = pg.jit(lambda: (x @ w.T).sigmoid(), tune=True)()
expected = 1 / (1 + np.exp(-x[:9].numpy() @ w.numpy().T))
print(len(calls), counts.library_failures, np.allclose(got[:9].numpy(), expected, atol=1e-5))
"""
    assert run_on(fake_driver, code, **cache) == "0 1 True"
