"""What a clip cuts off at 0 is cut off before the scaling, where rounding gains by it."""

from __future__ import annotations

import pytest
from compiled import assert_same_values
from requantized import ALL, requantized

from mrt.backend import TvmRunner
from mrt.backend.rewrites.clip_before_scaling import ClipBeforeScaling
from mrt.symbol import Graph


def rewritten(graph: Graph) -> tuple[Graph, tuple[str, ...]]:
    result = ClipBeforeScaling().run(graph)
    return result.graph, tuple(refusal.reason for refusal in result.refusals)


def test_a_limit_at_0_is_a_relu_before_the_scaling_where_rounding_gains_by_it() -> None:
    graph = requantized(65534, 24, (0, 100), "uint8")
    found, refusals = rewritten(graph)
    assert [s.op for s in found.operators] == ["relu", "broadcast_mul", "right_shift", "clip", "Cast"] and not refusals
    assert_same_values(found, found.evaluate(ALL), graph.evaluate(ALL))
    assert_same_values(graph, TvmRunner().prepare(graph)(ALL), graph.evaluate(ALL))


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (requantized(60000, 24, (0, 100), "uint8"), ()),
        (requantized(65534, 24, (-1, 100), "int8"), ()),
        (requantized(-65534, 24, (0, 100), "uint8"), ("its factor may be negative",)),
        (requantized(65534, 24, (0, 100), "uint8", reads=2), ("what its limit cuts off is read by others too",)),
    ],
    ids=["the sum fits", "negative values stay", "a factor turns the sign", "read twice"],
)
def test_a_relu_is_not_moved_where_it_gains_nothing_or_is_wrong(graph: Graph, said: tuple[str, ...]) -> None:
    found, refusals = rewritten(graph)
    assert refusals == said and found.operators == graph.operators
    assert_same_values(graph, TvmRunner().prepare(graph)(ALL), graph.evaluate(ALL))
