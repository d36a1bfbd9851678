"""Tables of the latest entries keep their bound when they are copied."""

from __future__ import annotations

import copy
import pickle

from picograd.latest import Latest


def test_a_table_is_copied_with_its_bound() -> None:
    table: Latest[str, int] = Latest(2)
    table.put("a", 1)
    table.put("b", 2)
    for copied in (copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert copied == table and copied is not table
        copied.put("c", 3)
        assert list(copied) == ["b", "c"] and list(table) == ["a", "b"]
