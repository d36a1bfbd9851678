"""The architecture as a test: which package may import which, no cycles, no hidden imports, one road."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import picograd

PACKAGE = Path(picograd.__file__).parent
STAGES = {"evaluator", "autodiff", "schedule", "codegen", "kernels", "render", "compile", "runtime"}
ORDER = [
    {"config"}, {"errors"}, {"dtype"}, {"device"}, {"ir"}, STAGES, {"engine"}, {"tensor"}, {"nn"}, {"optim"},
    {"transforms"}, {"models", "data"}, {"train"}, {"tools"}, {"cli"}, {"__main__"},
]  # fmt: skip
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
# The one place that loads a backend, whose driver may be missing, when it is first asked for.
LATE = {"engine/devices.py"}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> list[tuple[str, bool]]:
    """Returns (module, at the top) for each import of picograd in a file."""
    tree = ast.parse(path.read_text())
    found = []
    blocks = [block for block in tree.body if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"]
    for_types = [node for block in blocks for node in block.body]
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names if node.module == "picograd"]
        top = node in tree.body or node in for_types
        found += [(name, top) for name in names if name.startswith("picograd.")]
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_imports_only_from_its_left(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    own = relative.parts[0].removesuffix(".py")
    for module, top in imports(path):
        part = part_of(module)
        assert top or str(relative) in LATE, f"{relative} imports {module} inside a function"
        if part == own:
            continue
        assert not {own, part} <= STAGES, f"{relative} imports its sibling {module}"
        assert RANK[part] < RANK[own], f"{relative} imports {module}, which stands to its right"


def test_imports_have_no_cycle() -> None:
    graph = {}
    for path in modules():
        name = "picograd." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        graph[name.removesuffix(".__init__")] = {module for module, _ in imports(path)}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail, name])
        if name in done or name not in graph:
            return
        for module in graph[name]:
            if module in graph and module != name:
                visit(module, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_environment_variables_stand_in_one_table() -> None:
    for path in modules():
        if path.name != "config.py":
            text = path.read_text()
            assert "os.environ.get" not in text and "os.getenv" not in text, path
    assert len(picograd.config.VARIABLES) <= 12
