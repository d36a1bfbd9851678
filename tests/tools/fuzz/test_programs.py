"""Random programs with a jitted function give what they give without jit, or a JitError; a wrong jit is found."""

from __future__ import annotations

from typing import Any

import pytest

from picograd_lab.fuzz import programs
from picograd_lab.fuzz.failures import program_script
from picograd_lab.fuzz.programs import any_program, check_program
from picograd_lab.fuzz.run import try_seed

SEEDS, AT_ONCE = 300, 25


@pytest.mark.variants(every=7)
@pytest.mark.req("G10")
@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_programs_give_what_they_give_without_jit(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        check_program(any_program(seed).source, "NUMPY")


def test_a_jit_that_replays_the_first_result_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def frozen(function: Any) -> Any:
        results: list[Any] = []

        def replay(*args: Any) -> Any:
            results.extend([] if results else [function(*args)])
            return results[0]

        return replay

    monkeypatch.setattr(programs, "jit", frozen)
    failures = [failure for failure, _ in (try_seed("programs", seed, "NUMPY") for seed in range(6)) if failure is not None]
    assert len(failures) >= 3
    assert all("with jit" in failure.error and "def program(jit, show):" in failure.source for failure in failures)
    assert min(len(failure.source.splitlines()) for failure in failures) < 30


def test_the_script_of_a_program_runs() -> None:
    source = any_program(3).source
    names: dict[str, Any] = {}
    exec(program_script(source, 3, "NUMPY", "two\nlines"), names)
    assert names["SOURCE"] == source
