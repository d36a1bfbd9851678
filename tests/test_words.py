"""English that a reader takes in at first reading: rules that a program can check, over docstrings and comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import picograd

ROOT = Path(picograd.__file__).parent.parent
PACKAGES = [path.parent for path in ROOT.glob("picograd*/__init__.py")]
DESCRIBED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

# A clause where a noun exists: "What is read row by row" is a stacked input.
CLAUSE = re.compile(
    r"(What|Which|Who|Whose|Whatever|Whoever|Where|When|How|Whether|Of|For|Among|Has|Is|Are)\b"
    r"|Says\b|(Returns|Yields) (what|which|who|whatever|whoever)\b"
)
# Words of a grammar of our own, each with what to write instead.
INSTEAD = {
    "anew": "again, or new",
    "whoever": "the reader, the caller, ...: whoever it is has a name",
    "turned round": "reversed, or transposed",
    "side by side": "contiguous, or neighbours",
    "beside each other": "contiguous, or neighbours",
    "no more than": "at most",
    "any more": "no longer",
    "(?<!there )(?<!where )(?:is|are) none": "is not one, or what it is instead",
    "anybody": "the user, the caller, ...: it has a name",
    "(?<![Tt]here )(?<![Ww]here )(?:is|are|was|were) no (?!\\w+er than|longer|more|less|such|faster|smaller)": "is not a",
}
# The same in docstrings and comments alone.
IN_SOURCE = {
    "(?<=[.:;] )What(?= [a-z])": "a noun: the values that ..., tensors that ...",
    "(?<=[.:;] )Of": "the subject first: a sentence begins with what it is about",
    "(?:has|have) not (?:an?|the|its|as|one|two|three)": "does not have, or what it has instead",
    "ever after": "from then on",
    "lies?": "is, are",
    "(?:for|of|by) who": "the thread, the caller, ...: it has a name",
}
# The same in messages: errors, hints, warnings, texts of the command line.
IN_MESSAGES = {
    "lies?": "is, are",
    "stands?(?!-in)": "is, are",
    "nobody": "not, or who it is",
    "for ever": "forever",
    "whatever": "any",
}


def files() -> list[Path]:
    return sorted(path for package in PACKAGES for path in package.rglob("*.py"))


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yields (name, docstring) of a file, its classes and functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, DESCRIBED) and (text := ast.get_docstring(node)):
            yield getattr(node, "name", path.stem), text


def comments(path: Path) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def test_a_docstring_begins_with_a_noun_or_a_verb() -> None:
    paths = [path for path in files() if re.search(rf'"""\s*({CLAUSE.pattern})', path.read_text())]  # the few to be parsed
    found = ((path, name, text) for path in paths for name, text in docstrings(path))
    wrong = [f"{path.relative_to(ROOT)} {name}: {text[:60]}" for path, name, text in found if CLAUSE.match(text)]
    assert not wrong, "\n".join(wrong)


def test_words_that_a_reader_must_parse_twice_are_not_used() -> None:
    wrong, words = [], INSTEAD | IN_SOURCE
    any_of_them = re.compile(rf"\b({'|'.join(words)})\b")
    for path in files():
        if not any_of_them.search(" ".join(path.read_text().split())):
            continue  # most files: what is in no line is in no docstring or comment
        texts = [*docstrings(path), *(("a comment", text) for text in comments(path))]
        for name, text in texts:
            flat = " ".join(text.split())
            found = [f"{word!r} (write {instead})" for word, instead in words.items() if re.search(rf"\b{word}\b", flat)]
            wrong += [f"{path.relative_to(ROOT)} {name}: {', '.join(found)}"] if found else []
    assert not wrong, "\n".join(wrong)


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yields (line, text) of strings with spaces that are neither docstrings nor code of kernels."""
    tree = ast.parse(path.read_text())
    described = [node.body[0] for node in ast.walk(tree) if isinstance(node, DESCRIBED) and node.body]
    known = {id(first.value) for first in described if isinstance(first, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in known else None
        if isinstance(text, str) and " " in text and "define " not in text:
            yield node.lineno, text


def test_messages_do_not_use_them_either() -> None:
    any_of_them = re.compile(rf"\b({'|'.join(INSTEAD | IN_MESSAGES)})\b")
    wrong = []
    for path in files():
        if any_of_them.search(path.read_text()):
            found = ((line, any_of_them.search(text)) for line, text in messages(path))
            wrong += [f"{path.relative_to(ROOT)}:{line}: {match[0]}" for line, match in found if match]
    assert not wrong, "\n".join(wrong)


def test_pages_do_not_use_them_either() -> None:
    """The pages of history quote what was said at the time."""
    patterns = ("*.md", "picograd*/README.md", "docs/*.md", "docs/course/*.md")
    pages = [page for pattern in patterns for page in ROOT.glob(pattern)]
    wrong = []
    for page in pages:
        text = re.sub(r"^```.*?^```|^    .*?$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        flat = " ".join(text.split())
        found = [f"{word!r} (write {instead})" for word, instead in INSTEAD.items() if re.search(rf"\b{word}\b", flat)]
        wrong += [f"{page.relative_to(ROOT)}: {', '.join(found)}"] if found else []
    assert len(pages) > 40 and not wrong, "\n".join(wrong)
