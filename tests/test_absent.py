"""Every name of PyTorch's that programs use is here, or the error for it says what to write instead."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import picograd as pg
from picograd.errors import missing
from picograd.transforms.jit import TORCHSCRIPT
from picograd_torch.absent import INSTEAD

NAMES = Path(__file__).with_name("torch_names.txt")
SAID = re.compile(r"^.* has no attribute '\w+'\.\n  hint: \S.*[.)]$")


def places() -> dict[str, list[str]]:
    """Returns the names of each namespace of torch, as the file has them: a line `torch.nn: Linear ...`, or several."""
    found: dict[str, list[str]] = {}
    for line in NAMES.read_text().splitlines():
        place, _, names = line.partition(": ")
        found.setdefault(place, []).extend(names.split())
    return found


def follow(path: list[str]) -> object:
    """Returns what stands under a dotted name; of a Tensor, what an object of the class has."""
    found: object = pg
    for name in path:
        found = getattr(pg.ones(1, 1) if found is pg.Tensor else found, name)
    return found


@pytest.mark.req("C3")
@pytest.mark.parametrize("place", places())
def test_a_name_of_pytorch_is_here_or_its_error_says_what_to_write(place: str) -> None:
    silent = []
    for name in places()[place]:
        try:
            follow([*place.split(".")[1:], name])
            if place == "torch.jit":  # functions that say it when they are called
                follow([*place.split(".")[1:], name])()  # type: ignore[operator]
        except AttributeError as error:
            if not SAID.match(str(error)):
                silent.append((name, str(error)))
    assert not silent


@pytest.mark.parametrize(
    ("module", "hint"),
    [
        ("picograd.distributed", "a training runs in one process"),
        ("picograd.nn.parallel", "a training runs in one process"),
        ("picograd.utils.benchmark", "time.perf_counter around"),
    ],
)
def test_the_error_of_importing_a_module_of_pytorch_says_what_to_write(module: str, hint: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"^No module named '{module}'.\n  hint: {hint}"):
        importlib.import_module(module)
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'picograd.nonsense'$"):
        importlib.import_module("picograd.nonsense")
    assert importlib.util.find_spec("nonsense") is None


def test_no_name_that_is_here_has_a_hint() -> None:
    known = [(place, name) for place, names in INSTEAD.items() for name in names]
    assert len(known) > 150 and {*TORCHSCRIPT.split()} == INSTEAD["picograd.jit"].keys()
    for place, name in known:
        if not place.endswith("jit"):
            owner = pg.nn.Linear(1, 1) if place.endswith("Module") else None
            path = [*place.split(".")[1:], name]
            with pytest.raises(AttributeError, match="hint: "):
                getattr(owner, name) if owner is not None else follow(path)


def test_the_text_of_a_hint() -> None:
    assert str(missing("set_num_interop_threads")) == (
        "module 'picograd' has no attribute 'set_num_interop_threads'.\n"
        "  hint: the CPU device has one pool of threads; pg.set_num_threads says how many."
    )
    with pytest.raises(AttributeError) as caught:
        pg.ones(2).storage()
    assert str(caught.value) == (
        "'Tensor' object has no attribute 'storage'.\n"
        "  hint: a lazy tensor has no storage until it is computed; x.numpy() copies it, x.data_ptr() is its address."
    )


@pytest.mark.parametrize(
    ("code", "meant"),
    [("pg.sofmax", "softmax"), ("pg.nn.Liner", "Linear"), ("pg.optim.Adamm", "Adam"), ("pg.ones(1).sotfmax", "softmax")],
)
def test_python_suggests_the_nearest_name(code: str, meant: str) -> None:
    told = subprocess.run([sys.executable, "-c", f"import picograd as pg; {code}"], capture_output=True, text=True)
    assert told.stderr.endswith(f"Did you mean: '{meant}'?\n")


def test_a_property_that_raises_an_attribute_error_keeps_it() -> None:
    class Odd(pg.Tensor):
        @property
        def broken(self) -> int:
            return self.nothing_here  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'Odd' object has no attribute 'nothing_here'"):
        _ = Odd([1.0]).broken


# ---- the public namespace ----
WITHOUT = """
import sys, types
sys.modules.update(dict.fromkeys("onnx pyopencl cuda matplotlib torch tokenizers jinja2 einops PIL".split()))
import picograd as pg
lacking, left = [], [pg]
for page in left:
    for name in dir(page):
        if not hasattr(page, name):
            lacking.append(f"{page.__name__}.{name}")
        found = getattr(page, name, None)
        if isinstance(found, types.ModuleType) and "picograd" in found.__name__ and found not in left:
            left.append(found)
print(lacking, len(left) > 20)
pg.onnx
"""


def test_a_page_whose_package_is_not_installed_is_no_attribute() -> None:
    told = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert told.stdout == "['picograd.onnx'] True\n"
    assert told.stderr.endswith('AttributeError: picograd.onnx needs the package onnx: pip install "picograd[onnx]"\n')


def test_dir_has_the_public_names_and_no_part_of_the_compiler() -> None:
    names = dir(pg)
    hidden = "config engine errors ir render runtime schedule codegen compilers math importlib publish names missing"
    assert not {*names} & {*hidden.split()}
    assert {"compile", "data", "models", "onnx", "array_api", "softmax", "bool", "nn"} <= {*names}
    assert not [name for name in names if not hasattr(pg, name)]
    late = {pg.optim: "lr_scheduler swa_utils", pg.nn.utils: "prune", pg.utils: "data", pg.autograd: "gradcheck"}
    assert all({*named.split()} <= {*dir(page)} and "publish_late" not in dir(page) for page, named in late.items())
    assert not [name for name in vars(pg) if not name.startswith("_") and callable(vars(pg)[name]) and name not in names]
