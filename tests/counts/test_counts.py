"""What graphs, kernels and Programs are made of, counted, is what it was: a change of their cost is seen and meant.

`python -m tests.counts.test_counts` counts anew; what has changed stands in the diff of tests/golden/counts.txt.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.counts.counting import counts_of
from tests.counts.workloads import WORKLOADS

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "counts.txt"


def golden() -> dict[str, list[str]]:
    """Returns what was counted, by workload."""
    found: dict[str, list[str]] = {}
    for part in GOLDEN.read_text().split("== ")[1:]:
        name, *lines = part.splitlines()
        found[name] = lines
    return found


COUNTED = golden() if GOLDEN.exists() else {}


@pytest.mark.parametrize("name", WORKLOADS)
def test_counts_are_what_they_were(name: str) -> None:
    assert counts_of(WORKLOADS[name]()) == COUNTED[name], "if this is meant: python -m tests.counts.test_counts"


def test_no_workload_is_gone() -> None:
    assert [*COUNTED] == [*WORKLOADS]


if __name__ == "__main__":
    parts = ["\n".join([f"== {name}", *counts_of(make()), ""]) for name, make in WORKLOADS.items()]
    GOLDEN.write_text("".join(parts))
