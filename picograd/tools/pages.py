"""Pages of the docs that commands write parts of: what stands between two marks is theirs.

In:    a page's text, the name of a mark
Out:   the text with that part replaced
"""

from __future__ import annotations


def replace_marked(text: str, name: str, inner: str) -> str | None:
    """Returns a page with what stands between `<!-- NAME -->` and `<!-- /NAME -->` replaced; None without these marks.

    >>> replace_marked("a <!-- x -->old<!-- /x --> b", "x", "new")
    'a <!-- x -->\\nnew\\n<!-- /x --> b'
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    return f"{head}{begin}\n{inner}\n{end}{tail}" if found and closed else None
