"""cuBLASLt as a candidate of tuning, on a fake of it (fake_cublaslt.c) in the streams of the fake driver.

The fake adds up from the last of K to the first, so that bits tell who has computed a product.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import picograd as pg
from picograd.devices.cuda import cublaslt
from picograd.devices.cuda import cublaslt as cublaslt_calls
from picograd.engine import choose as tune
from picograd.ir.opts import Choice, Library
from picograd.ir.stages import Kernel
from tests.fake_driver import TUNED, run_on
from tests.on_devices import train

pytestmark = pytest.mark.req("E4")

RUNTIME = Path(cublaslt_calls.__file__).parent
MODES = pytest.mark.parametrize("eager", [{}, {"FAKE_DRIVER_EAGER": "0"}, {"FAKE_DRIVER_EAGER": "1"}], ids=str)


# ---- products ----
def test_products_are_the_librarys_and_right(fake_driver: Path, cache: dict[str, str]) -> None:
    code = TUNED + """
h, b16 = pg.float16, pg.bfloat16
forms = {
    "rows": lambda held: (held(40, 70), held(70, 50)),
    "right columns": lambda held: (held(40, 70), held(50, 70).T),
    "left columns": lambda held: (held(70, 40).T, held(70, 50)),
    "columns": lambda held: (held(70, 40).T, held(50, 70).T),
    "batch": lambda held: (held(3, 17, 20), held(3, 20, 33)),
    "heads": lambda held: (held(17, 3, 20).transpose(0, 1), held(33, 3, 20).transpose(0, 1).transpose(1, 2)),
    "one left operand": lambda held: (held(17, 20), held(3, 20, 33)),
    "cut out": lambda held: (held(40, 100)[:, 8:78], held(75, 50)[4:74]),
    "cut out anywhere": lambda held: (held(40, 71)[:, 1:], held(73, 50)[3:]),
    "every other row": lambda held: (held(80, 20)[::2], held(20, 50)),
    "float16": lambda held: (held(40, 70, dtype=h), held(50, 70, dtype=h).T),
    "float16 anywhere": lambda held: (held(40, 71, dtype=h)[:, 1:], held(70, 50, dtype=h)),
    "bfloat16": lambda held: (held(70, 40, dtype=b16).T, held(70, 50, dtype=b16)),
    "a batch of bfloat16": lambda held: (held(3, 17, 20, dtype=b16), held(3, 20, 33, dtype=b16)),
}
def on_evaluator(*shape, dtype=pg.float32):
    return pg.Tensor(rng.standard_normal(shape).astype(np.float32), device="NUMPY").cast(dtype)
for name, form in forms.items():
    rng = np.random.default_rng(0)
    a, b = form(held)
    rng = np.random.default_rng(0)
    expected = backwards(*(operand.float().numpy() for operand in form(on_evaluator)))
    expected = pg.Tensor(expected, device="NUMPY").cast(a.dtype)
    one = pg.jit(lambda: a @ b, tune=True)  # views are part of the kernel
    for turn in range(3):
        calls.clear()
        got = one().to("NUMPY")
        if len(calls) != 1 + (turn == 0) or not got.equal(expected):
            print(name, turn, len(calls), (got - expected).abs().max())
"""
    assert run_on(fake_driver, code, **cache) == ""


def test_tf32_is_the_librarys_where_the_graph_asks_for_it(fake_driver: Path, cache: dict[str, str]) -> None:
    code = TUNED + """
a, b = held(40, 70), held(70, 50)
def cut(x):
    return (x.numpy().view(np.uint32) & 0xFFFFE000).view(np.float32)
exact, rounded = backwards(a.numpy(), b.numpy()), backwards(cut(a), cut(b))
for precision in "highest", "high":
    pg.set_float32_matmul_precision(precision)
    got = pg.jit(lambda: a @ b, tune=True)().numpy()
    print(np.array_equal(got, exact), np.array_equal(got, rounded))
"""
    assert run_on(fake_driver, code, **cache).splitlines() == ["True False", "False True"]


@pytest.mark.variants(every=3)
@MODES
def test_a_plan_runs_again_on_other_memory(fake_driver: Path, cache: dict[str, str], eager: dict[str, str]) -> None:
    """Kernels before and after the product, a graph each from the second run on; nothing is waited for in between."""
    code = TUNED + """
graphs = ctypes.CDLL("libcuda.so.1").fake_driver_graph_launches
step = pg.jit(lambda x, w: ((x.softmax(-1) + x.cumsum(1)).contiguous() @ w).softmax(-1).cumsum(1), tune=True)
x = [rng.standard_normal((40, 70)).astype(np.float32) for _ in range(6)]
w = [rng.standard_normal((70, 50)).astype(np.float32) for _ in range(6)]
def reference(x, w):
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)
    return softmax((softmax(x) + x.cumsum(1)).astype(np.float32) @ w).cumsum(1)
kept = []
for number in range(6):
    kept.append(step(pg.Tensor(x[number], device="CUDA"), pg.Tensor(w[number], device="CUDA")))
    if number == 1:
        calls.clear()
        before = graphs()
print(len(calls), graphs() > before)
print(max(abs(one.numpy() - reference(x[i], w[i])).max() for i, one in enumerate(kept)) < 1e-4)
"""
    assert run_on(fake_driver, code, **cache, **eager).splitlines() == ["4 True", "True"]


def test_a_loop_has_a_product_at_each_step(fake_driver: Path, cache: dict[str, str]) -> None:
    """Rows of 50 x 3 floats begin where they do: the algorithm for memory that is not aligned is in charge there."""
    code = TUNED + """
w = held(3, 3)
total = pg.jit(lambda xs: xs @ w, steps=5, tune=True)
xs = held(5, 50, 3)
for turn in range(3):
    calls.clear()
    print(len(calls), np.array_equal(total(xs).numpy(), backwards(xs.numpy(), w.numpy())), len(calls))
"""
    assert run_on(fake_driver, code, **cache).splitlines() == ["0 True 6", "0 True 5", "0 True 5"]


def test_a_perceptron_trains_as_on_the_evaluator(fake_driver: Path, cache: dict[str, str]) -> None:
    code = TUNED + "from tests.on_devices import train\nprint(*train('CUDA'))\nprint(len(calls) > 0)"
    *losses, used = run_on(fake_driver, code, PICOGRAD_TUNE="1", **cache).split()
    assert used == "True"
    # float32 sums in another order, over three steps
    np.testing.assert_allclose([float(loss) for loss in losses], train("NUMPY"), rtol=1e-5)


# ---- tuning ----
PRODUCT = """
a, b = (np.random.default_rng(1).standard_normal(shape).astype(np.float32) for shape in ((40, 70), (70, 50)))
def result(tune=True):
    calls.clear()
    x, w = (pg.Tensor(array, device="CUDA").realize() for array in (a, b))
    with watch() as counts:
        got = pg.jit(lambda x, w: (x @ w).contiguous().softmax(-1), tune=tune)(x, w).numpy()
        product = pg.jit(lambda x, w: x @ w, tune=tune)(x, w).numpy()
    return np.array_equal(product, backwards(a, b)), counts.timed > 0, counts.library_failures, product.tobytes()
"""


def test_the_winner_is_remembered_with_the_librarys_version(fake_driver: Path, cache: dict[str, str]) -> None:
    code = TUNED + PRODUCT + """
print(*result()[:2])
forget()
print(*result()[:2])
"""
    assert run_on(fake_driver, code, **cache).splitlines() == ["True True", "True False"]
    assert run_on(fake_driver, code, **cache).splitlines() == ["True False", "True False"]
    other = run_on(fake_driver, code, FAKE_CUBLASLT_VERSION="139908", **cache)
    assert other.splitlines() == ["True True", "True False"]


def test_it_is_never_taken_where_nothing_is_timed(fake_driver: Path, cache: dict[str, str]) -> None:
    code = TUNED + PRODUCT + "print(*result()[:2])\nprint(*result(tune=False)[:2], len(calls))"
    assert run_on(fake_driver, code, **cache).splitlines() == ["True True", "False False 0"]


def test_plain_sums_leave_it_out(fake_driver: Path, cache: dict[str, str]) -> None:
    """Also where a plan with it is on the disk: the results are those of untuned kernels."""
    code = TUNED + PRODUCT + "print(result()[0], result()[3] == result(tune=False)[3], device.library() is None)"
    assert run_on(fake_driver, code, **cache) == "True False False"
    assert run_on(fake_driver, code, PICOGRAD_PLAIN_SUMS="1", **cache) == "False True False"


@pytest.mark.parametrize("slow", [False, True])
def test_real_timing_takes_it_where_it_is_faster(fake_driver: Path, cache: dict[str, str], slow: bool) -> None:
    code = TUNED.replace("tune.time_candidates = library_wins", "tune.SAMPLE_SECONDS_MIN, tune.ROUNDS = 1e-6, 3") + PRODUCT
    environment = {"FAKE_CUBLASLT_SLOW": "1"} if slow else {}
    assert run_on(fake_driver, code + "print(*result()[:2])", **cache, **environment) == f"{not slow} True"


# ---- what fails ----
def test_a_product_that_it_refuses_stays_generated_and_that_is_said(fake_driver: Path, cache: dict[str, str]) -> None:
    code = TUNED + """
a, b = held(40, 70), held(70, 13)  # the fake refuses 13 columns
with watch() as counts:
    got = pg.jit(lambda: a @ b, tune=True)().numpy()
print(len(calls), counts.library_failures, np.allclose(got, a.numpy() @ b.numpy(), atol=1e-4))
pg.jit(lambda: (a @ b).relu(), tune=True)()
pg.jit(lambda: a.double() @ b.double(), tune=True)()
"""
    said = run_on(fake_driver, code, PICOGRAD_SHOW="choice", **cache)
    assert "0 1 True" in said.splitlines()
    reason = "cublasLtMatmulAlgoGetHeuristic failed with 15 (CUBLAS_STATUS_NOT_SUPPORTED)."
    library = "cuBLASLt 13.99.7 for 132 multiprocessors"
    noes = [line for line in said.splitlines() if "is not a candidate" in line]
    assert noes == [
        f"matmul_40_13: {library} is not a candidate: cuBLASLt: {reason}",
        f"matmul_40_13: {library} (relu) is not a candidate: cuBLASLt: {reason}",
        f"matmul_40_13: {library} is not a candidate: cuBLASLt: {reason}",
        f"matmul_40_13: {library} is not a candidate: its dtype is float64.",
    ]


def test_who_looks_on_sees_the_choice_in_place_of_a_program(fake_driver: Path, cache: dict[str, str]) -> None:
    code = TUNED + """
a, b = held(40, 70), held(70, 50)
print(pg.explain(a @ b, stages=["choice", "program", "source"]))
(a @ b).realize()
"""
    said = run_on(fake_driver, code, PICOGRAD_SHOW="choice,source", PICOGRAD_TUNE="1", **cache).splitlines()
    choices = [line.partition(", algorithm ")[0] for line in said if line.startswith("choice ")]
    assert choices[-2:] == ["choice cuBLASLt 13.99.7 for 132 multiprocessors"] * 2
    assert not any("__global__" in line for line in said)


# The library, of which one call fails.
FAILING = TUNED + PRODUCT + """
from collections import Counter
real, counted_calls, failing = cublaslt_calls.library(), Counter(), {}
class Failing:
    def __getattr__(self, name):
        found = getattr(real, name)
        def called(*arguments):
            counted_calls[name] += 1
            return 13 if failing.get(name) in (counted_calls[name], "all") else found(*arguments)
        return called
cublaslt_calls.library = lambda one=Failing(): one
def run():
    forget()
    device.__dict__.pop("_cublaslt", None)
    for entry in (Path(os.environ["PICOGRAD_CACHE"]) / "tuning").glob("*/*"):
        entry.unlink()
    for entry in (Path(os.environ["PICOGRAD_CACHE"]) / "plans").glob("*/*"):
        entry.unlink()
    counted_calls.clear()
    return result()
"""


def test_objects_that_another_thread_gives_back_first_are_no_error(fake_driver: Path, cache: dict[str, str]) -> None:
    code = TUNED + """
from collections import deque
class Emptied(deque):  # between the question and the answer
    def __bool__(self):
        return True
cublaslt_calls._dropped = Emptied()
print(cublaslt_calls.Made("MatmulPreference").handle.value is not None)
"""
    assert run_on(fake_driver, code, **cache) == "True"


def test_every_call_of_the_library_is_checked() -> None:
    """But for what it answers without a status, and for what finalizers undo, who tell nobody."""
    text = (RUNTIME / "cublaslt.py").read_text()
    assert sorted(set(re.findall(r"(?:library\(\)|found)\.(cublasLt\w*)", text))) == [
        "cublasLtGetStatusName", "cublasLtGetVersion",
    ]  # fmt: skip
    by_name = re.findall(r"getattr\((.*)\)", text)
    assert by_name == ["library(), name)(*arguments)", 'library(), f"cublasLt{kind}Destroy"), self.handle)']


def test_a_call_that_fails_while_candidates_are_timed_leaves_the_library_out(
    fake_driver: Path, cache: dict[str, str]
) -> None:
    code = FAILING + """
expected = run()
counts = {name: count for name, count in counted_calls.items() if "Get" not in name or "Heuristic" in name}
for name, count in sorted(counts.items()):
    if name.endswith("Destroy"):
        continue
    failing[name] = "all"
    is_librarys, was_timed, failures, got = run()
    failing.clear()
    is_right = np.allclose(np.frombuffer(got, np.float32).reshape(40, 50), a @ b, atol=1e-4)
    if is_librarys or not (was_timed and failures and is_right):
        print("not left out:", name, is_librarys, was_timed, failures, is_right)
    if run() != expected:
        print("after it:", name)
print(expected[0], *sorted(counts))
"""
    *said, names = run_on(fake_driver, code, **cache).splitlines()
    assert said == []
    assert names.split() == [
        "True", "cublasLtCreate", "cublasLtMatmul", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulDescCreate",
        "cublasLtMatmulDescDestroy", "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceDestroy",
        "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutDestroy",
    ]  # fmt: skip


def test_a_call_that_fails_later_is_an_error_that_names_it(fake_driver: Path, cache: dict[str, str]) -> None:
    code = FAILING + """
from picograd.errors import DeviceError
run()
x, w = (pg.Tensor(array, device="CUDA").realize() for array in (a, b))
product = pg.jit(lambda: x @ w, tune=True)
before = product().numpy().tobytes()
counted_calls.clear()
failing["cublasLtMatmul"] = 1
try:
    product().numpy()
except DeviceError as error:
    print(error.fact, error.hint, sep="\\n")
print(product().numpy().tobytes() == before)
"""
    assert run_on(fake_driver, code, **cache).splitlines() == [
        "cuBLASLt: cublasLtMatmul failed with 13 (CUBLAS_STATUS_EXECUTION_FAILED).",
        "PICOGRAD_PLAIN_SUMS=1 leaves the library out",
        "True",
    ]


@pytest.mark.parametrize(
    ("change", "environment", "reason"),
    [
        (
            "class DynamicLibNotFoundError(RuntimeError): pass\n"
            "def missing(name): raise DynamicLibNotFoundError(name)\n"
            "cublaslt_calls.import_module = lambda name: SimpleNamespace(load_nvidia_dynamic_lib=missing)\n",
            {}, "cuBLASLt: libcublasLt is not installed.",
        ),
        (
            "def missing(name): raise ImportError(f'no {name}')\ncublaslt_calls.import_module = missing\n",
            {}, "cuBLASLt: it cannot be loaded (no cuda.pathfinder).",
        ),
        ("", {"FAKE_CUBLASLT_VERSION": "111103"}, "cuBLASLt: 11.11.3 is older than 12.0.0."),
    ],
    ids=["missing", "no pathfinder", "too old"],
)  # fmt: skip
def test_a_library_that_is_missing_or_old_is_no_candidate_and_no_error(
    fake_driver: Path, cache: dict[str, str], change: str, environment: dict[str, str], reason: str
) -> None:
    code = TUNED + change + PRODUCT + """
from picograd_lab.doctor import examine_library
print(*result()[:3], device.library())
print(examine_library().text)
"""
    assert run_on(fake_driver, code, **cache, **environment).splitlines() == ["False True 0 None", reason]


def test_what_a_call_was_made_for_is_asked(fake_driver: Path, cache: dict[str, str]) -> None:
    code = TUNED + """
from picograd.errors import DeviceError
from picograd.ir.opts import LibraryCall, Matrix, PlainProduct, write_library
from picograd.ir.stages import Binary
product = PlainProduct(Matrix(0, 0, 4, False, 0), Matrix(1, 0, 4, False, 0), 2, 1, 4, 4, 4, "float32", "float32")
choice = Library("cuBLASLt 12.1.0", product, "", "", 0)
try:
    device.load(Binary("matmul_4_4", write_library(LibraryCall(choice, 0, None)), (), (), ()))
except DeviceError as error:
    print(error.fact)
"""
    said = "matmul_4_4 is a call of cuBLASLt 12.1.0, and this machine has cuBLASLt 13.99.7 for 132 multiprocessors."
    assert run_on(fake_driver, code, **cache) == said


# ---- a real one ----
SHAPES = {"rows": ((40, 64), (64, 56)), "batch": ((3, 40, 64), (3, 64, 56)), "one column more": ((40, 65), (65, 56))}


@pytest.mark.gpu
@pytest.mark.on("CUDA")
@pytest.mark.skipif(cublaslt_calls.why_no_library() is not None, reason="cuBLASLt is not installed")
@pytest.mark.parametrize("dtype", [pg.float32, pg.float16, pg.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_computes_what_generated_kernels_do(
    shape: str, dtype: pg.DType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    def library_wins(kernel: Kernel, found: Sequence[Choice], *_: object) -> list[list[float]]:
        return [[1.0 if isinstance(choice, Library) else 2.0] * 9 for choice in found]

    calls: list[Sequence[int]] = []
    call = cublaslt.ProductCall.__call__

    def counted(self: cublaslt.ProductCall, addresses: Sequence[int], stream: int) -> None:
        calls.append(addresses)
        call(self, addresses, stream)

    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(tune, "time_candidates", library_wins)
    monkeypatch.setattr(cublaslt.ProductCall, "__call__", counted)
    left, right = (rng.standard_normal(extents).astype(np.float32) for extents in SHAPES[shape])
    a, b = (pg.Tensor(array, device="CUDA").cast(dtype).realize() for array in (left, right))
    columns = b.transpose(-1, -2).contiguous().realize()
    bias = pg.Tensor(rng.standard_normal(57).astype(np.float32), device="CUDA").cast(dtype).realize()[1:]
    eps = {pg.float32: 2e-6, pg.float16: 2e-3, pg.bfloat16: 2e-2}[dtype]  # some units in the last place
    for form in (
        (lambda: a @ b),
        (lambda: a @ columns.transpose(-1, -2)),
        (lambda: a[..., 1:] @ b[..., 1:, :]),
        (lambda: (a @ b + bias).relu()),
        (lambda: 0.5 * (a @ b) + a[..., :56]),
        (lambda: pg.nn.functional.gelu(a.sigmoid() @ b) * bias),
        (lambda: (a.float() @ b.float()).relu()),
    ):
        calls.clear()
        generated, tuned = form().float().numpy(), pg.jit(form, tune=True)
        for _ in range(2):
            np.testing.assert_allclose(tuned().float().numpy(), generated, rtol=eps, atol=8 * eps)
        assert len(calls) == 2
