"""Exercise of chapter 10: loops that do several iterations at a time.

The loop language is that of the chapter:

    ("for", name, extent, body)        body is a list of statements
    ("set", name, value)
    ("add", name, value)
    ("store", memory, index, value)

An expression is a number, a name, ("load", memory, index), ("+", a, b) or ("*", a, b).

Test it:  python -m pytest docs/course/exercises/test_10_loops_and_code.py
"""


def replaced(e, name, by):
    """Returns an expression or a list of statements with `by` in the place of a name."""
    if isinstance(e, (tuple, list)):
        return type(e)(replaced(part, name, by) for part in e)
    return by if e == name else e


def unroll(statements, times):
    """Returns statements whose innermost loops do `times` iterations at a time.

    - A loop is innermost if its body has no loop.
    - ("for", i, n, body) becomes a loop over n // times, in which the body is there `times` times: once with times * i in
      the place of i, once with times * i + 1, and so on.
    - If `times` does not divide n, the iterations that are left over follow behind the loop, without a loop.
    - All other loops are kept.
    """
    return statements
