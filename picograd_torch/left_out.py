"""PyTorch's names that picograd lacks, for processes in which it is `torch`.

Libraries mention much that most programs never use: torch.complex64 in a table of dtypes, torch.cuda.CUDAGraph in an
annotation, @torch.jit.script on a function. Such a name exists as in PyTorch; a call raises the error with its hint.
"""

from __future__ import annotations

import os
import sys
import typing
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import IO, Any

import picograd
from picograd.dtype import DType
from picograd.errors import missing
from picograd.tensor.core import Size
from picograd.tensor.hooks import RemovableHandle
from picograd_torch import foreach, library, private_names, pytree
from picograd_torch.absent import INSTEAD

RELEASE = picograd.__version__
VERSION = "2.13.0"  # version of PyTorch whose names and arguments picograd has

# Missing modules that programs import, mostly without using them.
MODULES = (
    "_C", "_dynamo", "autograd.graph", "distributed", "export", "futures", "fx", "hub", "mps", "multiprocessing",
    "nn.attention.flex_attention", "nn.parallel", "overrides", "profiler", "sparse", "testing", "utils.benchmark",
    "utils.cpp_extension", "utils.data.distributed", "utils.model_zoo", "xpu",
)  # fmt: skip

ASKED_FOR = ("picograd.nn.functional",)  # programs test whether a function exists, and can do without


class LeftOutName(type):
    """The type of a missing name: it has no instances; annotations, tables and classes can mention it.

    name, place:  the name, or its module, and the page from which it is missing
    """

    name: str
    place: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise missing(cls.name, cls.place)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return left_out(name, cls.name, cls.place)


def left_out(called: str, name: str, place: str) -> LeftOutName:
    """Returns the placeholder `called`, whose calls raise the error for `name`, missing from `place`."""
    return LeftOutName(called, (), {"name": name, "place": place})


class LeftOut(ModuleType):
    """A missing module of PyTorch: calls of its names raise the error with a hint."""

    def __init__(self, name: str):
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("is_available", "is_initialized", "is_compiling"):
            return _false
        above, _, module = _of(self.__name__).rpartition(".")
        return left_out(name, module, f"picograd.{above}" if above else "picograd")


def _of(name: str) -> str:
    """Returns the name in MODULES of a torch module, or of its parent."""
    own = name.removeprefix("torch.")
    return next((module for module in MODULES if own == module or own.startswith(f"{module}.")), "")


class Below(MetaPathFinder, Loader):
    """Finds the children of missing modules: they are missing, too."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Returns the spec of a child of one of MODULES, None for other modules."""
        return spec_from_loader(name, self, is_package=True) if name.startswith("torch.") and _of(name) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns the module."""
        return LeftOut(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing."""


def _unchanged(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Returns a function unchanged, or a decorator that does, as PyTorch with PYTORCH_JIT=0."""
    return fn if callable(fn) else _unchanged


def _false() -> bool:
    """Returns False."""
    return False


def _assert(condition: Any, message: str) -> None:
    """Raises an AssertionError unless the condition holds: torch._assert."""
    if not condition:
        raise AssertionError(message)


def _jit() -> None:
    """Makes functions and classes for TorchScript plain Python, as PyTorch does with PYTORCH_JIT=0."""
    jit: Any = picograd.jit
    same = "export ignore interface script script_if_tracing script_method unused _overload_method"
    for name in same.split():
        setattr(jit, name, _unchanged)
    jit.is_scripting = jit.is_tracing = _false
    jit.Final, jit.annotate = typing.Final, lambda the_type, the_value: the_value
    for name in ("ScriptFunction", "ScriptModule"):
        setattr(jit, name, left_out(name, name, "picograd.jit"))


def _compiler(module: Any) -> Any:
    """Returns torch.compiler, or torch._dynamo: nothing is ever being compiled, and marks of functions have no effect."""
    module.is_compiling = module.is_dynamo_compiling = module.is_exporting = _false
    marks = """allow_in_graph assume_constant_result cudagraph_mark_step_begin disable graph_break mark_dynamic mark_static
               mark_static_address maybe_mark_dynamic reset"""
    for name in marks.split():
        setattr(module, name, _unchanged)
    module.compile = getattr(picograd, "compile")  # noqa: B009  # mypy does not see it
    return module


def _old_names() -> None:
    """Provides names from before PyTorch 1.0 that PyTorch still has, with a warning."""
    init: Any = picograd.nn.init
    names = "constant dirac eye kaiming_normal kaiming_uniform normal orthogonal uniform xavier_normal xavier_uniform"
    for name in names.split():
        setattr(init, name, getattr(init, f"{name}_"))
    vars(picograd.nn)["NLLLoss2d"] = picograd.nn.NLLLoss
    vars(picograd.nn.utils)["clip_grad_norm"] = picograd.nn.utils.clip_grad_norm_
    module: Any = picograd.nn.Module  # the old hook sees the last operation's gradients, mostly the module's
    module.register_backward_hook = module.register_full_backward_hook


def _hub_folder() -> str:
    """Returns PyTorch's folder for model files: libraries query it on import."""
    return os.path.join(os.environ.get("TORCH_HOME", os.path.expanduser("~/.cache/torch")), "hub")


def add_left_out() -> None:
    """Adds missing modules and names to the pages of `torch`."""
    sys.meta_path.insert(0, Below())
    for name in MODULES:
        _below(f"torch.{name}", LeftOut(f"torch.{name}"))
    sys.modules["torch.hub"].get_dir = _hub_folder  # type: ignore[attr-defined]
    _jit()
    _old_names()
    _below("torch.jit", picograd.jit)
    _below("torch.compiler", _compiler(ModuleType("torch.compiler")))
    _compiler(sys.modules["torch._dynamo"])
    _below("torch.library", library)
    _below("torch.ops", library.ops)
    # PyTorch's own CUDA, ROCm and XPU are missing, whatever devices picograd has.
    _with("torch.version", __version__=VERSION, git_version="", debug=False, cuda=None, hip=None, xpu=None)
    _below("torch.utils._pytree", pytree)
    _with("torch.utils.hooks", RemovableHandle=RemovableHandle)
    vars(picograd).update(foreach.NAMES, _assert=_assert, __version__=VERSION)
    vars(picograd.utils.data)["_collate_fn_t"] = typing.Callable[[list[Any]], Any]
    vars(picograd.optim)["required"] = object()  # the default of a required setting in PyTorch's optimizers
    number, size = int | float | bool, Size | list[int] | tuple[int, ...]
    device, file = picograd.device | str | int | None, str | os.PathLike[str] | IO[bytes]
    _with("torch.types", Number=number, Device=device, FileLike=file, Storage=left_out("Storage", "Storage", "picograd"),
          _size=size, _device=picograd.device, _dtype=DType, _int=int, _float=float, _bool=bool)  # fmt: skip
    threads = f"{picograd.get_num_threads()} threads"
    _with("torch.__config__", show=lambda: f"picograd {RELEASE}", parallel_info=lambda: threads)
    _with("torch.utils._foreach_utils", _group_tensors_by_device_and_dtype=foreach.group_by_kind)
    for name, own_names in private_names.names(_unchanged).items():
        _with(name, **own_names)
    sys.modules["torch.fx"].wrap = _unchanged  # type: ignore[attr-defined]  # nothing is traced by symbols
    for place, names in INSTEAD.items():
        page = sys.modules.get(place) if place not in ASKED_FOR else None
        for name in names if page is not None else ():
            if name not in vars(page):
                setattr(page, name, left_out(name, name, place))
    # Callers would save the states of GPUs' generators: here one generator serves all devices.
    vars(picograd.cuda).update(_initialized=False, is_initialized=_false)
    own: Any = vars(picograd)["_C"]
    own._log_api_usage_once, own._get_tracing_state, own._is_tracing = _unchanged, _false, _false  # called for each object


def _with(name: str, **names: Any) -> None:
    """Makes a module with these names importable."""
    module = ModuleType(name)
    vars(module).update(names)
    _below(name, module)


def _below(name: str, module: Any) -> None:
    """Makes a module importable by that name, as an attribute of its parent."""
    above, _, last = name.rpartition(".")
    sys.modules[name] = module
    setattr(sys.modules[above], last, module)
