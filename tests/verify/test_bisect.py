"""`picograd bisect`: the rule or the option that makes a program wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

import picograd as pg
from picograd.rewrites import simplify as algebra
from picograd_lab.verify import bisect
from picograd_lab.verify.bisect import BisectConfig, Trial, bisect_script, run_trial
from picograd_lab.verify.rules import limited, which
from picograd_programs import cli
from tests.helpers import in_full

RULE = """
import picograd as pg
from tests.verify.faults import plant_in_place
plant_in_place("pow two", lambda out: out.src[0] * out.src[0] * out.src[0])
x = pg.ones(6, 7).cumsum(0).realize()
y = (x.exp().sum(0) + x) ** pg.full((6, 7), 2.0) * (x - pg.zeros(6, 7)) / pg.ones(6, 7)
print(y.sum().item())
"""


@in_full
def test_the_application_of_a_rule_is_found_in_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "program.py"
    script.write_text(RULE)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    assert cli.main(["bisect", str(script)]) == 1
    said = capsys.readouterr().out
    assert "(PICOGRAD_DEVICE=NUMPY): right" in said and "without rules of algebra: right" in said
    assert 'of a rule: "pow two", on' in said and "program.py:6" in said
    assert 'verify names the rule "pow two" of simplify' in said


def test_a_program_that_is_right_has_nothing_to_look_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, picograd as pg\nassert sys.argv[1:] == ['--epochs', '2']\nprint(pg.ones(3).sum().item())"
    )
    assert cli.main(["bisect", str(script), "--epochs", "2"]) == 0
    assert "as it is: right" in capsys.readouterr().out


def test_a_missing_program_is_said(tmp_path: Path) -> None:
    with pytest.raises(pg.DataError, match="this program does not exist"):
        bisect_script(BisectConfig(tmp_path / "none.py"))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise ValueError('a reason')", "wrong: exit status 1, ValueError: a reason"),
        ("import sys; sys.exit('a word')", "wrong: exit status 1, a word"),
        ("import sys; sys.exit(4)", "wrong: exit status 4"),
        ("import sys; assert sys.stdin.read() == ''; print('no input')", "right"),
        ("import picograd as pg; pg.ones(3).reshape(2, -1)", "has 3 elements, (2, -1) needs a multiple of 2."),
    ],
)
def test_the_error_of_a_program_is_said(source: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(source)
    assert str(run_trial([str(tmp_path / "program.py")], {}, None, True)).endswith(said)


def test_a_program_that_kills_its_process_is_wrong(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import os; os._exit(3)")
    assert run_trial([str(script)], {}, None, True).status == 3


@pytest.mark.parametrize(
    ("cure", "said"),
    [
        ({"PICOGRAD_CACHE": "off"}, "an entry of the cache is wrong"),
        ({"PICOGRAD_PLAIN_SUMS": "1"}, "it is right with plain sums of products"),
        ({"PICOGRAD_CPU": "sse"}, "it is right with short vectors"),
        ({"jit": "off"}, "it is right without jit"),
        ({}, "not an option or a rule"),
        ({"PICOGRAD_DEVICE": "CPU"}, "own operations or a chain rule are wrong"),
    ],
)
def test_options_are_tried_one_by_one(
    cure: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs that are made up: only what cures it, or for the last the evaluator too, tells one from another."""

    def made_up(words: list[str], changes: dict[str, str], limit: int | None, jit: bool) -> Trial:
        given = {**changes, **({} if jit else {"jit": "off"})}
        is_right = bool(cure) and cure.items() <= given.items()
        is_right = is_right or (given.get("PICOGRAD_DEVICE") == "NUMPY" and "PICOGRAD_DEVICE" not in cure)
        return Trial(0, "" if is_right else "kernel reduce_3", 9, "")

    monkeypatch.setattr(bisect, "run_trial", made_up)
    script = tmp_path / "program.py"
    script.write_text("")
    assert bisect_script(BisectConfig(script)) == 1
    assert said in capsys.readouterr().out


def test_which_finds_the_first_application_that_matters() -> None:
    x = pg.randn(4)

    def apply() -> list[str]:
        with_rules = ((x + 0.0) - 0.0) * 1.0 + pg.zeros(4) * 1.0
        return [str(op) for op in algebra.simplify_graph([with_rules.read().src[0]])]

    with limited() as seen:
        apply()
    names = [name for name, _ in seen.applied]
    assert seen.count == len(names) > 1
    for number, name in enumerate(names, 1):
        found = which(apply, lambda limit, number=number: limit >= number)  # type: ignore[misc]
        assert found is not None and found[0] == name
    assert which(apply, lambda limit: True) is None
