"""Pages of docs/ and the README's example: each Python block runs and prints what the text block after it says.

`python -m tests.test_tour` writes what they print now into the documents.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest

from tests.host_compilers import HAS_COMPILER

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("docs/tour.md", "docs/devices.md", "docs/train.md", "docs/from_pytorch.md", "README.md")
DOCUMENTS = [ROOT / page for page in PAGES]
PAIR = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def printed_by(document: Path) -> list[tuple[str, str | None, str]]:
    """Returns (code, what the document says it prints, what it prints) for each Python block, run in order."""
    names: dict[str, object] = {"__name__": "tour"}
    found = []
    for code, said in PAIR.findall(document.read_text()):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, str(document), "exec"), names)
        found.append((code, said, out.getvalue()))
    return found


@pytest.mark.req("I3")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_print_what_they_say(document: Path, monkeypatch: pytest.MonkeyPatch, alone: None) -> None:
    if "cudasim" in document.read_text() and not HAS_COMPILER:
        pytest.skip("no C++ compiler is on PATH")
    monkeypatch.delenv("PICOGRAD_DEVICE", raising=False)
    for code, said, printed in printed_by(document):
        assert printed == (said or ""), f"{document.name} prints otherwise:\n{code}"


def rewrite(document: Path) -> None:
    """Puts what the blocks print now into a document."""
    outputs = iter([printed for _, _, printed in printed_by(document)])

    def replaced(match: re.Match[str]) -> str:
        printed = next(outputs)
        behind = "" if match[2] is not None else "\n"  # of a block that said nothing the pattern takes the empty line, too
        return f"```python\n{match[1]}```\n" + (f"\n```text\n{printed}```{behind}" if printed else "")

    document.write_text(PAIR.sub(replaced, document.read_text()))


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:] or DOCUMENTS):
        rewrite(path)
