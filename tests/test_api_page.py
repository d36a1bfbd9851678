"""The page of public names that `python -m tools.api` writes."""

from __future__ import annotations

import re
from pathlib import Path

from tools.api import main, page


def test_the_page_has_a_name_once_and_the_same_text_each_time(tmp_path: Path) -> None:
    main(tmp_path / "new" / "api.md")
    text = (tmp_path / "new" / "api.md").read_text()
    assert text == page()
    headings = re.findall(r"^### `([\w.]+)", text, re.MULTILINE)
    assert len(headings) == len(set(headings)) > 1200
    assert not re.search(r" at 0x[0-9a-f]+", text)
