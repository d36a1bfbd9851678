"""Public functions, wrapped: a bare error that escapes is explained from the annotations of the function.

In:    the names of a public page, or a class
Out:   the same names, each a function that says which argument is of a type it has no meaning for

Nothing is looked at before an error is there, so a call costs one more call, and only from outside: inside picograd the
functions themselves call each other (layers alone call nn.functional, as their users read it). Constructors are the
exception: they are rare, and what is wrong with a layer would show only when it is used, so their arguments are compared
with the annotations first.
"""

from __future__ import annotations

import functools
import inspect
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, MappingProxyType, MethodType, ModuleType, TracebackType
from typing import Any, ParamSpec, TypeVar, cast, get_type_hints

from picograd.annotations import described, fits, is_module, remedy, shown
from picograd.errors import (
    PACKAGE_FOLDERS,
    ArgumentTypeError,
    DTypeError,
    OutOfMemoryError,
    PicogradError,
    explain_absent,
    missing,
)
from picograd.interrupts import Latest
from picograd.loading import load_late

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Late = Mapping[str, tuple[str, ...]]  # by a module, functions and classes that it has

# Code that is not the user's: of Python, of installed packages, and what has no file.
LIBRARIES = (*(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")), "<frozen", "<string", "<__array")
OTHER_NAMES = {  # by which PyTorch's functions take these arguments, too
    "axis": "dim", "from": "low", "indices": "indices_or_sections", "input": "self", "sections": "indices_or_sections",
    "split_size_or_sections": "split_size", "src": "source", "to": "high",
}  # fmt: skip
OF_NO_EFFECT = {  # arguments of PyTorch's, and the functions that take them
    "memory_format": {
        "bfloat16", "bool", "byte", "char", "clone", "contiguous", "cpu", "cuda", "double", "empty", "empty_like",
        "float", "full_like", "half", "int", "is_contiguous", "long", "ones_like", "rand_like", "randint_like",
        "randn_like", "resize_", "resize_as_", "short", "to", "type", "zeros_like",
    },
    "layout": {  # torch.strided, the only one
        "arange", "empty", "empty_like", "eye", "full", "full_like", "linspace", "logspace", "new_empty", "new_full",
        "new_ones", "new_zeros", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn",
        "randn_like", "randperm", "zeros", "zeros_like",
    },
    "sparse_grad": {"gather"},
}  # fmt: skip
COMPUTED_AS_OUT = {"cumprod", "cumsum", "mean", "nansum", "prod", "sum"}  # in the dtype of `out`
_behind: dict[Any, Any] = {}  # by a published function the one that does the work
_published: dict[Any, Any] = {}  # and back
_owners: dict[Any, type] = {}  # by a method the class that users know it of


# ---- wrapping ----
def publish(page: dict[str, Any]) -> None:
    """Wraps the functions and the constructors of a public page, which is the dict of a module.

    After:   each name of `__all__`, or every public name where there is none, that picograd made explains its errors;
             a name of PyTorch's that the page does not have says what to write instead.
    """
    explain_absent(page)
    page.setdefault("__path__", [])  # Python asks for modules below it, too (picograd_torch/moved.py)
    page.setdefault("__dir__", lambda: names_on(page))
    for name in page.get("__all__") or [name for name in page if not name.startswith("_")]:
        value = page.get(name)  # a name that is loaded late is not there yet
        if not str(getattr(value, "__module__", "")).startswith("picograd"):
            continue
        if isinstance(value, FunctionType):
            page[name] = published(value, page["__name__"], name)
        elif isinstance(value, MethodType):
            page[name] = MethodType(published(value.__func__, page["__name__"], name), value.__self__)
        elif isinstance(value, type) and not issubclass(value, BaseException):
            publish_constructor(value)


def publish_late(page: dict[str, Any], pages: Iterable[str] = (), functions: Late = MappingProxyType({})) -> None:
    """Lets a public page have pages below it and what other modules have, loaded when it is first asked for.

    Args:
      pages:      the modules that they are; a page is called by its last name
      functions:  by a module the names of its functions, classes and constants
    """
    place, below = page["__name__"], {module.rpartition(".")[2]: module for module in pages}
    homes = {name: home for home, names in functions.items() for name in names}

    def late(name: str) -> Any:
        if name in below:
            try:
                return load_late(below[name])
            except ImportError as error:  # of a package that is not installed; hasattr is False
                raise AttributeError(str(error), name=name) from error
        if name not in homes:
            raise missing(name, place)
        found = getattr(load_late(homes[name]), name)
        if isinstance(found, type):
            publish_constructor(found)
        page[name] = published(found, place, name) if isinstance(found, FunctionType) else found
        return page[name]

    page["__getattr__"] = late
    page.setdefault("__dir__", lambda: sorted({*names_on(page), *below, *homes}))


def names_on(page: dict[str, Any]) -> list[str]:
    """Returns the names of a public page that are for users: functions, classes and pages of picograd, no helper."""
    found = {name for name in page if name.startswith("__")} | {*page.get("__all__", ())}
    if "__all__" in page:
        return sorted(found)
    for name, value in page.items():
        is_module = isinstance(value, ModuleType)
        home = str(getattr(value, "__name__" if is_module else "__module__", ""))
        if home.startswith(page["__name__"]) and (not is_module or "__getattr__" in vars(value)):
            found.add(name)
    return sorted(found)


def publish_methods(owner: type, without: frozenset[str]) -> None:
    """Wraps the public methods of a class that take arguments, those it inherits too, but for `without`.

    Python's own errors call these what users call them, too: Tensor.reshape, whichever class has it.
    """
    methods = {name: found for home in reversed(owner.__mro__) for name, found in vars(home).items()}
    for name, found in methods.items():
        function = getattr(found, "__func__", found)
        if not isinstance(function, FunctionType):
            continue
        if name in without:
            function.__module__, function.__qualname__ = owner.__module__, f"{owner.__name__}.{function.__name__}"
        _owners.setdefault(inspect.unwrap(function), owner)
        if name.startswith("_") or name in without or is_alone(function) and name not in OF_NO_EFFECT["memory_format"]:
            continue
        wrapped = published(function, owner.__module__, f"{owner.__name__}.{name}")
        setattr(owner, name, type(found)(wrapped) if isinstance(found, (classmethod, staticmethod)) else wrapped)


def is_alone(function: FunctionType) -> bool:
    """True for a method that takes nothing but self."""
    code = function.__code__
    more = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return not more and code.co_argcount + code.co_kwonlyargcount == 1


def published(function: Callable[P, R], module: str, name: str) -> Callable[P, R]:
    """Returns `function`, whose bare errors are explained, to be found in `module` under `name`."""
    if function in _behind:
        return function
    if function in _published:
        return _published[function]
    is_loss = _is_loss(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> R:
        try:
            if is_loss:
                args, kwargs = load_late("picograd_torch.old_reduction").with_reduction(function, args, kwargs)
            if "out" in kwargs:
                return cast(R, _stored(function, args, kwargs))
            return function(*args, **kwargs)
        except Exception as error:
            if isinstance(error, TypeError) and (others := _by_other_names(function, kwargs)) is not None:
                return call(*args, **others)
            explain(function, args, kwargs, error)
            raise

    call.__module__, call.__qualname__ = module, name  # pickle looks there
    _behind[call], _published[function] = function, call
    return call


def _is_loss(function: Callable[..., Any]) -> bool:
    """True where PyTorch's function may have two arguments of old in the place of `reduction`."""
    return "reduction" in inspect.unwrap(function).__code__.co_varnames


def _by_other_names(function: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Returns keyword arguments under the names that a function has for them, without those without effect.

    None where the function has those that were given.

    A call by a name that a function does not have fails before it begins, so that it can be made again.

    Example: pg.select(input=x, axis=0, index=1)  ->  Tensor.select(self=x, dim=0, index=1)
    """
    if kwargs.keys().isdisjoint((*OTHER_NAMES, *OF_NO_EFFECT)):
        return None
    has = signature_of(function)[0].parameters
    kept = {name: value for name, value in kwargs.items() if not _is_of_no_effect(function.__name__, name, value)}
    named = {OTHER_NAMES.get(name, name) if name not in has else name: value for name, value in kept.items()}
    return named if named.keys() != kwargs.keys() and len(named) == len(kept) and named.keys() <= has.keys() else None


def _is_of_no_effect(function: str, name: str, value: Any) -> bool:
    return function in OF_NO_EFFECT.get(name, ()) and (name != "layout" or getattr(value, "__name__", None) == "strided")


def _stored(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a function without `out`, and stores what it returns there: one tensor, or several in a tuple; returns `out`.

    No function has a parameter `out` of its own. One that makes tensors of no others makes them of the dtype of `out`, and
    sums and products are computed in that.

    Raises:
      ArgumentTypeError: `out` is not as many tensors as the function returns.
      DTypeError:        `dtype` is given, and `out` has another.
    """
    out = kwargs.pop("out")
    if out is None:
        return function(*args, **kwargs)
    outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    if not all(map(_is_tensor, outs)):
        raise ArgumentTypeError(f"{function.__name__}: out must be a tensor, or one for each result, got {shown(out)}.")
    makes = "dtype" in signature_of(function)[0].parameters and not any(map(_is_tensor, args))
    if (makes or function.__name__ in COMPUTED_AS_OUT) and kwargs.get("dtype") is None:
        kwargs["dtype"] = outs[0].dtype
    returned = function(*args, **kwargs)
    results = returned if isinstance(returned, tuple) else (returned,)
    if len(results) != len(outs):
        raise ArgumentTypeError(f"{function.__name__}: returns {len(results)} tensors, got {len(outs)} as out.")
    if kwargs.get("dtype") is not None and results[0].dtype is not outs[0].dtype:
        fact = f"{function.__name__}: dtype={results[0].dtype}, but out has {outs[0].dtype}."
        raise DTypeError(fact, hint="leave dtype out: the result is stored as out's.")
    stored = [one.take_result(function.__name__, result) for one, result in zip(outs, results)]
    return type(returned)(*stored) if hasattr(returned, "_fields") else tuple(stored) if len(stored) > 1 else stored[0]


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "take_result") and not isinstance(value, type)


def renamed(template: F, name: str, about: str) -> F:
    """Returns one of several functions that share their code as a function of its own, of the module that makes it.

    Args:
      name:   in help, tracebacks and profiles
      about:  its docstring
    """
    function = cast(FunctionType, template)
    code = function.__code__.replace(co_name=name, co_qualname=name)
    made = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    made.__annotations__, made.__doc__ = function.__annotations__, about
    made.__kwdefaults__ = function.__kwdefaults__
    return cast(F, made)


def plain(function: Any) -> Any:
    """Returns the function behind a published one, of a method its function; anything else as it is."""
    function = function.__func__ if isinstance(function, MethodType) else function
    return _behind.get(function, function) if isinstance(function, FunctionType) else function


_fitting: Latest[tuple[Any, ...], None] = Latest(1024)  # a constructor, and names and types of arguments that have fitted


def _fits_by_type(value: object) -> bool:
    """True if no other value of the type would fit less: neither a word, nor a number, nor a container."""
    return value is None or isinstance(value, float) or hasattr(value, "requires_grad")


def publish_constructor(owner: type, looks_first: bool = True) -> None:
    """Wraps the constructor of a class, or the one it inherits; `looks_first`: arguments are compared before it runs."""
    home = next((base for base in owner.__mro__ if "__init__" in vars(base)), object)
    init = vars(home)["__init__"]
    if not home.__module__.startswith("picograd") or init in _behind or not isinstance(init, FunctionType):
        return
    is_loss = _is_loss(init)

    @functools.wraps(init)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        if is_loss:
            args, kwargs = load_late("picograd_torch.old_reduction").with_reduction(init, args, kwargs)
        if looks_first:
            kinds = (init, *map(type, args), *kwargs, *map(type, kwargs.values()))
            if kinds not in _fitting:
                check_arguments(class_name(self), init, (self, *args), kwargs, _too_early(self, args))
                if all(map(_fits_by_type, (*args, *kwargs.values()))):
                    _fitting.put(kinds, None)
        try:
            init(self, *args, **kwargs)
        except Exception as error:
            explain(init, (self, *args), kwargs, error)
            raise

    _behind[construct] = init
    home.__init__ = construct  # type: ignore[misc]


# ---- explaining ----
# Functions whose work others do, under whose names their errors come.
DONE_BY = {
    "sort": ("argsort",), "max": ("amax",), "min": ("amin",), "aminmax": ("amin", "amax"),
    "count_nonzero": ("sum",), "nanmean": ("sum",), "nansum": ("sum",), "std_mean": ("std",), "var_mean": ("var",),
    "cosine_similarity": ("norm",), "normalize": ("norm",), "softmin": ("softmax",), "gumbel_softmax": ("softmax",),
    "cumsum_": ("cumsum",), "cumprod_": ("cumprod",), "squeeze_": ("squeeze",),
    "unsqueeze_": ("unsqueeze",),
}  # fmt: skip


ASKED_OF_TENSORS = ("bool", "int", "float", "index")  # a tensor may be where the function takes something else


def explain(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> None:
    """Raises an error that names the wrong argument of a call that raised `error`; returns if there is none, or it says so.

    Raises:
      ArgumentTypeError: an argument does not fit.
      OutOfMemoryError:  NumPy could not make an array of the size that was asked for.
    """
    if isinstance(error, PicogradError) and not isinstance(error, ArgumentTypeError):
        inner, _, rest = error.fact.partition(": ")
        if inner in DONE_BY.get(function.__name__, ()):
            error.restate(f"{function.__name__}: {rest}")
        if inner not in ASKED_OF_TENSORS:
            return
    is_ours = function.__module__.startswith("picograd")  # a forward may be the user's
    if not is_ours or error.__traceback__ is None or has_user_code(error.__traceback__.tb_next):
        return
    if isinstance(error, MemoryError):
        raise OutOfMemoryError.of_host(error) from None
    of_class = function.__name__ in ("__init__", "forward")
    try:
        check_arguments(class_name(args[0]) if of_class else function.__name__, function, args, kwargs)
    except ArgumentTypeError as told:
        raise told from None


def _too_early(self: Any, args: tuple[Any, ...]) -> str | None:
    """Returns the hint for a layer that is given tensors when it is made: nn.CrossEntropyLoss(scores, classes)."""
    if is_module(type(self)) and any(hasattr(value, "requires_grad") for value in args):
        return f"make the layer first, then call it: layer = {class_name(self)}(...); layer(tensor)."
    return None


def check_arguments(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], hint: str | None = None
) -> None:
    """Compares arguments with the annotations of `function`, which errors call `name`.

    Args:
      hint:  of the error, where the caller knows the mistake

    Raises:
      ArgumentTypeError: there are too many or too few, or one does not fit.
    """
    signature, hints = signature_of(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        known = load_late("picograd_torch.absent").INSTEAD_OF_ARGUMENT
        foreign = next((known[key] for key in kwargs if key in known), None)
        raise ArgumentTypeError(f"{name}: {error}.", hint=hint or foreign or usage(name, signature)) from None
    for argument, value in bound.arguments.items():
        kind, wanted = signature.parameters[argument].kind, hints.get(argument, Any)
        if kind is inspect.Parameter.VAR_POSITIONAL:
            values = value
        elif kind is inspect.Parameter.VAR_KEYWORD:
            unknown = next((key for key, one in value.items() if not fits(one, wanted)), None)
            if unknown is not None:
                fact = f"{name}: got an unexpected keyword argument {unknown!r}."
                raise ArgumentTypeError(fact, hint=hint or usage(name, signature))
            values = ()
        else:
            values = (value,)
        for one in values:
            if not fits(one, wanted):
                called = "input" if argument == "self" else argument
                fact = f"{name}: {called} must be {described(wanted)}, got {shown(one)}."
                raise ArgumentTypeError(fact, hint=hint or remedy(one, wanted))


@functools.cache
def signature_of(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """Returns the signature of a function, and the types in its annotations; self is of the class it is in."""
    classes = {owner.__name__: owner for owner in _owners.values()}  # which the functions that they are made of name
    signature, hints = inspect.signature(function), get_type_hints(function, localns=classes)
    if "self" in signature.parameters:
        behind = inspect.unwrap(function)
        home = behind.__globals__.get(behind.__qualname__.split(".")[0], Any)
        hints["self"] = _owners.get(behind, home)
    return signature, hints


def class_name(value: object) -> str:
    """Returns the name of the class of picograd that `value` is of."""
    kinds = (kind.__name__ for kind in type(value).__mro__ if kind.__module__.startswith("picograd"))
    return next(kinds, type(value).__name__)


def usage(name: str, signature: inspect.Signature) -> str:
    """Returns how a function is called, as its source has it."""
    kept = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name not in ("self", "cls")]
    return f"{name}{signature.replace(parameters=kept, return_annotation=signature.empty)}"


def has_user_code(traceback: TracebackType | None) -> bool:
    """True where an error comes from code of the user's that picograd called."""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith((*PACKAGE_FOLDERS, *LIBRARIES)):
            return True
        traceback = traceback.tb_next
    return False
