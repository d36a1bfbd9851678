"""Finalizers: all in C, so that no Ctrl-C is lost in one, and each table lets go of what dies."""

from __future__ import annotations

import ast
import copy
import gc
import pickle
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

import picograd
from picograd.interrupts import AtDeath, Latest, LivingKeys, LivingSet, LivingValues, finish_later, later
from tests.test_architecture import nodes_naming

PACKAGE = Path(picograd.__file__).parent
IN_C = ("pop", "append", "discard")  # methods of dict, deque and set
WITH_CALLBACKS = {"WeakSet", "WeakKeyDictionary", "WeakValueDictionary", "WeakMethod", "finalize"}


class Thing:
    """Something that can die."""


def callback_of(call: ast.Call) -> str:
    """Returns the last name of what a weak reference calls, seen through partial(...)."""
    callback = call.args[1]
    if isinstance(callback, ast.Call):
        callback = callback.args[0]
    return ast.unparse(callback).rpartition(".")[2].lstrip("_")


def test_no_finalizer_is_python() -> None:
    """Python hears a signal there, and drops it: 124 of 1,187 interrupts were lost so."""
    for path, node in nodes_naming("__del__", "weakref", paths=sorted(PACKAGE.rglob("*.py"))):
        if isinstance(node, ast.FunctionDef):
            assert node.name != "__del__", f"{path}:{node.lineno} is a finalizer in Python"
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "weakref":
            assert node.attr not in WITH_CALLBACKS, f"{path}:{node.lineno} has callbacks in Python"
        if isinstance(node, ast.ImportFrom) and node.module == "weakref":
            assert not WITH_CALLBACKS & {alias.name for alias in node.names}, f"{path}:{node.lineno}"
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "weakref.ref" and len(node.args) > 1:
            assert callback_of(node) in (*IN_C, "leave"), f"{path}:{node.lineno} has a callback in Python"


def test_a_function_is_called_at_death_with_its_arguments() -> None:
    gone: deque[tuple[int, str]] = deque()
    held = AtDeath(gone.append, (1, "a"))
    assert not gone
    del held
    assert list(gone) == [(1, "a")]


def test_an_interrupted_constructor_leaves_nothing_to_call() -> None:
    AtDeath.__new__(AtDeath)  # dies at once, and in silence


def test_a_set_of_living_objects_keeps_their_order() -> None:
    living: LivingSet[Thing] = LivingSet()
    things = [Thing() for _ in range(5)]
    for thing in reversed(things):
        living.add(thing)
    assert living.living() == things[::-1] and living.has(things[0]) and not living.has(Thing())
    living.discard(things[4])
    del things[1], thing
    assert living.living() == [things[2], things[1], things[0]]


def test_an_object_may_die_after_it_was_discarded_while_somebody_lists_all(recwarn: pytest.WarningsRecorder) -> None:
    """A list of references outlives the entry: the finalizer finds nothing, and raises nothing, which would be dropped."""
    living: LivingSet[Thing] = LivingSet()
    known: LivingKeys[Thing, int] = LivingKeys()
    thing, other = Thing(), Thing()
    for one in (thing, other):
        living.add(one)
        known[one] = 1
    listed = [*living.values(), *known.data.values()]
    living.discard(thing)
    del known[thing], thing, one
    gc.collect()
    assert len(listed) == 4 and living.living() == known.living() == [other] and not recwarn.list


def test_what_is_known_of_an_object_dies_with_it() -> None:
    known: LivingKeys[Thing, str] = LivingKeys()
    one, other = Thing(), Thing()
    known[one], known[other] = "one", "other"
    known[one] = "one anew"
    assert known[one] == known.get(one) == known.setdefault(one, "") == "one anew" and one in known and len(known) == 2
    assert known.items() == [(one, "one anew"), (other, "other")] and known.living() == [one, other]
    assert known.pop(other, "") == "other" and known.pop(other, "none") == "none" and known.get(other, "no") == "no"
    del one
    assert not known.data


def test_a_table_of_objects_lets_them_die() -> None:
    table: LivingValues[int, Thing] = LivingValues()
    one, other = Thing(), Thing()
    table[1], table[2] = one, other
    assert table[1] is one and table.get(2) is other and table.get(3) is None and table.get(3, one) is one
    assert table.items() == [(1, one), (2, other)] and table.values() == [one, other]
    del one
    assert table.items() == [(2, other)] and len(table.data) == 1
    with pytest.raises(KeyError):
        table[1]
    del table[2]
    del other
    assert not table.data


@pytest.mark.parametrize("make", [LivingSet, LivingKeys, LivingValues])
def test_tables_are_cleared_by_the_collector_too(make: Callable[[], LivingSet[Thing]]) -> None:
    table, thing = make(), Thing()
    thing.itself = thing  # type: ignore[attr-defined]
    if isinstance(table, LivingSet):
        table.add(thing)
    else:
        table[thing if make is LivingKeys else 0] = thing if make is LivingValues else 0  # type: ignore[unreachable]
    seen = weakref.ref(thing)
    del thing
    gc.collect()
    assert seen() is None and not (table if isinstance(table, LivingSet) else table.data)


def test_work_left_over_is_done_once_and_again_after_an_interrupt() -> None:
    done: list[int] = []

    def work() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise KeyboardInterrupt

    finish_later()
    later.append(work)
    with pytest.raises(KeyboardInterrupt):
        finish_later()
    finish_later()
    finish_later()
    assert done == [0, 1]


# ---- tables of the latest entries ----
def test_a_table_is_copied_with_its_bound() -> None:
    table: Latest[str, int] = Latest(2)
    table.put("a", 1)
    table.put("b", 2)
    for copied in (copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert copied == table and copied is not table
        copied.put("c", 3)
        assert list(copied) == ["b", "c"] and list(table) == ["a", "b"]
