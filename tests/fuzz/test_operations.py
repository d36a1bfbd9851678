"""Random chains of operations of the table are the same everywhere; `python -m tests.fuzz.operations` runs more of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fuzz.operations import MOST_STEPS, Differs, Program, Step, check, failure, program_of, rows, smallest

SEEDS = range(16)


@pytest.mark.variants
@pytest.mark.req("C3")
@pytest.mark.req("I1")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_chain_of_operations_is_the_same_everywhere(seed: int) -> None:
    script = failure(program_of(seed))
    assert script is None, script


def test_a_constant_within_an_unrolled_index_keeps_its_dtype() -> None:
    """Positions floor((i + 0.5) scale), read by an unrolled sum: 0.5 and the scale are floats in each copy."""
    nearest = Step("nn.functional.interpolate-nearest-exact", 713977240, 0, (), 0)
    product = Step("linalg.vecdot", 264954101, 1, ((0, 2),), 0)
    check(Program(1014, ((4, 5), (4, 5)), (nearest, product), (3,)))


def test_pictures_read_outside_are_zero_where_they_are_computed_on_the_way() -> None:
    """0 times what a quotient is outside of memory, 0 / 0, is NaN."""
    steps = (
        Step("nn.functional.normalize", 468509009, 0, (), 0),
        Step("Tensor.quantile-midpoint", 1012258614, 0, ((0, 1),), 0),
        Step("nn.functional.grid_sample-bicubic", 146527579, 0, ((0, 2),), 0),
        Step("linalg.eigh-upper", 35904427, 0, ((0, 3),), 1),
    )
    check(Program(20004, ((2, 3, 4),), steps, (4,)))


def test_chains_are_long_and_know_most_rows() -> None:
    """Of 30 seeds: up to 50 steps, one on the other, and half of the rows of the table."""
    programs = [program_of(seed) for seed in range(30)]
    met = {step.row for program in programs for step in program.steps}
    deepest = max(map(depth_of, programs))
    assert len(met) > len(rows()) // 2, len(met)
    assert max(len(program.steps) for program in programs) == MOST_STEPS and deepest >= 25


def depth_of(program: Program) -> int:
    """Returns how many steps lean on one another."""
    depths = [0] * len(program.leaves)
    for step in program.steps:
        depths.append(1 + max(depths[value] for _, value in step.slots))
    return max(depths)


def test_a_failing_program_is_made_small_and_printed_as_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong sine, far down in a chain: what stays is the one step that shows it, and a script that fails alike."""
    row = rows()["Tensor.sin"]
    monkeypatch.setitem(rows(), "Tensor.sin", replace(row, call=lambda x: x.sin() * 1.001))
    program = program_of(1)
    number = len(program.leaves) + len(program.steps)
    steps = (*program.steps, Step("Tensor.sin", 1, 0, ((0, number - 1),), 0), Step("Tensor.exp", 2, 0, ((0, number),), 0))
    script = failure(replace(program, steps=steps, roots=(number + 1,)))
    assert script is not None and script.count("Step(row=") == 1 and "Tensor.sin" in script
    with pytest.raises(Differs):
        exec(script, {})


def test_steps_that_a_root_does_not_read_go() -> None:
    program = Program(0, ((3,),), (Step("Tensor.exp", 1, 0, ((0, 0),), 0), Step("Tensor.sin", 1, 0, ((0, 0),), 0)), (1, 2))
    small = smallest(program, lambda smaller: any(step.row == "Tensor.sin" for step in smaller.steps))
    assert [step.row for step in small.steps] == ["Tensor.sin"] and small.steps[0].slots == ()
    assert check(small) == (False, True)
