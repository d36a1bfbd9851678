"""The errors picograd raises, in three families by whose fault it is.

In:    a short fact, optionally a hint
Out:   an exception whose text names the rule, the user's line, and one thing to do
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import linecache
import os
import sys
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any, NamedTuple, NoReturn

import numpy

from picograd.loading import load_late

# The core, and the packages beside it.
PACKAGES = (
    "picograd", "picograd_math", "picograd_distributions", "picograd_formats", "picograd_loader", "picograd_training",
    "picograd_array_api", "picograd_onnx", "picograd_torch", "picograd_lab", "picograd_programs",
)  # fmt: skip
_PLACE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE_FOLDERS = tuple(os.path.join(_PLACE, package, "") for package in PACKAGES)
# Models of the command line are programs, written as a user's: the lines of their losses are named.
PROGRAM_FOLDERS = tuple(os.path.join(_PLACE, "picograd_programs", part, "") for part in ("models", "nano"))
# Files by which picograd calls itself, too, or by which NumPy's functions call it.
BETWEEN = (*PACKAGE_FOLDERS, os.path.dirname(numpy.__file__) + os.sep, contextlib.__file__, functools.__file__)


class Line(NamedTuple):
    """A place in the user's program.

    file:    path of the source file
    number:  1-based line number
    module:  while somebody profiles, the module whose forward ran, by its name in the model
    """

    file: str
    number: int
    module: str = ""

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.number).strip()
        return f"{os.path.basename(self.file)}:{self.number}" + (f"    {text}" if text else "")


def user_line() -> Line | None:
    """Returns the innermost line on the stack that is not picograd's own, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(BETWEEN):
            return Line(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None


class PlanningWarning(UserWarning):
    """Warns that one line is planned and compiled again and again, and what to do about it."""


def warn_user(text: str, kind: type[UserWarning] = UserWarning) -> None:
    """Gives a warning, on the line of the user's that is being run."""
    line = user_line()
    if line is None:
        warnings.warn(text, kind, stacklevel=2)
    else:
        warnings.warn_explicit(text, kind, line.file, line.number)


class PicogradError(Exception):
    """Base of every error: `rule broken, with values` / `at file:line  source` / `hint: one thing to do`."""

    def __init__(self, fact: str, hint: str | None = None, line: Line | None = None):
        self.fact, self.hint = fact, hint
        self.is_exact = line is not None  # the line that made the Op at fault, not the one that asked for its value
        self.line = line if line is not None else user_line()
        super().__init__(self._text())

    def _text(self) -> str:
        parts = [self.fact]
        if self.line is not None:
            parts.append(f"  at {self.line}")
        parts += self._notes()
        if self.hint is not None:
            parts.append(f"  hint: {self.hint}")
        return "\n".join(parts)

    def _notes(self) -> list[str]:
        """Returns the lines of the text between the place and the hint."""
        return []

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is: `__init__` would add the line, and the hint, of the reader to a text that has them.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]

    def restate(self, fact: str) -> None:
        """Replaces the fact: by one that says where, too."""
        self.fact = fact
        self.args = (self._text(),)

    def made_at(self, line: Line | None) -> None:
        """Names the line that made the Op at fault, unless that is named already."""
        if line is not None and not self.is_exact:
            self.line, self.is_exact = line, True
            self.args = (self._text(),)


# ---- a name of PyTorch's that is not here ----
def missing(name: str, place: str = "picograd", owner: object = None) -> AttributeError:
    """Returns the error for a name that a place does not have: a public module, Tensor, Module, a jitted function.

    Args:
      name:   an attribute
      place:  a module of picograd, or a class under the name that users know it by
      owner:  an object of that class; Python suggests the nearest of its names where there is no hint
    """
    module = sys.modules.get(place)
    kind = f"{type(owner).__name__!r} object" if owner is not None else f"{'module ' if module else ''}{place!r}"
    of_python = module is not None and name.startswith("__")  # which Python asks any module for
    instead = None if of_python else load_late("picograd_torch.absent").INSTEAD.get(place, {}).get(name)
    if instead is not None:
        return AttributeError(f"{kind} has no attribute {name!r}.\n  hint: {instead}", name=name)
    return AttributeError(f"{kind} has no attribute {name!r}", name=name, obj=module if owner is None else owner)


def refusing(name: str, place: str) -> Callable[..., NoReturn]:
    """Returns a function that raises `missing`, for a place that cannot answer for its attributes itself."""

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        raise missing(name, place)

    refused.__name__ = name
    return refused


def explain_absent(page: dict[str, Any]) -> None:
    """Lets a module with the dict `page` raise `missing` for each name that it does not have."""
    place = page["__name__"]

    def absent(name: str) -> NoReturn:
        raise missing(name, place)

    page.setdefault("__getattr__", absent)


class AbsentModules:
    """Finder that Python asks last for a module: one of PyTorch's that picograd does not have is an error with its hint.

    Programs are changed line by line: `import torch.distributed as dist` becomes `import picograd.distributed as dist`.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Raises the error of a module of PyTorch's, or returns where one is that has moved; any other has none."""
        above, _, last = name.rpartition(".")
        if name.partition(".")[0] == "picograd" and above:
            instead = load_late("picograd_torch.absent").INSTEAD.get(above, {}).get(last)
            if instead is not None:
                raise ModuleNotFoundError(f"No module named {name!r}.\n  hint: {instead}", name=name)
            return load_late("picograd_torch.moved").spec_of(name)
        return None


# ---- the user's ----
class ShapeError(PicogradError, ValueError):
    """Shapes that do not fit together.

    unequal:  pairs of lengths that differ and had to be equal, where one may be symbolic
    """

    unequal: tuple[tuple[Any, Any], ...] = ()


class DTypeError(PicogradError, TypeError):
    """A dtype the operation has no meaning for."""


class GradientError(PicogradError, ValueError):
    """A gradient that does not exist or would be wrong."""


class AnomalyError(PicogradError, RuntimeError):
    """A NaN that detect_anomaly found."""


class IndexingError(PicogradError, IndexError):
    """An index or axis outside its range."""


class ArgumentError(PicogradError, ValueError):
    """An argument whose value the function has no meaning for."""


class PathError(ArgumentError, AttributeError):
    """A module has no part at a path."""


class ArgumentTypeError(PicogradError, TypeError):
    """An argument of a type the function has no meaning for, or a call with too many or too few of them."""


class LinAlgError(PicogradError, ValueError):
    """A matrix without the result asked for: a singular one has no inverse."""


class JitError(PicogradError, ValueError):
    """A function that cannot be captured honestly."""


class SharingError(PicogradError, BufferError):
    """Memory that cannot be shared with another library, or not written to."""


class DataError(PicogradError, ValueError):
    """A file that is corrupt, truncated or of another format."""


class FileError(DataError, OSError):
    """A file that the machine cannot read or write: `errno` says why, as in any OSError."""

    def __init__(self, fact: str, hint: str | None = None, number: int | None = None):
        super().__init__(fact, hint)
        self.errno = number

    def __reduce__(self) -> tuple[Any, ...]:
        make, given, state = super().__reduce__()
        return make, given, {**state, "args": self.args, "errno": self.errno}  # which OSError keeps for itself

    @staticmethod
    def of(error: OSError, fact: str, hint: str | None = None) -> FileError:
        """Returns the error for what the machine refused; `except FileNotFoundError` still finds a missing file."""
        kind = MissingFileError if isinstance(error, FileNotFoundError) else FileError
        return kind(f"{fact}: {error.strerror or error}.", hint, error.errno)


class MissingFileError(FileError, FileNotFoundError):
    """A file, or the folder it is to be written to, that is not there."""


# ---- picograd's ----
class VerifyError(PicogradError):
    """A pass broke the spec: a bug in picograd."""

    def __init__(self, fact: str, line: Line | None = None):
        super().__init__(
            f"{fact}\nThis is a bug in picograd. To report it: run with PICOGRAD_DUMP=dump and attach that folder.",
            line=line,
        )


class UnsupportedOp(PicogradError, NotImplementedError):
    """An operation the chosen device cannot run."""


# ---- the machine's ----
class CompileError(PicogradError):
    """A compiler rejected generated source."""


class DeviceError(PicogradError, RuntimeError):
    """A device that is not here or failed.

    usable:  where it is not here, the names of those that this machine can use
    """

    def __init__(self, fact: str, hint: str | None = None, line: Line | None = None, usable: tuple[str, ...] = ()):
        self.usable = usable
        super().__init__(fact, hint, line)

    def _notes(self) -> list[str]:
        return [f"  usable here: {', '.join(self.usable)}"] if self.usable else []


class WorkerError(PicogradError, RuntimeError):
    """A process that makes batches and died, or took too long."""


class OutOfMemoryError(PicogradError, MemoryError):
    """An allocation the device could not satisfy."""

    @classmethod
    def of_host(cls, error: MemoryError) -> OutOfMemoryError:
        """Returns NumPy's error, "Unable to allocate 8. TiB for an array with ...", as picograd's."""
        return cls(f"host: {str(error) or 'Unable to allocate memory'}.", "release tensors, or use smaller ones.")
