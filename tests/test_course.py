"""The course: its pages print what they say, its exercises have solutions, and what it names is there.

By default some chapters run; `--full` runs all of them.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host_compilers import HAS_COMPILER
from tools.pages import ROOT, course, differences, run
from tools.site import ROW, defined

COURSE = ROOT / "docs" / "course"
EXERCISES = COURSE / "exercises"
PAGES = [*course(), COURSE / "README.md"]
NAMES = [page.stem for page in course()]
PLACE = "## Where this is in picograd"


@pytest.mark.req("I3", "J14")
@pytest.mark.variants(every=8)
@pytest.mark.parametrize("page", course(), ids=lambda path: path.stem)
def test_chapters_print_what_they_say(page: Path) -> None:
    if re.search('cudasim|"cc"', page.read_text(), re.IGNORECASE) and not HAS_COMPILER:
        pytest.skip("no C++ compiler is on PATH")
    assert not differences(page, run(page))


# ---- form ----
@pytest.mark.parametrize("page", course(), ids=lambda path: path.stem)
def test_a_chapter_has_goal_picture_exercise_and_place(page: Path) -> None:
    text = page.read_text()
    number = int(page.stem.split("_")[0])
    assert re.match(rf"# {number}\. \w.*\n\n\*\*Goal\.\*\* ", text)
    for part in (f"](exercises/{page.stem}.py)", f"exercises/test_{page.stem}.py", f"\n{PLACE}\n", "\n## Exercise"):
        assert part in text, f"{page.name} has no {part.strip()}"
    assert re.search(r"^!\[.+\]\(pictures/.+\.svg\)", text, re.MULTILINE), f"{page.name} has no picture"
    in_blocks = [line for block in re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL) for line in block.split("\n")]
    assert max(map(len, in_blocks)) <= 110, f"{page.name} has blocks wider than a screen: {max(in_blocks, key=len)}"


def test_the_first_page_lists_every_chapter_and_chapters_are_numbered_in_order() -> None:
    text = (COURSE / "README.md").read_text()
    numbers = [int(name.split("_")[0]) for name in NAMES]
    assert numbers == sorted(set(numbers))
    assert re.findall(r"^\| \d+ \| \[.+?\]\((\d\d_\w+)\.md\)", text, re.MULTILINE) == NAMES


def test_every_picture_is_on_a_page() -> None:
    shown = {name for page in PAGES for name in re.findall(r"\]\(pictures/([\w.-]+)\)", page.read_text())}
    assert shown == {path.name for path in (COURSE / "pictures").iterdir()}


# ---- links and names ----
def prose(page: Path) -> str:
    """Returns the text of a page outside of its blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Returns the headings of a page as links name them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.exists() and there.is_relative_to(ROOT), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(there), f"{page.name} links to {target}"


def test_names_with_underscores_are_not_printed_bold() -> None:
    """Markdown takes `__init__` outside of code for a bold "init"."""
    for page in [*PAGES, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        outside = re.sub(r"\]\([^)]*\)|`[^`]*`", "", prose(page))
        assert not (bold := re.search(r"(?<!\\)__\w+__", outside)), f"{page.name} has {bold}"


@pytest.mark.parametrize("page", course(), ids=lambda path: path.stem)
def test_names_in_picograd_are_where_the_page_says(page: Path) -> None:
    """Each row of the last part is "- [file](link): `name`, `name`: words", and a file of Python defines these names."""
    rows = re.findall(r"^- \[.*?\]\((.*?)\):(.*)$", page.read_text().split(PLACE)[1], re.MULTILINE)
    assert len(rows) >= 2
    for link, words in rows:
        path = (page.parent / link.partition("#")[0]).resolve()
        assert path.exists(), f"{page.name} links to {link}"
        names = re.findall(r"`([\w.]+)`", words.split(": ")[0])
        if path.suffix == ".py":
            missing = set(names) - defined(path).keys()
            assert names and not missing, f"{page.name}: {path.name} does not define {missing or 'anything named'}"
    linked = [re.findall(r"`([\w.]+)`", row[2]) for row in ROW.findall(page.read_text())]
    of_python = [words for link, words in rows if link.endswith(".py")]
    assert linked == [re.findall(r"`([\w.]+)`", words.split(": ")[0]) for words in of_python]


# ---- exercises ----
SOME = NAMES[::8]
OTHERS = [name for name in NAMES if name not in SOME]
parts = pytest.mark.parametrize(
    "names", [SOME, pytest.param(OTHERS, marks=pytest.mark.variants(first=1))], ids=["some", "others"]
)


def files(names: list[str]) -> list[str]:
    return [str(EXERCISES / f"test_{name}.py") for name in names]


def run_exercises(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=line", "-rA"]
    return subprocess.run([*command, *words], capture_output=True, text=True, cwd=ROOT, env=environment)


def test_each_chapter_has_an_exercise_its_test_and_its_solution() -> None:
    assert {path.stem for path in EXERCISES.glob("[0-9]*.py")} == set(NAMES)
    assert {path.stem for path in EXERCISES.glob("test_*.py")} == {f"test_{name}" for name in NAMES}
    assert {path.stem for path in (EXERCISES / "solutions").glob("*.py")} == set(NAMES)


@parts
def test_solutions_pass_the_tests_of_their_exercises(names: list[str]) -> None:
    done = run_exercises(*files(names), "--solutions")
    assert done.returncode == 0, done.stdout[-3000:]


@parts
def test_no_exercise_passes_before_it_is_done(names: list[str]) -> None:
    done = run_exercises(*files(names))
    failed = set(re.findall(r"^(?:FAILED|ERROR) .*?/test_(\w+)\.py", done.stdout, re.MULTILINE))
    assert failed == set(names), done.stdout[-3000:]


def test_each_assertion_of_an_exercise_says_what_is_wrong() -> None:
    """A reader whose answer is wrong is told so in words: `assert` has a message, NumPy's comparisons an `err_msg`."""
    for path in [*EXERCISES.glob("test_*.py"), *(ROOT / "docs" / "kernels" / "exercises").glob("test_*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            is_numpys = isinstance(node, ast.Call) and ast.unparse(node.func).startswith("np.testing.assert_")
            says = [word.arg for word in node.keywords] if isinstance(node, ast.Call) else []
            is_bare = isinstance(node, ast.Assert) and node.msg is None or is_numpys and "err_msg" not in says
            assert not is_bare, f"{path.name} says nothing at: {ast.unparse(node)}"


# ---- answers of readers: a chapter, a part of its solution, and what a reader wrote instead ----
WRONG = (
    ("03_views_and_strides", "tuple(strides), view.offset)\n\n\ndef reshape", "tuple(strides))\n\n\ndef reshape"),
    ("03_views_and_strides", "else View(shape, tuple(strides), view.offset)", "else View(shape, tuple(strides))"),
    ("03_views_and_strides", "return View(shape, tuple(strides))\n", "return View((), tuple(strides))\n"),
    ("03_views_and_strides", "if length == 1:\n            strides", "if length == 1 and merged:\n            strides"),
    ("03_views_and_strides", "return None if merged else", "return"),
    ("04_ngrams", "logits.max(axis=-1, keepdims=True)", "logits.max()"),
    ("04_ngrams", "sequence[:-1], sequence[1:]", "sequence[1:], sequence[:-1]"),
    ("05_mnist", "(logits.argmax(axis=1) == labels)", "(logits.argmax(axis=1) != labels)"),
    ("09_lazy_graphs_and_fusion", "nbytes + readers * nbytes", "2 * nbytes"),
    ("14_attention", "return one  # neither", "return m, 0.0, one[2] * np.nan  # neither"),
    ("18_bert_and_gpt", "scores = k @", "k @ w_k, v @ w_v\n    scores = k @"),
    ("21_memory_planning", "key=lambda n: -chains[n][0]", "key=lambda n: chains[n][1]"),
)
RIGHT = (
    ("18_bert_and_gpt", "(word @ w_k)[None], (word @ w_v)[None]", "(w_k.T @ word)[None], np.dot(word[None], w_v)"),
    ("18_bert_and_gpt", "k @ (word @ w_q)", "k @ np.einsum('c,cd->d', word, w_q)"),
)


def test_wrong_answers_fail_and_other_right_ones_pass(tmp_path: Path) -> None:
    shutil.copy(ROOT / "docs" / "conftest.py", tmp_path)
    for number, (name, part, instead) in enumerate(WRONG + RIGHT):
        folder = tmp_path / str(number)
        folder.mkdir()
        solution = (EXERCISES / "solutions" / f"{name}.py").read_text()
        assert solution.count(part) == 1, f"{name} has no {part!r}"
        (folder / f"{name}.py").write_text(solution.replace(part, instead))
        shutil.copy(EXERCISES / f"test_{name}.py", folder)
    done = run_exercises("--import-mode=importlib", str(tmp_path))
    failed = {int(number) for number in re.findall(r"^FAILED .*?/(\d+)/test_\w+\.py", done.stdout, re.MULTILINE)}
    assert failed == set(range(len(WRONG))), done.stdout[-3000:]
