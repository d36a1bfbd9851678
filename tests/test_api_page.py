"""docs/api.md says what the docstrings and the table of operations say."""

from __future__ import annotations

from tools.api import PAGE, page


def test_the_page_of_public_names_is_current() -> None:
    assert PAGE.read_text() == page(), "python -m tools.api writes it"
