"""Notes for each test which places of the rules and emitters it computes: a test that never gets there cannot notice.

A plugin of pytest. With MUTATE_REACH=FILE it loads the files of all targets with a mark around each expression that can be
changed, and writes {"files": digests, "seconds": {test: s}, "sites": {test: [place]}, "import": [place]} to FILE. A place
is "file:start:stop". Before each test the caches of picograd are emptied (`caches.py`), lest a place is noted only for the
first test that comes there.

In:    MUTATE_REACH
Out:   the map
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from tools.mutate.caches import Caches
from tools.mutate.changes import ROOT, TARGETS, Source, mutants_of

hits: set[str] = set()
caches = Caches()
found: dict[str, Any] = {"files": {}, "seconds": {}, "sites": {}, "import": []}


def digest(text: str) -> str:
    """Returns a short name of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Marked(ast.NodeTransformer):
    """Puts (hit(place), expression)[1] in the place of each expression that can be changed."""

    def __init__(self, file: str, text: str):
        self.file, self.source = file, Source(text)
        self.sites = {mutant.site for mutant in mutants_of("", file, text)}

    def visit(self, node: ast.AST) -> Any:
        node = self.generic_visit(node)
        if not isinstance(node, ast.expr):
            return node
        start, stop = self.source.span(node)
        if (start, stop) not in self.sites:
            return node
        mark = ast.Call(ast.Name("__hit__", ast.Load()), [ast.Constant(f"{self.file}:{start}:{stop}")], [])
        pair = ast.Subscript(ast.Tuple([mark, node], ast.Load()), ast.Constant(1), ast.Load())
        return ast.fix_missing_locations(ast.copy_location(pair, node))


class MarkedLoader(importlib.machinery.SourceFileLoader):
    """Loads a file with its marks, never from a compiled one."""

    def get_code(self, fullname: str) -> CodeType:
        file, text = str(Path(self.path).relative_to(ROOT)), Path(self.path).read_text()
        found["files"][file] = digest(text)
        return compile(Marked(file, text).visit(ast.parse(text)), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__hit__"] = hits.add
        super().exec_module(module)


class Finder:
    """Finds the files of the targets."""

    files = {file for target in TARGETS.values() for file in target.files}

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        file = name.replace(".", "/") + ".py"
        if file not in cls.files:
            return None
        return importlib.util.spec_from_loader(name, MarkedLoader(name, str(ROOT / file)), is_package=False)


if "MUTATE_REACH" in os.environ:
    loaded = [name for name in sys.modules if name.replace(".", "/") + ".py" in Finder.files]
    if loaded:
        raise ImportError(f"{loaded[0]} was loaded before its marks could be set.")
    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if not found["import"]:
        found["import"] = sorted(hits)
    caches.forget()
    hits.clear()
    begun = time.perf_counter()
    result = yield
    found["seconds"][item.nodeid] = round(time.perf_counter() - begun, 4)
    found["sites"][item.nodeid] = sorted(hits)
    return result


def pytest_sessionfinish() -> None:
    if "MUTATE_REACH" in os.environ:
        Path(os.environ["MUTATE_REACH"]).write_text(json.dumps(found))
