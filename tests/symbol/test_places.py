"""Where places of an axis are behind an operator, and in which inputs it is homogeneous, by what it computes."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.symbol import Array, Symbol
from mrt.symbol.places import NOWHERE, places_behind
from tests.matrix import Case
from tests.matrix_cases import CASES
from tests.symbol.test_kept_axis import varied


def drawn(case: Case) -> dict[str, Array]:
    graph, feeds = case.graph, case.draw(1)
    return {symbol.name: value for symbol, value in graph.walk(feeds)} | feeds | dict(graph.parameters)


def computed(symbol: Symbol, values: list[Array]) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(symbol.operator.evaluate(*values), np.float64)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_place_of_the_output_depends_on_the_one_that_it_comes_from(case: Case) -> None:
    values = drawn(case)
    for symbol in case.graph.operators:
        given = [np.asarray(values[source.name], np.float64) for source in symbol.inputs]
        expected = computed(symbol, given)
        for index, source in enumerate(symbol.inputs):
            for axis in range(1, source.type.rank):
                found = places_behind(symbol, index, axis)
                for place in range(source.shape[axis]) if found is not None else ():
                    changed = np.argwhere(varied(symbol, given, index, axis, place) != expected)[:, found.axis]
                    assert set(changed) <= set(np.flatnonzero(found.sources == place))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operators_are_homogeneous_in_the_inputs_that_they_name(case: Case) -> None:
    values = drawn(case)
    for symbol in case.graph.operators:
        given = [np.asarray(values[source.name], np.float64) for source in symbol.inputs]
        scaled = symbol.operator.homogeneous_in(len(given))
        if not scaled:
            continue
        times = [2.5 * value if index in scaled else value for index, value in enumerate(given)]
        np.testing.assert_allclose(computed(symbol, times), 2.5 * computed(symbol, given), rtol=1e-6, atol=1e-9)


def test_selections_that_keep_no_axis_are_followed_place_by_place() -> None:
    """Slices and joins of channels, a border of zeros, features of channels that are innermost."""
    from mrt.symbol import TensorType
    from mrt.symbol.operators.pad import Pad
    from mrt.symbol.operators.reduce import Max
    from mrt.symbol.operators.transform import Concat, Flatten, SliceAxis
    from mrt.symbol.symbol import apply, variable

    x, y = (variable(name, TensorType((1, 4, 2, 3))) for name in "xy")
    expected = {
        apply(SliceAxis(axis=1, begin=1, end=3), [x], "s"): (1, [1, 2]),
        apply(Pad(pad_width=(0, 0, 1, 2, 0, 0, 0, 0)), [x], "p"): (1, [NOWHERE, 0, 1, 2, 3, NOWHERE, NOWHERE]),
        apply(Concat(dim=1), [y, x], "c"): (1, [NOWHERE] * 4 + [0, 1, 2, 3]),
    }
    for symbol, (axis, sources) in expected.items():
        found = places_behind(symbol, symbol.inputs.index(x), 1)
        assert found is not None and (found.axis, found.sources.tolist()) == (axis, sources)
    flat = places_behind(apply(Flatten(), [x], "f"), 0, 3)
    assert flat is not None and flat.sources.tolist() == [0, 1, 2] * 8
    assert places_behind(apply(Max(axis=(1,), keepdims=True), [x], "m"), 0, 1) is None
