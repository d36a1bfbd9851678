"""Pages of docs/ and the README's example: each Python block runs and prints what the text block after it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host_compilers import HAS_COMPILER
from tools.pages import ROOT, Ran, differences, is_same_picture, other_pages, put_in, run


@pytest.mark.req("I3")
@pytest.mark.variants(every=5)
@pytest.mark.parametrize("page", other_pages(), ids=lambda path: path.name)
def test_pages_print_what_they_say(page: Path) -> None:
    if "cudasim" in page.read_text() and not HAS_COMPILER:
        pytest.skip("no C++ compiler is on PATH")
    assert not differences(page, run(page))


PAGE = """# A page

```python
import sys
from pathlib import Path

print(2 + 2)
```

```python
Path("pictures/one.svg").write_text('<path d="M1 20.04"/>')
print("measured on a machine:", id(sys), "ns")
```

The end.
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page outside of the repository."""
    monkeypatch.setattr("tools.pages.ROOT", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_a_page_that_was_written_prints_what_it_says_and_its_times_are_not_compared(page: Path) -> None:
    ran = Ran(["4\n", "measured on a machine: 5 ns\n"], {"one.svg": '<path d="M1 20.04"/>'}, 0.1)
    assert len(differences(page, ran)) == 3  # both outputs, and the picture that is not there
    put_in(page, ran)
    assert "```text\n4\n```\n\n```python\nPath" in page.read_text() and page.read_text().endswith("```\n\nThe end.\n")
    assert not differences(page, ran)
    put_in(page, ran)
    assert page.read_text().count("```text") == 2
    slower = ran._replace(outputs=["4\n", "measured on another machine: 9 ns\n"])
    assert not differences(page, slower)


@pytest.mark.parametrize("changed", [
    {"outputs": ["5\n", "measured on a machine: 5 ns\n"]},
    {"outputs": ["4\n", "5 ns\n"]},
    {"pictures": {"one.svg": '<path d="M1 35"/>'}},
    {"pictures": {"one.svg": '<line d="M1 20.04"/>'}},
])  # fmt: skip
def test_a_change_of_an_output_or_a_picture_is_found(page: Path, changed: dict[str, object]) -> None:
    ran = Ran(["4\n", "measured on a machine: 5 ns\n"], {"one.svg": '<path d="M1 20.04"/>'}, 0.1)
    put_in(page, ran)
    assert len(differences(page, ran._replace(**changed))) == 1


def test_an_error_in_a_block_has_its_line_among_those_of_all_blocks() -> None:
    path = ROOT / "build" / "page_with_error.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("# A page\n\n```python\nx = 1\n```\n\n```python\nx += 1\nx.missing\n```\n")
    try:
        with pytest.raises(RuntimeError, match=r'page_with_error.py", line 3, in <module>\n    x.missing'):
            run(path)
    finally:
        path.unlink()


def test_a_page_whose_process_ends_says_how(page: Path) -> None:
    page.write_text("```python\nimport os\nos.kill(os.getpid(), 11)\n```\n")
    with pytest.raises(RuntimeError, match=r"page.md does not run to its end: its process ended by SIGSEGV"):
        run(page)
    page.write_text("```python\nimport resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 2))\nwhile True: pass\n```\n")
    with pytest.raises(RuntimeError, match="it took more than 60 s of processor time"):
        run(page)


@pytest.mark.parametrize(("kept", "drawn", "same"), [
    ('<path d="M1 200"/>', '<path d="M1 205"/>', True),
    ('<path d="M1 200"/>', '<path d="M1 240"/>', False),
    ('<text x="3">7 values, 0.251 of all</text>', '<text x="4">7 values, 0.253 of all</text>', True),
    ('<text x="3">7 values, 0.251 of all</text>', '<text x="3">7 values, 0.351 of all</text>', False),
    ('<text x="3">7 values</text>', '<text x="3">8 values</text>', False),
    ('<text x="3">7 values</text>', '<text x="3">7 bytes</text>', False),
])  # fmt: skip
def test_pictures_have_the_same_words_and_nearly_the_same_drawing(kept: str, drawn: str, same: bool) -> None:
    assert is_same_picture(kept, drawn) is same
