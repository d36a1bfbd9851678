"""Runs pages of Markdown: each Python block, and puts what it prints behind it.

    python -m tools.pages                    runs all pages and says what they print otherwise
    python -m tools.pages --write            puts what they print now, and the pictures they draw, into the pages
    python -m tools.pages --write docs/course/01_scalar_autodiff.md

A page runs in a process and an empty folder of its own, block after block, in one namespace, within CPU_SECONDS_MAX. Lines
have the numbers that they would have in a file of all blocks and nothing else, so that prose does not change them.

- The output of a ```python block is the ```text block behind it. A block that is not to be run has another language, or is
  indented.
- A picture is a file that a block writes to `pictures/`; it is compared with the one beside the page. Its words are the
  same; numbers of its drawing may be off by PICTURE_TOLERANCE, and fractions in its words by FRACTION_TOLERANCE, for they
  follow from floats whose last bits differ between processors.
- Times are not compared: an output whose first line begins with "measured on" is kept until --write.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import tyro

ROOT = Path(__file__).resolve().parents[1]
CPU_SECONDS_MAX = 60
PICTURE_TOLERANCE = 10  # in the units of the picture: last bits of another processor move the end of a long training
FRACTION_TOLERANCE = 0.05  # of the number
MEASURED = "measured on"
PAIR = re.compile(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)")
WORDS = re.compile(r"(?<=>)[^<]*(?=<)")  # of a picture
OTHERS = ("docs/tour.md", "docs/devices.md", "docs/kernels.md", "docs/train.md", "docs/from_pytorch.md", "README.md")
RAN = "ran.json"  # what a page leaves in its folder


def course() -> list[Path]:
    """Returns the chapters of the course, in order."""
    return sorted((ROOT / "docs" / "course").glob("[0-9]*.md"))


def other_pages() -> list[Path]:
    """Returns the other pages that are run."""
    return [ROOT / name for name in OTHERS]


class Ran(NamedTuple):
    """Outputs and pictures of a page that was run.

    outputs:      text printed by each block
    pictures:     text of each picture, by its name
    cpu_seconds:  processor time of the process
    """

    outputs: list[str]
    pictures: dict[str, str]
    cpu_seconds: float


def run(page: Path) -> Ran:
    """Runs a page in a process of its own.

    Raises:
      RuntimeError: a block raises, or the page takes too long.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PICOGRAD_DEVICE"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pictures").mkdir()
        environment["PICOGRAD_CACHE"] = f"{folder}/cache"  # counts of plans are those of a first run
        command = [sys.executable, "-m", "tools.pages", "--inside", str(page)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            ended = signal.Signals(-done.returncode).name if done.returncode < 0 else ""
            limit = f"it took more than {CPU_SECONDS_MAX} s of processor time" if ended == "SIGXCPU" else ""
            why = limit or (ended and f"its process ended by {ended}\n") + done.stderr
            raise RuntimeError(f"{page.relative_to(ROOT)} does not run to its end: {why}")
        outputs, cpu_seconds = json.loads((Path(folder) / RAN).read_text())
        pictures = {path.name: path.read_text() for path in sorted((Path(folder) / "pictures").iterdir())}
    return Ran(outputs, pictures, cpu_seconds)


def run_inside(page: Path) -> None:
    """Runs a page in this process, and leaves its outputs in the current folder."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX + 5))  # SIGXCPU, then SIGKILL
    blocks = [code for code, _ in PAIR.findall(page.read_text())]
    name = f"{page.stem}.py"
    linecache.cache[name] = (0, None, "".join(blocks).splitlines(keepends=True), name)  # for the lines that errors quote
    names: dict[str, object] = {"__name__": "page"}
    outputs, line = [], 0
    for code in blocks:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * line + code, name, "exec"), names)
        line += code.count("\n")
        outputs.append("\n".join(line.rstrip() for line in out.getvalue().split("\n")))
    Path(RAN).write_text(json.dumps([outputs, time.process_time()]))


# ---- compared ----
def differences(page: Path, ran: Ran) -> list[str]:
    """Returns what a run gave otherwise than the page says, a sentence each."""
    found = []
    for (code, said), printed in zip(PAIR.findall(page.read_text()), ran.outputs):
        is_time = said.startswith(MEASURED) and printed.startswith(MEASURED)
        if printed != said and not is_time:
            found.append(f"{page.name} prints otherwise:\n{code}\nis now:\n{printed}\nwas:\n{said}")
    for name, picture in ran.pictures.items():
        kept = page.parent / "pictures" / name
        if not kept.is_file():
            found.append(f"{page.name}: its picture {name} is not kept")
        elif not is_same_picture(kept.read_text(), picture):
            found.append(f"{page.name} draws {name} otherwise")
    return found


def is_same_picture(kept: str, drawn: str) -> bool:
    """True if two pictures have the same text, and numbers that are nearly the same.

    >>> is_same_picture('<path d="M1 200"/>', '<path d="M1.1 201"/>')
    True
    >>> is_same_picture('<path d="M1 200"/>', '<path d="M1 240"/>')
    False
    >>> is_same_picture("<text>7 values</text>", "<text>8 values</text>")
    False
    """
    drawing = [WORDS.sub("", picture) for picture in (kept, drawn)]
    words = ["\n".join(WORDS.findall(picture)) for picture in (kept, drawn)]
    return _is_same(*drawing, _is_near_place) and _is_same(*words, _is_near_number)


def _is_same(one: str, other: str, is_near: Callable[[str, str], bool]) -> bool:
    """True if two texts have the same words, and numbers that are near to each other."""
    a, b = NUMBER.split(one), NUMBER.split(other)
    return a[::2] == b[::2] and all(map(is_near, a[1::2], b[1::2]))


def _is_near_place(a: str, b: str) -> bool:
    return abs(float(a) - float(b)) <= PICTURE_TOLERANCE


def _is_near_number(a: str, b: str) -> bool:
    """True if two numbers are the same, or fractions that are nearly the same."""
    if a == b or a.isdigit() and b.isdigit():
        return a == b
    return abs(float(a) - float(b)) <= FRACTION_TOLERANCE * max(abs(float(a)), abs(float(b)))


def put_in(page: Path, ran: Ran) -> None:
    """Puts what the blocks of a page print now into it, and its pictures beside it."""
    outputs = iter(ran.outputs)

    def replaced(match: re.Match[str]) -> str:
        printed = next(outputs)
        behind = "" if match[2] is not None else "\n"  # of a block without output the pattern takes the empty line, too
        return f"```python\n{match[1]}```\n" + (f"\n```text\n{printed}```{behind}" if printed else "")

    page.write_text(PAIR.sub(replaced, page.read_text()))
    for name, picture in ran.pictures.items():
        kept = page.parent / "pictures" / name
        kept.parent.mkdir(exist_ok=True)
        if not (kept.is_file() and is_same_picture(kept.read_text(), picture)):
            kept.write_text(picture)


def main(pages: tyro.conf.Positional[tuple[Path, ...]] = (), /, write: bool = False, inside: Path | None = None) -> int:
    """Runs the code of pages and compares its output with the page; returns the exit status.

    Args:
      pages:   Markdown files; all pages with code if empty
      write:   writes the output into the page instead of comparing
      inside:  one page to run in this process; used by the process that compares
    """
    if inside is not None:
        try:
            run_inside(inside)
        except Exception:
            traceback.print_exc()  # by linecache: with the lines of the page
            return 1
        return 0
    status = 0
    for page in [page.resolve() for page in pages] or [*course(), *other_pages()]:
        try:
            ran = run(page)
        except RuntimeError as error:
            print(error)
            status = 1
            continue
        found = [] if write else differences(page, ran)
        if write:
            put_in(page, ran)
        print(f"{page.relative_to(ROOT)}: {len(ran.outputs)} blocks, {ran.cpu_seconds:.1f} s", *found, sep="\n")
        status |= bool(found)
    return status


if __name__ == "__main__":
    sys.exit(tyro.cli(main, prog="python -m tools.pages"))
