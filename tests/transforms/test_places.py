"""The order in which a plan takes memory."""

from __future__ import annotations

from picograd.transforms.replay import in_order, runs_in


def test_neighbours_among_arguments_go_to_the_plan_as_one() -> None:
    alone = [(0, 5), (1, 3), (2, 4), (4, 5)]
    assert runs_in([*alone, (5, 7), (6, 8), (7, 9), (8, 10), (9, 12)]) == (
        [*alone, (9, 12)],
        [(slice(5, 9), slice(7, 11))],
    )


def test_things_are_put_in_order_for_none_one_and_several_places() -> None:
    assert [list(in_order(places)(["a", "b", "c"])) for places in ([], [1], [2, 0, 2])] == [[], ["b"], ["c", "a", "c"]]
