"""Axes by name: what the rows of the table do not say, and the errors of patterns."""

from __future__ import annotations

from typing import Any

import pytest

from picograd import Tensor
from picograd.errors import ArgumentError, PicogradError, ShapeError

X = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


@pytest.mark.req("C2")
def test_a_rearranged_tensor_is_a_view(device: str) -> None:
    x = Tensor([[1, 2, 3], [4, 5, 6]])
    x.rearrange("h w -> w h")[0] = 0
    assert x.tolist() == [[0, 2, 3], [0, 5, 6]]


WRONG: list[tuple[str, dict[str, Any], type[PicogradError], str]] = [
    ("a b", {}, ArgumentError, "rearrange: a pattern has two sides, as in \"h w -> w h\"; got 'a b'."),
    ("a b -> a", {}, ArgumentError, 'rearrange: "a b -> a" drops an axis on its right side.'),
    ("a a -> a", {}, ArgumentError, 'rearrange: "a a -> a" names axis a twice on one side.'),
    ("a b -> b a n", {}, ArgumentError, 'rearrange: "a b -> b a n": axis n has no length.'),
    ("a b -> b a", {"n": 2}, ArgumentError, 'rearrange: "a b -> b a": axis n is not in it.'),
    ("(a b) c -> a", {}, ArgumentError, 'rearrange: "(a b) c -> a": of (a b) all lengths but one must be given.'),
    ("(a b -> a", {}, ArgumentError, 'rearrange: "(a b -> a": a ( has no closing ).'),
    ("a b) -> a", {}, ArgumentError, "rearrange: \"a b) -> a\": ')' is not a name, 1, ... or pair of ()."),
    ("a 2 -> a", {}, ArgumentError, "rearrange: \"a 2 -> a\": '2' is not a name, 1, ... or pair of ()."),
    ("a (b ...) -> a b", {}, ArgumentError, 'rearrange: "a (b ...) -> a b": ... must be an axis of its own on the left.'),
    ("a -> a", {}, ShapeError, 'rearrange: "a -> a" has 1 axes on its left side, the shape is (2, 3).'),
    ("a b c ... -> a", {}, ShapeError, 'rearrange: "a b c ... -> a" has 4 axes on its left side, the shape is (2, 3).'),
    ("a (b c) -> a b c", {"b": 2}, ShapeError, 'rearrange: "a (b c) -> a b c": an axis of length 3 is not (b=2 c).'),
    ("a 1 -> a", {}, ShapeError, 'rearrange: "a 1 -> a": an axis of length 3 is not (1).'),
    ("a b -> b a", {"a": 2.5}, ArgumentError, "rearrange: a must be an int, got float 2.5."),
]


@pytest.mark.parametrize(("pattern", "lengths", "kind", "fact"), WRONG, ids=[case[0] for case in WRONG])
def test_what_is_wrong_with_a_pattern_is_said(
    pattern: str, lengths: dict[str, Any], kind: type[PicogradError], fact: str
) -> None:
    with pytest.raises(kind) as caught:
        X.rearrange(pattern, **lengths)
    assert caught.value.fact == fact
    assert caught.value.line is not None and caught.value.line.file == __file__
