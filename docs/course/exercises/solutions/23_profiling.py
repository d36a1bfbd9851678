"""Solution of chapter 23: between two events the function on top of the stack has the time."""


def own_times(events):
    """Returns for each name the time of its calls, without that of the functions they call."""
    times, stack, before = {}, [], 0
    for now, kind, name in events:
        if stack:
            times[stack[-1]] = times.get(stack[-1], 0) + now - before
        if kind == "begin":
            stack.append(name)
            times.setdefault(name, 0)
        else:
            stack.pop()
        before = now
    return times
