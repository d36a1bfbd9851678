"""Solution of chapter 10."""


def replaced(e, name, by):
    """Returns an expression or a list of statements with `by` in the place of a name."""
    if isinstance(e, (tuple, list)):
        return type(e)(replaced(part, name, by) for part in e)
    return by if e == name else e


def unroll(statements, times):
    """Returns statements whose innermost loops do `times` iterations at a time."""
    found = []
    for statement in statements:
        if statement[0] != "for":
            found.append(statement)
            continue
        _, i, extent, body = statement
        if any(kind == "for" for kind, *_ in body):
            found.append(("for", i, extent, unroll(body, times)))
            continue
        copies = []
        for copy in range(times):
            copies += replaced(body, i, ("+", ("*", times, i), copy))
        found.append(("for", i, extent // times, copies))
        for left in range(extent - extent % times, extent):
            found += replaced(body, i, left)
    return found
