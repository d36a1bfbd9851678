"""Exercise of chapter 23: the time of each function itself.

Test it:  python -m pytest docs/course/exercises/test_23_profiling.py
"""


def own_times(events):
    """Returns for each name the time of its calls, without that of the functions they call.

    Args:
      events:  (time, "begin" or "end", name), in the order of time. Calls are nested: what began last ends first. A
               function may call itself
    """
    return {}
