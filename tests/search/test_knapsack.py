"""The assignments that the path gives are the best of all, as trying all of them shows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from mrt.search.knapsack import Option, hull, lagrange_path, least_cost, least_error

VALUES = st.integers(0, 12)
OPTIONS = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=4)
ITEMS = st.lists(OPTIONS, min_size=1, max_size=4).map(
    lambda items: [[Option(k, cost, error) for k, (cost, error) in enumerate(options)] for options in items]
)


def every(items: Sequence[Sequence[Option]]) -> list[tuple[float, float]]:
    """The cost and the error of every assignment."""
    return [(sum(o.cost for o in chosen), sum(o.error for o in chosen)) for chosen in product(*items)]


@given(ITEMS)
def test_nothing_on_the_path_is_beaten(items: list[list[Option]]) -> None:
    found, path = every(items), lagrange_path(items)
    for point in path:
        assert not [other for other in found if other[0] <= point.cost and other[1] < point.error]
        assert not [other for other in found if other[0] < point.cost and other[1] <= point.error]
    assert path[0].cost == min(cost for cost, _ in found)
    assert path[-1].error == min(error for _, error in found)


@given(ITEMS)
def test_the_sums_are_those_of_the_choices(items: list[list[Option]]) -> None:
    for point in lagrange_path(items):
        chosen = [options[choice] for options, choice in zip(items, point.choices, strict=True)]
        assert (point.cost, point.error) == (sum(o.cost for o in chosen), sum(o.error for o in chosen))


@given(ITEMS, st.integers(0, 40))
def test_bounds_are_kept_and_miss_the_best_by_one_step_of_an_item(items: list[list[Option]], bound: int) -> None:
    found = every(items)
    widest = max(max(o.cost for o in options) - min(o.cost for o in options) for options in items)
    cheapest, exact = least_cost(items, bound), [cost for cost, error in found if error <= bound]
    assert (cheapest is None) == (not exact)
    if cheapest is not None:
        assert cheapest.error <= bound
        assert min(exact) <= cheapest.cost <= min(exact) + widest
    accurate = least_error(items, bound)
    assert (accurate is None) == (min(cost for cost, _ in found) > bound)
    assert accurate is None or accurate.cost <= bound


def test_the_hull_leaves_out_what_no_multiplier_takes() -> None:
    options = [Option(2, 0, 16), Option(3, 1, 15), Option(4, 2, 4), Option(5, 3, 4), Option(8, 6, 0)]
    assert [option.choice for option in hull(options)] == [2, 4, 8]


def test_of_equal_gains_the_first_item_comes_first() -> None:
    options = [Option(4, 0, 1), Option(8, 1, 0)]
    assert [point.choices for point in lagrange_path([options, options])] == [(4, 4), (8, 4), (8, 8)]
