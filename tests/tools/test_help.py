"""Programs of tools/ and bench/ answer --help, and refuse options they do not have, before they write anything."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [path for folder in ("tools", "bench") for path in sorted((ROOT / folder).glob("*.py"))]
STARTED_BY_OTHERS = {"bench/cliffs_worker.py", "bench/first_step.py", "bench/worker.py"}


def test_every_program_that_a_person_starts_reads_its_options_by_a_parser() -> None:
    programs = [path for path in PROGRAMS if "__main__" in path.read_text()]
    without = [path for path in programs if not re.search(r"tyro\.cli|parse\(\)|parse_args", path.read_text())]
    assert {str(path.relative_to(ROOT)) for path in without} - {"tools/touched.py"} == STARTED_BY_OTHERS


@pytest.mark.parametrize("name", ["tools.api", "tools.pages", "bench.kernels"])
def test_an_option_that_is_not_there_is_refused(name: str) -> None:
    done = subprocess.run([sys.executable, "-m", name, "--bogus"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "--bogus" in done.stdout + done.stderr
    assert not (ROOT / "--bogus").exists()


def test_a_program_is_called_in_its_help_as_a_person_starts_it() -> None:
    for path in PROGRAMS:
        called = re.findall(r"(?:tyro\.cli\(\w+|ArgumentParser\()(.*)", path.read_text())
        assert all("python -m" in words for words in called), path


def test_each_option_of_a_program_is_explained() -> None:
    for path in PROGRAMS:
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name == "Arguments" and f"tyro.cli({node.name}" in text:
                fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
                assert all(text.splitlines()[field.lineno - 2].lstrip().startswith("#") for field in fields), path
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                assert "help" in {keyword.arg for keyword in node.keywords}, f"{path}:{node.lineno}"
            if isinstance(node, ast.FunctionDef) and node.name == "main" and f"tyro.cli({node.name}" in text:
                names = [argument.arg for argument in [*node.args.posonlyargs, *node.args.args]]
                assert all(re.search(rf"^ +{name}: +\S", ast.get_docstring(node) or "", re.M) for name in names), path
