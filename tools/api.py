"""Writes the page of public names: each with its signature, its docstring and what the table of operations says of it.

    python -m tools.api              writes build/api.md
    python -m tools.api FILE

The table is one of tests: where PyTorch or pytest is not installed there is none, and the dtypes and gradients that it
knows are left out. So are the names of a module whose package is not installed.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import tyro

import picograd
from picograd.public import plain
from picograd_torch.nn_named import __all__ as of_networks

HAS_TABLE = all(find_spec(name) is not None for name in ("pytest", "torch"))
if TYPE_CHECKING or HAS_TABLE:
    from tests.operations.table import Operation, all_operations

PAGE = Path(__file__).parents[1] / "build" / "api.md"
# The public modules, in the order of the page; those of Tensor and nn are its families, by file.
MODULES = (
    "", "special", "signal.windows", "nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.parametrizations",
    "nn.utils.parametrize", "nn.utils.rnn", "optim", "optim.lr_scheduler", "optim.swa_utils", "utils.data",
    "utils.checkpoint", "linalg", "fft", "func",
    "amp", "autograd", "autograd.functional", "cuda", "cuda.amp", "distributions", "random", "nn.attention",
    "nn.utils.prune",
    "dtypes", "array_api", "onnx", "data", "models",
)  # fmt: skip
KINDS = {"f": "floats", "i": "signed integers", "u": "unsigned integers", "b": "bools"}
# Methods that only the families of operations, nn and jit call on each other's tensors.
INTERNAL = {"from_op", "from_memory", "from_cell", "viewed", "viewed_by", "read", "write", "other_device", "forget_old",
            "state", "next_key", "extra_repr", "take_result"}  # fmt: skip


def page() -> str:
    """Returns the text of one page with all names."""
    chapters = all_chapters()
    parts = [head(chapters, lambda title: f"#{anchor(title)}")]
    for title, text in texts(chapters):
        parts.append(f"## {title}\n\n{text}")
    return "\n".join(parts).rstrip() + "\n"


def pages() -> dict[str, str]:
    """Returns a page for each chapter, and one that lists them, by the names of their files."""
    chapters = all_chapters()
    found = {"index.md": head(chapters, file_of)}
    for title, text in texts(chapters):
        found[file_of(title)] = f"# {title}\n\n{text}".replace("\n### `", "\n## `")
    return found


def all_chapters() -> list[Chapter]:
    """Returns all chapters in order."""
    here = [name for name in MODULES if name != "onnx" or find_spec("onnx") is not None]
    return [chapter for name in here for chapter in chapters_of(name)]


def head(chapters: list[Chapter], link: Callable[[str], str]) -> str:
    """Returns the first words, with a list of the chapters; `link` says where the one of a title is."""
    contents = "\n".join(f"- [{title}]({link(title)}): {len(entries)}" for title, _, entries in chapters)
    return HEAD.format(count=sum(len(entries) for _, _, entries in chapters), contents=contents)


def texts(chapters: list[Chapter]) -> Iterator[tuple[str, str]]:
    """Yields title and text of each chapter; a name of what an earlier one describes refers to it."""
    rows: dict[str, list[Operation]] = {}
    for row in all_operations() if HAS_TABLE else ():
        for name in (row.name, *row.also):
            rows.setdefault(name, []).append(row)
    first: dict[int, str] = {}  # by the function that does the work, or the class, the name that it is described under
    for title, about, entries in chapters:
        parts = [f"{about}\n"]
        others = [(name, first[id(plain(value))]) for name, value in entries if id(plain(value)) in first]
        if others:
            parts.append("The same by another name: " + ", ".join(f"`{name}` ({home})" for name, home in others) + ".\n")
        for name, value in entries:
            if id(plain(value)) not in first:
                first[id(plain(value))] = name
                parts.append(entry_text(name, value, rows.get(name, [])))
        yield title, "\n".join(parts)


HEAD = """# The public names

Written by `python -m tools.api` from the docstrings and from the table of operations (tests/operations), whose rows compare
each function with PyTorch in the dtypes and to the order of gradients stated here. {count} names.

{contents}
"""
Entry = tuple[str, object]
Chapter = tuple[str, str, list[Entry]]


def chapters_of(module_name: str) -> Iterator[Chapter]:
    """Yields title, first words and entries of a public module; Tensor's methods follow the first, by family."""
    try:
        module = importlib.import_module(f"picograd.{module_name}" if module_name else "picograd")
    except ModuleNotFoundError:
        return
    if not module_name:
        yield from tensor_chapters()
    prefix = f"{module_name}." if module_name else ""
    entries = [(f"{prefix}{name}", value) for name, value in public_values(module) if value is not picograd.Tensor]
    if entries:
        yield f"picograd.{module_name}".rstrip("."), first_line(module), entries


def public_values(module: ModuleType) -> list[Entry]:
    """Returns the public functions and classes of a module, those of `__all__` where it has one."""
    names = set(getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")])
    if module is picograd:
        functional = vars(picograd.nn.functional)  # where others of the same names are described
        names -= {name for name in of_networks if getattr(picograd, name) is functional.get(name)}
    values = [(name, getattr(module, name)) for name in sorted(names, key=lambda name: (name.lower(), name))]
    return [
        (name, value)
        for name, value in values
        if (inspect.isfunction(value) or inspect.ismethod(value) or inspect.isclass(value))
        and getattr(value, "__module__", "").startswith("picograd")
    ]


def tensor_chapters() -> Iterator[Chapter]:
    """Yields a chapter for each family of Tensor's methods, in the order of its bases."""
    families = [home for home in reversed(picograd.Tensor.__mro__) if home.__module__.startswith("picograd")]
    seen: set[str] = set()
    chapters: dict[str, list[Entry]] = {}  # by module
    for home in families:
        for name, value in vars(home).items():
            function = getattr(value, "__func__", value)
            public = not name.startswith("_") and name not in INTERNAL and name not in seen
            if public and (inspect.isfunction(function) or isinstance(function, property)):
                seen.add(name)
                is_function = home is picograd.Tensor and not isinstance(function, property)
                module = plain(function).__globals__["__name__"] if is_function else home.__module__
                chapters.setdefault(module, []).append((f"Tensor.{name}", function))
    for module, entries in chapters.items():
        about = first_line(importlib.import_module(module))
        yield f"Tensor: {module.removeprefix('picograd.tensor.').replace('.', ', ')}", about, entries


def first_line(value: object) -> str:
    """Returns the sentence a docstring begins with."""
    return (inspect.getdoc(value) or "").split("\n", 1)[0]


def anchor(title: str) -> str:
    """Returns what GitHub makes of a heading for links."""
    return re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-")


def file_of(title: str) -> str:
    """Returns the name of the file of a chapter."""
    return re.sub(r"[^a-z0-9_]+", "-", title.lower()) + ".md"


# ---- one name ----
def entry_text(name: str, value: object, rows: list[Operation]) -> str:
    """Returns heading, docstring and facts of the table of one public name."""
    return f"### `{name}{signature(value)}`\n\n{body(inspect.getdoc(value) or '')}{facts(rows)}"


def signature(value: object) -> str:
    """Returns the arguments as they are written in the source, without self; nothing for a property."""
    if isinstance(value, property):
        return ""
    try:
        shown = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    kept = [p.replace(annotation=p.empty) for name, p in shown.parameters.items() if name not in ("self", "cls")]
    text = str(shown.replace(parameters=kept, return_annotation=shown.empty))
    return re.sub(r"<(?:class|function) '?([\w.]+)[^>]*>", r"\1", text)


def facts(rows: list[Operation]) -> str:
    """Returns what the rows of a function say: dtypes, order of gradients."""
    if not rows:
        return ""
    kinds = ", ".join(KINDS[kind] for kind in "fiub" if any(kind in row.dtypes for row in rows)) or "float32"
    orders = max(row.orders for row in rows)
    grads = ("no gradient", "gradients of the first order", "gradients of every order")[min(orders, 2)]
    return f"\n*{kinds}; {grads}*\n"


def body(doc: str) -> str:
    """Returns a docstring as Markdown: the first sentence as text, all else as it stands, in blocks of code."""
    first, _, rest = doc.partition("\n")
    rest = rest.strip("\n")
    return f"{first}\n\n```\n{rest}\n```\n" if rest else f"{first}\n"


def main(path: tyro.conf.Positional[Path] = PAGE) -> None:
    """Writes the page of public names.

    Args:
      path: file to write
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page())
    print(path)


if __name__ == "__main__":
    tyro.cli(main, prog="python -m tools.api")
