"""The mutation run changes what it says it changes, and asks the tests that can notice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tools.mutate.__main__ as mutate
from tools.mutate.__main__ import Reach, append, judge_loaded, make_map, passes, read, unjudged
from tools.mutate.changes import FURTHER, ROOT, TARGETS, Mutant, choose, mutants_of
from tools.mutate.judge import replacements
from tools.mutate.reach import digest

TEXT = """LIMIT = 3
def rule(a, b):
    if a is None:
        return None
    return [x - b for x in a if x < LIMIT and x > b]
"""


MUTANT = Mutant("simplify", "picograd/ir/arithmetic.py", 1, "off by one", 5, 6, "2", (5, 9))


def test_every_kind_of_change_is_found() -> None:
    found = {(one.kind, one.applied(TEXT).splitlines()[one.line - 1].strip()) for one in mutants_of("t", "f.py", TEXT)}
    assert found == {
        ("off by one", "LIMIT = 4"),
        ("guard dropped", "if False:"),
        ("comparison flipped", "if a is not None:"),
        ("operands swapped", "return [(b) - (x) for x in a if x < LIMIT and x > b]"),
        ("guard dropped", "return [x - b for x in a if x < LIMIT]"),
        ("comparison flipped", "return [x - b for x in a if x <= LIMIT and x > b]"),
        ("comparison flipped", "return [x - b for x in a if x < LIMIT and x >= b]"),
    }


def test_operands_are_swapped_where_their_order_matters() -> None:
    ops = "Op(OpCode.SUB, d, (a, b)), Op(OpCode.ADD, d, (a, b)), Op(op.code, d, (a, b)), a * b"
    text = f"def rule(a, b):\n    return {ops}\n"
    lines = [one.applied(text).splitlines()[1].split("return ")[1] for one in mutants_of("t", "f.py", text)]
    assert sorted(lines) == [
        "Op(OpCode.SUB, d, (a, b)), Op(OpCode.ADD, d, (a, b)), Op(op.code, d, (b, a)), a * b",
        "Op(OpCode.SUB, d, (b, a)), Op(OpCode.ADD, d, (a, b)), Op(op.code, d, (a, b)), a * b",
    ]


def test_a_change_is_put_into_functions_or_left_to_the_loader() -> None:
    before = compile(TEXT, "f.py", "exec")
    for mutant in mutants_of("t", "f.py", TEXT):
        pairs = replacements(before, compile(mutant.applied(TEXT), "f.py", "exec"))
        names = None if pairs is None else {old.co_name for old, _ in pairs}
        assert names in ((None,) if mutant.line == 1 else ({"rule"}, {"rule", "<listcomp>"})), mutant


def test_changes_are_drawn_by_target_and_by_kind_in_turn() -> None:
    drawn = choose(24, 5)
    assert drawn == choose(24, 5) and len(set(drawn)) == 24
    assert {(one.target, one.kind) for one in drawn} == {(one.target, one.kind) for one in drawn[:12]}


def test_tests_near_to_the_file_are_asked_first_and_one_of_each_function(tmp_path: Path) -> None:
    file = MUTANT.file
    seconds = {"tests/tensor/t.py::a": 0.1, "tests/ir/t.py::b[1]": 0.3, "tests/ir/t.py::b[2]": 0.2, "tests/ir/t.py::c": 5}
    (tmp_path / "map.json").write_text(
        json.dumps(
            {
                "files": {file: digest((ROOT / file).read_text())}, "seconds": {**seconds, "tests/ir/t.py::far": 0.1},
                "sites": {**{test: [f"{file}:5:9"] for test in seconds}, "tests/ir/t.py::far": [f"{file}:20:29"]},
                "import": [],
            }
        )
    )  # fmt: skip
    order = ["tests/ir/t.py::b[2]", "tests/ir/t.py::c", "tests/ir/t.py::b[1]", "tests/tensor/t.py::a"]
    assert Reach([tmp_path / "map.json"]).order(MUTANT, 60) == order
    assert Reach([tmp_path / "map.json"]).order(MUTANT, 1) == [order[0], *order[2:]]


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_has_its_files_and_tests(name: str) -> None:
    target = TARGETS[name]
    assert len(target.files) > 1 and all((ROOT / path).exists() for path in (*target.files, *target.tests, *FURTHER))


def reach_of(folder: Path, tests: list[str]) -> Reach:
    """Returns the map of tests that all get to MUTANT, the quickest first."""
    sites = {test: [f"{MUTANT.file}:5:9"] for test in tests}
    found = {"files": {}, "seconds": {test: i for i, test in enumerate(tests)}, "sites": sites, "import": []}
    (folder / "map.json").write_text(json.dumps(found))
    return Reach([folder / "map.json"])


@pytest.mark.parametrize("noticed_by", ["tests/ir/t.py::sound", None])
def test_a_test_that_fails_without_a_change_is_struck_off(
    noticed_by: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a process that loads the change, too; those after it are asked."""
    failing = {"tests/ir/t.py::broken": True, noticed_by: False}  # without the change

    def run(plugin: str, variable: str, file: Path, tests: list[str]) -> str:
        if plugin != "tools.mutate.judge":
            return "1 failed" if failing[tests[0]] else "1 passed"
        task = json.loads(file.read_text())
        noticed = next((test for test in task["order"][0] if test in failing), None)
        append(Path(task["verdicts"]), {"number": 7, "noticed_by": noticed, "how": "fails"})
        return ""

    monkeypatch.setattr(mutate, "pytest_with", run)
    reach = reach_of(tmp_path, [f"tests/ir/t.py::{name}" for name in ("passing", "broken", "sound")])
    judge_loaded(7, MUTANT, reach, 60.0, tmp_path / "verdicts.jsonl")
    assert read(tmp_path / "verdicts.jsonl")[7]["noticed_by"] == noticed_by


def test_a_change_that_does_not_load_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mutate, "pytest_with", lambda *rest: "SyntaxError")
    verdicts, fresh = tmp_path / "verdicts.jsonl", {"number": 7, "noticed_by": None, "how": "fresh"}
    append(verdicts, fresh)
    judge_loaded(7, MUTANT, reach_of(tmp_path, ["tests/ir/t.py::some"]), 60.0, verdicts)
    assert read(verdicts)[7]["how"] == "does not load" and read(verdicts)[7]["noticed_by"]


def test_what_has_no_verdict_is_judged() -> None:
    done = {0: (None, "passed"), 1: ("t", "fails"), 2: (None, "fresh")}
    verdicts = {number: {"noticed_by": test, "how": how} for number, (test, how) in done.items()}
    assert list(unjudged([MUTANT] * 4, verdicts, again=False)) == [2, 3]
    assert list(unjudged([MUTANT] * 4, verdicts, again=True)) == [0, 2, 3]


def test_a_test_that_passes_is_seen_to() -> None:
    assert passes("tests/ir/test_arithmetic.py::test_shifts")


def test_a_map_says_what_a_test_comes_to(tmp_path: Path) -> None:
    test = "tests/ir/test_arithmetic.py"
    make_map(tmp_path / "reach.json", [test])
    sites = json.loads((tmp_path / "reach.json").read_text())["sites"].items()
    assert any(place.startswith("picograd/ir/arithmetic.py:") for name, places in sites if test in name for place in places)
