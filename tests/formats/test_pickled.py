"""The reader of pickles: what Python writes in every protocol, and nothing that a file could do with it."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from picograd.errors import DataError
from picograd_formats.pickled import LINE_NBYTES_MAX, NUMPY_NAMES, Stored, Unpickler
from picograd_formats.torch_file import Storages, torch_names

PROTOCOLS = pytest.mark.parametrize("protocol", range(6))


def load(data: bytes, **options: Any) -> Any:
    names = options.pop("names", torch_names(Storages(len(data))))
    return Unpickler(io.BytesIO(data), len(data), names, **options).load()


def refused(data: bytes, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        load(data, **options)
    return caught.value.fact


VALUES = [
    None, True, False, 0, 1, -1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -(2**31), 2**63, -(2**200), 10**300,
    0.0, -1.5, 1e300, float("inf"), "", "text", "ä\n€😀'\"\\", "x" * 300, "x" * 70000, b"", b"\x00\xff'\\\n", b"y" * 300,
    [], [1], [[], [[]]], (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {}, {"a": 1}, {1: {2: {}}}, {(1, "b"): None},
    set(), {1, "a"}, frozenset(), frozenset({1, 2}), bytearray(b"abc"), 1 + 2j, OrderedDict([("b", 1), ("a", [2])]),
    [list(range(3000)), {str(i): i for i in range(3000)}],
]  # fmt: skip


@PROTOCOLS
def test_what_python_writes_reads_back(protocol: int) -> None:
    for value in VALUES:
        loaded = load(pickle.dumps(value, protocol))
        assert loaded == value and type(loaded) is type(value), value


@PROTOCOLS
@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "<i4", ">i8", "f2", "<f4", ">f8"])
def test_arrays_and_scalars_of_numpy(protocol: int, dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    for value in (array, array.T, array[0, 1:2], array[1, 2], np.zeros((0, 2), dtype), [array, array.dtype, array]):
        loaded = load(pickle.dumps(value, protocol))
        if isinstance(value, list):
            assert loaded[0] is loaded[2] and loaded[1] == value[1]
        else:
            assert np.array_equal(loaded, value) and loaded.dtype == value.dtype


def test_one_object_stays_one_and_cycles_are_cycles() -> None:
    shared: list[Any] = [1]
    shared.append(shared)
    a, b = load(pickle.dumps([shared, {"x": shared}], 2))
    assert a is b["x"] and a[1] is a


def test_text_of_python_2() -> None:
    assert load(b"S'it\\'s \\xe4'\n.", encoding="latin1") == "it's ä"
    assert load(b"U\x02\xc3\xa4.") == "ä"
    assert load(b"c__builtin__\nset\n(]K\x01atR.") == {1}
    assert "is damaged" in refused(b"U\x01\xe4.")


HARMFUL = [
    b"cos\nsystem\n(S'true'\ntR.",
    b"c__builtin__\neval\n(S'1'\ntR.",
    b"cbuiltins\ngetattr\n(NNtR.",
    b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    b"\x80\x04\x8c\x08builtins\x8c\x0cset.__init__\x93.",
    b"ctorch.serialization\nload\n.",
    b"cnumpy\nload\n.",
]


@pytest.mark.parametrize("data", HARMFUL)
def test_names_that_are_not_in_the_table(data: bytes) -> None:
    assert "which is not a tensor, container or number that picograd reads" in refused(data)
    assert isinstance(load(data, others=True), Stored) or data[-2:] != b"R."


@pytest.mark.parametrize(
    "data",
    [
        b"(S'true'\nios\nsystem\n.",  # INST
        b"(cbuiltins\nset\no.",  # OBJ
        b"\x82\x01.",  # EXT
        b"\x97.",  # an out-of-band buffer
        b"]K\x01R.",  # calls a list
        b"cbuiltins\nset\nK\x01R.",  # with a number for arguments
        b"cbuiltins\nset\n(K\x01tR.",  # of a number
        b"cbuiltins\nlist\n)R.",  # a class that is only an argument
        b"cbuiltins\nset\n)\x81}\x85b.",  # a set with a state
        b"}}b.",
        b"N}b.",
        b"NK\x01a.",  # appends to None
        b"(K\x01K\x02td.",  # odd
        b"]K\x01K\x02s.",
        b"cnumpy\nndarray\n)R.",
        b"h\x07.",  # nothing there
        b"K\x01(.",  # a mark at the end
        b"(t).",
        b"K\x01K\x02.",
        b".",
        b"0.",
        b"(\x85.",  # takes what is before the mark
        b"K\x01(a.",
        b"Q.",
        b"I1x\n.",
        b"L" + b"9" * 5000 + b"L\n.",
        b"Vx",
        b"I1",
        b"\x8b\xff\xff\xff\xff.",
        b"T\xff\xff\xff\xff.",
    ],
)
def test_malformed_pickles(data: bytes) -> None:
    assert "its pickle" in refused(data)


def test_what_claims_to_be_long_is_not_made() -> None:
    for data in (b"\x8d" + b"\xff" * 8, b"\x8e\0\0\0\0\0\1\0\0", b"X\xff\xff\xff\x7f", b"\x96" + b"\x10" * 8):
        assert "bytes are missing" in refused(data + b"a.")
    assert load(b"]r\xff\xff\xff\x7f0j\xff\xff\xff\x7f.") == []  # a place in the memo takes nothing
    assert "cut short" in refused(b"V" + b"x" * (LINE_NBYTES_MAX + 1) + b"\n.")


def test_arrays_are_made_of_bytes_that_are_there() -> None:
    def array(dtype: bytes, shape: bytes, data: bytes) -> bytes:
        made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
        kind = b"cnumpy\ndtype\n(U" + bytes([len(dtype)]) + dtype + b"I00\nI01\ntR(K\x03U\x01<NNNI-1\nI-1\nK\x00tb"
        return made + b"(K\x01" + shape + kind + b"I00\nU" + bytes([len(data)]) + data + b"tb."

    names = {"names": NUMPY_NAMES, "encoding": "latin1"}
    assert load(array(b"f4", b"K\x01\x85", b"\x00\x00\x80?"), **names).tolist() == [1.0]
    assert "has 4 bytes for an array" in refused(array(b"f4", b"K\x02\x85", bytes(4)), **names)
    assert "has 4 bytes for an array" in refused(array(b"f4", b"(" + b"K\xff" * 20 + b"t", bytes(4)), **names)
    assert "has an array of shape" in refused(array(b"f4", b"J\xff\xff\xff\xff\x85", bytes(4)), **names)
    for dtype in (b"O8", b"O", b"S4", b"V4", b"M8", b"c8", b"f4,f4", b"i3", b"(2)f4"):
        assert "only numbers and bools are read" in refused(array(dtype, b"K\x01\x85", bytes(8)), **names)
    dtype = b"cnumpy\ndtype\n(U\x02f4tR"
    assert "not one of numbers" in refused(dtype + b"(K\x03U\x01x}}NK\x00tb.", **names)
    assert "has no end" in refused(dtype + b".", **names)


def test_values_are_not_copied_again_and_again() -> None:
    """A long list in the memo, and sets of it: each takes five bytes of a file and all of the list's elements."""
    data = b"](" + b"K\x01K\x02K\x03" * 1000 + b"eq\x00cbuiltins\nset\nq\x01(" + b"h\x01h\x00\x85R" * 1000 + b"l."
    assert "copies values more often" in refused(data)


def test_keys_are_plain_values() -> None:
    """The hash of tuples in tuples takes as long as there are paths through them."""
    nested = b")" + b"q\x000h\x00h\x00\x86" * 60
    for data in (b"}" + nested + b"Ns.", b"\x8f(" + nested + b"\x90.", b"(" + nested + b"\x91.", b"}]Ns."):
        assert "keys are text, numbers or tuples of these" in refused(data)
    big = (2**61 - 1).to_bytes(8, "little")
    assert "keys are text, numbers" in refused(b"}\x8a\x08" + big + b"Ns.")


def test_depth_has_no_limit() -> None:
    value = load(b"]" * 20_000 + b"a" * 19_999 + b".")
    depth = 0
    while value:
        value, depth = value[0], depth + 1
    assert depth == 19_999
