"""Published weights: one file, parts with an index, a folder, or a training's checkpoint.

    a name -> files -> dicts of tensors -> the network's dict -> its own names, without wrappers' prefixes

Source: Hugging Face, transformers (names of files, the index, the prefix `transformer.`); PyTorch (`module.` of
       DistributedDataParallel, `_orig_mod.` of torch.compile); Karpathy, nanoGPT (a checkpoint with `model`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from picograd.errors import DataError, FileError
from picograd.tensor.tensor import Tensor
from picograd_formats.safetensors_file import Array, map_arrays
from picograd_formats.state_file import load
from picograd_programs.data.vocabulary import json_in

Weights = dict[str, Tensor]
INDEX = ".index.json"  # suffix of the file that maps tensors to parts
PART = re.compile(r"-\d+-of-\d+(?=\.\w+$)")
FILES = ("model.safetensors", f"model.safetensors{INDEX}", "pytorch_model.bin", f"pytorch_model.bin{INDEX}", "ckpt.pt")
NETWORKS = ("model", "state_dict", "model_state_dict")  # names of the network's dict in checkpoints
STATE = "torch.save(model.state_dict(), path) writes such a file."
AROUND = re.compile(r"(?:(?:module|_orig_mod|model|transformer)\.)+")  # prefixes of names, from wrappers of the network


def load_published(path: Path) -> tuple[Weights, dict[str, Any]]:
    """Returns the tensors of a network by their names, and the rest of its file: a training's settings.

    Args:
      path:  a file of safetensors or PyTorch, the index of parts or one of them, or a folder with any of these

    Raises:
      FileError: a file cannot be read.
      DataError: a file is damaged, contains other things than tensors, or an index does not fit its parts.
    """
    file = file_in(path) if path.is_dir() else path
    if file.name.endswith(INDEX):
        return network_names(load_parts(file), file), {}
    if PART.search(file.name):
        index = file.with_name(PART.sub("", file.name) + INDEX)
        if not index.is_file():
            fact = f"{file}: is one part of a network, and {index.name}, the list of all parts, is not in its folder."
            raise DataError(fact, "put it and all parts into one folder.")
        return network_names(load_parts(index), index), {}
    try:
        found, said = load(file), dict[str, Any]()
    except DataError as error:
        if isinstance(error, FileError) or "its pickle names" not in error.fact:
            raise
        raise DataError(error.fact, STATE) from None  # a pickled module, whose code would have to run
    if isinstance(found, dict) and (name := next((name for name in NETWORKS if isinstance(found.get(name), dict)), None)):
        said, found = found, found.pop(name)
    if not are_tensors(found):
        fact = f"{file}: has more than tensors by name, and no dict of them that is called {' or '.join(NETWORKS)}."
        raise DataError(fact, STATE)
    return network_names(found, file), said


def map_published(folder: Path) -> dict[str, Array]:
    """Returns the arrays of a network by the names in its files. Files of safetensors are memory-mapped, others are read.

    Raises:
      FileError: a file cannot be read.
      DataError: as in `load_published`.
    """
    file = file_in(folder)
    if not file.name.startswith("model.safetensors"):
        return {name: value.numpy() for name, value in load_published(file)[0].items()}
    return load_parts(file, map_arrays) if file.name.endswith(INDEX) else map_arrays(file)


def file_in(folder: Path) -> Path:
    """Returns the file of the weights, or of their index, in a folder.

    Raises:
      DataError: the folder has none.
    """
    found = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if found is None:
        raise DataError(f"{folder}: has none of {', '.join(FILES)}.", "name the file with the weights.")
    return found


def load_parts(index: Path, read: Callable[[Path], Any] = load) -> dict[str, Any]:
    """Returns the tensors of all parts of an index; `read` reads a part.

    Raises:
      DataError: the index is damaged, or a part is missing, damaged, or lacks a tensor.
    """
    places = json_in(index).get("weight_map")
    names = [*places.values()] if isinstance(places, dict) else [None]
    if not all(isinstance(part, str) and part and Path(part).name == part for part in names):
        raise DataError(f"{index}: has no weight_map, a dict of tensors and the files beside it that have them.")
    weights = dict[str, Any]()
    for part in sorted(set(places.values())):
        try:
            found = read(index.with_name(part))
        except FileError as error:
            hint = f"{index.name} names {len(set(places.values()))} parts: all must be in its folder."
            raise FileError(error.fact, hint, error.errno) from None
        wanted = [name for name, place in places.items() if place == part]
        if missing := [
            name for name in wanted if not isinstance(found, dict) or not isinstance(found.get(name), Tensor | np.ndarray)
        ]:
            raise DataError(f"{index.with_name(part)}: has no tensor {missing[0][:60]}, which {index.name} says is in it.")
        weights |= {name: found[name] for name in wanted}
    return weights


def are_tensors(value: Any) -> bool:
    """Returns whether a value is a nonempty dict of tensors by name."""
    if not isinstance(value, dict) or not value:
        return False
    return all(isinstance(name, str) and isinstance(each, Tensor) for name, each in value.items())


def network_names(weights: Weights, file: Path) -> Weights:
    """Returns tensors by the network's own names, without prefixes of a training's wrappers.

    Raises:
      DataError: two tensors then have the same name.

    >>> list(network_names({"_orig_mod.transformer.wte.weight": Tensor([0.0])}, Path("ckpt.pt")))
    ['wte.weight']
    """
    own = {name: name[found.end() :] if (found := AROUND.match(name)) else name for name in weights}
    if len(set(own.values())) < len(own):
        first, second = next(names for short in own.values() if len(names := [n for n in own if own[n] == short]) > 1)[:2]
        raise DataError(f"{file}: has {first[:80]} and {second[:80]}, two tensors for one part of the network.")
    return {own[name]: value for name, value in weights.items()}
