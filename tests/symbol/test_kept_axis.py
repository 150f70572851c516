"""The axis that an operator keeps apart is the one along which NumPy sees its places depend on those of the input."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.symbol import Array, Symbol
from tests.matrix import Case
from tests.matrix_cases import CASES


def varied(graph_symbol: Symbol, values: list[Array], index: int, axis: int, place: int) -> Array:
    """What the operator gives where input `index` holds other values at one place of its axis."""
    changed = [value.copy() for value in values]
    at = (slice(None),) * axis + (place,)
    changed[index][at] = changed[index][at] * 3 + 1
    return np.asarray(graph_symbol.operator.evaluate(*changed))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_places_of_the_kept_axis_depend_on_their_own_place_alone(case: Case) -> None:
    graph = case.graph
    values = {symbol.name: value for symbol, value in graph.walk(case.draw(1))} | case.draw(1) | dict(graph.parameters)
    for symbol in graph.operators:
        given = [np.asarray(values[source.name], np.float64) for source in symbol.inputs]
        expected = np.asarray(symbol.operator.evaluate(*given))
        types = [source.type for source in symbol.inputs]
        for index, source in enumerate(symbol.inputs):
            for axis in range(1, source.type.rank):
                kept = symbol.operator.kept_axis(axis, index, *types)
                if kept is None:
                    continue
                assert symbol.shape[kept] % source.shape[axis] == 0
                neighbours = symbol.shape[kept] // source.shape[axis]
                for place in range(source.shape[axis]):
                    found = varied(symbol, given, index, axis, place)
                    places = np.unique(np.argwhere(found != expected)[:, kept])
                    assert set(places) <= set(range(place * neighbours, (place + 1) * neighbours))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_elementwise_operators_keep_every_axis_of_full_length(case: Case) -> None:
    for symbol in case.graph.operators:
        types = [source.type for source in symbol.inputs]
        if not symbol.operator.is_elementwise:
            continue
        for index, source in enumerate(symbol.inputs):
            if source.shape == symbol.shape:
                for axis in range(source.type.rank):
                    assert symbol.operator.kept_axis(axis, index, *types) == axis
