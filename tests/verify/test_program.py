"""`picograd verify SCRIPT`: a program is what it is without, whatever it does; and what it computes is compared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import picograd as pg
from picograd.look import Profiling
from picograd_lab.verify import watch
from picograd_lab.verify.modules import verify_modules_of
from picograd_lab.verify.run import own_words
from picograd_programs import cli

ROOT = Path(__file__).resolve().parents[2]
TRAINING = """
import sys
import picograd as pg
pg.manual_seed(int(sys.argv[1]))
model = pg.nn.Sequential(pg.nn.Linear(6, 8), pg.nn.Tanh(), pg.nn.Linear(8, 3))
optimizer = pg.optim.AdamW(model.parameters(), lr=0.01)
x, y = pg.randn(10, 6), pg.randint(0, 3, (10,))
@pg.jit
def step():
    loss = pg.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
print([step().item() for _ in range(4)], pg.rand(2).tolist(), __name__, __file__)
"""
FAULTY = """
import pytest
from picograd.ir.opcode import OpCode
from tests.verify.faults import exchange, nothing_is_kept, plant_in_emitter
patch = pytest.MonkeyPatch()
nothing_is_kept(patch, "CPU")
plant_in_emitter(patch, exchange(OpCode.TANH, OpCode.EXP))
"""


def run(words: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)


def watched(path: Path, *words: str, own: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return run(["-m", "picograd", "verify", *own, str(path), *words])


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


def test_a_training_prints_the_same_numbers(script: Path) -> None:
    script.write_text(TRAINING)
    alone, both = run([str(script), "7"]), watched(script, "7")
    assert both.stdout == alone.stdout != "" and alone.stderr == "" and both.returncode == 0
    assert "nothing deviates" in both.stderr and "against slopes" in both.stderr


@pytest.mark.variants(first=1)
def test_modules_that_a_program_leaves_are_compared_with_pytorchs(script: Path) -> None:
    source = (
        "import torch, picograd as pg\n"
        "theirs, ours = torch.nn.Linear(4, 3), pg.nn.Linear(4, 3)\n"
        "ours.load_state_dict({n: pg.Tensor(v.numpy()) for n, v in theirs.state_dict().items()})\n"
        "inputs = pg.randn(5, 4)\n"
        "print(ours(inputs).sum().item())\n"
    )
    script.write_text(source)
    right = watched(script, own=("--against", "torch"))
    assert right.returncode == 0 and "layers, held against PyTorch; nothing deviates" in right.stderr


def test_a_program_that_leaves_no_modules_is_told_what_to_leave() -> None:
    with pytest.raises(pg.ArgumentError, match="must leave a module") as caught:
        verify_modules_of({"ours": pg.nn.Linear(4, 3), "inputs": pg.randn(5, 4)})
    assert caught.value.hint is not None and caught.value.hint.startswith("inputs = x at its end")


def test_a_mismatch_is_named_saved_and_the_exit_status_is_1(script: Path, tmp_path: Path) -> None:
    script.write_text(FAULTY + TRAINING)
    saved = tmp_path / "shown.py"
    done = watched(script, "7", own=("--save", str(saved)))
    assert done.returncode == 1 and ", the first is kernel" in done.stderr and "program.py:" in done.stderr
    assert f"saved: python {saved}" in done.stderr
    saved.write_text(FAULTY + saved.read_text())
    assert "elements are wrong" in run([str(saved)]).stderr


@pytest.mark.variants(every=3)
@pytest.mark.parametrize(
    ("source", "status", "said"),
    [
        ("print('no tensors')", 0, "computed nothing with picograd"),
        ("import sys; sys.exit(7)", 7, "computed nothing"),
        ("import sys; sys.exit('a reason')", 1, "a reason"),
        ("import picograd as pg\npg.ones(3).sin().sum().item()\nraise ValueError('the end')", 1, "ValueError: the end"),
        ("import picograd as pg\nfor _ in range(5000): print('x' * 99)\nprint(pg.ones(3).exp().sum().item())", 0, "right"),
        ("import os\nimport picograd as pg\npg.randn(3).exp().sum().item()\nif os.fork() == 0:\n    print('child')\nelse:\n"
         "    os.wait()", 0, "what is computed in its children is not compared"),
        ("def f(:", 1, "SyntaxError"),
        ("import warnings; warnings.warn('a warning')", 0, "UserWarning: a warning"),
        ("import pickle\nclass A: pass\nassert type(pickle.loads(pickle.dumps(A()))) is A", 0, ""),
        ("print(__file__, sorted(name for name in globals() if name.startswith('__')), type(__loader__).__name__)", 0, ""),
    ],
)  # fmt: skip
def test_a_program_ends_as_it_does_alone(script: Path, source: str, status: int, said: str) -> None:
    script.write_text(source)
    alone, both = run([str(script)]), watched(script)
    assert both.stdout == alone.stdout and both.returncode == alone.returncode == status
    assert said in both.stderr
    if "Error" in said:  # the same traceback, with no line of ours
        assert both.stderr.startswith(alone.stderr) or "SyntaxError" in said
        assert "picograd_lab" not in both.stderr


def test_a_program_may_profile_and_verify_parts_of_itself(script: Path) -> None:
    script.write_text(
        "import picograd as pg\nx = pg.randn(3, 4, requires_grad=True)\n"
        "with pg.profile() as found: (x @ x.T).sum().item()\n"
        "print(len(found.kernels), bool(pg.verify(lambda: x.exp().sum().item())))\n(x * x).sum().backward()\n"
        "x.grad.tolist()"
    )
    alone, both = run([str(script)]), watched(script)
    assert both.stdout == alone.stdout and both.returncode == alone.returncode == 0
    assert "\nnote: the program profiles or verifies a part of itself, which is not compared here\nright: " in both.stderr
    assert " of 1 plans, 1 of 1 runs, " in both.stderr and " operations against slopes; nothing deviates" in both.stderr


def test_ctrl_c_stops_the_program_and_shows_what_was_seen(script: Path) -> None:
    script.write_text(
        "import time\nimport picograd as pg\nprint(pg.ones(3).exp().sum().item(), flush=True)\ntime.sleep(60)"
    )
    command = [sys.executable, "-m", "picograd", "verify", str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None and running.stdout.readline()
    time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate()
    assert running.returncode == 130 and "KeyboardInterrupt" in errors and "nothing deviates" in errors


def test_a_program_whose_children_compute_is_told_that_it_forks(script: Path) -> None:
    script.write_text(
        "import os\nimport picograd as pg\nif os.fork() == 0:\n    pg.ones(3).exp().tolist()\nelse:\n    os.wait()"
    )
    done = watched(script)
    assert "computed nothing with picograd" in done.stderr and "note: the program forks" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.py"], "nowhere.py: there is no such program, and no model of that name.\n  hint: models are linear, "),
        ([str(ROOT)], "cannot be read: Is a directory"),
        (["--against", "ABACUS", "nowhere.py"], "ABACUS"),
        (["--save", str(ROOT), __file__], "is a folder; name a file"),
        (["--save", str(ROOT / "nowhere" / "shown.py"), __file__], "there is no folder"),
    ],
)
def test_missing_programs_folders_and_devices_are_said_before_anything_runs(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", *words]) == 1
    assert said in capsys.readouterr().err


def test_a_program_that_changes_its_folder_finds_itself_and_its_script_is_saved_where_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A relative program and a relative --save name files of the folder that the command began in."""
    (tmp_path / "in").mkdir()
    (tmp_path / "program.py").write_text(
        f"import os, inspect, pathlib\nimport picograd as pg\n{FAULTY}\nos.chdir('in')\n"
        "print(pathlib.Path(__file__).parents[1], __annotations__, __cached__)\n"
        "print(pg.randn(5, 3).tanh().sum().item() < 100)\npatch.undo()\n"
    )
    monkeypatch.chdir(tmp_path)
    assert cli.main(["verify", "--save", "shown.py", "program.py"]) == 1
    assert (tmp_path / "shown.py").is_file() and not (tmp_path / "in" / "shown.py").exists()
    said = capsys.readouterr()
    assert said.out == f"{tmp_path.parent} {{}} None\nTrue\n" and "saved: python shown.py" in said.err


@pytest.mark.parametrize(("own", "behind", "others"), [
    ("verify --save shown.py train.py", "--save other.py", "--save other.py"),
    ("verify --against C train.py", "--epochs 3 -v", "--epochs 3 -v"),
    ("verify --against C train.py", "-- --against torch", "--against torch"),
    ("bisect train.py", "--against C", "--against C"),
    ("verify --help", "", ""),
])  # fmt: skip
def test_words_behind_the_program_are_its_own(own: str, behind: str, others: str) -> None:
    assert own_words(own.split() + behind.split()) == (own.split(), others.split())


@pytest.mark.parametrize("words", ["--against ABACUS", "--steps 3 --against=ABACUS"])
def test_what_to_compare_with_may_stand_behind_the_program(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("")
    assert cli.main(["verify", str(tmp_path / "train.py"), *words.split()]) == 1
    assert "ABACUS" in capsys.readouterr().err


def test_a_model_is_trained_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["verify", "linear", "--steps", "3"]) == 0
    assert "nothing deviates" in capsys.readouterr().err
    (tmp_path / "linear").write_text("print('a program without a suffix')")
    assert cli.main(["verify", "linear"]) == 0
    assert "a program without a suffix" in capsys.readouterr().out


# ---- pg.verify ----
def test_another_device_runs_the_same_kernels() -> None:
    verdict = pg.verify(lambda: (pg.randn(20, 30) @ pg.randn(30, 8)).softmax(-1).sum().item(), against="NUMPY")
    assert verdict and verdict.against == "the evaluator"


def test_an_error_of_the_function_is_its_own_and_nothing_is_watched_then() -> None:
    with pytest.raises(ZeroDivisionError):
        pg.verify(lambda: 1 / 0)
    assert Profiling.recorder is None


def test_plans_of_all_threads_are_compared() -> None:
    """While one thread's plan is compared, the others wait."""

    def work(width: int) -> None:
        x = pg.randn(width, 5)
        for _ in range(3):
            (x @ x.T).tanh().sum().item()

    def run() -> None:
        threads = [threading.Thread(target=work, args=(width,)) for width in (31, 32, 33)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    verdict = pg.verify(run)
    assert verdict and verdict.watched == verdict.runs >= 9, verdict
    assert all(held.runs for held in verdict.kernels)


def test_an_error_of_the_comparison_is_not_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> list[object]:
        raise KeyError("a fault of verify's")

    monkeypatch.setattr(watch, "parametrize", broken)
    verdict = pg.verify(lambda: pg.randn(3).exp().sum().item())
    assert verdict.notes == ['not compared: KeyError: "a fault of verify\'s"', "nothing was computed"], verdict.notes


def test_verifications_do_not_nest_and_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(pg.ArgumentError, match="do not nest"):
        pg.verify(lambda: pg.verify(lambda: None))
    with pytest.raises(pg.ArgumentTypeError, match="function must be a function, got int 3"):
        pg.verify(3)  # type: ignore[arg-type]
    with pytest.raises(pg.ArgumentTypeError, match='against must be "numpy" or a device, got int'):
        pg.verify(lambda: None, against=3)


def test_large_kernels_are_compared_at_samples() -> None:
    x = pg.randn(3000, 4000)
    verdict = pg.verify(lambda: ((x * 2).exp() + x).realize())
    assert verdict and verdict.kernels[0].is_sample and "(sample)" in str(verdict)


def test_nothing_of_the_comparison_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """Infinities and NaN are no warnings of NumPy's."""
    x = pg.tensor([float("inf"), float("nan"), -1.0, 0.0])
    assert pg.verify(lambda: [(x - x).tolist(), x.log().tolist(), (1 / x).tolist(), (x * x).sqrt().sum().item()])
    assert capfd.readouterr() == ("", "")


def test_loops_and_lengths_are_compared_step_by_step() -> None:
    def body(carry: pg.Tensor, row: pg.Tensor) -> tuple[pg.Tensor, pg.Tensor]:
        new = (carry @ carry + row).tanh()
        return new, new.sum()

    verdict = pg.verify(lambda: pg.scan(body, pg.randn(4, 4), pg.randn(9, 4, 4))[1].sum().item())
    assert verdict and max(held.runs for held in verdict.kernels) >= 5, verdict
