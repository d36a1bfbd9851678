"""The ladder: every rung computes the product, is made of what its idea says, and the command prints a table of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from picograd.engine.devices import compiler_for
from picograd.errors import DataError, DeviceError, VerifyError
from picograd.evaluator import evaluate_program
from picograd.ir.op import Op
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.spec import verify_program
from picograd.ir.stages import Program
from picograd.ir.statements import For, Let, Load, Statement, Store, lanes_of, walk
from picograd.road import finish
from picograd_lab.ladder import measure
from picograd_lab.ladder.measure import CHAINS, Blas, Figure, peak_flops, peak_program
from picograd_lab.ladder.product import Product, product_for, runnable
from picograd_lab.ladder.run import rows_of, shown_programs, write
from picograd_lab.ladder.rungs import FUSED, RUNGS, Rung
from picograd_programs import cli
from tests.same_meaning import CPU_TARGETS, backwards

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ladder.md"
EMITTED = [rung for rung in RUNGS.values() if rung.emit is not None]
(WIDE,) = [target for target in CPU_TARGETS if target.num_registers >= 32]


def program_of(rung: Rung, product: Product) -> Program:
    assert rung.emit is not None
    return rung.emit(product)


def operands(product: Product) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = ((product.m, product.k), (product.k, product.n))
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def check(result: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Holds a product against float64: K roundings, each of at most 2**-24 of the sum of magnitudes so far."""
    bound = 1.01 * a.shape[1] * 2.0**-24 * (np.abs(a).astype(np.float64) @ np.abs(b))
    assert np.all(np.abs(result.reshape(a.shape[0], b.shape[1]) - a.astype(np.float64) @ b) <= bound)


# ---- every rung is right ----
@pytest.mark.parametrize("rung", EMITTED, ids=lambda rung: rung.name)
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (5, 5, 5), (16, 16, 16), (33, 33, 33), (64, 64, 64), (64, 7, 96), (13, 100, 45), (7, 40, 300)],
    ids=str,
)
def test_machine_code_of_a_rung_computes_the_product(rung: Rung, shape: tuple[int, int, int]) -> None:
    compiler = compiler_for("CPU")
    product = product_for(*shape, compiler.device.target)
    a, b = operands(product)
    made = runnable(program_of(rung, product), compiler, (a, b))
    made.run()
    check(made.results()[0], a, b)


@pytest.mark.parametrize("rung", EMITTED, ids=lambda rung: rung.name)
@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda target: f"{8 * target.vector_bytes}-bit")
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 5, 37)], ids=str)
def test_programs_are_in_the_specification_and_mean_the_product(rung, target, shape) -> None:
    product = product_for(*shape, target)
    free = program_of(rung, product)
    linear = finish(free, target)
    verify_program(free, after="the ladder", linear=False)
    verify_program(linear, after="linearize")
    a, b = operands(product)
    scratch = [np.full(p.numel, np.nan, np.float32) for p in free.params if p.role == "scratch"]
    out = np.full(product.m * product.n, np.nan, np.float32)
    evaluate_program(linear, [a.ravel(), b.ravel(), out, *scratch], {}, backwards)
    check(out, a, b)


def test_threads_share_tiles_and_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = compiler_for("CPU")
    product = product_for(200, 50, 90, compiler.device.target)
    inputs = operands(product)
    results = []
    for name, count in (("packed", 1), ("threads", 1), ("threads", 3)):
        monkeypatch.setenv("PICOGRAD_THREADS", str(count))
        made = runnable(program_of(RUNGS[name], product), compiler, inputs)
        made.run()
        results.append(made.results()[0].tobytes())
    assert len(set(results)) == 1


# ---- what a rung is made of ----
def linear(name: str, size: int = 96) -> Program:
    return finish(program_of(RUNGS[name], product_for(size, size, size, WIDE)), WIDE)


def innermost(program: Program) -> list[tuple[Statement, ...]]:
    """Returns the bodies of the loops with no loop inside, in order."""
    loops = [s for phase in program.phases for s in walk(phase) if isinstance(s, For)]
    return [loop.body for loop in loops if not any(isinstance(s, For) for s in walk(loop.body))]


def operations(body: tuple[Statement, ...], code: OpCode) -> list[Let]:
    return [s for s in body if isinstance(s, Let) and s.value.code is code and s.var.dtype.is_float]


def in_registers(memory: Op) -> bool:
    return memory.code is OpCode.ALLOC and memory.arg[2] is MemorySpace.REGISTER


def memory_stores(body: tuple[Statement, ...]) -> list[Store]:
    return [s for s in body if isinstance(s, Store) and not in_registers(s.memory)]


def memory_loads(body: tuple[Statement, ...]) -> list[Load]:
    return [s for s in body if isinstance(s, Load) and not in_registers(s.memory)]


def test_naive_multiplies_one_number_by_another() -> None:
    (body,) = innermost(linear("naive"))
    assert [lanes_of(s.var) for s in memory_loads(body)] == [1, 1] and not memory_stores(body)


def test_blocked_runs_along_rows_and_holds_a_invariant() -> None:
    _, body = innermost(linear("blocked"))
    assert [lanes_of(s.var) for s in memory_loads(body)] == [1, 1], "c and b; a stands before the loop"
    assert len(memory_stores(body)) == 1


def test_vectors_load_and_store_vectors() -> None:
    _, body = innermost(linear("vectors"))
    assert [lanes_of(s.var) for s in memory_loads(body)] == [16, 16]
    assert [lanes_of(s.value) for s in memory_stores(body)] == [16]


@pytest.mark.parametrize("name", ["registers", "packed", "threads"])
def test_a_register_tile_stores_nothing_inside_the_loop_over_k(name: str) -> None:
    (body,) = [body for body in innermost(linear(name)) if operations(body, OpCode.FMA)]
    assert [lanes_of(s.var) for s in operations(body, OpCode.FMA)] == [16] * 24
    assert not memory_stores(body)
    assert sorted(lanes_of(s.var) for s in memory_loads(body)) == [1] * 12 + [16] * 2


def test_packed_panels_are_read_straight_through() -> None:
    (body,) = [body for body in innermost(linear("packed")) if operations(body, OpCode.FMA)]
    assert {s.memory.arg[0] for s in memory_loads(body)} == {3, 4}, "only panels are read"
    (body,) = [body for body in innermost(linear("registers")) if operations(body, OpCode.FMA)]
    assert {s.memory.arg[0] for s in memory_loads(body)} == {0, 1}


@pytest.mark.parametrize("rung", EMITTED, ids=lambda rung: rung.name)
def test_only_shared_rungs_have_grid_loops(rung: Rung) -> None:
    for phase in linear(rung.name).phases:
        kinds = {s.range.arg[1] for s in phase if isinstance(s, For)}
        assert kinds == {AxisKind.GRID if rung.is_shared else AxisKind.LOOP}


@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda target: f"{8 * target.vector_bytes}-bit")
@pytest.mark.parametrize("num_threads", [1, 3])
def test_the_peak_is_chains_of_fmas_and_nothing_else(target, num_threads: int) -> None:
    program = finish(peak_program(target, num_threads), target)
    verify_program(program, after="linearize")
    (body,) = [body for body in innermost(program) if operations(body, OpCode.FMA)]
    lanes = target.vector_bytes // 4
    assert [lanes_of(s.var) for s in operations(body, OpCode.FMA)] == [lanes] * CHAINS
    assert not memory_loads(body) and not memory_stores(body)
    assert peak_flops(target, num_threads) % (2 * CHAINS * lanes * num_threads) == 0


# ---- the command ----
@pytest.fixture
def numpy_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(measure, "LIBRARIES", ("numpy",))
    monkeypatch.setattr(measure, "LEAST_S", 0.0)
    monkeypatch.setenv("PICOGRAD_THREADS", "2")
    yield


def test_the_command_prints_a_table_and_keeps_the_samples(numpy_alone, tmp_path, capsys) -> None:
    page, file = tmp_path / "page.md", tmp_path / "gemm.json"
    page.write_text("a <!-- ladder:gemm -->old<!-- /ladder:gemm --> b <!-- ladder:naive --><!-- /ladder:naive -->")
    words = ["ladder", "gemm", "--size", "13", "--repeats", "2", "--json", str(file), "--docs", str(page)]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    rows = [re.split(" {2,}", line.strip()) for line in out.splitlines() if re.match(" [A-Za-z]", line)]
    names = [row[0] for row in rows]
    assert names == [*list(RUNGS)[:-1], "two passes", "fused", "numpy", "numpy", "FMA peak", "FMA peak"]
    for name, _, _, speed, *shares in rows:
        assert float(speed.split()[0]) > 0 and all(share.endswith("%") for share in shares[-2:])
        assert len(shares) == (3 if name in (*list(RUNGS)[1:], "two passes") else 2) and shares[0][-1] in "x%"
    assert "(13, 13) @ (13, 13)" in out and "replaced ladder:gemm, ladder:naive" in out
    record = json.loads(file.read_text())
    assert [figure["name"] for figure in record["figures"] if figure["kind"] == "rung"] == names[:8]
    for figure in record["figures"]:
        assert len(figure["samples_s"]) == 2 and figure["flops"] > 0
        assert (figure["error"] is None) == (figure["kind"] != "rung") and (figure["error"] or 0) <= 1
    text = page.read_text()
    assert "| naive | three loops | 1 |" in text and "old" not in text and shown_programs()["naive"] in text


@pytest.mark.parametrize("name", RUNGS)
def test_a_rung_shows_its_loops(name: str, capsys) -> None:
    assert cli.main(["ladder", "gemm", "--size", "20", "--show", name]) == 0
    out = capsys.readouterr().out
    assert "phase" in out and ("fma(" in out) == (name not in ("naive", "blocked", "vectors"))
    assert ("choice registers" in out) == (name == "fused")


def test_help_shows_an_example(capsys) -> None:
    with pytest.raises(SystemExit):
        cli.main(["ladder", "--help"])
    assert "picograd ladder gemm --size 1024 --json gemm.json" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sort"], "ArgumentError: ladder: there is no ladder 'sort'; there is adamw, attention, attention_grad, conv, "),
        (["--size", "0"], "ArgumentError: ladder: size must be at least 1, got 0.\n"),
        (["--repeats", "0"], "ArgumentError: ladder: repeats must be at least 1, got 0.\n"),
        (["--device", "c"], "ArgumentError: ladder: gemm climbs on CPU, CUDA, CUDASIM; C has no ladder.\n"),
        (
            ["softmax"],
            "ArgumentError: ladder: softmax climbs on CUDA, CUDASIM; CPU has no ladder.\n  hint: --device CUDASIM",
        ),
        (["--device", "tpu"], "DeviceError: TPU: this is not a device; the devices are CPU, C, NULL, "),
        (
            ["--show", "simd"],
            "ArgumentError: ladder: there is no rung 'simd'; the rungs are naive, blocked, vectors, registers, packed, "
            "threads, fused.\n",
        ),
        (["--json", "no/such/folder.json"], "DataError: ladder: no/such/folder.json: there is no such folder.\n"),
        (["--docs", "no_page.md"], "DataError: ladder: no_page.md: there is no such page.\n"),
        (["--json", "."], "DataError: ladder: . is a folder; name a file.\n"),
        (["mnist", "--docs", "no_page.md"], "DataError: ladder: no_page.md: there is no such page.\n"),
        (["mnist", "--json", "no/such/folder.json"], "DataError: ladder: no/such/folder.json: there is no such folder.\n"),
        (["mnist", "--inject", "stale-buffer", "--json", "x.json"], "ArgumentError: ladder: --inject prints the mistake "),
        (["--size", "9" * 30], "ArgumentError: ladder: no memory holds the operands of M = 999"),
        (["softmax", "--device", "CUDASIM", "--lengths", "ROWS=" + "9" * 20], "ArgumentError: ladder: no memory holds"),
        (
            ["softmax", "--device", "CUDASIM", "--rungs", "online,offline"],
            "ArgumentError: ladder: there is no rung 'offline'; the rungs are thread a row, ",
        ),
        # an option of another ladder
        (
            ["mnist", "--device", "CUDASIM"],
            "ArgumentError: ladder: mnist takes no --device; it takes --size, --epochs, --rungs, --inject, --json, --docs.",
        ),
        (["--lengths", "M=3"], "ArgumentError: ladder: gemm on CPU takes no --lengths; it takes --device, --size, "),
        (["--rungs", "naive"], "ArgumentError: ladder: gemm on CPU takes no --rungs; it takes --device, --size, "),
        (["softmax", "--device", "CUDASIM", "--epochs", "1"], "ArgumentError: ladder: softmax on CUDASIM takes no --epo"),
    ],
)
def test_what_cannot_be_climbed_is_said(words: list[str], said: str, capsys) -> None:
    assert cli.main(["ladder", *words]) == 1
    assert capsys.readouterr().err.startswith(said)


def test_a_file_that_cannot_be_written_is_said(tmp_path) -> None:
    with pytest.raises(DataError, match=r"ladder: .*: cannot be written: Is a directory."):
        write(tmp_path, "text")


# ---- measuring ----
def test_a_wrong_result_is_no_figure() -> None:
    a, b, bias = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32), np.zeros(2, np.float32)
    expected = measure._Expected(a, b, bias)
    assert expected.error(RUNGS["naive"], np.full(4, 3, np.float32)) == 0
    assert 0 < expected.error(FUSED, np.full(4, 3 * (1 + 2.0**-23), np.float32)) < 1
    with pytest.raises(VerifyError, match=r"rung naive of 2 x 3 x 2 is off by .* times what 3 roundings explain"):
        expected.error(RUNGS["naive"], np.array([3, 3, 3, 3.1], np.float32))
    with pytest.raises(VerifyError):
        expected.error(RUNGS["naive"], np.array([3, 3, 3, np.nan], np.float32))


def test_shares_are_of_what_has_as_many_threads() -> None:
    figures = [
        Figure("peak", "FMA peak", "", 1, 8_000_000_000, None, [1.0]),
        Figure("blas", "numpy", "", 1, 4_000_000_000, None, [1.0, 1.0, 2.0]),
        Figure("blas", "torch", "", 1, 2_000_000_000, None, [1.0]),
        Figure("blas", "numpy", "", 2, 9_000_000_000, None, [1.0]),
        Figure("peak", "FMA peak", "", 2, 9_000_000_000, None, [1.0]),
        Figure("rung", "naive", "", 1, 1_000_000_000, 0.5, [1.0]),
        Figure("rung", "blocked", "", 1, 3_000_000_000, 0.5, [1.0]),
    ]
    first, second, third, *_ = rows_of(figures)
    assert first == ("naive", "", "1", "1 (1..1)", "", "25.0%", "12.5%")
    assert second == ("blocked", "", "1", "3 (3..3)", "3x", "75.0%", "37.5%")
    assert third == ("numpy", "", "1", "4 (2..4)", "", "100.0%", "50.0%")


def test_a_library_runs_with_its_threads_and_its_end_is_said() -> None:
    found = Blas("numpy", 1, 4, 4, 4)
    assert found.version.startswith(np.__version__) and found.seconds(3) > 0
    found._process.kill()
    found._process.wait()
    with pytest.raises(DeviceError, match="the process that runs numpy ended with status"):
        found.seconds(1)
    found.close()
    with pytest.raises(DeviceError):
        Blas("numpy", 1, -1, 4, 4)


def test_a_library_that_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "WORKER", "import sys\nif sys.argv[1] == 'torch': sys.exit(1)\n" + measure.WORKER)
    found = measure.start_all(2, 4, 4, 4)
    for one in found:
        one.close()
    assert [(one.library, one.num_threads) for one in found] == [("numpy", 1), ("numpy", 2)]


# ---- the page ----
def test_the_page_shows_the_loops_as_they_are() -> None:
    text = PAGE.read_text()
    for name, shown in shown_programs().items():
        assert f"<!-- ladder:{name} -->\n```text\n{shown}\n```\n<!-- /ladder:{name} -->" in text, name
    assert "<!-- ladder:gemm -->\n**float32" in text
