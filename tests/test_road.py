"""The road of ARCHITECTURE.md: few files, and those that a first sum enters, in that order."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import picograd

PACKAGE = Path(picograd.__file__).parent
FILES_MAX, LINES_MAX = 25, 7_000  # of the road
ENTERED_MAX, FUNCTIONS_MAX = 76, 800  # files and functions of the example, cold
TRACE = """
import json, os, sys
import picograd as pg

root, files, functions = os.path.dirname(pg.__file__) + "/", {}, set()


def look(frame, event, arg):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(root):
        files.setdefault(name[len(root) :])
        functions.add((name, frame.f_code.co_qualname))


a, b = pg.tensor([1.0, 2.0, 3.0]), pg.tensor([4.0, 5.0, 6.0])
(a * 3.0 - b).max().item()  # what is loaded late is loaded now
sys.setprofile(look)
((a * 2 + b).sum()).tolist()
sys.setprofile(None)
print(json.dumps([list(files), len(functions)]))
"""


def road() -> list[str]:
    """Returns the files of the road, in the order of the page."""
    text = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
    (part,) = re.findall(r"^## The road: .*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| \d+ \| `([\w/]+\.py)` \|", part, re.MULTILINE)


def test_the_road_is_short() -> None:
    lines = sum(len((PACKAGE / file).read_text().splitlines()) for file in road())
    assert 15 <= len(road()) <= FILES_MAX and lines <= LINES_MAX


def test_a_first_sum_goes_along_the_road(tmp_path: Path) -> None:
    own = {"PYTHONPATH": str(PACKAGE.parent), "XDG_CACHE_HOME": str(tmp_path), "PICOGRAD_THREADS": "1"}
    command, own = [sys.executable, "-c", TRACE], {"PATH": "/usr/bin:/bin", **own}
    ran = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
    entered, num_functions = json.loads(ran.stdout)
    missing = [file for file in road() if file not in entered]
    assert not missing
    assert [file for file in entered if file in road()] == road()
    assert len(entered) <= ENTERED_MAX and num_functions <= FUNCTIONS_MAX
