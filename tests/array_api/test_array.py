"""The array of the standard: how its operators promote, and what else differs from Tensor."""

from __future__ import annotations

import itertools

import pytest

import picograd.array_api as xp
from picograd import Tensor, dtypes
from picograd.errors import ArgumentError, DTypeError, IndexingError, ShapeError

INTS, UINTS = ["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]
DTYPES = ["bool", *INTS, *UINTS, *FLOATS]


def expected(a: str, b: str) -> str | None:
    """The table of the standard, from its rules."""
    for kind in (["bool"], INTS, UINTS, FLOATS):
        if a in kind and b in kind:
            return max(a, b, key=kind.index)
    if {a, b} & set(INTS) and {a, b} & set(UINTS):
        signed, unsigned = (a, b) if a in INTS else (b, a)
        at = max(INTS.index(signed), UINTS.index(unsigned) + 1)
        return INTS[at] if at < len(INTS) else None
    return None


@pytest.mark.req("C10")
@pytest.mark.parametrize("a", DTYPES)
def test_operators_and_functions_promote_by_the_table_of_the_standard(a):
    for b, shapes in itertools.product(DTYPES, [((2,), (2,)), ((2,), ()), ((), (2,))]):
        check_promotion(a, b, shapes)


def check_promotion(a, b, shapes):
    x, y = (xp.ones(shape, dtype=getattr(xp, name)) for shape, name in zip(shapes, (a, b)))
    dtype = expected(a, b)
    if dtype is None:
        for operation in (lambda: x == y, lambda: xp.equal(x, y), lambda: xp.result_type(x, y)):
            with pytest.raises(DTypeError, match=f"{a} and {b} have no common dtype in the standard"):
                operation()
        return
    wanted = getattr(xp, dtype)
    assert xp.result_type(x, y) is wanted and xp.can_cast(x, wanted)
    assert xp.stack([xp.ones(2, dtype=x.dtype), xp.ones(2, dtype=y.dtype)]).dtype is wanted
    assert xp.where(xp.asarray([True, False]), x, y).dtype is wanted
    assert (x == y).dtype is xp.bool
    if dtype != "bool":
        assert (x + y).dtype is wanted and xp.add(x, y).dtype is wanted and (x * y).dtype is wanted


def test_python_numbers_take_the_dtype_of_the_array():
    x = xp.ones(2, dtype=xp.int8)
    assert (x + 1).dtype is xp.int8 and xp.add(1, x).dtype is xp.int8
    assert xp.add(xp.ones(2, dtype=xp.float64), 1).dtype is xp.float64
    with pytest.raises(DTypeError, match=r"add: 1.5 cannot be combined with an array of int8"):
        xp.add(x, 1.5)
    with pytest.raises(DTypeError, match=r"add: one operand must be an array, got int and float"):
        xp.add(1, 2.0)
    with pytest.raises(DTypeError, match=r"add: needs an array or a Python number, got list"):
        xp.add(x, [1, 2])


def test_size_is_a_number_and_t_wants_a_matrix():
    x = xp.zeros((2, 3))
    assert x.size == 6 and xp.zeros(()).size == 1 and x.T.shape == (3, 2)
    with pytest.raises(ShapeError, match="T: needs two axes, got shape \\(3,\\)"):
        _ = xp.zeros(3).T


def test_tensors_are_taken_and_arrays_are_given():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = xp.sum(xp.square(x))
    assert type(y) is xp.Array and type(y + x) is xp.Array and type(x + y) is Tensor
    y.backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_matrix_products_promote():
    x, y = xp.ones((2, 2), dtype=xp.int8), xp.ones((2, 2), dtype=xp.int16)
    assert (x @ y).dtype is xp.int16 and xp.matmul(x, y).dtype is xp.int16


def test_a_tensor_knows_the_namespace():
    for x in (Tensor([1]), xp.asarray([1])):
        assert x.__array_namespace__() is xp and x.__array_namespace__(api_version="2025.12") is xp
    with pytest.raises(ArgumentError, match="got '1999.01'"):
        x.__array_namespace__(api_version="1999.01")
    assert xp.__array_api_version__ == "2025.12"


def test_what_the_namespace_says_of_itself():
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert info.default_device() in info.devices() and "NULL" not in info.devices()
    assert info.default_dtypes() == {"real floating": xp.float32, "integral": xp.int64, "indexing": xp.int64}
    assert info.dtypes(kind="unsigned integer") == {name: getattr(xp, name) for name in UINTS}
    assert info.dtypes(kind=("bool", "real floating")).keys() == {"bool", *FLOATS}
    assert info.dtypes().keys() == set(DTYPES) and info.dtypes(kind="complex floating") == {}
    with pytest.raises(ArgumentError, match="dtypes: kind must be one of 'bool'"):
        info.dtypes(kind="float")


def test_facts_of_dtypes():
    assert xp.finfo(xp.float64).smallest_normal == 2.0**-1022 and xp.finfo(xp.zeros(1)).bits == 32
    assert xp.iinfo(xp.uint64).max == 2**64 - 1 and xp.iinfo(xp.int8).min == -128
    assert xp.finfo(dtypes.bfloat16).eps == 2.0**-7
    with pytest.raises(DTypeError, match="finfo: needs a float dtype, got int8"):
        xp.finfo(xp.int8)
    with pytest.raises(DTypeError, match="iinfo: needs an integer dtype, got bool"):
        xp.iinfo(xp.bool)
    assert xp.isdtype(xp.int8, "integral") and not xp.isdtype(xp.int8, ("bool", xp.int16))
    with pytest.raises(ArgumentError, match="isdtype: kind must be a dtype or one of"):
        xp.isdtype(xp.int8, "float")


@pytest.mark.req("C10")
@pytest.mark.parametrize(
    ("shape", "mask"),
    [((2, 3), (0, 0)), ((2, 3), (2, 0)), ((2, 3), (0,)), ((1,), (0,)), ((2, 3, 4), (0, 3)), ((0, 2), (0, 0))],
)
def test_a_mask_may_have_no_elements_where_the_array_has_some(shape, mask, device):
    x, none = xp.ones(shape), xp.ones(mask, dtype=xp.bool)
    assert x[none].shape == (0, *shape[len(mask) :])
    x[none] = 5.0
    assert xp.all(x == 1)


def test_a_mask_of_other_lengths_is_refused():
    for shape, mask in (((2, 3), (0, 2)), ((2,), (0, 0)), ((2, 3), (1, 0))):
        with pytest.raises(IndexingError):
            xp.ones(shape)[xp.ones(mask, dtype=xp.bool)]


def test_an_error_names_the_line_that_called_the_namespace():
    with pytest.raises(DTypeError) as caught:
        xp.sum("text")
    assert caught.value.line is not None and caught.value.line.file == __file__
