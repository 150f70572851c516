"""Every operator with an integer form, for all quantizers and granularities, compiled: bit for bit what it means."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled import assert_same_values

from mrt.backend import TvmRunner
from tests.joined_graphs import feeds_of_all, joined
from tests.matrix import PAIRS, Case, extreme_feeds
from tests.matrix_cases import CASES
from tests.quantization.networks import quantize_and_run

MODULES = 16
"""So many hold the operators without a weight, each a mixture, since one compilation for each would take longer."""
ALONE = PAIRS[0], PAIRS[-1]
"""The pairs of one quantizer: an operator without a weight is quantized by one of them, four neighbours by the same."""
WEIGHTED = [case for case in CASES if case.has_weight]
OTHERS = [case for case in CASES if not case.has_weight]


def check(cases: list[Case], pair: tuple[str, str], bits: int) -> None:
    """All cases, every other one on tensors in channel groups, compiled into one module give what their graphs mean."""
    scales = "layer" if pair == ("affine", "symmetric") else "output_channel"
    integers = []
    for turn, case in enumerate(cases):
        case = replace(case, step=(None, 1, None, 3)[(turn + PAIRS.index(pair)) % 4])
        config = case.config(*pair, scales, bits)
        integers.append(quantize_and_run(case.graph, [case.draw(seed) for seed in (1, 2)], config).integer)
    graph = joined([integer.graph for integer in integers])
    run = TvmRunner().prepare(graph)
    for feeds in feeds_of_all([extreme_feeds(integer) for integer in integers]):
        assert_same_values(graph, run(feeds), graph.evaluate(feeds))


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_operators_with_a_weight(pair: tuple[str, str]) -> None:
    """Each by one of the pairs, which take turns."""
    check(WEIGHTED[PAIRS.index(pair) :: len(PAIRS)], pair, 8)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("module", range(MODULES))
def test_operators_without_a_weight(module: int) -> None:
    check(OTHERS[module::MODULES], ALONE[module // 4 % 2], 8)


def test_sixteen_bits() -> None:
    check(list(CASES[3::11]), ("affine", "affine"), 16)
