"""Exercise of chapter 20: a tape without steps that nobody needs.

Test it:  python -m pytest docs/course/exercises/test_20_jit_and_launches.py
"""


def shorten(steps, results):
    """Returns (steps, results) of a tape that computes the same in fewer steps.

    A step is (name of a function, places of its operands, place of its output), such as ("add", (0, 1), 2).
    Functions have no side effects. Each place is written at most once, before it is read; places that no step writes are
    arguments.

    - Of two steps with the same function and the same operands the second is removed: who reads its output reads that of
      the first.
    - A step whose output is needed by no later step and is no result is removed.
    - The other steps keep their order and the places of their outputs.

    Args:
      steps:    in order
      results:  places that the caller reads in the end
    """
    return steps, results
