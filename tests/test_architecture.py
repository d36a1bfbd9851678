"""The architecture as a test: which package may import which, no cycles, no hidden imports, one road to run."""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

import picograd
from picograd.device import LANGUAGES
from picograd.engine.devices import FACTORIES
from picograd.errors import PACKAGES
from picograd.ir.statements import FIELDS
from picograd.look import Counts, watch
from tests.test_words import comments, docstrings, files

PACKAGE = Path(picograd.__file__).parent
ROOT = PACKAGE.parent
STAGES = {"evaluator", "autodiff", "rewrites", "schedule", "codegen", "render", "compile", "run"}
ORDER = [
    {"record", "interrupts"}, {"loading"},
    {"errors"}, {"files"}, {"annotations"}, {"public"}, {"config"}, {"dtype"}, {"device"}, {"ir"}, {"look"},
    STAGES, {"road"}, {"engine"}, {"backend"}, {"tensor"}, {"control"}, {"nn"},
    {"optim", "utils"}, {"transforms"}, {"amp", "random"},
    {"autograd", "func", "cuda", "distributions", "fft", "linalg", "signal", "special"},
]  # fmt: skip
# Beside the caller and the called: a rule is data, that ir/ applies it for the stage that owns it is no call back; and a
# published function calls the one that does the work; a table that makes room lets what it held die; an attribute asks
# the method that works it out; and what an interrupt may end is called by who holds it back otherwise.
BETWEEN = {"ir", "public", "interrupts"}
# The packages beside the core: each imports the core and those before it, and is no part of the core but by a page.
BESIDE = [package for package in PACKAGES if package != "picograd"]
# Names that users know: picograd.onnx is the package picograd_onnx.
NAMES_BESIDE = {
    "array_api.py", "onnx.py", "data.py", "models.py", "train.py", "backends.py", "__main__.py", "distributions.py",
    "fft.py", "linalg.py", "special.py", "utils/data.py", "signal/windows.py", "optim/lr_scheduler.py",
    "optim/swa_utils.py", "nn/utils/__init__.py", "nn/utils/parametrizations.py", "nn/utils/parametrize.py",
    "nn/utils/prune.py", "autograd/__init__.py", "autograd/functional.py", "amp.py", "func.py",
    "cuda/__init__.py", "cuda/amp.py",
}  # fmt: skip
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
# Where a part of picograd is loaded when it is first asked for, and why it is not imported at the top.
LATE = {
    "__init__.py": "pages and functions that few ask for; what einops is told, where einops is installed",
    "loading.py": "what those below ask for",
    "errors.py": "the hints for names of PyTorch's that are not here",
    "public.py": "pages and functions that few ask for, the hints for arguments of PyTorch's",
    "engine/devices.py": "a backend, whose driver may be missing",
    "tensor/exchange.py": "the namespace that an array names as its own by the standard",
}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def nodes_naming(*words: str, paths: Iterable[Path]) -> Iterator[tuple[Path, ast.AST]]:
    """Yields the nodes of files that have one of some words: to parse all takes a second."""
    for path in paths:
        text = path.read_text()
        if any(word in text for word in words):
            yield from ((path, node) for node in ast.walk(ast.parse(text)))


# The files of devices are of three stages, by their names, and pages that put them together.
OF_DEVICES = {"render": "render", "compile": "compile", "backend": "backend"}


def part_of(module: str) -> str:
    """Returns the part that a module counts to: of devices/ a stage, by the file's name."""
    _, *names = module.split(".")
    if names and names[0] == "devices":
        return OF_DEVICES.get(names[-1].partition("_")[0], "run")
    return names[0] if names else ""


def part_at(relative: Path) -> str:
    return part_of(".".join(["picograd", *relative.with_suffix("").parts]))


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Returns (module, at the top) for each import of picograd in a file."""
    text, found = path.read_text(), []
    tree = ast.parse(text)
    blocks = [block for block in tree.body if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"]
    at_top = {*tree.body, *(node for block in blocks for node in block.body)}
    for node in ast.walk(tree) if re.search(r"^\s+(from|import) ", text, re.MULTILINE) else tree.body:
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            members = [f"{node.module}.{alias.name}" for alias in node.names]
            files = [name for name in members if (ROOT / name.replace(".", "/")).with_suffix(".py").is_file()]
            names = [node.module, *(members if node.module == "picograd" else files)]
        found += [(name, node in at_top) for name in names if name.startswith(("picograd.", "picograd_"))]
    return found


def test_a_file_imports_only_from_its_left() -> None:
    found = ((path, module, top) for path in modules() for module, top in imports(path))
    for path, module, top in found:
        relative = path.relative_to(PACKAGE)
        own, part = part_at(relative), part_of(module)
        if module.startswith("picograd_"):
            assert str(relative) in NAMES_BESIDE, f"{relative} imports {module}, which is no part of the core"
            continue
        assert top, f"{relative} imports {module} inside a function"
        if part == own:
            continue
        assert not {own, part} <= STAGES, f"{relative} imports its sibling {module}"
        assert RANK[part] < RANK[own], f"{relative} imports {module}, which stands to its right"


@pytest.mark.parametrize("package", BESIDE)
def test_a_package_beside_the_core_imports_it_and_those_before(package: str) -> None:
    allowed = {"picograd", *BESIDE[: BESIDE.index(package) + 1]}
    for path in (ROOT / package).rglob("*.py"):
        for module, top in imports(path):
            assert top and module.split(".")[0] in allowed, f"{path} imports {module}"
    readme = (ROOT / package / "README.md").read_text()
    assert "python -m pytest tests/" in readme and (ROOT / package / "py.typed").is_file()


def test_parts_loaded_late_are_known() -> None:
    """What import_module is given cannot be seen, so each file that calls it either stands in LATE or names another's."""
    loaders = ("load_late", "import_module", "__import__")
    found: dict[Path, list[str]] = {path: [] for path in [PACKAGE / "__init__.py", *modules()]}
    for path, node in nodes_naming(*loaders, paths=found):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(loaders):
            found[path].append(ast.unparse(node.args[0]))
    for path, calls in found.items():
        relative = str(path.relative_to(PACKAGE))
        is_late = relative in LATE or all(call[1:].startswith(("cuda.", "llvmlite")) for call in calls)
        assert is_late, f"{relative} loads {calls}"
        assert calls or relative not in LATE, f"{relative} loads nothing late any more"


OF_CPU = {"panels", "winograd", "convolution_boxes", "convolution_direct", "convolution_tiles"}
OF_GPU = {"block_product", "block_rows", "hopper"}


def machine_of(file: str) -> str:
    """Returns for which machine a file of codegen/ is; "" for those of both."""
    of_cpu, of_gpu = file in OF_CPU or file.endswith("_cpu"), file in OF_GPU or file.endswith("_gpu")
    return "cpu" if of_cpu else "gpu" if of_gpu else ""


def test_emitters_of_cpus_and_of_gpus_do_not_know_each_other() -> None:
    """Files of both machines know those of neither, but where one is chosen."""
    for path in (PACKAGE / "codegen").rglob("*.py"):
        names = [module.split(".")[2] for module, _ in imports(path) if module.startswith("picograd.codegen.")]
        known = {machine_of(name) for name in names} - {""}
        assert known <= {machine_of(path.stem)} or path.stem in ("emit", "opts"), f"{path} imports from files of {known}"


# Who outside the folders names a device, and why: others go by the name that a user gives.
NAMES_A_DEVICE = {
    "engine/devices.py": "the folders, by name",
    "engine/host_memory.py": "memory of the CPU, which is the host's",
    "engine/choose.py": "kernels that are written by hand for one GPU",
}


def test_a_device_is_one_folder() -> None:
    """Each has a page that puts it together; a part that is of no device in particular names none."""
    folders = [path for path in (PACKAGE / "devices").iterdir() if (path / "__init__.py").is_file()]
    assert {path.name for path in folders} == {name.lower() for name in FACTORIES}
    assert all((path / "backend.py").is_file() for path in folders)
    others = [path for path in modules() if path.relative_to(PACKAGE).parts[0] != "devices"]
    a_device = re.compile(rf"picograd\.devices\.(\{{|{'|'.join(path.name for path in folders)}\b)")
    named = {str(path.relative_to(PACKAGE)) for path in others if a_device.search(path.read_text())}
    assert named == NAMES_A_DEVICE.keys()


def test_the_page_has_the_order_that_is_held() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    (rule,) = re.findall(r"^## The rule of imports\n\n(.*?)^    picograd ", page, re.MULTILINE | re.DOTALL)
    assert [{*re.findall(r"\w+", part)} for part in rule.split("<-")] == ORDER
    (late,) = re.findall(r"Some load a part (.*?)\. No file", page, re.DOTALL)
    assert {path.removeprefix("picograd/") for path in re.findall(r"`([\w/]+\.py)`", late)} == LATE.keys()


def test_what_a_language_leaves_to_picograd_is_said_in_one_table() -> None:
    """A language without a row would get loops over registers written out, and functions that its compiler may not have."""
    named = set()
    for _, node in nodes_naming("Target(", paths=modules()):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Target":
            language = next((key.value for key in node.keywords if key.arg == "language"), node.args[1:2])
            named |= {ast.literal_eval(*language) if isinstance(language, list) else ast.literal_eval(language)}
    assert named == LANGUAGES.keys()


def test_imports_have_no_cycle() -> None:
    """The functions that Tensor is made of name it in their types."""
    graph = {}
    for path in [*modules(), *(path for package in BESIDE for path in (ROOT / package).rglob("*.py"))]:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        is_part = "if TYPE_CHECKING:\n    from picograd.tensor.tensor import Tensor" in path.read_text()
        whole = {"picograd.tensor.tensor"} if is_part else set()
        graph[name.removesuffix(".__init__")] = {module for module, _ in imports(path)} - whole
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


# ---- files ----
def header(path: Path) -> str:
    found = re.match(r'(?:#[^\n]*\n)*"""(.*?)"""', path.read_text(), re.DOTALL)
    return found[1] if found else ""


def test_tensor_is_not_a_longer_chain_of_classes() -> None:
    """New methods are functions in the file of their subject, which tensor/tensor.py names."""
    assert sum(home.__module__.startswith("picograd") for home in picograd.Tensor.__mro__) <= 2


def test_every_room_says_what_belongs_there() -> None:
    rooms = [room for package in PACKAGES for room in (ROOT / package).rglob("__init__.py")]
    assert not [str(path.relative_to(ROOT)) for path in rooms if not header(path)]


def test_a_file_has_one_subject_and_room_for_it() -> None:
    """Pages of names and tables of one line have their own reasons to be short."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert not [path for path in files if len(path.read_text().splitlines()) > 900]
    assert len(modules()) <= 302


def test_a_limit_is_named_by_what_it_counts() -> None:
    """Limits end in _MAX or _MIN, in every room."""
    words = "MOST|LEAST|MAX|MIN|MANY|FEW|FEWEST|ENOUGH"
    old = re.compile(rf"^((?:{words})(?:_[A-Z_]+)?)(?<!_MAX)(?:, [A-Z_]+)*(?:: .+)? = ", re.MULTILINE)
    assert not [(path, name) for path in modules() for name in old.findall(path.read_text())]


def test_a_constant_is_named_once_in_a_file() -> None:
    """A second one of its name would be the value of the first, too."""
    for path in [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]:
        assigned = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign)]
        targets = [target for node in assigned for target in node.targets]
        names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        assert not [name for name in {*names} if name.isupper() and names.count(name) > 1], path


def nesting(node: ast.AST) -> int:
    """Returns how many loops, branches, `with` and `try` are inside each other; functions inside count for themselves."""
    blocks = (ast.For, ast.While, ast.If, ast.With, ast.Try)
    below = [child for child in ast.iter_child_nodes(node) if not isinstance(child, (ast.FunctionDef, ast.ClassDef))]
    elifs = [n for n in node.orelse if isinstance(n, ast.If)] if isinstance(node, ast.If) and len(node.orelse) == 1 else []
    return max((nesting(n) + (isinstance(n, blocks) and n not in elifs) for n in below), default=0)


def test_no_function_nests_five_deep() -> None:
    texts = [(path, path.read_text()) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    deep = [(path, text) for path, text in texts if re.search("^ {20,}(for|while|if|with|try)", text, re.MULTILINE)]
    nodes = [(path, node) for path, text in deep for node in ast.walk(ast.parse(text))]
    functions = [(path, node) for path, node in nodes if isinstance(node, ast.FunctionDef)]
    assert not [f"{path.name} {node.name}" for path, node in functions if nesting(node) > 4]


def lengths(text: str) -> Iterator[tuple[str, int]]:
    """Yields the functions of a file, and how many lines each has without docstrings, comments and blank lines."""
    lines = re.sub(r'""".*?"""', "", text, flags=re.DOTALL).splitlines()
    code = [line for line in lines if line.strip() and line.strip()[0] != "#"]
    indents = [len(line) - len(line.lstrip()) if line.lstrip()[0] != ")" else sys.maxsize for line in code]
    for i, line in enumerate(code):
        if line.lstrip().startswith("def "):
            end = next((j for j in range(i + 1, len(code)) if indents[j] <= indents[i]), len(code))
            yield line.split("(")[0].split()[-1], end - i


# An eager step runs the first, where a part that is a function would be a call more; the second has PyTorch's arguments.
LONG = {"look_at", "multi_head_attention_forward"}


def test_a_function_fits_a_screen() -> None:
    functions = [(name, count) for path in modules() for name, count in lengths(path.read_text())]
    assert {name for name, count in functions if count > 45} == LONG and len(functions) > 6000


# Loops, branches, values and accesses: passes and writers of loops walk these, and a Check is written lane by lane.
GRAMMAR = {"For", "If", "Alloc", "Let", "Load", "Store", "Check"}


def files_naming_statements() -> Counter[str]:
    """Returns how many files of the core declare or import each kind of statement that is not of the grammar."""
    kinds = {kind.__name__ for kind in FIELDS} - GRAMMAR
    named = Counter[str](kinds)
    for _, node in nodes_naming("ir.statements", paths=modules()):
        if isinstance(node, ast.ImportFrom) and node.module == "picograd.ir.statements":
            named.update(kinds & {alias.name for alias in node.names})
    return named


def test_few_files_name_a_kind_of_statement() -> None:
    """It is declared, built, evaluated and written; what passes ask of it, it says itself."""
    named = files_naming_statements()
    assert len(named) == 9 and max(named.values()) <= 6, named


def test_no_header_lists_who_reads_or_calls_its_file() -> None:
    """A search finds importers, and the road on the page of the architecture is what to read next."""
    folders = (*PACKAGES, "tests", "tools", "bench", "examples")
    for path in [path for folder in folders for path in (ROOT / folder).rglob("*.py")]:
        assert not re.search(r"\b(Next|Called by|Used by|Calls):", header(path)), path


def test_the_map_names_every_part_and_every_tool() -> None:
    text = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
    parts = {path.relative_to(PACKAGE).parts[0] for path in modules()} - {"__main__.py"}
    missing = {part for part in parts if f"`{part}`" not in text and not re.search(rf"`(picograd/)?{part}/", text)}
    tools = [path.stem for path in (PACKAGE.parent / "tools").iterdir() if path.suffix in (".py", "", ".sh")]
    missing |= {tool for tool in tools if tool != "__pycache__" and not re.search(rf"tools[./]{tool}\b", text)}
    assert not missing


# The lab book tells of files as they were.
PAGES = [*ROOT.glob("*.md"), *(page for page in (ROOT / "docs").glob("*.md") if page.stem != "log")]
OF_OTHERS = {"array_api_tests/dtype_helpers.py", "model.py"}  # named in docs/conformance.md: in the suite, in nanoGPT


def named_paths(page: Path) -> set[str]:
    """Returns the files and folders that a page names in backticks or links to, but for the examples in tours."""
    text = re.sub(r"^```.*?^```|^    .*?$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|h|sh|txt|c|cu))`", text)
    return {*named, *re.findall(r"\]\(([\w./-]+)\)", text)} - OF_OTHERS


def test_files_that_the_pages_name_are_there() -> None:
    """With a folder: from the root, from picograd/ or beside the page. Without: a file of that name anywhere."""
    parts = [ROOT / part for part in (*PACKAGES, "tests", "tools", "bench", "docs", "examples")]
    files = {path.name for path in [*ROOT.iterdir(), *(path for part in parts for path in part.rglob("*"))]}
    found = 0
    for page in PAGES:
        for name in named_paths(page):
            places = [folder / name for folder in (ROOT, PACKAGE, page.parent)]
            places += [place.with_name(place.name + ".py") for place in places]  # tools/as_torch
            is_there = any(place.exists() for place in places) if "/" in name.rstrip("/") else name.rstrip("/") in files
            assert is_there, f"{page.name} names {name}, which is not there"
            found += 1
    assert found > 100


# In the source of others, or among the data that picograd comes with or fetches.
ELSEWHERE = {
    "_format_impl.py", "_utils.py", "_weights_only_unpickler.py", "cublasLt.h", "cublas_api.h", "dlpack.h",
    "library_types.h", "merges.txt", "names.txt", "pickletools.py", "pip.py", "program.py", "threefry.h",
    "train_shakespeare_char.py",
}  # fmt: skip


def test_files_that_the_source_names_are_there() -> None:
    """In docstrings and comments: with a folder from the root, from picograd/ or beside the file; else anywhere."""
    parts = [ROOT / part for part in (*PACKAGES, "tests", "tools", "bench", "docs", "examples")]
    every = [*ROOT.iterdir(), *(path for part in parts for path in part.rglob("*"))]
    paths = {str(path.relative_to(ROOT)) for path in every}
    names = {path.name for path in every} | ELSEWHERE
    wrong, found = [], 0

    def absent(text: str, folder: Path) -> list[str]:
        nonlocal found
        missing = []
        for name in re.findall(r"(?<![\w/.-])[\w/.-]*\w\.(?:py|h|md|txt|sh)\b", text):
            places = (name.lstrip("./"), f"picograd/{name}", str(folder / name))
            is_there = not paths.isdisjoint(places) if "/" in name else name in names
            missing += [] if is_there or name.split("/")[-1] in ELSEWHERE else [name]
            found += 1
        return missing

    for path in files():
        folder = path.parent.relative_to(ROOT)
        if absent(path.read_text(), folder):  # in few files: a name in no line is in no docstring or comment
            texts = [*(text for _, text in docstrings(path)), *comments(path)]
            wrong += [f"{path.relative_to(ROOT)}: {name}" for text in texts for name in absent(text, folder)]
    assert not wrong and found > 150


# ---- one training step, watched ----
ROAD = ["emit", "render", "compile_source", "load"]  # what a kernel goes through, in this order


class _Calls:
    """A profile function: which function of picograd calls which, and the stages entered by each kernel."""

    def __init__(self) -> None:
        self.stack: list[tuple[object, str]] = []  # (frame, part of picograd)
        self.wrong: set[str] = set()
        self.entered: list[str] = []

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            file = frame.f_code.co_filename
            if file.startswith(f"{PACKAGE}/") and not frame.f_code.co_name.startswith(("__del", "_forget")):
                self.enter(frame, str(Path(file).relative_to(PACKAGE)))
        elif event == "return" and self.stack and self.stack[-1][0] is frame:
            self.stack.pop()

    def enter(self, frame: FrameType, file: str) -> None:
        part, name = part_at(Path(file)), frame.f_code.co_name
        caller = next((below for _, below in reversed(self.stack) if below not in BETWEEN), part)
        back = frame.f_back
        is_data = back is not None and back.f_code.co_name in ("_at_once", "_called")  # of a FORMULA in a graph
        if caller != part and part not in ("__init__", "public") and not is_data:
            if {caller, part} <= STAGES or RANK[part] > RANK[caller]:
                self.wrong.add(f"{caller} -> {part}: {file} {name}")
            if part in STAGES and name in ROAD:
                self.entered.append(name)
        self.stack.append((frame, part))


def training_step(width: int) -> Callable[[], Counts]:
    model = picograd.nn.MLP(width, [width + 1, 4])
    optimizer = picograd.optim.Adam(model.parameters(), lr=0.1)
    x = picograd.Tensor([[0.5] * width] * 3)

    def step() -> Counts:
        with watch() as counts:
            loss = picograd.nn.functional.cross_entropy(model(x), picograd.Tensor([0, 1, 2]))
            loss.backward()
            optimizer.step()
            loss.item()
        return counts

    return step


def test_a_training_step_visits_each_stage_once_per_kernel_and_never_goes_back(monkeypatch) -> None:
    monkeypatch.setenv("PICOGRAD_CACHE", "off")
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setenv("PICOGRAD_THREADS", "1")  # all of it here, kernel after kernel
    training_step(21)()  # modules and the runner are loaded now
    step, calls = training_step(23), _Calls()
    gc.disable()  # what the collector frees is freed in the middle of anything
    sys.setprofile(calls)
    try:
        counts = step()
    finally:
        sys.setprofile(None)
        gc.enable()
    assert counts.lowered > 3
    assert calls.wrong == set()
    assert calls.entered == ROAD * counts.lowered
